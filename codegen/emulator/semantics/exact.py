"""Correct rounding to float64 by whole numbers, for the few elements that :mod:`rounding` cannot do with float64 alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .types import Array

LARGEST = (2**53 - 1) * 2**971


def elementwise(function: Callable[..., float], mode: str, *operands: Array) -> Array:
    """``function(mode, *numbers)`` for each element of one-dimensional float64 arrays."""
    columns = zip(*(operand.tolist() for operand in operands), strict=True)
    return np.array([function(mode, *numbers) for numbers in columns], np.float64)


def to_float64(exact: Fraction, mode: str, zero: float = 0.0) -> float:
    """A rational number rounded to float64; ``zero`` is what an exact zero becomes."""
    if exact == 0:
        return zero
    minus, size = exact < 0, abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = max(exponent, -1022) - 52
    scaled = size / Fraction(2) ** unit
    whole, part = scaled.numerator // scaled.denominator, scaled % 1
    away = {"rn": 2 * part > 1 or (2 * part == 1 and whole % 2 == 1), "rz": False}.get(
        mode, (mode == "rm") == minus
    )
    whole += bool(part) and away
    if whole * Fraction(2) ** unit > LARGEST:
        value = math.inf if away or mode == "rn" else float(LARGEST)
    else:
        value = math.ldexp(whole, unit)
    return -value if minus else value


def fused(mode: str, a: float, b: float, c: float) -> float:
    """a * b + c, rounded once, for finite a and b of which the product, or c, is not zero."""
    if not math.isfinite(c):
        return c
    return to_float64(Fraction(a) * Fraction(b) + Fraction(c), mode, -0.0 if mode == "rm" else 0.0)


def product(mode: str, a: float, b: float) -> float:
    """a * b of finite numbers."""
    sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    return to_float64(Fraction(a) * Fraction(b), mode, math.copysign(0.0, sign))


def quotient(mode: str, a: float, b: float) -> float:
    """a / b of finite numbers, b not zero."""
    sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    return to_float64(Fraction(a) / Fraction(b), mode, math.copysign(0.0, sign))


def root(mode: str, a: float) -> float:
    """The square root of a finite number above zero: that of a whole number with 120 bits, and a one below if that is inexact."""
    numerator, denominator = a.as_integer_ratio()
    power = denominator.bit_length() - 1
    shift = 240 + power % 2
    scaled = numerator << shift
    whole = math.isqrt(scaled)
    whole = 2 * whole + (whole * whole != scaled)
    return to_float64(Fraction(whole) / Fraction(2) ** ((power + shift) // 2 + 1), mode)
