"""Buffers that are taken as one because each is computed from the first with hardly any work: a product, what is added to it, its
softmax.

A class of them is filled by whatever fills one of them, and any of them is read from it. So a program that fills some of them has
a counterpart that costs no more: the first of those that are filled is. That is so whichever buffers are taken as one. What is
lost, a launch where two of them are filled and the work from one to the other, is little where a choice fills one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from ..choice import REDUCING, Key
from ..cost.model import points
from ..mates import ELEMENTWISE, squeezed
from ..problem import Option, Problem
from .chains import plain_values
from .inside import INSIDE


class Merging(NamedTuple):
    """Which buffers are taken as one: those that take no more than so many ``launches`` of a kernel from the first to the last;
    ``sums``: with reductions on the way, other than products."""

    launches: float
    sums: bool


MERGINGS = (Merging(0.02, False), Merging(0.1, True))
"""The fewest first: less is lost, and the search takes longer."""


class Merged(NamedTuple):
    """``first``: of each buffer that is taken with another, the first of its class. ``members``: of that first one, the buffers whose
    kernels are looked for; what fills another of the class fills one of these on the way, over the same points."""

    first: dict[str, str]
    members: dict[str, tuple[str, ...]]


class _Origin(NamedTuple):
    """``start``: what a value is computed from, by origin, in ``seconds`` at least beside that; or what has it together, where it is read
    at several places: halves of a head that turn one with the other. ``points``: that the value has; ``part``: where it has fewer
    than what it is computed from, the operand that is so."""

    start: Hashable
    seconds: float
    points: float
    part: str | None = None


def merged(
    problem: Problem,
    options: Mapping[Key, Sequence[Option]],
    names: Collection[str],
    apart: Sequence[Collection[str]],
    how: Merging,
) -> Merged:
    """The buffers of ``names`` that are taken as one. No buffer of one of the sets ``apart`` is taken with one that is not of it."""
    plain, roots = plain_values(problem, options), _roots(problem, names)
    origins = _origins(problem, options, plain, how)
    first: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    classes: dict[object, str] = {}
    place = problem.bit
    for name in sorted(names, key=lambda name: [place.get(key, 0) for key in roots[name]]):  # operands first
        starts = {
            each.start if each else None for each in (_of(problem, origins, key) for key in roots[name])
        }
        if len(starts) == 1 and None not in starts:
            first[name] = classes.setdefault((*starts, *(name in each for each in apart)), name)
    passed = _passed(problem, options, plain, roots, first)
    for name, other in first.items():
        kept = members.setdefault(other, [])
        shapes = _shapes(problem, name)
        before = frozenset.intersection(*(passed.get(key, frozenset()) for key in roots[name])) - {name}
        if not any(each in before and _shapes(problem, each) == shapes for each in kept):
            kept.append(name)
    return Merged(
        {name: other for name, other in first.items() if name != other},
        {name: tuple(each) for name, each in members.items() if len(each) > 1},
    )


def _roots(problem: Problem, names: Collection[str]) -> dict[str, list[Key]]:
    return {name: [(way.root, False) for way in problem.view.buffers[name].ways] for name in names}


def _shapes(problem: Problem, name: str) -> set[tuple[int, ...]]:
    """Kernels over the same are scheduled alike."""
    return {squeezed(way) for way in problem.view.buffers[name].ways}


def _of(problem: Problem, origins: Mapping[str, _Origin], key: Key) -> _Origin | None:
    return origins.get(problem.view.origin(key[0]))


def _origins(
    problem: Problem, options: Mapping[Key, Sequence[Option]], plain: Collection[Key], how: Merging
) -> dict[str, _Origin]:
    """Of each value, wherever it is needed, what it is computed from; itself where that is not one value, or takes too long."""
    most = how.launches * problem.model.hardware.launch
    barring = REDUCING - {"Reduce"} if how.sums else REDUCING
    found: dict[str, _Origin] = {}
    for key in problem.order:  # operands come first
        origin = problem.view.origin(key[0])
        if key not in options or key in plain or key[1] or origin in found:
            continue
        size = points(problem.view.free[key[0]])
        found[origin] = _Origin(origin, 0.0, size)
        ways = [each for each in options[key] if each.item is INSIDE or each.item.head != "Read"]
        children = [child for each in ways for child in each.children if child not in plain]
        known = [_of(problem, found, child) for child in children]
        if any(each.item is INSIDE or each.item.head in barring for each in ways) or None in known:
            continue
        reduced = any(each.item.head in REDUCING for each in ways)
        operands = [
            each._replace(part=child[0]) if size < each.points and not reduced else each
            for child, each in zip(children, known, strict=True)
            if each
        ]
        starts, parts = {each.start for each in operands}, {each.part for each in operands}
        if len(starts) == 1:
            (start,) = starts
            seconds = min(each.own for each in ways) + max(each.seconds for each in operands)
            if len(parts) > 1 and not how.sums:  # where more is taken as one, so is this
                found[origin] = _Origin((start, "parts"), 0.0, size)
            elif seconds <= most:
                found[origin] = _Origin(start, seconds, size, next(iter(parts)))
    return found


def _passed(
    problem: Problem,
    options: Mapping[Key, Sequence[Option]],
    plain: Collection[Key],
    roots: Mapping[str, Sequence[Key]],
    first: Mapping[str, str],
) -> dict[Key, frozenset[str]]:
    """Of each value, the buffers of which a value is computed on the way to it, however it is had: unless it is read from a buffer of
    its own class, which is filled then."""
    filling: dict[Key, set[str]] = {}
    for name in first:
        for root in roots[name]:
            filling.setdefault(root, set()).add(name)
    found: dict[Key, frozenset[str]] = {}
    for key in problem.order:  # operands come first
        if key not in options or key in plain:
            continue
        ways = [option for option in options[key] if option.item.head != "Read"]
        read = {first.get(str(each.item.payload[0])) for each in options[key] if each not in ways}
        below = [
            frozenset[str]().union(*(found.get(child, frozenset()) for child in option.children))
            if option.item.head in ELEMENTWISE
            else frozenset[str]()
            for option in ways
        ]
        every = frozenset.intersection(*below) if below else frozenset[str]()
        found[key] = frozenset(name for name in every if read <= {first[name]}) | filling.get(key, set())
    return found
