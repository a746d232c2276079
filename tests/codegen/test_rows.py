"""Rows: an expensive value that a kernel needs again along another axis is computed once."""

from __future__ import annotations

import numpy as np
import pytest
from region_builder import BF16, F16, F32, LOOPS, Build, compare, generate

from tinyc.codegen.cpu.rows import ROW_LIMIT
from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis
from tinyc.ir.region import Region

RNG = np.random.default_rng(7)


def exponentials(region: Region) -> int:
    """Calls of the exponential in the kernel's body."""
    return generate(region, LOOPS).source.split("@body(")[1].count("call float @exp2_f32")


def softmax(
    rows: int, columns: int, dtype: DType = F32, shift: int = 0, flipped: bool = False, scale: float = 1.0
) -> Region:
    """exp2(x) / sum(exp2(x)) per row; the sum may run over a shifted, a flipped or another function's row."""
    b = Build(i=rows, j=columns)
    b.input("X", dtype, rows, columns + shift)
    at = axis("r") * -1 + (columns - 1) if flipped else axis("r") + shift
    under = b.read("X", "i", at)
    if scale != 1:
        under = b.binary("MUL", under, b.const(scale, dtype))
    total = b.reduce("SUM", b.cast(b.unary("EXP2", under), F32), r=columns)
    mine = b.cast(b.unary("EXP2", b.read("X", "i", "j")), F32)
    return b.done(b.binary("FDIV", mine, total))


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
@pytest.mark.parametrize("shape", [(1, 2), (3, 7), (33, 65), (5, 700)])
def test_softmax_takes_each_exponential_once(dtype: DType, shape: tuple[int, int]) -> None:
    region = softmax(*shape, dtype)
    assert exponentials(region) == 1
    compare(region, {"X": RNG.normal(size=shape).astype(dtype.numpy)}, rtol=2e-6)


@pytest.mark.parametrize("options", [{"shift": 1}, {"flipped": True}, {"scale": 2.0}])
def test_another_function_of_the_axis_is_no_row(options: dict[str, int | bool | float]) -> None:
    region = softmax(9, 17, **options)  # type: ignore[arg-type]
    assert exponentials(region) == 2
    compare(region, {"X": RNG.normal(size=region.inputs[0].shape).astype(np.float32)}, rtol=2e-6)


def test_axes_of_another_size_are_no_row() -> None:
    """A sum over the first half, a result over the whole."""
    b = Build(i=4, j=16)
    b.input("X", F32, 4, 16)
    total = b.reduce("SUM", b.unary("EXP2", b.read("X", "i", "r")), r=8)
    region = b.done(b.binary("FDIV", b.unary("EXP2", b.read("X", "i", "j")), total))
    assert exponentials(region) == 2
    compare(region, {"X": RNG.normal(size=(4, 16)).astype(np.float32)}, rtol=2e-6)


def test_a_row_larger_than_the_cache_is_computed_again() -> None:
    assert exponentials(softmax(1, ROW_LIMIT // 4)) == 1
    assert exponentials(softmax(1, ROW_LIMIT // 4 + 1)) == 2


def test_two_sums_over_one_row() -> None:
    """Sum and sum of squares of the exponentials, and the exponentials themselves."""
    b = Build(i=6, j=33)
    b.input("X", F32, 6, 33)
    first = b.reduce("SUM", b.unary("EXP2", b.read("X", "i", "r")), r=33)
    under = b.unary("EXP2", b.read("X", "i", "q"))
    second = b.reduce("SUM", b.binary("MUL", under, under), q=33)
    mine = b.unary("EXP2", b.read("X", "i", "j"))
    region = b.done(b.binary("MUL", b.binary("ADD", first, second), mine))
    assert exponentials(region) == 1
    compare(region, {"X": RNG.normal(size=(6, 33)).astype(np.float32)}, rtol=2e-6)


def test_rows_of_a_reduction_inside_a_reduction() -> None:
    """sum over k of a softmax over q: the row belongs to one k at a time."""
    b = Build(i=5)
    b.input("X", F32, 5, 4, 8)
    total = b.reduce("SUM", b.unary("EXP2", b.read("X", "i", "k", "q")), q=8)
    mine = b.unary("EXP2", b.read("X", "i", "k", "p"))
    largest = b.reduce("MAX", b.binary("FDIV", mine, total), p=8)
    region = b.done(b.reduce("SUM", largest, k=4))
    compare(region, {"X": RNG.normal(size=(5, 4, 8)).astype(np.float32)}, rtol=2e-6)


def test_columns() -> None:
    """A softmax down the columns: what belongs to one column must not serve another."""
    b = Build(i=40, j=24)
    b.input("X", F32, 40, 24)
    total = b.reduce("SUM", b.unary("EXP2", b.read("X", "r", "j")), r=40)
    region = b.done(b.binary("FDIV", b.unary("EXP2", b.read("X", "i", "j")), total))
    compare(region, {"X": RNG.normal(size=(40, 24)).astype(np.float32)}, rtol=2e-6)
