"""Sums on a GPU: along rows, down columns, over everything; vectors, and threads that share them."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_regions import compare, emulated, run, traffic
from region_builder import BOOL, F16, F32, I32, Build, axis
from test_stream import arrays

from tinyc.codegen.cuda import generate
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region

OPS = ["SUM", "MAX", "MIN", "PROD"]


def integers(region: Region, op: str = "SUM") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)

    def data(shape: tuple[int, ...]) -> np.ndarray:
        return 1 - 2 * rng.integers(0, 2, shape) if op == "PROD" else rng.integers(-1, 2, shape)

    return {ref.name: data(ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}


def rows(m: int, n: int, dtype: DType = F32, op: str = "SUM") -> Region:
    b = Build(i=m)
    return b.done(b.reduce(op, b.read(b.input("X", dtype, m, n), "i", "r"), r=n))


def down(m: int, n: int, dtype: DType = F32, op: str = "SUM") -> Region:
    b = Build(i=n)
    return b.done(b.reduce(op, b.read(b.input("X", dtype, m, n), "r", "i"), r=m))


TYPES = [F32, F16, I32, BOOL]


@pytest.mark.parametrize(
    ("shape", "op", "dtype"),
    [
        *(((33, 20), op, dtype) for op in OPS for dtype in TYPES),
        *(
            (shape, "SUM", dtype)
            for shape in [(257, 64), (1000, 3), (64, 1000), (9, 1)]
            for dtype in (F32, F16)
        ),
    ],
    ids=str,
)
def test_columns(shape: tuple[int, int], op: str, dtype: DType) -> None:
    region = down(*shape, dtype, op)
    compare(region, integers(region, op))


@pytest.mark.parametrize(
    ("shape", "op", "dtype"),
    [
        *(((3, 336), op, dtype) for op in OPS for dtype in TYPES),
        *(
            (shape, "SUM", dtype)
            for shape in [(1, 8), (5, 24), (40, 64), (2, 4096), (3, 333)]
            for dtype in (F32, F16)
        ),
        ((1, 10_001), "MAX", I32),
    ],
    ids=str,
)
def test_rows(shape: tuple[int, int], op: str, dtype: DType) -> None:
    region = rows(*shape, dtype, op)
    compare(region, integers(region, op))


@pytest.mark.parametrize("shape", [(7, 900), (33, 33), (1, 1), (1, 100_003)])
def test_everything(shape: tuple[int, int]) -> None:
    b = Build()
    b.input("X", I32, *shape)
    region = b.done(b.reduce("SUM", b.read("X", "r", "s"), r=shape[0], s=shape[1]))
    compare(region, {"X": np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)})


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize(("make", "algo"), [(rows, "rows"), (down, "columns")])
def test_each_element_is_read_once_16_bytes_at_a_time(make: object, algo: str, dtype: DType) -> None:
    region = make(256, 512, dtype)  # type: ignore[operator]
    assert generate(region).algo == algo
    counters = emulated(region, arrays(region)).counters
    read = [each for each in counters.global_ if each.instruction.startswith("ld")]
    assert all(".v4." in each.instruction for each in read) and counters.bank_conflicts == 0
    assert sum(each.sectors for each in read) == 256 * 512 * dtype.itemsize // 32


def test_a_line_of_odd_length_is_read_in_vectors() -> None:
    b = Build()
    region = b.done(b.reduce("SUM", b.read(b.input("X", F32, 10_001), "r"), r=10_001))
    read = [e for e in emulated(region, integers(region)).counters.global_ if ".v4." in e.instruction]
    assert sum(each.sectors for each in read) == 1250


def test_few_columns_have_several_threads_for_a_sum() -> None:
    kernel = generate(down(4096, 64))
    assert kernel.block[0] * kernel.grid[0] >= 16 * 16
    many = generate(down(64, 1 << 20))
    assert many.algo == "loops"


def test_sums_over_two_axes_around_the_result() -> None:
    """x[n, c, h] over n and h: the mean of a batch norm."""
    b = Build(c=6)
    b.input("X", F32, 5, 6, 30)
    region = b.done(b.reduce("SUM", b.read("X", "n", "c", "h"), n=5, h=30))
    compare(region, integers(region))


def test_a_short_row_is_one_access() -> None:
    b = Build(i=512)
    region = b.done(b.reduce("SUM", b.read(b.input("X", F32, 512, 4), "i", "r"), r=4))
    counters = emulated(region, integers(region)).counters
    (load,) = [each for each in counters.global_ if each.instruction.startswith("ld")]
    assert load.instruction.startswith("ld.global.nc.v4.") and load.sectors == load.ideal
    compare(region, integers(region))


def test_what_sums_of_columns_are_used_for() -> None:
    """Two sums of a column, one of them in the other's terms, and an epilogue; 2 outputs."""
    b = Build(i=40)
    b.input("X", F32, 100, 40)
    b.input("Y", F16, 40)
    mean = b.binary("MUL", b.reduce("SUM", b.read("X", "r", "i"), r=100), b.const(1 / 64))
    less = b.binary("SUB", b.read("X", "s", "i"), mean)
    square = b.reduce("SUM", b.binary("MUL", less, less), s=100)
    region = b.done(b.binary("ADD", square, b.cast(b.read("Y", "i"), F32)), b.cast(mean, F16))
    compare(region, integers(region), rtol=1e-6)


def test_a_gather_in_a_sum() -> None:
    """Every second element, from the end, of the row given by a division."""
    b = Build(i=10)
    b.input("X", I32, 5, 64)
    index = axis("r") * -2 + 63
    region = b.done(b.reduce("SUM", b.read("X", axis("i") // 2, index), r=32))
    compare(region, integers(region))


@pytest.mark.parametrize("shape", [(300, 3000), (3000, 30)])
def test_fp16_sums_are_rounded_once(shape: tuple[int, int]) -> None:
    region = down(*shape, F16)
    data = {"X": np.ones(shape, np.float16)}
    np.testing.assert_array_equal(run(region, data)["y0"], np.float16(shape[0]))


def test_traffic_of_a_mean_and_its_variance() -> None:
    """Both sums of a row from one pass over it."""
    b = Build(i=8)
    b.input("X", F32, 8, 1024)
    mean = b.binary("MUL", b.reduce("SUM", b.read("X", "i", "r"), r=1024), b.const(1 / 1024))
    less = b.binary("SUB", b.read("X", "i", "s"), mean)
    region = b.done(mean, b.reduce("SUM", b.binary("MUL", less, less), s=1024))
    assert traffic(emulated(region, arrays(region)).counters)[0] == 8 * 1024 * 4 // 32
    compare(region, arrays(region), rtol=1e-5, atol=1e-6)


def test_a_long_chain_of_sums_of_a_row() -> None:
    """Each needs the one before; nothing recurses along them."""
    b = Build(i=2, j=16)
    b.input("X", F32, 2, 16)
    last = b.const(0)
    for number in range(400):
        less = b.binary("SUB", b.read("X", "i", f"r{number}"), last)
        last = b.reduce("MAX", less, **{f"r{number}": 16})
    region = b.done(b.binary("SUB", b.read("X", "i", "j"), last))
    assert generate(region).algo == "rows"
    del b
    b = Build(i=16)
    last = b.const(0)
    b.input("X", F32, 16, 16)
    for number in range(400):
        last = b.reduce("MAX", b.binary("SUB", b.read("X", f"r{number}", "i"), last), **{f"r{number}": 16})
    assert generate(b.done(last)).algo == "columns"


def down_softmax(m: int, n: int, dtype: DType = F32) -> Region:
    """Down each column."""
    b = Build(i=m, j=n)
    b.input("X", dtype, m, n)
    largest = b.reduce("MAX", b.read("X", "r", "j"), r=m)

    def power(name: str) -> str:
        return b.unary("EXP2", b.cast(b.binary("SUB", b.read("X", name, "j"), largest), F32))

    total = b.reduce("SUM", power("s"), s=m)
    return b.done(b.cast(b.binary("FDIV", power("i"), total), dtype))


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("shape", [(64, 512), (100, 36), (9, 1), (33, 70), (300, 7)])
def test_points_of_a_column_share_its_sums(shape: tuple[int, int], dtype: DType) -> None:
    region = down_softmax(*shape, dtype)
    assert shape[1] == 1 or generate(region).algo == "columns"
    compare(region, arrays(region), rtol=2e-3 if dtype is F16 else 1e-5, atol=1e-6)


def test_a_softmax_down_columns_reads_them_three_times() -> None:
    region = down_softmax(64, 512)
    read, written = traffic(emulated(region, arrays(region)).counters)
    assert (read, written) == (3 * 64 * 512 * 4 // 32, 64 * 512 * 4 // 32)


def test_a_batch_norm_in_one_kernel() -> None:
    """Sums over the first axis and the third, for all points of a channel."""
    b = Build(n=3, h=5, c=24)
    b.input("X", F32, 3, 5, 24)
    mean = b.binary("MUL", b.reduce("SUM", b.read("X", "r", "s", "c"), r=3, s=5), b.const(1 / 15))
    region = b.done(b.binary("SUB", b.read("X", "n", "h", "c"), mean), b.cast(mean, F16))
    assert generate(region).algo == "columns"
    compare(region, integers(region), rtol=1e-6, atol=1e-6)
