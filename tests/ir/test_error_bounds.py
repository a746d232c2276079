"""The bound that results are held to is one, and is tight enough to find what a tolerance lets pass."""

from __future__ import annotations

import numpy as np
import pytest
from error_bounds import Bounded, bounded, within
from random_programs import Maker, random_inputs

import tinyc
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program


def noisy(program: Program, seed: int) -> dict[str, np.ndarray]:
    generator, inputs = np.random.default_rng(seed), random_inputs(program, seed)
    for name, array in inputs.items():
        if array.dtype.kind not in "ib":
            inputs[name] = (array.astype(np.float64) + generator.normal(size=array.shape)).astype(array.dtype)
    return inputs


def test_the_evaluator_keeps_to_it_and_it_says_something_of_most_programs() -> None:
    known = []
    for seed in range(150):
        generator = np.random.default_rng(seed)
        program = tinyc.load(Maker(lambda n, g=generator: int(g.integers(n)), 8).document())
        inputs = noisy(program, seed)
        wanted = evaluate(program, inputs), evaluate(program, inputs, float64=True)
        for got, real, bound in zip(*wanted, bounded(program, inputs), strict=True):
            assert within(got, bound).all(), seed
            sure = bound.error == 0 if real.dtype.kind in "ib" else ~np.isnan(real)
            np.testing.assert_allclose(
                np.where(sure, bound.value, 0), np.where(sure, real, 0), rtol=1e-12, atol=1e-300
            )
            known.append(np.isfinite(bound.error).mean())
    assert np.mean(known) > 0.9


def product(dtype: str, k: int) -> tuple[Program, dict[str, np.ndarray], np.ndarray, Bounded]:
    program = tinyc.trace(
        lambda a, b: (a @ b).cast("fp32"), tinyc.spec(dtype, (32, k)), tinyc.spec(dtype, (k, 32))
    )
    generator = np.random.default_rng(k)
    inputs = {
        port.name: generator.normal(size=program.types[port.node].shape).astype(
            program.types[port.node].dtype.numpy
        )
        for port in program.inputs
    }
    (want,) = evaluate(program, inputs)
    (bound,) = bounded(program, inputs)
    return program, inputs, want, bound


@pytest.mark.parametrize("k", [64, 256, 1024])
def test_one_product_too_few_is_found(k: int) -> None:
    """In nearly every element: there are few whose missing product is as small as rounding."""
    _, inputs, want, bound = product("fp32", k)
    a, b = (array.astype(np.float64) for array in inputs.values())
    short = a[:, 1:] @ b[1:]
    assert within(want, bound).all()
    assert within(short, bound).mean() < 0.02


def test_sums_in_half_precision_are_found() -> None:
    _, inputs, _, bound = product("fp32", 256)
    a, b = inputs.values()
    total = np.zeros((32, 32), np.float16)
    for column, row in zip(a.T, b, strict=True):
        total = (total + np.outer(column, row)).astype(np.float16)
    assert within(total, bound).mean() < 0.2


def test_what_may_be_either_is_not_held_to_one() -> None:
    """A comparison of what rounding decides; one of inputs is decided."""

    def program(x: tinyc.Tensor, y: tinyc.Tensor) -> tuple[tinyc.Tensor, ...]:
        return x < y, x.exp() < y.exp()

    inputs = {"x": np.array([1.0, 1.0, 2.0], np.float32), "y": np.array([1.0, 3.0, 1.0], np.float32)}
    sure, close = bounded(
        tinyc.trace(program, x=tinyc.spec("fp32", (3,)), y=tinyc.spec("fp32", (3,))), inputs
    )
    assert not sure.error.any()
    assert list(np.isinf(close.error)) == [True, False, False]
