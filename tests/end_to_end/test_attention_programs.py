"""Attention, softmax and the norms from both front ends: few kernels, nothing larger than the scores."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tiny_documents
from end_checks import (
    Compiled,
    buffers,
    check_values,
    compiled_from,
    contractions,
    integer_inputs,
    largest_intermediate,
    normal_inputs,
    outputs_of,
    reductions,
    traced,
)
from tiny_documents import Doc, Document

from tinyc import functions as tc
from tinyc.ir.evaluate import evaluate

Tensor = Any


@dataclass(frozen=True)
class Attention:
    batch: int
    heads: int
    m: int
    n: int
    d: int
    causal: bool = False
    mask: bool = False
    dtype: str = "fp32"


CASES = {
    "plain": Attention(2, 4, 32, 48, 16),
    "m = n = heads": Attention(1, 8, 8, 8, 8),
    "m = n": Attention(2, 3, 33, 33, 17),
    "causal": Attention(2, 4, 32, 32, 16, causal=True),
    "causal, m = n = heads": Attention(1, 16, 16, 16, 16, causal=True),
    "causal, m != n": Attention(1, 2, 17, 33, 8, causal=True),
    "mask": Attention(2, 4, 32, 48, 16, mask=True),
    "mask, m = n = heads": Attention(1, 8, 8, 8, 8, mask=True),
    "causal and mask": Attention(1, 2, 31, 31, 16, causal=True, mask=True),
    "one head, primes": Attention(1, 1, 29, 37, 13),
    "one row": Attention(2, 4, 1, 65, 16),
    "one column": Attention(2, 4, 9, 1, 16),
    "large": Attention(1, 2, 128, 160, 64),
    "large, causal": Attention(1, 2, 128, 128, 64, causal=True),
    "fp16": Attention(1, 2, 33, 17, 16, dtype="fp16"),
    "bf16": Attention(1, 2, 33, 17, 16, dtype="bf16"),
}


@functools.cache
def compiled_attention(name: str, form: str, streaming: bool = True) -> Compiled:
    """Without ``streaming`` the scores are stored."""
    case = CASES[name]
    without = [] if streaming else ["streaming"]
    if form == "json":
        options = {"causal": case.causal, "mask": case.mask}
        return compiled_from(
            tiny_documents.attention(case.dtype, case.batch, case.heads, case.m, case.n, case.d, **options),
            without=without,
        )
    shapes: dict[str, tuple[int, ...]] = {
        name: (case.batch, case.heads, rows, case.d)
        for name, rows in (("Q", case.m), ("K", case.n), ("V", case.n))
    }
    if case.mask:
        shapes["mask"] = (case.m, case.n)
    return compiled_from(
        traced(
            lambda Q, K, V, mask=None: tc.attention(Q, K, V, mask, causal=case.causal), case.dtype, **shapes
        )
        if case.mask
        else traced(lambda Q, K, V: tc.attention(Q, K, V, causal=case.causal), case.dtype, **shapes),
        without=without,
    )


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.spec("002-41", "004-005")
def test_attention(name: str, form: str) -> None:
    compiled = compiled_attention(name, form)
    check_values(compiled, normal_inputs(compiled.program))
    assert len(compiled.kernels) <= 3
    assert all(len(shape) <= 4 for shape in buffers(compiled))


@pytest.mark.parametrize("name", CASES)
def test_attention_with_stored_scores(name: str) -> None:
    case, compiled = CASES[name], compiled_attention(name, "json", streaming=False)
    check_values(compiled, normal_inputs(compiled.program))
    assert len(compiled.kernels) <= 3
    sums = [len(contractions(kernel.region)) for kernel in compiled.kernels]
    expected = (case.d > 1) + (case.n > 1)
    assert sum(sums) >= expected
    scores = case.batch * case.heads * case.m * case.n
    assert largest_intermediate(compiled) <= scores, "no product of three sizes is ever stored"
    assert all(len(shape) <= 4 for shape in buffers(compiled))


@pytest.mark.parametrize("name", ["large", "large, causal"])
def test_both_products_of_a_large_attention_are_tiled(name: str) -> None:
    """A small one may pay for its launches with loops instead."""
    plans = [kernel.plan.algo for kernel in compiled_attention(name, "trace", streaming=False).kernels]
    assert plans.count("contraction") == 2, plans


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("name", ["causal", "causal, m = n = heads", "causal, m != n"])
def test_causal_rows_see_no_later_column(name: str, form: str) -> None:
    """A key and a value beyond the diagonal, NaN even, change nothing above it."""
    case, compiled = CASES[name], compiled_attention(name, form)
    inputs = normal_inputs(compiled.program)
    (before,) = outputs_of(compiled, inputs)
    column = min(case.m, case.n) // 2
    changed = {key: array.copy() for key, array in inputs.items()}
    changed["K"][:, :, column] += 3
    changed["V"][:, :, column] += 3
    (after,) = outputs_of(compiled, changed)
    np.testing.assert_array_equal(after[:, :, :column], before[:, :, :column])
    assert (after[:, :, column:] != before[:, :, column:]).any(axis=-1).all()


@pytest.mark.parametrize("name", ["plain", "m = n = heads"])
def test_attention_picks_the_row_of_the_largest_score(name: str) -> None:
    """One-hot probe: where one key matches a query by far, the result is that key's value, exactly."""
    case, compiled = CASES[name], compiled_attention(name, "json")
    inputs = integer_inputs(compiled.program)
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, min(case.n, case.d), (case.batch, case.heads, case.m))
    inputs["K"][:] = 0
    for column in range(min(case.n, case.d)):
        inputs["K"][:, :, column, column] = 4096
    inputs["Q"] = np.eye(case.d, dtype=np.float32)[chosen] * 64
    (got,) = outputs_of(compiled, inputs)
    want = np.take_along_axis(inputs["V"], chosen[..., None], axis=2)
    np.testing.assert_array_equal(got, want)


def test_a_fully_masked_row_is_nan() -> None:
    compiled = compiled_attention("mask", "json")
    inputs = normal_inputs(compiled.program)
    inputs["mask"][3] = -np.inf
    (got,) = outputs_of(compiled, inputs)
    assert np.isnan(got[:, :, 3]).all() and not np.isnan(np.delete(got, 3, axis=2)).any()


# ---- softmax and norms ------------------------------------------------------------------------------------------


def softmax_document(shape: tuple[int, ...]) -> Document:
    doc = Doc()
    doc.softmax(doc.input("x", "fp32", *shape))
    return doc.document()


def log_softmax_document(shape: tuple[int, ...]) -> Document:
    doc = Doc()
    x, last = doc.input("x", "fp32", *shape), len(shape) - 1
    centred = doc.binary("SUB", x, doc.keep(doc.reduce("MAX", x, [last]), shape))
    total = doc.reduce("SUM", doc.exp(centred), [last])
    log = doc.binary("MUL", doc.unary("LOG2", total), 1 / tiny_documents.LOG2_E)
    doc.binary("SUB", centred, doc.keep(log, shape))
    return doc.document()


def layer_norm_document(shape: tuple[int, ...]) -> Document:
    doc = Doc()
    x = doc.input("x", "fp32", *shape)
    doc.layer_norm(x, doc.input("weight", "fp32", shape[-1]), doc.input("bias", "fp32", shape[-1]))
    return doc.document()


def rms_norm_document(shape: tuple[int, ...]) -> Document:
    doc = Doc()
    x, weight, last = doc.input("x", "fp32", *shape), doc.input("weight", "fp32", shape[-1]), len(shape) - 1
    mean = doc.binary("FDIV", doc.reduce("SUM", doc.binary("MUL", x, x), [last]), float(shape[-1]))
    scale = doc.unary("RSQRT", doc.binary("ADD", mean, 1e-6))
    normal = doc.binary("MUL", x, doc.keep(scale, shape))
    doc.binary("MUL", normal, doc.spread(weight, shape, [last]))
    return doc.document()


ROWS = {
    "softmax": (softmax_document, lambda x: tc.softmax(x), ()),
    "log softmax": (log_softmax_document, lambda x: tc.log_softmax(x), ()),
    "layer norm": (
        layer_norm_document,
        lambda x, weight, bias: tc.layer_norm(x, weight, bias),
        ("weight", "bias"),
    ),
    "rms norm": (rms_norm_document, lambda x, weight: tc.rms_norm(x, weight), ("weight",)),
}


def compile_rows(name: str, form: str, shape: tuple[int, ...]) -> Compiled:
    document, function, vectors = ROWS[name]
    if form == "json":
        return compiled_from(document(shape))
    return compiled_from(traced(function, "fp32", x=shape, **{vector: shape[-1:] for vector in vectors}))


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("shape", [(17, 96), (2, 3, 257), (33, 33), (96,), (1, 2)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, shape: tuple[int, ...], form: str) -> None:
    compiled = compile_rows(name, form, shape)
    check_values(compiled, normal_inputs(compiled.program))
    assert len(compiled.kernels) <= 3
    assert largest_intermediate(compiled) <= np.prod(shape)
    passes = sum(len(reductions(kernel.region)) for kernel in compiled.kernels)
    assert passes <= 4, "no statistic of a row is computed over and over"


@pytest.mark.parametrize("form", ["json", "trace"])
def test_softmax_of_large_and_of_infinite_values(form: str) -> None:
    compiled = compile_rows("softmax", form, (17, 96))
    x = np.random.default_rng(0).normal(size=(17, 96)).astype(np.float32) * 1000
    x[0], x[1, 5], x[2, 7] = -np.inf, np.inf, -np.inf
    (want,) = evaluate(compiled.program, {"x": x})
    (got,) = outputs_of(compiled, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    assert np.isnan(got[0]).all() and np.isnan(got[1]).all() and got[2, 7] == 0
    np.testing.assert_allclose(got[2:].sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("form", ["json", "trace"])
def test_equal_rows_are_exact(form: str) -> None:
    """Of 2^k equal values each has the probability 2^-k; a layer norm of equal values is its bias."""
    softmax = compile_rows("softmax", form, (4, 64))
    np.testing.assert_array_equal(softmax(x=np.full((4, 64), 3, np.float32)), np.full((4, 64), 1 / 64))
    norm = compile_rows("layer norm", form, (4, 64))
    bias = np.arange(64, dtype=np.float32)
    got = norm(x=np.full((4, 64), 3, np.float32), weight=np.ones(64, np.float32), bias=bias)
    np.testing.assert_array_equal(got, np.broadcast_to(bias, (4, 64)))
