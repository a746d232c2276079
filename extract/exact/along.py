"""Choices along paths through the cuts of a program (``paths.py``).

The kernels of a bound compute what is not filled for less than it takes. What that is shows where they are looked at: a part costs
more at such ends, and with that another path may be the cheapest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from ..choice import Kernel
from ..problem import Problem
from .answers import Answer
from .inside import Levels
from .paths import Ends, path
from .rounded import Picked, Rounded, rounded, together

ROUNDS = 4
"""Paths that are looked at at most, each with what is known of those before."""

LITTLE = 0.01
"""The share of what a part costs that does not matter."""


def along(
    problem: Problem, answers: Sequence[Answer], most: float, enough: Callable[[], float]
) -> Iterator[dict[str, Kernel]]:
    """The kernels of the bounds along the cheapest path, as they are; then along that which is the cheapest with what they cost, as
    long as that is less than ``enough`` seconds, and they are whole kernels: of buffers that are taken as one, they rarely are.
    ``most``: see :func:`path`."""
    whole = not any(each.solved.merged for each in answers if each.solved is not None)
    dearer: dict[int, dict[Ends, float]] = {}
    known: set[tuple[Levels, ...]] = set()
    for _ in range(ROUNDS if whole else 1):
        total, states = path(answers, most, dearer, enough())
        if total >= enough() or tuple(states) in known:
            return
        known.add(tuple(states))
        ends = list(zip([(), *states], states, strict=False))
        picked = [_picked(problem, each, at) for each, at in zip(answers, ends, strict=True)]
        kernels = iter(rounded(problem, [one for each in picked for one in each or ()]))
        every: list[Rounded] = []
        for each, at, own in zip(answers, ends, picked, strict=True):
            found = list(itertools.islice(kernels, len(own or ())))
            every += found
            if each.solved is not None:
                more = float("inf") if own is None else _more(own, found)
                least = each.solved.bounds.least(at)
                if more > LITTLE * least:
                    here = dearer.setdefault(id(each.solved), {})
                    here[at] = max(more, here.get(at, 0.0))
        yield together(problem, every) or {}


def _picked(problem: Problem, answer: Answer, ends: Ends) -> list[Picked] | None:
    if answer.solved is None:
        return []
    return answer.solved.picked(problem, answer.keys, answer.buffers, ends)


def _more(picked: Sequence[Picked], found: Sequence[Rounded]) -> float:
    """What kernels cost more than their bounds, in seconds."""
    return sum(
        min((kernel.seconds for kernel in ways.values()), default=float("inf")) - each.seconds
        for each, ways in zip(picked, found, strict=True)
    )
