"""What a program computes once has one value, however often and in whatever order of its terms a kernel for a GPU adds it up:
otherwise nothing may be equal to the largest of them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated_checks import GREEDY, OnMatrixUnits, emulated
from end_checks import normal_inputs, traced

import tinyc
from tinyc import functions as tc
from tinyc.ir.evaluate import evaluate

Tensor = Any


def largest(p: Tensor, axis: int = 1) -> Tensor:
    return p == p.max(axis=axis, keepdims=True)


def of_a_product(A: Tensor, B: Tensor) -> Tensor:
    return largest(tc.matmul(A, B, dtype="fp32"))


def of_a_softmax(A: Tensor, B: Tensor) -> Tensor:
    return largest(tc.softmax(tc.matmul(A, B, dtype="fp32")))


def of_sums(A: Tensor) -> Tensor:
    return largest(A.sum(axis=1, keepdims=True), 0)


def and_its_value(A: Tensor, B: Tensor) -> tuple[Tensor, ...]:
    p = tc.matmul(A, B, dtype="fp32")
    return largest(p), p.max(axis=1), p.relu()


PROGRAMS = {
    "sums shared by some threads where they are results": (of_a_product, (33, 8), (8, 40)),
    "sums of columns": (of_a_product, (9, 17), (17, 7)),
    "short rows in tiles": (of_a_product, (5, 64), (64, 5)),
    "square": (of_a_product, (40, 24), (24, 24)),
    "softmax": (of_a_softmax, (33, 40), (40, 10)),
    "sums of all threads": (of_sums, (5, 300)),
    "several outputs": (and_its_value, (33, 17), (17, 40)),
}


@pytest.mark.parametrize("in_tiles", [False, True], ids=["default", "tiles"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_largest_is_found(name: str, in_tiles: bool) -> None:
    function, *shapes = PROGRAMS[name]
    program = traced(function, "fp32", **dict(zip("AB", shapes, strict=False)))
    model = OnMatrixUnits() if in_tiles else None
    compiled = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY, cost_model=model)
    inputs = normal_inputs(program, 3)
    np.testing.assert_array_equal(emulated(compiled, inputs)[0], evaluate(program, inputs)[0])
