"""Where the intermediate buffers of a program lie: offsets in one block of memory, reused once a buffer is dead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinyc.ir.plan import BufferInfo

ALIGNMENT = 64


@dataclass(frozen=True)
class Layout:
    """``offsets``: buffer id -> byte offset, a multiple of 64; ``size``: bytes of the whole block."""

    offsets: dict[int, int]
    size: int


def plan_memory(buffers: Sequence[BufferInfo]) -> Layout:
    """Places each buffer as low as it fits beside the buffers that live at the same time, large ones first."""
    placed: list[tuple[BufferInfo, int, int]] = []
    for buffer in sorted(buffers, key=lambda item: (-item.bytes, item.lifetime, item.id)):
        size = aligned(buffer.bytes)
        start = 0
        neighbours = [(low, high) for other, low, high in placed if _overlap(buffer, other)]
        for low, high in sorted(neighbours):
            if start + size <= low:
                break
            start = max(start, high)
        placed.append((buffer, start, start + size))
    return Layout({item.id: low for item, low, _ in placed}, max((high for _, _, high in placed), default=0))


def _overlap(one: BufferInfo, two: BufferInfo) -> bool:
    return one.lifetime[0] <= two.lifetime[1] and two.lifetime[0] <= one.lifetime[1]


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Memory:
    """``size`` bytes, 64-byte aligned, not set to anything."""

    def __init__(self, size: int) -> None:
        self._bytes: NDArray[np.uint8] = np.empty(size + ALIGNMENT, np.uint8)
        self.size = size
        self.address = aligned(self._bytes.ctypes.data)
