"""What a kernel does at least that computes a value again, and which of several ways do the least."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from operator import le
from typing import NamedTuple, get_args

from ..choice import How
from ..cost.model import AMOUNTS, Work, amounts_of, work_of
from ..cost.schedule import Schedule

HOWS: tuple[How, ...] = get_args(How)
"""All kinds of kernels, as the work of their items is counted."""

WAYS = 60
"""To compute a value that are told apart: with some of two products, each tiled in one of two ways."""


Product = tuple[tuple[int, ...], ...]
"""What a product is told by, wherever it is computed: its extents, and those of the axes that it sums over. Others may be alike."""


class Once(NamedTuple):
    """A way to compute a value. ``work``: of a kernel, once, beside the last step. ``schedule``: by which its product runs, if it
    tiles one. ``before``, ``inputs``: bytes that it reads of buffers of earlier parts, and of inputs, as far as they are not in its
    work. ``again``: what of the work each further evaluation of the value does, for another reduction that binds its axes.
    ``plain``: no sum is computed. ``kept``: of which product it keeps rows (:data:`Product`), if of one."""

    work: Work = Work()
    schedule: Schedule | None = None
    before: float = 0.0
    inputs: float = 0.0
    again: Work = Work()
    plain: bool = True
    kept: Product | None = None


NO_WORK = Once()


Sums = tuple[tuple[int, tuple[float, ...]], ...]
"""Reductions by number, in order, each with the amounts of its own."""


class Way(NamedTuple):
    """A :class:`Once` as :func:`amounts_of_once` has it. ``sums``: reductions that it computes: two ways do those of both, whatever else
    they share."""

    schedule: Schedule | None
    plain: bool
    amounts: tuple[float, ...]
    kept: Product | None = None
    sums: Sums = ()


ONCE = len(AMOUNTS) + 2
"""Of what :func:`amounts_of_once` has, so many come before those of each further evaluation."""


def way_of(once: Once) -> Way:
    """Its amounts as one tuple."""
    return Way(once.schedule, once.plain, amounts_of_once(once), once.kept)


def once_of(way: Way) -> Once:
    """What :func:`way_of` was made of."""
    amounts, fields = way.amounts, len(AMOUNTS)
    work, again = _work(amounts[:fields]), _work(amounts[-fields:])
    before, inputs = amounts[fields : fields + 2]
    return Once(work, way.schedule, before, inputs, again, way.plain, way.kept)


def one_product(
    ways: Sequence[Once | Way], schedule: Schedule | None = None, kept: Product | None = None
) -> bool:
    """Whether a kernel that does all of these tiles one product at most, as it is if it tiles any, and keeps rows of no other
    (:func:`~tinyc.extract.choice.tiles`). ``schedule``, ``kept``: of one that is computed from them."""
    tiled, rows = {way.schedule for way in ways} - {None}, {way.kept for way in ways} - {None, kept}
    return len(tiled) <= (schedule is None) and len(rows) <= (kept is None)


def most(ways: Sequence[Way]) -> Way:
    """What a kernel does at least that does all of these, and may share what they do."""
    (schedule, plain, amounts, kept, sums), *others = ways
    if not others:
        return ways[0]
    for way in others:
        schedule, plain, kept = schedule or way.schedule, plain and way.plain, kept or way.kept
        every = united(sums, way.sums) if sums and way.sums else sums or way.sums
        amounts = tuple(map(max, amounts, way.amounts))
        if every not in (sums, way.sums):
            together = map(sum, zip(*(own for _, own in every), strict=True))
            amounts = tuple(map(max, amounts, together))
        sums = every
    return Way(schedule, plain, amounts, kept, sums)


def united(one: Sums, two: Sums) -> Sums:
    """What is in any of them: of one that is in both, with the least of each amount."""
    found = dict(one)
    for number, own in two:
        known = found.get(number, own)
        found[number] = own if known == own else tuple(map(min, known, own))
    return tuple(sorted(found.items()))


def _shared(one: Sums, two: Sums) -> Sums:
    """What is in both."""
    if one == two:
        return one
    other = dict(two)
    return tuple([(number, tuple(map(min, own, other[number]))) for number, own in one if number in other])


def fewest_ways(ways: Sequence[Way]) -> list[Way]:
    """A few ways of which each of these does no less than one, nor other reductions alone."""
    kept: list[Way] = []
    for way in sorted(ways, key=lambda way: way.amounts) if len(ways) > 1 else ways:
        schedule, plain, amounts, product, sums = way
        for place, other in enumerate(kept):
            alike = other[1] == plain and other[0] == schedule and other[3] in (None, product)
            if alike and all(map(le, other[2], amounts)):
                if other[4]:
                    kept[place] = other._replace(sums=_shared(other[4], sums))
                break
        else:
            kept.append(way)
    while len(kept) > WAYS:
        # those of one kind are the most alike
        pairs = enumerate(itertools.pairwise(kept))
        like = [place for place, (one, two) in pairs if _kind(one) == _kind(two)]
        place = like[-1] if like else len(kept) - 2
        kept[place : place + 2] = [_fewer(*kept[place : place + 2])]
    return kept


def _kind(way: Way) -> tuple[Schedule | None, bool, Product | None]:
    return way.schedule, way.plain, way.kept


def _fewer(one: Way, two: Way) -> Way:
    """No more than each does."""
    amounts = tuple(map(min, one.amounts, two.amounts))
    schedule = one.schedule if one.schedule == two.schedule else None
    product = one.kept if one.kept == two.kept else None
    return Way(schedule, one.plain and two.plain, amounts, product, _shared(one.sums, two.sums))


def fewest(ways: Iterable[Once]) -> tuple[Once, ...]:
    """A few ways of which each of these does no less than one."""
    return tuple(map(once_of, fewest_ways(list(map(way_of, ways)))))


def all_of(each: Sequence[Once]) -> Once:
    """What a kernel does at least that does all of these, and may share what they do."""
    schedule = next((one.schedule for one in each if one.schedule is not None), None)
    kept = next((one.kept for one in each if one.kept is not None), None)
    return merged_of(max, each, schedule)._replace(kept=kept)


def merged_of(
    choose: Callable[[Iterable[float]], float], ways: Sequence[Once], schedule: Schedule | None
) -> Once:
    """Of each amount the least or most of any of these."""
    work = of_fields(choose, [way.work for way in ways])
    again = of_fields(choose, [way.again for way in ways])
    plain = all(way.plain for way in ways)
    before, inputs = choose(way.before for way in ways), choose(way.inputs for way in ways)
    return Once(work, schedule, before, inputs, again, plain)


def amounts_of_once(way: Once) -> tuple[float, ...]:
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
