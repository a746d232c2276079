"""Axes that are split and merged around what is shifted along them: where an index leaves a row, its condition holds nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated_checks import check_emulated
from end_checks import TOLERANCE, compiled_from, integer_inputs, normal_inputs, outputs_of, traced

from tinyc import functions as tc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program

Tensor = Any


def halves(x: Tensor) -> Tensor:
    """Its two halves of the last axis are mixed, as by a rotary embedding."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return tc.concatenate([a * 2.0 - b * 3.0, b * 2.0 + a * 3.0], -1)


def heads(x: Tensor, count: int) -> Tensor:
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count)


def rolled(x: Tensor, axis: int, by: int) -> Tensor:
    first, rest = [slice(None)] * len(x.shape), [slice(None)] * len(x.shape)
    first[axis], rest[axis] = slice(by, None), slice(0, by)
    return tc.concatenate([x[tuple(first)], x[tuple(rest)]], axis)


Programs = dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]]

SPLIT: Programs = {
    "halves of heads": (lambda x: halves(heads(x, 3)), {"x": (5, 24)}),
    "halves of heads, turned": (lambda x: halves(heads(x, 3)).permute(1, 0, 2), {"x": (5, 24)}),
    "halves of a product": (lambda x, w: halves(heads(x @ w, 3)), {"x": (5, 16), "w": (16, 24)}),
    "the last of three": (lambda x: rolled(x.reshape(4, 3, 5), 2, 2) + 1.0, {"x": (4, 15)}),
    "the middle of three": (lambda x: rolled(x.reshape(4, 3, 5), 1, 1) * 2.0, {"x": (4, 15)}),
    "sums": (lambda x: rolled(x.reshape(4, 3, 5, 8).sum(-1), 2, 2), {"x": (4, 15, 8)}),
    "beside points": (lambda x: rolled(x.reshape(1, 4, 1, 3, 1, 5), 5, 2).relu(), {"x": (4, 15)}),
    "flipped": (lambda x: rolled(x.reshape(4, 3, 5).flip(2), 2, 2).relu(), {"x": (4, 15)}),
    "equal extents": (lambda x: rolled(x.reshape(4, 4, 4), 2, 1) * 2.0, {"x": (16, 4)}),
    "one head": (lambda x: rolled(heads(x, 1), 2, 3) + 1.0, {"x": (1, 12)}),
    "heads of one": (lambda x: rolled(x.reshape(3, 4, 1), 1, 1).relu(), {"x": (12,)}),
    "odd": (lambda x: halves(heads(x, 7)) * 0.5, {"x": (3, 42)}),
    "used twice": (lambda x: halves(heads(x, 3)) + rolled(heads(x, 3), 2, 1) * heads(x, 3), {"x": (5, 24)}),
    "of five": (
        lambda x: rolled(x.reshape(2, 3, 2, 5, 2), 3, 2).permute(4, 0, 3, 1, 2) + 1.0,
        {"x": (6, 20)},
    ),
    "below a pad": (
        lambda x: (x.reshape(3, 5, 7) - 2.0).pad(((0, 0), (1, 0), (0, 2))).max(2),
        {"x": (15, 7)},
    ),
    "more than there is": (
        lambda x: tc.concatenate([heads(x, 3)[:, :, 1:], heads(x, 3)[:, :, :3]], 2).relu(),
        {"x": (4, 15)},
    ),
}
"""Axes that are parts of others: to a place along one belongs one along the other, with no division."""


def seen_twice(z: Tensor) -> tuple[Tensor, ...]:
    """Shifted rows of a matrix, and of what it is reshaped to: elements of one have the indices of the other, and are outside of it."""
    r = z.reshape(4, 3, 5)
    a = r[:, :, 2:].pad(((0, 0), (0, 0), (0, 2)))
    b = z[:, 2:].pad(((0, 0), (0, 2))).reshape(4, 3, 5)
    return r, a, b + 1.0, b.sum(1), (r + b).permute(1, 0, 2)


MERGED: Programs = {
    "rows": (lambda x: rolled(x.reshape(12, 5), 0, 5), {"x": (4, 3, 5)}),
    "all": (lambda x: rolled(x.reshape(60), 0, 7) + x.reshape(60), {"x": (4, 3, 5)}),
    "twice": (
        lambda x: rolled(rolled(x.reshape(4, 3, 5), 2, 2).reshape(12, 5), 0, 5).reshape(4, 15),
        {"x": (4, 15)},
    ),
    "not dividing": (lambda x: rolled(x.reshape(6, 10), 1, 3).reshape(5, 12).permute(1, 0), {"x": (4, 15)}),
    "back again": (lambda x: halves(heads(x, 3)).permute(1, 0, 2).reshape(15, 8), {"x": (5, 24)}),
    "between products": (
        lambda x, w, v: (halves(heads(x @ w, 3)).reshape(5, 24) @ v).relu(),
        {"x": (5, 16), "w": (16, 24), "v": (24, 8)},
    ),
    "before a softmax": (
        lambda x: tc.softmax(rolled(x.reshape(4, 3, 5), 2, 2).reshape(4, 15)),
        {"x": (4, 15)},
    ),
    "in two shapes": (lambda x: seen_twice(x.exp()), {"x": (4, 15)}),
    "a product in two shapes": (lambda x, w: seen_twice(x @ w), {"x": (4, 16), "w": (16, 15)}),
    "rolled in two shapes": (
        lambda x: (x + 1.0, rolled((x + 1.0).reshape(4, 3, 5), 2, 2), rolled(x + 1.0, 1, 2).reshape(4, 3, 5)),
        {"x": (4, 15)},
    ),
    "tokens": (lambda x, w: rolled(x, 0, 1).reshape(3, 2, 8) @ w, {"x": (6, 8), "w": (8, 4)}),
}

PROGRAMS = SPLIT | MERGED


def program(name: str, dtype: str) -> Program:
    function, shapes = PROGRAMS[name]
    return traced(function, dtype, **shapes)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_cpu_gives_the_values(name: str, dtype: str) -> None:
    source = program(name, dtype)
    compiled = compiled_from(source)
    for inputs in (normal_inputs(source), integer_inputs(source)):
        for got, wanted in zip(outputs_of(compiled, inputs), evaluate(source, inputs), strict=True):
            have, want = got.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(have, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_a_gpu_reads_nothing_outside(name: str, target: str) -> None:
    source = program(name, "fp16")
    check_emulated(compiled_from(source, target=target), [normal_inputs(source)], share=0)


@pytest.mark.parametrize("name", SPLIT)
def test_no_index_is_carried_into_the_next_row(name: str) -> None:
    """Where a shifted index leaves its row, only the condition says that nothing is read: it was the remainder of a division by the
    length of a row, and the quotient was added to the row, through all layers up to the inputs."""
    sizes = saturate(program(name, "fp32"), load_rules()).phases[-1].sizes
    assert sizes["Within"] > 0
    assert sizes.get("FloorDiv", 0) == 0
