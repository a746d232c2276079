"""Programs whose naive expansion is exponential: sizes of what is built stay linear, and results right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.base import base_program
from tinyc.ir.evaluate import evaluate
from tinyc.ir.plan import Extracted
from tinyc.ir.tiny import Program
from tinyc.runtime.cpu import Executable

Tensor = Any


def stencil(steps: int) -> Program:
    def run(x: Tensor) -> Tensor:
        for _ in range(steps):
            y = x.pad(((1, 1), (1, 1)))
            x = (y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:]) * 0.25
        return x

    return tinyc.trace(run, tinyc.spec("fp32", (17, 13)))


def reshapes(steps: int) -> Program:
    """Alternating reshapes that do not divide and transposes: each doubles the divisions in an index map."""

    def run(x: Tensor) -> Tensor:
        for step in range(steps):
            x = (x.reshape(12, 20) if step % 2 else x.reshape(15, 16)) + 1.0
            x = x.permute(1, 0)
        return x

    return tinyc.trace(run, tinyc.spec("fp32", (15, 16)))


def pure_movement(steps: int) -> Program:
    """The same without arithmetic between."""

    def run(x: Tensor) -> Tensor:
        for step in range(steps):
            x = (x.reshape(12, 20) if step % 2 else x.reshape(15, 16)).permute(1, 0)
        return x + 1.0

    return tinyc.trace(run, tinyc.spec("fp32", (15, 16)))


def folds(steps: int) -> Program:
    def run(x: Tensor) -> Tensor:
        for _ in range(steps):
            x = x * 0.5 + x.flip(0)
        return x

    return tinyc.trace(run, tinyc.spec("fp32", (9, 5)))


def splits(steps: int) -> Program:
    """A stream that is read at rows of several lengths: what is added to it soon is more than is pushed to other indices, and it is
    pushed to axes that are joined to one however much that is."""

    def run(x: Tensor) -> Tensor:
        for step in range(steps):
            rows = x.reshape(*((12, 20), (15, 16), (10, 24))[step % 3])
            x = x + (rows - rows.max(axis=1, keepdims=True)).reshape(240)
        return x

    return tinyc.trace(run, tinyc.spec("fp32", (240,)))


PROGRAMS = {
    "stencil": stencil,
    "reshapes": reshapes,
    "pure_movement": pure_movement,
    "folds": folds,
    "splits": splits,
}


def lets(extracted: Extracted) -> int:
    return sum(len(region.lets) for region in extracted.regions)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_right(name: str) -> None:
    program = PROGRAMS[name](14)
    (port,) = program.inputs
    shape = tuple(int(size) for size in program.types[port.node].shape)
    arrays = {port.name: np.random.default_rng(3).normal(size=shape).astype(np.float32)}
    (want,) = evaluate(program, arrays)
    compiled = tinyc.optimize_and_compile(program)
    assert not compiled.report.fallback and not compiled.report.warnings
    np.testing.assert_allclose(compiled(**arrays), want, rtol=1e-5, atol=1e-5)
    (naive,) = Executable(base_program(program), 1)(list(arrays.values()))
    np.testing.assert_allclose(naive, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_grow_linearly(name: str) -> None:
    """From 8 to 16 to 24 steps each adds as much, within a quarter and two, in the e-graph and in the base program."""
    enodes, values = [], []
    for steps in (8, 16, 24):
        program = PROGRAMS[name](steps)
        saturation = saturate(program, load_rules())
        assert saturation.complete
        enodes.append(saturation.phases[-1].enodes)
        values.append(lets(base_program(program)))
    for sizes in (enodes, values):
        assert sizes[2] - sizes[1] <= 1.25 * (sizes[1] - sizes[0]) + 2
