"""The Plan that a Region gets where nobody has written one (document 004 §8).

For sm80 and sm90 the document's own figures, fitted to the sizes; for the CPU the blocks that suit its caches. Every
default passes :func:`tinyc.ir.check_plan.check_plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tinyc.ir.check_plan import MMA, check_plan, step_depth, swizzles
from tinyc.ir.cpu_tiles import default_tile, product
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.plan import Contraction, Extracted, Plan
from tinyc.ir.region import Binary, Reduce, Region, Select, Stream, Unary
from tinyc.ir.resources import THREADS, Limits, element_bytes, staged, stored_along
from tinyc.ir.schedule import BARRIER_MODELS, Async, Cache, LayoutHints, LocalEdge, Vectorize
from tinyc.ir.schedule_names import Scope

from .hardware import Hardware


@dataclass(frozen=True)
class Shape:
    """A tile of elements of two bytes, its ring, and the part of a warp (sm90: a warpgroup)."""

    tile: tuple[int, int, int]
    stages: int
    warp_tile: tuple[int, int]


#: 004 §8.1 for a matmul on sm80, §15.2 for a convolution; wgmma wants 64 rows and a wide tile
SHAPES = {
    ("sm80", "matmul"): Shape((128, 64, 64), 2, (64, 64)),
    ("sm80", "conv"): Shape((128, 64, 64), 3, (64, 32)),
    ("sm90", "matmul"): Shape((128, 128, 64), 3, (64, 128)),
    ("sm90", "conv"): Shape((128, 128, 64), 3, (64, 128)),
}


def default_plan(region: Region, contraction: Contraction | None, hardware: Hardware) -> Plan:
    """A Plan of ``region`` for a machine. ``contraction``: its sum of products where there is one to be tiled."""
    limits = hardware.limits
    plan = None
    if contraction is not None:
        tiled = _contraction_on_cpu if limits.arch == "cpu" else _contraction_on_gpu
        plan = tiled(region, contraction, limits)
    return plan or (_loops_on_cpu(region) if limits.arch == "cpu" else _loops_on_gpu(region, limits))


def with_default_plans(extracted: Extracted, hardware: Hardware) -> Extracted:
    """``extracted`` with the default Plan of every kernel for a machine; contractions stay what they are.

    Kernels of a GPU ask their buffers to be aligned to one access, so that vectors can be planned: the caller's arrays
    that are not are copied before the call."""
    regions = extracted.regions
    if hardware.limits.arch != "cpu":
        regions = tuple(_aligned(region, hardware.limits.access_bytes) for region in regions)
    pairs = zip(regions, extracted.plans, strict=True)
    plans = tuple(default_plan(region, plan.contraction, hardware) for region, plan in pairs)
    return replace(extracted, regions=regions, plans=plans)


def _aligned(region: Region, least: int) -> Region:
    inputs, outputs = (
        tuple(replace(ref, alignment=max(ref.alignment, least)) for ref in refs)
        for refs in (region.inputs, region.outputs)
    )
    return replace(region, inputs=inputs, outputs=outputs)


# ---- what all targets share -----------------------------------------------------------------------------------------


def _windows(scope: Scope, roles: Contraction) -> tuple[str, ...]:
    """The buffers that are read in windows: a summed axis moves along with one of the result."""
    summed, moving = set(roles.k), {*roles.m, *roles.n}
    return tuple(
        dict.fromkeys(
            read.tensor
            for operand in (roles.lhs, roles.rhs)
            for read in scope.reads(operand)
            if any(index.axes() & summed and index.axes() & moving for index in read.map)
        )
    )


def _attention(region: Region) -> tuple[tuple[str, str], ...]:
    """Where rows are softened by exponentials: a Stream, or maximum, exponential and sum."""
    ops = {getattr(let.value, "op", "") for let in region.lets}
    sums = {let.value.op for let in region.lets if isinstance(let.value, Reduce)}
    streams = any(isinstance(let.value, Stream) for let in region.lets)
    softmax = "EXP2" in ops and sums >= {"MAX", "SUM"}
    return (("attention", "streaming_softmax_2pass"),) if streams or softmax else ()


def _epilogue(scope: Scope, roles: Contraction) -> tuple[str, ...]:
    """What is computed from the accumulator, in the Region's order; conversions belong to the store."""
    after = scope.after(roles.reduce)
    lets = [let for let in scope.region.lets if let.name in after]
    return tuple(
        dict.fromkeys(
            scope.title(let.name, after) for let in lets if isinstance(let.value, Unary | Binary | Select)
        )
    )


def _edges(scope: Scope, roles: Contraction, epilogue: tuple[str, ...]) -> tuple[LocalEdge, ...]:
    """The accumulator stays in registers until the last operation of the epilogue."""
    every = frozenset(scope.lets)
    source = scope.title(roles.reduce, every)
    return (LocalEdge(source, epilogue[-1], "reg"),) if epilogue else ()


def _tiled(region: Region, roles: Contraction) -> tuple[Plan, Scope]:
    plan = Plan("contraction", roles)
    scope = Scope(plan, region)
    epilogue = _epilogue(scope, roles)
    kind = "conv" if _windows(scope, roles) else "matmul"
    choice = ((kind, "implicit_gemm"), *_attention(region))
    plan = replace(plan, epilogue=epilogue, algo_choice=choice, local_edges=_edges(scope, roles, epilogue))
    return plan, scope


# ---- the CPU --------------------------------------------------------------------------------------------------------


def _contraction_on_cpu(region: Region, roles: Contraction, limits: Limits) -> Plan:
    """No tile where the contraction is too small to be packed, or not of a form that is: it runs as loops."""
    plan, scope = _tiled(region, roles)
    plan = replace(plan, arch="cpu")
    item = product(region, roles, scope.free)
    if isinstance(item, str) or not item.worthwhile(limits.lanes):
        return plan
    part = "m.i.i" if item.turned else "n.i.i"
    tile = default_tile(item, limits.rows, 2 * limits.lanes)
    return replace(plan, tile=tile, vectorize=Vectorize(part, limits.lanes))


def _loops_on_cpu(region: Region) -> Plan:
    return Plan(arch="cpu", algo_choice=_attention(region))


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def _contraction_on_gpu(region: Region, roles: Contraction, limits: Limits) -> Plan | None:
    """None: a matrix-vector product, or operands so large that no tile fits."""
    if not (roles.m and roles.n and roles.k):
        return None
    plan, scope = _tiled(region, roles)
    kind = plan.algo_choice[0][0]
    shape = SHAPES[limits.arch, kind]
    rows, columns = MMA[limits.arch]
    size = element_bytes(plan, scope)
    depth = step_depth(plan, scope)
    bm = _fit(shape.tile[0], scope.extent("m"), rows)
    bn = _fit(shape.tile[1], scope.extent("n"), columns)
    bk = _fit(shape.tile[2] * 2 // max(2, size), scope.extent("k"), depth)
    operands = tuple(dict.fromkeys((*staged(scope, 0), *staged(scope, 1))))
    plan = replace(
        plan,
        tile=(bm, bn, bk),
        stages=shape.stages,
        warp_tile=(min(bm, shape.warp_tile[0]), min(bn, shape.warp_tile[1])),
        cache=tuple(Cache(ref.name, "k.i") for ref in operands),
        arch=limits.arch,
        async_=Async(True, shape.stages, True),
        barrier_model=BARRIER_MODELS[limits.arch],
    )
    if kind == "conv":
        target = scope.title(roles.reduce, frozenset(scope.lets))
        rings = (LocalEdge(name, target, "smem_ring", shape.stages) for name in _windows(scope, roles))
        plan = replace(plan, local_edges=(*plan.local_edges, *rings))
    for smaller in _smaller(plan, scope, rows, columns, depth):
        plan = _finished(smaller, region, scope, limits)
        if _fault(plan, region, limits) is None:
            return plan
    return None


def _finished(plan: Plan, region: Region, scope: Scope, limits: Limits) -> Plan:
    """What follows from the tile: bindings, tails, layout hints, the width of vectors."""
    assert plan.tile is not None and plan.contraction is not None
    roles, tile = plan.contraction, dict(zip("mnk", plan.tile, strict=True))
    row = stored_along(region, region.outputs[0]) not in roles.m
    tails = tuple(f"{name}.i.i" for name, size in tile.items() if scope.extent(name) % size)
    swizzled = swizzles(plan, region, 0), swizzles(plan, region, 1)
    hints = LayoutHints(*swizzled, c_stride="row" if row else "col")
    plan = replace(plan, predicate_tail=tails, layout_hints=hints, bind=_bind(scope, tile, limits))
    return _widest(plan, region, "n.i.i" if row else "m.i.i", limits, most=tile["n" if row else "m"])


def _bind(scope: Scope, tile: dict[str, int], limits: Limits) -> tuple[tuple[str, str], ...]:
    """Blocks along y and x as the document has them; the other way round where there are too many along y."""
    blocks = {name: -(-scope.extent(name) // tile[name]) for name in "mn"}
    ways = ("y", "x") if blocks["m"] <= limits.grid[1] else ("x", "y")
    batch = scope.contraction.batch if scope.contraction else ()
    if batch and scope.extent("b") > limits.grid[2]:  # everything along x
        return (("b", "block.x"), ("m.o", "block.x"), ("n.o", "block.x"), *_WARPS)
    whole = (("b", "block.z"),) if batch else ()
    return (*whole, ("m.o", f"block.{ways[0]}"), ("n.o", f"block.{ways[1]}"), *_WARPS)


_WARPS = (("m.i.o", "warp.y"), ("n.i.o", "warp.x"))


def _smaller(plan: Plan, scope: Scope, rows: int, columns: int, depth: int) -> Iterable[Plan]:
    """The Plan itself, then smaller ones: what fits where an operand is made of several buffers."""
    assert plan.tile is not None and plan.warp_tile is not None
    yield plan
    bm, bn, bk = plan.tile
    edges = tuple(edge for edge in plan.local_edges if edge.buffer == "reg")
    while bk > depth or bn > columns or bm > rows:
        bm, bn, bk = max(rows, bm // 2), max(columns, bn // 2), max(depth, bk // 2)
        warp = min(bm, plan.warp_tile[0]), min(bn, plan.warp_tile[1])
        rings = tuple(replace(edge, depth=2) for edge in plan.local_edges if edge.buffer != "reg")
        yield replace(
            plan,
            tile=(bm, bn, bk),
            warp_tile=warp,
            stages=2,
            async_=Async(True, 2, True),
            local_edges=(*edges, *rings),
        )


def _loops_on_gpu(region: Region, limits: Limits) -> Plan:
    """The iters flattened over blocks, the innermost one cut into pieces for a block's threads."""
    plan = Plan(arch=limits.arch, algo_choice=_attention(region))
    iters = [item for item in region.iters if item.size > 1]
    if not iters or iters[-1] is not region.iters[-1]:
        return plan
    last = iters[-1]
    outer = tuple((item.name, "block.x") for item in iters[:-1])
    for width in (8, 4, 2, 1):
        points = min(THREADS * width, _fit(THREADS * width, last.size, 32 * width))
        tail = () if last.size % points == 0 else (f"{last.name}.i",)
        inner = (
            (f"{last.name}.o", "block.x"),
            (f"{last.name}.i.o", "warp.x"),
            (f"{last.name}.i.i", "lane"),
        )
        wider = replace(
            plan,
            tile=(1, points, 1),
            bind=(*outer, *inner),
            vectorize=Vectorize(f"{last.name}.i.i", width),
            predicate_tail=tail,
        )
        if _fault(wider, region, limits) is None:
            return wider
    return plan


def _widest(plan: Plan, region: Region, part: str, limits: Limits, most: int) -> Plan:
    """With the widest vectors that the sizes and the alignment of the buffers allow."""
    width = limits.access_bytes // element_bytes(plan, Scope(plan, region))
    while width > 1:
        wider = replace(plan, vectorize=Vectorize(part, width))
        if width <= most and _fault(wider, region, limits) is None:
            return wider
        width //= 2
    return replace(plan, vectorize=Vectorize(part, 1))


def _fit(size: int, extent: int, unit: int) -> int:
    """``size``, halved while half of it still covers ``extent``; not below ``unit``."""
    while size // 2 >= max(extent, unit) and size % 2 == 0:
        size //= 2
    return size


def _fault(plan: Plan, region: Region, limits: Limits) -> TinycError | None:
    try:
        check_plan(plan, region, limits)
    except TinycError as error:
        return error
    return None
