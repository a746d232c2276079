"""Ruleset tf32: fp32 products through matrix units where the user asks for it, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_checks import normal_inputs, traced

import tinyc
from tinyc import functions as tc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline, Work
from tinyc.extract.plans.candidate import candidates_of
from tinyc.extract.plans.candidate_check import candidate_fault
from tinyc.ir.evaluate import evaluate
from tinyc.ir.resources import LIMITS
from tinyc.ir.tiny import ROUNDED, Program
from tinyc.ir.verify import bind
from tinyc.rulecheck.check import check_text, load_base
from tinyc.rulecheck.mutate import mutants

ASKED = ("tf32",)
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
BOUND = 2.0**-10


def product(
    sizes: tuple[int, int, int], at: bool = False, bt: bool = False, batch: tuple[int, ...] = ()
) -> Program:
    m, n, k = sizes

    def turned(x: Any, turn: bool) -> Any:
        axes = range(len(batch))
        return x.permute(*axes, len(batch) + 1, len(batch)) if turn else x

    return traced(
        lambda a, b: turned(a, at) @ turned(b, bt),
        a=(*batch, k, m) if at else (*batch, m, k),
        b=(*batch, n, k) if bt else (*batch, k, n),
    )


def made(program: Program, target: str = "sm80", also: tuple[str, ...] = ASKED) -> tinyc.Compiled:
    return tinyc.optimize_and_compile(program, target, also=also)


def roundings(compiled: tinyc.Compiled) -> int:
    lets = [let.value for kernel in compiled.kernels for let in kernel.region.lets]
    return sum(getattr(value, "op", "") == ROUNDED for value in lets)


def emulated(compiled: tinyc.Compiled, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, Any]:
    result = compiled.emulate(**inputs)
    assert not result.findings, result.findings
    (got,) = result.outputs
    return got, result.counters


PRODUCTS: dict[str, Program] = {
    "150x130x70": product((150, 130, 70)),
    "150x130x70, A turned": product((150, 130, 70), at=True),
    "128x256x64, B turned": product((128, 256, 64), bt=True),
    "257x129x33, both turned": product((257, 129, 33), at=True, bt=True),
    "3 of 96x96x40": product((96, 96, 40), batch=(3,)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_within_the_bound_of_the_program_itself(name: str) -> None:
    """|got - real| <= 2^-10 sum|a||b| + that of fp32; and integers of 10 bits are exact."""
    program = PRODUCTS[name]
    compiled = made(program)
    (kernel,) = compiled.kernels
    assert roundings(compiled) == 2 and kernel.plan.algo == "contraction" and "mma_tf32" in kernel.source
    k = int(name.split(",")[0].split("x")[-1])
    inputs = normal_inputs(program)
    got, counters = emulated(compiled, inputs)
    (real,) = evaluate(program, inputs, float64=True)
    (size,) = evaluate(program, {each: np.abs(x) for each, x in inputs.items()}, float64=True)
    assert (np.abs(got - real) <= (BOUND + (k + 2) * 2.0**-24) * size).all()
    (plain,) = evaluate(program, inputs)
    assert (got != plain).any(), "mantissas of 23 bits are rounded"
    (each,) = counters.values()
    assert each.tensor_operations and any("tf32" in op for op in each.instructions if op.startswith("mma"))
    generator = np.random.default_rng(1)
    whole = {each: generator.integers(-400, 401, x.shape).astype(np.float32) for each, x in inputs.items()}
    np.testing.assert_array_equal(emulated(compiled, whole)[0], evaluate(program, whole)[0])


def test_a_product_with_an_epilogue_and_a_convolution() -> None:
    gemm = traced(lambda a, b, c: (a @ b + c).relu(), a=(128, 64), b=(64, 128), c=(128,))
    conv = traced(lambda x, w: tc.conv(x, w, pad=1), x=(2, 32, 16, 16), w=(64, 32, 3, 3))
    for program, largest in ((gemm, 300), (conv, 100)):
        compiled = made(program)
        assert roundings(compiled) == 2
        generator = np.random.default_rng(2)
        shapes = {port.name: program.types[port.node].shape for port in program.inputs}
        inputs = {
            name: generator.integers(-largest, largest + 1, shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        result = compiled.emulate(**inputs)
        assert not result.findings
        np.testing.assert_array_equal(result.outputs[0], evaluate(program, inputs)[0])


@pytest.mark.parametrize("target", ["sm80", "sm89", "sm90"])
def test_nobody_gets_it_who_did_not_ask(target: str) -> None:
    program = product((1024, 1024, 1024))
    plain, asked = made(program, target, ()), made(program, target)
    assert roundings(plain) == 0 and not any("tf32" in kernel.source for kernel in plain.kernels)
    assert roundings(asked) == 2
    assert asked.report.total.time_s < plain.report.total.time_s
    assert "tf32" not in str(plain.report.quick())


def test_a_cpu_has_no_such_units() -> None:
    program = product((64, 64, 64))
    plain, asked = made(program, "cpu", ()), made(program, "cpu")
    assert asked.kernels[0].source == plain.kernels[0].source and roundings(asked) == 0


UNCHANGED: dict[str, Callable[[], Program]] = {
    "halves": lambda: traced(lambda a, b: a @ b, a=("fp16", (128, 128)), b=("fp16", (128, 128))),
    "halves and fp32": lambda: traced(
        lambda a, b: a.cast("fp32") @ b, a=("fp16", (128, 128)), b=("fp32", (128, 128))
    ),
    "integers": lambda: traced(lambda a, b: a @ b, a=("i32", (128, 128)), b=("i32", (128, 128))),
    "a sum": lambda: traced(lambda a: (a * a).sum(-1), a=(128, 128)),
    "a matrix and a vector": lambda: traced(lambda a, b: (a * b).sum(-1), a=(128, 128), b=(128,)),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_is_no_product_of_fp32_stays_as_it_is(name: str) -> None:
    assert roundings(made(UNCHANGED[name]())) == 0


@pytest.mark.parametrize("name", ["mlp2", "gated_mlp", "attention"])
def test_what_runs_as_loops_is_not_rounded_for_nothing(name: str) -> None:
    """Several sums in a kernel, or scores that are walked: no tile of theirs is multiplied by matrix units."""
    program = tinyc.load(EXAMPLES / f"{name}.json")
    program = bind(program, dict.fromkeys(program.symbols, 48))
    for kernel in made(program).kernels:
        rounded = any(getattr(let.value, "op", "") == ROUNDED for let in kernel.region.lets)
        assert rounded is ("mma_tf32" in kernel.source)


def test_it_saturates_and_rounds_once() -> None:
    found = saturate(product((128, 128, 128)), load_rules(), also=ASKED, machine=LIMITS["sm80"])
    assert found.graph is not None
    rounded = [
        node for nodes in found.graph.classes.values() for node in nodes if node.args[:1] == (f"'{ROUNDED}",)
    ]
    assert len(rounded) == 2 and len(found.graph.contracts) == 2


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_its_candidates_are_legal(target: str) -> None:
    for shape in ((512, 512, 512), (40, 24, 8), (100, 36, 20)):
        found = saturate(product(shape), load_rules(), also=ASKED, machine=LIMITS[target])
        every = {
            problem: each
            for problem, each in candidates_of(found.graph, target).items()
            if problem[0] == "Product"
        }
        assert {str(problem[1]) for problem in every} == {"matmul", "matmul-tf32"}
        for problem, candidates in every.items():
            assert 0 < len(candidates) <= 20
            for each in candidates:
                assert candidate_fault(problem, each, LIMITS[target]) is None


def test_a_tile_is_one_line_of_a_users_file(tmp_path: Any) -> None:
    mine = tmp_path / "mine.egg"
    mine.write_text('(tile-shape "sm80-tf32" 128 128 16)\n')
    program = product((512, 512, 512))
    found = saturate(program, load_rules([mine]), also=ASKED, machine=LIMITS["sm80"])
    tiles = {
        each.tile
        for problem, every in candidates_of(found.graph, "sm80").items()
        if problem[1] == "matmul-tf32"
        for each in every
    }
    assert (128, 128, 16) in tiles


def test_its_rate_is_that_of_the_matrix_units_for_tf32() -> None:
    for target, rate in (("sm80", 156e12), ("sm86", 62.5e12), ("sm89", 183e12), ("sm90", 495e12)):
        model = Roofline(hardware(target))
        assert model.terms(Work(tf32_flops=rate))["compute"] == pytest.approx(1)
    work = made(product((256, 256, 256))).report.kernels[0]
    assert work.flops == 2 * 256**3


def test_report_and_explanation_name_the_rule() -> None:
    compiled = made(product((128, 128, 64)))
    assert "tf32/rounded" in str(compiled.report)
    explanation = compiled.explain()
    (step,) = (each for each in explanation.steps if each.rule == "tf32/rounded")
    assert step.checked and step.klass == "BOUNDED" and step.ruleset == "tf32"
    assert "tf32(load a[i0, r0])" in step.after


def test_a_program_with_it_runs_on_every_target() -> None:
    """A Region that holds it, handed to another machine: what playback says, bit for bit where sums are exact."""
    compiled = made(product((128, 96, 40)))
    assert roundings(compiled) == 2
    document = json.loads(compiled.dump("region"))
    generator = np.random.default_rng(5)
    inputs = {"a": generator.integers(-99, 100, (128, 40)), "b": generator.integers(-99, 100, (40, 96))}
    given = {name: (x / 64 + 2.0**-13).astype(np.float32) for name, x in inputs.items()}
    want, (whole,) = compiled.playback(**given), evaluate(compiled.program, given)
    assert (want != whole).any()
    for target in ("cpu", "sm80", "sm90"):
        resumed = tinyc.optimize_and_compile(document, target)
        got = resumed(**given) if target == "cpu" else emulated(resumed, given)[0]
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


BASE = load_base()


def test_the_checker_refutes_it_without_its_guard() -> None:
    (guard,) = (
        each
        for each in mutants(BASE.rules["tf32/rounded"], BASE)
        if each.id.endswith('(= "fp32" (dtype-of a))')
    )
    (verdict,) = check_text(guard.text, BASE)
    assert not verdict.sound
