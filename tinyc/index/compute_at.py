"""Whether a producer may be computed inside its consumer, tile by tile, and what that takes (document 004 §4.6, §7.1).

Recomputing elementwise work is free of dependences, so it is always allowed; what it costs is for the cost model. A
reduction must not be computed once per use (§6.7-6): the part of its result that a tile of the consumer needs has to
fit on chip, so that it is computed once per tile and kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.index import Affine, axis
from tinyc.ir.region import MemRef, Reduce, Region, Stream, axis_sizes

from .boundaries import boundaries, fused_fault
from .footprint import Footprint, Halo, footprint
from .hints import CAPACITY
from .ranges import simplify
from .sets import NonAffine, TooComplex

__all__ = [
    "ComputeAt", "MinBuffer", "boundaries", "can_compute_at", "fused_fault", "make_fusable_groups", "min_buffer_for_edge",
]  # fmt: skip

BufferKind = Literal["reg", "smem_ring", "gmem"]
Tile = Mapping[str, int]


@dataclass(frozen=True)
class ComputeAt:
    """Whether a producer may be computed at a tile of its consumer.

    ``halo``: per axis of the producer's output, what a tile needs beyond its share (footprint.py says how it is
    counted); ``halo_bytes``: of the whole border. ``footprint_bytes``: of the producer's values that one tile needs,
    the largest of all tiles. ``recompute``: how often a value is computed if every tile computes what it needs, on
    average over the values that are needed. ``why``: the reason where ``ok`` is False.
    """

    ok: bool
    halo: Mapping[str, Halo] = field(default_factory=dict)
    halo_bytes: int = 0
    footprint_bytes: int = 0
    recompute: float = 1.0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MinBuffer:
    """The smallest buffer that carries values over an edge. ``depth``: tiles in flight; 2 where there is no ring."""

    buffer: BufferKind
    depth: int = 2


def can_compute_at(
    producer: Region, consumer: Region, tile: Tile | None = None, capacity: int = CAPACITY["cpu"]
) -> ComputeAt:
    """Whether ``producer`` may be computed where a tile of ``consumer`` needs it.

    ``tile``: lengths along axes of the consumer. An iter that it does not name is cut into points, a reduce axis that
    it does not name stays whole; None is the smallest tile, one point of the output. ``capacity``: bytes on chip for
    the producer's values, where it holds a reduction.

    Raises TinycError InvalidArgument for a tile of an axis that is not there, or shorter than 1.
    """
    side = checked_tile(consumer, tile)
    halo = {axis.name: Halo() for axis in producer.iters}
    edges = _edges(producer, consumer)
    if not edges:
        return ComputeAt(False, halo, why=f"{consumer.name} reads no output of {producer.name}")
    back = {ref.name for ref in consumer.outputs} & {ref.name for ref in producer.inputs}
    if back or producer.name == consumer.name:
        return ComputeAt(False, halo, why=f"{producer.name} reads {_names(back)} of {consumer.name}: a cycle")
    total, border, pairs, distinct, same = 0, 0, 0, 0, True
    for output, given in edges:
        if math.prod(output.shape) != math.prod(given.shape):
            return ComputeAt(
                False,
                halo,
                why=f"{consumer.name} reads {given.name} as {list(given.shape)}, filled as {list(output.shape)}",
            )
        try:
            read = footprint(consumer, given, side, output.shape)
            read_pairs, read_distinct, largest = _counts(read)
            extents = read.extents
        except NonAffine as error:
            return ComputeAt(
                False, halo, why=f"{consumer.name} reads {given.name} at no affine index: {error}"
            )
        for iterated, extent in zip(producer.iters, extents, strict=True):
            halo[iterated.name] = halo[iterated.name].widest(extent.halo)
        total += largest * given.dtype.itemsize
        border += read.halo_bytes
        pairs, distinct = pairs + read_pairs, distinct + read_distinct
        same = same and _same_point(read)
    recompute = pairs / distinct if distinct else 0.0
    reductions = [let.name for let in producer.lets if isinstance(let.value, Reduce | Stream)]
    why = None
    if (
        reductions and total > capacity and not same
    ):  # at the same point each result is used once: nothing to keep
        why = (
            f"{producer.name} holds the reduction {reductions[0]}, and a tile of {consumer.name} needs {total} bytes of"
            f" its results, more than the {capacity} bytes on chip: they would be computed {recompute:.4g} times"
        )
    return ComputeAt(why is None, halo, border, total, recompute, why)


def min_buffer_for_edge(
    producer: Region, consumer: Region, tile: Tile | None = None, capacity: int = CAPACITY["cpu"]
) -> MinBuffer:
    """The smallest buffer between two Regions that are computed as one.

    ``reg``: every point of the consumer needs the producer's value at the same point, and no other. ``smem_ring``:
    what a tile needs fits on chip; its depth is 3 where successive tiles share a halo or a reduction runs over the
    values, so that loading goes on while two tiles are in use, if three tiles fit; else 2. ``gmem``: the rest.
    Raises TinycError InvalidArgument as :func:`can_compute_at` does, and where the consumer does not read the producer.
    """
    edges = _edges(producer, consumer)
    if not edges:
        raise TinycError(
            "InvalidArgument",
            f"{consumer.name} reads no output of {producer.name}",
            "ask about a Region and one that reads what it writes",
            at={"layer": "poly_core", "value": consumer.name},
        )
    found = can_compute_at(producer, consumer, tile, capacity)
    side = checked_tile(consumer, tile)
    reads = [footprint(consumer, given, side, output.shape) for output, given in edges] if found.ok else []
    if reads and all(map(_same_point, reads)):
        return MinBuffer("reg")
    if not found.ok or found.footprint_bytes > capacity:
        return MinBuffer("gmem")
    summed = set(axis_sizes(consumer)) - {iterated.name for iterated in consumer.iters}
    indices = [index for read in reads for index_map in read.maps for index in index_map]
    ring = any(halo.total for halo in found.halo.values()) or any(summed & index.axes() for index in indices)
    return MinBuffer("smem_ring", 3 if ring and 3 * found.footprint_bytes <= capacity else 2)


def make_fusable_groups(
    regions: Sequence[Region], capacity: int = CAPACITY["cpu"]
) -> tuple[tuple[str, ...], ...]:
    """The names of ``regions`` in chains, each of which may be computed as one kernel.

    A chain grows from a Region to its only consumer (document 004 §0.1, UCC) while can_compute_at allows that with the
    smallest tile, and while what one point of the result needs of every reduction in the chain fits on chip. A consumer
    of several chains takes up the one whose last Region writes most. Only the last Region of a chain is read outside,
    so no path leaves a chain and comes back. In the order of the chains' first Regions.

    Raises TinycError DuplicateId for two Regions of one name, CyclicGraph where they read each other in a circle.
    """
    readers = _readers(regions)
    before: dict[str, Region] = {}  # consumer -> the Region before it in its chain
    kept: dict[str, int] = {}  # Region -> bytes of reductions that one point of it needs, its own included
    for region in _ordered(regions, readers):
        kept[region.name] = max(_kept(region, before.get(region.name), kept), _own(region))
        if len(readers[region.name]) != 1:
            continue
        (consumer,) = readers[region.name]
        rival = before.get(consumer.name)
        if rival is not None and _written(rival) >= _written(region):
            continue
        if can_compute_at(region, consumer, None, capacity).ok and _kept(consumer, region, kept) <= capacity:
            before[consumer.name] = region
    after = {region.name: consumer for consumer, region in before.items()}
    chains: list[tuple[str, ...]] = []
    for region in regions:
        if region.name not in before:
            chain = [region.name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(tuple(chain))
    return tuple(chains)


def _kept(consumer: Region, producer: Region | None, kept: Mapping[str, int]) -> int:
    """Bytes of the reductions behind ``producer`` that one point of ``consumer`` needs, at most."""
    if producer is None or not kept[producer.name]:
        return 0
    width = sum(ref.dtype.itemsize for ref, _ in _edges(producer, consumer))
    points = can_compute_at(producer, consumer).footprint_bytes // width
    return points * kept[producer.name]


def _own(region: Region) -> int:
    """Bytes of one value of each reduction in ``region``."""
    return sum(let.dtype.itemsize for let in region.lets if isinstance(let.value, Reduce | Stream))


def _readers(regions: Sequence[Region]) -> dict[str, list[Region]]:
    """By whom the outputs of each Region are read."""
    reading: dict[str, list[Region]] = {}
    for region in regions:
        for ref in region.inputs:
            reading.setdefault(ref.name, []).append(region)
    readers: dict[str, list[Region]] = {}
    for region in regions:
        if region.name in readers:
            why = f"two Regions are called {region.name}"
            raise _fault("DuplicateId", why, "give every Region its own name", region.name)
        found = {other.name: other for ref in region.outputs for other in reading.get(ref.name, ())}
        readers[region.name] = list(found.values())
    return readers


def _ordered(regions: Sequence[Region], readers: Mapping[str, list[Region]]) -> list[Region]:
    """Producers before consumers. Raises TinycError CyclicGraph."""
    waiting = {region.name: 0 for region in regions}
    for found in readers.values():
        for reader in found:
            waiting[reader.name] += 1
    ready = [region for region in regions if not waiting[region.name]]
    for region in ready:
        for reader in readers[region.name]:
            waiting[reader.name] -= 1
            if not waiting[reader.name]:
                ready.append(reader)
    if len(ready) < len(regions):
        circle = next(name for name, count in waiting.items() if count)
        why = f"{circle} reads what is computed from its own results"
        raise _fault("CyclicGraph", why, "order the Regions so that each reads earlier ones", circle)
    return ready


def checked_tile(region: Region, tile: Tile | None) -> dict[str, int]:
    """``tile`` as a dict. Raises TinycError InvalidArgument for an axis that ``region`` has not, or a length below 1."""
    sizes = axis_sizes(region)
    for name, side in (tile or {}).items():
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise _fault(
                "InvalidArgument", f"{region.name} has no axis {show(name)}", f"its axes are {known}", name
            )
        if isinstance(side, bool) or not isinstance(side, int) or side < 1:
            why = f"a tile of {show(side)} points along {name}"
            raise _fault("InvalidArgument", why, "give each side as an integer of at least 1", name)
    return dict(tile or {})


def _fault(kind: str, why: str, suggestion: str, value: object) -> TinycError:
    return TinycError(kind, why, suggestion, at={"layer": "poly_core", "value": value})


def _edges(producer: Region, consumer: Region) -> list[tuple[MemRef, MemRef]]:
    """The outputs of ``producer`` that ``consumer`` reads, as the one and as the other sees them."""
    inputs = {ref.name: ref for ref in consumer.inputs}
    return [(ref, inputs[ref.name]) for ref in producer.outputs if ref.name in inputs]


def _counts(read: Footprint) -> tuple[int, int, int]:
    """Elements over all tiles, distinct ones, and of the largest tile. Where isl gives up: those of the whole boxes."""
    try:
        found = read.counts
        return found.pairs, found.distinct, found.largest
    except TooComplex:
        box = math.prod(extent.length for extent in read.extents)
        tiles = math.prod(map(read.tiles, read.sizes))
        return box * tiles, min(box * tiles, math.prod(read.shape)), box


def _same_point(read: Footprint) -> bool:
    """Whether every Read is at the consumer's own iters, one by one in order."""
    iters = read.region.iters
    if len(iters) != len(read.shape):
        return False
    own = tuple(simplify(axis(each.name), read.sizes) for each in iters)
    return all(_short(index_map, read.sizes) == own for index_map in read.maps)


def _short(index_map: tuple[Affine, ...], sizes: Mapping[str, int]) -> tuple[Affine, ...]:
    return tuple(simplify(index, sizes) for index in index_map)


def _written(region: Region) -> int:
    return sum(ref.bytes for ref in region.outputs)


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "itself"
