"""What kernels of a part do that compute values of what the part is given, and how they run."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..choice import LOOPED, How, Key, outside
from ..cost.model import Work, amounts_of, repeats, work_of
from ..cost.schedule import Schedule
from ..view import LEVEL, axis_id
from .inside import Levels
from .once import Once, fewest, of_fields, one_product

if TYPE_CHECKING:
    from .scope import Scope

PRODUCT = frozenset({"flops", "vector_flops", "tf32_flops", "values"})
"""What a product does that is tiled."""

TIMES = 8
"""Evaluations of a value in a kernel that are counted at most."""

Shape = tuple[int, ...]
"""What a kernel fills."""

Way = tuple[tuple[float, ...], Schedule | None]
"""Amounts of a scope's fields, and the schedule by which a product is tiled, if one is."""


class ByLevels(NamedTuple):
    """What kernels do once at each of a scope's levels: at many of them, much is the same. ``ways``: all that one does at any, each
    with whether some of it is charged where what is given is made, and how far from hand that is (:meth:`Part.lacks`). ``sets``: the numbers
    of ways of which it is one at least; ``likes``: for each of the levels, the number of its set."""

    ways: Sequence[tuple[bool, int, Way]]
    sets: Sequence[Sequence[int]]
    likes: Sequence[int]


class Given:
    """Of a scope. ``marks``: a bit for each buffer that is given, place, at the kernel's output axes or within reductions, and set of
    these axes where a kernel computes its values; ``tileable``: one for values beneath which a product may be tiled; ``times``: of each
    buffer, one for each evaluation after the first."""

    def __init__(self, scope: Scope, first: int) -> None:
        """``first``: the first bit that is free."""
        self.scope, self.part, self.problem = scope, scope.part, scope.problem
        self.tileable = first
        places = {
            (name, outside(self.problem.view.free[key[0]]), self._outputs(key)): None
            for name, each in self.part.known.items()
            for key in sorted(each.able, key=self.problem.bit.__getitem__)
        }
        self.marks = {place: first << number for number, place in enumerate(places, 1)}
        last = first << len(self.marks)
        self.times: dict[str, list[int]] = {}
        for name in self.part.known:
            self.times[name] = [last << number for number in range(1, TIMES)]
            last = self.times[name][-1]
        last = max((*self.marks.values(), *(bits[-1] for bits in self.times.values())), default=first)
        # of values that can be computed at some levels only, a bit for each set of these
        self._only: dict[tuple[str, frozenset[int]], int] = {}
        self._bit: dict[Key, int] = {}
        for name, each in self.part.known.items():
            for key in sorted(each.able & self.part.options.keys()):
                levels = each.levels_of(key)
                if len(levels) < each.levels:
                    if (name, levels) not in self._only:
                        last <<= 1
                        self._only[name, levels] = last
                    self._bit[key] = self._only[name, levels]
        self._name = {key: name for name, each in self.part.known.items() for key in each.able}
        self._levels: dict[tuple[int, How, Shape | None], ByLevels] = {}
        self._once: dict[tuple[int, How, Levels | None, Shape | None], Sequence[Way]] = {}
        self._like: dict[tuple[object, ...], Sequence[Way]] = {}
        self._barred: dict[Levels, tuple[int, int]] = {}

    @property
    def only(self) -> Collection[int]:
        """The bits of values that can be computed at some levels only."""
        return self._only.values()

    def mark(self, key: Key) -> int:
        """The bits of computing a value."""
        free = self.problem.view.free[key[0]]
        bits = self.tileable if sum(axis_id(axis) < LEVEL for axis in free) > 1 else 0
        bits |= self._bit.get(key, 0)
        if key not in self._name:
            return bits
        return bits | self.marks[self._name[key], outside(free), self._outputs(key)]

    def _outputs(self, key: Key) -> frozenset[int]:
        """The numbers of the output axes of a value, where its evaluations may be counted by them: in loops of a GPU."""
        if self.problem.tiling is None:
            return frozenset()
        ids = map(axis_id, self.problem.view.free[key[0]])
        return frozenset(number for number in ids if number < LEVEL)

    def again(self, key: Key, times: int) -> int:
        """The bits of evaluating a value so often in a kernel."""
        return sum(self.times[self._name[key]][: times - 1]) if key in self._name else 0

    def tiles(self, key: Key) -> bool:
        """Whether a product may be tiled beneath a value."""
        name = self._name.get(key)
        if name is None or self.mark(key) & self.tileable:
            return True
        known, outer = self.part.known[name], outside(self.problem.view.free[key[0]])
        every = known.once.items()
        return any(way.schedule for (*_, place), ways in every if place == outer for way in ways)

    def once(
        self, reads: int, how: How, levels: Levels | None = None, shape: Shape | None = None
    ) -> Sequence[Way]:
        """What a kernel does once that computes values of what is given, with these reads: one of these at least. ``levels``: of
        what is given, else those that take least. ``shape``: that it fills, where that is known."""
        kinds = reads & self.every
        known = self._once.get((kinds, how, levels, shape))
        if known is None:
            at = dict.fromkeys(self.part.known, 0) if levels is None else self.part.at(levels)
            able = levels is None or self._able(kinds, levels)
            # of dozens of levels, and of sets of axes, most are alike for a kernel
            often = self._repeated(kinds, how, shape)
            times = {
                name: sum(bool(kinds & bit) for bit in self.times[name]) for name, outer in often if not outer
            }
            each = tuple(
                [
                    (what, count, self.part.known[what[0]].like(at[what[0]], what[1]))
                    for what, count in often.items()
                ]
            )
            like = how, able, each, *times.items()
            if like not in self._like:
                self._like[like] = self._done(how, at, often, times) if able else ()
            known = self._once[kinds, how, levels, shape] = self._like[like]
        return known

    def _repeated(self, kinds: int, how: How, shape: Shape | None) -> Mapping[tuple[str, bool], float]:
        """For each buffer and place where kernels with these bits compute its values, how often loops over ``shape`` compute some of it
        at least, as :func:`~tinyc.extract.cost.model.repeats` has it: what a value is made of has no more output axes."""
        found: dict[tuple[str, bool], float] = {}
        wide = [size for size in shape or () if size > 1]
        counts = how in LOOPED and self.problem.tiling is not None
        for (name, outer, outputs), bit in self.marks.items():
            if kinds & bit:
                times = repeats(outputs, wide, True) if counts else 1.0
                found[name, outer] = max(times, found.get((name, outer), 1.0))
        return found

    def _done(
        self,
        how: How,
        at: Mapping[str, int],
        repeated: Mapping[tuple[str, bool], float],
        again: Mapping[str, int],
    ) -> Sequence[Way]:
        """The same of kernels that can be, where each of what is given is ``at`` a level. ``repeated``: see :meth:`_repeated`. ``again``: how
        often each is evaluated within reductions after the first."""
        # a row is kept of what is at the output axes
        rows = any(outer for _, outer in repeated)
        outer, inner = [Once()], [Once()]
        for name, each in self.part.known.items():
            if (name, True) in repeated:
                more = [_repeated(way, repeated[name, True]) for way in each.done(at[name], how, True)]
                outer = [_shared(*pair) for pair in itertools.product(outer, more) if one_product(pair)]
            if (name, False) in repeated:
                ways = each.done(at[name], how if how != "rows" or rows else "tiled", False)
                more = [_repeated(_often(other, again[name]), repeated[name, False]) for other in ways]
                inner = [_shared(*pair) for pair in itertools.product(inner, more) if one_product(pair)]
        ways = [_both(*pair) for pair in itertools.product(outer, inner) if one_product(pair)]
        return [(self.scope.amounts.of(way.work), way.schedule) for way in fewest(ways)]

    def by_levels(self, reads: int, how: How, shape: Shape | None = None) -> ByLevels:
        """What :meth:`once` says of kernels with these reads at each of the scope's levels."""
        kinds = reads & self.every
        known = self._levels.get((kinds, how, shape))
        if known is None:
            ways: dict[tuple[bool, int, Way], int] = {}
            sets: dict[tuple[int, ...], int] = {}
            likes: list[int] = []
            for levels in self.scope.levels:
                charged, lacking = self.part.charged(levels), self.part.lacks(levels)
                each = [(charged, lacking, way) for way in self.once(kinds, how, levels, shape)]
                numbers = tuple([ways.setdefault(way, len(ways)) for way in each])
                likes.append(sets.setdefault(numbers, len(sets)))
            known = self._levels[kinds, how, shape] = ByLevels(tuple(ways), tuple(sets), likes)
        return known

    @cached_property
    def every(self) -> int:
        """All bits of what decides what kernels do once."""
        return sum((*self.marks.values(), *self._only.values(), *itertools.chain(*self.times.values())))

    def barred(self, levels: Levels) -> int:
        """The bits of values of what is given that no kernel computes at these levels, and of places where none does."""
        return sum(self._barred_at(levels))

    def _able(self, reads: int, levels: Levels) -> bool:
        """Whether all values of what is given that a kernel with these reads computes can be, at these levels."""
        return not reads & self._barred_at(levels)[0]

    def _barred_at(self, levels: Levels) -> tuple[int, int]:
        """The bits of values, and of places."""
        if levels not in self._barred:
            at = self.part.at(levels)
            values = (bit for (name, able), bit in self._only.items() if at[name] not in able)
            places = (
                bit
                for (name, outer, _), bit in self.marks.items()
                if at[name] and not self.part.known[name].kinds[at[name] - 1].at(outer)
            )
            self._barred[levels] = sum(values), sum(places)
        return self._barred[levels]

    def products(self, how: How, axes: frozenset[str] | None) -> Sequence[Way]:
        """The arithmetic of a product that a kernel may tile, and how it runs then, see :meth:`Hosts.products`."""
        works = self.scope.hosts.products(how, axes)
        return [(self.scope.amounts.of(work), work.schedule) for work in works]

    def walks(self, reads: int) -> frozenset[Schedule]:
        """How a kernel may run because of Streams beneath the values of what is given that it computes, with these reads."""
        found = frozenset[Schedule]()
        for (name, _, _), bit in self.marks.items():
            if reads & bit:
                found |= self.part.known[name].walks
        return found

    @cached_property
    def walked(self) -> bool:
        """Whether there may be a Stream beneath what is given."""
        return any(each.walks for each in self.part.known.values())

    def unproduct(self, amounts: Sequence[Any]) -> tuple[Any, ...]:
        """Without what a product takes that is tiled."""
        return tuple([0.0 if out else each for out, each in zip(self._product, amounts, strict=True)])

    @cached_property
    def _product(self) -> Sequence[bool]:
        return [name in PRODUCT for name in self.scope.amounts.fields]

    def unread(self, amounts: tuple[Any, ...]) -> tuple[Any, ...]:
        """Without what is read."""
        place = self._read
        return amounts if place < 0 else (*amounts[:place], 0.0, *amounts[place + 1 :])

    @cached_property
    def _read(self) -> int:
        fields = self.scope.amounts.fields
        return fields.index("bytes_read") if "bytes_read" in fields else -1


def _often(way: Once, times: int) -> Once:
    """With so many evaluations after the first."""
    again = amounts_of(way.again)
    more = work_of([times * amount for amount in again]) if times and any(again) else Work()
    return way._replace(work=way.work + more)


def _repeated(way: Once, times: float) -> Once:
    """Computed so often; but what depends on no output axis, which is told apart."""
    if times <= 1:
        return way
    work, again = (
        replace(work, ops=work.ops + (times - 1) * max(0.0, work.ops - work.block_ops))
        for work in (way.work, way.again)
    )
    return way._replace(work=work, again=again)


def _shared(one: Once, two: Once) -> Once:
    """What a kernel does at least that computes two values at the same axes: some of it may be of both."""
    work, again = of_fields(max, (one.work, two.work)), of_fields(max, (one.again, two.again))
    return Once(work, one.schedule or two.schedule, again=again)


def _both(outer: Once, inner: Once) -> Once:
    """What a kernel does at least that computes values at its output axes, and within reductions: what does not depend on what those
    bind may be of both."""
    work = of_fields(max, (outer.work + inner.again, inner.work))
    read = max(outer.work.bytes_read, inner.work.bytes_read)
    return Once(replace(work, bytes_read=read), outer.schedule or inner.schedule)
