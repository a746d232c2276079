"""Products for sm80 in the emulator: the sizes that issue 5 lists, every layout, dtype, batch, epilogue and alignment.

Each as it is compiled by default, where loops may cost less, and in tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from emulated_checks import GREEDY, OnMatrixUnits, check_emulated, tiled
from end_checks import Arrays, arrays_of, integer_inputs, normal_inputs, traced

import tinyc
from tinyc import functions as tc
from tinyc.ir.tiny import Program

Tensor = Any
Shape = tuple[int, ...]

SIZES = [(150, 130, 70), (128, 256, 64), (1, 1, 1), (257, 129, 33), (72, 40, 8)]
LAYOUTS = ["NN", "NT", "TN", "TT"]
DTYPES = ["fp16", "bf16", "fp32", "i32"]
LARGEST = {"fp16": 4, "bf16": 2, "fp32": 8}
"""Integers whose sums of products are exact, in the result's dtype as well for all but a few."""


def compiled_for(program: Program, in_tiles: bool) -> tinyc.Compiled:
    model = OnMatrixUnits() if in_tiles else None
    return tinyc.optimize_and_compile(program, "sm80", budget=GREEDY, cost_model=model)


def exact_inputs(program: Program, dtype: str) -> Arrays:
    if dtype != "i32":
        return integer_inputs(program, LARGEST[dtype])
    generator = np.random.default_rng(0)
    return arrays_of(program, lambda shape: generator.integers(-(2**31), 2**31, shape))  # which wraps


def check(program: Program, dtype: str, in_tiles: bool, every: bool = False) -> None:
    compiled = compiled_for(program, in_tiles)
    assert len(tiled(compiled)) == 1 or not in_tiles
    close = [] if dtype == "i32" else [normal_inputs(program, 1)]
    check_emulated(compiled, close, [exact_inputs(program, dtype)], every)


# ---- sizes, layouts, dtypes -----------------------------------------------------------------------------------------------


def product(size: tuple[int, int, int], layout: str, dtype: str) -> Program:
    m, n, k = size

    def gemm(A: Tensor, B: Tensor, bias: Tensor) -> Tensor:
        A, B = A.T if layout[0] == "T" else A, B.T if layout[1] == "T" else B
        if dtype == "i32":
            return (A @ B + bias).relu()
        return (tc.matmul(A, B, dtype="fp32") + bias.cast("fp32")).relu().cast(dtype)

    a, b = (k, m) if layout[0] == "T" else (m, k), (n, k) if layout[1] == "T" else (k, n)
    return traced(gemm, dtype, A=a, B=b, bias=(n,))


def named(case: tuple[Any, ...]) -> str:
    size, layout, dtype, in_tiles = case
    return f"{'x'.join(map(str, size))}-{layout}-{dtype}-{'tiles' if in_tiles else 'default'}"


EVERY = [
    (size, layout, dtype, in_tiles)
    for size in SIZES
    for layout in LAYOUTS
    for dtype in DTYPES
    for in_tiles in (True, False)
    if size[2] > 1 or not in_tiles  # one product is no sum
]
FEW = [
    ((150, 130, 70), "NN", "fp16", True),
    ((150, 130, 70), "TT", "fp32", True),
    ((150, 130, 70), "NT", "bf16", False),
    ((128, 256, 64), "TN", "bf16", True),
    ((128, 256, 64), "NT", "fp16", True),
    ((128, 256, 64), "NN", "i32", False),
    *(((1, 1, 1), "NN", dtype, False) for dtype in DTYPES),
    ((257, 129, 33), "TT", "fp16", True),
    ((257, 129, 33), "NN", "i32", True),
    ((257, 129, 33), "TN", "fp32", False),
    *(((72, 40, 8), layout, dtype, True) for layout, dtype in zip(LAYOUTS, DTYPES, strict=True)),
    *(((72, 40, 8), layout, "fp16", False) for layout in ("NN", "TT")),
    *(((33, 20, 36), layout, "fp16", True) for layout in LAYOUTS),
    *(((33, 20, 36), layout, "bf16", False) for layout in ("NT", "TN")),
]


@pytest.mark.spec("004-005", "004-121", "004-123")
@pytest.mark.parametrize("case", FEW, ids=named)
def test_a_product(case: tuple[tuple[int, int, int], str, str, bool]) -> None:
    size, layout, dtype, in_tiles = case
    check(product(size, layout, dtype), dtype, in_tiles)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=named)
def test_every_product(case: tuple[tuple[int, int, int], str, str, bool]) -> None:
    size, layout, dtype, in_tiles = case
    check(product(size, layout, dtype), dtype, in_tiles, every=True)


# ---- batches, strides, epilogues ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """``dtypes``: of inputs that are of another one than the others."""

    function: Callable[..., Any]
    shapes: dict[str, Shape]
    dtype: str = "fp16"
    dtypes: dict[str, str] = field(default_factory=dict)
    exact: bool = True
    kernels: int = 1
    in_tiles: bool = True


def several(A: Tensor, B: Tensor, bias: Tensor, scale: Tensor, R: Tensor) -> tuple[Tensor, ...]:
    """Three results of one product; operands along rows, along columns and along both."""
    total = tc.matmul(A, B, dtype="fp32") + bias.cast("fp32")
    activated = total.relu()
    return activated.cast("fp16"), total * scale.cast("fp32").reshape(-1, 1), activated - R.cast("fp32")


def residual(A: Tensor, B: Tensor, bias: Tensor, R: Tensor) -> Tensor:
    return ((tc.matmul(A, B, dtype="fp32") + bias.cast("fp32")).gelu() + R.cast("fp32")).cast(A.dtype)


def chosen(A: Tensor, B: Tensor, R: Tensor) -> Tensor:
    """A comparison and a choice in the epilogue."""
    total = tc.matmul(A, B, dtype="fp32")
    other = R.cast("fp32")
    return tc.where(total > other, total, -other)


CASES = {
    "batched": Case(lambda A, B: A @ B, {"A": (3, 24, 40), "B": (3, 40, 32)}),
    "batched NT, ragged": Case(lambda A, B: A @ B.swapaxes(-1, -2), {"A": (2, 33, 20), "B": (2, 17, 20)}),
    "batched fp32": Case(lambda A, B: A @ B, {"A": (3, 24, 40), "B": (3, 40, 16)}, "fp32"),
    "one B for a batch": Case(lambda A, B: A @ B, {"A": (3, 24, 40), "B": (40, 48)}, "bf16"),
    "one A for a batch": Case(lambda A, B: A @ B, {"A": (24, 40), "B": (3, 40, 48)}),
    "broadcast batches": Case(lambda A, B: A @ B, {"A": (2, 1, 24, 16), "B": (3, 16, 40)}),
    "batch in the middle": Case(
        lambda A, B: A.permute(1, 0, 2) @ B.permute(1, 2, 0), {"A": (24, 2, 16), "B": (40, 2, 16)}
    ),
    "an odd stride": Case(lambda A, B: A[:, :32] @ B[:, :40], {"A": (40, 33), "B": (32, 41)}),
    "an odd offset": Case(lambda A, B: A[1:, 3:35] @ B[5:37, 1:], {"A": (33, 40), "B": (40, 49)}),
    "every second": Case(lambda A, B: A[::2, ::2] @ B[::2], {"A": (65, 64), "B": (64, 48)}, "bf16"),
    "backwards": Case(lambda A, B: A.flip(1) @ B.flip(0), {"A": (33, 48), "B": (48, 40)}),
    "its own transpose": Case(lambda A: A @ A.T, {"A": (40, 48)}),
    "a vector": Case(lambda A, B: A @ B, {"A": (1, 200), "B": (200, 64)}, in_tiles=False),
    "several results": Case(
        several,
        {"A": (33, 20), "B": (20, 35), "bias": (35,), "scale": (33,), "R": (33, 35)},
        kernels=3,
        in_tiles=False,
    ),
    "gelu and residual": Case(
        residual, {"A": (48, 32), "B": (32, 40), "bias": (40,), "R": (48, 40)}, exact=False
    ),
    "a choice": Case(chosen, {"A": (48, 32), "B": (32, 40), "R": (48, 40)}),
    "a padded result": Case(lambda A, B: (A @ B).pad([(1, 2), (3, 0)], 1.0), {"A": (41, 16), "B": (16, 40)}),
    "a padded result, fp32": Case(
        lambda A, B: (A @ B).pad([(0, 2), (3, 1)], -2.0), {"A": (41, 16), "B": (16, 40)}, "fp32"
    ),
    "a part of the result": Case(lambda A, B: (A @ B)[::2, 1::3], {"A": (41, 16), "B": (16, 40)}),
    "fp16 and fp32": Case(
        lambda A, B: A.cast("fp32") @ B, {"A": (40, 48), "B": (48, 40)}, "fp32", {"A": "fp16"}
    ),
    "fp32 and bf16, turned": Case(
        lambda A, B: A.T @ B.T.cast("fp32"), {"A": (48, 40), "B": (40, 48)}, "fp32", {"B": "bf16"}
    ),
    "integers as fp32": Case(
        lambda A, B: A.cast("fp32") @ B,
        {"A": (40, 48), "B": (48, 40)},
        "fp32",
        {"A": "i32"},
        in_tiles=False,
    ),
    "a transposed result": Case(
        lambda A, B, R: (tc.matmul(A, B, dtype="fp32") + R.cast("fp32").T).T,
        {"A": (48, 32), "B": (32, 40), "R": (40, 48)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_batches_strides_and_epilogues(name: str) -> None:
    case = CASES[name]
    specs = {
        name: tinyc.spec(case.dtypes.get(name, case.dtype), shape) for name, shape in case.shapes.items()
    }
    program = tinyc.trace(case.function, **specs)
    compiled = compiled_for(program, case.in_tiles)
    assert len(compiled.kernels) == case.kernels
    assert len(tiled(compiled)) == 1 or not case.in_tiles
    exact = [exact_inputs(program, case.dtype)] if case.exact else []
    check_emulated(compiled, [normal_inputs(program, 1)], exact)
