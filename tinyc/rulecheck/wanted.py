"""Shapes that make an instance well formed: operands of one operation are of one shape, also where one of them is moved first.

A tensor that is expanded beside another, ``f(x, expand(y, a, n))``, has by chance the shape of x with one point along axis a
only where n is 1. So what a variable is made into says what it should be, and what is done with it is chosen to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .parse import Var
from .spelled import template
from .steps import Step

if TYPE_CHECKING:
    from .instantiate import Attempt
    from .term import Term

Shape = tuple[int, ...]

DEPTH = 4
"""Of operations between a variable and the one that says its shape."""


def shape_wanted(attempt: Attempt, name: str, depth: int = DEPTH) -> Shape | None:
    """The shape that a tensor must have for what is made of it; None where nothing says."""
    for step, position in attempt.case.uses.get(name, ()):
        if step.kind != "term" or depth == 0:
            continue
        if step.head in ("TBinary", "TWhere"):
            found = _beside(attempt, step, name)
            if found is None:
                found = result_wanted(attempt, step, depth)
        elif step.head in ("TUnary", "TCast"):
            found = result_wanted(attempt, step, depth)
        elif step.head == "View" and position == 0 and attempt.bound(step.args[2]):
            found = shape_read(attempt, attempt.get(step.args[2]))
        elif (
            step.head == "Reshape"
            and position == 0
            and (spelled := template(attempt.case, step.args[1], attempt.rng)) is not None
        ):
            found = _regrouped(attempt, spelled)
        elif step.head in _UNDONE and position == _OPERAND.get(step.head, 0):
            result = result_wanted(attempt, step, depth)
            found = None if result is None else _UNDONE[step.head](attempt, result)
        else:
            found = None
        if found is not None:
            return found
    return None


def result_wanted(attempt: Attempt, step: Step, depth: int = DEPTH) -> Shape | None:
    """The shape that the result of a step must have; None where nothing says."""
    if not isinstance(step.out, Var):
        return None
    if attempt.bound(step.out):
        return attempt.world.facts.shape(attempt.get(step.out))
    return shape_wanted(attempt, step.out.name, depth - 1)


def _beside(attempt: Attempt, step: Step, name: str) -> Shape | None:
    """The shape of another operand, or one that it may come to have."""
    others = [
        arg
        for arg in step.args
        if isinstance(arg, Var) and arg.name != name and attempt.case.sorts[arg.name] == "Tensor"
    ]
    found = [_to_be(attempt, arg, DEPTH) for arg in sorted(others, key=lambda arg: not attempt.bound(arg))]
    return next((each for each in found if each is not None), None)


def _to_be(attempt: Attempt, arg: Var, depth: int) -> Shape | None:
    """The shape of a tensor, or one that it can be given where its operand alone is known."""
    if attempt.bound(arg):
        return attempt.world.facts.shape(attempt.get(arg))
    for step in attempt.case.produced.get(arg.name, ()) if depth else ():
        operands = [
            each for each in step.args if isinstance(each, Var) and attempt.case.sorts[each.name] == "Tensor"
        ]
        if step.kind == "term" and operands and step.head in (*_DONE, "TUnary", "TCast", "TBinary", "TWhere"):
            before = _to_be(attempt, operands[0], depth - 1)
            if before is not None:
                return _DONE[step.head](attempt, before) if step.head in _DONE else before
    return None


# ---- what a moved tensor was before, and will be -----------------------------------------------------------------------------------


def _one_axis(change: Callable[[Attempt, int], int]) -> Callable[[Attempt, Shape], Shape | None]:
    def before(attempt: Attempt, shape: Shape) -> Shape | None:
        if not shape:
            return None
        at = attempt.rng.randrange(len(shape))
        size = change(attempt, shape[at])
        return (*shape[:at], size, *shape[at + 1 :]) if size > 0 else None

    return before


def shape_read(attempt: Attempt, vector: tuple[Term, ...]) -> Shape:
    """A shape that a view's index stays within, by no more than one point: where the rule spells the index, as windows of a
    convolution are, an operand at random hardly fits."""
    facts = attempt.world.facts
    return tuple(max(1, facts.high(each) + 1 + attempt.rng.choice((0, 0, 1))) for each in vector)


def shape_viewed(attempt: Attempt, vector: tuple[Term, ...]) -> Shape:
    """A shape with the axes of a view's index, and now and then one that it does not name."""
    extents = {each.args[0]: each.args[1] for each in attempt.world.facts.axes_of(vector)}
    rank = max(extents, default=-1) + 1 + attempt.rng.choice((0, 0, 0, 1))
    return tuple(extents.get(at) or attempt.rng.choice((1, 1, 2)) for at in range(rank))


def merged(attempt: Attempt, shape: Shape) -> Shape:
    """Some axes of a shape as one, which a reshape then takes apart: of a prime extent there is but one way to."""
    if len(shape) < 2:
        shape = attempt.rng.choice(((2, 2), (2, 3), (3, 2), (2, 2, 2)))
    first, end = sorted(attempt.rng.sample(range(len(shape) + 1), 2))
    return (*shape[:first], math.prod(shape[first:end]), *shape[end:])


def _shuffled(attempt: Attempt, shape: Shape) -> Shape:
    return tuple(attempt.rng.sample(shape, len(shape)))


def _regrouped(attempt: Attempt, shape: Shape) -> Shape:
    count = math.prod(shape)
    return attempt.rng.choice([shape, (count,), (1, *shape), (*shape, 1), tuple(reversed(shape))])


_UNDONE: Mapping[str, Callable[[Attempt, Shape], Shape | None]] = {
    "Expand": _one_axis(lambda attempt, size: 1),
    "Pad": _one_axis(lambda attempt, size: size - attempt.rng.randint(0, size - 1)),
    "Shrink": _one_axis(lambda attempt, size: size + attempt.rng.randint(0, 2)),
    "Flip": lambda attempt, shape: shape,
    "Permute": _shuffled,
    "Reshape": _regrouped,
    "TReduce": lambda attempt, shape: (*shape, *(attempt.rng.choice((1, 2, 3)) for _ in range(attempt.rng.randint(1, 2)))),
}  # fmt: skip
_OPERAND = {"TReduce": 2}

_DONE: Mapping[str, Callable[[Attempt, Shape], Shape | None]] = {
    **_UNDONE,
    "Expand": _one_axis(lambda attempt, size: attempt.rng.choice((1, 2, 3)) if size == 1 else size),
    "Pad": _one_axis(lambda attempt, size: size + attempt.rng.randint(0, 2)),
    "Shrink": _one_axis(lambda attempt, size: attempt.rng.randint(1, size)),
    "TReduce": lambda attempt, shape: shape[: attempt.rng.randint(0, len(shape))],
}


# ---- how it is moved there --------------------------------------------------------------------------------------------


def place_wanted(attempt: Attempt, step: Step, shape: Shape, options: list[int]) -> list[int]:
    """Those of some axes along which a step can make the wanted shape; all of them where nothing says, or none can."""
    result = result_wanted(attempt, step)
    if result is None or len(result) != len(shape):
        return options
    return [at for at in options if shape[:at] + shape[at + 1 :] == result[:at] + result[at + 1 :]] or options


def extent_wanted(attempt: Attempt, step: Step) -> int | None:
    """Of the axis that a step moves, in its result; None where nothing says."""
    result, at = result_wanted(attempt, step), attempt.get(step.args[1])
    return result[at] if result is not None and 0 <= at < len(result) else None
