"""The rows of tables (``tables.py``), in one kind of kernel. Tables of layers that follow each other have most rows in common: what a
kernel does for one is worked out once, whatever tables it is in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from operator import add, itemgetter
from typing import NamedTuple

from ..cost.model import AMOUNTS
from ..cost.schedule import Schedule
from .once import ONCE, Once, Product, Way, fewest_ways, most, one_product, united, way_of

FIELDS = len(AMOUNTS)

READ = AMOUNTS.index("bytes_read")

AGAIN = 2 * FIELDS + 2
"""Of the amounts here, so many come before those of each further evaluation. What is done in earlier parts is apart, after what is done in
this one: values of two parts are two, and both are computed, where two of one part may be of the same."""

Amounts = tuple[float, ...]


class Barred(NamedTuple):
    """``names``: the sets of names, by number, of which nothing is read. ``light``: whether hardly anything is computed from others;
    ``lacking``: of which of a table's classes what is given to the part is then."""

    names: frozenset[int]
    light: bool = False
    lacking: int = 0


class Reading(NamedTuple):
    """A way to read a value. ``names``: see ``_Read`` of ``tables.py``."""

    way: Way
    names: int


class Computing(NamedTuple):
    """A way to compute a value. ``work``: added to the amounts of what is below; the others: see ``_Step`` of ``tables.py``. ``before``:
    for each class of what is given to the part, and of it each operand, one of these is done. ``kept``: of which product it keeps rows."""

    schedule: Schedule | None
    work: Amounts
    sums: bool
    below: tuple[tuple[int, bool], ...]
    only: tuple[frozenset[int], ...]
    read: Way
    before: tuple[tuple[tuple[Way, ...], ...], ...]
    kept: Product | None = None


class Row(NamedTuple):
    """A value, and how it may be had. Amounts are as :func:`apart` has them."""

    made: bool
    reads: tuple[Reading, ...]
    steps: tuple[Computing, ...]


class Heeds(NamedTuple):
    """What makes a difference to a row. ``names``: sets of names, where they are barred. ``light``: whether it does if what is read is so."""

    names: frozenset[int]
    light: bool


class _Had(NamedTuple):
    """The ways to have a value, and of those the ones that compute it."""

    ways: Sequence[Way]
    computed: Sequence[Way]


def apart(once: Once, earlier: bool = False) -> Way:
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
    return Way(way.schedule, True, (*amounts, 0.0, 0.0, *map(add, again, others)), way.kept)


class Rows:
    """Those that were looked at."""

    def __init__(self) -> None:
        # of what it is, with the numbers of what is below: a number, where rows that differ in a class are several
        self._number: dict[tuple[object, ...], int] = {}
        self._places: tuple[int, ...] = ()
        self._narrow: dict[int, Row] = {}
        self._had: dict[tuple[int, frozenset[int], bool, bool], _Had] = {}

    def ways(
        self, rows: Sequence[Row], heeds: Sequence[Heeds], asked: Sequence[Barred], separate: bool
    ) -> list[Mapping[int, Sequence[Way]]]:
        """For each of what is ``asked``, what a kernel does at least beside the last step that computes a value that is made, and reads
        nothing of the sets of names that are barred. A value that it cannot compute so is left out. ``rows``: of one table, operands
        first; ``heeds``: what makes a difference to each. ``separate``: whether no product is of an earlier part."""
        numbers = self._numbers(rows, 1 + max((each.lacking for each in asked), default=0))
        return [self._done(rows, numbers[each.lacking], heeds, each, separate) for each in asked]

    def widen(self, rows: Sequence[Row]) -> None:
        """Has all amounts that any of these has, before it is asked of them: most are of work that nothing does here."""
        fresh = set(_places(rows)).difference(self._places)
        if fresh:
            self._places = tuple(sorted(fresh.union(self._places)))
            self._narrow.clear()
            self._had.clear()

    def _numbers(self, rows: Sequence[Row], classes: int) -> list[list[int]]:
        """The number of each row in each class of what is given to the part: equal rows have equal numbers."""
        found: list[list[int]] = []
        given = [any(any(step.before) for step in row.steps) for row in rows]
        for lacking in range(classes):
            numbers: list[int] = []
            found.append(numbers)
            for place, row in enumerate(rows):
                below = {number for step in row.steps for number, _ in step.below}
                if lacking and not given[place] and all(numbers[each] == found[0][each] for each in below):
                    numbers.append(found[0][place])
                    continue
                what = row.made, row.reads, *(_at(step, lacking, numbers) for step in row.steps)
                numbers.append(self._number.setdefault(what, len(self._number)))
        return found

    def _done(
        self,
        rows: Sequence[Row],
        numbers: Sequence[int],
        heeds: Sequence[Heeds],
        barred: Barred,
        separate: bool,
    ) -> Mapping[int, Sequence[Way]]:
        """See :meth:`ways`."""
        values: dict[int, Sequence[Way]] = {}  # by number: in another table, equal rows are elsewhere
        found: dict[int, Sequence[Way]] = {}
        again = sum(place >= AGAIN for place in self._places)
        for place, (row, number, (names, light)) in enumerate(zip(rows, numbers, heeds, strict=True)):
            asked = number, names & barred.names, light and barred.light, separate
            had = self._had.get(asked)
            if had is None:
                if number not in self._narrow:
                    self._narrow[number] = self._narrowed(row, barred.lacking, numbers)
                had = _had(self._narrow[number], number, barred, again, separate, values)
                had = self._had[asked] = had._replace(computed=list(map(self._wide, had.computed)))
            if had.ways:
                values[number] = had.ways
            if had.computed:
                found[place] = had.computed
        return found

    def _narrowed(self, row: Row, lacking: int, numbers: Sequence[int]) -> Row:
        """With those amounts alone that any row has, with what is before in one class, and of what is below its number in that."""
        choose: Callable[[Amounts], Amounts] = itemgetter(*self._places, 0, 0)  # a tuple, of two at least

        def narrow(way: Way) -> Way:
            return way._replace(amounts=choose(way.amounts)[:-2])

        reads = tuple([each._replace(way=narrow(each.way)) for each in row.reads])
        steps = tuple(
            [
                step._replace(
                    work=choose(step.work)[:-2],
                    below=tuple([(numbers[number], often) for number, often in step.below]),
                    read=narrow(step.read),
                    before=(tuple([tuple(map(narrow, ways)) for ways in step.before[lacking]]),),
                )
                for step in row.steps
            ]
        )
        return Row(row.made, reads, steps)

    def _wide(self, way: Way) -> Way:
        """With all of them, as :func:`~tinyc.extract.exact.once.way_of` has it."""
        wide = [0.0] * (AGAIN + 2 * FIELDS)
        for place, amount in zip(self._places, way.amounts, strict=True):
            wide[place] = amount
        return _together(way._replace(amounts=tuple(wide)))


def _at(step: Computing, lacking: int, numbers: Sequence[int]) -> tuple[object, ...]:
    """All that makes a difference of a step in a class. ``numbers``: of the rows before."""
    below = tuple([(numbers[number], often) for number, often in step.below])
    before = step.before[lacking]
    # in the first class, what is given may not count at all
    own = step.schedule, step.work, step.sums, step.kept
    return *own, below, step.only, step.read, before, bool(before and lacking)


def _places(rows: Sequence[Row]) -> list[int]:
    """Of the amounts, those that any of these has."""
    found: list[Amounts] = []
    for row in rows:
        found += [each.way.amounts for each in row.reads]
        for step in row.steps:
            found += [step.work, step.read.amounts]
            found += [way.amounts for each in step.before for ways in each for way in ways]
    return [place for place, amounts in enumerate(zip(*found, strict=True)) if any(amounts)]


def _had(
    row: Row,
    own_number: int,
    barred: Barred,
    again: int,
    separate: bool,
    values: Mapping[int, Sequence[Way]],
) -> _Had:
    """See :meth:`Rows.ways`. ``values``: of the rows before, by number. ``again``: so many of the amounts, the last, are of each further
    evaluation."""
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
            if not one_product(each, step.schedule, step.kept):
                continue
            done = most((*read, *each)) if read or each else step.read
            # what computes a sum again takes long enough, and is charged where it is made with all that it needs
            counts = done.plain if barred.light else barred.lacking > 0
            for more in itertools.product(*step.before[0]) if counts else ((),):
                own = step.schedule or (done.schedule if separate else None)
                if more and not one_product(more if own else (done, *more), own, step.kept):
                    continue
                kept = separate and (step.kept or done.kept)
                if kept and any(way.kept for way in more):
                    continue
                beside = most((done, *more)) if more else done
                computed.append(beside)
                ways.append(
                    Way(
                        step.schedule or beside.schedule,
                        beside.plain and not step.sums,
                        tuple(map(add, step.work, beside.amounts)),
                        step.kept or beside.kept,
                        united(beside.sums, ((own_number, step.work),)) if step.sums else beside.sums,
                    )
                )
    return _Had(fewest_ways(ways), fewest_ways(computed) if row.made else ())


def _of(way: Way, again: int) -> Way:
    """What is done for an operand that is not evaluated again where what is computed from it is. ``again``: see :func:`_had`."""
    none = (0.0,) * again
    return way._replace(
        amounts=way.amounts[: len(way.amounts) - again] + none,
        sums=tuple([(number, own[: len(own) - again] + none) for number, own in way.sums]),
    )
