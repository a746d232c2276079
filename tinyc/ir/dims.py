"""Integer expressions over names: sizes (``"2*M+1"``) and the entries of a VIEW's map (``"2*i0+i1"``).

``+ - * //`` and parentheses over integers and names, read by a small parser with limits; no text of a user is
ever evaluated. Every expression has one normal form, a polynomial whose atoms are names and floor divisions
``p // d`` with 0 < coefficients of p < d. Two expressions that tinyc regards as equal have one and the same
canonical text, so sizes and shapes compare with ``==``.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .index import Affine, axis, lit
from .tiny import Dim

MAX_DEPTH = 32
MAX_TEXT = 2000
MAX_TERMS = 2048
MAX_DIGITS = 40


class DimError(ValueError):
    """An expression that cannot be read, or that grows beyond the limits. The message is for people."""


@dataclass(frozen=True, slots=True)
class Floor:
    """floor(num / den), den > 1."""

    num: Poly
    den: int


Factor = str | Floor
Monomial = tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Poly:
    """Sum of coefficient * product of factors; terms sorted, no coefficient is zero. Build with ``_poly``."""

    terms: tuple[tuple[Monomial, int], ...]

    def constant(self) -> int | None:
        """The value where it depends on no name."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None


# --- public: sizes -------------------------------------------------------------------------------------------


def parse(text: str) -> Dim:
    """The canonical Dim of an expression. Raises DimError."""
    return _dim(_read(text))


def substitute(dim: Dim, bindings: Mapping[str, Dim]) -> Dim:
    """``dim`` with each name in ``bindings`` replaced; other names stay. Raises DimError beyond the limits."""
    return dim if isinstance(dim, int) else _dim(_replace(_read(dim), bindings))


def names(dim: Dim) -> frozenset[str]:
    """The names that occur in ``dim``."""
    return frozenset() if isinstance(dim, int) else frozenset(_names(_read(dim)))


def add(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return _dim(_add(_of(left), _of(right)))


def sub(left: Dim, right: Dim) -> Dim:
    return add(left, mul(-1, right))


def mul(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return _dim(_mul(_of(left), _of(right)))


def floordiv(left: Dim, den: int) -> Dim:
    """floor(left / den), den >= 1."""
    return left // den if isinstance(left, int) else _dim(_floordiv(_of(left), den))


def ceildiv(left: Dim, den: int) -> Dim:
    return floordiv(add(left, den - 1), den)


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a shape, as a Dim."""
    total: Dim = 1
    for dim in dims:
        total = mul(total, dim)
    return total


def at_most(dim: Dim) -> int | None:
    """The largest value that ``dim`` takes when every name is at least 1; None where that is not evident."""
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coef in _of(dim).terms:
        if monomial and (coef > 0 or any(isinstance(factor, Floor) for factor in monomial)):
            return None
        total += coef
    return total


# --- public: the entries of a VIEW's map ---------------------------------------------------------------------

_AXIS = re.compile(r"i(0|[1-9][0-9]*)\Z")


def is_axis(name: str) -> bool:
    """True for i0, i1, …: names that are taken by the axes of a VIEW's result."""
    return _AXIS.match(name) is not None


def check_affine(text: str | int) -> None:
    """Raises DimError where two axes are multiplied (an axis times a symbol is fine: it becomes a number)."""

    def varies(factor: Factor) -> bool:
        if isinstance(factor, str):
            return is_axis(factor)
        return any(is_axis(name) for name in _names(factor.num))

    def check(poly: Poly) -> None:
        for monomial, _ in poly.terms:
            if sum(varies(factor) for factor in monomial) > 1:
                raise DimError(f"{_show_term(monomial, 1)!r} multiplies two axes")
            for factor in monomial:
                if isinstance(factor, Floor):
                    check(factor.num)

    check(_of(text))


def to_affine(text: str | int) -> Affine:
    """The Affine of an entry whose only names are axes. Raises DimError where a product of names is left."""
    return _affine(_of(text))


def from_affine(index: Affine) -> Dim:
    """The canonical expression of an Affine. Raises DimError beyond the limits."""
    return _dim(_of_affine(index))


# --- normal form ---------------------------------------------------------------------------------------------


def _poly(terms: Iterable[tuple[Monomial, int]]) -> Poly:
    merged: dict[Monomial, int] = {}
    for monomial, coef in terms:
        merged[monomial] = merged.get(monomial, 0) + coef
    if len(merged) > MAX_TERMS:
        raise DimError(f"an expression of more than {MAX_TERMS} terms")
    kept = [(monomial, coef) for monomial, coef in merged.items() if coef]
    return Poly(tuple(sorted(kept, key=lambda term: _order(term[0]))))


def _order(monomial: Monomial) -> tuple[int, tuple[tuple[int, str], ...]]:
    return (-len(monomial), tuple(_factor_order(factor) for factor in monomial))


def _factor_order(factor: Factor) -> tuple[int, str]:
    text = _show_factor(factor)
    return (len(text), text)


def _number(value: int) -> Poly:
    return Poly((((), value),) if value else ())


def _add(left: Poly, right: Poly) -> Poly:
    return _poly((*left.terms, *right.terms))


def _mul(left: Poly, right: Poly) -> Poly:
    if len(left.terms) * len(right.terms) > MAX_TERMS:
        raise DimError(f"a product of more than {MAX_TERMS} terms")
    return _poly(
        (tuple(sorted((*one, *two), key=_factor_order)), a * b)
        for one, a in left.terms
        for two, b in right.terms
    )


def _floordiv(num: Poly, den: int) -> Poly:
    """floor(num / den) in normal form: whole multiples of den leave the division, common factors cancel."""
    whole = _poly((monomial, coef // den) for monomial, coef in num.terms)
    rest = _poly((monomial, coef % den) for monomial, coef in num.terms)
    if rest.constant() is not None:
        return whole
    common = math.gcd(den, *(coef for monomial, coef in rest.terms if monomial))
    if common > 1:
        reduced = _poly((monomial, coef // common) for monomial, coef in rest.terms)
        return _add(whole, _floordiv(reduced, den // common))
    # floor((floor(n / a) + c) / b) = floor((n + a*c) / (a*b))
    (monomial, coef), *others = rest.terms
    if coef == 1 and len(monomial) == 1 and isinstance(monomial[0], Floor) and all(not m for m, _ in others):
        inner = monomial[0]
        shifted = _add(inner.num, _number(inner.den * sum(c for _, c in others)))
        return _add(whole, _floordiv(shifted, inner.den * den))
    if _size(rest) > MAX_TERMS:  # 3*x//2 is x+x//2, so a chain of divisions can double at each step
        raise DimError(f"divisions of more than {MAX_TERMS} terms")
    return _add(whole, Poly((((Floor(rest, den),), 1),)))


def _size(poly: Poly) -> int:
    """The number of terms, those within divisions too. A division is only made where this is small."""
    inner = (_size(factor.num) for term, _ in poly.terms for factor in term if isinstance(factor, Floor))
    return len(poly.terms) + sum(inner)


def _replace(poly: Poly, bindings: Mapping[str, Dim]) -> Poly:
    total = _number(0)
    for monomial, coef in poly.terms:
        part = _number(coef)
        for factor in monomial:
            if isinstance(factor, Floor):
                value = _floordiv(_replace(factor.num, bindings), factor.den)
            else:
                value = _of(bindings[factor]) if factor in bindings else Poly((((factor,), 1),))
            part = _mul(part, value)
        total = _add(total, part)
    return total


def _names(poly: Poly) -> set[str]:
    found: set[str] = set()
    for monomial, _ in poly.terms:
        for factor in monomial:
            found |= {factor} if isinstance(factor, str) else _names(factor.num)
    return found


def _of_affine(index: Affine) -> Poly:
    total = _number(index.const)
    for coef, atom in index.terms:
        if isinstance(atom, str):
            part = Poly((((atom,), 1),))
        else:
            part = _floordiv(_of_affine(atom.num), atom.den)
        total = _add(total, _mul(_number(coef), part))
    return total


def _affine(poly: Poly) -> Affine:
    total = lit(0)
    for monomial, coef in poly.terms:
        if not monomial:
            part = lit(1)
        elif len(monomial) > 1:
            raise DimError(f"{_show_term(monomial, 1)!r} multiplies two names")
        elif isinstance(monomial[0], str):
            part = axis(monomial[0])
        else:
            part = _affine(monomial[0].num) // monomial[0].den
        total = total + part * coef
    return total


# --- text ----------------------------------------------------------------------------------------------------


def _dim(poly: Poly) -> Dim:
    value = poly.constant()
    if value is not None:
        return value
    text = _show(poly)
    if len(text) > MAX_TEXT:
        raise DimError(f"an expression of more than {MAX_TEXT} characters")
    return text


def _of(dim: Dim) -> Poly:
    return _number(dim) if isinstance(dim, int) else _read(dim)


def _show(poly: Poly) -> str:
    text = "".join(_show_term(monomial, coef) for monomial, coef in poly.terms)
    return text.removeprefix("+") or "0"


def _show_term(monomial: Monomial, coef: int) -> str:
    if not monomial:
        return f"{coef:+d}"
    sign = "-" if coef < 0 else "+"
    if len(monomial) == 1 and coef == 1 and isinstance(monomial[0], Floor):
        return f"+{_show_floor(monomial[0])}"
    factors = [_show_factor(factor) for factor in monomial]
    return sign + "*".join(factors if abs(coef) == 1 else [str(abs(coef)), *factors])


def _show_factor(factor: Factor) -> str:
    return factor if isinstance(factor, str) else f"({_show_floor(factor)})"


def _show_floor(floor: Floor) -> str:
    num = _show(floor.num)
    return f"{num}//{floor.den}" if num.isidentifier() else f"({num})//{floor.den}"


_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_][A-Za-z0-9_]*)|(//|[-+*()]))")


@functools.lru_cache(maxsize=4096)
def _read(text: str) -> Poly:
    """The normal form of a text. A pure function, so its cache is only a matter of speed."""
    if len(text) > MAX_TEXT:
        raise DimError(f"an expression of {len(text)} characters (at most {MAX_TEXT})")
    tokens = _tokens(text)
    poly, rest = _sum(tokens, 0, 0)
    if rest != len(tokens):
        raise DimError(f"{tokens[rest]!r} is unexpected in {text!r}")
    return poly


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at, stripped = 0, text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise DimError(f"{stripped[at:].strip()[:1]!r} is unexpected in {text!r}")
        token = match.group(match.lastindex or 0)
        if token[0].isdigit() and len(token) > MAX_DIGITS:
            raise DimError(f"a number of {len(token)} digits")
        tokens.append(token)
        at = match.end()
    return tokens


def _sum(tokens: list[str], at: int, depth: int) -> tuple[Poly, int]:
    total, at = _term(tokens, at, depth)
    while at < len(tokens) and tokens[at] in ("+", "-"):
        right, after = _term(tokens, at + 1, depth)
        total = _add(total, right if tokens[at] == "+" else _mul(_number(-1), right))
        at = after
    return total, at


def _term(tokens: list[str], at: int, depth: int) -> tuple[Poly, int]:
    total, at = _factor(tokens, at, depth)
    while at < len(tokens) and tokens[at] in ("*", "//"):
        right, after = _factor(tokens, at + 1, depth)
        if tokens[at] == "*":
            total = _mul(total, right)
        else:
            den = right.constant()
            if den is None or den < 1:
                raise DimError(f"// by {_show(right)} (only by a positive integer)")
            total = _floordiv(total, den)
        at = after
    return total, at


def _factor(tokens: list[str], at: int, depth: int) -> tuple[Poly, int]:
    if depth > MAX_DEPTH:
        raise DimError(f"an expression nested more than {MAX_DEPTH} deep")
    if at >= len(tokens):
        raise DimError("the expression ends where a name or a number is expected")
    token = tokens[at]
    if token == "-":
        value, at = _factor(tokens, at + 1, depth + 1)
        return _mul(_number(-1), value), at
    if token == "(":
        value, at = _sum(tokens, at + 1, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise DimError("a parenthesis is not closed")
        return value, at + 1
    if token[0].isdigit():
        return _number(int(token)), at + 1
    if token[0].isalpha() or token[0] == "_":
        return Poly((((token,), 1),)), at + 1
    raise DimError(f"{token!r} stands where a name or a number is expected")
