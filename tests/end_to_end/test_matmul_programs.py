"""Matrix products beside the plain one: batched, broadcast, with either operand transposed, from both front ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tiny_documents
from end_checks import (
    arrays_of,
    axis_sizes,
    buffers,
    check_bound,
    check_exact,
    check_tiled,
    check_values,
    compiled_from,
    contractions,
    integer_inputs,
    normal_inputs,
    only_kernel,
    outputs_of,
    traced,
)

Tensor = Any
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """``a``, ``b``: shapes as they are stored. ``flip``: which is transposed first. ``batch``: of the result."""

    a: Shape
    b: Shape
    batch: Shape = ()
    flip: str = ""

    @property
    def k(self) -> int:
        return self.a[-2] if "a" in self.flip else self.a[-1]

    def function(self, A: Tensor, B: Tensor) -> Tensor:
        left = A.swapaxes(-1, -2) if "a" in self.flip else A
        return left @ (B.swapaxes(-1, -2) if "b" in self.flip else B)


PRODUCTS = {
    "batched": Product((3, 24, 40), (3, 40, 16), (3,)),
    "batched, all sizes equal": Product((17, 17, 17), (17, 17, 17), (17,)),
    "two batch axes": Product((2, 3, 9, 11), (2, 3, 11, 13), (2, 3)),
    "broadcast": Product((2, 1, 24, 40), (3, 40, 16), (2, 3)),
    "one matrix for all": Product((5, 33, 17), (17, 19), (5,)),
    "one left matrix for all": Product((33, 17), (5, 17, 19), (5,)),
    "a bt": Product((33, 70), (130, 70), flip="b"),
    "at b": Product((70, 33), (70, 130), flip="a"),
    "at bt": Product((17, 257), (33, 17), flip="ab"),
    "a bt square": Product((64, 64), (64, 64), flip="b"),
    "batched a bt": Product((3, 7, 31), (3, 29, 31), (3,), flip="b"),
    "outer": Product((3, 33, 1), (3, 1, 17), (3,)),
    "rows times matrix": Product((3, 1, 33), (3, 33, 17), (3,)),
}
SHARED = {"one matrix for all": (2, 1), "one left matrix for all": (1, 2), "broadcast": (1, 1)}
"""How many m and n axes the contraction has where a batch axis belongs to one operand alone."""


def compile_product(form: str, dtype: str, product: Product) -> Any:
    if form == "json":
        return compiled_from(tiny_documents.matmul(dtype, product.a, product.b, product.batch, product.flip))
    return compiled_from(traced(product.function, dtype, A=product.a, B=product.b))


@pytest.mark.parametrize("form", ["json", "trace"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name: str, form: str) -> None:
    product = PRODUCTS[name]
    compiled = compile_product(form, "fp32", product)
    check_values(compiled, normal_inputs(compiled.program))
    check_bound(compiled, normal_inputs(compiled.program, seed=1), terms=product.k)
    check_exact(compiled, integer_inputs(compiled.program))
    kernel = only_kernel(compiled)
    result = evaluate_shape(compiled)
    assert sorted(buffers(compiled)) == sorted([product.a, product.b, result])
    if product.k == 1:
        assert not contractions(kernel.region)
        return
    (total,) = contractions(kernel.region)
    assert axis_sizes(total.axes) == [product.k]
    assert kernel.plan.algo == ("loops" if 1 in evaluate_shape(compiled)[-2:] else "contraction")


def evaluate_shape(compiled: Any) -> Shape:
    (port,) = compiled.program.outputs
    return tuple(map(int, compiled.program.types[port.node].shape))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["broadcast", "a bt", "at b"])
def test_narrow_products(name: str, dtype: str) -> None:
    compiled = compile_product("json", dtype, PRODUCTS[name])
    check_values(compiled, normal_inputs(compiled.program))
    check_bound(compiled, normal_inputs(compiled.program, seed=1), terms=PRODUCTS[name].k)
    check_exact(compiled, integer_inputs(compiled.program, largest=1))


def test_axes_of_the_batch_have_their_roles() -> None:
    """A batch axis of both operands is a batch axis; one that only one operand has is an axis of that operand."""
    plan = only_kernel(compile_product("trace", "fp32", PRODUCTS["two batch axes"])).plan.contraction
    assert plan is not None and len(plan.batch) == 2
    for name, (m, n) in SHARED.items():
        kernel = only_kernel(compile_product("trace", "fp32", PRODUCTS[name]))
        wide = 2 if name == "broadcast" else 0
        roles = kernel.plan.contraction
        assert roles is not None
        assert len(roles.batch) == 0
        assert (len(roles.m), len(roles.n)) == ((2, 2) if wide else (m, n))


@pytest.mark.parametrize("name", ["batched", "a bt", "at b", "broadcast"])
def test_every_k_is_summed_once(name: str) -> None:
    """With one k of A one and the rest zero, each matrix of the product repeats that row of B."""
    product = PRODUCTS[name]
    compiled = compile_product("trace", "fp32", product)
    b = np.arange(np.prod(product.b), dtype=np.float32).reshape(product.b)
    rows = b.swapaxes(-1, -2) if "b" in product.flip else b
    shape = evaluate_shape(compiled)
    for index in range(product.k):
        a = np.zeros(product.a, np.float32)
        (a.swapaxes(-1, -2) if "a" in product.flip else a)[..., index] = 1
        (got,) = outputs_of(compiled, {"A": a, "B": b})
        np.testing.assert_array_equal(got, np.broadcast_to(rows[..., index : index + 1, :], shape))


PERMUTED: dict[str, tuple[Callable[..., Tensor], dict[str, Shape]]] = {
    "heads between rows and columns": (
        lambda A, B: A.permute(1, 0, 2) @ B.permute(1, 2, 0),
        {"A": (9, 3, 16), "B": (11, 3, 16)},
    ),
    "all axes turned": (
        lambda A, B: A.permute(2, 1, 0) @ B.permute(2, 1, 0),
        {"A": (7, 5, 3), "B": (9, 7, 3)},
    ),
    "every size equal": (
        lambda A, B: A.permute(2, 1, 0) @ B.permute(1, 0, 2),
        {"A": (16, 16, 16), "B": (16, 16, 16)},
    ),
    "flipped k of both": (lambda A, B: A.flip(1) @ B.flip(0), {"A": (33, 17), "B": (17, 9)}),
    "a slice of each": (lambda A, B: A[3:, ::2] @ B[1:10, ::-1], {"A": (33, 17), "B": (17, 9)}),
}


@pytest.mark.parametrize("name", PERMUTED)
def test_movement_of_operands_is_read_through(name: str) -> None:
    function, shapes = PERMUTED[name]
    compiled = compiled_from(traced(function, "fp32", **shapes))
    check_exact(compiled, integer_inputs(compiled.program))
    check_tiled(only_kernel(compiled))
    assert len(buffers(compiled)) == 3


def test_the_result_may_be_moved_too() -> None:
    program = traced(lambda A, B: (A @ B).permute(1, 2, 0).flip(0), "fp32", A=(3, 9, 16), B=(3, 16, 11))
    compiled = compiled_from(program)
    check_exact(compiled, integer_inputs(compiled.program))
    assert len(compiled.kernels) == 1
    assert len(contractions(only_kernel(compiled).region)) == 1


def test_two_sums_over_one_product_of_matrices() -> None:
    """Sum over k and over the rows at once: the rows join k."""
    program = traced(lambda A, B: (A @ B).sum(0), "fp32", A=(33, 17), B=(17, 9))
    compiled = compiled_from(program)
    check_exact(compiled, integer_inputs(program))
    assert all(len(shape) <= 2 for shape in buffers(compiled))


def test_zero_strided_operand() -> None:
    """A scalar matrix broadcast to [M, K] is a product all the same."""
    program = traced(lambda a, B: a.broadcast_to((33, 17)) @ B, "fp32", a=(1, 1), B=(17, 9))
    compiled = compiled_from(program)
    check_exact(compiled, integer_inputs(program))
    inputs = arrays_of(program, np.ones)
    np.testing.assert_array_equal(compiled(**inputs), np.full((33, 9), 17.0))
