"""docs/explain.md runs; the command prints what it promises; recording is no part of the e-graph."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest
from command_line import affine, write
from explain_helpers import traced

from tinyc.cli import main
from tinyc.egraph.provenance import TABLE, instrument
from tinyc.egraph.rulefiles import load_rules, one_rule_per_ruleset, texts_of
from tinyc.egraph.saturate import saturate
from tinyc.explain.explanation import VERSION
from tinyc.ir.tiny import Program

PAGE = Path(__file__).parent.parent.parent / "docs" / "explain.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it writes a rule file
    example = doctest.DocTestParser().get_doctest(
        PAGE.read_text(encoding="utf-8"), {}, PAGE.name, str(PAGE), 0
    )
    report: list[str] = []
    doctest.DocTestRunner().run(example, out=report.append)
    assert not report, "".join(report)
    assert len(example.examples) >= 6


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write("affine.json", affine(size="N"))
    assert main(["explain", file, "--shape", "N=5"]) == 0
    text = capsys.readouterr().out
    assert "all checked" in text and "movement/unary" in text and "chosen: fill fp32[5] with relu" in text
    assert main(["explain", file, "--shape", "N=5", "--kernel", "out", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["explanation"]
    assert (found["version"], found["explained"], found["checked"]) == (VERSION, True, True)
    (kernel,) = found["kernels"]
    assert [step["rule"] for step in kernel["steps"]][:2] == ["movement/unary", "movement/binary"]
    assert {"before", "after", "class", "equation", "line", "site"} <= set(kernel["steps"][0])
    for first, second in zip(kernel["steps"], kernel["steps"][1:], strict=False):
        assert first["kernel_after"] == second["kernel_before"]
    assert main(["explain", file, "--shape", "N=5", "--rule", "movement/binary"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1 step in 1 kernel, all checked") and "\n  2. movement/binary" in text
    assert main(["explain", file, "--shape", "N=5", "--rule", "streaming/sum"]) == 0
    assert "is one of streaming/sum: nothing it made was chosen" in capsys.readouterr().out
    assert main(["explain", file, "--shape", "N=5", "--rule", "movement/binry"]) == 1
    assert "did you mean movement/binary" in capsys.readouterr().err
    assert main(["explain", file, "--shape", "N=5", "--kernel", "none"]) == 1
    assert "there is no kernel" in capsys.readouterr().err
    assert main(["explain", file]) == 1
    assert "UnboundSymbol" in capsys.readouterr().err


def test_a_wrong_step_is_the_commands_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write("affine.json", affine())
    Path("wrong.egg").write_text(
        '(ruleset mine)\n(in-phase "mine" "algebra" "EXACT" "on")\n\n; relu(x) == x\n'
        '(rewrite (Unary "RELU" x) x :ruleset mine :name "mine/wrong")\n'
    )
    assert main(["explain", file, "--rules", "wrong.egg"]) == 1
    text = capsys.readouterr().out
    assert "1 WRONG" in text and "mine/wrong" in text and "became" in text


def programs() -> dict[str, Program]:
    return {
        "product": traced(lambda a, b: (a @ b).relu(), (6, 5), (5, 4)),
        "softmax": traced(lambda x: (x - x.max(-1, keepdims=True)).exp(), (4, 6)),
        "reshaped": traced(lambda x: x.reshape(6, 4).permute(1, 0).reshape(3, 8) * 2.0, (4, 6)),
    }


TO_CONSTANTS = {"movement/immediate", "index/substitute-literal"}
"""Rules that find what they match to be a constant: its class is an old one, which the row belongs to from then on, so that the engine
may match it once more. With records it does so more often; nothing comes of it."""


@pytest.mark.parametrize("name", ["product", "softmax", "reshaped"])
def test_records_are_no_part_of_the_e_graph(name: str) -> None:
    program, base = programs()[name], load_rules()
    plain, recorded = (saturate(program, base, record=record) for record in (False, True))
    assert plain.provenance is None and recorded.provenance is not None
    for before, after in zip(plain.phases, recorded.phases, strict=True):
        assert (before.name, before.enodes, before.stopped) == (after.name, after.enodes, after.stopped)
        assert before.sizes == after.sizes and not any(name.startswith(TABLE) for name in after.sizes)
        counts = {(rule, count, after.rule_matches[rule]) for rule, count in before.rule_matches.items()}
        assert {rule for rule, count, again in counts if count != again} <= TO_CONSTANTS
        assert all(count <= again for _, count, again in counts)
    rows = recorded.provenance.rows.tables
    records = sum(len(rows[record.table]) for record in recorded.provenance.records)
    assert 0 < records <= 8 * plain.phases[-1].enodes


def test_instrumented_rules_stay_on_their_lines() -> None:
    texts = texts_of(load_rules().files)
    found = instrument(texts)
    assert len({record.table for record in found.records}) == len(found.records)
    for before, after in zip(texts, found.texts, strict=True):
        assert before.count("\n") == after.count("\n")
        (first, rules), (second, same) = one_rule_per_ruleset(before), one_rule_per_ruleset(after)
        assert list(rules.values()) == list(same.values()) and first.count("\n") == second.count("\n")


def test_what_is_recorded_of_a_rule() -> None:
    text = """
    (datatype E (A E E) (B E i64))
    (relation seen (E))
    (rewrite (A x (B y n)) (B (A x y) (+ n 1)) :when ((< n 9)) :subsume :ruleset r :name "r/one")
    (rule ((= e (A x y)) (seen x)) ((let z (B y 2)) (union e z)) :ruleset r :name "r/two")
    (rule ((= e (A x y))) ((seen x)) :ruleset r :name "r/fact")
    """
    one, two = instrument([text]).records
    assert [name for name, _ in one.columns] == ["rewrite-root", "x", "y", "n", "value-record-0"]
    assert dict(one.columns)["value-record-0"] == "i64"
    assert one.values == {"value-record-0": ("+", "n", 1)}
    assert one.unions == (("rewrite-root", ("B", ("A", "x", "y"), "value-record-0")),)
    assert two.unions == (("e", "z"),) and two.values["z"] == ("B", "y", 2)
    assert "(subsume (A x (B y n)))" in instrument([text]).texts[0]
