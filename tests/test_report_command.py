"""``tinyc report``: text, JSON and HTML of a program or of a report; two of them side by side; what rules are worth."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_examples import a_report

from tinyc.cli import main

ROOT = Path(__file__).parent.parent
GEMM = str(ROOT / "docs" / "examples" / "gemm_bias_relu.json")
ATTENTION = str(ROOT / "docs" / "examples" / "attention.json")
SHAPE = ["--shape", "M=64", "--shape", "N=64", "--shape", "K=64"]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "report.schema.json").read_text())

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `tinyc report` in an empty folder and gives back what it prints, on standard error where ``status``."""
    monkeypatch.chdir(tmp_path)

    def report(*args: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(["report", *args]) == status
        out, err = capsys.readouterr()
        assert not (err if status == 0 else out)
        return out if status == 0 else err

    return report


def test_a_report_in_json_is_read_again(run: Run) -> None:
    text = run(GEMM, *SHAPE, "--json")
    data = json.loads(text, parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert data["decisions"] and any(rule["survives"] for rule in data["rules"])
    Path("a.json").write_text(text)
    assert run("a.json", "--json") == text
    shown = run("a.json")
    assert shown.startswith("tinyc report, target cpu") and "Decisions:" in shown


def test_quick_leaves_out_what_takes_time(run: Run) -> None:
    data = json.loads(run(GEMM, *SHAPE, "--json", "--quick"))
    assert data["decisions"] == [] and {rule["survives"] for rule in data["rules"]} == {None}


def test_a_page_is_written(run: Run) -> None:
    Path("a.json").write_text(a_report().to_json())
    assert run("a.json", "--html", "sub/a.html") == f"sub{os.sep}a.html\n"
    assert Path("sub/a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "FileUnwritable" in run("a.json", "--html", "sub", status=1)


def test_two_reports_are_compared(run: Run) -> None:
    Path("a.json").write_text(a_report().to_json())
    Path("b.json").write_text(a_report(target="sm90").to_json())
    assert "From a.json (sm80) to b.json (sm90):\nnothing moved." in run("a.json", "b.json")
    assert json.loads(run("a.json", "b.json", "--json"))["targets"] == ["sm80", "sm90"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--vs-without", "streaming"], "--without streaming (cpu)"),
        (["--quick", "--vs-without", "streaming/sum"], "only in the first"),
        (["--quick", "--vs-target", "sm90"], "--target sm90 (sm90)"),
    ],
)
def test_a_program_is_compared_with_itself_otherwise(run: Run, options: list[str], said: str) -> None:
    text = run(ATTENTION, *options)
    assert said in " ".join(text.split()) and "Rules that did something else" in text


def test_sizes_of_the_other_side(run: Run) -> None:
    options = [name for size in ("M=128", "N=64", "K=64") for name in ("--vs-shape", size)]
    data = json.loads(run(GEMM, *SHAPE, *options, "--json", "--quick"))
    flops = next(each for each in data["totals"] if each["name"] == "flops")
    assert flops["second"] == 2 * flops["first"]


def test_a_report_beside_a_program(run: Run) -> None:
    Path("a.json").write_text(run(GEMM, *SHAPE, "--json"))
    assert "nothing moved." in run("a.json", GEMM, *SHAPE, "--quick")


@pytest.mark.parametrize(
    ("args", "kind", "status"),
    [
        (["a.json", "--ablate"], "Usage", 2),
        (["a.json", "b.json", "--html", "c.html"], "Usage", 2),
        (["a.json", "missing.json"], "FileUnreadable", 1),
        (["old.json"], "MalformedDocument", 1),
        (["broken.json"], "MalformedDocument", 1),
        ([GEMM, *SHAPE, "--vs-without", "nothing/such"], "UnknownRuleset", 1),
        ([GEMM], "UnboundSymbol", 1),
    ],
)
def test_what_is_wrong_is_said(run: Run, args: list[str], kind: str, status: int) -> None:
    data: dict[str, Any] = json.loads(a_report().to_json())
    for name, document in (
        ("a", data),
        ("b", data),
        ("old", {**data, "version": 1}),
        ("broken", {**data, "kernels": [{"region": 7}]}),
    ):
        Path(f"{name}.json").write_text(json.dumps(document))
    assert kind in run(*args, status=status)


def test_a_single_rule_is_left_out(run: Run) -> None:
    """What a rule finds is gone without it; the rest of its ruleset stays."""
    rules = {rule["rule"] for rule in json.loads(run(ATTENTION, "--json", "--quick"))["rules"]}
    less = json.loads(run(ATTENTION, "--json", "--quick", "--without", "streaming/weighted-sum"))
    left = {rule["rule"] for rule in less["rules"]}
    assert "streaming/weighted-sum" in rules and "streaming/weighted-sum" not in left
    assert less["without"] == ["streaming/weighted-sum"]
    assert any(name.startswith("streaming/") for name in left)


@pytest.mark.slow
def test_what_each_rule_is_worth(run: Run) -> None:
    data = json.loads(
        run(
            GEMM,
            "--target",
            "sm80",
            "--shape",
            "M=512",
            "--shape",
            "N=512",
            "--shape",
            "K=512",
            "--ablate",
            "--json",
        )
    )
    worth = {each["name"]: each for each in data["ablation"]}
    matched = {rule["rule"] for rule in data["rules"]}
    rulesets = {rule["ruleset"] for rule in data["rules"]}
    assert {name for name, each in worth.items() if not each["ruleset"]} == matched
    assert {name for name, each in worth.items() if each["ruleset"]} == rulesets
    assert worth["contraction"]["change_s"] > 0, "without it the product is computed in loops"
    assert min(each["change_s"] for each in worth.values()) >= 0, "no rule makes this program worse"
