"""Every operation and dtype on single elements, special values and rounding, against numpy and playback."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from region_builder import BF16, BOOL, F16, F32, I32, Build, axis, compare, lit, run

from tinyc.codegen.cpu import generate
from tinyc.codegen.cpu.host import host
from tinyc.codegen.playback import evaluate_region
from tinyc.ir.dtypes import DType
from tinyc.ir.infer import computes
from tinyc.ir.plan import Plan
from tinyc.ir.region import Const
from tinyc.ir.tiny import BINARY, COMPARE, ROUNDED, UNARY
from tinyc.runtime.jit import Code

TINY = np.float32(1e-45)
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, TINY, -TINY, 1e-40, 3e38, -3e38, 1, -1, 0.5, 2.5, -7.25, 65504, 65520, 1e-8],
    np.float32,
)  # fmt: skip


def values(dtype: DType, count: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    if dtype is BOOL:
        return rng.integers(0, 2, count).astype(bool)
    if dtype is I32:
        edges = np.array([0, 1, -1, 2**31 - 1, -(2**31), 7], np.int32)
        return np.resize(np.concatenate([edges, rng.integers(-100, 100, count)]), count).astype(np.int32)
    with np.errstate(over="ignore"):
        return np.resize(np.concatenate([SPECIAL, rng.normal(0, 3, count)]), count).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, dtype: DType) -> None:
    b = Build(i=203)
    b.input("X", dtype, 203)
    # one unit in the last place where the C library and numpy may differ, none elsewhere
    ulp = {F32: 3e-7, F16: 1e-3, BF16: 8e-3}[dtype] if op in ("EXP2", "LOG2", "SIN") else 0
    compare(b.done(b.unary(op, b.read("X", "i"))), {"X": values(dtype, 203)}, rtol=ulp)


def test_numbers_are_rounded_to_tf32() -> None:
    b = Build(i=203)
    b.input("X", F32, 203)
    compare(b.done(b.unary(ROUNDED, b.read("X", "i"))), {"X": values(F32, 203)})


OPERATIONS = [
    (op, dtype) for op in (*BINARY, *COMPARE) for dtype in (F32, F16, BF16, I32, BOOL) if computes(op, dtype)
]


@pytest.mark.parametrize(("op", "dtype"), OPERATIONS, ids=str)
def test_binary(op: str, dtype: DType) -> None:
    b = Build(i=24, j=24)
    b.input("X", dtype, 24)
    x, y = b.read("X", "i"), b.read("X", "j")
    ulp = {F32: 3e-7, F16: 1e-3, BF16: 8e-3}[dtype] if op == "POW" else 0
    compare(b.done(b.binary(op, x, y)), {"X": values(dtype, 24)}, rtol=ulp)


@pytest.mark.parametrize("op", ["NEG", "RELU"])
def test_integers(op: str) -> None:
    b = Build(i=50)
    b.input("X", I32, 50)
    compare(b.done(b.unary(op, b.read("X", "i"))), {"X": values(I32, 50)})


@pytest.mark.parametrize("target", DType, ids=str)
@pytest.mark.parametrize("source", DType, ids=str)
def test_cast(source: DType, target: DType) -> None:
    b = Build(i=301)
    b.input("X", source, 301)
    array = values(source, 301)
    compare(b.done(b.cast(b.read("X", "i"), target)), {"X": array})


def test_cast_to_i32_truncates_saturates_and_takes_nan_as_zero() -> None:
    b = Build(i=6)
    b.input("X", F32, 6)
    x = np.array([1.9, -1.9, np.nan, 1e20, -1e20, np.inf], np.float32)
    got = run(b.done(b.cast(b.read("X", "i"), I32)), {"X": x})["y0"]
    assert got.tolist() == [1, -1, 0, 2**31 - 1, -(2**31), 2**31 - 1]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("by_instruction", [True, False])
def test_every_narrow_float_rounds_as_numpy_does(dtype: DType, by_instruction: bool) -> None:
    """All 65536 patterns, and the middles between neighbours, by instructions and by integers."""
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(all="ignore"):
        wide = patterns.astype(np.float32)
        middles = ((wide.astype(np.float64) + np.roll(wide, 1)) / 2).astype(np.float32)
    n = 1 << 17
    b = Build(i=n)
    b.input("X", F32, n)
    region = b.done(b.cast(b.cast(b.read("X", "i"), dtype), F32), b.cast(b.read("X", "i"), dtype))
    x = np.concatenate([wide, middles])
    target = replace(host(), fp16=by_instruction and host().fp16)
    kernel = generate(region, Plan(), target)
    y, z = np.empty_like(x), np.empty(n, dtype.numpy)
    call(kernel, [x, y, z])
    with np.errstate(all="ignore"):
        want = x.astype(dtype.numpy)
    np.testing.assert_array_equal(z.astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(y, want.astype(np.float32))
    assert np.array_equal(np.signbit(y), np.signbit(x) | np.isnan(x) & np.signbit(y))


def call(kernel, arrays: list[np.ndarray]) -> None:
    table = np.array([array.ctypes.data for array in arrays], np.uint64)
    scratch = np.empty(kernel.scratch_bytes + 64, np.uint8)
    Code([kernel])[kernel](table.ctypes.data, 0, kernel.extent, -(-scratch.ctypes.data // 64) * 64)


def test_exp2_is_within_two_ulp_everywhere() -> None:
    edges = [
        -149,
        -149.5,
        -150,
        -150.01,
        -126,
        -126.5,
        127.99999,
        128,
        -0.0,
        0,
        1,
        10,
        -10,
        np.inf,
        -np.inf,
        np.nan,
    ]
    x = np.concatenate([edges, np.linspace(-151, 129, 1_000_003), np.linspace(-1, 1, 100_001)]).astype(
        np.float32
    )
    b = Build(i=len(x))
    b.input("X", F32, len(x))
    got = run(b.done(b.unary("EXP2", b.read("X", "i"))), {"X": x})["y0"]
    with np.errstate(all="ignore"):
        want = np.exp2(x.astype(np.float64))
        rounded = want.astype(np.float32)
    special = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(got[special], rounded[special])
    with np.errstate(all="ignore"):
        ulp = np.spacing(np.abs(rounded[~special])).astype(np.float64)
    assert np.max(np.abs(got[~special] - want[~special]) / ulp) <= 2
    whole = np.arange(-149, 128, dtype=np.float32)
    b = Build(i=len(whole))
    b.input("X", F32, len(whole))
    exact = run(b.done(b.unary("EXP2", b.read("X", "i"))), {"X": whole})["y0"]
    np.testing.assert_array_equal(exact, np.exp2(whole.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("bits", [0x80000000, 0x7FC00001, 0xFFC12345, 0x00000001, 0x7F800000, 0x3DCCCCCD])
def test_constants_keep_their_bits(bits: int) -> None:
    b = Build(i=5)
    region = b.done(b.let(F32, Const(bits)))
    assert run(region, {})["y0"].view(np.uint32).tolist() == [bits] * 5


def test_select_and_guarded_read_at_both_ends() -> None:
    b = Build(i=12)
    b.input("X", F32, 10)
    x = b.read("X", axis("i") - 1)
    region = b.done(b.select(b.within(axis("i") - 1, 0, 10), x, b.const(-7.0)))
    array = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(run(region, {"X": array})["y0"], np.pad(array, 1, constant_values=-7))


def test_reshape_flip_stride_and_broadcast_reads() -> None:
    rng = np.random.default_rng(0)
    b = Build(i=6, j=4)
    b.input("X", F32, 3, 8)
    b.input("Y", F32, 4, 11)
    flat = axis("i") * 4 + axis("j")
    row = flat // 8
    x = b.read("X", row, flat - row * 8)
    y = b.read("Y", lit(3) - axis("j"), axis("i") * 2)
    arrays = {
        "X": rng.normal(size=(3, 8)).astype(np.float32),
        "Y": rng.normal(size=(4, 11)).astype(np.float32),
    }
    want = arrays["X"].reshape(6, 4) + arrays["Y"][::-1, :12:2].T
    np.testing.assert_array_equal(run(b.done(b.binary("ADD", x, y)), arrays)["y0"], want)


def test_floor_division_of_negative_numbers() -> None:
    b = Build(i=9)
    b.input("X", F32, 8)
    region = b.done(b.read("X", (axis("i") - 8) // 3 + 4))
    array = np.arange(8, dtype=np.float32)
    assert run(region, {"X": array})["y0"].tolist() == [array[(i - 8) // 3 + 4] for i in range(9)]


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_chain_of_ten_thousand(dtype: DType) -> None:
    b = Build(i=3, j=40)
    b.input("X", dtype, 3, 40)
    b.input("Y", dtype, 40)
    x, y = b.read("X", "i", "j"), b.read("Y", "j")
    for step in range(10_000):
        x = b.binary(("ADD", "MAX", "SUB", "MIN")[step % 4], x, y)
    rng = np.random.default_rng(1)
    arrays = {"X": rng.normal(size=(3, 40)).astype(dtype.numpy), "Y": rng.normal(size=40).astype(dtype.numpy)}
    compare(b.done(x), arrays)


def test_playback_agrees_with_numpy() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(7, 9)).astype(np.float32)
    b = Build(i=7, j=9)
    b.input("X", F32, 7, 9)
    total = b.reduce("SUM", b.unary("EXP2", b.read("X", "i", "r")), r=9)
    region = b.done(b.binary("FDIV", b.unary("EXP2", b.read("X", "i", "j")), total))
    want = np.exp2(x) / np.exp2(x).sum(1, keepdims=True)
    np.testing.assert_allclose(evaluate_region(region, {"X": x})["y0"], want, rtol=1e-6)


def test_playback_in_slices_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinyc.codegen import playback

    rng = np.random.default_rng(2)
    b = Build(i=13, j=5)
    b.input("X", I32, 13, 11)
    region = b.done(b.reduce("SUM", b.read("X", "i", "r"), r=11))
    x = {"X": rng.integers(-9, 9, (13, 11)).astype(np.int32)}
    whole = evaluate_region(region, x)["y0"]
    monkeypatch.setattr(playback, "LIMIT", 20)
    np.testing.assert_array_equal(evaluate_region(region, x)["y0"], whole)
    np.testing.assert_array_equal(whole, np.broadcast_to(x["X"].sum(1, keepdims=True), (13, 5)))
