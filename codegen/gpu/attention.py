"""Attention from Streams (document 004 §6.6, R4's bridge): what of a Region is queries, keys and values.

    out[b, m, d] = f(sum over n of exp2((s[b, m, n] - max) * c) * v[b, n, d], sum over n of the same exponentials)
    s[b, m, n] = g(sum over e of q[b, m, e] * k[b, n, e])

A block keeps the rows of a tile of m and walks over n once (Dao, FlashAttention-2, arXiv 2307.08691), or twice where the
exponentials are divided and rounded before they meet v: first for what they are divided by. Each warp owns whole rows; their
probabilities never leave its registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tinyc.ir.dtypes import DType
from tinyc.ir.region import Const, Let, Reduce, Region, Select, Stream, Within, free_axes, operands
from tinyc.ir.schedule import Plan
from tinyc.ir.streams import ONE, WALK, WIDEST, row_elements

from ..prepare import linear, simplify
from .ir import Ring
from .operand import Group, Operand, Source, operand, source_of


@dataclass(frozen=True)
class Attention:
    """A Region that is attention.

    Attributes:
        region: without axes of size 1.
        reduce: the let of q k; ``score``: that of s, ``scale``: c.
        weighted: the Stream of v; ``totals``: those of the exponentials alone.
        batch, m, n, d, e: groups of axes. q, k, v: the operands; their tiles lie along e, e and d.
        tile: rows of a block, and columns of the scores that it has at a time. rows: of one warp. ``exact``: the exponentials meet v in two parts, so that no more of them is lost than in fp32.
        rings: of q, k and v in shared memory, one tile each.
        rounded: the exponentials are divided by their sum, and rounded to the type of v.
        limits: what ``index`` must be for a score not to be -inf, where that is known of all scores of a column.
        plain: but for those, a score is the product itself.
    """

    region: Region
    reduce: str
    score: str
    scale: int
    weighted: str
    totals: tuple[str, ...]
    batch: Group
    m: Group
    n: Group
    d: Group
    e: Group
    q: Operand
    k: Operand
    v: Operand
    tile: tuple[int, int]
    rows: int
    exact: bool
    rounded: bool
    rings: tuple[Ring, Ring, Ring]
    limits: tuple[Within, ...]
    plain: bool

    @property
    def warps(self) -> int:
        """Of a block, each with rows of its own."""
        return self.tile[0] // self.rows

    @property
    def wide(self) -> tuple[int, int]:
        """Points of e and of d that are multiplied: whole instructions."""
        return -(-self.e.size // 16) * 16, -(-self.d.size // 16) * 16

    @property
    def tiles(self) -> tuple[int, int]:
        """Along m and n."""
        return -(-self.m.size // self.tile[0]), -(-self.n.size // self.tile[1])

    @property
    def width(self) -> int:
        """Elements of a row of the result that are stored together."""
        width = 16 // max(ref.dtype.itemsize for ref in self.region.outputs)
        while self.d.axes[-1].size % width:
            width //= 2
        return width

    def start(self, number: int) -> int:
        """The byte of the shared memory at which a ring begins."""
        return sum(ring.slot_bytes for ring in self.rings[:number])


def attention_of(region: Region, plan: Plan | None = None) -> Attention | None:
    """``region`` as attention, in the tiles of ``plan`` where that has some; None where it is not, or its elements are none that
    matrix units multiply."""
    small = simplify(region)
    lets = {let.name: let for let in small.lets}
    streams = {let.name: let.value for let in small.lets if isinstance(let.value, Stream)}
    sums = [let for let in small.lets if isinstance(let.value, Reduce)]
    walks = {(each.axes, each.score, lets[each.scale].value) for each in streams.values()}
    if len(sums) != 1 or len(walks) != 1:
        return None
    (reduce,) = sums
    ones = [
        name
        for name, each in streams.items()
        if each.rounded is None and getattr(lets[each.weight].value, "bits", None) == ONE
    ]
    weighted = [name for name in streams if name not in ones]
    shared = next(iter(streams.values()))
    scale = lets[shared.scale].value
    if len(weighted) != 1 or not isinstance(scale, Const):
        return None
    sources = _sources(small, lets, reduce, streams[weighted[0]].weight)
    if sources is None:
        return None
    found = _groups(small, lets, reduce, shared, sources)
    if found is None:
        return None
    groups, (q, k, v) = found
    e, d = groups["e"].size, groups["d"].size
    if max(e, d) > WIDEST:
        return None
    (tile, columns), rows = WALK
    if plan is not None and plan.algo == "stream" and plan.tile is not None and plan.warp_tile is not None:
        (tile, columns, _), (rows, _) = plan.tile, plan.warp_tile
    dtype = q.dtype
    rings = (
        Ring("q", dtype, tile, row_elements(e), 1, False, True),
        Ring("k", dtype, columns, row_elements(e), 1, True, True),
        Ring("v", dtype, columns, row_elements(d), 1, True, True),
    )
    limits, inner = _limits(lets, shared.score)
    rounded = streams[weighted[0]].rounded
    if rounded is not None and rounded is not dtype:
        return None
    exact = rounded is None and any(ref.dtype is not dtype for ref in small.outputs)
    return Attention(
        small, reduce.name, shared.score, scale.bits, weighted[0], tuple(ones),
        groups["b"], groups["m"], groups["n"], groups["d"], groups["e"], q, k, v, (tile, columns), rows, exact, rounded is not None, rings,
        limits, inner == reduce.name,
    )  # fmt: skip


def _sources(
    region: Region, lets: Mapping[str, Let], reduce: Let, weight: str
) -> tuple[Source, Source, Source] | None:
    """Two operands of the product and the weight, all of one type of two bytes."""
    value = reduce.value
    assert isinstance(value, Reduce)
    body = lets[value.body].value
    if value.op != "SUM" or getattr(body, "op", "") != "MUL" or reduce.dtype is not DType.FP32:
        return None
    found = [source_of(lets, region.inputs, name) for name in (*operands(body), weight)]
    first, second, third = found
    if first is None or second is None or third is None:
        return None
    dtypes = {each.ref.dtype for each in (first, second, third)}
    return (first, second, third) if dtypes <= {DType.FP16} or dtypes <= {DType.BF16} else None


def _groups(
    region: Region,
    lets: Mapping[str, Let],
    reduce: Let,
    shared: Stream,
    sources: tuple[Source, Source, Source],
) -> tuple[dict[str, Group], tuple[Operand, Operand, Operand]] | None:
    """What the axes are, and the operands in the order queries, keys, values."""
    value = reduce.value
    assert isinstance(value, Reduce)
    walked = frozenset(item.name for item in shared.axes)
    summed = frozenset(item.name for item in value.axes)
    free = free_axes(region)
    axes = [_axes(source) for source in sources]
    if walked & axes[0]:
        sources, axes = (sources[1], sources[0], sources[2]), [axes[1], axes[0], axes[2]]
    queries, keys, values = axes
    scored = free[shared.score] - walked
    rows = queries - keys - summed
    if walked & queries or not walked <= keys or not walked <= values or not summed <= queries & keys:
        return None
    if rows & values or summed & values or not queries | keys <= scored | walked | summed:
        return None
    wide = frozenset(item.name for item in region.iters) - scored
    if wide & (queries | keys) or not wide:
        return None

    def group(names: frozenset[str]) -> Group:
        return Group(tuple(item for item in region.iters if item.name in names))

    # masks may depend on rows of which the queries do not know, such as one per head: they are walked as a batch
    groups = {"m": group(rows), "d": group(wide), "b": group(scored - rows)}
    groups |= {"n": Group(shared.axes), "e": Group(value.axes)}
    if any(item.name in wide for item in region.iters[: -len(groups["d"].axes)]):
        return None

    def made(source: Source, own: Group, deep: Group) -> Operand:
        return operand(source, groups["b"], own, deep, linear(source.read.map, source.ref))

    q = made(sources[0], groups["m"], groups["e"])
    k, v = made(sources[1], groups["e"], groups["n"]), made(sources[2], groups["d"], groups["n"])
    return groups, (_along(q, "depth"), _along(k, "rows"), _along(v, "rows"))


def _axes(source: Source) -> frozenset[str]:
    found = frozenset[str]().union(*(index.axes() for index in source.read.map))
    return found.union(*(condition.index.axes() for condition in source.conditions))


def _along(found: Operand, way: str) -> Operand:
    """Lying as it is multiplied, element by element where memory has it otherwise."""
    assert way in ("rows", "depth")
    return found if found.along == way else replace(found, along=way, bytes=0)  # type: ignore[arg-type]


def _limits(lets: Mapping[str, Let], score: str) -> tuple[tuple[Within, ...], str]:
    """The conditions without which a score is -inf, and what it is with them."""
    found: list[Within] = []
    value = lets[score].value
    while isinstance(value, Select):
        condition, other = lets[value.cond].value, lets[value.other].value
        if not isinstance(condition, Within) or getattr(other, "bits", 0) != 0xFF800000:
            break
        found.append(condition)
        score, value = value.then, lets[value.then].value
    return tuple(found), score
