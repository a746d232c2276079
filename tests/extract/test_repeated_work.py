"""What a kernel computes again: for rows that need it, and by each block of a GPU (docs/cost.md)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kernel_examples import EXAMPLES, problem_of
from random_models import random_model

import tinyc
from tinyc.extract.cost.model import along_row, repeats
from tinyc.extract.exact.once import HOWS
from tinyc.ir.tiny import Program

TARGETS = ("cpu", "sm80", "sm90")


@pytest.mark.parametrize(
    "axes, shape, loops, blocks",
    [
        ((), (8, 16, 32), 1, 128),  # computed before all loops; by every row's blocks
        ((0,), (8, 16, 32), 1, 16),
        ((1,), (8, 16, 32), 8, 8),
        ((2,), (8, 16, 32), 128, 128),
        ((0, 2), (8, 16, 32), 16, 16),
        ((0, 1), (8, 16, 32), 1, 1),
        ((0, 1, 2), (8, 16, 32), 1, 1),
        ((1,), (8, 16, 1), 8, 8),  # the last axis that has several points
        ((), (8, 1), 1, 1),
        ((), (), 1, 1),
    ],
)
def test_how_often(axes: tuple[int, ...], shape: tuple[int, ...], loops: int, blocks: int) -> None:
    assert repeats(axes, shape, False) == loops
    assert repeats(axes, shape, True) == blocks


def test_the_same_along_a_row() -> None:
    assert along_row((0,), (8, 16))
    assert not along_row((0, 1), (8, 16))
    assert not along_row((0,), (8, 1))
    assert along_row((), ())


def scaled(axis: int | None, shape: tuple[int, ...]) -> Program:
    def function(x: Any) -> Any:
        return x / (x.sum() if axis is None else x.sum(axis=axis, keepdims=True))

    return tinyc.trace(function, tinyc.spec("fp32", shape))


@pytest.mark.parametrize(
    "axis, shape, fused",
    [
        # was one kernel on all, and on cpu estimated at a hundred times what it takes
        (None, (1024, 1024), ("cpu",)),
        (0, (1024, 1024), ()),  # was one kernel on GPUs: each of 1,024 rows would have added up all columns
        (1, (1024, 1024), TARGETS),
        (0, (3, 64), ("sm80", "sm90")),  # few rows: cheaper than a launch
        (0, (64, 64, 512), ()),
        (2, (8, 32, 512), TARGETS),
        (2, (8, 32, 512, 1), TARGETS),  # an axis of one point is no axis
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_a_sum_is_fused_where_few_compute_it_again(
    axis: int | None, shape: tuple[int, ...], fused: tuple[str, ...], target: str
) -> None:
    report = tinyc.optimize_and_compile(scaled(axis, shape), target=target).report
    if target != "cpu" or shape != (3, 64):  # there it takes as long either way
        assert len(report.kernels) == (1 if target in fused else 2)
    assert report.total.time_s <= report.naive.time_s * 1.001


def reductions(seed: int) -> Program:
    """Sums and maxima over some axes, each taken into what goes on, of one to three axes."""
    rng = random.Random(seed)
    shape = tuple(rng.choice((1, 4, 33, 64, 128, 1000)) for _ in range(rng.randint(1, 3)))
    exponential = rng.random() < 0.5
    steps = [
        (rng.choice((None, *range(len(shape)))), rng.choice(("sum", "max", "mean")), rng.choice("-/*+"))
        for _ in range(rng.randint(1, 3))
    ]

    def function(x: Any) -> Any:
        y = x.exp() if exponential else x
        for axis, kind, op in steps:
            s = getattr(y, kind)() if axis is None else getattr(y, kind)(axis=axis, keepdims=True)
            y = {"-": lambda y, s: y - s, "/": lambda y, s: y / s, "*": lambda y, s: y * s}.get(
                op, lambda y, s: y + s.exp()
            )(y, s)
        return y

    return tinyc.trace(function, tinyc.spec("fp32", shape))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [reductions, random_model])
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))]
)
def test_no_program_is_estimated_above_the_naive_one(make: Any, seed: int, target: str) -> None:
    report = tinyc.optimize_and_compile(make(seed), target=target).report
    assert report.total.time_s <= report.naive.time_s * 1.001
    assert report.search is not None
    if make is reductions:
        assert 0.9 <= report.total.time_s / report.search.exact_s <= 1.15


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_work_depends_on_the_shape_that_is_filled_only_where_that_is_said(name: str, target: str) -> None:
    problem, _ = problem_of(name, target)
    shapes = ((1, 1), (8, 16), (64, 1), (3, 1, 5), (7, 64, 32))
    seen = set()
    for key, options in problem.options.items():
        for option in options:
            for how in HOWS:
                works = {problem.works.work(key, option.item, how, shape) for shape in (None, *shapes)}
                shaped = problem.works.shaped(option.item, how)
                assert shaped or len(works) == 1, (key, option.item, how)
                seen.add((shaped, len(works) > 1))
    assert (False, False) in seen and ((True, True) in seen or target == "cpu")
