"""Which element of a matrix each register of each lane holds (PTX ISA, "Matrix Fragments for mma.m16n8k8" and the like).

A lane is in group ``lane // 4`` and has place ``lane % 4`` in it. All layouts of mma.sync with 16 rows and 8 columns are one: the
registers of a lane cover blocks of eight rows and four registers' width of columns; A goes down its rows first, then right, B goes
down, C has two columns per lane and block of rows. Only the number of elements in a register differs: 1 of 32 bits, 2 of 16, 4 of 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from .types import Array

LANES = 32


@dataclass(frozen=True, eq=False)
class Fragment:
    """The element of a matrix in each place of a warp's registers: ``row`` and ``column`` are int64 of shape (32, registers, parts),
    where part 0 is the lowest bits of a register."""

    row: Array
    column: Array

    @property
    def registers(self) -> int:
        return int(self.row.shape[1])

    @property
    def parts(self) -> int:
        """How many elements a register holds."""
        return int(self.row.shape[2])

    @cached_property
    def at(self) -> Array:
        """For each part of the registers, lane by lane, the place of its element in the matrix, row by row."""
        return (self.row * (self.column.max() + 1) + self.column).reshape(-1)

    @cached_property
    def places(self) -> Array:
        """The way back: for each element of the matrix where it is among the parts of all registers."""
        return np.argsort(self.at)


def _grid(registers: int, parts: int) -> tuple[Array, Array, Array, Array]:
    lane = np.arange(LANES)[:, None, None]
    register = np.arange(registers)[None, :, None]
    part = np.arange(parts)[None, None, :]
    return lane // 4, lane % 4, register, part


@cache
def fragment_a(k: int, bits: int) -> Fragment:
    """Of the 16 by ``k`` matrix A, of elements of ``bits`` bits."""
    parts = 32 // bits
    registers = 16 * k // (LANES * parts)
    group, place, register, part = _grid(registers, parts)
    row = group + 8 * (register % 2)
    column = parts * place + part + 4 * parts * (register // 2)
    return Fragment(*np.broadcast_arrays(row, column))


@cache
def fragment_b(k: int, bits: int) -> Fragment:
    """Of the ``k`` by 8 matrix B."""
    parts = 32 // bits
    registers = k * 8 // (LANES * parts)
    group, place, register, part = _grid(registers, parts)
    return Fragment(*np.broadcast_arrays(parts * place + part + 4 * parts * register, group))


@cache
def fragment_c(bits: int) -> Fragment:
    """Of the 16 by 8 matrices C and D, of elements of 32 or 16 bits."""
    parts = 32 // bits
    group, place, register, part = _grid(4 // parts, parts)
    element = parts * register + part
    return Fragment(*np.broadcast_arrays(group + 8 * (element // 2), 2 * place + element % 2))


def gathered(registers: Array, fragment: Fragment, shape: tuple[int, int]) -> Array:
    """The matrix in registers (warps, 32, n) of uint32: (warps, rows, columns) of the bits of its elements."""
    parts = (
        np.ascontiguousarray(registers)
        .view(f"<u{4 // fragment.parts}")
        .reshape(len(registers), fragment.at.size)
    )
    return np.take(parts, fragment.places, axis=1).reshape(len(registers), *shape)


def scattered(matrix: Array, fragment: Fragment) -> Array:
    """The registers (warps, 32, n), uint32, that hold a matrix (warps, rows, columns) of the bits of its elements."""
    parts = np.take(matrix.reshape(len(matrix), fragment.at.size), fragment.at, axis=1)
    return parts.view(np.uint32).reshape(len(matrix), LANES, fragment.registers)
