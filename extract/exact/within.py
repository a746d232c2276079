"""The ways to compute a value of a part's end within kernels of later parts, instead of filling a buffer of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..choice import Key, outside
from ..cost.model import Work
from .columns import Search
from .inside import Beneath, Kind, Levels
from .scope import Scope, bits

LABELS = 20_000
"""Partial kernels of one search at most."""

CHEAP = 0.1
"""What is not charged where it is made, so that what it reads counts where it is used: in launches of a kernel, at most."""


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
        for case in scope.cases.of(key, anywhere=True):
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
        if not any(other.reads & ~way.reads == 0 and other.marks & ~way.marks == 0 for other in kept):
            kept.append(way)
    return kept


class Unfilled:
    """What it takes to do without the buffer of a value that a part makes.

    One kernel that computes the value is charged here for that, and what it moves is not counted in later parts: what it computes
    may hide that. If what it takes is little, all of it is left to the later parts instead. And where it reads a buffer that
    is filled here and takes a value of what is given, then what was charged for that value is of the kernels that fill it."""

    def __init__(self, scope: Scope, group: Beneath, ways: Sequence[Within]) -> None:
        self.scope, self.group = scope, group
        self.cheap = CHEAP * scope.problem.model.hardware.launch
        self.partial = [sum({scope.bits[name] for name in names}) for names in group.partial]
        rooted = {name: name in scope.part.rooted for name in scope.bits}
        self.rooted = sum({scope.bits[name] for name in rooted if rooted[name]})
        for name in rooted:
            self.rooted &= -1 if rooted[name] else ~scope.bits[name]
        self.ways = [self._ways(ways, kind) for kind in group.kinds]

    def at(self, level: int, given: Levels) -> list[Within]:
        """The ways at a level from 1, and at these of what is given."""
        kind, part = self.group.kinds[level - 1], self.scope.part
        charged = part.charged(given)
        if kind.deep and kind.partial < len(self.partial) and not charged:
            return []
        return [
            way
            for way in self.ways[level - 1]
            if self.scope.given.allowed(way.marks, given) and (way.some or self._fits(way, kind, charged))
        ]

    def _fits(self, way: Within, kind: Kind, charged: bool) -> bool:
        """Whether it is charged in some part that a kernel has a value in this way, as ``kind`` has it. ``charged``: what is
        computed of what is given is."""
        charged = charged and self._nested(way)
        if kind.partial < len(self.partial):
            return kind.deep or not charged
        return (charged or way.seconds > self.cheap) if kind.deep else not charged

    def _nested(self, way: Within) -> bool:
        """Whether it may be a kernel with this way to which something is charged that computes a value of what is given."""
        return way.some or bool(way.marks & self.scope.inside and not way.reads & self.rooted)

    def _ways(self, ways: Sequence[Within], kind: Kind) -> list[Within]:
        there = [way for way in ways if way.outer <= kind.outer]
        nested = min((way.seconds for way in there if self._nested(way)), default=None)
        barred = sum(self.partial[: kind.partial])
        there = [way for way in there if way.some or not way.reads & barred]
        if kind.partial < len(self.partial):  # one kernel reads some of it, and hides what it does here
            seconds = nested if kind.deep else 0.0
            there = [
                way._replace(reads=way.reads | bit, seconds=seconds)
                for way in there
                for bit in bits(self.partial[kind.partial])
                if seconds is not None and (way.some or way.reads & bit)
            ]
        elif not kind.deep:
            there = [way._replace(seconds=0.0) for way in there if way.seconds <= self.cheap]
        return [
            way
            for nested in (True, False)
            for way in best(each for each in there if self._nested(each) == nested)
        ]
