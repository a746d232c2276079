"""The formulas of the cost model as functions of numbers. What is known of the machine, or of how a kernel runs, is worked in
once: extraction asks what a kernel costs some hundred thousand times."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .expressions import bound, constant, folded, function, hoisted, names_of, of_sequence
from .formulas import SCHEDULE, WORK, names_in, needed, text_of

if TYPE_CHECKING:
    from .model import Work
    from .schedule import Schedule


def _where(condition: bool, then: float, otherwise: float) -> float:
    return then if condition else otherwise


_NUMBERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"Min": min, "Max": max, "floor": math.floor, "ceiling": math.ceil, "where": _where, "sum": sum}
)


def _of_arrays() -> Mapping[str, Callable[..., Any]]:
    """The same of arrays. Both sides of a condition are worked out: what is divided by nothing on one is not taken."""
    import numpy as np

    def where(condition: Any, then: Any, otherwise: Any) -> Any:
        return np.where(condition, then, otherwise)

    return {
        "Min": lambda *each: functools.reduce(np.minimum, each),
        "Max": lambda *each: functools.reduce(np.maximum, each),
        "floor": np.floor,
        "ceiling": np.ceil,
        "where": where,
        "sum": sum,
    }


def evaluator(
    names: tuple[str, ...], scheduled: bool, machine: Mapping[str, float]
) -> Callable[[Work, Schedule | None], tuple[float, ...]]:
    """The formulas ``names`` as one pure function of a Work and, where ``scheduled``, its Schedule; the machine's symbols
    are constants."""
    order = needed(names, scheduled)
    used = frozenset[str]().union(*(names_in(text_of(name, scheduled)) for name in order))
    known = {name: constant(value) for name, value in machine.items()}
    for owner, fields in (("work", WORK), ("schedule", SCHEDULE)):
        of: ast.expr = ast.Name(owner, ast.Load())
        known |= {name: ast.Attribute(of, name, ast.Load()) for name in fields if name in used}
    steps: list[tuple[str, ast.expr]] = []
    for name in order:
        value = folded(text_of(name, scheduled), known, _NUMBERS)
        if not isinstance(value, ast.Constant):
            steps.append((f"v{len(steps)}", value))
            value = ast.Name(steps[-1][0], ast.Load())
        known[name] = value
    return function(("work", "schedule"), steps, [known[name] for name in names], _NUMBERS)


def rates(name: str, machine: Mapping[str, float]) -> Mapping[str, float]:
    """What one more of each amount of Work adds to a formula that is linear in them, of those that add anything."""
    known = {each: constant(value) for each, value in machine.items()}
    known |= {each: ast.Name(each, ast.Load()) for each in WORK}
    linear = function(tuple(WORK), (), (folded(text_of(name, False), known, _NUMBERS),), _NUMBERS)
    ones = {each: linear(*(float(other == each) for other in WORK))[0] for each in WORK}
    return {each: value for each, value in ones.items() if value}


@dataclass(frozen=True)
class Estimator:
    """A sum of formulas in two steps: what ``once`` makes of a Schedule is given to ``seconds`` after a kernel's amounts.
    ``many``: the same of arrays of amounts. ``made``: functions that :meth:`of` has made, as long as someone holds them."""

    once: Callable[[Schedule | None], Sequence[float]]
    seconds: FunctionType
    many: FunctionType
    made: WeakValueDictionary[tuple[float, ...], Callable[[Sequence[float]], float]]

    def of(self, schedule: Schedule | None) -> Callable[[Sequence[float]], float]:
        """The sum for kernels that run so, by their amounts: one function where they take as long, whatever they do."""
        constants = tuple(self.once(schedule))
        found = self.made.get(constants)
        if found is None:
            found = self.made[constants] = bound(self.seconds, constants)
        return found

    def of_many(self, schedule: Schedule | None) -> Callable[[Sequence[Any]], Any]:
        """The same of many kernels, an array for each of their amounts."""
        return bound(self.many, tuple(self.once(schedule)))


def estimator(
    names: tuple[str, ...], scheduled: bool, machine: Mapping[str, float], amounts: Sequence[str]
) -> Estimator:
    """The sum of the formulas ``names``, in their order and as :func:`evaluator` has them. ``amounts``: all symbols of WORK, in
    the order in which they are given."""
    known = {name: constant(value) for name, value in machine.items()}
    known |= {name: ast.Name(name, ast.Load()) for name in amounts}
    schedule = ast.Name("schedule", ast.Load())
    known |= {name: ast.Attribute(schedule, name, ast.Load()) for name in SCHEDULE}
    late = set(amounts)
    early: list[tuple[str, ast.expr]] = []
    steps: list[tuple[str, ast.expr]] = []
    for name in needed(names, scheduled):
        value = folded(text_of(name, scheduled), known, _NUMBERS)
        if not isinstance(value, ast.Constant | ast.Name):
            of_work = not late.isdisjoint(names_of(value))
            if of_work:
                value = hoisted(value, late, early)
            steps_of = steps if of_work else early
            steps_of.append((f"{'late' if of_work else 'early'}{len(steps_of)}", value))
            value = ast.Name(steps_of[-1][0], ast.Load())
            late |= {value.id} if of_work else set()
        known[name] = value
    # as everywhere, since Python 3.12 sums more exactly than it adds
    total = ast.Call(
        ast.Name("sum", ast.Load()), [ast.Tuple([known[name] for name in names], ast.Load())], []
    )
    used = frozenset[str]().union(names_of(total), *(names_of(value) for _, value in steps))
    constants = [name for name, _ in early if name in used]
    once = function(("schedule",), early, [ast.Name(name, ast.Load()) for name in constants], _NUMBERS)
    many = of_sequence(amounts, constants, steps, total, _of_arrays(), False)
    one = of_sequence(amounts, constants, steps, total, _NUMBERS)
    return Estimator(once, one, many, WeakValueDictionary())
