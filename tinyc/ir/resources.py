"""What a Plan takes of a machine, and what a machine has (document 004 §8, §11, §12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .cpu_tiles import blocks, product, scratch_bytes
from .index import Affine, axis
from .region import Axis, MemRef, Read, Region, Unary
from .rows import kept_value, row_pitch, slab_bytes
from .schedule import Plan
from .schedule_names import Scope
from .streams import STEP, extents_of, walk_on
from .tiny import ROUNDED
from .units import UNITS, WARP, Unit, unit_name

#: threads of a block where a Plan does not say
THREADS = 256


@dataclass(frozen=True)
class Limits:
    """What one kernel may use on a machine. ``arch``: the instructions that its kernels are made of, one of
    :data:`~tinyc.ir.schedule.ARCHS`; ``name``: of the target, where that is another word.

    GPUs: ``smem_bytes`` and ``threads`` of one block, ``registers`` of one thread, ``registers_per_sm``,
    ``smem_per_sm``, ``warps_per_sm`` and ``blocks_per_sm`` of one of ``multiprocessors``, ``grid`` blocks along x, y and z.
    Every machine: ``access_bytes`` of one memory access. The CPU: ``lanes`` of 32 bits in a vector register, ``rows``
    of its register tile, ``scratch_bytes`` of one thread, ``cache_bytes`` of a core's second-level cache.
    """

    arch: str
    name: str = ""
    smem_bytes: int = 0
    threads: int = 1024
    registers: int = 255
    registers_per_sm: int = 65536
    multiprocessors: int = 0
    smem_per_sm: int = 0
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    access_bytes: int = 16
    lanes: int = 8
    rows: int = 6
    scratch_bytes: int = 1 << 30
    cache_bytes: int = 1 << 20

    @property
    def target(self) -> str:
        """What the target is called."""
        return self.name or self.arch

    @property
    def on_chip(self) -> int:
        """Bytes in which a kernel may keep values between its reductions."""
        return self.smem_bytes or self.cache_bytes


CPU = Limits("cpu", access_bytes=64)
"""A CPU with AVX2. A vector of 64 bytes is the widest that any CPU has."""

LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "cpu": CPU,
        "sm80": Limits("sm80", multiprocessors=108, smem_bytes=163 << 10, smem_per_sm=164 << 10),
        "sm86": Limits(
            "sm80",
            "sm86",
            multiprocessors=72,
            smem_bytes=99 << 10,
            smem_per_sm=100 << 10,
            warps_per_sm=48,
            blocks_per_sm=16,
        ),
        "sm89": Limits(
            "sm80",
            "sm89",
            multiprocessors=142,
            smem_bytes=99 << 10,
            smem_per_sm=100 << 10,
            warps_per_sm=48,
            blocks_per_sm=24,
        ),
        "sm90": Limits("sm90", multiprocessors=132, smem_bytes=227 << 10, smem_per_sm=228 << 10),
    }
)
"""By target. GPUs: what a block and a multiprocessor have, as NVIDIA's tuning guides and the programming guide's table of
compute capabilities give it. sm86 and sm89 run the kernels of sm80 with less room for them."""


@dataclass(frozen=True)
class Resources:
    """GPUs: ``warps`` and ``threads`` of a block, ``smem_bytes`` of its tiles, ``registers_per_thread`` (an
    estimate: accumulators, fragments, addresses), the ``grid`` of blocks. The CPU: ``scratch_bytes`` of a thread,
    and the rest is 0. ``vector_bytes`` of one access; 0 where the Plan says none."""

    warps: int = 0
    threads: int = 0
    smem_bytes: int = 0
    registers_per_thread: int = 0
    vector_bytes: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    scratch_bytes: int = 0


def resources(plan: Plan, region: Region | None = None, limits: Limits | None = None) -> Resources:
    """What ``plan`` takes. Without a Region elements have two bytes and the grid is one block.

    ``limits``: the machine (its register tile counts on the CPU). The Plan's names must be those of the Region:
    :func:`tinyc.ir.check_plan.check_plan` says so.
    """
    arch = plan.arch or (limits.arch if limits else "sm80")
    scope = Scope(plan, region) if region is not None else None
    if arch == "cpu":
        return _on_cpu(plan, scope, limits or CPU)
    width = element_bytes(plan, scope)
    vector = plan.vectorize.width * width if plan.vectorize else 0
    if plan.tile is None or plan.algo == "loops":
        threads = _loop_threads(plan, scope)
        return Resources(threads // WARP, threads, 0, 0, vector, grid(plan, scope))
    if plan.algo == "stream":
        return _walked(plan, region, arch, vector)
    unit = unit_of(arch, scope)
    rows, columns, _ = plan.tile
    warps, registers = 0, 0
    if plan.warp_tile is not None:
        wm, wn = plan.warp_tile
        warps = -(-rows // wm) * -(-columns // wn) * unit.warps
        registers = unit.registers(wm, wn)
    threads = warps * WARP if warps else THREADS
    smem = _kept(plan, scope, unit, warps or 4 * unit.warps) or smem_bytes(plan, scope)
    return Resources(warps or threads // WARP, threads, smem, registers, vector, grid(plan, scope))


def _walked(plan: Plan, region: Region | None, arch: str, vector: int) -> Resources:
    """Of a stream; without a Region of one block, and of no memory that is known."""
    assert plan.tile is not None
    rows, columns, _ = plan.tile
    own = plan.warp_tile[0] if plan.warp_tile is not None else min(rows, STEP)
    warps = -(-rows // own)
    walk = walk_on(region, arch) if region is not None else None
    if region is None or walk is None:
        return Resources(warps, WARP * warps, vector_bytes=vector)
    found = extents_of(region, walk)
    grid = (found.blocks(rows), 1, 1)
    smem, registers = found.smem_bytes(rows, columns), found.registers(own, columns)
    return Resources(warps, WARP * warps, smem, registers, vector, grid)


def _kept(plan: Plan, scope: Scope | None, unit: Unit, warps: int) -> int:
    """Shared memory of a contraction of which rows are reduced in the same kernel, all of it; 0 where none are. ``warps``: 2 x 2 where the
    Plan does not say. What lanes multiply is widened on its way."""
    if scope is None or scope.contraction is None or plan.tile is None:
        return 0
    value = kept_value(scope.region, scope.contraction)
    if value is None:
        return 0
    rows, columns, _ = plan.tile
    _, part = unit.part(*(plan.warp_tile or (rows // 2, columns // 2)))
    ring, slabs = smem_bytes(plan, scope, 1 if unit.matrix else 4), warps * slab_bytes(part)
    apart = plan.async_ is not None and plan.async_.epilogue_overlap
    kept = rows * row_pitch(scope.extent("n"), value.dtype.itemsize, part)
    return kept + (ring + slabs if apart else max(ring, slabs))


def smem_bytes(plan: Plan, scope: Scope | None, least: int = 1) -> int:
    """Stages x (BM x BK + BK x BN) elements, of the operands that are cached (all of them where none is named). ``least``: bytes of an
    element."""
    if plan.tile is None:
        return 0
    bm, bn, bk = plan.tile
    cached = {entry.tensor: entry for entry in plan.cache if entry.where == "smem"}
    stages, total = plan.stages or 2, 0
    for area, tensors in ((bm * bk, staged(scope, 0)), (bk * bn, staged(scope, 1))):
        for ref in tensors or (None,):
            if ref is not None and cached and ref.name not in cached:
                continue
            single = ref is not None and ref.name in cached and not cached[ref.name].pingpong
            total += (1 if single else stages) * area * (max(ref.dtype.itemsize, least) if ref else 2)
    return total


def staged(scope: Scope | None, side: int) -> tuple[MemRef, ...]:
    """The buffers whose tiles make up the left (0) or right (1) operand: those that are read along k."""
    if scope is None or scope.contraction is None:
        return ()
    roles = scope.contraction
    return tuple(
        dict.fromkeys(
            scope.buffers[read.tensor]
            for read in scope.reads((roles.lhs, roles.rhs)[side])
            if set().union(*(index.axes() for index in read.map)) & set(roles.k)
        )
    )


def unit_of(arch: str, scope: Scope | None) -> Unit:
    """What multiplies in a tiled contraction on a GPU: by its operands' elements, of two bytes without a Region."""
    if scope is None:
        return UNITS[arch]
    left, right = (max((ref.dtype.itemsize for ref in staged(scope, side)), default=0) for side in (0, 1))
    return UNITS[unit_name(arch, left, right, rounded(scope))]


def rounded(scope: Scope) -> bool:
    """Whether both operands of the contraction are rounded to tf32."""
    roles = scope.contraction
    operands = (scope.lets[name].value for name in (roles.lhs, roles.rhs)) if roles else ()
    found = [isinstance(value, Unary) and value.op == ROUNDED for value in operands]
    return bool(found) and all(found)


def element_bytes(plan: Plan, scope: Scope | None) -> int:
    """Bytes of the widest element that one access of ``plan.vectorize`` moves: of the operands of a contraction, else
    of the buffers that lie along the vector axis."""
    if scope is None:
        return 2
    refs = (*staged(scope, 0), *staged(scope, 1))
    if not refs and plan.vectorize is not None:
        refs = tuple(ref for ref, _ in along(scope, plan.vectorize.axis))
    if not refs:
        refs = scope.region.outputs
    return max(ref.dtype.itemsize for ref in refs)


def along(scope: Scope, part: str) -> tuple[tuple[MemRef, int], ...]:
    """The buffers that are accessed one element after the other along ``part``, each with the bytes from the start of
    one run to the start of the next (0: there is only one).

    A Read that is shifted or strided against the axis, as a convolution's, is accessed by element and not here."""
    region, axes = scope.region, scope.axes(part)
    maps = [
        (scope.buffers[let.value.tensor], let.value.map) for let in region.lets if isinstance(let.value, Read)
    ]
    maps += [(ref, tuple(axis(item.name) for item in region.iters)) for ref in region.outputs]
    found: dict[str, tuple[MemRef, int]] = {}
    for ref, index in maps:
        run = _run(ref, index, axes)
        if run > 1:
            found[ref.name] = ref, 0 if run == ref.elements else run * ref.dtype.itemsize
    return tuple(found.values())


def _run(ref: MemRef, index: tuple[Affine, ...], axes: tuple[Axis, ...]) -> int:
    """Elements of ``ref`` that follow each other while ``axes`` advance together."""
    dimensions = list(zip(ref.shape, index, strict=False))
    if ref.layout.kind == "col_major" and len(dimensions) > 1:
        dimensions[-2:] = reversed(dimensions[-2:])
    run, pending = 1, [item for item in axes if item.size > 1]
    while dimensions and pending:
        size, expression = dimensions.pop()
        if size == 1:
            continue
        if expression != axis(pending[-1].name) or size != pending.pop().size:
            break
        run *= size
    return run


def run_along(index: tuple[Affine, ...], ref: MemRef) -> str | None:
    """The axis that walks ``ref`` in memory order, shifted or not; None where there is none, or more than one."""
    dimensions = [each for each, size in zip(index, ref.shape, strict=False) if size > 1]
    if not dimensions:
        return None
    inner = dimensions[-2 if ref.layout.kind == "col_major" and len(dimensions) > 1 else -1]
    steps = [atom for coef, atom in inner.terms if isinstance(atom, str) and coef == 1]
    return steps[0] if len(steps) == 1 else None


def stored_along(region: Region, ref: MemRef) -> str:
    """The iter along which an output is contiguous."""
    order = list(region.iters)
    if ref.layout.kind == "col_major" and len(order) > 1:
        order[-2:] = reversed(order[-2:])
    return next((item for item in reversed(order) if item.size > 1), order[-1]).name


def grid(plan: Plan, scope: Scope | None) -> tuple[int, int, int]:
    """Blocks along x, y and z. Axes that are bound to the same one are flattened."""
    counts = {"x": 1, "y": 1, "z": 1}
    if scope is not None:
        for part, where in plan.bind:
            unit, _, way = where.partition(".")
            if unit == "block":
                counts[way] *= scope.tiles(part)
    return counts["x"], counts["y"], counts["z"]


def _loop_threads(plan: Plan, scope: Scope | None) -> int:
    """Threads that share a block's part of the innermost loop and its sums, whole warps."""
    if plan.tile is None:
        return THREADS
    _, points, share = plan.tile
    width = plan.vectorize.width if plan.vectorize else 1
    if share > 1 and plan.vectorize and scope is not None:
        iters = {item.name for item in scope.region.iters}
        width = width if {item.name for item in scope.axes(plan.vectorize.axis)} <= iters else 1
    return -(-share * -(-points // width) // WARP) * WARP


def _on_cpu(plan: Plan, scope: Scope | None, limits: Limits) -> Resources:
    vector = 4 * plan.vectorize.width if plan.vectorize else 0
    if plan.tile is None or plan.algo == "loops" or scope is None or scope.contraction is None:
        return Resources(vector_bytes=vector)
    item = product(scope.region, scope.contraction, scope.free)
    if isinstance(item, str):
        return Resources(vector_bytes=vector)
    nr = 2 * (plan.vectorize.width if plan.vectorize else limits.lanes)
    mc, nc, kc = blocks(item, plan.tile, limits.rows, nr)
    return Resources(vector_bytes=vector, scratch_bytes=scratch_bytes(mc, nc, kc))
