"""Where intermediate buffers lie: offsets in one block of memory, reused once a buffer is dead (document 004 §13).

To place intervals of given height so that the block is smallest is NP-hard. The bytes that live at one time are a
lower bound, which placing the buffers one by one, each as low as it fits, reaches or nearly reaches for most programs
if the order is right. So a few orders are tried; the best is repaired a few times by placing first what came to lie
highest; the smallest block of all is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .buffer import ALIGNMENT, BufferInfo, aligned

EFFORT = 6_000_000
"""Pairs of buffers that are looked at (one pass at least): a count, so that the result is the same everywhere."""

REPAIRS = 10


@dataclass(frozen=True)
class Arena:
    """``bytes``: of the whole block. ``lower_bound``: the most bytes that live at one time, each buffer rounded up to
    ``alignment``; no layout needs less."""

    bytes: int = 0
    lower_bound: int = 0
    alignment: int = ALIGNMENT


EMPTY = Arena()


@dataclass(frozen=True)
class Interval:
    """A buffer as the planner sees it: alive from ``start`` to ``end``, inclusive."""

    start: int
    end: int
    size: int


def plan_arena(buffers: Sequence[BufferInfo], alignment: int = ALIGNMENT) -> tuple[Mapping[int, int], Arena]:
    """The offset of each buffer by id, a multiple of ``alignment``, and the block that holds them.

    Buffers that live at one time do not overlap, not even for the one instruction that reads one and writes the other:
    kernels assume so.
    """
    items = [Interval(*buffer.lifetime, aligned(buffer.bytes, alignment)) for buffer in buffers]
    bound = lower_bound(items)
    offsets, size = place(items, bound)
    return {buffer.id: low for buffer, low in zip(buffers, offsets, strict=True)}, Arena(
        size, bound, alignment
    )


def lower_bound(items: Sequence[Interval]) -> int:
    """The most bytes that live at one time."""
    return max(_load(items), default=0)


@dataclass(frozen=True)
class _Layout:
    order: list[int]
    offsets: list[int]
    size: int


def place(items: Sequence[Interval], bound: int = 0) -> tuple[list[int], int]:
    """An offset for each interval and the size of the block. Ends early where the block has ``bound`` bytes."""
    best: _Layout | None = None
    passes = max(1, EFFORT // max(1, len(items)) ** 2)
    for order in islice(_orders(items), passes):
        layout = _first_fit(items, order)
        best = layout if best is None or layout.size < best.size else best
        passes -= 1
        if best.size <= bound:
            break
    assert best is not None
    last = best
    for _ in range(min(passes, REPAIRS)):
        if best.size <= bound:
            break
        last = _first_fit(items, _highest_first(items, last))
        best = last if last.size < best.size else best
    return best.offsets, best.size


def _highest_first(items: Sequence[Interval], layout: _Layout) -> list[int]:
    """The order of ``layout``, with what reaches its end placed first."""
    top = [n for n in layout.order if layout.offsets[n] + items[n].size == layout.size]
    return top + [n for n in layout.order if layout.offsets[n] + items[n].size < layout.size]


def overlaps(items: Sequence[Interval], offsets: Sequence[int]) -> tuple[int, int] | None:
    """The numbers of two intervals that share bytes at one time, or None."""
    alive: list[int] = []
    for number in sorted(range(len(items)), key=lambda n: (items[n].start, n)):
        item, low = items[number], offsets[number]
        alive = [other for other in alive if items[other].end >= item.start]
        if item.size:
            for other in alive:
                if offsets[other] < low + item.size and low < offsets[other] + items[other].size:
                    return other, number
            alive.append(number)
    return None


def _load(items: Sequence[Interval]) -> list[int]:
    """Bytes alive from each time on at which an interval starts or has ended, in order of time."""
    changes: dict[int, int] = {}
    for item in items:
        changes[item.start] = changes.get(item.start, 0) + item.size
        changes[item.end + 1] = changes.get(item.end + 1, 0) - item.size
    total = 0
    loads = []
    for time in sorted(changes):
        total += changes[time]
        loads.append(total)
    return loads


def _orders(items: Sequence[Interval]) -> Iterator[list[int]]:
    """Orders to place in, those first that most often give the smallest block."""
    load = _crowding(items)
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda n: (-items[n].size, items[n].start, items[n].end),
        lambda n: (-load[n], items[n].start - items[n].end, -items[n].size),
        lambda n: (items[n].start - items[n].end, -items[n].size),
        lambda n: (-load[n], -items[n].size),
        lambda n: ((items[n].start - items[n].end - 1) * items[n].size, items[n].start),
        lambda n: (items[n].start, -items[n].size),
    )
    for key in keys:
        yield sorted(range(len(items)), key=key)  # a stable sort: ties in the given order


def _crowding(items: Sequence[Interval]) -> list[int]:
    """For each interval, the most bytes that live at one time during it."""
    times = sorted({time for item in items for time in (item.start, item.end + 1)})
    at = {time: number for number, time in enumerate(times)}
    loads = _array(_load(items))
    return [int(loads[at[item.start] : at[item.end + 1]].max()) for item in items]


def _first_fit(items: Sequence[Interval], order: list[int]) -> _Layout:
    """Places the intervals in ``order``, each as low as it fits beside those placed before that live when it does."""
    starts = np.fromiter((items[n].start for n in order), np.int64, len(order))
    ends = np.fromiter((items[n].end for n in order), np.int64, len(order))
    sizes = _array([items[n].size for n in order])
    lows = np.zeros_like(sizes)
    for turn in range(len(order)):
        beside = np.flatnonzero((starts[:turn] <= ends[turn]) & (ends[:turn] >= starts[turn]))
        if len(beside):
            low = lows[beside]
            ranked = np.argsort(low, kind="stable")
            low = low[ranked]
            top = np.maximum.accumulate((lows[beside] + sizes[beside])[ranked])  # above all that begin lower
            floor = np.concatenate((top[:1] * 0, top))
            fits = np.flatnonzero(floor[:-1] + sizes[turn] <= low)
            lows[turn] = floor[fits[0]] if len(fits) else top[-1]
    offsets = [0] * len(items)
    for n, low in zip(order, lows.tolist(), strict=True):
        offsets[n] = low
    return _Layout(order, offsets, max((low + items[n].size for n, low in enumerate(offsets)), default=0))


def _array(values: Sequence[int]) -> NDArray[np.generic]:
    """As 64-bit numbers, or as Python's where their sum is beyond them (sizes that no machine has)."""
    return np.array(values, np.int64 if sum(values) < 1 << 62 else object)
