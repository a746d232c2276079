"""A bound of every choice of kernels that needs no search: what no program can do without, in one kernel.

Whatever the kernels are, the reductions that every program computes are computed in one of them. Of each kernel the launch and
the arithmetic count, at the machine's peak; arithmetic that is one kernel's costs no more than if it were several's.
"""

from __future__ import annotations

from ..choice import REDUCING, How, Key, as_copy, outside
from ..cost.model import Roofline, Work
from ..problem import Option, Problem


def relaxed(problem: Problem) -> float:
    """No choice costs less, in seconds. 0 for a cost model of one's own, of which nothing is known."""
    if not isinstance(problem.model, Roofline):
        return 0.0
    launch = problem.model.kernel(Work())
    least = {charge: _least(problem, charge) for charge in (0.0, launch)}
    number = {origin: place for place, origin in enumerate(least[launch])}
    must = _must(problem, number)
    outputs = [
        name for name in dict.fromkeys(problem.view.graph.outputs) if problem.view.buffers[name].arg is None
    ]
    always = 0
    for name in outputs:
        always |= _common(problem, must, name, -1)
    # each output has a kernel; so has each contraction that is tiled, but that may be the same one
    return max(
        (launch * len(outputs) if not charge else 0.0)
        + sum(seconds for origin, seconds in found.items() if always >> number[origin] & 1)
        for charge, found in least.items()
    )


def _least(problem: Problem, launch: float) -> dict[str, float]:
    """Of each reduction, by what it is wherever it is needed, what computing it makes a kernel longer at least."""
    found: dict[str, float] = {}
    for key, options in problem.options.items():
        computed = [option for option in options if option.item.head != "Read"]
        if computed and all(option.item.head in REDUCING for option in computed):
            seconds = min(_seconds(problem, key, option, launch) for option in computed)
            origin = problem.view.origin(key[0])
            found[origin] = min(seconds, found.get(origin, seconds))
    for (
        key,
        options,
    ) in problem.options.items():  # what some place computes in another way is not known to be reduced
        if any(option.item.head not in REDUCING | {"Read"} for option in options):
            found.pop(problem.view.origin(key[0]), None)
    return found


def _seconds(problem: Problem, key: Key, option: Option, launch: float) -> float:
    """By how much a kernel is longer that computes a value by an option. One that tiles a contraction runs as suits that,
    and tiles no other, so it is charged ``launch``; of how others run nothing is known."""
    model = problem.model
    none = model.kernel(Work())
    ways: list[float] = []
    hows: list[How] = ["loops", "tiled"]  # what is kept of a row is tiled at another place
    if not outside(problem.view.free[key[0]]):
        hows.append("scanned")
    for how in hows:
        work = problem.works.work(key, option.item, how)
        alone = work.schedule is not None
        seconds = min(model.kernel(each) for each in (work, as_copy(work))) - none
        ways.append(max(0.0, seconds) + (launch if alone else 0.0))
    return min(ways)


def _must(problem: Problem, number: dict[str, int]) -> dict[Key, int]:
    """By value, the set of the reductions without which it cannot be had: of what its options need, what they have in
    common."""
    every = (1 << len(number)) - 1
    found = dict.fromkeys(problem.order, every)
    shrunk = True
    while shrunk:
        shrunk = False
        for key in problem.order:
            place = number.get(problem.view.origin(key[0]))
            own, common = 0 if place is None else 1 << place, every
            for option in problem.options[key]:
                needed = own
                if option.item.head == "Read":
                    needed = _common(problem, found, str(option.item.payload[0]), every)
                for child in option.children:
                    needed |= found.get(child, every)
                common &= needed
            if common != found[key]:
                found[key], shrunk = common, True
    return found


def _common(problem: Problem, found: dict[Key, int], name: str, every: int) -> int:
    """What every way to fill a buffer needs."""
    buffer = problem.view.buffers[name]
    if buffer.arg is not None:
        return 0
    common = every
    for way in buffer.ways:
        common &= found.get((way.root, False), every)
    return common
