"""What the cost formulas ask of a kernel's schedule (document 004 §8, §11): one dataclass, filled from a plan candidate
before there is a Region, or from a Plan and its Region afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from tinyc.ir.plan import Plan
from tinyc.ir.region import Region
from tinyc.ir.resources import THREADS, Limits, element_bytes, resources, smem_bytes, unit_of
from tinyc.ir.rows import common_sums, kept_rows
from tinyc.ir.schedule_names import Scope
from tinyc.ir.streams import WALK, Extents, extents_of, walk_on
from tinyc.ir.units import UNITS, WARP, Unit

LOOP_REGISTERS = 32
"""Of a thread that computes one point after the other."""

MMA_SYNC_ON_SM90 = 0.65
"""Share of sm90's peak that mma.sync attains, measured (arXiv 2402.13499): only WGMMA reaches the rest."""

LANE_FMAS = {"sm80-simt": 64, "sm90-simt": 128}
"""Multiply-adds of all lanes of a multiprocessor in a clock."""

WGMMA_ROWS = 64
"""Rows of every WGMMA instruction; a warp tile that is no multiple of it has to use mma.sync."""


@dataclass(frozen=True)
class Schedule:
    """How a kernel runs on a GPU. The CPU's estimates do not ask for it.

    Attributes:
        algo: name of the algorithm, for people: "loops", "implicit_gemm", "splitk_4", "streaming_softmax_2pass", …
        blocks: thread blocks of the grid.
        threads: of one block.
        registers: of one thread; 0 where it is not known.
        smem_bytes: shared memory of one block.
        stages: tiles in the shared-memory ring; 1: none, loads and products take turns.
        steps: tiles along k that a block goes through; 1 for loops.
        staged_bytes: what all blocks together load into shared memory, from the second-level cache: (BM·BK + BK·BN) ·
            itemsize · steps · blocks. 0 for loops.
        vector_bytes: of one access to global memory.
        padding: points of all tiles over points of the result, at least 1: what the tails compute for nothing.
        attained: the share, in (0, 1], of its unit's peak that the instruction attains with this warp tile (WGMMA with 64
            columns or more: nearly all; mma.sync on sm90: 0.65).
        async_copy: loads run beside the products (``async.enable``).
        epilogue_overlap: the epilogue runs beside the loads of the next tile.
        gathered: elements that all blocks together load one by one, since a window begins at any of them.
        row_blocks: blocks that share a row of the result, in loops.
        sum_threads: threads that share a sum, in loops.
        tile: (BM, BN, BK) where there is one.
        warp_tile: the part of one warp; on sm90 of one warpgroup.
    """

    algo: str = "loops"
    blocks: int = 1
    threads: int = 256
    registers: int = 0
    smem_bytes: int = 0
    stages: int = 1
    steps: int = 1
    staged_bytes: float = 0.0
    vector_bytes: int = 4
    padding: float = 1.0
    attained: float = 1.0
    async_copy: bool = False
    epilogue_overlap: bool = False
    gathered: float = 0.0
    row_blocks: int = 1
    sum_threads: int = 1
    tile: tuple[int, int, int] | None = None
    warp_tile: tuple[int, int] | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of its numbers alone, so that it holds in other processes: searches look up what runs so again and again."""
        return hash(tuple([getattr(self, name) or () for name in NUMBERS]))

    @property
    def warps(self) -> int:
        """Warps of 32 threads of one block."""
        return -(-self.threads // 32)

    @property
    def overlapped(self) -> int:
        """1 where loads run beside the epilogue, else 0."""
        return int(self.async_copy and self.epilogue_overlap)


NUMBERS = tuple(field.name for field in fields(Schedule) if field.name != "algo")
"""Its fields but the name, whose hash is another one in each process."""


def attainment(unit: Unit, warp_tile: tuple[int, int] | None) -> float:
    """The share of a unit's peak, in (0, 1], that the instructions for a warp tile of ``(rows, columns)`` attain (document
    004 §11: TMA, WGMMA and ldmatrix).

    It is what shared memory feeds: 128 bytes a clock to a multiprocessor. sm80's matrix units multiply 2048 FLOP in that
    clock and load both operands of a warp tile (ldmatrix). sm90's multiply 4096: WGMMA reads 64 rows and all columns at
    each step, so it attains 2N / (64 + N), where 96 %, 63 %, 38 % and 21 % were measured for N = 64, 32, 16 and 8 (arXiv
    2402.13499). Both hold for elements of two bytes, and for tf32: twice the bytes, at half the rate.

    A lane has ``rows / 4`` x ``columns / 8`` points, and loads as many words for a step: 32 lanes take a clock for each
    of these. The lanes of sm80 multiply 128 FLOP in a clock, those of sm90 256.
    """
    if warp_tile is None:
        return 1.0
    rows, columns = warp_tile
    if not unit.matrix:
        own, loaded = (rows / unit.rows) * (columns / unit.columns), rows / unit.rows + columns / unit.columns
        return min(1.0, own * WARP / (LANE_FMAS[unit.name] * loaded))
    arch = unit.arch
    if arch == "sm90" and rows % WGMMA_ROWS == 0:
        return min(1.0, 2 * columns / (WGMMA_ROWS + columns))
    fed = min(1.0, rows * columns / (16 * (rows + columns)))
    return MMA_SYNC_ON_SM90 * fed if arch == "sm90" else fed


def loops(blocks: int, threads: int, vector: int, rows: int, sum_threads: int = 1) -> Schedule:
    """How loops run over a result of so many ``rows``. ``vector``: bytes of an access."""
    shared = max(1, blocks // max(1, rows))
    return Schedule(
        "loops",
        blocks,
        threads,
        LOOP_REGISTERS,
        vector_bytes=vector,
        row_blocks=shared,
        sum_threads=sum_threads,
    )


def streaming(extents: Extents, tile: tuple[int, int], own: int, vector: int, arch: str) -> Schedule:
    """How a Stream runs on matrix units: a block takes rows of one head and walks all their columns in turn, so that there are
    as many blocks as heads and rows allow, however long the rows are. ``tile``: rows of a block, columns that it has at a time;
    ``own``: rows of a warp. ``vector``: bytes of an access."""
    rows, columns = tile
    steps = -(-extents.columns // columns)
    whole = -(-extents.rows // rows) * rows * steps * columns
    return Schedule(
        "streaming_softmax_2pass",
        blocks=extents.blocks(rows),
        threads=WARP * -(-rows // own),
        registers=extents.registers(own, columns),
        smem_bytes=extents.smem_bytes(rows, columns),
        stages=2,
        steps=steps,
        staged_bytes=float(extents.blocks(rows) * extents.staged_bytes(rows, columns)),
        vector_bytes=vector,
        padding=whole / (extents.rows * extents.columns),
        attained=attainment(UNITS["sm80"], (own, columns)) * (MMA_SYNC_ON_SM90 if arch == "sm90" else 1),
        async_copy=True,
        tile=(rows, columns, extents.deep),
        warp_tile=(own, columns),
    )


def gathered(tile: tuple[int, int, int], shifted: Sequence[bool]) -> int:
    """The elements that a block loads one by one in each step: of the operands that are ``shifted``."""
    bm, bn, bk = tile
    return bm * bk * shifted[0] + bk * bn * shifted[1]


def _shifted(scope: Scope, side: int) -> bool:
    """Whether the left (0) or right (1) operand is read in windows that slide along the buffer's last axis."""
    roles = scope.contraction
    assert roles is not None
    summed, moving = set(roles.k), {*roles.m, *roles.n}
    reads = scope.reads((roles.lhs, roles.rhs)[side])
    return any(read.map and read.map[-1].axes() & summed and read.map[-1].axes() & moving for read in reads)


def schedule_of(region: Region, plan: Plan, limits: Limits) -> Schedule | None:
    """How ``region`` runs by ``plan`` on a GPU; None on the CPU. The Plan must fit its Region
    (:func:`tinyc.ir.check_plan.check_plan`)."""
    if limits.arch == "cpu":
        return None
    scope = Scope(plan, region)
    taken = resources(plan, region, limits)
    vector = taken.vector_bytes or element_bytes(plan, scope)
    if (walk := walk_on(region, limits.arch)) is not None:
        tile, own = WALK
        if plan.algo == "stream" and plan.tile is not None and plan.warp_tile is not None:
            tile, own = (plan.tile[0], plan.tile[1]), plan.warp_tile[0]
        return streaming(extents_of(region, walk), tile, own, vector, limits.arch)
    if plan.tile is None or plan.algo == "loops" or scope.contraction is None:
        points = math.prod(axis.size for axis in region.iters)
        threads = taken.threads or THREADS
        blocks = math.prod(taken.grid) if plan.bind else -(-points // threads)
        last = next((axis.size for axis in reversed(region.iters) if axis.size > 1), 1)
        share = plan.tile[2] if plan.tile is not None and plan.algo == "loops" else 1
        found = loops(max(1, blocks), threads, vector, points // last, share)
        if found.row_blocks > 1 and common_sums(region):  # the block that has the row computes them
            found = replace(found, row_blocks=1)
        return found
    counts = [-(-scope.extent(role) // size) for role, size in zip("mnk", plan.tile, strict=True)]
    points = math.prod(scope.extent(role) for role in "mnk")
    batch = scope.extent("b") if scope.contraction.batch else 1
    blocks, steps = counts[0] * counts[1] * batch, counts[2]
    async_ = plan.async_
    found = Schedule(
        algo=dict(plan.algo_choice).get("conv") or dict(plan.algo_choice).get("matmul") or "implicit_gemm",
        blocks=blocks,
        threads=taken.threads,
        registers=taken.registers_per_thread,
        smem_bytes=taken.smem_bytes,
        stages=plan.stages or 1,
        steps=steps,
        staged_bytes=float(smem_bytes(replace(plan, stages=1), scope) * steps * blocks),
        vector_bytes=vector,
        padding=math.prod(n * size for n, size in zip(counts, plan.tile, strict=True)) / points,
        attained=attainment(unit_of(limits.arch, scope), plan.warp_tile),
        async_copy=async_ is not None and async_.enable,
        epilogue_overlap=async_ is not None and async_.epilogue_overlap,
        gathered=float(blocks * steps * gathered(plan.tile, [_shifted(scope, side) for side in (0, 1)])),
        tile=plan.tile,
        warp_tile=plan.warp_tile,
    )
    return whole_rows(found, counts[1]) if kept_rows(region, scope.contraction) else found


def whole_rows(schedule: Schedule, tiles: int) -> Schedule:
    """``schedule`` where rows of ``tiles`` tiles are reduced: a block computes them all, one after the other, and keeps them."""
    return replace(schedule, blocks=max(1, schedule.blocks // tiles), steps=tiles * schedule.steps)
