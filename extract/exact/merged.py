"""Buffers that are taken as one because each is computed from the first with hardly any work: a product, what is added to it, its
softmax.

A class of them is filled by whatever fills one of them, and any of them is read from it. So a program that fills some of them has
a counterpart that costs no more: the first of those that are filled is. That is so whichever buffers are taken as one. What is
lost, a launch where two of them are filled and the work from one to the other, is little where a choice fills one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..choice import REDUCING, Key
from ..problem import Option, Problem
from .chains import plain_values
from .inside import INSIDE
from .mates import ELEMENTWISE


class Merging(NamedTuple):
    """Which buffers are taken as one: those that take no more than so many ``launches`` of a kernel from the first to the last;
    ``sums``: with reductions on the way, other than products."""

    launches: float
    sums: bool


MERGINGS = (Merging(0.02, False), Merging(0.1, True))
"""The fewest first: less is lost, and the search takes longer."""


class Merged(NamedTuple):
    """``first``: of each buffer that is taken with another, the first of its class. ``members``: of that first one, the buffers whose
    kernels are looked for; what fills another of the class fills one of these on the way, at the same axes."""

    first: dict[str, str]
    members: dict[str, tuple[str, ...]]


class _Value(NamedTuple):
    """``start``: what a value is computed from, by origin, in ``seconds`` at least beside that. ``on_the_way``: buffers of the class that
    are computed at the same axes wherever it is."""

    start: str
    seconds: float
    on_the_way: frozenset[str]


def merged(
    problem: Problem,
    options: Mapping[Key, Sequence[Option]],
    names: Collection[str],
    apart: Sequence[Collection[str]],
    how: Merging,
) -> Merged:
    """The buffers of ``names`` that are taken as one. No buffer of one of the sets ``apart`` is
    taken with one that is not of it."""
    view, plain = problem.view, plain_values(problem, options)
    filled: dict[str, list[str]] = {}
    for name in names:
        for way in view.buffers[name].ways:
            filled.setdefault(view.origin(way.root), []).append(name)
    values: dict[str, _Value] = {}
    first: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    classes: dict[object, str] = {}
    for key in problem.order:  # operands come first
        origin = view.origin(key[0])
        if key not in options or key in plain or key[1] or origin in values:
            continue
        value = _value(problem, options, plain, values, key, how)
        for name in filled.get(origin, ()):
            if {view.origin(way.root) for way in view.buffers[name].ways} != {origin}:
                continue
            what = value.start, tuple(name in each for each in apart)
            other = classes.setdefault(what, name)
            kept = members.setdefault(other, [])
            if other != name:
                first[name] = other
            if value.on_the_way.isdisjoint(kept):
                kept.append(name)
                value = value._replace(on_the_way=value.on_the_way | {name})
        values[origin] = value
    return Merged(first, {name: tuple(each) for name, each in members.items() if len(each) > 1})


def _value(
    problem: Problem,
    options: Mapping[Key, Sequence[Option]],
    plain: Collection[Key],
    values: Mapping[str, _Value],
    key: Key,
    how: Merging,
) -> _Value:
    view = problem.view
    itself = _Value(view.origin(key[0]), 0.0, frozenset())
    found: list[tuple[float, _Value]] = []
    for option in options[key]:
        if option.item is INSIDE or option.item.head in (REDUCING - {"Reduce"} if how.sums else REDUCING):
            return itself
        if option.item.head == "Read":
            continue
        operands = [child for child in option.children if child not in plain]
        below = [values.get(view.origin(child[0])) for child in operands]
        starts = {each.start if each else None for each in below}
        start = next(iter(starts)) if len(starts) == 1 else None
        if start is None:
            return itself
        passed = frozenset[str]()
        if option.item.head in ELEMENTWISE:
            alike = zip(operands, below, strict=True)
            passed = passed.union(
                *(
                    each.on_the_way
                    for child, each in alike
                    if each and view.free[child[0]] == view.free[key[0]]
                )
            )
        seconds = max(each.seconds for each in below if each)
        found.append((option.own, _Value(start, seconds, passed)))
    if not found or len({each.start for _, each in found}) > 1:
        return itself
    seconds = min(own for own, _ in found) + max(each.seconds for _, each in found)
    if seconds > how.launches * problem.model.hardware.launch:
        return itself
    passed = frozenset.intersection(*(each.on_the_way for _, each in found))
    return _Value(found[0][1].start, seconds, passed)
