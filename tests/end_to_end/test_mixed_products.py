"""Programs where products and other reductions meet: every product keeps a tiled kernel, nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc import functions as tc
from tinyc.ir.evaluate import evaluate

SQUARE = (256, 256)


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    shapes: tuple[tuple[int, int], ...]
    products: int
    kernels: int


CASES = {
    "sum_of_two": Case(lambda a, b, c, d: a @ b + c @ d, (SQUARE,) * 4, 2, 2),
    "sum_of_three": Case(lambda a, b, c, d, e, f: a @ b + c @ d + e @ f, (SQUARE,) * 6, 3, 3),
    "low_rank": Case(lambda x, w, a, b: x @ w + (x @ a) @ b, (SQUARE, SQUARE, (256, 8), (8, 256)), 3, 3),
    "gated": Case(lambda x, a, b: (x @ a).relu() * (x @ b), (SQUARE,) * 3, 2, 2),
    "chain": Case(lambda a, b, c: (a @ b) @ c, (SQUARE,) * 3, 2, 2),
    "row_sums": Case(lambda a, b: (a @ b).relu().sum(1), (SQUARE,) * 2, 1, 2),
    "softmax": Case(lambda a, b: tc.softmax(a @ b, 1), (SQUARE,) * 2, 1, 2),
    "normalised_operand": Case(lambda a, b: (a / a.max(1, keepdims=True)) @ b, (SQUARE,) * 2, 1, 2),
    "residual": Case(lambda x, w, v: x + (x @ w).relu() @ v, (SQUARE,) * 3, 2, 2),
}


def compiled(case: Case) -> tinyc.Compiled:
    return tinyc.optimize_and_compile(
        tinyc.trace(case.function, *(tinyc.spec("fp32", shape) for shape in case.shapes))
    )


@pytest.mark.parametrize("name", CASES)
def test_every_product_is_tiled(name: str) -> None:
    case = CASES[name]
    found = compiled(case)
    assert [kernel.plan.algo for kernel in found.kernels].count("contraction") == case.products
    assert len(found.kernels) == case.kernels
    generator = np.random.default_rng(0)
    names = [port.name for port in found.program.inputs]
    arrays = {
        each: generator.normal(size=shape).astype(np.float32)
        for each, shape in zip(names, case.shapes, strict=True)
    }
    (want,) = evaluate(found.program, arrays, float64=True)
    np.testing.assert_allclose(found(**arrays), want, rtol=1e-3, atol=1e-3 * float(np.abs(want).max()))


def test_a_residual_stream_is_stored_not_added_up_again() -> None:
    """Later layers read the sum so far, not the outputs of all layers before them: a kernel of a deep stack reads no
    more buffers than one of a shallow stack, and is no other kernel."""

    def stack(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = x + tc.layer_norm(x) @ weight
        return x

    shallow, deep = (compiled(Case(stack, ((64, 64),) * (layers + 1), layers, 0)) for layers in (8, 16))
    assert len(deep.kernels) == 2 * len(shallow.kernels)
    most = [max(len(kernel.region.inputs) for kernel in found.kernels) for found in (shallow, deep)]
    assert most[1] <= most[0] <= 3
    assert deep.executable.unique_kernels <= shallow.executable.unique_kernels


SIZES = [
    (1, 2, 8, 8, 8),
    (1, 8, 128, 128, 64),
    (1, 8, 256, 77, 40),
    (4, 8, 128, 2048, 128),
    (2, 3, 17, 33, 5),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
def test_attention_takes_at_most_three_kernels(
    size: tuple[int, int, int, int, int], mask: bool, target: str
) -> None:
    batch, heads, rows, columns, width = size
    query, key = (tinyc.spec("fp32", (batch, heads, length, width)) for length in (rows, columns))
    extra = (tinyc.spec("fp32", (rows, columns)),) if mask else ()
    program = tinyc.trace(lambda q, k, v, *m: tc.attention(q, k, v, *m), query, key, key, *extra)
    whole = tinyc.optimize_and_compile(program, target=target, without=["splitk"]).report
    assert not whole.fallback
    # more of them only where it is proved that no three cost less
    assert whole.total.kernels <= 3 or (whole.search is not None and whole.search.optimal)
    greedy = tinyc.optimize_and_compile(
        program, target=target, without=["splitk"], budget=tinyc.Budget(extract_seconds=0)
    )
    assert greedy.report.total.kernels <= 3
