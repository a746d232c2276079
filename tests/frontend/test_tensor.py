"""Every operation of traced tensors does what numpy does: one expression, evaluated in both."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from frontend_helpers import Array, integers, normal, same, traced
from numpy.lib.stride_tricks import sliding_window_view

from tinyc import functions as tc


def _sigmoid(x: Array) -> Array:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


def _gelu(x: Array) -> Array:
    wide = x.astype(np.float64)
    return (0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))).astype(x.dtype)


def _softmax(x: Array, axis: Any = -1) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return (powers / powers.sum(axis, keepdims=True)).astype(x.dtype)


def _layer_norm(x: Array, w: Array, b: Array, axis: Any = -1, eps: float = 1e-5) -> Array:
    wide = x.astype(np.float64)
    normalised = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + eps)
    return (normalised * w + b).astype(x.dtype)


#: numpy under the names that tinyc has and numpy lacks
NUMPY = SimpleNamespace(
    **{name: getattr(np, name) for name in dir(np) if not name.startswith("_")}
    | {
        "relu": lambda x: np.maximum(x, 0),
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": _sigmoid,
        "silu": lambda x: (x * _sigmoid(x.astype(np.float64))).astype(x.dtype),
        "gelu": _gelu,
        "softmax": _softmax,
        "log_softmax": lambda x, axis=-1: np.log(_softmax(x.astype(np.float64), axis)).astype(x.dtype),
        "layer_norm": _layer_norm,
        "permute": np.transpose,
        "cast": lambda x, dtype: x.astype({"fp16": "f2", "fp32": "f4", "i32": "i4", "bool": "?"}[dtype]),
        "zeros": lambda shape: np.zeros(shape, np.float32),
        "ones": lambda shape: np.ones(shape, np.float32),
        "full": lambda shape, value, dtype="fp32": np.full(
            shape, value, {"fp32": "f4", "i32": "i4", "bool": "?"}[dtype]
        ),
        "arange": lambda n, dtype="i32": np.arange(n, dtype={"fp32": "f4", "i32": "i4"}[dtype]),
        "pad": lambda x, pads, value=0: np.pad(x, pads, constant_values=value),
    }
)

A, B = normal(3, 4), normal(3, 4, seed=1)
INT, JNT = integers(3, 4, dtype=np.int32), integers(3, 4, seed=1, dtype=np.int32)
P = np.abs(A) + np.float32(0.1)
T = normal(2, 3, 4)
ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5], np.float32)

Case = tuple[Callable[..., Any], tuple[Array, ...]]
EXACT: dict[str, Case] = {
    "add": (lambda xp, x, y: x + y, (A, B)),
    "sub_broadcast": (lambda xp, x, y: x - y, (A, B[:1])),
    "mul_rank": (lambda xp, x, y: x * y, (T, A)),
    "column_times_row": (lambda xp, x, y: x * y, (A[:, :1], A[0])),
    "div": (lambda xp, x, y: x / y, (A, B)),
    "scalars": (lambda xp, x: 2.0 - x * 3.0 + 1.0, (A,)),
    "scalar_ints": (lambda xp, x: 1 - x * 2, (A,)),
    "reciprocal": (lambda xp, x: 1.0 / x, (P,)),
    "square": (lambda xp, x: x**2, (A,)),
    "negate": (lambda xp, x: -x + +x, (A,)),
    "abs": (lambda xp, x: abs(x), (A,)),
    "abs_function": (lambda xp, x: xp.abs(x), (INT,)),
    "i32": (lambda xp, x, y: x * y - 3 + y, (INT, JNT)),
    "numpy_scalar_left": (lambda xp, x: np.float32(2.5) * x, (A,)),
    "numpy_scalar_right": (lambda xp, x: x - np.float32(2.5), (A,)),
    "numpy_scalar_compare": (lambda xp, x: np.float32(0.5) < x, (A,)),
    "maximum": (lambda xp, x, y: xp.maximum(x, y), (A, B)),
    "minimum_scalar": (lambda xp, x: xp.minimum(x, 0.25), (A,)),
    "maximum_scalar_left": (lambda xp, x: xp.maximum(0.25, x), (A,)),
    "maximum_nan": (lambda xp, x: xp.maximum(x, 1.0), (ODD,)),
    "relu": (lambda xp, x: xp.relu(x), (A,)),
    "sqrt": (lambda xp, x: xp.sqrt(x), (P,)),
    "less": (lambda xp, x, y: x < y, (A, B)),
    "less_equal": (lambda xp, x, y: x <= y, (INT, JNT)),
    "less_equal_nan": (lambda xp, x: x <= 1.5, (ODD,)),
    "greater": (lambda xp, x: x > 0, (A,)),
    "greater_equal_nan": (lambda xp, x: x >= 0.0, (ODD,)),
    "greater_left": (lambda xp, x: x < 0.5, (A,)),
    "equal": (lambda xp, x, y: x == y, (INT, JNT)),
    "not_equal_nan": (lambda xp, x: x != x, (ODD,)),
    "and_or_not": (lambda xp, x, y: ((x > 0) & (y > 0)) | ~(x < y), (A, B)),
    "xor": (lambda xp, x, y: (x > 0) ^ (y > 0), (A, B)),
    "and_true": (lambda xp, x: (x > 0) & True, (A,)),
    "where": (lambda xp, x, y: xp.where(x > 0, x, y), (A, B)),
    "where_scalar": (lambda xp, x: xp.where(x > 0, x, -1.0), (A,)),
    "where_scalar_first": (lambda xp, x: xp.where(x > 0, 1.0, x), (A,)),
    "where_broadcast": (lambda xp, x, y: xp.where(y > 0, x, 0.0), (T, A[:1])),
    "where_grows": (lambda xp, x, y: xp.where(x > 0, y, y + 1.0), (T, A[0])),
    "where_infinite": (lambda xp, x: xp.where(x > 0, x, -np.inf), (A,)),
    "cast_i32": (lambda xp, x: xp.cast(x * 3.0, "i32"), (A,)),
    "cast_bool": (lambda xp, x: xp.cast(x, "bool"), (INT,)),
    "cast_fp16": (lambda xp, x: xp.cast(x, "fp16"), (A,)),
    "reshape": (lambda xp, x: x.reshape(6, 4), (T,)),
    "reshape_tuple": (lambda xp, x: xp.reshape(x, (2, -1)), (T,)),
    "reshape_flat": (lambda xp, x: x.reshape(-1), (T,)),
    "reshape_scalar": (lambda xp, x: x.reshape(()), (A[:1, :1],)),
    "transpose": (lambda xp, x: x.T, (T,)),
    "transpose_axes": (lambda xp, x: x.transpose(1, 0, 2), (T,)),
    "permute": (lambda xp, x: xp.permute(x, (2, 0, 1)), (T,)),
    "permute_negative": (lambda xp, x: xp.permute(x, (0, -1, 1)), (T,)),
    "swapaxes": (lambda xp, x: x.swapaxes(0, -1), (T,)),
    "broadcast_to": (lambda xp, x: xp.broadcast_to(x, (5, 3, 4)), (A,)),
    "expand_dims": (lambda xp, x: xp.expand_dims(x, (0, -1)), (A,)),
    "squeeze": (lambda xp, x: xp.squeeze(x), (T[:1, :, :1],)),
    "squeeze_axis": (lambda xp, x: xp.squeeze(x, 0), (T[:1, :, :1],)),
    "flip": (lambda xp, x: xp.flip(x, 1), (T,)),
    "flip_all": (lambda xp, x: xp.flip(x), (T,)),
    "pad": (lambda xp, x: xp.pad(x, ((1, 2), (0, 3))), (A,)),
    "pad_value": (lambda xp, x: xp.pad(x, 1, -2.5), (A,)),
    "pad_array": (lambda xp, x: xp.pad(x, np.array([[1, 2], [0, 3]])), (A,)),
    "permute_array": (lambda xp, x: xp.permute(x, np.argsort([3, 1, 2])), (T,)),
    "axes_array": (lambda xp, x: x.max(tuple(np.array([0, 2]))), (T,)),
    "pad_pair": (lambda xp, x: xp.pad(x, (1, 2)), (A,)),
    "index": (lambda xp, x: x[1], (T,)),
    "index_negative": (lambda xp, x: x[-1, 0], (T,)),
    "index_scalar": (lambda xp, x: x[1, 2, 3], (T,)),
    "slice": (lambda xp, x: x[:, 1:3], (T,)),
    "slice_negative": (lambda xp, x: x[..., -3:-1], (T,)),
    "slice_step": (lambda xp, x: x[:, ::2, 1::2], (T,)),
    "slice_beyond": (lambda xp, x: x[:, 1:99], (T,)),
    "slice_backwards": (lambda xp, x: x[::-1, :, ::-2], (T,)),
    "slice_backwards_bounds": (lambda xp, x: x[:, :, 2:0:-1], (T,)),
    "slice_backwards_start": (lambda xp, x: x[:, :, -2::-2], (T,)),
    "newaxis": (lambda xp, x: x[None, :, None], (A,)),
    "ellipsis_middle": (lambda xp, x: x[0, ..., None, 1], (T,)),
    "iterate": (lambda xp, x: sum(row for row in x), (A,)),
    "max": (lambda xp, x: x.max(1), (T,)),
    "min_keepdims": (lambda xp, x: xp.min(x, (0, 2), keepdims=True), (T,)),
    "max_all": (lambda xp, x: xp.max(x), (T,)),
    "sum_ints": (lambda xp, x: x.sum((0, -1)), (integers(3, 4, 5),)),
    "sum_i32": (lambda xp, x: x.sum(0).astype(np.int32 if xp is NUMPY else "i32"), (INT,)),
    "sum_bool": (lambda xp, x: xp.cast((x > 0).sum(1), "i32"), (A,)),
    "prod_ints": (lambda xp, x: xp.prod(x, 1), (integers(3, 4),)),
    "sum_keepdims": (lambda xp, x: xp.sum(x, 1, keepdims=True), (integers(3, 4),)),
    "max_nan": (lambda xp, x: x.max(), (ODD,)),
    "concatenate": (lambda xp, x, y: xp.concatenate([x, y, x], 1), (A, B[:, :2])),
    "concatenate_odd": (lambda xp, x, y: xp.concatenate([x, y]), (ODD, -ODD)),
    "concatenate_bool": (lambda xp, x: xp.concatenate([x > 0, x < 0]), (A,)),
    "concatenate_one": (lambda xp, x: xp.concatenate([x]), (A,)),
    "stack": (lambda xp, x, y: xp.stack([x, y], -1), (A, B)),
    "zeros": (lambda xp, x: xp.zeros((2, 3)) + x[:1, :3], (A,)),
    "ones": (lambda xp, x: xp.ones(4) * x, (A,)),
    "full": (lambda xp, x: xp.full((3, 1), -2.5) - x, (A,)),
    "full_infinite": (lambda xp, x: xp.full((2,), np.inf), (A,)),
    "full_negative_zero": (lambda xp, x: xp.full((2,), -0.0), (A,)),
    "full_i32": (lambda xp, x: xp.full((2, 2), -7, "i32"), (A,)),
    "full_bool": (lambda xp, x: xp.where(xp.full((4,), False, "bool"), x, 1.0), (A,)),
    "arange": (lambda xp, x: xp.arange(7), (A,)),
    "arange_one": (lambda xp, x: xp.arange(1), (A,)),
    "arange_float": (lambda xp, x: xp.arange(4, "fp32") * x, (A,)),
    "matmul": (lambda xp, x, y: x @ y, (integers(5, 7), integers(7, 3))),
    "matmul_vector_right": (lambda xp, x, y: x @ y, (integers(5, 7), integers(7))),
    "matmul_vector_left": (lambda xp, x, y: x @ y, (integers(7), integers(2, 7, 3))),
    "matmul_vectors": (lambda xp, x, y: x @ y, (integers(7), integers(7, seed=3))),
    "matmul_batched": (lambda xp, x, y: xp.matmul(x, y), (integers(2, 5, 7), integers(2, 7, 3))),
    "matmul_broadcast": (lambda xp, x, y: x @ y, (integers(2, 1, 5, 7), integers(4, 7, 3))),
    "matmul_i32": (lambda xp, x, y: x @ y, (integers(5, 7, dtype=np.int32), integers(7, 3, dtype=np.int32))),
    "matmul_one": (lambda xp, x, y: x @ y, (integers(1, 1), integers(1, 1, seed=2))),
    "two_outputs": (lambda xp, x, y: (x + y, x), (A, B)),
    "untouched_input": (lambda xp, x: x, (A,)),
}  # fmt: skip

CLOSE: dict[str, Case] = {
    "pow": (lambda xp, x, y: x**y, (P, B)),
    "pow_scalar": (lambda xp, x: x**0.7, (P,)),
    "pow_left": (lambda xp, x: 2.0**x, (A,)),
    "exp": (lambda xp, x: xp.exp(x), (A,)),
    "exp2": (lambda xp, x: xp.exp2(x), (A,)),
    "log": (lambda xp, x: xp.log(x), (P,)),
    "log2": (lambda xp, x: xp.log2(x), (P,)),
    "rsqrt": (lambda xp, x: xp.rsqrt(x), (P,)),
    "sin": (lambda xp, x: xp.sin(x), (A,)),
    "tanh": (lambda xp, x: xp.tanh(x), (A * 3,)),
    "sigmoid": (lambda xp, x: xp.sigmoid(x), (A * 9,)),
    "silu": (lambda xp, x: xp.silu(x), (A * 9,)),
    "gelu": (lambda xp, x: xp.gelu(x), (A * 3,)),
    "exp_odd": (lambda xp, x: xp.exp(x), (ODD,)),
    "sigmoid_odd": (lambda xp, x: xp.sigmoid(x), (ODD,)),
    "sum": (lambda xp, x: x.sum(1), (T,)),
    "mean": (lambda xp, x: x.mean((1, 2)), (T,)),
    "mean_keepdims": (lambda xp, x: xp.mean(x, 0, keepdims=True), (T,)),
    "var": (lambda xp, x: xp.var(x, 1), (T,)),
    "var_ddof": (lambda xp, x: x.var(1, ddof=1), (T,)),
    "var_all": (lambda xp, x: x.var(), (T,)),
    "softmax": (lambda xp, x: xp.softmax(x), (T,)),
    "softmax_axis": (lambda xp, x: xp.softmax(x, axis=0), (T,)),
    "softmax_large": (lambda xp, x: xp.softmax(x), (T * 1e4,)),
    "log_softmax": (lambda xp, x: xp.log_softmax(x, axis=1), (T,)),
    "layer_norm": (lambda xp, x, w, b: xp.layer_norm(x, w, b), (T, A[0], A[1])),
    "layer_norm_two_axes": (lambda xp, x, w, b: xp.layer_norm(x, w, b, axis=(1, 2)), (T, A, B)),
}  # fmt: skip


def _check(case: Case, rtol: float = 0, atol: float = 0) -> None:
    expression, arrays = case
    with np.errstate(all="ignore"):
        expected = expression(NUMPY, *arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, theirs in zip(traced(lambda *xs: expression(tc, *xs), *arrays), expected, strict=True):
        same(ours, theirs, rtol, atol)


@pytest.mark.parametrize("name", EXACT)
def test_exactly_numpy(name: str) -> None:
    _check(EXACT[name])


@pytest.mark.parametrize("name", CLOSE)
def test_numpy_up_to_rounding(name: str) -> None:
    _check(CLOSE[name], rtol=2e-6, atol=1e-6)


def test_matmul_of_real_numbers() -> None:
    """Within the bound of fp32 summation in any order, against the exact product: a BLAS sums in its own order."""
    a, b = normal(9, 33), normal(33, 8)
    (ours,) = traced(lambda x, y: x @ y, a, b)
    exact, magnitude = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(ours - exact) <= 33 * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation"),
    [(9, 3, 1, 1), (9, 3, 2, 1), (10, 2, 3, 4), (5, 5, 1, 1), (4, 1, 2, 1)],
)
def test_sliding_window(size: int, kernel: int, stride: int, dilation: int) -> None:
    x = normal(2, size, 3)
    ours = traced(lambda t: t.sliding_window(kernel, 1, stride, dilation), x)[0]
    span = dilation * (kernel - 1) + 1
    same(ours, sliding_window_view(x, span, 1)[:, ::stride, :, ::dilation])


def test_sliding_window_over_two_axes() -> None:
    x = normal(6, 2, 7)
    ours = traced(lambda t: tc.sliding_window(t, (2, 3), axis=(2, 0), stride=(1, 2)), x)[0]
    same(ours, sliding_window_view(x, (2, 3), (2, 0))[::2])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_compute_in_fp32_and_come_back(dtype: Any) -> None:
    x = normal(4, 300, dtype=dtype) + np.asarray(3, dtype)
    wide = x.astype(np.float32)
    for function, expected in [
        (lambda t: t.sum(1), wide.sum(1, dtype=np.float64)),
        (lambda t: t.mean(1), wide.mean(1, dtype=np.float64)),
        (lambda t: tc.softmax(t), _softmax(wide)),
        (lambda t: t @ t.T, wide @ wide.T),
        (lambda t: t.exp(), np.exp(wide)),
    ]:
        ours = traced(function, x)[0]
        ulp = 2.0**-11 if dtype is np.float16 else 2.0**-8
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours.astype(np.float64), expected, rtol=ulp * 1.05, atol=1e-7)


def test_sum_to_a_wider_dtype() -> None:
    x = np.full((4096,), 16.0, np.float16)
    same(traced(lambda t: t.sum(dtype="fp32"), x)[0], np.float32(65536))
    assert np.isinf(traced(lambda t: t.sum(), x)[0])
