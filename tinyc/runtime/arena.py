"""Memory for one call: the block that an ExecutionPlan's arena is planned for, and arrays at aligned addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tinyc.ir.buffer import ALIGNMENT, aligned

Array = NDArray[Any]


class Memory:
    """``size`` bytes from ``address`` on, a multiple of ``alignment``; not set to anything. Raises MemoryError."""

    def __init__(self, size: int, alignment: int = ALIGNMENT) -> None:
        self._bytes = _bytes(size + alignment)
        self.size = size
        self.address = aligned(self._bytes.ctypes.data, alignment)


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike, alignment: int = ALIGNMENT) -> Array:
    """A row-major array at a multiple of ``alignment``, not set to anything. Raises MemoryError."""
    kind = np.dtype(dtype)
    size = kind.itemsize
    for extent in shape:
        size *= extent
    block = _bytes(size + alignment)
    start = -block.ctypes.data % alignment
    return block[start : start + size].view(kind).reshape(shape)


def aligned_copy(array: Array, alignment: int) -> Array:
    """``array`` in row-major order at a multiple of ``alignment``."""
    copy = aligned_empty(array.shape, array.dtype, alignment)
    copy[...] = array
    return copy


def is_aligned(array: Array, alignment: int) -> bool:
    """Whether the first element lies at a multiple of ``alignment``."""
    return array.ctypes.data % alignment == 0


def _bytes(size: int) -> NDArray[np.uint8]:
    try:
        return np.empty(size, np.uint8)
    except (ValueError, OverflowError) as error:  # more bytes than numpy can count
        raise MemoryError(str(error)) from error
