"""The derivation of an extracted program: from the naive one, by named rules, each step right, to exactly the Regions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explain_helpers import check_derivation, random_program, recorded, traced
from golden import Golden

import tinyc
from tinyc import functions as tc
from tinyc.bench.programs import transformer
from tinyc.explain.explain import explain_program
from tinyc.explain.explanation import Explanation
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.tiny import Program
from tinyc.pipeline import Options

EXAMPLES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gemm_bias_relu": (lambda a, b, bias: (a @ b + bias).relu(), ((6, 5), (5, 4), (4,))),
    "conv3x3": (lambda x, w: tc.conv(x, w, pad=1), ((1, 2, 5, 6), (3, 2, 3, 3))),
    "attention": (lambda q, k, v: tc.attention(q, k, v), ((2, 4, 3), (2, 5, 3), (2, 5, 3))),
    "softmax": (tc.softmax, ((4, 6),)),
    "layer_norm": (lambda x, w, b: tc.layer_norm(x, w, b), ((4, 6), (6,), (6,))),
}


WIDE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "gemm 512": (lambda a, b: a @ b, ((512, 512), (512, 512)), "fp16"),
    "gemm split": (lambda a, b, c: (a @ b + c).relu(), ((64, 8192), (8192, 64), (64,)), "fp16"),
    "gemm odd": (lambda a, b, c: (a @ b + c).relu(), ((37, 53), (53, 29), (29,)), "bf16"),
    "gemm large": (lambda a, b: a @ b, ((16384, 16384), (16384, 16384)), "fp16"),
    "conv": (lambda x, w: tc.conv(x, w, pad=1), ((8, 128, 14, 14), (256, 128, 3, 3)), "fp16"),
    "conv strided": (lambda x, w: tc.conv(x, w, pad=1, stride=2), ((2, 4, 9, 9), (8, 4, 3, 3)), "fp32"),
    "conv grouped": (lambda x, w: tc.conv(x, w, pad=1, groups=2), ((1, 4, 8, 8), (6, 2, 3, 3)), "fp32"),
    "softmax": (tc.softmax, ((16, 4096),), "fp32"),
    "layer norm": (lambda x, w, b: tc.layer_norm(x, w, b), ((128, 768), (768,), (768,)), "fp32"),
    "attention": (lambda q, k, v: tc.attention(q, k, v), ((8, 1024, 64),) * 3, "fp16"),
    "attention causal": (lambda q, k, v: tc.attention(q, k, v, causal=True), ((8, 1024, 64),) * 3, "fp32"),
}


def explained(program: Program, options: Options | None = None) -> Explanation:
    source = recorded(program, options)
    check_derivation(source)
    explanation = explain_program(source)
    assert explanation.explained
    assert not [(step.rule, step.why) for step in explanation.steps if not step.checked]
    return explanation


@pytest.mark.spec("004-126")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_derived_by_rules_and_every_step_is_right(name: str) -> None:
    function, shapes = EXAMPLES[name]
    explanation = explained(traced(function, *shapes))
    assert len([step for step in explanation.steps if step.ruleset != "index"]) > 5


def test_the_explanation_of_gemm_bias_relu_reads_as_it_did(golden: Golden) -> None:
    function, shapes = EXAMPLES["gemm_bias_relu"]
    compiled = tinyc.optimize_and_compile(
        tinyc.trace(function, *(tinyc.spec("fp32", shape) for shape in shapes))
    )
    golden(str(compiled.explain()))


@pytest.mark.parametrize("seed", range(3))
def test_random_programs_are_derived(seed: int) -> None:
    explained(random_program(seed))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_random_programs_are_derived(part: int) -> None:
    for seed in range(100 + 20 * part, 120 + 20 * part):
        also = ("streaming-unrounded", "cancellation") if seed % 3 == 0 else ()
        explained(random_program(seed, 10), Options("sm80" if seed % 4 == 0 else "cpu", also=also))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
@pytest.mark.parametrize("name", WIDE)
def test_larger_shapes_are_derived_on_every_target(name: str, target: str) -> None:
    function, shapes, dtype = WIDE[name]
    explained(traced(function, *shapes, dtype=dtype), Options(target))


@pytest.mark.slow
def test_a_transformer_is_explained() -> None:
    function, shapes = transformer(2)
    explained(tinyc.trace(function, **{name: tinyc.spec("fp32", shape) for name, shape in shapes.items()}))


def test_equal_kernels_are_explained_once() -> None:
    products = traced(lambda x, *weights: tuple(x @ weight for weight in weights), *((6, 6),) * 4)
    explanation = explained(products)
    own = [kernel for kernel in explanation.kernels if not kernel.like]
    alike = [kernel for kernel in explanation.kernels if kernel.like]
    assert len(alike) == 2
    assert {kernel.like for kernel in alike} <= {kernel.kernel for kernel in own}
    assert all(kernel.steps for kernel in own) and not any(kernel.steps for kernel in alike)
    assert "more with the same steps" in str(explanation)
    part = explanation.only(alike[0].kernel)
    assert [kernel.kernel for kernel in part.kernels] == [alike[0].kernel, alike[0].like]


def test_a_streaming_softmax_names_the_rules_that_found_it() -> None:
    function, shapes = EXAMPLES["attention"]
    explanation = explained(traced(function, *shapes), Options("cpu", also=("streaming",)))
    if not any(step.rule.startswith("streaming/") for step in explanation.steps):
        pytest.fail("attention of this size is no stream any more: take another size")
    step = next(step for step in explanation.steps if step.rule == "streaming/weighted-sum")
    assert {"streaming/weighted", "streaming/exponential"} <= set(step.via)
    assert {"streaming/weighted-sum", "streaming/weighted", "streaming/sum"} <= explanation.survivors


def test_what_survives_of_a_product() -> None:
    explanation = explained(traced(lambda a, b: a @ b, (8, 8), (8, 8)))
    assert {
        "movement/reduce",
        "movement/binary",
        "movement/input",
        "contraction/roles",
    } <= explanation.survivors
    assert not {"streaming/sum", "monotone/max-relu", "fuse/materialise"} & explanation.survivors
    assert explanation.made["movement/input"] == 4  # a Read and an Arg of each input


def test_a_sum_in_parts_is_a_rule_on_tensors() -> None:
    program = traced(lambda a, b: a @ b, (64, 8192), (8192, 64), dtype="fp16")
    explanation = explained(program, Options("sm80"))
    step = next((step for step in explanation.steps if step.rule == "splitk/sum-of-parts"), None)
    assert step is not None and step.klass == "REASSOC" and step.site
    assert len(explanation.kernels) == 2 and "splitk/sum-of-parts" in explanation.survivors


def test_values_that_are_used_again_and_again_are_rewritten_once() -> None:
    def doubled(x: Any) -> Any:
        for _ in range(24):
            x = x + x
        return x

    assert len(explained(traced(doubled, (8,))).steps) <= 24 + 2


def test_several_outputs_are_explained_each() -> None:
    program = traced(lambda x, w: (x @ w, (x @ w).relu(), x.sum(-1)), (4, 5), (5, 3))
    explanation = explained(program)
    assert {kernel.naive.split("[")[0] for kernel in explanation.kernels} == {"fill fp32"}
    assert len(explanation.kernels) == 3 and all(kernel.chosen for kernel in explanation.kernels)


def test_what_does_not_fit_into_memory_is_tried_where_it_is_read() -> None:
    program = traced(lambda x, y: (x + y).sum(-1), (1 << 15, 1 << 14), (1 << 15, 1 << 14))
    assert explained(program).checked


def test_what_has_no_record_is_said_not_to_be_explained() -> None:
    source = recorded(traced(lambda a, b: (a @ b).relu(), (4, 5), (5, 3)))
    forgetful = replace(source, provenance=replace(source.provenance, records=()))
    explanation = explain_program(forgetful)
    assert not explanation.explained and not explanation.steps
    assert "NOT EXPLAINED: no recorded match leads on from At" in str(explanation)


# ---- rules of a user's ----


def user_rules(folder: Path, text: str, klass: str = "EXACT") -> Path:
    path = folder / "mine.egg"
    declared = f'(ruleset mine)\n(in-phase "mine" "algebra" "{klass}" "on")\n\n'
    path.write_text(declared + text, encoding="utf-8")
    return path


def test_a_rule_of_a_users_is_a_step(tmp_path: Path) -> None:
    text = '; log2(exp2(x)) == x\n(rewrite (Unary "LOG2" (Unary "EXP2" x)) x :ruleset mine :name "mine/log")'
    path = user_rules(tmp_path, text, "BOUNDED")
    explanation = explained(traced(lambda x: tc.log2(tc.exp2(x)), (5,)), Options("cpu", rules=(path,)))
    step = next(step for step in explanation.steps if step.rule == "mine/log")
    assert (step.ruleset, step.klass, step.equation) == ("mine", "BOUNDED", "log2(exp2(x)) == x")
    assert (step.file, step.line, step.forwards) == (str(path), 5, True)
    assert step.before == "log2(exp2(x[i0]))" and step.after == "x[i0]"
    assert "mine/log" in explanation.survivors


@pytest.mark.parametrize(
    ("rule", "function"),
    [
        ('(rewrite (Unary "RELU" x) x :ruleset mine :name "mine/wrong")', lambda x: x.relu()),
        (
            '(rewrite (Binary "SUB" x (Reduce "MAX" ix y)) x :subsume :ruleset mine :name "mine/wrong")',
            lambda x: tc.softmax(x),
        ),
        pytest.param(
            '(rewrite (Reduce "MAX" ix (Unary "NEG" x)) (Unary "NEG" (Reduce "MAX" ix x)) :subsume'
            ' :ruleset mine :name "mine/wrong")',
            lambda x: (-x).max(-1),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            '(rewrite (Binary "SUB" x y) (Binary "ADD" x y) :subsume :ruleset mine :name "mine/wrong")',
            lambda x: x - x.sum(-1, keepdims=True),
            marks=pytest.mark.slow,
        ),
        (  # but for infinities and NaN it would be so
            '(rewrite (Binary "MUL" x (Const "fp32" 0)) (Const "fp32" 0) :ruleset mine :name "mine/wrong")',
            lambda x: x * 0.0 + 1.0,
        ),
    ],
)
def test_a_wrong_rule_is_caught_at_its_step(tmp_path: Path, rule: str, function: Callable[..., Any]) -> None:
    path = user_rules(tmp_path, "; it is not so\n" + rule)
    program = traced(function, (4, 5))
    options = Options("cpu", rules=(path,), without=("monotone",))
    source = recorded(program, options)
    explanation = explain_program(source)
    assert explanation.explained
    wrong = {step.rule for step in explanation.steps if not step.checked}
    assert wrong == {"mine/wrong"} == {step.rule for step in explanation.steps if step.wrong}
    text = str(explanation)
    count = sum(step.wrong for step in explanation.steps)
    assert f"{count} WRONG, the others checked" in text and " became " in text and "NOT CHECKED" not in text


def test_both_directions_of_a_birewrite(tmp_path: Path) -> None:
    text = (
        '(birewrite (Unary "EXP2" (Binary "ADD" x y)) (Binary "MUL" (Unary "EXP2" x) (Unary "EXP2" y))'
        ' :ruleset mine :name "mine/both")'
    )
    path = user_rules(tmp_path, "; exp2(x + y) == exp2(x) * exp2(y)\n" + text, "BOUNDED")
    program = traced(lambda x, y: tc.exp2(x) * tc.exp2(y), (5,), (5,))
    explanation = explained(program, Options("cpu", rules=(path,)))
    step = next(step for step in explanation.steps if step.rule == "mine/both")
    assert not step.forwards and "mine/both (right to left)" in str(explanation)
    assert step.after.startswith("exp2((")


# ---- what it is no part of ----


@pytest.mark.parametrize("name", ["gemm_bias_relu", "softmax"])
def test_an_explanation_changes_nothing(name: str) -> None:
    function, shapes = EXAMPLES[name]
    compiled = tinyc.optimize_and_compile(traced(function, *shapes))
    before = compiled.dump("region"), compiled.dump("plan"), compiled.kernels
    first = compiled.explain()
    assert compiled.explain() is first
    assert (compiled.dump("region"), compiled.dump("plan"), compiled.kernels) == before
    inputs = [np.ones(shape, np.float32) for shape in shapes]
    compiled(*inputs)


def test_the_naive_program_has_no_steps() -> None:
    program = traced(lambda x: x.relu(), (5,))
    compiled = tinyc.optimize_and_compile(program, without=["movement"])
    explanation = compiled.explain()
    assert not explanation.kernels and "no rule is applied" in str(explanation)


def test_a_report_does_without_what_cannot_be_had(tmp_path: Path) -> None:
    path = user_rules(
        tmp_path, '(rewrite (Unary "RELU" x) x :when ((= 0 1)) :ruleset mine :name "mine/never")'
    )
    compiled = tinyc.optimize_and_compile(traced(lambda x: x.relu(), (5,)), rules=[path])
    path.unlink()  # the rules cannot run once more
    with pytest.raises(TinycError):
        compiled.explain()
    assert compiled.report.rules and all(rule.survives is None for rule in compiled.report.rules)


def test_an_unknown_kernel_and_a_dump_are_refused() -> None:
    compiled = tinyc.optimize_and_compile(traced(lambda x: x.relu(), (5,)))
    with pytest.raises(TinycError, match="there is no kernel") as unknown:
        compiled.explain("k_other")
    assert compiled.kernels[0].region.name in str(unknown.value)
    dumped = tinyc.optimize_and_compile(json.loads(compiled.dump("region")))
    with pytest.raises(TinycError, match="nothing to explain"):
        dumped.explain()
