"""What a part is made of, without names: equal layers are equal parts, and are solved once (``solved.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..choice import How, Key
from ..cost.schedule import Schedule
from ..problem import Problem
from .inside import INSIDE, Kind
from .once import Once
from .part import Part
from .sources import Source


class GivenRow(NamedTuple):
    """What of :class:`~tinyc.extract.exact.inside.Beneath` a part asks of what it is given."""

    buffer: int
    sources: tuple[Source, ...]
    kinds: tuple[Kind, ...]
    once: tuple[tuple[tuple[int, int, How, bool], Sequence[Once]], ...]
    able: frozenset[tuple[int, frozenset[int]]]
    walks: frozenset[Schedule]
    chained: bool


def canonical(problem: Problem, part: Part) -> tuple[tuple[object, ...], tuple[Key, ...], tuple[str, ...]]:
    """What a part is made of, with numbers for names, and the keys and buffers in the order of the numbers: two parts
    with the same first are solved alike, where what they are given has the same prices."""
    view = problem.view
    keys = {key: number for number, key in enumerate(part.options)}
    buffers: dict[str, int] = {}
    for name in (*part.given, *part.made, *part.common):
        buffers.setdefault(name, len(buffers))
    rows: list[object] = [
        (
            len(part.given),
            len(part.made),
            len(part.common),
            part.inside_bytes,
        )
    ]
    rows += [tuple(keys[key] for key in part.targets.get(name, ())) for name in part.made]
    for key, options in part.options.items():
        row: list[object] = [
            key[1],
            tuple(sorted(view.free[key[0]])),
            key[0] in problem.stored,
            tuple(part.inside.get(key, {}).values()),
            part.fetched.get(key, 0.0),
            part.sums.get(key),
            key in part.inside_reads,
            key in part.twice,
            problem.read_beneath(key) if key in part.inside else None,
        ]
        for option in options:
            item = option.item
            payload: tuple[object, ...] = item.payload
            if item.head == "Read" and item is not INSIDE:
                payload = (buffers.setdefault(str(payload[0]), len(buffers)), *map(str, payload[1:]))
            operands = tuple(keys.get(child) for child in option.children)
            row.append((item.head, item.op, payload, operands, option.own, option.untiled))
        rows.append(tuple(row))
    for name, each in part.known.items():
        places = frozenset((keys[key], each.levels_of(key)) for key in each.able if key in keys)
        done = tuple(each.once.items())
        rows.append(GivenRow(buffers[name], each.sources, each.kinds, done, places, each.walks, each.chained))
    for each in part.groups.values():
        row = [
            buffers.setdefault(each.name, len(buffers)),
            each.sources,
            each.kinds,
            tuple(each.lacked.items()),
            each.both,
        ]
        for names in each.partial:  # sets: the order of names is that of their text
            known = sorted(names, key=lambda name: buffers.get(name, len(buffers)))
            row.append(tuple([buffers.setdefault(name, len(buffers)) for name in known]))
        rows.append(tuple(row))
    for name in list(buffers):
        buffer = view.buffers[name]
        ways = (
            tuple((way.shape, keys.get((way.root, False))) for way in buffer.ways)
            if name in part.buffers
            else ()
        )
        filled = buffer.arg is None, name in part.rooted
        rows.append((problem.works.bytes(buffer), *filled, buffer.shape, str(buffer.dtype), ways))
    return tuple(rows), tuple(keys), tuple(buffers)
