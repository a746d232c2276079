"""Rules with one mistake in them: the checker calls them wrong or says that they depart from a policy, but for those that are
true and keep to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tinyc.rulecheck.check import check_text, load_base
from tinyc.rulecheck.mutate import Mutant, mutants, sample
from tinyc.rulecheck.verdict import Verdict

BASE = load_base()
LIST = Path(__file__).parent / "golden" / "mutants.txt"
COUNT = 500
SEEDS = (4, 2026)


def equivalent() -> dict[str, str]:
    """Mutants that are true, and why: lines `id | reason`."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


def every(spare: dict[str, str]) -> list[Mutant]:
    return [mutant for rule in BASE.rules.values() for mutant in mutants(rule, BASE, spare)]


def caught(mutant: Mutant) -> str:
    """How: "unsound", "error" (it has no instance), or "policy" (sound, with a note); "" for not at all."""
    return how(check_text(mutant.text, BASE))


def how(verdicts: Sequence[Verdict]) -> str:
    wrong = [verdict.verdict for verdict in verdicts if not verdict.sound]
    if wrong:
        return wrong[0]
    return "policy" if any(verdict.notes for verdict in verdicts) else ""


def test_mutants_of_a_rule() -> None:
    rule = BASE.rules["strength/minus-negated"]
    found = {mutant.id: mutant for mutant in mutants(rule, BASE)}
    assert len(found) == len({mutant.text for mutant in found.values()})
    assert {mutant.id.split()[1] for mutant in found.values()} >= {"operator", "variable"}
    assert rule.actions not in {
        mutant.rule.actions for mutant in found.values() if mutant.rule.body == rule.body
    }
    assert not any(mutant.id.split()[1] == "swapped" for mutant in found.values()), "x + y is y + x"


def test_operands_that_do_not_commute_are_swapped() -> None:
    found = mutants(BASE.rules["strength/negated-plus"], BASE)
    assert any("swapped" in mutant.id and "y and x" in mutant.change for mutant in found)


def test_a_guard_without_which_a_rule_is_true_is_not_changed_further() -> None:
    rule = BASE.rules["movement/view"]
    (guard,) = (mutant for mutant in mutants(rule, BASE) if "dropped (<=" in mutant.id)
    less = mutants(rule, BASE, {guard.id})
    assert guard.id in {mutant.id for mutant in less} and len(less) < len(mutants(rule, BASE))


def test_the_sample_hangs_on_names_alone() -> None:
    found = mutants(BASE.rules["srnf/r1-divisor"], BASE)
    assert sample(found, 5, 1) == sample(reversed(found), 5, 1)
    assert set(sample(found[1:], 5, 1)) - set(sample(found, 6, 1)) == set()


def test_what_is_listed_as_equivalent_exists_and_has_a_reason() -> None:
    listed = equivalent()
    names = {mutant.id for mutant in every({})}
    assert set(listed) <= names
    assert all(len(reason) > 10 for reason in listed.values())


@pytest.mark.parametrize("rule", ["srnf/r1-divisor", "movement/flip", "index/divide-literal"])
def test_mutants_of_some_rules_are_caught(rule: str) -> None:
    listed = equivalent()
    made = sample(mutants(BASE.rules[rule], BASE, listed), 12, SEEDS[0])
    assert [mutant.change for mutant in made if mutant.id not in listed and not caught(mutant)] == []


@pytest.mark.parametrize(
    "id_",
    [
        "splitk/parts operation 12",  # fewer products than a part's tiles are deep
        "splitk/parts dropped (= 0 (% k p))",  # a long axis that no part divides
        "splitk/stages-filled-up off-by-one 1",  # few results, at an axis of a reduction
        "layout/windows-view off-by-one 1",
        "layout/windows-view dropped (<= now (* 128 was))",
        "problem/along-b dropped (= j (last-of ns))",  # a role with gaps between its axes
        "plan/walk off-by-one 51",  # an odd width
        "plan/walk operation 44",
        "plan/warps operation 3",  # a machine of fewer threads, and several warps along both sides
        "plan/pair off-by-one 1",  # a tile of two parts that are thin
        "plan/idle-columns off-by-one 8",  # a tile as deep as three instructions
        "plan/smallest off-by-one 11",  # blocks of 30 rows
        "plan/halve-rows off-by-one 4",  # a last part of one row, or of all but one
        "plan/halve-rows off-by-one 5",
        "plan/halve-rows off-by-one 7",
        "problem/packed-turned off-by-one 8",  # exactly as many products as are too few
        "tf32/product dropped (< 0 (max p q))",  # two operands that have no tiles
        "strength/divide-by-power-of-two off-by-one 6",  # a divisor with the last digit of its mantissa alone
        "streaming/scale-outside off-by-one 2",  # the largest subnormal scale
        "streaming/scale-outside operation 18",  # scales whose product is the first that is infinite
    ],
)
def test_a_mutant_for_which_instances_were_too_few_is_caught(id_: str) -> None:
    listed = equivalent()
    (mutant,) = (each for each in mutants(BASE.rules[id_.split()[0]], BASE, listed) if each.id == id_)
    assert caught(mutant)


def test_a_union_of_what_the_body_says_is_equal_is_no_mutant() -> None:
    rule = BASE.rules["splitk/fill-up"]
    assert not any("x for (Pad" in mutant.change for mutant in mutants(rule, BASE))


@pytest.mark.slow
@pytest.mark.spec("004-105")
@pytest.mark.parametrize("seed", SEEDS)
def test_ninety_nine_in_a_hundred_mutants_are_caught(seed: int) -> None:
    listed = equivalent()
    made = sample(every(listed), COUNT, seed)
    counted = [mutant for mutant in made if mutant.id not in listed]
    assert len(made) - len(counted) <= 0.15 * len(made)
    ways = {mutant: caught(mutant) for mutant in counted}
    missed = [f"{mutant.id}: {mutant.change}" for mutant in counted if not ways[mutant]]
    print(f"seed {seed}: {len(counted)} counted, {Counter(ways.values())}", *missed, sep="\n")
    assert len(missed) <= len(counted) // 100, "\n".join(missed)
