"""Instances at the border of a rule: a number goes up or down as far as its guards let it.

A guard that is off by one, or that is missing, lets one instance more through, and that one is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .context import Reject
from .instantiate import Attempt
from .parse import Lit
from .world import World

NUMBERS = 2
"""Of an instance that are taken to the borders of the guards; one less beside the limits of the machine that it asks for."""

EFFORT = 90_000
"""Steps of all instances at borders."""

STEPS = (1, 2, 8, 16, 64)
"""By which a number goes on: one that must divide another, or be its multiple, moves by more than one."""

FAR = 1 << 16


def last(run: Callable[[int], World], start: int, way: int) -> World | None:
    """The last instance when a number goes from ``start`` up (``way`` 1) or down (-1); None where it cannot move, or has no end.
    ``run`` makes an instance with a number, or raises Reject."""

    def tried(number: int) -> World | None:
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


def least(run: Callable[[int], World], numbers: Sequence[int]) -> World | None:
    """The instance with the first of some numbers that makes one."""
    for number in numbers:
        try:
            return run(number)
        except Reject:
            continue
    return None


class Borders:
    """The last instances when a limit of the machine goes down, or one number of an instance up or down. ``effort``: steps that
    may still be taken."""

    def __init__(self) -> None:
        self.effort = EFFORT

    def of(self, make: Callable[..., Attempt], attempt: Attempt) -> Iterator[World]:
        limits = {f"limit {name}": size for name, size in attempt.limits.items() if _asks(attempt, name)}
        numbers = [
            name for name, value in attempt.free.items() if isinstance(value, int) and _moves(attempt, name)
        ]
        numbers += attempt.extents
        count = NUMBERS - bool(limits)
        chosen = [*limits, *attempt.rng.sample(numbers, min(count, len(numbers)))]
        start = {**attempt.free, **limits, **attempt.extents}
        for name, way in ((each, way) for each in chosen for way in ((-1,) if each in limits else (1, -1))):

            def run(number: int, name: str = name) -> World:
                self.effort -= len(attempt.case.steps)
                return make(fixed={**start, name: number}).run()

            if self.effort <= 0:
                return
            near = _beside(attempt, name) if name in limits else []
            found = least(run, near) if near else last(run, start[name], way)
            if found is not None:
                yield found


def _beside(attempt: Attempt, limit: str) -> list[int]:
    """What guards hold a limit against, and the next: there they change their mind."""
    names = {step.args[2] for step in attempt.case.steps if step.args[:2] == (Lit("limit"), Lit(limit[6:]))}
    guards = [
        step
        for step in attempt.case.steps
        if step.kind == "primitive" and step.out is None and names & set(step.args)
    ]
    values = [attempt.get(arg) for step in guards for arg in step.args if arg not in names]
    return sorted({each + more for each in values for more in (0, 1)})


def _asks(attempt: Attempt, limit: str) -> bool:
    """Whether a rule asks for a limit of the machine."""
    return any(step.args[:2] == (Lit("limit"), Lit(limit)) for step in attempt.case.steps)


def _moves(attempt: Attempt, name: str) -> bool:
    """Whether a number can be another, and some guard may care: not that of a row which nobody makes up."""
    steps = [step for step, _ in attempt.case.uses[name]]
    asked = any(step.kind in ("primitive", "predicate") for step in steps)
    return asked and all(attempt.invents(step.head) for step in steps if step.kind == "relation")
