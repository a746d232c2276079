"""One part of a program as DAG extractions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .columns import Columns
from .dag import Dag, Node, Solution, taken
from .inside import Levels
from .scope import Scope
from .within import Unfilled, Within


@dataclass(frozen=True)
class Costs:
    """What the columns of each buffer cost at each of the ``levels`` of what a part is given."""

    levels: Sequence[Levels]
    columns: Mapping[str, Sequence[Sequence[float]]]

    def possible(self, name: str, given: Levels) -> list[tuple[int, float]]:
        """The columns of a buffer that there may be at these levels, by number, with what each costs."""
        level = self.levels.index(given)
        costs = enumerate(each[level] for each in self.columns[name])
        return [(number, seconds) for number, seconds in costs if seconds < float("inf")]

    def taken(self, dag: Dag, given: Levels, solution: Solution) -> list[tuple[str, int]] | None:
        """The buffers that are filled in a solution, each with the number of its column; None where one has a kernel that was not
        looked for."""
        found: list[tuple[str, int]] = []
        for name in taken(dag, solution):
            if name in self.columns:
                possible = self.possible(name, given)
                if solution[name] >= len(possible):
                    return None
                found.append((name, possible[solution[name]][0]))
        return found


class Filled(NamedTuple):
    """Classes of a part, without what it makes. ``costs``: the same where all of them are, of what it is given, and of all columns.
    ``ends``: of what it is given. ``nodes``: the kernels of each buffer."""

    costs: tuple[float, ...]
    ends: Mapping[str, Sequence[Node]]
    nodes: Mapping[str, Sequence[Node]]


class PartDag:
    """A part as DAG extractions: a class for each buffer, with a node for each kernel. Kernels that were not looked for are
    one node, at the least that any of them costs, which reads what all of them must. What is made and not filled is had within
    a kernel of a later part, which takes longer by that."""

    def __init__(
        self,
        scope: Scope,
        found: Mapping[str, Columns],
        ways: Mapping[str, Mapping[Levels, Sequence[Within]]],
    ) -> None:
        """``ways``: to compute within a kernel of a later part what each buffer holds that is made, see :func:`within`."""
        self.scope, self.part, self.found = scope, scope.part, found
        columns = {name: [column.costs for column in each.found] for name, each in found.items()}
        self.costs = Costs(scope.levels, columns)
        self._named: dict[int, tuple[str, ...]] = {}
        self.reads = {
            name: [self.names(column.reads) for column in each.found] for name, each in found.items()
        }
        self.rest: dict[str, Node] = {}
        for name, each in found.items():
            if each.rest is not None:
                roots = [(way.root, False) for _, way in scope.ways(name)]
                self.rest[name] = Node(each.rest, (), self.names(scope.must(roots) & ~scope.bits[name]))
        self.ends = {name: Node(0.0, (), (scope.same.get(name, name),)) for name in self.part.made}
        self._nodes: dict[tuple[float, ...], Mapping[str, Sequence[Node]]] = {}
        self._made_at: dict[Hashable, tuple[int, Sequence[Node]]] = {}
        self._number: dict[tuple[Node, ...], int] = {}
        self._beside: dict[tuple[int, ...], str] = {}
        self.beside: dict[str, Sequence[Node]] = {}
        self.unfilled = {name: Unfilled(scope, self.part.group(name), each) for name, each in ways.items()}

    def names(self, reads: int) -> tuple[str, ...]:
        """The buffers of a bit set that have to be filled."""
        scope, reads = self.scope, reads & self.scope.filled
        if reads not in self._named:
            self._named[reads] = tuple(
                name for name, bit in scope.bits.items() if reads & bit and name not in scope.same
            )
        return self._named[reads]

    def given(self, levels: Levels) -> Filled:
        """What can be had at these levels of what is given."""
        costs = [
            price if level else 0.0 for level, price in zip(levels, self.part.prices, strict=True)
        ]  # of buffers that are filled elsewhere
        ends: dict[str, Sequence[Node]] = {
            name: (Node(cost),) for name, cost in zip(self.part.given, costs, strict=True)
        }
        columns, nodes = self._filled(levels)
        return Filled((*costs, *columns), ends | dict.fromkeys(self.part.common, (Node(0.0),)), nodes)

    def made(self, levels: Levels, given: Levels) -> tuple[Hashable, Mapping[str, Sequence[Node]]]:
        """How what is made is had at these levels, if what is given is at those. The first is the same for those that are. Of what these
        need, other classes are :attr:`beside`."""
        found = [self._made(name, level, given) for name, level in zip(self.part.made, levels, strict=True)]
        nodes = {f"made {name}": each for name, (_, each) in zip(self.part.made, found, strict=True)}
        return tuple([number for number, _ in found]), nodes

    def _filled(self, given: Levels) -> tuple[tuple[float, ...], Mapping[str, Sequence[Node]]]:
        """The kernels that fill each buffer at these levels of what is given, and what all of them cost: at other levels, that is the same
        often."""
        level = self.scope.levels.index(given)
        costs = tuple([column.costs[level] for each in self.found.values() for column in each.found])
        if costs not in self._nodes:
            nodes: dict[str, Sequence[Node]] = {}
            for name, each in self.found.items():
                nodes[name] = [
                    *(
                        Node(cost, (), self.reads[name][column])
                        for column, cost in self.costs.possible(name, given)
                    ),
                    *([self.rest[name]] if each.rest is not None else ()),
                ]
            self._nodes[costs] = nodes
        return costs, self._nodes[costs]

    def _made(self, name: str, level: int, given: Levels) -> tuple[int, Sequence[Node]]:
        what = name, self.unfilled[name].like(level, given) if level else 0
        if what not in self._made_at:
            nodes = tuple(self._made_of(name, level, given)) if level else (self.ends[name],)
            self._made_at[what] = self._number.setdefault(nodes, len(self._number)), nodes
        return self._made_at[what]

    def _made_of(self, name: str, level: int, given: Levels) -> Iterator[Node]:
        unfilled = self.unfilled[name]
        for way in unfilled.at(level, given):
            beside = (self._either(way.more),) if way.more else ()
            yield Node(unfilled.charge(way, level), (), (*self.names(way.reads), *beside))

    def _either(self, sets: tuple[int, ...]) -> str:
        """The class of one of several sets of buffers that are filled: of a value that is computed elsewhere as well, from one of these."""
        if sets not in self._beside:
            name = self._beside[sets] = f"beside {len(self._beside)}"
            self.beside[name] = tuple([Node(0.0, (), self.names(each)) for each in sets])
        return self._beside[sets]
