"""The machine: some blocks of a kernel, run together.

Threads that stand at one instruction execute it together, as arrays with one value per thread. Among the groups of
threads that could go on, the one with the least program counter goes first, so that threads that took different ways
meet again where the ways do. Where a group waits for other lanes of its warps, or for a barrier, the others go first; if
nobody can go on and somebody waits, that is a deadlock, which is found and not waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyc.ir.diagnostics import TinycError

from .barriers import Barriers
from .clocks import Clocks
from .copies import AsyncCopies, Delivery
from .counters import Counting
from .findings import Findings
from .held import HeldLanes
from .memory import Bytes, GlobalMemory, PartedMemory
from .ptx import Kernel
from .shadow import Cells, Watch
from .special import SPECIAL
from .steps import Flow, Step
from .threads import Lanes, Threads, union
from .types import Array, array_type

#: instructions that one group executes before others that could go on have their turn: loops that wait for others
TURN = 4_000


@dataclass(frozen=True)
class MemoryPlan:
    """How much there is of each memory, and how wide the cells are in which accesses are watched. ``shared``: where each variable in
    shared memory begins and ends. ``shared_size``: the bytes that a block has of it, ``dynamic_shared`` of them at the end as the launch says."""

    memory: GlobalMemory
    cells: Cells
    shared: tuple[tuple[int, int], ...]
    shared_size: int
    dynamic_shared: int
    local: int
    shared_cell: int


class Machine:
    """The state of the blocks that run together. What is global outlives it: ``plan.memory`` and ``plan.cells``."""

    threads: Threads
    memory: MemoryPlan
    executed: int

    def __init__(
        self,
        kernel: Kernel,
        steps: Sequence[Step],
        threads: Threads,
        plan: MemoryPlan,
        findings: Findings,
        counting: Counting,
        delivery: Delivery,
        random: np.random.Generator,
        limit: int,
        excuse_ended: bool = False,
        excuse_equal: bool = False,
    ) -> None:
        self.kernel, self.steps, self.threads, self.memory = kernel, steps, threads, plan
        self.findings, self.counting, self.limit = findings, counting, limit
        self.excuse_ended, self.excuse_equal = excuse_ended, excuse_equal
        self.executed = 0
        #: the number of the instruction that accesses memory now
        self.at = 0
        self.slots = Lanes(np.arange(threads.count), True)
        self.registers = [np.zeros(threads.count, array_type(each.type)) for each in kernel.registers]
        self.registers.append(np.zeros(threads.count, bool))  # the carry flag
        self._constants: dict[tuple[int, object], Array] = {}
        self._special: dict[str, Array] = {}
        self.alive = threads.exists.copy()
        self.living = int(self.alive.sum())
        self.shared = PartedMemory(
            threads.blocks, max((end for _, end in plan.shared), default=0), plan.shared
        )
        self.local = PartedMemory(threads.count, plan.local)
        self.clocks = Clocks(threads)
        watched = (threads, self.clocks, findings, kernel.instructions)
        size = len(self.shared.bytes.data)
        cells = Cells(size, plan.shared_cell, threads.warps_per_block, one_block=True)
        self.watch_shared = Watch("shared", cells, *watched)
        self.watch_global = Watch("global", plan.cells, *watched)
        self.copies = AsyncCopies(threads.count, self.shared.bytes, self.global_bytes, delivery, random)
        self.copies.into, self.copies.out_of = self.watch_shared, self.watch_global
        self.barriers = Barriers(self)
        self.held = HeldLanes(self)
        #: pc -> threads that could go on there
        self.ready: dict[int, Lanes] = {}

    @property
    def global_bytes(self) -> Bytes:
        return self.memory.memory.bytes

    # ---- registers -------------------------------------------------------------------------------------------------

    def read(self, number: int, lanes: Lanes) -> Array:
        found = self.registers[number]
        return found if lanes.everyone else found[lanes.index]

    def write(self, number: int, lanes: Lanes, value: Array) -> None:
        """Registers are replaced, never changed: values may be shared between them."""
        if lanes.everyone:
            self.registers[number] = value
        else:
            changed = self.registers[number].copy()
            changed[lanes.index] = value
            self.registers[number] = changed

    def width(self, lanes: Lanes) -> int:
        """How many values an operand has."""
        return self.threads.count if lanes.everyone else len(lanes.index)

    def constant(self, bits: int, dtype: type, lanes: Lanes) -> Array:
        key = (bits, dtype)
        if key not in self._constants:
            self._constants[key] = np.full(self.threads.count, bits, dtype)
        return self._constants[key][: self.width(lanes)]

    def special(self, name: str, lanes: Lanes) -> Array:
        if "clock" in name or "timer" in name:
            found = SPECIAL[name](self)
        else:
            found = self._special[name] = (
                self._special[name] if name in self._special else SPECIAL[name](self)
            )
        return found if lanes.everyone else found[lanes.index]

    def own(self, value: Array, lanes: Lanes) -> Array:
        """Of an operand's values those of the lanes: one per lane, also where it has one per slot."""
        return value[lanes.index] if lanes.everyone and len(lanes.index) != len(value) else value

    def spread(self, value: Array, lanes: Lanes) -> Array:
        """The other way round: what :meth:`write` takes, from one value per lane."""
        if not lanes.everyone or len(value) == self.threads.count:
            return value
        whole = np.zeros(self.threads.count, value.dtype)
        whole[lanes.index] = value
        return whole

    # ---- running ---------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Runs to the end. False: a deadlock, which is among the findings, ended it."""
        self.put(0, Lanes(np.flatnonzero(self.alive), True))
        turn = TURN
        while True:
            while self.ready:
                pc = min(self.ready)
                self._advance(pc, TURN)
                if self.executed >= turn:
                    self._check_limit()
                    self._let_others_go(pc)
                    turn = self.executed + TURN
            if not self.held.waiting and not self.barriers.waiting:
                return True
            if not self._release():
                return False

    def _let_others_go(self, pc: int) -> None:
        """Groups with low program counters have had a long turn, and may wait for what others do."""
        for other in sorted(self.ready):
            if other != pc and other in self.ready:
                self._advance(other, TURN)

    def put(self, pc: int, lanes: Lanes) -> None:
        """These threads can go on at ``pc``."""
        if not len(lanes):
            return
        there = self.ready.get(pc)
        self.ready[pc] = lanes if there is None else union((there, lanes), self.living)

    def _advance(self, pc: int, turn: int) -> None:
        """One group, until it meets another, splits, waits or ends, or has had its turn."""
        lanes = self.ready.pop(pc)
        steps, executed, others = self.steps, self.counting.executed, self.ready
        meet = min((at for at in others if at > pc), default=len(steps))
        alone = not others
        last = self.executed + turn
        while True:
            if self.executed >= last:
                self._check_limit()
                last += turn
                if not alone:
                    break
            self.executed += 1
            step = steps[pc]
            active = lanes
            if step.guard is not None and step.flow is not Flow.BRANCH:
                active = self._guarded(step, lanes)
            if step.flow is Flow.NEXT:
                if len(active):
                    executed[pc] += active.warp_count
                    step.run(self, active)
                pc += 1
            elif step.flow is Flow.BRANCH:
                executed[pc] += active.warp_count
                target = step.run(self, lanes)
                if not isinstance(target, int):
                    assert target is not None
                    self._split(pc, lanes, target)
                    return
                pc = target if target >= 0 else pc + 1
            else:
                self._stop(pc, step, lanes, active)
                return
            if pc >= meet or pc in others:
                break
        self.put(pc, lanes)

    def _check_limit(self) -> None:
        if self.executed > self.limit:
            raise TinycError(
                "EmulationStopped",
                f"the kernel {self.kernel.name} has executed {self.executed} instructions and has not ended",
                "emulate smaller shapes, or raise limit; or look for a loop that never ends",
                {"layer": "ptx", "op": self.kernel.name},
            )

    def _guarded(self, step: Step, lanes: Lanes) -> Lanes:
        assert step.guard is not None
        register, wanted = step.guard
        return lanes.part(self.registers[register][lanes.index] == wanted)

    def _split(self, pc: int, lanes: Lanes, targets: Array) -> None:
        for target in np.unique(targets).tolist():
            self.put(target if target >= 0 else pc + 1, lanes.part(targets == target))

    def _stop(self, pc: int, step: Step, lanes: Lanes, active: Lanes) -> None:
        """An instruction at which threads may have to wait. Those whose guard is false go on."""
        if len(active) < len(lanes):
            self.put(pc + 1, Lanes(np.setdiff1d(lanes.index, active.index), False))
        if not len(active):
            return
        if step.flow is Flow.EXIT:
            self.counting.executed[pc] += active.warp_count
            self.alive[active.index] = False
            self.living -= len(active)
            self._regroup()
            return
        if len(complete := self.held.join(pc, step, active)):
            self.execute(pc, step, complete)

    def execute(self, pc: int, step: Step, lanes: Lanes) -> None:
        """An instruction at which these threads have waited, and wait no more."""
        self.counting.executed[pc] += lanes.warp_count
        if step.lanes is not None:
            self.held.check_masks(step, lanes)
        step.run(self, lanes)
        if step.flow is not Flow.BARRIER:  # which puts the threads where they go on itself
            self.put(pc + 1, lanes)

    def _regroup(self) -> None:
        """After threads ended: groups may now be all that live, and warps complete."""
        for pc, lanes in self.ready.items():
            if len(lanes) == self.living and not lanes.everyone:
                self.ready[pc] = Lanes(lanes.index, True)
        self.held.retry()

    # ---- nobody can go on ------------------------------------------------------------------------------------------

    def _release(self) -> bool:
        """Lets go on who can, when nobody is ready. False: nobody can; the findings say who waits for whom."""
        if self.held.meet_elsewhere() or self.barriers.release_for_ended():
            return True
        self.held.report()
        self.barriers.report()
        return False
