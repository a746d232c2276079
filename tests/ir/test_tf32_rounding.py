"""TF32: fp32 rounded to 10 bits of mantissa, in the evaluator, as PTX ISA defines ``cvt.rna.tf32.f32``."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tinyc.codegen.emulator.semantics.table import operation
from tinyc.ir.dtypes import DType, round_tf32
from tinyc.ir.infer import computes
from tinyc.ir.numeric import Rounding, function
from tinyc.ir.tiny import OPERATORS, ROUNDED, UNARY, UOPS

SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    2.0**-149,
    -(2.0**-126),
    3.4028235e38,
    -3.4e38,
    1 + 2.0**-11,
    -1 - 2.0**-11,
]


def samples(count: int = 20000) -> np.ndarray:
    generator = np.random.default_rng(7)
    bits = generator.integers(0, 1 << 32, count, np.uint64).astype(np.uint32)
    halfway = bits[: count // 4] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    return np.concatenate([np.array(SPECIAL, np.float32), bits.view(np.float32), halfway.view(np.float32)])


def nearest(x: float) -> float:
    """By rationals."""
    if not np.isfinite(x) or x == 0:
        return x
    exact = abs(Fraction(x))
    exponent = max(int(np.floor(np.log2(float(exact)))), -126)
    while exact >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exact < Fraction(2) ** exponent and exponent > -126:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 10)
    whole = (exact / unit + Fraction(1, 2)).__floor__() * unit
    return float(np.copysign(float(whole) if whole < 2**128 else np.inf, x))


def test_it_is_the_nearest_ties_away_from_zero() -> None:
    given = samples()
    with np.errstate(over="ignore"):
        wanted = np.array([nearest(float(x)) for x in given]).astype(np.float32)
    got = round_tf32(given)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(given))
    known = np.isfinite(got)
    assert (got.view(np.uint32)[known] & 0x1FFF == 0).all()


def test_the_emulator_agrees() -> None:
    given = samples()
    convert = operation("cvt", ("rna", "tf32", "f32"))
    assert convert is not None
    (bits,) = convert.compute(given.view(np.uint32))
    np.testing.assert_array_equal(round_tf32(given), np.asarray(bits, np.uint32).view(np.float32))


def test_it_is_off_by_half_a_unit_at_most() -> None:
    given = np.random.default_rng(1).normal(size=10000).astype(np.float32)
    error = np.abs(round_tf32(given).astype(np.float64) - given)
    assert (error <= 2.0**-11 * np.abs(given)).all() and error.max() > 2.0**-12 * np.abs(given).max() / 8
    whole = np.arange(-2048, 2049, dtype=np.float32)
    np.testing.assert_array_equal(round_tf32(whole), whole)


def test_it_is_of_fp32_alone_and_no_uop() -> None:
    assert [dtype for dtype in DType if computes(ROUNDED, dtype)] == [DType.FP32]
    assert (*UNARY, ROUNDED) == OPERATORS and ROUNDED not in UOPS
    x = np.array([1 + 2.0**-12, 3.0], np.float64)
    np.testing.assert_array_equal(function(ROUNDED, DType.FP32, Rounding(DType.FP32, True))(x), x)
