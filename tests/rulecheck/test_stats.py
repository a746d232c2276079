"""`tinyc rules stats`: what rules match, cost and add. Of their seconds only the slow tests say anything; what a rule looks
for in vain is counted in test_search_work.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import tinyc
from tinyc.bench.programs import transformer
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.ir.evaluate import evaluate
from tinyc.ir.verify import verify
from tinyc.rulecheck.examples import SMALL, TARGETS, Example, examples, together
from tinyc.rulecheck.stats import (
    IDLE_BUDGET_S,
    ProgramStats,
    RuleStats,
    Stats,
    collect,
    saturated,
    unmatched,
)

LARGE = ("attention_causal.json", "conv3x3_silu.json", "conv_grouped.json", "bench mlp")


def stack(blocks: int) -> Example:
    function, shapes = transformer(blocks)
    specs = {name: tinyc.spec("fp32", shape) for name, shape in shapes.items()}
    return Example(f"{blocks} blocks", tinyc.trace(function, **specs), ("cpu",))


def chosen() -> list[Example]:
    """A deep program, and wide ones of several kinds."""
    found = [
        Example(each.name, each.program, ("sm80",)) for each in examples(small=False) if each.name in LARGE
    ]
    assert len(found) == len(LARGE)
    return [stack(2), *found]


@pytest.fixture(scope="module")
def stats() -> Stats:
    return collect(chosen(), rounds=2)


@pytest.mark.slow
def test_no_rule_costs_more_than_its_budget_where_it_matches_nothing(stats: Stats) -> None:
    """The engine's own time, the least of two runs: on a busy machine a rule of tinyc's has come to a sixth of the budget,
    and one whose left-hand side the matcher cannot cope with is far beyond it (the next test)."""
    idle = [rule for rule in stats.rules if rule.idle_enodes]
    assert len(idle) > 100
    assert [rule.rule for rule in idle if rule.over_budget] == []


@pytest.mark.slow
def test_nor_in_any_example() -> None:
    found = collect(
        (Example(each.name, each.program, TARGETS[:2]) for each in examples(small=False)), rounds=3
    )
    assert [rule.rule for rule in found.rules if rule.over_budget] == []


CROSSED = """
(ruleset crossing)
(in-phase "crossing" "algebra" "FACT" "on")
; crossed(a) if a, b and c are elements that have nothing to do with each other, and have a negative number of indices
(relation crossed (Expr))
(rule ((= a (At t ix)) (= b (At r jx)) (= c (Read d kx)) (< (+ (vec-length ix) (+ (vec-length jx) (vec-length kx))) 0))
  ((crossed a)) :ruleset crossing :name "crossing/elements")
; crossed(a) if a is an element with a negative number of indices
(rule ((= a (At t ix)) (< (vec-length ix) 0)) ((crossed a)) :ruleset crossing :name "crossing/element")
"""


@pytest.mark.slow
def test_a_left_hand_side_that_the_matcher_cannot_cope_with_is_over_budget(tmp_path: Path) -> None:
    path = tmp_path / "crossed.egg"
    path.write_text(CROSSED)
    found = collect([stack(1)], [path])
    assert [rule.rule for rule in found.rules if rule.over_budget] == ["crossing/elements"]
    (rule,) = (rule for rule in found.rules if rule.over_budget)
    assert not rule.matches and rule.idle_time_s > IDLE_BUDGET_S * rule.idle_enodes / 1000


def rule(
    name: str, matches: int, time_s: float, enodes: int, idle: tuple[float, int] = (0.0, 0)
) -> RuleStats:
    counts = {"matches": matches, "time_s": time_s, "enodes": enodes}
    return RuleStats(name, "r", 1, matches, time_s, enodes, *idle, {"algebra": counts})


def test_a_rule_is_over_budget_by_what_it_costs_where_it_matches_nothing() -> None:
    """A tenth of a second is forgiven; then 0.05 s per 1000 e-nodes are allowed."""
    assert not rule("r/a", 0, 0.1, 0, (0.1, 0)).over_budget
    assert rule("r/a", 0, 0.1, 0, (0.101, 0)).over_budget
    assert not rule("r/a", 0, 1.0, 0, (1.1, 20_000)).over_budget
    assert rule("r/a", 0, 1.0, 0, (1.11, 20_000)).over_budget
    assert not rule("r/a", 9, 100.0, 0).over_budget, "what it costs where it matches is another matter"


def test_tables_are_sorted_and_ties_go_by_name() -> None:
    rules = (rule("r/b", 5, 0.1, 0), rule("r/a", 5, 0.1, 0), rule("r/c", 9, 0.0, 2), rule("r/d", 1, 0.3, 7))
    programs = (
        ProgramStats("p", "sm80", 5, 0.1, True),
        ProgramStats("p", "cpu", 5, 0.2, True),
        ProgramStats("q", "cpu", 9, 0.0, True),
    )
    found = Stats(programs, rules, False)
    orders = {"time": "r/d r/a r/b r/c", "matches": "r/c r/a r/b r/d", "growth": "r/d r/c r/a r/b"}
    for by, names in orders.items():
        assert [each.rule for each in found.sorted(by).rules] == names.split()
        assert found.sorted(by).to_json()["by"] == by
        assert [(each.program, each.target) for each in found.sorted(by).programs] == [
            ("q", "cpu"),
            ("p", "cpu"),
            ("p", "sm80"),
        ]
    (phase,) = found.phases
    assert phase == ("algebra", {"matches": 20.0, "time_s": pytest.approx(0.5), "enodes": 9.0})


def test_the_sums_are_those_of_the_saturations() -> None:
    example = next(each for each in chosen() if each.name == "conv3x3_silu.json")
    one = collect([example])
    assert [program.complete for program in one.programs] == [True]
    phases = saturated(example.program, load_rules(), "sm80").phases
    for rule in one.rules:
        assert rule.matches == sum(phase.rule_matches.get(rule.rule, 0) for phase in phases)
        assert rule.programs == (rule.matches > 0)
        assert rule.enodes == sum(phase.rule_growth.get(rule.rule, 0) for phase in phases)
        assert (rule.idle_enodes == 0) == (rule.matches > 0)
    grown = sum(phase.enodes - phase.enodes_before for phase in phases)
    assert abs(sum(rule.enodes for rule in one.rules) - grown) <= len(one.rules)


def test_a_profile_is_exact() -> None:
    example = Example("sum", tinyc.trace(lambda x: (x * 2.0).sum(1), tinyc.spec("fp32", (4, 6))))
    exact = collect([example], profile=True)
    assert exact.exact and exact.to_json()["exact"]
    phases = saturated(example.program, load_rules(), "cpu").phases
    grown = sum(phase.enodes - phase.enodes_before for phase in phases)
    assert sum(rule.enodes for rule in exact.rules) == grown


# ---- the examples --------------------------------------------------------------------------------------------------------


def test_examples_taken_together_are_one_right_program() -> None:
    """The same values as each by itself."""
    programs = [
        each.program for each in examples() if each.name in ("sums", "extremes", "compared", "flipped")
    ]
    assert len(programs) == 4
    whole = together(programs)
    assert verify(whole.nodes, whole.inputs, whole.outputs).types == whole.types
    import numpy as np

    generator = np.random.default_rng(0)
    inputs = {
        port.name: generator.normal(size=tuple(map(int, whole.types[port.node].shape))).astype(
            whole.types[port.node].dtype.numpy
        )
        for port in whole.inputs
    }
    got = iter(evaluate(whole, inputs))
    for number, program in enumerate(programs):
        own = {port.name: inputs[f"p{number}.{port.name}"] for port in program.inputs}
        for wanted in evaluate(program, own):
            np.testing.assert_array_equal(next(got), wanted)
    assert next(got, None) is None


def test_a_rule_that_matches_in_one_matches_in_all_together() -> None:
    programs = [each.program for each in examples() if each.name in ("sums", "extremes", "strength")]
    base = load_rules()

    def matched(program: tinyc.Program) -> set[str]:
        return {
            rule for phase in saturate(program, base).phases for rule, n in phase.rule_matches.items() if n
        }

    assert matched(together(programs)) == set().union(*map(matched, programs))


def test_unmatched_finds_what_no_example_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    program = tinyc.trace(lambda x: x.relu().relu() * 1.0, tinyc.spec("fp32", (4,)))
    monkeypatch.setattr("tinyc.rulecheck.stats.examples", lambda: [Example("relu", program, small=True)])
    wanted = ["identity/relu-twice", "identity/negate-twice", "identity/times-one", "identity/one-times"]
    assert unmatched((), wanted) == ("identity/negate-twice", "identity/one-times")


def test_every_example_has_a_name_of_its_own_and_known_targets() -> None:
    found = list(examples())
    names = [each.name for each in found]
    assert len(names) == len(set(names)) > len(SMALL) + 20
    assert all(each.targets and set(each.targets) <= set(TARGETS) for each in found)
