"""The cheapest kernels of one part of a program: which kernels may fill each buffer (``columns.py``), and of those the cheapest
(``ilp.py``), once for all parts that are equal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..choice import Kernel, Key
from ..pricing import priced
from ..problem import Problem
from ..view import Item
from .chains import reads
from .columns import Column, Columns, columns, within
from .dag import Dag, Node, components, taken
from .ilp import Limits, solve
from .mates import lifted
from .parts import Part, canonical
from .proof import Effort
from .scope import INSIDE, Scope
from .worth import Worth

LABELS = 20_000
"""Partial kernels of one search at most."""

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
    """The solution of a part, by numbers: so it is one of all that are equal to it. ``bound``: of the part's kernels,
    with what is charged. ``filled``: of what the part makes, what it fills; ``read``: of what it is given, what it pays for.
    ``slack``: what it costs more to fill and read all of that.
    ``chosen``: for each buffer that is filled, the way and (value, option) of its kernel."""

    bound: float
    slack: float
    filled: tuple[bool, ...]
    read: tuple[bool, ...]
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
    problem: Problem, part: Part, known: dict[tuple[object, ...], Solved | None], meter: Meter, loosely: bool
) -> Answer:
    """The solution of a part; of those that are equal, one is solved."""
    form, keys, buffers = canonical(problem, part)
    form = (loosely, *form)
    if known.get(form) is None:
        known[form] = _solved(problem, part, keys, buffers, meter, loosely)
    return Answer(part, keys, buffers, known[form])


def _solved(
    problem: Problem, part: Part, keys: Sequence[Key], buffers: Sequence[str], meter: Meter, loosely: bool
) -> Solved | None:
    """The part's cheapest kernels; None where too little is left to look for them."""
    scope = Scope(problem, part, loosely)
    weighed = _weighed(scope, meter)
    if weighed is None:
        return None
    found, worth = weighed
    dag = _dag(scope, found, worth)
    answer = solve(dag, Limits(max(meter.seconds, 0.1)))
    if answer is None:
        return None
    needed = taken(dag, answer.solution)
    filled = tuple(answer.solution[f"made {name}"] == 0 for name in part.made)
    read = tuple(name in needed for name in part.given)
    chosen, cost = _agreed(scope, dag, found, keys, buffers, meter)
    slack = cost + sum(part.prices) - answer.bound
    limit = answer.limit or ("steps" if any(each.rest is not None for each in found.values()) else "")
    count = sum(len(each.found) for each in found.values())
    return Solved(answer.bound, slack, filled, read, chosen, count, answer.variables, answer.cuts, limit)


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


def _dag(scope: Scope, found: Mapping[str, Columns], worth: Mapping[str, float]) -> Dag:
    """A part as a DAG extraction: a class for each buffer, with a node for each kernel. Kernels that were not looked for are
    one node, at the least that any of them costs, which reads what all of them must. What is made may be had without its
    buffer: within a kernel of a later part, which costs more by that."""
    part = scope.part

    def names(bits: int) -> tuple[str, ...]:
        return tuple(
            name for name, bit in scope.bits.items() if bits & bit & scope.filled and name not in scope.same
        )

    classes = {name: [Node(price)] for name, price in zip(part.given, part.prices, strict=True)}
    for name, columns_ in found.items():
        nodes = classes[name] = [Node(column.seconds, (), names(column.reads)) for column in columns_.found]
        if columns_.rest is not None:
            roots = [(way.root, False) for way in scope.problem.view.buffers[name].ways]
            nodes.append(Node(columns_.rest, (), names(scope.must(roots) & ~scope.bits[name])))
    below = [scope.below(part.targets.get(name, ())) for name in part.made]
    for number, name in enumerate(part.made):
        # one kernel may have several of them, and compute what they share once: each is charged its share
        share = max(1, sum(not below[number].isdisjoint(other) for other in below))
        nodes = classes[f"made {name}"] = [Node(0.0, (), (scope.same.get(name, name),))]
        for key in part.targets.get(name, ()):
            if key in scope.position:
                ways = within(scope, key, worth.get(scope.same.get(name, name), float("inf")), LABELS)
                nodes += [
                    Node(part.charges[number] + seconds / share, (), names(reads)) for reads, seconds in ways
                ]
    return Dag(classes, tuple(f"made {name}" for name in part.made))


Picked = tuple[int, tuple[tuple[int, int], ...]]
"""A kernel by numbers: the way to fill its buffer, and (value, option) of its items."""


def _agreed(
    scope: Scope,
    dag: Dag,
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
        for column, node in zip(columns_.found, dag.classes[name], strict=False):
            kernel = _kernel(scope, name, column)
            if kernel is not None:
                ways[name].append(kernel)
                nodes.append(Node(kernel.seconds, (), node.buffers))
        classes[name] = nodes
    answer = solve(Dag(classes, dag.roots), Limits(max(meter.seconds, 0.1)))
    if answer is None:
        return {}, float("inf")
    place = {key: number for number, key in enumerate(keys)}
    needed = taken(Dag(classes, dag.roots), answer.solution)
    kernels = {name: ways[name][answer.solution[name]] for name in needed if name in ways}
    read = {each for kernel in kernels.values() for each in reads(kernel)}
    chosen: dict[int, Picked] = {}
    for number, name in enumerate(buffers):
        filled = scope.same.get(name, name) if name in read and name not in scope.chained else name
        kernel = kernels.get(scope.mated.get(name, filled))
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
    made = next((each for each, first in scope.mated.items() if first == name), name)
    if made == name:
        return priced(problem, problem.view.buffers[name], column.way, items)
    for way in problem.view.buffers[made].ways:
        above = lifted(problem, items, (column.way.root, False), (way.root, False), frozenset(part.given))
        if above is not None:
            return priced(problem, problem.view.buffers[made], way, above)
    return None


def _read(problem: Problem, part: Part, key: Key) -> Item | None:
    """How a value is read of what is given; None where it is not, in the order in which it is needed."""
    options = (option.item for option in problem.options[key] if option.item.head == "Read")
    return next((item for item in options if str(item.payload[0]) in part.given), None)


def _option(problem: Problem, key: Key, item: Item) -> int:
    """Which option of a value it is."""
    return next(number for number, option in enumerate(problem.options[key]) if option.item == item)
