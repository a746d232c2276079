"""What an optimal solution of a DAG extraction can do without: nodes and classes that are as well replaced by others.

Each step leaves a solution that costs no more than the best before it. Groups are not looked at: a problem that has any
is only rid of what is dominated outright.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .dag import Dag, Node

MAX_NODES = 1_500
"""Of a class that is looked at pair by pair."""


def reduced(dag: Dag, kept: Mapping[str, Sequence[int]] | None = None) -> Mapping[str, Sequence[int]]:
    """For each class that an optimal solution may need, the nodes that it may take. ``kept``: what :func:`possible` says."""
    kept = possible(dag) if kept is None else kept
    if any(node.group is not None for nodes in dag.classes.values() for node in nodes):
        return kept
    work = _Work(dag, kept)
    size = -1
    while size != work.size:
        size = work.size
        for name in list(work.nodes):
            work.replace(name)
        for name in list(work.nodes):
            if name not in dag.roots:
                work.leave_out(name)
        work.reach()
    return {name: sorted(numbers) for name, numbers in work.kept.items()}


def possible(dag: Dag) -> dict[str, list[int]]:
    """Nodes that can be had at all, do not need their own class, and are not dominated by one of their class that is no
    dearer and needs no more."""
    possible: set[str] = set()
    missing: dict[tuple[str, int], int] = {}
    users: dict[str, list[tuple[str, int]]] = {}
    ready: list[str] = []
    for name, nodes in dag.classes.items():
        for number, node in enumerate(nodes):
            needs = node.needs
            if name in needs:
                continue
            missing[name, number] = len(needs)
            for need in needs:
                users.setdefault(need, []).append((name, number))
            if not needs:
                ready.append(name)
    while ready:
        name = ready.pop()
        if name in possible:
            continue
        possible.add(name)
        for user in users.get(name, ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user[0])
    kept: dict[str, list[int]] = {}
    stack = [root for root in dag.roots if root in possible]
    while stack:
        name = stack.pop()
        if name in kept:
            continue
        nodes = dag.classes[name]
        able = [number for number in range(len(nodes)) if missing.get((name, number)) == 0]
        kept[name] = undominated(nodes, able)
        stack += sorted({need for number in kept[name] for need in nodes[number].needs})
    return kept


def undominated(nodes: Sequence[Node], able: Sequence[int]) -> list[int]:
    """Of the nodes of a class with the numbers ``able``, those that no other is as good as: that is no dearer and needs no more."""
    bit: dict[str, int] = {}
    for number in able:
        for need in nodes[number].needs:
            bit.setdefault(need, 1 << len(bit))
    needs = {number: sum(bit[need] for need in nodes[number].needs) for number in able}
    found: list[int] = []
    # by group, what is needed, as sets of bits: there may be thousands
    known: dict[str | None, list[int]] = {None: []}
    for number in sorted(able, key=lambda number: (nodes[number].cost, needs[number].bit_count(), number)):
        own, group = needs[number], nodes[number].group
        others = known[None] if group is None else [*known[None], *known.setdefault(group, [])]
        for other in others:
            if other & own == other:
                break
        else:
            known[group].append(own)
            found.append(number)
    return sorted(found)


class _Work:
    """A problem on the way. ``nodes``: of each class, number -> (cost, needs as a bit set)."""

    def __init__(self, dag: Dag, kept: Mapping[str, Sequence[int]]) -> None:
        self.roots = dag.roots
        self.bit = {name: 1 << number for number, name in enumerate(kept)}
        self.names = list(kept)
        self.nodes: dict[str, dict[int, tuple[float, int]]] = {
            name: {
                number: (
                    dag.classes[name][number].cost,
                    sum(self.bit[need] for need in dag.classes[name][number].needs),
                )
                for number in sorted(numbers, key=lambda number: (dag.classes[name][number].cost, number))
            }
            for name, numbers in kept.items()
        }
        # what the classes cost at least that are not free
        costs = {
            self.bit[name]: min(cost for cost, _ in found.values())
            for name, found in self.nodes.items()
            if found
        }
        self.priced = sum(bit for bit, cost in costs.items() if cost > 0)
        self.least = min((cost for cost in costs.values() if cost > 0), default=0.0)
        # all that the nodes of a class needed, before some were left out
        self.union = {
            name: _union(needs for _, needs in found.values()) for name, found in self.nodes.items()
        }

    @property
    def kept(self) -> dict[str, list[int]]:
        return {name: list(nodes) for name, nodes in self.nodes.items()}

    @property
    def size(self) -> int:
        return sum(map(len, self.nodes.values()))

    def extra(self, needs: int, given: int, most: float) -> float:
        """What it costs at most to have ``needs`` besides ``given``, each by a node that needs nothing else."""
        total = 0.0
        missing = needs & ~given
        if self.least * (missing & self.priced).bit_count() > most:
            return float("inf")
        while missing:
            low = missing & -missing
            missing ^= low
            name = self.names[low.bit_length() - 1]
            for cost, own in self.nodes.get(name, {}).values():  # the cheapest first
                if not own & ~given:
                    total += cost
                    break
            else:
                return float("inf")
            if total > most:
                return float("inf")
        return total

    def replace(self, name: str) -> None:
        """Leaves out nodes of a class that another does as well, with what it needs more paid for."""
        nodes = self.nodes[name]
        if len(nodes) > MAX_NODES:
            return
        for number in sorted(nodes, key=lambda number: (-nodes[number][0], -number)):
            cost, needs = nodes[number]
            for other, (less, others) in nodes.items():
                if less > cost:  # the cheapest are first
                    break
                if other == number:
                    continue
                if others & self.bit[name]:
                    continue
                if less + self.extra(others & ~self.bit[name], needs, cost - less) <= cost:
                    del nodes[number]
                    break

    def leave_out(self, name: str) -> None:
        """Leaves out a class that costs more than its users can save by it."""
        bit, left = self.bit[name], min((cost for cost, _ in self.nodes[name].values()), default=0.0)
        for user, nodes in self.nodes.items():
            if not self.union[user] & bit:
                continue
            most = 0.0
            if user == name or len(nodes) > MAX_NODES:
                if user != name and any(needs & bit for _, needs in nodes.values()):
                    return
                continue
            others = [(cost, needs) for cost, needs in nodes.values() if not needs & bit]
            for cost, needs in nodes.values():
                if needs & bit:
                    given = needs & ~bit
                    best = min(
                        (
                            other + self.extra(own, given, left + cost - other)
                            for other, own in others
                            if other <= cost + left
                        ),
                        default=float("inf"),
                    )
                    most = max(most, best - cost)
                    if most > left:
                        return
            left -= most
        for nodes in self.nodes.values():
            for number in [number for number, (_, needs) in nodes.items() if needs & bit]:
                del nodes[number]
        del self.nodes[name]

    def reach(self) -> None:
        """Leaves out what no root can need."""
        seen: set[str] = set()
        stack = [root for root in self.roots if root in self.nodes]
        while stack:
            name = stack.pop()
            if name in seen or name not in self.nodes:
                continue
            seen.add(name)
            needs = _union(own for _, own in self.nodes[name].values())
            stack += [other for other in self.names if needs & self.bit[other]]
        self.nodes = {name: nodes for name, nodes in self.nodes.items() if name in seen}


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
