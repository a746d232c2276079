"""How far from hand what a part is given is, where its buffers are not filled: what kernels do beside that compute values of it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..choice import LOOPED, How, Key, outside
from ..cost.model import Work
from ..problem import Problem
from .frames import Frame
from .once import HOWS, Once, fewest
from .rows import Barred
from .sources import FAR, FARTHER, NEAR, PARTS, Source
from .tables import Before, Known, known_ways, table_of

if TYPE_CHECKING:
    from .inside import Beneath

TOLD, NO_MORE = (0.1, 1.0, 4.0), 3.0
"""What the next class makes a kernel take longer at least, in launches, so that it is told apart; and what a kernel takes at most before.
The second and third, where there are many levels."""

ALIKE = 2.0
"""The ratio at most of what loops do for what a part is given, where that is looked at."""

PLACES: Sequence[tuple[How, bool]] = tuple(itertools.product(HOWS, (True, False)))
"""Each kind of kernel, and whether a value is at its output axes."""

Further = Mapping[tuple[How, bool, int], Sequence[Once]]
"""See :attr:`~tinyc.extract.exact.inside.Beneath.further`."""

DEEP = 3
"""So many layers that are made of the same do what they do for what is farther; those that follow, no more than the one before."""


LITTLE = 0.01
"""What a layer adds for what is farther at most, in launches, so that those that follow do no more than it."""


Layers = dict[object, list[Further]]
"""What :func:`further_of` found for the parts of a program so far, first things first, by what they are made of."""


def before_at(
    problem: Problem,
    values: Mapping[str, Iterable[Key]],
    groups: Mapping[str, Beneath],
    same: Mapping[str, Collection[str]],
    lacking: int,
) -> Before:
    """What a kernel does at least that has a value of what is given for another: it reads it, or computes it. ``values``: of each buffer
    that is given of which something is known, by ``groups``. ``lacking``: of which class it is at least; where that is not near, it
    is not read, nor are those of the ``same``."""
    found: dict[Key, tuple[tuple[Once, ...], ...]] = {}
    for name, keys in values.items():
        group = groups[name]
        barred = same[name] if lacking else ()
        known: dict[tuple[tuple[int, ...], bool, bool], tuple[tuple[Once, ...], ...]] = {}
        for key in keys:
            reads = [
                problem.view.buffers[str(option.item.payload[0])]
                for option in problem.options[key]
                if option.item.head == "Read" and option.item.payload[0] not in barred
            ]
            sizes = tuple([problem.works.bytes(buffer) if buffer.arg is None else 0 for buffer in reads])
            outer, able = outside(problem.view.free[key[0]]), key in group.able
            if (sizes, outer, able) not in known:
                ways: list[tuple[Once, ...]] = []
                for how in HOWS:
                    there = [Once(before=float(size)) for size in sizes]
                    # of what is kept of a row, some is computed as it is where none is
                    kinds: tuple[How, ...] = (how, "tiled") if how == "rows" else (how,)
                    for kind in kinds if able else ():
                        there += group.further[kind, outer, lacking]
                    ways.append(fewest(there))
                known[sizes, outer, able] = tuple(ways)
            if any(known[sizes, outer, able]):
                found[key] = known[sizes, outer, able]
    return found


def further_of(
    problem: Problem,
    known: Known,
    frame: Frame,
    before: Sequence[Before],
    sources: Sequence[Source],
    chains: Collection[int],
    twice: Collection[str],
    layers: Layers,
) -> tuple[Further, bool]:
    """See :class:`~tinyc.extract.exact.inside.Beneath`, and whether it is ``chained``. ``frame``: of what is beneath the value, with the sets
    of its ``sources``. ``before``: of each class of what is given. ``chains``: the sources, by number, at which it counts what a sum is
    added to. ``twice``: what an earlier part may compute as well, by what it is. ``layers``: what came out for the parts before."""
    # the first set of names, its own, is read from none
    barred = [(source, frozenset({0, *(1 + each for each in source.barred)})) for source in sources]
    heavy = _least([names for source, names in barred if source.distance == FAR])
    near = [(barred[number][0].light, barred[number][1]) for number in sorted(chains)]
    parts = _least([names for source, names in barred if source.distance == PARTS])
    bare = table_of(problem, frame)
    alone, _ = known_ways(known, bare, [*map(Barred, (frozenset({0}), *heavy, *parts))])
    found: dict[tuple[How, bool, int], Sequence[Once]] = {}
    for place in PLACES:
        found[*place, NEAR] = [_unread(way) for way in alone[0, *place]]
        far = [_unread(way) for number, _ in enumerate(heavy, 1) for way in alone[number, *place]]
        partial = [
            _unread(way) for number, _ in enumerate(parts, 1 + len(heavy)) for way in alone[number, *place]
        ]
        found |= {(*place, PARTS): [*far, *partial], (*place, FAR): far, (*place, FARTHER): far}
    if len(before) == 1 or not before[FAR]:
        return found, False
    asked = [
        *(Barred(names, False, 1) for names in heavy),
        *(Barred(names, light, 1) for light, names in near),
    ]
    table = table_of(problem, frame, None, [{}, before[FAR]], twice=twice)
    ways, _ = known_ways(known, table, asked)
    # what is read of each part before would make all parts different
    more = {place: [_unread(way)._replace(before=0.0) for way in each] for place, each in ways.items()}
    chained = dict(found)
    for place in PLACES if chains else ():
        # where no sum is computed again, each part would do a little more than the one before
        added = _all(more, range(len(heavy), len(asked)), place) if found[*place, FAR] else ()
        chained[*place, FAR] = fewest([*(found[*place, FAR] or found[*place, NEAR]), *added])
        chained[*place, PARTS] = fewest([*found[*place, PARTS], *chained[*place, FAR]])
    # what is charged of loops is less where they may do much or little
    without, among = (
        alike([way.work for how, outer in PLACES if how in LOOPED for way in each[how, outer, FAR]])
        for each in (found, chained)
    )
    counts = bool(chains) and (among or not without)
    found = chained if counts else found
    for place in PLACES:
        found[*place, FARTHER] = fewest(_all(more, range(len(heavy)), place))
    like = layers.setdefault((bare, tuple(barred)), [])
    if like and (len(like) >= DEEP or _hardly_more(problem, like[-1], found)):
        # what is added for each layer would make all of them different
        found = {what: fewest([*like[-1][what], *ways]) for what, ways in found.items()}
    like.append(found)
    return found, counts


def _hardly_more(problem: Problem, one: Further, two: Further) -> bool:
    """Whether what takes least of ``two`` takes hardly longer than what does of ``one``, at each place, as if the machine were full."""

    def least(ways: Sequence[Once]) -> float:
        return min((problem.model.seconds(way.work) for way in ways), default=float("inf"))

    more = LITTLE * problem.model.hardware.launch
    return all(least(two[what]) <= least(ways) + more for what, ways in one.items())


def _all(
    ways: Mapping[tuple[int, How, bool], Sequence[Once]], numbers: Iterable[int], place: tuple[How, bool]
) -> list[Once]:
    return [way for number in numbers for way in ways[number, *place]]


def _unread(way: Once) -> Once:
    """With all that it reads before."""
    return way._replace(work=replace(way.work, bytes_read=0.0), before=way.work.bytes_read)


def _least(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Those that hold no other."""
    found = list(sets)
    return [names for names in found if not any(other < names for other in found)]


def done_in(before: Before, tiled: bool) -> list[Work]:
    """What :func:`before_at` found, of kernels that tile a product, or of loops."""
    numbers = [number for number, how in enumerate(HOWS) if (how not in LOOPED) == tiled]
    return [way.work for ways in before.values() for number in numbers for way in ways[number]]


def alike(works: Sequence[Work]) -> bool:
    """Whether loops do about the same in all ways."""
    ops = [work.ops for work in works]
    return bool(ops) and max(ops) <= ALIKE * min(ops)


def worth_telling(
    problem: Problem, more: float, near: Iterable[Sequence[Once]], far: Iterable[Sequence[Once]]
) -> bool:
    """Whether it is worth to tell apart what a kernel does at two classes of what it is given: at some place, the one takes not much
    longer than to fill a buffer, and the other so many launches ``more``. As if the machine were full."""
    launch = problem.model.hardware.launch
    for ways, others in zip(near, far, strict=True):
        one, two = (
            min((problem.model.seconds(way.work) for way in each), default=float("inf"))
            for each in (ways, others)
        )
        if one <= NO_MORE * launch and two >= one + more * launch:
            return True
    return False
