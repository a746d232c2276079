"""How the kernels of a program may run of which only a part is known, as far as arithmetic is concerned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import le
from typing import TypeVar

from ..choice import How
from ..cost.model import Timer, Work, amounts_of, estimates_by_formulas
from ..cost.schedule import Schedule
from ..problem import Problem
from ..view import LEVEL, axis_id
from .cases import PRODUCTS, Case

MORE = (
    Work(),
    Work(ops=1e9),
    Work(ops=1e9, epilogue_ops=1e9),
    Work(ops=1e9, row_ops=1e9),
    Work(ops=1e9, block_ops=1e9),
    Work(ops=1e9, point_ops=1e9),
    Work(row_bytes=1e9),
    Work(block_bytes=1e9),
    Work(flops=1e12),
    Work(vector_flops=1e12),
    Work(tf32_flops=1e12),
)
"""Arithmetic of all kinds, with which kernels are compared."""

_MORE_AMOUNTS = tuple(map(amounts_of, MORE))

T = TypeVar("T")


class Hosts:
    """Of a program."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # what there may be in a kernel
        self.heads = frozenset(option.item.head for found in problem.options.values() for option in found)
        self._products: dict[tuple[How, frozenset[str] | None], Sequence[Work]] = {}
        self._of: dict[tuple[Case, frozenset[str]], Sequence[Timer]] = {}
        self._formulas = estimates_by_formulas(problem.model)
        self._tried: dict[Schedule, tuple[float, ...]] = {}

    def products(self, how: How, axes: frozenset[str] | None) -> Sequence[Work]:
        """What kernels of a kind may tile, see :meth:`Problem.tiled`, less what takes as long as another, or longer."""
        if (how, axes) not in self._products:
            model, works = self.problem.model, list[Work]()
            for work in self.problem.tiled(how, axes) if self._formulas else ():
                works.append(replace(work, schedule=work.schedule and computing(work.schedule)))
            seconds = {each: tuple(model.kernel(each + more) for more in MORE) for each in works}
            self._products[how, axes] = _undominated(seconds)
        return self._products[how, axes]

    def of(self, case: Case, axes: Iterable[str] = ()) -> Sequence[Timer]:
        """What kernels of a case take. ``axes``: of their output, as far as they are known."""
        what = case, frozenset(axis for axis in axes if axis_id(axis) < LEVEL)
        if what not in self._of:
            found: Iterable[Schedule | None] = self.problem.loops(what[1])
            if case.name in PRODUCTS:
                found = (each.schedule for each in self.products(case.how, None))
            known = {computing(each) for each in found if each is not None}
            best: list[Schedule | None] = []
            if self._formulas:
                best += _undominated({each: self._seconds(each) for each in known})
            self._of[what] = tuple(dict.fromkeys(map(self.problem.running.timer, best or [None])))
        return self._of[what]

    def _seconds(self, schedule: Schedule) -> tuple[float, ...]:
        """What a kernel takes that runs so, with more of each kind of arithmetic."""
        if schedule not in self._tried:
            timer = self.problem.running.timer(schedule)
            self._tried[schedule] = tuple(map(timer, _MORE_AMOUNTS))
        return self._tried[schedule]


def _undominated(seconds: Mapping[T, tuple[float, ...]]) -> list[T]:
    """What with some more arithmetic takes less than each other; of those that take as long, the first."""
    found: dict[tuple[float, ...], T] = {}
    for each, known in seconds.items():
        found.setdefault(known, each)
    kept = [known for known in found if not any(other != known and _below(other, known) for other in found)]
    return [found[known] for known in sorted(kept)]


@cache
def computing(schedule: Schedule) -> Schedule:
    """The same without what it moves."""
    return replace(schedule, staged_bytes=0.0)


def _below(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(map(le, one, other))
