"""A file of rules changes the extracted kernel with no line of Python; rulesets go on and off by name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_checks import Array, check_values, compiled, normal_inputs, operators, outputs, traced
from rule_text import FOLDER

import tinyc
from tinyc import functions as tc
from tinyc.cli import main
from tinyc.egraph.rulefiles import list_rules, load_rules
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program
from tinyc.rulecheck.lint import lint_rules

HERE = Path(__file__).parent
SILU, POWERS = HERE / "silu.egg", HERE / "powers.egg"


def swish() -> Program:
    return traced(lambda x: x * (1.0 / (1.0 + (-x).exp())), x=(12, 40))


def there_and_back() -> Program:
    return traced(lambda x: tc.exp2(tc.log2(x)) + x, x=(12, 40))


# ---- a user's rule --------------------------------------------------------------------------------------------------


def test_a_fusion_of_x_times_sigmoid_x() -> None:
    program = swish()
    before, after = compiled(program), compiled(program, rules=[SILU])
    assert operators(before)["Binary MUL"] == operators(after)["Binary MUL"] + 1
    assert operators(after)["Unary RECIP"] + operators(after)["Binary FDIV"] == 1
    assert after.report.total.flops < before.report.total.flops
    assert before.kernels[0].source != after.kernels[0].source
    for each in (before, after):
        check_values(each, normal_inputs(program, scale=5.0))


@pytest.mark.parametrize(("dtype", "number"), [("i32", "-1"), ("i32", "4294967295"), ("fp32", "-1.0")])
def test_a_number_in_a_rule_is_the_constant_of_programs(dtype: str, number: str, tmp_path: Path) -> None:
    """The program has its bits, in whatever way the rule spells them."""
    file = tmp_path / "negated.egg"
    file.write_text(
        f"""(ruleset negated)
(in-phase "negated" "algebra" "EXACT" "on")
; (x * -1) * -1 == x
(rule ((= e (Binary "MUL" y c)) (= y (Binary "MUL" x c)) (= c (Const "{dtype}" {number}))) ((union e x))
  :ruleset negated :name "negated/twice")
"""
    )
    program = tinyc.trace(lambda x: (x * -1) * -1, tinyc.spec(dtype, (12, 40)))
    before, after = compiled(program), compiled(program, rules=[file])
    assert (operators(before)["Binary MUL"], operators(after)["Binary MUL"]) == (2, 0)


def test_powers_of_logarithms_vanish_where_the_user_switches_that_on() -> None:
    program = there_and_back()
    before, idle = compiled(program), compiled(program, rules=[POWERS])
    after = compiled(program, rules=[POWERS], also=["powers"])
    assert operators(before) == operators(idle), "a ruleset that is off changes nothing"
    assert operators(before)["Unary EXP2"] == operators(before)["Unary LOG2"] == 1
    assert operators(after)["Unary EXP2"] == operators(after)["Unary LOG2"] == 0
    inputs = {"x": np.abs(normal_inputs(program)["x"]) + np.float32(0.1)}
    for each in (before, idle, after):
        check_values(each, inputs)


def test_without_names_a_users_ruleset_too() -> None:
    program = swish()
    assert operators(compiled(program, rules=[SILU], without=["silu"])) == operators(compiled(program))


def test_the_report_counts_a_users_rule() -> None:
    report = json.loads(compiled(swish(), rules=[SILU]).report.to_json())
    assert any(each["rule"] == "silu/fuse" and each["matches"] > 0 for each in report["rules"])


def test_a_phase_of_the_users_own_runs_in_its_place(tmp_path: Path) -> None:
    text = SILU.read_text(encoding="utf-8").replace('"silu" "algebra"', '"silu" "tidy"')
    (tmp_path / "tidy.egg").write_text('(phase "tidy" 45)\n' + text, encoding="utf-8")
    phases = load_rules([tmp_path]).phases
    assert phases[phases.index("reduce") :][:3] == ("reduce", "tidy", "contraction")
    assert operators(compiled(swish(), rules=[tmp_path])) == operators(compiled(swish(), rules=[SILU]))


# ---- where rule files come from -------------------------------------------------------------------------------------


def test_a_folder_of_rules_and_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    for file in (SILU, POWERS):
        (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    fused = operators(compiled(swish(), rules=[SILU]))
    assert operators(compiled(swish(), rules=[folder])) == fused
    assert operators(compiled(swish(), rules=str(folder))) == fused
    monkeypatch.setenv("TINYC_RULES", str(folder))
    assert operators(compiled(swish())) == fused
    monkeypatch.setenv("TINYC_RULES", os.pathsep.join([str(SILU), str(POWERS)]))
    assert operators(compiled(swish())) == fused


def test_rules_list_shows_a_users_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "list", "--rules", str(SILU), "--rules", str(POWERS), "--json"]) == 0
    listed = {rule["name"]: rule for rule in json.loads(capsys.readouterr().out)}
    assert len(listed) == len(list_rules()) + 2
    mine = listed["powers/of-logarithm"]
    assert (
        mine["equation"] == "exp2(log2(x)) == x" and mine["class"] == "REAL-ONLY" and mine["default"] is False
    )
    assert (mine["phase"], mine["ruleset"], mine["file"], mine["line"]) == (
        "algebra",
        "powers",
        str(POWERS),
        6,
    )
    assert listed["silu/fuse"]["default"] is True


ACTING = """(run 3); (extract x); (input f "/tmp/x"); (let x 1); (union a b); (panic "now"); (push); (py-exec "1");
(print-size); (nothing-that-was-declared 1)"""


@pytest.mark.parametrize("form", re.split(r";\s+", ACTING))
def test_a_rule_file_may_only_declare(form: str, tmp_path: Path) -> None:
    file = tmp_path / "acts.egg"
    file.write_text(f"; a comment\n\n{form}\n", encoding="utf-8")
    with pytest.raises(TinycError) as caught:
        load_rules([file])
    assert caught.value.kind == "RuleFileInvalid"
    assert caught.value.at["file"] == str(file) and caught.value.at["line"] == "3"


# ---- classes: what is off, what stays within its bound -------------------------------------------------------------


def test_also_switches_on_what_is_off_by_default() -> None:
    """sum_k (x[m, k] * w[k, n] - y[m, k]): the sum over y is the same for all n, where the sum may be taken apart."""

    def f(x: Any, w: Any, y: Any) -> Any:
        return (x.reshape(64, 1, 128) * w.permute(1, 0).reshape(1, 96, 128) - y.reshape(64, 1, 128)).sum(2)

    program = traced(f, x=(64, 128), w=(128, 96), y=(64, 128))
    before, after = compiled(program), compiled(program, also=["cancellation"])
    assert after.report.total.flops < 0.7 * before.report.total.flops
    assert after.report.total.time_s < 0.9 * before.report.total.time_s
    for each in (before, after):
        check_values(each)


def test_without_leaves_a_ruleset_out() -> None:
    """sum_k s[m] * x[m, k]: the factor moves out of the sum by R1 only."""
    program = traced(lambda s, x: (s * x).sum(1), s=(256, 1), x=(256, 512))
    before, after = compiled(program), compiled(program, without=["srnf"])
    assert before.report.total.flops < 0.6 * after.report.total.flops
    for each in (before, after):
        check_values(each)


@pytest.mark.parametrize("option", ["without", "also"])
def test_a_ruleset_that_no_file_declares_is_an_error(option: str) -> None:
    with pytest.raises(TinycError) as caught:
        tinyc.optimize_and_compile(swish(), **{option: ["powers"]})
    assert caught.value.kind == "UnknownRuleset" and "powers" in caught.value.why


UNIT = 2.0**-24


def magnitudes(shape: tuple[int, ...], exponent: float, seed: int) -> Array:
    """Of both signs, 10^-exponent to 10^exponent in size."""
    generator = np.random.default_rng(seed)
    sign = generator.choice([-1.0, 1.0], shape)
    return (sign * 10.0 ** generator.uniform(-exponent, exponent, shape)).astype(np.float32)


def divided() -> tuple[Program, dict[str, Array]]:
    program = traced(lambda x, y: x / y, x=(30, 50), y=(30, 1))
    return program, {"x": magnitudes((30, 50), 18, 0), "y": magnitudes((30, 1), 18, 1)}


def divided_bound(program: Program, inputs: dict[str, Array]) -> Array:
    (real,) = evaluate(program, inputs, float64=True)
    return 2.5 * UNIT * np.abs(real)  # a reciprocal and a product: two roundings, 1 + u each, to first order


def summed(
    body: Callable[..., object], **shapes: tuple[int, ...]
) -> Callable[[], tuple[Program, dict[str, Array]]]:
    def build() -> tuple[Program, dict[str, Array]]:
        return traced(body, **shapes), {
            name: magnitudes(shape, 3, seed) for seed, (name, shape) in enumerate(shapes.items())
        }

    return build


TERMS = 64


def summed_bound(program: Program, inputs: dict[str, Array]) -> Array:
    """gamma(K + 3) times the sum of absolute values: products, divisions and sums in any order."""
    (size,) = evaluate(program, {name: np.abs(array) for name, array in inputs.items()}, float64=True)
    count = (TERMS + 3) * UNIT
    return count / (1 - count) * size


BOUNDED = {
    "division": [(divided, divided_bound)],
    "srnf": [
        (summed(lambda s, x: (s * x).sum(1), s=(20, 1), x=(20, TERMS)), summed_bound),
        (summed(lambda s, x: (x / s).sum(1), s=(20, 1), x=(20, TERMS)), summed_bound),
        (summed(lambda s, x, y: ((x * s) * y).sum(1), s=(20, 1), x=(20, TERMS), y=(20, TERMS)), summed_bound),
        (
            summed(lambda x, y, s: (x * y + y * s).sum(1), x=(20, TERMS), y=(20, TERMS), s=(20, 1)),
            summed_bound,
        ),
        (summed(lambda x: x.sum(2).sum(1), x=(20, 8, TERMS // 8)), summed_bound),
    ],
}


def test_every_bounded_ruleset_is_held_to_its_bound() -> None:
    elsewhere = {"streaming", "streaming-unrounded", "tf32"}  # test_streaming.py, test_cuda_tf32.py
    bounded = {ruleset.name for ruleset in load_rules().rulesets if ruleset.klass == "BOUNDED"}
    assert bounded == set(BOUNDED) | elsewhere


@pytest.mark.parametrize(
    ("ruleset", "number"), [(name, n) for name, cases in BOUNDED.items() for n in range(len(cases))]
)
def test_bounded_rules_stay_within_their_bound(ruleset: str, number: int) -> None:
    build, bound = BOUNDED[ruleset][number]
    program, inputs = build()
    with_rules, without = compiled(program), compiled(program, without=[ruleset])
    changed = operators(with_rules) != operators(without)
    assert changed or with_rules.report.sizes != without.report.sizes, "the rule does not match this program"
    (real,) = evaluate(program, inputs, float64=True)
    for each in (with_rules, without):
        (got,) = outputs(each, inputs)
        assert (np.abs(got.astype(np.float64) - real) <= bound(program, inputs)).all()


# ---- the worked example of rules/README.md --------------------------------------------------------------------------


PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
EGG = dict(re.findall(r"`(\w+\.egg)`[^`\n]*:\n\n```egg\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
"""The rule files of the page, by the name in front of each."""


def test_the_pages_rule_files_have_no_faults(tmp_path: Path) -> None:
    assert set(EGG) == {"logarithm.egg", "tiles.egg"} and PAGE.count("```egg") == len(EGG)
    for name, text in EGG.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert lint_rules([tmp_path / name], examples=False) == ()


def test_the_worked_example_of_the_readme_runs_and_changes_the_kernel(tmp_path: Path) -> None:
    rule = EGG["logarithm.egg"]
    (script,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "logarithm.egg").write_text(rule, encoding="utf-8")
    # the script traces a lambda: from a file, as a reader runs it
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    path = os.pathsep.join([str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    before, after = map(float, run.stdout.split())
    assert after < before
    program = traced(lambda x: tc.softmax(x).log(), x=(8, 96))
    naive, changed = compiled(program), compiled(program, rules=[tmp_path / "logarithm.egg"])
    row, element = operators(naive), operators(changed)
    assert row["Unary RECIP"] + row["Binary FDIV"] > element["Unary RECIP"] + element["Binary FDIV"] == 0
    for each in (naive, changed):
        check_values(each)
