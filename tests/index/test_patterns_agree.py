"""The ContractionPatterns of Poly-View are the ``contracts`` facts of the e-graph: the same sums, with the same roles."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pattern_facts import agreement
from product_programs import Products
from random_programs import Maker
from test_polyview import EXAMPLES, GEMM

import tinyc
from tinyc.ir.verify import bind

SIZES = {"M": 6, "N": 5, "K": 7, "H": 9, "W": 10, "B": 2, "D": 3, "T": 5}
QUICK, MORE = 60, 300


def check(make: Callable[..., Maker], seeds: range, least: int) -> None:
    """Programs of ``seeds`` agree; among them are at least ``least`` contractions, and the e-graph was there."""
    contractions = lost = shorter = 0
    for seed in seeds:
        generator = random.Random(seed)
        program = tinyc.load(make(lambda n, generator=generator: generator.randrange(n), 8).document())
        found = agreement(program)
        if found is None:
            lost += 1
            continue
        assert found.differ == {}, seed
        contractions += len(found.both)
        shorter += len(found.shorter)
    assert contractions >= least and lost <= len(seeds) // 50 and shorter <= contractions // 100


@pytest.mark.spec("004-061", "004-065")
@pytest.mark.parametrize("part", range(4))
def test_random_programs_agree(part: int) -> None:
    """300 programs with the products below, in parts that processes can share."""
    check(Maker, range(QUICK * part, QUICK * (part + 1)), 8)


@pytest.mark.spec("004-061", "004-065")
@pytest.mark.parametrize("part", range(2))
def test_random_products_agree(part: int) -> None:
    check(Products, range(QUICK // 2 * part, QUICK // 2 * (part + 1)), 12)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_random_programs_agree(part: int) -> None:
    check(Maker, range(MORE * part, MORE * (part + 1)), 40)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_many_random_products_agree(part: int) -> None:
    check(Products, range(MORE * part, MORE * (part + 1)), 150)


def _bound(document: Any) -> tinyc.ir.tiny.Program:  # type: ignore[name-defined]
    program = tinyc.load(document)
    return bind(program, {name: SIZES[name] for name in program.symbols})


#: what each example is for; the rest of them has the same kernels as one of these
FEW = {
    *("gemm_bias_relu", "matmul_broadcast", "matmul_at_b", "conv3x3_s2_p1", "conv_grouped", "conv_depthwise"),
    *("attention_causal.frontend", "dequantised_matmul", "layernorm", "transformer_block", "diamond"),
}


@pytest.mark.parametrize(
    "name",
    [
        path.stem if path.stem in FEW else pytest.param(path.stem, marks=pytest.mark.slow)
        for path in sorted(EXAMPLES.glob("*.json"))
    ],
)
def test_examples_agree(name: str) -> None:
    found = agreement(_bound(EXAMPLES / f"{name}.json"))
    assert found is not None and found.differ == {} and not found.shorter


def test_a_wrong_pattern_would_show() -> None:
    """The comparison itself: the e-graph's facts of one program are not those of another with its axes exchanged."""
    whole = _bound(GEMM)
    found = agreement(whole)
    assert found is not None and found.both == {"C0"} and found.differ == {}
    moved = {**GEMM["uops"][-1], "arg": {**GEMM["uops"][-1]["arg"], "axes": [1]}}
    other = agreement(_bound({"uops": [*GEMM["uops"][:-1], moved]}))  # summed over n: A lacks it
    assert other is not None and other.both == frozenset() and other.differ == {}
