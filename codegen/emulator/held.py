"""Lanes that wait for other lanes of their warps: at exchanges, tensor cores, warp barriers, and before barriers of the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .findings import Kind
from .steps import Flow, Step
from .threads import WARP, Lanes, union
from .types import Array

if TYPE_CHECKING:
    from .machine import Machine


class HeldLanes:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        #: pc -> threads that wait there
        self.waiting: dict[int, Lanes] = {}

    def join(self, pc: int, step: Step, lanes: Lanes) -> Lanes:
        """More lanes come. Gives those that wait for nobody any more; the others are kept."""
        if pc in self.waiting:
            lanes = union((self.waiting.pop(pc), lanes), self.machine.living)
        there = self._complete(step, lanes)
        if there.all():
            return lanes
        self.waiting[pc] = lanes.part(~there)
        return Lanes(lanes.index[there], False)

    def retry(self) -> None:
        """After threads ended: those that waited for them go on."""
        for pc in list(self.waiting):
            step = self.machine.steps[pc]
            if len(complete := self.join(pc, step, self.waiting.pop(pc))):
                self.machine.execute(pc, step, complete)

    def _complete(self, step: Step, lanes: Lanes) -> Array:
        """For each lane, whether all lanes that it waits for are in the group, or have ended."""
        if step.lanes is None and len(lanes) == self.machine.living:
            return np.ones(len(lanes), bool)
        present = np.zeros(self.machine.threads.count, bool)
        present[lanes.index] = True
        missing = pack(self.machine.alive & ~present)[lanes.index // WARP]
        if step.lanes is None:
            return missing == 0
        masks = self.machine.own(step.lanes(self.machine, lanes), lanes)
        alone = missing & masks == 0
        if alone.all():
            return alone
        # a lane goes on only with all of its mask
        waits = np.zeros(self.machine.threads.count, bool)
        waits[lanes.index[~alone]] = True
        return alone & (pack(waits)[lanes.index // WARP] & masks == 0)

    def check_masks(self, step: Step, lanes: Lanes) -> None:
        """A lane must be in its own mask, and the others in it should not have ended."""
        assert step.lanes is not None
        masks = self.machine.own(step.lanes(self.machine, lanes), lanes)
        own = np.left_shift(np.uint32(1), self.machine.threads.lane[lanes.index].astype(np.uint32))
        if len(wrong := np.flatnonzero(masks & own == 0)):
            why = f"its mask {int(masks[wrong[0]]):#x} does not name the lane itself"
            self._missing_lanes(step, int(lanes.index[wrong[0]]), why, len(wrong))
        if self.machine.living == self.machine.threads.existing or self.machine.excuse_ended:
            return
        ended = pack(self.machine.threads.exists & ~self.machine.alive)[lanes.index // WARP] & masks
        if len(wrong := np.flatnonzero(ended)):
            absent = [lane for lane in range(WARP) if int(ended[wrong[0]]) >> lane & 1]
            why = f"its mask names lanes {absent} too, which ended without coming here"
            self._missing_lanes(step, int(lanes.index[wrong[0]]), why, len(wrong))

    def _missing_lanes(self, step: Step, slot: int, why: str, count: int) -> None:
        grid = slot + self.machine.threads.first
        self.machine.findings.add(
            "missing-lanes", step.instruction, self.machine.threads, grid, why, count=count
        )

    def meet_elsewhere(self) -> bool:
        """``bar.warp.sync`` may be reached by the lanes of a warp at different places."""
        places = [pc for pc in self.waiting if self.machine.steps[pc].instruction.name == "bar.warp.sync"]
        if len(places) < 2:
            return False
        present = np.zeros(self.machine.threads.count, bool)
        for pc in places:
            present[self.waiting[pc].index] = True
        masks = np.zeros(self.machine.threads.count, np.uint32)
        for pc in places:
            asks = self.machine.steps[pc].lanes
            assert asks is not None
            masks[self.waiting[pc].index] = self.machine.own(
                asks(self.machine, self.waiting[pc]), self.waiting[pc]
            )
        missing = np.repeat(pack(self.machine.alive & ~present), WARP) & masks
        going = present & (missing == 0)
        same = going & (masks == np.repeat(masks.reshape(-1, WARP).max(axis=1), WARP))
        if not same.any():
            return False
        slots = np.flatnonzero(same)
        for warp in np.unique(slots // WARP):
            members = slots[slots // WARP == warp]
            self.machine.clocks.barrier(members, members[:0])
        for pc in places:
            lanes = self.waiting.pop(pc)
            here = same[lanes.index]
            if not here.all():
                self.waiting[pc] = lanes.part(~here)
            self.machine.put(pc + 1, lanes.part(here))
        return True

    def report(self) -> None:
        """Who waits for ever."""
        for pc, lanes in sorted(self.waiting.items()):
            self._report(pc, lanes)

    def _report(self, pc: int, lanes: Lanes) -> None:
        step = self.machine.steps[pc]
        slot = int(lanes.index[0])
        warp = slot // WARP
        present = np.zeros(self.machine.threads.count, bool)
        present[lanes.index] = True
        missing = self.machine.alive & ~present
        if step.lanes is not None:
            mask = int(self.machine.own(step.lanes(self.machine, lanes), lanes)[0])
            missing &= (np.uint32(mask) >> self.machine.threads.lane.astype(np.uint32)) & 1 == 1
        absent = np.flatnonzero(missing[warp * WARP : (warp + 1) * WARP]).tolist()
        why = f"lanes {absent} of the warp never come here, and this instruction waits for them"
        kind: Kind = "barrier" if step.flow is Flow.BARRIER else "missing-lanes"
        grid = slot + self.machine.threads.first
        self.machine.findings.add(kind, step.instruction, self.machine.threads, grid, why, count=len(lanes))


def pack(lanes: Array) -> Array:
    """One uint32 per warp from one bool per slot: bit i is lane i."""
    return np.packbits(lanes.reshape(-1, WARP), axis=1, bitorder="little").view("<u4").ravel()
