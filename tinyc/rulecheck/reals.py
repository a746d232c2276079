"""Exact rational arithmetic; powers and roots where they are rational."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tinyc.ir.dtypes import DType, from_bits
from tinyc.ir.tiny import ROUNDED

from .domains import Array, Domain, number
from .near import exact


class _Mark:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


UNDEFINED = _Mark("undefined")
"""No real number: a quotient by zero, a root of a negative number."""

UNKNOWN = _Mark("irrational")
"""A real number that is not rational, or not known to be."""


DIGITS = 1 << 13
"""Bits of a number; longer ones are not computed with, since powers of powers have no end of them."""


def _short(value: Any) -> Any:
    """The value, or UNKNOWN where it is too long."""
    if value.__class__ is int:
        return value if value.bit_length() <= DIGITS else UNKNOWN
    if (
        value.__class__ is Fraction
        and max(value.numerator.bit_length(), value.denominator.bit_length()) > DIGITS
    ):
        return UNKNOWN
    return value


def _total(function: Callable[..., Any], count: int) -> Callable[..., Array]:
    """``function`` of numbers, by element; marks spread."""

    def apply(x: Any, y: Any = 0) -> Any:
        if x.__class__ is _Mark or y.__class__ is _Mark:
            return UNKNOWN if x is UNKNOWN or y is UNKNOWN else UNDEFINED
        try:
            return _short(function(x) if count == 1 else function(x, y))
        except (ZeroDivisionError, OverflowError):
            return UNDEFINED

    return np.frompyfunc(apply, count, 1)


def _quotient(x: Any, y: Any) -> Any:
    found = Fraction(x, y) if isinstance(x, int) and isinstance(y, int) else Fraction(x) / Fraction(y)
    return int(found) if found.denominator == 1 else found


def _exp2(x: Any) -> Any:
    if x != int(x) or abs(x) > 300:
        return UNKNOWN
    return 1 << int(x) if x >= 0 else Fraction(1, 1 << -int(x))


def _log2(x: Any) -> Any:
    if x <= 0:
        return UNDEFINED
    top, bottom = Fraction(x).numerator, Fraction(x).denominator
    if top & (top - 1) or bottom & (bottom - 1):
        return UNKNOWN
    return top.bit_length() - bottom.bit_length()


def _sqrt(x: Any) -> Any:
    if x < 0:
        return UNDEFINED
    top, bottom = math.isqrt(Fraction(x).numerator), math.isqrt(Fraction(x).denominator)
    return _quotient(top, bottom) if Fraction(top, bottom) ** 2 == x else UNKNOWN


def _rsqrt(x: Any) -> Any:
    root = _sqrt(x)
    return root if isinstance(root, _Mark) else _quotient(1, root)


def _power(x: Any, y: Any) -> Any:
    if y != int(y) or abs(y) > 64:
        return UNKNOWN if x >= 0 else UNDEFINED
    base = Fraction(x)
    if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(int(y)) > DIGITS:
        return UNKNOWN
    return _quotient(base ** int(y), 1)


_REAL: dict[str, Callable[..., Array]] = {
    "NEG": _total(lambda x: -x, 1),
    "EXP2": _total(_exp2, 1),
    "LOG2": _total(_log2, 1),
    "RELU": _total(lambda x: x if x > 0 else 0, 1),
    "SQRT": _total(_sqrt, 1),
    "RSQRT": _total(_rsqrt, 1),
    "RECIP": _total(lambda x: _quotient(1, x), 1),
    ROUNDED: _total(lambda x: x, 1),
    "SIN": _total(lambda x: 0 if x == 0 else UNKNOWN, 1),
    "ADD": _total(lambda x, y: x + y, 2),
    "SUB": _total(lambda x, y: x - y, 2),
    "MUL": _total(lambda x, y: x * y, 2),
    "FDIV": _total(_quotient, 2),
    "POW": _total(_power, 2),
    "MAX": _total(lambda x, y: max(x, y), 2),
    "MIN": _total(lambda x, y: min(x, y), 2),
    "CMPLT": _total(lambda x, y: x < y, 2),
    "CMPNE": _total(lambda x, y: x != y, 2),
    "CMPEQ": _total(lambda x, y: x == y, 2),
    "SELECT": np.frompyfunc(lambda c, x, y: c if isinstance(c, _Mark) else (x if c else y), 3, 1),
    "TRUNC": _total(lambda x: math.trunc(x), 1),
    "BOOL": _total(lambda x: x != 0, 1),
    "INT": _total(lambda x: int(x) if isinstance(x, bool) else x, 1),
}


def _same(x: Any, y: Any) -> bool:
    if x is UNDEFINED or x is UNKNOWN or y is UNKNOWN:
        return True
    return bool(y is not UNDEFINED and x == y)


SAME_NUMBER = np.frompyfunc(_same, 2, 1)
"""Whether a new number is the old one, by element; what is no rational number may be any."""

KNOWN = np.frompyfunc(lambda x, y: not (x is UNDEFINED or x is UNKNOWN or y is UNKNOWN), 2, 1)

UNSURE = np.frompyfunc(lambda x, y: x is UNKNOWN or y is UNKNOWN, 2, 1)
"""Whether either is irrational, so that nothing is known of the two."""

REAL_STYLES = ("small", "numbers", "powers", "squares", "near")


class Reals(Domain):
    """``style``: "numbers" draws fractions of up to seven digits, in which no identity holds by accident; "small" integers
    with many ties and zeros, "powers" powers of two, "squares" squares of fractions, where functions are rational; "near" are
    ``numbers``, and some more or less."""

    def __init__(self, seed: str, style: str, samples: int, numbers: tuple[float, ...] = ()) -> None:
        self.seed, self.style, self.samples, self.numbers = seed, style, samples, exact(numbers)
        self.leaves: dict[str, Array] = {}

    def leaf(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        if name not in self.leaves:
            rng = random.Random(number(self.seed, self.style, name))
            count = self.samples * math.prod(shape)
            drawn = np.empty(count, object)
            drawn[:] = [self._drawn(rng, dtype) for _ in range(count)]
            self.leaves[name] = drawn.reshape(self.samples, *shape)
        return self.leaves[name]

    def _drawn(self, rng: random.Random, dtype: str) -> Any:
        if dtype == "bool":
            return rng.random() < 0.5
        if self.style == "near":
            found = rng.choice(self.numbers)
            return math.floor(found) if dtype == "i32" else _quotient(found, 1)
        if dtype == "i32":
            return rng.randint(-9, 9) if self.style == "small" else rng.randint(-(10**6), 10**6)
        if self.style == "numbers":
            return _quotient(rng.randint(-(10**7), 10**7), rng.choice((1, 1, 7, 1000003)))
        if self.style == "small":
            return rng.randint(-12, 12)
        if self.style == "powers":
            return _exp2(rng.randint(-8, 8))
        return _quotient(rng.randint(1, 40) ** 2, rng.choice((1, 4, 9, 25)))

    def const(self, dtype: str, bits: int) -> Array:
        result = np.empty(1, object)
        value = from_bits(bits, DType(dtype))
        finite = isinstance(value, bool | int) or math.isfinite(value)
        result[0] = (
            (value if isinstance(value, bool) else _quotient(Fraction(value), 1)) if finite else UNKNOWN
        )
        return result

    def unary(self, op: str, dtype: str, x: Array) -> Array:
        return _REAL[op](x)

    def binary(self, op: str, dtype: str, x: Array, y: Array) -> Array:
        if dtype == "bool" and op in ("MAX", "MIN"):
            return _REAL["SELECT"](x, True, y) if op == "MAX" else _REAL["SELECT"](x, y, False)
        return _REAL[op](x, y)

    def cast(self, source: str, to: str, x: Array) -> Array:
        if source == to:
            return x
        if to == "bool":
            return _REAL["BOOL"](x)
        if to == "i32" and source != "bool":
            return _REAL["TRUNC"](x)
        return _REAL["INT"](x)

    def truth(self, x: Array) -> Array:
        return x.astype(object)

    def select(self, condition: Array, x: Array, y: Array) -> Array:
        return _REAL["SELECT"](condition, x, y)
