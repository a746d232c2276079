"""The work of finished Regions: traffic, types, schedules, epilogues."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from plan_examples import REFERENCE, gemm_region

import tinyc
from tinyc.extract.base import base_program
from tinyc.extract.cost.estimate import estimate
from tinyc.extract.cost.hardware import TABLE, hardware
from tinyc.extract.cost.model import Roofline, Work, weight
from tinyc.extract.cost.schedule import attainment, schedule_of
from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region
from tinyc.ir.resources import LIMITS
from tinyc.ir.roles import contraction_of
from tinyc.ir.schedule import Async
from tinyc.ir.schedule_json import plan_from_json
from tinyc.ir.units import UNITS

A100 = Roofline(hardware("sm80"))
PLAN = replace(plan_from_json(REFERENCE), contraction=contraction_of(gemm_region()))


def work_of(
    function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "fp32", model: Roofline = A100
) -> Work:
    """The work of the one naive kernel of a function."""
    program = tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))
    (region,) = base_program(program).regions
    return estimate(region, Plan(), model).work


def test_reads_in_order_are_not_strided() -> None:
    for function in (
        lambda x: x + 1.0,
        lambda x: x.flip(1),
        lambda x: x.reshape(32, 64),
        lambda x: x[:, 3:40],
    ):
        work = work_of(function, (64, 32))
        assert (work.strided_bytes, work.transposed_bytes, work.reread_bytes) == (0, 0, 0)


def test_what_a_transposition_costs_depends_on_what_is_done_with_it() -> None:
    """A copy goes through shared memory, and so does on a GPU what computes each point by itself; on a CPU that reads out of order."""
    size, cpu = 128 * 96 * 4, Roofline(hardware("cpu"))
    for model in (A100, cpu):
        copy = work_of(lambda x: x.transpose(1, 0), (128, 96), model=model)
        assert (copy.transposed_bytes, copy.strided_bytes) == (size, 0)
    for model, through in ((A100, size), (cpu, 0)):
        added = work_of(lambda x, y: x.transpose(1, 0) + y, (128, 96), (96, 128), model=model)
        assert (added.transposed_bytes, added.strided_bytes) == (through, size - through)


def test_every_second_element_is_out_of_order() -> None:
    work = work_of(lambda x: x[:, ::2] + 1.0, (64, 32))
    assert work.strided_bytes == 64 * 16 * 4
    rows = work_of(lambda x: x[::2, :] + 1.0, (64, 32))
    assert rows.strided_bytes == 0


def test_a_stencil_fetches_again() -> None:
    """Three shifted reads of 62 rows of 32, of 64 rows."""
    work = work_of(lambda x: x[:-2, :] + x[1:-1, :] + x[2:, :], (64, 32))
    assert work.reread_bytes == (3 * 62 - 64) * 32 * 4
    assert A100.terms(work)["fan-out"] > 0


def test_bounds_tests_are_counted_apart() -> None:
    work = work_of(lambda x: x.pad(((1, 1), (0, 0))) * 2.0, (64, 32))
    assert work.guards == 66
    assert A100.terms(work)["piecewise"] == pytest.approx(66 * 0.5 / 9.75e12)


@pytest.mark.spec("004-119", "004-129")
def test_the_reference_plans_schedule() -> None:
    region = gemm_region(512, 512, 256)
    schedule = schedule_of(region, PLAN, LIMITS["sm80"])
    assert schedule is not None
    assert (schedule.blocks, schedule.steps, schedule.warps) == (4 * 8, 4, 2)
    assert (schedule.smem_bytes, schedule.stages, schedule.vector_bytes) == (49152, 2, 16)
    assert schedule.registers == 176
    assert schedule.staged_bytes == (128 * 64 + 64 * 64) * 2 * 4 * 32
    assert (schedule.padding, schedule.attained) == (1.0, 1.0)
    assert schedule.async_copy
    assert schedule.epilogue_overlap
    off = schedule_of(region, replace(PLAN, async_=Async(False, 2, True)), LIMITS["sm80"])
    assert off is not None
    assert (schedule.overlapped, off.overlapped) == (1, 0)
    assert schedule_of(region, PLAN, LIMITS["cpu"]) is None


def test_tails_are_computed_for_nothing() -> None:
    schedule = schedule_of(gemm_region(129, 64, 65), PLAN, LIMITS["sm80"])
    assert schedule is not None
    assert schedule.blocks == 2
    assert schedule.padding == pytest.approx(256 * 64 * 128 / (129 * 64 * 65))


def test_loops_have_a_schedule_too() -> None:
    schedule = schedule_of(gemm_region(100, 50, 8), Plan(), LIMITS["sm80"])
    assert schedule is not None
    assert (schedule.algo, schedule.blocks, schedule.threads) == ("loops", math.ceil(5000 / 256), 256)
    assert (schedule.staged_bytes, schedule.stages) == (0, 1)


def test_the_operands_type_decides_which_units_multiply() -> None:
    for dtype in DType:
        if dtype is DType.BOOL:
            continue
        region = gemm_region(dtype=dtype)
        work = estimate(region, PLAN, A100).work
        product = 2.0 * 512 * 512 * 256
        on_matrix = dtype in (DType.FP16, DType.BF16)
        assert (work.flops, work.vector_flops) == ((product, 0) if on_matrix else (0, product))


def test_the_epilogue_is_all_beside_the_product() -> None:
    """bias (a Read, a Cast, an ADD), RELU and the result's Cast, each once per point or column."""
    work = estimate(gemm_region(), PLAN, A100).work
    points, columns = 512 * 512, 512
    bias = (weight("Read") + weight("Cast")) * columns
    assert work.epilogue_ops == 3 * points + bias  # ADD, RELU, Cast
    assert work.epilogue_ops < work.ops
    assert estimate(gemm_region(), PLAN, Roofline(hardware("cpu"))).work.epilogue_ops == 0


def test_operands_that_do_not_lie_along_k_are_viewed() -> None:
    """B is stored in columns, so along k; A is row-major, and read transposed it lies along m."""
    straight, turned = (estimate(gemm_region(at=at), PLAN, A100).work for at in (False, True))
    assert (straight.viewed_bytes, straight.strided_bytes) == (0, 0)
    assert (turned.viewed_bytes, turned.strided_bytes) == (512 * 256 * 2, 0)
    assert 0 < A100.terms(turned)["transposition"] < 1e-6


@pytest.mark.spec("004-130", "004-134")
@pytest.mark.parametrize(
    ("unit", "warp_tile", "share"),
    [
        ("sm80", (64, 64), 1.0),
        ("sm80", (32, 32), 1.0),
        ("sm80", (64, 32), 1.0),
        ("sm80", (16, 16), 0.5),
        ("sm80", (32, 16), 2 / 3),
        ("sm90", (64, 256), 1.0),
        ("sm90", (64, 64), 1.0),
        ("sm90", (64, 32), 2 / 3),
        ("sm90", (64, 8), 2 / 9),
        ("sm90", (32, 64), 0.65),
        ("sm90", (96, 64), 0.65),
        ("sm90", None, 1.0),
        ("sm80-simt", (32, 64), 1.0),  # 8 x 8 points of a lane
        ("sm80-simt", (16, 32), 1.0),  # 16 multiply-adds of a lane take 8 clocks, so do its 8 words
        ("sm80-simt", (8, 16), 0.5),
        ("sm90-simt", (32, 64), 1.0),
        ("sm90-simt", (32, 32), 2 / 3),
        ("sm90-simt", (16, 32), 0.5),
    ],
)
def test_what_the_instructions_attain(unit: str, warp_tile: tuple[int, int] | None, share: float) -> None:
    assert attainment(UNITS[unit], warp_tile) == pytest.approx(share)


def test_attainment_against_what_was_measured() -> None:
    """WGMMA from shared memory on a Hopper: 96, 63, 38 and 21 % of the peak (arXiv 2402.13499)."""
    for columns, share in ((64, 0.96), (32, 0.63), (16, 0.38), (8, 0.21)):
        assert attainment(UNITS["sm90"], (64, columns)) == pytest.approx(share, rel=0.07)


@pytest.mark.parametrize("target", TABLE)
def test_estimates_carry_their_terms(target: str) -> None:
    model = Roofline(hardware(target))
    for region in (gemm_region(), gemm_region(100, 30, 7, at=True)):
        found = estimate(region, Plan(), model)
        assert sum(found.terms.values()) == found.time_s == model.kernel(found.work)
        assert found.bytes == found.work.bytes_read + found.work.bytes_written


@pytest.mark.spec("004-129")
def test_estimates_of_large_products_are_near_published_ones() -> None:
    """TFLOP/s of cuBLAS in fp16 (notes on GPU kernels): within a fifth, with plans like its own."""
    cases = (
        ("sm80", "", 8192, (128, 256, 64), (64, 64), 3, 262.0),
        ("sm80", "", 4096, (128, 256, 64), (64, 64), 3, 245.0),
        ("sm90", "h200", 8192, (128, 256, 64), (64, 256), 4, 759.0),
        ("sm90", "h200", 4096, (128, 256, 64), (64, 256), 4, 765.0),
    )
    for target, variant, size, tile, warp_tile, stages, published in cases:
        model = Roofline(hardware(target, variant))
        plan = replace(PLAN, arch=target, barrier_model=None, tile=tile, warp_tile=warp_tile, stages=stages)
        region = gemm_region(size, size, size)
        rate = 2 * size**3 / estimate(region, plan, model).time_s / 1e12
        assert rate == pytest.approx(published, rel=0.2), (target, size)


def region_with_no_axes() -> Region:
    program = tinyc.trace(lambda x: x * 2.0, tinyc.spec("fp32", ()))
    (region,) = base_program(program).regions
    return region


@pytest.mark.parametrize("target", TABLE)
def test_a_kernel_of_one_point_has_an_estimate(target: str) -> None:
    found = estimate(region_with_no_axes(), Plan(), Roofline(hardware(target)))
    assert found.time_s > 0
    assert found.work.bytes_read == 4
