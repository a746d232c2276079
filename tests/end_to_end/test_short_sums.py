"""Sums so short that the widest accesses would leave two to fewer than eight threads: they are shared with narrower ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc.codegen.emulator import DELIVERIES
from tinyc.ir.evaluate import evaluate

Function = Callable[..., Any]

CASES: list[tuple[Function, list[tuple[int, ...]], str, int]] = [
    (lambda x: x.cast("fp32").sum(axis=1).cast("fp16"), [(40, 64)], "fp16", 4),
    (lambda x, w: x @ w.permute(1, 0), [(1, 64), (48, 64)], "fp16", 4),
    (lambda x, w: x @ w.permute(1, 0), [(3, 48), (33, 48)], "fp16", 2),
    (lambda x, w: x @ w.permute(1, 0), [(1, 16), (48, 16)], "fp32", 1),
    (lambda x: x.max(axis=1), [(100, 24)], "fp32", 1),
]
"""With the elements of an access."""


@pytest.mark.parametrize("target", ["sm80", "sm90"])
@pytest.mark.parametrize("function, shapes, dtype, width", CASES)
def test_a_short_sum_is_shared(
    function: Function, shapes: list[tuple[int, ...]], dtype: str, width: int, target: str
) -> None:
    """Integers are summed exactly, in whatever order. A sum of 64 of which a thread has two accesses of 16 bytes is shared by four
    threads, and eight are the fewest of the table: each point had a thread for itself."""
    program = tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))
    compiled = tinyc.optimize_and_compile(program, target)
    (kernel,) = compiled.kernels
    assert kernel.plan.tile is not None and kernel.plan.tile[2] == 8
    assert kernel.plan.vectorize is not None and kernel.plan.vectorize.width == width
    rng = np.random.default_rng(3)
    kind = {"fp16": np.float16, "fp32": np.float32}[dtype]
    arrays = {
        port.name: rng.integers(-2, 3, shape).astype(kind)
        for port, shape in zip(program.inputs, shapes, strict=True)
    }
    (expected,) = evaluate(program, arrays)
    for delivery in DELIVERIES:
        found = compiled.emulate(**arrays, delivery=delivery)
        np.testing.assert_array_equal(np.asarray(found.outputs[0]), expected)
        assert not found.findings
