"""Tiles of scores that masks leave out: which of them a block has to walk over."""

from __future__ import annotations

from dataclasses import dataclass

from tinyc.ir.index import Affine
from tinyc.ir.region import Within

from ..gpu.attention import Attention
from ..gpu.operand import Group


def tiles_of_block(found: Attention) -> list[str]:
    """The tiles that have a score which is not -inf for some row of the block, as far as conditions on m and n alone say."""
    columns = found.tiles[1]
    first, last = "0", str(columns)
    for bound in _binding(found):
        number = bound.text(0 if bound.lowest else found.tile[1] - 1)
        tile = f"{f'max({number}, 0)' if bound.least < 0 else f'({number})'} / {found.tile[1]}"
        if bound.rows.known:
            tile = f"({bound.rows.known} ? {tile} : {'0' if bound.lowest else columns})"
        if bound.lowest:
            first = f"max({first}, {tile})" if first != "0" else tile
        else:
            last = f"min({last}, {tile})"
    return [f"const int first = {first}, last = opaque({last});  // tiles of n"]


def whole_tile(found: Attention, tile: str) -> str | None:
    """C++ of whether no score of number ``tile`` is left out, for any row of the block; None where there is no such tile, or
    nobody can say."""
    if not found.limits or not found.plain or found.n.size % found.tile[1]:
        return None
    if any(_bounds_of(found, limit, True) is None for limit in found.limits):
        return None
    tests: list[str] = []
    for bound in _binding(found, every=True):
        if bound.rows.known and bound.rows.known not in tests:
            tests.insert(0, bound.rows.known)
        start = f"{tile} * {found.tile[1]}"
        number = bound.text(0)
        tests.append(f"{start} >= {number}" if bound.lowest else f"{start} + {found.tile[1]} <= {number}")
    return " && ".join(tests) or None


def longest_last(found: Attention) -> bool:
    """Whether a block walks the further the later its rows are, as where each sees what is before it."""
    binding = _binding(found)
    return any(not each.lowest and each.down > 0 for each in binding) and not any(
        each.lowest and each.down > 0 for each in binding
    )


@dataclass(frozen=True)
class _Bound:
    """Of n, in a block: its least value with a score (``lowest``), or one more than the last: ``down`` times the block's first row
    and ``const``. ``least``: of the bound, of all blocks."""

    lowest: bool
    rows: _Rows
    down: int
    const: int

    @property
    def least(self) -> int:
        return min(self.const, self.down * self.rows.furthest + self.const)

    @property
    def most(self) -> int:
        return max(self.const, self.down * self.rows.furthest + self.const)

    def text(self, more: int) -> str:
        return _line(self.rows.first, self.down, self.const + more)


def _binding(found: Attention, every: bool = False) -> list[_Bound]:
    """The bounds beyond which there are columns for some block."""
    bounds = [bound for limit in found.limits for bound in _bounds_of(found, limit, every) or ()]
    return [each for each in bounds if (each.most > 0 if each.lowest else each.least < found.n.size)]


def _bounds_of(found: Attention, limit: Within, every: bool) -> list[_Bound] | None:
    """Of the columns that some row of the block sees, or ``every`` row; None where nothing is known."""
    index, size = limit.index - limit.lo, limit.hi - limit.lo
    rows = _rows(found, index)
    if rows is None:
        return None
    bounds = _bounds(found, rows, index, size, every)
    return [_Bound(lowest, rows, down, const) for lowest, down, const in bounds] or None


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
    rows = found.tile[0]
    if len(found.m.axes) <= 1 or index.axes() & found.m.names != {found.m.axes[-1].name}:
        return _Rows(found.m, "m0", (found.tiles[0] - 1) * rows)
    last = found.m.axes[-1]
    if last.size < rows:
        return None
    first = f"m0 % {last.size}"
    known = f"{first} <= {last.size - rows}" if last.size % rows else ""
    return _Rows(Group((last,)), first, last.size - rows, known)


def _bounds(
    found: Attention, block: _Rows, index: Affine, size: int, every: bool
) -> list[tuple[bool, int, int]]:
    """Of n, for ``0 <= index < size`` at some row of the block, or ``every`` row: whether it is the lowest, or one more than the
    last; and it as a multiple of the block's first row and a constant."""
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
    least, most = sorted((index.const, index.const + down * (found.tile[0] - 1)), reverse=every)
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
