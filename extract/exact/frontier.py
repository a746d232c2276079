"""Exact DAG extraction class by class, users before what they need: for the many small problems that an integer program takes
longer to set up than to solve.

A state is the set of classes that are needed and have no node yet. The first of them takes one of its nodes, and what that
needs is needed: so each class is paid once, however many need it. Of two ways to a state the cheaper is as good. States are
looked at in the order of the least that a solution through them costs (A*; P. Hart, N. Nilsson and B. Raphael, 1968), so the
first in which nothing is needed is the best solution.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from .dag import Dag, Solution, components

Chain = tuple["Chain | None", str, int]
"""The nodes that are taken: those before, a class and the number of its node."""


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
        self.order = [circle[0] for circle in reversed(circles)]
        self.bit = bit = {name: 1 << place for place, name in enumerate(self.order)}
        if not self.able:
            return
        self.least = [
            min((node.cost for _, node in nodes[name]), default=float("inf")) for name in self.order
        ]
        ways = [
            [(node.cost, sum(bit[need] for need in node.needs), number) for number, node in nodes[name]]
            for name in self.order
        ]
        self.must = _must(ways)
        self.ways = [
            [(cost, needs, number, _together(self.must, needs)) for cost, needs, number in each]
            for each in ways
        ]
        self.sums: dict[int, float] = {}

    def search(
        self, roots: Sequence[str], states: int, most: float = float("inf")
    ) -> tuple[Solution | None, bool]:
        """The best solution if it costs no more than ``most``, and whether that is known: not after so many ``states``, of
        classes that need each other in a circle, and where groups are paid."""
        if not self.able or any(root not in self.bit for root in roots):
            return None, False
        start = sum(self.bit[root] for root in dict.fromkeys(roots))
        paid: dict[int, float] = {start: 0.0}
        known: dict[int, float] = {start: self._ahead(_together(self.must, start))}
        queue: list[tuple[float, int, float, int, Chain | None]] = [(known[start], 0, 0.0, start, None)]
        pushed = 0
        while queue and states > 0:
            least, _, cost, open_, chain = heapq.heappop(queue)
            if least > most:
                return None, True
            if not open_:
                return _taken(chain), True
            if cost > paid[open_]:
                continue
            states -= 1
            low = open_ & -open_
            place, rest = low.bit_length() - 1, open_ ^ low
            others = _together(self.must, rest)
            for own, needs, number, more in self.ways[place]:
                after, total = rest | needs, cost + own
                if total < paid.get(after, float("inf")):
                    paid[after] = total
                    if after not in known:
                        known[after] = self._ahead(others | more)
                    pushed += 1
                    entry = total + known[after], pushed, total, after, (chain, self.order[place], number)
                    heapq.heappush(queue, entry)
        return None, not queue

    def _ahead(self, needed: int) -> float:
        """What is still to be paid at least: each class that is ``needed`` however they are had, by its cheapest node."""
        if needed not in self.sums:
            self.sums[needed] = sum(self.least[place] for place in _places(needed))
        return self.sums[needed]


def _must(ways: Sequence[Sequence[tuple[float, int, int]]]) -> list[int]:
    """For each class the set of those that it cannot be had without, itself among them."""
    found = [0] * len(ways)
    for place in range(len(ways) - 1, -1, -1):  # what is needed comes later
        common = -1
        for _, needs, _ in ways[place]:
            common &= _together(found, needs)
        found[place] = 1 << place | (common if ways[place] else 0)
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


def _taken(chain: Chain | None) -> Solution:
    found: dict[str, int] = {}
    while chain is not None:
        chain, name, number = chain
        found[name] = number
    return found
