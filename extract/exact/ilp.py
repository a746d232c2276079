"""Exact DAG extraction by an integer program (HiGHS), and by :mod:`~tinyc.extract.exact.frontier` where that is soon done.

A variable per node that a solution may hold, 1 where it is taken, and per group. A class that is needed has one node.
That alone allows two things which cuts forbid, added as solutions call for them:

- classes that need each other in a circle. Of a set of classes, one that is had needs one of them to have a node that
  needs none of the set ("support").
- fractions that stand for less than one derivation: a buffer filled by half, from another filled by a quarter. The same
  inequality, for a set with a root in it, says that what leads to a root is had whole (a landmark in the sense of
  planning; T. Imai and A. Fukunaga, "On a practical, integer-linear programming model for delete-free tasks", 2015). It
  is found on the fractional optimum, and makes the bound tight enough to prove optimality with hardly any branching.

Where the first whole solution still holds a circle, the classes of circles get places in an order as well (C. Miller,
A. Tucker and R. Zemlin, "Integer programming formulation of traveling salesman problems", 1960): its bound is weak, which
the cuts make up for, and no further circle has to be found one at a time.

The result does not depend on the machine unless the wall limit is what ended it: one thread, a fixed seed, and a limit
of branching nodes beside that of seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .dag import Dag, Solution, components, cost_of, greedy, taken, valid
from .frontier import cheapest
from .reduce import possible, reduced

TOLERANCE = 1e-6
"""Costs that differ by less, relatively, are one: what the solver's arithmetic can tell apart."""


@dataclass(frozen=True)
class Limits:
    """What :func:`solve` may spend: ``states`` before there is an integer program (``frontier.py``), then ``seconds`` of wall
    time, ``nodes`` of branch and bound and ``rounds`` of cuts. All but seconds are counts, so that the same problem ends
    alike on every machine that is fast enough."""

    seconds: float = 10.0
    states: int = 20_000
    nodes: int = 20_000
    rounds: int = 400


@dataclass(frozen=True)
class Exact:
    """What was found. ``cost``: of ``solution``. ``bound``: no solution costs less. ``optimal``: none costs less than
    this one, up to :data:`TOLERANCE`. ``variables``, ``cuts``: of the integer program. ``limit``: which limit ended it,
    "" where none did."""

    solution: Solution
    cost: float
    bound: float
    optimal: bool
    seconds: float
    variables: int
    cuts: int
    limit: str = ""

    @property
    def gap(self) -> float:
        """How much less a solution could cost, as a share of ``cost``; 0 where none can."""
        return 0.0 if self.optimal or self.cost <= 0 else max(0.0, 1 - self.bound / self.cost)


def solve(dag: Dag, limits: Limits | None = None, start: Solution | None = None) -> Exact | None:
    """The cheapest solution of ``dag``, or the best that was found within ``limits``, never dearer than ``start`` and
    the greedy one; None where there is no solution at all. Raises ValueError for a cost below 0 or that is not finite.
    """
    began = time.perf_counter()
    if any(
        not 0 <= cost < float("inf")
        for cost in (
            *(node.cost for nodes in dag.classes.values() for node in nodes),
            *dag.groups.values(),
        )
    ):
        raise ValueError("costs are finite and not negative")
    limits = limits or Limits()
    kept: Mapping[str, Sequence[int]] = possible(dag)
    quick, found = cheapest(dag, kept, limits.states), None
    if quick is None:
        found = greedy(dag)
        if found is None:
            return None
        kept = reduced(dag, kept)  # fewer nodes are fewer states
        quick = cheapest(dag, kept, limits.states)
    if quick is not None:
        best = _cheaper(dag, quick, start)
        cost, count = cost_of(dag, best), sum(map(len, kept.values()))
        return Exact(best, cost, cost, True, time.perf_counter() - began, count, 0)
    assert found is not None
    best = _cheaper(dag, found, start)
    program = _Program(dag, kept)
    if not program.columns:
        return Exact(best, cost_of(dag, best), cost_of(dag, best), True, time.perf_counter() - began, 0, 0)
    best, bound, limit = program.run(best, limits, began)
    cost = cost_of(dag, best)
    bound = min(bound, cost)
    optimal = bound >= cost - TOLERANCE * max(cost, 1e-300)
    if optimal:
        bound = cost
    return Exact(
        best,
        cost,
        bound,
        optimal,
        time.perf_counter() - began,
        program.count,
        program.cuts,
        "" if optimal else limit,
    )


def _cheaper(dag: Dag, solution: Solution, start: Solution | None) -> Solution:
    """A solution, or the one that there was before."""
    if start is None or not valid(dag, start) or cost_of(dag, start) > cost_of(dag, solution):
        return solution
    return start


# ---- the program ----------------------------------------------------------------------------------------------------------


class _Program:
    """The integer program, and the cuts that it was given. Variables: the nodes, class by class, then the groups."""

    def __init__(self, dag: Dag, kept: Mapping[str, Sequence[int]]) -> None:
        self.dag = dag
        self.classes = list(kept)
        self.columns = [(name, number) for name in self.classes for number in kept[name]]
        self.of = {name: [] for name in self.classes}  # type: dict[str, list[int]]
        self.needs: list[frozenset[str]] = []
        for column, (name, number) in enumerate(self.columns):
            self.of[name].append(column)
            self.needs.append(dag.classes[name][number].needs)
        used = (dag.classes[name][number].group for name, number in self.columns)
        self.groups = [group for group in dict.fromkeys(used) if group is not None and dag.groups.get(group)]
        self.count = len(self.columns) + len(self.groups)
        costs = [dag.classes[name][number].cost for name, number in self.columns]
        costs += [dag.groups[group] for group in self.groups]
        self.scale = max(costs, default=0.0) or 1.0
        self.costs = [cost / self.scale for cost in costs]
        self.known: set[tuple[str, frozenset[str]]] = set()
        self.places: dict[str, int] = {}
        self.circles: dict[str, frozenset[str]] = {}
        self.cuts = 0

    def run(self, best: Solution, limits: Limits, began: float) -> tuple[Solution, float, str]:
        """The best solution found, a bound below every solution, and the limit that was reached."""
        solver = self._solver()
        bound, cost = 0.0, cost_of(self.dag, best) / self.scale
        limit = "rounds"
        fractional = True
        for _ in range(limits.rounds):
            left = limits.seconds - (time.perf_counter() - began)
            if left <= 0:
                limit = "seconds"
                break
            solver.setOptionValue("time_limit", float(solver.getRunTime() + left))
            if not fractional:
                self._integral(solver)
                solver.setOptionValue("mip_max_nodes", limits.nodes)
                self._start(solver, best)
            solver.run()
            priced = fractional or self._priced(solver)
            if not priced:  # seen of HiGHS 1.16 with presolve: cost left out
                solver.setOptionValue("presolve", "off")
                solver.run()
                priced = self._priced(solver)
            status, info = solver.getModelStatus().name, solver.getInfo()
            if fractional:
                if status != "kOptimal":
                    limit = "seconds"
                    break
                bound = max(bound, info.objective_function_value)
            else:
                bound = max(bound, info.mip_dual_bound) if priced else bound
                if status not in ("kOptimal", "kObjectiveBound"):
                    limit = "seconds" if status == "kTimeLimit" else "nodes"
            values = list(solver.getSolution().col_value)
            if not values:
                break
            found = self._repaired(values)
            if found is not None and (value := cost_of(self.dag, found) / self.scale) < cost:
                best, cost = found, value
            if bound >= cost * (1 - TOLERANCE / 2) or (not fractional and limit == "nodes"):
                break
            added = self._separate(solver, values, fractional)
            if not added:
                if not fractional:
                    break
                fractional = False
            elif not fractional and not self.places:
                self._order(solver)
        return best, bound * self.scale, limit

    # ---- building ----

    def _solver(self) -> Any:
        import highspy
        import numpy as np

        rows, lower = [], []
        for root in self.dag.roots:
            rows.append({column: 1.0 for column in self.of[root]})
            lower.append(1.0)
        for name in self.classes:
            for need in sorted(frozenset[str]().union(*(self.needs[column] for column in self.of[name]))):
                row = {column: 1.0 for column in self.of[need]}
                for column in self.of[name]:
                    if need in self.needs[column]:
                        row[column] = row.get(column, 0.0) - 1.0
                rows.append(row)
                lower.append(0.0)
        for number, group in enumerate(self.groups, len(self.columns)):
            for name in self.classes:
                members = [
                    column
                    for column in self.of[name]
                    if self.dag.classes[name][self.columns[column][1]].group == group
                ]
                if members:
                    rows.append({number: 1.0, **dict.fromkeys(members, -1.0)})
                    lower.append(0.0)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self.count, len(rows)
        model.col_cost_ = np.array(self.costs)
        model.col_lower_, model.col_upper_ = np.zeros(self.count), np.ones(self.count)
        model.row_lower_ = np.array(lower)
        model.row_upper_ = np.full(len(rows), highspy.kHighsInf)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *map(len, rows)])
        model.a_matrix_.index_ = np.array([column for row in rows for column in row], dtype=np.int32)
        model.a_matrix_.value_ = np.array([value for row in rows for value in row.values()])
        solver = highspy.Highs()
        for option, value in {
            "output_flag": False,
            "threads": 1,
            "random_seed": 0,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 1e-9,
        }.items():
            solver.setOptionValue(option, value)
        solver.passModel(model)
        return solver

    def _priced(self, solver: Any) -> bool:
        """Whether a solution costs what the solver says of it; so of none."""
        values = list(solver.getSolution().col_value)
        cost = sum(cost * value for cost, value in zip(self.costs, values, strict=False))
        return not values or abs(cost - solver.getInfo().objective_function_value) <= TOLERANCE

    def _integral(self, solver: Any) -> None:
        import highspy
        import numpy as np

        numbers = np.arange(self.count, dtype=np.int32)
        kinds = np.full(self.count, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
        solver.changeColsIntegrality(self.count, numbers, kinds)

    def _order(self, solver: Any) -> None:
        """Gives each class of a circle a place, which is after those of all that its node needs of the circle."""
        edges = {
            name: frozenset[str]().union(*(self.needs[column] for column in self.of[name]))
            for name in self.classes
        }
        for part in components(edges):
            if len(part) < 2:
                continue
            last = len(part) - 1.0
            for name in part:
                self.places[name], self.circles[name] = solver.getNumCol(), frozenset(part)
                solver.addCol(0.0, 0.0, last, 0, [], [])
            for name in part:
                for need in sorted(edges[name] & self.circles[name]):
                    users = [column for column in self.of[name] if need in self.needs[column]]
                    row = {self.places[name]: 1.0, self.places[need]: -1.0, **dict.fromkeys(users, -last - 1)}
                    solver.addRow(-last, float("inf"), len(row), list(row), list(row.values()))

    def _start(self, solver: Any, best: Solution) -> None:
        """Hands over the best solution so far, if the program holds its nodes."""
        import highspy

        where = {column: number for number, column in enumerate(self.columns)}
        chosen = taken(self.dag, best)
        values = [0.0] * (self.count + len(self.places))
        for name, node in chosen.items():
            number = where.get((name, best[name]))
            if number is None:
                return
            values[number] = 1.0
            if node.group in self.groups:
                values[len(self.columns) + self.groups.index(node.group)] = 1.0
        had = [
            name for part in components({name: node.needs for name, node in chosen.items()}) for name in part
        ]
        for name, place in self.places.items():
            if name in chosen:
                values[place] = sum(other in self.circles[name] for other in had[: had.index(name)])
        start = highspy.HighsSolution()
        start.col_value = values
        solver.setSolution(start)

    # ---- what a point of the program says ----

    def _repaired(self, values: Sequence[float]) -> dict[str, int] | None:
        """A solution near ``values``, if there is one."""
        found = self._derived(values)
        return found if valid(self.dag, found) else None

    def _derived(self, values: Sequence[float]) -> dict[str, int]:
        """The classes that ``values`` lead to: each as soon as it can be had, by what is taken most."""
        found: dict[str, int] = {}
        order = sorted(
            (column for column in range(len(self.columns)) if values[column] > 1e-6),
            key=lambda column: (-round(values[column], 6), column),
        )
        grown = True
        while grown:
            grown = False
            for column in order:
                name, number = self.columns[column]
                if name not in found and self.needs[column] <= found.keys():
                    found[name], grown = number, True
        return found

    def _separate(self, solver: Any, values: Sequence[float], fractional: bool) -> int:
        """Adds the cuts that ``values`` break."""
        had = {name: sum(values[column] for column in self.of[name]) for name in self.classes}
        added = 0
        for members in self._sets(values, had, fractional):
            key = frozenset(members)
            outside = [column for name in members for column in self.of[name] if not self.needs[column] & key]
            support = sum(values[column] for column in outside)
            tops = [name for name in members if had[name] > support + 1e-4]
            roots = [name for name in tops if name in self.dag.roots]
            for name in roots[:1] or sorted(tops, key=lambda name: (-had[name], name))[:4]:
                if (name, key) in self.known:
                    continue
                self.known.add((name, key))
                row = dict.fromkeys(outside, 1.0)
                if name not in self.dag.roots:
                    for column in self.of[name]:
                        row[column] = row.get(column, 0.0) - 1.0
                row = {column: value for column, value in row.items() if value}
                solver.addRow(
                    1.0 if name in self.dag.roots else 0.0,
                    float("inf"),
                    len(row),
                    list(row),
                    list(row.values()),
                )
                added += 1
        self.cuts += added
        return added

    def _sets(
        self, values: Sequence[float], had: Mapping[str, float], fractional: bool
    ) -> Iterable[tuple[str, ...]]:
        """Sets of classes that may have too little support: circles of what is taken; what whole values do not lead to,
        which has none at all; and what is derived by less than some share, where a class is derived by as much as the
        least of what its node needs."""
        edges = {
            name: frozenset[str]().union(
                *(self.needs[column] for column in self.of[name] if values[column] > 1e-6)
            )
            for name in self.classes
            if had[name] > 1e-6
        }
        parts = list(components(edges))
        yield from (part for part in parts if len(part) > 1)
        if not fractional:
            led = self._derived(values)
            yield tuple(name for name in self.classes if name not in led)
            return
        derived = dict.fromkeys(self.classes, 0.0)
        order = [name for part in parts for name in part]
        for _ in range(4):
            changed = False
            for name in order:
                amount = sum(
                    min(values[column], min((derived[need] for need in self.needs[column]), default=1.0))
                    for column in self.of[name]
                    if values[column] > 1e-6
                )
                if amount > derived[name] + 1e-9:
                    derived[name], changed = amount, True
            if not changed:
                break
        levels = sorted({round(amount, 4) for name, amount in derived.items() if amount < had[name] - 1e-4})
        for level in levels[:: max(1, len(levels) // 40)]:
            yield tuple(name for name in self.classes if derived[name] <= level + 1e-6)
