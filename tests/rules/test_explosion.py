"""Rules that explode end within their budget, are blamed by name, and the program that comes out is right.

General associativity and commutativity over a sum of thirty, and rules that grow in other ways and places.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_checks import check_exact, operators, traced

import tinyc
from tinyc.egraph.budget import Budget
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.tiny import Program

EXPLODE = Path(__file__).parent / "explode.egg"
SILU = Path(__file__).parent / "silu.egg"
TERMS = 30


def total(*terms: Any) -> Any:
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def long_sum() -> Program:
    return tinyc.trace(total, *[tinyc.spec("fp32", (7,))] * TERMS)


def integers(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return {
        port.name: generator.integers(-4, 5, tuple(map(int, program.types[port.node].shape))).astype(
            np.float32
        )
        for port in program.inputs
    }


def compiled(program: Program, **options: Any) -> tinyc.Compiled:
    """Compiled and right, on small integers exactly."""
    result = tinyc.optimize_and_compile(program, **options)
    check_exact(result, integers(program))
    return result


# ---- which limit ends it -------------------------------------------------------------------------------------------------

BUDGETS = {
    "default": Budget(),
    "few e-nodes": Budget(enodes=5_000),
    "time": Budget(enodes=10**9, seconds=6.0),
    "memory": Budget(enodes=10**9, memory_bytes=256 << 20),
    "e-nodes of a phase": Budget(phase_enodes=500, rule_enodes=10**9),
    "time of a phase": Budget(phase_seconds=0.02, rule_enodes=10**9),
    "e-nodes of a rule": Budget(rule_enodes=1_000),
    "matches of a rule": Budget(rule_matches=2_000),
}


QUICK = ("default", "e-nodes of a phase", "e-nodes of a rule")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BUDGETS]
)
def test_it_ends_within_its_budget_and_is_blamed(name: str) -> None:
    """That it ends at all shows the limits of time: nothing else is left that would end it."""
    budget, program = BUDGETS[name], long_sum()
    result = compiled(program, rules=[EXPLODE], budget=budget)
    report = result.report
    assert not report.complete and not report.fallback
    assert {warning.kind for warning in report.warnings} <= {"BudgetExhausted", "EngineLost"}
    blamed = [warning for warning in report.warnings if "explode/" in str(warning.at.get("rule"))]
    assert blamed and all(warning.at["rule"] in warning.why for warning in blamed)
    assert all(phase.enodes <= 1.5 * budget.enodes for phase in report.phases)
    if budget.rule_enodes == 1_000:
        grown = {rule.rule: rule.enodes for rule in report.rules if rule.rule.startswith("explode/")}
        assert grown and all((count or 0) <= 1_000 for count in grown.values())


def test_the_one_that_grows_is_blamed_not_the_one_that_matches(tmp_path: Path) -> None:
    """mine/idle matches most, and adds what is there already; mine/deep builds new terms from few matches."""
    path = tmp_path / "mine.egg"
    path.write_text(
        """
(ruleset mine)
(in-phase "mine" "algebra" "EXACT" "on")
; sin(x) == sin(x)
(rule ((= e (Unary op x)) (= f (Unary op y)) (= g (Unary op z))) ((Unary op x))
  :ruleset mine :name "mine/idle")
; sin(sin(e)) is there if sin(e) is
(rule ((= e (Unary "SIN" x))) ((Unary "SIN" e)) :ruleset mine :name "mine/deep")
"""
    )
    program = traced(lambda x: x.sin(), x=(5,))
    saturation = saturate(program, load_rules([path]), budget=Budget(enodes=60))
    (warning,) = saturation.warnings
    assert warning.at["rule"] == "mine/deep"
    algebra = next(phase for phase in saturation.phases if phase.name == "algebra")
    assert algebra.rule_matches["mine/idle"] > algebra.rule_matches["mine/deep"]
    exact = saturate(program, load_rules([path]), budget=Budget(enodes=60), profile=True)
    algebra = next(phase for phase in exact.phases if phase.name == "algebra")
    assert algebra.rule_enodes is not None
    assert algebra.rule_enodes["mine/deep"] > 0 and not algebra.rule_enodes.get("mine/idle")


@pytest.mark.slow
def test_after_a_kill_the_last_round_is_known() -> None:
    """The worker is killed in a round; what it said after the one before names the rule."""
    saturation = saturate(long_sum(), load_rules([EXPLODE]), budget=Budget(enodes=10**9, seconds=6.0))
    assert saturation.graph is not None, "the e-graph that was sent before"
    (warning,) = saturation.warnings
    assert str(warning.at["rule"]).startswith("explode/")
    assert "round" in warning.why


# ---- what is put aside, and what goes on --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_others_go_on_when_a_rule_is_put_aside() -> None:
    """A contraction is found and a user's fusion made, in phases during and after the explosion."""

    def function(a: Any, b: Any, x: Any, *terms: Any) -> Any:
        return a @ b, x * (1.0 / (1.0 + (-x).exp())), total(*terms)

    shapes = [(16, 32), (32, 16), (4, 6)]
    specs = [tinyc.spec("fp32", shape) for shape in shapes] + [tinyc.spec("fp32", (7,))] * TERMS
    program = tinyc.trace(function, *specs)
    quiet = tinyc.optimize_and_compile(program, rules=[SILU])
    loud = tinyc.optimize_and_compile(program, rules=[SILU, EXPLODE])
    assert quiet.report.complete and not loud.report.complete
    (warning,) = loud.report.warnings
    assert "put aside" in warning.why and "explode/associate" in warning.why
    assert [phase.phase for phase in loud.report.phases] == [phase.phase for phase in quiet.report.phases]
    assert all(phase.stopped is None for phase in loud.report.phases)
    assert operators(loud) == operators(quiet), "the same kernels as without the rule"
    assert [kernel.algo for kernel in loud.report.kernels] == [kernel.algo for kernel in quiet.report.kernels]


def test_what_an_exploding_rule_had_added_is_undone() -> None:
    base = load_rules([EXPLODE])
    with_rule = saturate(long_sum(), base)
    without = saturate(long_sum(), base, without=["explode/associate"])
    assert without.complete and not with_rule.complete
    assert with_rule.phases[-1].sizes == without.phases[-1].sizes
    (phase,) = (phase for phase in with_rule.phases if phase.banned)
    (banned,) = phase.banned
    assert (phase.name, banned.rule, banned.limit) == ("algebra", "explode/associate", "explodes")
    assert banned.added > 1000


def test_a_rule_over_its_own_budget_keeps_what_it_had_added() -> None:
    saturation = saturate(long_sum(), load_rules([EXPLODE]), budget=Budget(rule_enodes=500))
    sizes = [phase.enodes for phase in saturation.phases]
    algebra = next(phase for phase in saturation.phases if phase.name == "algebra")
    assert [(banned.rule, banned.limit) for banned in algebra.banned] == [("explode/associate", "enodes")]
    assert 0 < algebra.rule_growth["explode/associate"] <= 500
    assert sizes[-1] == algebra.enodes, "nor do they come back in a later phase"


def test_the_base_lowering_is_never_put_aside() -> None:
    """Limits that every rule of phases prop and movement breaks."""
    program = traced(lambda x, w: (x @ w).relu(), x=(8, 16), w=(16, 4))
    budget = Budget(rule_matches=0, rule_enodes=0)
    result = compiled(program, budget=budget)
    assert not result.report.fallback
    banned = {
        rule.split("/")[0]
        for warning in result.report.warnings
        for rule in warning.why.split()
        if "/" in rule
    }
    assert banned and not banned & {"prop", "index", "movement"}


@pytest.mark.slow
def test_a_phase_that_is_out_of_its_budget_is_followed_by_the_next() -> None:
    saturation = saturate(
        long_sum(), load_rules([EXPLODE]), budget=Budget(phase_enodes=500, rule_enodes=10**9)
    )
    stopped = {phase.name: phase.stopped for phase in saturation.phases}
    assert stopped["algebra"] == "phase_enodes" and "check" in stopped


@pytest.mark.slow
def test_rules_of_phase_prop_that_never_end(tmp_path: Path) -> None:
    """They are saturated before every step: a rule that does not end would not let the first one begin."""
    path = tmp_path / "endless.egg"
    path.write_text(
        """
(ruleset endless)
(in-phase "endless" "prop" "FACT" "on")
; count(n + 1) if count(n)
(relation count (i64))
(count 0)
(rule ((count n)) ((count (+ n 1))) :ruleset endless :name "endless/count")
; sin(e) is there if e = sin(x)
(rule ((= e (Unary "SIN" x))) ((Unary "SIN" e)) :ruleset endless :name "endless/sine")
"""
    )
    program = traced(lambda x: x.sin() + 1.0, x=(5,))
    result = tinyc.optimize_and_compile(program, rules=[path])
    inputs = {"x": np.linspace(-3, 3, 5, dtype=np.float32)}
    np.testing.assert_allclose(result(**inputs), np.sin(inputs["x"]) + 1.0, rtol=1e-5, atol=1e-6)
    assert not result.report.fallback
    blamed = " ".join(warning.why for warning in result.report.warnings)
    assert "endless/count" in blamed and "endless/sine" in blamed


@pytest.mark.slow
def test_a_birewrite_is_one_rule(tmp_path: Path) -> None:
    path = tmp_path / "both.egg"
    path.write_text(
        '(ruleset both)\n(in-phase "both" "algebra" "REASSOC" "on")\n; (x + y) + z == x + (y + z), generic\n'
        '(birewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z))'
        ' :ruleset both :name "both/associate")\n'
    )
    result = compiled(long_sum(), rules=[path], budget=Budget(rule_enodes=300))
    (warning,) = result.report.warnings
    assert warning.at["rule"] == "both/associate"
    matched = {rule.rule for rule in result.report.rules if rule.rule.startswith("both")}
    assert matched == {"both/associate"}


@pytest.mark.slow
def test_the_same_again() -> None:
    base = load_rules([EXPLODE])
    first, again = (saturate(long_sum(), base) for _ in range(2))
    assert first.phases[-1].sizes == again.phases[-1].sizes
    assert [phase.banned for phase in first.phases] == [phase.banned for phase in again.phases]
    assert first.graph == again.graph


# ---- a program that grows fast and is no explosion ---------------------------------------------------------------------


@pytest.mark.slow
def test_growth_that_is_shared_out_adds_up() -> None:
    program = traced(
        lambda x, w, v: tinyc.functions.softmax((x @ w).relu() @ v), x=(8, 16), w=(16, 24), v=(24, 8)
    )
    base = load_rules()
    normal, exact = (saturate(program, base, profile=profile) for profile in (False, True))
    for phase in normal.phases:
        assert abs(sum(phase.rule_growth.values()) - (phase.enodes - phase.enodes_before)) <= len(
            phase.rule_growth
        )
    assert exact.phases[-1].rule_enodes == exact.phases[-1].rule_growth
    # what builds nothing adds nothing, run alone or not
    facts = {
        rule.name for rule in base.rules if rule.klass == "FACT" and rule.ruleset in ("prop", "contraction")
    }
    builders = {"prop/axes-next", "prop/axes-next-one-point"}
    for phase in normal.phases:
        assert not any(phase.rule_growth.get(rule) for rule in facts - builders)


def test_sums_over_one_point_leave_products_as_they_are() -> None:
    """Nothing depends on axes that a sum does not have: were factors moved out of it, a product would be regrouped in every way."""
    program = traced(lambda x, w: tinyc.functions.layer_norm(x, w, w), x=(32, 1), w=(1,))
    saturation = saturate(program, load_rules())
    assert saturation.complete
    assert (
        max(phase.enodes for phase in saturation.phases) < 500
    )  # 200; they were 11,000 when the time was spent


# ---- the budget itself -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    ["phase_seconds", "phase_enodes", "rule_seconds", "rule_matches", "rule_enodes", "enodes", "seconds"],
)
def test_a_limit_is_a_number_that_is_not_negative(field: str) -> None:
    for value in (-1, float("nan"), "10", True, [1]):
        with pytest.raises(TinycError) as caught:
            Budget(**{field: value})  # type: ignore[arg-type]
        assert caught.value.kind == "InvalidArgument" and field in caught.value.why
    if field not in ("enodes", "seconds"):
        assert getattr(Budget(**{field: None}), field) is None  # type: ignore[arg-type]
    else:
        with pytest.raises(TinycError):
            Budget(**{field: None})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "field", ["phase_seconds", "phase_enodes", "rule_seconds", "rule_matches", "rule_enodes"]
)
@pytest.mark.parametrize("value", [0, 1e300, float("inf"), 10**30])
def test_limits_at_both_ends(field: str, value: float) -> None:
    program = traced(lambda x: x * 2.0 + 1.0, x=(5,))
    result = compiled(program, budget=Budget(**{field: value}))  # type: ignore[arg-type]
    assert result.report.complete == bool(value) or field.endswith("seconds")
