"""Times of single kernels: warm up, repeat, take the median (document 004 §11, §13)."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .cpu import Executable
    from .cuda.launch import Launched

WARMUP = 2
"""Runs that are not counted: the first one touches memory for the first time."""


def kernel_seconds(
    code: Executable | Launched, inputs: Sequence[NDArray[Any]], repeats: int = 9
) -> tuple[float, ...]:
    """Median seconds of each instruction of a program over ``repeats`` runs, in order. ``inputs`` as for a call of ``code``.

    Raises TinycError InputMismatch, and MemoryError, as a call does.
    """
    for _ in range(WARMUP):
        code(inputs)
    runs = [code.profile(inputs).seconds for _ in range(repeats)]
    return tuple(median(times) for times in zip(*runs, strict=True))


def processor() -> str:
    """What the processor calls itself; no name of the machine."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
