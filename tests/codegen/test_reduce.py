"""Reductions as loops: rows, columns, nested, staged, scalar, in every dtype."""

from __future__ import annotations

import numpy as np
import pytest
from region_builder import BF16, BOOL, F16, F32, I32, Build, compare, generate, run

from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Plan

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def softmax(rows: int, columns: int, along: int):
    """Softmax of X[rows, columns] over one axis, in one Region."""
    b = Build(i=rows, j=columns)
    b.input("X", F32, rows, columns)
    size = (rows, columns)[along]

    def read(name: str) -> str:
        return b.read("X", "i", name) if along else b.read("X", name, "j")

    largest = b.reduce("MAX", read("r"), r=size)
    total = b.reduce("SUM", b.unary("EXP2", b.binary("SUB", read("q"), largest)), q=size)
    mine = b.unary("EXP2", b.binary("SUB", b.read("X", "i", "j"), largest))
    return b.done(b.binary("FDIV", mine, total))


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (33, 65), (300, 3), (5, 700)])
@pytest.mark.parametrize("along", [0, 1])
def test_softmax(shape: tuple[int, int], along: int) -> None:
    x = normal(*shape) * 3
    got = run(softmax(*shape, along), {"X": x})["y0"]
    e = np.exp2(x.astype(np.float64) - x.max(along, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(along, keepdims=True), rtol=2e-6, atol=1e-12)


def test_row_reductions_run_once_per_row() -> None:
    """No reduction loop lies inside the loop over columns: the source's phi nodes number one per loop."""
    source = generate(softmax(64, 64, 1), Plan()).source
    body = source[source.index("@body") :]
    # rows, max, sum, columns
    assert body.count(" phi i64 ") == 4
    assert body.index("r.") < body.index("i.")


def test_fully_masked_row_is_nan() -> None:
    x = np.full((2, 8), -np.inf, np.float32)
    x[1] = 1
    got = run(softmax(2, 8, 1), {"X": x})["y0"]
    assert np.isnan(got[0]).all()
    np.testing.assert_array_equal(got[1], np.full(8, 0.125, np.float32))


@pytest.mark.parametrize("split", [False, True])
def test_layer_norm(split: bool) -> None:
    shape = (17, 6, 50) if split else (17, 300)
    x = normal(*shape) * 2 + 5
    names = ("j", "k") if split else ("j",)
    b = Build(i=17, **dict(zip(names, shape[1:], strict=True)))
    b.input("X", F32, *shape)

    def over(tag: str) -> tuple[str, dict[str, int]]:
        axes = {f"{tag}{n}": size for n, size in enumerate(shape[1:])}
        return b.read("X", "i", *axes), axes

    inverse = b.const(1 / 300)
    value, axes = over("r")
    mean = b.binary("MUL", b.reduce("SUM", value, **axes), inverse)
    value, axes = over("q")
    apart = b.binary("SUB", value, mean)
    variance = b.binary("MUL", b.reduce("SUM", b.binary("MUL", apart, apart), **axes), inverse)
    scale = b.unary("RSQRT", b.binary("ADD", variance, b.const(1e-5)))
    region = b.done(b.binary("MUL", b.binary("SUB", b.read("X", "i", *names), mean), scale))
    rows = x.reshape(17, 300).astype(np.float64)
    want = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run(region, {"X": x})["y0"].reshape(17, 300), want, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("dtype", [F32, F16, BF16, I32], ids=str)
@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "PROD"])
@pytest.mark.parametrize("where", ["rows", "columns", "all", "middle"])
def test_ops_and_dtypes(op: str, dtype: DType, where: str) -> None:
    x = RNG.integers(-1 if op == "PROD" else -4, 3, (5, 13, 21)).astype(dtype.numpy)
    if op == "PROD":
        x[x == 0] = 1
    iters = {"rows": dict(i=5, j=13), "columns": dict(j=13, k=21), "all": {}, "middle": dict(i=5, k=21)}[
        where
    ]
    b = Build(**iters)
    b.input("X", dtype, 5, 13, 21)
    axes = {name: size for name, size in dict(i=5, j=13, k=21).items() if name not in iters}
    compare(b.done(b.reduce(op, b.read("X", "i", "j", "k"), **axes)), {"X": x})


@pytest.mark.parametrize("op", ["MAX", "MIN"])
def test_bool(op: str) -> None:
    x = RNG.integers(0, 2, (40, 3)).astype(bool)
    b = Build(i=40)
    b.input("X", BOOL, 40, 3)
    region = b.done(b.reduce(op, b.read("X", "i", "r"), r=3))
    want = x.any(1) if op == "MAX" else x.all(1)
    np.testing.assert_array_equal(run(region, {"X": x})["y0"], want)


@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("op", ["MAX", "MIN"])
def test_nan_and_infinity_propagate_as_in_numpy(op: str, along: int) -> None:
    x = normal(40, 40)
    x[3, 7], x[5, 5], x[6, :], x[:, 9] = np.nan, np.inf, -np.inf, np.inf
    b = Build(i=40)
    b.input("X", F32, 40, 40)
    region = b.done(b.reduce(op, b.read("X", *(("i", "r") if along else ("r", "i"))), r=40))
    want = (np.max if op == "MAX" else np.min)(x, axis=along)
    np.testing.assert_array_equal(run(region, {"X": x})["y0"], want)


def test_row_and_column_totals_in_one_kernel() -> None:
    """x[i, j] / (sum_j x) / (sum_i x): neither sum is recomputed per element."""
    x = np.abs(normal(150, 2600)) + 1
    b = Build(i=150, j=2600)
    b.input("X", F32, 150, 2600)
    rows = b.reduce("SUM", b.read("X", "i", "r"), r=2600)
    columns = b.reduce("SUM", b.read("X", "q", "j"), q=150)
    region = b.done(b.binary("FDIV", b.binary("FDIV", b.read("X", "i", "j"), rows), columns))
    want = x / x.sum(1, keepdims=True) / x.sum(0)
    np.testing.assert_allclose(run(region, {"X": x})["y0"], want, rtol=1e-5)
    assert generate(region, Plan()).scratch_bytes >= 4 * 150


def test_nested_reduction_is_staged() -> None:
    """A @ (B @ C): the inner product does not depend on i, so it is computed once per (k, j)."""
    a, m, c = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((9, 11), (11, 12), (12, 10)))
    b = Build(i=9, j=10)
    b.input("A", F32, 9, 11)
    b.input("B", F32, 11, 12)
    b.input("C", F32, 12, 10)
    inner = b.reduce("SUM", b.binary("MUL", b.read("B", "k", "l"), b.read("C", "l", "j")), l=12)
    region = b.done(b.reduce("SUM", b.binary("MUL", b.read("A", "i", "k"), inner), k=11))
    np.testing.assert_array_equal(run(region, {"A": a, "B": m, "C": c})["y0"], a @ m @ c)
    assert generate(region, Plan()).scratch_bytes >= 4 * 11 * 10


def test_column_variance() -> None:
    x = normal(90, 37) + 3
    b = Build(j=37)
    b.input("X", F32, 90, 37)
    inverse = b.const(1 / 90)
    mean = b.binary("MUL", b.reduce("SUM", b.read("X", "r", "j"), r=90), inverse)
    apart = b.binary("SUB", b.read("X", "q", "j"), mean)
    region = b.done(b.binary("MUL", b.reduce("SUM", b.binary("MUL", apart, apart), q=90), inverse))
    np.testing.assert_allclose(run(region, {"X": x})["y0"], x.astype(np.float64).var(0), rtol=1e-5)


def test_two_outputs_share_their_reductions() -> None:
    x = normal(20, 30)
    b = Build(i=20)
    b.input("X", F32, 20, 30)
    largest = b.reduce("MAX", b.read("X", "i", "r"), r=30)
    total = b.reduce("SUM", b.unary("EXP2", b.binary("SUB", b.read("X", "i", "q"), largest)), q=30)
    got = run(b.done(largest, total), {"X": x})
    np.testing.assert_array_equal(got["y0"], x.max(1))
    np.testing.assert_allclose(got["y1"], np.exp2(x - x.max(1, keepdims=True)).sum(1), rtol=1e-6)
