"""``cp.async``: copies from global to shared memory that run while the threads go on. PTX ISA, "cp.async".

A copy is over when its thread waits for the group that it was committed to. Until then its bytes may arrive at any time;
when they do is the delivery: ``early`` at the instruction itself, ``late`` at the wait, ``random`` at one of the places
between, drawn from a seed. The source is read when the bytes arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from .memory import Bytes
from .shadow import Watch
from .types import Array

Delivery = Literal["late", "early", "random"]
DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)


@dataclass
class _Copies:
    """What one executed instruction started, one entry per lane.

    ``target`` and ``source`` are offsets in the arrays; ``taken``: bytes that come from the source, the others are zero.
    ``group``: how many groups the thread had committed before.
    """

    at: int
    size: int
    slots: Array
    target: Array
    source: Array
    address: Array
    taken: Array
    group: Array
    arrived: Array


class AsyncCopies:
    def __init__(
        self, slots: int, shared: Bytes, memory: Bytes, delivery: Delivery, random: np.random.Generator
    ) -> None:
        self.shared, self.memory = shared, memory
        self.delivery, self.random = delivery, random
        self.committed = np.zeros(slots, np.int64)
        self.running: list[_Copies] = []
        self.into: Watch
        self.out_of: Watch

    def start(
        self,
        slots: Array,
        target: Array,
        target_address: Array,
        source: Array,
        source_address: Array,
        size: int,
        taken: Array,
        at: int,
    ) -> None:
        """One copy of ``size`` bytes (4, 8 or 16) per lane."""
        self.into.write(slots, target, target_address, size, at, in_flight=True)
        reads = taken == size
        self.out_of.read(slots[reads], source[reads], source_address[reads], size, at, False)
        self.out_of.source(source[reads], size, 1)
        arrived = np.zeros(len(slots), bool)
        begun = _Copies(
            at, size, slots, target, source, source_address, taken, self.committed[slots], arrived
        )
        self.running.append(begun)
        if self.delivery == "early":
            self._arrive(begun, np.ones(len(slots), bool))
        self.pass_time()

    def commit(self, slots: Array) -> None:
        self.committed[slots] += 1
        self.pass_time()

    def wait(self, slots: Array, groups: int | None) -> None:
        """All but the last ``groups`` groups of each thread are over. None: all copies, committed or not."""
        self.pass_time()
        waits = np.zeros(len(self.committed), bool)
        waits[slots] = True
        still = []
        for copies in self.running:
            over = waits[copies.slots]
            if groups is not None:
                over = over & (copies.group < self.committed[copies.slots] - groups)
            if over.any():
                self._finish(copies, over)
                copies = _part(copies, ~over)
            if len(copies.slots):
                still.append(copies)
        self.running = still

    def pass_time(self) -> None:
        """Some of what may arrive arrives, where that is drawn by chance."""
        if self.delivery == "random":
            for copies in self.running:
                self._arrive(copies, ~copies.arrived & (self.random.random(len(copies.slots)) < 0.25))

    def _finish(self, copies: _Copies, over: Array) -> None:
        self._arrive(copies, over & ~copies.arrived)
        done = _part(copies, over)
        self.into.landed(done.slots, done.target, done.size)
        reads = done.taken == done.size
        self.out_of.source(done.source[reads], done.size, -1)
        self.out_of.read(
            done.slots[reads], done.source[reads], done.address[reads], done.size, done.at, False
        )

    def _arrive(self, copies: _Copies, which: Array) -> None:
        """Moves the bytes of some lanes, in words of 32 bits; a word that is partly zero byte by byte."""
        if not which.any():
            return
        target, source, taken = copies.target[which], copies.source[which], copies.taken[which]
        whole = taken == copies.size
        for byte in range(0, copies.size, 4):
            self.shared.store(target[whole] + byte, 32, self.memory.load(source[whole] + byte, 32))
        if not whole.all():
            for byte in range(copies.size):
                real = byte < taken[~whole]
                found = self.memory.load(np.where(real, source[~whole] + byte, 0), 8)
                self.shared.store(target[~whole] + byte, 8, np.where(real, found, np.uint8(0)))
        copies.arrived[which] = True


def _part(copies: _Copies, which: Array) -> _Copies:
    return _Copies(
        copies.at,
        copies.size,
        *(
            getattr(copies, name)[which]
            for name in ("slots", "target", "source", "address", "taken", "group", "arrived")
        ),
    )
