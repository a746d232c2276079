"""The Plan that a Region gets where there are no candidates: nothing was saturated, or the rules of plans were left out.

For sm80 and sm90 the references of rules/hardware.egg (document 004 §8), fitted to the sizes; for the CPU the blocks that
suit its caches. Every default passes :func:`tinyc.ir.check_plan.check_plan`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

from tinyc.egraph.rulefiles import BUILTIN
from tinyc.egraph.sexpr import parse
from tinyc.ir.cpu_tiles import default_tile, product
from tinyc.ir.folds import fold_of
from tinyc.ir.plan import Contraction, Extracted, Plan
from tinyc.ir.region import Region, row_axis
from tinyc.ir.resources import THREADS, Limits, unit_of
from tinyc.ir.schedule import ALGO_CHOICES
from tinyc.ir.streams import WALK, extents_of, walk_on
from tinyc.ir.units import UNITS, WARP, Unit

from ..cost.hardware import Hardware
from .candidate import Candidate, product_kind
from .rank import attention, fault, plan_of, untiled

ATTENTION = ALGO_CHOICES["attention"][0]

WIDEST = 16
"""Elements of an access to begin with; what does not fit is halved."""


def default_plan(region: Region, contraction: Contraction | None, hardware: Hardware) -> Plan:
    """A Plan of ``region`` for a machine. ``contraction``: its sum of products where there is one to be tiled."""
    limits = hardware.limits
    if limits.arch == "cpu":
        return _on_cpu(region, contraction, limits)
    return _contraction(region, contraction, limits) or _walk(region, limits) or _loops(region, hardware)


def with_default_plans(extracted: Extracted, hardware: Hardware) -> Extracted:
    """``extracted`` with the default Plan of every kernel for a machine; contractions stay what they are."""
    regions = aligned(extracted.regions, hardware.limits)
    pairs = zip(regions, extracted.plans, strict=True)
    plans = tuple(default_plan(region, plan.contraction, hardware) for region, plan in pairs)
    return replace(extracted, regions=regions, plans=plans)


def aligned(regions: tuple[Region, ...], limits: Limits) -> tuple[Region, ...]:
    """Kernels of a GPU ask their buffers to be aligned to one access, so that vectors can be planned: the caller's
    arrays that are not are copied before the call."""
    return regions if limits.arch == "cpu" else tuple(_aligned(each, limits.access_bytes) for each in regions)


def _aligned(region: Region, least: int) -> Region:
    inputs, outputs = (
        tuple(replace(ref, alignment=max(ref.alignment, least)) for ref in refs)
        for refs in (region.inputs, region.outputs)
    )
    return replace(region, inputs=inputs, outputs=outputs)


# ---- the CPU --------------------------------------------------------------------------------------------------------


def _on_cpu(region: Region, roles: Contraction | None, limits: Limits) -> Plan:
    """No tile where the contraction is too small to be packed, or not of a form that is: it runs as loops."""
    if roles is None:
        return Plan(arch="cpu", algo_choice=attention(region))
    plan, scope = untiled(region, roles)
    item = product(region, roles, scope.free)
    if isinstance(item, str) or not item.worthwhile(limits.lanes):
        return replace(plan, arch="cpu")
    tile = default_tile(item, limits.rows, 2 * limits.lanes)
    rows_first = (tile[1], tile[0], tile[2]) if item.turned else tile
    return plan_of(
        Candidate("cpu", rows_first, None, None, limits.lanes, "packed", False), region, roles, limits
    )


# ---- GPUs -----------------------------------------------------------------------------------------------------------


@functools.cache
def references() -> dict[tuple[str, str], Candidate]:
    """By unit that multiplies and kind of kernel: the facts of relation ``reference-plan`` in rules/hardware.egg."""
    found = {}
    for form in parse((BUILTIN.parent / "hardware.egg").read_text(encoding="utf-8")):
        if isinstance(form, tuple) and form[0] == "reference-plan":
            unit, kind, *sizes = map(str, form[1:])
            bm, bn, bk, stages, wm, wn = map(int, sizes)
            arch = UNITS[unit].arch
            found[unit, kind] = Candidate(arch, (bm, bn, bk), stages, (wm, wn), WIDEST, "implicit_gemm", True)
    return found


def _contraction(region: Region, roles: Contraction | None, limits: Limits) -> Plan | None:
    """None: a matrix-vector product, or operands so large that no tile fits."""
    if roles is None or not (roles.m and roles.n and roles.k):
        return None
    _, scope = untiled(region, roles)
    unit = unit_of(limits.arch, scope)
    shape = references()[unit.name, product_kind(scope, roles)]
    assert shape.warp_tile is not None
    bm = _fit(shape.tile[0], scope.extent("m"), unit.rows)
    bn = _fit(shape.tile[1], scope.extent("n"), unit.columns)
    bk = _fit(shape.tile[2], scope.extent("k"), unit.depth)
    fitted = replace(
        shape, tile=(bm, bn, bk), warp_tile=(min(bm, shape.warp_tile[0]), min(bn, shape.warp_tile[1]))
    )
    for candidate in _smaller(fitted, unit):
        found = plan_of(candidate, region, roles, limits)
        if fault(found, region, limits) is None:
            return found
    return None


def _smaller(candidate: Candidate, unit: Unit) -> Iterator[Candidate]:
    """The candidate itself, then smaller ones: what fits where an operand is made of several buffers."""
    assert candidate.warp_tile is not None
    yield candidate
    bm, bn, bk = candidate.tile
    while bk > unit.depth or bn > unit.columns or bm > unit.rows:
        bm, bn, bk = max(unit.rows, bm // 2), max(unit.columns, bn // 2), max(unit.depth, bk // 2)
        warp = min(bm, candidate.warp_tile[0]), min(bn, candidate.warp_tile[1])
        yield replace(candidate, tile=(bm, bn, bk), warp_tile=warp, stages=2)


def _loops(region: Region, hardware: Hardware) -> Plan:
    """A block of :data:`~tinyc.ir.resources.THREADS` threads, each with one access."""
    limits, row = hardware.limits, row_axis(region)
    last = row.size if row else 1
    if (shared := _shared(region, hardware)) is not None:
        return shared
    for width in (8, 4, 2, 1):
        points = min(THREADS * width, _fit(THREADS * width, last, 32 * width))
        plan = plan_of(
            Candidate(limits.arch, (1, points, 1), None, None, width, "loops", False), region, None, limits
        )
        if plan.vectorize is None or plan.vectorize.width == width:
            return plan
    return plan


def _walk(region: Region, limits: Limits) -> Plan | None:
    """Attention in the tiles of :data:`~tinyc.ir.streams.WALK`; None where a Region is none."""
    walk = walk_on(region, limits.arch)
    if walk is None:
        return None
    extents = extents_of(region, walk)
    (rows, columns), own = WALK
    width = min(extents.width & -extents.width, limits.access_bytes // extents.size)
    candidate = Candidate(
        limits.arch, (rows, columns, extents.deep), None, (own, columns), width, ATTENTION, False
    )
    return plan_of(candidate, region, None, limits)


def _shared(region: Region, hardware: Hardware) -> Plan | None:
    """Where each point has sums for itself, and there are too few of them to keep the machine busy, a block's threads share
    one, or each warp's; None where there are more, or they are too short."""
    limits, results = hardware.limits, math.prod(item.size for item in region.iters)
    fold = fold_of(region) if walk_on(region, limits.arch) is None else None
    if fold is None or results >= hardware.sms * hardware.busy_warps * WARP:
        return None
    for share in (THREADS, WARP):
        width = min(fold.points & -fold.points, limits.access_bytes // region.outputs[0].dtype.itemsize)
        points = THREADS // share
        if 2 * share * width <= fold.points and (share == WARP or results < THREADS):
            candidate = Candidate(limits.arch, (1, points, share), None, None, width, "loops", False)
            return plan_of(candidate, region, None, limits)
    return None


def _fit(size: int, extent: int, unit: int) -> int:
    """``size``, halved while half of it still covers ``extent``; not below ``unit``."""
    while size // 2 >= max(extent, unit) and size % 2 == 0:
        size //= 2
    return size
