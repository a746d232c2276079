"""The threads that run together, and the groups of them that execute one instruction.

A thread has a *slot*: its place in arrays of one value per thread. Blocks lie one after the other, each padded to whole
warps, so that slot // 32 numbers the warps. Slots count within the machine; :attr:`Threads.first` is the slot of its
first thread in the whole grid.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from .types import Array

WARP = 32
Shape = tuple[int, int, int]


class Threads:
    """``count`` slots: those of ``blocks`` blocks from number ``first_block`` on. All arrays have one value per slot."""

    def __init__(self, grid: Shape, block: Shape, first_block: int, blocks: int) -> None:
        self.grid_shape, self.block_shape = grid, block
        self.first_block, self.blocks = first_block, blocks
        self.per_block = block[0] * block[1] * block[2]
        self.warps_per_block = -(-self.per_block // WARP)
        self.stride = self.warps_per_block * WARP
        self.count = blocks * self.stride
        self.first = first_block * self.stride
        slots = np.arange(self.count)
        self.block = slots // self.stride
        self.in_block = slots % self.stride
        self.warp = slots // WARP
        self.lane = slots % WARP
        self.warp_in_block = self.in_block // WARP
        self.exists = self.in_block < self.per_block
        self.existing = blocks * self.per_block

    def thread_index(self, axis: int) -> Array:
        """``threadIdx``: x varies fastest."""
        x, y, z = self.block_shape
        return (self.in_block // (1, x, x * y)[axis]) % (x, y, max(z, 1))[axis]

    def block_index(self, axis: int) -> Array:
        """``blockIdx``."""
        x, y, z = self.grid_shape
        return ((self.first_block + self.block) // (1, x, x * y)[axis]) % (x, y, z)[axis]

    def block_name(self, block: int) -> Shape:
        """``blockIdx`` of a block by its number in the grid."""
        x, y, _ = self.grid_shape
        return block % x, block // x % y, block // (x * y)


class Lanes:
    """Threads that execute one instruction together: their slots, ascending.

    ``everyone``: registers may be computed for all slots at once, because these are all threads that are still alive;
    what is computed for slots that hold no living thread is never looked at.
    """

    __slots__ = ("__dict__", "everyone", "index")

    def __init__(self, index: Array, everyone: bool) -> None:
        self.index, self.everyone = index, everyone

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def warps(self) -> Array:
        """The numbers of the warps that these lanes are of, ascending."""
        return np.unique(self.index // WARP)

    @cached_property
    def warp_count(self) -> int:
        return len(self.warps)

    def part(self, chosen: Array) -> Lanes:
        """The lanes where ``chosen``, one bool per lane, is true."""
        if chosen.all():
            return self
        return Lanes(self.index[chosen], False)


def union(parts: Iterable[Lanes], living: int) -> Lanes:
    """All lanes of disjoint groups. ``living``: how many threads are alive."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    index = np.sort(np.concatenate([each.index for each in found]))
    return Lanes(index, len(index) == living)
