"""The last layers of a program as ones of those before them: less comes after them, so what is known of these holds for them too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ..choice import Key
from ..problem import Option, Problem
from .canonical import GivenRow, canonical
from .inside import INSIDE
from .once import fewest
from .part import Part


class Ending(NamedTuple):
    """A part as another, of which it is what :func:`ended` says. ``like``: the place of that one; ``keys``, ``buffers``: of this part, by
    the numbers that they have in that one (:func:`canonical`)."""

    like: int
    keys: dict[int, Key]
    buffers: dict[int, str]


def ended(problem: Problem, part: Part, targets: Mapping[str, tuple[Key, ...]]) -> Part:
    """What of a part is needed where only these of its ``targets`` are; of what it makes and has none, the buffer is filled."""
    options: dict[Key, tuple[Option, ...]] = {}
    buffers: dict[str, None] = {}
    stack, waiting = [key for keys in targets.values() for key in keys], list(part.made)
    while stack or waiting:  # in the order in which parts are made
        if not stack:
            name = waiting.pop()
            if name in part.buffers and name not in buffers:
                buffers[name] = None
                stack += [(way.root, False) for way in problem.view.buffers[name].ways]
            continue
        key = stack.pop()
        if key in options or key not in part.options:
            continue
        options[key] = tuple(part.options[key])
        for option in options[key]:
            stack += option.children
            if option.item.head == "Read" and option.item is not INSIDE:
                waiting.append(str(option.item.payload[0]))
    return replace(
        part,
        options=options,
        targets=targets,
        buffers=tuple(buffers),
        inside={key: each for key, each in part.inside.items() if key in options},
        inside_reads=part.inside_reads & options.keys(),
        groups={name: each for name, each in part.groups.items() if name in targets},
        rooted=part.rooted & buffers.keys(),
        fetched={key: each for key, each in part.fetched.items() if key in options},
        sums={key: each for key, each in part.sums.items() if key in options},
        twice=part.twice & options.keys(),
    )


def _no_more(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether the first form is the other, or no more is known of what kernels do at least for what the part is given."""
    return len(one) == len(other) and all(
        row == more or (isinstance(row, GivenRow) and isinstance(more, GivenRow) and _as_much(row, more))
        for row, more in zip(one, other, strict=True)
    )


def _as_much(one: GivenRow, other: GivenRow) -> bool:
    """The same of one buffer: each way of the other does no less than one here."""
    ways, others = dict(one.once), dict(other.once)
    return (
        one._replace(once=()) == other._replace(once=())
        and ways.keys() == others.keys()
        and all(set(fewest([*ways[what], *others[what]])) == set(ways[what]) for what in ways)
    )


def ending(problem: Problem, last: Part, others: Iterable[tuple[int, Part]]) -> Ending | None:
    """``last`` as one of the ``others``, each with its place; None where it is like none of them. Of what it is given, less may be known
    there: what is found then is a bound for it too."""
    free = problem.view.free
    form, keys, buffers = canonical(problem, last)
    for place, part in others:
        if len(part.made) != len(last.made) or len(part.options) < len(last.options):
            continue
        # a place where a value is computed is told by its axes
        axes = [{free[key[0]] for key in last.targets.get(name, ())} for name in last.made]
        targets = {
            name: tuple([key for key in part.targets.get(name, ()) if free[key[0]] in each])
            for name, each in zip(part.made, axes, strict=True)
            if each
        }
        as_last, own_keys, own_buffers = canonical(problem, ended(problem, part, targets))
        if _no_more(as_last, form):
            _, every_key, every_buffer = canonical(problem, part)
            number = {key: each for each, key in enumerate(every_key)}
            which = {name: each for each, name in enumerate(every_buffer)}
            return Ending(
                place,
                {number[own]: key for own, key in zip(own_keys, keys, strict=True)},
                {which[own]: name for own, name in zip(own_buffers, buffers, strict=True)},
            )
    return None
