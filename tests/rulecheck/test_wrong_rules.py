"""Deliberately wrong rules, written as plausible mistakes: the checker finds every one, with a counterexample. And rules that
are true, of which it doubts none."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tinyc.rulecheck.check import check_rules, load_base
from tinyc.rulecheck.verdict import CLASSES, Verdict

HERE = Path(__file__).parent
FILES = sorted((HERE / "wrong").glob("*.egg"))
RIGHT = sorted((HERE / "right").glob("*.egg"))


@cache
def verdicts(path: Path) -> tuple[Verdict, ...]:
    """Of the rules and facts in a file. A rule `step/…` is true, and only what is built on it is not."""
    return check_rules([path], only=[str(path)])


@pytest.mark.spec("004-105")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_wrong_rule_is_caught(path: Path) -> None:
    found = verdicts(path)
    written = {rule.name for rule in load_base([path]).rules.values() if Path(rule.file) == path}
    assert written <= {each.rule for each in found} and len(found) >= 15
    assert [each.rule for each in found if each.sound != each.rule.startswith("step/")] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_wrong_is_shown(path: Path) -> None:
    """At most one in ten is merely untried: the others have an instance at which both results differ."""
    found = [each for each in verdicts(path) if not each.sound]
    assert sum(each.counterexample is None for each in found) <= len(found) // 10
    for each in found:
        if each.counterexample is not None:
            assert each.verdict == "unsound"
            assert each.counterexample.variables or each.method == "table"
            assert each.counterexample.left != each.counterexample.right
        assert each.why


def test_there_are_enough() -> None:
    assert sum(not each.sound for path in FILES for each in verdicts(path)) >= 170


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_true_rule_is_not_doubted(path: Path) -> None:
    found = verdicts(path)
    assert [str(each) for each in found if not each.sound] == []
    assert len(found) >= 30


def test_the_class_of_a_true_rule_is_the_tightest() -> None:
    """Were every rule called REAL-ONLY, no class would be broken."""
    found = {each.rule: each.measured for path in RIGHT for each in verdicts(path)}
    assert set(found.values()) == {*CLASSES, "FACT"}
    assert found["right/commutative-sum"] == "EXACT"
    assert found["right/associative-sum"] == "REASSOC"
    assert found["right/factor-out"] == "BOUNDED"
    assert found["right/product-of-powers"] == "REAL-ONLY"
    assert Counter(found.values())["EXACT"] >= 30
