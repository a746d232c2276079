"""Instances at the border of a rule: a number goes up or down as far as its guards let it, or to where a quotient jumps.

A guard that is off by one, or that is missing, lets one instance more through, and that one is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from .context import Reject
from .instantiate import Attempt
from .parse import Lit, Var
from .primitives import ORDERS
from .steps import Arg, Case, Step
from .term import Value
from .world import World

NUMBERS = 2
"""Of an instance that are taken to the borders of the guards."""

JUMPS = 6
"""Of an instance, where a quotient is about to be another."""

EFFORT = 120_000
"""Steps of all instances at borders."""

LEAST = 30
"""Steps that an instance counts at least."""

ENDLESS = 3
"""Walks of a number without an end, after which it is not taken that way any more."""

CONSTANTS = 24
"""Bits of constants that are taken to the borders; there is less between them than between numbers that something is counted by."""

STEPS = (1, 2, 8, 16, 64)
"""By which a number goes on: one that must divide another, or be its multiple, moves by more than one."""

FAR = 1 << 16

ALL_BITS = 1 << 32
"""No number that is the bits of a constant is as large."""

BITS = (("Const", 1), ("Imm", 1), ("Stream", 3), ("RoundedStream", 4))
"""Where the bits of a constant stand."""


class Endless(Exception):
    """A number may go as far as one likes."""


Run = Callable[[int], Attempt]
"""An instance with a number. Raises Reject."""


def last(run: Run, start: int, way: int, bits: bool = False) -> Attempt | None:
    """The last instance when a number goes from ``start`` up (``way`` 1) or down (-1); None where it cannot move. ``bits``: a number
    that has an end, and is as likely to be far from it as near. Raises Endless."""
    for step in STEPS:
        number = start + way * step
        found = least(run, [number])
        if found is None:
            continue
        stride = step
        while not bits and stride < FAR:
            stride *= 2
            further = least(run, [number + way * stride])
            if further is None:
                break
            number, found = number + way * stride, further
        else:
            if not bits:
                raise Endless
            stride = ALL_BITS
        while stride > step:
            stride //= 2
            further = least(run, [number + way * stride])
            if further is not None:
                number, found = number + way * stride, further
        return found
    return None


def least(run: Run, numbers: Sequence[int]) -> Attempt | None:
    """The instance with the first of some numbers that makes one."""
    for number in numbers:
        try:
            return run(number)
        except Reject:
            continue
    return None


class Borders:
    """Instances beside one: where a quotient jumps or a guard changes its mind about a limit of the machine; and the last ones when
    a number goes up or down, and from there another. ``effort``: steps that may still be taken; ``endless``: how often a number
    went on for ever; ``constants``: as effort, of those whose bits go on."""

    def __init__(self) -> None:
        self.effort = EFFORT
        self.endless = Counter[tuple[str, int]]()
        self.constants = CONSTANTS

    def of(self, make: Callable[..., Attempt], attempt: Attempt) -> list[World]:
        make = partial(make, rows=attempt.invented)
        start, rng = _numbers(attempt), attempt.rng
        moving = [name for name in start if name not in attempt.free or _moves(attempt, name)]
        jumps = [each for each in _jumps(attempt) if each[0] in moving]
        beside = [(name, [number]) for name, number in rng.sample(jumps, min(JUMPS, len(jumps)))]
        beside += [(name, near) for name in start for near in _beside(attempt, name)]
        found = [least(self._run(make, start, name), near) for name, near in beside]
        constants = {name for name in moving if _is_constant(attempt, name)}
        walking = [name for name in moving if min(self.endless[name, way] for way in (1, -1)) < ENDLESS]
        walking = [name for name in walking if name not in constants or self.constants > 0]
        for name in rng.sample(walking, min(NUMBERS, len(walking))):
            bits = name in constants
            self.constants -= bits
            ends = [end for way in (1, -1) if (end := self._last(make, start, name, way, bits)) is not None]
            found += ends
            start = _numbers(rng.choice(ends)) if ends else start
        return [each.world for each in found if each is not None]

    def _run(self, make: Callable[..., Attempt], start: Mapping[str, Value], name: str) -> Run:
        """With other values of a number."""

        def run(number: int) -> Attempt:
            attempt = make(fixed={**start, name: number})
            self.effort -= max(LEAST, len(attempt.case.steps))
            if self.effort <= 0:
                raise Reject
            attempt.run()
            return attempt

        return run

    def _last(
        self, make: Callable[..., Attempt], start: Mapping[str, Value], name: str, way: int, bits: bool
    ) -> Attempt | None:
        if self.endless[name, way] >= ENDLESS:
            return None
        try:
            return last(self._run(make, start, name), start[name], way, bits)
        except Endless:
            self.endless[name, way] += 1
            return None


def _numbers(attempt: Attempt) -> dict[str, Value]:
    """What may be fixed of an instance, by the names that it has then."""
    limits = {f"limit {name}": size for name, size in attempt.limits.items() if _asks(attempt, name)}
    return {**attempt.free, **limits, **attempt.extents}


def _beside(attempt: Attempt, name: str) -> Iterator[list[int]]:
    """What each guard holds a limit of the machine against, and its neighbours, from where it does not hold: there it changes its
    mind."""
    limits = {
        step.args[2]
        for step in attempt.case.steps
        if step.args[:2] == (Lit("limit"), Lit(name.removeprefix("limit ")))
    }
    for step in attempt.case.steps:
        if step.kind == "primitive" and step.head in ORDERS and limits & set(step.args):
            (other,) = (attempt.get(arg) for arg in step.args if arg not in limits)
            above = step.head.startswith("<") == (step.args[0] in limits)
            near = [other + more for more in (-1, 0, 1)]
            yield near[::-1] if above else near


def _asks(attempt: Attempt, limit: str) -> bool:
    """Whether a rule asks for a limit of the machine."""
    return any(step.args[:2] == (Lit("limit"), Lit(limit)) for step in attempt.case.steps)


def _moves(attempt: Attempt, name: str) -> bool:
    """Whether what is free is a number that can be any other, and some guard may care: not that of a row which nobody makes up, nor one that is chosen
    from a list, which follows what the list hangs on."""
    if not isinstance(attempt.free[name], int):
        return False
    steps = [step for step, _ in attempt.case.uses[name]]
    asked = any(step.kind in ("primitive", "predicate") for step in steps)
    known = name in attempt.listed or not all(
        attempt.invents(step.head) for step in steps if step.kind == "relation"
    )
    return asked and not known


def _is_constant(attempt: Attempt, name: str) -> bool:
    """Whether a number is the bits of a constant."""
    return any((step.head, position) in BITS for step, position in attempt.case.uses.get(name, ()))


def _jumps(attempt: Attempt) -> list[tuple[str, int]]:
    """Numbers, and what they would have to be for something that is divided to leave no remainder, or the largest."""
    found = []
    for step, names in _quotients(attempt.case):
        value, by = map(attempt.get, step.args)
        if by < 2:
            continue
        for name in names & attempt.free.keys():
            found += [
                (name, attempt.free[name] - value % by + more)
                for more in (0, -1, by - 1)
                if value % by != more
            ]
    return found


def _quotients(case: Case) -> Sequence[tuple[Step, frozenset[str]]]:
    """The divisions of a case, with the numbers that what is divided is a sum of."""
    if "quotients" not in case.memo:

        def terms(arg: Arg) -> frozenset[str]:
            if not isinstance(arg, Var):
                return frozenset()
            for step in case.produced.get(arg.name, ()):
                if step.kind == "primitive" and step.head in ("+", "-"):
                    return frozenset().union(*map(terms, step.args if step.head == "+" else step.args[:1]))
            return frozenset([arg.name])

        divisions = [step for step in case.steps if step.kind == "primitive" and step.head == "/"]
        case.memo["quotients"] = [(step, terms(step.args[0])) for step in divisions]
    found: Sequence[tuple[Step, frozenset[str]]] = case.memo["quotients"]
    return found
