"""What a part's kernels cost at least, by what is filled at its ends: worked out where it is asked for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from .dag import Dag, Node, cost_of, floor_of, floors
from .dominance import dearer_costs, dearer_nodes
from .frontier import Frontier
from .ilp import Exact, Limits, solve
from .inside import Levels
from .partdag import PartDag
from .reduce import possible

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .dominance import Dearer

    Costs = NDArray[np.float64]
    """Seconds, by the levels of what a part is given (rows), and of what it makes (columns)."""

    Numbers = NDArray[np.int64]
    """Which of several."""

Ends = tuple[Levels, Levels]
"""The levels of what a part is given, and of what it makes."""

Taken = Sequence[tuple[str, int]]
"""Buffers that are filled, each with the number of its column."""


class _Shared:
    """The classes that several problems have in common."""

    def __init__(self, classes: Mapping[str, Sequence[Node]]) -> None:
        self.classes = classes

    @cached_property
    def frontier(self) -> Frontier:
        every = Dag(self.classes, tuple(self.classes))
        return Frontier(every, possible(every))


@dataclass(slots=True)
class _Form:
    """A DAG extraction that is the same at many ends. ``own``: the classes of it that are not ``beneath``, each after those that it
    needs. ``place``: the numbers of what is beneath and of its roots. ``least``: what its solutions cost at least, as far as it is known."""

    own: Mapping[str, Sequence[Node]]
    roots: tuple[str, ...]
    beneath: _Shared
    place: tuple[int, int]
    least: float
    solved: bool = False
    answer: Exact | None = None
    near: dict[float, frozenset[str]] = field(default_factory=dict)

    @property
    def dag(self) -> Dag:
        return Dag({**self.beneath.classes, **self.own}, self.roots)

    def solve(self, limits: Limits) -> None:
        frontier = self.beneath.frontier.over(self.own)
        began = time.perf_counter()
        solution, _ = frontier.search(self.roots, limits.states)
        if solution is None:
            self.answer = solve(self.dag, limits)
        else:
            cost, count = cost_of(self.dag, solution), frontier.count(self.roots)
            self.answer = Exact(solution, cost, cost, True, time.perf_counter() - began, count, 0)
        self.solved, self.least = True, float("inf") if self.answer is None else self.answer.bound


class Bounds:
    """What a part costs at least, in seconds; infinite where its ends cannot be so. Until :meth:`solve` is asked, :meth:`least`
    counts only what has to come one after the other. ``made``: the levels of what is made, in the order of :meth:`table`."""

    def __init__(self, dag: PartDag, given: Sequence[Levels], made: Sequence[Levels], until: float) -> None:
        """``given``, ``made``: levels. ``until``: when it has to be done, on the clock of ``time.perf_counter``."""
        self._costs, self._until = dag.costs, until
        self._shape, self.made = (len(given), len(made)), tuple(made)
        self._form: dict[Ends, _Form] = {}
        known: dict[tuple[int, int], _Form] = {}
        had: dict[tuple[float, ...], tuple[int, _Shared, Mapping[str, float]]] = {}
        made_of: dict[Hashable, tuple[int, Mapping[str, Sequence[Node]]]] = {}
        for before in given:
            filled = dag.given(before)
            if filled.costs not in had:
                classes = {**filled.ends, **filled.nodes}
                had[filled.costs] = len(had), _Shared(classes), floors(classes)
            row, beneath, below = had[filled.costs]
            for after in made:
                name, roots = dag.made(after, before)
                column, _ = made_of.setdefault(name, (len(made_of), roots))
                what = row, column
                if what not in known:
                    beside = _beside(dag, roots)
                    floor = {name: floor_of(nodes, below) for name, nodes in beside.items()} | dict(below)
                    least = max((floor_of(nodes, floor) for nodes in roots.values()), default=0.0)
                    known[what] = _Form({**beside, **roots}, tuple(roots), beneath, what, least)
                self._form[before, after] = known[what]
        self._forms, self._at = list(known.values()), known
        self._costs_beneath, self._roots = tuple(had), tuple([roots for _, roots in made_of.values()])

    def items(self) -> list[tuple[Ends, float]]:
        """The ends that there may be, with what is known of each so far."""
        return [(ends, form.least) for ends, form in self._form.items() if form.least < float("inf")]

    def table(self, dearer: Mapping[Ends, float] | None = None) -> Costs:
        """The same by the levels of what is given and of what is made; infinite at ends that there cannot be. ``dearer``: what it
        costs more at some ends."""
        import numpy as np

        found: Costs = np.array([form.least for form in self._forms])[self._numbers]
        for ends, more in (dearer or {}).items():
            if ends in self._places:
                found[self._places[ends]] += more
        return found.reshape(self._shape)

    @cached_property
    def _numbers(self) -> Numbers:
        """Of all ends, which of the forms it is."""
        import numpy as np

        number = {id(form): place for place, form in enumerate(self._forms)}
        return np.array([number[id(form)] for form in self._form.values()])

    @cached_property
    def _places(self) -> Mapping[Ends, int]:
        return {ends: place for place, ends in enumerate(self._form)}

    def least(self, ends: Ends) -> float:
        form = self._form.get(ends)
        return float("inf") if form is None else form.least

    def known(self, ends: Ends) -> bool:
        """Whether :meth:`solve` was asked of these ends, or of others at which all is the same; or there are none such."""
        form = self._form.get(ends)
        return form is None or form.solved

    def solve(self, ends: Ends) -> float:
        """The cost of a solution that is the cheapest, or the bound that was found in time. At ends where all is as dear, it costs no
        less."""
        form = self._form.get(ends)
        if form is not None and not form.solved:
            form.solve(self._limits())
            for other in self._dearer(form):
                other.least = max(other.least, form.least)
        return self.least(ends)

    def _dearer(self, form: _Form) -> Iterator[_Form]:
        """Those that are not solved and cost no less."""
        (beneath, roots), (row, column) = self._order, form.place
        columns = roots[:, column].nonzero()[0].tolist()
        for place in itertools.product(beneath[:, row].nonzero()[0].tolist(), columns):
            other = self._at.get(place)
            if other is not None and not other.solved:
                yield other

    @cached_property
    def _order(self) -> tuple[Dearer, Dearer]:
        """Of what is beneath, and of the roots, which are dearer than others."""
        import numpy as np

        roots = [dearer_nodes([each[name] for each in self._roots]) for name in self._roots[0]]
        return dearer_costs(self._costs_beneath), np.logical_and.reduce(roots)

    def taken(self, ends: Ends) -> Taken | None:
        """The buffers that are filled in that solution, each with the number of its column; None where one has a kernel that was
        not looked for, or there is no solution."""
        self.solve(ends)
        form = self._form.get(ends)
        if form is None or form.answer is None:
            return None
        return self._costs.taken(form.dag, ends[0], form.answer.solution)

    def cost(self, ends: Ends, name: str, column: int) -> float:
        """What the kernel of a column costs there, in seconds."""
        return self._costs.columns[name][column][self._costs.levels.index(ends[0])]

    def dearer(self, ends: Ends, more: Mapping[tuple[str, int], float]) -> tuple[float, Taken | None]:
        """The cost of a solution that is the cheapest where columns cost ``more`` seconds than they are known to, and what is taken in it,
        as :meth:`taken` says."""
        form = self._form.get(ends)
        if form is None:
            return float("inf"), None
        classes = dict(form.dag.classes)
        for name in {name for name, _ in more}:
            numbers = [number for number, _ in self._costs.possible(name, ends[0])]
            # the last may stand for what was not looked for
            nodes = itertools.zip_longest(classes[name], numbers)
            classes[name] = [
                replace(node, cost=node.cost + more.get((name, number), 0.0)) for node, number in nodes
            ]
        dag = replace(form.dag, classes=classes)
        answer = solve(dag, self._limits())
        if answer is None:
            return float("inf"), None
        return answer.bound, self._costs.taken(dag, ends[0], answer.solution)

    def near(self, ends: Ends, most: float) -> frozenset[str]:
        """The buffers that are filled in some solution at these ends that costs no more than ``most`` seconds beside the cheapest."""
        form = self._form.get(ends)
        if form is None:
            return frozenset()
        if most not in form.near:
            enough, dag, limits = self.solve(ends) + most, form.dag, self._limits()
            found = {name for name, _ in self.taken(ends) or ()}
            names = sorted(self._costs.columns.keys() - found)
            quick = form.beneath.frontier.over(form.own)
            for name in names:
                roots = (*dag.roots, name)
                solution, sure = quick.search(roots, limits.states, enough)
                if not sure:
                    answer = solve(replace(dag, roots=roots), limits)
                    solution = answer.solution if answer is not None and answer.bound <= enough else None
                if solution is not None:
                    found.add(name)
            form.near[most] = frozenset(found)
        return form.near[most]

    def _limits(self) -> Limits:
        return Limits(max(self._until - time.perf_counter(), 0.1))

    @property
    def answers(self) -> list[Exact]:
        """What was solved."""
        return [form.answer for form in self._forms if form.answer is not None]


def _beside(dag: PartDag, roots: Mapping[str, Sequence[Node]]) -> dict[str, Sequence[Node]]:
    """What these need beside buffers (:attr:`PartDag.beside`)."""
    needed = {name for nodes in roots.values() for node in nodes for name in node.buffers}
    return {name: dag.beside[name] for name in sorted(needed & dag.beside.keys())}
