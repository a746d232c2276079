"""How the CPU cuts a contraction into tiles: what the default Plan says and what the code generator obeys.

The result is cut into tiles of MC x NC, the sum into parts of KC; the tile of a Plan is (MC, NC, KC) in the order of
its own roles. A register holds MR x NR results of a tile (NR: two vectors), so MC is rounded up to a multiple of MR
and NC of NR; a tile larger than the matrix is as large as the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from .dtypes import DType
from .region import Axis, Binary, Reduce, Region
from .schedule import Contraction

#: largest blocks of the default: rows, columns and depth of the packed operands
ROWS, COLUMNS, DEPTH = 256, 512, 384
#: multiply-adds below which a tile is not cut further for the sake of threads
TILE_WORK = 1 << 21
#: multiply-adds below which packing does not pay, unless a Plan asks for a tile
WORTH = 4096


@dataclass(frozen=True)
class Product:
    """A contraction as the CPU computes it: ``rows`` x ``columns`` for every point of ``outer``, summed over ``k``.

    ``columns`` holds the last iter (unless that is a batch axis): results are stored and vectors lie along it.
    ``turned``: the columns are the Plan's m.
    ``outer``: batch axes, and leading axes of rows and columns that are apart from the others in the output.
    """

    outer: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    k: tuple[Axis, ...]
    lhs: str
    rhs: str
    turned: bool

    @property
    def sizes(self) -> tuple[int, int, int]:
        return _size(self.rows), _size(self.columns), _size(self.k)

    def worthwhile(self, lanes: int) -> bool:
        """Whether it is large enough to be packed."""
        m, n, k = self.sizes
        return m >= 4 and n >= lanes and m * n * k >= WORTH


def product(region: Region, roles: Contraction, free: Mapping[str, frozenset[str]]) -> Product | str:
    """The contraction ``roles`` of ``region``, or why the CPU cannot tile it. ``free``: axes of each let.

    Axes of size 1 count for nothing, so the Region may be with or without them.
    """
    lets = {let.name: let for let in region.lets}
    reduce = lets.get(roles.reduce)
    if reduce is None or not isinstance(reduce.value, Reduce) or reduce.value.op != "SUM":
        return f"{roles.reduce} is no sum"
    if reduce.dtype not in (DType.FP32, DType.I32):
        return f"{roles.reduce} is summed in {reduce.dtype}: only fp32 and i32 are"
    body = lets[reduce.value.body]
    if not isinstance(body.value, Binary) or body.value.op != "MUL" or body.dtype is not reduce.dtype:
        return f"{roles.reduce} does not sum products"
    if {body.value.x, body.value.y} != {roles.lhs, roles.rhs}:
        return f"{roles.reduce} does not multiply {roles.lhs} and {roles.rhs}"
    iters = tuple(item for item in region.iters if item.size > 1)
    m, n, batch = (
        tuple(item for item in iters if item.name in names) for names in (roles.m, roles.n, roles.batch)
    )
    k = tuple(item for item in reduce.value.axes if item.size > 1)
    if not (m and n and k):
        return "one of m, n and k has a single point"
    lhs, rhs, turned = roles.lhs, roles.rhs, m[-1] is iters[-1]
    if turned:
        m, n, lhs, rhs = n, m, rhs, lhs
    wide = {item.name for item in (*iters, *k)}
    if free[roles.reduce] & wide != {item.name for item in iters} or len(m) + len(n) + len(batch) != len(
        iters
    ):
        return "the sum does not depend on every axis of the result"
    shared = {item.name for item in (*batch, *k)}
    for operand, own in ((lhs, m), (rhs, n)):
        if not free[operand] & wide <= shared | {item.name for item in own}:
            return f"{operand} depends on axes beyond its roles"
    moved_m, m = _split(m, iters, 64)
    moved_n, n = _split(n, iters, 256)
    return Product((*batch, *moved_m, *moved_n), m, n, k, lhs, rhs, turned)


def default_tile(item: Product, mr: int, nr: int) -> tuple[int, int, int]:
    """A Plan's tile: equal parts within the limits, cut further until threads have tiles to share."""
    m, n, k = item.sizes
    outer = _size(item.outer)
    mc, nc = _part(m, ROWS, mr), _part(n, COLUMNS, nr)
    kc = -(-k // -(-k // DEPTH))
    while outer * -(-m // mc) * -(-n // nc) < 8 and mc * nc * k > TILE_WORK:
        if mc >= nc and mc > 4 * mr:
            mc = _part(m, -(-mc // 2), mr)
        elif nc > 2 * nr:
            nc = _part(n, -(-nc // 2), nr)
        else:
            break
    return (nc, mc, kc) if item.turned else (mc, nc, kc)


def blocks(item: Product, tile: tuple[int, int, int], mr: int, nr: int) -> tuple[int, int, int]:
    """(MC, NC, KC) of the code for a Plan's tile."""
    m, n, k = item.sizes
    bm, bn, bk = tile
    if item.turned:
        bm, bn = bn, bm
    return _whole(min(bm, m), mr), _whole(min(bn, n), nr), min(bk, k)


def scratch_bytes(mc: int, nc: int, kc: int) -> int:
    """Memory of one thread: a tile of results and the packed operands, four bytes an element."""
    return 4 * (mc * nc + mc * kc + nc * kc)


def _split(
    axes: tuple[Axis, ...], iters: tuple[Axis, ...], enough: int
) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Leading axes that are apart from the others in the output, given up where ``enough`` points remain."""
    start = len(axes) - 1
    while start and iters.index(axes[start - 1]) + 1 == iters.index(axes[start]):
        start -= 1
    return (axes[:start], axes[start:]) if _size(axes[start:]) >= enough else ((), axes)


def _part(size: int, limit: int, unit: int) -> int:
    """The size of equal parts of at most about ``limit``, a multiple of ``unit``."""
    return _whole(-(-size // max(1, -(-size // limit))), unit)


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _size(axes: tuple[Axis, ...]) -> int:
    return prod(item.size for item in axes)
