"""More than a hundred random programs for sm80 in the emulator, and as many more as one likes (``slow``): what they compute is what
the evaluator says, as far as the arithmetic determines it, and nothing is found wrong, whenever copies arrive."""

from __future__ import annotations

import math

import numpy as np
import pytest
from emulated_checks import GREEDY, OnMatrixUnits, bits, emulated
from end_checks import Arrays, arrays_of, integer_inputs, normal_inputs
from error_bounds import bounded, within
from random_products import random_product
from random_programs import Maker, agree, random_inputs
from small_models import small_model

import tinyc
from tinyc.codegen.emulator import DELIVERIES
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program


def of_uops(seed: int) -> tuple[Program, Arrays]:
    generator = np.random.default_rng(seed)
    program = tinyc.load(Maker(lambda n: int(generator.integers(n)), 8).document())
    return program, random_inputs(program, seed)


def of_layers(seed: int) -> tuple[Program, Arrays]:
    """Values of the size of one stay so: weights as a trained model has them."""
    program, generator = small_model(seed), np.random.default_rng(seed)
    return program, arrays_of(
        program, lambda shape: generator.normal(size=shape) / math.sqrt(max(math.prod(shape[1:]), 1))
    )


def check(program: Program, inputs: Arrays, seed: int, **options: object) -> None:
    compiled = tinyc.optimize_and_compile(program, "sm80", **options)  # type: ignore[arg-type]
    got = emulated(compiled, inputs, DELIVERIES[seed % len(DELIVERIES)], seed)
    wanted = evaluate(program, inputs), evaluate(program, inputs, float64=True)
    for value, want, exact, bound in zip(got, *wanted, bounded(program, inputs), strict=True):
        assert value.dtype == want.dtype and value.shape == want.shape
        right = agree(value, want, exact) & (within(value, bound) | ~np.isfinite(want))
        assert right.all(), f"{value[~right][0]}, not {want[~right][0]}, at {np.argwhere(~right)[0].tolist()}"


@pytest.mark.parametrize("seed", range(60))
def test_a_random_program(seed: int) -> None:
    check(*of_uops(seed), seed)


@pytest.mark.parametrize("seed", range(24))
def test_a_random_model(seed: int) -> None:
    check(*of_layers(seed), seed, budget=GREEDY)


def check_product(seed: int) -> None:
    """In tiles: of integers bit for bit, of other data within the bound of the arithmetic."""
    program = random_product(seed)
    compiled = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY, cost_model=OnMatrixUnits())
    integers, data = integer_inputs(program, 2, seed), normal_inputs(program, seed)
    for got, want in zip(
        emulated(compiled, integers, DELIVERIES[seed % 3], seed), evaluate(program, integers), strict=True
    ):
        assert got.dtype == want.dtype and np.array_equal(bits(got + 0), bits(want + 0))  # -0 is 0
    for got, bound in zip(
        emulated(compiled, data, DELIVERIES[(seed + 1) % 3], seed), bounded(program, data), strict=True
    ):
        assert np.isfinite(bound.error).mean() > 0.5 and within(got, bound).all()


@pytest.mark.parametrize("seed", [*range(22), 30, 81])
def test_a_random_product(seed: int) -> None:
    """30 and 81: an operand that is widened, and a result that is padded, read what they should not."""
    check_product(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(22, 400))
def test_many_random_products(seed: int) -> None:
    check_product(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 300))
def test_many_random_programs(seed: int) -> None:
    check(*of_uops(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 200))
def test_many_random_models(seed: int) -> None:
    check(*of_layers(seed), seed, also=["streaming-unrounded"] if seed % 2 else [])
