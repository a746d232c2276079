"""The ways to compute a value of a part's end within kernels of later parts, instead of filling a buffer of it."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import le
from typing import NamedTuple

from ..choice import LOOPED, Key, outside
from ..cost.model import Work
from .cases import Held
from .columns import Search
from .floors import Amounts
from .inside import Beneath, Kind, Levels
from .labels import Label
from .scope import Scope, bits
from .sources import CLASSES

LABELS = 10_000
"""Partial kernels of one search at most."""

EVERY = 3 * LABELS // 2
"""Of all searches for one value together; if there are more, buffers are taken as one, which takes longer than to look at half as many again."""

LAST = 4 * LABELS
"""Of one search, where no more buffers can be taken as one: what is not looked at then counts for next to nothing."""

CHEAP = 0.1
"""What is not charged where it is made, so that what it reads counts where it is used: in launches of a kernel, at most."""

WHOLE = 1.0
"""How much more a kernel does than is counted of each where a value is used, so that it is charged all of it: in launches, at least."""

OTHERS = 64
"""Sets of buffers at most of which one is read for a value at other axes."""


Costs = Sequence[float]
"""Seconds at each of a scope's levels."""


class Within(NamedTuple):
    """``reads``: bit set of the buffers that must be filled for it; ``marks``: with what it computes of what is given.
    ``seconds``: what the kernel takes longer at least. ``base``, ``copy``: the product of which it keeps rows, with those that
    are kept or without. ``some``: it stands for ways of which no more is known. ``outer``: whether the value is at the kernel's
    output axes. ``tiled``: whether the kernel tiles a product. ``rest``: the seconds beside what kernels do at most for what
    the part is given (:attr:`Beneath.lacked`), where that is counted of each. ``more``: bit sets of buffers that must be filled as well, of one
    of them all."""

    reads: int
    marks: int
    seconds: float
    base: object
    copy: object
    some: bool
    outer: bool
    tiled: bool = False
    rest: float = 0.0
    more: tuple[int, ...] = ()


def within(
    scope: Scope, name: str, worth: Mapping[str, float], labels: float = float("inf")
) -> tuple[Mapping[Levels, list[Within]], bool]:
    """The ways to compute a value of a buffer that the part makes within some kernel of a later part: what each reads, and the time
    that its arithmetic takes at least, beside the last step, at each of the levels of what is given. Those that take longer
    than what it is ``worth`` are one. And whether there are too many: those that are not looked at are one then; none is told where there
    are more than so many ``labels`` of all searches together."""
    most, full = worth.get(scope.same.get(name, name), float("inf")), False
    levels, group = scope.levels, scope.part.group(name)
    lacked = {tiled: _lacked(scope, group, tiled) for tiled in (False, True)}
    found: list[tuple[Within, Costs, Costs]] = []
    for key in scope.part.targets[name]:
        if key not in scope.position:
            continue
        axes = scope.problem.view.free[key[0]]
        outer = outside(axes)
        for case in scope.cases.of(key, anywhere=True):
            tiled = case.how not in LOOPED
            less = lacked[tiled]
            search = Search(scope, case, most, Work(), axes=axes, less=less)
            search.run(key, int(min(LABELS, labels)) if labels < float("inf") else LAST)
            labels -= search.count
            full |= search.full
            if labels <= 0:
                return {}, True
            for held, each in _undominated(search, key).items():
                found += _ways(search, held, each, outer, less)
            if search.least < float("inf"):
                way = Within(scope.must((key,)), 0, 0.0, None, None, True, outer, tiled)
                least = (search.least,) * len(levels)
                found.append((way, least, least))
    # rows of a product that are kept are computed for one of these values; if not by one that was looked at, the kernel takes as long as those
    bases = {way.base for way, _, _ in found} - {None}
    others = min((seconds[0] for way, seconds, _ in found if way.some), default=float("inf"))
    kept: list[tuple[Within, Costs, Costs]] = []
    for way, costs, rests in found:
        dear = others if way.copy is not None and way.copy not in bases else 0.0
        kept.append((way, [max(dear, each) for each in costs], [max(dear, each) for each in rests]))
    return {
        each: [
            way._replace(seconds=seconds[number], rest=rest[number])
            for way, seconds, rest in kept
            if seconds[number] < float("inf")
        ]
        for number, each in enumerate(levels)
    }, full


def _undominated(search: Search, key: Key) -> Mapping[Held, list[Label]]:
    """The kernels that compute a value, and do not read it, of which no other does no more of any work and reads no more: what
    they could have read makes no difference to whole ones. By what they hold."""
    alike: dict[Held, list[Label]] = {}
    for label, held in search.found:
        if label.items()[key].head != "Read":
            alike.setdefault(held, []).append(label)
    found: dict[Held, list[Label]] = {}
    for held, labels in alike.items():
        kept = found[held] = []
        for label in sorted(labels, key=lambda label: (label.work, label.reads)):
            avoided, work = ~label.reads, label.work
            if not any(not other.reads & avoided and all(map(le, other.work, work)) for other in kept):
                kept.append(label)
    return found


def _ways(
    search: Search, held: Held, labels: Sequence[Label], outer: bool, less: Mapping[int, Amounts]
) -> Iterator[tuple[Within, Costs, Costs]]:
    """Kernels that hold the same as ways, each with its costs at each level, and those beside ``less`` (see :func:`_lacked`)."""
    import numpy as np

    scope, kinds = search.scope, dict(held)
    product = kinds.get("product")
    base, copy = (product, None) if "base" in kinds else (None, product)
    tiled = search.case.how not in LOOPED
    alike: dict[int, list[Label]] = {}
    for label in labels:
        alike.setdefault(label.reads & (scope.inside | scope.given.every), []).append(label)
    for given, each in alike.items():
        # one that computes nothing of what is given has none of it to be left out
        out = less if given & scope.inside else {}
        costs, rests = search.floors.of_many([label.work for label in each], given, held, out)
        apart = (np.transpose(found).tolist() for found in (costs, rests))
        for label, seconds, rest in zip(each, *apart, strict=True):
            reads, marks = label.reads & scope.filled, given & scope.given.every
            yield Within(reads, marks, 0.0, base, copy, False, outer, tiled), seconds, rest


def _lacked(scope: Scope, group: Beneath, tiled: bool) -> Mapping[int, tuple[float, ...]]:
    """What is not charged where kernels do it each for itself, for each class of what the part is given at which that is so: no less
    than for those before. ``tiled``: of kernels that tile a product, else of loops."""
    told = sorted({kind.lacking for kind in group.kinds if kind.lacking})
    most = (0.0,) * len(scope.amounts.fields)
    found: dict[int, tuple[float, ...]] = {}
    for lacking in range(min(told, default=len(CLASSES)), len(CLASSES)):
        if lacking in told:
            most = tuple(map(max, most, scope.amounts.of(group.lacked[lacking, tiled])))
        found[lacking] = most
    return found


def best(ways: Iterable[Within]) -> list[Within]:
    """Those of which no other needs less and takes no longer. All of them need the same ``more``."""
    ordered = sorted(ways, key=lambda way: (way.seconds, way.rest, way.reads))
    kept: list[Within] = []
    # one set of both that it needs: there may be thousands of ways, each of them held against hundreds
    width = max((way.reads.bit_length() for way in ordered), default=0)
    known: list[tuple[int, float]] = []
    for way in ordered:
        needed = way.reads | way.marks << width
        for other, rest in known:
            if other & needed == other and rest <= way.rest:
                break
        else:
            known.append((needed, way.rest))
            kept.append(way)
    return kept


def _common(masks: Collection[int]) -> list[int]:
    """A few sets of which each of these holds one: without those that hold others, and the most alike made what they have in common."""
    kept: list[int] = []
    for mask in sorted(masks, key=lambda mask: (mask.bit_count(), mask)):
        if not any(other & mask == other for other in kept):
            kept.append(mask)
    kept.sort()
    while len(kept) > OTHERS:
        apart = [(one ^ two).bit_count() for one, two in itertools.pairwise(kept)]
        at = apart.index(min(apart))
        kept[at : at + 2] = [kept[at] & kept[at + 1]]
    return kept


class Unfilled:
    """What it takes to do without the buffer of a value that a part makes, at each level of that.

    One of the kernels that compute the value, of those in the earliest part, is charged here for what it does here. It may hide
    what it moves behind that: where anything is charged, later parts count arithmetic only. If it is little, nothing is charged,
    and they count all. So they do where the kernel reads a buffer that is rooted in what this part is given (:attr:`Part.rooted`):
    what was charged for computing that is of kernels of this part. To count arithmetic only is right in any case."""

    def __init__(self, scope: Scope, group: Beneath, ways: Mapping[Levels, Sequence[Within]]) -> None:
        """``ways``: at each of the levels of what the part is given."""
        self.scope, self.group = scope, group
        self.cheap = CHEAP * scope.problem.model.hardware.launch
        self.partial = [sum({scope.bits[name] for name in names}) for names in group.partial]
        others = {scope.bits[name] for name in scope.bits if name not in scope.part.rooted}
        self.rooted = sum(set(scope.bits.values()) - others)
        self.told = [group.told(kind) for kind in group.kinds]
        known: dict[tuple[Within, ...], int] = {}
        self.ways: list[list[list[Within]]] = []
        self._number: dict[Levels, int] = {}
        for given, each in ways.items():
            self._number[given] = known.setdefault(tuple(each), len(known))
            if len(self.ways) < len(known):
                few = self._few(each)
                there = {what: self._ways(few, *what) for what in {kind[:3] for kind in group.kinds}}
                self.ways.append([there[kind[:3]] for kind in group.kinds])

    def like(self, level: int, given: Levels) -> Hashable:
        """What the ways at a level from 1 are told by, and at these of what is given: of dozens of these, most are alike. None where
        there is no way."""
        kind, part = self.group.kinds[level - 1], self.scope.part
        lacks = part.lacks(given)
        if kind.lacking != max(each for each in self.told[level - 1] if each <= lacks):
            return None
        return level, self._number[given], part.charged(given), self.scope.given.barred(given)

    def at(self, level: int, given: Levels) -> list[Within]:
        """The ways there."""
        if self.like(level, given) is None:
            return []
        charged, barred = self.scope.part.charged(given), self.scope.given.barred(given)
        return [
            way
            for way in self.ways[self._number[given]][level - 1]
            if not way.marks & barred and self._fits(way, self.group.kinds[level - 1], charged)
        ]

    def _fits(self, way: Within, kind: Kind, charged: bool) -> bool:
        """Whether something is charged for a kernel with this way, here or in an earlier part, as ``kind`` has it. ``charged``:
        something is for what it may compute of what is given."""
        free = not charged or bool(way.reads & self.rooted)
        if not self.group.sources[kind.source].light:
            free = free and self._seconds(way, kind) <= self.cheap
            if kind.deep and way.some:  # it may take more
                return way.tiled or not kind.whole
            if kind.deep and kind.lacking and kind.whole != self._dear(way):
                return False
        return free != kind.deep

    def _few(self, ways: Iterable[Within]) -> list[Within]:
        """Those that may be among the best at some level: of hundreds, a few dozen."""
        partial = functools.reduce(operator.or_, self.partial, 0)
        apart: dict[tuple[object, ...], list[Within]] = {}
        for way in ways:
            what = way.outer, way.reads & partial, *self._kind(way)
            apart.setdefault(what, []).append(way)
        return [way for each in apart.values() for way in best(each)]

    def _kind(self, way: Within) -> tuple[bool, ...]:
        """What :meth:`_fits` asks of a way."""
        cheap = way.seconds <= self.cheap, way.rest <= self.cheap
        return bool(way.reads & self.rooted), *cheap, way.some, way.tiled, self._dear(way)

    def _dear(self, way: Within) -> bool:
        """Whether a kernel tiles a product, and does much that is not counted of each where the value is used."""
        return way.tiled and way.seconds > way.rest + WHOLE * self.scope.problem.model.hardware.launch

    @staticmethod
    def _seconds(way: Within, kind: Kind) -> float:
        """What counts of a way."""
        return way.rest if kind.lacking and not kind.whole else way.seconds

    def _ways(self, ways: Sequence[Within], number: int, outer: bool, inner: bool) -> list[Within]:
        """Those from a source, where it is computed at the kernel's output axes, or within reductions, or both, as :meth:`_fits` tells
        them apart."""
        source = self.group.sources[number]
        barred = sum(self.partial[other] for other in source.barred)
        there = [way for way in ways if way.some or not way.reads & barred]
        if not (outer and inner):
            there = [way for way in there if way.outer == outer]
        elif number in self.group.both:
            there = self._best(self._both(there))
        if source.light:
            there = [way._replace(seconds=0.0, rest=0.0) for way in there]
        for place, numbers in enumerate(source.some):
            # some kernel reads some of it, not always the one that is charged: where nothing is, one that reads of the first
            some, own = sum(self.partial[number] for number in numbers), source.light and not place
            each = tuple(bits(some))
            there = self._best(
                way._replace(reads=way.reads | bit) if bit else way
                for way in there
                if way.some or way.reads & some or not own
                for bit in ((0,) if way.reads & some else each)
            )
        return there if source.some else self._best(there)

    def _both(self, ways: Sequence[Within]) -> Iterator[Within]:
        """Each of them with what is read for one at the other place."""
        for outer in (True, False):
            others = tuple(_common({way.reads for way in ways if way.outer != outer}))
            for way in ways if others else ():
                if way.outer == outer:
                    there = any(other & way.reads == other for other in others)
                    yield way if there else way._replace(more=others)

    def _best(self, ways: Iterable[Within]) -> list[Within]:
        """The best of each kind."""
        apart: dict[tuple[object, ...], list[Within]] = {}
        for way in ways:
            apart.setdefault((way.more, *self._kind(way)), []).append(way)
        return [way for each in apart.values() for way in best(each)]

    def charge(self, way: Within, level: int) -> float:
        """What a kernel with this way is charged here, in seconds."""
        kind = self.group.kinds[level - 1]
        return self._seconds(way, kind) if kind.deep else 0.0
