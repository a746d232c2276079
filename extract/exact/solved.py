"""The cheapest kernels of one part of a program: which kernels may fill each buffer (``columns.py``), and of those the cheapest
(``ilp.py``), once for all parts that are equal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..choice import Kernel, Key
from ..cost.model import Work
from ..pricing import priced
from ..problem import Problem
from .agreed import WITHIN, Numbered, agreed, numbered
from .bounds import Bounds, Ends, Taken
from .columns import Columns, columns
from .dag import components
from .hosts import Hosts
from .inside import INSIDE, Levels, combined
from .merged import MERGINGS
from .meter import Meter
from .part import Part
from .partdag import PartDag
from .rounded import Picked
from .scope import Scope
from .within import EVERY, LABELS, LAST, Within, within
from .worth import Worth

WHOLE = 10_000
"""Partial kernels of the searches of one part at most, before its buffers are taken as one; twice as many where some are, before more
are, and so on."""

LONE = 6_000
"""The same, of one part of many that is like no other, where in others some are taken as one."""

ONE = 2 / 3
"""The share of those that the search of one buffer takes at most."""

FEW = 2
"""Of buffers that are taken as one, so many of the first are looked at in a search for kernels, and the last."""

TRIAL = 500
"""Of the first search for a buffer's kernels, which is to find some of the best."""


@dataclass(frozen=True)
class Solved:
    """The solution of a part, by numbers: so it is one of all that are equal to it.

    Attributes:
        bounds: what the part's kernels cost at least, by what is filled at its ends.
        number: of each buffer.
        columns: of each buffer the kernels that may fill it.
        cost: of its kernels where all of them are; infinite where there are none such.
        chosen: for each buffer that is filled then, its kernel.
        cut: whether kernels were left out for want of effort.
        alike: of each buffer those that are taken as it is.
        merged: whether more are than those of a chain.
    """

    bounds: Bounds
    number: Mapping[str, int]
    columns: Mapping[int, Sequence[Numbered]]
    cost: float
    chosen: Mapping[int, Numbered]
    cut: bool
    alike: Mapping[int, Sequence[int]]
    merged: bool

    @property
    def limit(self) -> str:
        """See :class:`~tinyc.extract.exact.proof.Proof`."""
        limits = (answer.limit for answer in self.bounds.answers if answer.limit)
        return next(limits, "steps" if self.cut else "")

    @property
    def weighed(self) -> int:
        """Kernels that were found."""
        return sum(map(len, self.columns.values()))

    def kernels(
        self, problem: Problem, keys: Mapping[int, Key], buffers: Mapping[int, str]
    ) -> dict[str, Kernel] | None:
        """The kernels in a part of these keys and buffers where all is filled."""
        found: dict[str, Kernel] = {}
        for each in self.chosen.values():
            picked = _picked(problem, keys, buffers, each)
            kernel = picked and priced(problem, problem.view.buffers[picked.name], picked.way, picked.items)
            if picked is None or kernel is None:
                return None
            found[picked.name] = kernel
        return found

    def filled(
        self, buffers: Mapping[int, str], ends: Ends, most: float, known: Collection[str]
    ) -> Iterator[str]:
        """The buffers that are filled in the solution of a bound, or one that costs no more than ``most`` seconds beside it. Of those
        that are taken as one, the first few and the last, and what is ``known`` to do: all of them are more than a search looks at."""
        for name in self.bounds.near(ends, most):
            alike = [buffers[number] for number in self.alike[self.number[name]] if number in buffers]
            yield from (*alike[:FEW], *alike[-1:], *(each for each in alike if each in known))

    def picked(
        self,
        problem: Problem,
        keys: Mapping[int, Key],
        buffers: Mapping[int, str],
        ends: Ends,
        taken: Taken | None = None,
    ) -> list[Picked] | None:
        """The kernels of a bound in a part of these keys and buffers, or those that are ``taken``; None where one of them was not looked
        for, or is of a buffer that the part has not."""
        if taken is None:
            taken = self.bounds.taken(ends)
        if taken is None:
            return None
        found: list[Picked] = []
        for name, column in taken:
            number = self.number[name]
            alike = tuple([buffers[each] for each in self.alike[number] if each in buffers])
            picked = _picked(problem, keys, buffers, self.columns[number][column])
            if picked is None:
                return None
            found.append(picked._replace(alike=alike, seconds=self.bounds.cost(ends, name, column)))
        return found


def _picked(
    problem: Problem, keys: Mapping[int, Key], buffers: Mapping[int, str], numbers: Numbered
) -> Picked | None:
    """A kernel of a part of these keys and buffers; None where that has not all of them."""
    if numbers.buffer not in buffers or any(place not in keys for place, _ in numbers.items):
        return None
    name = buffers[numbers.buffer]
    items = {
        keys[place]: INSIDE if option == WITHIN else problem.options[keys[place]][option].item
        for place, option in numbers.items
    }
    return Picked(name, problem.view.buffers[name].ways[numbers.way], items)


@dataclass(frozen=True)
class Searched:
    """What is known of a part when its kernels are. ``ways``: to do without what it makes, see :func:`within`."""

    scope: Scope
    found: dict[str, Columns]
    ways: Mapping[str, Mapping[Levels, Sequence[Within]]]


@dataclass(frozen=True)
class Try:
    """An attempt at a search. ``way``: which of the ways to take buffers as one, 0 for none (``merged.py``). ``most``, ``one``: steps of
    all, and of one buffer, at most. ``tells``: whether equal layers begin with it, if it finds all."""

    way: int
    most: float
    one: float
    tells: bool


def tries(part: Part, meter: Meter, merges: bool, lone: bool) -> list[Try]:
    """What is tried for a part, until all of its kernels are found. ``lone``: of many parts, none is like it."""
    last = len(MERGINGS) if merges else 0
    # what is merged gives no kernels: where some parts are, the others need none either
    first = max(meter.merging.get(len(part.buffers), 0), int(any(meter.merging.values()))) if merges else 0
    found: list[Try] = []
    for way in sorted({first, last}) if lone else range(first, last + 1):
        most = float("inf") if way == last else LONE if lone and first else WHOLE * (1 + way)
        found.append(Try(way, most, ONE * most, merges))
    return found


def searched(
    hosts: Hosts, part: Part, meter: Meter, loosely: bool, attempts: Iterable[Try]
) -> Searched | None:
    """The kernels of a part; None where none of the attempts finds all, or too little is left for them."""
    for each in attempts:
        scope = Scope(hosts.problem, part, loosely, hosts, MERGINGS[each.way - 1] if each.way else None)
        weighed = _weighed(scope, meter, each)
        last = each.most == float("inf")
        ways, full = ({}, True) if weighed is None else _within(scope, weighed[1], last or bool(meter.limit))
        scope.searched()
        if not full or meter.limit or (weighed is not None and last):
            if each.tells:
                meter.merging[len(part.buffers)] = each.way
            return None if weighed is None else Searched(scope, weighed[0], ways)
    return None


def _within(
    scope: Scope, worth: Mapping[str, float], last: bool
) -> tuple[dict[str, Mapping[Levels, Sequence[Within]]], bool]:
    """The ways to do without each buffer that a part makes, and whether there are too many for one. ``last``: no other attempt is made
    if so."""
    found: dict[str, Mapping[Levels, Sequence[Within]]] = {}
    every = True
    for name in scope.part.targets:
        found[name], full = within(scope, name, worth, float("inf") if last else EVERY)
        every &= not full
        if full and not last:
            break
    return found, not every


def solved(known: Searched, keys: Sequence[Key], buffers: Sequence[str], meter: Meter) -> Solved | None:
    """A part's solution, of its kernels. ``keys``, ``buffers``: in the order of their numbers."""
    scope, found = known.scope, known.found
    dag = PartDag(scope, found, known.ways)
    bounds = Bounds(dag, scope.part.levels, made_levels(scope.part), meter.until)
    if not bounds.items():
        return None
    number = {name: place for place, name in enumerate(buffers)}
    place = {key: each for each, key in enumerate(keys)}
    columns_ = {
        number[name]: [
            numbered(scope.problem, number, column.name, column.way, column.label.items(), place)
            for column in each.found
        ]
        for name, each in found.items()
    }
    chosen, cost = agreed(scope, found, dag.reads, keys, buffers, max(meter.seconds, 0.1))
    cut = any(each.rest is not None for each in found.values())
    alike = {number[name]: [number[name]] for name in found}
    for name, other in scope.same.items():
        alike[number[other]].append(number[name])
    return Solved(bounds, number, columns_, cost, chosen, cut, alike, scope.merges)


def made_levels(part: Part) -> list[Levels]:
    """What may be filled of what a part makes."""
    return combined([part.group(name).levels if name in part.targets else 1 for name in part.made])


def _weighed(scope: Scope, meter: Meter, attempt: Try) -> tuple[dict[str, Columns], dict[str, float]] | None:
    """The kernels of each buffer that may be of use: none that costs more than to fill the buffer in some other way, with
    all that that needs; and what that costs. None where no effort is left, or where the searches do not find all in the steps of the
    ``attempt``."""
    if meter.limit:
        return None
    view, launch = scope.problem.view, scope.problem.model.hardware.launch
    worth, last = Worth(scope), meter.steps - attempt.most
    plenty = LABELS if attempt.most < float("inf") else LAST
    found: dict[str, Columns] = {}
    scope.drop(worth.all())
    for circle in _circles(scope):
        alone = len(circle) == 1
        for name in circle:
            buffer, most = view.buffers[name], 2 * launch
            # where the searches do not find all, it is nearly always one that goes on and on
            until = max(0, last, meter.steps - attempt.one)
            labels = meter.labels(TRIAL if alone else LABELS)
            here = meter.spend(columns(scope, buffer, most, labels, left=meter.steps - until))
            while not here.found and here.rest is not None and here.rest > most and meter.steps > until:
                most, left = 2 * here.rest, meter.steps - until
                here = meter.spend(columns(scope, buffer, most, meter.labels(LABELS), left=left))
            if alone and here.rest is not None:
                worth.add(name, here)
                left = max(meter.steps - until, 0)
                labels = meter.labels(int(min(left, plenty)))
                more = meter.spend(columns(scope, buffer, float("inf"), labels, worth.of(name), left))
                here = more if more.rest is None or more.rest > here.rest else here
            found[name] = here
            if alone:
                worth.add(name, here)
                scope.drop({name: worth.most(name)})
            if meter.limit:
                # of the kernels of the other buffers is known that they are launched
                launched = Columns((), scope.problem.model.kernel(Work()), 0)
                return {each: found.get(each, launched) for each in scope.buffers}, worth.least()
            if meter.steps <= until:
                return None
            if here.rest is not None and attempt.most < float("inf"):
                return None  # where more buffers are taken as one, all may be found
    return found, worth.least()


def _circles(scope: Scope) -> Iterator[tuple[str, ...]]:
    """The buffers of a part, those that may fill each other together, each after those that its kernels may read."""
    number = {name: place for place, name in enumerate(scope.buffers, len(scope.order))}
    edges: dict[int, frozenset[int]] = {}
    for name, place in number.items():
        roots = ((way.root, False) for _, way in scope.ways(name))
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
