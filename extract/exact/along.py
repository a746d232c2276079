"""Choices along paths through the cuts of a program (``paths.py``).

The kernels of a bound compute what is not filled for less than it takes. What that is shows where they are looked at: a part costs
more at such ends, and with that another path may be the cheapest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
            if not _learned(answers, ends, known, dearer, more):
                break


def _rounded(
    problem: Problem, answers: Sequence[Answer], ends: Sequence[Ends], known: Mapping[_There, _Dearer]
) -> tuple[dict[str, Kernel], list[list[float] | None]]:
    """The kernels at these ends, if they can be, and what each costs more than its bound; None for a part of which one was not looked
    for."""
    taken = [_taken(each, at, known) for each, at in zip(answers, ends, strict=True)]
    picked = [
        each.solved.picked(problem, each.keys, each.buffers, at, own) if each.solved and own else []
        for each, at, own in zip(answers, ends, taken, strict=True)
    ]
    found = rounded(problem, [one for each in picked for one in each])
    more = iter([_more(*each) for each in zip(itertools.chain.from_iterable(picked), found, strict=True)])
    each_more = [[*itertools.islice(more, len(there))] for there in picked]
    whole = [None if own is None else here for own, here in zip(taken, each_more, strict=True)]
    return together(problem, found) or {}, whole


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
            for what, seconds in zip(_taken(each, at, known) or (), here, strict=True):
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


def _taken(answer: Answer, ends: Ends, known: Mapping[_There, _Dearer]) -> Taken | None:
    """The columns that are taken there; None where one was not looked for."""
    if answer.solved is None:
        return []
    at = known.get((id(answer.solved), ends))
    return answer.solved.bounds.taken(ends) if at is None else at.taken


def _more(picked: Picked, ways: Rounded) -> float:
    """What a kernel costs more than its bound, in seconds."""
    return max(0.0, min((kernel.seconds for kernel in ways.values()), default=NEVER) - picked.seconds)
