"""What an extraction chooses from: every class that an output can reach, with its options and what they cost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from tinyc.ir.folds import Fold

from .choice import REDUCING, How, Kernel, Key, Row, along, bound_axes, tileable
from .cost.model import CostModel, Work
from .cost.schedule import Schedule
from .folds import Sum, shared, sums
from .options import Option, Options
from .reach import items_of, order_of
from .running import Running
from .tiling import Tiling
from .view import LEVEL, Buffer, Item, View, Way, axis_extent, axis_id
from .works import Works

TILED: tuple[How, ...] = ("tiled", "rows")
"""Kinds of kernels that tile a product."""


class Problem:
    """What all passes share: the keys that an output can reach, operands first, and their options."""

    def __init__(self, view: View, model: CostModel, sizes: Mapping[int, int]) -> None:
        self.view, self.model = view, model
        self.stored: frozenset[str] = frozenset()
        self.unstored: frozenset[str] = frozenset()
        self.order = order_of(view)
        # a contraction over the axes of another reduction can be tiled under a scan, or where rows are kept
        self.rows = model.hardware.rows
        self.scans = self.rows or any(
            item.head == "Scan" for cls, _ in self.order for item in view.items.get(cls, ())
        )
        self.tiling = Tiling(view, model.hardware.limits) if model.hardware.sms else None
        self.works = Works(view, model, sizes, self.order, self.tiling)
        self.running = Running(self.works)
        self.kernels: dict[Hashable, Kernel | None] = {}  # that are priced already
        self._loops: dict[tuple[int, ...], frozenset[Schedule]] = {}  # by what they are over
        self.bit = {key: number for number, key in enumerate(self.order)}
        options_of = Options(self.running, self.scans)
        self.options = {
            key: [options_of.option(key, item) for item in items_of(view, key)] for key in self.order
        }
        self.size = sum(map(len, self.options.values())) or 1
        self.users: list[list[int]] = [[] for _ in self.order]
        self.readers: dict[str, list[int]] = {}
        for key, options in self.options.items():
            for option in options:
                for child in option.children:
                    self.users[self.bit[child]].append(self.bit[key])
                if option.item.head == "Read":
                    self.readers.setdefault(str(option.item.payload[0]), []).append(self.bit[key])
        self.names = list(view.buffers)
        self.number = {name: number for number, name in enumerate(self.names)}
        self.depends: dict[str, set[int]] = {}  # axis -> the keys that depend on it
        for key, number in self.bit.items():
            for axis in view.free.get(key[0], ()):  # a class with no items has none
                ways = (number + kind * len(self.order) for kind in range(3))  # see relaxation.py
                self.depends.setdefault(axis, set()).update(ways)
        self.read_cost = [
            model.seconds(Work(bytes_read=self.works.bytes(view.buffers[name]))) for name in self.names
        ]
        self.filled = [view.buffers[name].arg is None for name in self.names]
        self.write_cost = [
            model.seconds(Work(bytes_written=self.works.bytes(view.buffers[name]))) for name in self.names
        ]
        self.filled_by: dict[str, list[tuple[Buffer, Way]]] = {}
        for buffer in view.buffers.values():
            for way in buffer.ways:
                self.filled_by.setdefault(way.root, []).append((buffer, way))

    def storing(self, classes: frozenset[str]) -> Problem:
        """The same, with ``classes`` only ever read from their buffers, except where those are filled."""
        other = copy.copy(self)
        other.stored = classes
        return other

    def storable(self, classes: Collection[str]) -> frozenset[str]:
        """Of ``classes`` those that a buffer may hold; and of the others, what is computed of them first that one may: no kernel computes
        them then but those that fill it."""
        found, missing = set[str](), [cls for cls in classes if not self._held(cls)]
        users: dict[str, set[str]] = {}
        for key, options in self.options.items() if missing else ():
            for child, _ in (child for option in options for child in option.children):
                users.setdefault(child, set()).add(key[0])
        seen = set(missing)
        while missing:
            above = users.get(missing.pop(), set())
            found |= {cls for cls in above if self._held(cls)}
            fresh = {cls for cls in above - seen if not self._held(cls)}
            seen |= fresh
            missing += fresh
        return frozenset(found.union(cls for cls in classes if self._held(cls)))

    def _held(self, cls: str) -> bool:
        return any(option.item.head == "Read" for option in self.options.get((cls, False), ()))

    def computing(self, classes: frozenset[str]) -> Problem:
        """The same, with ``classes`` never stored, nor read where only a condition says that the index stays in the buffer; nor
        what they are computed from, which would be read there instead."""
        found, stack = set(classes), list(classes)
        while stack:
            options = self.options.get((stack.pop(), False), ())
            inner = {cls for each in options for cls, _ in each.children} - found
            stack += inner
            found |= inner
        unstored = self.unstored | frozenset(cls for cls in found if self.otherwise(cls))
        other = self.leaving_out(lambda key, item: key[0] in unstored and self._leaves(item))
        other.unstored, other.stored = unstored, self.stored - unstored
        return other

    def otherwise(self, cls: str) -> bool:
        """Whether a class that is read so has a value where there is no such condition."""
        leaving = {self._leaves(each.item) for each in self.options.get((cls, False), ())}
        return len(leaving) == 2

    def _leaves(self, item: Item) -> bool:
        """Whether a Read leaves a buffer that a kernel fills at some point of all its axes."""
        buffer = self.view.buffers[str(item.payload[0])] if item.head == "Read" else None
        if buffer is None or buffer.arg is not None:
            return False
        for index, size in zip(item.payload[1], buffer.shape, strict=True):  # type: ignore[call-overload]
            low, high = index.bounds({name: axis_extent(name) for name in index.axes()})
            if low < 0 or high >= size:
                return True
        return False

    def without_rows(self) -> Problem:
        """The same on a machine that keeps no rows of a contraction."""
        other = copy.copy(self)
        other.rows, other.kernels = False, {}
        for name in ("row", "covered", "_whole"):  # what follows from it
            other.__dict__.pop(name, None)
        return other

    def barring(self, classes: frozenset[str]) -> Problem:
        """The same without the Streams of ``classes``."""
        return self.leaving_out(lambda key, item: item.head == "Stream" and key[0] in classes)

    def leaving_out(self, banned: Callable[[Key, Item], bool]) -> Problem:
        """The same with fewer options."""
        other = copy.copy(self)
        other.options = {
            key: [option for option in options if not banned(key, option.item)]
            for key, options in self.options.items()
        }
        other._loops = {}
        for name in ("computed", "read"):  # what lists them
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def computed(self) -> Sequence[Sequence[tuple[Option, Sequence[int]]]]:
        """Of each key, by number, the options that are no Read, each with the numbers of its operands."""
        return [
            [
                (option, [self.bit[child] for child in option.children])
                for option in self.options[key]
                if option.item.head != "Read"
            ]
            for key in self.order
        ]

    @cached_property
    def read(self) -> Sequence[Sequence[tuple[Option, int]]]:
        """Of each key, by number, the Reads, each with the number of the buffer."""
        return [
            [
                (option, self.number[str(option.item.payload[0])])
                for option in self.options[key]
                if option.item.head == "Read"
            ]
            for key in self.order
        ]

    @cached_property
    def reducing(self) -> Sequence[bool]:
        """Of each key, by number, whether a reduction is among its options."""
        return [any(option.item.head in REDUCING for option in self.options[key]) for key in self.order]

    @cached_property
    def contracted(self) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """Of what contractions compute, wherever it is needed (:meth:`View.origin`), the extents, and those of the axes that are summed
        over: others may have the same."""
        own: dict[str, set[tuple[int, ...]]] = {}
        summed: dict[str, set[tuple[int, ...]]] = {}
        for name, items in self.view.items.items():
            for item in items:
                if item.head == "Contract":
                    origin = self.view.origin(name)
                    own.setdefault(origin, set()).add(_extents(self.view.free[name]))
                    summed.setdefault(origin, set()).add(_extents(bound_axes(item)))
        return {name: (min(each), *sorted(summed[name])) for name, each in own.items()}

    def loops(self, axes: Iterable[str] = ()) -> frozenset[Schedule]:
        """How a kernel of the program may run that tiles no product: as its Stream does, or as loops over what it fills. ``axes``: of
        its output, as far as they are known."""
        if self.tiling is None:
            return frozenset()
        known = {axis_id(axis): axis_extent(axis) for axis in axes}
        shapes = (shape for shape, sizes in self._shapes.items() if known.items() <= sizes.items())
        return frozenset[Schedule]().union(*map(self._loops_over, shapes), *self.running.walks.values())

    @cached_property
    def _shapes(self) -> Mapping[tuple[int, ...], Mapping[int, int]]:
        """What kernels fill, with the axes that have more than one point."""
        shapes = {tuple(way.shape) for buffer in self.view.buffers.values() for way in buffer.ways}
        return {shape: dict(enumerate(size for size in shape if size > 1)) for shape in shapes}

    def _loops_over(self, shape: tuple[int, ...]) -> frozenset[Schedule]:
        """How loops over ``shape`` may run, whatever they compute."""
        known = self._loops.get(shape)
        if known is None and self.tiling is not None:
            folds, tiling = self.folds(shape), self.tiling
            sizes = (0, *sorted({buffer.dtype.itemsize for buffer in self.view.buffers.values()}))
            found = {each for widest in sizes for each in tiling.loops(shape, folds=folds, widest=widest)}
            # a row's block, where its points need sums
            known = self._loops[shape] = frozenset(found).union(replace(each, row_blocks=1) for each in found)
        return known or frozenset()

    def folds(self, shape: Sequence[int], keys: Iterable[Key] | None = None) -> tuple[Fold, ...]:
        """The sums that threads may share in a kernel that fills ``shape``, if it computes some of ``keys``; of any."""
        if keys is None:
            return shared(self._any_sums, shape)
        return shared(
            frozenset[Sum]().union(*(self._sums[key] for key in self._sums.keys() & set(keys))), shape
        )

    def read_beneath(self, key: Key) -> tuple[int, int]:
        """Bytes of the largest buffer that a kernel may read that computes a value, whatever it computes itself: of those that it reads
        along an axis that is bound there, and of all."""
        return self._read_beneath.get(key, (0, 0))

    @cached_property
    def _read_beneath(self) -> Mapping[Key, tuple[int, int]]:
        found: dict[Key, tuple[int, int]] = {}
        more = True
        while more:  # once, and once more to see that all is found: operands come first, but where ways go around in a circle
            more = False
            for key in self.order:
                along, most = found.get(key, (0, 0))
                for option in self.options[key]:
                    if option.item.head == "Read":
                        size = self.works.bytes(self.view.buffers[str(option.item.payload[0])])
                        most = max(most, size)
                        index = option.item.payload[1] if option.item.payload[1:] else ()
                        bound = index and any(axis_id(axis) >= LEVEL for axis in index[-1].axes())  # type: ignore[index]
                        along = max(along, size if bound else 0)
                    for child in option.children:
                        below, every = found.get(child, (0, 0))
                        along, most = max(along, below), max(most, every)
                if found.get(key) != (along, most):
                    found[key], more = (along, most), True
        return found

    @cached_property
    def _sums(self) -> Mapping[Key, frozenset[Sum]]:
        return sums(self.view, {key: [each.item for each in found] for key, found in self.options.items()})

    @cached_property
    def _any_sums(self) -> frozenset[Sum]:
        return frozenset[Sum]().union(*self._sums.values())

    @cached_property
    def products(self) -> Mapping[How, Mapping[frozenset[str], frozenset[Work]]]:
        """What the products of the program are that a kernel may tile, each with its Schedule: by kind of kernel, and by the output
        axes that the product depends on."""
        found: dict[How, dict[frozenset[str], set[Work]]] = {how: {} for how in TILED}
        for key, options in self.options.items():
            axes = frozenset(axis for axis in self.view.free[key[0]] if axis_id(axis) < LEVEL)
            for option in options:
                for how in TILED if option.item.head == "Contract" else ():
                    work = self.works.work(key, option.item, how)
                    if work.schedule is not None:
                        found[how].setdefault(axes, set()).add(work)
        return {how: {axes: frozenset(works) for axes, works in each.items()} for how, each in found.items()}

    def tiled(self, how: How, axes: frozenset[str] | None = None) -> frozenset[Work]:
        """Those that a kernel of a kind may tile. ``axes``: that the kernel's values depend on, where that is known."""
        found = self.products[how].items()
        return frozenset[Work]().union(*(works for own, works in found if axes is None or own <= axes))

    @cached_property
    def weighted(self) -> frozenset[str]:
        """The classes that Streams weight, and what these are cast from: where one is computed, the Stream runs in loops
        (``pricing.py``)."""
        items = self.view.items
        found: set[str] = set()
        stack = [item.children[1] for each in items.values() for item in each if item.head == "Stream"]
        while stack:
            cls = stack.pop()
            if cls not in found:
                found.add(cls)
                stack += [item.children[0] for item in items.get(cls, ()) if item.head == "Cast"]
        return frozenset(found)

    @cached_property
    def walked(self) -> Mapping[Schedule, frozenset[Key]]:
        """How kernels run that hold a Stream at their output axes, each with the values that may be made of it in a kernel."""
        numbers: dict[Schedule, set[int]] = {}
        for key, options in self.options.items():
            for option in options:
                for walk in self.running.streamed(key, option.item):
                    numbers.setdefault(walk, set()).add(self.bit[key])
        for found in numbers.values():
            stack = list(found)
            while stack:
                fresh = set(self.users[stack.pop()]) - found
                found |= fresh
                stack += fresh
        return {walk: frozenset(self.order[each] for each in found) for walk, found in numbers.items()}

    @cached_property
    def row(self) -> Row | None:
        """What the machine keeps of a contraction. A GPU keeps what a block computes: rows of the result, of which it computes
        all tiles."""
        if not self.rows or self.tiling is None:
            return along if self.rows else None
        return lambda base, other: (
            along(base, other) and base.payload[1:3] == other.payload[1:3] and base in self._whole
        )

    @cached_property
    def _whole(self) -> frozenset[Item]:
        """The contractions that blocks compute whole rows of."""
        pairs = (
            (key, option.item)
            for key, options in self.options.items()
            for option in options
            if option.item.head == "Contract" and tileable(self.view, key[0], option.item)
        )
        return frozenset(item for key, item in pairs if self.works.schedule(key, item, True) is not None)

    @cached_property
    def covered(self) -> frozenset[str]:
        """What contractions are, wherever they are needed, of which rows can be kept."""
        return frozenset(
            self.view.origin(key[0])
            for key, options in self.options.items()
            for option in options
            if option.item in self._whole or (self.tiling is None and option.item.head == "Contract")
        )


def _extents(axes: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted(map(axis_extent, axes)))
