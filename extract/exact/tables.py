"""What a kernel does at least that computes a value again, on a table of how each value may be had. Nothing here has a name: equal
layers have equal tables, and are worked out once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import add, le
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, get_args

from ..choice import REDUCING, How, Key, outside
from ..cost.model import AMOUNTS, Work, amounts_of, work_of
from ..cost.schedule import Schedule
from ..problem import Problem

if TYPE_CHECKING:
    from .frames import Frame

HOWS: tuple[How, ...] = get_args(How)

WAYS = 6
"""To compute a value that are told apart."""


class Once(NamedTuple):
    """A way to compute a value. ``work``: of a kernel, once, beside the last step. ``schedule``: by which its product runs, if it
    tiles one. ``before``, ``inputs``: bytes that it reads of buffers of earlier parts, and of inputs, as far as they are not in its
    work. ``again``: what of the work each further evaluation of the value does, for another reduction that binds its axes.
    ``plain``: no sum is computed."""

    work: Work = Work()
    schedule: Schedule | None = None
    before: float = 0.0
    inputs: float = 0.0
    again: Work = Work()
    plain: bool = True


NO_WORK, NOTHING = Once(), (Work(),) * len(HOWS)


class _Read(NamedTuple):
    """A way to read a value from a buffer. ``works``: of that, in each kind of kernel. ``names``: the first of a table's sets of names that has it; their number where none
    has."""

    way: Once
    works: tuple[Work, ...]
    names: int


class _Step(NamedTuple):
    """A way to compute a value. ``works``: in each kind of kernel. ``sums``: whether it is a reduction. ``below``: the operands that are rows of the table before it, each
    with whether it is evaluated again wherever the value is. ``only``: of each operand that can only be read, the sets of names of which one has it. ``read``: what a kernel reads at least for other operands. ``before``: what it does for those that are given to the
    part, in each kind of kernel."""

    works: tuple[Work, ...]
    sums: bool
    below: tuple[tuple[int, bool], ...]
    only: tuple[frozenset[int], ...]
    read: Once
    before: tuple[tuple[tuple[Once, ...], ...], ...]


class _Row(NamedTuple):
    """A value. ``made``: whether it is one of those that are looked at. ``outer``: whether it is at a kernel's output axes."""

    made: bool
    outer: bool
    options: tuple[_Read | _Step, ...]


Table = tuple[_Row, ...]
"""Values and how each may be had, operands first, without the names of any: equal layers have equal tables."""

Found = tuple[Mapping[tuple[int, How, bool], Sequence[Once]], Sequence[frozenset[int]]]
"""See ``once`` of :class:`Beneath`; and for each of its sources, the rows that can be had."""


class Barred(NamedTuple):
    """``names``: the sets of names, by number, of which nothing is read. ``light``: whether hardly anything is computed from others."""

    names: frozenset[int]
    light: bool = False


Known = dict[tuple[Table, tuple[Barred, ...]], Found]
"""What was found of equal tables."""


def table_of(
    problem: Problem,
    frame: Frame,
    buffers: Collection[str] | None = None,
    before: Mapping[Key, tuple[tuple[Once, ...], ...]] = MappingProxyType({}),
    unshared: Callable[[str], bool] = lambda name: False,
) -> Table:
    """``buffers``: of the part, if others are told apart. ``before``: what is done for values that are given to the part.
    ``unshared``: of which inputs it counts that they are read."""

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
                    _all([NO_WORK, *least]) if least else NO_WORK,
                    tuple([before[child] for child in others if child in before]),
                )
            )
        rows.append(_Row(key in frame.made, outside(problem.view.free[key[0]]), tuple(options)))
    return tuple(rows)


def _least_read(problem: Problem, key: Key, read: Callable[[str], Once]) -> Once:
    """What a kernel reads at least for a value that can only be read."""
    options = problem.options[key]
    if not options or any(option.item.head != "Read" for option in options):
        return NO_WORK
    ways = [read(str(option.item.payload[0])) for option in options]
    return _merged(min, ways, None)


def ways_of(table: Table, sources: Sequence[Barred]) -> Found:
    """What a kernel does that computes a value that is made, and has what that is made of from each of ``sources``."""
    once: dict[tuple[int, How, bool], Sequence[Once]] = {}
    able: list[set[int]] = [set() for _ in sources]
    heeds = _heeds(table)
    for number, how in enumerate(HOWS):
        rows = [_Plain(row.made, *_options(row, number)) for row in table]
        places = _places(rows)
        rows = [_narrowed(row, places) for row in rows]
        again = sum(place >= ONCE for place in places)
        known: dict[_Asked, _Had] = {}
        for source, barred in enumerate(sources):
            found = _done(rows, heeds, barred, again, known)
            able[source] |= found.keys()
            for outer in (True, False):
                there = (ways for place, ways in found.items() if table[place].outer == outer)
                wide = (_widened(way, places) for way in itertools.chain.from_iterable(there))
                once[source, how, outer] = fewest(map(_together, map(_once, wide)))
    return once, [frozenset(each) for each in able]


def _together(way: Once) -> Once:
    """With all that it reads in its work: no buffer is of two parts."""
    work = replace(way.work, bytes_read=way.work.bytes_read + way.before + way.inputs)
    return Once(work, way.schedule, again=way.again)


class _Way(NamedTuple):
    """A :class:`Once` as :func:`_amounts` has it."""

    schedule: Schedule | None
    plain: bool
    amounts: tuple[float, ...]


class _Reading(NamedTuple):
    """A :class:`_Read` in one kind of kernel."""

    way: _Way
    names: int


class _Computing(NamedTuple):
    """A :class:`_Step` in one kind of kernel. ``work``: added to the amounts of what is below."""

    schedule: Schedule | None
    work: tuple[float, ...]
    sums: bool
    below: tuple[tuple[int, bool], ...]
    only: tuple[frozenset[int], ...]
    read: _Way
    before: list[list[_Way]]


class _Plain(NamedTuple):
    """A row of a table in one kind of kernel."""

    made: bool
    reads: list[_Reading]
    steps: list[_Computing]


ONCE = len(AMOUNTS) + 2
"""Of what :func:`_amounts` has, so many come before those of each further evaluation."""


def _places(rows: Sequence[_Plain]) -> list[int]:
    """Of the amounts, those that any of these has: most are of work that nothing does here."""
    found: list[tuple[float, ...]] = []
    for row in rows:
        found += [each.way.amounts for each in row.reads]
        for step in row.steps:
            found += [step.work, step.read.amounts]
            found += [way.amounts for ways in step.before for way in ways]
    return [place for place, amounts in enumerate(zip(*found, strict=True)) if any(amounts)]


def _narrowed(row: _Plain, places: Sequence[int]) -> _Plain:
    """With these of the amounts alone."""

    def narrow(way: _Way) -> _Way:
        return way._replace(amounts=tuple([way.amounts[place] for place in places]))

    reads = [each._replace(way=narrow(each.way)) for each in row.reads]
    steps = [
        step._replace(
            work=tuple([step.work[place] for place in places]),
            read=narrow(step.read),
            before=[[narrow(way) for way in ways] for ways in step.before],
        )
        for step in row.steps
    ]
    return _Plain(row.made, reads, steps)


def _widened(way: _Way, places: Sequence[int]) -> _Way:
    """With all amounts."""
    amounts = [0.0] * (ONCE + len(AMOUNTS))
    for place, amount in zip(places, way.amounts, strict=True):
        amounts[place] = amount
    return way._replace(amounts=tuple(amounts))


def _options(row: _Row, how: int) -> tuple[list[_Reading], list[_Computing]]:
    reads: list[_Reading] = []
    steps: list[_Computing] = []
    for option in row.options:
        work = option.works[how]
        if isinstance(option, _Read):
            way = option.way._replace(work=work + option.way.work, again=work)
            reads.append(_Reading(_way(way), option.names))
        else:
            before = [[_way(way) for way in ways[how]] for ways in option.before]
            both = _amounts(Once(work=work, again=work))
            steps.append(
                _Computing(
                    work.schedule, both, option.sums, option.below, option.only, _way(option.read), before
                )
            )
    return reads, steps


def _way(once: Once) -> _Way:
    return _Way(once.schedule, once.plain, _amounts(once))


def _once(way: _Way) -> Once:
    amounts, fields = way.amounts, len(AMOUNTS)
    work, again = _work(amounts[:fields]), _work(amounts[-fields:])
    before, inputs = amounts[fields : fields + 2]
    return Once(work, way.schedule, before, inputs, again, way.plain)


class _Had(NamedTuple):
    """The ways to have a value, and of those the ones that compute it."""

    ways: Sequence[_Way]
    computed: Sequence[_Way]


_Asked = tuple[int, frozenset[int], bool]
"""A row, and what of a :class:`Barred` makes a difference to it."""


def _heeds(table: Table) -> list[tuple[frozenset[int], bool]]:
    """Of each row, the sets of names for which it makes a difference whether they are barred; and whether it does if what is read is
    light."""
    found: list[tuple[frozenset[int], bool]] = []
    for row in table:
        steps = [option for option in row.options if isinstance(option, _Step)]
        below = [found[number] for step in steps for number, _ in step.below]
        own = (option.names for option in row.options if isinstance(option, _Read))
        only = (each for step in steps for each in step.only)
        names = frozenset(own).union(*only, *(names for names, _ in below))
        found.append((names, any(step.before for step in steps) or any(light for _, light in below)))
    return found


def _done(
    rows: Sequence[_Plain],
    heeds: Sequence[tuple[frozenset[int], bool]],
    barred: Barred,
    again: int,
    known: dict[_Asked, _Had],
) -> Mapping[int, Sequence[_Way]]:
    """What a kernel of a kind does at least beside the last step that computes a value that is made, and reads nothing of the sets
    of names that are ``barred``. A value that it cannot compute so is left out. ``heeds``: see :func:`_heeds`. ``again``: so many of
    the amounts, the last, are of each further evaluation. ``known``: what was found of these rows before."""
    values: dict[int, Sequence[_Way]] = {}
    found: dict[int, Sequence[_Way]] = {}
    for place, (row, (names, light)) in enumerate(zip(rows, heeds, strict=True)):
        asked = place, names & barred.names, light and barred.light
        had = known.get(asked)
        if had is None:
            had = known[asked] = _had(row, barred, again, values)
        if had.ways:
            values[place] = had.ways
        if had.computed:
            found[place] = had.computed
    return found


def _had(row: _Plain, barred: Barred, again: int, values: Mapping[int, Sequence[_Way]]) -> _Had:
    """See :func:`_done`. ``values``: of the rows before."""
    ways = [each.way for each in row.reads if not row.made and each.names not in barred.names]
    computed: list[_Way] = []
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
            done = _most((*read, *each)) if read or each else step.read
            # what computes a sum again takes long enough, and is charged where it is made with all that it needs
            before = step.before if done.plain and barred.light else ()
            for more in itertools.product(*before):
                beside = _most((done, *more)) if more else done
                computed.append(beside)
                ways.append(
                    _Way(
                        step.schedule or beside.schedule,
                        beside.plain and not step.sums,
                        tuple(map(add, step.work, beside.amounts)),
                    )
                )
    return _Had(_fewest(ways), _fewest(computed) if row.made else ())


def _of(way: _Way, again: int) -> _Way:
    """What is done for an operand that is not evaluated again where what is computed from it is. ``again``: see :func:`_done`."""
    return way._replace(amounts=way.amounts[: len(way.amounts) - again] + (0.0,) * again)


def _most(ways: Sequence[_Way]) -> _Way:
    """What a kernel does at least that does all of these, and may share what they do."""
    (schedule, plain, amounts), *others = ways
    if not others:
        return ways[0]
    for way in others:
        schedule, plain = schedule or way.schedule, plain and way.plain
        amounts = tuple([b if a < b else a for a, b in zip(amounts, way.amounts, strict=True)])
    return _Way(schedule, plain, amounts)


def _fewest(ways: Sequence[_Way]) -> list[_Way]:
    """A few ways of which each of these does no less than one."""
    kept: list[_Way] = []
    for way in sorted(ways, key=lambda way: way.amounts) if len(ways) > 1 else ways:
        schedule, plain, amounts = way
        for other in kept:
            if other[1] == plain and other[0] == schedule and all(map(le, other[2], amounts)):
                break
        else:
            kept.append(way)
    while len(kept) > WAYS:
        *kept, one, two = kept
        schedule = one.schedule if one.schedule == two.schedule else None
        kept.append(_Way(schedule, one.plain and two.plain, tuple(map(min, one.amounts, two.amounts))))
    return kept


def fewest(ways: Iterable[Once]) -> tuple[Once, ...]:
    """A few ways of which each of these does no less than one."""
    return tuple(map(_once, _fewest(list(map(_way, ways)))))


def _all(each: Sequence[Once]) -> Once:
    """What a kernel does at least that does all of these, and may share what they do."""
    return _merged(max, each, next((one.schedule for one in each if one.schedule is not None), None))


def _merged(
    choose: Callable[[Iterable[float]], float], ways: Sequence[Once], schedule: Schedule | None
) -> Once:
    """Of each amount the least or most of any of these."""
    work = of_fields(choose, [way.work for way in ways])
    again = of_fields(choose, [way.again for way in ways])
    plain = all(way.plain for way in ways)
    before, inputs = choose(way.before for way in ways), choose(way.inputs for way in ways)
    return Once(work, schedule, before, inputs, again, plain)


def _amounts(way: Once) -> tuple[float, ...]:
    return *_apart(way.work), way.before, way.inputs, *_apart(way.again)


OPS, EPILOGUE = map(AMOUNTS.index, ("ops", "epilogue_ops"))


def _apart(work: Work) -> list[float]:
    """Its amounts, with operations without those of the epilogue: of two kernels with as many, the one with fewer in its epilogue
    costs more."""
    amounts = list(amounts_of(work))
    amounts[OPS] -= amounts[EPILOGUE]
    return amounts


def of_fields(choose: Callable[[Iterable[float]], float], works: Sequence[Work]) -> Work:
    """Of each field the least or most of any of these."""
    if not works:
        return Work()
    return _work([choose(each) for each in zip(*map(_apart, works), strict=True)])


def _work(apart: Sequence[float]) -> Work:
    """A Work of amounts as :func:`_apart` has them."""
    amounts = list(apart)
    amounts[OPS] += amounts[EPILOGUE]
    return work_of(amounts)
