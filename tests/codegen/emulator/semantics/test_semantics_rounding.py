"""Float arithmetic in every format and rounding mode against rational numbers."""

from __future__ import annotations

import ieee
import numpy as np
import pytest

from tinyc.codegen.emulator.semantics import operation

COUNT = 3000
ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "rcp": 1, "sqrt": 1, "fma": 3}
CASES = [
    *[(name, kind, mode) for name in ARITY for kind in ("f32", "f64") for mode in ieee.MODES],
    *[(name, kind, "rn") for name in ("add", "sub", "mul", "fma") for kind in ("f16", "bf16")],
]


@pytest.mark.parametrize(("name", "kind", "mode"), CASES)
def test_results_are_rounded_once(name: str, kind: str, mode: str) -> None:
    form = ieee.LAYOUTS[kind]
    operands = ieee.samples(form, ARITY[name], COUNT, seed=len(name) + form.width)
    found = operation(name, (mode, kind))
    assert found is not None and found.operands == (kind,) * ARITY[name] and found.results == (kind,)
    before = [operand.copy() for operand in operands]
    (result,) = found.compute(*operands)
    assert result.dtype == form.dtype
    assert all(np.array_equal(*pair) for pair in zip(before, operands, strict=True))
    columns = zip(*(operand.tolist() for operand in operands), strict=True)
    expected = [ieee.OPERATIONS[name](*column, form, mode) for column in columns]
    assert list(ieee.mismatches(result, expected, form, *operands))[:5] == []


def test_rational_numbers_agree_with_this_machine_s_floats() -> None:
    """The reference itself, held against float32 and float64 of the processor."""
    for form, dtype in ((ieee.F32, np.float32), (ieee.F64, np.float64)):
        a, b = ieee.samples(form, 2, COUNT, seed=9)
        for name, native in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
            with np.errstate(all="ignore"):
                result = native(a.view(dtype), b.view(dtype)).view(form.dtype)
            expected = [
                ieee.OPERATIONS[name](*pair, form, "rn") for pair in zip(a.tolist(), b.tolist(), strict=True)
            ]
            assert list(ieee.mismatches(result, expected, form, a, b)) == []


def f32(*values: float) -> list[np.ndarray]:
    return [np.array([value], np.float32).view(np.uint32) for value in values]


def test_fma_is_not_rounded_through_float64() -> None:
    """(1 + 2**-12)**2 - 2**-60 and the like: in float64 the sum is a tie of float32, and the last term tips it."""
    one = 1 + 2.0**-12
    (up,) = operation("fma", ("rn", "f32")).compute(*f32(one, one, 2.0**-60))
    (down,) = operation("fma", ("rn", "f32")).compute(*f32(one, one, -(2.0**-60)))
    assert up.view(np.float32)[0] == np.float32(1 + 2.0**-11 + 2.0**-23)
    assert down.view(np.float32)[0] == np.float32(1 + 2.0**-11)


def hard_sums(form: ieee.Layout, count: int, low: bool) -> list[np.ndarray]:
    """Products with few ones, far apart, and numbers added to them: sums that miss a tie by little; ``low`` ones near the
    subnormal numbers."""
    rng = np.random.default_rng(17)
    bias = (1 << (form.exponent - 1)) - 1
    p = form.fraction + 1
    operands = np.zeros((3, count), form.dtype)
    for index in range(count):
        i, j = rng.integers(1, p, 2)
        i, j = (i, i) if rng.integers(2) else (i, j)
        first = (1 << form.fraction) + (1 << (form.fraction - int(i)))
        other = (1 << (form.fraction + 1)) - (1 << (form.fraction + 1 - int(j))) if rng.integers(2) else first
        base = int(rng.choice([-p, -p - 1, -p + 1, 0, p, p + 1, p - 1, int(rng.integers(-2 * p, 2 * p))]))
        exponent = bias
        if low:
            base, exponent = -bias - p + 2 - int(rng.integers(3)), int(rng.integers(0, 2))
        half = base // 2
        signs = rng.integers(0, 2, 3)
        mantissas = (
            first,
            other,
            (1 << form.fraction) + int(rng.choice([0, 1, 2, 3, (1 << form.fraction) - 1])),
        )
        exponents = (bias + half, bias + base - half, exponent)
        for place, (mantissa, biased, sign) in enumerate(zip(mantissas, exponents, signs, strict=True)):
            bits = (max(biased, 1) << form.fraction) + mantissa - (1 << form.fraction)
            if biased == 0:
                bits = mantissa >> 1 | 1
            operands[place, index] = bits | (form.sign if sign else 0)
    return list(operands)


@pytest.mark.parametrize("low", [False, True], ids=["normal", "subnormal"])
@pytest.mark.parametrize("mode", ieee.MODES)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_fma_of_sums_that_miss_a_tie_by_little(kind: str, mode: str, low: bool) -> None:
    found = operation("fma", (mode, kind))
    if found is None:
        assert kind in ("f16", "bf16") and mode != "rn"
        return
    form = ieee.LAYOUTS[kind]
    operands = hard_sums(form, COUNT // 2, low)
    (result,) = found.compute(*operands)
    columns = zip(*(operand.tolist() for operand in operands), strict=True)
    expected = [ieee.fused(*column, form, mode) for column in columns]
    assert list(ieee.mismatches(result, expected, form, *operands))[:5] == []


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
@pytest.mark.parametrize(
    ("kind", "last"), [("f32", "sat"), ("f16", "sat"), ("f16", "relu"), ("bf16", "relu")]
)
def test_saturation_and_relu(name: str, kind: str, last: str) -> None:
    found = operation(name, ("rn", last, kind))
    if last == "relu" and name != "fma":
        assert found is None
        return
    form = ieee.LAYOUTS[kind]
    operands = ieee.samples(form, ARITY[name], COUNT, seed=3)
    (result,) = found.compute(*operands)
    one = ((1 << (form.exponent - 1)) - 1) << form.fraction
    expected = []
    for column in zip(*(operand.tolist() for operand in operands), strict=True):
        bits = ieee.OPERATIONS[name](*column, form, "rn")
        if last == "sat":
            bits = 0 if bits == ieee.NAN or ieee.minus(bits, form) else min(bits, one)
        elif bits != ieee.NAN and ieee.minus(bits, form):
            bits = 0
        expected.append(bits)
    assert list(ieee.mismatches(result, expected, form, *operands))[:5] == []


@pytest.mark.parametrize(("kind", "mode"), [*[("f32", mode) for mode in ieee.MODES], ("f16", "rn")])
@pytest.mark.parametrize("name", ARITY)
def test_ftz_flushes_operands_and_results(name: str, kind: str, mode: str) -> None:
    form = ieee.LAYOUTS[kind]
    found = operation(name, (mode, "ftz", kind))
    if found is None:
        assert kind == "f16" and name in ("div", "rcp", "sqrt")
        return
    operands = ieee.samples(form, ARITY[name], COUNT, seed=4)
    small = np.random.default_rng(5).integers(0, 4 << form.fraction, (ARITY[name], 500)).astype(form.dtype)
    operands = [np.concatenate([operand, more]) for operand, more in zip(operands, small, strict=True)]
    (result,) = found.compute(*operands)
    expected = []
    for column in zip(*(operand.tolist() for operand in operands), strict=True):
        bits = ieee.OPERATIONS[name](*(ieee.flush(each, form) for each in column), form, mode)
        expected.append(bits if bits == ieee.NAN else ieee.flush(bits, form))
    assert list(ieee.mismatches(result, expected, form, *operands))[:5] == []


@pytest.mark.parametrize("kind", ["f64", "bf16"])
def test_ftz_is_not_for_every_format(kind: str) -> None:
    assert operation("add", ("rn", "ftz", kind)) is None
    assert operation("neg", ("ftz", kind)) is None


@pytest.mark.parametrize(
    ("kind", "nan"), [("f32", 0x7FFFFFFF), ("f16", 0x7FFF), ("bf16", 0x7FFF), ("f64", 0x7FF8 << 48)]
)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "div", "sqrt", "rcp"])
def test_a_nan_is_the_format_s_own(name: str, kind: str, nan: int) -> None:
    if operation(name, ("rn", kind)) is None:
        assert kind in ("f16", "bf16")
        return
    form = ieee.LAYOUTS[kind]
    for bits in (form.infinity + 1, form.sign | (form.infinity + 5), form.sign - 1):
        operands = [np.array([bits], form.dtype)] * ARITY[name]
        assert operation(name, ("rn", kind)).compute(*operands)[0].tolist() == [nan]


def test_packed_halves_are_computed_one_by_one() -> None:
    rng = np.random.default_rng(6)
    for kind in ("f16", "bf16"):
        for name, arity in (("add", 2), ("mul", 2), ("fma", 3)):
            packed = [rng.integers(0, 1 << 32, (3, 32), np.uint32) for _ in range(arity)]
            (result,) = operation(name, ("rn", f"{kind}x2")).compute(*packed)
            assert result.shape == (3, 32) and result.dtype == np.uint32
            for shift in (0, 16):
                halves = [((each >> shift) & 0xFFFF).astype(np.uint16) for each in packed]
                (expected,) = operation(name, ("rn", kind)).compute(*halves)
                assert np.array_equal((result >> shift) & 0xFFFF, expected)


@pytest.mark.parametrize("shape", [(), (1,), (4, 32), (2, 0)])
def test_any_shape_is_kept(shape: tuple[int, ...]) -> None:
    for name, modifiers in (
        ("fma", ("rn", "f32")),
        ("fma", ("rz", "f32")),
        ("fma", ("rn", "f64")),
        ("fma", ("rn", "f16x2")),
        ("add", ("rn", "sat", "f32")),
        ("sqrt", ("rp", "f64")),
        ("mul", ("rm", "f64")),
        ("div", ("s32",)),
        ("rem", ("u64",)),
        ("max", ("f32",)),
        ("ex2", ("approx", "ftz", "f32")),
        ("cvt", ("rni", "s32", "f32")),
        ("prmt", ("b32",)),
        ("bfe", ("s32",)),
    ):
        found = operation(name, modifiers)
        operands = [np.zeros(shape, bits(kind)) for kind in found.operands]
        for result, kind in zip(found.compute(*operands), found.results, strict=True):
            assert np.shape(result) == shape and result.dtype == bits(kind)


def bits(kind: str) -> np.dtype:
    return (
        np.dtype(bool)
        if kind == "pred"
        else np.dtype(f"uint{32 if kind.endswith('x2') else kind.lstrip('bfsu')}")
    )
