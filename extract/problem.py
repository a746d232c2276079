"""What an extraction chooses from: every class that an output can reach, with its options and what they cost."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .choice import Key, children_of, item_work
from .cost import CostModel, Work
from .view import Buffer, Item, View, Way


@dataclass(frozen=True, slots=True)
class Option:
    """An item of a key, with what does not change from pass to pass: own cost, and what it costs more untiled."""

    item: Item
    children: tuple[Key, ...]
    own: float
    untiled: float


class Problem:
    """What all passes share: the keys that an output can reach, operands first, and their options."""

    def __init__(self, view: View, model: CostModel, sizes: Mapping[int, int]) -> None:
        self.view, self.model, self.sizes = view, model, sizes
        self.stored: frozenset[str] = frozenset()
        self.order = _order(view)
        # a contraction over the axes of another reduction can be tiled under a scan, or where rows are kept
        self.rows = model.hardware.rows
        self.scans = self.rows or any(
            item.head == "Scan" for cls, _ in self.order for item in view.items.get(cls, ())
        )
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
        self.depends: dict[str, int] = {}  # axis -> bit set of the keys that depend on it
        for key, number in self.bit.items():
            for axis in view.free.get(key[0], ()):  # a class with no items has none
                for kind in range(3):  # a key has three ways, see relaxation.py
                    self.depends[axis] = self.depends.get(axis, 0) | 1 << number + kind * len(self.order)
        self.read_cost = [
            model.seconds(Work(bytes_read=self.bytes(view.buffers[name]))) for name in self.names
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

    def _option(self, key: Key, item: Item) -> Option:
        own = self.model.seconds(item_work(self.view, key[0], item, scanned=self.scans))
        untiled = 0.0
        if item.head == "Contract":
            loops = self.model.seconds(item_work(self.view, key[0], item, tiled=False))
            untiled = max(loops - own, 0.0)
        return Option(item, children_of(key, item), own, untiled)

    def bytes(self, buffer: Buffer) -> int:
        if buffer.arg is not None:
            return self.sizes.get(buffer.arg, 0)
        size = buffer.dtype.itemsize if buffer.dtype else 0
        for extent in buffer.shape:
            size *= extent
        return size


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
        ):
            yield item


def _is_guard(view: View, item: Item) -> bool:
    cond, _, other = item.children
    return any(choice.head == "Within" for choice in view.items.get(cond, ())) and any(
        choice.head == "Const" and choice.payload[1] == 0 for choice in view.items.get(other, ())
    )
