"""The Schedule Plan: how one Region is to be computed (document 004 §8).

Everything is optional. What a Plan leaves open, the code generator of the target chooses.

Axes are written in the document's split notation. ``m.o`` is the number of a tile along m, ``m.i`` the place in the
tile; a second split gives ``m.i.o`` (which warp) and ``m.i.i`` (the place in the warp's tile). In a Plan with a
contraction ``b``, ``m``, ``n`` and ``k`` are its groups of axes; every other name is an axis of the Region.
"""

from __future__ import annotations

from dataclasses import dataclass

#: schedules: nested loops over the iters, a tiled sum of products, or on a GPU a walk over scores in tiles
ALGOS = ("loops", "contraction", "stream")
#: the document's two, and the CPU
ARCHS = ("sm80", "sm90", "cpu")
#: tiles in a shared-memory ring (004 §8.1)
STAGES = (2, 3)
#: the same for sm90, whose copies and products wait for each other by barriers in memory: up to 8 (resolution I-46)
DEEP_STAGES = tuple(range(2, 9))
#: which asynchronous copy an architecture waits for (004 §8.1, §9.1)
BARRIER_MODELS = {"sm80": "cp_async_group", "sm90": "mbarrier"}
#: kind of kernel -> implementations (004 §8.1); ``splitk_<parts>`` beside them
ALGO_CHOICES = {
    "matmul": ("implicit_gemm",),
    "conv": ("implicit_gemm", "winograd_3x3", "fft_conv"),
    "attention": ("streaming_softmax_2pass", "online_softmax"),
}
#: where a value goes on its way to the next: registers, or a ring of tiles in shared memory
EDGE_BUFFERS = ("reg", "smem_ring")
#: what an axis can be bound to
PLACES = (*(f"{unit}.{way}" for unit in ("block", "warp") for way in "xyz"), "lane")
ORDERS = ("row", "col")
#: largest number that a Plan may hold
MAX_EXTENT = 2**31 - 1


@dataclass(frozen=True)
class Contraction:
    """A Reduce(SUM) over a product, with the roles of its axes: names of the Region's axes, in order.

    ``lhs`` depends on batch, m and k axes only; ``rhs`` on batch, n and k; all k axes are the Reduce's.
    """

    reduce: str
    lhs: str
    rhs: str
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]

    def groups(self) -> dict[str, tuple[str, ...]]:
        """The axes under the names that a Plan gives the groups."""
        return {"b": self.batch, "m": self.m, "n": self.n, "k": self.k}


@dataclass(frozen=True)
class Cache:
    """Tiles of buffer ``tensor`` are kept ``where`` ("smem") and replaced along axis ``at``; ``pingpong``: as many
    as there are stages, else one."""

    tensor: str
    at: str
    where: str = "smem"
    pingpong: bool = True


@dataclass(frozen=True)
class Vectorize:
    """``width`` counts elements along ``axis``; at most 16 bytes on a GPU (resolution I-38), 64 on the CPU."""

    axis: str
    width: int


@dataclass(frozen=True)
class LayoutHints:
    """``a_swizzle``, ``b_swizzle``: the operand's tile lies swizzled in shared memory. ``c_stride``: "row" where the
    result is contiguous along n, "col" where it is along m."""

    a_swizzle: bool = False
    b_swizzle: bool = False
    c_stride: str = "row"


@dataclass(frozen=True)
class LocalEdge:
    """The value ``source`` reaches ``target`` in ``buffer``; ``depth``: tiles of a ring (None: as many as stages)."""

    source: str
    target: str
    buffer: str
    depth: int | None = None


@dataclass(frozen=True)
class Async:
    """``enable``: loads overlap with the epilogue. ``prefetch_depth``: tiles in flight, the one being computed
    included. ``epilogue_overlap``: the epilogue runs beside the loads of the next tile."""

    enable: bool = True
    prefetch_depth: int = 2
    epilogue_overlap: bool = True


@dataclass(frozen=True)
class Plan:
    """The schedule of one kernel.

    Attributes:
        algo: one of :data:`ALGOS`. A contraction that does not say which is the only one of its Region.
        contraction: the Reduce to tensorize and the roles of its axes.
        tile: (BM, BN, BK), points of m, n and k in one tile. For loops: (1, points of a block of the innermost
            loop, threads that share each of its sums); a CPU has one thread for a sum. For a stream: (rows of a block,
            scores of a row that it has at a time, what these are summed over, in whole instructions).
        stages: tiles in the shared-memory ring, one of :func:`rings`.
        bind: (axis part, one of :data:`PLACES`) pairs.
        warp_tile: the part of a tile that one warp computes; on sm90 one warpgroup of four. A stream's warps own whole rows.
        cache, vectorize, layout_hints, local_edges, async_: as their classes say.
        predicate_tail: axis parts whose last tile is cut off by predicates.
        epilogue: what is applied to the accumulator, in order: names of lets, of operations, or of the buffer that
            an operation reads.
        arch: one of :data:`ARCHS`; None: whatever the target is.
        algo_choice: (kind of kernel, implementation) pairs of :data:`ALGO_CHOICES`.
        barrier_model: of :data:`BARRIER_MODELS`.

    :func:`tinyc.ir.check_plan.check_plan` says whether one fits its Region and a machine.
    """

    algo: str = "loops"
    contraction: Contraction | None = None
    tile: tuple[int, int, int] | None = None
    stages: int | None = None
    bind: tuple[tuple[str, str], ...] = ()
    warp_tile: tuple[int, int] | None = None
    cache: tuple[Cache, ...] = ()
    vectorize: Vectorize | None = None
    predicate_tail: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()
    arch: str | None = None
    layout_hints: LayoutHints | None = None
    algo_choice: tuple[tuple[str, str], ...] = ()
    local_edges: tuple[LocalEdge, ...] = ()
    async_: Async | None = None
    barrier_model: str | None = None

    @property
    def tensorize(self) -> str | None:
        """The let of the Reduce that becomes matrix instructions (004 §6.12)."""
        return self.contraction.reduce if self.contraction else None


def rings(arch: str | None) -> tuple[int, ...]:
    """How many tiles a shared-memory ring may hold. None: an architecture that is not known."""
    return DEEP_STAGES if arch == "sm90" else STAGES


def known_choice(kind: str, name: str) -> bool:
    """Whether ``name`` implements kernels of ``kind``; ``splitk_4`` is a matmul or conv whose k is cut in four."""
    parts = name.removeprefix("splitk_")
    split = name != parts and kind != "attention" and parts.isascii() and parts.isdigit() and int(parts) > 1
    return split or name in ALGO_CHOICES.get(kind, ())
