"""Sums whose threads may be shared: of a kernel of loops, those that each point along a row of its result has for itself.

``x.sum(axis=1)`` has one such sum per point, ``x / x.sum(axis=1)`` has none: its row's sum is one for all points of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .region import Axis, Read, Reduce, Region, free_axes, operands


@dataclass(frozen=True)
class Fold:
    """``points``: of the shortest of these sums. ``axis``: the last one that it sums. ``along``: what most bytes are read of
    lies along summed axes, so that the threads of a sum are neighbours in memory; otherwise those of points are."""

    points: int
    axis: str
    along: bool


def fold_of(region: Region) -> Fold | None:
    """The sums of ``region`` that threads may share; None where there are none."""
    lets = {let.name: let.value for let in region.lets}
    free = free_axes(region)
    iters = {item.name for item in region.iters}
    last = next((item.name for item in reversed(region.iters) if item.size > 1), None)
    found: list[tuple[int, tuple[Axis, ...], str]] = []
    for name, value in lets.items():
        own = free[name]
        if isinstance(value, Reduce) and own <= iters and (last is None or last in own):
            axes = tuple(item for item in value.axes if item.size > 1)
            if axes:
                found.append((prod(item.size for item in axes), axes, value.body))
    if not found:
        return None
    points, axes, _ = min(found, key=lambda each: each[0])
    summed = {item.name for _, each, _ in found for item in each}
    return Fold(points, axes[-1].name, _along(region, summed, [body for _, _, body in found]))


def _along(region: Region, summed: set[str], bodies: list[str]) -> bool:
    lets = {let.name: let.value for let in region.lets}
    bytes = {ref.name: ref.bytes for ref in region.inputs}
    seen, pending, most = set(bodies), list(bodies), (-1, False)
    while pending:
        value = lets[pending.pop()]
        if isinstance(value, Read) and value.map:
            most = max(most, (bytes[value.tensor], bool(value.map[-1].axes() & summed)))
        fresh = [each for each in operands(value) if each not in seen]
        seen.update(fresh)
        pending += fresh
    return most[1]
