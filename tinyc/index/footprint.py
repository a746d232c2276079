"""What a tile of a Region reads of one buffer: the elements, and the halo (document 004 §0.1, §4.6, §7.1).

A tile is given by the lengths of its sides, per axis. An iter that is not named is cut into single points, a reduce
axis that is not named is not cut.

The halo of a tile is what it reads beyond its share, the share being what it would read if neighbouring tiles shared
nothing. It is counted where nothing is cut off by guards, in the middle of a large tensor: a 3x3 window of stride 1
over a tile of Th x Tw reads (Th+2) x (Tw+2) elements, its halo is 2 along both dimensions, 1 on either side if the
window is centred (padding 1) and 2 at the upper end if it is not. A window of width K and stride S has K - S.

Elements are counted with the guards, exactly: by isl, as a product over groups of axes that have nothing to do with
each other. Of a group with more than MAX_TILES tiles those at the ends and in the middle are looked at; of one with more
than MAX_PAIRS elements over all tiles, the sum over the tiles is an upper bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.region import MemRef, Read, Region, axis_sizes

from .bounds import Needs, Uses
from .ranges import simplify
from .sets import IntSet, TooComplex, Workspace

MAX_TILES = 256
"""As many tiles are counted one by one; of more, those at the ends and in the middle."""

MAX_PAIRS = 1 << 20
"""As many elements, over all tiles, are counted one by one where they are no product of fewer."""

Map = tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Halo:
    """Elements along one dimension that a tile reads beyond its share, below and above it."""

    low: int = 0
    high: int = 0

    @property
    def total(self) -> int:
        return self.low + self.high

    def widest(self, other: Halo) -> Halo:
        return max(self, other, key=lambda halo: halo.total)


@dataclass(frozen=True, slots=True)
class Extent:
    """One dimension of a buffer as a tile reads it: ``length`` from the first to the last element, halo included, and
    the halo towards the neighbours along each of the tiled axes that move the tile along this dimension."""

    length: int
    halos: Mapping[str, Halo]

    @property
    def halo(self) -> Halo:
        widest = Halo()
        for halo in self.halos.values():
            widest = widest.widest(halo)
        return widest


@dataclass(frozen=True)
class Footprint:
    """The reads of one buffer by a Region that is cut into tiles. ``maps``: one per Read, over the Region's axes,
    in the dimensions ``shape``. ``sides``: the length of a tile along every axis."""

    region: Region
    tensor: str
    shape: tuple[int, ...]
    itemsize: int
    lets: tuple[str, ...]
    maps: tuple[Map, ...]
    sides: Mapping[str, int]

    @cached_property
    def sizes(self) -> dict[str, int]:
        return axis_sizes(self.region)

    @cached_property
    def iters(self) -> frozenset[str]:
        return frozenset(axis.name for axis in self.region.iters)

    # ---- extents and halo ----

    @cached_property
    def extents(self) -> tuple[Extent, ...]:
        return tuple(self._extent(number) for number in range(len(self.shape)))

    @property
    def halo_bytes(self) -> int:
        """Bytes of a tile's halo: its whole box without the box of its share."""
        box = math.prod(extent.length for extent in self.extents)
        share = math.prod(max(0, extent.length - extent.halo.total) for extent in self.extents)
        return (box - share) * self.itemsize

    def owners(self, index: Affine) -> tuple[str, ...]:
        """The axes whose tiles divide a dimension: its iters; its reduce axes where it has no iter."""
        names = [name for name in self.sizes if name in index.axes() and self.sizes[name] > 1]
        return tuple(name for name in names if name in self.iters) or tuple(names)

    def _extent(self, number: int) -> Extent:
        """Closed form where every Read moves along this dimension with one axis at one speed; isl elsewhere."""
        indices = [simplify(index_map[number], self.sizes) for index_map in self.maps]
        moving = {_line(index, self.owners(index)) for index in indices}
        if len(moving) != 1 or None in moving:
            return self._entangled(number, indices)
        ((owner, speed),) = moving  # type: ignore[misc]
        step, side = abs(speed), self.sides.get(owner, 1)
        others = [_without(index, owner).bounds(self.sides) for index in indices]
        low, high = min(first for first, _ in others), max(last for _, last in others)
        length = step * (side - 1) + high - low + 1
        if not owner:
            return Extent(min(length, self.shape[number]), {})
        total = max(0, high - low + 1 - step)
        # a tile's share begins where its first point reads at offset 0; for a mirrored axis, seen from the other end
        below = -low if speed > 0 else high - (self.shape[number] - 1)
        low_part = min(max(below, 0), total)
        halo = Halo(low_part, total - low_part) if speed > 0 else Halo(total - low_part, low_part)
        return Extent(length, {owner: halo})

    def _entangled(self, number: int, indices: Sequence[Affine]) -> Extent:
        """Several axes, floor divisions, or Reads at different speeds: what neighbouring tiles share, exactly; where
        isl gives up, all that a tile reads."""
        bounds = [index.bounds(self.sides) for index in indices]
        length = max(high for _, high in bounds) - min(low for low, _ in bounds) + 1
        length = min(length, self.shape[number])
        owners = dict.fromkeys(name for index in indices for name in self.owners(index))
        try:
            return Extent(length, {name: Halo(0, self._shared(name)[number]) for name in owners})
        except TooComplex:
            return Extent(length, {name: Halo(0, length) for name in owners})

    def _shared(self, name: str) -> tuple[int, ...]:
        """Per dimension, the greatest extent of what two neighbouring tiles along ``name`` both read."""
        if name not in self._overlaps:
            self._overlaps[name] = self._overlap(name)
        return self._overlaps[name]

    @cached_property
    def _overlaps(self) -> dict[str, tuple[int, ...]]:
        return {}

    def _overlap(self, name: str) -> tuple[int, ...]:
        none = (0,) * len(self.shape)
        if self.sides[name] >= self.sizes[name]:
            return none
        relation = self._unguarded
        tiles, names, ws = relation.tiles, relation.points.names, relation.points.workspace
        moved = [axis(each) + int(tile == name) for tile, each in zip_longest(tiles, names)]
        after = replace(ws.access(names, "", moved), target=names).preimage(relation.points)
        both = relation.points.intersect(after)
        if both.is_empty():
            return none
        found = []
        for along in names[len(tiles) :]:
            shadow = both.project([*names[: len(tiles)], along])
            ranges = (
                shadow.at(dict(zip(names, tile, strict=False))).bounds(along)
                for tile in self._some_tiles(tiles)
            )
            found.append(max((last - first + 1 for first, last in filter(None, ranges)), default=0))
        return tuple(found)

    @cached_property
    def _unguarded(self) -> Relation:
        """What tiles would read if no guard cut anything off."""
        box = Workspace().box(self.space)
        return self._relation([(index_map, box) for index_map in self.maps])

    # ---- elements ----

    @cached_property
    def needs(self) -> tuple[Needs, ...]:
        uses = Uses(self.region)
        return tuple(Needs(uses, let) for let in self.lets)

    @cached_property
    def space(self) -> dict[str, int]:
        """The axes that decide what is read."""
        names = frozenset[str]().union(*(need.axes for need in self.needs))
        return {name: size for name, size in self.sizes.items() if name in names}

    @cached_property
    def _needed(self) -> list[tuple[Map, IntSet]]:
        """Per Read, the points at which it is needed."""
        box = Workspace().box(self.space)
        found = [(index_map, need.points(box)) for index_map, need in zip(self.maps, self.needs, strict=True)]
        return [(index_map, points) for index_map, points in found if points is not None]

    def _relation(self, reads: Sequence[tuple[Map, IntSet]]) -> Relation:
        tiles = tuple(name for name in self.space if self.sides[name] < self.sizes[name])
        numbers = [axis(name) // self.sides[name] for name in tiles]
        union: IntSet | None = None
        for index_map, points in reads:
            access = points.workspace.access(points.names, self.tensor, (*numbers, *index_map))
            touched = access.image(points)
            union = touched if union is None else union.union(touched)
        assert union is not None
        return Relation(tiles, union.simplify())

    @cached_property
    def relation(self) -> Relation | None:
        """Which elements each tile reads; None where none is read."""
        return self._relation(self._needed) if self._needed else None

    @cached_property
    def counts(self) -> Counts:
        """How many elements are read. Raises TooComplex."""
        if self.relation is None:
            return Counts(0, 0, 0)
        counts = Counts(1, 1, 1)
        for tiles, points in self.relation.factors(self._threads()):
            counts = counts.times(self._counted(tiles, points))
        unseen = (self.tiles(name) for name in self.sizes if name not in self.relation.tiles)
        return replace(counts, pairs=counts.pairs * math.prod(unseen))

    def tiles(self, name: str) -> int:
        return -(-self.sizes[name] // self.sides[name])

    def _threads(self) -> Iterator[frozenset[str]]:
        """Axes and dimensions (``#0``, ``#1``, …) that hang together: through an index or a guard."""
        for need in self.needs:
            for name in need.conditions:
                yield need.guard_axes(name)
        for index_map in self.maps:
            for number, index in enumerate(index_map):
                yield index.axes() | {f"#{number}"}

    def _counted(self, tiles: tuple[str, ...], points: IntSet) -> Counts:
        names = points.names
        elements = points.project(names[len(tiles) :])
        largest = 0
        for tile in self._some_tiles(tiles):
            largest = max(largest, points.at(dict(zip(names, tile, strict=False))).count() or 0)
        everywhere = math.prod(map(self.tiles, tiles))
        if (
            everywhere * largest > MAX_PAIRS
        ):  # to count them all takes too long: as if all tiles were the largest
            spans = (elements.bounds(name) for name in elements.names)
            box = math.prod(last - first + 1 for first, last in filter(None, spans))
            return Counts(everywhere * largest, min(everywhere * largest, box), largest)
        return Counts(points.count() or 0, elements.count() or 0, largest)

    def _some_tiles(self, tiles: tuple[str, ...]) -> Iterable[tuple[int, ...]]:
        """All tiles where they are few. Tiles in the middle are alike, those at the ends are smaller."""
        counts = [self.tiles(name) for name in tiles]
        if math.prod(counts) <= MAX_TILES:
            return itertools.product(*map(range, counts))
        return itertools.product(
            *(
                sorted({each for each in (0, 1, size // 2, size - 2, size - 1) if 0 <= each < size})
                for size in counts
            )
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """Elements that tiles read: ``pairs`` summed over all tiles, ``distinct`` ones, and of the ``largest`` tile."""

    pairs: int
    distinct: int
    largest: int

    def times(self, other: Counts) -> Counts:
        return Counts(self.pairs * other.pairs, self.distinct * other.distinct, self.largest * other.largest)


@dataclass(frozen=True)
class Relation:
    """``points``: pairs of a tile (its number along each of ``tiles``, the first dimensions) and an element."""

    tiles: tuple[str, ...]
    points: IntSet

    def factors(self, threads: Iterable[frozenset[str]]) -> list[tuple[tuple[str, ...], IntSet]]:
        """The same as a product of relations over fewer dimensions, where it is one: a count is then the product of
        small counts. ``threads``: what must stay together."""
        names = self.points.names
        rank = len(names) - len(self.tiles)
        label = {**dict(zip(self.tiles, names, strict=False))}
        label |= {f"#{number}": names[len(self.tiles) + number] for number in range(rank)}
        groups = _together({*label}, threads)
        parts = [sorted((label[each] for each in group), key=names.index) for group in groups]
        shadows = [self.points.project(part) for part in parts]
        whole = self.points
        if len(parts) > 1:
            product = shadows[0].cylinder(names)
            for shadow in shadows[1:]:
                product = product.intersect(shadow.cylinder(names))
            if not product.equals(whole):
                return [(self.tiles, whole)]
        return [
            (tuple(name for name in self.tiles if label[name] in part), shadow)
            for part, shadow in zip(parts, shadows, strict=True)
        ]


def footprint(
    region: Region, tensor: MemRef, tile: Mapping[str, int], shape: tuple[int, ...] | None = None
) -> Footprint:
    """What tiles of ``region`` read of the input ``tensor``. ``shape``: other dimensions of the same row-major memory
    in which its elements are counted, if it was filled in those."""
    sizes, sides = axis_sizes(region), sides_of(region, tile)
    reads = [
        (let.name, let.value.map)
        for let in region.lets
        if isinstance(let.value, Read) and let.value.tensor == tensor.name
    ]
    shape = tensor.shape if shape is None else shape
    maps = tuple(reshaped(index_map, tensor.shape, shape, sizes) for _, index_map in reads)
    return Footprint(
        region, tensor.name, shape, tensor.dtype.itemsize, tuple(let for let, _ in reads), maps, sides
    )


def sides_of(region: Region, tile: Mapping[str, int]) -> dict[str, int]:
    """The length of a tile along every axis, none longer than the axis."""
    iters = {axis.name for axis in region.iters}
    return {
        name: min(tile.get(name, 1 if name in iters else size), size)
        for name, size in axis_sizes(region).items()
    }


def reshaped(index: Map, source: tuple[int, ...], target: tuple[int, ...], sizes: Mapping[str, int]) -> Map:
    """The index of the same element in row-major dimensions ``target`` instead of ``source``."""
    if source == target:
        return index
    offset = lit(0)
    for size, part in zip(source, index, strict=True):
        offset = offset * size + part
    found: list[Affine] = []
    for number, size in enumerate(target):
        stride = math.prod(target[number + 1 :])
        part = offset // stride - (offset // (stride * size)) * size if number else offset // stride
        found.append(simplify(part, sizes))
    return tuple(found)


def _line(index: Affine, owners: tuple[str, ...]) -> tuple[str, int] | None:
    """The only owner of an index and its factor, where it stands outside of floor divisions; ("", 0) without owner."""
    if not owners:
        return "", 0
    factors = [coef for coef, atom in index.terms if atom == owners[0]]
    inner = any(not isinstance(atom, str) and owners[0] in atom.num.axes() for _, atom in index.terms)
    return (owners[0], factors[0]) if len(owners) == 1 and factors and not inner else None


def _without(index: Affine, name: str) -> Affine:
    return index.substitute({name: lit(0)})


def _together(names: set[str], threads: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """``names`` in the smallest groups that no thread crosses. Threads may run through other names."""
    groups = [frozenset({name}) for name in names]
    for thread in threads:
        met = [group for group in groups if group & thread]
        groups = [group for group in groups if not group & thread]
        groups.append(frozenset(thread).union(*met))
    return [group & names for group in sorted(groups, key=sorted) if group & names]
