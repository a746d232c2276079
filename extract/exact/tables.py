"""What a kernel does at least that computes a value again, on a table of how each value may be had. Nothing here has a name: equal
layers have equal tables, and are worked out once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ..choice import REDUCING, How, Key, outside
from ..cost.model import AMOUNTS, Work
from ..cost.schedule import Schedule
from ..problem import Problem
from .once import (
    HOWS,
    NO_WORK,
    ONCE,
    Once,
    Way,
    all_of,
    fewest_ways,
    merged_of,
    most,
    once_of,
    one_product,
    way_of,
)

if TYPE_CHECKING:
    from .frames import Frame

NOTHING = (Work(),) * len(HOWS)

FIELDS = len(AMOUNTS)

READ, BEFORE, INPUTS = AMOUNTS.index("bytes_read"), FIELDS, FIELDS + 1
"""Where a :class:`Way` has what it reads: in its work, of earlier parts, and of inputs."""

AGAIN = 2 * FIELDS + 2
"""Of the amounts here, so many come before those of each further evaluation. What is done in earlier parts is apart, after what is done in
this one: values of two parts are two, and both are computed, where two of one part may be of the same."""


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
    kernel. ``twice``: whether it is a product that may also be computed in an earlier part."""

    works: tuple[Work | None, ...]
    sums: bool
    below: tuple[tuple[int, bool], ...]
    only: tuple[frozenset[int], ...]
    read: Once
    before: tuple[tuple[tuple[tuple[Once, ...], ...], ...], ...]
    twice: bool


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


class Barred(NamedTuple):
    """``names``: the sets of names, by number, of which nothing is read. ``light``: whether hardly anything is computed from others;
    ``lacking``: of which of a table's classes what is given to the part is then."""

    names: frozenset[int]
    light: bool = False
    lacking: int = 0


Before = Mapping[Key, tuple[tuple[Once, ...], ...]]
"""What is done for values that are given to a part, in each kind of kernel."""

Known = dict[tuple[Table, tuple[Barred, ...]], Found]
"""What was found of equal tables."""


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
                    option.item.head == "Contract" and problem.view.origin(key[0]) in twice,
                )
            )
        earlier = problem.view.origin(key[0]) in twice
        rows.append(_Row(key in frame.made, outside(problem.view.free[key[0]]), earlier, tuple(options)))
    return tuple(rows)


def _least_read(problem: Problem, key: Key, read: Callable[[str], Once]) -> Once:
    """What a kernel reads at least for a value that can only be read."""
    options = problem.options[key]
    if not options or any(option.item.head != "Read" for option in options):
        return NO_WORK
    ways = [read(str(option.item.payload[0])) for option in options]
    return merged_of(min, ways, None)


def ways_of(table: Table, sources: Sequence[Barred]) -> Found:
    """What a kernel does that computes a value that is made, and has what that is made of from each of ``sources``."""
    once: dict[tuple[int, How, bool], Sequence[Once]] = {}
    able: list[set[int]] = [set() for _ in sources]
    heeds = _heeds(table)
    done: list[tuple[list[_Plain], How]] = []
    for number, how in enumerate(HOWS):
        rows = [_Plain(row.made, *_options(row, number)) for row in table]
        like = next((other for known_rows, other in done if known_rows == rows), None)
        done.append((rows, how))
        if like is not None:  # many do the same in two kinds of kernels
            once |= {(source, how, outer): once[source, like, outer] for source, _, outer in [*once]}
            continue
        places = _places(rows)
        narrow = [_narrowed(row, places) for row in rows]
        again = sum(place >= AGAIN for place in places)
        known: dict[_Asked, _Had] = {}
        steps = (option for row in table for option in row.options if isinstance(option, _Step))
        twice = (step.works[number] for step in steps if step.twice)
        apart = not any(work and work.schedule for work in twice)
        for source, barred in enumerate(sources):
            found = _done(narrow, heeds, barred, again, apart, known)
            able[source] |= found.keys()
            for outer in (True, False):
                there = (ways for place, ways in found.items() if table[place].outer == outer)
                wide = [_together(_widened(way, places)) for way in itertools.chain.from_iterable(there)]
                once[source, how, outer] = tuple(map(once_of, fewest_ways(wide)))
    return once, [frozenset(each) for each in able]


def _apart(once: Once, earlier: bool = False) -> Way:
    """As :func:`~tinyc.extract.exact.once.way_of` has it, with what is done in earlier parts apart."""
    way, nothing = way_of(once), (0.0,) * FIELDS
    work, read, again = way.amounts[:FIELDS], way.amounts[FIELDS:ONCE], way.amounts[ONCE:]
    parts = (nothing, read, work, nothing, again) if earlier else (work, read, nothing, again, nothing)
    return way._replace(amounts=tuple(itertools.chain(*parts)))


def _together(way: Way) -> Way:
    """With all that it does in its work, and all that it reads: no buffer is of two parts."""
    work, read, more = way.amounts[:FIELDS], way.amounts[FIELDS:ONCE], way.amounts[ONCE:AGAIN]
    again, others = way.amounts[AGAIN:-FIELDS], way.amounts[-FIELDS:]
    amounts = list(map(add, work, more))
    amounts[READ] += sum(read)
    return Way(way.schedule, True, (*amounts, 0.0, 0.0, *map(add, again, others)))


def known_ways(known: Known, table: Table, sources: Sequence[Barred]) -> Found:
    """The same, as it is ``known`` of equal tables: these are large."""
    what = table, tuple(sources)
    found = known.get(what)
    if found is None:
        found = known[what] = ways_of(*what)
    return found


class _Reading(NamedTuple):
    """A :class:`_Read` in one kind of kernel."""

    way: Way
    names: int


class _Computing(NamedTuple):
    """A :class:`_Step` in one kind of kernel. ``work``: added to the amounts of what is below."""

    schedule: Schedule | None
    work: tuple[float, ...]
    sums: bool
    below: tuple[tuple[int, bool], ...]
    only: tuple[frozenset[int], ...]
    read: Way
    before: list[list[list[Way]]]


class _Plain(NamedTuple):
    """A row of a table in one kind of kernel. Amounts are as :func:`_apart` has them."""

    made: bool
    reads: list[_Reading]
    steps: list[_Computing]


def _places(rows: Sequence[_Plain]) -> list[int]:
    """Of the amounts, those that any of these has: most are of work that nothing does here."""
    found: list[tuple[float, ...]] = []
    for row in rows:
        found += [each.way.amounts for each in row.reads]
        for step in row.steps:
            found += [step.work, step.read.amounts]
            found += [way.amounts for each in step.before for ways in each for way in ways]
    return [place for place, amounts in enumerate(zip(*found, strict=True)) if any(amounts)]


def _narrowed(row: _Plain, places: Sequence[int]) -> _Plain:
    """With these of the amounts alone."""

    def narrow(way: Way) -> Way:
        return way._replace(amounts=tuple([way.amounts[place] for place in places]))

    reads = [each._replace(way=narrow(each.way)) for each in row.reads]
    steps = [
        step._replace(
            work=tuple([step.work[place] for place in places]),
            read=narrow(step.read),
            before=[[[narrow(way) for way in ways] for ways in each] for each in step.before],
        )
        for step in row.steps
    ]
    return _Plain(row.made, reads, steps)


def _widened(way: Way, places: Sequence[int]) -> Way:
    """With all amounts."""
    amounts = [0.0] * (AGAIN + 2 * FIELDS)
    for place, amount in zip(places, way.amounts, strict=True):
        amounts[place] = amount
    return way._replace(amounts=tuple(amounts))


def _options(row: _Row, how: int) -> tuple[list[_Reading], list[_Computing]]:
    reads: list[_Reading] = []
    steps: list[_Computing] = []
    for option in row.options:
        work = option.works[how]
        if work is None:
            continue
        if isinstance(option, _Read):
            way = option.way._replace(work=work + option.way.work, again=work)
            reads.append(_Reading(_apart(way, row.earlier), option.names))
        else:
            before = [[[_apart(way, True) for way in ways[how]] for ways in each] for each in option.before]
            own, read = _apart(Once(work=work, again=work), row.earlier).amounts, _apart(option.read)
            steps.append(_Computing(work.schedule, own, option.sums, option.below, option.only, read, before))
    return reads, steps


class _Had(NamedTuple):
    """The ways to have a value, and of those the ones that compute it."""

    ways: Sequence[Way]
    computed: Sequence[Way]


_Asked = tuple[int, Barred]
"""A row, and what of a :class:`Barred` makes a difference to it."""


class _Heeds(NamedTuple):
    """What makes a difference to a row. ``names``: sets of names, where they are barred. ``light``: whether it does if what is read is so.
    ``like``: of each class of what is given, the first that does the same."""

    names: frozenset[int]
    light: bool
    like: tuple[int, ...]


def _heeds(table: Table) -> list[_Heeds]:
    """Of each row."""
    steps = [[option for option in row.options if isinstance(option, _Step)] for row in table]
    classes = range(max((len(step.before) for each in steps for step in each), default=1))
    found: list[_Heeds] = []
    for row, own in zip(table, steps, strict=True):
        below = [found[number] for step in own for number, _ in step.below]
        names = frozenset(option.names for option in row.options if isinstance(option, _Read))
        only = (each for step in own for each in step.only)
        given = [step.before for step in own if any(step.before)]
        light = bool(given) or any(each.light for each in below)
        # in the first class, what is given may not count at all
        done = [
            (
                not given or number > 0,
                [before[number] for before in given],
                [each.like[number] for each in below],
            )
            for number in classes
        ]
        names = names.union(*only, *(each.names for each in below))
        found.append(_Heeds(names, light, tuple(map(done.index, done))))
    return found


def _done(
    rows: Sequence[_Plain],
    heeds: Sequence[_Heeds],
    barred: Barred,
    again: int,
    apart: bool,
    known: dict[_Asked, _Had],
) -> Mapping[int, Sequence[Way]]:
    """What a kernel of a kind does at least beside the last step that computes a value that is made, and reads nothing of the sets
    of names that are ``barred``. A value that it cannot compute so is left out. ``heeds``: see :func:`_heeds`. ``again``: so many of
    the amounts, the last, are of each further evaluation. ``apart``: whether no product is of an earlier part. ``known``: what was found of
    these rows before."""
    values: dict[int, Sequence[Way]] = {}
    found: dict[int, Sequence[Way]] = {}
    for place, (row, (names, light, like)) in enumerate(zip(rows, heeds, strict=True)):
        light = light and barred.light
        asked = place, Barred(names & barred.names, light, like[barred.lacking])
        had = known.get(asked)
        if had is None:
            had = known[asked] = _had(row, barred, again, apart, values)
        if had.ways:
            values[place] = had.ways
        if had.computed:
            found[place] = had.computed
    return found


def _had(row: _Plain, barred: Barred, again: int, apart: bool, values: Mapping[int, Sequence[Way]]) -> _Had:
    """See :func:`_done`. ``values``: of the rows before."""
    ways = [each.way for each in row.reads if not row.made and each.names not in barred.names]
    computed: list[Way] = []
    for step in row.steps:
        if any(each <= barred.names for each in step.only):
            continue
        if not all(each in values for each, _ in step.below):
            continue
        below = (
            values[number] if often else [_of(way, again) for way in values[number]]
            for number, often in step.below
        )
        read = (step.read,) if any(step.read.amounts) else ()
        for each in itertools.product(*below):
            if not one_product(each, step.schedule):
                continue
            done = most((*read, *each)) if read or each else step.read
            # what computes a sum again takes long enough, and is charged where it is made with all that it needs
            counts = done.plain if barred.light else barred.lacking > 0
            for more in itertools.product(*step.before[barred.lacking]) if counts else ((),):
                own = step.schedule or (done.schedule if apart else None)
                if more and not one_product(more if own else (done, *more), own):
                    continue
                beside = most((done, *more)) if more else done
                computed.append(beside)
                ways.append(
                    Way(
                        step.schedule or beside.schedule,
                        beside.plain and not step.sums,
                        tuple(map(add, step.work, beside.amounts)),
                    )
                )
    return _Had(fewest_ways(ways), fewest_ways(computed) if row.made else ())


def _of(way: Way, again: int) -> Way:
    """What is done for an operand that is not evaluated again where what is computed from it is. ``again``: see :func:`_done`."""
    return way._replace(amounts=way.amounts[: len(way.amounts) - again] + (0.0,) * again)
