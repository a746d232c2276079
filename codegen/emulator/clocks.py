"""Happens-before: which accesses of other threads a thread knows to be over. PTX ISA, "Memory Consistency Model".

Every warp has a time that passes when one of its threads synchronises; an access happens at a thread and a time. What a
thread knows of another is the latest time up to which all that the other did happened before. Vector clocks of all
threads would be as many rows as threads; most of them are the same, so that what all threads of a block know, what all
lanes of a warp know of each other, and what single threads know are kept apart. Knowledge of threads of other blocks,
which comes through fences and atomics alone, is a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from .threads import WARP, Threads
from .types import Array

#: the time of what was there before the kernel; later than it are all times of threads
BEFORE = 0
#: times of accesses that are ordered before nothing: a copy that still runs; bytes that nobody wrote
IN_FLIGHT = 2**31 - 1
NEVER = 2**31 - 2

#: block in the grid -> the known times of its threads
Knowledge = Mapping[int, Array]


def joined(parts: Iterable[Knowledge]) -> Knowledge:
    """What is known by someone who knows all of these."""
    found: dict[int, Array] = {}
    for part in parts:
        for block, row in part.items():
            found[block] = np.maximum(found[block], row) if block in found else row
    return found


class Clocks:
    """The times and the knowledge of all threads of a machine. Slots count in the machine unless said otherwise."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        warps = threads.count // WARP
        self.now = np.ones(warps, np.int32)
        #: per slot: up to when every thread of its block knows of it
        self.block_known = np.zeros(threads.count, np.int32)
        #: per slot: up to when every lane of its warp knows of it
        self.warp_known = np.zeros(threads.count, np.int32)
        #: per warp: up to when all of its lanes are known to its block; and up to when who knows of one knows of all
        self.block_floor = np.zeros(warps, np.int32)
        self.warp_floor = np.zeros(warps, np.int32)
        #: slot, thread in the block: what single threads know beyond that; made when first needed
        self.single: Array | None = None
        self.foreign: dict[int, Knowledge] = {}
        #: slot -> what it knew at its last fence; address -> what a thread learns that reads it and then fences; both for
        #: threads of one block, or under None for all
        self.fenced: dict[int, dict[int | None, Knowledge]] = {}
        self.published: dict[int, dict[int | None, Knowledge]] = {}
        #: slot -> what it has read and not fenced
        self.unfenced: dict[int, Knowledge] = {}

    # ---- synchronisation -------------------------------------------------------------------------------------------

    def block_barrier(self, blocks: Array) -> None:
        """All threads of these blocks wait for each other."""
        self._settle(np.flatnonzero(np.isin(self.threads.block, blocks)) if self.unfenced else ())
        warps = np.isin(self.threads.block[::WARP], blocks)
        every = np.repeat(warps, WARP)
        now = np.repeat(self.now, WARP)
        self.block_known[every] = now[every]
        self.warp_known[every] = now[every]
        self.block_floor[warps] = self.warp_floor[warps] = self.now[warps]
        self.now[warps] += 1
        if self.foreign:
            for block in blocks:
                self._share(np.flatnonzero(self.threads.block == block))

    def warp_barrier(self, warps: Array) -> None:
        """All living lanes of these warps wait for each other."""
        slots = (warps[:, None] * WARP + np.arange(WARP)).ravel()
        self._settle(slots if self.unfenced else ())
        self.warp_known[slots] = np.repeat(self.now[warps], WARP)
        self.warp_floor[warps] = self.now[warps]
        self.now[warps] += 1
        if self.single is not None:
            rows = self.single[slots].reshape(len(warps), WARP, -1)
            self.single[slots] = np.repeat(rows.max(axis=1), WARP, axis=0)
        if self.foreign:
            for warp in warps:
                self._share(np.arange(warp * WARP, (warp + 1) * WARP))

    def barrier(self, waiting: Array, arriving: Array, whole_warps: bool = False) -> None:
        """``waiting`` threads of one block wait for each other and for ``arriving`` ones, which do not wait.

        ``whole_warps``: all lanes of a warp come together, so that who knows of one knows of all.
        """
        self._settle(waiting if self.unfenced else ())
        every = np.concatenate([waiting, arriving])
        row = np.maximum.reduce([self.row(int(slot)) for slot in self._representatives(every)])
        row[every % self.threads.stride] = self.now[every // WARP]
        single = self._singles()
        single[waiting] = np.maximum(single[waiting], row)
        warps = np.unique(every // WARP)
        if whole_warps:
            self.warp_known[waiting] = self.now[waiting // WARP]
            self.warp_floor[warps] = self.now[warps]
        self.now[warps] += 1
        if self.foreign:
            self._share(waiting, every)

    def _representatives(self, slots: Array) -> Array:
        """Of threads that all synchronise: those that between them know all that these know."""
        if self.single is not None:
            return slots
        _, first = np.unique(slots // WARP, return_index=True)
        return slots[first]

    def _singles(self) -> Array:
        if self.single is None:
            self.single = np.zeros((self.threads.count, self.threads.stride), np.int32)
        return self.single

    def row(self, slot: int) -> Array:
        """A copy of what a thread knows of the threads of its block, itself included."""
        first = slot // self.threads.stride * self.threads.stride
        row = self.block_known[first : first + self.threads.stride].copy()
        warp = slot // WARP * WARP
        part = slice(warp - first, warp - first + WARP)
        row[part] = np.maximum(row[part], self.warp_known[warp : warp + WARP])
        if self.single is not None:
            row = np.maximum(row, self.single[slot])
        row[slot - first] = self.now[slot // WARP]
        return row

    # ---- fences and atomics ----------------------------------------------------------------------------------------

    def fence(self, slots: Array, wide: bool) -> None:
        """What these threads read so far is ordered before what they do next, and what they did before what they write.

        ``wide``: for threads of other blocks too.
        """
        self._settle(slots, wide)
        for slot in slots.tolist():
            block = None if wide else self._block(slot)
            self.fenced[slot] = {**self.fenced.get(slot, {}), block: self._knowledge(slot)}
        self.now[np.unique(slots // WARP)] += 1

    def publish(self, slot: int, address: int, adds: bool) -> None:
        """A strong write after a fence. ``adds``: a read-modify-write, which keeps what others published there."""
        mine = self.fenced.get(slot, {})
        before = self.published.pop(address, {}) if adds else {}
        if mine or before:
            self.published[address] = {
                block: joined([before.get(block, {}), mine.get(block, {})]) for block in {*mine, *before}
            }
        else:
            self.published.pop(address, None)

    def observe(self, slot: int, address: int) -> None:
        """A strong read: what was published there is known after the next fence."""
        if (found := self.published.get(address)) is not None:
            parts = (found.get(None, {}), found.get(self._block(slot), {}))
            self.unfenced[slot] = joined([self.unfenced.get(slot, {}), *parts])

    def _block(self, slot: int) -> int:
        return self.threads.first_block + slot // self.threads.stride

    def _knowledge(self, slot: int) -> Knowledge:
        return joined([self.foreign.get(slot, {}), {self._block(slot): self.row(slot)}])

    def _settle(self, slots: Iterable[int], wide: bool = True) -> None:
        """What these threads have read becomes known to them; what concerns other blocks only by a ``wide`` fence.

        A barrier does so too: programs that wait for a counter and then for a barrier are many, and right in practice.
        """
        for slot in map(int, slots):
            if (found := self.unfenced.pop(slot, None)) is None:
                continue
            own = self._block(slot)
            if own in found:
                single = self._singles()
                single[slot] = np.maximum(single[slot], found[own])
            others = {block: row for block, row in found.items() if block != own}
            if wide:
                self.foreign[slot] = joined([self.foreign.get(slot, {}), others])
            else:
                self.unfenced[slot] = others

    def _share(self, learning: Array, telling: Array | None = None) -> None:
        parts = {id(part): part for slot in (learning if telling is None else telling).tolist()
                 if (part := self.foreign.get(slot)) is not None}  # fmt: skip
        if parts:
            known = joined(parts.values())
            self.foreign.update({slot: known for slot in learning.tolist()})

    # ---- questions -------------------------------------------------------------------------------------------------

    def unordered(self, slots: Array, others: Array, times: Array, one_block: bool) -> Array:
        """Which of the accesses (``others``: slots in the grid; ``times``) may not be over for the threads ``slots``.

        A quick answer: all others are ordered; those that are given may be, see :meth:`ordered`.
        """
        if one_block:
            known = self.block_known.take(others - self.threads.first, mode="clip")
            return np.flatnonzero(times > known)
        relative = others - self.threads.first
        known = self.block_known.take(relative, mode="clip")
        same = relative // self.threads.stride == self.threads.block[slots]
        return np.flatnonzero((times > BEFORE) & ((times > known) | ~same))

    def ordered(self, slots: Array, others: Array, times: Array) -> Array:
        """Whether each access is over for the thread: one bool each. IN_FLIGHT and NEVER are over for nobody."""
        relative = others - self.threads.first
        inside = (relative >= 0) & (relative < self.threads.count)
        at = np.where(inside, relative, 0)
        same = inside & (self.threads.block[at] == self.threads.block[slots])
        own_warp = self.threads.warp[at] == self.threads.warp[slots]
        good = (at == slots) | (times <= self.block_known[at]) | (own_warp & (times <= self.warp_known[at]))
        if self.single is not None:
            good |= times <= self.single[slots, at % self.threads.stride]
        good &= same & (times < NEVER)
        good |= times == BEFORE
        if self.foreign:
            for position in np.flatnonzero(~good & ~same):
                block, inner = divmod(int(others[position]), self.threads.stride)
                known = self.foreign.get(int(slots[position]), {}).get(block)
                good[position] = known is not None and times[position] <= known[inner]
        return good
