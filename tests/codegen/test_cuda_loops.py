"""Kernels for a GPU as loops: every operation and dtype, random Regions, places outside of buffers, in the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_regions import compare, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from region_builder import BF16, BOOL, F16, F32, I32, Build, axis, gemm, lit
from test_elementwise import OPERATIONS, values
from test_random import regions
from test_stream import arrays, attention

from tinyc.codegen.cuda import generate
from tinyc.codegen.cuda.indices import index_type
from tinyc.codegen.nvrtc import compile_ptx
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region
from tinyc.ir.tiny import ROUNDED, UNARY

#: relative; of functions that the library approximates, in fp32 and after rounding
APPROXIMATE = {F32: 4e-7, F16: 1e-3, BF16: 8e-3}


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, dtype: DType) -> None:
    b = Build(i=203)
    b.input("X", dtype, 203)
    rtol = APPROXIMATE[dtype] if op in ("EXP2", "LOG2", "SIN") else 0
    compare(b.done(b.unary(op, b.read("X", "i"))), {"X": values(dtype, 203)}, rtol=rtol, atol=rtol / 100)


def test_numbers_are_rounded_to_tf32() -> None:
    b = Build(i=203)
    b.input("X", F32, 203)
    compare(b.done(b.unary(ROUNDED, b.read("X", "i"))), {"X": values(F32, 203)})


@pytest.mark.parametrize("op", ["NEG", "RELU"])
def test_unary_of_integers(op: str) -> None:
    b = Build(i=203)
    b.input("X", I32, 203)
    compare(b.done(b.unary(op, b.read("X", "i"))), {"X": values(I32, 203)})


@pytest.mark.parametrize(("op", "dtype"), OPERATIONS, ids=str)
def test_binary(op: str, dtype: DType) -> None:
    b = Build(i=24, j=24)
    b.input("X", dtype, 24)
    rtol = APPROXIMATE[dtype] if op == "POW" else 0
    compare(b.done(b.binary(op, b.read("X", "i"), b.read("X", "j"))), {"X": values(dtype, 24)}, rtol=rtol)


@pytest.mark.parametrize("target", [F32, F16, BF16, I32, BOOL], ids=str)
@pytest.mark.parametrize("source", [F32, F16, BF16, I32, BOOL], ids=str)
def test_cast(source: DType, target: DType) -> None:
    b = Build(i=100)
    b.input("X", source, 100)
    compare(b.done(b.cast(b.read("X", "i"), target)), {"X": values(source, 100)})


@pytest.mark.parametrize("op", ["SUM", "PROD", "MAX", "MIN"])
@pytest.mark.parametrize("dtype", [F32, F16, I32, BOOL], ids=str)
def test_reduce(op: str, dtype: DType) -> None:
    b = Build(i=5)
    b.input("X", dtype, 5, 6, 7)
    region = b.done(b.reduce(op, b.read("X", "i", "r", "s"), r=6, s=7))
    rng = np.random.default_rng(0)
    data = rng.integers(-1, 2, (5, 6, 7)) if op != "PROD" else 1 - 2 * rng.integers(0, 2, (5, 6, 7))
    compare(region, {"X": data.astype(dtype.numpy)})


def test_a_maximum_of_nan_is_nan() -> None:
    b = Build(i=3)
    b.input("X", F32, 3, 4)
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    data[1, 2] = np.nan
    compare(b.done(b.reduce("MAX", b.read("X", "i", "r"), r=4)), {"X": data})


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(regions(), st.integers(0, 2**31))
def test_random_regions(region: Region, seed: int) -> None:
    rng = np.random.default_rng(seed)
    compare(
        region,
        {ref.name: rng.integers(-2, 3, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs},
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [F16, F32, I32], ids=str)
@pytest.mark.parametrize("shape", [(5, 7, 9), (1, 1, 1), (33, 20, 17)])
def test_a_product_of_small_integers_is_exact(shape: tuple[int, int, int], dtype: DType, arch: str) -> None:
    m, n, k = shape
    region, _ = gemm(m, n, k, dtype, relu=True)
    rng = np.random.default_rng(1)
    arrays = {ref.name: rng.integers(-3, 4, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}
    found = run(region, arrays, arch=arch)
    exact = arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64) + arrays["bias"]
    (output,) = found.values()
    assert np.array_equal(output.astype(np.float64), np.maximum(exact, 0))


def test_sums_and_products_are_not_contracted() -> None:
    b = Build(i=1)
    b.input("X", F32, 1)
    x = b.read("X", "i")
    square = b.binary("MUL", x, x)
    region = b.done(b.binary("SUB", square, b.cast(b.cast(square, F16), F32)))
    compare(region, {"X": np.array([1.0003662], np.float32)})
    source = generate(region).source
    assert "fma" not in compile_ptx(source)


def test_nothing_outside_a_buffer_is_read() -> None:
    b = Build(i=40)
    b.input("X", F32, 8, 3)
    index = axis("i") * 3 - 50
    row = index // 2
    value = b.select(b.within(row, 0, 8), b.read("X", row, lit(2)), b.const(7.0, F32))
    compare(b.done(value), {"X": np.arange(24, dtype=np.float32).reshape(8, 3)})


def test_many_points_have_wide_indices() -> None:
    b = Build(i=3, j=2**30)
    b.input("X", I32, 3, 2**30)
    region = b.done(b.read("X", "i", "j"))
    assert index_type(region) == "long long"
    source = generate(region).source
    assert "const long long t = (long long)blockIdx.x * 256 + threadIdx.x;" in source
    compile_ptx(source)
    b = Build(i=2**32 + 1)
    b.input("X", I32, 2**32 + 1)
    total = b.done(b.read("X", "i"))
    b = Build()
    b.input("X", I32, 2**32 + 1)
    for each in (total, b.done(b.reduce("SUM", b.read("X", "r"), r=2**32 + 1))):
        compile_ptx(generate(each).source)  # in vectors, the last of which hangs over
    b = Build(i=2**20, j=2**12)
    b.input("X", F16, 2**12, 2**20)
    compile_ptx(generate(b.done(b.read("X", "j", "i"))).source)
    b = Build(i=2**20 + 1, j=2**12)
    b.input("X", F16, 2**20 + 1, 2**12)
    largest = b.reduce("MAX", b.read("X", "i", "r"), r=2**12)
    compile_ptx(generate(b.done(b.binary("SUB", b.read("X", "i", "j"), largest))).source)
    b = Build(i=3, j=2**20)
    b.input("X", I32, 3, 2**20)
    assert index_type(b.done(b.read("X", "i", "j"))) == "int"


def test_more_points_than_threads_are_refused() -> None:
    b = Build(i=2**31, j=2**31)
    b.input("X", I32, 1)
    with pytest.raises(TinycError, match="more than a grid has threads") as caught:
        generate(b.done(b.read("X", lit(0))))
    assert caught.value.kind == "CodegenFailed"


def test_a_source_includes_nothing_and_names_nothing_of_the_users() -> None:
    b = Build(point=4)
    b.input("users_input", F16, 4)
    region = b.done(b.unary("NEG", b.read("users_input", "point")))
    source = generate(region).source
    assert "#include" not in source
    assert not any(name in source for name in ("users_input", "point", region.name, region.outputs[0].name))
    assert generate(region) == generate(region)


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 37, 8), (7, 16, 17)])
def test_a_stream(shape: tuple[int, int, int], dtype: DType) -> None:
    region = attention(*shape, k=6, h=2, dtype=dtype, causal=shape[0] <= shape[1])
    compare(region, arrays(region), rtol=2e-5, atol=2e-6)


def test_a_stream_over_a_row_of_minus_infinity_is_nan() -> None:
    region = attention(3, 5, 2)
    data = arrays(region)
    data["S"][0, 1] = -np.inf
    found = run(region, data)
    assert np.isnan(found[region.outputs[0].name][0, 1]).all()
    compare(region, data, rtol=2e-5, atol=2e-6)
