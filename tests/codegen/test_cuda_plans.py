"""What a Plan says of a kernel of loops is what the kernel does; whatever it says, the results are the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_regions import compare, emulated, run
from region_builder import F16, F32, Build
from test_cuda_kept import attended, layer_norm, softmax
from test_cuda_sums import down, integers, rows
from test_stream import arrays

from tinyc.codegen.cuda import generate
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region
from tinyc.ir.schedule import Vectorize


def points(count: int, width: int, axis: str = "j.i.i") -> Plan:
    """Blocks of ``count`` points of the innermost axis."""
    return Plan(tile=(1, count, 1), vectorize=Vectorize(axis, width))


def shared(count: int, share: int, width: int, axis: str = "r.i") -> Plan:
    """Blocks of ``count`` points, of which ``share`` threads have a sum."""
    return Plan(tile=(1, count, share), vectorize=Vectorize(axis, width))


def elementwise() -> Region:
    b = Build(i=32, j=512)
    x, y = (b.read(b.input(name, F32, 32, 512), "i", "j") for name in "XY")
    return b.done(b.binary("ADD", x, y))


WIDTHS = {1: r"ld\.global\.nc\.f32", 2: r"ld\.global\.nc\.v2", 4: r"ld\.global\.nc\.v4"}


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("threads", [64, 128, 256, 512])
def test_blocks_and_vectors_of_elements(threads: int, width: int) -> None:
    region, plan = elementwise(), points(threads * width, width)
    kernel = generate(region, plan)
    assert kernel.block == (threads, 1, 1) and kernel.grid == (32 * 512 // width // threads, 1, 1)
    loads = [each.instruction for each in emulated(region, arrays(region), plan=plan).counters.global_]
    assert any(re.match(WIDTHS[width], each) for each in loads)
    compare(region, arrays(region), plan=plan)


@pytest.mark.parametrize("share", [8, 32, 128, 512])
def test_threads_of_a_sum_along_its_row(share: int) -> None:
    region, plan = rows(64, 1024), shared(max(1, 256 // share), share, 4)
    kernel = generate(region, plan)
    threads = max(256, share)
    assert kernel.block == (threads, 1, 1)
    assert kernel.grid == (64 * share // threads, 1, 1)
    compare(region, integers(region), plan=plan)


@pytest.mark.parametrize(("share", "lanes"), [(8, 32), (32, 8), (128, 2), (32, 32)])
@pytest.mark.parametrize("width", [1, 4])
def test_threads_of_a_sum_down_its_column(share: int, lanes: int, width: int) -> None:
    region, plan = down(300, 256), shared(lanes * width, share, width, "i.i")
    kernel = generate(region, plan)
    assert kernel.algo == "columns" and kernel.block == (share * lanes, 1, 1)
    assert kernel.grid == (256 // (lanes * width), 1, 1)
    compare(region, integers(region), plan=plan)
    assert emulated(region, integers(region), plan=plan).counters.bank_conflicts == 0


@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("count", [64, 1024])
@pytest.mark.parametrize("make", [softmax, layer_norm])
def test_rows_by_any_block(make: object, count: int, width: int) -> None:
    region = make(3, 1000, F16)  # type: ignore[operator]
    plan = points(count, width)
    threads = max(32, min(1024, count // width))
    assert generate(region, plan).block[0] <= threads
    compare(region, arrays(region), rtol=2e-3, atol=2e-3, plan=plan)


@pytest.mark.parametrize("share", [8, 32])
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("shape", [(3, 63, 64, 16), (2, 40, 24, 9), (5, 33, 7, 8)])
def test_threads_of_a_sum_beside_the_scores_of_its_row(
    shape: tuple[int, int, int, int], width: int, share: int
) -> None:
    region, plan = attended(*shape), shared(shape[2], share, width, "j.i")
    assert generate(region, plan).algo == "rows"
    compare(region, arrays(region), rtol=1e-5, atol=1e-6, plan=plan)
    assert emulated(region, arrays(region), plan=plan).counters.bank_conflicts == 0


def test_another_plan_is_another_kernel_with_the_same_results() -> None:
    region = softmax(5, 512)
    data = arrays(region)
    plans = [None, *(points(size, width) for size in (128, 512) for width in (1, 4))]
    kernels = [generate(region, plan) for plan in plans]
    assert len({kernel.source for kernel in kernels[1:]}) == 4
    results = [run(region, data, plan=plan)["y0"] for plan in plans]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-6)


def test_a_plan_that_says_nothing_is_none() -> None:
    for region in (softmax(5, 512), down(300, 64), elementwise()):
        assert generate(region, Plan()) == generate(region)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tile=(1, 1, 1)),
        Plan(tile=(1, 7, 3)),
        Plan(tile=(1, 100_000, 1)),
        Plan(tile=(1, 1, 1 << 20)),
        Plan(tile=(1, 100, 48), vectorize=Vectorize("i.i", 16)),
        Plan(vectorize=Vectorize("r.i", 16)),
    ],
    ids=str,
)
def test_plans_that_no_block_can_follow_are_followed_as_far_as_one_can(plan: Plan) -> None:
    for region in (softmax(5, 100), layer_norm(3, 64), rows(9, 100), down(100, 9), down(9, 3), elementwise()):
        kernel = generate(region, plan)
        assert 0 < kernel.block[0] <= 1024 and kernel.block[0] % 32 == 0
        compare(region, arrays(region), rtol=1e-4, atol=1e-5, plan=plan)
