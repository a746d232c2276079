"""cvt in all its forms against rational numbers and Python's integers."""

from __future__ import annotations

from fractions import Fraction

import ieee
import numpy as np
import pytest

from tinyc.codegen.emulator.semantics import operation

COUNT = 2000
INTEGERS = [f"{sign}{size}" for sign in "us" for size in (8, 16, 32, 64)]
FLOATS = tuple(ieee.LAYOUTS)
WHOLE = ("rni", "rzi", "rmi", "rpi")


def limits(kind: str) -> tuple[int, int]:
    size = int(kind[1:])
    return (0, 2**size - 1) if kind[0] == "u" else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)


def number(bits: int, kind: str) -> int:
    return bits - (1 << int(kind[1:])) if bits > limits(kind)[1] else bits


def integers(kind: str, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    size = int(kind[1:])
    spread = rng.integers(0, 1 << 64, COUNT, np.uint64) >> rng.integers(64 - size, 64, COUNT).astype(
        np.uint64
    )
    low, high = limits(kind)
    edges = [
        low,
        low + 1,
        -1,
        0,
        1,
        high - 1,
        high,
        2**24,
        2**24 + 1,
        2**25 + 2,
        2**53 + 1,
        2**54 + 2,
        2049,
        257,
    ]
    edges = [edge for edge in edges if low <= edge <= high]
    ends = np.array([edge & (2**size - 1) for edge in edges], np.uint64)
    return np.concatenate([spread, ends, ~spread & np.uint64(2**size - 1)]).astype(f"uint{size}")


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_between_integers(to: str, source: str) -> None:
    a = integers(source)
    size = int(to[1:])
    low, high = limits(to)
    for modifiers in ((to, source), ("sat", to, source)):
        found = operation("cvt", modifiers)
        assert found.operands == (source,) and found.results == (to,)
        (result,) = found.compute(a)
        assert result.dtype == f"uint{size}"
        values = [number(bits, source) for bits in a.tolist()]
        if len(modifiers) == 3:
            values = [min(max(value, low), high) for value in values]
        assert result.tolist() == [value & (2**size - 1) for value in values]


def whole(exact: Fraction, mode: str) -> int:
    if mode == "rni":
        return round(exact)  # Python rounds ties to even
    floor = exact.numerator // exact.denominator
    if mode == "rmi" or floor == exact or (mode == "rzi" and exact > 0):
        return floor
    return floor + 1


@pytest.mark.parametrize("mode", WHOLE)
@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_from_float_to_integer(to: str, source: str, mode: str) -> None:
    form = ieee.LAYOUTS[source]
    low, high = limits(to)
    size = int(to[1:])
    (a,) = ieee.samples(form, 1, 400, seed=2)
    rng = np.random.default_rng(3)
    near = [ieee.rounded(Fraction(int(x), 4), form, "rn") for x in rng.integers(-600, 600, 300)]
    near += [
        ieee.rounded(Fraction(end) + Fraction(k, 2), form, "rz") for end in (low, high) for k in range(-3, 4)
    ]
    a = np.concatenate([a, np.array(near, form.dtype)])
    nan = 2 ** (size - 1) if source == "f64" or size == 64 else 0
    for ftz in ((), ("ftz",)):
        found = operation("cvt", (mode, *ftz, to, source))
        if ftz and source != "f32":
            assert found is None
            continue
        (result,) = found.compute(a)
        assert result.dtype == f"uint{size}"
        for bits, given in zip(a.tolist(), result.tolist(), strict=True):
            read = ieee.flush(bits, form) if ftz else bits
            if ieee.is_nan(read, form):
                assert given == nan
                continue
            if ieee.is_inf(read, form):
                value = low if ieee.minus(read, form) else high
            else:
                value = min(max(whole(ieee.value(read, form), mode), low), high)
            assert given == value & (2**size - 1), hex(bits)


@pytest.mark.parametrize("mode", ieee.MODES)
@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", FLOATS)
def test_from_integer_to_float(to: str, source: str, mode: str) -> None:
    form = ieee.LAYOUTS[to]
    a = integers(source, seed=4)[::3]
    (result,) = operation("cvt", (mode, to, source)).compute(a)
    expected = [ieee.rounded(Fraction(number(bits, source)), form, mode) for bits in a.tolist()]
    assert list(ieee.mismatches(result, expected, form, a))[:5] == []


def converted(bits: int, origin: ieee.Layout, form: ieee.Layout, mode: str) -> int:
    if ieee.is_nan(bits, origin):
        return ieee.NAN
    sign = form.sign if ieee.minus(bits, origin) else 0
    if ieee.is_inf(bits, origin):
        return sign | form.infinity
    return ieee.rounded(ieee.value(bits, origin), form, mode, bool(sign))


def halfway(origin: ieee.Layout, form: ieee.Layout) -> np.ndarray:
    """Numbers of one format at, and next to, the middle between two of a narrower one, also near its ends."""
    rng = np.random.default_rng(6)
    bits = []
    for each in [
        *rng.integers(0, form.infinity, 600).tolist(),
        *range(20),
        form.infinity - (1 << form.unused),
    ]:
        exact = ieee.value(each >> form.unused << form.unused, form)
        step = ieee.power(1 - (1 << (form.exponent - 1)) - form.fraction)
        if exact:
            exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
            step = max(step, ieee.power(exponent - form.fraction - 2))
        for k in range(1, 5):
            middle = ieee.rounded(exact + k * step, origin, "rn")
            bits += [middle, middle + 1, max(middle - 1, 0), middle | origin.sign]
    return np.array(bits, origin.dtype)


BETWEEN = [(to, source) for to in FLOATS for source in FLOATS if to != source]


@pytest.mark.parametrize(("to", "source"), BETWEEN)
def test_between_floats(to: str, source: str) -> None:
    form, origin = ieee.LAYOUTS[to], ieee.LAYOUTS[source]
    (a,) = ieee.samples(origin, 1, COUNT, seed=5)
    narrows = form.fraction < origin.fraction or form.exponent < origin.exponent
    if narrows:
        a = np.concatenate([a, halfway(origin, form)])
    for mode in ieee.MODES if narrows else ("",):
        (result,) = operation("cvt", (mode, to, source) if mode else (to, source)).compute(a)
        expected = [converted(bits, origin, form, mode or "rn") for bits in a.tolist()]
        assert list(ieee.mismatches(result, expected, form, a))[:5] == [], mode
    if narrows:
        assert operation("cvt", (to, source)) is None


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_relu_and_satfinite(to: str, mode: str) -> None:
    form = ieee.LAYOUTS[to]
    (a,) = ieee.samples(ieee.F32, 1, COUNT, seed=7)
    for more in (("relu",), ("satfinite",), ("relu", "satfinite")):
        (result,) = operation("cvt", (mode, *more, to, "f32")).compute(a)
        expected = []
        for bits in a.tolist():
            wanted = converted(bits, ieee.F32, form, mode)
            if wanted != ieee.NAN:
                if "satfinite" in more and wanted & ~form.sign == form.infinity:
                    wanted -= 1
                if "relu" in more and ieee.minus(wanted, form):
                    wanted = 0
            expected.append(wanted)
        assert list(ieee.mismatches(result, expected, form, a))[:5] == [], more


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32(mode: str) -> None:
    form = ieee.TF32
    (a,) = ieee.samples(ieee.F32, 1, COUNT, seed=8)
    a = np.concatenate([a, halfway(ieee.F32, form)])
    for more in ((), ("satfinite",), ("relu",)):
        found = operation("cvt", (mode, *more, "tf32", "f32"))
        if more == ("relu",) and mode == "rna":
            assert found is None
            continue
        assert found.results == ("b32",) and found.operands == ("f32",)
        (result,) = found.compute(a)
        assert (result & 0x1FFF == 0).all()
        expected = []
        for bits in a.tolist():
            wanted = converted(bits, ieee.F32, form, mode)
            if wanted != ieee.NAN and more == ("satfinite",) and wanted & ~form.sign == form.infinity:
                wanted -= 1 << form.unused
            if wanted != ieee.NAN and more == ("relu",) and ieee.minus(wanted, form):
                wanted = 0
            expected.append(wanted)
        assert list(ieee.mismatches(result, expected, form, a))[:5] == [], more


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_packed_conversion_puts_the_first_operand_above(to: str) -> None:
    a, b = ieee.samples(ieee.F32, 2, COUNT, seed=9)
    for more in (("rn",), ("rz",), ("rn", "relu"), ("rn", "relu", "satfinite"), ("rn", "satfinite")):
        (one,) = operation("cvt", (*more, to, "f32")).compute(a)
        (other,) = operation("cvt", (*more, to, "f32")).compute(b)
        (both,) = operation("cvt", (*more, f"{to}x2", "f32")).compute(a, b)
        assert np.array_equal(both, one.astype(np.uint32) << np.uint32(16) | other)
    (both,) = operation("cvt", ("rn", "f16x2", "f32")).compute(
        np.array([1.0], np.float32).view(np.uint32), np.array([2.0], np.float32).view(np.uint32)
    )
    assert both.tolist() == [0x3C004000]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("mode", WHOLE)
def test_rounding_to_whole_numbers_keeps_the_format(kind: str, mode: str) -> None:
    form = ieee.LAYOUTS[kind]
    (a,) = ieee.samples(form, 1, COUNT, seed=10)
    (result,) = operation("cvt", (mode, kind, kind)).compute(a)
    expected = []
    for bits in a.tolist():
        if ieee.is_nan(bits, form) or ieee.is_inf(bits, form):
            expected.append(ieee.NAN if ieee.is_nan(bits, form) else bits)
        else:
            exact = Fraction(whole(ieee.value(bits, form), mode))
            expected.append(ieee.rounded(exact, form, "rn", ieee.minus(bits, form)))
    assert list(ieee.mismatches(result, expected, form, a))[:5] == []


def test_saturation_and_flushing_of_floats() -> None:
    (a,) = ieee.samples(ieee.F32, 1, COUNT, seed=11)
    (result,) = operation("cvt", ("sat", "f32", "f32")).compute(a)
    one = 0x3F800000
    expected = [
        0 if ieee.is_nan(bits, ieee.F32) or ieee.minus(bits, ieee.F32) else min(bits, one)
        for bits in a.tolist()
    ]
    assert result.tolist() == expected
    (result,) = operation("cvt", ("rn", "ftz", "f16", "f32")).compute(a)
    expected = [converted(ieee.flush(bits, ieee.F32), ieee.F32, ieee.F16, "rn") for bits in a.tolist()]
    assert list(ieee.mismatches(result, expected, ieee.F16, a)) == []
    (a,) = ieee.samples(ieee.F64, 1, COUNT, seed=12)
    a = np.concatenate([a, (2.0 ** np.arange(-150, -120)).view(np.uint64)])
    (result,) = operation("cvt", ("rn", "ftz", "f32", "f64")).compute(a)
    expected = []
    for bits in a.tolist():
        wanted = converted(bits, ieee.F64, ieee.F32, "rn")
        expected.append(wanted if wanted == ieee.NAN else ieee.flush(wanted, ieee.F32))
    assert list(ieee.mismatches(result, expected, ieee.F32, a)) == []


@pytest.mark.parametrize(
    ("to", "nan"),
    [("f16", 0x7FFF), ("bf16", 0x7FFF), ("f32", 0x7FFFFFFF), ("f64", 0x7FF8 << 48), ("tf32", 0x7FFFE000)],
)
def test_a_nan_becomes_the_format_s_own(to: str, nan: int) -> None:
    source = "f64" if to in ("f32", "f16", "bf16") else "f32"
    form = ieee.LAYOUTS[source]
    bits = np.array([form.infinity + 1, form.sign | (form.infinity + 3), form.sign - 1], form.dtype)
    modifiers = (to, source) if to == "f64" else ("rn", to, source)
    assert operation("cvt", modifiers).compute(bits)[0].tolist() == [nan] * 3
