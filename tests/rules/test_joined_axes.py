"""Where values that many elements go into are computed where they are needed, and where they are read (``rules/bounds.egg``)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
