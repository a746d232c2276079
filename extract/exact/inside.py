"""What a kernel does at least that computes a value of an earlier part itself, instead of reading it.

A buffer at a cut may be filled or not. Where it is not, every kernel that needs its value computes it, from what else is
filled. A sum may be had from the product that was added, and a product from its partial sums (split-K), which takes hardly
anything beside reading them: whether those are filled makes levels of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, get_args

from ..choice import REDUCING, How, Key, outside
from ..cost.model import Work, amounts_of, work_of
from ..cost.schedule import Schedule
from ..problem import Problem
from ..view import Item

HOWS: tuple[How, ...] = get_args(How)

INSIDE = Item("Read", "inside", ("inside", ()), ())
"""Stands for whatever computes a value of what is given within a kernel, instead of reading it."""

Levels = tuple[int, ...]
"""Of the buffers of a cut: 0 where one is filled, or what is as good as it; else which of :attr:`Beneath.kinds`, from 1."""


class Kind(NamedTuple):
    """How later parts do without a buffer. ``partial``: the first of :attr:`Beneath.partial` of which some kernel reads what it is
    made of; their number where none does. ``outer``: some kernel computes its values at its own output axes, and not within
    reductions only. ``deep``: some of what those kernels compute is charged in an earlier part."""

    partial: int
    outer: bool
    deep: bool


WAYS = 6
"""To compute a value that are told apart."""


class Once(NamedTuple):
    """A way to compute a value. ``work``: of a kernel, once, beside the last step. ``schedule``: by which its product runs, if it
    tiles one. ``before``, ``inputs``: bytes that it reads of buffers of earlier parts, and of inputs, as far as they are not in its
    work."""

    work: Work = Work()
    schedule: Schedule | None = None
    before: float = 0.0
    inputs: float = 0.0


@dataclass(frozen=True)
class Beneath:
    """What is beneath a value that is made by a part, down to where it is read.

    Attributes:
        name: its buffer.
        partial: buffers that are as good (``mates.py``), those of partial sums, and those of what the sums are computed from, if
            it is looked at; without what is empty.
        kinds: how later parts may do without it.
        once: where ``partial`` is read from some place on, for each kind of kernel, and place, at the kernel's output axes or
            within reductions: what a kernel does, one of these at least.
        able: the values that can be computed without reading ``name``.
        walks: how a kernel runs that holds a Stream beneath, at its output axes.
        counted: the values of which ``once`` knows, by what they are.
        light: so many of ``partial``, the first, are such that hardly anything is computed from them.
        further: what a kernel of a part after the next does that computes a value for another that is not filled, one of these at
            least: what it reads of inputs, and of what is beneath earlier parts, is left out.
    """

    name: str
    partial: tuple[tuple[str, ...], ...] = ()
    kinds: tuple[Kind, ...] = ()
    once: Mapping[tuple[int, How, bool], Sequence[Once]] = field(default_factory=dict)
    able: frozenset[Key] = frozenset()
    walks: frozenset[Schedule] = frozenset()
    counted: frozenset[str] = frozenset()
    light: int = 0
    further: Mapping[tuple[How, bool], Sequence[Once]] = field(default_factory=dict)

    @property
    def levels(self) -> int:
        return 1 + len(self.kinds)


def beneath(
    problem: Problem,
    values: Mapping[str, Sequence[Key]],
    name: str,
    mates: Sequence[str],
    buffers: Sequence[str],
    same: Mapping[str, Collection[str]],
    given: Sequence[str],
    further: bool,
    known: dict[tuple[Table, int], Found],
    groups: Mapping[str, Beneath],
    unshared: Callable[[str], bool],
) -> Beneath:
    """What is beneath the values of ``name``. ``values``: of each origin. ``mates``: buffers that are as good. ``buffers``: that may
    be filled in the same part, which is given ``given``. ``same``: see :func:`holding_the_same`. ``further``: down to what the
    sums beneath are computed from. ``known``: what was found of equal layers.
    ``groups``: the same of what earlier parts make. ``unshared``: whether no later part reads an input: a kernel of one
    may read it anyway."""
    view = problem.view
    own = set(same[name])
    sums = (
        str(read.item.payload[0])
        for key in _keys(problem, values, (*mates, name))
        for option in problem.options[key]
        if option.item.head == "Reduce"
        for child in option.children
        for read in problem.options[child]
        if read.item.head == "Read"
    )
    as_good = {other for mate in mates for other in same[mate]}
    apart = (sorted(as_good), [each for each in dict.fromkeys(sums) if each not in as_good])
    here = (tuple(each for each in names if each in buffers and each not in own) for names in apart)
    partial = tuple(names for names in here if names)
    keys = _keys(problem, values, (name, *itertools.chain(*partial)))
    made, light = frozenset(_keys(problem, values, (name,))), len(partial)
    if further:
        more, sources = _sources(problem, made, frozenset(origins(problem, given)), frozenset(buffers))
        fresh = tuple(sorted(sources - own.union(*partial)))
        partial += (fresh,) if fresh else ()
        keys = sorted({*keys, *more}, key=problem.bit.__getitem__)
    before = _before(problem, values, given, groups)
    tables = (
        _table(problem, keys, made, (own, *partial), frozenset(buffers), before, unshared),
        _table(problem, keys, made, (own, *partial)),
    )
    for table in tables:
        if (table, len(partial)) not in known:
            known[table, len(partial)] = _ways(table, len(partial))
    (once, places_able), (alone, _) = (known[table, len(partial)] for table in tables)
    able = frozenset(keys[place] for place in places_able)
    unread = {
        (how, outer): [_unread(each) for each in alone[0, how, outer]]
        for how, outer in itertools.product(HOWS, (True, False))
    }
    places = {outside(view.free[key[0]]) for key in able} or {True}
    kinds = tuple(
        Kind(read, outer, deep)
        for read, outer, deep in itertools.product(
            range(len(partial) + 1), sorted(places, reverse=True), (True, False)
        )
    )
    walks = frozenset(walk for walk, above in problem.walked.items() if not above.isdisjoint(able))
    counted = frozenset(view.origin(key[0]) for key in keys)
    return Beneath(name, partial, kinds, once, able, walks, counted, light, unread)


def _unread(way: Once) -> Once:
    """With all that it reads before."""
    return way._replace(work=replace(way.work, bytes_read=0.0), before=way.work.bytes_read)


def _before(
    problem: Problem, values: Mapping[str, Sequence[Key]], given: Sequence[str], groups: Mapping[str, Beneath]
) -> Mapping[Key, tuple[tuple[Once, ...], ...]]:
    """What a kernel does at least, in each kind of kernel, that has a value of what is given for another: it reads it, or computes
    it. Only of those of which something is known."""
    found: dict[Key, tuple[tuple[Once, ...], ...]] = {}
    for name in given:
        group = groups.get(name)
        if group is None:
            continue
        for key in _keys(problem, values, (name,)):
            reads = [
                problem.view.buffers[str(option.item.payload[0])]
                for option in problem.options[key]
                if option.item.head == "Read"
            ]
            sizes = [problem.bytes(buffer) if buffer.arg is None else 0 for buffer in reads]
            ways: list[tuple[Once, ...]] = []
            for how in HOWS:
                there = [Once(before=float(size)) for size in sizes]
                # of what is kept of a row, some is computed as it is where none is
                kinds: tuple[How, ...] = (how, "tiled") if how == "rows" else (how,)
                for kind in kinds if key in group.able else ():
                    there += group.further[kind, outside(problem.view.free[key[0]])]
                ways.append(fewest(there))
            if all(ways):
                found[key] = tuple(ways)
    return found


def _sources(
    problem: Problem, made: Iterable[Key], given: Collection[str], buffers: Collection[str]
) -> tuple[list[Key], set[str]]:
    """What the values ``made`` are computed from, down to the operands of the first sums on the way, and those of ``buffers`` that it
    may be read from. Nothing of ``given``, by what it is, nor what that is computed from."""
    sums = dict.fromkeys(made, 0)  # of each value, on the way to it
    layers: tuple[list[Key], list[Key]] = [*sums], []
    names: set[str] = set()
    for count, layer in enumerate(layers):
        while layer:
            key = layer.pop()
            if sums[key] < count or problem.view.origin(key[0]) in given:
                continue
            for option in problem.options[key]:
                if option.item.head == "Read":
                    names.add(str(option.item.payload[0]))
                below = count + (option.item.head in REDUCING)
                for child in option.children:
                    if below < sums.get(child, len(layers)):
                        sums[child] = below
                        layers[below].append(child)
    return [key for key in sums if problem.view.origin(key[0]) not in given], names & set(buffers)


class _Read(NamedTuple):
    """A way to read a value from a buffer. ``names``: the first of a table's sets of names that has it; their number where none
    has."""

    way: Once
    names: int


class _Step(NamedTuple):
    """A way to compute a value. ``works``: in each kind of kernel. ``below``: the operands that are rows of the table before it.
    ``only``: a sequence of sets of names; where those up to this one are barred, an operand can not be had, which can only be
    read. ``read``: what a kernel reads at least for other operands. ``before``: what it does for those that are given to the
    part, in each kind of kernel."""

    works: tuple[Work, ...]
    below: tuple[int, ...]
    only: int
    read: Once
    before: tuple[tuple[tuple[Once, ...], ...], ...]


class _Row(NamedTuple):
    """A value. ``made``: whether it is one of those that are looked at. ``outer``: whether it is at a kernel's output axes."""

    made: bool
    outer: bool
    options: tuple[_Read | _Step, ...]


Table = tuple[_Row, ...]
"""Values and how each may be had, operands first, without the names of any: equal layers have equal tables."""

Found = tuple[Mapping[tuple[int, How, bool], Sequence[Once]], frozenset[int]]
"""See ``once`` and, by row, ``able`` of :class:`Beneath`."""


def _table(
    problem: Problem,
    keys: Sequence[Key],
    made: frozenset[Key],
    names: Sequence[Collection[str]],
    buffers: Collection[str] | None = None,
    before: Mapping[Key, tuple[tuple[Once, ...], ...]] = MappingProxyType({}),
    unshared: Callable[[str], bool] = lambda name: False,
) -> Table:
    """``keys``: operands first. ``names``: sets of buffers that are barred one after the other. ``buffers``: of the part, if
    others are told apart. ``before``: what is done for values that are given to the part. ``unshared``: of which inputs it
    counts that they are read."""

    def read(name: str) -> Once:
        buffer = problem.view.buffers[name]
        size = float(problem.bytes(buffer))
        if buffer.arg is not None:
            return Once(inputs=size) if unshared(name) else Once()
        own = buffers is None or name in buffers
        return Once(Work(bytes_read=size)) if own else Once(before=size)

    place = {key: number for number, key in enumerate(keys)}
    first: dict[str, int] = {}
    for number, each in enumerate(names):
        for name in each:
            first.setdefault(name, number)
    rows: list[_Row] = []
    for number, key in enumerate(keys):
        options: list[_Read | _Step] = []
        for option in problem.options[key]:
            if option.item.head == "Read":
                name = str(option.item.payload[0])
                options.append(_Read(read(name), first.get(name, len(names))))
                continue
            works = tuple(problem.work(key, option.item, how) for how in HOWS)
            # of a circle, what comes later is taken for computed
            below = (place[child] for child in option.children if child in place)
            others = [child for child in option.children if child not in place]
            only = min(
                (_only(problem, child, first, len(names)) for child in option.children), default=len(names)
            )
            least = _all([Once(), *(_least_read(problem, child, read) for child in others)])
            options.append(
                _Step(
                    works,
                    tuple(each for each in below if each < number),
                    only,
                    least,
                    tuple(before[child] for child in others if child in before),
                )
            )
        rows.append(_Row(key in made, outside(problem.view.free[key[0]]), tuple(options)))
    return tuple(rows)


def _only(problem: Problem, key: Key, first: Mapping[str, int], last: int) -> int:
    """The last of the sets of names from which a value may be read, if it can only be read; else ``last``."""
    options = problem.options[key]
    if any(option.item.head != "Read" for option in options):
        return last
    return max((first.get(str(option.item.payload[0]), last) for option in options), default=-1)


def _least_read(problem: Problem, key: Key, read: Callable[[str], Once]) -> Once:
    """What a kernel reads at least for a value that can only be read."""
    options = problem.options[key]
    if not options or any(option.item.head != "Read" for option in options):
        return Once()
    ways = [read(str(option.item.payload[0])) for option in options]
    return _merged(min, ways, None)


def _ways(table: Table, partial: int) -> Found:
    """``partial``: how many sets of names there are after the first, which is always barred."""
    once: dict[tuple[int, How, bool], Sequence[Once]] = {}
    able: set[int] = set()
    for read in range(partial + 1):
        for number, how in enumerate(HOWS):
            found = _done(table, read, number)
            able |= found.keys()
            for outer in (True, False):
                there = (ways for place, ways in found.items() if table[place].outer == outer)
                once[read, how, outer] = fewest(map(_together, itertools.chain.from_iterable(there)))
    return once, frozenset(able)


def _together(way: Once) -> Once:
    """With all that it reads in its work: no buffer is of two parts."""
    return Once(replace(way.work, bytes_read=way.work.bytes_read + way.before + way.inputs), way.schedule)


def _done(table: Table, barred: int, how: int) -> Mapping[int, Sequence[Once]]:
    """What a kernel of a kind does at least beside the last step that computes a value that is made, and reads nothing of the sets
    of names up to ``barred``. A value that it cannot compute so is left out."""
    values: dict[int, Sequence[Once]] = {}
    found: dict[int, Sequence[Once]] = {}
    for place, row in enumerate(table):
        ways: list[Once] = []
        made_here: list[Once] = []
        for option in row.options:
            if isinstance(option, _Read):
                if not row.made and option.names > barred:
                    ways.append(option.way)
            elif option.only > barred and all(each in values for each in option.below):
                beside: list[Once] = []
                for each in itertools.product(*(values[number] for number in option.below)):
                    done = _all([option.read, *each])
                    # what computes a sum again takes long enough: of no more than is needed, two are told apart
                    before = [ways[how] for ways in option.before] if done.work == _read(done.work) else []
                    beside += (_all([done, *more]) for more in itertools.product(*before))
                work = option.works[how]
                made_here += beside
                ways += (
                    each._replace(work=work + each.work, schedule=work.schedule or each.schedule)
                    for each in beside
                )
        if ways:
            values[place] = fewest(ways)
        if made_here and row.made:
            found[place] = fewest(made_here)
    return found


def _read(work: Work) -> Work:
    """What it reads alone."""
    return Work(bytes_read=work.bytes_read)


def _all(each: Sequence[Once]) -> Once:
    """What a kernel does at least that does all of these, and may share what they do."""
    return _merged(max, each, next((one.schedule for one in each if one.schedule is not None), None))


def _merged(
    choose: Callable[[Iterable[float]], float], ways: Sequence[Once], schedule: Schedule | None
) -> Once:
    """Of each amount the least or most of any of these."""
    work = of_fields(choose, [way.work for way in ways])
    return Once(work, schedule, choose(way.before for way in ways), choose(way.inputs for way in ways))


def fewest(ways: Iterable[Once]) -> tuple[Once, ...]:
    """A few ways of which each of these does no less than one."""
    kept: list[Once] = []
    for way in sorted(ways, key=_amounts):
        if not any(other.schedule == way.schedule and _no_more(other, way) for other in kept):
            kept.append(way)
    while len(kept) > WAYS:
        *kept, one, two = kept
        schedule = one.schedule if one.schedule == two.schedule else None
        kept.append(_merged(min, [one, two], schedule))
    return tuple(kept)


def _no_more(one: Once, other: Once) -> bool:
    return all(map(float.__le__, _amounts(one), _amounts(other)))


def _amounts(way: Once) -> tuple[float, ...]:
    return *amounts_of(way.work), way.before, way.inputs


def of_fields(choose: Callable[[Iterable[float]], float], works: Sequence[Work]) -> Work:
    """Of each field the least or most of any of these."""
    return work_of([choose(each) for each in zip(*map(amounts_of, works), strict=True)]) if works else Work()


def combined(counts: Sequence[int]) -> list[Levels]:
    """All levels of buffers that have so many each; first that of all filled."""
    return list(itertools.product(*map(range, counts)))


def origins(problem: Problem, names: Iterable[str]) -> list[str]:
    """What buffers hold, wherever it is needed."""
    ways = (way for name in names for way in problem.view.buffers[name].ways)
    return list(dict.fromkeys(problem.view.origin(way.root) for way in ways))


def _keys(problem: Problem, values: Mapping[str, Sequence[Key]], names: Iterable[str]) -> list[Key]:
    """The values of buffers, operands first."""
    found = (key for origin in origins(problem, names) for key in values.get(origin, ()))
    return sorted(found, key=problem.bit.__getitem__)


def holding_the_same(problem: Problem) -> Mapping[str, Collection[str]]:
    """For each buffer those that hold what it holds, itself among them: two of the same are one."""
    found: dict[tuple[frozenset[str], int, object], list[str]] = {}
    what = {}
    for name, buffer in problem.view.buffers.items():
        what[name] = frozenset(way.root for way in buffer.ways), problem.bytes(buffer), buffer.dtype
        found.setdefault(what[name], []).append(name)
    return {name: found[each] for name, each in what.items()}
