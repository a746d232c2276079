"""Buffers of a whole program (document 000 §1): what each holds, how long it lives, where it lies."""

from __future__ import annotations

from dataclasses import dataclass

from .dtypes import DType

BufferId = int
"""Numbers the buffers of one ExecutionPlan: 0, 1, 2, …"""

ALIGNMENT = 128
"""Bytes to which every buffer that tinyc allocates is aligned (document 004 §6.8): a cache line pair, a TMA box."""


@dataclass(frozen=True)
class BufferInfo:
    """A buffer of the whole program.

    Attributes:
        lifetime: numbers of the first and last instruction that touch it, inclusive. An input lives from the start,
            an output to the end.
        bytes: of its elements.
        allocated_size: bytes that a call sets aside for it, a multiple of the arena's alignment; 0 for an input,
            which is the caller's.
        offset: where it starts in the arena; None for inputs and outputs, which do not lie there.
    """

    id: BufferId
    name: str
    shape: tuple[int, ...]
    dtype: DType
    lifetime: tuple[int, int]
    bytes: int
    allocated_size: int = 0
    offset: int | None = None


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """``size`` rounded up to a multiple of ``alignment``."""
    return -(-size // alignment) * alignment
