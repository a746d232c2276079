"""Values that a kernel computes again along another axis, such as the exponentials of a softmax: once under the sum,
once in the result. Where they are expensive, the first loop keeps them in a row of scratch memory for the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinyc.ir.index import axis
from tinyc.ir.region import Binary as BinaryValue
from tinyc.ir.region import Let, Read, Reduce, Region, Stream, Unary, Within, operands

EXPENSIVE = frozenset({"EXP2", "LOG2", "SIN", "SQRT", "RSQRT", "POW"})
"""Operations that cost more than storing their result and loading it again."""

ROW_LIMIT = 256 << 10
"""Largest row in bytes: beyond the nearer caches computing again is as good."""

_ANY = axis("*")


@dataclass(frozen=True)
class Row:
    """``kind``: equal for lets that are one function of ``axis`` and of the same other axes."""

    axis: str
    kind: int


@dataclass(frozen=True)
class Saved:
    """A row in scratch memory at byte ``offset``, one element per point of its axis."""

    offset: int


def rows(region: Region, free: Mapping[str, frozenset[str]], sizes: Mapping[str, int]) -> dict[str, Row]:
    """The expensive lets that are another let under a renaming of one axis."""
    lets = {let.name: let for let in region.lets}
    numbers: dict[object, int] = {}
    kinds: dict[tuple[str, str], int] = {}
    groups: dict[int, list[Row]] = {}
    members: dict[int, list[str]] = {}
    for let in region.lets:
        for name in sorted(free[let.name]):
            form = _form(let, name, kinds, free)
            kinds[let.name, name] = numbers.setdefault(form, len(numbers))
        value = let.value
        if isinstance(value, Unary | BinaryValue) and value.op in EXPENSIVE:
            for name in sorted(free[let.name]):
                rest = free[let.name] - {name}
                whole = numbers.setdefault((kinds[let.name, name], sizes[name], rest), len(numbers))
                groups.setdefault(whole, []).append(Row(name, whole))
                members.setdefault(whole, []).append(let.name)
    found: dict[str, Row] = {}
    for whole, names in members.items():
        if len(set(names)) > 1:
            for name, row in zip(names, groups[whole], strict=True):
                found.setdefault(name, row)
    return {name: row for name, row in found.items() if 4 * sizes[row.axis] <= ROW_LIMIT and name in lets}


def _form(
    let: Let, name: str, kinds: Mapping[tuple[str, str], int], free: Mapping[str, frozenset[str]]
) -> object:
    """What a let computes, with the axis ``name`` left open."""
    value = let.value
    parts = tuple(kinds[x, name] if name in free[x] else x for x in operands(value))
    match value:
        case Read(tensor, index_map):
            return "Read", tensor, tuple(index.substitute({name: _ANY}) for index in index_map)
        case Within(index, lo, hi):
            return "Within", index.substitute({name: _ANY}), lo, hi
        case Reduce() | Stream():
            return "Reduce", let.name  # binds axes of its own: equal to itself only
        case Unary(op, _) | BinaryValue(op, _, _):
            return op, let.dtype, parts
        case _:
            return type(value).__name__, let.dtype, parts
