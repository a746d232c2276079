"""Choices along paths through the cuts of a program (``paths.py``).

The kernels of a bound compute what is not filled for less than it takes. What that is shows where they are looked at: a part costs
more at such ends, and with that another path may be the cheapest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..choice import Kernel
from ..problem import Problem
from .answers import Answer
from .bounds import Taken
from .inside import Levels
from .paths import Ends, path
from .rounded import Picked, Rounded, rounded, together
from .solved import Solved

ROUNDS = 4
"""Paths that are looked at at most, each with what is known of those before."""

LITTLE = 0.01
"""The share of what a part costs that does not matter."""

TIMES = 4
"""Choices of kernels along one of them at most."""

NEVER = 1.0
"""Seconds of what cannot be."""


@dataclass
class _Dearer:
    """What is known of the kernels of a bound at some ends: what columns cost ``more`` than it says, in seconds; and with that, what it
    is ``taken`` then."""

    more: dict[tuple[str, int], float]
    taken: Taken | None


_There = tuple[int, Ends]
"""A solution, by its id, and the ends of a part."""


def along(
    problem: Problem, answers: Sequence[Answer], most: float, enough: Callable[[], float]
) -> Iterator[dict[str, Kernel]]:
    """The kernels of the bounds along the cheapest path, as they are; then along that which is the cheapest with what they cost, and
    with the kernels that are the cheapest then, as long as that is less than ``enough`` seconds, and they are whole kernels: of buffers
    that are taken as one, they rarely are. ``most``: see :func:`path`."""
    whole = not any(each.solved.merged for each in answers if each.solved is not None)
    dearer: dict[int, dict[Ends, float]] = {}
    known: dict[tuple[int, Ends], _Dearer] = {}
    seen: set[tuple[Levels, ...]] = set()
    for _ in range(ROUNDS if whole else 1):
        total, states = path(answers, most, dearer, enough())
        if total >= enough() or tuple(states) in seen:
            return
        seen.add(tuple(states))
        ends = list(zip([(), *states], states, strict=False))
        for _ in range(TIMES if whole else 1):
            kernels, more = _rounded(problem, answers, ends, known)
            yield kernels
            if not _learned(answers, ends, known, dearer, more) or _total(answers, ends, dearer) >= enough():
                break


def _rounded(
    problem: Problem, answers: Sequence[Answer], ends: Sequence[Ends], known: Mapping[_There, _Dearer]
) -> tuple[dict[str, Kernel], list[list[float] | None]]:
    """The kernels at these ends, if they can be, and what each costs more than its bound; None for a part of which one was not looked
    for."""
    picked = [_picked(problem, each, at, known) for each, at in zip(answers, ends, strict=True)]
    every = [kernel for each in picked for kernel in each or ()]
    found = rounded(problem, every)
    more = map(_more, every, found)
    each_more = [None if each is None else [*itertools.islice(more, len(each))] for each in picked]
    return together(problem, found) or {}, each_more


def _learned(
    answers: Sequence[Answer],
    ends: Sequence[Ends],
    known: dict[_There, _Dearer],
    dearer: dict[int, dict[Ends, float]],
    more: Sequence[list[float] | None],
) -> bool:
    """Whether something is ``known`` now with which other kernels may be taken at these ends; and what parts are ``dearer`` by."""
    fresh: dict[_There, tuple[Solved, dict[tuple[str, int], float]]] = {}
    for each, at, here in zip(answers, ends, more, strict=True):
        solved = each.solved
        if solved is None:
            continue
        there = id(solved), at
        if here is None:
            dearer.setdefault(there[0], {})[at] = float("inf")
        elif sum(here) > LITTLE * solved.bounds.least(at):
            _, columns = fresh.setdefault(there, (solved, {}))
            for what, seconds in zip(_taken(solved, at, known) or (), here, strict=True):
                columns[what] = max(seconds, columns.get(what, 0.0))
    changed = False
    for (number, at), (solved, columns) in fresh.items():
        before = known.get((number, at))
        every = columns if before is None else before.more | columns
        if before is None or every != before.more:
            least, taken = solved.bounds.dearer(at, every)
            known[number, at] = _Dearer(every, taken)
            dearer.setdefault(number, {})[at] = least - solved.bounds.least(at)
            changed = True
    return changed


def _total(
    answers: Sequence[Answer], ends: Sequence[Ends], dearer: Mapping[int, Mapping[Ends, float]]
) -> float:
    """What the parts cost at least at these ends, as far as it is known."""
    pairs = [(each.solved, at) for each, at in zip(answers, ends, strict=True) if each.solved is not None]
    return sum(solved.bounds.least(at) + dearer.get(id(solved), {}).get(at, 0.0) for solved, at in pairs)


def _picked(
    problem: Problem, answer: Answer, ends: Ends, known: Mapping[_There, _Dearer] = MappingProxyType({})
) -> list[Picked] | None:
    """The kernels that are taken there; None where one was not looked for."""
    if answer.solved is None:
        return []
    taken = _taken(answer.solved, ends, known)
    if taken is None:
        return None
    return answer.solved.picked(problem, answer.keys, answer.buffers, ends, taken)


def _taken(solved: Solved, ends: Ends, known: Mapping[_There, _Dearer]) -> Taken | None:
    at = known.get((id(solved), ends))
    return solved.bounds.taken(ends) if at is None else at.taken


def _more(picked: Picked, ways: Rounded) -> float:
    """What a kernel costs more than its bound, in seconds."""
    return max(0.0, min((kernel.seconds for kernel in ways.values()), default=NEVER) - picked.seconds)
