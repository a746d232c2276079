"""The work of one item in a kernel, and how a contraction by itself runs. Each is worked out once, also of equal layers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from tinyc.ir.rows import row_pitch, slab_bytes

from .choice import LOOPED, REDUCING, How, Key, item_work, outside, rescored, summed
from .cost.model import CostModel, Work, along_row, points, repeats, weight
from .cost.schedule import Schedule, whole_rows
from .tiling import Tiling
from .view import LEVEL, Buffer, Item, View, axis_extent, axis_id, is_rounded

UNKNOWN_EXTENT = 64
"""Taken for an outer axis that something is computed again for, while its extent is not known."""


def shortened(seconds: float) -> float:
    """To nine digits: estimates that differ in the last bits alone, by the order in which something is added, are equal."""
    return float(f"{seconds:.8e}")


class Works:
    """The work of the items of an e-graph. ``sizes``: bytes of the program's arguments. ``order``: the keys that an output can
    reach."""

    def __init__(
        self,
        view: View,
        model: CostModel,
        sizes: Mapping[int, int],
        order: Sequence[Key],
        tiling: Tiling | None,
    ) -> None:
        self.view, self.model, self.sizes, self.order, self.tiling = view, model, sizes, order, tiling
        self.schedules: dict[tuple[Item, bool], Schedule | None] = {}
        self._works: dict[tuple[Key, Item, How, tuple[int, ...] | None], Work] = {}
        # of equal layers these are worked out once
        self._kinds: dict[tuple[Key, Item], Hashable] = {}
        self._alike: dict[tuple[Hashable, How, tuple[int, ...] | None], Work] = {}
        self._best: dict[Hashable, Schedule | None] = {}

    def work(self, key: Key, item: Item, how: How = "tiled", shape: Sequence[int] | None = None) -> Work:
        """The work of an item in a kernel; a contraction that is tiled by itself has the Schedule that suits it best.
        ``shape``: what the kernel fills; where it is not known, the item does that much at least."""
        what = key, item, how, None if shape is None else tuple(shape)
        found = self._works.get(what)
        if found is None:
            alike = self.kind(key, item), how, what[3]
            found = self._alike.get(alike)
            if found is None:
                found = self._alike[alike] = self._work(*what)
            self._works[what] = found
        return found

    def kind(self, key: Key, item: Item) -> Hashable:
        """All that the work of an item depends on, beside the kernel: it is the same in each of equal layers."""
        found = self._kinds.get((key, item))
        if found is None:
            view, payload = self.view, item.payload
            if item.head == "Read":
                payload = self._fetches(item)
            operands: tuple[object, ...] = ()
            if item.head in ("Contract", "Stream"):
                operands = tuple(map(self._operand, item.children))
            if item.head == "Reduce" and (product := summed(view, key[0], item)) is not None:
                operands = (product.payload, *map(self._operand, product.children))
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
        # under a scan it runs as that is walked
        alone = item.head == "Contract" and how not in (*LOOPED, "scanned")
        tiled = alone and outside(self.view.free[key[0]])
        schedule = self.schedule(key, item, how == "rows") if tiled else None
        read = item.head == "Read" and not key[1]
        moved = self.bytes(self.view.buffers[str(item.payload[0])]) if read else 0
        moved = moved if moved > self.model.hardware.near else 0
        gathered = self._gathers.get((key[0], item), 0.0) if key[1] else 0.0
        own = item_work(self.view, key[0], item, how, schedule, moved, gathered, self._score(how))
        work = self.repeated(own, key, item, how, shape)
        if read or how in LOOPED:
            size = self.bytes(self.view.buffers[str(item.payload[0])]) if item.head == "Read" else 0
            again = max(0.0, self.fetched(key, item) - size)
            work = replace(work, reread_bytes=work.reread_bytes + again)
        if self.tiling is None or how not in ("tiled", "rows") or key[1] or item.head == "Contract":
            return work
        return replace(work, epilogue_ops=work.ops)  # beside the product and what is loaded for it

    def _score(self, how: How) -> str:
        """What a score takes in a walk, by its weight: matrix units walk those that are scanned."""
        return "Walk" if how == "scanned" and self.tiling is not None else "Scan"

    def repeated(
        self,
        work: Work,
        key: Key,
        item: Item,
        how: How,
        shape: Sequence[int] | None,
        fetched: float | None = None,
        summed: bool = False,
    ) -> Work:
        """The work of an item as often as a kernel that fills ``shape`` computes it. ``fetched``: bytes of the elements that it
        fetches, else see :meth:`fetched`. ``summed``: whether it is a sum, where the item does not say."""
        if key[1] and how in ("tiled", "rows"):  # loaded with the tiles of a contraction
            return work
        free = self.view.free[key[0]]
        outputs = {axis_id(axis) for axis in free if axis_id(axis) < LEVEL}
        summed = summed or item.head in REDUCING or len(outputs) < len(free)
        read = (self.fetched(key, item) if fetched is None else fetched) if summed else 0.0
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
        if self.tiling is None or item.head != "Read":
            return 0.0
        buffer = self.view.buffers[str(item.payload[0])]
        return points(self.view.free[key[0]]) * buffer.dtype.itemsize

    def guessed(self, key: Key, item: Item, how: How = "tiled") -> Work:
        """The same where nothing is known of the kernel: an axis that lies outside of those that a reduction depends on is
        taken to repeat it, and on a GPU all that it is made of."""
        work = item_work(self.view, key[0], item, how, score=self._score(how))
        free = self.view.free[key[0]]
        outputs = {axis_id(axis) for axis in free if axis_id(axis) < LEVEL}
        nested = self.tiling is not None and len(outputs) < len(free) and not key[1]
        if not (nested or looped(item, work)):
            return work
        skipped = sum(number not in outputs for number in range(max(outputs, default=-1)))
        if nested and not outputs:
            skipped = 1
        return replace(work, ops=work.ops * UNKNOWN_EXTENT**skipped)

    @cached_property
    def _gathers(self) -> dict[tuple[str, Item], float]:
        """The elements that the tiles of a contraction load by a Read, one by one: of the contraction that has fewest."""
        found: dict[tuple[str, Item], float] = {}
        for cls, loaded in self.order if self.tiling else ():
            for item in () if loaded else self.view.items.get(cls, ()):
                if item.head == "Contract" and (schedule := self.schedule((cls, False), item)) is not None:
                    assert self.tiling is not None
                    for child in item.children:
                        for place in self.tiling.shifted(item, child):
                            found[place] = min(schedule.gathered, found.get(place, math.inf))
        return found

    def schedule(self, key: Key, item: Item, whole: bool = False) -> Schedule | None:
        """The Schedule with which a contraction by itself takes the least, of equal ones that whose tails compute least for nothing.
        ``whole``: of those that compute whole rows."""
        if self.tiling is None:
            return None
        if (item, whole) not in self.schedules:
            kind = self.kind(key, item), whole
            if kind not in self._best:
                self._best[kind] = self._fastest(key, item, whole)
            self.schedules[item, whole] = self._best[kind]
        return self.schedules[item, whole]

    def _fastest(self, key: Key, item: Item, whole: bool) -> Schedule | None:
        assert self.tiling is not None
        work = item_work(self.view, key[0], item) + self.loaded(item)
        schedules = self.tiling.schedules(item)
        if whole:
            schedules = self._kept(item, schedules)
        pairs = ((self.model.kernel(replace(work, schedule=each)), each) for each in schedules)
        return min(pairs, key=lambda pair: (shortened(pair[0]), pair[1].padding), default=(0.0, None))[1]

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

    def loaded(self, item: Item) -> Work:
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
