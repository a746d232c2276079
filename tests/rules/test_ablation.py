"""Every ruleset but the base lowering left out, one at a time: the program stays right, and somewhere it gets worse.

This is what keeps optimisations in the rules: were one hidden in Python, leaving its ruleset out would cost nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_checks import Array, check_values

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
DOCUMENTS = tuple(sorted(path.name for path in FOLDER.glob("*.json")))

BASE = ("index", "prop", "movement")
"""The base lowering: it spells the program as elements of buffers (rules/README.md)."""

CHECKING = ("check",)
"""Adds nothing; it stops the engine where a rule was wrong."""

RULESETS = tuple(r.name for r in load_rules().rulesets if r.default and r.name not in (*BASE, *CHECKING))

#: ruleset -> an example that gets worse without it
MATTERS = {
    "guard": "smooth_interior.json",
    "fuse": "transformer_block.frontend.json",
    "chains": "transformer_block.frontend.json",
    "resplit": "conv_grouped.json",
    "identity": "residual_defaults.json",
    "strength": "gradient_step.json",
    "division": "softmax.json",
    "srnf": "dequantised_matmul.json",
    "monotone": "relu_max_pool.json",
    "contraction": "gemm_bias_relu.json",
    "streaming": "attention_causal.json",
}

#: the same on sm80, whose estimates know of blocks, tiles and accesses out of order; at sizes at which they matter
ON_A_GPU: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "splitk": ("gemm_bias_relu.json", {"M": 64, "N": 64, "K": 4096}),
    "layout": ("turned", {"M": 4096, "N": 4096}),
    "extents": ("gemm_bias_relu.json", {"M": 64, "N": 64, "K": 4096}),
    "problem": ("gemm_bias_relu.json", {"M": 64, "N": 64, "K": 4096}),
    "plan": ("gemm_bias_relu.json", {"M": 64, "N": 64, "K": 4096}),
}

QUICK = (
    "attention_causal.json",
    "conv3x3_s2_p1.json",
    "gemm_bias_relu.json",
    "layernorm.json",
    "movement_chain.json",
)
"""Together with those that matter, what is compiled without each ruleset in every run; all of them where marked slow."""

SIZES = {"M": 40, "N": 24, "K": 36, "H": 9, "W": 10, "B": 2, "D": 8, "T": 12}


@functools.cache
def program(name: str) -> Program:
    loaded = tinyc.load(FOLDER / name)
    sizes = {**SIZES, **({"N": 2} if name.startswith("conv") else {})}
    return bind(loaded, {symbol: sizes[symbol] for symbol in loaded.symbols})


@functools.cache
def optimised(name: str, without: str = "") -> tinyc.Compiled:
    return tinyc.optimize_and_compile(program(name), without=[without] if without else [])


def inputs(name: str) -> dict[str, Array]:
    """Of size 1 after every layer: a matrix [k, n] is scaled by k ** -0.5."""
    arrays: dict[str, Array] = {}
    for number, port in enumerate(program(name).inputs):
        kind = program(name).types[port.node]
        shape = tuple(map(int, kind.shape))
        scale = shape[0] ** -0.5 if len(shape) == 2 and shape[0] > 1 else 0.5
        values = np.random.default_rng(number).normal(size=shape) * scale
        arrays[port.name] = values.astype(kind.dtype.numpy)
    return arrays


def check(name: str, without: str) -> None:
    left_out = optimised(name, without)
    assert left_out.report.complete and not left_out.report.warnings[1:], left_out.report.warnings
    if [kernel.source for kernel in left_out.kernels] != [
        kernel.source for kernel in optimised(name).kernels
    ]:
        check_values(left_out, inputs(name))


def figures(compiled: tinyc.Compiled) -> dict[str, float]:
    """What a reader of the report sees; larger is worse."""
    total = compiled.report.total
    return {
        "kernels": total.kernels,
        "flops": total.flops,
        "bytes": total.bytes,
        "compute_s": total.terms_s.get("compute", 0.0),
        "piecewise_s": total.terms_s.get("piecewise", 0.0),
        "loops instead of tiles": -sum(kernel.plan.contraction is not None for kernel in compiled.kernels),
    }


def worse(name: str, without: str) -> list[str]:
    """The figures that grow by 1 % or more without the ruleset."""
    full, left_out = figures(optimised(name)), figures(optimised(name, without))
    return [key for key in full if left_out[key] > full[key] + 0.01 * abs(full[key])]


def test_every_ruleset_has_an_example() -> None:
    assert {*MATTERS, *ON_A_GPU} == set(RULESETS)


def turned(rows: int, columns: int) -> Program:
    """Many kernels that read a matrix across."""

    def fn(x: Any) -> Any:
        return tuple((x.transpose(1, 0) * float(n + 2) + 1.0).relu() for n in range(16))

    return tinyc.trace(fn, tinyc.spec("fp32", (rows, columns)))


@pytest.mark.parametrize("ruleset", ON_A_GPU)
def test_some_program_takes_longer_without_on_a_gpu(ruleset: str) -> None:
    name, sizes = ON_A_GPU[ruleset]
    source = turned(*sizes.values()) if name == "turned" else bind(tinyc.load(FOLDER / name), dict(sizes))
    full = tinyc.optimize_and_compile(source, "sm80")
    left_out = tinyc.optimize_and_compile(source, "sm80", without=[ruleset])
    assert left_out.report.total.time_s > 1.01 * full.report.total.time_s


@pytest.mark.parametrize("ruleset", MATTERS)
def test_some_example_is_worse_without(ruleset: str) -> None:
    assert worse(MATTERS[ruleset], ruleset), (
        "nothing changes: the ruleset does nothing, or Python does its work"
    )


@pytest.mark.parametrize("name", sorted({*QUICK, *MATTERS.values()}))
def test_the_whole_rule_base_is_right(name: str) -> None:
    report = optimised(name).report
    assert report.complete and not report.fallback and not report.warnings
    check_values(optimised(name), inputs(name))


@pytest.mark.parametrize("ruleset", (*BASE, *CHECKING, *RULESETS))
def test_right_without_one_ruleset(ruleset: str) -> None:
    for name in sorted({*QUICK, MATTERS.get(ruleset, QUICK[0])}):
        check(name, ruleset)


@pytest.mark.parametrize("ruleset", BASE)
def test_without_the_base_lowering_the_naive_program_runs(ruleset: str) -> None:
    report = optimised(QUICK[0], ruleset).report
    assert report.fallback and [warning.kind for warning in report.warnings] == ["EngineLost"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_right_without_each_ruleset_on_every_example(name: str) -> None:
    check_values(optimised(name), inputs(name))
    for ruleset in (*BASE, *CHECKING, *RULESETS):
        check(name, ruleset)


def test_all_optimisations_left_out_at_once_is_right() -> None:
    for name in QUICK:
        compiled = tinyc.optimize_and_compile(program(name), without=RULESETS)
        check_values(compiled, inputs(name))
