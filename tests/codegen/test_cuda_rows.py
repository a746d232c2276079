"""Kernels for a GPU whose threads share what a row needs, in the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_regions import compare, run
from region_builder import BOOL, F16, F32, I32, Build, gemm
from test_stream import arrays, attention

import tinyc
from tinyc import functions as tc
from tinyc.codegen.cuda import generate
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region


def normalised(rows: int, columns: int, dtype: DType = F32, *, features: int = 0) -> Region:
    """x - mean(x) over rows, divided by the largest; times a matrix to ``features`` where that is given."""
    b = Build(i=rows, j=features or columns)
    b.input("X", dtype, rows, columns)

    def at(name: str) -> str:
        x = b.read("X", "i", name)
        return x if dtype is F32 else b.cast(x, F32)

    mean = b.binary("FDIV", b.reduce("SUM", at("r"), r=columns), b.const(float(columns), F32))
    largest = b.reduce("MAX", b.binary("SUB", at("s"), mean), s=columns)

    def value(name: str) -> str:
        return b.binary("FDIV", b.binary("SUB", at(name), mean), largest)

    if not features:
        return b.done(value("j"))
    weight = b.read(b.input("W", F32, columns, features), "k", "j")
    return b.done(b.reduce("SUM", b.binary("MUL", value("k"), weight), k=columns))


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("shape", [(1, 8), (3, 33), (70, 64), (2, 511), (2, 512), (3, 5000), (300, 9)])
def test_rows(shape: tuple[int, int], dtype: DType) -> None:
    region = normalised(*shape, dtype)
    assert generate(region).algo == "rows"
    compare(region, arrays(region), rtol=3e-5, atol=3e-6)


def test_a_product_of_normalised_rows() -> None:
    region = normalised(5, 40, features=7)
    assert generate(region).algo == "rows"
    compare(region, arrays(region), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "PROD"])
@pytest.mark.parametrize("dtype", [F32, F16, I32, BOOL], ids=str)
@pytest.mark.parametrize("terms", [(1, 40), (3, 300)])
def test_sums_of_integers_are_exact(terms: tuple[int, int], dtype: DType, op: str) -> None:
    b = Build(i=5)
    b.input("X", dtype, 5, *terms)
    region = b.done(b.reduce(op, b.read("X", "i", "r", "s"), r=terms[0], s=terms[1]))
    rng = np.random.default_rng(0)
    data = 1 - 2 * rng.integers(0, 2, (5, *terms)) if op == "PROD" else rng.integers(-1, 2, (5, *terms))
    assert generate(region).algo == "rows"
    compare(region, {"X": data.astype(dtype.numpy)})


def test_a_sum_over_everything() -> None:
    b = Build()
    b.input("X", I32, 7, 900)
    region = b.done(b.reduce("SUM", b.read("X", "r", "s"), r=7, s=900))
    assert generate(region).algo == "rows"
    compare(region, {"X": np.arange(6300, dtype=np.int32).reshape(7, 900)})


def test_what_a_whole_buffer_needs_is_shared_by_one_block() -> None:
    b = Build(i=6, j=50)
    b.input("X", F32, 6, 50)
    largest = b.reduce("MAX", b.read("X", "r", "s"), r=6, s=50)
    region = b.done(b.binary("SUB", b.read("X", "i", "j"), largest))
    kernel = generate(region)
    assert kernel.algo == "rows" and kernel.grid == (1, 1, 1)
    compare(region, arrays(region))


def test_a_maximum_of_nan_is_nan_in_all_of_its_row() -> None:
    region = normalised(3, 600)
    data = arrays(region)
    data["X"][1, 555] = np.nan
    found = run(region, data)[region.outputs[0].name]
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("shape", [(3, 700, 40), (5, 37, 8)])
def test_streams(shape: tuple[int, int, int]) -> None:
    region = attention(*shape, h=2)
    compare(region, arrays(region), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("region", "algo"),
    [
        (gemm(20, 30, 40)[0], "columns"),  # neighbouring threads read neighbouring columns
        (gemm(20, 30, 4, bt=True)[0], "loops"),  # too short
        (attention(5, 37, 8, last="m"), "columns"),  # rows are no first iters
    ],
    ids=["product", "short", "across"],
)
def test_what_has_no_rows(region: Region, algo: str) -> None:
    assert generate(region).algo == algo
    compare(region, arrays(region), rtol=1e-4, atol=1e-5)


def test_lanes_read_and_write_what_lies_together() -> None:
    from tinyc.codegen.emulator import Uninitialised, emulate
    from tinyc.codegen.nvrtc import compile_ptx

    kernel = generate(normalised(16, 512))
    result = emulate(
        compile_ptx(kernel.source),
        kernel.name,
        kernel.grid,
        kernel.block,
        [np.ones((16, 512), np.float32), Uninitialised((16, 512), np.float32)],
    )
    assert all(each.sectors == each.ideal for each in result.counters.global_)
    assert result.counters.bank_conflicts == 0 and not result.findings


def test_short_sums_of_many_points_are_a_threads() -> None:
    """The nine taps of a depthwise convolution: threads that shared a sum were sixteen to nine terms, a block to two points."""
    program = tinyc.trace(
        lambda x, w: tc.conv(x, w, pad=1, groups=64),
        tinyc.spec("fp16", (32, 64, 56, 56)),
        tinyc.spec("fp16", (64, 1, 3, 3)),
    )
    (kernel,) = tinyc.optimize_and_compile(program, "sm80").kernels
    points = 32 * 64 * 56 * 56
    made = generate(kernel.region, kernel.plan)
    assert made.grid[0] * made.block[0] <= points
