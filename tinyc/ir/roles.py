"""The roles of a contraction's axes, read off a Region (document 004 §5.2; design: batch, m, n, k)."""

from __future__ import annotations

from collections.abc import Mapping

from .dtypes import WIDENING, DType
from .plan import Contraction
from .region import Binary, Cast, Const, Let, Read, Reduce, Region, Select, Stream, Unary, Within, free_axes
from .tiny import ROUNDED


def contraction_of(region: Region) -> Contraction | None:
    """The one sum of products of a Region whose only reduction it is, over output axes alone; None otherwise.

    Batch axes are those of both operands, m those of the first alone, n of the second alone, neither of them empty;
    every summed axis is in both, and both are Reads behind a rounding, widening casts and zero-filled guards. These are the
    conditions under which extraction plans a tiled kernel.
    """
    lets = {let.name: let for let in region.lets}
    reductions = [let for let in region.lets if isinstance(let.value, Reduce | Stream)]
    if len(reductions) != 1:
        return None
    (reduce,) = reductions
    value = reduce.value
    if not isinstance(value, Reduce) or value.op != "SUM" or reduce.dtype not in (DType.FP32, DType.I32):
        return None
    body = lets[value.body].value
    if not isinstance(body, Binary) or body.op != "MUL":
        return None
    free = free_axes(region)
    bound = tuple(axis.name for axis in value.axes)
    left, right = free[body.x], free[body.y]
    if not set(bound) <= left & right:
        return None
    iters = [axis.name for axis in region.iters]
    batch, m, n = (
        tuple(name for name in iters if name in axes) for axes in (left & right, left - right, right - left)
    )
    if not (m and n and _loadable(lets, body.x) and _loadable(lets, body.y)):
        return None
    return Contraction(reduce.name, body.x, body.y, batch, m, n, bound)


def _loadable(lets: Mapping[str, Let], name: str) -> bool:
    """What a tile can be loaded from (feature 004-065, resolution I-30)."""
    while True:
        let = lets[name]
        match let.value:
            case Read():
                return True
            case Unary(op, x) if op == ROUNDED:
                name = x
            case Cast(x) if (lets[x].dtype, let.dtype) in WIDENING:
                name = x
            case Select(cond, then, other) if isinstance(lets[cond].value, Within):
                if lets[other].value != Const(0):
                    return False
                name = then
            case _:
                return False
