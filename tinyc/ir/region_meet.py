"""What is known of operands while a Region's JSON is read: dtypes, and the axes over which they meet (document 004 §6.4).

The text gives a BroadcastInDim the shape of its result, not the names of its axes: an axis without a name takes the one
that the other operand has in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .diagnostics import TinycError, show, show_shape
from .dtypes import DType
from .region import MemRef
from .region_fields import dtype_or_none, operation, refused
from .region_index import is_guard
from .tiny import COMPARE

MAX_PEEK = 40

Place = tuple[str | None, int]
"""One axis of a value: its name and size. A BroadcastInDim's new axes have no names in the text."""


@dataclass(frozen=True)
class Operand:
    """A value that was read: the let that holds it, and the axes that it is seen over."""

    let: str
    dtype: DType
    axes: tuple[Place, ...]
    loadable: bool = False
    positional: bool = False


def peek_dtype(
    value: object, buffers: Mapping[str, MemRef], lets: Mapping[str, Operand], depth: int = 0
) -> DType | None:
    """The dtype of an expression that is not read yet; None for a bare number and for what will be refused."""
    if isinstance(value, str):
        return lets[value].dtype if value in lets else None
    if not isinstance(value, dict) or not value or depth > MAX_PEEK:
        return None
    if "const" in value:
        return dtype_or_none(value.get("dtype"))
    op, given = next(iter(value.items()))
    if is_guard(value) or operation(op) in COMPARE:
        return DType.BOOL
    inner = given if isinstance(given, dict) else {}
    match op:
        case "read":
            tensor = inner.get("tensor")
            return buffers[tensor].dtype if isinstance(tensor, str) and tensor in buffers else None
        case "cast":
            return dtype_or_none(inner.get("to"))
        case "reduce" | "stream":
            return dtype_or_none(inner.get("dtype", "fp32"))
        case "select":
            parts = [inner.get("then"), inner.get("else")]
        case "BroadcastInDim" | "Transpose":
            parts = [inner.get("operand")]
        case _:
            parts = given if isinstance(given, list) else [given]
    found = (peek_dtype(each, buffers, lets, depth + 1) for each in parts)
    return next((kind for kind in found if kind is not None), None)


def meet(
    parts: Sequence[Operand], path: str, iters: Sequence[str], sizes: Mapping[str, int]
) -> tuple[Place, ...]:
    """The axes over which ``parts`` meet; ``tinyc.ir.explicit`` says which need no view. ``sizes``: of all axes, in order.

    Raises TinycError BroadcastMismatch.
    """
    every = {name: size for part in parts for name, size in part.axes if name is not None}
    inside = not every.keys() <= set(iters)
    viewed = [part for part in parts if not (part.positional or (part.loadable and inside))]
    order = [name for name in sizes if name in every]
    if not viewed:
        return tuple((name, every[name]) for name in order)
    met = list(viewed[0].axes)
    for part in viewed[1:]:
        if len(part.axes) != len(met):
            raise _mismatch(viewed[0].axes, part.axes, path)
        for place, (mine, theirs) in enumerate(zip(met, part.axes, strict=True)):
            if mine[1] != theirs[1] or (mine[0] != theirs[0] and None not in (mine[0], theirs[0])):
                raise _mismatch(viewed[0].axes, part.axes, path)
            met[place] = theirs if mine[0] is None else mine
    for name in order:
        if (name, every[name]) not in met:
            if (None, every[name]) not in met:
                raise _mismatch(viewed[0].axes, tuple((each, every[each]) for each in order), path)
            met[met.index((None, every[name]))] = (name, every[name])
    return tuple(met)


def widened(x: Operand, shape: Sequence[int], places: object, path: str) -> tuple[Place, ...]:
    """The axes of ``x`` at ``places`` of ``shape``, and axes without names. Raises TinycError BroadcastMismatch."""
    if not isinstance(places, list) or not all(type(each) is int for each in places):
        why = "broadcast_dimensions is no list of dimensions"
        raise refused(f"{path}.broadcast_dimensions", why, "give one dimension of the result per axis")
    own = tuple(size for _, size in x.axes)
    fits = len(places) == len(own) == len(set(places)) and all(0 <= each < len(shape) for each in places)
    if not fits or any(shape[place] != size for place, size in zip(places, own, strict=True)):
        raise refused(
            path,
            f"{show_shape(own)} does not broadcast to {show_shape(tuple(shape))} along {places[:16]}",
            "name for each axis of the operand a dimension of the result that has its size",
            "BroadcastMismatch",
            lhs_shape=list(own),
            rhs_shape=list(shape),
        )
    wide: list[Place] = [(None, size) for size in shape]
    for place, axis in zip(places, x.axes, strict=True):
        wide[place] = axis
    return tuple(wide)


def transposed(x: Operand, order: object, path: str) -> tuple[Place, ...]:
    """The axes of ``x`` in another order. Raises TinycError InvalidPermutation."""
    whole = isinstance(order, list) and all(type(each) is int for each in order)
    if not isinstance(order, list) or not whole or sorted(order) != list(range(len(x.axes))):
        why = f"{show(order)} is no permutation of {len(x.axes)} axes"
        raise refused(path, why, "name every axis of the operand once", "InvalidPermutation")
    return tuple(x.axes[place] for place in order)


def check_stored(x: Operand, iters: Sequence[Place], path: str) -> None:
    """Raises TinycError where ``x`` is not over the iters, in order: AxisAlignmentMismatch, BroadcastMismatch."""
    names = [name for name, _ in iters]
    unbound = [name for name, _ in x.axes if name is not None and name not in names]
    if unbound:
        why = f"the value depends on {unbound[0]} still, which no Reduce has bound"
        raise refused(path, why, "store what is over the iters alone", "AxisAlignmentMismatch")
    pairs = zip(x.axes, iters, strict=False)
    if len(x.axes) != len(iters) or any(
        own[1] != other[1] or own[0] not in (None, other[0]) for own, other in pairs
    ):
        raise _mismatch(x.axes, iters, path)


def _mismatch(left: Sequence[Place], right: Sequence[Place], path: str) -> TinycError:
    shapes = [[size for _, size in axes] for axes in (left, right)]
    texts = [", ".join(name or "?" for name, _ in axes) for axes in (left, right)]
    return refused(
        path,
        f"axes ({texts[0]}) of shape {shapes[0]} meet axes ({texts[1]}) of shape {shapes[1]}",
        "insert BroadcastInDim or Transpose, so that operands meet over the same axes in one order",
        "BroadcastMismatch",
        lhs_shape=shapes[0],
        rhs_shape=shapes[1],
    )
