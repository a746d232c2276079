"""What else could have been chosen, and the term by which it lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tinyc
from tinyc import functions as tc
from tinyc.extract.report.decisions import Decision, Later, compared, in_order
from tinyc.extract.report.report import ExtractionReport

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"


def report_of(name: str, target: str, size: int = 256, **options: Any) -> ExtractionReport:
    program = tinyc.load(EXAMPLES / f"{name}.json")
    shapes = dict.fromkeys(program.symbols, size)
    return tinyc.optimize_and_compile(program, target, shapes=shapes, **options).report


def check(decision: Decision) -> None:
    assert sum(decision.terms_s.values()) == pytest.approx(decision.change_s, rel=1e-6, abs=1e-15)
    most = max(decision.terms_s.values(), default=0.0)
    assert (decision.lost_by == "") == (most <= 0)
    if decision.lost_by:
        assert decision.terms_s[decision.lost_by] == most
    assert decision.chosen and decision.runner_up and decision.chosen != decision.runner_up
    assert decision.count >= 1


@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
def test_an_epilogue_is_fused_and_its_own_kernel_lost(target: str) -> None:
    found = report_of("gemm_bias_relu", target).decisions
    for decision in found:
        check(decision)
    assert list(found) == list(in_order(found)), "the dearest runner-up first"
    relu = [each for each in found if each.subject.endswith(" RELU")]
    assert [each.kind for each in relu] == ["boundary"]
    assert relu[0].chosen.startswith("fused into k_") and "its own kernel" in relu[0].runner_up
    assert relu[0].change_s > 0 and relu[0].lost_by in ("launch", "memory")


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_every_kernel_with_candidates_has_a_plan_that_lost(target: str) -> None:
    report = report_of("gemm_bias_relu", target, 2048)
    plans = [each for each in report.decisions if each.kind == "plan"]
    assert plans and {each.subject for each in plans} <= {kernel.region for kernel in report.kernels}
    assert all(each.change_s > 0 for each in plans)


def test_a_buffer_that_several_read_is_stored() -> None:
    """Two consumers of one product: it is computed once, and the other way costs its arithmetic again."""
    s = tinyc.spec

    def function(a: Any, b: Any, c: Any) -> Any:
        shared = a @ b
        return shared @ c, (shared * 2.0) @ b

    program = tinyc.trace(function, *[s("fp32", (256, 256))] * 3)
    found = tinyc.optimize_and_compile(program).report.decisions
    stored = [each for each in found if each.chosen.startswith("stored, read by ")]
    assert any("computed again in" in each.runner_up and each.lost_by == "compute" for each in stored)


def test_equal_layers_decide_alike() -> None:
    s = tinyc.spec
    square = s("fp32", (64, 64))

    def function(x: Any, a: Any, b: Any, c: Any) -> Any:
        for w in (a, b, c):
            x = (x @ w).relu()
        return x

    found = tinyc.optimize_and_compile(tinyc.trace(function, square, square, square, square)).report.decisions
    products = [each for each in found if each.subject.endswith(" SUM") and each.kind == "boundary"]
    assert [each.count for each in products] == [3]
    assert products[0].chosen.startswith("fused into k_") and products[0].lost_by == "launch"


def test_attention_streams_and_the_other_way_lost() -> None:
    found = report_of("attention", "cpu").decisions
    (stream,) = [each for each in found if each.kind == "algorithm" and each.chosen == "one streaming pass"]
    check(stream)
    assert stream.change_s > 0
    without = report_of("attention", "cpu", without=("streaming",))
    assert not [each for each in without.decisions if "streaming" in each.chosen + each.runner_up]
    assert without.total.time_s > report_of("attention", "cpu").total.time_s


def test_a_program_with_one_way_has_no_boundary_to_decide() -> None:
    program = tinyc.trace(lambda x: x.relu(), tinyc.spec("fp32", (8, 8)))
    assert [
        each for each in tinyc.optimize_and_compile(program).report.decisions if each.kind == "boundary"
    ] == []


def test_decisions_wait_until_they_are_asked_for_and_are_made_once() -> None:
    made: list[int] = []

    def make() -> tuple[Decision, ...]:
        made.append(1)
        return (compared("plan", "k", ("a", "b"), {"x": 1.0}, {"x": 3.0, "y": 1.0}),)

    later = Later(make)
    assert made == []
    assert later() == later() and made == [1]
    (decision,) = later()
    assert (decision.change_s, decision.lost_by, dict(decision.terms_s)) == (3.0, "x", {"x": 2.0, "y": 1.0})


def test_where_nothing_was_chosen_there_is_nothing_to_decide() -> None:
    program = tinyc.trace(lambda x: tc.softmax(x), tinyc.spec("fp32", (8, 32)))
    assert tinyc.optimize_and_compile(program, budget=tinyc.Budget(seconds=0)).report.decisions == ()


def test_a_toy_cost_model_has_its_own_term() -> None:
    class Bytes:
        """Memory moved, nothing else."""

        def __init__(self) -> None:
            from tinyc.extract.cost.hardware import hardware

            self.hardware = hardware("cpu")

        def seconds(self, work: Any) -> float:
            return float(work.bytes_read + work.bytes_written) * 1e-9

        def kernel(self, work: Any) -> float:
            return self.seconds(work) + 1e-9

    report = report_of("gemm_bias_relu", "cpu", cost_model=Bytes())
    assert report.decisions
    for decision in report.decisions:
        check(decision)
        assert decision.lost_by in ("estimate", "")
    assert all(set(kernel.terms_s) == {"estimate"} for kernel in report.kernels)
