"""Who accessed which bytes last, and whether a new access is ordered after that.

Bytes are watched in cells: the width of the narrowest access that the kernel has to this memory, so that accesses of
neighbouring cells never touch the same bytes. A cell remembers its last writer, and its visitors since: for shared memory
the lanes of every warp, for global memory those of the last :data:`WARPS` warps or so, each with the time of
:mod:`.clocks`. Copies that are in flight are writes at a time that is ordered before nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .clocks import BEFORE, IN_FLIGHT, NEVER, Clocks
from .findings import Findings, Kind
from .ptx import Instruction
from .threads import WARP, Threads
from .types import Array

#: how many reading warps a cell of global memory remembers
WARPS = 4
_NOBODY = -1
_WAIT = "wait for its group first, then let the threads synchronise"


class Visitors:
    """Which lanes of which warps accessed each cell, and when; of each warp that has the same column the last ones."""

    def __init__(self, count: int, columns: int) -> None:
        self.columns = columns
        self.warp = np.zeros(count * columns, np.int32)  # zeros take no memory until they are touched
        self.lanes = np.zeros(count * columns, np.uint32)
        self.time = np.zeros(count * columns, np.int32)
        self.at = np.zeros(count * columns, np.int32)

    def add(self, entry: Array, warp: Array, bits: Array, now: Array, floor: Array, at: int) -> None:
        """One access each. ``floor``: who knows of one lane's access since then knows of all that the warp did before it,
        which need not be remembered."""
        new = (self.time[entry] <= floor) | (self.warp[entry] != warp)
        if new.any():
            fresh = entry[new]
            self.lanes[fresh] = 0
            self.warp[fresh] = warp[new]
            self.time[fresh] = now[new]
        np.bitwise_or.at(self.lanes, entry, bits)
        self.at[entry] = at

    def clear(self, cells: Array) -> None:
        entries = self.entries(cells)
        self.lanes[entries] = 0
        self.time[entries] = BEFORE

    def entries(self, cells: Array) -> Array:
        return cells[:, None] * self.columns + np.arange(self.columns)


class Cells:
    """What is remembered of a memory of ``size`` bytes.

    The last plain write of each cell, and since then the plain reads, and the strong reads and writes, which race with
    plain accesses and not with each other.
    """

    def __init__(self, size: int, width: int, columns: int, one_block: bool) -> None:
        """``width``: bytes of a cell, a power of two. ``one_block``: the threads that access a cell are of one block."""
        self.count = -(-size // width)
        self.shift, self.width, self.columns = width.bit_length() - 1, width, columns
        self.one_block = one_block
        self.writer = np.full(self.count, _NOBODY, np.int32)
        self.write_time = np.full(self.count, NEVER, np.int32)
        self.write_at = np.zeros(self.count, np.int32)
        self.reads = Visitors(self.count, columns)
        #: made when the first strong access is
        self.strong_reads: Visitors | None = None
        self.strong_writes: Visitors | None = None
        #: copies in flight that still read the cell
        self.sources = np.zeros(self.count, np.int16)

    def strong(self) -> tuple[Visitors, Visitors]:
        if self.strong_reads is None or self.strong_writes is None:
            self.strong_reads = Visitors(self.count, self.columns)
            self.strong_writes = Visitors(self.count, self.columns)
        return self.strong_reads, self.strong_writes

    def fill(self, start: int, size: int) -> None:
        """Bytes that have a value before the kernel runs."""
        part = slice(start >> self.shift, -(-(start + size) >> self.shift))
        self.write_time[part] = BEFORE

    def of(self, offsets: Array, size: int) -> tuple[Array, int]:
        """The cells of accesses of ``size`` bytes, and how many each has."""
        each = max(size >> self.shift, 1)
        first = offsets >> self.shift
        if each == 1:
            return first, 1
        return (first[:, None] + np.arange(each)).ravel(), each


@dataclass(frozen=True, slots=True)
class _Access:
    """Cells, ``each`` of every lane, and whose they are; ``addresses``: one per lane. ``does``: read or write."""

    cells: Array
    who: Array
    each: int
    addresses: Array
    at: int
    does: str


class Watch:
    """Holds every access of one machine to one memory against the accesses before it."""

    def __init__(
        self,
        space: str,
        cells: Cells,
        threads: Threads,
        clocks: Clocks,
        findings: Findings,
        instructions: Sequence[Instruction],
    ) -> None:
        self.space, self.cells = space, cells
        self.threads, self.clocks, self.findings = threads, clocks, findings
        self.instructions = instructions

    def read(self, slots: Array, offsets: Array, addresses: Array, size: int, at: int, strong: bool) -> None:
        """Lane by lane, ``size`` bytes at ``offsets`` of the memory's array. ``at``: the number of the instruction.

        ``addresses`` are what a finding shows. ``strong``: a relaxed, acquire or volatile access, or an atomic.
        """
        access = self._access(slots, offsets, addresses, size, at, "read")
        self._against_writer(access)
        memory = self.cells
        if strong:
            self._visit(memory.strong()[0], access)
            return
        if memory.strong_writes is not None:
            self._against(memory.strong_writes, access, "atomic write")
        self._visit(memory.reads, access)

    def write(
        self,
        slots: Array,
        offsets: Array,
        addresses: Array,
        size: int,
        at: int,
        strong: bool = False,
        in_flight: bool = False,
    ) -> None:
        """As :meth:`read`. ``in_flight``: the write happens some time from now on, until :meth:`landed`."""
        access = self._access(slots, offsets, addresses, size, at, "write")
        memory, cells, who = self.cells, access.cells, access.who
        self._against_writer(access)
        self._against_copies(access)
        self._against(memory.reads, access, "read")
        if strong:
            self._visit(memory.strong()[1], access)
            never = cells[memory.write_time[cells] == NEVER]
            memory.writer[never], memory.write_time[never] = _NOBODY, BEFORE
            return
        if memory.strong_reads is not None and memory.strong_writes is not None:
            self._against(memory.strong_reads, access, "strong read")
            self._against(memory.strong_writes, access, "atomic write")
            memory.strong_reads.clear(cells)
            memory.strong_writes.clear(cells)
        memory.reads.clear(cells)
        grid = who + self.threads.first
        memory.writer[cells] = grid
        twice = np.flatnonzero(memory.writer[cells] != grid)
        if len(twice):
            self._race(access, twice, "write", memory.writer[cells[twice]], np.full(len(twice), at))
        memory.write_time[cells] = IN_FLIGHT if in_flight else self.clocks.now[self.threads.warp[who]]
        memory.write_at[cells] = at

    def changed(self, slots: Array, offsets: Array, addresses: Array, size: int, at: int) -> None:
        """Finds bytes that the kernel has written, for a read through a cache that does not see writes."""
        access = self._access(slots, offsets, addresses, size, at, "read")
        times = self.cells.write_time[access.cells]
        written = np.flatnonzero((times != BEFORE) & (times != NEVER))
        if len(written):
            site = int(self.cells.write_at[access.cells[written[0]]])
            why = f"ld.global.nc may not see what the kernel itself writes ({self._place(site)})"
            self._add("read-only", access, written, why, site)

    def landed(self, slots: Array, offsets: Array, size: int) -> None:
        """The writes in flight of these threads are over for the threads themselves."""
        cells, each = self.cells.of(offsets, size)
        who = np.repeat(slots, each)
        own = self.cells.writer[cells] == who + self.threads.first
        own &= self.cells.write_time[cells] == IN_FLIGHT
        self.cells.write_time[cells[own]] = self.clocks.now[self.threads.warp[who[own]]]

    def source(self, offsets: Array, size: int, change: int) -> None:
        """One more copy in flight (``change`` 1) reads these bytes, or one less (-1)."""
        cells, _ = self.cells.of(offsets, size)
        np.add.at(self.cells.sources, cells, np.int16(change))

    # ---- conflicts -------------------------------------------------------------------------------------------------

    def _access(
        self, slots: Array, offsets: Array, addresses: Array, size: int, at: int, does: str
    ) -> _Access:
        cells, each = self.cells.of(offsets, size)
        who = np.repeat(slots, each) if each > 1 else slots
        return _Access(cells, who, each, addresses, at, does)

    def _visit(self, visitors: Visitors, access: _Access) -> None:
        warp = self.threads.warp[access.who]
        grid_warp = warp + self.threads.first // WARP
        column = (
            self.threads.warp_in_block[access.who] if self.cells.one_block else grid_warp % visitors.columns
        )
        bits = np.left_shift(np.uint32(1), self.threads.lane[access.who].astype(np.uint32))
        entry = access.cells * visitors.columns + column
        visitors.add(entry, grid_warp, bits, self.clocks.now[warp], self.clocks.warp_floor[warp], access.at)

    def _against_writer(self, access: _Access) -> None:
        memory, cells, who = self.cells, access.cells, access.who
        times, writers = memory.write_time[cells], memory.writer[cells]
        suspects = self.clocks.unordered(who, writers, times, memory.one_block)
        if not len(suspects):
            return
        times, writers, slots = times[suspects], writers[suspects], who[suspects]
        sites = memory.write_at[cells[suspects]]
        flying, never = times == IN_FLIGHT, times == NEVER
        if flying.any():
            site, other = int(sites[flying][0]), self._name(int(writers[flying][0]))
            why = f"a cp.async of {other} into these bytes may still be running ({self._place(site)})"
            self._add("in-flight", access, suspects[flying], f"{why}; {_WAIT}", site)
        if never.any() and access.does == "read":
            self._add("uninitialised", access, suspects[never], "nothing has written these bytes", access.at)
        bad = ~flying & ~never & ~self.clocks.ordered(slots, writers, times)
        self._race(access, suspects[bad], "write", writers[bad], sites[bad])

    def _against_copies(self, access: _Access) -> None:
        memory = self.cells
        if memory.sources.any() and len(reading := np.flatnonzero(memory.sources[access.cells])):
            why = f"a cp.async from these bytes may still be running; {_WAIT}"
            self._add("in-flight", access, reading, why, access.at)

    def _against(self, visitors: Visitors, access: _Access, did: str) -> None:
        """Against other lanes than the own one; those that a barrier of the block has ordered are passed over first."""
        clocks, threads, who = self.clocks, self.threads, access.who
        entries = visitors.entries(access.cells)
        lanes = visitors.lanes[entries]
        warps = visitors.warp[entries]
        relative = warps - threads.first // WARP
        own = np.left_shift(np.uint32(1), threads.lane[who].astype(np.uint32))
        lanes &= ~np.where(relative == threads.warp[who][:, None], own[:, None], np.uint32(0))
        late = visitors.time[entries] > clocks.block_floor.take(relative, mode="clip")
        if not self.cells.one_block:
            late |= relative // threads.warps_per_block != threads.block[who][:, None]
        positions, column = np.nonzero((lanes != 0) & late)
        if not len(positions):
            return
        entry = entries[positions, column]
        there = (lanes[positions, column][:, None] >> np.arange(WARP, dtype=np.uint32)) & 1 == 1
        others = warps[positions, column][:, None] * WARP + np.arange(WARP)
        times = np.repeat(visitors.time[entry], WARP)
        ordered = clocks.ordered(np.repeat(who[positions], WARP), others.ravel(), times)
        bad = there & ~ordered.reshape(there.shape)
        some = bad.any(axis=1)
        other = others[np.arange(len(others)), bad.argmax(axis=1)]
        self._race(access, positions[some], did, other[some], visitors.at[entry][some])

    # ---- reports ---------------------------------------------------------------------------------------------------

    def _race(self, access: _Access, positions: Array, did: str, others: Array, sites: Array) -> None:
        """One finding for each instruction that these cells clash with. ``others``: slots in the grid."""
        for site in np.unique(sites).tolist():
            here = sites == site
            other = self._name(int(others[here][0]))
            why = f"the {did} of {other} ({self._place(site)}) is not ordered before this {access.does}"
            if site == access.at and did == access.does:
                why = f"{other} writes the same bytes here, and neither is ordered before the other"
            self._add("race", access, positions[here], why, site)

    def _add(self, kind: Kind, access: _Access, positions: Array, why: str, site: int) -> None:
        first, each = int(positions[0]), access.each
        address = int(access.addresses[first // each]) + first % each * self.cells.width
        slot = int(access.who[first]) + self.threads.first
        instruction, line = self.instructions[access.at], self.instructions[site].line
        self.findings.add(
            kind, instruction, self.threads, slot, why, self.space, address, len(positions), line
        )

    def _place(self, site: int) -> str:
        found = self.instructions[site]
        return f"PTX line {found.line}" + (f", {found.cuda}" if found.cuda else "")

    def _name(self, slot: int) -> str:
        block, inner = divmod(slot, self.threads.stride)
        return f"block {self.threads.block_name(block)}, warp {inner // WARP}, lane {inner % WARP}"
