"""Running front-end programs through the evaluator, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyc.frontend import spec, trace
from tinyc.ir.dtypes import dtype_of
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program

Array = Any


def specs_of(*arrays: Array) -> list[Any]:
    return [spec(dtype_of(array), array.shape, f"x{index}") for index, array in enumerate(arrays)]


def traced(function: Callable[..., Any], *arrays: Array) -> tuple[Array, ...]:
    """``function`` traced for the arrays and evaluated on them: a tuple of outputs."""
    program = trace(function, *specs_of(*arrays))
    return run(program, *arrays)


def run(program: Program, *arrays: Array) -> tuple[Array, ...]:
    return evaluate(program, {port.name: array for port, array in zip(program.inputs, arrays, strict=True)})


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def integers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Small integers: every sum of products of them is exact in fp32."""
    return np.random.default_rng([seed, *shape]).integers(-4, 5, size=shape).astype(dtype)


def same(ours: Array, theirs: Array, rtol: float = 0, atol: float = 0) -> None:
    """Equal dtype, shape and values, within the tolerances; NaN equals NaN, +0 is not -0 where exact."""
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if rtol or atol:
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(ours, theirs)
        if ours.dtype.kind == "f":
            np.testing.assert_array_equal(
                np.signbit(ours[~np.isnan(ours)]), np.signbit(theirs[~np.isnan(theirs)])
            )
