"""Candidates become whole Plans that fit their Regions, the cost model puts them in order, and the best is compiled."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from candidate_programs import contractions, gemm, saturated
from plan_examples import REFERENCE, gemm_region
from random_programs import Maker

import tinyc
from tinyc.extract.base import base_program
from tinyc.extract.cost.hardware import TABLE, Hardware, hardware
from tinyc.extract.cost.model import CostModel, Roofline, Work
from tinyc.extract.cost.schedule import schedule_of
from tinyc.extract.plans import planning
from tinyc.extract.plans.candidate import Candidate, Problem, candidates_of, decoded, problem_of
from tinyc.extract.plans.default_plan import aligned, default_plan, with_default_plans
from tinyc.extract.plans.planning import Known, Planned, with_plans
from tinyc.extract.plans.rank import MOST, RankedPlan, plan_of, rank_plans, refused
from tinyc.extract.program import extract_program
from tinyc.extract.tiling import Tiling
from tinyc.extract.view import View, input_dtypes
from tinyc.ir.check_plan import check_plan
from tinyc.ir.evaluate import evaluate
from tinyc.ir.plan import Extracted, Plan
from tinyc.ir.roles import contraction_of
from tinyc.ir.schedule_json import plan_from_json, plan_to_json
from tinyc.ir.tiny import Program
from tinyc.pipeline import machine

TARGETS = tuple(TABLE)
EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))


@dataclass(frozen=True)
class Made:
    """A program extracted for a machine, its candidates, and what became of them."""

    extracted: Extracted
    candidates: Mapping[Problem, tuple[Candidate, ...]]
    planned: Planned
    row: Hardware


def made(program: Program, target: str, model: CostModel | None = None, rules: tuple[Path, ...] = ()) -> Made:
    row = machine(target)
    graph = saturated(program, row.limits, rules)
    found = extract_program(program, graph, model or Roofline(row)).extracted
    assert found is not None
    candidates = candidates_of(graph, row.limits.arch)
    return Made(found, candidates, with_plans(found, candidates, model or Roofline(row), row), row)


def example(name: str) -> Program:
    (path,) = (path for path in EXAMPLES if path.name == f"{name}.json")
    program = tinyc.load(path)
    return tinyc.ir.bind(program, dict.fromkeys(program.symbols, 256)) if program.symbols else program


def random_program(seed: int) -> Program:
    generator = np.random.default_rng(seed)
    return tinyc.load(Maker(lambda n: int(generator.integers(n)), 12).document())


# ---- from a candidate to a Plan -------------------------------------------------------------------------------------


@pytest.mark.spec("004-128", "004-134")
@pytest.mark.parametrize("target", TARGETS)
def test_every_candidate_of_a_kernel_is_a_plan_that_fits(target: str) -> None:
    """Of contractions in all forms, of the examples and of random programs, extracted and naive. None is refused on its
    way, and the problem of a Region is one that the rules have found in the e-graph."""
    names = ("attention_causal", "conv3x3_silu", "conv_grouped")
    programs = [contractions(11, 8), *map(example, names), *map(random_program, range(2))]
    plans = tiled = 0
    for program in programs:
        found = made(program, target)
        limits = found.row.limits
        naive = base_program(program)
        pairs = [
            *zip(found.planned.extracted.regions, found.extracted.plans, strict=True),
            *zip(aligned(naive.regions, limits), naive.plans, strict=True),
        ]
        for region, given in pairs:
            roles = given.contraction or contraction_of(region)
            problem = problem_of(region, roles, limits)
            candidates = found.candidates.get(problem, ()) if problem else ()
            assert not refused(region, roles, candidates, limits), region.name
            if problem is not None and problem[0] != "Row":
                assert candidates, f"the rules do not know the problem of {region.name}: {problem}"
                tiled += 1
            for candidate in candidates:
                plan = plan_of(candidate, region, roles, limits)
                assert plan.arch == limits.arch
                assert plan_from_json(json.loads(json.dumps(plan_to_json(region.name, plan)))) == plan
                plans += 1
    assert plans > 50 and tiled >= 10


@pytest.mark.spec("004-107", "004-109", "004-111", "004-114", "004-116", "004-117", "004-118")
def test_a_plan_is_completed_from_the_region() -> None:
    """All of the document's reference, of a candidate that says tile, ring, warp, vector and asynchrony alone."""
    region = gemm_region(4096, 4096, 4096)
    candidate = Candidate("sm80", (128, 64, 64), 2, (64, 64), 8, "implicit_gemm", True)
    limits = hardware("sm80").limits
    written = plan_to_json("gemm", plan_of(candidate, region, contraction_of(region), limits))
    for key, value in REFERENCE.items():
        assert written.get(key) == (None if key == "predicate_tail" else value), key
    tails = plan_of(candidate, gemm_region(4100, 4104, 4072), contraction_of(region), limits).predicate_tail
    assert tails == ("m.i.i", "n.i.i", "k.i.i")
    apart = plan_of(replace(candidate, async_enable=False), region, contraction_of(region), limits)
    assert apart.async_ is not None and not (apart.async_.enable or apart.async_.epilogue_overlap)


def test_vectors_are_narrowed_by_the_buffers_of_the_region() -> None:
    """The problem allows eight elements; a bias that is aligned to four bytes is accessed two at a time."""
    candidate = Candidate("sm80", (128, 64, 64), 2, (64, 64), 8, "implicit_gemm", True)
    region = gemm_region(512, 512, 512)
    (a, b, bias) = region.inputs
    region = replace(region, inputs=(a, b, replace(bias, alignment=4)))
    plan = plan_of(candidate, region, contraction_of(region), hardware("sm80").limits)
    assert plan.vectorize is not None and plan.vectorize.width == 2


def test_blocks_that_are_too_many_are_bound_elsewhere() -> None:
    region = gemm_region(1 << 23, 1 << 23, 64)
    candidate = Candidate("sm80", (128, 64, 64), 2, (64, 64), 8, "implicit_gemm", True)
    limits = hardware("sm80").limits
    assert dict(plan_of(candidate, region, contraction_of(region), limits).bind)["m.o"] == "block.x"


# ---- in order -------------------------------------------------------------------------------------------------------


def gemm_ranked(
    m: int, n: int, k: int, target: str, model: CostModel | None = None
) -> tuple[RankedPlan, ...]:
    """The Plans of a GEMM that stands alone, whatever else extraction might do with it."""
    row, region = hardware(target), gemm_region(m, n, k)
    roles = contraction_of(region)
    problem = problem_of(region, roles, row.limits)
    assert problem is not None
    candidates = candidates_of(saturated(gemm(m, n, k), row.limits), row.limits.arch)[problem]
    return rank_plans(region, roles, candidates, model or Roofline(row), row.limits)


@pytest.mark.spec("004-128", "I-46")
@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_the_cheapest_comes_first(target: str) -> None:
    ranked = gemm_ranked(1024, 768, 512, target)
    assert 10 <= len(ranked) <= MOST
    for cheaper, dearer in itertools.pairwise(ranked):
        assert cheaper.estimate <= dearer.estimate * (1 + 1e-12)
    assert ranked[0].estimate < ranked[-1].estimate
    for each in ranked:
        assert sum(each.terms.values()) == pytest.approx(each.estimate, rel=1e-12)
    assert len({each.plan for each in ranked}) == len(ranked)


@pytest.mark.spec("004-119", "004-153")
def test_the_reference_plan_is_ranked_for_its_gemm() -> None:
    """The default where there are no candidates. A block of four warps reads less: the model takes 128 x 128 for large ones."""
    for sizes, large in (((256, 192, 128), False), ((4096, 4096, 4096), True), ((8192, 1024, 4096), True)):
        best, *others = gemm_ranked(*sizes, "sm80")
        same = [
            each.plan for each in (best, *others) if (each.plan.tile, each.plan.stages) == ((128, 64, 64), 2)
        ]
        same = [plan for plan in same if plan.warp_tile == (64, 64)]
        (plan,) = [plan for plan in same if plan.async_ is not None and plan.async_.enable]
        assert plan.vectorize is not None and plan.vectorize.width == 8
        assert plan.async_ is not None and plan.async_.prefetch_depth == 2
        if large:
            assert (best.plan.tile, best.plan.stages) == ((128, 128, 32), 3)


@pytest.mark.spec("004-106")
def test_a_small_grid_gets_a_deeper_ring() -> None:
    """Two blocks cannot share a multiprocessor that one does not fill, so a third stage costs nothing."""
    best, *_ = gemm_ranked(512, 512, 2048, "sm80")
    assert best.plan.stages == 3
    deep, *_ = gemm_ranked(512, 512, 2048, "sm90")
    assert deep.plan.stages == 4 and deep.plan.barrier_model == "mbarrier"


@dataclass(frozen=True)
class LeastMemory:
    """A user's model: shared memory instead of time. It has no terms."""

    hardware: Hardware

    def seconds(self, work: Work) -> float:
        return 0.0

    def kernel(self, work: Work) -> float:
        return float(work.schedule.smem_bytes) if work.schedule else 0.0


def test_another_model_chooses_another_plan() -> None:
    best, *others = gemm_ranked(4096, 4096, 4096, "sm80", LeastMemory(hardware("sm80")))
    assert (best.plan.tile, best.plan.stages) == ((128, 128, 32), 2)
    assert best.terms == {"estimate": best.estimate} and best.estimate == 2 * 2 * 128 * 32 * 2
    assert max(each.estimate for each in others) > best.estimate


def test_rows_that_are_no_candidates_are_left_out() -> None:
    """A rule of a user's may build any row: what cannot be decoded, and what the machine refuses, is never chosen."""
    region = gemm_region(512, 512, 512)
    limits = hardware("sm80").limits
    good = Candidate("sm80", (64, 64, 64), 2, (64, 64), 8, "implicit_gemm", True)
    wrong = (
        replace(good, tile=(1024, 1024, 1024)),
        replace(good, tile=(64, 64, 7)),
        replace(good, stages=7),
        replace(good, warp_tile=(48, 64)),
    )
    ranked = rank_plans(region, contraction_of(region), (*wrong, good), Roofline(hardware("sm80")), limits)
    assert [each.candidate for each in ranked] == [good]
    assert len(refused(region, contraction_of(region), wrong, limits)) == len(wrong)
    row = (64, 64, 64, 2, 64, 64, 8)
    rows = (
        (*row, "implicit_gemm", "on"),
        (*row, "magic", "on"),
        (*row, "implicit_gemm", "perhaps"),
        (0, *row[1:], "packed", "on"),
    )
    assert decoded(rows, "sm80") == (good,)


def test_a_users_rule_that_builds_nonsense_changes_no_result(tmp_path: Path) -> None:
    path = tmp_path / "nonsense.egg"
    path.write_text("""
(ruleset nonsense)
(in-phase "nonsense" "plan" "FACT" "on")
; candidate(P, nonsense) if asked(P)
(rule ((need-plan pr)) ((plan-candidate pr 0 -3 7 99 5 1 3 "magic" "perhaps") (plan-candidate pr 9999 9999 9999 2 64 64 8 "packed" "on")
  (plan-candidate pr 1 1 1 0 0 0 64 "loops" "on")) :ruleset nonsense :name "nonsense/any")
""")
    program = gemm(96, 64, 80)
    arrays = {
        port.name: np.ones(tuple(map(int, program.types[port.node].shape)), np.float16)
        for port in program.inputs
    }
    (want,) = evaluate(program, arrays)
    np.testing.assert_array_equal(tinyc.optimize_and_compile(program, rules=[path])(**arrays), want)
    for target in TARGETS:
        found = made(program, target, rules=(path,))
        for region, plan in zip(found.planned.extracted.regions, found.planned.extracted.plans, strict=True):
            check_plan(plan, region, found.row.limits)


# ---- what is compiled -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 4])
def test_the_cpu_compiles_what_it_did_before_there_were_candidates(seed: int) -> None:
    """The default is among the candidates, and first where the cost model sees no difference."""
    found = made(contractions(seed, 10), "cpu")
    default = with_default_plans(found.extracted, found.row)
    assert found.planned.extracted.plans == default.plans
    assert any(plan.tile for plan in default.plans) and found.planned.ranked


def test_without_the_rules_of_plans_the_default_is_compiled() -> None:
    program = gemm(100, 64, 72)
    arrays = {
        port.name: np.ones(tuple(map(int, program.types[port.node].shape)), np.float16)
        for port in program.inputs
    }
    compiled = tinyc.optimize_and_compile(program, without=("plan", "problem"))
    (want,) = evaluate(program, arrays)
    np.testing.assert_array_equal(compiled(**arrays), want)
    row = hardware("sm80")
    bare = made_without(program, "sm80")
    (region,) = bare.extracted.regions
    assert not bare.ranked and bare.extracted.plans == (default_plan(region, contraction_of(region), row),)


def made_without(program: Program, target: str) -> Planned:
    row = machine(target)
    graph = saturated(program, row.limits, without=("plan",))
    found = extract_program(program, graph, Roofline(row)).extracted
    assert found is not None
    return with_plans(found, candidates_of(graph, row.limits.arch), Roofline(row), row)


@pytest.mark.parametrize("target", ["sm80", "cpu"])
def test_kernels_that_were_looked_at_are_not_ranked_again(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    each, looked_at = made(gemm(64, 96, 128), target), Known()
    first = with_plans(each.extracted, each.candidates, Roofline(each.row), each.row, looked_at)
    assert first == each.planned and first.ranked
    monkeypatch.setattr(planning, "rank_plans", None)
    again = with_plans(each.extracted, each.candidates, Roofline(each.row), each.row, looked_at)
    assert again == first


def test_kernels_that_are_equal_are_ranked_alike() -> None:
    """Two layers with buffers of their own: the same candidates in the same order, each Plan with its own names."""

    def layers(x, v, w):  # type: ignore[no-untyped-def]
        return ((x @ v).relu() @ w).relu()

    square = tinyc.spec("fp16", (1024, 1024))
    found = made(tinyc.trace(layers, square, square, square), "sm80")
    first, second = found.planned.ranked.values()
    assert [each.candidate for each in first] == [each.candidate for each in second]
    for region, plan in zip(found.planned.extracted.regions, found.planned.extracted.plans, strict=True):
        assert {entry.tensor for entry in plan.cache} <= {ref.name for ref in region.inputs}


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_extraction_prices_a_contraction_as_its_plan_is_priced(target: str) -> None:
    """The Schedules that the search weighs before there is a Region are those of the Plans afterwards, but for what they hide
    of the epilogue: by that, a kernel that reads more could take less, and the search could not compare kernels."""
    program, row = gemm(1000, 776, 520), machine(target)
    graph = saturated(program, row.limits)
    view = View(graph, input_dtypes(program))
    (item,) = {
        each
        for items in view.items.values()
        for each in items
        if each.head == "Contract" and each.payload[4] and len(each.payload[1]) == 0
    }
    searched = set(Tiling(view, row.limits).schedules(item))
    planned = made(program, target).planned
    (ranked,), (region,) = planned.ranked.values(), planned.extracted.regions
    schedules = [schedule_of(region, each.plan, row.limits) for each in ranked]
    afterwards = {replace(each, epilogue_overlap=False) for each in schedules if each is not None}
    assert searched == afterwards


# ---- rings deeper than the document's -------------------------------------------------------------------------------


@pytest.mark.spec("004-106", "I-46")
def test_rings_of_sm90_may_be_deeper() -> None:
    region = gemm_region(4096, 4096, 4096)
    candidate = Candidate("sm90", (128, 64, 64), 7, (64, 64), 8, "implicit_gemm", True)
    plan = plan_of(candidate, region, contraction_of(region), hardware("sm90").limits)
    check_plan(plan, region, hardware("sm90").limits)
    text = json.dumps(plan_to_json("gemm", plan))
    assert plan_from_json(json.loads(text)) == plan
    for arch in ("sm80", None):
        with pytest.raises(tinyc.TinycError, match="2 or 3"):
            plan_from_json({**json.loads(text), "arch": arch})
    with pytest.raises(tinyc.TinycError, match="rings of 9"):
        plan_from_json({**json.loads(text), "stages": 9})
    with pytest.raises(tinyc.TinycError, match="no rings of 7"):
        check_plan(Plan(tile=(128, 64, 64), algo="contraction", stages=7), region, hardware("sm80").limits)
