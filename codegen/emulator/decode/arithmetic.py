"""Instructions that compute with registers alone: everything that :mod:`..semantics` knows, and moves between parts."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..errors import refused
from ..machine import Machine
from ..memory import LOCAL_WINDOW, SHARED_WINDOW
from ..ptx import Instruction, Operand, Pair, Vector
from ..semantics import operation
from ..semantics.types import Compute
from ..steps import Run
from ..threads import Lanes
from ..types import WIDTH, Array, unsigned
from .operands import Names, Reader, Writer, reader, wants, writer

_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}


def arithmetic(instruction: Instruction, names: Names) -> Run | None:
    """What an instruction does that computes registers from registers; None where it is none such."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode == "mov" and any(isinstance(each, Vector) for each in instruction.operands):
        return _parts(instruction, names)
    if opcode in ("cvta", "isspacep"):
        return _windows(instruction, names)
    if not instruction.operands:
        return None
    first, *rest = instruction.operands
    results: list[Operand] = [first.first, first.second] if isinstance(first, Pair) else [first]
    found = operation(opcode, modifiers, len(results))
    if found is None:
        return None
    loose = opcode == "cvt"
    writers = [
        writer(result, type, instruction, loose) for result, type in zip(results, found.results, strict=False)
    ]
    readers = [
        reader(operand, type, instruction, names, loose)
        for operand, type in zip(rest, found.operands, strict=False)
    ]
    if found.results[len(results) :] == ("pred",):  # add.cc
        writers.append(lambda machine, lanes, value: machine.write(names.carry, lanes, value))
    if found.operands[len(rest) :] == ("pred",) and opcode in ("addc", "subc", "madc"):
        readers.append(lambda machine, lanes: machine.read(names.carry, lanes))
    if len(writers) != len(found.results) or len(results) > len(found.results):
        raise refused(f"{len(found.results)} results are expected, not {len(results)}", instruction)
    if len(readers) != len(found.operands) or len(rest) > len(found.operands):
        raise refused(f"{len(found.operands)} operands are expected, not {len(rest)}", instruction)
    if len(writers) == 1:
        return partial(_one, found.compute, tuple(readers), writers[0])
    return partial(_several, found.compute, tuple(readers), tuple(writers))


def _one(
    compute: Compute, readers: tuple[Reader, ...], write: Writer, machine: Machine, lanes: Lanes
) -> None:
    write(machine, lanes, compute(*[read(machine, lanes) for read in readers])[0])


def _several(
    compute: Compute, readers: tuple[Reader, ...], writers: tuple[Writer, ...], machine: Machine, lanes: Lanes
) -> None:
    found = compute(*[read(machine, lanes) for read in readers])
    for write, value in zip(writers, found, strict=True):
        write(machine, lanes, value)


def _parts(instruction: Instruction, names: Names) -> Run:
    """``mov.b64 %rd, {%r0, %r1}`` and the other way round: the first part is the lowest."""
    result, operand = wants(instruction, 2)
    bits = WIDTH.get(instruction.modifiers[0], 0) if len(instruction.modifiers) == 1 else 0
    vector = result if isinstance(result, Vector) else operand
    assert isinstance(vector, Vector)
    count = len(vector.elements)
    if (
        bits not in (16, 32, 64)
        or count not in (2, 4)
        or isinstance(result, Vector) == isinstance(operand, Vector)
    ):
        raise refused("a register and a vector of 2 or 4 are expected", instruction)
    part, whole = unsigned(bits // count), unsigned(bits)
    if isinstance(result, Vector):
        read = reader(operand, f"b{bits}", instruction, names)
        writers = [writer(each, f"b{bits // count}", instruction) for each in result.elements]

        def split(machine: Machine, lanes: Lanes) -> None:
            parts = read(machine, lanes).view(part).reshape(-1, count)
            for at, write in enumerate(writers):
                write(machine, lanes, parts[:, at].copy())

        return split
    readers = [reader(each, f"b{bits // count}", instruction, names) for each in vector.elements]
    write = writer(result, f"b{bits}", instruction)

    def join(machine: Machine, lanes: Lanes) -> None:
        parts = np.empty((machine.width(lanes), count), part)
        for at, read in enumerate(readers):
            parts[:, at] = read(machine, lanes)
        write(machine, lanes, parts.view(whole).ravel())

    return join


def _windows(instruction: Instruction, names: Names) -> Run:
    """``cvta`` and ``isspacep``: generic addresses have a window for shared and one for local memory."""
    result, operand = wants(instruction, 2)
    *way, last = instruction.modifiers
    if instruction.opcode == "isspacep":
        space = last.split("::")[0]
        write, read = writer(result, "pred", instruction), reader(operand, "b64", instruction, names)
        if way or space not in _WINDOWS:
            raise refused(f"the space {last} is not known", instruction)
        return lambda machine, lanes: write(machine, lanes, in_window(read(machine, lanes), space))
    to = way[:1] == ["to"]
    space = (way[1:] if to else way)[-1].split("::")[0] if way[to:] else ""
    if last != "u64" or space not in _WINDOWS or len(way) != 1 + to:
        raise refused("cvta.space.u64 or cvta.to.space.u64 is expected", instruction)
    write, read = writer(result, "b64", instruction), reader(operand, "b64", instruction, names)
    step = np.uint64((-_WINDOWS[space] if to else _WINDOWS[space]) % (1 << 64))
    return lambda machine, lanes: write(machine, lanes, read(machine, lanes) + step)


def in_window(addresses: Array, space: str) -> Array:
    """Which generic addresses are of that space."""
    shared = addresses >= np.uint64(SHARED_WINDOW)
    local = (addresses >= np.uint64(LOCAL_WINDOW)) & ~shared
    found: Array = {"shared": shared, "local": local}.get(space, ~shared & ~local)
    return found
