"""How a kernel reaches its buffers: what it fetches again, out of order, or transposed (document 004 §11, layout and
fan-out). Read off the coefficients of its index maps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinyc.ir.index import Affine
from tinyc.ir.plan import Plan
from tinyc.ir.region import (
    Binary,
    Cast,
    Const,
    MemRef,
    Read,
    Region,
    Select,
    Unary,
    Within,
    axis_sizes,
    free_axes,
)
from tinyc.ir.resources import run_along, stored_along
from tinyc.ir.schedule_names import Scope


@dataclass(frozen=True)
class Traffic:
    """Bytes of a kernel's accesses. ``reread``: beyond the first fetch of each buffer. ``strided``: by neighbours that
    do not lie side by side. ``viewed``: of the operands of a tiled contraction that are not contiguous along its
    summed axes, and are transposed on their way from shared memory. ``transposed``: of a copy into another order, which
    goes through shared memory."""

    reread: float = 0.0
    strided: float = 0.0
    viewed: float = 0.0
    transposed: float = 0.0


def traffic(
    region: Region,
    plan: Plan,
    tiled: frozenset[str] | set[str],
    near: int = 0,
    turns: bool = False,
    kept: frozenset[str] = frozenset(),
) -> Traffic:
    """The traffic of ``region``, whose lets ``tiled`` are computed in tiles. Neighbours are along the axis in which the
    output lies in memory; the operands of a tiled contraction are loaded along whatever axis they lie in. ``near``: bytes
    of a buffer that stays in the nearest cache, whose lines are used up in whatever order. ``turns``: whether all kernels that reduce
    nothing read out of order through shared memory, and not those alone that only copy. ``kept``: Reads of what is on chip."""
    sizes, free = axis_sizes(region), free_axes(region)
    buffers = {ref.name: ref for ref in region.inputs}
    staged = _staged(region, plan) if tiled else {}
    across = stored_along(region, region.outputs[0]) if region.iters else ""
    heads = Read | Cast | Const | Select | Within
    copies = all(isinstance(let.value, heads | Unary | Binary if turns else heads) for let in region.lets)
    outer = {axis.name for axis in region.iters}
    fetched: dict[str, int] = {}
    strided = viewed = transposed = 0.0
    for let in region.lets:
        if not isinstance(let.value, Read):
            continue
        ref, index = buffers[let.value.tensor], let.value.map
        run = run_along(index, ref)
        if let.name in staged:
            strided += ref.bytes if run is None and ref.elements > 1 else 0
            viewed += ref.bytes if run is not None and run not in staged[let.name] else 0
            continue
        accessed = math.prod(sizes[name] for name in free[let.name]) * ref.dtype.itemsize
        fetched[ref.name] = fetched.get(ref.name, 0) + (0 if let.name in kept else accessed)
        summed = free[let.name] - outer
        if ref.bytes <= near:
            continue
        if abs(_step(index, ref, across)) <= 1 or any(abs(_step(index, ref, axis)) == 1 for axis in summed):
            continue  # a reduction may have its rows walked by neighbours
        turned = copies and run is not None
        transposed += min(accessed, ref.bytes) if turned else 0
        strided += 0 if turned else min(accessed, ref.bytes)
    reread = sum(max(0, count - buffers[name].bytes) for name, count in fetched.items())
    return Traffic(reread, strided, viewed, transposed)


def _staged(region: Region, plan: Plan) -> dict[str, frozenset[str]]:
    """The Reads of a tiled contraction's operands, each with the summed axes."""
    scope = Scope(plan, region)
    roles = scope.contraction
    if roles is None:
        return {}
    values = {id(read) for operand in (roles.lhs, roles.rhs) for read in scope.reads(operand)}
    return {let.name: frozenset(roles.k) for let in region.lets if id(let.value) in values}


def _step(index: tuple[Affine, ...], ref: MemRef, name: str) -> int:
    """Elements between neighbours along axis ``name``. A floor division counts as constant: most neighbours share it."""
    sizes = list(ref.shape)
    if ref.layout.kind == "col_major" and len(sizes) > 1:
        index = (*index[:-2], index[-1], index[-2])
        sizes[-2:] = reversed(sizes[-2:])
    step, stride = 0, 1
    for expression, size in zip(reversed(index), reversed(sizes), strict=True):
        step += stride * sum(coef for coef, atom in expression.terms if atom == name)
        stride *= size
    return step
