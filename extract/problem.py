"""What an extraction chooses from: every class that an output can reach, with its options and what they cost."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tinyc.ir.folds import Fold
from tinyc.ir.resources import WARP
from tinyc.ir.rows import row_pitch, slab_bytes

from .choice import (
    LOOPED,
    REDUCING,
    How,
    Kernel,
    Key,
    Row,
    along,
    as_copy,
    children_of,
    item_work,
    outside,
    rescored,
    tileable,
)
from .cost.model import (
    CostModel,
    Timer,
    Work,
    along_row,
    amounts_of,
    points,
    repeats,
    timer,
    weight,
)
from .cost.schedule import Schedule, whole_rows
from .folds import Sum, fold_of, shared, sums
from .tiling import Tiling
from .view import LEVEL, Buffer, Item, View, Way, axis_extent, axis_id, is_rounded

UNKNOWN_EXTENT = 64
"""Taken for an outer axis that something is computed again for, while its extent is not known."""


@dataclass(frozen=True, slots=True)
class Option:
    """An item of a key, with what does not change from pass to pass: own cost, what it costs more untiled, and what a
    Read costs less where it is all that a kernel does: a copy goes through shared memory."""

    item: Item
    children: tuple[Key, ...]
    own: float
    untiled: float
    copied: float = 0.0


class Problem:
    """What all passes share: the keys that an output can reach, operands first, and their options."""

    def __init__(self, view: View, model: CostModel, sizes: Mapping[int, int]) -> None:
        self.view, self.model, self.sizes = view, model, sizes
        self.stored: frozenset[str] = frozenset()
        self.unstored: frozenset[str] = frozenset()
        self.order = _order(view)
        # a contraction over the axes of another reduction can be tiled under a scan, or where rows are kept
        self.rows = model.hardware.rows
        self.scans = self.rows or any(
            item.head == "Scan" for cls, _ in self.order for item in view.items.get(cls, ())
        )
        self.tiling = Tiling(view, model.hardware.limits) if model.hardware.sms else None
        self.schedules: dict[tuple[Item, bool], Schedule | None] = {}
        self._works: dict[tuple[Key, Item, How, tuple[int, ...] | None], Work] = {}
        # of equal layers these are worked out once
        self._kinds: dict[tuple[Key, Item], Hashable] = {}
        self._alike: dict[tuple[Hashable, How, tuple[int, ...] | None], Work] = {}
        self._costs: dict[Hashable, tuple[float, float, float]] = {}
        self._best: dict[Hashable, Schedule | None] = {}
        self.kernels: dict[Hashable, Kernel | None] = {}  # that are priced already
        self._timers: dict[Schedule | None, Timer] = {}
        self._loops: dict[tuple[Hashable, ...], Sequence[tuple[Schedule, Timer]]] = {}
        self.bit = {key: number for number, key in enumerate(self.order)}
        self.options = {key: [self._option(key, item) for item in _items(view, key)] for key in self.order}
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
            model.seconds(Work(bytes_read=self.bytes(view.buffers[name]))) for name in self.names
        ]
        self.filled = [view.buffers[name].arg is None for name in self.names]
        self.write_cost = [
            model.seconds(Work(bytes_written=self.bytes(view.buffers[name]))) for name in self.names
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
        other.rows, other.kernels, other._works, other._alike = False, {}, {}, {}
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

    def work(self, key: Key, item: Item, how: How = "tiled", shape: Sequence[int] | None = None) -> Work:
        """The work of an item in a kernel; a contraction that is tiled by itself has the Schedule that suits it best.
        ``shape``: what the kernel fills; where it is not known, the item does that much at least."""
        what = key, item, how, None if shape is None else tuple(shape)
        found = self._works.get(what)
        if found is None:
            alike = self._kind(key, item), how, what[3]
            found = self._alike.get(alike)
            if found is None:
                found = self._alike[alike] = self._work(*what)
            self._works[what] = found
        return found

    def _kind(self, key: Key, item: Item) -> Hashable:
        """All that the work of an item depends on, beside the kernel: it is the same in each of equal layers."""
        found = self._kinds.get((key, item))
        if found is None:
            view, payload = self.view, item.payload
            if item.head == "Read":
                payload = self._fetches(item)
            operands: tuple[object, ...] = ()
            if item.head in ("Contract", "Stream"):
                operands = tuple(map(self._operand, item.children))
            if item.head == "Scan" and item.payload[2] is not None:
                operands = (rescored(view, item),)
            gathered = self._gathers.get((key[0], item), 0.0) if key[1] else 0.0
            found = item.head, item.op, payload, view.free[key[0]], operands, key[1], gathered
            self._kinds[key, item] = found
        return found

    def _fetches(self, read: Item) -> tuple[object, ...]:
        buffer = self.view.buffers[str(read.payload[0])]
        return self.bytes(buffer), buffer.dtype, *read.payload[1:]

    def _operand(self, cls: str) -> Hashable:
        """What a contraction, or a Stream, knows of an operand."""
        loads = tuple(self._fetches(read) for _, read in self.view.loads(cls))
        return self.view.free[cls], loads, any(map(is_rounded, self.view.items.get(cls, ())))

    def _work(self, key: Key, item: Item, how: How, shape: Sequence[int] | None) -> Work:
        tiled = (
            item.head == "Contract"
            and how not in LOOPED
            and (how == "scanned" or outside(self.view.free[key[0]]))
        )
        schedule = self._schedule(key, item, how == "rows") if tiled else None
        read = item.head == "Read" and not key[1]
        moved = self.bytes(self.view.buffers[str(item.payload[0])]) if read else 0
        moved = moved if moved > self.model.hardware.near else 0
        gathered = self._gathers.get((key[0], item), 0.0) if key[1] else 0.0
        work = self.repeated(
            item_work(self.view, key[0], item, how, schedule, moved, gathered), key, item, how, shape
        )
        if self.tiling is None or how not in ("tiled", "rows") or key[1] or item.head == "Contract":
            return work
        return replace(work, epilogue_ops=work.ops)  # beside the product and what is loaded for it

    def repeated(self, work: Work, key: Key, item: Item, how: How, shape: Sequence[int] | None) -> Work:
        """The work of an item as often as a kernel that fills ``shape`` computes it."""
        if key[1] and how in ("tiled", "rows"):  # loaded with the tiles of a contraction
            return work
        free = self.view.free[key[0]]
        outputs = {axis_id(axis) for axis in free if axis_id(axis) < LEVEL}
        summed = item.head in REDUCING or len(outputs) < len(free)
        read = self.fetched(key, item) if summed else 0.0
        if self.tiling is not None and summed and not outputs:
            return replace(work, block_ops=work.ops, block_bytes=read)
        blocks = self.tiling is not None and how in LOOPED
        if shape is None or not (blocks or looped(item, work)):
            return work
        shape = [size for size in shape if size > 1]  # others have no axis
        times = repeats(outputs, shape, blocks)
        ops = work.ops * times
        work = replace(work, ops=ops, guards=work.guards * times)
        if not blocks:
            return work
        if not summed:
            return replace(work, point_ops=ops)
        row = along_row(outputs, shape)
        return replace(work, row_ops=row * ops, row_bytes=row * read * times, reread_bytes=read * (times - 1))

    def shaped(self, item: Item, how: How) -> bool:
        """Whether :meth:`work` of an item may differ with the shape that a kernel fills."""
        return item.head in ("Reduce", "Contract") or (self.tiling is not None and how in LOOPED)

    def fetched(self, key: Key, item: Item) -> float:
        """The bytes of the elements that a Read fetches into a GPU's block, each as often as it is computed."""
        if self.tiling is None or item.head != "Read" or item.op == "inside":
            return 0.0
        buffer = self.view.buffers[str(item.payload[0])]
        return points(self.view.free[key[0]]) * buffer.dtype.itemsize

    def _guessed(self, key: Key, item: Item, how: How = "tiled") -> Work:
        """The same where nothing is known of the kernel: an axis that lies outside of those that a reduction depends on is
        taken to repeat it, and on a GPU all that it is made of."""
        work, free = item_work(self.view, key[0], item, how), self.view.free[key[0]]
        outputs = {axis_id(axis) for axis in free if axis_id(axis) < LEVEL}
        nested = self.tiling is not None and len(outputs) < len(free) and not key[1]
        if not (nested or looped(item, work)):
            return work
        skipped = sum(number not in outputs for number in range(max(outputs, default=-1)))
        if nested and not outputs:
            skipped = 1
        return replace(work, ops=work.ops * UNKNOWN_EXTENT**skipped)

    def _option(self, key: Key, item: Item) -> Option:
        return Option(item, children_of(key, item), *self._cost(key, item))

    def _cost(self, key: Key, item: Item) -> tuple[float, float, float]:
        """What an option costs, see :class:`Option`."""
        if item.head in ("Scan", "Stream"):
            own = self.model.seconds(self._guessed(key, item, "scanned" if self.scans else "tiled"))
            walk = self._walks.get(key[0])
            return own * self.idle((walk.blocks, walk.threads)) if walk else own, 0.0, 0.0
        product = item.head == "Reduce" and any(each.head == "Contract" for each in self.view.items[key[0]])
        kind = self._kind(key, item), product
        if kind not in self._costs:
            self._costs[kind] = self._cost_of(key, item, product)
        return self._costs[kind]

    def _cost_of(self, key: Key, item: Item, product: bool) -> tuple[float, float, float]:
        """``product``: whether a Reduce is the sum of a product."""
        if item.head == "Read":
            work = self.work(key, item)
            own = self.model.seconds(work)
            return own, 0.0, own - self.model.seconds(as_copy(work))
        own = self.model.seconds(self._guessed(key, item, "scanned" if self.scans else "tiled"))
        if product:
            own += self._standing(key, self._guessed(key, item))
        if item.head != "Contract":
            return own, 0.0, 0.0
        turns = self._guessed(key, item, "loops")
        loops = self.model.seconds(turns) + self._standing(key, turns)
        own = max(own, self._scheduled(key, item))
        return own, max(loops - own, 0.0), 0.0

    def _standing(self, key: Key, turns: Work) -> float:
        """What a product as loops takes more because most of the machine stands idle, of few results, as it does where they
        are tiles."""
        if not self.tiling:
            return 0.0
        outer = (axis for axis in self.view.free[key[0]] if axis_id(axis) < LEVEL)
        shape = [axis_extent(axis) for axis in sorted(outer, key=axis_id)]
        idle = self.model.kernel(self.spread(turns + turns, shape, {})) - self.model.kernel(turns + turns)
        return max(0.0, idle)

    def idle(self, shape: Sequence[int]) -> float:
        """The threads that keep the machine busy over those that the points of ``shape`` have work for, at least 1."""
        row = self.model.hardware
        return max(1.0, row.sms * row.busy_warps * WARP / math.prod(shape)) if self.tiling else 1.0

    @cached_property
    def _walks(self) -> dict[str, Schedule]:
        """How Streams run, by their classes and those of their scans."""
        found: dict[str, Schedule] = {}
        for cls, _ in self.order if self.tiling else ():
            for item in self.view.items.get(cls, ()):
                if item.head == "Stream" and self.tiling is not None and outside(self.view.free[cls]):
                    found[cls] = found[item.children[0]] = self.tiling.walk(item)
        return found

    @cached_property
    def _gathers(self) -> dict[tuple[str, Item], float]:
        """The elements that the tiles of a contraction load by a Read, one by one: of the contraction that has fewest."""
        found: dict[tuple[str, Item], float] = {}
        for cls, loaded in self.order if self.tiling else ():
            for item in () if loaded else self.view.items.get(cls, ()):
                if item.head == "Contract" and (schedule := self._schedule((cls, False), item)) is not None:
                    assert self.tiling is not None
                    for child in item.children:
                        for place in self.tiling.shifted(item, child):
                            found[place] = min(schedule.gathered, found.get(place, math.inf))
        return found

    def spread(self, work: Work, shape: Sequence[int], items: Mapping[Key, Item], size: int = 0) -> Work:
        """The work of a kernel that fills ``shape`` with the blocks that suit it, where the machine has any. ``size``: bytes
        of an element, see :meth:`Tiling.loops`."""
        if self.tiling is None or work.schedule is not None:
            return work
        walks = [
            self.tiling.walk(item)
            for key, item in items.items()
            if item.head == "Stream" and outside(self.view.free[key[0]])
        ]
        if walks:
            return replace(work, schedule=max(walks, key=lambda walk: walk.blocks))
        folds = fold_of(self.view, items, shape, self.bytes)
        amounts = amounts_of(work)
        best, _ = min(self.ways(tuple(shape), size, folds), key=lambda way: way[1](amounts))
        return replace(work, schedule=best)

    def ways(
        self, shape: tuple[int, ...], size: int, folds: tuple[Fold, ...]
    ) -> Sequence[tuple[Schedule, Timer]]:
        """The ways to run loops, the first of those that take as long whatever they do."""
        assert self.tiling is not None
        key = shape, size, folds
        if key not in self._loops:
            found: dict[Timer, Schedule] = {}
            for way in self.tiling.loops(shape, size, folds):
                found.setdefault(self.timer(way), way)
            self._loops[key] = tuple((way, timer) for timer, way in found.items())
        return self._loops[key]

    def timer(self, schedule: Schedule | None) -> Timer:
        """What kernels take that run so."""
        if schedule not in self._timers:
            self._timers[schedule] = timer(self.model, schedule)
        return self._timers[schedule]

    @cached_property
    def loops(self) -> frozenset[Schedule]:
        """How a kernel of the program may run that tiles no product: as its Stream does, or as loops over what it fills."""
        if self.tiling is None:
            return frozenset()
        shapes = {tuple(way.shape) for buffer in self.view.buffers.values() for way in buffer.ways}
        loops = (self.tiling.loops(shape, folds=self.folds(shape)) for shape in shapes)
        return frozenset(self._walks.values()).union(*loops)

    def folds(self, shape: Sequence[int], keys: Iterable[Key] | None = None) -> tuple[Fold, ...]:
        """The sums that threads may share in a kernel that fills ``shape``, if it computes some of ``keys``; of any."""
        found = self._sums if keys is None else self._sums.keys() & set(keys)
        return shared(frozenset[Sum]().union(*(self._sums[key] for key in found)), shape)

    @cached_property
    def _sums(self) -> Mapping[Key, frozenset[Sum]]:
        return sums(self.view, {key: [each.item for each in found] for key, found in self.options.items()})

    @cached_property
    def products(self) -> frozenset[Work]:
        """What the products of the program are that a kernel may tile, each with its Schedule."""
        return self._tiled("tiled") | self._tiled("rows")

    @cached_property
    def scanned(self) -> frozenset[Work]:
        """The same under a scan."""
        return self._tiled("scanned") if self.scans else frozenset()

    def _tiled(self, how: How) -> frozenset[Work]:
        found = (
            self.work(key, option.item, how)
            for key, options in self.options.items()
            for option in options
            if option.item.head == "Contract"
        )
        return frozenset(work for work in found if work.schedule is not None)

    def streamed(self, key: Key, item: Item) -> Schedule | None:
        """How a kernel runs that holds a Stream at its output axes; None for any other item."""
        at_output = item.head == "Stream" and outside(self.view.free[key[0]])
        return self.tiling.walk(item) if self.tiling is not None and at_output else None

    @cached_property
    def walked(self) -> Mapping[Schedule, frozenset[Key]]:
        """How kernels run that hold a Stream at their output axes, each with the values that may be made of it in a kernel."""
        numbers: dict[Schedule, set[int]] = {}
        for key, options in self.options.items():
            for option in options:
                walk = self.streamed(key, option.item)
                if walk is not None:
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
        return frozenset(item for key, item in pairs if self._schedule(key, item, True) is not None)

    @cached_property
    def covered(self) -> frozenset[str]:
        """What contractions are, wherever they are needed, of which rows can be kept."""
        return frozenset(
            self.view.origin(key[0])
            for key, options in self.options.items()
            for option in options
            if option.item in self._whole or (self.tiling is None and option.item.head == "Contract")
        )

    def _schedule(self, key: Key, item: Item, whole: bool = False) -> Schedule | None:
        """The Schedule with which a contraction by itself takes the least. ``whole``: of those that compute whole rows."""
        if self.tiling is None:
            return None
        if (item, whole) not in self.schedules:
            kind = self._kind(key, item), whole
            if kind not in self._best:
                self._best[kind] = self._fastest(key, item, whole)
            self.schedules[item, whole] = self._best[kind]
        return self.schedules[item, whole]

    def _fastest(self, key: Key, item: Item, whole: bool) -> Schedule | None:
        assert self.tiling is not None
        work = item_work(self.view, key[0], item) + self._loaded(item)
        schedules = self.tiling.schedules(item)
        if whole:
            schedules = self._kept(item, schedules)
        pairs = ((self.model.kernel(replace(work, schedule=each)), each) for each in schedules)
        return min(pairs, key=lambda pair: pair[0], default=(0.0, None))[1]

    def _kept(self, item: Item, schedules: Iterable[Schedule]) -> Iterator[Schedule]:
        """``schedules`` with rows that blocks keep, as sums of four bytes, as far as they have the memory."""
        columns = math.prod(map(axis_extent, item.payload[3]))  # type: ignore[call-overload]
        for each in schedules:
            if each.tile is None or each.warp_tile is None:
                continue
            part = each.warp_tile[1]
            rows = each.tile[0] * row_pitch(columns, 4, part)
            smem = rows + max(each.smem_bytes, each.warps * slab_bytes(part))
            if smem <= self.model.hardware.limits.smem_bytes:
                yield whole_rows(replace(each, smem_bytes=smem), -(-columns // each.tile[1]))

    def _scheduled(self, key: Key, item: Item) -> float:
        """What a contraction takes beside loading its operands once, with the blocks that its result has."""
        schedule = self._schedule(key, item)
        if schedule is None:
            return 0.0
        loaded = self._loaded(item)
        work = replace(item_work(self.view, key[0], item) + loaded, schedule=schedule)
        return self.model.kernel(work) - self.model.kernel(loaded)

    def _loaded(self, item: Item) -> Work:
        """A contraction's operands, each loaded from the smallest buffer that it may be loaded from, and widened."""
        assert self.tiling is not None
        sizes = (
            (self.bytes(self.view.buffers[str(read.payload[0])]) for _, read, _ in self.tiling.reads(cls))
            for cls in item.children
        )
        load = weight("Read") + weight("Cast")
        ops = sum(load * points(self.view.free[cls]) for cls in item.children)
        return Work(ops=ops, bytes_read=sum(min(each, default=0) for each in sizes))

    @staticmethod
    def element(buffer: Buffer) -> int:
        """Bytes of an element of what a kernel fills."""
        return buffer.dtype.itemsize

    def bytes(self, buffer: Buffer) -> int:
        if buffer.arg is not None:
            return self.sizes.get(buffer.arg, 0)
        size = buffer.dtype.itemsize
        for extent in buffer.shape:
            size *= extent
        return size


def looped(item: Item, work: Work) -> bool:
    """Whether an item that does this work is a reduction in loops."""
    return item.head == "Reduce" or (item.head == "Contract" and work.ops > 0)


def _order(view: View) -> list[Key]:
    """Every key that an output can reach, operands first where there is no cycle."""
    order: list[Key] = []
    seen: set[Key] = set()
    stack: list[tuple[Key, Iterator[Key]]] = []
    for output in view.graph.outputs:
        for way in view.buffers[output].ways:
            start = (way.root, False)
            if start in seen:
                continue
            seen.add(start)
            stack.append((start, _reachable(view, start)))
            while stack:
                key, children = stack[-1]
                child = next((child for child in children if child not in seen), None)
                if child is None:
                    order.append(key)
                    stack.pop()
                else:
                    seen.add(child)
                    stack.append((child, _reachable(view, child)))
    return order


def _reachable(view: View, key: Key) -> Iterator[Key]:
    for item in _items(view, key):
        yield from children_of(key, item)
        if item.head == "Read":
            for way in view.buffers[str(item.payload[0])].ways:
                yield (way.root, False)


def _items(view: View, key: Key) -> Iterator[Item]:
    for item in view.items.get(key[0], ()):
        if (
            not key[1]
            or item.head == "Read"
            or (item.head == "Cast" and item.op in ("fp32", "i32"))
            or (item.head == "Select" and _is_guard(view, item))
            or is_rounded(item)
        ):
            yield item


def _is_guard(view: View, item: Item) -> bool:
    cond, _, other = item.children
    return any(choice.head == "Within" for choice in view.items.get(cond, ())) and any(
        choice.head == "Const" and choice.payload[1] == 0 for choice in view.items.get(other, ())
    )
