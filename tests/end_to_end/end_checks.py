"""What every end-to-end test asks of a compiled program: its values, and the structure of what was extracted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tinyc
from tinyc.ir.evaluate import evaluate
from tinyc.ir.region import Axis, Reduce, Region, Select
from tinyc.ir.tiny import Program

Arrays = Mapping[str, np.ndarray]
Compiled = tinyc.Compiled

TOLERANCE = {"fp32": 1e-3, "fp16": 1e-3, "bf16": 1.6e-2}
"""Relative and absolute: document 004 §13, and half a step of bf16."""

UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Unit roundoff."""


def compiled_from(source: Any, **options: Any) -> Compiled:
    """Compiles a document or a traced program; the e-graph must have saturated, without a warning."""
    compiled = tinyc.optimize_and_compile(source, **options)
    report = compiled.report
    assert report.complete and not report.fallback and not report.warnings, report.warnings
    return compiled


def traced(function: Callable[..., Any], dtype: str, **shapes: tuple[int, ...]) -> Program:
    return tinyc.trace(function, **{name: tinyc.spec(dtype, shape) for name, shape in shapes.items()})


# ---- inputs ----


def arrays_of(program: Program, make: Callable[[tuple[int, ...]], Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for port in program.inputs:
        kind = program.types[port.node]
        arrays[port.name] = np.asarray(make(tuple(map(int, kind.shape)))).astype(kind.dtype.numpy)
    return arrays


def normal_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return arrays_of(program, lambda shape: generator.normal(size=shape))


def integer_inputs(program: Program, largest: int = 4, seed: int = 0) -> dict[str, np.ndarray]:
    """Integers so small that sums of their products are exact in fp32."""
    generator = np.random.default_rng(seed)
    return arrays_of(program, lambda shape: generator.integers(-largest, largest + 1, shape))


# ---- values ----


def outputs_of(compiled: Compiled, inputs: Arrays) -> tuple[np.ndarray, ...]:
    result = compiled(**inputs)
    return result if isinstance(result, tuple) else (result,)


def check_values(compiled: Compiled, inputs: Arrays) -> None:
    """Within the tolerance of the output's dtype."""
    wanted = evaluate(compiled.program, inputs)
    for port, got, want in zip(compiled.program.outputs, outputs_of(compiled, inputs), wanted, strict=True):
        bound = TOLERANCE[compiled.program.types[port.node].dtype.value]
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=bound, atol=bound, err_msg=port.name
        )


def check_exact(compiled: Compiled, inputs: Arrays) -> None:
    """Bit for bit; and the program's integers are exact, or this would show nothing: fp32 and float64 agree."""
    wanted = evaluate(compiled.program, inputs), evaluate(compiled.program, inputs, float64=True)
    for got, want, real in zip(outputs_of(compiled, inputs), *wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(want, real.astype(want.dtype))
        np.testing.assert_array_equal(got, want)


def check_bound(compiled: Compiled, inputs: Arrays, terms: int) -> None:
    """|got - real| <= (terms + 2) u sum|a||b| + rounding of the result, in every component.

    ``terms``: how many products each sum has. For programs whose value at absolute inputs is the sum of the absolute
    values (products, sums, a bias, ReLU); nothing else about the order of summation is assumed.
    """
    real = evaluate(compiled.program, inputs, float64=True)
    sizes = evaluate(compiled.program, {name: np.abs(array) for name, array in inputs.items()}, float64=True)
    ports = compiled.program.outputs
    for port, got, want, size in zip(ports, outputs_of(compiled, inputs), real, sizes, strict=True):
        unit = UNIT[compiled.program.types[port.node].dtype.value]
        bound = (terms + 2) * UNIT["fp32"] * size * (1 + unit) + unit * np.abs(want) + 1e-30
        tiny = 2.0**-25 if unit == UNIT["fp16"] else 0.0  # half a subnormal step
        assert (np.abs(got.astype(np.float64) - want) <= bound + tiny).all(), port.name


# ---- structure ----


def reductions(region: Region) -> list[Reduce]:
    return [let.value for let in region.lets if isinstance(let.value, Reduce)]


def contractions(region: Region) -> list[Reduce]:
    lets = {let.name: let.value for let in region.lets}
    return [
        found
        for found in reductions(region)
        if found.op == "SUM" and getattr(lets[found.body], "op", None) == "MUL"
    ]


def axis_sizes(axes: tuple[Axis, ...]) -> list[int]:
    return [axis.size for axis in axes]


def only_kernel(compiled: Compiled) -> tinyc.compiler.KernelInfo:
    (kernel,) = compiled.kernels
    return kernel


def buffers(compiled: Compiled) -> list[tuple[int, ...]]:
    """The shapes of all buffers, operands included."""
    return [buffer.shape for buffer in compiled.plan.buffers]


def largest_intermediate(compiled: Compiled) -> int:
    """Elements of the largest buffer that is neither an input nor an output; 0 where there is none."""
    outside = {*compiled.plan.input_buffers, *compiled.plan.output_buffers}
    inner = [buffer for buffer in compiled.plan.buffers if buffer.id not in outside]
    return max((int(np.prod(buffer.shape, dtype=np.int64)) for buffer in inner), default=0)


def check_tiled(kernel: tinyc.compiler.KernelInfo, m: int = 1, n: int = 1, k: int = 1) -> None:
    """The kernel's one reduction is a contraction that the Plan tiles, with as many axes of each role."""
    assert len(reductions(kernel.region)) == len(contractions(kernel.region)) == 1
    assert kernel.plan.algo == "contraction"
    roles = kernel.plan.contraction
    assert roles is not None
    assert (len(roles.m), len(roles.n), len(roles.k)) == (m, n, k), roles


def guards(region: Region) -> int:
    return sum(isinstance(let.value, Select) for let in region.lets)
