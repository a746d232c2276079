"""Instances at the border of a rule: a number goes up or down as far as its guards let it.

A guard that is off by one, or that is missing, lets one instance more through, and that one is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .context import Reject

Instance = TypeVar("Instance")

STEPS = (1, 2, 8, 16, 64)
"""By which a number goes on: one that must divide another, or be its multiple, moves by more than one."""

FAR = 1 << 24


def last(run: Callable[[int], Instance], start: int, way: int) -> Instance | None:
    """The last instance when a number goes from ``start`` up (``way`` 1) or down (-1); None where it cannot move, or has no end.
    ``run`` makes an instance with a number, or raises Reject."""

    def tried(number: int) -> Instance | None:
        try:
            return run(number)
        except Reject:
            return None

    for step in STEPS:
        number = start + way * step
        found = tried(number)
        if found is None:
            continue
        stride = step
        while stride < FAR:
            stride *= 2
            further = tried(number + way * stride)
            if further is None:
                break
            number, found = number + way * stride, further
        else:
            return None
        while stride > step:
            stride //= 2
            further = tried(number + way * stride)
            if further is not None:
                number, found = number + way * stride, further
        return found
    return None
