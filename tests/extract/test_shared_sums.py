"""Loops on GPUs whose threads share sums: which sums these are, what plans the rules make, that the search and the Plans mean
the same, and what is gained where a thread for each sum leaves the machine idle."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kernel_examples import saturated

import tinyc
from tinyc import functions
from tinyc.extract.cost.estimate import estimate
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.plans.candidate import candidates_of, fold_problem
from tinyc.extract.plans.candidate_check import candidate_fault
from tinyc.extract.plans.rank import fault, plan_of
from tinyc.ir.folds import fold_of
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region, row_axis
from tinyc.ir.resources import LIMITS, resources
from tinyc.ir.schedule import Vectorize
from tinyc.ir.tiny import Program
from tinyc.pipeline import Options, compile_program

GPUS = ("sm80", "sm90")
Function = Callable[..., Any]


def traced(function: Function, *shapes: tuple[int, ...], dtype: str = "fp32") -> Program:
    return tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))


def kernels(program: Program, target: str) -> tuple[tuple[Region, Plan], ...]:
    extracted = compile_program(program, Options(target), code=False).extracted
    return tuple(zip(extracted.regions, extracted.plans, strict=True))


@pytest.mark.parametrize(
    "function, shapes, expected",
    [
        (lambda x: x.sum(axis=1), [(64, 48)], (48, True)),
        (lambda x: x.sum(axis=0), [(64, 48)], (64, False)),
        (lambda x: x.sum(), [(64, 48)], (64 * 48, True)),
        (lambda x: (x * x).mean(axis=(0, 2)), [(6, 64, 48)], (6 * 48, True)),
        (lambda x: x + 1.0, [(64, 48)], None),
        (lambda x: x / x.sum(axis=1, keepdims=True), [(64, 48)], None),  # a sum for a row, not for a point
        (lambda x, w: x @ w, [(1, 640), (640, 48)], (640, False)),  # most is read of w
        (lambda x, w: x @ w.permute(1, 0), [(1, 640), (48, 640)], (640, True)),
    ],
)
def test_the_sums_that_threads_may_share(
    function: Function, shapes: list[tuple[int, ...]], expected: tuple[int, bool] | None
) -> None:
    ((region, _),) = kernels(traced(function, *shapes), "cpu")
    fold = fold_of(region)
    assert (fold and (fold.points, fold.along)) == expected


def some_sum(seed: int) -> Program:
    """A reduction over random axes, alone or with something before and behind it."""
    pick = random.Random(seed)
    shape = tuple(pick.choice((1, 3, 16, 33, 64, 200, 1024)) for _ in range(pick.randint(1, 3)))
    axes = tuple(axis for axis in range(len(shape)) if pick.random() < 0.6) or (len(shape) - 1,)
    before, behind = pick.random() < 0.5, pick.random() < 0.5
    op = pick.choice(("sum", "max", "mean"))

    def function(x: Any) -> Any:
        y = getattr(x.exp() if before else x, op)(axis=axes)
        return y.relu() if behind else y

    return traced(function, shape, dtype=pick.choice(("fp32", "fp16")))


@pytest.mark.parametrize("target", GPUS)
def test_candidates_are_legal_and_the_plans_of_their_kernels(target: str) -> None:
    """Each that the rules make for a kernel's problem becomes a Plan that its Region and the machine accept, of as many
    threads as it says."""
    limits, found = LIMITS[target], 0
    for seed in range(24):
        program = some_sum(seed)
        known = candidates_of(saturated(program, target), target)
        for region, _ in kernels(program, target):
            problem = fold_problem(region, limits)
            for candidate in known.get(problem, ()) if problem else ():
                assert problem is not None and candidate_fault(problem, candidate, limits) is None
                plan = plan_of(candidate, region, None, limits)
                assert fault(plan, region, limits) is None, (seed, plan)
                assert plan.tile is not None and plan.tile[2] == candidate.tile[2]
                threads = resources(plan, region, limits).threads
                assert threads == candidate.tile[1] * candidate.tile[2], (seed, plan)
                found += 1
    assert found > 40


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("seed", range(16))
def test_the_search_and_the_plans_agree(seed: int, target: str) -> None:
    report = tinyc.optimize_and_compile(some_sum(seed), target=target).report
    assert report.search is not None
    assert 0.95 <= sum(kernel.time_s for kernel in report.kernels) / report.search.exact_s <= 1.1


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize(
    "function, shapes",
    [
        (lambda x: x.sum(axis=1), [(1024, 1024)]),
        (lambda x: x.sum(axis=0), [(1024, 1024)]),
        (lambda x: x.max(axis=1), [(16, 65536)]),
        (lambda x, w: x @ w, [(1, 4096), (4096, 4096)]),
        (lambda x, w: (x @ w.permute(1, 0)).relu(), [(1, 4096), (4096, 4096)]),
    ],
)
def test_few_sums_of_many_points_keep_the_machine_busy(
    function: Function, shapes: list[tuple[int, ...]], target: str
) -> None:
    """With a thread for each, 1024 sums of 1024 points took 90 us on sm80. What is left is within twice the time of the bytes."""
    program = traced(function, *shapes)
    built, machine = compile_program(program, Options(target), code=False), hardware(target)
    found = built.report.kernels
    seconds, moved = (sum(getattr(kernel, name) for kernel in found) for name in ("time_s", "bytes"))
    assert seconds < machine.launch * len(found) + 2 * moved / machine.bandwidth
    assert any(plan.tile and plan.tile[2] > 1 for plan in built.extracted.plans)


@pytest.mark.parametrize("target", GPUS)
def test_what_is_for_a_row_or_has_many_points_is_not_shared(target: str) -> None:
    for function, shape in (
        (functions.softmax, (512, 1024)),
        (lambda x: x + 1.0, (512, 1024)),
        (lambda x: x.sum(axis=1), (1 << 20, 8)),  # a thread for each sum fills the machine
    ):
        for _, plan in kernels(traced(function, shape), target):
            assert plan.tile is None or plan.tile[2] == 1


def test_plans_that_share_what_cannot_be_shared_are_refused() -> None:
    limits = LIMITS["sm80"]
    ((rows, plan),) = kernels(traced(lambda x: x.sum(axis=1), (1024, 1024)), "sm80")
    ((points, _),) = kernels(traced(lambda x: x + 1.0, (1024, 1024)), "sm80")
    assert fault(plan, rows, limits) is None and plan.tile is not None
    for wrong, region, why in (
        (replace(plan, tile=(1, plan.tile[1], 2048)), rows, "the shortest has 1024 points"),
        (replace(plan, tile=(1, plan.tile[1], 48)), rows, "no power of two"),
        (replace(plan, tile=(2, plan.tile[1], 32)), rows, "loops have no rows"),
        (Plan(arch="sm80", tile=(1, 64, 32)), points, "none at the points of its row"),
        (replace(plan, tile=(1, plan.tile[1], 1)), rows, "is summed"),  # bound to lanes, and not shared
    ):
        error = fault(wrong, region, limits)
        assert error is not None and why in error.why, (why, error)
    assert "a CPU has one thread" in str(
        fault(Plan(arch="cpu", tile=(1, 64, 32), vectorize=Vectorize("i0", 8)), rows, LIMITS["cpu"])
    )


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize(
    "rows, points", [(1, 512), (37, 64), (128, 128), (1024, 1024), (4096, 24), (65536, 8)]
)
def test_axes_of_one_point_change_nothing(rows: int, points: int, target: str) -> None:
    """x.sum(axis=1, keepdims=True) had one thread for each sum, x.sum(axis=1) a warp: 14 us and 3 for 128 x 128."""
    found = []
    for kept in (False, True):
        program = traced(lambda x, kept=kept: (x * x).sum(axis=1, keepdims=kept), (rows, points))
        report = tinyc.optimize_and_compile(program, target=target).report
        assert report.search is not None
        plans = [kernel.plan for kernel in report.kernels]
        found.append((report.search.exact_s, sum(kernel.time_s for kernel in report.kernels), plans))
    assert found[0] == found[1]


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("shape", [(4096, 1), (4096, 1, 1), (1, 4096), (64, 1, 64, 1), (1, 1), (3, 1)])
def test_elementwise_rows_end_at_the_last_axis_of_several_points(shape: tuple[int, ...], target: str) -> None:
    plain = tuple(size for size in shape if size > 1)
    ((region, plan),) = kernels(traced(lambda x: x.exp() * 0.5, shape), target)
    ((_, other),) = kernels(traced(lambda x: x.exp() * 0.5, plain), target)
    assert (plan.tile, plan.vectorize and plan.vectorize.width) == (
        other.tile,
        other.vectorize and other.vectorize.width,
    )
    row = row_axis(region)
    assert row is not None and row.size == (plain or (1,))[-1]


@pytest.mark.parametrize("target", GPUS)
def test_a_sum_within_a_rows_sum_reads_in_order(target: str) -> None:
    """Neighbours walk the row, whatever is summed within it for each of its points."""

    def normalised(x: Any) -> Any:
        y = x.sum(axis=0).relu()
        return y / y.sum(axis=1, keepdims=True)

    ((region, plan),) = kernels(traced(normalised, (4, 512, 512)), target)
    work = estimate(region, plan, Roofline(hardware(target))).work
    program = traced(normalised, (4, 512, 512))
    report = tinyc.optimize_and_compile(program, target=target).report
    assert report.search is not None and work.strided_bytes == 0
    planned = sum(kernel.time_s for kernel in report.kernels)
    assert 0.95 <= planned / report.search.exact_s <= 1.2  # the search took the sum within for out of order
