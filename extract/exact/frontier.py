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
    nodes = {name: [(number, dag.classes[name][number]) for number in kept[name]] for name in kept}
    if any(dag.groups.get(node.group or "") for found in nodes.values() for _, node in found):
        return None
    edges = {
        name: frozenset[str]().union(*(node.needs for _, node in found)) for name, found in nodes.items()
    }
    circles = list(components(edges))
    if any(len(circle) > 1 for circle in circles) or any(root not in nodes for root in dag.roots):
        return None
    order = [circle[0] for circle in reversed(circles)]
    bit = {name: 1 << place for place, name in enumerate(order)}
    ways = [
        [(node.cost, sum(bit[need] for need in node.needs), number) for number, node in nodes[name]]
        for name in order
    ]
    least = [min((cost for cost, _, _ in found), default=float("inf")) for found in ways]
    must = _must(ways)

    def ahead(open_: int) -> float:
        """What is still to be paid at least: each class that is needed however they are had, by its cheapest node."""
        found = 0
        for place in _places(open_):
            found |= must[place]
        return sum(least[place] for place in _places(found))

    start = sum(bit[root] for root in dict.fromkeys(dag.roots))
    paid: dict[int, float] = {start: 0.0}
    known: dict[int, float] = {start: ahead(start)}
    queue: list[tuple[float, int, float, int, Chain | None]] = [(known[start], 0, 0.0, start, None)]
    pushed = 0
    while queue and states > 0:
        _, _, cost, open_, chain = heapq.heappop(queue)
        if not open_:
            return _taken(chain)
        if cost > paid[open_]:
            continue
        states -= 1
        low = open_ & -open_
        place = low.bit_length() - 1
        for own, needs, number in ways[place]:
            after, total = open_ ^ low | needs, cost + own
            if total < paid.get(after, float("inf")):
                paid[after] = total
                if after not in known:
                    known[after] = ahead(after)
                pushed += 1
                entry = total + known[after], pushed, total, after, (chain, order[place], number)
                heapq.heappush(queue, entry)
    return None


def _must(ways: Sequence[Sequence[tuple[float, int, int]]]) -> list[int]:
    """For each class the set of those that it cannot be had without, itself among them."""
    found = [0] * len(ways)
    for place in range(len(ways) - 1, -1, -1):  # what is needed comes later
        common = -1
        for _, needs, _ in ways[place]:
            below = 0
            for need in _places(needs):
                below |= found[need]
            common &= below
        found[place] = 1 << place | (common if ways[place] else 0)
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
