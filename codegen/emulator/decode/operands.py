"""Operands as functions that read them from a machine, and results as functions that write them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import refused
from ..machine import Machine
from ..ptx import Address, Immediate, Instruction, Negated, Operand, Register, Sink, Special, Symbol
from ..threads import Lanes
from ..types import WIDTH, Array, array_type, of_same_kind, resized, unsigned

Reader = Callable[[Machine, Lanes], Array]
Writer = Callable[[Machine, Lanes, Array], None]


@dataclass(frozen=True)
class Names:
    """Where variables lie: name -> (space, address in that space). ``parameters``: the bytes of all parameters.

    ``carry``: the number of the register that holds the carry flag of ``add.cc`` and the like.
    """

    variables: Mapping[str, tuple[str, int]]
    parameters: bytes
    carry: int


def reader(
    operand: Operand, type: str, instruction: Instruction, names: Names, narrows: bool = False
) -> Reader:
    """How to read an operand of ``type``. ``narrows``: its register may be wider, and its lowest bits count."""
    bits, dtype = WIDTH[type], array_type(type)
    if isinstance(operand, Register):
        _check(operand, type, instruction, narrows)
        number = operand.number
        if WIDTH[operand.type] == bits:
            return lambda machine, lanes: machine.read(number, lanes)
        return lambda machine, lanes: machine.read(number, lanes).astype(dtype)
    if isinstance(operand, Negated):
        _check(operand.register, type, instruction, False)
        number = operand.register.number
        return lambda machine, lanes: ~machine.read(number, lanes)
    if isinstance(operand, Immediate):
        value = literal(operand, type, instruction)
        return lambda machine, lanes: machine.constant(value, dtype, lanes)
    if isinstance(operand, Special):
        name = operand.name
        if type == "pred" or WIDTH[type] < 16:
            raise refused(f"{name} is no {type}", instruction)
        return lambda machine, lanes: machine.special(name, lanes).astype(dtype)
    if isinstance(operand, Symbol):
        if bits < 32:
            raise refused(f"the address of {operand.name} has no room in {bits} bits", instruction)
        value = names.variables[operand.name][1] + operand.offset
        return lambda machine, lanes: machine.constant(value, dtype, lanes)
    raise refused(f"an operand of type {type} is expected, not {operand}", instruction)


def writer(operand: Operand, type: str, instruction: Instruction, widens: bool = False) -> Writer:
    """How to write a result of ``type``. ``widens``: its register may be wider, and is filled up by the sign."""
    if isinstance(operand, Sink):
        return lambda machine, lanes, value: None
    if not isinstance(operand, Register):
        raise refused(f"a register is expected for the result, not {operand}", instruction)
    _check(operand, type, instruction, widens)
    number, bits = operand.number, WIDTH[operand.type]
    if bits == WIDTH[type]:
        return lambda machine, lanes, value: machine.write(number, lanes, value)
    return lambda machine, lanes, value: machine.write(number, lanes, resized(value, type, bits))


def address(operand: Operand, instruction: Instruction, names: Names) -> Reader:
    """The address that ``[base + offset]`` means, uint64; a base of 32 bits wraps at 32 bits."""
    if not isinstance(operand, Address):
        raise refused(f"an address is expected, not {operand}", instruction)
    base, offset = operand.base, operand.offset
    if isinstance(base, Symbol):
        value = names.variables[base.name][1] + base.offset + offset
        return lambda machine, lanes: machine.constant(value, np.uint64, lanes)
    if isinstance(base, Immediate):
        fixed = base.value + offset
        return lambda machine, lanes: machine.constant(fixed, np.uint64, lanes)
    if WIDTH[base.type] not in (32, 64) or not of_same_kind(base.type, "b64") or base.type in ("f32", "f64"):
        raise refused(f"{base.name} of type {base.type} cannot hold an address", instruction)
    number, dtype = base.number, unsigned(WIDTH[base.type]).type
    step = dtype(offset % (1 << WIDTH[base.type]))
    if not offset:
        return lambda machine, lanes: machine.read(number, lanes).astype(np.uint64, copy=False)
    return lambda machine, lanes: (machine.read(number, lanes) + step).astype(np.uint64, copy=False)


def literal(operand: Immediate, type: str, instruction: Instruction) -> int:
    """The bits of an immediate as a value of ``type``."""
    bits = WIDTH[type]
    if operand.type != "int":
        if type in ("f32", "b32") and operand.type == "f64":
            (value,) = struct.unpack("<d", operand.value.to_bytes(8, "little"))
            return int(np.float32(value).view(np.uint32))
        if bits != WIDTH[operand.type] or not of_same_kind(operand.type, type):
            raise refused(f"a literal of type {operand.type} stands where {type} is expected", instruction)
        return operand.value
    if type in ("f32", "f64"):
        raise refused(f"the integer {operand.value} stands where {type} is expected", instruction)
    if not -(1 << (bits - 1)) <= operand.value < 1 << bits:
        raise refused(f"{operand.value} has no room in {bits} bits", instruction)
    return operand.value % (1 << bits)


def constant(operand: Operand, instruction: Instruction) -> int:
    """An operand that must be a number in the text."""
    if not isinstance(operand, Immediate) or operand.type != "int":
        raise refused(f"a number is expected, not {operand}", instruction)
    return operand.value


def wants(instruction: Instruction, *counts: int) -> tuple[Operand, ...]:
    """The operands, checked to be as many as one of ``counts``."""
    if len(instruction.operands) not in counts:
        expected = " or ".join(str(count) for count in counts)
        raise refused(f"{expected} operands are expected, not {len(instruction.operands)}", instruction)
    return instruction.operands


def _check(register: Register, type: str, instruction: Instruction, loose: bool) -> None:
    has, asked = WIDTH[register.type], WIDTH[type]
    if not of_same_kind(register.type, type) and not (loose and "pred" not in (register.type, type)):
        raise refused(f"{register.name} is declared .{register.type}, and .{type} is expected", instruction)
    if has != asked and not (loose and has > asked > 1):
        raise refused(f"{register.name} has {has} bits, and {asked} are expected", instruction)
