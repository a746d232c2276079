"""What every program for a GPU is held to in the emulator, however its asynchronous copies arrive.

No finding; on integers the evaluator's result bit for bit; on other data within the tolerance of design.md, and in every element
within what the arithmetic allows (error_bounds.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from end_checks import TOLERANCE, Arrays
from error_bounds import bounded, within

import tinyc
from tinyc.codegen.emulator import DELIVERIES, Delivery
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.model import Roofline, Work
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import COMPARE, MOVEMENT, Program

EXACT = {
    *MOVEMENT,
    *COMPARE,
    "INPUT",
    "VALID",
    "NEG",
    "RELU",
    "ADD",
    "SUB",
    "MUL",
    "MAX",
    "MIN",
    "CAST",
    "WHERE",
    "REDUCE",
}
"""What makes integers of integers."""
GREEDY = tinyc.Budget(extract_seconds=0)
"""Kernels are tried here, and not the search for them."""


@dataclass(frozen=True)
class OnMatrixUnits:
    """As few kernels as there can be, and of those the ones that leave least to plain loops: small programs, which would cost
    less as loops, run in tiles and streams."""

    hardware: Hardware = field(default_factory=lambda: hardware("sm80"))

    def seconds(self, work: Work) -> float:
        return Roofline(self.hardware).seconds(work) + 1e-9 * work.ops

    def kernel(self, work: Work) -> float:
        return 1.0 + Roofline(self.hardware).kernel(work) + 1e-9 * work.ops


def emulated(
    compiled: tinyc.Compiled, inputs: Arrays, delivery: Delivery = "late", seed: int = 0
) -> tuple[np.ndarray, ...]:
    """The outputs; nothing is found wrong."""
    result = compiled.emulate(**inputs, delivery=delivery, seed=seed)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert list(result.counters) == [kernel.region.name for kernel in compiled.kernels]
    return result.outputs


def check_emulated(
    compiled: tinyc.Compiled,
    close: Iterable[Arrays] = (),
    exact: Iterable[Arrays] = (),
    every: bool = False,
    share: float = 0.5,
) -> None:
    """Each delivery is tried, with one of the inputs after the other, or with ``every`` one of them: on those of ``exact`` the
    program's result is exact, and no bit may differ. ``share``: of the elements, of which the bound has to say something; of long
    chains of roundings it cannot."""
    programs = [(inputs, True) for inputs in exact] + [(inputs, False) for inputs in close]
    deliveries: Sequence[Delivery] = DELIVERIES
    turns = [(number, programs[number % len(programs)]) for number in range(len(deliveries))]
    runs: Iterable[tuple[Delivery, tuple[Arrays, bool]]] = (
        product(deliveries, programs)
        if every
        else ((deliveries[number], program) for number, program in turns)
    )
    before: dict[int, tuple[np.ndarray, ...]] = {}
    for delivery, (inputs, is_exact) in runs:
        got = emulated(compiled, inputs, delivery, seed=len(before))
        if id(inputs) not in before:
            before[id(inputs)] = got
            if is_exact:
                check_exact(compiled.program, got, inputs)
            else:
                check_close(compiled.program, got, inputs, share)
        for value, known in zip(got, before[id(inputs)], strict=True):
            assert np.array_equal(bits(value), bits(known)), f"another result when copies arrive {delivery}"


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def check_exact(program: Program, got: Sequence[np.ndarray], inputs: Arrays) -> None:
    """Bit for bit; and fp32 and float64 agree on the result, or this would show nothing."""
    wanted = evaluate(program, inputs), evaluate(program, inputs, float64=True)
    for port, value, want, real in zip(program.outputs, got, *wanted, strict=True):
        assert value.dtype == want.dtype and value.shape == want.shape
        np.testing.assert_array_equal(want, real.astype(want.dtype), err_msg=f"{port.name} is not exact")
        np.testing.assert_array_equal(value, want, err_msg=port.name)


def check_close(program: Program, got: Sequence[np.ndarray], inputs: Arrays, share: float = 0.5) -> None:
    """Within the tolerance, and within the bound of the arithmetic, which says something of a ``share`` of the elements."""
    wanted, bounds = evaluate(program, inputs), bounded(program, inputs)
    for port, value, want, bound in zip(program.outputs, got, wanted, bounds, strict=True):
        assert value.dtype == want.dtype and value.shape == want.shape
        tolerance = TOLERANCE.get(program.types[port.node].dtype.value, 0)
        have, reference = value.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(have, reference, rtol=tolerance, atol=tolerance, err_msg=port.name)
        assert np.isfinite(bound.error).mean() >= share, f"{port.name}: the bound says nothing"
        wrong = ~within(value, bound)
        assert not wrong.any(), (
            f"{port.name}: {wrong.sum()} of {wrong.size} elements are beyond what the arithmetic allows, the first at "
            f"{np.argwhere(wrong)[0].tolist()}: {value[wrong][0]}, and not {bound.value[wrong][0]} "
            f"± {bound.error[wrong][0]}"
        )


def stays_exact(program: Program, inputs: Arrays) -> bool:
    """Whether the program makes integers of these integers, and none too large for its floats."""
    wanted = evaluate(program, inputs), evaluate(program, inputs, float64=True)
    return {node.uop for node in program.nodes} <= EXACT and all(
        np.array_equal(want, real) for want, real in zip(*wanted, strict=True)
    )


def tiled(compiled: tinyc.Compiled) -> list[Any]:
    """The kernels that are made for matrix units or in tiles of lanes, and not of plain loops."""
    return [kernel for kernel in compiled.kernels if kernel.plan.algo == "contraction"]
