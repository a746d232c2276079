"""The reductions of a tensor. fp16 and bf16 sums and products accumulate in fp32 and are cast back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Dim

from .base import Axes
from .builder import Builder, Value, dtype_named
from .elementwise import Elementwise, in_fp32


class Reduction(Elementwise):
    """``axis``: one axis, several, or None for all, as in numpy."""

    __slots__ = ()

    def sum(self, axis: Axes = None, keepdims: bool = False, dtype: str | DType | None = None) -> Self:
        """``dtype``: of the result; else the operand's (i32 for bool). fp16 and bf16 accumulate in fp32."""
        return self._accumulate("SUM", axis, keepdims, dtype)

    def prod(self, axis: Axes = None, keepdims: bool = False, dtype: str | DType | None = None) -> Self:
        return self._accumulate("PROD", axis, keepdims, dtype)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Self:
        return self._new(self.builder.reduce(self.value, "MAX", self._axes(axis), self.dtype, keepdims))

    def min(self, axis: Axes = None, keepdims: bool = False) -> Self:
        return self._new(self.builder.reduce(self.value, "MIN", self._axes(axis), self.dtype, keepdims))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """Computed in fp32. Raises DTypeMismatch for i32 and bool."""
        _need_float("mean", self)
        return in_fp32(self, lambda x: x.sum(axis, keepdims) / x._count(x._axes(axis)))

    def var(self, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Self:
        """mean((x - mean(x))^2), in fp32; divides by the count less ``ddof``."""
        _need_float("var", self)

        def compute(x: Self) -> Self:
            centred = x - x.mean(axis, keepdims=True)
            count = x._count(x._axes(axis))
            return (centred * centred).sum(axis, keepdims) / (count - ddof if ddof else count)

        return in_fp32(self, compute)

    def _accumulate(self, op: str, axis: Axes, keepdims: bool, dtype: str | DType | None) -> Self:
        plain = DType.I32 if self.dtype is DType.BOOL else self.dtype
        result = plain if dtype is None else dtype_named(dtype, {"op": op})
        wide = DType.FP32 if result.is_float else result
        operand = self if self.dtype.is_float and wide is DType.FP32 else self.cast(wide)
        reduced = self.builder.reduce(operand.value, op, self._axes(axis), wide, keepdims)
        return self._new(reduced).cast(result)

    def _count(self, axes: Sequence[int]) -> Any:
        """The number of elements over ``axes``: a number, or an fp32 scalar tensor where a size is a symbol."""
        known = 1.0
        symbolic: list[Dim] = []
        for axis in axes:
            dim = self.value.shape[axis]
            if isinstance(dim, int):
                known *= dim
            else:
                symbolic.append(dim)
        if not symbolic:
            return known
        # a size that is bound later enters as a sum of ones; immediates are numbers only
        ones = self._new(ones_of(self.builder, symbolic, DType.FP32))
        return ones.sum() * known if known != 1 else ones.sum()


def _need_float(op: str, x: Elementwise) -> None:
    if not x.dtype.is_float:
        raise TinycError(
            "DTypeMismatch",
            f"{op} of {x.dtype} would not be {x.dtype}",
            "cast the tensor to fp32 first",
            {"layer": "frontend", "op": op},
        )


def ones_of(builder: Builder, shape: Sequence[Dim], dtype: DType) -> Value:
    """All ones (True). There is no constant node, so this is a VALID that is true everywhere, cast."""
    return builder.cast(builder.valid(shape, [0] * len(shape), shape), dtype)
