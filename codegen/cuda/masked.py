"""Tiles of scores that masks leave out: which of them a block has to walk over."""

from __future__ import annotations

from dataclasses import dataclass

from tinyc.ir.index import Affine

from ..gpu.attention import Attention
from ..gpu.operand import Group


def tiles_of_block(found: Attention) -> list[str]:
    """The tiles that have a score which is not -inf for some row of the block, as far as conditions on m and n alone say."""
    columns = found.tiles[1]
    first, last = "0", str(columns)
    for limit in found.limits:
        index, size = limit.index - limit.lo, limit.hi - limit.lo
        rows = _rows(found, index)
        if rows is None:
            continue
        for lowest, down, const in _bounds(found, rows, index, size):
            least, most = sorted((const, down * rows.furthest + const))
            if most <= 0 if lowest else least >= found.n.size:
                continue  # no block has a row that it says anything of
            number = _line(rows.first, down, const if lowest else const + found.tile[1] - 1)
            number = f"max({number}, 0)" if least < 0 else f"({number})"
            tile = f"{number} / {found.tile[1]}"
            if rows.known:
                tile = f"({rows.known} ? {tile} : {'0' if lowest else columns})"
            if lowest:
                first = f"max({first}, {tile})" if first != "0" else tile
            else:
                last = f"min({last}, {tile})"
    return [f"const int first = {first}, last = opaque({last});  // tiles of n"]


@dataclass(frozen=True)
class _Rows:
    """The rows of a block as a condition counts them, one after the other. ``first``: C++ of the first of them, at most
    ``furthest``. ``known``: C++ of whether they are so; "" where they always are. ``group``: the axes that count them."""

    group: Group
    first: str
    furthest: int
    known: str = ""


def _rows(found: Attention, index: Affine) -> _Rows | None:
    """None where no block has rows that ``index`` counts. Heads that share keys are axes of m outside of the one that it knows:
    then a block may begin in one head and end in the next."""
    rows, last = found.tile[0], found.m.axes[-1]
    if len(found.m.axes) == 1 or index.axes() & found.m.names != {last.name}:
        return _Rows(found.m, "m0", (found.tiles[0] - 1) * rows)
    if last.size < rows:
        return None
    first = f"m0 % {last.size}"
    known = f"{first} <= {last.size - rows}" if last.size % rows else ""
    return _Rows(Group((last,)), first, last.size - rows, known)


def _bounds(found: Attention, block: _Rows, index: Affine, size: int) -> list[tuple[bool, int, int]]:
    """Of n, for ``0 <= index < size`` at some row of the block: whether it is the lowest, or one more than the last; and it as
    a multiple of the block's first row and a constant."""
    if index.axes() - block.group.names - found.n.names:
        return []
    rows = Affine(0, tuple(term for term in index.terms if term[1] in block.group.names))
    columns = Affine(0, tuple(term for term in index.terms if term[1] in found.n.names))
    if len(rows.terms) + len(columns.terms) != len(index.terms):
        return []
    down, along = block.group.stride(rows), found.n.stride(columns)
    if down is None or along not in (1, -1):
        return []
    # the least and the most that the rows of the block add, the constant included
    least, most = sorted((index.const, index.const + down * (found.tile[0] - 1)))
    if along == -1:
        # n <= rows + const, n > rows + const - size
        return [(False, down, most + 1), (True, down, least - size + 1)]
    # n >= -(rows + const), n < size - (rows + const)
    return [(True, -down, -most), (False, -down, size - least)]


def _line(first: str, factor: int, const: int) -> str:
    """``factor`` * ``first`` + ``const``."""
    if factor == 0:
        return str(const)
    times = {1: first, -1: f"-({first})" if " " in first else f"-{first}"}.get(
        factor, f"{factor} * ({first})" if " " in first else f"{factor} * {first}"
    )
    return times + (f" {'+-'[const < 0]} {abs(const)}" if const else "")
