"""Convolutions for sm80 in the emulator: 1 to 3 axes, odd sizes, groups, strides, dilation, channels last and first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from emulated_checks import GREEDY, OnMatrixUnits, check_emulated, emulated, tiled
from end_checks import arrays_of, integer_inputs, normal_inputs, traced

import tinyc
from tinyc import functions as tc
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.model import Work
from tinyc.ir.tiny import Program

Tensor = Any
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Conv:
    """``x`` and ``w`` with channels first: [N, Cin, *sizes], [Cout, Cin / groups, *window]. ``last``: both are stored with channels
    last, and so is the result. ``in_tiles``: a group has channels enough for tiles, and they are asked for. ``kernels``: two where
    the result of all groups is put in another order."""

    x: Shape
    w: Shape
    dtype: str = "fp16"
    last: bool = False
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    in_tiles: bool = True
    kernels: int = 1

    def program(self) -> Program:
        options = {"stride": self.stride, "pad": self.pad, "dilation": self.dilation, "groups": self.groups}
        rank = len(self.x)
        first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)

        def conv(X: Tensor, W: Tensor, bias: Tensor) -> Tensor:
            if self.last:
                X, W = X.permute(*first), W.permute(*first)
            found = tc.conv(X, W, bias, **options, dtype="fp32").relu().cast(self.dtype)
            return found.permute(*last) if self.last else found

        x, w = ((self.x[0], *self.x[2:], self.x[1]), (self.w[0], *self.w[2:], self.w[1]))
        shapes = {"X": x, "W": w} if self.last else {"X": self.x, "W": self.w}
        return traced(conv, self.dtype, **shapes, bias=(self.w[0],))


CONVS = {
    "3x3, channels last": Conv((2, 16, 9, 11), (24, 16, 3, 3), last=True, pad=1),
    "3x3, channels first": Conv((2, 16, 3, 5), (8, 16, 3, 3), pad=1),
    "3x3, odd channels": Conv((1, 5, 9, 11), (7, 5, 3, 3), "bf16", last=True, pad=1),
    "3x3, fp32": Conv((1, 8, 9, 7), (12, 8, 3, 3), "fp32", pad=1),
    "stride 2": Conv((1, 16, 13, 15), (16, 16, 3, 3), "bf16", last=True, stride=2, pad=1),
    "stride 2, channels first": Conv((1, 8, 13, 15), (16, 8, 3, 3), stride=2, pad=1),
    "dilated": Conv((1, 8, 11, 13), (16, 8, 3, 3), last=True, pad=2, dilation=2),
    "dilated, stride 2, channels first": Conv(
        (1, 8, 11, 12), (8, 8, 3, 2), "bf16", stride=2, pad=1, dilation=2
    ),
    "grouped": Conv((1, 16, 9, 9), (32, 8, 3, 3), last=True, pad=1, groups=2, kernels=2),
    "grouped, few channels": Conv((2, 8, 7, 9), (12, 2, 3, 3), pad=1, groups=4, in_tiles=False),
    "depthwise": Conv((2, 8, 9, 10), (8, 1, 3, 3), last=True, pad=1, groups=8, in_tiles=False),
    "depthwise, two of each": Conv((1, 5, 9, 9), (10, 1, 3, 3), "fp32", pad=1, groups=5, in_tiles=False),
    "1x1": Conv((2, 16, 7, 9), (24, 16, 1, 1), last=True),
    "1x1, stride 2, channels first": Conv((2, 16, 9, 9), (8, 16, 1, 1), "bf16", stride=2),
    "1-d": Conv((2, 16, 33), (24, 16, 5), last=True, stride=2, pad=2),
    "1-d, channels first": Conv((2, 6, 33), (10, 6, 5), "fp32", pad=2),
    "3-d": Conv((1, 8, 5, 6, 7), (8, 8, 3, 3, 3), last=True, pad=1),
    "3-d, channels first": Conv((1, 3, 5, 6, 7), (4, 3, 2, 3, 2), "bf16", stride=2, in_tiles=False),
    "a window larger than the image": Conv((1, 8, 3, 3), (8, 8, 5, 5), pad=2),
    "one channel": Conv((1, 1, 17, 17), (1, 1, 3, 3), pad=1, in_tiles=False),
}


SLOW = (
    *("stride 2, channels first", "dilated", "1x1, stride 2, channels first", "depthwise, two of each"),
    *("grouped, few channels", "3-d, channels first", "1-d, channels first"),
)
"""Which have a neighbour in the list that differs by little."""


def compiled_for(case: Conv, in_tiles: bool) -> tinyc.Compiled:
    model = OnMatrixUnits() if in_tiles else None
    compiled = tinyc.optimize_and_compile(case.program(), "sm80", budget=GREEDY, cost_model=model)
    assert len(compiled.kernels) <= case.kernels, "no im2col, no padded copy, no transposed one"
    assert len(tiled(compiled)) == 1 or not in_tiles
    return compiled


def check(case: Conv, in_tiles: bool, every: bool = False) -> None:
    compiled = compiled_for(case, in_tiles)
    program = compiled.program
    largest = 1 if case.dtype == "bf16" else 3
    check_emulated(compiled, [normal_inputs(program)], [integer_inputs(program, largest)], every)


@pytest.mark.spec("004-005", "004-121", "004-123")
@pytest.mark.parametrize("name", [name for name in CONVS if name not in SLOW])
def test_a_convolution(name: str) -> None:
    check(CONVS[name], CONVS[name].in_tiles)


@pytest.mark.slow
@pytest.mark.parametrize("in_tiles", [False, True], ids=["default", "tiles"])
@pytest.mark.parametrize("name", CONVS)
def test_every_convolution(name: str, in_tiles: bool) -> None:
    check(CONVS[name], in_tiles and CONVS[name].in_tiles, every=True)


CUT = {
    "3x3": (Conv((1, 256, 5, 5), (32, 256, 3, 3), pad=1), 4),
    "stride 2": (Conv((1, 128, 9, 7), (24, 128, 3, 3), "bf16", stride=2, pad=1), 2),
    "1-d": (Conv((1, 256, 17), (16, 256, 9)), 4),
    "fp32": (Conv((1, 128, 5, 6), (16, 128, 3, 3), "fp32", pad=1), 2),
    "deep": (Conv((1, 512, 3, 3), (16, 512, 3, 3), pad=1), 8),
    "grouped": (Conv((2, 512, 4, 4), (16, 256, 3, 3), pad=1, groups=2), 4),
}
"""Of few results and many channels, each with the parts in which its sum is cut where launches cost nothing."""


@dataclass(frozen=True)
class Launched(OnMatrixUnits):
    """Kernels that are launched at no cost: a sum that leaves most of a machine idle is cut, however short it is."""

    hardware: Hardware = field(default_factory=lambda: replace(hardware("sm80"), launch=0.0))

    def kernel(self, work: Work) -> float:
        return super().kernel(work) - 1.0


@pytest.mark.parametrize("name", CUT)
def test_a_convolution_whose_sum_is_cut(name: str) -> None:
    """Its channels are, and not its window. Where the channels alone had to be long enough, none of these was."""
    case, parts = CUT[name]
    compiled = tinyc.optimize_and_compile(case.program(), "sm80", cost_model=Launched())
    (partial,) = tiled(compiled)
    assert len(compiled.kernels) == 2 and partial.region.iters[0].size == parts
    program = compiled.program
    largest = 1 if case.dtype == "bf16" else 3
    check_emulated(compiled, [normal_inputs(program)], [integer_inputs(program, largest)])


def test_what_is_no_number_stays_in_its_windows() -> None:
    """Neither does padding hide it, nor does it reach a window that it is not in."""
    compiled = compiled_for(CONVS["stride 2, channels first"], False)
    inputs = arrays_of(compiled.program, np.ones)
    inputs["X"][0, 3, 0, 0] = np.nan
    (got,) = emulated(compiled, inputs)
    assert np.isnan(got[0, :, 0, 0]).all() and np.isnan(got).sum() == got.shape[1]
