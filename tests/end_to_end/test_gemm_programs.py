"""GEMM + bias + ReLU, from both front ends: one kernel, one contraction with its epilogue, and every value right."""

from __future__ import annotations

import functools
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
    check_tiled,
    check_values,
    compiled_from,
    contractions,
    integer_inputs,
    normal_inputs,
    only_kernel,
    outputs_of,
    reductions,
    traced,
)

from tinyc import functions as tc
from tinyc.ir.region import Unary

Tensor = Any

SIZES = [
    (150, 130, 70),
    (1, 1, 1),
    (64, 64, 64),
    (33, 17, 1),
    (2, 257, 17),
    (31, 2, 33),
    (1, 33, 17),
    (33, 1, 17),
]
DTYPES = ["fp16", "bf16", "fp32"]
FORMS = ["json", "trace"]


def gemm(A: Tensor, B: Tensor, bias: Tensor) -> Tensor:
    return (tc.matmul(A, B, dtype="fp32") + bias.cast("fp32")).relu().cast(A.dtype)


@functools.cache
def compiled_gemm(form: str, dtype: str, m: int, n: int, k: int) -> Compiled:
    if form == "json":
        return compiled_from(tiny_documents.gemm_bias_relu(dtype, m, n, k))
    return compiled_from(traced(gemm, dtype, A=(m, k), B=(k, n), bias=(n,)))


every_gemm = pytest.mark.parametrize(
    ("form", "dtype", "size"),
    [(form, dtype, size) for size in SIZES for dtype in DTYPES for form in FORMS],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else value,
)


@every_gemm
@pytest.mark.spec("002-36", "004-093", "I-37")
def test_gemm(form: str, dtype: str, size: tuple[int, int, int]) -> None:
    compiled = compiled_gemm(form, dtype, *size)
    check_values(compiled, normal_inputs(compiled.program))
    check_bound(compiled, normal_inputs(compiled.program, seed=1), terms=size[2])
    check_exact(compiled, integer_inputs(compiled.program, largest=2 if dtype == "bf16" else 4))


@pytest.mark.spec("004-005", "004-009", "004-083")
@every_gemm
def test_gemm_is_one_kernel_with_its_epilogue(form: str, dtype: str, size: tuple[int, int, int]) -> None:
    compiled = compiled_gemm(form, dtype, *size)
    m, n, k = size
    kernel = only_kernel(compiled)
    assert any(isinstance(let.value, Unary) and let.value.op == "RELU" for let in kernel.region.lets)
    assert sorted(buffers(compiled)) == sorted([(m, k), (k, n), (n,), (m, n)]), "operands and result, no more"
    assert axis_sizes(kernel.region.iters) == [m, n]
    if k == 1:
        assert not reductions(kernel.region)
        return
    (sum_,) = contractions(kernel.region)
    assert axis_sizes(sum_.axes) == [k]
    if m > 1 and n > 1:
        check_tiled(kernel)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(150, 130, 70), (64, 64, 64), (5, 3, 257)])
def test_every_k_is_summed_once(dtype: str, size: tuple[int, int, int]) -> None:
    """One-hot probes: with column k of A one and the rest zero, every row of the product is row k of B."""
    compiled = compiled_gemm("json", dtype, *size)
    m, n, k = size
    zero = arrays_of(compiled.program, np.zeros)
    a = (np.arange(m * k).reshape(m, k) % 61 + 1).astype(zero["A"].dtype)
    b = (np.arange(k * n).reshape(k, n) % 59 + 1).astype(zero["A"].dtype)
    for index in range(k):
        column, row = zero["A"].copy(), zero["B"].copy()
        column[:, index] = 1
        row[index, :] = 1
        (rows,) = outputs_of(compiled, {**zero, "A": column, "B": b})
        np.testing.assert_array_equal(rows, np.broadcast_to(b[index], (m, n)))
        (columns,) = outputs_of(compiled, {**zero, "A": a, "B": row})
        np.testing.assert_array_equal(columns, np.broadcast_to(a[:, index : index + 1], (m, n)))


def gelu(A: Tensor, B: Tensor, bias: Tensor) -> Tensor:
    return tc.gelu(A @ B + bias)


def residual(A: Tensor, B: Tensor, R: Tensor) -> Tensor:
    return (A @ B) * 0.5 + R


def negated_sum_of_scaled(A: Tensor, B: Tensor) -> Tensor:
    return -(A @ (B * 3.0))


def clamped(A: Tensor, B: Tensor) -> Tensor:
    return tc.minimum(tc.maximum(A @ B, -1.0), 1.0)


EPILOGUES: dict[str, Any] = {
    "gelu": (gelu, {"A": (33, 17), "B": (17, 257), "bias": (257,)}),
    "residual": (residual, {"A": (17, 33), "B": (33, 2), "R": (17, 2)}),
    "scaled operand": (negated_sum_of_scaled, {"A": (19, 23), "B": (23, 29)}),
    "clamp": (clamped, {"A": (64, 64), "B": (64, 64)}),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_join_the_kernel(name: str) -> None:
    function, shapes = EPILOGUES[name]
    compiled = compiled_from(traced(function, "fp32", **shapes))
    check_tiled(only_kernel(compiled))
    check_values(compiled, normal_inputs(compiled.program))


PROLOGUES: dict[str, Any] = {
    "relu of an operand": (lambda A, B: A.relu() @ B, {"A": (33, 17), "B": (17, 65)}),
    "sum of two operands": (lambda A, C, B: (A + C) @ B, {"A": (33, 17), "C": (33, 17), "B": (17, 65)}),
    "exp of both": (lambda A, B: tc.exp(A) @ tc.exp(B), {"A": (17, 33), "B": (33, 17)}),
}


@pytest.mark.parametrize("name", PROLOGUES)
def test_work_on_an_operand_does_not_cost_the_contraction(name: str) -> None:
    """The operand is prepared in a kernel of its own size, or in the loop: the product of all three sizes is no buffer."""
    function, shapes = PROLOGUES[name]
    compiled = compiled_from(traced(function, "fp32", **shapes))
    assert len(compiled.kernels) <= 3
    assert sum(len(contractions(kernel.region)) for kernel in compiled.kernels) == 1
    assert all(len(shape) <= 2 for shape in buffers(compiled))
    check_values(compiled, normal_inputs(compiled.program))


def test_the_same_operand_twice() -> None:
    compiled = compiled_from(traced(lambda A: A @ A.T, "fp32", A=(33, 17)))
    check_tiled(only_kernel(compiled))
    check_exact(compiled, integer_inputs(compiled.program))


def test_a_square_of_one_operand() -> None:
    compiled = compiled_from(traced(lambda A: A @ A, "fp32", A=(33, 33)))
    check_tiled(only_kernel(compiled))
    check_exact(compiled, integer_inputs(compiled.program))


def test_a_chain_of_products() -> None:
    program = traced(lambda A, B, C: A @ B @ C, "fp32", A=(33, 17), B=(17, 19), C=(19, 65))
    compiled = compiled_from(program)
    assert len(compiled.kernels) == 2
    for kernel in compiled.kernels:
        check_tiled(kernel)
    check_exact(compiled, integer_inputs(compiled.program))


def test_a_rank_one_product_has_no_contraction() -> None:
    compiled = compiled_from(
        traced(lambda a, b: a.reshape(33, 1) @ b.reshape(1, 17), "fp32", a=(33,), b=(17,))
    )
    assert not reductions(only_kernel(compiled).region)
    check_exact(compiled, integer_inputs(compiled.program))


def test_integer_gemm_wraps_as_numpy_does() -> None:
    program = traced(lambda A, B: A @ B, "i32", A=(33, 17), B=(17, 9))
    compiled = compiled_from(program)
    check_tiled(only_kernel(compiled))
    generator = np.random.default_rng(0)
    big = arrays_of(program, lambda shape: generator.integers(-(2**31), 2**31, shape))
    np.testing.assert_array_equal(compiled(**big), big["A"] @ big["B"])


def test_special_values_behave_as_in_numpy() -> None:
    """NaN and infinities reach exactly the rows and columns that they reach in numpy."""
    compiled = compiled_gemm("json", "fp32", 33, 17, 1)
    product = compiled_from(traced(lambda A, B: A @ B, "fp32", A=(9, 7), B=(7, 8)))
    inputs = normal_inputs(product.program)
    inputs["A"][2, 3], inputs["A"][4, 1], inputs["B"][5, 6] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(product(**inputs), inputs["A"] @ inputs["B"], rtol=1e-5)
    ones = arrays_of(compiled.program, np.ones)
    ones["bias"][:] = np.nan
    assert np.isnan(compiled(**ones)).all(), "ReLU keeps NaN, as numpy's maximum does"
