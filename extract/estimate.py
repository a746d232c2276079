"""The work of a Region as it will be computed, read off its lets; the same for extracted and for naive kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinyc.ir.plan import Plan
from tinyc.ir.region import (
    Axis,
    Binary,
    Cast,
    Const,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Unary,
    Within,
    axis_sizes,
    free_axes,
    operands,
)
from tinyc.ir.streams import Walk, walk_of

from .cost import CostModel, Work, weight
from .rows import one_row


@dataclass(frozen=True)
class Estimate:
    """``flops``: arithmetic, a multiply-add is 2. ``bytes``: each buffer read once, outputs written once.
    ``time_s``: the cost model's estimate."""

    flops: float
    bytes: float
    time_s: float
    work: Work


def estimate(region: Region, plan: Plan, model: CostModel) -> Estimate:
    """Estimates one kernel."""
    sizes = axis_sizes(region)
    free = free_axes(region)
    order = [axis.name for axis in region.iters]
    walk = walk_of(region)
    tiled = _tiled_lets(region, plan, walk)
    scanned: set[tuple[str, tuple[Axis, ...]]] = set()
    kept = _kept(region, plan) if model.hardware.rows else frozenset()
    flops = ops = contracted = 0.0
    for let in region.lets:
        if let.name in kept:
            continue  # the row is there already
        count = math.prod(sizes[name] for name in free[let.name])
        match let.value:
            case Reduce(_, axes, _):
                inner = math.prod(axis.size for axis in axes)
                repeats = _repeats(free[let.name], order, sizes)
                flops += count * inner
                if let.name in tiled:
                    contracted += count * inner
                else:
                    ops += weight("Reduce") * count * inner * repeats
            case Stream(axes, score, _, _):
                inner = math.prod(axis.size for axis in axes)
                flops += 2 * count * inner
                if let.name in tiled:
                    contracted += 2 * count * inner
                else:
                    ops += weight("Stream") * count * inner
                if walk is None or (score, axes) not in scanned:
                    scanned.add((score, axes))
                    ops += weight("Scan") * math.prod(sizes[name] for name in free[score])
            case Unary() | Binary():
                flops += count
                if let.name in tiled:
                    contracted += count
                else:
                    ops += count * weight(let.value.op)
            case Cast() | Select() | Within() | Read():
                ops += count * (weight(type(let.value).__name__))
            case Const():
                pass
    moved = sum(ref.bytes for ref in region.inputs)
    written = sum(ref.bytes for ref in region.outputs)
    values = sum(not isinstance(let.value, Const) for let in region.lets)
    work = Work(contracted, ops, moved, written, values)
    return Estimate(flops, moved + written, model.kernel(work), work)


def _tiled_lets(region: Region, plan: Plan, walk: Walk | None) -> set[str]:
    """The contraction's sum and its product, where the plan tiles them; those of scores, and Streams, in a walk."""
    if walk is not None:
        lets = {let.name: let.value for let in region.lets}
        found = {let.name for let, wide in walk.streams if wide and walk.rows}
        if walk.product is not None:
            found |= {walk.product.reduce, *operands(lets[walk.product.reduce])}
        return found
    contraction = plan.contraction
    if contraction is None or not contraction.m or not contraction.n:
        return set()
    reduce = next(let for let in region.lets if let.name == contraction.reduce)
    return {reduce.name, *operands(reduce.value)}


def _kept(region: Region, plan: Plan) -> frozenset[str]:
    """The same contraction at other axes, and its product: along a row of what the tiles have computed."""
    contraction = plan.contraction
    if contraction is None:
        return frozenset()
    others = [
        let
        for let in region.lets
        if isinstance(let.value, Reduce)
        and let.name != contraction.reduce
        and one_row(region, (let.name, contraction.reduce))
    ]
    return frozenset(name for let in others for name in (let.name, *operands(let.value)))


def _repeats(axes: frozenset[str], order: list[str], sizes: dict[str, int]) -> float:
    """How often a reduction is repeated because an output axis outside those it depends on encloses it."""
    outer = [name for name in order if sizes[name] > 1]
    last = max((number for number, name in enumerate(outer) if name in axes), default=-1)
    return float(math.prod(sizes[name] for name in outer[:last] if name not in axes))
