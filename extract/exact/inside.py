"""What a kernel does at least that computes a value of an earlier part itself, instead of reading it.

A buffer at a cut may be filled or not. Where it is not, every kernel that needs its value computes it, from what else is
filled. A sum may be had from the product that was added, and a product from its partial sums (split-K), which takes hardly
anything beside reading them: whether those are filled makes levels of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..choice import LOOPED, How, Key, outside
from ..cost.model import Work
from ..cost.schedule import Schedule
from ..problem import Problem
from ..view import Item
from .distance import (
    PLACES,
    TOLD,
    Further,
    Layers,
    alike,
    before_at,
    done_in,
    further_of,
    worth_telling,
)
from .frames import frame_of
from .once import Once, fewest, of_fields
from .rows import Barred
from .sources import (
    CLASSES,
    FAR,
    FARTHER,
    NEAR,
    PARTS,
    Source,
    adds,
    beneath_sums,
    loaded_by,
    product,
    side_by_side,
    sources_of,
)
from .tables import Known, Table, known_ways, table_of

INSIDE = Item("Read", "inside", ("inside", ()), ())
"""Stands for whatever computes a value of what is given within a kernel, instead of reading it."""

PAIRS = 18_000
"""Levels of a buffer times options of the larger part beside it from which on classes of what the part before is given are told apart only
where that makes much of a difference, as long as what is found is close: the search for what is done at each of them takes the longer."""

Levels = tuple[int, ...]
"""Of the buffers of a cut: 0 where one is filled, or what is as good as it; else which of :attr:`Beneath.kinds`, from 1."""


class Kind(NamedTuple):
    """How later parts do without a buffer. ``source``: which of :attr:`Beneath.sources` it is had from. ``outer``: some kernel
    computes its values at its own output axes; ``inner``: some does within reductions. ``deep``: some of what those kernels compute is
    charged in an earlier part. ``lacking``: which of :data:`~tinyc.extract.exact.sources.CLASSES` what the part is given is at least: the
    last that kinds of the same source tell apart. ``whole``: of those where it is not near and sums are computed again, whether the kernel
    that is charged tiles a product, and does more for what the part is given than is counted of each such kernel where the values are used:
    it is charged all of it then, and nothing is counted there."""

    source: int
    outer: bool
    inner: bool
    deep: bool
    lacking: int = NEAR
    whole: bool = False

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
        once: for each source, class of what the part is given, kind of kernel, and place, at the kernel's output axes or within
            reductions: what a kernel does, one of these at least.
        able: the values that can be computed without reading ``name``.
        able_at: the same for each source, and class of what the part is given.
        walks: how a kernel runs that holds a Stream beneath, at its output axes.
        counted: the values of which ``once`` knows, by what they are.
        light: so many of ``partial``, the first, are such that hardly anything is computed from them.
        further: what a kernel of a part after the next does that computes a value for another that is not filled, one of these at
            least: what it reads of inputs, and of what is beneath earlier parts, is left out. For each kind of kernel and place, and
            class of which the value is at least.
        lacked: what kernels do at most for what the part is given, at each class of it, and by whether they tile a product.
        chained: whether ``further`` knows of sums that are added to what is far.
        both: the sources of which some kernel computes the values at its output axes, and some does within reductions, where kinds say so
            of each; of others, some kernel does at one of them.
        coarse: the sources of which classes are told apart only where that makes much of a difference, since there would be many kinds.
    """

    name: str
    partial: tuple[tuple[str, ...], ...] = ()
    sources: tuple[Source, ...] = (Source((), frozenset()),)
    kinds: tuple[Kind, ...] = ()
    once: Mapping[tuple[int, int, How, bool], Sequence[Once]] = field(default_factory=dict)
    able: frozenset[Key] = frozenset()
    able_at: Mapping[tuple[int, int], frozenset[Key]] = field(default_factory=dict)
    walks: frozenset[Schedule] = frozenset()
    counted: frozenset[str] = frozenset()
    light: int = 0
    further: Further = field(default_factory=dict)
    lacked: Mapping[tuple[int, bool], Work] = field(default_factory=dict)
    chained: bool = False
    both: frozenset[int] = frozenset()
    coarse: frozenset[int] = frozenset()

    @property
    def levels(self) -> int:
        return 1 + len(self.kinds)

    def lacks(self, level: int) -> int:
        """Of which class the value is at a level (:data:`~tinyc.extract.exact.sources.CLASSES`). ``chained``: a sum that is added to what
        is far is no nearer."""
        if not level:
            return NEAR
        kind = self.kinds[level - 1]
        source = self.sources[kind.source]
        if source.distance == FAR:
            return FARTHER if kind.lacking >= FAR else FAR
        return FAR if self.chained and kind.lacking >= FAR else source.distance

    def coarsely(self, level: int) -> bool:
        """Whether kinds of the same source are missing, and may be dearer."""
        return level > 0 and self.kinds[level - 1].source in self.coarse

    def told(self, kind: Kind) -> list[int]:
        """The classes of what the part is given that kinds like this one tell apart."""
        beside = (each for each in self.kinds if (each.source, each.deep) == (kind.source, kind.deep))
        return sorted({each.lacking for each in beside})

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
        return kind.source, kind.lacking, kind.whole, kind.deep and kind.lacking > FAR, kind.at(outer)

    def done(self, level: int, how: How, outer: bool) -> Sequence[Once]:
        """What a kernel does that computes a value, one of these at least; nothing where it cannot. ``level``: 0 of that which
        takes least."""
        if not level:
            every = (self.once.get((source, NEAR, how, outer), ()) for source in range(len(self.sources)))
            return fewest(itertools.chain.from_iterable(every))
        kind = self.kinds[level - 1]
        if not kind.at(outer):
            return ()
        lacking = kind.lacking
        if kind.deep and how not in LOOPED:  # it may be the one that is charged, here or in an earlier part
            lacking = NEAR if kind.whole else min(lacking, FAR)
        return self.once.get((kind.source, lacking, how, outer), ())


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
    within: bool,
    options: int,
    known: Known,
    groups: Mapping[str, Beneath],
    unshared: Callable[[str], bool],
    layers: Layers,
    twice: Collection[str] = (),
) -> Beneath:
    """What is beneath the values of ``name``. ``values``: of each origin. ``mates``: buffers that are as good. ``buffers``: that may
    be filled in the same part, which is given ``given``. ``same``: see :func:`holding_the_same`. ``further``: down to what the
    sums beneath are computed from. ``told``: with levels of their own for kernels that compute the values at their output axes alone,
    where what they read may not be enough for others. ``within``: some kernel does within reductions, whatever the program
    does. ``options``: of the larger of the parts that make it and are given it, none where all classes are told apart,
    however many levels that makes. ``known``: what was found of equal layers.
    ``groups``: the same of what earlier parts make. ``unshared``: whether no later part reads an input: a kernel of one
    may read it anyway. ``layers``: see :func:`~tinyc.extract.exact.distance.further_of`. ``twice``: what an earlier part may compute as well, by what it is."""
    view = problem.view
    own = set(same[name])
    made = frozenset(_keys(problem, values, (name,)))
    sums = product(problem, made, origins(problem, given))
    as_good = {other for mate in mates for other in same[mate]}
    # the more parts a sum has, the longer it takes to read them
    sized: dict[tuple[bool, int], list[str]] = {}
    for each, parts in dict.fromkeys(sums):
        if each not in as_good | own:
            sized.setdefault((parts, problem.works.bytes(view.buffers[each])), []).append(each)
    # from some it is computed alone, from others with what the part is given, which may not be filled either
    alone = [each for each in sorted(as_good) if _enough(problem, made, each, given)]
    beside = sorted(as_good.difference(alone))
    apart = (alone, beside, *(sized[size] for size in sorted(sized)))
    here = [tuple(each for each in names if each in buffers and each not in own) for names in apart]
    partial = tuple(names for names in here if names)
    near = sum(map(bool, here[: 2 + sum(not parts for parts, _ in sized)]))
    keys = _keys(problem, values, (name, *itertools.chain(*partial)))
    light = len(partial)
    past, summed, loaded = dict[str, frozenset[str]](), False, dict[int, frozenset[str]]()
    if further:
        found_ = beneath_sums(problem, made, frozenset(origins(problem, given)), frozenset(buffers), True)
        past, summed = dict(found_.past), found_.again
        # of others, more sets would be fewer buffers that are taken as one
        every = frozenset[str]().union(*past.values())
        several = not summed and side_by_side(problem, found_.keys, every, origins(problem, given))
        loads = loaded_by(problem, found_.keys) if several else {}
        for names in found_.apart:
            fresh = sorted(names - own.union(*partial))
            for operands, products in _apart(problem, values, made, given, fresh, several, loads):
                if products:
                    loaded[len(partial)] = products
                partial += (operands,)
        keys = sorted({*keys, *found_.keys}, key=problem.bit.__getitem__)
    sources = sources_of(partial, past, light, summed, near, loaded)
    here_, frame = frozenset(buffers), frame_of(problem, keys, made, (own, *partial))
    read = {each: _keys(problem, values, (each,)) for each in given if each in groups}
    classes = CLASSES if further else (NEAR,)
    before = [before_at(problem, read, groups, same, lacking) for lacking in classes]
    like = {PARTS: (NEAR, FAR), FAR: (NEAR,), FARTHER: (NEAR, FAR)}
    differ = [each for each in classes[1:] if all(before[each] != before[other] for other in like[each])]
    table = table_of(problem, frame, here_, [before[each] for each in (NEAR, *differ)], unshared, twice)
    # where something is charged, classes are told apart if what loops do for what is given is about the same in all ways: what it may be at
    # most is not charged then
    done = {
        (lacking, tiled): done_in(before[lacking], tiled) for lacking in differ for tiled in (False, True)
    }
    less = {lacking for lacking in differ if alike(done[lacking, False])}
    finest: tuple[Kind, ...] = ()
    for times, more in enumerate(TOLD, 1):  # the fewer are told apart, the more there may be
        once, able_at, apart_ = _at_classes(problem, known, table, keys, sources, differ, more)
        able = frozenset[Key]().union(*(able_at[source, NEAR] for source in range(len(sources))))
        outer = {outside(view.free[key[0]]) for key in able} or {True}
        uses = [list(_uses(outer, told and not source.light, within)) for source in sources]
        kinds = tuple(_kinds(sources, uses, apart_, less))
        finest = finest or kinds
        if len(kinds) * options < times * PAIRS:
            break
    walks = frozenset(walk for walk, above in problem.walked.items() if not above.isdisjoint(able))
    counted = frozenset(view.origin(key[0]) for key in keys)
    chains = {kind.source for kind in kinds if kind.lacking >= FAR and sources[kind.source].distance < FAR}
    both = frozenset(number for number, source in enumerate(sources) if (told or within) and not source.light)
    unread, chained = further_of(problem, known, frame, before, sources, chains, twice, layers)
    lacked = {each: of_fields(max, works) for each, works in done.items()}
    return Beneath(
        name,
        partial,
        sources,
        kinds,
        once,
        able,
        able_at,
        walks,
        counted,
        light,
        unread,
        lacked,
        chained,
        both,
        frozenset(kind.source for kind in finest if kind not in kinds),
    )


def _kinds(
    sources: Sequence[Source],
    uses: Sequence[Sequence[tuple[bool, bool]]],
    classes: Sequence[Sequence[int]],
    less: Collection[int],
) -> Iterator[Kind]:
    """How later parts may do without a buffer. ``uses``, ``classes``: of each source, see :func:`_uses` and :func:`_at_classes`. ``less``: those
    that are told apart where something is charged."""
    for number, source in enumerate(sources):
        for there, deep, lacking in itertools.product(uses[number], (True, False), classes[number]):
            if lacking == NEAR or lacking in less or source.distance < FAR or not deep:
                both = lacking != NEAR and deep and source.distance == FAR
                for whole in (False, True) if both else (False,):
                    yield Kind(number, *there, deep, lacking, whole)


def _at_classes(
    problem: Problem,
    known: Known,
    table: Table,
    keys: Sequence[Key],
    sources: Sequence[Source],
    classes: Sequence[int],
    more: float,
) -> tuple[
    Mapping[tuple[int, int, How, bool], Sequence[Once]],
    Mapping[tuple[int, int], frozenset[Key]],
    Sequence[Sequence[int]],
]:
    """``once`` and ``able_at`` of :class:`Beneath`, and of each source the classes that are told apart. ``table``: of ``keys``; what is
    given is near in it, or of one of the ``classes``. ``more``: see :func:`~tinyc.extract.exact.distance.worth_telling`."""
    # the first set of names, its own, is read from none
    barred = [
        Barred(frozenset({0, *(1 + each for each in source.barred)}), source.light) for source in sources
    ]
    asked = [each._replace(lacking=place) for place in range(1 + len(classes)) for each in barred]
    found, rows = known_ways(known, table, asked)
    once: dict[tuple[int, int, How, bool], Sequence[Once]] = {}
    able_at: dict[tuple[int, int], frozenset[Key]] = {}
    apart: list[list[int]] = []
    for number in range(len(sources)):
        at = dict(zip((NEAR, *classes), range(number, len(asked), len(sources)), strict=True))
        apart.append([NEAR])
        for lacking in classes:
            ways = ([found[at[each], *place] for place in PLACES] for each in (apart[-1][-1], lacking))
            if worth_telling(problem, more, *ways):
                apart[-1].append(lacking)
        for lacking in {*apart[-1], *(min(each, FAR) for each in apart[-1])}:
            like = at[max(each for each in at if each <= lacking)]
            once |= {(number, lacking, *place): found[like, *place] for place in PLACES}
            able_at[number, lacking] = frozenset(keys[row] for row in rows[like])
    return once, able_at, apart


def _apart(
    problem: Problem,
    values: Mapping[str, Sequence[Key]],
    made: Collection[Key],
    given: Sequence[str],
    names: Sequence[str],
    several: bool,
    loads: Mapping[str, Collection[str]],
) -> Iterator[tuple[tuple[str, ...], frozenset[str]]]:
    """Buffers in sets: from some the values ``made`` are computed alone; of others, with ``several`` products beside each other, those in
    which what is ``given`` is added already come first. So do, of each, those from which products load an operand (``loads``), with these
    products, if there are others."""
    alone = [each for each in names if _enough(problem, made, each, given)]
    beside = [each for each in names if each not in alone]
    origin = origins(problem, given)
    added = [each for each in beside if several and adds(problem, _keys(problem, values, (each,)), origin)]
    for each in (alone, added, [other for other in beside if other not in added]):
        operands = tuple([other for other in each if other in loads])
        rest = tuple([other for other in each if other not in loads])
        if operands:
            products = (loads[other] for other in operands)
            yield operands, frozenset[str]().union(*products) if rest else frozenset()
        if rest:
            yield rest, frozenset()


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


def _uses(places: Collection[bool], apart: bool, within: bool = False) -> Iterator[tuple[bool, bool]]:
    """Whether kernels compute a value at their output axes, and within reductions, of the ``places`` that there are: at one at least.
    ``apart``: whether those that do at output axes alone are told apart. ``within``: there are none such."""
    for outer, inner in ((True, False), (True, True), (False, True)):
        able = (not outer or True in places) and (not inner or False in places)
        if able and ((apart and not within) or inner or False not in places):
            yield outer, inner


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
