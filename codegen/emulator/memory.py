"""Memory: where variables and buffers lie, what their bytes are, and whether an address is inside.

One flat array of bytes for each space. Global memory, which holds constants and parameters too, is one array of
regions with unused addresses between them, so that leaving a region is leaving memory. Shared and local memory are one
array with an equal part for each block or thread; their addresses count from 0 in it, and from a window's base where
they are generic (PTX ISA, "Generic Addressing"; global addresses are the same in both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .types import Array, unsigned

#: generic addresses at which the windows of shared and local memory begin
SHARED_WINDOW = 0x7_0000_0000_0000
LOCAL_WINDOW = 0x6_0000_0000_0000
FIRST_ADDRESS = 0x10_0000_0000
#: unused addresses after each region; a buffer's row is rarely longer
GAP = 1 << 20
#: each region and each part begin at a multiple of it, in memory and in the array
UNIT = 256
#: what bytes hold that nothing wrote: NaN in every float
UNWRITTEN = 0xFF


def rounded(size: int, unit: int = UNIT) -> int:
    return -(-size // unit) * unit


class Bytes:
    """A flat array of bytes that is read and written in elements of 8 to 64 bits."""

    def __init__(self, size: int) -> None:
        self.data = np.full(rounded(max(size, UNIT)), UNWRITTEN, np.uint8)
        self.views = {bits: self.data.view(unsigned(bits)) for bits in (8, 16, 32, 64)}

    def load(self, offsets: Array, bits: int) -> Array:
        return self.views[bits][offsets >> (bits.bit_length() - 4)]

    def store(self, offsets: Array, bits: int, values: Array) -> None:
        self.views[bits][offsets >> (bits.bit_length() - 4)] = values


@dataclass(frozen=True)
class Region:
    """A buffer or variable in global memory: ``address`` and ``offset`` (in the array) of its first byte.

    ``writable``: constants and parameters are not. ``written``: its bytes have a value before the kernel runs.
    """

    name: str
    size: int
    address: int
    offset: int
    writable: bool = True
    written: bool = True


class GlobalMemory:
    """The regions and their bytes; shared by all blocks of a launch."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self._parts: list[bytes | None] = []
        self._next, self._size = FIRST_ADDRESS, 0

    def add(self, name: str, size: int, content: bytes | None, writable: bool = True) -> Region:
        """A new region. ``content``: its bytes; None for one that nothing has written."""
        region = Region(name, size, self._next, self._size, writable, content is not None)
        self.regions.append(region)
        self._parts.append(content)
        self._next = rounded(self._next + size + GAP, GAP)
        self._size += rounded(max(size, 1))
        return region

    def close(self) -> None:
        """Makes the array, after the last region was added."""
        self.bytes = Bytes(self._size)
        for region, content in zip(self.regions, self._parts, strict=True):
            if content is not None:
                part = self.bytes.data[region.offset : region.offset + region.size]
                part[: len(content)] = np.frombuffer(content, np.uint8)
                part[len(content) :] = 0
        self._parts.clear()
        self.starts = np.array([each.address for each in self.regions], np.uint64)
        self.sizes = np.array([each.size for each in self.regions], np.int64)
        self.offsets = np.array([each.offset for each in self.regions], np.int64)
        self.writable = np.array([each.writable for each in self.regions], bool)

    def locate(self, addresses: Array, size: int) -> tuple[Array, Array, Array]:
        """For uint64 addresses of ``size`` bytes: the region, the offset in the array, and whether all lie inside."""
        region = np.searchsorted(self.starts, addresses, "right") - 1
        inside = (addresses - self.starts[region]).view(np.int64)
        good = (region >= 0) & (inside >= 0) & (inside + size <= self.sizes[region])
        return region, inside + self.offsets[region], good

    def describe(self, address: int, size: int) -> str:
        """Why ``size`` bytes at an address are not all inside a region."""
        before = [each for each in self.regions if each.address <= address]
        if not before:
            return "it lies before all buffers"
        region = max(before, key=lambda each: each.address)
        start = address - region.address
        return f"bytes {start} to {start + size - 1} of {region.name}, which has {region.size}"

    def content(self, region: Region) -> Array:
        return self.bytes.data[region.offset : region.offset + region.size]


class PartedMemory:
    """Shared or local memory: ``size`` bytes for each of ``parts`` blocks or threads, one part after the other. ``variables``: where
    each begins and ends, in order, as far as there are unused addresses between them."""

    def __init__(self, parts: int, size: int, variables: Sequence[tuple[int, int]] = ()) -> None:
        self.size = size
        self.stride = rounded(size)
        self.bytes = Bytes(parts * self.stride)
        self.starts, self.ends = np.array(variables, np.int64).reshape(-1, 2).T

    def locate(self, addresses: Array, parts: Array, size: int) -> tuple[Array, Array]:
        """For addresses that count from the start of each one's part: the offset in the array, and whether inside."""
        inside = addresses.astype(np.int64)
        good = (inside >= 0) & (inside + size <= self.size)
        if len(self.starts) > 1:
            good &= inside + size <= self.ends[np.searchsorted(self.starts, inside, "right") - 1]
        return inside + parts * self.stride, good
