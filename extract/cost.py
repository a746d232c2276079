"""What a kernel is estimated to cost, in seconds, from bytes moved, operations and launches on a hardware table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from .hardware import WEIGHTS, Hardware
from .view import LEVEL, axis_extent, axis_id

UNKNOWN_EXTENT = 64
"""Taken for an outer axis whose loop a value has to be recomputed in, where its extent is not known yet."""


@dataclass(frozen=True)
class Work:
    """What a kernel does: contraction FLOPs (a multiply-add is 2), simple operations, bytes read and written, and the
    number of values that its code computes."""

    flops: float = 0.0
    ops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    values: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.ops + other.ops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.values + other.values,
        )


class CostModel(Protocol):
    """Estimates in seconds. Extraction minimises the sum of :meth:`kernel` over all kernels."""

    @property
    def hardware(self) -> Hardware:
        """The row of the hardware table that the estimates are for."""

    def seconds(self, work: Work) -> float:
        """Additive estimate of a part of a kernel; must not be negative."""

    def kernel(self, work: Work) -> float:
        """Estimate of a whole kernel, its launch included."""


@dataclass(frozen=True)
class Roofline:
    """``max(compute, memory) + launch + values``; parts of a kernel are added up."""

    hardware: Hardware

    def seconds(self, work: Work) -> float:
        return self.compute(work) + self.memory(work) + self.code(work)

    def kernel(self, work: Work) -> float:
        return max(self.compute(work), self.memory(work)) + self.code(work) + self.hardware.launch

    def compute(self, work: Work) -> float:
        return work.flops / self.hardware.flops + work.ops / self.hardware.ops

    def code(self, work: Work) -> float:
        return work.values * self.hardware.value

    def memory(self, work: Work) -> float:
        return (work.bytes_read + self.hardware.write * work.bytes_written) / self.hardware.bandwidth


def points(axes: Iterable[str]) -> float:
    """How often a value with these free axes is evaluated: the product of their extents."""
    return math.prod(axis_extent(axis) for axis in axes)


def loop_points(axes: Iterable[str]) -> float:
    """The same for a reduction in a loop nest whose output axes are the outer loops in order: an output axis that
    lies outside one it depends on repeats it."""
    found = list(axes)
    outputs = {axis_id(axis) for axis in found if axis_id(axis) < LEVEL}
    skipped = sum(id not in outputs for id in range(max(outputs, default=-1)))
    return points(found) * float(UNKNOWN_EXTENT**skipped)


def weight(op: str) -> float:
    return WEIGHTS.get(op, 1.0)
