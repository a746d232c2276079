"""The CPU's code obeys the Plan: tiles are its loops' bounds, widths its vectors, whatever the numbers; results stay."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from region_builder import F16, F32, I32, Build, Executable, axis, gemm, generate, ix, program, run

from tinyc.codegen.cpu.host import Host, host
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.plans.default_plan import default_plan
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Contraction, Plan
from tinyc.ir.region import Region
from tinyc.ir.schedule import Vectorize
from tinyc.runtime.jit import optimised

RNG = np.random.default_rng(11)
WIDTHS = (1, 2, 4, 8, 16)
AVX2 = Host("x86-64-v3", "", lanes=8, rows=6, fma=True, fp16=True)


def integers(dtype: DType, *shape: int) -> np.ndarray:
    """Small integers: sums are exact in any order."""
    return RNG.integers(-3, 4, shape).astype(dtype.numpy)


def executed(region: Region, plan: Plan, *arrays: np.ndarray) -> np.ndarray:
    (result,) = Executable(program(region, plan), 2)(arrays)
    return result


def vectors(source: str) -> set[int]:
    """Lanes of the vectors of fp32 in a text."""
    return {int(lanes) for lanes in re.findall(r"<(\d+) x float>", source)}


# ---- tiles ----------------------------------------------------------------------------------------------------------

TILES = [*product((1, 7, 200), (33, 500), (5, 64)), (1, 1, 1), (13, 17, 19), (64, 48, 23), (2**31 - 1,) * 3]


def test_every_tile_gives_the_same_product() -> None:
    m, n, k = 53, 71, 29
    region, plan = gemm(m, n, k, relu=True)
    a, b, bias = integers(F32, m, k), integers(F32, k, n), integers(F32, n)
    want = np.maximum(a @ b + bias, 0)
    for tile in TILES:
        np.testing.assert_array_equal(executed(region, replace(plan, tile=tile), a, b, bias), want, str(tile))


@pytest.mark.parametrize("dtype", [F16, I32], ids=str)
@pytest.mark.parametrize("sizes", [(1, 40, 3), (40, 2, 9), (5, 3, 2), (7, 90, 300)], ids=str)
def test_a_tile_is_obeyed_where_the_default_would_not_be_tiled(
    dtype: DType, sizes: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    region, plan = gemm(m, n, k, dtype)
    a, b = integers(dtype, m, k), integers(dtype, k, n)
    want = (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype.numpy)
    tiled = replace(plan, tile=(8, 8, 8))
    np.testing.assert_array_equal(executed(region, replace(plan, tile=None), a, b), want)
    if m == 1:
        with pytest.raises(TinycError) as caught:
            generate(region, tiled)
        assert caught.value.at["value"] == "plan.tile" and "single point" in caught.value.why
        return
    assert generate(region, tiled).algo == "contraction"
    np.testing.assert_array_equal(executed(region, tiled, a, b), want)


@pytest.mark.parametrize(
    ("tile", "loops"),
    [((48, 64, 32), (48, 64, 32)), ((48, 64, 16), (48, 64, 16)), ((24, 64, 32), (24, 64, 32)), ((48, 16, 32), (48, 16, 32)),
     ((45, 50, 31), (48, 64, 31)), ((1, 1, 1), (6, 16, 1)), ((9999, 9999, 9999), (102, 208, 99))],
)  # fmt: skip
def test_a_tile_is_the_bound_of_the_loops(tile: tuple[int, int, int], loops: tuple[int, int, int]) -> None:
    """MC and NC are rounded up to the 6 x 16 results in registers; nothing is larger than 100 x 200 x 99."""
    m, n, k = 100, 200, 99
    region, plan = gemm(m, n, k)
    kernel = generate(region, replace(plan, tile=tile), AVX2)
    mc, nc, kc = loops
    assert kernel.extent == -(-m // mc) * -(-n // nc)
    assert f"memset.p0.i64(ptr %s.1, i8 0, i64 {4 * mc * nc}" in re.sub(r"%s\.\d+", "%s.1", kernel.source)
    assert kernel.scratch_bytes == sum(-(-4 * size // 64) * 64 for size in (mc * nc, mc * kc, nc * kc))
    assert re.search(rf"%kb\.\d+\.more = icmp slt i64 %kb\.\d+, {-(-k // kc)}\n", kernel.source)


def test_one_number_changes_the_source() -> None:
    region, plan = gemm(200, 300, 400)
    plan = replace(plan, tile=(96, 96, 96), vectorize=Vectorize("n.i.i", 8))
    sources = [generate(region, plan).source]
    for at in range(3):
        tile = tuple(48 if at == number else size for number, size in enumerate((96, 96, 96)))
        sources.append(generate(region, replace(plan, tile=tile)).source)  # type: ignore[arg-type]
    sources.append(generate(region, replace(plan, vectorize=Vectorize("n.i.i", 4))).source)
    assert len(set(sources)) == 5


def test_tiles_follow_the_roles_of_the_plan() -> None:
    """Where the Plan's m is the axis that results are contiguous along, BM is what cuts it."""
    region, plan = gemm(96, 256, 32)
    c = plan.contraction
    assert c is not None
    swapped = Plan("contraction", Contraction(c.reduce, c.rhs, c.lhs, (), c.n, c.m, c.k), tile=(64, 48, 32))
    straight = replace(plan, tile=(48, 64, 32))
    assert generate(region, swapped, AVX2).source == generate(region, straight, AVX2).source
    a, b = integers(F32, 96, 32), integers(F32, 32, 256)
    np.testing.assert_array_equal(executed(region, swapped, a, b), a @ b)


def test_batches_and_split_axes_in_tiles() -> None:
    """out[b, h, t, d] = sum_c X[b, t, c] W[c, h*16 + d]: leading axes of m and n that lie apart in the output."""
    B, T, H, D, C = 2, 33, 3, 16, 48
    b = Build(b=B, h=H, t=T, d=D)
    b.input("X", F32, B, T, C)
    b.input("W", F32, C, H * D)
    x, w = b.read("X", "b", "t", "c"), b.read("W", "c", axis("h") * D + axis("d"))
    total = b.reduce("SUM", b.binary("MUL", x, w), c=C)
    roles = Contraction(total, x, w, (), ("b", "t"), ("h", "d"), ("c",))
    region = b.done(total)
    arrays = integers(F32, B, T, C), integers(F32, C, H * D)
    want = (arrays[0] @ arrays[1]).reshape(B, T, H, D).transpose(0, 2, 1, 3)
    for tile in [(1, 1, 1), (5, 7, 9), (16, 16, 16), (66, 48, 48), (999, 999, 999)]:
        np.testing.assert_array_equal(
            executed(region, Plan("contraction", roles, tile), *arrays), want, str(tile)
        )


def test_a_plan_that_names_no_contraction_means_the_only_one() -> None:
    region, plan = gemm(64, 64, 64)
    short = Plan("contraction", tile=(16, 32, 8))
    assert generate(region, short).source == generate(region, replace(plan, tile=(16, 32, 8))).source


# ---- widths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_the_micro_kernel_has_vectors_of_the_width(width: int) -> None:
    m, n, k = 37, 59, 41
    region, plan = gemm(m, n, k)
    plan = replace(plan, tile=(32, 32, 16), vectorize=Vectorize("n.i.i", width))
    source = generate(region, plan).source
    assert vectors(source) == {width}
    assert f"c[{host().rows}, {2 * width}] +=" in source
    a, b = integers(F32, m, k), integers(F32, k, n)
    np.testing.assert_array_equal(executed(region, plan, a, b), a @ b)


def test_widths_of_i32_and_other_cpus() -> None:
    region, plan = gemm(37, 59, 41, I32)
    a, b = integers(I32, 37, 41), integers(I32, 41, 59)
    for width in WIDTHS:
        wide = replace(plan, tile=(20, 20, 20), vectorize=Vectorize("j", width))
        np.testing.assert_array_equal(executed(region, wide, a, b), a @ b)
        assert f"<{width} x i32>" in generate(region, wide, AVX2).source


def add_one(size: int) -> Region:
    b = Build(i=3, j=size)
    b.input("X", F32, 3, size)
    return b.done(b.binary("ADD", b.read("X", "i", "j"), b.const(1.0)))


@pytest.mark.parametrize("width", WIDTHS)
def test_loops_have_vectors_of_the_width(width: int) -> None:
    region = add_one(1003)
    kernel = generate(region, Plan(vectorize=Vectorize("j", width)))
    assert f'"llvm.loop.vectorize.width", i32 {width}}}' in kernel.source
    assert vectors(str(optimised(kernel))) == ({width} if width > 1 else set())
    x = integers(F32, 3, 1003)
    np.testing.assert_array_equal(executed(region, Plan(vectorize=Vectorize("j.i.i", width)), x), x + 1)


def test_an_axis_that_is_not_walked_alone_is_no_trouble() -> None:
    region = add_one(1)
    x = integers(F32, 3, 1)
    for part in ("i", "j", "i.i"):
        np.testing.assert_array_equal(executed(region, Plan(vectorize=Vectorize(part, 4)), x), x + 1)


# ---- tiles of loops -------------------------------------------------------------------------------------------------


def test_a_tile_of_loops_is_the_block_of_the_innermost() -> None:
    region = add_one(1003)
    x = integers(F32, 3, 1003)
    for block in (1, 2, 100, 1003, 5000):
        plan = Plan(tile=(1, block, 1))
        assert generate(region, plan).extent == -(-3 * 1003 // block)  # both axes in one loop
        np.testing.assert_array_equal(executed(region, plan, x), x + 1)


def softmax(rows: int, columns: int) -> Region:
    b = Build(i=rows, j=columns)
    b.input("X", F32, rows, columns)
    largest = b.reduce("MAX", b.read("X", "i", "r"), r=columns)
    total = b.reduce("SUM", b.unary("EXP2", b.binary("SUB", b.read("X", "i", "q"), largest)), q=columns)
    return b.done(b.binary("FDIV", b.unary("EXP2", b.binary("SUB", b.read("X", "i", "j"), largest)), total))


def sums(rows: int, columns: int, along: str) -> Region:
    b = Build(i=rows if along == "r" else columns)
    b.input("X", F32, rows, columns)
    return b.done(
        b.reduce(
            "SUM",
            b.read("X", *(("i", "r") if along == "r" else ("r", "i"))),
            r=columns if along == "r" else rows,
        )
    )


def test_reductions_in_tiles_of_loops() -> None:
    x = integers(F32, 37, 300)
    for block in (1, 5, 16, 300, 1000):
        plan = Plan(tile=(1, block, 1))
        np.testing.assert_array_equal(executed(sums(37, 300, "r"), plan, x), x.sum(1))
        np.testing.assert_array_equal(executed(sums(37, 300, "c"), plan, x), x.sum(0))
        power = np.exp2(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(
            executed(softmax(37, 300), plan, x), power / power.sum(1, keepdims=True), rtol=1e-6
        )


# ---- refusals, defaults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"tile": (0, 8, 8)}, "PlanInvalid", "plan.tile[0]: 0 is below 1"),
        ({"vectorize": Vectorize("n", 3)}, "PlanInvalid", "power of two"),
        ({"vectorize": Vectorize("n", 32)}, "VectorTooWide", "128 bytes"),
        ({"tile": (20_000, 20_000, 8)}, "SharedMemoryExceeded", "limit is 1073741824"),
        ({"arch": "sm80"}, "PlanMismatch", "plan.arch"),
        ({"stages": 2}, "PlanMismatch", "the CPU has none"),
        ({"algo_choice": (("conv", "winograd_3x3"),)}, "PlanMismatch", "winograd_3x3"),
    ],
)
def test_an_impossible_plan_is_refused(change: dict[str, object], kind: str, says: str) -> None:
    region, plan = gemm(20_000, 20_000, 20)
    with pytest.raises(TinycError) as caught:
        generate(region, replace(plan, **change))  # type: ignore[arg-type]
    assert caught.value.kind == kind and says in caught.value.why


@pytest.mark.parametrize(
    "size", [(1024, 1024, 1024), (150, 130, 70), (64, 2000, 300), (37, 53, 29), (4, 4, 4)], ids=str
)
def test_the_default_plan_says_what_the_code_would_choose(size: tuple[int, int, int]) -> None:
    region, plan = gemm(*size, relu=True)
    said = default_plan(region, plan.contraction, replace(hardware("cpu"), limits=host().limits))
    assert (said.tile is None) == (size == (4, 4, 4))
    assert generate(region, said) == generate(region, plan)


def test_a_convolution_in_odd_tiles() -> None:
    c, o, size = 5, 6, 11
    b = Build(o=o, y=size, x=size)
    b.input("X", F32, c, size, size)
    b.input("W", F32, o, c, 3, 3)
    iy, jx = axis("y") + axis("u") - 1, axis("x") + axis("v") - 1
    inside = b.binary("MIN", b.within(iy, 0, size), b.within(jx, 0, size))
    value = b.select(inside, b.read("X", "c", *ix(iy, jx)), b.const(0.0))
    weight = b.read("W", "o", "c", "u", "v")
    total = b.reduce("SUM", b.binary("MUL", weight, value), c=c, u=3, v=3)
    region = b.done(total)
    roles = Contraction(total, weight, value, (), ("o",), ("y", "x"), ("c", "u", "v"))
    arrays = {"X": integers(F32, c, size, size), "W": integers(F32, o, c, 3, 3)}
    want = run(region, arrays)["y0"]
    for tile in [(1, 1, 1), (4, 30, 7), (6, 121, 45), (100, 100, 100)]:
        for width in (1, 4, 16):
            plan = Plan("contraction", roles, tile, vectorize=Vectorize("n.i.i", width))
            np.testing.assert_array_equal(run(region, arrays, plan)["y0"], want)
