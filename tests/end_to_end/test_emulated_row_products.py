"""Programs in which rows of a product are reduced, as the search plans them for a GPU, in the emulator."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from end_checks import TOLERANCE, arrays_of, traced

import tinyc
from tinyc import functions
from tinyc.codegen.cuda import generate
from tinyc.codegen.emulator import DELIVERIES
from tinyc.ir.evaluate import evaluate
from tinyc.ir.resources import LIMITS, resources


def softened(x: Any, w: Any, b: Any) -> Any:
    return functions.softmax(x @ w + b)


def normed(x: Any, w: Any, b: Any, r: Any) -> Any:
    return functions.layer_norm(x @ w + b + r)


def scored(q: Any, k: Any) -> Any:
    return functions.softmax(q @ k.transpose((0, 2, 1)) * 0.25)


PROGRAMS: dict[str, tuple[Any, str, str, dict[str, tuple[int, ...]]]] = {
    "softmax": (softened, "fp16", "sm80", {"x": (300, 64), "w": (64, 100), "b": (100,)}),
    "LayerNorm": (normed, "fp16", "sm80", {"x": (512, 32), "w": (32, 48), "b": (48,), "r": (512, 48)}),
    "scores": (scored, "bf16", "sm80", {"q": (8, 100, 32), "k": (8, 64, 32)}),
    "in fp32": (softened, "fp32", "sm80", {"x": (512, 32), "w": (32, 48), "b": (48,)}),
    "several tiles": (softened, "fp16", "sm90", {"x": (4096, 64), "w": (64, 320), "b": (320,)}),
}


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=lambda number: list(PROGRAMS)[number])
def test_rows_are_reduced_in_the_kernel_of_their_product(number: int) -> None:
    """One kernel, with matrix units where the type has them, and with the shared memory that its Plan says."""
    function, dtype, target, shapes = list(PROGRAMS.values())[number]
    program = traced(function, dtype, **shapes)
    compiled = tinyc.optimize_and_compile(program, target)
    (kernel,) = compiled.kernels
    assert ("mma.sync" in kernel.source) is (dtype != "fp32")
    (gpu,) = json.loads(compiled.dump("gpu"))["gpu"]
    statements = {name for each in gpu["gpu_ir"]["stmts"] for name in each}
    assert gpu["schedule"] == "contraction" and "ReduceRows" in statements
    taken = resources(kernel.plan, kernel.region, LIMITS[target]).smem_bytes
    assert generate(kernel.region, kernel.plan).shared_bytes == taken <= LIMITS[target].smem_bytes
    generator = np.random.default_rng(number)
    inputs = arrays_of(program, lambda shape: generator.normal(size=shape) / 4)
    result = compiled.emulate(**inputs, delivery=DELIVERIES[number % len(DELIVERIES)])
    assert not result.findings, result.findings[0]
    for value, want in zip(result.outputs, evaluate(program, inputs), strict=True):
        a, b = (each.astype(np.float64) for each in (value, want))
        np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("columns", [1024, 4000])
def test_rows_for_which_a_block_has_no_room_are_reduced_elsewhere(columns: int) -> None:
    program = traced(softened, "fp32", x=(4096, 32), w=(32, columns), b=(columns,))
    compiled = tinyc.optimize_and_compile(program, "sm80")
    for kernel in compiled.kernels:
        taken = resources(kernel.plan, kernel.region, LIMITS["sm80"]).smem_bytes
        assert taken <= LIMITS["sm80"].smem_bytes
    assert len(compiled.kernels) == 2
