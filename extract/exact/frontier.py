"""Exact DAG extraction class by class, users before what they need: for the many small problems that an integer program takes
longer to set up than to solve.

A state is the set of classes that are needed and have no node yet. The first of them takes one of its nodes, and what that
needs is needed: so each class is paid once, however many need it. Of two ways to a state the cheaper is as good. States are
looked at in the order of the least that a solution through them costs (A*; P. Hart, N. Nilsson and B. Raphael, 1968), so the
first in which nothing is needed is the best solution.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .dag import Dag, Node, Solution, components
from .reduce import undominated

Chain = tuple["Chain | None", str, int, int, float]
"""The nodes that are taken: those before, a class and the number of its node, and the state before it with what is paid up to there."""

_Way = tuple[float, int, int, int]
"""A node: its cost, the set of classes that it needs, its number, and all that is needed however these are had."""


class _Best(NamedTuple):
    """The best solution from a state. ``cost``: of it; ``name``, ``number``: the class that is next, and its node; ``after``: the state then."""

    cost: float
    name: str
    number: int
    after: int


def cheapest(dag: Dag, kept: Mapping[str, Sequence[int]], states: int) -> Solution | None:
    """The best solution of the nodes ``kept`` of each class; None where there is none, and where that is not known: after so
    many ``states``, of classes that need each other in a circle, and where groups are paid."""
    found, _ = Frontier(dag, kept).search(dag.roots, states)
    return found


class Frontier:
    """The nodes ``kept`` of each class of a problem, as the search asks for them."""

    def __init__(self, dag: Dag, kept: Mapping[str, Sequence[int]]) -> None:
        nodes = {name: [(number, dag.classes[name][number]) for number in kept[name]] for name in kept}
        edges = {
            name: frozenset[str]().union(*(node.needs for _, node in found)) for name, found in nodes.items()
        }
        circles = list(components(edges))
        paid = any(dag.groups.get(node.group or "") for found in nodes.values() for _, node in found)
        self.able = not paid and all(len(circle) == 1 for circle in circles)
        # each class after those that it needs, in a place of its own
        self.order: list[str] = []
        self.bit: dict[str, int] = {}
        self.ways: list[list[_Way]] = []
        self.least: list[float] = []
        self.must: list[int] = []
        self.sums: dict[int, float] = {}
        self.best: dict[int, _Best] = {}
        self.under: Frontier | None = None
        if self.able:
            for (name,) in circles:
                self._add(name, nodes[name])

    def over(self, classes: Mapping[str, Sequence[Node]]) -> Frontier:
        """The same with these classes, each after those that it needs; of their nodes, those that can be had and are not dominated."""
        found = copy.copy(self)
        found.order, found.ways, found.least = [*self.order], [*self.ways], [*self.least]
        found.must, found.bit, found.sums, found.under = [*self.must], dict(self.bit), {}, self
        found.best = {}
        for name, nodes in classes.items():
            able = [number for number, node in enumerate(nodes) if node.needs <= found.bit.keys()]
            if able:
                found._add(name, [(number, nodes[number]) for number in undominated(nodes, able)])
        return found

    def _add(self, name: str, nodes: Sequence[tuple[int, Node]]) -> None:
        bit, ways, common = self.bit, list[_Way](), -1
        for number, node in nodes:
            needs = sum([bit[need] for need in node.needs])
            ways.append((node.cost, needs, number, _together(self.must, needs)))
            common &= ways[-1][-1]
        bit[name] = 1 << len(self.order)
        self.must.append(bit[name] | (common if ways else 0))
        self.ways.append(ways)
        self.least.append(min([way[0] for way in ways], default=float("inf")))
        self.order.append(name)

    def count(self, roots: Iterable[str]) -> int:
        """The nodes of all classes that may be needed for these."""
        count, rest = 0, sum(self.bit[root] for root in dict.fromkeys(roots))
        while rest:
            place = rest.bit_length() - 1
            count += len(self.ways[place])
            for _, needs, _, _ in self.ways[place]:
                rest |= needs
            rest ^= 1 << place
        return count

    def search(
        self, roots: Sequence[str], states: int, most: float = float("inf")
    ) -> tuple[Solution | None, bool]:
        """The best solution if it costs no more than ``most``, and whether that is known: not after so many ``states``, of
        classes that need each other in a circle, and where groups are paid."""
        if not self.able or any(root not in self.bit for root in roots):
            return None, False
        start = sum(self.bit[root] for root in dict.fromkeys(roots))
        # of states without what is over others, what was found there is of use to all that is over these
        best = self.best if self.under is None else self.under.best
        paid: dict[int, float] = {start: 0.0}
        known: dict[int, float] = {start: self._ahead(_together(self.must, start))}
        queue: list[tuple[float, int, float, int, Chain | None]] = [(known[start], 0, 0.0, start, None)]
        pushed = 0
        while queue and states > 0:
            least, _, cost, open_, chain = heapq.heappop(queue)
            if least > most:
                return None, True
            if not open_ or open_ in best:
                self._note(chain, open_, least)
                return _taken(chain, open_, best), True
            if cost > paid[open_]:
                continue
            states -= 1
            place = open_.bit_length() - 1  # what nothing that is needed needs
            rest = open_ ^ 1 << place
            others = _together(self.must, rest)
            for own, needs, number, more in self.ways[place]:
                after, total = rest | needs, cost + own
                if total < paid.get(after, float("inf")):
                    paid[after] = total
                    if after not in known:
                        known[after] = best[after].cost if after in best else self._ahead(others | more)
                    pushed += 1
                    taken = chain, self.order[place], number, open_, cost
                    heapq.heappush(queue, (total + known[after], pushed, total, after, taken))
        return None, not queue

    def _note(self, chain: Chain | None, after: int, total: float) -> None:
        """Has known what is the best from the states on the way to a solution. ``after``: the state at the end of the chain."""
        known = self if self.under is None else self.under
        while chain is not None:
            chain, name, number, state, paid = chain
            if not state >> len(known.order):
                known.best.setdefault(state, _Best(total - paid, name, number, after))
            after = state

    def _ahead(self, needed: int) -> float:
        """What is still to be paid at least: each class that is ``needed`` however they are had, by its cheapest node."""
        found = self.sums.get(needed)
        if found is None:
            if self.under is None:
                found = sum([self.least[place] for place in _places(needed)])
            else:
                first = len(self.under.order)
                found = self.under._ahead(needed & (1 << first) - 1)
                found += sum([self.least[first + place] for place in _places(needed >> first)])
            self.sums[needed] = found
        return found


def _together(sets: Sequence[int], mask: int) -> int:
    """The union of those sets of which the places are set."""
    found = 0
    while mask:
        low = mask & -mask
        found |= sets[low.bit_length() - 1]
        mask ^= low
    return found


def _places(mask: int) -> list[int]:
    """The places of the bits that are set."""
    found: list[int] = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _taken(chain: Chain | None, after: int, best: Mapping[int, _Best]) -> Solution:
    """The nodes of a chain, and the best of the state ``after`` it."""
    found: dict[str, int] = {}
    while chain is not None:
        chain, name, number, *_ = chain
        found[name] = number
    while after:
        _, name, number, after = best[after]
        found[name] = number
    return found
