"""Domains of values as pieces (document 004 §4.2, §4.4): the box of the axes, cut in two by PAD and VALID (I-28).

What the inner box leaves of the whole is computed by isl's subtraction; each convex part of it is a piece.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence

from tinyc.ir import dims
from tinyc.ir.index import Affine, affine
from tinyc.ir.tiny import Dim

from .ranges import text

Constraints = tuple[tuple[str, ...], ...]
Bounds = Sequence[tuple[Dim, Dim]]
"""lo <= axis < hi, per axis."""


@functools.lru_cache(maxsize=4096)
def box(shape: tuple[Dim, ...]) -> Constraints:
    """``0 <= i < size`` for every axis. Pure, so the cache is only a matter of speed."""
    return bounded([(0, size) for size in shape])


def bounded(bounds: Bounds) -> Constraints:
    return tuple((f"{low}<=i{axis}", f"i{axis}<{high}") for axis, (low, high) in enumerate(bounds))


def split(
    shape: Sequence[Dim], inner: Bounds, symbols: Sequence[str]
) -> tuple[Constraints | None, list[Constraints]]:
    """The part of ``0 <= i < shape`` within ``inner``, None where it is empty, and the convex parts of the rest.

    isl sees only the axes that are cut. Raises NonAffine where it cannot hold a bound of theirs.
    """
    from .sets import Workspace

    uncut: dict[str, list[tuple[str, ...]]] = {}
    sizes, lows, highs = {}, [], []
    for number, (size, (low, high)) in enumerate(zip(shape, inner, strict=True)):
        name = f"i{number}"
        if _reaches(low, high, size):
            uncut[name] = [(f"0<={name}", f"{name}<{size}")]
        else:
            uncut[name], sizes[name] = [], size
            lows.append((low, name, False))
            highs.append((name, high, True))
    if not sizes:
        return box(tuple(shape)), []
    space = Workspace(symbols)
    whole = space.box(sizes)
    part = whole.intersect(space.points(whole.names, [*lows, *highs]))
    inside = [_conjunction(uncut, found) for found in part.constraints()]
    outside = sorted(_conjunction(uncut, found) for found in whole.subtract(part).constraints())
    return (inside[0] if inside else None), outside


def _reaches(low: Dim, high: Dim, size: Dim) -> bool:
    """Whether low <= i < high holds all along an axis, as far as that is evident."""
    below = isinstance(low, int) and low <= 0
    above = high == size or (isinstance(high, int) and isinstance(size, int) and high >= size)
    return below and above


def _conjunction(
    uncut: Mapping[str, list[tuple[str, ...]]], part: Sequence[tuple[Affine, bool]]
) -> Constraints:
    """``(lo<=i0, i0<hi)`` for each axis, then what bounds no single axis."""
    lows: dict[str, list[str]] = {name: [] for name in uncut}
    highs: dict[str, list[str]] = {name: [] for name in uncut}
    others: list[tuple[str, ...]] = []
    for index, equal in part:
        held = [(coef, atom) for coef, atom in index.terms if isinstance(atom, str) and atom in lows]
        if len(held) != 1:
            spelled = text(index)
            others.append((f"0<={spelled}", f"{spelled}<1") if equal else (f"0<={spelled}",))
            continue
        ((coef, name),) = held
        rest = index - affine(0, [(coef, name)])  # coef*name + rest >= 0
        if coef > 0 or equal:
            lows[name].append(_quotient(rest * (-1 if coef > 0 else 1), abs(coef), up=True) + f"<={name}")
        if coef < 0 or equal:
            high = _quotient(rest * (1 if coef < 0 else -1), abs(coef))
            highs[name].append(f"{name}<{dims.add(high, 1)}")
    pairs = (_pairs(sorted(lows[name]), sorted(highs[name])) + uncut[name] for name in uncut)
    return (*itertools.chain.from_iterable(pairs), *sorted(others))


def _pairs(lows: Sequence[str], highs: Sequence[str]) -> list[tuple[str, ...]]:
    return [(*lows[at : at + 1], *highs[at : at + 1]) for at in range(max(len(lows), len(highs)))]


def _quotient(index: Affine, den: int, up: bool = False) -> str:
    value = dims.parse(str(index + (den - 1 if up else 0)))
    return str(dims.floordiv(value, den))


def sides(constraint: str) -> tuple[str, str, bool]:
    """``left <= right`` or, with True, ``left < right``. Raises DimError where a text is neither."""
    left, strict, right = constraint.partition("<")
    if not strict or "<" in right:
        raise dims.DimError(f"{constraint!r} is neither 'a<=b' nor 'a<b'")
    return (left, right[1:], False) if right.startswith("=") else (left, right, True)


def ranges(constraints: Constraints, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """low <= name < high for every name that has such a pair, as :func:`bounded` writes it."""
    found: dict[str, tuple[str, str]] = {}
    for pair in constraints:
        if len(pair) == 2:
            low, name, loose = sides(pair[0])
            also, high, strict = sides(pair[1])
            if name == also and name in names and not loose and strict and name not in found:
                found[name] = low, high
    return found
