"""Index expressions made shorter by what is known of their axes: ``(4*i0+i1)//4`` is ``i0`` where ``i1 < 4``.

``sizes`` maps every axis to its size, an integer or an expression over symbols; any other name is a symbol, at least
1. What is not known is not assumed: a bound is None there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from tinyc.ir import dims
from tinyc.ir.index import Affine, FloorDiv, affine, lit
from tinyc.ir.tiny import Dim

Sizes = Mapping[str, Dim]
Interval = tuple[int | None, int | None]


def interval(index: Affine, sizes: Sizes) -> Interval:
    """Inclusive bounds of ``index``; each is met by an interval analysis, not always by a point."""
    low, high = _sum(index, sizes)
    for coef, atom in index.terms:
        if isinstance(atom, FloorDiv) and coef < 0 and (found := _remainder(index, -coef, atom, sizes)):
            low, high = _meet((low, high), found)
    return low, high


def _sum(index: Affine, sizes: Sizes) -> Interval:
    low: int | None = index.const
    high: int | None = index.const
    for coef, atom in index.terms:
        first, last = _atom(atom, sizes)
        if coef < 0:
            first, last = last, first
        low = None if low is None or first is None else low + coef * first
        high = None if high is None or last is None else high + coef * last
    return low, high


def _atom(atom: str | FloorDiv, sizes: Sizes) -> Interval:
    if isinstance(atom, FloorDiv):
        first, last = interval(atom.num, sizes)
        return (None if first is None else first // atom.den, None if last is None else last // atom.den)
    if atom not in sizes:
        return 1, None
    most = dims.at_most(sizes[atom])
    return 0, None if most is None else most - 1


def _remainder(index: Affine, factor: int, floor: FloorDiv, sizes: Sizes) -> Interval | None:
    """Bounds of ``k*(E - n*(E//n)) + rest``, where ``factor`` is k*n and ``floor`` is E//n: the first part lies in
    0 to k*(n-1). E is the numerator of ``floor``, or a floor division of it that ``index`` also holds."""
    shares: list[tuple[int, Affine]] = []
    if factor % floor.den == 0:
        shares.append((floor.den, floor.num))
    for coef, atom in index.terms:
        if isinstance(atom, FloorDiv) and atom.num == floor.num and coef > 0 and factor % coef == 0:
            step = factor // coef
            if atom.den * step == floor.den:
                shares.append((step, affine(0, [(1, atom)])))
    found: Interval | None = None
    for step, whole in shares:
        times = factor // step
        rest = index + affine(0, [(factor, floor)]) - whole * times
        if len(rest.terms) >= len(index.terms):
            continue
        low, high = _sum(rest, sizes)
        part = (low, None if high is None else high + times * (step - 1))
        found = part if found is None else _meet(found, part)
    return found


def _meet(one: Interval, two: Interval) -> Interval:
    lows = [low for low in (one[0], two[0]) if low is not None]
    highs = [high for high in (one[1], two[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def simplify(index: Affine, sizes: Sizes) -> Affine:
    """The same value at every point of ``sizes``; axes of size 1 are 0."""
    if (name := plain(index)) is not None:
        return lit(0) if sizes.get(name) == 1 else index
    total = lit(index.const)
    for coef, atom in index.terms:
        if isinstance(atom, FloorDiv):
            part = divide(simplify(atom.num, sizes), atom.den, sizes)
        elif sizes.get(atom) == 1:
            continue
        else:
            part = affine(0, [(1, atom)])
        total = total + part * coef
    return total


def plain(index: Affine) -> str | None:
    """The name where ``index`` is one axis or symbol and nothing else."""
    if index.const or len(index.terms) != 1:
        return None
    coef, atom = index.terms[0]
    return atom if coef == 1 and isinstance(atom, str) else None


def put(index: Affine, values: Mapping[str, Affine]) -> Affine:
    """``index`` with each axis in ``values`` replaced."""
    name = plain(index)
    return index.substitute(values) if name is None else values.get(name, index)


def divide(num: Affine, den: int, sizes: Sizes) -> Affine:
    """floor(num / den) for den >= 1: multiples of ``den`` leave the division, and what is too small to matter goes."""
    if den == 1:
        return num
    whole = affine(0, [(coef // den, atom) for coef, atom in num.terms if coef % den == 0])
    rest = affine(num.const, [(coef, atom) for coef, atom in num.terms if coef % den])
    if not rest.terms:
        return whole + rest.const // den
    for common in (den, *_divisors(rest, den)):
        coarse = [(coef // common, atom) for coef, atom in rest.terms if coef % common == 0]
        fine = affine(rest.const, [(coef, atom) for coef, atom in rest.terms if coef % common])
        low, high = interval(fine, sizes)
        if low is not None and high is not None and low // common == high // common:
            return whole + divide(affine(low // common, coarse), den // common, sizes)
    reduced = affine(rest.const % den, [(coef % den, atom) for coef, atom in rest.terms])
    if reduced != rest:
        left = affine(rest.const // den, [(coef // den, atom) for coef, atom in rest.terms])
        return whole + left + divide(reduced, den, sizes)
    coef, atom = rest.terms[0]
    if isinstance(atom, FloorDiv) and coef == 1 and len(rest.terms) == 1:
        return whole + divide(atom.num + rest.const * atom.den, atom.den * den, sizes)
    return whole + affine(0, [(1, FloorDiv(rest, den))])


def _divisors(index: Affine, den: int) -> list[int]:
    """Common divisors of ``den`` and some of the coefficients, greatest first, without 1 and ``den``."""
    found: set[int] = set()
    for coef, _ in index.terms:
        found |= {math.gcd(coef, other) for other in (*found, den)}
    return sorted(found - {1, den}, reverse=True)


def operations(index: Affine) -> int:
    """How long an expression is: its terms, constants and divisions, nested ones too."""
    inner = sum(operations(atom.num) + 1 for _, atom in index.terms if isinstance(atom, FloorDiv))
    return len(index.terms) + inner + (index.const != 0)


@functools.lru_cache(maxsize=4096)
def text(index: Affine) -> str:
    """In the notation and normal form of ``tinyc.ir.dims``. Pure, so the cache is only a matter of speed."""
    return plain(index) or str(dims.from_affine(index))


@functools.lru_cache(maxsize=4096)
def whole_affine(value: Dim) -> Affine | None:
    """The Affine of a size or an index; None where it multiplies two names. Pure, as ``text`` is."""
    try:
        return lit(value) if isinstance(value, int) else dims.to_affine(value)
    except dims.DimError:
        return None
