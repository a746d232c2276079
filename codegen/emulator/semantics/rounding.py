"""Correct rounding of exact results: to nearest even, towards zero, down and up, in every float format.

An exact result is a **pair** (value, rest) of float64: ``value`` is the nearest float64 and ``rest`` has the sign of what the
exact result is more than that: 0 where ``value`` is exact, or no number; None where it is so everywhere. It is all that any rounding needs to know:
:func:`rounded` makes ``value`` odd first where the rest is not zero (so that no later rounding takes it for exact or for a tie; a
format must have two bits less than float64 for this), then rounds on the grid of the format.

Sums and products of float64 itself: :func:`two_sum` and :func:`two_product` (Knuth, Dekker). Where their intermediate results
would overflow or underflow, :mod:`exact` computes with integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .types import BITS, Array

Pair = tuple[Array, Array | None]

ROUNDINGS = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Format:
    """A binary float format: ``bits`` of storage, ``precision`` with the leading one, the largest exponent, the NaN it gives."""

    name: str
    bits: int
    precision: int
    emax: int
    nan: int

    @property
    def emin(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.emax

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float((2 - 2.0 ** (1 - self.precision)) * 2.0**self.emax)


F16 = Format("f16", 16, 11, 15, 0x7FFF)
BF16 = Format("bf16", 16, 8, 127, 0x7FFF)
F32 = Format("f32", 32, 24, 127, 0x7FFFFFFF)
TF32 = Format("tf32", 32, 11, 127, 0x7FFFE000)
F64 = Format("f64", 64, 53, 1023, 0x7FF8000000000000)
FORMATS = {each.name: each for each in (F16, BF16, F32, F64)}


def decoded(bits: Array, form: Format) -> Array:
    """The numbers that ``bits`` are in a format, as float64."""
    if form.bits == 64:
        return bits.view(np.float64)
    if form.bits == 32:
        return bits.view(np.float32).astype(np.float64)
    if form is F16:
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def encoded(values: Array, form: Format) -> Array:
    """The bits of numbers (float64): of the nearest in f16, f32 and f64, of itself where bf16 holds it; a NaN is the format's own."""
    if form.bits == 64:
        bits = values.view(np.uint64)
    elif form is F16:
        bits = values.astype(np.float16).view(np.uint16)
    else:
        bits = values.astype(np.float32).view(np.uint32)
        if form is BF16:
            bits = (bits >> np.uint32(16)).astype(np.uint16)
    return canonical(bits, np.isnan(values), form)


def canonical(bits: Array, nan: Array, form: Format) -> Array:
    """``bits`` with the format's NaN where ``nan`` holds."""
    return np.where(nan, BITS[form.bits].type(form.nan), bits) if nan.any() else bits


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b exactly."""
    value = a + b
    other = value - a
    rest = (a - (value - other)) + (b - other)
    return value, np.where(np.isfinite(value), rest, 0.0)


def split(a: Array) -> tuple[Array, Array]:
    """a as a sum of two numbers of at most 26 bits each."""
    scaled = a * 134217729.0  # 2**27 + 1
    upper = scaled - (scaled - a)
    return upper, a - upper


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b exactly, where nothing overflows and the product is above 2**-969."""
    value = a * b
    (a1, a0), (b1, b0) = split(a), split(b)
    return value, ((a1 * b1 - value) + a1 * b0 + a0 * b1) + a0 * b0


def odd(value: Array, rest: Array) -> Array:
    """The pair as one float64, rounded to odd: of its two neighbours the one whose last bit is 1, itself where it is exact."""
    bits = value.view(np.uint64)
    away = (rest > 0) == (value > 0)  # the exact result is further from zero than the value
    step = np.where(away, np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF))
    move = (rest != 0) & ((bits & np.uint64(1)) == 0)
    return np.where(move, bits + step, bits).view(np.float64)


def rounded(pair: Pair, form: Format, mode: str, satfinite: bool = False) -> Array:
    """The pair rounded to a format in a mode of :data:`ROUNDINGS` or "rna" (ties away from zero), as bits."""
    value, rest = pair
    if form.bits == 64:
        return encoded(value if rest is None else directed(value, rest, mode), form)
    single = value if rest is None else odd(value, rest)
    if mode == "rn" and not satfinite and form in (F16, F32):
        return encoded(single, form)  # numpy's conversion rounds so
    grid = nearest(single, form) if mode == "rn" else on_grid(single, form, mode)
    return encoded(within(grid, form, mode, satfinite), form)


def directed(value: Array, rest: Array, mode: str) -> Array:
    """The pair as a float64 in a direction; an overflow of ``value`` to infinity is taken back where the mode rounds inwards."""
    if mode == "rn":
        return value
    upwards = {"rp": np.ones_like(value, bool), "rm": np.zeros_like(value, bool), "rz": value < 0}[mode]
    wrong = np.where(upwards, rest > 0, rest < 0)
    return np.where(wrong, np.nextafter(value, np.where(upwards, np.inf, -np.inf)), value)


def on_grid(values: Array, form: Format, mode: str) -> Array:
    """Numbers rounded to the format's precision with no limit above: float64, which holds what is beyond the largest too."""
    _, exponent = np.frexp(values)  # |values| is at least 2**(exponent - 1)
    unit = np.maximum(exponent, form.emin + 1) - form.precision
    return np.ldexp(integral(np.ldexp(values, -unit), mode), unit)


def nearest(values: Array, form: Format) -> Array:
    """What :func:`on_grid` gives for "rn", faster: added to a number whose last bit is the unit, and taken away again."""
    powers = (values.view(np.uint64) & np.uint64(0x7FF0000000000000)).view(np.float64)
    offset = np.clip(powers, 2.0**form.emin, 2.0 ** (form.emax + 1)) * (1.5 * 2.0 ** (53 - form.precision))
    return np.copysign((values + offset) - offset, values)


def integral(values: Array, mode: str) -> Array:
    """Numbers rounded to whole ones; the sign of zero is kept."""
    if mode == "rn":
        return np.rint(values)
    if mode == "rz":
        return np.trunc(values)
    if mode == "rna":
        low = np.trunc(values)
        return np.where(np.abs(values - low) >= 0.5, low + np.copysign(1.0, values), low)
    return np.floor(values) if mode == "rm" else np.ceil(values)


def within(grid: Array, form: Format, mode: str, satfinite: bool = False) -> Array:
    """Numbers on the grid with those beyond the largest made infinite, or the largest where the mode rounds them inwards.

    With ``satfinite`` an infinity, also one that came in, is the largest number.
    """
    largest = form.largest
    if satfinite:
        return np.clip(grid, -largest, largest)
    beyond = np.abs(grid) > largest
    if not beyond.any():
        return grid
    inwards = {"rz": np.ones_like(grid, bool), "rm": grid > 0, "rp": grid < 0}.get(
        mode, np.zeros_like(grid, bool)
    )
    limit = np.where(inwards & np.isfinite(grid), largest, np.inf)
    return np.where(beyond, np.copysign(limit, grid), grid)


def flushed(bits: Array, form: Format) -> Array:
    """Bits with subnormal numbers replaced by zeros of their sign (``.ftz``)."""
    kind = BITS[form.bits].type
    sign = kind(1 << (form.bits - 1))
    fraction = form.precision - 1
    exponent = kind(((1 << (form.bits - 1)) - 1) >> fraction << fraction)
    return np.where((bits & exponent) == 0, bits & sign, bits)
