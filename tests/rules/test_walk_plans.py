"""Plans of attention on matrix units: the candidates of the rules, what they take, and that kernels follow them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc import functions as tc
from tinyc.codegen.cuda import generate
from tinyc.codegen.emulator import Uninitialised, emulate
from tinyc.codegen.gpu.attention import attention_of
from tinyc.codegen.nvrtc import compile_ptx
from tinyc.codegen.playback import evaluate_region
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.cost.schedule import schedule_of
from tinyc.extract.plans.candidate import Candidate, Problem, candidates_of, problem_of
from tinyc.extract.plans.candidate_check import candidate_fault, region_of
from tinyc.extract.plans.default_plan import default_plan
from tinyc.extract.plans.rank import plan_of, rank_plans
from tinyc.ir.check_plan import check_plan
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.region import Region
from tinyc.ir.resources import LIMITS, resources
from tinyc.ir.schedule_json import plan_from_json, plan_to_json
from tinyc.ir.schedule_text import plan_from_text, plan_to_text
from tinyc.ir.tiny import Program

SHAPES = [
    (2, 64, 64, 64, 64),
    (3, 1, 200, 32, 32),
    (2, 63, 63, 96, 40),
    (1, 257, 130, 128, 128),
    (2, 40, 33, 256, 256),
]
"""Heads, rows, columns, depth, width."""


def attention(
    heads: int, rows: int, columns: int, depth: int, width: int, causal: bool = False, dtype: str = "fp16"
) -> Program:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return tc.attention(q, k, v, causal=causal)

    sizes = ((1, heads, rows, depth), (1, heads, columns, depth), (1, heads, columns, width))
    return tinyc.trace(fn, *(tinyc.spec(dtype, size) for size in sizes))


def walks(program: Program, target: str, also: tuple[str, ...] = ()) -> dict[Problem, tuple[Candidate, ...]]:
    result = saturate(program, load_rules(), machine=LIMITS[target], also=also)
    assert result.complete
    found = candidates_of(result.graph, hardware(target).limits.arch)
    return {problem: each for problem, each in found.items() if problem[0] == "Walk"}


def walked(problem: Problem, target: str = "sm80") -> Region:
    made = region_of(problem, LIMITS[target])
    assert not isinstance(made, str)
    return made[0]


@pytest.mark.spec("004-128", "004-134")
@pytest.mark.parametrize("target", ["sm80", "sm86", "sm90"])
@pytest.mark.parametrize("shape", SHAPES)
def test_candidates_are_legal_and_few(target: str, shape: tuple[int, ...]) -> None:
    for also in ((), ("streaming-unrounded",)):
        found = walks(attention(*shape), target, also)
        _, rows, columns, depth, width = shape
        if rows == 1:  # one row is no product of two matrices
            continue
        assert set(found) == {("Walk", rows, columns, depth, width, 2)}
        for problem, candidates in found.items():
            assert 1 <= len(candidates) <= 20
            for each in candidates:
                assert candidate_fault(problem, each, LIMITS[target]) is None, each


def test_the_check_refuses_what_the_rules_leave_out() -> None:
    problem: Problem = ("Walk", 1024, 1024, 64, 64, 2)
    good = Candidate("sm80", (64, 64, 64), None, (16, 64), 8, "streaming_softmax_2pass", False)
    assert candidate_fault(problem, good, LIMITS["sm80"]) is None
    wrong = {
        "registers": replace(good, tile=(64, 256, 64), warp_tile=(32, 256)),
        "room for one block": replace(good, tile=(256, 64, 64), warp_tile=(32, 64)),
        "an access of 16": replace(good, width=16),
        "accesses of 8": replace(good, width=4),
        "no whole instructions": replace(good, warp_tile=(8, 64)),
        "all scores of its rows": replace(good, warp_tile=(16, 32)),
        "summed over 64 points at once": replace(good, tile=(64, 64, 32)),
        "does not divide": replace(good, warp_tile=(48, 64)),
        "no way to compute": replace(good, algo="loops"),
    }
    for why, candidate in wrong.items():
        assert why in str(candidate_fault(problem, candidate, LIMITS["sm80"])), why
    deep: Problem = ("Walk", 1024, 1024, 256, 64, 2)
    large = replace(good, tile=(192, 64, 256))
    assert "more than 80 %" in str(candidate_fault(deep, large, LIMITS["sm80"]))
    small: Problem = ("Walk", 20, 1024, 64, 64, 2)
    assert "half of 128 covers" in str(
        candidate_fault(small, replace(good, tile=(128, 64, 64)), LIMITS["sm80"])
    )


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_a_plan_says_what_its_kernel_is(target: str) -> None:
    """Threads, blocks and shared memory of the report are those of the kernel that is launched."""
    for problem, candidates in walks(attention(2, 200, 130, 64, 96, causal=True), target).items():
        region = walked(problem, target)
        limits = LIMITS[target]
        for candidate in candidates:
            plan = plan_of(candidate, region, None, limits)
            taken, kernel = resources(plan, region, limits), generate(region, plan)
            there = attention_of(region, plan)
            assert there is not None and kernel.algo == "attention"
            assert (taken.threads, taken.grid) == (kernel.block[0], kernel.grid)
            staged = sum(ring.slot_bytes for ring in there.rings)
            assert taken.smem_bytes == staged <= kernel.shared_bytes
            schedule = schedule_of(region, plan, limits)
            assert schedule is not None
            assert (schedule.blocks, schedule.threads, schedule.smem_bytes, schedule.registers) == (
                kernel.grid[0], kernel.block[0], taken.smem_bytes, taken.registers_per_thread,
            )  # fmt: skip
            assert plan_from_json(plan_to_json(region.name, plan)) == plan
            assert plan_from_text(plan_to_text(plan)) == plan


@pytest.mark.parametrize("shape", SHAPES[2:])
def test_every_plan_gives_the_same_numbers(shape: tuple[int, ...]) -> None:
    ((problem, candidates),) = walks(attention(*shape), "sm80").items()
    region = walked(problem)
    generator = np.random.default_rng(3)
    arrays = {ref.name: generator.normal(size=ref.shape).astype(np.float16) / 2 for ref in region.inputs}
    (want,) = evaluate_region(region, arrays).values()
    sources = set()
    for candidate in candidates:
        kernel = generate(region, plan_of(candidate, region, None, LIMITS["sm80"]))
        sources.add(kernel.source)
        (out,) = region.outputs
        found = emulate(
            compile_ptx(kernel.source), kernel.name, kernel.grid, kernel.block,
            [*arrays.values(), Uninitialised(out.shape, out.dtype.numpy)],
            shared_bytes=kernel.shared_bytes, source=kernel.source,
        )  # fmt: skip
        assert not found.findings
        np.testing.assert_allclose(found.outputs[-1].astype("f4"), want.astype("f4"), rtol=1e-3, atol=1e-3)
    assert len(sources) == len(candidates)


def test_a_line_in_a_file_is_a_tile_more(tmp_path: Any) -> None:
    file = tmp_path / "mine.egg"
    file.write_text('(walk-shape "sm80" 96 64 16)\n', encoding="utf-8")
    program = attention(2, 512, 512, 64, 64)
    result = saturate(program, load_rules([file]), machine=LIMITS["sm80"])
    ((problem, candidates),) = (
        item for item in candidates_of(result.graph, "sm80").items() if item[0][0] == "Walk"
    )
    ((more,),) = [[each for each in candidates if each not in walks(program, "sm80")[problem]]]
    assert more.tile == (96, 64, 64) and candidate_fault(problem, more, LIMITS["sm80"]) is None


def test_ranked_and_default_plans_are_streams() -> None:
    problem: Problem = ("Walk", 1024, 1024, 64, 64, 2)
    region, limits = walked(problem), LIMITS["sm80"]
    assert problem_of(region, None, limits) == problem
    default = default_plan(region, None, hardware("sm80"))
    assert default.algo == "stream" and check_plan(default, region, limits).threads == 128
    candidates = walks(attention(1, 1024, 1024, 64, 64), "sm80")[problem]
    ranked = rank_plans(region, None, candidates, Roofline(hardware("sm80")), limits)
    assert len(ranked) == len(candidates)
    assert all(one.estimate <= two.estimate for one, two in itertools.pairwise(ranked))
    assert len({each.estimate for each in ranked}) > 1


def test_a_stream_of_something_else_is_refused() -> None:
    region = walked(("Walk", 64, 64, 64, 64, 2))
    plan = default_plan(region, None, hardware("sm80"))
    for machine, given in ((LIMITS["cpu"], replace(plan, arch=None)), (LIMITS["sm80"], plan)):
        other = replace(region, inputs=tuple(region.inputs)) if machine.arch == "cpu" else plain(region)
        with pytest.raises(TinycError) as caught:
            check_plan(given, other, machine)
        assert caught.value.kind == "PlanMismatch"


def plain(region: Region) -> Region:
    """Without its Streams: a product of queries and keys."""
    program = tinyc.trace(lambda a, b: a @ b, tinyc.spec("fp16", (64, 64)), tinyc.spec("fp16", (64, 64)))
    return tinyc.optimize_and_compile(program, "sm80").kernels[0].region
