"""What a kernel does at least that computes a value of an earlier part itself, instead of reading it.

A buffer at a cut may be filled or not. Where it is not, every kernel that needs its value computes it, from what else is
filled. A sum may be had from the product that was added, and a product from its partial sums (split-K), which takes hardly
anything beside reading them: whether those are filled makes levels of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..choice import LOOPED, How, Key, outside
from ..cost.model import Work
from ..cost.schedule import Schedule
from ..problem import Problem
from ..view import Item
from .frames import frame_of
from .once import HOWS, Once, fewest, of_fields
from .sources import Source, beneath_sums, product, sources_of
from .tables import Barred, Found, Known, Table, table_of, ways_of

INSIDE = Item("Read", "inside", ("inside", ()), ())
"""Stands for whatever computes a value of what is given within a kernel, instead of reading it."""

ALIKE = 2.0
"""The ratio at most of what loops do for what a part lacks, where that is looked at."""

Levels = tuple[int, ...]
"""Of the buffers of a cut: 0 where one is filled, or what is as good as it; else which of :attr:`Beneath.kinds`, from 1."""


class Kind(NamedTuple):
    """How later parts do without a buffer. ``source``: which of :attr:`Beneath.sources` it is had from. ``outer``: some kernel
    computes its values at its own output axes; ``inner``: some does within reductions. ``deep``: some of what those kernels compute is
    charged in an earlier part. ``lacking``: nor is what the part is given had with hardly any work, for kinds that tell. ``tiled``: of
    these, where sums are computed again, whether some of those kernels tile a product, which is charged then; loops do what they lack each
    for itself. None where that is not told."""

    source: int
    outer: bool
    inner: bool
    deep: bool
    lacking: bool = False
    tiled: bool | None = None

    def at(self, outer: bool) -> bool:
        """Whether some kernel computes its values there."""
        return self.outer if outer else self.inner


@dataclass(frozen=True)
class Beneath:
    """What is beneath a value that is made by a part, down to where it is read.

    Attributes:
        name: its buffer.
        partial: buffers that are as good (``../mates.py``), those of partial sums, and those of what the sums are computed from, if
            it is looked at; without what is empty.
        sources: what may be read of these. Each program has one of them.
        kinds: how later parts may do without it.
        once: for each source, kind of kernel, and place, at the kernel's output axes or within reductions: what a kernel does, one
            of these at least.
        lacking: the same where what the part is given is lacking.
        able: the values that can be computed without reading ``name``.
        able_at: the same for each source, and whether what the part is given is lacking.
        walks: how a kernel runs that holds a Stream beneath, at its output axes.
        counted: the values of which ``once`` knows, by what they are.
        light: so many of ``partial``, the first, are such that hardly anything is computed from them.
        further: what a kernel of a part after the next does that computes a value for another that is not filled, one of these at
            least: what it reads of inputs, and of what is beneath earlier parts, is left out. For each kind of kernel and place, and
            whether the source is none that is light.
        lacked: what loops do at most for what the part is given, of kinds that are not ``tiled``.
        chained: whether ``further`` knows of sums that are added to what lacks.
    """

    name: str
    partial: tuple[tuple[str, ...], ...] = ()
    sources: tuple[Source, ...] = (Source((), frozenset()),)
    kinds: tuple[Kind, ...] = ()
    once: Mapping[tuple[int, How, bool], Sequence[Once]] = field(default_factory=dict)
    lacking: Mapping[tuple[int, How, bool], Sequence[Once]] = field(default_factory=dict)
    able: frozenset[Key] = frozenset()
    able_at: Mapping[tuple[int, bool], frozenset[Key]] = field(default_factory=dict)
    walks: frozenset[Schedule] = frozenset()
    counted: frozenset[str] = frozenset()
    light: int = 0
    further: Mapping[tuple[How, bool, bool], Sequence[Once]] = field(default_factory=dict)
    lacked: Work = field(default_factory=Work)
    chained: bool = False

    @property
    def levels(self) -> int:
        return 1 + len(self.kinds)

    def lacks(self, level: int) -> bool:
        """Whether nothing is filled at a level from which the value is had with hardly any work. ``chained``: a sum that is added to
        what lacks is not enough."""
        kind = self.kinds[level - 1] if level else None
        return kind is not None and ((kind.lacking and self.chained) or not self.sources[kind.source].light)

    def levels_of(self, key: Key) -> frozenset[int]:
        """The levels at which a kernel may compute a value: where the buffer is filled, any."""
        return frozenset({0}).union(
            level
            for level, kind in enumerate(self.kinds, 1)
            if key in self.able_at.get((kind.source, kind.lacking), ())
        )

    def like(self, level: int, outer: bool) -> tuple[object, ...]:
        """What :meth:`done` asks of a level: where that is the same, so is what a kernel does."""
        if not level:
            return ()
        kind = self.kinds[level - 1]
        return kind.source, kind.lacking, kind.tiled, kind.tiled and kind.deep, kind.at(outer)

    def done(self, level: int, how: How, outer: bool) -> Sequence[Once]:
        """What a kernel does that computes a value, one of these at least; nothing where it cannot. ``level``: 0 of that which
        takes least."""
        if not level:
            every = (self.once.get((source, how, outer), ()) for source in range(len(self.sources)))
            return fewest(itertools.chain.from_iterable(every))
        kind = self.kinds[level - 1]
        if not kind.at(outer) or (kind.tiled is False and how not in LOOPED):
            return ()
        itself = not kind.deep or not kind.tiled or how in LOOPED  # else it may be the one that is charged
        once = self.lacking if kind.lacking and itself else self.once
        return once.get((kind.source, how, outer), ())


def beneath(
    problem: Problem,
    values: Mapping[str, Sequence[Key]],
    name: str,
    mates: Sequence[str],
    buffers: Sequence[str],
    same: Mapping[str, Collection[str]],
    given: Sequence[str],
    further: bool,
    told: bool,
    known: Known,
    groups: Mapping[str, Beneath],
    unshared: Callable[[str], bool],
    twice: Collection[Key] = (),
) -> Beneath:
    """What is beneath the values of ``name``. ``values``: of each origin. ``mates``: buffers that are as good. ``buffers``: that may
    be filled in the same part, which is given ``given``. ``same``: see :func:`holding_the_same`. ``further``: down to what the
    sums beneath are computed from. ``told``: with levels of their own for kernels that compute the values at their output axes alone,
    where what they read may not be enough for others. ``known``: what was found of equal layers.
    ``groups``: the same of what earlier parts make. ``unshared``: whether no later part reads an input: a kernel of one
    may read it anyway. ``twice``: products that may also be computed in an earlier part."""
    view = problem.view
    own = set(same[name])
    made = frozenset(_keys(problem, values, (name,)))
    sums = product(problem, made, origins(problem, given))
    as_good = {other for mate in mates for other in same[mate]}
    sized: dict[int, list[str]] = {}  # the more parts a sum has, the longer it takes to read them
    for each in dict.fromkeys(sums):
        if each not in as_good | own:
            sized.setdefault(problem.works.bytes(view.buffers[each]), []).append(each)
    # from some it is computed alone, from others with what the part is given, which may not be filled either
    alone = [each for each in sorted(as_good) if _enough(problem, made, each, given)]
    beside = sorted(as_good.difference(alone))
    apart = (alone, beside, *(sized[size] for size in sorted(sized)))
    here = (tuple(each for each in names if each in buffers and each not in own) for names in apart)
    partial = tuple(names for names in here if names)
    keys = _keys(problem, values, (name, *itertools.chain(*partial)))
    light = len(partial)
    past, summed = dict[str, frozenset[str]](), False
    if further:
        found_ = beneath_sums(problem, made, frozenset(origins(problem, given)), frozenset(buffers), True)
        past, summed = dict(found_.past), found_.again
        for names in found_.apart:
            fresh = sorted(names - own.union(*partial))
            alone = [each for each in fresh if _enough(problem, made, each, given)]
            beside = [each for each in fresh if each not in alone]
            partial += tuple([tuple(each) for each in (alone, beside) if each])
        keys = sorted({*keys, *found_.keys}, key=problem.bit.__getitem__)
    sources = sources_of(partial, past, light, summed)
    here_, frame = frozenset(buffers), frame_of(problem, keys, made, (own, *partial))
    # the first set of names, its own, is read from none
    barred = [
        Barred(frozenset({0, *(1 + each for each in source.barred)}), source.light) for source in sources
    ]
    before, lacks = (_before(problem, values, given, groups, each) for each in ({}, same if further else {}))
    # where what is given is lacking, the sources come once more; those that are not light, where something is charged, if what loops do for
    # it is about the same in all ways: what it may be at most is not charged then
    loops = _in_loops(lacks)
    alike = _alike(loops)
    again = [*range(len(barred))] if lacks != before else []
    table = table_of(problem, frame, here_, before, lacks, unshared, twice)
    found, rows = _known(known, table, [*barred, *(barred[each]._replace(lacking=True) for each in again)])
    numbers = range(len(barred))
    lacked = {number: len(barred) + again.index(number) if number in again else number for number in numbers}
    places = [*itertools.product(HOWS, (True, False))]
    once, lacking = (
        {(number, *each): found[at[number], *each] for number in numbers for each in places}
        for at in ({number: number for number in numbers}, lacked)
    )
    able_at = {
        (number, lacks): frozenset(keys[place] for place in rows[lacked[number] if lacks else number])
        for number in numbers
        for lacks in (False, True)
    }
    able = frozenset[Key]().union(*(able_at[source, False] for source in range(len(sources))))
    outer = {outside(view.free[key[0]]) for key in able} or {True}
    kinds = tuple(
        Kind(source, *there, deep, lacks, tiled)
        for source in range(len(sources))
        for there, deep, lacks in itertools.product(
            _uses(outer, told and not sources[source].light),
            (True, False),
            (False, True),
        )
        if not lacks or any(once[source, *each] != lacking[source, *each] for each in places)
        if not lacks or alike or sources[source].light or not deep
        for tiled in ((True, False) if lacks and alike and not sources[source].light else (None,))
    )
    walks = frozenset(walk for walk, above in problem.walked.items() if not above.isdisjoint(able))
    counted = frozenset(view.origin(key[0]) for key in keys)
    lacking_ = any(kind.lacking and sources[kind.source].light for kind in kinds)
    unread, chained = _further(
        known,
        table_of(problem, frame),
        table_of(problem, frame, None, lacks, lacks, twice=twice) if lacking_ else None,
        barred,
    )
    done = of_fields(max, loops)
    return Beneath(
        name,
        partial,
        sources,
        kinds,
        once,
        lacking,
        able,
        able_at,
        walks,
        counted,
        light,
        unread,
        done,
        chained,
    )


def _enough(problem: Problem, made: Collection[Key], mate: str, given: Iterable[str]) -> bool:
    """Whether one of the values ``made`` can be computed from a buffer and inputs, without what is ``given``."""
    view, start, barred = problem.view, set(origins(problem, (mate,))), set(origins(problem, given))
    keys, stack = set(made), [*made]
    while stack:
        key = stack.pop()
        if view.origin(key[0]) not in start | barred:
            fresh = {child for each in problem.options[key] for child in each.children} - keys
            keys |= fresh
            stack += fresh
    able: set[Key] = set()
    for key in sorted(keys, key=problem.bit.__getitem__):  # operands come first
        origin = view.origin(key[0])
        if origin in start or (
            origin not in barred
            and any(
                view.buffers[str(each.item.payload[0])].arg is not None
                if each.item.head == "Read"
                else able.issuperset(each.children)
                for each in problem.options[key]
            )
        ):
            able.add(key)
    return not able.isdisjoint(made)


def _uses(places: Collection[bool], apart: bool) -> Iterator[tuple[bool, bool]]:
    """Whether kernels compute a value at their output axes, and within reductions, of the ``places`` that there are: at one at least.
    ``apart``: whether those that do at output axes alone are told apart."""
    for outer, inner in ((True, False), (True, True), (False, True)):
        able = (not outer or True in places) and (not inner or False in places)
        if able and (apart or inner or False not in places):
            yield outer, inner


def _further(
    known: Known, table: Table, lacking: Table | None, sources: Sequence[Barred]
) -> tuple[Mapping[tuple[How, bool, bool], Sequence[Once]], bool]:
    """See :class:`Beneath`, and whether it is ``chained``. ``lacking``: the table where what the part is given is lacking, if that makes a
    difference."""
    heavy, light = (
        _least([each.names for each in sources if each.light == is_so]) for is_so in (False, True)
    )
    places = [*itertools.product(HOWS, (True, False))]
    alone, _ = _known(known, table, [Barred(names) for names in (frozenset({0}), *heavy)])
    found: dict[tuple[How, bool, bool], Sequence[Once]] = {}
    for place in places:
        found[*place, False] = [_unread(way) for way in alone[0, *place]]
        ways = (way for number in range(len(heavy)) for way in alone[1 + number, *place])
        found[*place, True] = [_unread(way) for way in ways]
    if lacking is None:
        return found, False
    more, _ = _known(known, lacking, [Barred(names, True, True) for names in light])
    chained = dict(found)
    for place in places:
        ways = (way for number in range(len(light)) for way in more[number, *place])
        # what is read of each part before would make all parts different
        added = [_unread(way)._replace(before=0.0) for way in ways]
        chained[*place, True] = fewest([*found[*place, True], *added])
    # what is charged of loops is less where they may do much or little
    without, among = (
        _alike([way.work for how, outer in places if how in LOOPED for way in each[how, outer, True]])
        for each in (found, chained)
    )
    return (found, False) if without and not among else (chained, True)


def _alike(works: Sequence[Work]) -> bool:
    """Whether loops do about the same in all ways."""
    ops = [work.ops for work in works]
    return bool(ops) and max(ops) <= ALIKE * min(ops)


def _least(sets: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Those that hold no other."""
    return [names for names in sets if not any(other < names for other in sets)]


def _known(known: Known, table: Table, sources: Sequence[Barred]) -> Found:
    what = table, tuple(sources)
    found = known.get(what)  # tables are large: once
    if found is None:
        found = known[what] = ways_of(*what)
    return found


def _unread(way: Once) -> Once:
    """With all that it reads before."""
    return way._replace(work=replace(way.work, bytes_read=0.0), before=way.work.bytes_read)


def _before(
    problem: Problem,
    values: Mapping[str, Sequence[Key]],
    given: Sequence[str],
    groups: Mapping[str, Beneath],
    barred: Mapping[str, Collection[str]],
) -> Mapping[Key, tuple[tuple[Once, ...], ...]]:
    """What a kernel does at least, in each kind of kernel, that has a value of what is given for another: it reads it, or computes
    it. Only of those of which something is known. ``barred``: of what is given, buffers that it does not
    read, nor has it with hardly any work."""
    found: dict[Key, tuple[tuple[Once, ...], ...]] = {}
    for name in given:
        group = groups.get(name)
        if group is None:
            continue
        known: dict[tuple[tuple[int, ...], bool, bool], list[tuple[Once, ...]]] = {}
        for key in _keys(problem, values, (name,)):
            reads = [
                problem.view.buffers[str(option.item.payload[0])]
                for option in problem.options[key]
                if option.item.head == "Read" and option.item.payload[0] not in barred.get(name, ())
            ]
            sizes = tuple([problem.works.bytes(buffer) if buffer.arg is None else 0 for buffer in reads])
            outer, able = outside(problem.view.free[key[0]]), key in group.able
            ways = known.get((sizes, outer, able))
            if ways is None:
                ways = known[sizes, outer, able] = []
                for how in HOWS:
                    there = [Once(before=float(size)) for size in sizes]
                    # of what is kept of a row, some is computed as it is where none is
                    kinds: tuple[How, ...] = (how, "tiled") if how == "rows" else (how,)
                    for kind in kinds if able else ():
                        there += group.further[kind, outer, name in barred]
                    ways.append(fewest(there))
            if any(ways):
                found[key] = tuple(ways)
    return found


def _in_loops(found: Mapping[Key, tuple[tuple[Once, ...], ...]]) -> list[Work]:
    """What :func:`_before` found, of kernels that tile nothing."""
    numbers = [number for number, how in enumerate(HOWS) if how in LOOPED]
    return [way.work for ways in found.values() for number in numbers for way in ways[number]]


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
        what[name] = frozenset(way.root for way in buffer.ways), problem.works.bytes(buffer), buffer.dtype
        found.setdefault(what[name], []).append(name)
    return {name: found[each] for name, each in what.items()}
