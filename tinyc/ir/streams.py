"""Which Streams of a Region can be computed in one walk over blocks of their scores, and how (document 004 §6.6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .dtypes import HALF, DType
from .region import Axis, Binary, Cast, Const, Let, Read, Reduce, Region, Select, Stream, free_axes, operands
from .units import WARP

WIDEST = 256
"""Points of what scores are summed over, and of what is weighted, that matrix units walk: the sums of 16 rows take half of a
lane's registers."""


ONE = 0x3F800000
"""1.0 in fp32."""


@dataclass(frozen=True)
class ScoreProduct:
    """The scores' sum of products: let ``reduce`` sums ``lhs`` * ``rhs`` over ``axes``. ``lhs`` depends on rows, ``rhs``
    on the streams' axes, neither on both."""

    reduce: str
    lhs: str
    rhs: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Walk:
    """All Streams of a Region, over one and the same score.

    ``outer`` and ``rows``: the iters that the score depends on; no weight and no ``rhs`` depends on a row.
    ``streams``: each with the iters that its weight depends on beside those, in order.
    """

    streams: tuple[tuple[Let, tuple[Axis, ...]], ...]
    axes: tuple[Axis, ...]
    score: str
    scale: str
    outer: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    product: ScoreProduct | None


def walk_of(region: Region) -> Walk | None:
    """The one walk that computes every Stream of ``region``; None where they need more than one, or there are none."""
    lets = {let.name: let for let in region.lets}
    streams = [(let, let.value) for let in region.lets if isinstance(let.value, Stream)]
    if not streams:
        return None
    _, first = streams[0]
    for _, value in streams[1:]:
        same_scale = lets[value.scale].value == lets[first.scale].value
        same_walk = (value.axes, value.score, value.rounded) == (first.axes, first.score, first.rounded)
        if not same_walk or not same_scale:
            return None
    free = free_axes(region)
    iters = [axis.name for axis in region.iters]
    bound = frozenset(axis.name for axis in first.axes)
    weights = frozenset().union(*(free[value.weight] for _, value in streams))
    if not bound or not (free[first.score] | weights) <= bound.union(iters):
        return None
    if any(_nested(lets, name) for _, value in streams for name in (value.score, value.weight)):
        return None
    of_score = free[first.score] - bound
    if not of_score:
        return None
    product = _product(lets, free, first.score, bound)
    rows = of_score - weights - (free[product.rhs] if product is not None else frozenset())
    if product is not None and not rows:
        product, rows = None, of_score - weights
    return Walk(
        tuple(
            (let, tuple(axis for axis in region.iters if axis.name in free[value.weight] - of_score))
            for let, value in streams
        ),
        first.axes,
        first.score,
        first.scale,
        tuple(axis for axis in region.iters if axis.name in of_score - rows),
        tuple(axis for axis in region.iters if axis.name in rows),
        product,
    )


def walk_on(region: Region, arch: str) -> Walk | None:
    """The walk by which a target computes every Stream of ``region``, None where it computes them in loops. A GPU walks on
    matrix units: scores that are sums of products of fp16, or of bf16, and values of the same type."""
    walk = walk_of(region)
    return walk if walk is None or arch == "cpu" or _on_matrix_units(region, walk) else None


@dataclass(frozen=True)
class Extents:
    """Of a walk on matrix units: ``outer`` heads with ``rows`` of ``columns`` scores each, which are sums over ``depth`` points,
    and weight ``width`` values. ``size``: bytes of an element."""

    outer: int
    rows: int
    columns: int
    depth: int
    width: int
    size: int = 2

    @property
    def deep(self) -> int:
        """``depth`` in whole instructions."""
        return -(-self.depth // STEP) * STEP

    def blocks(self, rows: int) -> int:
        """Of so many rows."""
        return self.outer * -(-self.rows // rows)

    def smem_bytes(self, rows: int, columns: int) -> int:
        """Of a tile each of queries, keys and values."""
        deep, wide = row_elements(self.depth), row_elements(self.width)
        return (rows * deep + columns * (deep + wide)) * self.size

    def staged_bytes(self, rows: int, columns: int) -> int:
        """That a block of so many rows copies there: its queries, and all keys and values once."""
        wide = -(-self.width // STEP) * STEP
        whole = -(-self.columns // columns) * columns
        return (rows * self.deep + whole * (self.deep + wide)) * self.size

    def registers(self, rows: int, columns: int) -> int:
        """Of a thread whose warp has so many rows: its sums, its scores, the fragments that are multiplied, addresses."""
        wide = -(-self.width // STEP) * STEP
        return rows * (wide + columns) // WARP + max(wide, columns) // 4 + rows // 4 + WALK_ADDRESSING


STEP = 16
"""Rows, and points that are summed, of an instruction (mma.sync m16n8k16)."""

WALK = (64, 64), 16
"""Rows and columns of a walk's tile, and rows of a warp, where a Plan does not say."""

WALK_ADDRESSING = 24
"""Registers of a thread beside what it multiplies."""


def row_elements(size: int) -> int:
    """Elements of a row in shared memory: a power of two, so that it can be swizzled."""
    return max(STEP, 1 << (size - 1).bit_length())


def extents_of(region: Region, walk: Walk) -> Extents:
    """Of a walk on matrix units."""
    assert walk.product is not None
    wide = max((wide for _, wide in walk.streams), key=len)
    groups = (walk.outer, walk.rows, walk.axes, walk.product.axes, wide)
    return Extents(*(math.prod(axis.size for axis in axes) for axes in groups))


def _on_matrix_units(region: Region, walk: Walk) -> bool:
    lets = {let.name: let for let in region.lets}
    weights = [(let.value, wide) for let, wide in walk.streams if not _is_one(lets, let.value)]
    reduces = sum(isinstance(let.value, Reduce) for let in region.lets)
    if walk.product is None or reduces != 1 or len(weights) != 1:
        return False
    ((stream, wide),) = weights
    assert isinstance(stream, Stream)
    types = {ref.name: ref.dtype for ref in region.inputs}
    loaded = {_loaded(lets, types, name) for name in (walk.product.lhs, walk.product.rhs, stream.weight)}
    sizes = [math.prod(axis.size for axis in axes) for axes in (walk.product.axes, wide)]
    rounded = {stream.rounded} - {None}
    few = max(sizes) <= WIDEST and sizes[1] > 1
    return len(loaded | rounded) == 1 and loaded <= HALF and few


def _is_one(lets: Mapping[str, Let], stream: object) -> bool:
    weight = lets[stream.weight].value if isinstance(stream, Stream) else None
    return isinstance(weight, Const) and weight.bits == ONE


def _loaded(lets: Mapping[str, Let], types: Mapping[str, DType], name: str) -> DType | None:
    """The type of the elements that a value is, behind conversions and guards; None of what is computed."""
    value = lets[name].value
    while isinstance(value, Cast | Select):
        value = lets[value.x if isinstance(value, Cast) else value.then].value
    return types[value.tensor] if isinstance(value, Read) else None


def _product(
    lets: Mapping[str, Let], free: Mapping[str, frozenset[str]], score: str, bound: frozenset[str]
) -> ScoreProduct | None:
    """The one reduction in the score that depends on the streams' axes, where it is a sum of separable products."""
    found = [name for name in _reductions(lets, score) if free[name] & bound]
    if len(found) != 1:
        return None
    value = lets[found[0]].value
    if not isinstance(value, Reduce) or value.op != "SUM" or lets[found[0]].dtype is not DType.FP32:
        return None
    body = lets[value.body]
    if not isinstance(body.value, Binary) or body.value.op != "MUL" or body.dtype is not DType.FP32:
        return None
    lhs, rhs = body.value.x, body.value.y
    if free[lhs] & bound:
        lhs, rhs = rhs, lhs
    if free[lhs] & bound or not free[rhs] & bound or _reductions(lets, lhs) or _reductions(lets, rhs):
        return None
    own = frozenset(axis.name for axis in value.axes)
    return ScoreProduct(found[0], lhs, rhs, value.axes) if own <= free[lhs] | free[rhs] else None


def _nested(lets: Mapping[str, Let], start: str) -> bool:
    """Whether a value is computed from a Stream."""
    seen, pending = set(), [start]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += operands(lets[name].value)
            if isinstance(lets[name].value, Stream):
                return True
    return False


def _reductions(lets: Mapping[str, Let], start: str) -> list[str]:
    """The outermost reductions that a value is computed from."""
    found: dict[str, None] = {}
    seen, pending = set(), [start]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if isinstance(lets[name].value, Reduce | Stream):
            found[name] = None
        else:
            pending += operands(lets[name].value)
    return list(found)
