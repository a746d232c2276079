"""Where the tiles of a contraction's operand come from: a Read of a buffer, what guards it, and how wide it can be copied.

The position of an element is split into what depends on the batch, on the rows (the operand's own axes, m or n) and on the depth
(k), so that each part is computed where it is known: once per block, once per row, once per tile. An operand that cannot be split so,
or whose neighbours in the tile are not neighbours in memory, is loaded element by element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, FloorDiv, affine, lit
from tinyc.ir.region import Axis, Cast, Let, MemRef, Read, Select, Unary, Within
from tinyc.ir.tiny import ROUNDED

ACCESS = (16, 8, 4)
"""Bytes that one asynchronous copy may move (PTX ISA, cp.async)."""

Along = Literal["rows", "depth"]


@dataclass(frozen=True)
class Group:
    """Axes that are walked as one, the last of them fastest."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        return math.prod(item.size for item in self.axes)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(item.name for item in self.axes)

    def stride(self, position: Affine) -> int | None:
        """What ``position``, which depends on no other axes, grows by with each step of the group; None where that varies."""
        coefficients = {atom: coef for coef, atom in position.terms}
        if any(isinstance(atom, FloorDiv) for atom in coefficients):
            return None
        step = unit = 0
        for number, item in enumerate(reversed(self.axes)):
            coef = coefficients.get(item.name, 0)
            if number == 0:
                step, unit = coef, coef * item.size
            elif coef != unit:
                return None
            else:
                unit *= item.size
        return step

    def run(self, position: Affine, stop: frozenset[str]) -> tuple[int, Affine]:
        """Steps of the group, from a multiple of their number on, in which ``position`` grows by one each time, and what of the
        position does not change then. Axes of ``stop`` are not walked."""
        steps, rest = 1, position
        for item in reversed(self.axes):
            less = rest - affine(0, ((steps, item.name),))
            if item.name in less.axes() | stop:
                break
            steps, rest = steps * item.size, less
        return steps, rest


@dataclass(frozen=True)
class Guard:
    """``0 <= rows + depth + batch + const < size``; else the element is zero."""

    batch: Affine
    rows: Affine
    depth: Affine
    size: int


@dataclass(frozen=True)
class Operand:
    """One operand of a contraction.

    ``read``: of buffer ``ref``, the ``number``-th input. ``rows``, ``depth``: its own axes and the summed ones, in the order in
    which tiles walk them. ``along``: which of the two its tile lies along in shared memory. ``bytes``: of one copy, 0 where
    elements are loaded one by one. ``batch``, ``row``, ``deep``: the parts of an element's position (None, and no ``guards``, where it
    cannot be split). ``conditions``: what guards it, as the Region has it.
    """

    read: Read
    ref: MemRef
    number: int
    rows: Group
    depth: Group
    along: Along
    bytes: int
    batch: Affine | None
    row: Affine | None
    deep: Affine | None
    guards: tuple[Guard, ...]
    conditions: tuple[Within, ...]

    @property
    def dtype(self) -> DType:
        return self.ref.dtype

    @property
    def elements(self) -> int:
        """Of one copy."""
        return max(1, self.bytes // self.dtype.itemsize)


@dataclass(frozen=True)
class Source:
    """A Read behind guards and widening casts, by the buffer that it reads. ``rounded``: to tf32 in the end."""

    read: Read
    ref: MemRef
    number: int
    conditions: tuple[Within, ...]
    rounded: bool = False


def source_of(lets: Mapping[str, Let], inputs: Sequence[MemRef], name: str) -> Source | None:
    """What the let ``name`` reads; None where it is more than a Read behind casts, and guards that give zero."""
    conditions: list[Within] = []
    rounded = False
    while True:
        value = lets[name].value
        match value:
            case Unary(op, x) if op == ROUNDED and not conditions:
                name, rounded = x, True
            case Read(tensor, _):
                number = next(number for number, ref in enumerate(inputs) if ref.name == tensor)
                return Source(value, inputs[number], number, tuple(conditions), rounded)
            case Cast(x):
                name = x
            case Select(cond, then, other):
                test, zero = lets[cond].value, lets[other].value
                if not isinstance(test, Within) or getattr(zero, "bits", 1) != 0:
                    return None
                conditions.append(test)
                name = then
            case _:
                return None


def operand(source: Source, batch: Group, rows: Group, depth: Group, position: Affine) -> Operand:
    """``source`` as an operand whose tiles have ``rows`` and ``depth``. ``position``: of an element in its buffer."""
    split = _split(position, batch, rows, depth)
    conditions = (*source.conditions, *_beyond(source, batch, rows, depth))
    guards = tuple(_guard(each, batch, rows, depth) for each in conditions)
    along: Along = "rows" if _first(position, rows, depth) else "depth"
    if split is None or None in guards:
        return Operand(
            source.read,
            source.ref,
            source.number,
            rows,
            depth,
            along,
            0,
            None,
            None,
            None,
            (),
            conditions,
        )
    known = tuple(each for each in guards if each is not None)
    ways: dict[Along, tuple[Group, Affine]] = {"rows": (rows, split[1]), "depth": (depth, split[2])}
    best, width = along, 0
    for way in sorted(ways, key=lambda each: each != along):
        group, own = ways[way]
        varying = frozenset().union(*((each.rows if way == "rows" else each.depth).axes() for each in known))
        others = [part for part in split if part is not own]
        found = _width(source.ref, group, own, others, varying)
        if found > width:
            best, width = way, found
    return Operand(
        source.read, source.ref, source.number, rows, depth, best, width, *split, known, conditions
    )


def _beyond(source: Source, *groups: Group) -> list[Within]:
    """What keeps copies in the buffer where no condition of the operand's own does: one on the sum, of which there is none where it
    does not hold, such as on the rows of a result that is padded."""
    sizes = {item.name: item.size for group in groups for item in group.axes}
    found = []
    for index, size in zip(source.read.map, source.ref.shape, strict=True):
        low, high = index.bounds(sizes)
        guarded = any(each.index == index and each.lo >= 0 and each.hi <= size for each in source.conditions)
        if (low < 0 or high >= size) and not guarded:
            found.append(Within(index, 0, size))
    return found


def _first(position: Affine, rows: Group, depth: Group) -> bool:
    """Whether neighbours in memory are rows rather than depths."""
    steps = {atom: abs(coef) for coef, atom in position.terms if isinstance(atom, str)}
    least = {
        group: min((steps[name] for name in group.names if name in steps), default=math.inf)
        for group in (rows, depth)
    }
    return least[rows] < least[depth]


def _split(position: Affine, batch: Group, rows: Group, depth: Group) -> tuple[Affine, Affine, Affine] | None:
    """A part of ``position`` for each group, the constant in the first; None where a division has axes of several."""
    groups = (batch, rows, depth)
    parts = [lit(position.const), lit(0), lit(0)]
    for coef, atom in position.terms:
        axes = {atom} if isinstance(atom, str) else atom.num.axes()
        owners = [number for number, group in enumerate(groups) if axes & group.names]
        if len(owners) != 1:
            return None
        parts[owners[0]] = parts[owners[0]] + affine(0, ((coef, atom),))
    return parts[0], parts[1], parts[2]


def _guard(within: Within, batch: Group, rows: Group, depth: Group) -> Guard | None:
    split = _split(within.index - within.lo, batch, rows, depth)
    return None if split is None else Guard(*split, within.hi - within.lo)


def _width(ref: MemRef, group: Group, own: Affine, others: Sequence[Affine], varying: frozenset[str]) -> int:
    """Bytes of the widest copy along ``group``; 0 where one would be of a single element that is narrower than any copy.
    ``varying``: axes on which it depends whether there is an element; a copy is there as a whole or not at all."""
    size = ref.dtype.itemsize
    run, rest = group.run(own, varying)
    steps = [
        run,
        *(each for part in (rest, *others) for each in (part.const, *(coef for coef, _ in part.terms))),
    ]
    for width in ACCESS:
        count = width // size
        if width == size or (ref.alignment % width == 0 and all(step % count == 0 for step in steps)):
            return width
    return 0
