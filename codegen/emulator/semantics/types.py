"""PTX's types as bits in arrays, and what an instruction of the emulator is.

A register's value is bits: ``uint8`` to ``uint64`` for types of 8 to 64 bits, ``bool`` for ``.pred``. A type only says how an
instruction reads them (PTX ISA, "Fundamental Types" and "Packed Data Types").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Compute = Callable[..., tuple[Array, ...]]

WIDTH = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "tf32": 32,
    "f16x2": 32,
    "bf16x2": 32,
    "u16x2": 32,
    "s16x2": 32,
}

BITS: dict[int, np.dtype[Any]] = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}
SIGNED: dict[int, np.dtype[Any]] = {bits: np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)}

INTEGERS = tuple(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))


@dataclass(frozen=True)
class Operation:
    """What one instruction computes, with no memory and no other lanes.

    ``results`` and ``operands`` are PTX's type names ("b32", "f32", "pred", ...). ``compute`` takes one array of bits for each
    operand, all of one shape, and returns one new array of bits for each result. It raises nothing, warns of nothing and leaves
    its operands as they are.
    """

    results: tuple[str, ...]
    operands: tuple[str, ...]
    compute: Compute


def bits_dtype(name: str) -> np.dtype[Any]:
    """The dtype of the array that holds values of the PTX type ``name``: ``bool`` for "pred"."""
    return np.dtype(bool) if name == "pred" else BITS[WIDTH[name]]


def numbers(bits: Array, name: str) -> Array:
    """The same memory read as the integers of type ``name``: a view, signed where the type is."""
    return bits.view(SIGNED[WIDTH[name]]) if name[0] == "s" else bits


def parse(modifiers: tuple[str, ...], **groups: tuple[str, ...]) -> dict[str, str] | None:
    """Which modifier stands in each group, "" for none; None unless the groups, in their order, account for all of them."""
    found, rest = {}, list(modifiers)
    for group, choices in groups.items():
        found[group] = rest.pop(0) if rest and rest[0] in choices else ""
    return None if rest else found


def quiet(compute: Compute) -> Compute:
    """The same function without numpy's warnings: an overflow or a NaN is a result like any other here."""

    def silent(*operands: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return compute(*operands)

    return silent


def packed(compute: Compute, bits: int = 16) -> Compute:
    """``compute``, which works on elements of ``bits`` bits, on registers that hold several of them."""

    def each(*operands: Array) -> tuple[Array, ...]:
        first = operands[0]
        parts = [np.ascontiguousarray(operand).view(BITS[bits]) for operand in operands]
        return tuple(result.view(first.dtype).reshape(first.shape) for result in compute(*parts))

    return each
