"""Greedy DAG extraction: which values are computed where, and which are kept in buffers.

The first pass (``relaxation.py``) knows of no buffer; those that its solution fills are free in the next (they are
paid already), until the estimate of the whole program gets no better. A buffer that pays only because several places
read it is found by a pass that charges each of them its share. Then single buffers are tried without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from .choice import Choice, Kernel, evaluations
from .mates import at_ends, mates
from .problem import Problem
from .relaxation import TIE, Pass
from .view import Item, View, axis_extent

EFFORT = 60_000
"""Options that the passes of :func:`improve` may look at together: a second or two. A count and not a time, so that
the same program always gives the same kernels."""

MAX_TRIALS = 100
"""Kinds of buffers that :func:`improve` tries to do without."""


LARGE = 100_000
"""Options from which on the passes that look for shared buffers are left out: a hundred transformer blocks."""


@dataclass(frozen=True)
class Solution:
    """``shares``: for each buffer, in how many places its values were computed before any of them shared it."""

    choice: Choice
    shares: Mapping[str, int]


def extract(problem: Problem, shares: Mapping[str, int] | None = None) -> Solution | None:
    """The cheapest program found; None where an output cannot be computed from the e-graph.

    ``shares``: of a solution of the same problem with fewer values stored, which saves finding them.
    """
    if not _known(problem):
        return None
    problem, first = _without_streams(problem)
    best: Choice | None = None
    if shares is None:
        best = _settle(problem, first)
        if best is None:
            return None
        shares = _evaluated(problem.view, best)
        if problem.size > LARGE:
            return Solution(best, shares)
    # from the start, with what several places compute charged to all of them together
    shared = _settle(problem, Pass(problem, shares=shares).solve())
    if shared is not None and (best is None or shared.seconds < best.seconds):
        best = shared
    return None if best is None else Solution(best, shares)


def rough(problem: Problem) -> Choice | None:
    """What the first passes find, for a search to begin with that finds better; None as of :func:`extract`."""
    if not _known(problem):
        return None
    filled = Pass(problem).filled()
    # what stores h W for x + h W adds up all layers before in each kernel: kernels as large take long to look at
    return None if filled is None else Pass(problem, at_ends(mates(problem), filled)).solve()


def rougher(problem: Problem, before: Choice) -> Choice | None:
    """What a pass finds, of a problem with buffers for all outputs, for which the buffers are free that were filled ``before``, when less
    had to be stored."""
    return Pass(problem, _filled(before)).solve()


def _known(problem: Problem) -> bool:
    """Whether the e-graph has a buffer for each output."""
    return all(output in problem.view.buffers for output in problem.view.graph.outputs)


def _without_streams(problem: Problem) -> tuple[Problem, Choice | None]:
    """``problem`` less the Streams that make the program of one pass dearer, and that program. A pass looks at one value at a time, and
    takes a Stream for what it alone would cost: that all of a softmax is cheaper in other kernels, it does not see."""
    scores: dict[Hashable, set[str]] = {}
    for cls, _ in problem.order:
        for item in problem.view.items.get(cls, ()):
            if item.head == "Stream":
                rows = sorted(map(axis_extent, problem.view.free[item.children[0]]))
                scores.setdefault((*item.payload, *rows), set()).add(cls)
    best = Pass(problem).solve()
    for classes in scores.values():
        other = problem.barring(frozenset(classes))
        choice = Pass(other).solve()
        if best is not None and choice is not None and choice.seconds < best.seconds * (1 - TIE):
            problem, best = other, choice
    return problem, best


def improve(problem: Problem, best: Choice) -> Choice:
    """``best`` with fewer buffers, or other ones. Where no buffer can be done without, that may be for its Streams, which hold on to the
    buffers beside them: it begins again without those."""
    found = _improved(problem, best)
    streams = frozenset(
        key[0]
        for kernel in best.kernels
        for key, item in kernel.items.items()
        if item.head == "Stream" and found is best
    )
    if not streams:
        return found
    other = problem.barring(streams)
    start = _settle(other, Pass(other, _filled(best)).solve())
    again = found if start is None else _improved(problem, start)
    return again if again.seconds < found.seconds * (1 - TIE) else found


def _improved(problem: Problem, best: Choice) -> Choice:
    """Tries ``best`` without its buffers: all of a kind at once (equal layers have equal kernels), within
    :data:`EFFORT`."""
    trials = min(EFFORT // problem.size, MAX_TRIALS)
    banned: frozenset[str] = frozenset()
    kinds: dict[Hashable, list[Kernel]] = {}
    for kernel in best.kernels:
        if kernel.buffer.cls not in problem.view.graph.outputs:
            kinds.setdefault(_kind(kernel), []).append(kernel)
    # what costs least to compute is most likely not worth a kernel
    ordered = sorted(kinds.values(), key=lambda kernels: kernels[0].seconds)
    for kernels in ordered[:trials]:
        without = frozenset(kernel.buffer.cls for kernel in kernels)
        choice = Pass(problem, _filled(best) - without, banned | without).solve()
        if choice is not None and choice.seconds < best.seconds * (1 - TIE):
            best, banned = choice, banned | without
    return best


def _kind(kernel: Kernel) -> Hashable:
    """Equal for kernels of one structure."""
    counts = Counter((item.head, item.op) for item in kernel.items.values())
    return kernel.buffer.dtype, kernel.buffer.shape, kernel.way.shape, frozenset(counts.items())


def _settle(problem: Problem, best: Choice | None) -> Choice | None:
    """Passes in which what the last one filled is free, until the estimate gets no better."""
    latest = best
    for _ in range(3):
        if latest is None or best is None:
            break
        paid = _filled(latest)
        latest = Pass(problem, paid).solve()
        if latest is not None and latest.seconds < best.seconds:
            best = latest
        if latest is None or _filled(latest) == paid:
            break
    return best


def _filled(choice: Choice) -> frozenset[str]:
    return frozenset(kernel.buffer.cls for kernel in choice.kernels)


def _evaluated(view: View, choice: Choice) -> dict[str, int]:
    """For each buffer, in how many places a value of it is computed: kernels, and in a kernel the reductions that
    evaluate it. Two of the latter count as one (a softmax takes each exponential twice): a row that is evaluated
    again is at hand, and a kernel of its own for it would move it through memory."""
    counts: dict[str, int] = {}
    for kernel in choice.kernels:
        own = Counter(
            view.origin(key[0])
            for key in evaluations(view, kernel.root, kernel.items)
            if not _is_own(view, key[0], kernel.items[key])
        )
        for origin, count in own.items():
            counts[origin] = counts.get(origin, 0) + (count if count > 2 else 1)
    found: dict[str, int] = {}
    for name, buffer in view.buffers.items():
        found[name] = max((counts.get(view.origin(way.root), 1) for way in buffer.ways), default=1)
    return found


def _is_own(view: View, cls: str, item: Item) -> bool:
    """Whether a value is read from its own buffer; from another, as of a transposed view, it might have one."""
    if item.head != "Read":
        return False
    ways = view.buffers[str(item.payload[0])].ways
    return any(view.origin(way.root) == view.origin(cls) for way in ways)
