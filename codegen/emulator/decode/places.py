"""From the addresses of lanes to places in a memory: which space, whether inside, whether aligned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..findings import Kind
from ..machine import Machine
from ..memory import LOCAL_WINDOW, SHARED_WINDOW, Bytes
from ..ptx import Instruction
from ..shadow import Watch
from ..steps import Run
from ..threads import Lanes
from ..types import Array
from .arithmetic import in_window


def noted(pc: int, run: Run) -> Run:
    """``run``, which also notes the number of its instruction, for what is found and counted."""

    def noting(machine: Machine, lanes: Lanes) -> None:
        machine.at = pc
        run(machine, lanes)

    return noting


@dataclass(frozen=True)
class Place:
    """Lanes whose addresses are right, in one memory.

    ``lanes``: their positions among those that were given. ``offsets``: in the array of the memory. ``watch``: who looks
    after it; None for memory of one thread, and for what nobody may write.
    """

    machine: Machine
    instruction: Instruction
    lanes: Array
    slots: Array
    offsets: Array
    addresses: Array
    size: int
    bytes: Bytes
    space: str
    watch: Watch | None

    def read(self, strong: bool) -> None:
        """Says that these bytes are read; before they are."""
        if self.watch is not None:
            at = self.machine.at
            self.watch.read(self.slots, self.offsets, self.addresses, self.size, at, strong)

    def unchanged(self) -> None:
        """Says that the kernel must not have written these bytes."""
        if self.watch is not None:
            at = self.machine.at
            self.watch.changed(self.slots, self.offsets, self.addresses, self.size, at)

    def write(self, strong: bool, values: Sequence[Array] | None = None) -> None:
        """Says that these bytes are written; of lanes of a warp that write equal ``values`` at one address, that one does."""
        if self.watch is None:
            return
        slots, offsets, addresses = self.slots, self.offsets, self.addresses
        if values is not None:
            some = _different(self.machine.threads.warp[slots], offsets, values)
            slots, offsets, addresses = slots[some], offsets[some], addresses[some]
        self.watch.write(slots, offsets, addresses, self.size, self.machine.at, strong)

    def publish_key(self, position: int) -> int:
        """A number for the address of one lane, different in all memories."""
        offset = int(self.offsets[position])
        return offset if self.space == "global" else -1 - offset


def _different(warps: Array, offsets: Array, values: Sequence[Array]) -> Array:
    """The first of each warp's lanes that have equal ``values`` for one place."""
    bits = [each.view(f"u{each.itemsize}").astype(np.int64) for each in values]
    _, first = np.unique(np.stack([warps, offsets, *bits]), axis=1, return_index=True)
    return np.sort(first)


def located(
    machine: Machine,
    slots: Array,
    addresses: Array,
    space: str,
    size: int,
    instruction: Instruction,
    writes: bool = False,
    alignment: int | None = None,
) -> Iterator[Place]:
    """The places of ``size`` bytes at each lane's address (uint64); lanes with a wrong one are found and left out.

    ``space``: shared, global, local, or generic, which is split into those. const and param are parts of global.
    """
    if not len(slots):
        return
    everywhere = np.arange(len(slots))
    alignment = alignment or size
    misaligned = addresses & np.uint64(alignment - 1) != 0
    if misaligned.any():
        why = f"accesses of {alignment} bytes need addresses that {alignment} divides"
        _report(machine, instruction, "misaligned", misaligned, slots, addresses, space, why)
        everywhere = everywhere[~misaligned]
    if space != "generic":
        yield from _in_space(
            machine, slots, addresses, addresses, space, size, instruction, everywhere, writes
        )
        return
    for part, window in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW), ("global", 0)):
        own = everywhere[in_window(addresses[everywhere], part)]
        if len(own):
            inside = addresses - np.uint64(window)
            yield from _in_space(machine, slots, inside, addresses, part, size, instruction, own, writes)


def _in_space(
    machine: Machine,
    slots: Array,
    addresses: Array,
    shown: Array,
    space: str,
    size: int,
    instruction: Instruction,
    lanes: Array,
    writes: bool,
) -> Iterator[Place]:
    whole = len(lanes) == len(slots)
    own, given = (slots, addresses) if whole else (slots[lanes], addresses[lanes])
    constant = np.zeros(len(lanes), bool)
    if space == "shared":
        offsets, good = machine.shared.locate(given, machine.threads.block[own], size)
        memory, watch, size_known = machine.shared.bytes, machine.watch_shared, machine.memory.shared_size
        why = f"the block has {size_known} bytes of shared memory"
        if len(machine.memory.shared) > 1:
            why += ", and a variable in it ends here"
    elif space == "local":
        offsets, good = machine.local.locate(given, own, size)
        memory, watch = machine.local.bytes, None
        why = f"the thread has {machine.local.size} bytes of local memory"
    else:
        region, offsets, good = machine.memory.memory.locate(given, size)
        memory, watch = machine.global_bytes, machine.watch_global
        why = ""
        constant = good & ~machine.memory.memory.writable[region]
        if constant.all() and instruction.opcode == "ld":
            watch = None
    if not good.all():
        why = why or machine.memory.memory.describe(int(given[np.flatnonzero(~good)[0]]), size)
        _report(machine, instruction, "out-of-bounds", ~good, own, shown[lanes], space, why)
    if writes and space == "global" and constant.any():
        why = "constants and parameters cannot be written"
        _report(machine, instruction, "read-only", constant, own, shown[lanes], space, why)
        good = good & ~constant
    if not good.all():
        lanes, own, offsets = lanes[good], own[good], offsets[good]
    if len(lanes):
        if space == "shared":
            machine.counting.shared_access(machine.at, own, offsets, size)
        elif watch is not None:
            machine.counting.global_access(machine.at, own, shown[lanes], size)
        yield Place(machine, instruction, lanes, own, offsets, shown[lanes], size, memory, space, watch)


def _report(
    machine: Machine,
    instruction: Instruction,
    kind: Kind,
    where: Array,
    slots: Array,
    addresses: Array,
    space: str,
    why: str,
) -> None:
    wrong = np.flatnonzero(where)
    if len(wrong):
        slot, address = int(slots[wrong[0]]) + machine.threads.first, int(addresses[wrong[0]])
        machine.findings.add(kind, instruction, machine.threads, slot, why, space, address, len(wrong))
