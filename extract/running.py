"""How kernels run that tile no product, and how long a kernel takes that runs so."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from tinyc.ir.folds import Fold
from tinyc.ir.resources import WARP

from .choice import Key, outside
from .cost.model import Timer, Work, amounts_of, timer, timer_of_many
from .cost.schedule import Schedule
from .folds import fold_of, in_common
from .view import Item, axis_id
from .works import Works


class Running:
    """The ways to run kernels of one e-graph on one machine."""

    def __init__(self, works: Works) -> None:
        self.works, self.view, self.model, self.tiling = works, works.view, works.model, works.tiling
        self._walks: dict[Item, tuple[Schedule, ...]] = {}
        self._timers: dict[Schedule | None, Timer] = {}
        self._many: dict[Timer, Callable[[Sequence[Any]], Any]] = {}
        self._same: dict[Schedule, Schedule] = {}
        self._loops: dict[tuple[Hashable, ...], Sequence[tuple[Schedule, Timer]]] = {}

    def spread(self, work: Work, shape: Sequence[int], items: Mapping[Key, Item], size: int = 0) -> Work:
        """The work of a kernel of loops that fills ``shape`` with the blocks that suit it, where the machine has any. ``size``:
        bytes of an element, see :meth:`Tiling.loops`."""
        if self.tiling is None or work.schedule is not None:
            return work
        folds = fold_of(self.view, items, shape, self.works.bytes)
        amounts = amounts_of(work)
        common = in_common(self.view, items.items(), shape)
        widest = max((self.along(key, item, shape) for key, item in items.items()), default=0)
        ways = self.ways(tuple(shape), size, folds, common, max(size, widest))
        best, _ = min(ways, key=lambda way: way[1](amounts))
        return replace(work, schedule=best)

    def walked(self, work: Work, items: Mapping[Key, Item]) -> Work:
        """The work of a kernel that walks scores on matrix units, in the tiles that suit it: all its Streams together, as is best for
        the one that takes longest."""
        walks = [found for key, item in items.items() if (found := self.streamed(key, item))]
        if self.tiling is None or not walks:
            return work
        amounts = amounts_of(work)

        def seconds(walk: Schedule) -> float:
            return self.timer(walk)(amounts)

        return replace(work, schedule=max((min(each, key=seconds) for each in walks), key=seconds))

    def ways(
        self, shape: tuple[int, ...], size: int, folds: tuple[Fold, ...], common: bool, widest: int
    ) -> Sequence[tuple[Schedule, Timer]]:
        """The ways to run loops, the first of those that take as long whatever they do. ``common``: whether the points of a row need
        sums that they have in common: one block has the row then, and computes them once. ``widest``: see :meth:`Tiling.loops`."""
        assert self.tiling is not None
        key = shape, size, folds, common, widest
        if key not in self._loops:
            found: dict[Timer, Schedule] = {}
            for way in self.tiling.loops(shape, size, folds, widest):
                each = replace(way, row_blocks=1) if common else way
                found.setdefault(self.timer(each), each)
            self._loops[key] = tuple((way, timer) for timer, way in found.items())
        return self._loops[key]

    def along(self, key: Key, item: Item, shape: Sequence[int]) -> int:
        """Bytes of the elements that an item reads along the last axis of ``shape``; 0 where it reads none."""
        if item.head != "Read" or not item.payload[1:] or not item.payload[1]:
            return 0
        last = sum(size > 1 for size in shape) - 1
        terms = item.payload[1][-1].terms  # type: ignore[index]
        moves = any(factor == 1 and isinstance(atom, str) and axis_id(atom) == last for factor, atom in terms)
        return self.view.buffers[str(item.payload[0])].dtype.itemsize if moves else 0

    def timer(self, schedule: Schedule | None) -> Timer:
        """What kernels take that run so."""
        if schedule not in self._timers:
            self._timers[schedule] = timer(self.model, schedule)
        return self._timers[schedule]

    def many(self, timer: Timer) -> Callable[[Sequence[Any]], Any]:
        """What :meth:`timer` gave, of many kernels at once, see :func:`~tinyc.extract.cost.model.timer_of_many`."""
        if timer not in self._many:
            schedule = next(each for each, known in self._timers.items() if known is timer)
            self._many[timer] = timer_of_many(self.model, schedule)
        return self._many[timer]

    def same(self, schedule: Schedule) -> Schedule:
        """One of all that are equal: those that are the same are found in a dict without a look at their fields."""
        return self._same.setdefault(schedule, schedule)

    def streams(self, key: Key, item: Item) -> bool:
        """Whether a kernel that holds this holds a Stream at its output axes, on a GPU."""
        return self.tiling is not None and item.head == "Stream" and outside(self.view.free[key[0]])

    def streamed(self, key: Key, item: Item) -> tuple[Schedule, ...]:
        """The ways to walk a Stream on matrix units, at a kernel's output axes; none of any other item."""
        if self.tiling is None or not self.streams(key, item):
            return ()
        if item not in self._walks:
            self._walks[item] = tuple(map(self.same, self.tiling.walks(item)))
        # a sum of weights alone is walked with the values that they weight
        return self._walks[item] or self.walks.get(item.children[0], ())

    def idle(self, shape: Sequence[int]) -> float:
        """The threads that keep the machine busy over those that the points of ``shape`` have work for, at least 1."""
        row = self.model.hardware
        return max(1.0, row.sms * row.busy_warps * WARP / math.prod(shape)) if self.tiling else 1.0

    @cached_property
    def walks(self) -> Mapping[str, tuple[Schedule, ...]]:
        """How scans are walked, by their classes: as the Streams over them are that weight values."""
        found: dict[str, dict[Schedule, None]] = {}
        for cls, _ in self.works.order if self.tiling else ():
            for item in self.view.items.get(cls, ()):
                if item.head == "Stream" and self.tiling is not None and outside(self.view.free[cls]):
                    found.setdefault(item.children[0], {}).update(
                        dict.fromkeys(map(self.same, self.tiling.walks(item)))
                    )
        return {cls: tuple(each) for cls, each in found.items()}
