"""DAG extraction in general: which node of each class is taken, so that what the roots need is there and costs least.

A class is a value, a node one way to have it. The cost of a solution is that of its nodes, each paid once however many
need it. Nothing here knows of tensors: ``ilp.py`` solves such problems, ``exact.py`` makes one of a program.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

_Name = TypeVar("_Name", str, tuple[str, bool], int)


@dataclass(frozen=True, slots=True)
class Node:
    """One way to have the value of a class.

    Attributes:
        cost: of taking it, at least 0, in any unit.
        children: classes that it is computed from.
        buffers: classes that must be filled before it, since it reads them (a buffer edge). They are needed as children
            are, and no solution may go in a circle through them: t = aᵀ and tᵀ = a could fill each other.
        group: what is paid once for all nodes of the group that are taken, see :attr:`Dag.groups`.
        needs: its children and buffers.
    """

    cost: float
    children: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    group: str | None = None
    needs: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", frozenset((*self.children, *self.buffers)))


@dataclass(frozen=True)
class Dag:
    """``classes``: the nodes of each. ``roots``: classes that must be had, all of them. ``groups``: cost of each group,
    paid once where at least one of its nodes is taken."""

    classes: Mapping[str, Sequence[Node]]
    roots: tuple[str, ...]
    groups: Mapping[str, float] = field(default_factory=dict)


Solution = Mapping[str, int]
"""For each class that is had, the position of the node that is taken."""


def taken(dag: Dag, solution: Solution) -> dict[str, Node]:
    """The classes that the roots reach in a solution, with their nodes; the others cost nothing.

    Raises KeyError or IndexError where one is missing."""
    found: dict[str, Node] = {}
    stack = list(reversed(dag.roots))
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = node = dag.classes[name][solution[name]]
            stack += reversed((*node.children, *node.buffers))
    return found


def valid(dag: Dag, solution: Solution) -> bool:
    """Whether all that the roots need is there, and nothing needs itself, by children and buffer edges together."""
    try:
        nodes = taken(dag, solution)
    except (KeyError, IndexError):
        return False
    return not any(
        len(part) > 1 for part in components({name: node.needs for name, node in nodes.items()})
    ) and (not any(name in node.needs for name, node in nodes.items()))


def cost_of(dag: Dag, solution: Solution) -> float:
    """The cost of a valid solution: of each node once, and of each group once."""
    nodes = taken(dag, solution).values()
    groups = dict.fromkeys(node.group for node in nodes if node.group is not None)
    return sum(node.cost for node in nodes) + sum(dag.groups.get(group, 0.0) for group in groups)


def components(edges: Mapping[_Name, frozenset[_Name]]) -> Iterator[tuple[_Name, ...]]:
    """The strongly connected components of a graph, each after those that it leads to (Tarjan, iterative). Names that
    are no key of ``edges`` are left out."""
    index: dict[_Name, int] = {}
    low: dict[_Name, int] = {}
    open_: list[_Name] = []
    waiting: set[_Name] = set()
    for start in edges:
        if start in index:
            continue
        stack: list[tuple[_Name, Iterator[_Name]]] = []
        pending: _Name | None = start
        while pending is not None or stack:
            if pending is not None:
                index[pending] = low[pending] = len(index)
                open_.append(pending)
                waiting.add(pending)
                stack.append((pending, iter(sorted(edges[pending]))))
                pending = None
            name, following = stack[-1]
            for other in following:
                if other not in edges:
                    continue
                if other not in index:
                    pending = other
                    break
                if other in waiting:
                    low[name] = min(low[name], index[other])
            if pending is not None:
                continue
            stack.pop()
            if stack:
                low[stack[-1][0]] = min(low[stack[-1][0]], low[name])
            if low[name] == index[name]:
                part: list[_Name] = []
                while not part or part[-1] != name:
                    part.append(open_.pop())
                    waiting.discard(part[-1])
                yield tuple(part)


def floor(dag: Dag) -> float:
    """What every solution costs at least; infinite where there is none."""
    found = floors(dag.classes)
    return max((found.get(root, float("inf")) for root in dag.roots), default=0.0)


def floors(classes: Mapping[str, Sequence[Node]]) -> dict[str, float]:
    """The same of each class that can be had. Of what a node needs, only the dearest is counted: so much must be had for any of it
    (Knuth, "A Generalization of Dijkstra's Algorithm", 1977)."""
    found: dict[str, float] = {}
    missing: dict[tuple[str, int], int] = {}
    users: dict[str, list[tuple[str, int]]] = {}
    queue: list[tuple[float, str]] = []
    for name, nodes in classes.items():
        for number, node in enumerate(nodes):
            missing[name, number] = len(node.needs)
            for need in node.needs:
                users.setdefault(need, []).append((name, number))
            if not node.needs:
                queue.append((node.cost, name))
    heapq.heapify(queue)
    while queue:
        cost, name = heapq.heappop(queue)
        if name in found:
            continue
        found[name] = cost
        for user in users.get(name, ()):
            missing[user] -= 1
            if not missing[user] and user[0] not in found:  # the dearest of its needs is the last
                heapq.heappush(queue, (cost + classes[user[0]][user[1]].cost, user[0]))
    return found


def floor_of(nodes: Sequence[Node], found: Mapping[str, float]) -> float:
    """What one of these nodes costs at least with all that it needs, by :func:`floors` of that."""
    return min(
        (
            node.cost + max((found.get(need, float("inf")) for need in node.needs), default=0.0)
            for node in nodes
        ),
        default=float("inf"),
    )


# ---- greedy ---------------------------------------------------------------------------------------------------------


def greedy(dag: Dag) -> dict[str, int] | None:
    """A valid solution that is often good, None where there is none. Each class takes the node whose closure costs
    least, with what its needs share paid once; closures grow until none gets cheaper, and never hold their own class."""
    closures: dict[str, dict[str, Node]] = {}
    best: dict[str, float] = {}
    choice: dict[str, int] = {}
    users: dict[str, list[str]] = {}
    for name, nodes in dag.classes.items():
        for node in nodes:
            for need in node.needs:
                users.setdefault(need, []).append(name)
    # a closure is a set of nodes that stands by itself: it is taken over whole, so that no circle can come about
    queue = dict.fromkeys(dag.classes)
    effort = 20 * sum(map(len, dag.classes.values()))
    while queue and effort > 0:
        name = next(iter(queue))
        del queue[name]
        better = False
        for number, node in enumerate(dag.classes[name]):
            effort -= 1
            if any(need not in closures for need in node.needs) or name in node.needs:
                continue
            closure: dict[str, Node] = {}
            for need in sorted(node.needs, key=lambda need: (-best[need], need)):
                for inner, own in closures[need].items():
                    closure.setdefault(inner, own)
            if name in closure or (len(node.needs) > 1 and not _stands(closure)):
                continue
            closure[name] = node
            cost = _cost(dag, closure)
            if name not in best or cost < best[name] * (1 - 1e-12):
                closures[name], best[name], choice[name], better = closure, cost, number, True
        if better:
            queue.update(dict.fromkeys(users.get(name, ())))
    whole: dict[str, Node] = {}
    for root in dag.roots:
        for inner, own in closures.get(root, {}).items():
            whole.setdefault(inner, own)
    if any(root not in whole for root in dag.roots):
        whole = _derived(dag.classes)  # the effort was spent, or there is nothing to be had
    elif not _stands(whole):
        offered: dict[str, list[Node]] = {}
        for root in dag.roots:
            for inner, own in closures[root].items():
                offered.setdefault(inner, []).append(own)
        whole = _derived(offered)
    if any(root not in whole for root in dag.roots):
        return None
    return {name: list(dag.classes[name]).index(node) for name, node in whole.items()}


def _derived(offered: Mapping[str, Sequence[Node]]) -> dict[str, Node]:
    """Every class that can be had from the nodes on offer, each by the cheapest that is ready when it is first had."""
    found: dict[str, Node] = {}
    grown = True
    while grown:
        grown = False
        for name, nodes in offered.items():
            if name not in found:
                ready = [node for node in nodes if node.needs <= found.keys()]
                if ready:
                    found[name], grown = min(ready, key=lambda node: node.cost), True
    return found


def _stands(closure: Mapping[str, Node]) -> bool:
    """Whether nodes of several closures, put together, need nothing in a circle."""
    left = dict(closure)
    while left:
        ready = [name for name, node in left.items() if left.keys().isdisjoint(node.needs)]
        if not ready:
            return False
        for name in ready:
            del left[name]
    return True


def _cost(dag: Dag, closure: Mapping[str, Node]) -> float:
    groups = dict.fromkeys(node.group for node in closure.values() if node.group is not None)
    return sum(node.cost for node in closure.values()) + sum(dag.groups.get(group, 0.0) for group in groups)
