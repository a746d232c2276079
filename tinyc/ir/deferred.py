"""Which outputs of a Region need not go through memory (document 004 §6.9, I-35): a hint, no more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from .region import Region


def mark_deferred(regions: Sequence[Region], outputs: Collection[str]) -> tuple[Region, ...]:
    """``regions``, in execution order, with ``deferred`` set: the outputs whose only reader is the Region right after,
    and which are none of ``outputs``, the buffers that the program returns."""
    readers: dict[str, set[int]] = {}
    for number, region in enumerate(regions):
        for ref in region.inputs:
            readers.setdefault(ref.name, set()).add(number)
    marked = []
    for number, region in enumerate(regions):
        names = [ref.name for ref in region.outputs if ref.name not in outputs]
        handed = tuple(name for name in names if readers.get(name) == {number + 1})
        marked.append(replace(region, deferred=handed))
    return tuple(marked)
