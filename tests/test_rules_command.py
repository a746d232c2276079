"""The commands `tinyc rules lint`, `check` and `stats`: arguments, output, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tinyc.cli import main

HEAD = '(ruleset mine)\n(in-phase "mine" "algebra" "EXACT" "on")\n'
RIGHT = (
    '; max(x, y) + min(x, y) == x + y, generic\n(rewrite (Binary "ADD" (Binary "MAX" x y) (Binary "MIN" x y))'
    ' (Binary "ADD" x y) :ruleset mine :name "mine/right")\n'
)
WRONG = RIGHT.replace("ADD", "SUB").replace("mine/right", "mine/wrong").replace("+", "-")
UNNAMED = RIGHT.replace(' :name "mine/right"', "")
PROGRAM = {
    "uops": [
        {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [4, 6]}},
        {"id": "y", "uop": "NEG", "src": ["x"]},
        {"id": "z", "uop": "NEG", "src": ["y"]},
        {"id": "s", "uop": "REDUCE", "src": ["z"], "arg": {"op": "SUM", "axes": [1], "dtype": "fp32"}},
    ]
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "right": HEAD + RIGHT,
        "wrong": HEAD + WRONG,
        "unnamed": (HEAD + UNNAMED).replace("mine", "other"),
    }.items():
        (tmp_path / f"{name}.egg").write_text(text)
    (tmp_path / "program.json").write_text(json.dumps(PROGRAM))
    return tmp_path


# ---- lint ----


def test_lint_says_nothing_of_a_good_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "lint", "--quick", "right.egg"]) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


def test_lint_names_file_line_and_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.egg").write_text(HEAD + RIGHT.replace(", generic", "").replace("==", "="))
    assert main(["rules", "lint", "--quick", "mine.egg", "unnamed.egg"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "mine.egg:4: error R011 no-equation mine/right" in lines
    assert "mine.egg:4: error R013 no-guard mine/right" in lines
    assert "unnamed.egg:4: error R007 unnamed" in lines
    assert "unnamed.egg:4: error R016 duplicate" in lines
    assert lines[-1] == "4 errors, 0 warnings"


def test_lint_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "lint", "--quick", "--json", "unnamed.egg"]) == 1
    found = json.loads(capsys.readouterr().out)
    (finding,) = found["findings"]
    assert (found["version"], found["errors"]) == (1, 1)
    assert set(finding) == {"code", "kind", "severity", "rule", "file", "line", "why", "suggestion"}
    assert finding["file"] == str(folder / "unnamed.egg") and finding["line"] == 4


def test_lint_of_a_file_in_the_context_of_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.egg").write_text(RIGHT)  # of a ruleset that right.egg declares
    assert main(["rules", "lint", "--quick", "mine.egg"]) == 1
    capsys.readouterr()
    (folder / "head.egg").write_text(HEAD)
    assert main(["rules", "lint", "--quick", "mine.egg", "--rules", "head.egg"]) == 0


# ---- check ----


def test_check_exits_with_1_and_shows_the_counterexample(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "check", "right.egg"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:4] == ["rule", "verdict", "class", "measured"]
    assert table[2].split()[:4] == ["mine/right", "sound", "EXACT", "EXACT"]
    assert table[-1].startswith("1 rule: 1 sound")
    assert main(["rules", "check", "wrong.egg"]) == 1
    shown = capsys.readouterr().out
    assert "mine/wrong  unsound" in shown and "wrong.egg:4: unsound" in shown
    assert "true:" in shown and "claimed:" in shown


def test_check_of_one_rule_among_several(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "both.egg").write_text(HEAD + RIGHT + WRONG)
    assert main(["rules", "check", "both.egg", "--rule", "mine/right", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sound"] and [rule["rule"] for rule in document["rules"]] == ["mine/right"]
    assert main(["rules", "check", "both.egg", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [rule["rule"] for rule in document["rules"]] == ["mine/right", "mine/wrong"]
    assert main(["rules", "check", "--rule", "identity/negate-twice"]) == 0


def test_check_of_a_rule_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", "right.egg", "--rule", "mine/left"]) == 2
    assert "mine/left" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["rules", "check", "unnamed.egg"], ["rules", "check", "nothing.egg"]])
def test_check_of_a_file_that_cannot_be_used(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    assert command[-1] in capsys.readouterr().err


# ---- stats ----


def test_stats_of_a_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "stats", "program.json", "--rules", "right.egg"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert any(line[:2] == ["identity/negate-twice", "algebra"] for line in lines)
    assert any(line[:2] == ["program.json", "cpu"] for line in lines), "what it grew to"
    assert "mine/right" not in shown and "rules that matched nothing, " in shown
    assert {line[0] for line in lines if line} >= {"fuse", "movement", "algebra"}, "the table of phases"


@pytest.mark.parametrize(("by", "field"), [("matches", "matches"), ("growth", "enodes"), ("time", "time_s")])
def test_stats_are_sorted(by: str, field: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "stats", "program.json", "--by", by]) == 0
    shown = capsys.readouterr().out
    assert main(["rules", "stats", "program.json", "--by", by, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = [rule[field] for rule in found["rules"]]
    assert counts == sorted(counts, reverse=True) and found["by"] == by
    if by != "time":  # of two runs
        first = next(rule["rule"] for rule in found["rules"] if rule["matches"])
        table = shown[shown.index("that matched, ") :].splitlines()
        assert table[4].split()[0] == first


def test_stats_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "stats", "program.json", "--json", "--target", "sm80"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == 1 and found["exact"] is False
    assert [(each["program"], each["target"]) for each in found["programs"]] == [("program.json", "sm80")]
    rule = next(each for each in found["rules"] if each["rule"] == "identity/negate-twice")
    assert rule["matches"] >= 1 and rule["programs"] == 1 and not rule["over_budget"]
    assert sum(phase["matches"] for phase in rule["phases"].values()) == rule["matches"]


def test_stats_of_what_is_no_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "none.json").write_text("{}")
    assert main(["rules", "stats", "none.json"]) == 1
    assert main(["rules", "stats", "nothing.json"]) == 1
    assert "nothing.json" in capsys.readouterr().err
