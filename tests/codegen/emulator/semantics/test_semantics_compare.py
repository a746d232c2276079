"""setp, set, selp, slct, min, max, signs and properties of floats."""

from __future__ import annotations

import itertools
import math

import ieee
import numpy as np
import pytest

from tinyc.codegen.emulator.semantics import operation

PYTHON = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def pairs(form: ieee.Layout) -> list[np.ndarray]:
    """All pairs of edges, and some more."""
    edges = ieee.edges(form)
    both = np.array(list(itertools.product(edges, edges)), np.uint64).T
    more = np.array([each.astype(np.uint64) for each in ieee.samples(form, 2, 1000, seed=1)])
    return [row.astype(form.dtype) for row in np.concatenate([both, more], axis=1)]


def real(bits: int, form: ieee.Layout, ftz: bool = False) -> float:
    """As a Python float: exact, since no format is wider."""
    bits = ieee.flush(bits, form) if ftz else bits
    if ieee.is_nan(bits, form):
        return math.nan
    if ieee.is_inf(bits, form):
        return -math.inf if ieee.minus(bits, form) else math.inf
    return math.copysign(float(ieee.value(bits, form)), -1.0 if ieee.minus(bits, form) else 1.0)


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("kind", ieee.LAYOUTS)
def test_float_comparisons(kind: str, ftz: bool) -> None:
    form = ieee.LAYOUTS[kind]
    a, b = pairs(form)
    values = [(real(x, form, ftz), real(y, form, ftz)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    more = ("ftz",) if ftz else ()
    for name, function in PYTHON.items():
        found = operation("setp", (name, *more, kind))
        if ftz and kind not in ("f32", "f16"):
            assert found is None
            return
        assert found.results == ("pred",) and found.operands == (kind, kind)
        unordered = [math.isnan(x) or math.isnan(y) for x, y in values]
        ordered = [function(x, y) and not nan for (x, y), nan in zip(values, unordered, strict=True)]
        assert found.compute(a, b)[0].tolist() == ordered
        either = [function(x, y) or nan for (x, y), nan in zip(values, unordered, strict=True)]
        assert operation("setp", (f"{name}u", *more, kind)).compute(a, b)[0].tolist() == either
    assert operation("setp", ("nan", *more, kind)).compute(a, b)[0].tolist() == unordered
    assert operation("setp", ("num", *more, kind)).compute(a, b)[0].tolist() == [not nan for nan in unordered]


@pytest.mark.parametrize("kind", [f"{sign}{size}" for sign in "us" for size in (16, 32, 64)])
def test_integer_comparisons(kind: str) -> None:
    size = int(kind[1:])
    top = 1 << (size - 1)
    edges = [0, 1, 2, 5, top - 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1]
    both = np.array(list(itertools.product(edges, edges)), np.uint64)
    a, b = both.T.astype(f"uint{size}")
    signed = [x - 2 * top if kind[0] == "s" and x >= top else x for x in a.tolist()]
    other = [x - 2 * top if kind[0] == "s" and x >= top else x for x in b.tolist()]
    for name in (*PYTHON, *UNSIGNED):
        found = operation("setp", (name, kind))
        if name in UNSIGNED and kind[0] == "s":
            assert found is None
            continue
        expected = [PYTHON[UNSIGNED.get(name, name)](x, y) for x, y in zip(signed, other, strict=True)]
        assert found.compute(a, b)[0].tolist() == expected
    for name in ("eq", "ne"):
        assert operation("setp", (name, f"b{size}")).compute(a, b)[0].tolist() == [
            PYTHON[name](x, y) for x, y in zip(signed, other, strict=True)
        ]


def test_a_second_predicate_and_a_third_operand() -> None:
    a, b = np.array([1, 1, 2, 2], np.uint32), np.array([1, 2, 1, 2], np.uint32)
    third = np.array([True, False, True, False])
    less, not_less = operation("setp", ("lt", "u32"), results=2).compute(a, b)
    assert less.tolist() == [False, True, False, False] and not_less.tolist() == [True, False, True, True]
    for name, expected, complement in (
        ("and", [False, False, False, False], [True, False, True, False]),
        ("or", [True, True, True, False], [True, False, True, True]),
        ("xor", [True, True, True, False], [False, False, False, True]),
    ):
        found = operation("setp", ("lt", name, "u32"), results=2)
        assert found.operands == ("u32", "u32", "pred")
        first, second = found.compute(a, b, third)
        assert first.tolist() == expected and second.tolist() == complement
        (single,) = operation("setp", ("lt", name, "u32")).compute(a, b, third)
        assert single.tolist() == expected


def test_packed_comparison_gives_one_predicate_for_each_half() -> None:
    a = np.array([0x3C004000, 0x7E003C00], np.uint32)  # (2, 1), (1, NaN): lower half first
    b = np.array([0x40003C00, 0x3C003C00], np.uint32)  # (1, 2), (1, 1)
    found = operation("setp", ("lt", "f16x2"), results=2)
    assert found.results == ("pred", "pred")
    low, high = found.compute(a, b)
    assert low.tolist() == [False, False] and high.tolist() == [True, False]
    low, high = operation("setp", ("ltu", "f16x2"), results=2).compute(a, b)
    assert low.tolist() == [False, False] and high.tolist() == [True, True]


def test_set_writes_ones_or_one() -> None:
    a, b = np.array([1, 5], np.uint32), np.array([3, 3], np.uint32)
    assert operation("set", ("lt", "u32", "s32")).compute(a, b)[0].tolist() == [0xFFFFFFFF, 0]
    assert operation("set", ("lt", "f32", "s32")).compute(a, b)[0].tolist() == [0x3F800000, 0]
    third = np.array([False, True])
    assert operation("set", ("lt", "or", "s32", "u32")).compute(a, b, third)[0].tolist() == [0xFFFFFFFF] * 2
    halves = np.array([0x3C004000], np.uint32), np.array([0x40003C00], np.uint32)
    assert operation("set", ("lt", "f16x2", "f16x2")).compute(*halves)[0].tolist() == [0x3C000000]
    assert operation("set", ("gt", "u32", "f16x2")).compute(*halves)[0].tolist() == [0x0000FFFF]
    assert operation("set", ("gt", "bf16x2", "bf16x2")).compute(*halves)[0].tolist() == [0x00003F80]


def test_selections() -> None:
    a, b = np.array([1, 2], np.uint32), np.array([3, 4], np.uint32)
    assert operation("selp", ("b32",)).compute(a, b, np.array([True, False]))[0].tolist() == [1, 4]
    signs = np.array([-1, 0], np.int32).view(np.uint32)
    assert operation("slct", ("b32", "s32")).compute(a, b, signs)[0].tolist() == [3, 2]
    numbers = np.array([-0.0, np.nan, -1e-45, 1.0], np.float32).view(np.uint32)
    a, b = np.arange(4, dtype=np.uint64), np.arange(10, 14, dtype=np.uint64)
    assert operation("slct", ("u64", "f32")).compute(a, b, numbers)[0].tolist() == [0, 11, 12, 3]
    assert operation("slct", ("ftz", "u64", "f32")).compute(a, b, numbers)[0].tolist() == [0, 11, 2, 3]


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("kind", ieee.LAYOUTS)
def test_min_and_max(kind: str, name: str) -> None:
    """A NaN loses against a number, or wins with .NaN; -0 is below +0; xorsign.abs compares sizes and joins signs."""
    form = ieee.LAYOUTS[kind]
    a, b = pairs(form)
    variants = [(), ("NaN",), ("xorsign", "abs"), ("NaN", "xorsign", "abs")]
    if kind in ("f32", "f16"):
        variants += [("ftz",), ("ftz", "NaN"), ("ftz", "NaN", "xorsign", "abs")]
    for more in variants:
        found = operation(name, (*more, kind))
        if kind == "f64" and more:
            assert found is None
            continue
        (result,) = found.compute(a, b)
        expected = []
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            if "ftz" in more:
                x, y = ieee.flush(x, form), ieee.flush(y, form)
            nans = ieee.is_nan(x, form), ieee.is_nan(y, form)
            sign = (x ^ y) & form.sign
            if "xorsign" in more:
                x, y = x & ~form.sign, y & ~form.sign
            if all(nans) or (any(nans) and "NaN" in more):
                expected.append(ieee.NAN)
                continue
            if any(nans):
                value = y if nans[0] else x
            else:
                value = (min if name == "min" else max)(
                    (x, y), key=lambda bits: (real(bits, form), -int(ieee.minus(bits, form)))
                )
            expected.append(value | sign if "xorsign" in more else value)
        assert list(ieee.mismatches(result, expected, form, a, b))[:5] == [], more


@pytest.mark.parametrize("kind", ieee.LAYOUTS)
def test_signs(kind: str) -> None:
    form = ieee.LAYOUTS[kind]
    a, b = pairs(form)
    assert operation("neg", (kind,)).compute(a)[0].tolist() == [bits ^ form.sign for bits in a.tolist()]
    assert operation("abs", (kind,)).compute(a)[0].tolist() == [bits & ~form.sign for bits in a.tolist()]
    if kind in ("f32", "f16"):
        expected = [ieee.flush(bits, form) & ~form.sign for bits in a.tolist()]
        assert operation("abs", ("ftz", kind)).compute(a)[0].tolist() == expected
    if kind in ("f32", "f64"):
        (result,) = operation("copysign", (kind,)).compute(a, b)
        expected = [y & ~form.sign | x & form.sign for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert result.tolist() == expected


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_properties(kind: str) -> None:
    form = ieee.LAYOUTS[kind]
    (a, _) = pairs(form)

    def subnormal(bits: int) -> bool:
        return bits & form.infinity == 0 and bits & ~form.sign != 0

    tests = {
        "finite": lambda bits: bits & form.infinity != form.infinity,
        "infinite": lambda bits: ieee.is_inf(bits, form),
        "number": lambda bits: not ieee.is_nan(bits, form),
        "notanumber": lambda bits: ieee.is_nan(bits, form),
        "subnormal": subnormal,
        "normal": lambda bits: bits & form.infinity != form.infinity and not subnormal(bits),
    }
    for name, expected in tests.items():
        (result,) = operation("testp", (name, kind)).compute(a)
        assert result.tolist() == [expected(bits) for bits in a.tolist()], name
