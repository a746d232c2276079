"""Sums of a kernel of the e-graph whose threads may be shared: :mod:`tinyc.ir.folds`, before there is a Region."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tinyc.ir.folds import Fold
from tinyc.ir.rows import COMMON

from .choice import Key, bound_axes, children_of, outside
from .cost.model import points
from .view import LEVEL, Buffer, Item, View, axis_id


def sum_points(view: View, key: Key, item: Item) -> int:
    """The points of a sum at the kernel's output axes; 0 of anything else."""
    if item.head not in ("Reduce", "Contract") or key[1] or not outside(view.free[key[0]]):
        return 0
    return int(points(bound_axes(item)))


def folds(view: View, key: Key, item: Item, shape: Sequence[int]) -> bool:
    """Whether an item is a sum that each point along a row of ``shape`` has for itself."""
    if sum_points(view, key, item) < 2:
        return False
    last = sum(size > 1 for size in shape) - 1
    return last < 0 or last in map(axis_id, view.free[key[0]])


Sum = tuple[int, frozenset[int]]
"""What a class may be as a sum: its points, and the numbers of the output axes that it depends on."""


def sums(view: View, items: Mapping[Key, Iterable[Item]]) -> Mapping[Key, frozenset[Sum]]:
    """All sums at a kernel's output axes."""
    found = {
        key: frozenset(
            (count, frozenset(map(axis_id, view.free[key[0]])))
            for item in each
            if (count := sum_points(view, key, item)) > 1
        )
        for key, each in items.items()
    }
    return {key: each for key, each in found.items() if each}


def shared(known: Iterable[Sum], shape: Sequence[int]) -> tuple[Fold, ...]:
    """The sums that threads may share in a kernel that fills ``shape``, if it computes some of these."""
    last = sum(size > 1 for size in shape) - 1
    found = {count for count, axes in known if last < 0 or last in axes}
    return tuple(Fold(count, "", along) for count in sorted(found) for along in (True, False))


def fold_of(
    view: View, items: Mapping[Key, Item], shape: Sequence[int], size: Callable[[Buffer], int]
) -> tuple[Fold, ...]:
    """The sums that threads may share in the kernel that fills ``shape`` by ``items``; none or one. ``size``: bytes."""
    sums = {key: item for key, item in items.items() if folds(view, key, item, shape)}
    if not sums:
        return ()
    summed = {axis for item in sums.values() for axis in bound_axes(item)}
    most = (-1, False)
    for key in _beneath(sums, items):
        if items[key].head == "Read":
            name, index = items[key].payload
            moves = bool(index) and bool(index[-1].axes() & summed)  # type: ignore[index]
            most = max(most, (size(view.buffers[str(name)]), moves))
    return (Fold(min(int(points(bound_axes(item))) for item in sums.values()), "", most[1]),)


def ways_along(
    view: View,
    items: Mapping[Key, Item],
    shape: Sequence[int],
    size: Callable[[Buffer], int],
    beneath: tuple[int, int],
) -> tuple[bool, ...]:
    """What :attr:`~tinyc.ir.folds.Fold.along` may be of a kernel with these ``items`` and others of which only the largest buffers that
    they read are known (``beneath``: bytes of those that may be read along a summed axis, and of all)."""
    sums = {key: item for key, item in items.items() if folds(view, key, item, shape)}
    summed = {axis for item in sums.values() for axis in bound_axes(item)}
    surely, maybe = {True: -1, False: -1}, dict(zip((True, False), beneath, strict=True))
    for key in _beneath(sums, items):
        if items[key].head == "Read":
            name, index = items[key].payload
            bytes_ = size(view.buffers[str(name)])
            axes = index[-1].axes() if index else frozenset[str]()  # type: ignore[index]
            moves = bool(axes & summed)
            # the others may bind axes of these names as well
            if moves or not any(axis_id(axis) >= LEVEL for axis in axes):
                surely[moves] = max(surely[moves], bytes_)
            else:
                maybe = {each: max(most, bytes_) for each, most in maybe.items()}
    able = {each: max(surely[each], maybe[each]) for each in (True, False)}
    possible = {True: able[True] >= surely[False], False: able[False] > surely[True]}
    return tuple(each for each in (True, False) if possible[each])


def _beneath(sums: Iterable[Key], items: Mapping[Key, Item]) -> set[Key]:
    """These and what they are computed from."""
    seen, pending = set[Key](), [key for key in sums if key in items]
    while pending:
        key = pending.pop()
        if key not in seen:
            seen.add(key)
            pending += [child for child in children_of(key, items[key]) if child in items]
    return seen


def in_common(view: View, items: Iterable[tuple[Key, Item]], shape: Sequence[int]) -> bool:
    """Whether the points of a row of ``shape`` need sums that they have in common, of elements that lie along it, as
    :func:`tinyc.ir.rows.common_sums` says of a Region; whether they may, where ``items`` are all that a kernel may hold."""
    last = sum(size > 1 for size in shape) - 1
    summed, along = set[str](), set[str]()
    for key, item in items:
        if item.head in ("Reduce", "Contract") and last not in map(axis_id, view.free[key[0]]):
            axes = bound_axes(item)
            summed |= {axes[-1]} if points(axes) >= COMMON else set()
        if item.head == "Read" and item.payload[1:] and item.payload[1]:
            along |= item.payload[1][-1].axes()  # type: ignore[index]
    return not summed.isdisjoint(along)
