"""What a kernel does at least that computes a value again, and which of several ways do the least."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import le
from typing import NamedTuple, get_args

from ..choice import How
from ..cost.model import AMOUNTS, Work, amounts_of, work_of
from ..cost.schedule import Schedule

HOWS: tuple[How, ...] = get_args(How)
"""All kinds of kernels, as the work of their items is counted."""

WAYS = 20
"""To compute a value that are told apart: with some of two products, each tiled in one of two ways."""


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


NO_WORK = Once()


class Way(NamedTuple):
    """A :class:`Once` as :func:`amounts_of_once` has it."""

    schedule: Schedule | None
    plain: bool
    amounts: tuple[float, ...]


ONCE = len(AMOUNTS) + 2
"""Of what :func:`amounts_of_once` has, so many come before those of each further evaluation."""


def way_of(once: Once) -> Way:
    """Its amounts as one tuple."""
    return Way(once.schedule, once.plain, amounts_of_once(once))


def once_of(way: Way) -> Once:
    """What :func:`way_of` was made of."""
    amounts, fields = way.amounts, len(AMOUNTS)
    work, again = _work(amounts[:fields]), _work(amounts[-fields:])
    before, inputs = amounts[fields : fields + 2]
    return Once(work, way.schedule, before, inputs, again, way.plain)


def one_product(ways: Iterable[Once | Way], schedule: Schedule | None = None) -> bool:
    """Whether a kernel that does all of these tiles one product at most, as it is if it tiles any
    (:func:`~tinyc.extract.choice.tiles`). ``schedule``: of one that is computed from them."""
    tiled = {way.schedule for way in ways} - {None}
    return len(tiled) <= (schedule is None)


def most(ways: Sequence[Way]) -> Way:
    """What a kernel does at least that does all of these, and may share what they do."""
    (schedule, plain, amounts), *others = ways
    if not others:
        return ways[0]
    for way in others:
        schedule, plain = schedule or way.schedule, plain and way.plain
        amounts = tuple([b if a < b else a for a, b in zip(amounts, way.amounts, strict=True)])
    return Way(schedule, plain, amounts)


def fewest_ways(ways: Sequence[Way]) -> list[Way]:
    """A few ways of which each of these does no less than one."""
    kept: list[Way] = []
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
        kept.append(Way(schedule, one.plain and two.plain, tuple(map(min, one.amounts, two.amounts))))
    return kept


def fewest(ways: Iterable[Once]) -> tuple[Once, ...]:
    """A few ways of which each of these does no less than one."""
    return tuple(map(once_of, fewest_ways(list(map(way_of, ways)))))


def all_of(each: Sequence[Once]) -> Once:
    """What a kernel does at least that does all of these, and may share what they do."""
    return merged_of(max, each, next((one.schedule for one in each if one.schedule is not None), None))


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
