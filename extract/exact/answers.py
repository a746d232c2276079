"""What is known of the parts of a program: of those that are equal, one is solved (``solved.py``), and several processes do so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ..choice import Key
from ..problem import Problem
from .canonical import canonical
from .endings import Ending, ending
from .hosts import Hosts
from .lanes import begun, in_lanes
from .meter import Meter
from .part import Part
from .solved import Searched, Solved, Try, searched, solved, tries
from .within import LABELS

OTHER = 20
"""A search of a part takes as long beside what it does at each of the levels of what it is given as it does at so many of them."""

MANY = 8
"""Parts of a program of which one like no other matters little: if its first search fails, the one that is sure to end is next; and
of which some buffers may be taken as one at once."""

KINDS, BUFFERS = 6, 24
"""Different parts of a program of many at most, and buffers of the largest from which on some are taken as one at once: where each layer is one
part, with all that it may fill, to look at them apart rarely ends, or takes as long."""


@dataclass(frozen=True)
class Answer:
    """What is known of a part. ``keys``, ``buffers``: those that the numbers of its solution stand for; of the solution of a part of which
    it is the ending, some stand for nothing."""

    part: Part
    keys: Mapping[int, Key]
    buffers: Mapping[int, str]
    solved: Solved | None


@dataclass(frozen=True)
class _Asked:
    """A part to be solved. ``lone``: of many parts, none is like it."""

    part: Part
    keys: tuple[Key, ...]
    buffers: tuple[str, ...]
    lone: bool


@dataclass(frozen=True)
class _Done:
    """What came out of it. ``spent``: steps; ``plenty``: whether what is left of them made no difference; ``merging``: what it adds to that
    of :class:`~tinyc.extract.exact.meter.Meter`."""

    solved: Solved | None
    spent: float = 0.0
    plenty: bool = False
    merging: Mapping[int, int] = field(default_factory=dict)


def answered(
    hosts: Hosts,
    division: Sequence[Part],
    known: dict[tuple[object, ...], Solved | None],
    meter: Meter,
    loosely: bool,
    further: bool = False,
    merges: bool = False,
) -> list[Answer]:
    """The solutions of parts; of those that are equal, one is solved, and of one at the end of the program, that of one before that comes
    often, if it is like that but for what comes after it. Those that are most of the program come first: where the effort does not
    reach for all, it does for these."""
    forms = [canonical(hosts.problem, part) for part in division]
    ends = _endings(hosts.problem, division, [form for form, _, _ in forms])
    for number, end in ends.items():
        forms[number] = forms[end.like]
    dearest: dict[object, tuple[float, ...]] = {}
    for part, (form, _, _) in zip(division, forms, strict=True):
        dearest[form] = tuple(map(max, part.prices, dearest.get(form, part.prices)))
    # any price gives a bound: with the dearest for all, the first layers are equal to those that come later
    division = [
        replace(part, prices=dearest[form]) for part, (form, _, _) in zip(division, forms, strict=True)
    ]
    names = [(loosely, further, merges, dearest[form], *form) for form, _, _ in forms]
    count = Counter(names)
    shares = [count[name] * len(part.options) for name, part in zip(names, division, strict=True)]
    asked: dict[tuple[object, ...], _Asked] = {}
    for number in sorted(set(range(len(forms))) - ends.keys(), key=lambda number: (-shares[number], number)):
        name, (_, keys, buffers) = names[number], forms[number]
        if known.get(name) is None and name not in asked:
            lone = count[name] == 1 and len(division) >= MANY
            asked[name] = _Asked(division[number], keys, buffers, lone)
    # the largest that is not alone shows what the others need
    first = max(
        (name for name in asked if not asked[name].lone), key=lambda name: _size(asked[name]), default=None
    )
    order = sorted(asked, key=lambda name: name is not first)
    found = _solutions(hosts, [asked[name] for name in order], meter, loosely, merges, len(division) >= MANY)
    known.update(zip(order, found, strict=False))
    return [
        Answer(part, ends[number].keys, ends[number].buffers, known.get(name))
        if number in ends
        else Answer(part, dict(enumerate(keys)), dict(enumerate(buffers)), known.get(name))
        for number, (part, (_, keys, buffers), name) in enumerate(zip(division, forms, names, strict=True))
    ]


def _endings(problem: Problem, division: Sequence[Part], forms: Sequence[object]) -> dict[int, Ending]:
    """The parts that are like no other but for what comes after them (``endings.py``), by their places."""
    count = Counter(forms)
    often = {form: (number, division[number]) for number, form in enumerate(forms) if count[form] > 1}
    first = min((number for number, _ in often.values()), default=len(forms))
    found = {
        number: ending(problem, part, often.values())
        for number, (part, form) in enumerate(zip(division, forms, strict=True))
        if number > first and count[form] == 1
    }
    return {number: end for number, end in found.items() if end is not None}


def _solutions(
    hosts: Hosts, asked: Sequence[_Asked], meter: Meter, loosely: bool, merges: bool, many: bool
) -> list[Solved | None]:
    """Of each part in turn, as long as there is effort. The first shows how many buffers have to be taken as one, if any may be. Each of
    the others is as if it were the next, but that it has only the steps that those before it left: as long as these are plenty, it does
    not matter how many they are, and each is solved by itself. While an attempt at the first part is made, other processes look at the
    other parts as if it finds all, as most first ones do. ``many``: whether the program has :data:`MANY` parts."""
    if not asked or meter.limit:
        return []

    def kernels(each: _Asked, meter: Meter, attempts: Sequence[Try]) -> Searched | None:
        return searched(hosts, each.part, meter, loosely, attempts)

    def attempts_of(each: _Asked, meter: Meter) -> list[Try]:
        return tries(each.part, meter, merges, each.lone)

    def solution(each: _Asked, found: Searched | None, meter: Meter) -> Solved | None:
        return None if found is None else solved(found, each.keys, each.buffers, meter)

    def apart(each: _Asked, own: Meter) -> _Done:
        before, number = own.steps, len(each.part.buffers)
        found = kernels(each, own, attempts_of(each, own))
        merging = {number: own.merging[number]} if number in own.merging else {}
        return _Done(solution(each, found, own), before - own.steps, _plenty(own), merging)

    def others(meter: Meter) -> dict[int, Callable[[], _Done]]:
        """The other parts, each by itself; none where there is one process, or too little effort is left."""
        if meter.lanes <= 1 or not _plenty(meter):
            return {}
        # the longest first, so that all end together
        order = sorted(range(int(merges), len(asked)), key=lambda number: -_length(asked[number]))
        return {number: partial(apart, asked[number], meter.copy()) for number in order}

    first, start, done = asked[0], None, dict[int, _Done]()
    attempts = attempts_of(first, meter) if merges else []
    if many and len(asked) <= KINDS and len(first.part.buffers) > BUFFERS:
        attempts = [each for each in attempts if each.way]
    for attempt in attempts:
        hoped = meter.copy()
        hoped.merging[len(first.part.buffers)] = attempt.way
        jobs = others(hoped)
        with begun(list(jobs.values()), meter.lanes) as rest:
            start = kernels(first, meter, [attempt])
            if start is not None and jobs:
                done = {0: _Done(solution(first, start, meter))} | dict(zip(jobs, rest(), strict=True))
        if start is not None or meter.limit:
            break
    if not merges:
        jobs = others(meter)
        done = dict(zip(jobs, in_lanes(list(jobs.values()), meter.lanes), strict=True))
    found: list[Solved | None] = []
    merging, shown = meter.merging, dict(meter.merging)
    for number, each in enumerate(asked):
        if merges and not number:
            found.append(done[0].solved if done else solution(first, start, meter))
            continue
        if meter.limit:
            break
        if number in done and _counts(done[number], meter):
            meter.steps -= done[number].spent
            found.append(done[number].solved)
            merging |= {**shown, **done[number].merging}
        else:
            meter.merging = dict(shown)
            found.append(solution(each, kernels(each, meter, attempts_of(each, meter)), meter))
            merging |= meter.merging
    meter.merging = merging
    return found


def _counts(done: _Done, meter: Meter) -> bool:
    """Whether it is what would be found with the steps that are left."""
    return done.plenty and meter.steps - done.spent > LABELS


def _size(asked: _Asked) -> int:
    return len(asked.part.options)


def _length(asked: _Asked) -> int:
    """About how long it takes beside others."""
    return _size(asked) * (OTHER + len(asked.part.levels))


def _plenty(meter: Meter) -> bool:
    """Whether no search can have been cut short."""
    return meter.steps > LABELS and not meter.limit
