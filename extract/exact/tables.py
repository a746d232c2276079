"""What a kernel does at least that computes a value again, on a table of how each value may be had. Nothing here has a name: equal
layers have equal tables, and are worked out once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ..choice import REDUCING, How, Key, outside
from ..cost.model import Work
from ..problem import Problem
from .once import HOWS, NO_WORK, Once, Product, all_of, fewest_ways, merged_of, once_of
from .rows import Barred, Computing, Heeds, Reading, Row, Rows, apart

if TYPE_CHECKING:
    from .frames import Frame

NOTHING = (Work(),) * len(HOWS)


class _Read(NamedTuple):
    """A way to read a value from a buffer. ``works``: of that, in each kind of kernel. ``names``: the first of a table's sets of names
    that has it; their number where none has."""

    way: Once
    works: tuple[Work | None, ...]
    names: int


class _Step(NamedTuple):
    """A way to compute a value. ``works``: in each kind of kernel, None where that does not hold it. ``sums``: whether it is a reduction. ``below``: the operands that
    are rows of the table before it, each with whether it is evaluated again wherever the value is. ``only``: of each operand that can
    only be read, the sets of names of which one has it. ``read``: what a kernel reads at least for other operands. ``before``: for
    each class of what is given to the part (:class:`~tinyc.extract.exact.inside.Kind`), what it does for those that are, in each kind of
    kernel. ``twice``: whether it is a product that may also be computed in an earlier part. ``product``: which one."""

    works: tuple[Work | None, ...]
    sums: bool
    below: tuple[tuple[int, bool], ...]
    only: tuple[frozenset[int], ...]
    read: Once
    before: tuple[tuple[tuple[tuple[Once, ...], ...], ...], ...]
    twice: bool
    product: Product | None = None


class _Row(NamedTuple):
    """A value. ``made``: whether it is one of those that are looked at. ``outer``: whether it is at a kernel's output axes. ``earlier``:
    whether an earlier part may compute it as well."""

    made: bool
    outer: bool
    earlier: bool
    options: tuple[_Read | _Step, ...]


Table = tuple[_Row, ...]
"""Values and how each may be had, operands first, without the names of any: equal layers have equal tables."""

Found = tuple[Mapping[tuple[int, How, bool], Sequence[Once]], Sequence[frozenset[int]]]
"""See ``once`` of :class:`Beneath`; and for each of its sources, the rows that can be had."""


Before = Mapping[Key, tuple[tuple[Once, ...], ...]]
"""What is done for values that are given to a part, in each kind of kernel."""


@dataclass(frozen=True)
class Known:
    """What was found of equal tables, and of the rows of any."""

    tables: dict[tuple[Table, tuple[Barred, ...]], Found] = field(default_factory=dict)
    rows: Rows = field(default_factory=Rows)


def table_of(
    problem: Problem,
    frame: Frame,
    buffers: Collection[str] | None = None,
    before: Sequence[Before] = (MappingProxyType({}),),
    unshared: Callable[[str], bool] = lambda name: False,
    twice: Collection[str] = (),
) -> Table:
    """``buffers``: of the part, if others are told apart. ``before``: of each class of what is given to the part, what is done for its
    values. ``unshared``: of which inputs it counts that they are read. ``twice``: what an earlier part may compute as well, by what it is."""

    def read(name: str) -> Once:
        buffer = problem.view.buffers[name]
        size = float(problem.works.bytes(buffer))
        if buffer.arg is not None:
            return Once(inputs=size) if unshared(name) else Once()
        own = buffers is None or name in buffers
        return Once(Work(bytes_read=size)) if own else Once(before=size)

    rows: list[_Row] = []
    for key, framed in zip(frame.keys, frame.options, strict=True):
        options: list[_Read | _Step] = []
        origin = problem.view.origin(key[0])
        for option, works, others, below, only in framed:
            if option.item.head == "Read":
                name = str(option.item.payload[0])
                if problem.view.buffers[name].arg is not None and not unshared(name):
                    works = NOTHING  # a kernel may have it for itself
                options.append(_Read(read(name), works, frame.first.get(name, len(frame.names))))
                continue
            least = [each for child in others if (each := _least_read(problem, child, read)) != NO_WORK]
            options.append(
                _Step(
                    works,
                    option.item.head in REDUCING,
                    below,
                    only,
                    all_of([NO_WORK, *least]) if least else NO_WORK,
                    tuple([tuple([each[child] for child in others if child in each]) for each in before]),
                    option.item.head == "Contract" and origin in twice,
                    problem.contracted[origin] if option.item.head == "Contract" else None,
                )
            )
        outer = outside(problem.view.free[key[0]])
        rows.append(_Row(key in frame.made, outer, origin in twice, tuple(options)))
    return tuple(rows)


def _least_read(problem: Problem, key: Key, read: Callable[[str], Once]) -> Once:
    """What a kernel reads at least for a value that can only be read."""
    options = problem.options[key]
    if not options or any(option.item.head != "Read" for option in options):
        return NO_WORK
    ways = [read(str(option.item.payload[0])) for option in options]
    return merged_of(min, ways, None)


def ways_of(table: Table, sources: Sequence[Barred], known: Rows | None = None) -> Found:
    """What a kernel does that computes a value that is made, and has what that is made of from each of ``sources``. ``known``: what was
    found of rows of other tables."""
    known = known or Rows()
    once: dict[tuple[int, How, bool], Sequence[Once]] = {}
    able: list[set[int]] = [set() for _ in sources]
    heeds = _heeds(table)
    done: list[tuple[list[Row], How]] = []
    every = [[_in_kernels(row, number) for row in table] for number, _ in enumerate(HOWS)]
    known.widen(list(itertools.chain.from_iterable(every)))
    for number, (how, rows) in enumerate(zip(HOWS, every, strict=True)):
        like = next((other for known_rows, other in done if known_rows == rows), None)
        done.append((rows, how))
        if like is not None:  # many do the same in two kinds of kernels
            once |= {(source, how, outer): once[source, like, outer] for source, _, outer in [*once]}
            continue
        steps = (option for row in table for option in row.options if isinstance(option, _Step))
        twice = (step.works[number] for step in steps if step.twice)
        separate = not any(work and (work.schedule or how == "rows") for work in twice)
        for source, found in enumerate(known.ways(rows, heeds, sources, separate)):
            able[source] |= found.keys()
            for outer in (True, False):
                there = (ways for place, ways in found.items() if table[place].outer == outer)
                each = list(itertools.chain.from_iterable(there))
                once[source, how, outer] = tuple(map(once_of, fewest_ways(each)))
    return once, [frozenset(each) for each in able]


def known_ways(known: Known, table: Table, sources: Sequence[Barred]) -> Found:
    """The same, as it is ``known`` of equal tables: these are large."""
    what = table, tuple(sources)
    found = known.tables.get(what)
    if found is None:
        found = known.tables[what] = ways_of(*what, known.rows)
    return found


def _in_kernels(row: _Row, how: int) -> Row:
    """A row of a table in one kind of kernel, by its number."""
    reads: list[Reading] = []
    steps: list[Computing] = []
    for option in row.options:
        work = option.works[how]
        if work is None:
            continue
        if isinstance(option, _Read):
            way = option.way._replace(work=work + option.way.work, again=work)
            reads.append(Reading(apart(way, row.earlier), option.names))
        else:
            before = tuple(
                [
                    tuple([tuple([apart(way, True) for way in ways[how]]) for ways in each])
                    for each in option.before
                ]
            )
            own, read = apart(Once(work=work, again=work), row.earlier).amounts, apart(option.read)
            kept = option.product if HOWS[how] == "rows" else None
            steps.append(
                Computing(work.schedule, own, option.sums, option.below, option.only, read, before, kept)
            )
    return Row(row.made, tuple(reads), tuple(steps))


def _heeds(table: Table) -> list[Heeds]:
    """What makes a difference to each row."""
    found: list[Heeds] = []
    for row in table:
        steps = [option for option in row.options if isinstance(option, _Step)]
        below = [found[number] for step in steps for number, _ in step.below]
        names = frozenset(option.names for option in row.options if isinstance(option, _Read))
        only = (each for step in steps for each in step.only)
        light = any(any(step.before) for step in steps) or any(each.light for each in below)
        found.append(Heeds(names.union(*only, *(each.names for each in below)), light))
    return found
