"""Every way in which a rule file can be wrong is a TinycError that names the file and the line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.ir.diagnostics import TinycError

HEAD = '(ruleset mine)\n(in-phase "mine" "algebra" "EXACT" "on")\n'
RULE = '(rewrite (Unary "NEG" (Unary "NEG" x)) x :ruleset mine :name "mine/twice")\n'


def program() -> tinyc.Program:
    """Negates twice."""

    def function(x: Any) -> Any:
        negative = -x
        return -negative + 1.0

    return tinyc.trace(function, tinyc.spec("fp32", (3, 5)))


def written(folder: Path, text: str | bytes, name: str = "mine.egg") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def failure(path: Path) -> TinycError:
    with pytest.raises(TinycError) as caught:
        tinyc.optimize_and_compile(program(), rules=[path])
    error = caught.value
    assert error.why and error.suggestion
    return error


# what is wrong -> text, line of the fault
TEXTS: dict[str, tuple[str, int]] = {
    "never closed": (HEAD + "\n" + RULE.replace(")\n", "\n"), 4),
    "text outside of a form": (HEAD + "rewrite\n", 3),
    "a parenthesis too many": (HEAD + RULE + ")\n", 4),
    "no name": (HEAD + '(rewrite (Unary "NEG" x) x :ruleset mine)\n', 3),
    "no ruleset": (HEAD + '(rewrite (Unary "NEG" x) x :name "mine/no")\n', 3),
    "ruleset that joins no phase": ("; a comment\n(ruleset mine)\n" + RULE, 3),
    "no class": ('(ruleset mine)\n(in-phase "mine" "algebra" "on")\n' + RULE, 2),
    "unknown class": ('(ruleset mine)\n(in-phase "mine" "algebra" "FAST" "on")\n' + RULE, 2),
    "neither on nor off": ('(ruleset mine)\n(in-phase "mine" "algebra" "EXACT" "yes")\n' + RULE, 2),
    "unknown phase": ('(ruleset mine)\n\n(in-phase "mine" "whenever" "EXACT" "on")\n' + RULE, 3),
    "name taken by itself": (HEAD + RULE + RULE, 4),
    "name taken by a built-in rule": (HEAD + RULE.replace("mine/twice", "prop/free-at"), 3),
    "unknown constructor": (HEAD + "\n" + RULE.replace("Unary", "Urnary"), 4),
    "too few arguments": (HEAD + RULE.replace('(Unary "NEG" x)', '(Unary "NEG")'), 3),
    "wrong sort": (HEAD + RULE.replace('(Unary "NEG" x)', "(Unary 3 x)"), 3),
    "variable out of nowhere": (HEAD + RULE.replace(" x :ruleset", " y :ruleset"), 3),
    "ruleset is never declared": (HEAD.split("\n", 1)[1] + RULE, 2),
    "not a rule at all": (HEAD + '(rule :ruleset mine :name "mine/empty")\n', 3),
}
ACTS = [
    "(run 3)",
    "(run-schedule (saturate mine))",
    '(input Read "/etc/passwd")',
    "(print-size)",
    "(check (= 1 1))",
]
ACTS += [
    '(output "x.txt" (Lit 1))',
    "(let x 1)",
    "(push)",
    "(pop)",
    "(extract (Lit 1))",
    "(union (Lit 1) (Lit 2))",
]
ACTS += ["(delete (Lit 1))", '(panic "no")', "(fail (check (= 1 1)))"]


@pytest.mark.parametrize("what", TEXTS)
def test_a_faulty_rule_file_is_named_with_the_line(what: str, tmp_path: Path) -> None:
    text, line = TEXTS[what]
    path = written(tmp_path, text)
    error = failure(path)
    assert error.kind == "RuleFileInvalid"
    assert str(error.at["file"]) == str(path.resolve())
    assert error.at["line"] == str(line)
    assert f"mine.egg:{line}" in error.why


@pytest.mark.parametrize("command", ACTS)
def test_a_rule_file_may_not_act(command: str, tmp_path: Path) -> None:
    error = failure(written(tmp_path, HEAD + RULE + "\n" + command))
    assert error.kind == "RuleFileInvalid" and error.at["line"] == "5"
    assert command[1:].split()[0].rstrip(")") in error.why


def test_the_engines_refusal_names_the_rule(tmp_path: Path) -> None:
    error = failure(written(tmp_path, *TEXTS["unknown constructor"][:1]))
    assert error.at["rule"] == "mine/twice"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = failure(tmp_path / "missing.egg")
    assert missing.kind == "FileUnreadable" and "missing.egg" in missing.why
    latin = failure(written(tmp_path, b"; caf\xe9\n"))
    assert latin.kind == "FileUnreadable" and "mine.egg" in latin.why
    (tmp_path / "empty").mkdir()
    assert "empty" in failure(tmp_path / "empty").why
    (tmp_path / "folder.egg").mkdir()
    assert "folder.egg" in failure(tmp_path / "folder.egg").why


def test_an_include_of_a_file_that_is_missing(tmp_path: Path) -> None:
    error = failure(written(tmp_path, HEAD + '(include "elsewhere.egg")\n' + RULE))
    assert error.kind == "FileUnreadable" and "elsewhere.egg" in error.why


def test_a_cycle_of_includes(tmp_path: Path) -> None:
    written(tmp_path, '(include "mine.egg")\n', "other.egg")
    error = failure(written(tmp_path, '(include "other.egg")\n' + HEAD + RULE))
    assert error.kind == "RuleFileInvalid" and "includes itself" in error.why
    assert "mine.egg" in str(error.at["file"])


def test_an_included_file_is_loaded_once(tmp_path: Path) -> None:
    written(tmp_path, HEAD + RULE, "shared.egg")
    first = written(tmp_path, '(include "shared.egg")\n', "first.egg")
    second = written(tmp_path, '(include "shared.egg")\n', "second.egg")
    base = load_rules([first, second])
    assert [path.name for path in base.files[-3:]] == ["shared.egg", "first.egg", "second.egg"]
    compiled = tinyc.optimize_and_compile(program(), rules=[first, second])
    assert any(rule.rule == "mine/twice" for rule in compiled.report.rules)


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    written(tmp_path, HEAD + RULE, "b.egg")
    written(tmp_path, "; nothing\n", "a.egg")
    written(tmp_path, "not read", "c.txt")
    assert [path.name for path in load_rules([tmp_path]).files[-2:]] == ["a.egg", "b.egg"]


@pytest.mark.parametrize(
    "name", ['quo"te.egg', "back\\slash.egg", "new\nline.egg", "spa ce (x).egg", "ümläut.egg"]
)
def test_paths_with_odd_characters(name: str, tmp_path: Path) -> None:
    """Whatever the path, the rule works or the error names the file."""
    path = written(tmp_path, HEAD + RULE, name)
    try:
        compiled = tinyc.optimize_and_compile(program(), rules=[path])
    except TinycError as error:
        assert error.kind == "RuleFileInvalid" and str(error.at["file"]) == str(path)
        return
    assert any(rule.rule == "mine/twice" for rule in compiled.report.rules)


# ---- rules that are wrong only when they run ------------------------------------------------------------------------

CONFLICT = (
    "(ruleset mine)\n"
    '(in-phase "mine" "algebra" "EXACT" "on")\n'
    "\n"
    "; a value is not its own truth value\n"
    '(rule ((= e (Unary "NEG" x)))\n'
    '  ((union e (Const "bool" 1))) :ruleset mine :name "mine/negation-is-true")\n'
)


def test_a_rule_that_unites_different_dtypes_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, CONFLICT)
    negation = tinyc.trace(lambda x: -x, tinyc.spec("fp32", (3,)))
    with pytest.raises(TinycError) as caught:
        tinyc.optimize_and_compile(negation, rules=[path])
    error = caught.value
    assert error.kind == "UnsoundUnion"
    assert error.at["rule"] == "mine/negation-is-true"
    assert (error.at["file"], error.at["line"]) == (str(path), "5")
    assert "mine.egg:5" in error.why
    # and the next caller is not harmed
    assert tinyc.optimize_and_compile(negation)(np.ones(3, np.float32)).tolist() == [-1, -1, -1]


def test_the_rule_of_a_conflict_is_found_among_several_files(tmp_path: Path) -> None:
    fine = written(tmp_path, HEAD.replace("mine", "fine") + RULE.replace("mine", "fine"), "fine.egg")
    wrong = written(tmp_path, CONFLICT, "wrong.egg")
    with pytest.raises(TinycError) as caught:
        tinyc.optimize_and_compile(program(), rules=[fine, wrong])
    assert caught.value.at["rule"] == "mine/negation-is-true"
    assert caught.value.at["file"] == str(wrong)


# ---- files that change while the process lives --------------------------------------------------------------------


def matched(compiled: tinyc.Compiled) -> set[str]:
    return {rule.rule for rule in compiled.report.rules}


def test_an_edited_rule_file_takes_effect_at_the_next_call(tmp_path: Path) -> None:
    """The engine is kept warm with the files it has loaded; it must not outlive an edit of one of them."""
    path = written(tmp_path, HEAD + RULE)
    assert "mine/twice" in matched(tinyc.optimize_and_compile(program(), rules=[path]))
    written(tmp_path, HEAD + RULE.replace("mine/twice", "mine/other"))
    again = matched(tinyc.optimize_and_compile(program(), rules=[path]))
    assert "mine/other" in again and "mine/twice" not in again
    # of the same length, with the time of the file set back
    before = path.stat()
    written(tmp_path, HEAD + RULE.replace("mine/twice", "mine/third"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "mine/third" in matched(tinyc.optimize_and_compile(program(), rules=[path]))


def test_an_edited_included_file_takes_effect(tmp_path: Path) -> None:
    written(tmp_path, HEAD + RULE, "inner.egg")
    outer = written(tmp_path, '(include "inner.egg")\n', "outer.egg")
    assert "mine/twice" in matched(tinyc.optimize_and_compile(program(), rules=[outer]))
    written(tmp_path, HEAD + RULE.replace("mine/twice", "mine/other"), "inner.egg")
    assert "mine/other" in matched(tinyc.optimize_and_compile(program(), rules=[outer]))


def test_a_file_that_was_faulty_and_is_corrected(tmp_path: Path) -> None:
    path = written(tmp_path, TEXTS["unknown constructor"][0])
    assert failure(path).kind == "RuleFileInvalid"
    written(tmp_path, HEAD + RULE)
    assert "mine/twice" in matched(tinyc.optimize_and_compile(program(), rules=[path]))


def test_rules_of_one_call_are_not_those_of_the_next(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + RULE)
    tinyc.optimize_and_compile(program(), rules=[path])
    assert "mine/twice" not in matched(tinyc.optimize_and_compile(program()))
