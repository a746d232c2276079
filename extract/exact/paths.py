"""The cheapest way through the cuts of a program: what its parts cost at least together, by what is filled between them.

Whatever the whole program does, at each cut it fills some of the buffers, and each part does at least what that takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from .answers import Answer
from .bounds import Ends
from .inside import Levels
from .solved import made_levels

if TYPE_CHECKING:
    from .bounds import Costs, Numbers


Dearer = Mapping[int, Mapping[Ends, float]]
"""What parts cost more than their bounds say, in seconds: of those with a solution, by its id, at some ends."""


def path(
    answers: Sequence[Answer],
    most: float = float("inf"),
    dearer: Dearer = MappingProxyType({}),
    enough: float = float("inf"),
) -> tuple[float, list[Levels]]:
    """What the parts cost at least together, in seconds, and what is filled at each cut where that is attained. ``most``: cuts one
    after the other at which not all is filled. ``dearer``: what is known to cost more. Only what is on a path that may be the
    cheapest is worked out, and nothing more where that costs ``enough`` seconds."""
    tables: dict[int, Costs] = {}
    while True:
        total, states = _cheapest(answers, most, tables, dearer)
        ends = zip([(), *states], states, strict=False)
        pairs = [(each.solved.bounds, at) for each, at in zip(answers, ends, strict=True) if each.solved]
        unknown = [(bounds, at) for bounds, at in pairs if not bounds.known(at)]
        if not unknown or total >= enough:
            return total, states
        for bounds, at in unknown:
            bounds.solve(at)
            tables.pop(id(bounds), None)


class _Step(NamedTuple):
    """The cheapest ways up to the end of a part. ``least``: what they cost, by the levels of what it makes (rows), and how many cuts in
    a row there are up to it at which not all is filled. ``before``: the number of the levels of what it is given, by that at the cut
    before and the levels of what it makes. ``runs``: how many cuts in a row there are before it, where all is filled at its end."""

    least: Costs
    before: Numbers
    runs: Numbers


def _cheapest(
    answers: Sequence[Answer], most: float, tables: dict[int, Costs], dearer: Dearer
) -> tuple[float, list[Levels]]:
    """The same, of what is known so far. ``tables``: what parts cost."""
    import numpy as np

    endless = most == float("inf")
    least = np.full((1, 1 if endless else int(most) + 1), np.inf)
    least[0, 0] = 0.0
    levels: list[Sequence[Levels]] = [[()]]
    steps: list[_Step] = []
    for each in answers:
        made = made_levels(each.part)
        if each.solved is None:  # nothing is known of what it costs
            costs = np.zeros((len(levels[-1]), len(made)))
        else:
            bounds = each.solved.bounds
            if id(bounds) not in tables:
                tables[id(bounds)] = bounds.table(dearer.get(id(each.solved)))
            costs = tables[id(bounds)]
            if tuple(made) != bounds.made:  # of an ending, some of these
                column = {at: place for place, at in enumerate(bounds.made)}
                costs = costs[:, [column[at] for at in made]]
            if each.part.levels != levels[-1]:
                number = {at: place for place, at in enumerate(each.part.levels)}
                none = np.full((1, len(made)), np.inf)
                costs = np.concatenate([costs, none])[[number.get(at, -1) for at in levels[-1]]]
        steps.append(_step(least, costs, [any(at) and not endless for at in made]))
        least = steps[-1].least
        levels.append(made)
    place, run = divmod(int(least.argmin()), least.shape[1])
    if least[place, run] == np.inf:
        return 0.0, [(0,) * len(each.part.made) for each in answers]
    total, states = float(least[place, run]), list[Levels]()
    for at, step in zip(reversed(levels[1:]), reversed(steps), strict=True):
        states.append(at[place])
        run = run - 1 if run else int(step.runs[place])
        place = int(step.before[run, place])
    return total, states[::-1]


def _step(least: Costs, costs: Costs, unfilled: Sequence[bool]) -> _Step:
    """``least``: of the part before. ``unfilled``: the levels of what is made at which the cut counts as one where not all is filled."""
    import numpy as np

    totals = least[:, :, None] + costs[:, None, :]
    before, totals = totals.argmin(axis=0), totals.min(axis=0)
    counts = np.array(unfilled)
    found = np.full((costs.shape[1], least.shape[1]), np.inf)
    found[:, 0] = np.where(counts, np.inf, totals.min(axis=0))
    found[:, 1:] = np.where(counts[:, None], totals[:-1].T, np.inf)
    return _Step(found, before, totals.argmin(axis=0))
