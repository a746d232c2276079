"""How the kernels of a program may run of which only a part is known, as far as arithmetic is concerned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from operator import le

from ..choice import How
from ..cost.model import Timer, Work, estimates_by_formulas
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


class Hosts:
    """Of a program."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # what there may be in a kernel
        self.heads = frozenset(option.item.head for found in problem.options.values() for option in found)
        self._products: dict[tuple[How, frozenset[str] | None], Sequence[Work]] = {}
        self._of: dict[tuple[Case, frozenset[str]], Sequence[Timer]] = {}
        self._tried: dict[Work, tuple[float, ...]] = {}

    def products(self, how: How, axes: frozenset[str] | None) -> Sequence[Work]:
        """What kernels of a kind may tile, see :meth:`Problem.tiled`, less what takes as long as another, or longer."""
        if (how, axes) not in self._products:
            self._products[how, axes] = self._undominated(self.problem.tiled(how, axes))
        return self._products[how, axes]

    def of(self, case: Case, axes: Iterable[str] = ()) -> Sequence[Timer]:
        """What kernels of a case take. ``axes``: of their output, as far as they are known."""
        problem, what = self.problem, (case, frozenset(axis for axis in axes if axis_id(axis) < LEVEL))
        if what not in self._of:
            found = set(problem.loops(what[1]))
            if case.name in PRODUCTS:
                works = self.products(case.how, None)
                found = {each.schedule for each in works if each.schedule is not None}
            best = self._undominated(Work(schedule=each) for each in found)
            timers = (problem.running.timer(each) for each in [work.schedule for work in best] or [None])
            self._of[what] = tuple(dict.fromkeys(timers))
        return self._of[what]

    def _undominated(self, works: Iterable[Work]) -> list[Work]:
        """Of what kernels may do, each with how they run, that which with some more arithmetic takes less than with each other."""
        model = self.problem.model
        if not estimates_by_formulas(model):
            return []
        found: dict[tuple[float, ...], Work] = {}
        for work in works:
            each = replace(work, schedule=work.schedule and computing(work.schedule))
            if each not in self._tried:
                self._tried[each] = tuple(model.kernel(each + other) for other in MORE)
            found.setdefault(self._tried[each], each)
        kept = [
            seconds
            for seconds in found
            if not any(other != seconds and _below(other, seconds) for other in found)
        ]
        return [found[seconds] for seconds in sorted(kept)]


@cache
def computing(schedule: Schedule) -> Schedule:
    """The same without what it moves."""
    return replace(schedule, staged_bytes=0.0)


def _below(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(map(le, one, other))
