"""Elementwise kernels for a GPU that read along one axis and store along another."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_regions import compare, emulated, traffic
from region_builder import BF16, BOOL, F16, F32, I32, Build, axis
from test_cuda_plans import points
from test_cuda_vectors import filled

from tinyc.codegen.cuda import generate
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region


def transposed(m: int, n: int, dtype: DType = F32) -> Region:
    b = Build(i=m, j=n)
    x, y = b.input("X", dtype, n, m), b.input("Y", dtype, m, n)
    op = "MAX" if dtype is BOOL else "ADD"
    return b.done(b.binary(op, b.read(x, "j", "i"), b.read(y, "i", "j")))


@pytest.mark.parametrize("dtype", [F32, F16, BF16, I32, BOOL], ids=str)
@pytest.mark.parametrize("shape", [(32, 32), (64, 128), (33, 70), (100, 17)])
def test_a_transposition(shape: tuple[int, int], dtype: DType) -> None:
    region = transposed(*shape, dtype)
    assert generate(region).algo == "tiles"
    compare(region, filled(region))


@pytest.mark.parametrize("dtype", [F32, F16, BOOL], ids=str)
def test_whole_sectors_are_read_and_banks_do_not_conflict(dtype: DType) -> None:
    region = transposed(96, 64, dtype)
    read, written = traffic(emulated(region, filled(region)).counters)
    sectors = 96 * 64 * dtype.itemsize // 32
    assert (read, written) == (2 * sectors, sectors)


def test_a_batch_of_images_from_channels_last() -> None:
    """x[n, h, w, c] as [n, c, h, w]: h and w are one axis."""
    b = Build(n=2, c=24, h=5, w=8)
    region = b.done(b.unary("RELU", b.read(b.input("X", F16, 2, 5, 8, 24), "n", "h", "w", "c")))
    assert generate(region).algo == "tiles"
    compare(region, filled(region))


def test_two_transposed_buffers_a_slice_and_a_second_output() -> None:
    b = Build(i=40, j=50)
    x, y, z = b.input("X", F32, 60, 44), b.input("Y", F16, 50, 40), b.input("Z", F32, 40)
    first = b.read(x, axis("j") + 7, axis("i") + 3)
    second = b.cast(b.read(y, "j", "i"), F32)
    total = b.binary("ADD", first, b.binary("MUL", second, b.read(z, "i")))
    region = b.done(total, b.binary("CMPLT", first, second))
    assert generate(region).algo == "tiles" and generate(region).source.count("__shared__") == 2
    compare(region, filled(region))


@pytest.mark.parametrize("threads", [64, 128, 256, 512])
def test_a_block_has_the_threads_of_its_plan(threads: int) -> None:
    region, plan = transposed(64, 96), points(threads * 4, 4)
    assert generate(region, plan).block == (threads, 1, 1)
    compare(region, filled(region), plan=plan)


def test_short_axes_and_padded_reads_have_no_tiles() -> None:
    assert generate(transposed(1000, 4)).algo == "loops"
    b = Build(i=40, j=40)
    index = axis("j") - 1
    read = b.read(b.input("X", F32, 39, 40), index, "i")
    region = b.done(b.select(b.within(index, 0, 39), read, b.const(0)))
    assert generate(region).algo == "loops"
    compare(region, {"X": np.arange(39 * 40, dtype=np.float32).reshape(39, 40)})
