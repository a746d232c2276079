"""The cheapest kernels of one part of a program: which kernels may fill each buffer (``columns.py``), and of those the cheapest
(``ilp.py``), once for all parts that are equal."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..choice import Kernel, Key
from ..pricing import priced
from ..problem import Problem
from ..view import Item
from .chains import reads
from .columns import Column, Columns, columns
from .dag import Dag, Node, components, taken
from .hosts import Hosts
from .ilp import Limits, solve
from .inside import INSIDE, Beneath, Kind, Levels, combined
from .parts import Part, canonical
from .proof import Effort
from .scope import Scope
from .within import LABELS, best, within
from .worth import Worth

TRIAL = 1_000
"""Of the first search for a buffer's kernels, which is to find some of the best."""


class Meter:
    """What is left of an effort."""

    def __init__(self, effort: Effort) -> None:
        self._until = time.perf_counter() + effort.seconds
        self.steps = effort.steps

    @property
    def seconds(self) -> float:
        return self._until - time.perf_counter()

    @property
    def limit(self) -> str:
        """What is used up, if anything is."""
        return "steps" if self.steps <= 0 else "seconds" if self.seconds <= 0 else ""

    def labels(self, most: int) -> int:
        return int(min(most, self.steps))

    def spend(self, found: Columns) -> Columns:
        self.steps -= found.labels
        return found


@dataclass(frozen=True)
class Solved:
    """The solution of a part, by numbers: so it is one of all that are equal to it.

    Attributes:
        bounds: what the part's kernels cost at least, by the levels of what it is given, and of what it makes.
        cost: of its kernels where all of them are; infinite where there are none such.
        chosen: for each buffer that is filled then, the way and (value, option) of its kernel.
        weighed, variables, cuts, limit: see :class:`~tinyc.extract.exact.proof.Proof`.
    """

    bounds: Mapping[tuple[Levels, Levels], float]
    cost: float
    chosen: Mapping[int, tuple[int, tuple[tuple[int, int], ...]]]
    weighed: int
    variables: int
    cuts: int
    limit: str

    def kernels(
        self, problem: Problem, keys: Sequence[Key], buffers: Sequence[str]
    ) -> dict[str, Kernel] | None:
        """The kernels in a part of these keys and buffers."""
        found: dict[str, Kernel] = {}
        for number, (way, picked) in self.chosen.items():
            buffer = problem.view.buffers[buffers[number]]
            items = {keys[place]: problem.options[keys[place]][option].item for place, option in picked}
            kernel = priced(problem, buffer, buffer.ways[way], items)
            if kernel is None:
                return None
            found[buffer.cls] = kernel
        return found


@dataclass(frozen=True)
class Answer:
    """What is known of a part. ``keys``, ``buffers``: those that the numbers of its solution stand for."""

    part: Part
    keys: tuple[Key, ...]
    buffers: tuple[str, ...]
    solved: Solved | None


def answered(
    hosts: Hosts, part: Part, known: dict[tuple[object, ...], Solved | None], meter: Meter, loosely: bool
) -> Answer:
    """The solution of a part; of those that are equal, one is solved."""
    form, keys, buffers = canonical(hosts.problem, part)
    form = (loosely, *form)
    if known.get(form) is None:
        known[form] = _solved(hosts, part, keys, buffers, meter, loosely)
    return Answer(part, keys, buffers, known[form])


def _solved(
    hosts: Hosts, part: Part, keys: Sequence[Key], buffers: Sequence[str], meter: Meter, loosely: bool
) -> Solved | None:
    """The part's cheapest kernels; None where too little is left to look for them."""
    scope = Scope(hosts.problem, part, loosely, hosts)
    weighed = _weighed(scope, meter)
    if weighed is None:
        return None
    found, worth = weighed
    dag = _Dag(scope, found, worth)
    bounds: dict[tuple[Levels, Levels], float] = {}
    variables = cuts = 0
    limit = "steps" if any(each.rest is not None for each in found.values()) else ""
    for given, made in _states(part):
        answer = solve(dag.where(given, made), Limits(max(meter.seconds, 0.1)))
        if answer is not None:
            bounds[given, made] = answer.bound
            variables, cuts = variables + answer.variables, cuts + answer.cuts
            limit = answer.limit or limit
    if not bounds:
        return None
    chosen, cost = _agreed(scope, dag, found, keys, buffers, meter)
    count = sum(len(each.found) for each in found.values())
    return Solved(bounds, cost, chosen, count, variables, cuts, limit)


def _states(part: Part) -> Iterator[tuple[Levels, Levels]]:
    """What may be filled of what a part is given, and of what it makes."""
    ends = [_group(part, name).levels if name in part.targets else 1 for name in part.made]
    for given, made in itertools.product(part.levels, combined(ends)):
        kinds = [
            _group(part, name).kinds[level - 1] for name, level in zip(part.made, made, strict=True) if level
        ]
        if all(not kind.partial or kind.deep == part.charged(given) for kind in kinds):
            yield given, made


def _group(part: Part, name: str) -> Beneath:
    return part.groups.get(name, Beneath(name, kinds=(Kind(False, True, True),)))


def _weighed(scope: Scope, meter: Meter) -> tuple[dict[str, Columns], dict[str, float]] | None:
    """The kernels of each buffer that may be of use: none that costs more than to fill the buffer in some other way, with
    all that that needs; and what that costs. None where the effort does not suffice."""
    view, launch = scope.problem.view, scope.problem.model.hardware.launch
    worth = Worth(scope)
    found: dict[str, Columns] = {}
    scope.drop(worth.all())
    for circle in _circles(scope):
        alone = len(circle) == 1
        for name in circle:
            buffer, most = view.buffers[name], 2 * launch
            labels = meter.labels(TRIAL if alone else LABELS)
            here = meter.spend(columns(scope, buffer, most, labels))
            while not here.found and here.rest is not None and here.rest > most:
                most = 2 * here.rest
                here = meter.spend(columns(scope, buffer, most, meter.labels(LABELS)))
            if alone and here.rest is not None:
                worth.add(name, here)
                more = meter.spend(columns(scope, buffer, float("inf"), meter.labels(LABELS), worth.of(name)))
                here = more if more.rest is None or more.rest > here.rest else here
            found[name] = here
            if alone:
                worth.add(name, here)
                scope.drop({name: worth.cost(name, 0)})
            if meter.limit:
                return None
    return found, worth.all()


def _circles(scope: Scope) -> Iterator[tuple[str, ...]]:
    """The buffers of a part, those that may fill each other together, each after those that its kernels may read."""
    number = {name: place for place, name in enumerate(scope.buffers, len(scope.order))}
    edges: dict[int, frozenset[int]] = {}
    for name, place in number.items():
        roots = ((way.root, False) for way in scope.problem.view.buffers[name].ways)
        edges[place] = frozenset(scope.position[root] for root in roots if root in scope.position)
    for key, place in scope.position.items():
        read = (scope.same.get(name, name) for name in scope.readable(key))
        edges[place] = frozenset(scope.position[child] for child in scope.edges[key]).union(
            number[name] for name in read if name in number
        )
    for circle in components(edges):
        names = tuple(
            scope.buffers[place - len(scope.order)] for place in circle if place >= len(scope.order)
        )
        if names:
            yield names


class _Dag:
    """A part as DAG extractions: a class for each buffer, with a node for each kernel. Kernels that were not looked for are
    one node, at the least that any of them costs, which reads what all of them must. What is made and not filled is had within
    a kernel of a later part, which takes longer by that."""

    def __init__(self, scope: Scope, found: Mapping[str, Columns], worth: Mapping[str, float]) -> None:
        self.scope, self.part, self.found = scope, scope.part, found
        self.reads = {
            name: [self.names(column.reads) for column in each.found] for name, each in found.items()
        }
        self.rest: dict[str, Node] = {}
        for name, each in found.items():
            if each.rest is not None:
                roots = [(way.root, False) for way in scope.problem.view.buffers[name].ways]
                self.rest[name] = Node(each.rest, (), self.names(scope.must(roots) & ~scope.bits[name]))
        self.made = {name: Node(0.0, (), (scope.same.get(name, name),)) for name in self.part.made}
        self.within: dict[tuple[str, int], list[tuple[int, Node]]] = {}
        for name, keys in self.part.targets.items():
            most = worth.get(scope.same.get(name, name), float("inf"))
            ways = within(scope, [key for key in keys if key in scope.position], 2 * most)
            group = _group(self.part, name)
            partial = {scope.bits[other] for other in group.partial}
            for level, kind in enumerate(group.kinds, 1):
                there = [way for way in ways if way.outer <= kind.outer]
                if kind.partial:  # one of them is read, by a kernel that may hide all else that it does here
                    there = [
                        way._replace(reads=way.reads | bit, seconds=0.0)
                        for way in there
                        for bit in partial
                        if way.some or way.reads & bit
                    ]
                else:
                    there = [way for way in there if way.some or not way.reads & sum(partial)]
                self.within[name, level] = [
                    (way.marks, Node(way.seconds, (), self.names(way.reads))) for way in best(there)
                ]

    def names(self, reads: int) -> tuple[str, ...]:
        """The buffers of a bit set that have to be filled."""
        scope = self.scope
        return tuple(
            name for name, bit in scope.bits.items() if reads & bit & scope.filled and name not in scope.same
        )

    def where(self, given: Levels, made: Levels) -> Dag:
        """At these levels of what is given, and of what is made."""
        pairs = zip(self.part.given, given, self.part.prices, strict=True)
        classes = {name: [Node(price if level else 0.0)] for name, level, price in pairs}
        number = self.scope.levels.index(given)
        for name, each in self.found.items():
            classes[name] = [
                Node(column.costs[number], (), reads)
                for column, reads in zip(each.found, self.reads[name], strict=True)
                if column.costs[number] < float("inf")
            ]
            classes[name] += [self.rest[name]] if name in self.rest else []
        for name, level in zip(self.part.made, made, strict=True):
            classes[f"made {name}"] = self._made(name, level, given)
        return Dag(classes, tuple(f"made {name}" for name in self.part.made))

    def _made(self, name: str, level: int, given: Levels) -> list[Node]:
        if not level:
            return [self.made[name]]
        ways = self.within.get((name, level), [])
        return [node for marks, node in ways if self.scope.given.allowed(marks, given)]


Picked = tuple[int, tuple[tuple[int, int], ...]]
"""A kernel by numbers: the way to fill its buffer, and (value, option) of its items."""


def _agreed(
    scope: Scope,
    dag: _Dag,
    found: Mapping[str, Columns],
    keys: Sequence[Key],
    buffers: Sequence[str],
    meter: Meter,
) -> tuple[dict[int, Picked], float]:
    """The kernels with which a part agrees with those before and after: what is given is there and read, and what is made is
    filled; and what they cost. None, and infinity, where there are none such."""
    problem, part = scope.problem, scope.part
    classes: dict[str, Sequence[Node]] = {name: [Node(0.0)] for name in part.given}
    classes |= {f"made {name}": [Node(0.0, (), (scope.same.get(name, name),))] for name in part.made}
    ways: dict[str, list[Kernel]] = {}
    for name, columns_ in found.items():
        ways[name], nodes = [], list[Node]()
        for column, needed_ in zip(columns_.found, dag.reads[name], strict=True):
            kernel = _kernel(scope, name, column)
            if kernel is not None:
                ways[name].append(kernel)
                nodes.append(Node(kernel.seconds, (), needed_))
        classes[name] = nodes
    agreed = Dag(classes, tuple(f"made {name}" for name in part.made))
    answer = solve(agreed, Limits(max(meter.seconds, 0.1)))
    if answer is None:
        return {}, float("inf")
    place = {key: number for number, key in enumerate(keys)}
    needed = taken(agreed, answer.solution)
    kernels = {name: ways[name][answer.solution[name]] for name in needed if name in ways}
    read = {each for kernel in kernels.values() for each in reads(kernel)}
    chosen: dict[int, Picked] = {}
    for number, name in enumerate(buffers):
        filled = scope.same.get(name, name) if name in read and name not in scope.chained else name
        kernel = kernels.get(filled)
        # a buffer that is filled as another is has kernels of its own
        if kernel is not None and (kernel.buffer.cls == name or name not in kernels):
            roots = [way.root for way in problem.view.buffers[name].ways]
            picked = tuple((place[key], _option(problem, key, item)) for key, item in kernel.items.items())
            chosen[number] = roots.index(kernel.way.root), picked
    return chosen, answer.cost


def _kernel(scope: Scope, name: str, column: Column) -> Kernel | None:
    """A kernel as it is where all that is given is there: it is read. What is made is stored in the buffer that it is made in,
    and not in one that is as good. None where that cannot be."""
    problem, part = scope.problem, scope.part
    items = column.label.items()
    for key, item in list(items.items()):
        if item is INSIDE:
            read = _read(problem, part, key)
            if read is None:
                return None
            items[key] = read
    return priced(problem, problem.view.buffers[name], column.way, items)


def _read(problem: Problem, part: Part, key: Key) -> Item | None:
    """How a value is read of what is given; None where it is not, in the order in which it is needed."""
    options = (option.item for option in problem.options[key] if option.item.head == "Read")
    return next((item for item in options if str(item.payload[0]) in part.given), None)


def _option(problem: Problem, key: Key, item: Item) -> int:
    """Which option of a value it is."""
    return next(number for number, option in enumerate(problem.options[key]) if option.item == item)
