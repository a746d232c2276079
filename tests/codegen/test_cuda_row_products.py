"""Products whose rows are reduced in the same kernel, for a GPU, in the emulator: with Plans made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from contractions import planned
from cuda_regions import compare, emulated, outputs_of
from golden import Golden
from region_builder import BF16, F16, F32, I32
from row_products import layer_norm, less_the_largest, less_the_sum, softmax
from test_cuda_contraction import integers
from test_stream import arrays

from tinyc.codegen.cuda import CudaKernel, generate
from tinyc.codegen.emulator import DELIVERIES, Delivery, Emulated
from tinyc.codegen.gpu.ir import CpAsync, KeepRows, Loop, Mma, ReduceRows, StGlobalVec, Walk
from tinyc.codegen.nvrtc import compile_cubin
from tinyc.ir.check_plan import check_plan
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region
from tinyc.ir.resources import LIMITS, resources
from tinyc.ir.rows import kept_value
from tinyc.ir.schedule import Async, Contraction

SM80 = LIMITS["sm80"]
MATRIX, WIDE = ((64, 64, 32), (32, 32)), ((64, 128, 16), (32, 64))
SMALL, LANES = ((32, 32, 16), (16, 16)), ((32, 32, 16), (16, 32))
ONE_MEMORY, NOTHING_AHEAD = Async(True, 3, False), Async(False, 1, False)

Made = tuple[Region, Contraction]


def tiled(region: Region, plan: Plan) -> CudaKernel:
    """The kernel of a product whose rows are kept: nothing else is taken for one."""
    kernel = generate(region, plan)
    assert kernel.ir is not None and any(isinstance(each, ReduceRows) for each in kernel.ir.stmts)
    return kernel


def exact(made: Made, plan: Plan, delivery: Delivery = "late") -> Emulated:
    region, _ = made
    tiled(region, plan)
    return compare(region, integers(region, 2), plan=plan, delivery=delivery)


CASES: list[tuple[Callable[..., Made], tuple[int, int, int], DType, Any, dict[str, Any]]] = [
    (less_the_largest, (150, 100, 70), F16, MATRIX, {}),
    (less_the_sum, (33, 200, 33), BF16, MATRIX, {"bt": True}),
    (less_the_sum, (7, 1000, 8), F16, WIDE, {}),
    (less_the_sum, (1, 320, 128), BF16, SMALL, {"ahead": ONE_MEMORY}),
    (less_the_largest, (33, 63, 33), F16, WIDE, {"ahead": NOTHING_AHEAD, "several": True}),
    (less_the_sum, (150, 33, 8), F16, SMALL, {"wide": True, "ahead": ONE_MEMORY}),
    (less_the_sum, (33, 64, 64), F16, MATRIX, {"batch": 3, "with_bias": True}),
    (less_the_largest, (70, 120, 40), BF16, MATRIX, {"batch": 2, "parts": 3}),
    (less_the_largest, (64, 64, 70), F16, MATRIX, {"causal": True, "with_bias": True, "several": True}),
    (less_the_largest, (33, 100, 70), I32, LANES, {"several": True}),
    (less_the_sum, (7, 63, 128), F32, LANES, {}),
    (less_the_sum, (33, 320, 33), F32, LANES, {"ahead": ONE_MEMORY, "batch": 2, "bt": True}),
    (less_the_sum, (7, 3, 20), F16, SMALL, {}),  # a sum that is too short to be shared
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: "x".join(map(str, CASES[number][1])))
def test_rows_of_integers_are_exact(number: int) -> None:
    """Each with its copies arriving at another time."""
    kind, sizes, dtype, tiles, options = CASES[number]
    how = {name: options.pop(name) for name in ("ahead",) if name in (options := dict(options))}
    made = kind(*sizes, dtype, **options)
    plan = planned(made[1], *tiles, width=16 // dtype.itemsize, **how)
    exact(made, plan, DELIVERIES[number % len(DELIVERIES)])


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_copies_may_arrive_at_any_time(delivery: Delivery) -> None:
    made = less_the_sum(40, 100, 200, F16, with_bias=True)
    exact(made, planned(made[1], *SMALL), delivery)


TOLERANCE = {F32: 1e-5, F16: 2e-3, BF16: 1.6e-2}


@pytest.mark.parametrize("kind", [softmax, layer_norm])
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"with_bias": True, "parts": 2}], ids=str)
def test_rows_of_any_numbers(kind: Callable[..., Made], dtype: DType, options: dict[str, Any]) -> None:
    region, roles = kind(33, 96, 40, dtype, **options)
    plan = planned(roles, *(LANES if dtype is F32 else SMALL), width=16 // dtype.itemsize)
    tiled(region, plan)
    compare(region, arrays(region, 0.5), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], plan=plan)


@pytest.mark.parametrize(("dtype", "unit"), [(F16, 2.0**-11), (BF16, 2.0**-8)], ids=["fp16", "bf16"])
def test_what_is_kept_is_within_the_bound(dtype: DType, unit: float) -> None:
    """|got - real| <= (k + 2) u sum|a||b| + u'|real|, u of fp32 and u' of the result."""
    region, roles = less_the_largest(65, 104, 300, dtype, several=True)
    given = arrays(region)
    plan = planned(roles)
    tiled(region, plan)
    got = outputs_of(region, emulated(region, given, plan=plan))["y1"].astype(np.float64)
    a, b = (given[name].astype(np.float64) for name in "AB")
    bound = 302 * 2.0**-24 * (np.abs(a) @ np.abs(b)) * (1 + unit) + unit * np.abs(a @ b) + 2.0**-25
    assert (np.abs(got - a @ b) <= bound).all()


# ---- what a kernel does ---------------------------------------------------------------------------------------------


def test_a_product_is_computed_once_and_its_accesses_are_whole() -> None:
    """Two tiles of m, three of n, two of k. What matrix units multiply is what the tiles hold; in the loop over k, and where rows are kept and
    read, no two lanes meet in a bank; global memory is accessed 16 bytes at a time."""
    region, roles = less_the_largest(128, 192, 64, F16)
    plan = planned(roles)
    (bm, bn, bk), blocks = plan.tile or (0, 0, 0), 2
    tiled(region, plan)
    counters = emulated(region, integers(region, 2), plan=plan).counters
    products = blocks * (192 // bn) * (64 // bk) * prod((bm // 16, bn // 8, bk // 16))
    assert counters.classes["tensor"] == products
    for each in counters.shared:
        if each.instruction.startswith(("cp.async", "ldmatrix")) or each.instruction.endswith("v4.u32"):
            assert each.wavefronts == each.ideal, each
    assert {each.instruction for each in counters.shared if each.instruction.endswith("u32")} == {
        "st.shared.v4.u32",
        "ld.shared.v4.u32",
    }
    assert {each.instruction for each in counters.global_} == {
        "cp.async.cg.shared.global",
        "st.global.v4.u32",
    }
    assert all(each.sectors == each.ideal for each in counters.global_)
    assert (
        sum(each.sectors for each in counters.global_ if each.instruction.startswith("st")) == 128 * 192 // 16
    )


@pytest.mark.parametrize("kind", [softmax, layer_norm])
@pytest.mark.parametrize(
    ("columns", "dtype", "tiles"),
    [
        (64, F16, ((128, 64, 32), (64, 64))),
        (1000, BF16, ((64, 64, 64), (64, 64))),
        (320, F32, ((64, 64, 32), (16, 32))),
    ],
    ids=str,
)
def test_nothing_spills(kind: Callable[..., Made], columns: int, dtype: DType, tiles: Any) -> None:
    region, roles = kind(256, columns, 128, dtype)
    kernel = tiled(region, planned(roles, *tiles, 2, width=16 // dtype.itemsize))
    (usage,) = compile_cubin(kernel.source, "sm_80").usage
    assert usage.fault is None and usage.stack_bytes == 0, usage


def test_the_plan_is_obeyed() -> None:
    region, roles = less_the_sum(100, 200, 96, F16)
    plan = planned(roles, (64, 64, 32), (32, 16), 2, width=4, ahead=Async(True, 2, False))
    ir = tiled(region, plan).ir
    assert ir is not None and ir.kept is not None
    assert (ir.tile, ir.warp_tile, ir.threads) == (plan.tile, plan.warp_tile, 8 * 32)
    assert [ring.stages for ring in ir.rings] == [2, 2]
    assert ir.grid == (1, 2, 1)
    assert (ir.kept.rows, ir.kept.columns, ir.kept.dtype) == (64, 200, F16)
    walk, _, reduce, store = ir.stmts
    assert isinstance(walk, Walk) and walk.count == 4
    assert isinstance(reduce, ReduceRows) and reduce.team == 16
    assert isinstance(store, StGlobalVec) and store.width == 4
    assert [each.width for each in walk.body if isinstance(each, KeepRows)] == [4]
    (loop,) = (each for each in walk.body if isinstance(each, Loop))
    assert loop.count == 3 and sum(isinstance(each, Mma) for each in loop.body) == 2
    ahead = [each.tile.offset for each in walk.body if isinstance(each, CpAsync)]
    assert ahead == [0, 0]
    still = tiled(region, replace(plan, async_=NOTHING_AHEAD)).ir
    assert still is not None and isinstance(still.stmts[0], Walk)
    assert not any(isinstance(each, CpAsync) for each in still.stmts[0].body)


# ---- what is kept, and where there is room --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        (less_the_largest(32, 40, 16, F16), F16),
        (less_the_largest(32, 40, 16, F16, wide=True), F32),
        (less_the_sum(32, 40, 16, BF16, with_bias=True, causal=True), BF16),
        (less_the_largest(32, 40, 16, I32, with_bias=True), I32),
    ],
    ids=["rounded", "not", "with bias and mask", "integers"],
)
def test_what_all_that_follows_needs_is_kept(made: Made, dtype: DType) -> None:
    """Behind the bias and the mask, and before ReLU, which only the sum has."""
    region, roles = made
    value = kept_value(region, roles)
    assert value is not None and value.dtype is dtype and len(value.copies) == 2
    lets = {let.name: type(let.value).__name__ for let in region.lets}
    extra = {ref.name for ref in region.inputs} - {"A", "B"}
    assert all(lets[name] == ("Binary" if extra else "Reduce" if dtype is F32 else "Cast") for name, _ in value.copies) or (
        {lets[name] for name, _ in value.copies} == {"Select"}
    )  # fmt: skip


def test_a_plan_that_has_no_room_for_its_rows_is_refused() -> None:
    region, roles = less_the_sum(128, 2000, 64, F16)
    plan = replace(planned(roles, (64, 64, 32), (32, 32), 2), predicate_tail=("n.i.i",), layout_hints=None)
    plan = replace(plan, bind=(("m.o", "block.y"),), async_=Async(True, 2, True))
    with pytest.raises(TinycError) as caught:
        check_plan(plan, region, SM80)
    assert caught.value.kind == "SharedMemoryExceeded" and "rows that are kept" in caught.value.why
    assert "fewer rows" in caught.value.suggestion
    check_plan(replace(plan, tile=(32, 64, 32)), region, SM80)


@pytest.mark.parametrize("dtype", [F16, F32, I32], ids=str)
@pytest.mark.parametrize("ahead", [Async(True, 3, True), ONE_MEMORY])
@pytest.mark.parametrize("columns", [48, 100, 320])
def test_a_kernel_takes_the_shared_memory_that_its_plan_says(
    columns: int, ahead: Async, dtype: DType
) -> None:
    region, roles = less_the_largest(64, columns, 64, dtype)
    for tiles in (MATRIX, SMALL) if dtype is F16 else (LANES, ((64, 64, 32), (16, 32))):
        plan = planned(roles, *tiles, ahead=ahead)
        assert tiled(region, plan).shared_bytes == resources(plan, region, SM80).smem_bytes


# ---- what is no row of the product ----------------------------------------------------------------------------------


def test_rows_that_lie_across_the_result_run_as_before() -> None:
    """The result is contiguous along m, so that its rows are columns of the product."""
    region, roles = less_the_largest(40, 48, 16, F16)
    turned = replace(
        region,
        iters=region.iters[::-1],
        outputs=tuple(replace(ref, shape=ref.shape[::-1]) for ref in region.outputs),
    )
    plan = planned(roles, along="m.i.i")
    assert generate(turned, plan).algo != "contraction"
    compare(turned, integers(turned, 2), plan=plan)


def test_the_source_of_a_softmax_of_a_product(golden: Golden) -> None:
    region, roles = softmax(100, 96, 40, F16, causal=True)
    golden(tiled(region, planned(roles, (64, 64, 32), (32, 32), 2)).source, ".cu")
