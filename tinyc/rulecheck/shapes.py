"""Shapes and permutations for the variables of a rule, from small to large."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from .buffers import WIDEST
from .context import Reject
from .numbers import Uses
from .prerequisites import PREREQUISITES
from .wanted import result_wanted, shape_viewed

if TYPE_CHECKING:
    from .instantiate import Attempt

SHAPES: tuple[tuple[int, ...], ...] = tuple(
    shape for rank in range(4) for shape in itertools.product((1, 2, 3), repeat=rank)
)
"""All shapes of rank 0 to 3 with extents 1 to 3, from small to large."""

LARGER = ((2, 3, 5), (1, 2, 3, 2), (5,), (4, 3), (2, 1, 1, 3), (6, 2), (2, 2, 2, 2), (1, 5), (3, 1, 4))

LONG = (1, 2, 3, 4, 7, 8, 16, 64, 100, 129, 1000, 1024, 4099, 65536)
"""Extents of what is only counted, also such as no part divides."""

DRAWS = 12
"""Numbers that are drawn for one that guards do not exclude."""


def same_size(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes with as many elements."""
    count = math.prod(shape)
    found = [each for each in (*SHAPES, *LARGER) if math.prod(each) == count]
    return [*found, (count,), (1, *shape), (*shape, 1), tuple(reversed(shape))]


def shape_of_number(attempt: Attempt) -> tuple[int, ...]:
    """Shapes come up in turn, so that none is left out. Now and then one axis is as long as a guard asks."""
    shape = _any_shape(attempt)
    extents = attempt.case.extents
    if (
        extents
        and shape
        and math.prod(shape) <= 32
        and attempt.number % 3 == 2
        and attempt.rng.random() < 0.7
    ):
        at = attempt.rng.randrange(len(shape))
        return (*shape[:at], attempt.rng.choice(extents), *shape[at + 1 :])
    return shape


def _any_shape(attempt: Attempt) -> tuple[int, ...]:
    if attempt.case.ranks and attempt.rng.random() < 0.5:  # most of its axes are short
        rank = attempt.rng.choice(attempt.case.ranks)
        return tuple(attempt.rng.choice((1, 2, 2, 3) if attempt.level else (1, 2)) for _ in range(rank))
    leaves = attempt.world.context.leaves
    number = attempt.number + 7 * len(leaves)
    others = [leaf.shape for term, leaf in leaves.items() if term.head in ("?Tensor", "Input")]
    if others and attempt.rng.random() < 0.5:  # equal, or with the axes in another order
        shape = list(attempt.rng.choice(others))
        if attempt.rng.random() < 0.5:
            attempt.rng.shuffle(shape)
        return tuple(shape)
    if attempt.counted and attempt.rng.random() < 0.75:
        rank = attempt.rng.randint(1, 3)
        short = attempt.rng.choice((0, rank - 1))  # few results of long reductions
        return tuple(attempt.rng.choice((1, 2, 3, 4) if at < short else LONG) for at in range(rank))
    if attempt.level == 2 and attempt.rng.random() < 0.2:
        return attempt.rng.choice(LARGER)
    return SHAPES[number % len(SHAPES)]


def integers(attempt: Attempt, name: str, uses: Uses) -> tuple[int, ...]:
    """A shape or permutation; of as many axes as the rule says."""
    wanted = [step.out for step, _ in uses if step.head == "vec-length" and attempt.bound(step.out)]
    for _ in range(DRAWS if wanted else 1):
        found = _shape(attempt, uses)
        if any((step.head, position) == ("View", 1) for step, position in uses):
            found = attempt.stretched(name, found)
        if all(attempt.get(each) == len(found) for each in wanted if each is not None):
            return found
    raise Reject


def _shape(attempt: Attempt, uses: Uses) -> tuple[int, ...]:
    rng = attempt.rng
    for step, position in uses:
        needs = PREREQUISITES.get((step.head, position), ())
        if step.kind == "term" and all(attempt.bound(step.args[each]) for each in needs):
            facts = attempt.world.facts
            match step.head, position:
                case "Reshape", 1:
                    wanted_ = result_wanted(attempt, step)
                    if wanted_ in same_size(facts._of(attempt.get(step.args[0]))) and rng.random() < 0.8:
                        return wanted_
                    return rng.choice(same_size(facts._of(attempt.get(step.args[0]))))
                case "Alias", 0:
                    return rng.choice(same_size(facts.extent(attempt.get(step.args[1]))))
                case "Permute", 1:
                    before = facts._of(attempt.get(step.args[0]))
                    after = result_wanted(attempt, step)
                    perm = list(range(len(before)))
                    for _ in range(1 if after is None else DRAWS):
                        rng.shuffle(perm)
                        if tuple(before[each] for each in perm) == after:
                            break
                    return tuple(perm)
                case "Permute", 2:
                    perm = list(attempt.get(step.args[1]))
                    return tuple(perm.index(each) for each in range(len(perm)))
                case "Ravel", 1:
                    return tuple(facts.high(each) + 1 for each in attempt.get(step.args[0]))
                case "View", 1 if attempt.bound(step.args[2]):
                    return shape_viewed(attempt, attempt.get(step.args[2]))
                case "View", 1:
                    points = math.prod(facts._of(attempt.get(step.args[0])))
                    if rng.random() < 0.2 and (
                        attempt.counted or points <= 2
                    ):  # about as many as are too many
                        points = WIDEST * points + rng.choice((0, 0, 1, -1))
                        return (max(1, points),)
                    return rng.choice([each for each in SHAPES if each])
    return shape_of_number(attempt)
