"""What is a matter of cost, or of asking, makes no rule unsound: a rule that departs from it has a note, and no built-in one has."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from tinyc.cli import main
from tinyc.rulecheck import buffers, requests
from tinyc.rulecheck.check import check_rules, check_text, load_base
from tinyc.rulecheck.parse import Call, Lit, Pattern
from tinyc.rulecheck.verdict import Verdict, to_json, to_text

FILE = Path(__file__).parent / "policies.egg"
BASE = load_base()
WRITTEN = [rule.name for rule in load_base([FILE]).rules.values() if Path(rule.file) == FILE]


@cache
def verdicts() -> dict[str, Verdict]:
    return {each.rule: each for each in check_rules([FILE], only=[str(FILE)])}


@pytest.mark.parametrize("name", [each for each in WRITTEN if each.startswith("departs/")])
def test_a_rule_that_departs_from_a_policy_is_sound_and_has_a_note(name: str) -> None:
    found = verdicts()[name]
    assert found.sound and found.instances > 0, str(found)
    (note,) = found.notes
    assert note.word in (*BASE.meanings, "buffer-taps")
    assert note.variables and note.why
    assert f"departs from the policy of {note.word}" in str(found)


def test_a_rule_that_asks_for_what_no_built_in_rule_says_is_told_so() -> None:
    """It matches where another rule departs from a policy, and is sound there."""
    found = verdicts()["asks/for-a-reduced-source"]
    assert found.sound and found.instances > 0, str(found)
    assert [note.word for note in found.notes] == [""]
    assert "keeps to the policies of what it asks for" in str(found)


@pytest.mark.parametrize("name", [each for each in WRITTEN if each.startswith("keeps/")])
def test_a_rule_that_keeps_to_them_has_none(name: str) -> None:
    found = verdicts()[name]
    assert found.sound and not found.notes, str(found)


@pytest.mark.parametrize("name", [each for each in WRITTEN if each.startswith("wrong/")])
def test_what_is_false_is_unsound_whatever_the_policy(name: str) -> None:
    found = verdicts()[name]
    assert found.verdict == "unsound" and found.counterexample is not None, str(found)


def test_there_are_enough() -> None:
    kinds = [name.split("/")[0] for name in WRITTEN]
    assert kinds.count("departs") >= 20 and kinds.count("keeps") >= 3 and kinds.count("wrong") >= 15
    noted = {note.word for found in verdicts().values() for note in found.notes}
    assert noted >= {"computed", "copy-source", "holds-windows", "need-plan", "divide-try", "packed-core"}


def test_rows_of_a_table_have_notes_as_well() -> None:
    one, three, none = (verdicts()[f"(split-parts {parts})"] for parts in (1, 3, 0))
    assert one.sound and [note.word for note in one.notes] == ["split-parts"]
    assert three.sound and not three.notes
    assert none.verdict == "unsound"


def test_no_rule_may_rely_on_a_policy() -> None:
    """That a cut is into more than one part is a policy, so one part less may be none."""
    text = '(rule ((cut-in r n x p)) ((split-parts (- p 1))) :ruleset splitk :name "mine/relies")'
    (found,) = check_text(text, BASE, "FACT")
    assert found.verdict == "unsound", str(found)


OWN = """
(relation cheap (Tensor))
(meaning (cheap t) (holds "buffer" t) (policy (holds "solid" t)))
(rule ((= t (Flip x a))) ((cheap t)) :ruleset fuse :name "mine/cheap")
(rule ((= t (Imm d b))) ((cheap t)) :ruleset fuse :name "mine/wrong")
(rule ((cheap t) (= t (Flip x a))) ((solid x)) :ruleset fuse :name "mine/relies")
"""


def test_a_word_of_ones_own_may_have_a_policy() -> None:
    cheap, wrong, relies = check_text(OWN, BASE, "FACT")
    assert cheap.sound and [note.word for note in cheap.notes] == ["cheap"]
    assert wrong.verdict == relies.verdict == "unsound"


def test_a_function_of_immediates_alone_is_in_no_program() -> None:
    """It has no shape, and so it would be no buffer."""
    text = '(rule ((= t (TBinary op x y))) ((computed t)) :ruleset fuse :name "mine/any-binary")'
    (found,) = check_text(text, BASE, "FACT")
    assert found.sound, str(found)


def test_a_note_is_printed_and_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.egg"
    path.write_text(
        """(ruleset mine)
(in-phase "mine" "fuse" "FACT" "on")
; computed(permute(x)) whatever reads it
(rule ((= t (Permute x p q))) ((computed t)) :ruleset mine :name "mine/transposed")
""",
        encoding="utf-8",
    )
    assert main(["rules", "check", str(path)]) == 0
    assert "note: departs from the policy of computed" in capsys.readouterr().out
    assert main(["rules", "check", "--json", str(path)]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert rule["verdict"] == "sound" and rule["notes"][0]["word"] == "computed"


def test_a_note_is_text_and_json() -> None:
    found = verdicts()["departs/one-part"]
    assert "note:" in to_text([found]) and json.loads(to_json([found]))["rules"][0]["notes"]
    plain = verdicts()["keeps/try-first"]
    assert "note:" not in to_text([plain], all_rules=True)


# ---- numbers that the rules and the checker both have ------------------------------------------------------------------


def numbers(name: str) -> set[int]:
    """All that stand in a rule."""

    def inside(found: Pattern) -> set[int]:
        if isinstance(found, Call):
            return set[int]().union(*map(inside, found.args))
        return {found.value} if isinstance(found, Lit) and isinstance(found.value, int) else set()

    rule = BASE.rules[name]
    return set[int]().union(*map(inside, (*rule.body, *rule.actions)))


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("prop/copied-reshape", {buffers.LONG}),
        ("prop/copied-view", {buffers.LONG}),
        ("layout/windows-view", {buffers.WIDEST}),
        ("layout/patches", {buffers.FILTERS}),
        ("layout/patches-cast", {buffers.FILTERS}),
        ("problem/cores", set(requests.CORES)),
        ("splitk/parts", {0, 4, requests.SHALLOW}),
    ],
)
def test_the_numbers_are_those_of_the_rules(rule: str, wanted: set[int]) -> None:
    assert numbers(rule) == wanted
