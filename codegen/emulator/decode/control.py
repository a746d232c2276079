"""Control flow and synchronisation: branches, ends, barriers, fences. PTX ISA, "Control Flow Instructions" and
"Parallel Synchronization and Communication Instructions"."""

from __future__ import annotations

import numpy as np

from ..errors import refused
from ..machine import Machine
from ..ptx import Immediate, Instruction, Operand, Register, Target, Targets
from ..steps import Flow, Run, Step
from ..threads import Lanes
from ..types import Array
from .operands import Names, Reader, reader, wants

#: says nothing about the result: hints, and waits for a time
NOTHING = ("nanosleep", "prefetch", "prefetchu", "pmevent", "discard", "applypriority")


def control(instruction: Instruction, pc: int, names: Names) -> Step | None:
    """The step of an instruction that says which way threads go, or when; None where it is none such."""
    guard = (instruction.guard.register.number, not instruction.guard.negated) if instruction.guard else None
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in ("bra", "brx"):
        return _branch(instruction, names)
    if opcode in ("ret", "exit"):
        wants(instruction, 0)
        return Step(instruction, Flow.EXIT, lambda machine, lanes: None, guard)
    if opcode in ("membar", "fence"):
        return Step(instruction, Flow.NEXT, _fence(instruction), guard)
    if opcode in ("bar", "barrier"):
        if "warp" in modifiers:
            return _warp_barrier(instruction, names, guard)
        return _barrier(instruction, pc, names, guard)
    if opcode in NOTHING:
        return Step(instruction, Flow.NEXT, lambda machine, lanes: None, guard)
    return None


def _branch(instruction: Instruction, names: Names) -> Step:
    if instruction.opcode == "brx":
        index, table = wants(instruction, 2)
        if not isinstance(table, Targets) or instruction.modifiers[:1] != ("idx",):
            raise refused("brx.idx with a list of labels is expected", instruction)
        if instruction.guard:
            raise refused("a brx.idx with a guard is not known", instruction)
        read = reader(index, "u32", instruction, names)
        targets = np.array([each.at for each in table.targets])
        last = np.uint32(len(targets) - 1)

        def choose(machine: Machine, lanes: Lanes) -> Array:
            return targets[np.minimum(machine.own(read(machine, lanes), lanes), last)]

        return Step(instruction, Flow.BRANCH, choose)
    (target,) = wants(instruction, 1)
    if not isinstance(target, Target) or instruction.modifiers not in ((), ("uni",)):
        raise refused("a label is expected", instruction)
    at, guard = target.at, instruction.guard
    if guard is None:
        return Step(instruction, Flow.BRANCH, lambda machine, lanes: at)
    number, wanted = guard.register.number, not guard.negated

    def decide(machine: Machine, lanes: Lanes) -> Array | int:
        value = machine.registers[number]
        if len(lanes.index) != len(value):
            value = value[lanes.index]
        true = int(np.count_nonzero(value))
        if true in (0, len(value)):
            return at if bool(true) == wanted else -1
        return np.where(value == wanted, at, -1)

    return Step(instruction, Flow.BRANCH, decide)


def _fence(instruction: Instruction) -> Run:
    scopes = {"cta", "gl", "sys", "gpu", "cluster"}
    if set(instruction.modifiers) - scopes - {"sc", "acq_rel"} or not set(instruction.modifiers) & scopes:
        raise refused("this fence is not known", instruction)
    wants(instruction, 0)
    wide = "cta" not in instruction.modifiers
    return lambda machine, lanes: machine.clocks.fence(lanes.index, wide)


def _warp_barrier(instruction: Instruction, names: Names, guard: tuple[int, bool] | None) -> Step:
    (mask,) = wants(instruction, 1)
    read = reader(mask, "b32", instruction, names)
    if instruction.modifiers != ("warp", "sync"):
        raise refused("bar.warp.sync is expected", instruction)

    def synchronise(machine: Machine, lanes: Lanes) -> None:
        synchronise_lanes(machine, lanes, machine.own(read(machine, lanes), lanes))

    return Step(instruction, Flow.WARP, synchronise, guard, read)


def synchronise_lanes(machine: Machine, lanes: Lanes, masks: Array) -> None:
    """Lanes of the same mask wait for each other; all of them are there."""
    living = np.add.reduceat(machine.alive, np.arange(0, machine.threads.count, 32))
    here = np.bincount(lanes.index // 32, minlength=len(living))
    whole = (here == living) & (here > 0)
    first = np.searchsorted(lanes.index, np.flatnonzero(whole) * 32)
    same = np.array([(masks[at : at + here[lanes.index[at] // 32]] == masks[at]).all() for at in first], bool)
    warps = np.flatnonzero(whole)[same]
    if len(warps):
        machine.clocks.warp_barrier(warps)
    for warp in np.setdiff1d(lanes.warps, warps).tolist():
        own = lanes.index // 32 == warp
        for mask in np.unique(masks[own]):
            members = lanes.index[own & (masks == mask)]
            machine.clocks.barrier(members, members[:0])


def _barrier(instruction: Instruction, pc: int, names: Names, guard: tuple[int, bool] | None) -> Step:
    parts = [each for each in instruction.modifiers if each not in ("cta", "aligned")]
    if parts == ["sync"] or parts == ["arrive"]:
        name, *count = wants(instruction, 1, 2) if parts == ["sync"] else wants(instruction, 2)
        return _wait(instruction, pc, names, guard, name, count, parts == ["sync"])
    if len(parts) == 3 and parts[0] == "red" and (parts[1], parts[2]) in (
        ("popc", "u32"), ("and", "pred"), ("or", "pred")
    ):  # fmt: skip
        result, name, *count, predicate = wants(instruction, 3, 4)
        if not isinstance(result, Register):
            raise refused("a register is expected for the result", instruction)
        read = reader(predicate, "pred", instruction, names)
        if result.type == "pred" if parts[1] == "popc" else result.type != "pred":
            raise refused(f"{result.name} of type {result.type} cannot take the result", instruction)
        return _wait(instruction, pc, names, guard, name, count, True, (result.number, parts[1]), read)
    raise refused("this barrier is not known", instruction)


def _wait(
    instruction: Instruction,
    pc: int,
    names: Names,
    guard: tuple[int, bool] | None,
    name: Operand,
    count: list[Operand],
    waits: bool,
    result: tuple[int, str] | None = None,
    predicate: Reader | None = None,
) -> Step:
    which = reader(name, "u32", instruction, names)
    many = reader(count[0], "u32", instruction, names) if count else None
    if isinstance(name, Immediate) and not 0 <= name.value < 16:
        raise refused(f"there is no barrier {name.value}: there are 16", instruction)
    aligned = instruction.opcode == "bar" or "aligned" in instruction.modifiers
    if count and isinstance(count[0], Immediate) and (count[0].value % 32 or count[0].value <= 0):
        raise refused(f"a barrier counts whole warps: {count[0].value} is no multiple of 32", instruction)

    def arrive(machine: Machine, lanes: Lanes) -> None:
        values = [
            machine.own(read(machine, lanes), lanes) if read is not None else None
            for read in (which, many, predicate)
        ]
        machine.barriers.arrive(pc, lanes, values[0], values[1], waits, values[2], result, aligned)  # type: ignore[arg-type]

    return Step(instruction, Flow.BARRIER, arrive, guard, None if aligned else _itself)


def _itself(machine: Machine, lanes: Lanes) -> Array:
    """As the lanes that a lane waits for before it comes to a barrier: none but itself."""
    return np.left_shift(np.uint32(1), machine.threads.lane[lanes.index].astype(np.uint32))
