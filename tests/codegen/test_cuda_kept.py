"""Kernels for a GPU that keep a row on chip: softmax, LayerNorm, attention; what they read, and how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from cuda_regions import compare, emulated, run, traffic
from golden import Golden
from region_builder import BF16, F16, F32, Build, evaluate_region
from test_stream import arrays, attention

from tinyc.codegen.cuda import generate
from tinyc.extract.cost.traffic import traffic as estimated
from tinyc.ir import rows
from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Plan
from tinyc.ir.region import Let, Region
from tinyc.ir.rows import kept_reads

LOG2E = 1.4426950408889634
TOLERANCE = {F32: 3e-6, F16: 2e-3, BF16: 1.6e-2}


def softmax(rows: int, columns: int, dtype: DType = F32, *, log: bool = False) -> Region:
    """exp(x - max) / sum, or its logarithm, each step rounded to ``dtype`` but the sum, which is fp32."""
    b = Build(i=rows, j=columns)
    b.input("X", dtype, rows, columns)
    largest = b.reduce("MAX", b.read("X", "i", "r"), r=columns)

    def less(name: str) -> str:
        return b.cast(b.binary("SUB", b.read("X", "i", name), largest), F32)

    def power(name: str) -> str:
        return b.unary("EXP2", b.binary("MUL", less(name), b.const(LOG2E)))

    total = b.reduce("SUM", power("s"), s=columns)
    if log:
        scaled = b.binary("MUL", b.unary("LOG2", total), b.const(1 / LOG2E))
        return b.done(b.cast(b.binary("SUB", less("j"), scaled), dtype))
    return b.done(b.cast(b.binary("FDIV", power("j"), total), dtype))


def layer_norm(rows: int, columns: int, dtype: DType = F32) -> Region:
    b = Build(i=rows, j=columns)
    b.input("X", dtype, rows, columns)
    gain, bias = b.input("G", dtype, columns), b.input("B", dtype, columns)

    def mean(body: str, **axis: int) -> str:
        return b.binary("MUL", b.reduce("SUM", body, **axis), b.const(1 / columns))

    average = mean(b.cast(b.read("X", "i", "r"), F32), r=columns)

    def centred(name: str) -> str:
        return b.binary("SUB", b.cast(b.read("X", "i", name), F32), average)

    square = b.binary("MUL", centred("s"), centred("s"))
    variance = mean(square, s=columns)
    scale = b.unary("RSQRT", b.binary("ADD", variance, b.const(1e-5)))
    value = b.binary("MUL", b.binary("MUL", centred("j"), scale), b.cast(b.read(gain, "j"), F32))
    return b.done(b.cast(b.binary("ADD", value, b.cast(b.read(bias, "j"), F32)), dtype))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("columns", [1, 33, 1000, 5000])
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
def test_softmax(columns: int, dtype: DType, log: bool) -> None:
    region = softmax(5, columns, dtype, log=log)
    compare(region, arrays(region, 3.0), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (70, 33), (5, 768), (3, 1001), (2, 5000)])
def test_layer_norm(shape: tuple[int, int], dtype: DType) -> None:
    region = layer_norm(*shape, dtype)
    assert shape[1] < 8 or generate(region).algo == "rows"
    compare(region, arrays(region), rtol=2 * TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("columns", [512, 1024, 4096, 8192])
@pytest.mark.parametrize("make", [softmax, layer_norm])
def test_a_row_is_read_once(make: Callable[..., Region], columns: int, dtype: DType) -> None:
    rows = 4
    region = make(rows, columns, dtype)
    read, written = traffic(emulated(region, arrays(region)).counters)
    row = columns * dtype.itemsize // 32
    assert read == rows * row * len(region.inputs)  # a LayerNorm's gains and biases for each row
    assert written == rows * row


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_rows_are_accessed_16_bytes_at_a_time(dtype: DType) -> None:
    for make in (softmax, layer_norm):
        region = make(4, 1024, dtype)
        counters = emulated(region, arrays(region)).counters
        assert all(".v4." in each.instruction for each in counters.global_), counters.global_


def test_a_row_that_does_not_fit_is_read_again() -> None:
    columns = 100_000
    region = softmax(1, columns)
    result = emulated(region, arrays(region))
    read, written = traffic(result.counters)
    assert read == 3 * columns * 4 // 32 and written == columns * 4 // 32
    compare(region, arrays(region), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("columns", [64, 512, 4096, 8192, 100_000])
def test_what_is_read_again_is_what_the_estimate_says(columns: int, dtype: DType) -> None:
    region = softmax(3, columns, dtype)
    read, _ = traffic(emulated(region, arrays(region)).counters)
    kept = kept_reads(region)
    assert len(kept) == (2 if columns < 100_000 else 0)
    moved = estimated(region, Plan(arch="sm80"), frozenset(), kept=kept)
    assert 32 * read == region.inputs[0].bytes + moved.reread


def test_only_what_lies_along_the_same_row_is_kept() -> None:
    """x[i, j] + max over r of x[i, r] + max over s of x[s, i]: the last one is a column."""
    b = Build(i=16, j=16)
    b.input("X", F32, 16, 16)
    row, column = b.reduce("MAX", b.read("X", "i", "r"), r=16), b.reduce("MAX", b.read("X", "s", "i"), s=16)
    region = b.done(b.binary("ADD", b.binary("ADD", b.read("X", "i", "j"), row), column))
    assert len(kept_reads(region)) == 1


def test_each_read_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of one token that computes all layers again reads hundreds of buffers, and is asked for each of its Plans: to compare all
    reads of 90 kernels took minutes."""
    inputs, looked = 40, list[str]()
    b = Build(i=16, j=64)
    total = ""
    for number in range(inputs):
        b.input(f"X{number}", F32, 16, 64)
        part = b.binary(
            "SUB", b.read(f"X{number}", "i", "j"), b.reduce("MAX", b.read(f"X{number}", "i", "r"), r=64)
        )
        total = b.binary("ADD", total, part) if total else part
    region = b.done(total)
    form = rows._form

    def noted(lets: Mapping[str, Let], root: str) -> tuple[tuple[object, ...], tuple[str, ...]]:
        looked.append(root)
        return form(lets, root)

    monkeypatch.setattr(rows, "_form", noted)
    assert len(kept_reads(region)) == inputs
    assert len(looked) == len(set(looked)) == 2 * inputs


def test_exponentials_are_computed_once() -> None:
    region = softmax(2, 1024)
    counters = emulated(region, arrays(region)).counters
    assert counters.instructions["ex2.approx.f32"] * 32 == 2 * 1024


def test_special_rows() -> None:
    region = softmax(4, 1000)
    data = arrays(region)
    data["X"][0] = -np.inf
    data["X"][1, 999] = np.nan
    data["X"][2, 500] = np.inf
    data["X"][3, :999] = -np.inf
    got = run(region, data)["y0"]
    assert np.isnan(got[:3]).any(axis=1).all() and np.isnan(got[[0, 1]]).all()
    np.testing.assert_array_equal(got[3], np.eye(1000, dtype=np.float32)[999])
    compare(region, data, rtol=3e-6, atol=1e-9)


@pytest.mark.parametrize("columns", [16, 1000])
def test_a_largest_value_that_is_first_needed_within_a_sum(columns: int) -> None:
    """The result takes it from a buffer: the walk for it begins in that of the sum, when the row has been read there."""
    b = Build(i=6, j=columns)
    b.input("X", F32, 6, columns), b.input("M", F32, 6)

    def power(read: str, less: str) -> str:
        return b.unary("EXP2", b.binary("SUB", read, less))

    value, read = power(b.read("X", "i", "j"), b.read("M", "i")), b.read("X", "i", "r")
    largest = b.reduce("MAX", read, r=columns)
    region = b.done(b.binary("FDIV", value, b.reduce("SUM", power(read, largest), r=columns)))
    data = arrays(region)
    data["M"] = data["X"].max(1)
    compare(region, data, rtol=3e-6)


def scores(b: Build, n: int, k: int, name: str) -> str:
    """Q[i, :] . K[name, :]; the sum's axis is called after ``name``."""
    q, key = b.read("Q", "i", f"{name}k"), b.read("K", name, f"{name}k")
    return b.reduce("SUM", b.binary("MUL", q, key), **{f"{name}k": k})


def attended(m: int, n: int, d: int, k: int) -> Region:
    """softmax(Q Kᵀ) V written out: the scores three times."""
    b = Build(i=m, j=d)
    b.input("Q", F32, m, k), b.input("K", F32, n, k), b.input("V", F32, n, d)
    largest = b.reduce("MAX", scores(b, n, k, "r"), r=n)

    def power(name: str) -> str:
        return b.unary("EXP2", b.binary("SUB", scores(b, n, k, name), largest))

    total = b.reduce("SUM", power("s"), s=n)
    part = b.binary("FDIV", power("t"), total)
    return b.done(b.reduce("SUM", b.binary("MUL", part, b.read("V", "t", "j")), t=n))


@pytest.mark.parametrize(
    "shape", [(3, 17, 5, 9), (7, 64, 64, 32), (2, 300, 16, 8), (1, 40, 8, 8), (3, 15, 31, 8)]
)
def test_scores_are_computed_once(shape: tuple[int, int, int, int]) -> None:
    """15: what is kept of a row ends amid 16 bytes, which the compiler would read whole."""
    m, n, d, k = shape
    region = attended(m, n, d, k)
    compare(region, arrays(region), rtol=1e-5, atol=1e-6)
    counters = emulated(region, arrays(region)).counters
    read = {each.cuda: each for each in counters.global_ if each.instruction.startswith("ld")}
    products = counters.instructions["mul.rn.f32"]
    # a warp multiplies for 32 scores at a time; three times as many would be needed without what is kept
    warps = -(-n // 32)
    assert products < m * (1.5 * warps * k + 4 * n * -(-d // 32) + 4 * n) and read


def test_streams_keep_their_scores() -> None:
    """fp32, which the matrix units do not take."""
    region = attention(6, 70, 24, k=16, h=2, causal=True)
    assert generate(region).algo == "rows"
    compare(region, arrays(region), rtol=2e-5, atol=2e-6)


def test_scores_from_memory_in_vectors_go_to_shared_memory() -> None:
    region = attention(6, 512, 32)
    compare(region, arrays(region), rtol=2e-5, atol=2e-6)
    assert emulated(region, arrays(region)).counters.bank_conflicts == 0


def test_a_function_of_two_places_of_a_row_is_not_taken_from_one() -> None:
    """sum over r of max over s of |x[r] - x[s]|: the inner loop goes over all s, at each r."""
    b = Build(i=3)
    b.input("X", F32, 3, 40)

    def double(name: str) -> str:
        return b.unary("EXP2", b.read("X", "i", name))

    inner = b.reduce("MAX", b.binary("SUB", double("r"), double("s")), s=40)
    region = b.done(b.reduce("SUM", inner, r=40))
    data = arrays(region)
    compare(region, data, rtol=1e-5)
    assert evaluate_region(region, data)["y0"].shape == (3,)


def test_the_source_of_a_softmax(golden: Golden) -> None:
    golden(generate(softmax(64, 1000)).source, ".cu")
