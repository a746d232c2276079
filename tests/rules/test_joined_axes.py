"""Where values that many elements go into are computed where they are needed, and where they are read (``rules/bounds.egg``)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_programs import random_inputs

import tinyc
from tinyc.ir.evaluate import evaluate

Tensor = Any
INPUTS = 40
"""More than may be pushed to any index."""

USES: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "as it is": (lambda x: x.sum(axis=0), True),
    "turned": (lambda x: x.permute(1, 0).sum(axis=0), True),
    "at two axes joined to one": (lambda x: x.reshape(2, 12, 12).sum(axis=2), True),
    "at one that is divided": (lambda x: x.reshape(288).sum(axis=0), False),
    "flipped": (lambda x: x.flip(1).sum(axis=0), False),
    "a part": (lambda x: x[:, 1:].sum(axis=0), False),
    "every other": (lambda x: x[:, ::2].sum(axis=0), False),
}
"""A use of the sum of all inputs, and whether it is computed there."""


@pytest.mark.parametrize("use", USES)
def test_many_elements_are_computed_at_axes_alone(use: str) -> None:
    function, there = USES[use]

    def run(**inputs: Tensor) -> Tensor:
        first, *others = inputs.values()
        return function(functools.reduce(operator.add, others, first))

    names = [f"x{number}" for number in range(INPUTS)]
    program = tinyc.trace(run, **{name: tinyc.spec("fp32", (24, 12)) for name in names})
    compiled = tinyc.optimize_and_compile(program, target="cpu")
    assert (len(compiled.report.kernels) == 1) == there
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(24, 12)).astype(np.float32) for name in names}
    (want,) = evaluate(program, arrays)
    np.testing.assert_allclose(compiled(**arrays), want, rtol=1e-4, atol=1e-4)


Stream = Callable[[Tensor], Tensor]
STREAMS: dict[str, tuple[tuple[int, ...], Stream]] = {
    "equal dimensions": ((8, 8), lambda x: x.reshape(8, 2, 4).sum(axis=2)),
    "one row": ((1, 35), lambda x: x.reshape(1, 5, 7).max(axis=1)),
    "one column": ((35, 1), lambda x: x.reshape(5, 7, 1).max(axis=0)),
    "odd, of three": ((3, 5, 7), lambda x: x.reshape(15, 7).sum(axis=0)),
    "split in three": ((5, 27), lambda x: x.reshape(5, 3, 3, 3).sum(axis=2)),
    "behind a padding": ((5, 9), lambda x: x.pad(((0, 0), (2, 1)), value=-3.0).reshape(5, 4, 3).max(axis=2)),
    "twice": (
        (6, 12),
        lambda x: x * (x.reshape(6, 4, 3) - x.reshape(6, 4, 3).max(axis=2, keepdims=True)).reshape(6, 12),
    ),
    "other axes first": ((4, 6), lambda x: x.permute(1, 0).reshape(3, 2, 4).sum(axis=0)),
}
"""Streams of many elements, read where axes are split: a shape, and what is computed."""


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_are_read_at_joined_axes_are_right(name: str, dtype: str) -> None:
    shape, function = STREAMS[name]

    def run(**inputs: Tensor) -> Tensor:
        first, *others = inputs.values()
        return function(functools.reduce(operator.add, others, first))

    program = tinyc.trace(run, **{f"x{number}": tinyc.spec(dtype, shape) for number in range(INPUTS)})
    arrays = random_inputs(program, 1)
    (want,) = evaluate(program, arrays)
    compiled = tinyc.optimize_and_compile(program, target="cpu")
    assert not compiled.report.fallback
    tolerance = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}[dtype]
    np.testing.assert_allclose(
        np.asarray(compiled(**arrays), np.float32),
        np.asarray(want, np.float32),
        rtol=tolerance,
        atol=tolerance,
    )
