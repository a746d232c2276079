"""IEEE 754 by rational numbers: what float operations must give, worked out bit by bit, independently of the emulator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

MODES = ("rn", "rz", "rm", "rp")
NAN = -1  # stands for every NaN in what is expected


@dataclass(frozen=True)
class Layout:
    """A sign, ``exponent`` bits of biased exponent, ``fraction`` bits; ``unused`` zero bits below them."""

    exponent: int
    fraction: int
    unused: int = 0

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.fraction + self.unused

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << (self.fraction + self.unused)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(f"uint{self.width}")


F16, BF16, F32, F64 = Layout(5, 10), Layout(8, 7), Layout(8, 23), Layout(11, 52)
TF32 = Layout(8, 10, 13)
LAYOUTS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def minus(bits: int, form: Layout) -> bool:
    return bool(bits & form.sign)


def is_nan(bits: int, form: Layout) -> bool:
    return (bits & ~form.sign) > form.infinity


def is_inf(bits: int, form: Layout) -> bool:
    return (bits & ~form.sign) == form.infinity


def value(bits: int, form: Layout) -> Fraction:
    """The number that finite bits are; 0 for both zeros."""
    size = (bits & ~form.sign) >> form.unused
    exponent, fraction = size >> form.fraction, size & ((1 << form.fraction) - 1)
    bias = (1 << (form.exponent - 1)) - 1
    if exponent:
        fraction |= 1 << form.fraction
    shift = max(exponent, 1) - bias - form.fraction
    number = Fraction(fraction << shift) if shift >= 0 else Fraction(fraction, 1 << -shift)
    return -number if minus(bits, form) else number


def rounded(exact: Fraction, form: Layout, mode: str, negative_zero: bool = False) -> int:
    """The bits of a rational number; the sign of an exact zero is given."""
    if exact == 0:
        return form.sign if negative_zero else 0
    sign = form.sign if exact < 0 else 0
    numerator, denominator = abs(exact.numerator), exact.denominator
    emin = 2 - (1 << (form.exponent - 1))
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(-exponent, 0) < denominator << max(exponent, 0):
        exponent -= 1
    exponent = max(exponent, emin)
    unit = exponent - form.fraction
    divisor = denominator << max(unit, 0)
    count, rest = divmod(numerator << max(-unit, 0), divisor)
    if mode == "rn":
        up = 2 * rest > divisor or (2 * rest == divisor and count % 2 == 1)
    elif mode == "rna":
        up = 2 * rest >= divisor
    else:
        up = rest > 0 and {"rz": False, "rm": exact < 0, "rp": exact > 0}[mode]
    # counts of units run on into the next exponent, and in the end into infinity
    bits = ((exponent - emin) << form.fraction) + count + up
    if bits << form.unused >= form.infinity:
        outwards = mode in ("rn", "rna") or {"rz": False, "rm": exact < 0, "rp": exact > 0}[mode]
        bits = (form.infinity >> form.unused) - (not outwards)
    return sign | (bits << form.unused)


def power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def fused(a: int, b: int, c: int, form: Layout, mode: str) -> int:
    if any(is_nan(each, form) for each in (a, b, c)):
        return NAN
    sign = minus(a, form) != minus(b, form)
    if is_inf(a, form) or is_inf(b, form):
        if 0 in (a & ~form.sign, b & ~form.sign):
            return NAN
        if is_inf(c, form) and minus(c, form) != sign:
            return NAN
        return form.infinity | (form.sign if sign else 0)
    if is_inf(c, form):
        return c
    exact = value(a, form) * value(b, form) + value(c, form)
    both = sign == minus(c, form)
    return rounded(exact, form, mode, sign if both else mode == "rm")


def add(a: int, b: int, form: Layout, mode: str) -> int:
    one = ((1 << (form.exponent - 1)) - 1) << form.fraction
    return fused(a, one, b, form, mode)


def sub(a: int, b: int, form: Layout, mode: str) -> int:
    return NAN if is_nan(b, form) else add(a, b ^ form.sign, form, mode)


def mul(a: int, b: int, form: Layout, mode: str) -> int:
    if is_nan(a, form) or is_nan(b, form):
        return NAN
    sign = form.sign if minus(a, form) != minus(b, form) else 0
    if is_inf(a, form) or is_inf(b, form):
        return NAN if 0 in (a & ~form.sign, b & ~form.sign) else form.infinity | sign
    return rounded(value(a, form) * value(b, form), form, mode, bool(sign))


def div(a: int, b: int, form: Layout, mode: str) -> int:
    if is_nan(a, form) or is_nan(b, form):
        return NAN
    sign = form.sign if minus(a, form) != minus(b, form) else 0
    if is_inf(a, form):
        return NAN if is_inf(b, form) else form.infinity | sign
    if is_inf(b, form):
        return sign
    if b & ~form.sign == 0:
        return NAN if a & ~form.sign == 0 else form.infinity | sign
    return rounded(value(a, form) / value(b, form), form, mode, bool(sign))


def rcp(a: int, form: Layout, mode: str) -> int:
    return div(((1 << (form.exponent - 1)) - 1) << form.fraction, a, form, mode)


def sqrt(a: int, form: Layout, mode: str) -> int:
    if is_nan(a, form) or (minus(a, form) and a != form.sign):
        return NAN
    if a in (0, form.sign, form.infinity):
        return a
    exact = value(a, form)
    # a lower bound with 200 bits, and something more where it is no exact root
    scaled = exact * power(2 * 700)
    root = math.isqrt(scaled.numerator // scaled.denominator)
    bound = Fraction(root) * power(-700)
    return rounded(bound if bound * bound == exact else bound + power(-900), form, mode)


OPERATIONS = {"add": add, "sub": sub, "mul": mul, "div": div, "rcp": rcp, "sqrt": sqrt, "fma": fused}


def flush(bits: int, form: Layout) -> int:
    return bits & form.sign if bits & form.infinity == 0 else bits


def edges(form: Layout) -> list[int]:
    """Zeros, the least and largest subnormal and normal numbers, ones and their neighbours, infinities and NaNs; of both signs."""
    least = 1 << form.fraction
    one = ((1 << (form.exponent - 1)) - 1) << form.fraction
    half, two, top = one - least, one + least, form.infinity
    sizes = [
        0,
        1,
        2,
        3,
        least - 1,
        least,
        least + 1,
        half,
        one - 1,
        one,
        one + 1,
        one + least // 2,
        two,
        two + 1,
    ]
    sizes += [
        one + form.fraction * least,
        top - least,
        top - 2,
        top - 1,
        top,
        top + 1,
        top | (least >> 1),
        top | (least - 1),
    ]
    return sizes + [size | form.sign for size in sizes]


def samples(form: Layout, operands: int, count: int, seed: int) -> list[NDArray]:
    """Arrays of operands: any bits, numbers of like size, numbers with few ones (whose results are often ties), and edges."""
    rng = np.random.default_rng(seed)
    parts = []
    each = count // 4
    parts.append(
        rng.integers(0, 1 << 63, (operands, each), np.uint64) * np.uint64(2) >> np.uint64(64 - form.width)
    )
    middle = (1 << (form.exponent - 1)) - 1

    def built(fractions: NDArray, spread: int) -> NDArray:
        exponents = rng.integers(middle - spread, middle + spread + 1, fractions.shape).astype(np.uint64)
        signs = rng.integers(0, 2, fractions.shape).astype(np.uint64)
        return (signs << np.uint64(form.width - 1)) | (exponents << np.uint64(form.fraction)) | fractions

    mask = np.uint64((1 << form.fraction) - 1)
    parts.append(built(rng.integers(0, 1 << 63, (operands, each), np.uint64) & mask, 4))
    ones = np.uint64(1) << rng.integers(0, form.fraction, (2, operands, each)).astype(np.uint64)
    sparse = (ones[0] ^ ones[1]) & mask
    sparse = np.where(rng.integers(0, 2, sparse.shape) == 1, sparse, ~sparse & mask)
    parts.append(built(sparse, min(form.fraction + 2, middle - 1)))
    parts.append(rng.choice(np.array(edges(form), np.uint64), (operands, each)))
    whole = np.concatenate(parts, axis=1)
    return [row.astype(form.dtype) for row in whole]


def mismatches(results: NDArray, expected: list[int], form: Layout, *operands: NDArray) -> Iterator[str]:
    """Where results are not what was expected, in words; every NaN is one."""
    for index, (result, wanted) in enumerate(zip(results.tolist(), expected, strict=True)):
        given = NAN if is_nan(result, form) else result
        if given != wanted:
            yield f"{[hex(int(operand[index])) for operand in operands]}: {result:#x}, not {wanted:#x}"
