"""What the search takes a program to cost is what it costs once its kernels have their Plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plan_examples import SM80
from random_models import random_model

import tinyc
from tinyc import TinycError, functions
from tinyc.bench.programs import transformer
from tinyc.extract.cost.schedule import schedule_of
from tinyc.ir.check_plan import check_plan
from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis
from tinyc.ir.plan import Contraction, Plan
from tinyc.ir.region import Axis, Binary, Let, MemRef, Read, Reduce, Region, Yield
from tinyc.ir.resources import LIMITS
from tinyc.ir.rows import kept_rows
from tinyc.ir.tiny import Program


def ratio(program: Program, target: str) -> float:
    """Of the estimate with Plans to that of the search."""
    report = tinyc.optimize_and_compile(program, target=target).report
    assert report.search is not None
    return sum(kernel.time_s for kernel in report.kernels) / report.search.exact_s


@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
@pytest.mark.parametrize("seed", range(8))
def test_the_search_and_the_plans_agree(seed: int, target: str) -> None:
    """What is left: a Plan's tile depends on the types of what is loaded, which the search does not know at every place."""
    assert 0.95 <= ratio(random_model(seed), target) <= 1.2


@pytest.mark.parametrize("target", ["sm80", "sm90"])
@pytest.mark.parametrize("tokens, width, dtype", [(32, 64, "fp32"), (128, 256, "fp16")])
def test_a_product_or_a_stream_within_a_reduction_runs_in_its_loops(
    tokens: int, width: int, dtype: str, target: str
) -> None:
    """The search took them for tiled: kernels of the smaller one were five times, of the other a hundred times what it said."""
    function, shapes = transformer(1, tokens, width)
    program = tinyc.trace(function, **{name: tinyc.spec(dtype, shape) for name, shape in shapes.items()})
    assert 0.95 <= ratio(program, target) <= 1.1


@pytest.mark.parametrize("target", ["sm80", "sm90"])
@pytest.mark.parametrize("columns", [48, 64, 320, 1024])
def test_rows_that_a_gpu_reduces_are_one_blocks(columns: int, target: str) -> None:
    """A block cannot ask another one for a part of its row: it computes all tiles of it, and keeps them."""

    def softened(x: Any, w: Any) -> Any:
        return functions.softmax(x @ w)

    program = tinyc.trace(softened, tinyc.spec("fp16", (4096, 64)), tinyc.spec("fp16", (64, columns)))
    compiled = tinyc.optimize_and_compile(program, target=target)
    assert compiled._latest is not None
    extracted = compiled._latest.extracted
    pairs = zip(extracted.regions, extracted.plans, strict=True)
    tiled = [(region, plan, plan.contraction) for region, plan in pairs if plan.contraction is not None]
    assert tiled
    rows = [(region, plan) for region, plan, roles in tiled if kept_rows(region, roles)]
    assert rows or columns > 64
    for region, plan in rows:
        assert plan.tile is not None
        if plan.tile[1] < columns:
            assert "n.o" not in dict(plan.bind)
            schedule = schedule_of(region, plan, LIMITS[target])
            assert schedule is not None and schedule.blocks == -(-4096 // plan.tile[0])
            assert schedule.steps == -(-columns // plan.tile[1]) * -(-64 // plan.tile[2])


def softmax_region(columns: int, turned: bool = False) -> tuple[Region, Contraction]:
    """max over j of S[i, j], or of S[j, i], taken from S[i, j] = sum over k of A[i, k] B[k, j]."""
    a = MemRef("A", DType.FP16, (columns if turned else 128, 64))
    b = MemRef("B", DType.FP16, (64, columns))
    rows = a.shape[0]

    def product(name: str, row: str, column: str, k: str) -> tuple[Let, ...]:
        return (
            Let(f"{name}a", DType.FP16, Read("A", (axis(row), axis(k)))),
            Let(f"{name}b", DType.FP16, Read("B", (axis(k), axis(column)))),
            Let(f"{name}p", DType.FP16, Binary("MUL", f"{name}a", f"{name}b")),
            Let(name, DType.FP16, Reduce("SUM", (Axis(k, 64),), f"{name}p")),
        )

    inner = ("r", "j") if turned else ("i", "r")
    lets = (
        *product("s", "i", "j", "k0"),
        *product("t", *inner, "k1"),
        Let("m", DType.FP16, Reduce("MAX", (Axis("r", rows if turned else columns),), "t")),
        Let("d", DType.FP16, Binary("SUB", "s", "m")),
    )
    iters = (Axis("i", rows), Axis("j", columns))
    out = MemRef("C", DType.FP16, (rows, columns))
    region = Region("softened", iters, (a, b), (out,), lets, (Yield("d", "C"),))
    return region, Contraction("s", "sa", "sb", (), ("i",), ("j",), ("k0",))


def test_a_plan_that_gives_a_row_to_several_blocks_is_refused() -> None:
    region, roles = softmax_region(256)
    rows, columns = ("m.o", "block.y"), ("n.o", "block.x")
    whole = Plan("contraction", roles, tile=(64, 256, 64), arch="sm80", bind=(rows, columns))
    check_plan(whole, region, SM80)
    check_plan(replace(whole, tile=(64, 128, 64), bind=(rows,)), region, SM80)
    with pytest.raises(TinycError, match="128 columns of a row of 256") as caught:
        check_plan(replace(whole, tile=(64, 128, 64)), region, SM80)
    assert "256" in caught.value.suggestion


def test_a_row_of_several_tiles_is_computed_once() -> None:
    region, roles = softmax_region(256)
    plan = Plan("contraction", roles, tile=(64, 128, 64), stages=2, arch="sm80", bind=(("m.o", "block.x"),))
    one, two = (schedule_of(region, replace(plan, tile=(64, n, 64)), SM80) for n in (256, 128))
    assert one is not None and two is not None
    assert (one.blocks, two.blocks) == (2, 2)
    assert (one.padding, two.padding) == (1, 1)
    assert two.steps == 2 * one.steps


def test_a_plan_that_reduces_over_columns_is_refused() -> None:
    region, roles = softmax_region(64, turned=True)
    assert kept_rows(region, roles) == ("t",)
    with pytest.raises(TinycError, match="rows of other blocks"):
        check_plan(Plan("contraction", roles, tile=(64, 64, 64), arch="sm80"), region, SM80)


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_a_small_product_runs_in_loops_where_that_takes_less(target: str) -> None:
    for size, algorithm in ((16, "loops"), (2048, "implicit_gemm")):
        program = tinyc.trace(
            lambda x, w: x @ w, tinyc.spec("fp32", (size, size)), tinyc.spec("fp32", (size, size))
        )
        report = tinyc.optimize_and_compile(program, target=target).report
        assert [kernel.plan.algorithm for kernel in report.kernels] == [algorithm]
        assert report.search is not None and report.search.exact_s == pytest.approx(
            report.kernels[0].time_s, rel=0.1
        )


@pytest.mark.parametrize("columns", [512, 1024, 4096])
def test_sums_of_a_row_are_computed_once_however_many_tiles_it_has(columns: int) -> None:
    """The threads of a block take whole rows; a Plan whose tile is a part of one was charged for its sums again."""

    def softened(x: Any) -> Any:
        return functions.softmax(x * 0.125).cast("fp16")

    program = tinyc.trace(softened, tinyc.spec("fp32", (4096, columns)))
    report = tinyc.optimize_and_compile(program, target="sm80").report
    assert report.total.time_s < report.naive.time_s and len(report.kernels) == 1
