"""The arithmetic of the reference evaluator (:mod:`tinyc.ir.numeric`), on chosen values of each dtype."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from tinyc.ir import numeric
from tinyc.ir.dtypes import DType, from_bits

from .domains import BOOLEAN, Array, Domain, number
from .near import neighbours

_FLOATS = [
    0.0,
    1.0,
    1.5,
    2.0,
    3.0,
    1 / 3,
    0.1,
    7.25,
    6.1e-5,
    5.9e-8,
    65504.0,
    1e-45,
    1.2e-38,
    1e30,
    3.4e38,
    math.inf,
]
_INTEGERS = [0, 1, -1, 2, 7, -7, 2**31 - 1, -(2**31), 2**30, -(2**30), 65536, -2]


@functools.cache
def specials(dtype: str) -> Array:
    """Values of a dtype at which rules are usually wrong: both zeros, subnormals, the largest, infinities, NaN."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype == "i32":
        return np.array(_INTEGERS, np.int64).astype(np.int32)
    with np.errstate(over="ignore"):
        kind = DType(dtype).numpy
        largest = {"fp32": 3.4028235e38, "fp16": 65504.0, "bf16": 3.3895e38}[dtype]
        least = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}[dtype]
        numbers = [sign * x for x in (*_FLOATS, largest, least) for sign in (1, -1)]
        return np.array([*numbers, math.nan], np.float64).astype(np.float32).astype(kind)


STYLES = ("special", "ordinary", "moderate", "close", "integers", "far", "nonfinite", "near", "wide")


class Bits(Domain):
    """``style``: "special" draws from :func:`specials`, and any bits; "ordinary" between 2^-9 and 2^9 with some zeros
    and equal values; "near" are ``numbers`` and their neighbours, beside special values; "close" all within a few per cent of one number, where differences cancel; "integers" small ones; "wide" as "ordinary", with any integers; "far" about the largest of fp16; "moderate" between 2^-3 and 2^3,
    "nonfinite" as these with one infinity or NaN in half of the samples."""

    def __init__(self, seed: str, style: str, samples: int, numbers: tuple[float, ...] = ()) -> None:
        self.seed, self.style, self.samples, self.numbers = seed, style, samples, numbers
        self.leaves: dict[str, Array] = {}
        self.grid: dict[str, Array] = {}

    def leaf(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        if name not in self.leaves:
            rng = np.random.default_rng(number(self.seed, self.style, name))
            self.leaves[name] = self._drawn(rng, dtype, (self.samples, *shape))
        return self.leaves[name]

    def _drawn(self, rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if self.style == "special":
            found = rng.choice(specials(dtype), shape)
            if dtype == "i32":
                anything = rng.integers(-(2**31), 2**31, shape).astype(np.int32)
            else:
                width = DType(dtype).itemsize * 8
                words = rng.integers(0, 1 << width, shape, np.uint64).astype(f"u{width // 8}")
                anything = words.view(DType(dtype).numpy)
                # all NaN are one: a signalling one is not, to the C library's pow
                anything = np.where(np.isnan(anything), np.asarray(math.nan, anything.dtype), anything)
            # samples of special values and of any bits alternate; equal elements are frequent in the former
            which = (np.arange(shape[0]) % 3 == 0).reshape(-1, *[1] * (len(shape) - 1))
            return np.where(which, anything, found)
        if self.style == "near":
            few = rng.random(shape) < 0.2
            return np.where(
                few, rng.choice(specials(dtype), shape), rng.choice(neighbours(dtype, self.numbers), shape)
            )
        if dtype == "i32":
            ends = (-(2**31), 2**31) if self.style == "wide" else (-50, 51)
            return rng.integers(*ends, shape).astype(np.int32)
        sign = rng.choice([-1.0, 1.0], shape)
        if self.style == "integers":
            x = rng.integers(0, 4, shape) * sign
        elif self.style == "close":
            common = np.random.default_rng(number(self.seed, self.style)).choice(
                [1.0, 0.5, 2.0, 1.5, 3.3, 40.0], shape[0]
            )
            nearby = np.exp2(-rng.uniform(4, 16, shape)) * sign
            x = common.reshape(-1, *[1] * (len(shape) - 1)) * (1 + nearby)
        elif self.style == "far":
            x = sign * (
                rng.uniform(2.0**14, 65000.0, shape)
                if dtype == "fp16"
                else np.exp2(rng.uniform(14, 18, shape))
            )
        else:
            far = 3 if self.style in ("moderate", "nonfinite") else 9
            x = sign * np.exp2(rng.uniform(-far, far, shape))
            x = np.where(rng.random(shape) < 0.08, 0.0, x)
            # some samples have values of one sign only, where logarithms and roots are defined
            one_sign = (np.arange(shape[0]) % 2 == 0).reshape(-1, *[1] * (len(shape) - 1))
            x = np.where(one_sign, np.abs(x), x)
        if self.style == "nonfinite":
            flat = x.reshape(shape[0], -1)
            at = rng.integers(0, flat.shape[1], shape[0])
            put = rng.choice([math.inf, -math.inf, math.nan], shape[0])
            hit = rng.random(shape[0]) < 0.5
            flat[hit, at[hit]] = put[hit]
            x = flat.reshape(shape)
        return x.astype(np.float32).astype(DType(dtype).numpy)

    def const(self, dtype: str, bits: int) -> Array:
        return constant(dtype, bits)

    def unary(self, op: str, dtype: str, x: Array) -> Array:
        if op == "RELU":
            return _larger(x, np.zeros((), x.dtype))
        return _function(op, dtype)(x)

    def binary(self, op: str, dtype: str, x: Array, y: Array) -> Array:
        if dtype == "bool":
            return BOOLEAN[op](x, y)
        if op == "MAX":
            return _larger(x, y)
        if op == "MIN":
            return x.dtype.type(-1) * _larger(-x, -y) if dtype != "i32" else np.minimum(x, y)
        return _function(op, dtype)(x, y)

    def cast(self, source: str, to: str, x: Array) -> Array:
        return x if source == to else numeric.cast(x, numeric.Rounding(DType(to), False))

    def fold(self, op: str, dtype: str, x: Array) -> Array:
        if op in ("MAX", "MIN"):
            return super().fold(op, dtype, x)
        kind = numeric.Rounding(DType(dtype), False)
        return kind.round(numeric.reduce(op, x, (x.ndim - 1,), kind))

    def stream(self, score: Array, weight: Array, scale: int) -> Array:
        """One pass with a running maximum, as code generation does it; where a score is not finite, two passes."""
        plainly = super().stream(score, weight, scale)
        score, weight = np.broadcast_arrays(score, weight)
        if score.shape[-1] < 2:
            return plainly
        c = self.const("fp32", scale)[0]
        top, total = score[..., 0], weight[..., 0]
        for k in range(1, score.shape[-1]):
            higher = np.maximum(top, score[..., k])
            total = (
                total * np.exp2((top - higher) * c) + np.exp2((score[..., k] - higher) * c) * weight[..., k]
            )
            top = higher
        return np.where(np.isfinite(score).all(axis=-1), total, plainly)


def _larger(x: Array, y: Array) -> Array:
    """The maximum, in which +0 is above -0 (IEEE 754 maximum; numpy and hardware leave the sign open)."""
    if x.dtype == np.int32 or y.dtype == np.int32:
        return np.maximum(x, y)
    return np.where((x == 0) & (y == 0), x + y, np.maximum(x, y))


@functools.cache
def _function(op: str, dtype: str) -> Callable[..., Array]:
    return numeric.function(op, DType(dtype), numeric.Rounding(DType(dtype), False))


@functools.cache
def constant(dtype: str, bits: int) -> Array:
    kind = DType(dtype)
    return np.asarray([from_bits(bits, kind)]).astype(kind.numpy)
