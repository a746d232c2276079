"""The last phase: a rule that breaks an invariant is stopped with the invariant's message, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rule_checks import check_exact, traced
from rule_text import calls, written_rules

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.tiny import Program

#: invariant -> actions of a rule that breaks it; the rule matches e == t[ix], x == input 0 at i, b == a buffer
BREAKS = {
    "axis-extent": "(Plus 1 (Ax 3 1) (Lit 0))",
    "axis-level": "(Plus 1 (Ax 999 4) (Lit 0))",
    "coefficient": "(Plus 0 (Ax 0 8) (Lit 0))",
    "divisor": "(FloorDiv (Lit 3) 1)",
    "order": "(Plus 1 (Ax 1 8) (Plus 1 (Ax 0 8) (Lit 0)))",
    "range": "(union (Lit 1) (Lit 2))",
    "operands": '(Binary "ADD" x (Const "i32" 0))',
    "condition": "(Select x x x)",
    "branches": '(Select (Within (Lit 0) 0 1) x (Const "i32" 0))',
    "stream-score": '(Stream (vec-of (Plus 1 (Ax 16 8) (Lit 0))) (Const "i32" 0) x 1065353216)',
    "stream-weight": '(Stream (vec-of (Plus 1 (Ax 16 8) (Lit 0))) x (Const "i32" 0) 1065353216)',
    "stream-positive": "(Stream (vec-of (Plus 1 (Ax 16 8) (Lit 0))) x x 0)",
    "stream-finite": "(Stream (vec-of (Plus 1 (Ax 16 8) (Lit 0))) x x 2139095040)",
    "rounded-stream-score": '(RoundedStream "fp16" (vec-of (Plus 1 (Ax 16 8) (Lit 0))) (Const "i32" 0) x 1065353216)',
    "rounded-stream-weight": '(RoundedStream "bf16" (vec-of (Plus 1 (Ax 16 8) (Lit 0))) x (Const "i32" 0) 1065353216)',
    "rounded-stream-positive": '(RoundedStream "fp16" (vec-of (Plus 1 (Ax 16 8) (Lit 0))) x x 0)',
    "rounded-stream-finite": '(RoundedStream "fp16" (vec-of (Plus 1 (Ax 16 8) (Lit 0))) x x 2139095040)',
    "rounded-stream-dtype": '(RoundedStream "fp32" (vec-of (Plus 1 (Ax 16 8) (Lit 0))) x x 1065353216)',
    "constants": '(union (Const "fp32" 0) (Const "fp32" 1))',
    "constant-input": '(union (Const "fp32" 0) x)',
    "inputs": "(union x (Read (Arg 1) i))",
    "input-rank": "(Read (Arg 0) (vec-of (Lit 0) (Lit 0)))",
    "read-rank": "(Read b (vec-of (Lit 0) (Lit 0)))",
    "fill-dtype": '(Fill "fp16" s x)',
    "fill-axes": "(Fill d s (Read (Arg 0) (vec-of (Plus 1 (Ax 17 8) (Lit 0)))))",
}


def program() -> Program:
    return traced(lambda x, y: (x * y + 1.0).relu(), x=(8,), y=(8,))


def breaking(invariant: str, folder: Path) -> Path:
    file = folder / "broken.egg"
    file.write_text(
        '(ruleset broken)\n(in-phase "broken" "algebra" "EXACT" "on")\n; what may not be\n'
        "(rule ((= x (Read (Arg 0) i)) (= b (Fill d s e)))\n"
        f'  ({BREAKS[invariant]}) :ruleset broken :name "broken/{invariant}")\n',
        encoding="utf-8",
    )
    return file


def messages() -> dict[str, str]:
    """Invariant -> what it says."""
    found = {}
    for rule in written_rules():
        if rule.ruleset == "check":
            (text,) = [call[1] for part in rule.actions for call in calls(part) if call[0] == "panic"]
            found[rule.name.removeprefix("check/")] = str(text).strip('"')
    return found


def test_every_invariant_has_a_rule_that_breaks_it() -> None:
    assert set(messages()) == set(BREAKS)
    assert len(set(messages().values())) == len(BREAKS)


@pytest.mark.parametrize("invariant", BREAKS)
def test_a_rule_that_breaks_an_invariant_is_stopped(invariant: str, tmp_path: Path) -> None:
    file = breaking(invariant, tmp_path)
    with pytest.raises(TinycError) as caught:
        saturate(program(), load_rules([file]))
    assert caught.value.kind == "UnsoundUnion"
    assert messages()[invariant] in caught.value.why
    assert file.name in caught.value.suggestion, "it says where to look"


def test_a_rule_of_tinycs_own_that_breaks_one_gives_the_naive_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no rule of a user's at fault, the program still runs, and the report says why it is slow."""
    file = breaking("constants", tmp_path)
    monkeypatch.setattr("tinyc.egraph.saturate._users", lambda base: ())
    result = tinyc.optimize_and_compile(program(), rules=[file])
    (warning,) = result.report.warnings
    assert result.report.fallback and warning.kind == "EngineLost"
    assert messages()["constants"] in warning.why and "naive program" in warning.why
    check_exact(result, {"x": np.arange(8, dtype=np.float32), "y": np.full(8, -2, np.float32)})


def test_the_invariants_run_last() -> None:
    base = load_rules()
    assert base.active()[base.phases[-1]] == ("check",)
