"""``bar.sync``, ``bar.arrive`` and ``bar.red``: threads of a block that wait for each other. PTX ISA, "bar, barrier".

A barrier counts warps: it is complete when as many threads as it was given (without a number, the whole block) have come
with their warps; ``barrier.sync`` that is not ``.aligned`` counts lanes, which may come one by one and at different places. Who
waits goes on; who only arrived has long gone on. A barrier of the whole block waits only for threads that have not ended; that
some ended first is found all the same, unless it is excused, for it is seldom meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .ptx import Instruction
from .threads import WARP, Lanes
from .types import Array

if TYPE_CHECKING:
    from .machine import Machine


#: how many barriers a block has
BARRIERS = 16


@dataclass
class _Arrival:
    """Lanes of one block that came at one instruction. ``result``: the register for what bar.red finds."""

    pc: int
    instruction: Instruction
    lanes: Lanes
    waits: bool
    predicate: Array | None
    result: tuple[int, str] | None
    aligned: bool


@dataclass
class _Barrier:
    """``wanted``: threads; None for the whole block."""

    wanted: int | None
    arrivals: list[_Arrival] = field(default_factory=list)

    @property
    def arrived(self) -> int:
        return sum(
            WARP * each.lanes.warp_count if each.aligned else len(each.lanes) for each in self.arrivals
        )


class Barriers:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._open: dict[tuple[int, int], _Barrier] = {}

    @property
    def waiting(self) -> bool:
        """Whether threads wait that have not ended."""
        return any(each.waits for barrier in self._open.values() for each in barrier.arrivals)

    def arrive(
        self,
        pc: int,
        lanes: Lanes,
        names: Array,
        counts: Array | None,
        waits: bool,
        predicate: Array | None = None,
        result: tuple[int, str] | None = None,
        aligned: bool = True,
    ) -> None:
        """``names``: which of the barriers, per lane; ``counts``: of how many threads. ``result``: of bar.red."""
        machine, threads = self.machine, self.machine.threads
        instruction = machine.steps[pc].instruction
        whole = counts is None and not self._open and predicate is None and bool((names == names[0]).all())
        if whole and waits and len(lanes) == threads.existing:
            machine.clocks.block_barrier(np.unique(threads.block[lanes.index]))
            machine.copies.pass_time()
            machine.put(pc + 1, lanes)
            return
        # a barrier that counts threads opens as soon as enough warps have come, and others that come are of its next turn
        group = threads.block if counts is None else threads.warp
        key = group[lanes.index] * BARRIERS + names
        for each in np.unique(key):
            here = key == each
            part = Lanes(lanes.index[here], False)
            place = int(threads.block[part.index[0]]), int(names[here][0])
            wanted = None if counts is None else int(counts[here][0])
            barrier = self._open.setdefault(place, _Barrier(wanted))
            if barrier.wanted != wanted:
                self._unequal(barrier, instruction, part, wanted)
            own = predicate[here] if predicate is not None else None
            barrier.arrivals.append(_Arrival(pc, instruction, part, waits, own, result, aligned))
            if not waits:
                machine.put(pc + 1, part)
            self._try(*place)

    def _unequal(self, barrier: _Barrier, instruction: Instruction, lanes: Lanes, wanted: int | None) -> None:
        named = {True: "all threads"}.get(wanted is None, f"{wanted} threads")
        before = {True: "all threads"}.get(barrier.wanted is None, f"{barrier.wanted} threads")
        why = f"this barrier is for {named} here, and for {before} at PTX line {barrier.arrivals[0].instruction.line}"
        slot = int(lanes.index[0]) + self.machine.threads.first
        self.machine.findings.add("barrier", instruction, self.machine.threads, slot, why, count=len(lanes))

    def _wanted(self, barrier: _Barrier) -> int:
        threads = self.machine.threads
        whole = all(each.aligned for each in barrier.arrivals)
        return barrier.wanted or (threads.warps_per_block * WARP if whole else threads.per_block)

    def _try(self, block: int, name: int, without_ended: bool = False) -> bool:
        """Opens the barrier if enough have come, or all that are still alive."""
        barrier, threads = self._open[block, name], self.machine.threads
        alive = self.machine.alive & (threads.block == block)
        aligned = all(each.aligned for each in barrier.arrivals)
        if barrier.arrived < self._wanted(barrier):
            living = int(alive.reshape(-1, WARP).any(axis=1).sum()) * WARP if aligned else int(alive.sum())
            if barrier.wanted is not None or not without_ended or barrier.arrived < living:
                return False
        if barrier.wanted is None and int(alive.sum()) < threads.per_block and not self.machine.excuse_ended:
            self._report_ended(barrier, threads.per_block - int(alive.sum()))
        del self._open[block, name]
        machine = self.machine
        waiting = [each for each in barrier.arrivals if each.waits]
        slots = np.sort(np.concatenate([each.lanes.index for each in barrier.arrivals]))
        stays = np.concatenate([each.lanes.index for each in waiting]) if waiting else slots[:0]
        everyone = len(stays) == len(slots) == int(alive.sum())
        if everyone:
            machine.clocks.block_barrier(np.array([block]))
        else:
            passing = np.setdiff1d(slots, stays)
            machine.clocks.barrier(stays, passing, whole_warps=aligned)
        machine.copies.pass_time()
        self._reduce(waiting)
        for each in waiting:
            machine.put(each.pc + 1, self._known(each.lanes))
        return True

    def _known(self, lanes: Lanes) -> Lanes:
        return Lanes(lanes.index, len(lanes) == self.machine.living)

    def _reduce(self, arrivals: list[_Arrival]) -> None:
        """What ``bar.red`` finds of all predicates: how many are true, whether one is, whether all are."""
        values = [each.predicate for each in arrivals if each.predicate is not None]
        if not values:
            return
        every = np.concatenate(values)
        for each in arrivals:
            if each.result is None:
                continue
            register, what = each.result
            lanes = self._known(each.lanes)
            found = {"popc": int(every.sum()), "or": bool(every.any()), "and": bool(every.all())}[what]
            dtype = np.uint32 if what == "popc" else np.bool_
            self.machine.write(register, lanes, np.full(self.machine.width(lanes), found, dtype))

    def release_for_ended(self) -> bool:
        """Opens a barrier of a whole block for which all wait that are still alive."""
        return any(self._try(*key, without_ended=True) for key in list(self._open))

    def _report_ended(self, barrier: _Barrier, ended: int) -> None:
        first = barrier.arrivals[0]
        why = f"this barrier is for the whole block, of which {ended} threads ended without reaching it"
        slot = int(first.lanes.index[0]) + self.machine.threads.first
        self.machine.findings.add("barrier", first.instruction, self.machine.threads, slot, why)

    def report(self) -> None:
        """Who waits for ever."""
        machine, threads = self.machine, self.machine.threads
        for (block, name), barrier in sorted(self._open.items()):
            for each in barrier.arrivals:
                if not each.waits:
                    continue
                alive = int(machine.alive[threads.block == block].sum())
                ended = threads.per_block - alive
                wanted = self._wanted(barrier)
                why = f"barrier {name} waits for {wanted} threads, and only {barrier.arrived} ever come"
                why += f"; {ended} threads of the block have ended" if ended else ""
                slot = int(each.lanes.index[0]) + threads.first
                machine.findings.add("deadlock", each.instruction, threads, slot, why, count=len(each.lanes))
