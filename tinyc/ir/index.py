"""Index expressions: affine combinations of axes, with floor division; ``%`` never appears (document 004 §4.2).

An :class:`Affine` is ``const + sum(coef * atom)``; an atom is an axis name or a :class:`FloorDiv`. Terms are
sorted and merged on construction, so two Affines that compare equal are the same polynomial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """floor(num / den), den > 0."""

    num: Affine
    den: int

    def __str__(self) -> str:
        return f"({self.num})//{self.den}"


Atom = str | FloorDiv


@dataclass(frozen=True, slots=True)
class Affine:
    """``const + sum(coef * atom)``. Build with :func:`affine`, :func:`axis`, :func:`lit` and the operators."""

    const: int = 0
    terms: tuple[tuple[int, Atom], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        right = lit(other) if isinstance(other, int) else other
        return affine(self.const + right.const, (*self.terms, *right.terms))

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-1 * lit(other) if isinstance(other, int) else -1 * other)

    def __mul__(self, factor: int) -> Affine:
        return affine(self.const * factor, ((coef * factor, atom) for coef, atom in self.terms))

    __rmul__ = __mul__

    def __floordiv__(self, den: int) -> Affine:
        if not self.terms:
            return lit(self.const // den)
        if den == 1:
            return self
        return affine(0, ((1, FloorDiv(self, den)),))

    def axes(self) -> frozenset[str]:
        """The names of all axes that occur, inside floor divisions too."""
        found: set[str] = set()
        for _, atom in self.terms:
            found |= {atom} if isinstance(atom, str) else atom.num.axes()
        return frozenset(found)

    def substitute(self, values: Mapping[str, Affine]) -> Affine:
        """Each axis in ``values`` replaced; the others stay."""
        result = lit(self.const)
        for coef, atom in self.terms:
            if isinstance(atom, str):
                part = values.get(atom, axis(atom))
            else:
                part = atom.num.substitute(values) // atom.den
            result = result + part * coef
        return result

    def evaluate(self, values: Mapping[str, int]) -> int:
        total = self.const
        for coef, atom in self.terms:
            inner = values[atom] if isinstance(atom, str) else atom.num.evaluate(values) // atom.den
            total += coef * inner
        return total

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Inclusive interval of the value when each axis runs over ``0 <= axis < sizes[axis]``."""
        low = high = self.const
        for coef, atom in self.terms:
            if isinstance(atom, str):
                first, last = 0, sizes[atom] - 1
            else:
                first, last = (bound // atom.den for bound in atom.num.bounds(sizes))
            low += min(coef * first, coef * last)
            high += max(coef * first, coef * last)
        return low, high

    def __str__(self) -> str:
        parts: list[str] = []
        for coef, atom in self.terms:
            text = str(atom)
            sign = "-" if coef < 0 else "+"
            if isinstance(atom, FloorDiv) and coef != 1:
                text = f"({text})"  # 2*(i0)//3 would read as (2*i0)//3
            body = text if abs(coef) == 1 else f"{abs(coef)}*{text}"
            parts.append(f"{sign}{body}")
        if self.const or not parts:
            parts.append(f"{self.const:+d}")
        return "".join(parts).removeprefix("+")


def affine(const: int, terms: Iterable[tuple[int, Atom]]) -> Affine:
    """Merges equal atoms, drops zero coefficients and sorts: axes by name length then name, divisions last."""
    merged: dict[Atom, int] = {}
    for coef, atom in terms:
        merged[atom] = merged.get(atom, 0) + coef
    kept = ((coef, atom) for atom, coef in merged.items() if coef)
    return Affine(const, tuple(sorted(kept, key=lambda term: _order(term[1]))))


def axis(name: str) -> Affine:
    return Affine(0, ((1, name),))


def lit(value: int) -> Affine:
    return Affine(value, ())


def _order(atom: Atom) -> tuple[int, int, str]:
    text = str(atom)
    return (int(isinstance(atom, FloorDiv)), len(text), text)
