"""The values beneath what a part makes, and how each may be had: what several tables (``tables.py``) of them have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..choice import How, Key, bound_axes, outside
from ..cost.model import Work
from ..problem import Option, Problem
from ..view import LEVEL, axis_extent, axis_id
from .once import HOWS, of_fields


class _Framed(NamedTuple):
    """An option as all tables of the same values have it. ``works``: None in a kind of kernel that does not hold it. ``others``: its
    operands that are none of them. ``below``, ``only``: see ``_Step`` of ``tables.py``."""

    option: Option
    works: tuple[Work | None, ...]
    others: tuple[Key, ...] = ()
    below: tuple[tuple[int, bool], ...] = ()
    only: tuple[frozenset[int], ...] = ()


class Frame(NamedTuple):
    """What several tables of the same values have in common. ``names``: sets of buffers that are barred one after the other; ``first``:
    of each of these buffers, the number of its set."""

    keys: Sequence[Key]
    made: frozenset[Key]
    names: Sequence[Collection[str]]
    first: Mapping[str, int]
    options: Sequence[Sequence[_Framed]]


def frame_of(
    problem: Problem, keys: Sequence[Key], made: frozenset[Key], names: Sequence[Collection[str]]
) -> Frame:
    """``keys``: operands first. ``made``: those that are looked at."""
    place = {key: number for number, key in enumerate(keys)}
    outputs = {frozenset(_outputs(problem, key)) for key in made}
    first: dict[str, int] = {}
    for number, each in enumerate(names):
        for name in each:
            first.setdefault(name, number)
    found: list[list[_Framed]] = []
    for number, key in enumerate(keys):
        framed: list[_Framed] = []
        own = frozenset(_outputs(problem, key))
        shapes = list(dict.fromkeys(_shape(each) for each in outputs if own <= each))
        for option in problem.options[key]:
            works = tuple(
                [
                    _work(problem, key, option, how, shapes) if _holds(problem, key, option, how) else None
                    for how in HOWS
                ]
            )
            if option.item.head == "Read":
                framed.append(_Framed(option, works))
                continue
            inner = [child for child in option.children if child in place]
            framed.append(
                _Framed(
                    option,
                    works,
                    tuple([child for child in option.children if child not in place]),
                    # of a circle, what comes later is taken for computed
                    tuple(
                        [
                            (place[child], _again(problem, key, option, child))
                            for child in inner
                            if place[child] < number
                        ]
                    ),
                    tuple(
                        [
                            sets
                            for child in dict.fromkeys(option.children)
                            if (sets := _only(problem, child, first, len(names))) is not None
                        ]
                    ),
                )
            )
        found.append(framed)
    return Frame(keys, made, names, first, found)


def _holds(problem: Problem, key: Key, option: Option, how: How) -> bool:
    """Whether a kernel may hold an option that is of a kind. Of a scan, the only sum is of the scores (``cases.py``), and one that matrix
    units walk is a Contract (``scope.py``)."""
    if how != "scanned" or option.item.head not in ("Reduce", "Contract"):
        return True
    if outside(problem.view.free[key[0]]):
        return False
    contracts = any(other.item.head == "Contract" for other in problem.options[key])
    return problem.tiling is None or option.item.head == "Contract" or not contracts


def _outputs(problem: Problem, key: Key) -> Iterator[str]:
    """The axes of a value that are a kernel's output axes."""
    return (axis for axis in problem.view.free[key[0]] if axis_id(axis) < LEVEL)


def _shape(axes: Collection[str]) -> tuple[int, ...] | None:
    """What a kernel fills that has these output axes and no others; None where that has more."""
    ordered = sorted(axes, key=axis_id)
    if [axis_id(axis) for axis in ordered] != list(range(len(ordered))):
        return None
    return tuple(map(axis_extent, ordered))


def _work(
    problem: Problem, key: Key, option: Option, how: How, shapes: Sequence[tuple[int, ...] | None]
) -> Work:
    """What an option does at least in a kernel that has one of these output axes, and may have more: it does no less for these."""
    least = problem.works.work(key, option.item, how)
    if not shapes or None in shapes or not problem.works.shaped(option.item, how):
        return least
    found = [problem.works.work(key, option.item, how, shape) for shape in shapes]
    return found[0] if len(found) == 1 else replace(of_fields(min, found), schedule=least.schedule)


def _again(problem: Problem, key: Key, option: Option, child: Key) -> bool:
    """Whether a kernel evaluates an operand wherever it evaluates the value: once for each reduction that binds its axes."""
    own, bound = problem.view.free[child[0]], frozenset(bound_axes(option.item))
    inner = {axis for axis in problem.view.free[key[0]] if axis_id(axis) >= LEVEL}
    return not bound.isdisjoint(own) or inner <= own


def _only(problem: Problem, key: Key, first: Mapping[str, int], last: int) -> frozenset[int] | None:
    """The sets of names from which a value is read that can only be read; None where it may be had in another way."""
    options = problem.options[key]
    if any(option.item.head != "Read" for option in options):
        return None
    sets = frozenset(first.get(str(option.item.payload[0]), last) for option in options)
    return None if last in sets else sets
