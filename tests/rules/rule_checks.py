"""Programs of the rule tests: how they are compiled, what is read off their kernels, what their values must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tinyc
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program

Array = np.ndarray[Any, Any]
TOLERANCE = {"fp32": 1e-3, "fp16": 1e-3, "bf16": 1.6e-2}
"""Relative and absolute: document 004 §13, and half a step of bf16; integers and bools are exact."""


def traced(function: Callable[..., Any], **shapes: tuple[int, ...] | tuple[str, tuple[int, ...]]) -> Program:
    """``traced(f, x=(4, 6), n=("i32", (3,)))``: inputs are fp32 where no dtype is said."""
    specs = {}
    for name, kind in shapes.items():
        dtype, shape = kind if kind and isinstance(kind[0], str) else ("fp32", kind)
        specs[name] = tinyc.spec(dtype, shape)  # type: ignore[arg-type]
    return tinyc.trace(function, **specs)


def compiled(program: Any, **options: Any) -> tinyc.Compiled:
    """Compiles; the e-graph must have saturated and given the program, with no warning."""
    result = tinyc.optimize_and_compile(program, **options)
    report = result.report
    assert report.complete and not report.fallback and not report.warnings, report.warnings
    return result


def normal_inputs(program: Program, seed: int = 0, scale: float = 1.0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    arrays = {}
    for port in program.inputs:
        kind = program.types[port.node]
        values = generator.normal(size=tuple(map(int, kind.shape))) * scale
        if kind.dtype.value in ("i32", "bool"):
            values = generator.integers(
                0 if kind.dtype.value == "bool" else -9, 2 if kind.dtype.value == "bool" else 10, values.shape
            )
        arrays[port.name] = np.asarray(values).astype(kind.dtype.numpy)
    return arrays


def outputs(program: tinyc.Compiled, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    result = program(**inputs)
    return result if isinstance(result, tuple) else (result,)


def check_values(program: tinyc.Compiled, inputs: Mapping[str, Array] | None = None) -> None:
    """Against the evaluator, within the tolerance of each output's dtype. NaN and infinities in the same places."""
    given = normal_inputs(program.program) if inputs is None else inputs
    wanted = evaluate(program.program, given)
    for port, got, want in zip(program.program.outputs, outputs(program, given), wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        bound = TOLERANCE.get(program.program.types[port.node].dtype.value, 0.0)
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=bound, atol=bound, err_msg=port.name
        )


def check_exact(program: tinyc.Compiled, inputs: Mapping[str, Array]) -> None:
    """Against the evaluator, bit for bit but for the sign of a zero."""
    for got, want in zip(outputs(program, inputs), evaluate(program.program, inputs), strict=True):
        assert got.dtype == want.dtype
        with np.errstate(invalid="ignore"):  # a signalling NaN is a value like any other here
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def operators(program: tinyc.Compiled) -> Counter[str]:
    """How often each operator occurs in the kernels' Regions, as "Unary EXP2" or "Read"."""
    found: Counter[str] = Counter()
    for kernel in program.kernels:
        for let in kernel.region.lets:
            found[f"{type(let.value).__name__} {getattr(let.value, 'op', '')}".strip()] += 1
    return found
