"""Where fusion must stop: reductions that may not be computed inside others (document 004 §6.7-6, §10.5).

A reduction whose results a later reduction runs over is computed once for a point of the output, and its row kept on
chip, or it is read from a buffer. So the row has to fit: its length is the product of the sizes of all axes of other
reductions on which the value depends. A streaming reduction needs its scores one at a time, and no row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tinyc.ir.dims import names as names_in
from tinyc.ir.index import axis as axis_index
from tinyc.ir.region import Reduce, Region, Stream, axis_sizes, free_axes
from tinyc.ir.tiny import Program

from .book import IndexBook, IndexInfo
from .bounds import Needs, Uses
from .derive import index_book
from .hints import CAPACITY, row_bytes
from .sets import TooComplex, Workspace

ITEM = 4
"""Bytes of a value that is kept between reductions: they accumulate in fp32 and i32."""

MAX_NESTING = 3
"""Reductions inside one another that may be fused: one more than the e-graph nests by default."""


def fused_fault(region: Region, capacity: int) -> str | None:
    """Why ``region`` may not be one kernel, in one sentence; None where it may.

    A Reduce that depends on axes of other Reduces needs a row of its values for every point of the output; the text
    names the let, the bytes of the row and ``capacity``, the bytes on chip.
    """
    sizes, kept = axis_sizes(region), kept_axes(region)
    for let in region.lets:
        row = kept[let.name]
        item = max(let.dtype.itemsize, ITEM)
        reduction = isinstance(let.value, Reduce | Stream)
        if not reduction or not row or row_bytes(sizes, row, item) <= capacity:
            continue
        needed = {name: _needed(region, let.name, name, sizes) for name in sorted(row)}
        size = math.prod(needed.values()) * item
        if size > capacity:
            return (
                f"{let.name} is reduced inside another reduction: one point of {region.name} needs its values for"
                f" {' x '.join(f'{name}={count}' for name, count in needed.items())}, {size} bytes, more than the"
                f" {capacity} bytes on chip; read it from a buffer"
            )
    return None


def kept_axes(region: Region) -> dict[str, frozenset[str]]:
    """For each let, the axes of Reduces along which one point of the output needs a row of it."""
    outer = {axis.name for axis in region.iters}
    for let in region.lets:
        if isinstance(let.value, Stream):
            outer |= {axis.name for axis in let.value.axes}
    return {name: axes - outer for name, axes in free_axes(region).items()}


def _needed(region: Region, let: str, name: str, sizes: Mapping[str, int]) -> int:
    """At how many points along axis ``name`` one point of the output needs ``let``, where guards leave out the others."""
    view = Needs(Uses(region), let)
    if name not in view.axes:
        return sizes[name]
    ws = Workspace()
    try:
        needed = view.points(ws.box({each: size for each, size in sizes.items() if each in view.axes}))
        if needed is None:
            return 0
        iters = [axis.name for axis in region.iters if axis.name in view.axes]
        first, second = [*iters, name], [*iters, f"{name}'"]
        near = needed.project(first)
        pairs = near.cylinder([*first, f"{name}'"])
        pairs = pairs.intersect(replace(near, names=tuple(second)).cylinder(pairs.names))
        distance = ws.access(pairs.names, "", (axis_index(f"{name}'") - axis_index(name),))
        found = distance.image(pairs).bounds("a0")
        return sizes[name] if found is None else found[1] + 1
    except TooComplex:
        return sizes[name]


def boundaries(
    program: Program,
    book: IndexBook | None = None,
    capacity: int = CAPACITY["cpu"],
    max_nesting: int = MAX_NESTING,
) -> tuple[str, ...]:
    """The ids of the REDUCE nodes that some consumer must read from a buffer, in document order.

    ``program`` has integer shapes. A node is listed where its value reaches another REDUCE through elementwise work and
    movement, possibly through further REDUCEs, such that a row of it has more than ``capacity`` bytes: the product of
    the sizes of the reduced axes along which it varies, four bytes each. Whatever is fused, a Region in which no
    listed node is computed inside another reduction has no :func:`fused_fault`.

    ``book``: the program's IndexBook, where it is there already. ``max_nesting``: reductions inside one another in one
    kernel; more are never fused.
    """
    book = index_book(program) if book is None else book
    reduces = [node.id for node in program.nodes if node.uop == "REDUCE"]
    bits = {id: 1 << number for number, id in enumerate(reduces)}
    reached: dict[str, dict[_Use, int]] = {}
    found = 0
    for node in program.nodes:
        info = book.values[node.id]
        here = reached[node.id] = {}
        for use, origins in _arriving(info, reached):
            row = use.row * math.prod(int(axis.size) for axis in info.reduced if axis.name in use.axes)
            inside = use.inside + bool(info.reduced)
            left = use.axes & {axis.name for axis in info.axes if axis.size != 1}
            if row * ITEM > capacity:
                found |= origins
            elif left and inside + 1 < max_nesting:
                key = _Use(left, inside, row)
                here[key] = here.get(key, 0) | origins
        wide = frozenset(axis.name for axis in info.axes if axis.size != 1)
        if node.id in bits and wide:
            key = _Use(wide, 0, 1)
            here[key] = here.get(key, 0) | bits[node.id]
    return tuple(id for id in reduces if found & bits[id])


class _Use(NamedTuple):
    """How a value depends on a reduction: along its own ``axes``, through ``inside`` other reductions, which have made a
    row of ``row`` values of it. The reductions that are used alike are kept together, as a bit set: in a deep model,
    whose residual stream holds them all, there are many reductions and few kinds of use."""

    axes: frozenset[str]
    inside: int
    row: int


def _arriving(info: IndexInfo, reached: Mapping[str, Mapping[_Use, int]]) -> Iterator[tuple[_Use, int]]:
    """The uses that reach a value through its operands, along its own axes and those that it reduces, and of which
    reductions."""
    for access in info.inputs:
        if not reached[access.value_id]:
            continue
        every = frozenset(axis.name for axis in (*info.axes, *info.reduced))
        along = {f"i{number}": names_in(entry) & every for number, entry in enumerate(access.map)}
        for use, origins in reached[access.value_id].items():
            # a map that has no text: along whatever axis there is
            axes = frozenset[str]().union(*(along.get(name, every) for name in use.axes))
            yield use._replace(axes=axes), origins
