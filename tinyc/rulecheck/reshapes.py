"""Where the elements of a tensor are that is seen in another shape: what the facts of rules/movement.egg about the two shapes say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .context import IllFormed
from .facts import evaluate_index
from .term import Term, Value, axis, lit, plain
from .world import World

Shape = tuple[int, ...]


def own_axes(world: World, shape: Shape, count: int) -> Value | None:
    """The first ``count`` of the axes of a tensor, numbered from 0; 0 for one of extent 1."""
    if not 0 <= count <= len(shape):
        return None
    return tuple(lit(0) if size == 1 else plain(axis(k, size)) for k, size in enumerate(shape[:count]))


def offset_in(world: World, before: Shape, after: Shape, count: int) -> Value | None:
    """In ``before``, the offset within its first ``count`` axes of the element at the own axes of ``after``."""
    every = own_axes(world, after, len(after))
    if not 0 <= count <= len(before):
        return None
    return Term("IDiv", (Term("Ravel", (every, after, len(after))), math.prod(before[count:])))


def indices_in(world: World, before: Shape, after: Shape, count: int) -> Value | None:
    """In ``before``, the indices of that element along the other axes."""
    if not 0 <= count <= len(before):
        return None
    offsets = [offset_in(world, before, after, k) for k in range(count, len(before) + 1)]
    return tuple(
        Term("IAdd", (within, Term("IScale", (-size, above))))
        for above, within, size in zip(offsets, offsets[1:], before[count:], strict=False)
    )


def is_offset(world: World, before: Shape, after: Shape, count: int, offset: Term) -> bool:
    if not 0 <= count <= len(before):
        return False
    return _same(after, offset, _offsets(after) // math.prod(before[count:]))


def are_indices(world: World, before: Shape, after: Shape, count: int, indices: tuple[Term, ...]) -> bool:
    if not 0 <= count <= len(before) or len(indices) != len(before) - count:
        return False
    places = np.unravel_index(_offsets(after), before) if before else ()
    return all(_same(after, *each) for each in zip(indices, places[count:], strict=True))


def _offsets(shape: Shape) -> np.ndarray[Any, Any]:
    return np.arange(math.prod(shape)).reshape(shape)


def _same(shape: Shape, index: Term, values: np.ndarray[Any, Any]) -> bool:
    """Whether an index has these values at the own axes of a shape."""
    grids = np.meshgrid(*map(np.arange, shape), indexing="ij", sparse=True)
    try:
        found = evaluate_index(index, {axis(k, len(each.ravel())): each for k, each in enumerate(grids)})
    except IllFormed:  # of other axes
        return False
    return bool(np.all(found == values))
