"""Tiles of scores that masks leave out: which of them a block has to walk over."""

from __future__ import annotations

from tinyc.ir.index import Affine

from ..gpu.attention import Attention


def tiles_of_block(found: Attention) -> list[str]:
    """The tiles that have a score which is not -inf for some row of the block, as far as conditions on m and n alone say."""
    rows, columns = found.tiles
    furthest = (rows - 1) * found.tile[0]
    first, last = "0", str(columns)
    for limit in found.limits:
        for lowest, down, const in _bounds(found, limit.index - limit.lo, limit.hi - limit.lo):
            least, most = sorted((const, down * furthest + const))
            if most <= 0 if lowest else least >= found.n.size:
                continue  # no block has a row that it says anything of
            number = _line(down, const if lowest else const + found.tile[1] - 1)
            number = f"max({number}, 0)" if least < 0 else f"({number})"
            if lowest:
                first = (
                    f"max({first}, {number} / {found.tile[1]})"
                    if first != "0"
                    else f"{number} / {found.tile[1]}"
                )
            else:
                last = f"min({last}, {number} / {found.tile[1]})"
    return [f"const int first = {first}, last = opaque({last});  // tiles of n"]


def _bounds(found: Attention, index: Affine, size: int) -> list[tuple[bool, int, int]]:
    """Of n, for ``0 <= index < size`` at some row of the block: whether it is the lowest, or one more than the last; and it as
    a multiple of m0 and a constant."""
    if index.axes() - found.m.names - found.n.names:
        return []
    rows = Affine(0, tuple(term for term in index.terms if term[1] in found.m.names))
    columns = Affine(0, tuple(term for term in index.terms if term[1] in found.n.names))
    if len(rows.terms) + len(columns.terms) != len(index.terms):
        return []
    down, along = found.m.stride(rows), found.n.stride(columns)
    if down is None or along not in (1, -1):
        return []
    # the least and the most that the rows of the block add, the constant included
    least, most = sorted((index.const, index.const + down * (found.tile[0] - 1)))
    if along == -1:
        # n <= rows + const, n > rows + const - size
        return [(False, down, most + 1), (True, down, least - size + 1)]
    # n >= -(rows + const), n < size - (rows + const)
    return [(True, -down, -most), (False, -down, size - least)]


def _line(factor: int, const: int) -> str:
    """``factor`` * m0 + ``const``."""
    if factor == 0:
        return str(const)
    times = {1: "m0", -1: "-m0"}.get(factor, f"{factor} * m0")
    return times + (f" {'+-'[const < 0]} {abs(const)}" if const else "")
