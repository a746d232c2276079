"""Poly Core: what one Region is like, for those who schedule it (document 004 §4.6, §7).

A service and no pass (resolution I-48): it is asked before Regions are made (which reductions may be fused), when
they are made (whether they are in bounds), and when they are scheduled. Nothing is kept between questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.explicit import point
from tinyc.ir.region import MemRef, Read, Reduce, Region, Stream, Within, axis_sizes

from .boundaries import fused_fault, kept_axes
from .compute_at import ComputeAt, MinBuffer, Tile, checked_tile
from .dependences import dependences, region_statements
from .footprint import Footprint, Halo, footprint, sides_of
from .hints import CAPACITY, BankConflict, Barrier, bank_conflicts, barrier, default_tile, row_bytes
from .sets import TooComplex, Workspace


@dataclass(frozen=True, slots=True)
class Carried:
    """A dependence between reductions, or of one on itself (document 004 §7.1).

    ``source``, ``target``: lets of reductions, or the Region's name for what stores its outputs. ``kind``: "true",
    "anti" or "output", on the accumulator of ``source``. ``axes``: along which the two points differ, where they are the
    same statement; a reduction may run over those in any order.
    """

    source: str
    target: str
    kind: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Analysis:
    """What Poly Core says of one Region that is cut into tiles.

    ``parallel_axes``: those that carry no dependence. ``reduce_axes``: those that reductions bind. ``tail_axes``: those
    whose size the tile does not divide, so that its last tile needs predicates. ``affine``: every index and guard is
    (piecewise) affine over the axes, and stays so however they are composed; without that there are no dependences and
    no parallel axes to report. ``compute_at``: of the values that are fused inside, with the halo per axis of the
    Region that its tiles read from its inputs. ``min_buffer``: what carries the values between its reductions, and
    its input tiles where they have a halo. ``barrier``, ``bank_conflicts``: hints for a GPU.
    """

    region: str
    target: str
    tile: Mapping[str, int]
    parallel_axes: tuple[str, ...]
    reduce_axes: tuple[str, ...]
    tail_axes: tuple[str, ...]
    affine: bool
    dependences: tuple[Carried, ...]
    compute_at: ComputeAt
    min_buffer: MinBuffer
    barrier: Barrier | None = None
    bank_conflicts: tuple[BankConflict, ...] = ()


def analyze(
    region: Region, tile: Tile | None = None, target: str = "cpu", capacity: int | None = None
) -> Analysis:
    """Analyses ``region``, in either of its forms, in which ``tinyc.ir.check_region.fault`` finds nothing.

    ``tile``: lengths along its axes; an iter that is not named is cut into points, a reduce axis that is not named
    stays whole. Without one, the target's default (``hints.default_tile``). ``capacity``: bytes on chip, the
    target's where it is left out.

    Raises TinycError InvalidArgument for a tile that does not fit the Region, TargetUnavailable for an unknown target.
    """
    if target not in CAPACITY:
        raise TinycError(
            "TargetUnavailable",
            f"there is no target {show(target)}",
            f"the targets are {', '.join(CAPACITY)}",
            at={"layer": "poly_core", "value": target},
        )
    region = point(region)
    room = CAPACITY[target] if capacity is None else capacity
    cut = checked_tile(region, default_tile(region, target) if tile is None else tile)
    sizes, iters = axis_sizes(region), {axis.name for axis in region.iters}
    affine = _affine(region, sizes)
    found = _dependences(region) if affine else None
    carrying = {name for each in found or () for name in each.axes}
    reads = [footprint(region, ref, cut) for ref in _read(region)] if affine else []
    return Analysis(
        region.name,
        target,
        cut,
        tuple(name for name in sizes if name in iters and name not in carrying) if found is not None else (),
        tuple(name for name in sizes if name not in iters),
        tuple(name for name, size in sizes.items() if size % cut.get(name, 1)),
        affine,
        found or (),
        _fused(region, reads, sizes, room),
        _min_buffer(region, reads, sizes, room),
        barrier(target),
        bank_conflicts(region, {**sides_of(region, {}), **cut}) if affine and target != "cpu" else (),
    )


def _read(region: Region) -> tuple[MemRef, ...]:
    """The inputs that are read."""
    used = {let.value.tensor for let in region.lets if isinstance(let.value, Read)}
    return tuple(ref for ref in region.inputs if ref.name in used)


def _affine(region: Region, sizes: Mapping[str, int]) -> bool:
    """An Affine can hold nothing else; what is not affine shows as a name in it that is no axis."""
    indices = [
        index
        for let in region.lets
        for index in (
            let.value.map if isinstance(let.value, Read)
            else (let.value.index,) if isinstance(let.value, Within)
            else ()
        )
    ]  # fmt: skip
    return all(index.axes() <= sizes.keys() for index in indices)


def _dependences(region: Region) -> tuple[Carried, ...] | None:
    """None where isl gives up."""
    prefix = f"{region.name}."
    try:
        found = dependences(region_statements(Workspace(), region))
        return tuple(
            Carried(
                each.source.removeprefix(prefix), each.target.removeprefix(prefix), each.kind, each.carried
            )
            for each in found
        )
    except TooComplex:
        return None


def _fused(region: Region, reads: list[Footprint], sizes: Mapping[str, int], capacity: int) -> ComputeAt:
    """The halo of the Region's tiles per axis, summed over its inputs in bytes, and whether its fusion is legal."""
    halos = {name: Halo() for name in sizes}
    for read in reads:
        for extent in read.extents:
            for name, halo in extent.halos.items():
                halos[name] = halos[name].widest(halo)
    why = fused_fault(region, capacity)
    border, most = sum(read.halo_bytes for read in reads), max(_rows(region, sizes).values(), default=0)
    return ComputeAt(why is None, halos, border, most, 1.0, why)


def _rows(region: Region, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of the row that one point of the output needs, for each reduction inside another."""
    kept = kept_axes(region)
    rows = {
        let.name: (kept[let.name], let.dtype.itemsize)
        for let in region.lets
        if isinstance(let.value, Reduce | Stream)
    }
    return {let: row_bytes(sizes, row, item) for let, (row, item) in rows.items() if row}


def _min_buffer(region: Region, reads: list[Footprint], sizes: Mapping[str, int], capacity: int) -> MinBuffer:
    """``reg`` where every reduction is used at its own point, as an accumulator is by an epilogue. A ring where a later
    reduction runs over a row of values, or input tiles have a halo, which successive tiles share (depth 3)."""
    if fused_fault(region, capacity) is not None:
        return MinBuffer("gmem")
    if any(extent.halo.total for read in reads for extent in read.extents):
        return MinBuffer("smem_ring", 3)
    return MinBuffer("smem_ring" if _rows(region, sizes) else "reg")
