"""A contraction whose rows are reduced in the same kernel, as two Regions: the product, up to what is kept of its rows, and what is made of
these rows.

A block computes all tiles of its rows and keeps them in shared memory; what the rest of the Region reads of them, at whatever place of
the row, it reads there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyc.ir.index import axis
from tinyc.ir.region import Axis, Let, MemRef, Read, Reduce, Region, Yield, free_axes, operands
from tinyc.ir.rows import KeptValue

from .operand import Group

OWN = 16
"""Elements of a row that a thread has at most, while its team is no whole warp."""

TEAMS = (8, 16, 32)
"""Threads of a row: a part of a warp, or one, so that no row waits for another."""


@dataclass(frozen=True)
class KeptParts:
    """``product``: stores what is kept, at the points of all iters. ``rows``: reads it from ``buffer``, its last input. ``outer``: the iters
    that tell rows apart; ``inner``: the others, along the row."""

    product: Region
    rows: Region
    buffer: MemRef
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]

    @property
    def team(self) -> int:
        """Threads that share a row."""
        size = self.inner[-1].size
        for item in self.inner[:-1]:
            size *= item.size
        return next((team for team in TEAMS if size <= OWN * team), TEAMS[-1])


def kept_parts(region: Region, value: KeptValue, rows: frozenset[str], n: Group) -> KeptParts | None:
    """``region``, without axes of size 1, cut at ``value``. ``rows``: the iters of batch and m, which number the rows of the product;
    ``n``: those along it. None where a row of the result is no part of a row of the product, or does not lie along it."""
    if not n.axes:
        return None
    free = free_axes(region)
    numbers = tuple(item for item in region.iters if item.name in rows & free[value.value])
    if any(names[item.name] != item.name for _, names in value.copies for item in numbers):
        return None
    own = (*numbers, *n.axes)
    taken = {ref.name for ref in (*region.inputs, *region.outputs)}
    name = next(
        each for each in ("kept", *(f"kept{number}" for number in range(len(taken)))) if each not in taken
    )
    buffer = MemRef(name, value.dtype, tuple(item.size for item in own))
    reads = {copy: Read(name, tuple(axis(names[item.name]) for item in own)) for copy, names in value.copies}
    replaced = [replace(let, value=reads.get(let.name, let.value)) for let in region.lets]
    after = _needed(replaced, {item.value for item in region.yields})
    found = replace(region, inputs=(*region.inputs, buffer), lets=after)
    cut = _outer(found, rows)
    outer, inner = region.iters[:cut], region.iters[cut:]
    if not inner or n.axes[len(n.axes) - len(inner) :] != inner:
        return None
    stored = MemRef(name, value.dtype, tuple(item.size for item in region.iters))
    product = replace(
        region,
        outputs=(stored,),
        lets=_needed(region.lets, {value.value}),
        yields=(Yield(value.value, name),),
    )
    return KeptParts(product, found, buffer, outer, inner)


def _outer(region: Region, rows: frozenset[str]) -> int:
    """How many of the first iters tell rows apart: those of the product's rows, and on which a reduction depends that is the same for
    all points of a row."""
    free, last = free_axes(region), region.iters[-1].name
    needed = rows.union(
        *(
            free[let.name]
            for let in region.lets
            if isinstance(let.value, Reduce) and last not in free[let.name]
        )
    )
    return max((number for number, item in enumerate(region.iters, 1) if item.name in needed), default=0)


def _needed(lets: tuple[Let, ...] | list[Let], names: set[str]) -> tuple[Let, ...]:
    """Those that ``names`` are computed from, and these."""
    wanted = set(names)
    for let in reversed(lets):
        if let.name in wanted:
            wanted.update(operands(let.value))
    return tuple(let for let in lets if let.name in wanted)
