"""What the lanes of a warp do together: shuffles, votes, reductions, tensor cores, matrices from shared memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import refused
from ..machine import Machine
from ..ptx import Instruction, Operand, Pair, Vector
from ..semantics.tensor import ldmatrix, matrices, mma, movmatrix, multiplication, stmatrix
from ..semantics.warp import collective, source_lanes
from ..steps import Flow, Run, Step
from ..threads import WARP, Lanes
from ..types import Array
from .operands import Names, Reader, address, reader, wants, writer
from .places import located, noted

_MATRIX = 16
#: stands for a value that is not defined: as a float it is NaN
UNDEFINED = np.uint32(0xFFFFFFFF)


def warp(instruction: Instruction, pc: int, names: Names) -> Step | None:
    """The step of an instruction for which lanes wait for each other; None where it is none such."""
    guard = (instruction.guard.register.number, not instruction.guard.negated) if instruction.guard else None
    opcode = instruction.opcode
    if opcode == "mma":
        return Step(instruction, Flow.WARP, _mma(instruction, names), guard)
    if matrices(opcode, instruction.modifiers) is not None:
        run = {"ldmatrix": _load_matrix, "stmatrix": _store_matrix, "movmatrix": _move_matrix}[opcode]
        return Step(instruction, Flow.WARP, noted(pc, run(instruction, names)), guard)
    return _collective(instruction, names, guard)


def by_warp(machine: Machine, lanes: Lanes, read: Reader) -> Array:
    """An operand of the warps that ``lanes`` are of, as (warps, 32)."""
    value = read(machine, machine.slots).reshape(-1, WARP)
    return value if lanes.warp_count == len(value) else value[lanes.warps]


def of_lanes(machine: Machine, lanes: Lanes, value: Array) -> Array:
    """The values that :meth:`Machine.write` takes, from (warps, 32)."""
    if lanes.warp_count * WARP == machine.threads.count:
        flat = value.ravel()
        return flat if lanes.everyone else flat[lanes.index]
    row = np.searchsorted(lanes.warps, lanes.index // WARP)
    found = value[row, lanes.index % WARP]
    if not lanes.everyone:
        return found
    whole = np.zeros(machine.threads.count, value.dtype)
    whole[lanes.index] = found
    return whole


def _active(machine: Machine, lanes: Lanes) -> Array:
    active = np.zeros(machine.threads.count, bool)
    active[lanes.index] = True
    return active.reshape(-1, WARP)[lanes.warps]


def _collective(instruction: Instruction, names: Names, guard: tuple[int, bool] | None) -> Step | None:
    found = collective(instruction.opcode, instruction.modifiers)
    if found is None:
        return None
    first, *rest = wants(instruction, 1 + len(found.operands))
    results: list[Operand] = [first.first, first.second] if isinstance(first, Pair) else [first]
    if len(results) > len(found.results):
        raise refused(f"{len(found.results)} results are expected, not {len(results)}", instruction)
    writers = [writer(each, type, instruction) for each, type in zip(results, found.results, strict=False)]
    readers = [
        reader(each, type, instruction, names) for each, type in zip(rest, found.operands, strict=True)
    ]
    shuffle = instruction.modifiers[1] if instruction.opcode == "shfl" else None

    def exchange(machine: Machine, lanes: Lanes) -> None:
        values = [by_warp(machine, lanes, read) for read in readers]
        active = _active(machine, lanes)
        made = found.compute(*values, active)
        if shuffle is not None and not active.all():
            made[0][_without_source(shuffle, values, active)] = UNDEFINED
        for write, value in zip(writers, made, strict=False):
            write(machine, lanes, of_lanes(machine, lanes, value))

    if not readers:  # activemask waits for nobody
        return Step(instruction, Flow.NEXT, exchange, guard)
    return Step(instruction, Flow.WARP, exchange, guard, readers[-1])


def _without_source(mode: str, values: Sequence[Array], active: Array) -> Array:
    """Which lanes shuffle from one that takes no part. What they get is not defined, and often not used: no finding."""
    source, inside = source_lanes(mode, values[1], values[2])
    found: Array = inside & ~np.take_along_axis(active, source, axis=1)
    return found


def _whole_warps(machine: Machine, lanes: Lanes, instruction: Instruction) -> None:
    """Tensor cores and matrices need all 32 lanes."""
    if len(lanes) == lanes.warp_count * WARP:
        return
    here = np.bincount(lanes.index // WARP, minlength=machine.threads.count // WARP)
    slot = int(np.flatnonzero((here > 0) & (here < WARP))[0]) * WARP + machine.threads.first
    why = "all lanes of a warp must execute it, and some have ended or do not exist"
    machine.findings.add("missing-lanes", instruction, machine.threads, slot, why)


def _vector(
    operand: Operand, count: int, types: tuple[str, ...], instruction: Instruction
) -> tuple[Operand, ...]:
    found = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        raise refused(f"a vector of {count} registers is expected, not of {len(found)}", instruction)
    return found


def _mma(instruction: Instruction, names: Names) -> Run:
    what = multiplication(instruction.modifiers)
    if what is None:
        raise refused("this shape, layout or type of mma is not known", instruction)
    d, a, b, c = wants(instruction, 4)
    counts = what.registers
    sums = "f32" if what.c == "f32" else "b32"
    parts = [
        [reader(each, type, instruction, names) for each in _vector(operand, count, (type,), instruction)]
        for operand, count, type in zip((a, b, c), counts, ("b32", "b32", sums), strict=True)
    ]
    writers = [writer(each, sums, instruction) for each in _vector(d, counts[2], (sums,), instruction)]

    def multiply(machine: Machine, lanes: Lanes) -> None:
        _whole_warps(machine, lanes, instruction)
        values = [np.stack([by_warp(machine, lanes, read) for read in part], axis=2) for part in parts]
        made = mma(instruction.modifiers, *values)
        for at, write in enumerate(writers):
            write(machine, lanes, of_lanes(machine, lanes, np.ascontiguousarray(made[:, :, at])))

    return multiply


def _load_matrix(instruction: Instruction, names: Names) -> Run:
    result, source = wants(instruction, 2)
    what = matrices("ldmatrix", instruction.modifiers)
    assert what is not None
    count = what.count
    writers = [writer(each, "b32", instruction) for each in _vector(result, count, ("b32",), instruction)]
    read = address(source, instruction, names)

    def load(machine: Machine, lanes: Lanes) -> None:
        _whole_warps(machine, lanes, instruction)
        slots, addresses = _rows(machine, lanes, read, count)
        rows = np.zeros((len(slots), _MATRIX // 4), np.uint32)
        for place in located(machine, slots, addresses, "shared", _MATRIX, instruction):
            place.read(False)
            for word in range(_MATRIX // 4):
                rows[place.lanes, word] = place.bytes.load(place.offsets + 4 * word, 32)
        shaped = rows.view(np.uint8).reshape(lanes.warp_count, 8 * count, _MATRIX)
        made = ldmatrix(instruction.modifiers, shaped)
        for at, write in enumerate(writers):
            write(machine, lanes, of_lanes(machine, lanes, np.ascontiguousarray(made[:, :, at])))

    return load


def _store_matrix(instruction: Instruction, names: Names) -> Run:
    target, source = wants(instruction, 2)
    what = matrices("stmatrix", instruction.modifiers)
    assert what is not None
    count = what.count
    readers = [
        reader(each, "b32", instruction, names) for each in _vector(source, count, ("b32",), instruction)
    ]
    read = address(target, instruction, names)

    def store(machine: Machine, lanes: Lanes) -> None:
        _whole_warps(machine, lanes, instruction)
        slots, addresses = _rows(machine, lanes, read, count)
        values = np.stack([by_warp(machine, lanes, each) for each in readers], axis=2)
        rows = stmatrix(instruction.modifiers, values).reshape(-1, _MATRIX).view(np.uint32)
        for place in located(machine, slots, addresses, "shared", _MATRIX, instruction):
            place.write(False)
            for word in range(_MATRIX // 4):
                place.bytes.store(place.offsets + 4 * word, 32, rows[place.lanes, word])

    return store


def _rows(machine: Machine, lanes: Lanes, read: Reader, count: int) -> tuple[Array, Array]:
    """Slots and addresses of the lanes that give the rows of ``count`` matrices, warp by warp."""
    slots = (lanes.warps[:, None] * WARP + np.arange(8 * count)).ravel()
    return slots, np.ascontiguousarray(by_warp(machine, lanes, read)[:, : 8 * count]).ravel()


def _move_matrix(instruction: Instruction, names: Names) -> Run:
    result, source = wants(instruction, 2)
    write, read = writer(result, "b32", instruction), reader(source, "b32", instruction, names)

    def move(machine: Machine, lanes: Lanes) -> None:
        _whole_warps(machine, lanes, instruction)
        made = movmatrix(instruction.modifiers, by_warp(machine, lanes, read))
        write(machine, lanes, of_lanes(machine, lanes, made))

    return move
