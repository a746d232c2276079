"""What each option of a key costs by itself, which the passes add up before a kernel is known."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from .choice import Key, as_copy, children_of, item_work
from .cost.model import Work
from .running import Running
from .view import LEVEL, Item, axis_extent, axis_id


@dataclass(frozen=True, slots=True)
class Option:
    """An item of a key, with what does not change from pass to pass: own cost, what it costs more untiled, and what a
    Read costs less where it is all that a kernel does: a copy goes through shared memory."""

    item: Item
    children: tuple[Key, ...]
    own: float
    untiled: float
    copied: float = 0.0


class Options:
    """Makes the options of one e-graph. ``scans``: whether a contraction over the axes of another reduction can be tiled."""

    def __init__(self, running: Running, scans: bool) -> None:
        self.running, self.works, self.scans = running, running.works, scans
        self.view, self.model, self.tiling = running.view, running.model, running.tiling
        self._costs: dict[Hashable, tuple[float, float, float]] = {}

    def option(self, key: Key, item: Item) -> Option:
        return Option(item, children_of(key, item), *self._cost(key, item))

    def _cost(self, key: Key, item: Item) -> tuple[float, float, float]:
        """What an option costs, see :class:`Option`."""
        if item.head in ("Scan", "Stream"):
            own = self.model.seconds(self.works.guessed(key, item, "scanned" if self.scans else "tiled"))
            walks = self.running.walks.get(key[0], ()) or self.running.streamed(key, item)
            idle = min((self.running.idle((walk.blocks, walk.threads)) for walk in walks), default=1.0)
            return own * idle, 0.0, 0.0
        product = item.head == "Reduce" and any(each.head == "Contract" for each in self.view.items[key[0]])
        kind = self.works.kind(key, item), product
        if kind not in self._costs:
            self._costs[kind] = self._cost_of(key, item, product)
        return self._costs[kind]

    def _cost_of(self, key: Key, item: Item, product: bool) -> tuple[float, float, float]:
        """``product``: whether a Reduce is the sum of a product."""
        if item.head == "Read":
            work = self.works.work(key, item)
            own = self.model.seconds(work)
            return own, 0.0, own - self.model.seconds(as_copy(work))
        contract = item.head == "Contract"
        own = self.model.seconds(
            self.works.guessed(key, item, "scanned" if self.scans and contract else "tiled")
        )
        if product:
            own += self._standing(key, self.works.guessed(key, item))
        if not contract:
            return own, 0.0, 0.0
        turns = self.works.guessed(key, item, "loops")
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
        both = turns + turns
        idle = self.model.kernel(self.running.spread(both, shape, {})) - self.model.kernel(both)
        return max(0.0, idle)

    def _scheduled(self, key: Key, item: Item) -> float:
        """What a contraction takes beside loading its operands once, with the blocks that its result has."""
        schedule = self.works.schedule(key, item)
        if schedule is None:
            return 0.0
        loaded = self.works.loaded(item)
        work = replace(item_work(self.view, key[0], item) + loaded, schedule=schedule)
        return self.model.kernel(work) - self.model.kernel(loaded)
