"""Whole programs for a GPU, in the emulator: what they compute is what the evaluator says, and nothing is found wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from emulated_checks import GREEDY, check_close, check_emulated, check_exact, emulated, stays_exact
from end_checks import arrays_of, integer_inputs, traced

import tinyc
from tinyc.codegen.emulator import DELIVERIES
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))
SIZE = 6


def example(number: int) -> tuple[Program, dict[str, np.ndarray]]:
    """With each symbol of one size, and data for it."""
    program = tinyc.load(EXAMPLES[number])
    program = bind(program, dict.fromkeys(program.symbols, SIZE))
    generator = np.random.default_rng(number)
    return program, arrays_of(program, lambda shape: generator.normal(size=shape) / 4)


def share(number: int) -> float:
    """Of the results, of which the bound of the arithmetic says something: of a block's many roundings nothing."""
    return 0 if "transformer" in EXAMPLES[number].stem else 0.5


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=lambda number: EXAMPLES[number].stem)
def test_an_example_computes_what_the_evaluator_says(number: int) -> None:
    program, inputs = example(number)
    compiled = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY)
    integers = integer_inputs(program, 2)
    exact = [integers] if stays_exact(program, integers) else []
    check_emulated(compiled, [inputs], exact, share=share(number))


@pytest.mark.parametrize("number", range(1, len(EXAMPLES), 3), ids=lambda number: EXAMPLES[number].stem)
def test_an_example_for_sm90_computes_the_same(number: int) -> None:
    program, inputs = example(number)
    compiled = tinyc.optimize_and_compile(program, "sm90", budget=GREEDY)
    check_close(program, emulated(compiled, inputs), inputs, share(number))


def test_every_delivery_gives_the_same_integers() -> None:
    program = traced(lambda a, b, c: (a @ b + c).relu(), "fp16", a=(9, 20), b=(20, 33), c=(33,))
    compiled = tinyc.optimize_and_compile(program, "sm80")
    inputs = integer_inputs(program)
    (wanted,) = evaluate(program, inputs)
    for delivery in DELIVERIES:
        (got,) = emulated(compiled, inputs, delivery=delivery, seed=3)
        assert np.array_equal(got, wanted)


def test_symbols_are_bound_by_what_is_emulated() -> None:
    compiled = tinyc.optimize_and_compile(
        EXAMPLES[[path.stem for path in EXAMPLES].index("gemm_bias_relu")], "sm80"
    )
    shapes = {"M": 3, "N": 4, "K": 5}
    program = bind(compiled.program, shapes)
    inputs = integer_inputs(program)
    result = compiled.emulate(*inputs.values())
    assert isinstance(result.outputs, tuple)
    check_exact(program, result.outputs, inputs)


def test_what_cannot_be_emulated_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    program = traced(lambda a: -a, "fp32", a=(4,))
    data = np.ones(4, np.float32)
    for compiled, options, kind in (
        (tinyc.optimize_and_compile(program), {}, "TargetUnavailable"),
        (tinyc.optimize_and_compile(program, "sm80"), {"delivery": "soon"}, "InvalidArgument"),
    ):
        with pytest.raises(TinycError) as caught:
            compiled.emulate(data, **options)
        assert caught.value.kind == kind
    with pytest.raises(TinycError, match="shape"):
        tinyc.optimize_and_compile(program, "sm80").emulate(np.ones(5, np.float32))
    with pytest.raises(TinycError) as caught:
        tinyc.optimize_and_compile(program, "sm80")(data)
    assert "emulate" in caught.value.suggestion


def test_counters_say_what_a_kernel_did() -> None:
    program = traced(lambda a: a + 1.0, "fp32", a=(64, 32))
    compiled = tinyc.optimize_and_compile(program, "sm80")
    (counters,) = compiled.emulate(np.zeros((64, 32), np.float32)).counters.values()
    load, store = counters.global_
    assert load.sectors == load.ideal == 256 and store.sectors == store.ideal == 256
    assert counters.bank_conflicts == 0


@pytest.mark.spec("I-55", "004-001")
@pytest.mark.parametrize("target", ["sm86", "sm89"])
def test_smaller_machines_run_the_kernels_of_sm80(target: str) -> None:
    """With Plans for the shared memory that they have."""
    program = traced(lambda a, b, c: (a @ b + c).relu(), "fp16", a=(65, 512), b=(512, 200), c=(200,))
    compiled = tinyc.optimize_and_compile(program, target)
    inputs = integer_inputs(program)
    (wanted,) = evaluate(program, inputs)
    (got,) = emulated(compiled, inputs)
    assert np.array_equal(got, wanted)
    assert {kernel.plan.arch for kernel in compiled.kernels} == {"sm80"}
    assert {each.arch for each in compiled.report.usage} == {f"sm_{target[2:]}"}


def test_what_is_computed_of_a_transposition_is_no_kernel_beside_it() -> None:
    """It goes through shared memory on its way: whole sectors, no copy."""
    program = traced(lambda x, y: (x.T * 2.0 + y).relu(), "fp16", x=(96, 160), y=(160, 96))
    compiled = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY)
    (kernel,) = compiled.kernels
    inputs = integer_inputs(program)
    result = compiled.emulate(**inputs)
    assert not result.findings
    check_exact(program, result.outputs, inputs)
    counted = result.counters[kernel.region.name].global_
    assert sum(each.sectors for each in counted) == 3 * 96 * 160 * 2 // 32
