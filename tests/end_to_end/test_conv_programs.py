"""Convolutions from both front ends: one kernel, reads guarded where they pad, no buffer of windows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tiny_documents
from end_checks import (
    Compiled,
    arrays_of,
    axis_sizes,
    buffers,
    check_bound,
    check_exact,
    check_values,
    compiled_from,
    contractions,
    guards,
    integer_inputs,
    largest_intermediate,
    normal_inputs,
    only_kernel,
    outputs_of,
    reductions,
    traced,
)

from tinyc import functions as tc

Tensor = Any


@dataclass(frozen=True)
class Conv:
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    dtype: str = "fp32"

    @property
    def options(self) -> dict[str, int]:
        return {"stride": self.stride, "pad": self.pad, "dilation": self.dilation, "groups": self.groups}

    @property
    def terms(self) -> int:
        return int(np.prod(self.w[1:]))


CONVS = {
    "3x3 stride 2 pad 1, odd": Conv((2, 8, 13, 15), (16, 8, 3, 3), stride=2, pad=1),
    "3x3 stride 2 pad 1, even": Conv((2, 8, 14, 16), (16, 8, 3, 3), stride=2, pad=1),
    "3x3 stride 2 pad 1, fp16": Conv((1, 5, 11, 12), (7, 5, 3, 3), stride=2, pad=1, dtype="fp16"),
    "3x3 stride 2 pad 1, bf16": Conv((1, 5, 11, 12), (7, 5, 3, 3), stride=2, pad=1, dtype="bf16"),
    "1x1": Conv((2, 8, 14, 14), (16, 8, 1, 1)),
    "1x1 stride 2": Conv((2, 8, 13, 13), (5, 8, 1, 1), stride=2),
    "dilated": Conv((1, 4, 15, 16), (8, 4, 3, 3), pad=2, dilation=2),
    "grouped": Conv((2, 8, 9, 9), (12, 2, 3, 3), pad=1, groups=4),
    "depthwise": Conv((2, 8, 9, 10), (8, 1, 3, 3), pad=1, groups=8),
    "depthwise with multiplier": Conv((1, 5, 9, 9), (10, 1, 3, 3), pad=1, groups=5),
    "1-d": Conv((2, 6, 33), (10, 6, 5), stride=2, pad=2),
    "3-d": Conv((1, 3, 6, 7, 8), (4, 3, 3, 3, 3), pad=1),
    "one channel in and out": Conv((1, 1, 17, 17), (1, 1, 3, 3), pad=1),
    "tap larger than the image": Conv((1, 2, 3, 3), (3, 2, 5, 5), pad=2),
    "every size equal": Conv((3, 3, 3, 3), (3, 3, 3, 3), pad=1),
    "prime sizes": Conv((1, 7, 17, 19), (11, 7, 3, 5), stride=3, pad=2),
}
POINTWISE = ("1x1", "1x1 stride 2")
FORMS = ["json", "trace"]


@functools.cache
def compiled_conv(name: str, form: str) -> Compiled:
    case = CONVS[name]
    if form == "json":
        return compiled_from(tiny_documents.conv(case.dtype, case.x, case.w, **case.options))

    def function(X: Tensor, W: Tensor) -> Tensor:
        return tc.conv(X, W, **case.options, dtype="fp32").cast(case.dtype)

    return compiled_from(traced(function, case.dtype, X=case.x, W=case.w))


every_conv = pytest.mark.parametrize("form", FORMS)


@pytest.mark.parametrize("name", CONVS)
@every_conv
def test_conv(name: str, form: str) -> None:
    compiled = compiled_conv(name, form)
    check_values(compiled, normal_inputs(compiled.program))
    check_bound(compiled, normal_inputs(compiled.program, seed=1), terms=CONVS[name].terms)
    check_exact(compiled, integer_inputs(compiled.program, largest=1 if CONVS[name].dtype == "bf16" else 3))


@pytest.mark.spec("002-40", "004-005", "004-009", "004-012")
@pytest.mark.parametrize("name", CONVS)
@every_conv
def test_conv_is_one_kernel_that_reads_through_its_windows(name: str, form: str) -> None:
    case, compiled = CONVS[name], compiled_conv(name, form)
    region = only_kernel(compiled).region
    assert largest_intermediate(compiled) == 0
    assert len(buffers(compiled)) == 3, "image, weights and result: no im2col, no padded copy"
    (total,) = reductions(region)
    assert contractions(region) == [total]
    assert np.prod(axis_sizes(total.axes)) == case.terms
    assert (guards(region) > 0) == (case.pad > 0)


@pytest.mark.parametrize(
    "name", ["1x1", "3x3 stride 2 pad 1, odd", "dilated", "grouped", "1-d", "3-d", "prime sizes"]
)
def test_conv_is_tiled(name: str) -> None:
    assert only_kernel(compiled_conv(name, "trace")).plan.algo == "contraction"


@pytest.mark.parametrize("name", CONVS)
def test_every_tap_is_summed_once(name: str) -> None:
    """A weight of one at one tap and zero elsewhere shifts that channel of the image."""
    case = CONVS[name]
    compiled = compiled_conv(name, "json")
    zero = arrays_of(compiled.program, np.zeros)
    image = (np.arange(np.prod(case.x)).reshape(case.x) % 199 + 1).astype(zero["X"].dtype)
    count = len(case.x) - 2
    padded = np.pad(image, [(0, 0), (0, 0), *[(case.pad, case.pad)] * count])
    per_group = case.w[0] // case.groups
    for tap in np.ndindex(case.w[1:]):
        channel, *place = tap
        weight = zero["W"].copy()
        weight[(slice(None), *tap)] = 1
        (got,) = outputs_of(compiled, {"X": image, "W": weight})
        windows = tuple(
            slice(case.dilation * at, case.dilation * at + case.stride * (size - 1) + 1, case.stride)
            for at, size in zip(place, got.shape[2:], strict=True)
        )
        sources = [filter // per_group * case.w[1] + channel for filter in range(case.w[0])]
        np.testing.assert_array_equal(got, padded[(slice(None), slice(None), *windows)][:, sources])


def test_epilogue_of_a_conv_joins_its_kernel() -> None:
    def block(X: Tensor, W: Tensor, bias: Tensor) -> Tensor:
        return tc.conv(X, W, bias, pad=1).silu() + X

    compiled = compiled_from(traced(block, "fp32", X=(2, 8, 13, 13), W=(8, 8, 3, 3), bias=(8,)))
    check_values(compiled, normal_inputs(compiled.program))
    assert len(contractions(only_kernel(compiled).region)) == 1


def test_two_convs_are_two_kernels() -> None:
    def stack(X: Tensor, W: Tensor, V: Tensor) -> Tensor:
        return tc.conv(tc.conv(X, W, pad=1).relu(), V, stride=2, pad=1)

    compiled = compiled_from(traced(stack, "fp32", X=(1, 3, 17, 17), W=(5, 3, 3, 3), V=(7, 5, 3, 3)))
    check_exact(compiled, integer_inputs(compiled.program, largest=2))
    assert len(compiled.kernels) == 2
    assert largest_intermediate(compiled) == 5 * 17 * 17


def test_nan_in_the_image_stays_within_its_windows() -> None:
    """A guarded read that is cut off must not let a NaN through, nor a zero of the padding hide one."""
    compiled = compiled_conv("3x3 stride 2 pad 1, odd", "trace")
    inputs = normal_inputs(compiled.program)
    inputs["X"][0, 3, 0, 0] = np.nan
    (got,) = outputs_of(compiled, inputs)
    assert np.isnan(got[0, :, 0, 0]).all()
    assert np.isnan(got).sum() == got.shape[1]
