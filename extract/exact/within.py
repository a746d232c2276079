"""The ways to compute a value of a part's end within kernels of later parts, instead of filling a buffer of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..choice import Key, outside
from ..cost.model import Work
from .columns import Search
from .scope import Scope

LABELS = 20_000
"""Partial kernels of one search at most."""


class Within(NamedTuple):
    """``reads``: bit set of the buffers that must be filled for it; ``marks``: with what it computes of what is given.
    ``seconds``: what the kernel takes longer at least. ``base``, ``copy``: the product of which it keeps rows, with those that
    are kept or without. ``some``: it stands for ways of which no more is known. ``outer``: whether the value is at the kernel's
    output axes."""

    reads: int
    marks: int
    seconds: float
    base: object
    copy: object
    some: bool
    outer: bool


def within(scope: Scope, keys: Iterable[Key], most: float) -> list[Within]:
    """The ways to compute one of these values within some kernel of a later part: what each reads, and the time that its
    arithmetic takes at least, beside the last step. Those that take more than ``most`` seconds are one."""
    found: list[Within] = []
    for key in keys:
        outer = outside(scope.problem.view.free[key[0]])
        for case in scope.kinds.cases(key, anywhere=True):
            search = Search(scope, case, most, Work())
            search.run(key, LABELS)
            for label, held in search.found:
                seconds = max(0.0, search.floor(label, held))
                if label.items()[key].head != "Read" and seconds < float("inf"):
                    kinds = dict(held)
                    product = kinds.get("product")
                    base, copy = (product, None) if "base" in kinds else (None, product)
                    reads = label.reads & scope.filled
                    found.append(Within(reads, label.reads, seconds, base, copy, False, outer))
            if search.least < float("inf"):
                least = max(0.0, search.least)
                found.append(Within(scope.must((key,)), 0, least, None, None, True, outer))
    # rows of a product that are kept are computed for one of these values
    bases = {way.base for way in found} - {None}
    return [way for way in found if way.copy is None or way.copy in bases]


def best(ways: Iterable[Within]) -> list[Within]:
    """Those of which no other needs less and takes no longer."""
    kept: list[Within] = []
    for way in sorted(ways, key=lambda way: (way.seconds, way.reads)):
        if not any(
            other.reads & ~way.reads == 0 and (other.marks & ~way.marks == 0 or way.some) for other in kept
        ):
            kept.append(way)
    return kept
