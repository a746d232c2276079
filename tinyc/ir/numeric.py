"""Arithmetic of the reference evaluator on numpy arrays. Callers silence numpy's floating-point warnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import dims
from .dtypes import DType, from_bits, round_tf32, to_bits
from .infer import evaluate_index
from .tiny import COMPARE, ROUNDED, Imm

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 22  # elements of a temporary


@dataclass(frozen=True)
class Rounding:
    """What a node of ``dtype`` computes in and rounds to; ``float64`` keeps floats in float64 throughout."""

    dtype: DType
    float64: bool

    @property
    def compute(self) -> np.dtype[Any]:
        if not self.dtype.is_float:
            return self.dtype.numpy
        return np.dtype(np.float64 if self.float64 else np.float32)

    @property
    def stored(self) -> np.dtype[Any]:
        return self.compute if self.float64 else self.dtype.numpy

    def round(self, x: Array) -> Array:
        return np.asarray(x).astype(self.stored, copy=False)


def constant(value: Imm, kind: Rounding) -> Array:
    """A 0-d array with the value that an immediate has in the dtype of ``kind``."""
    return np.asarray(from_bits(to_bits(value, kind.dtype), kind.dtype)).astype(kind.stored)


def cast(x: Array, kind: Rounding) -> Array:
    """CAST: to i32 truncates, saturates, NaN -> 0; to bool x != 0; to a float through fp32."""
    if x.dtype == kind.stored:
        return x
    if kind.dtype is DType.BOOL:
        return np.not_equal(x, x.dtype.type(0))
    if kind.dtype is DType.I32:
        if x.dtype == np.bool_:
            return x.astype(np.int32)
        whole = np.trunc(x.astype(np.float64))
        return np.where(np.isnan(whole), 0.0, np.clip(whole, -(2.0**31), 2.0**31 - 1)).astype(np.int32)
    return kind.round(x.astype(kind.compute))


def elementwise(function: Callable[..., Array], arrays: Sequence[Array]) -> Array:
    """``function`` of arrays of one shape, computed once along axes on which no operand varies."""
    shape = arrays[0].shape
    constant_axes = [all(x.strides[axis] == 0 for x in arrays) for axis in range(len(shape))]
    core = tuple(slice(0, 1) if fixed else slice(None) for fixed in constant_axes)
    result = np.asarray(function(*(x[core] for x in arrays)))
    return result if result.shape == shape else np.broadcast_to(result, shape)


def compact(x: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` in ``dtype``; axes of stride 0 keep it."""
    return x if x.dtype == dtype else elementwise(lambda core: core.astype(dtype), [x])


def _transcendental(apply: Callable[..., Any]) -> Callable[..., Array]:
    """``apply`` computed in float64 and rounded to the operands' dtype: nearly always the number that is nearest. numpy's own
    functions of fp32 are off by up to four units in the last place, on some machines and not on others."""
    return lambda *xs: np.asarray(apply(*(x.astype(np.float64) for x in xs))).astype(xs[0].dtype)


def _power(x: Array, y: Array) -> Array:
    """x to the power of y. numpy treats one exponent for all of x by other rules (0.5 as a square root, which turns
    -0 and -inf into -0 and NaN); a value must not depend on how its operand came to have its shape. Nor on the machine: of a signaling
    NaN to the power of 0, which of a quiet one is 1 (IEEE 754-2019, 9.2.1), some make NaN. Times 1 it is quiet."""
    x, y = x * x.dtype.type(1), y * y.dtype.type(1)
    y = np.array(np.broadcast_to(y, np.broadcast_shapes(x.shape, y.shape)))
    return np.power(x, y) if y.size > 1 else np.power(np.repeat(x, 2), np.repeat(y, 2))[:1].reshape(y.shape)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "NEG": np.negative,
    "EXP2": _transcendental(np.exp2),
    "LOG2": _transcendental(np.log2),
    "RELU": lambda x: np.maximum(x, x.dtype.type(0)),
    "SQRT": np.sqrt,
    "RSQRT": lambda x: x.dtype.type(1) / np.sqrt(x),
    "RECIP": lambda x: x.dtype.type(1) / x,
    "SIN": _transcendental(np.sin),
    ROUNDED: lambda x: round_tf32(x) if x.dtype == np.float32 else x,
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "FDIV": np.divide,
    "POW": _transcendental(_power),
    "MAX": np.maximum,
    "MIN": np.minimum,
    "CMPLT": np.less,
    "CMPNE": np.not_equal,
    "CMPEQ": np.equal,
}


def function(uop: str, dtype: DType, result: Rounding) -> Callable[..., Array]:
    """The function of ``uop`` on arrays of ``dtype``: of fp32 numbers the fp32 number that is nearest (:func:`_transcendental`; RSQRT
    and RECIP as the operations that they are made of), rounded to ``result``."""
    compute, apply = Rounding(dtype, result.float64).compute, _FUNCTIONS[uop]

    def computed(*operands: Array) -> Array:
        value = apply(*(compact(x, compute) for x in operands))
        return np.asarray(value) if uop in COMPARE else result.round(value)

    return computed


# --- reductions ----------------------------------------------------------------------------------------------

REDUCERS: Mapping[str, np.ufunc] = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}


def reduce(op: str, x: Array, axes: Sequence[int], kind: Rounding) -> Array:
    """``op`` over ``axes`` of ``x`` (stored as ``kind``), in the compute dtype; not rounded yet."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    moved = compact(x, kind.compute).transpose(*kept, *axes)
    shape = moved.shape[: len(kept)]
    if math.prod(moved.shape[len(kept) :]) == 1:
        return moved.reshape(shape)
    if 0 in moved.strides:  # a sum over repeated values: no copy of all of them
        return np.asarray(
            REDUCERS[op].reduce(moved, axis=tuple(range(len(kept), x.ndim)), dtype=kind.compute)
        )
    flat = np.ascontiguousarray(moved).reshape(*shape, -1)  # numpy sums pairwise along contiguous axes only
    return np.asarray(REDUCERS[op].reduce(flat, axis=-1, dtype=kind.compute))


def sum_of_products(
    left: Array, right: Array, axes: Sequence[int], product: Rounding, result: Rounding
) -> Array:
    """SUM over ``axes`` of left * right, not rounded yet; the product is of dtype ``product``.

    By a matrix product where the product would be large and is not rounded before it is summed; else in chunks.
    """
    kept = [axis for axis in range(left.ndim) if axis not in axes]
    full = [left.shape[axis] for axis in kept]
    repeated = [axis for axis in kept if left.strides[axis] == right.strides[axis] == 0]
    core = tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(left.ndim))
    left, right = left[core], right[core]
    shape = left.shape
    varies = [tuple(x.strides[axis] != 0 for axis in range(len(shape))) for x in (left, right)]
    sizes = [math.prod(n for n, v in zip(shape, each, strict=True) if v) for each in varies]
    exact = product.stored == product.compute == result.stored
    if exact and math.prod(shape) > max(_CHUNK, 4 * max(sizes)):
        return np.broadcast_to(_matmul(left, right, kept, axes, varies, product), full)
    multiply = function("MUL", product.dtype, product)

    def chunk(a: Array, b: Array) -> Array:
        summed = elementwise(lambda x: cast(x, result), [elementwise(multiply, [a, b])])
        return reduce("SUM", summed, axes, result)

    return np.broadcast_to(_chunked(chunk, left, right, kept), full)


def _chunked(chunk: Callable[[Array, Array], Array], left: Array, right: Array, kept: Sequence[int]) -> Array:
    """``chunk`` over slices along the longest kept axis, so that a slice has about _CHUNK elements."""
    count = -(-left.size // _CHUNK)
    longest = max(kept, key=left.shape.__getitem__, default=None)
    if count == 1 or longest is None:
        return chunk(left, right)
    step = max(1, left.shape[longest] // count)
    parts = []
    for start in range(0, left.shape[longest], step):
        cut = (slice(None),) * longest + (slice(start, start + step),)
        parts.append(chunk(left[cut], right[cut]))
    return np.concatenate(parts, axis=kept.index(longest))


def _matmul(
    left: Array,
    right: Array,
    kept: Sequence[int],
    axes: Sequence[int],
    varies: Sequence[tuple[bool, ...]],
    kind: Rounding,
) -> Array:
    """[batch, m, k] @ [batch, k, n] with the kept axes sorted by which factor varies along them."""
    in_left, in_right = varies
    batch = [axis for axis in kept if in_left[axis] == in_right[axis]]
    rows = [axis for axis in kept if in_left[axis] and not in_right[axis]]
    columns = [axis for axis in kept if in_right[axis] and not in_left[axis]]
    shape = left.shape
    b, m, n, k = (math.prod(shape[axis] for axis in group) for group in (batch, rows, columns, axes))

    def matrix(x: Array, order: Sequence[int], fixed: Sequence[int], to: tuple[int, ...]) -> Array:
        core = x[tuple(slice(0, 1) if axis in fixed else slice(None) for axis in range(x.ndim))]
        return compact(core, kind.compute).transpose(*order, *fixed).reshape(to)

    first = matrix(left, [*batch, *rows, *axes], columns, (b, m, k))
    second = matrix(right, [*batch, *axes, *columns], rows, (b, k, n))
    product = np.matmul(first, second)
    order = [*batch, *rows, *columns]
    restored = product.reshape([shape[axis] for axis in order])
    return restored.transpose([order.index(axis) for axis in kept])


# --- movement ------------------------------------------------------------------------------------------------


def view(x: Array, shape: Sequence[int], index_map: Sequence[str]) -> Array:
    """The VIEW of ``x``: a numpy view where the map is affine, else gathered. The map stays inside ``x``."""
    entries = [dims.to_affine(text) for text in index_map]
    if any(not isinstance(atom, str) for entry in entries for _, atom in entry.terms):
        grids = np.meshgrid(*(np.arange(size) for size in shape), indexing="ij", sparse=True)
        named = {f"i{axis}": grid for axis, grid in enumerate(grids)}
        index = tuple(evaluate_index(entry, named) for entry in entries)
        return np.broadcast_to(x[index], shape)
    strides = [0] * len(shape)
    for entry, stride in zip(entries, x.strides, strict=True):
        for coef, atom in entry.terms:
            assert isinstance(atom, str)
            strides[int(atom[1:])] += coef * stride
    corner = x[tuple(slice(entry.const, entry.const + 1) for entry in entries)]
    return as_strided(corner, tuple(shape), strides, writeable=False)


def valid(shape: Sequence[int], lo: Sequence[int], hi: Sequence[int]) -> Array:
    """True where lo <= index < hi on every axis."""
    result = np.asarray(True)
    for axis, (size, low, high) in enumerate(zip(shape, lo, hi, strict=True)):
        if low <= 0 and size <= high:
            continue
        along = np.arange(size)
        inside = (along >= low) & (along < high)
        result = result & inside.reshape([size if each == axis else 1 for each in range(len(shape))])
    return np.broadcast_to(result, tuple(shape))
