"""How a contraction of the e-graph would be tiled, before there is a Region (document 004 §11): one Schedule for each plan
candidate that the rules have found for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from tinyc.egraph.graph import Argument
from tinyc.ir.folds import Fold
from tinyc.ir.index import Affine
from tinyc.ir.resources import THREADS, Limits
from tinyc.ir.streams import WALK, Extents
from tinyc.ir.units import UNITS, WARP, Unit, unit_name

from .choice import bound_axes, on_matrix_units, products_beneath, rounded
from .cost.schedule import Schedule, attainment, gathered, loops, streaming
from .plans.candidate import Candidate, block_of, decoded, kind_name
from .view import LEVEL, Item, View, axis_extent, axis_id

Axes = frozenset[str]


class Tiling:
    """The candidates of one e-graph for one GPU. ``limits``: of the machine."""

    def __init__(self, view: View, limits: Limits) -> None:
        self.view, self.limits = view, limits

    @cached_property
    def found(self) -> dict[tuple[Argument, ...], list[tuple[int, int, tuple[Candidate, ...]]]]:
        """Candidates by their problem less the bytes of its operands' elements, which are given beside them."""
        found: dict[tuple[Argument, ...], list[tuple[int, int, tuple[Candidate, ...]]]] = {}
        for (head, *rest), rows in self.view.graph.candidates.items():
            if head == "Product" and (candidates := decoded(rows, self.limits.arch)):
                *shape, left, right, run, along = rest
                key = (*shape, run, along)
                found.setdefault(key, []).append((int(left), int(right), candidates))
        return found

    def schedules(self, item: Item) -> Iterator[Schedule]:
        """The ways to run a Contract by itself; none where the rules know none, as under another reduction."""
        batch, m, n, k = _roles(item)
        axes = frozenset(k), frozenset((*m, *n))
        order = _order(batch, m, n)
        if order is None:
            return
        slides = any(_slides(index, *axes) for child in item.children for _, _, index in self.reads(child))
        matrix, tf32 = on_matrix_units(self.view, item.children), rounded(self.view, item.children)
        sizes = tuple(map(_points, (batch, m, n, k)))
        key: tuple[Argument, ...] = (kind_name(slides, tf32), *sizes, *order)
        for left, right, candidates in self.found.get(key, ()):
            unit = UNITS[unit_name(self.limits.arch, left, right, tf32)]
            if unit.matrix is not (matrix or tf32):
                continue
            shifted = [any(True for _ in self.shifted(item, child)) for child in item.children]
            for candidate in candidates:
                yield _schedule(candidate, sizes, (left, right), shifted, unit)

    def walks(self, item: Item) -> tuple[Schedule, ...]:
        """The ways to run a Stream that weights values: one for each product that its scores may come from and each candidate of
        their walk; none of a sum of weights alone, which is walked with the others."""
        scan, weight = item.children
        bound, own, each = frozenset(bound_axes(item)), self.view.free[weight], self.view.free[scan]
        wide = own - each - bound
        found: dict[Schedule, None] = {}
        for scores in self.view.items[scan] if wide else ():
            for _, product in products_beneath(self.view, scores):
                if on_matrix_units(self.view, product.children):
                    batch, m, n, k = map(frozenset, _roles(product))
                    rows = each - own - batch - (m if bound <= m else n)
                    sizes = map(_points, (each - rows, rows, bound, k, wide))
                    found |= dict.fromkeys(self._walked(Extents(*sizes)))
        return tuple(found)

    def _walked(self, extents: Extents) -> Iterator[Schedule]:
        """The ways to walk so many scores; as a Plan does that does not say, where the rules know none."""
        problem = ("Walk", extents.rows, extents.columns, extents.depth, extents.width, extents.size)
        known = decoded(self.view.graph.candidates.get(problem, ()), self.limits.arch)
        for each in known:
            if each.warp_tile is not None:
                vector = each.width * extents.size
                yield streaming(extents, each.tile[:2], each.warp_tile[0], vector, self.limits.arch)
        if not known:
            yield streaming(extents, *WALK, self.limits.access_bytes, self.limits.arch)

    def loops(
        self, shape: Sequence[int], size: int = 0, folds: Iterable[Fold] = (), widest: int = 0
    ) -> Iterator[Schedule]:
        """The ways to run loops over ``shape``: the candidates of its last axis; one point a thread where there are none.
        ``size``: bytes of an element that is written; 0: it is not known yet. ``folds``: sums that threads may share. ``widest``:
        bytes of an element that is accessed along the last axis: of wider ones than are written an access has fewer."""
        last = next((size for size in reversed(shape) if size > 1), 1)
        outer = math.prod(shape) // last
        sizes = (size,) if size else (4, 2, 1)
        known = [(each, candidate) for each in sizes for candidate in self.rows.get((last, each), ())]
        for each, candidate in known:
            most = max(each, widest)
            points, width = candidate.tile[1], max(1, candidate.width)
            threads = -(-points // (width * WARP)) * WARP
            less = min(width, max(1, self.limits.access_bytes // most))
            points = min(points, -(-points // width) * less)
            blocks = outer * -(-last // points)
            yield loops(blocks, threads, less * most, outer)
        if not known:
            blocks = -(-math.prod(shape) // THREADS)
            yield loops(blocks, THREADS, size or self.limits.access_bytes, outer)
        for fold in folds:
            for each in sizes:
                for candidate in self.folds.get((last, fold.points, each), ()):
                    points, width = block_of(candidate, last, each, fold.along, self.limits)
                    blocks, threads = outer * -(-last // points), candidate.tile[1] * candidate.tile[2]
                    yield loops(blocks, threads, width * each, outer, candidate.tile[2])

    @cached_property
    def folds(self) -> dict[tuple[int, ...], tuple[Candidate, ...]]:
        """Candidates of loops that share sums, by the points of the last axis, those of a sum, the bytes of an element."""
        found = self.view.graph.candidates.items()
        known = {
            problem[1:]: decoded(rows, self.limits.arch) for problem, rows in found if problem[0] == "Fold"
        }
        return {tuple(map(int, problem)): each for problem, each in known.items()}

    @cached_property
    def rows(self) -> dict[tuple[int, int], tuple[Candidate, ...]]:
        """Candidates of loops, by the points of the last axis and the bytes of an element."""
        found = self.view.graph.candidates.items()
        known = {
            problem[1:]: decoded(rows, self.limits.arch) for problem, rows in found if problem[0] == "Row"
        }
        return {(int(points), int(size)): each for (points, size), each in known.items()}

    def reads(self, cls: str) -> Iterator[tuple[str, Item, tuple[Affine, ...]]]:
        """How an operand may be loaded: Reads, their classes, and where they read."""
        for here, item in self.view.loads(cls):
            yield here, item, item.payload[1]  # type: ignore[misc]

    def shifted(self, item: Item, operand: str) -> Iterator[tuple[str, Item]]:
        """The Reads of an operand of a Contract whose windows slide along the last axis of the buffer, with their classes:
        they are loaded by element."""
        _, m, n, k = _roles(item)
        axes = frozenset(k), frozenset((*m, *n))
        for cls, read, index in self.reads(operand):
            if index and _slides(index[-1:], *axes):
                yield cls, read


def _points(axes: Iterable[str]) -> int:
    return math.prod(map(axis_extent, axes))


def _roles(item: Item) -> tuple[tuple[str, ...], ...]:
    """The batch, m, n and k axes of a Contract."""
    return item.payload[1:]  # type: ignore[return-value]


def _slides(index: Iterable[Affine], summed: Axes, moving: Axes) -> bool:
    """Whether a summed axis moves along with one of the result: a window."""
    return any(part.axes() & summed and part.axes() & moving for part in index)


def _order(batch: tuple[str, ...], m: tuple[str, ...], n: tuple[str, ...]) -> tuple[int, str] | None:
    """The contiguous points of the result, and along which of its roles they lie; None under another reduction."""
    last = [max(map(axis_id, role), default=-1) for role in (batch, m, n)]
    if min(last[1:]) < 0 or max(last) >= LEVEL:
        return None
    along = "bmn"[last.index(max(last))]
    axes = {axis_id(axis): axis_extent(axis) for axis in (m if along == "m" else n)}
    run, place = 1, max(axes)
    while place in axes:
        run, place = run * axes[place], place - 1
    return run, along


def _schedule(
    candidate: Candidate,
    sizes: tuple[int, ...],
    bytes: tuple[int, int],
    shifted: Sequence[bool],
    unit: Unit,
) -> Schedule:
    """``sizes``: points of batch, m, n and k. ``bytes``: of an element of either operand; 0: it is not staged.
    ``shifted``: which of them are loaded by element. ``unit``: what multiplies."""
    batch, *points = sizes
    bm, bn, bk = candidate.tile
    wm, wn = candidate.warp_tile or (bm, bn)
    counts = [-(-size // tile) for size, tile in zip(points, candidate.tile, strict=True)]
    blocks, steps = batch * counts[0] * counts[1], counts[2]
    staged = bm * bk * bytes[0] + bk * bn * bytes[1]
    stages = candidate.stages or 1
    return Schedule(
        algo=candidate.algo,
        blocks=blocks,
        threads=WARP * unit.warps * -(-bm // wm) * -(-bn // wn),
        registers=unit.registers(wm, wn),
        smem_bytes=stages * staged,
        stages=stages,
        steps=steps,
        staged_bytes=float(staged * steps * blocks),
        vector_bytes=max(1, candidate.width) * max(bytes),
        padding=math.prod(n * size for n, size in zip(counts, candidate.tile, strict=True))
        / math.prod(points),
        attained=attainment(unit, candidate.warp_tile),
        async_copy=candidate.async_enable,
        gathered=float(blocks * steps * gathered(candidate.tile, shifted)),
        tile=candidate.tile,
        warp_tile=candidate.warp_tile,
    )
