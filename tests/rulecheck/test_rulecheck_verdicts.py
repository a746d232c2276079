"""Every built-in rule has a verdict, and it is the one of the golden table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from golden import Golden

from tinyc.egraph.rulefiles import load_rules
from tinyc.rulecheck.check import check_all, check_rules, check_tables, load_base
from tinyc.rulecheck.verdict import CLASSES, Verdict

FOLDER = Path(__file__).parent / "golden" / "test_rulecheck_verdicts"
BASE = load_base()
RULESETS = tuple(ruleset.name for ruleset in load_rules().rulesets)


def table(verdicts: Sequence[Verdict]) -> str:
    """One line per rule: name, class, the tightest class that held, verdict, method."""
    wide = max(len(each.rule) for each in verdicts)
    lines = [
        f"{each.rule:{wide}}  {each.klass:9}  {each.measured:9}  {each.verdict:7}  {each.method}"
        + ("" if each.symbolic else "  (sampled)")
        for each in verdicts
    ]
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.spec("004-105")
@pytest.mark.parametrize("ruleset", RULESETS)
def test_every_rule_is_sound_in_its_class(ruleset: str, golden: Golden) -> None:
    verdicts = [each for each in check_all(BASE, [ruleset]) if each.ruleset == ruleset]
    assert {each.rule for each in verdicts} == {
        rule.name for rule in BASE.rules.values() if rule.ruleset == ruleset
    }
    assert not [str(each) for each in verdicts if not each.sound or each.notes]
    for each in verdicts:
        assert each.instances > 0 and each.method
        assert each.measured == "FACT" or CLASSES.index(each.measured) <= CLASSES.index(
            "EXACT" if each.klass == "FACT" else each.klass
        )
    assert sum(not each.symbolic for each in verdicts) <= len(verdicts) // 6
    golden(table(verdicts))


def test_the_facts_in_rule_files_are_true(golden: Golden) -> None:
    verdicts = list(check_tables(BASE))
    assert not [str(each) for each in verdicts if not each.sound or each.notes]
    golden(table(verdicts))


def test_nine_in_ten_verdicts_are_symbolic() -> None:
    """Counted in the golden tables, which the tests above hold to the checker."""
    lines = [line for path in FOLDER.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) >= len(BASE.rules)
    assert sum(line.endswith("(sampled)") for line in lines) <= len(lines) // 10


def test_a_verdict_does_not_hang_on_the_run() -> None:
    assert check_rules(only=["monotone/max-cast"]) == check_rules(only=["monotone/max-cast"])
