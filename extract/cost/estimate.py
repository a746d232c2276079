"""The work of a Region as it will be computed, read off its lets; the same for extracted and for naive kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

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
from tinyc.ir.rows import kept_reads, kept_rows
from tinyc.ir.streams import Walk, walk_on
from tinyc.ir.tiny import ROUNDED

from .hardware import Hardware
from .model import MATRIX, CostModel, Roofline, Work, along_row, repeats, terms_of, weight
from .schedule import schedule_of
from .traffic import traffic


@dataclass(frozen=True)
class Estimate:
    """``flops``: arithmetic, a multiply-add is 2. ``bytes``: each buffer read once, outputs written once.
    ``time_s``: the cost model's estimate. ``terms``: what it is made of, by name."""

    flops: float
    bytes: float
    time_s: float
    work: Work
    terms: Mapping[str, float] = field(default_factory=dict)


def estimate(region: Region, plan: Plan, model: CostModel) -> Estimate:
    """Estimates one kernel."""
    flops, work = _work(region, plan, model.hardware)
    terms = terms_of(model, work)
    seconds = sum(terms.values()) if type(model) is Roofline else model.kernel(work)
    return Estimate(flops, work.bytes_read + work.bytes_written, seconds, work, terms)


def _work(region: Region, plan: Plan, hardware: Hardware) -> tuple[float, Work]:
    """All arithmetic, and the work of a kernel."""
    sizes = axis_sizes(region)
    free = free_axes(region)
    shape = [axis.size for axis in region.iters]
    types = {ref.name: ref.dtype for ref in region.inputs}
    place = {axis.name: number for number, axis in enumerate(region.iters)}
    schedule = schedule_of(region, plan, hardware.limits) if hardware.sms else None
    walk = walk_on(region, hardware.limits.arch)
    tiled = _tiled_lets(region, plan, walk)
    scanned: set[tuple[str, tuple[Axis, ...]]] = set()
    rescored = _rescored(region, free)
    kept = _kept(region, plan) if hardware.rows else frozenset()
    after = _epilogue(region, plan, kept) if tiled and hardware.sms else frozenset()
    blocks = schedule is not None and schedule.algo == "loops" and not tiled and walk is None
    flops = ops = epilogue = guards = along = same = beside = reread = along_bytes = same_bytes = 0.0
    products = Work()
    for let in region.lets:
        if let.name in kept:
            continue  # the row is there already
        count = math.prod(sizes[name] for name in free[let.name]) * (2 if let.name in rescored else 1)
        product = simple = tests = 0.0
        outputs = {place[name] for name in free[let.name] if name in place}
        summed = isinstance(let.value, Reduce | Stream) or len(outputs) < len(free[let.name])
        loaded = bool(tiled) and walk is None and let.name not in after
        everywhere = schedule is not None and summed and not outputs and not loaded
        repeated = not everywhere and (blocks or isinstance(let.value, Reduce))
        again = repeats(outputs, shape, blocks) if repeated else 1.0
        match let.value:
            case Reduce(_, axes, _):
                inner = math.prod(axis.size for axis in axes)
                flops += count * inner
                if let.name in tiled:
                    product = count * inner
                else:
                    simple = weight("Reduce") * count * inner
            case Stream(axes, score):
                inner = math.prod(axis.size for axis in axes)
                flops += 2 * count * inner
                if let.name in tiled:
                    product = 2 * count * inner
                else:
                    simple = weight("Stream") * count * inner
                if walk is None or (score, axes) not in scanned:
                    scanned.add((score, axes))
                    rows = free[score] - {axis.name for axis in axes}
                    simple += weight("Row") * math.prod(sizes[name] for name in rows)
                    each = weight("Scan" if walk is None or not hardware.sms else "Walk")
                    if let.value.rounded is not None:  # walked twice; then divided and rounded
                        each = 2 * each + weight("MUL") + weight("Cast")
                    simple += each * math.prod(sizes[name] for name in free[score])
            case Unary(op, _) if op == ROUNDED:
                simple = count * weight("Cast")  # a conversion
            case Unary() | Binary():
                flops += count
                if let.name in tiled:
                    product = count
                else:
                    simple = count * weight(let.value.op)
            case Within():
                tests = count
            case Cast() | Select() | Read():
                simple = count * (weight(type(let.value).__name__))
            case Const():
                pass
        simple *= again
        ops += simple
        guards += tests * again
        epilogue += simple if let.name in after else 0.0
        read = count * types[let.value.tensor].itemsize if isinstance(let.value, Read) else 0.0
        if everywhere:
            same, same_bytes = same + simple, same_bytes + read
        elif blocks and not summed:
            beside += simple
        elif blocks:
            reread += read * (again - 1)
            if along_row(outputs, shape):
                along, along_bytes = along + simple, along_bytes + read * again
        if product:
            products += _multiplied(region, let.name, product)
    on_chip = kept_reads(region) if blocks else frozenset[str]()
    moved = traffic(region, plan, tiled, hardware.near, hardware.sms > 0, on_chip)
    ops += weight("Gather") * schedule.gathered if schedule else 0.0
    rest = Work(
        ops=ops,
        bytes_read=sum(ref.bytes for ref in region.inputs),
        bytes_written=sum(ref.bytes for ref in region.outputs),
        values=sum(not isinstance(let.value, Const) for let in region.lets),
        epilogue_ops=epilogue,
        reread_bytes=moved.reread + reread,
        strided_bytes=moved.strided,
        viewed_bytes=moved.viewed,
        transposed_bytes=moved.transposed,
        guards=guards,
        row_ops=along,
        block_ops=same,
        row_bytes=along_bytes,
        block_bytes=same_bytes,
        point_ops=beside,
        schedule=schedule,
    )
    return flops, rest + products


def _rescored(region: Region, free: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """What Streams that round compute in both of their walks."""
    lets = {let.name: let.value for let in region.lets}
    found: set[str] = set()
    for value in lets.values():
        if isinstance(value, Stream) and value.rounded is not None:
            bound = {axis.name for axis in value.axes}
            pending = [value.score]
            while pending:
                name = pending.pop()
                if name not in found and free[name] & bound:
                    found.add(name)
                    pending += operands(lets[name])
    return frozenset(found)


def _multiplied(region: Region, name: str, flops: float) -> Work:
    """The work of a product: by whether its factors are rounded, and the buffers that it is loaded from."""
    lets = {let.name: let.value for let in region.lets}
    value = lets[name]
    if isinstance(value, Stream):  # its scores are a product of their own
        factors: tuple[str, ...] = (value.weight,)
    else:
        factors = operands(lets[value.body] if isinstance(value, Reduce) else value)
    if all(getattr(lets[factor], "op", "") == ROUNDED for factor in factors):
        return Work(tf32_flops=flops)
    types = {ref.name: ref.dtype for ref in region.inputs}
    found: set[str] = set(factors)
    pending = list(factors)
    read = set()
    while pending:
        value = lets[pending.pop()]
        if isinstance(value, Read):
            read.add(types[value.tensor])
        fresh = [each for each in operands(value) if each not in found]
        found.update(fresh)
        pending += fresh
    return Work(flops=flops) if read and read <= MATRIX else Work(vector_flops=flops)


def _epilogue(region: Region, plan: Plan, kept: frozenset[str]) -> frozenset[str]:
    """What is computed beside the contraction and all that its operands are made of, also where they are ``kept``."""
    if plan.contraction is None:
        return frozenset()
    lets = {let.name: let for let in region.lets}
    inner, stack = set[str](), [plan.contraction.reduce, *kept]
    while stack:
        name = stack.pop()
        if name not in inner:
            inner.add(name)
            stack += operands(lets[name].value)
    return frozenset(lets.keys() - inner)


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
    lets = {let.name: let.value for let in region.lets}
    return frozenset(
        other for name in kept_rows(region, contraction) for other in (name, *operands(lets[name]))
    )
