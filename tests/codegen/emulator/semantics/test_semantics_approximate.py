"""Approximate functions: the exact function, of 80 digits, rounded once; and the ISA's tables of special operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ieee
import mpmath
import numpy as np
import pytest

from tinyc.codegen.emulator.semantics import operation

COUNT = 1200
DIGITS = mpmath.mp.clone()
DIGITS.prec = 400

FUNCTIONS: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "rcp": lambda x: 1 / x,
    "sqrt": DIGITS.sqrt,
    "rsqrt": lambda x: 1 / DIGITS.sqrt(x),
    "sin": DIGITS.sin,
    "cos": DIGITS.cos,
    "lg2": lambda x: DIGITS.log(x, 2),
    "ex2": lambda x: DIGITS.power(2, x),
    "tanh": DIGITS.tanh,
}


def rational(x: mpmath.mpf) -> Fraction:
    sign, mantissa, exponent, _ = x._mpf_
    exact = Fraction(int(mantissa)) * (Fraction(2) ** exponent)
    return -exact if sign else exact


def exactly(name: str, bits: int, form: ieee.Layout) -> int:
    """The function of a finite number other than zero, rounded to nearest."""
    exact = ieee.value(bits, form)
    x = DIGITS.mpf(exact.numerator) / exact.denominator
    if name in ("sqrt", "rsqrt", "lg2") and x < 0:
        return ieee.NAN
    if name == "ex2" and abs(x) > 2000:
        return form.infinity if x > 0 else 0
    if name == "tanh" and abs(x) > 200:
        return ieee.rounded(Fraction(1 if x > 0 else -1), form, "rn")
    result = FUNCTIONS[name](x)
    return 0 if result == 0 else ieee.rounded(rational(result), form, "rn")


CASES = [
    *[(name, (*ftz, "f32")) for name in FUNCTIONS for ftz in ((), ("ftz",)) if not (ftz and name == "tanh")],
    *[(name, (kind,)) for name in ("ex2", "tanh") for kind in ("f16",)],
    ("tanh", ("bf16",)),
    ("ex2", ("ftz", "bf16")),
    ("rsqrt", ("f64",)),
]


@pytest.mark.parametrize(("name", "modifiers"), CASES)
def test_the_exact_function_rounded_once(name: str, modifiers: tuple[str, ...]) -> None:
    """In f64 the function itself is computed in float64, and is within one unit in the last place."""
    kind = modifiers[-1]
    form = ieee.LAYOUTS[kind]
    (a,) = ieee.samples(form, 1, COUNT, seed=1)
    rng = np.random.default_rng(2)
    middling = [ieee.rounded(Fraction(float(x)), form, "rn") for x in rng.normal(0, 4, 600)]
    a = np.concatenate([a, np.array(middling, form.dtype)])
    ftz = "ftz" in modifiers
    read = [ieee.flush(bits, form) if ftz else bits for bits in a.tolist()]
    plain = np.array([bits & ~form.sign != 0 and bits & form.infinity != form.infinity for bits in read])
    found = operation(name, ("approx", *modifiers))
    assert found.operands == (kind,) and found.results == (kind,)
    (result,) = found.compute(a)
    expected = [exactly(name, bits, form) for bits, good in zip(read, plain.tolist(), strict=True) if good]
    if ftz:
        expected = [bits if bits == ieee.NAN else ieee.flush(bits, form) for bits in expected]
    if kind == "f64":
        for given, wanted in zip(result[plain].tolist(), expected, strict=True):
            assert abs(given - wanted) <= 1 or (wanted == ieee.NAN and ieee.is_nan(given, form))
        return
    assert list(ieee.mismatches(result[plain], expected, form, a[plain]))[:5] == []


INF, NAN = math.inf, math.nan
#: for each function what the ISA lists for -infinity, -0, +0, +infinity and NaN
SPECIAL = {
    "rcp": (-0.0, -INF, INF, 0.0, NAN),
    "sqrt": (NAN, -0.0, 0.0, INF, NAN),
    "rsqrt": (NAN, -INF, INF, 0.0, NAN),
    "sin": (NAN, -0.0, 0.0, NAN, NAN),
    "cos": (NAN, 1.0, 1.0, NAN, NAN),
    "lg2": (NAN, -INF, -INF, INF, NAN),
    "ex2": (0.0, 1.0, 1.0, INF, NAN),
    "tanh": (-1.0, -0.0, 0.0, 1.0, NAN),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_operands(name: str) -> None:
    a = np.array([-INF, -0.0, 0.0, INF, NAN], np.float32).view(np.uint32)
    expected = np.array(SPECIAL[name], np.float32).view(np.uint32)
    expected[np.isnan(SPECIAL[name])] = 0x7FFFFFFF
    (result,) = operation(name, ("approx", "f32")).compute(a)
    assert result.tolist() == expected.tolist()
    if name == "tanh":
        return
    subnormal = np.array([1e-40, -1e-40], np.float32).view(np.uint32)
    (result,) = operation(name, ("approx", "ftz", "f32")).compute(subnormal)
    zeros = np.array([SPECIAL[name][2], SPECIAL[name][1]], np.float32).view(np.uint32)
    assert result.tolist() == zeros.tolist()


@pytest.mark.parametrize(
    "modifiers", [("approx", "f32"), ("full", "f32"), ("approx", "ftz", "f32"), ("full", "ftz", "f32")]
)
def test_division(modifiers: tuple[str, ...]) -> None:
    form = ieee.F32
    a, b = ieee.samples(form, 2, 3000, seed=3)
    found = operation("div", modifiers)
    assert found.operands == ("f32", "f32") and found.results == ("f32",)
    (result,) = found.compute(a, b)
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if "ftz" in modifiers:
            x, y = ieee.flush(x, form), ieee.flush(y, form)
        wanted = ieee.div(x, y, form, "rn")
        expected.append(wanted if wanted == ieee.NAN or "ftz" not in modifiers else ieee.flush(wanted, form))
    assert list(ieee.mismatches(result, expected, form, a, b))[:5] == []


@pytest.mark.parametrize("name", ["rcp", "rsqrt"])
def test_reciprocals_of_the_upper_half_of_f64(name: str) -> None:
    a = np.abs(np.random.default_rng(4).normal(0, 1e3, 500))
    (result,) = operation(name, ("approx", "ftz", "f64")).compute(a.view(np.uint64))
    exact = 1 / a if name == "rcp" else 1 / np.sqrt(a)
    assert (result & np.uint64(0xFFFFFFFF) == 0).all()
    assert (np.abs(result.view(np.float64) / exact - 1) < 2.0**-19).all()
    edges = np.array([0.0, -0.0, INF, 5e-324]).view(np.uint64)
    (result,) = operation(name, ("approx", "ftz", "f64")).compute(edges)
    assert result.view(np.float64).tolist() == [INF, -INF, 0.0, INF]


def test_packed_halves() -> None:
    a = np.array([0x3C000000, 0xC0004000], np.uint32)  # (0, 1), (2, -2): lower half first
    assert operation("ex2", ("approx", "f16x2")).compute(a)[0].tolist() == [0x40003C00, 0x34004400]
    b = np.array([0x3F800000], np.uint32)  # (0, 1) in bf16
    assert operation("ex2", ("approx", "ftz", "bf16x2")).compute(b)[0].tolist() == [0x40003F80]


@pytest.mark.parametrize(
    ("name", "modifiers"),
    [
        ("ex2", ("approx", "bf16")),
        ("tanh", ("approx", "ftz", "f32")),
        ("tanh", ("approx", "f64")),
        ("sin", ("f32",)),
        ("sin", ("approx", "f16")),
        ("rcp", ("approx", "f64")),
        ("sqrt", ("full", "f32")),
    ],
)
def test_what_is_not_known(name: str, modifiers: tuple[str, ...]) -> None:
    assert operation(name, modifiers) is None
