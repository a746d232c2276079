"""Programs of several kernels: MLPs, a transformer block, values with several consumers, movement, reductions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny_documents
from end_checks import (
    Compiled,
    buffers,
    check_exact,
    check_values,
    compiled_from,
    contractions,
    integer_inputs,
    largest_intermediate,
    normal_inputs,
    only_kernel,
    outputs_of,
    reductions,
    traced,
)
from tiny_documents import Doc, Document

from tinyc import functions as tc
from tinyc.ir.region import Read

Tensor = Any
Shape = tuple[int, ...]

# ---- MLPs -------------------------------------------------------------------------------------------------------


def mlp_document(rows: int, width: int, hidden: int) -> Document:
    doc = Doc()
    x = doc.input("x", "fp32", rows, width)
    w1, b1 = doc.input("w1", "fp32", width, hidden), doc.input("b1", "fp32", hidden)
    w2, b2 = doc.input("w2", "fp32", hidden, width), doc.input("b2", "fp32", width)
    up = doc.unary("RELU", doc.add_row(doc.matmul(x, w1), b1))
    doc.binary("ADD", doc.add_row(doc.matmul(up, w2), b2), x)
    return doc.document()


def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return (x @ w1 + b1).relu() @ w2 + b2 + x


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("sizes", [(47, 48, 80), (64, 64, 64), (33, 257, 2), (2, 31, 33)], ids=str)
def test_mlp_with_a_shared_input(sizes: tuple[int, int, int], form: str) -> None:
    rows, width, hidden = sizes
    if form == "json":
        compiled = compiled_from(mlp_document(*sizes))
    else:
        shapes: dict[str, Shape] = {"x": (rows, width), "w1": (width, hidden), "b1": (hidden,)}
        compiled = compiled_from(traced(mlp, "fp32", **shapes, w2=(hidden, width), b2=(width,)))
    check_values(compiled, normal_inputs(compiled.program))
    check_exact(compiled, integer_inputs(compiled.program, largest=2))
    assert sum(len(contractions(kernel.region)) for kernel in compiled.kernels) == 2
    if min(sizes) < 40:  # so little work that one kernel may do it all
        assert len(compiled.kernels) <= 2
        return
    assert [kernel.plan.algo for kernel in compiled.kernels] == ["contraction"] * 2
    assert largest_intermediate(compiled) == rows * hidden


def test_two_products_of_one_input() -> None:
    """silu(x gate) * (x up): no more kernels than products, and each product once."""
    program = traced(
        lambda x, gate, up, down: ((x @ gate).silu() * (x @ up)) @ down,
        "fp32",
        x=(33, 48),
        gate=(48, 80),
        up=(48, 80),
        down=(80, 48),
    )
    compiled = compiled_from(program)
    check_values(compiled, normal_inputs(program))
    assert len(compiled.kernels) <= 3
    assert sum(len(contractions(kernel.region)) for kernel in compiled.kernels) == 3


# ---- transformer ------------------------------------------------------------------------------------------------

BLOCKS = {"usual": (32, 64, 4, 256), "primes": (17, 33, 3, 31), "all sizes equal": (16, 16, 16, 16)}


def block(x: Tensor, heads: int, p: dict[str, Tensor]) -> Tensor:
    tokens, width = x.shape
    normal = tc.layer_norm(x, p["norm1_w"], p["norm1_b"])
    q, k, v = (
        (normal @ p[name]).reshape(tokens, heads, width // heads).permute(1, 0, 2)
        for name in ("wq", "wk", "wv")
    )
    mixed = tc.attention(q, k, v, causal=True).permute(1, 0, 2).reshape(tokens, width)
    x = x + mixed @ p["wo"]
    up = tc.layer_norm(x, p["norm2_w"], p["norm2_b"]) @ p["w1"] + p["b1"]
    return x + ((up * (up * 1.702).sigmoid()) @ p["w2"] + p["b2"])


@functools.cache
def compiled_block(name: str, form: str) -> Compiled:
    tokens, width, heads, hidden = BLOCKS[name]
    if form == "json":
        return compiled_from(tiny_documents.transformer_block(tokens, width, heads, hidden))
    shapes: dict[str, Shape] = {
        "x": (tokens, width),
        "w1": (width, hidden),
        "w2": (hidden, width),
        "b1": (hidden,),
    }
    shapes |= {name: (width,) for name in ("norm1_w", "norm1_b", "norm2_w", "norm2_b", "b2")}
    shapes |= {name: (width, width) for name in ("wq", "wk", "wv", "wo")}
    return compiled_from(traced(lambda x, **p: block(x, heads, p), "fp32", **shapes))


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("name", BLOCKS)
def test_transformer_block(name: str, form: str) -> None:
    tokens, width, heads, hidden = BLOCKS[name]
    compiled = compiled_block(name, form)
    inputs = normal_inputs(compiled.program)
    for weight, array in inputs.items():
        if weight.startswith("w"):
            array *= 0.1  # as a trained network has them: the residuals stay of the size of one
    check_values(compiled, inputs)
    assert len(compiled.kernels) <= 12
    assert largest_intermediate(compiled) <= max(tokens * max(width, hidden), heads * tokens * tokens)
    products = sum(len(contractions(kernel.region)) for kernel in compiled.kernels)
    assert products >= 8, "wq wk wv, scores, mix, wo, w1, w2"


def test_two_forms_of_one_block_agree() -> None:
    """The document written by hand and the traced function are one program."""
    first, second = (compiled_block("usual", form) for form in ("json", "trace"))
    inputs = normal_inputs(second.program)
    (one,), (other,) = outputs_of(first, inputs), outputs_of(second, inputs)
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert len(first.kernels) == len(second.kernels)


# ---- values with several consumers --------------------------------------------------------------------------------


def three_consumers_document(rows: int, inner: int, columns: int) -> Document:
    doc = Doc()
    x, w = doc.input("x", "fp32", rows, inner), doc.input("w", "fp32", inner, columns)
    shared = doc.matmul(x, w)
    doc.unary("RELU", shared)
    doc.reduce("SUM", shared, [1])
    doc.reduce("MAX", shared, [0])
    return doc.document()


def three_consumers(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    shared = x @ w
    return shared.relu(), shared.sum(1), shared.max(0)


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("sizes", [(20, 30, 12), (16, 16, 16), (33, 17, 257), (64, 64, 64)], ids=str)
@pytest.mark.spec("004-086")
def test_a_value_read_by_three_consumers(sizes: tuple[int, int, int], form: str) -> None:
    rows, inner, columns = sizes
    if form == "json":
        compiled = compiled_from(three_consumers_document(*sizes))
    else:
        compiled = compiled_from(traced(three_consumers, "fp32", x=(rows, inner), w=(inner, columns)))
    check_exact(compiled, integer_inputs(compiled.program))
    assert len(compiled.kernels) <= 4
    assert all(len(reductions(kernel.region)) <= 2 for kernel in compiled.kernels)
    # a small product costs less than a launch, and a short one is done while its result is written to memory
    if rows * inner * columns > 100_000 and inner > 20:
        readers = [kernel for kernel in compiled.kernels if "x" in {ref.name for ref in kernel.region.inputs}]
        assert len(readers) == 1, "the others read the product from its buffer"


def diamond_document(rows: int, columns: int) -> Document:
    doc = Doc()
    x = doc.input("x", "fp32", rows, columns)
    root = doc.binary("ADD", doc.binary("MUL", x, x), 1.0)
    total = doc.keep(doc.reduce("SUM", root, [1]), (rows, columns))
    top = doc.keep(doc.reduce("MAX", root, [1]), (rows, columns))
    doc.binary("SUB", doc.binary("MUL", total, root), top)
    return doc.document()


def diamond(x: Tensor) -> Tensor:
    root = x * x + 1.0
    return root.sum(1, keepdims=True) * root - root.max(1, keepdims=True)


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("shape", [(16, 24), (33, 33), (2, 257), (257, 1)], ids=str)
def test_diamond(shape: Shape, form: str) -> None:
    compiled = compiled_from(diamond_document(*shape) if form == "json" else traced(diamond, "fp32", x=shape))
    check_exact(compiled, integer_inputs(compiled.program))
    check_values(compiled, normal_inputs(compiled.program))
    assert len(compiled.kernels) <= 3
    assert sum(len(reductions(kernel.region)) for kernel in compiled.kernels) <= 2


# ---- movement -----------------------------------------------------------------------------------------------------


def padded_max_document(rows: int, columns: int) -> Document:
    doc = Doc()
    doc.reduce("MAX", doc.pad(doc.input("x", "fp32", rows, columns), (0, 0), (1, 2)), [1])
    return doc.document()


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("shape", [(6, 10), (33, 1), (1, 257)], ids=str)
def test_max_over_a_padded_negative_tensor_is_the_padding(shape: Shape, form: str) -> None:
    if form == "json":
        compiled = compiled_from(padded_max_document(*shape))
    else:
        compiled = compiled_from(traced(lambda x: x.pad([(0, 0), (1, 2)]).max(1), "fp32", x=shape))
    x = -1 - np.random.default_rng(0).random(shape).astype(np.float32)
    np.testing.assert_array_equal(compiled(x=x), np.zeros(shape[0], np.float32))
    np.testing.assert_array_equal(compiled(x=-x), (-x).max(1))
    assert len(compiled.kernels) == 1 and largest_intermediate(compiled) == 0


def chain_document(rows: int, columns: int) -> Document:
    """FLIP, strided SHRINK, PAD, PERMUTE, RESHAPE, FLIP, SHRINK."""
    doc = Doc()
    x = doc.flip(doc.input("x", "fp32", rows, columns), 0)
    x = doc.shrink(x, (1, rows, 2), (0, columns, 3))
    x = doc.permute(doc.pad(doc.flip(x, 1), (1, 0), (0, 2), value=-1), 1, 0)
    size = int(np.prod(doc.shape[x]))
    doc.shrink(doc.flip(doc.reshape(x, size), 0), (0, size - 1, 2))
    return doc.document()


def chain_in_numpy(x: np.ndarray) -> np.ndarray:
    x = np.pad(x[::-1][1::2, ::3][:, ::-1], [(1, 0), (0, 2)], constant_values=-1).T
    return x.reshape(-1)[::-1][: x.size - 1 : 2]


def chain(x: Tensor) -> Tensor:
    x = x.flip(0)[1::2, ::3].flip(1).pad([(1, 0), (0, 2)], -1.0).T
    return x.reshape(-1).flip()[:-1:2]


CHAINS: dict[str, tuple[Callable[..., Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "flip shrink pad": (chain, chain_in_numpy),
    "pad of a pad": (
        lambda x: x.pad([(1, 0), (0, 1)], 2.0).pad([(0, 2), (3, 0)], -3.0),
        lambda x: np.pad(
            np.pad(x, [(1, 0), (0, 1)], constant_values=2), [(0, 2), (3, 0)], constant_values=-3
        ),
    ),
    "shrink into a pad": (
        lambda x: x.pad([(3, 3), (3, 3)], 5.0)[1::2, 2:-2],
        lambda x: np.pad(x, 3, constant_values=5)[1::2, 2:-2],
    ),
    "flip of a pad": (
        lambda x: x.pad([(2, 0), (0, 0)], 1.0).flip(0),
        lambda x: np.pad(x, [(2, 0), (0, 0)], constant_values=1)[::-1],
    ),
    "reshape of a transpose": (lambda x: x.T.reshape(x.shape), lambda x: x.T.reshape(x.shape)),
    "stride of a stride": (lambda x: x[::2][::3, 1::2], lambda x: x[::2][::3, 1::2]),
}


@pytest.mark.parametrize("shape", [(9, 14), (17, 33), (16, 16), (2, 3)], ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_movement_chains_are_one_read(name: str, shape: Shape) -> None:
    function, numpy = CHAINS[name]
    compiled = compiled_from(traced(function, "fp32", x=shape))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(compiled(x), numpy(x))
    assert largest_intermediate(compiled) == 0
    assert sum(isinstance(let.value, Read) for let in only_kernel(compiled).region.lets) == 1


@pytest.mark.parametrize("shape", [(9, 14), (17, 33), (16, 16)], ids=str)
def test_movement_chain_as_a_document(shape: Shape) -> None:
    compiled = compiled_from(chain_document(*shape))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(compiled(x), chain_in_numpy(x))
    assert len(buffers(compiled)) == 2


# ---- reductions over two axes -------------------------------------------------------------------------------------


def two_sums_document(op: str, shape: Shape, first: int, second: int) -> Document:
    doc = Doc()
    doc.reduce(op, doc.reduce(op, doc.input("x", "fp32", *shape), [first]), [second])
    return doc.document()


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("order", [(2, 0), (0, 1), (1, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("shape", [(6, 7, 8), (17, 17, 17), (2, 257, 3)], ids=str)
@pytest.mark.parametrize("op", ["SUM", "MAX"])
@pytest.mark.spec("004-080")
def test_two_reductions_become_one(op: str, shape: Shape, order: tuple[int, int], form: str) -> None:
    """In either order: one kernel with one Reduce over both axes, R0."""
    first, second = order
    if form == "json":
        compiled = compiled_from(two_sums_document(op, shape, first, second))
    else:
        name = op.lower()
        program = traced(lambda x: getattr(getattr(x, name)(first), name)(second), "fp32", x=shape)
        compiled = compiled_from(program)
    check_exact(compiled, integer_inputs(compiled.program))
    (reduction,) = reductions(only_kernel(compiled).region)
    assert len(reduction.axes) == 2
    assert len(buffers(compiled)) == 2


def test_different_operations_do_not_merge() -> None:
    """R4: a sum of maxima stays two reductions."""
    compiled = compiled_from(traced(lambda x: x.max(1).sum(0), "fp32", x=(33, 17)))
    check_exact(compiled, integer_inputs(compiled.program))
    found = [reduction.op for kernel in compiled.kernels for reduction in reductions(kernel.region)]
    assert sorted(found) == ["MAX", "SUM"]
