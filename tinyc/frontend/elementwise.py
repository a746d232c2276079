"""The elementwise methods of a tensor: operators, functions, casts.

Functions that are not in the vocabulary (exp, tanh, …) are written with those that are. fp16 and bf16 go through
fp32 for them; the result has the operand's dtype again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType

from .base import Traced
from .builder import dtype_named

LOG2_E = math.log2(math.e)
LN_2 = math.log(2)
E = TypeVar("E", bound="Elementwise")


class Elementwise(Traced):
    """Every method gives a tensor of the broadcast shape; dtypes never mix by themselves."""

    __slots__ = ()

    # -- arithmetic

    def __add__(self, other: Any) -> Self:
        return self._binary("ADD", self, other)

    def __radd__(self, other: Any) -> Self:
        return self._binary("ADD", other, self)

    def __sub__(self, other: Any) -> Self:
        return self._binary("SUB", self, other)

    def __rsub__(self, other: Any) -> Self:
        return self._binary("SUB", other, self)

    def __mul__(self, other: Any) -> Self:
        return self._binary("MUL", self, other)

    def __rmul__(self, other: Any) -> Self:
        return self._binary("MUL", other, self)

    def __truediv__(self, other: Any) -> Self:
        return self._binary("FDIV", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._binary("FDIV", other, self)

    def __pow__(self, other: Any) -> Self:
        if isinstance(other, int | float) and other == 2:
            return self * self  # as numpy does
        return self._binary("POW", self, other)

    def __rpow__(self, other: Any) -> Self:
        return self._binary("POW", other, self)

    def __neg__(self) -> Self:
        return self._unary("NEG")

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self if self.dtype is DType.BOOL else self.maximum(-self)

    def maximum(self, other: Any) -> Self:
        return self._binary("MAX", self, other)

    def minimum(self, other: Any) -> Self:
        return self._binary("MIN", self, other)

    # -- comparisons (NaN compares false, except !=) and bool

    def __lt__(self, other: Any) -> Self:
        return self._binary("CMPLT", self, other)

    def __gt__(self, other: Any) -> Self:
        return self._binary("CMPLT", other, self)

    def __le__(self, other: Any) -> Self:
        return (self < other) | (self == other)

    def __ge__(self, other: Any) -> Self:
        return (self > other) | (self == other)

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._binary("CMPEQ", self, other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._binary("CMPNE", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Self:
        return self._logical("&", "MIN", other)

    def __or__(self, other: Any) -> Self:
        return self._logical("|", "MAX", other)

    def __xor__(self, other: Any) -> Self:
        return self._logical("^", "CMPNE", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Self:
        return self._logical("~", "CMPEQ", False)

    # -- functions

    def cast(self, dtype: str | DType) -> Self:
        """To i32: truncates, saturates, NaN becomes 0."""
        return self._new(self.builder.cast(self.value, dtype_named(dtype, {"op": "cast"})))

    def astype(self, dtype: str | DType) -> Self:
        return self.cast(dtype)

    def exp2(self) -> Self:
        return self._unary("EXP2")

    def log2(self) -> Self:
        return self._unary("LOG2")

    def sqrt(self) -> Self:
        return self._unary("SQRT")

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return self._unary("RSQRT")

    def recip(self) -> Self:
        """1 / x."""
        return self._unary("RECIP")

    def sin(self) -> Self:
        return self._unary("SIN")

    def relu(self) -> Self:
        return self._unary("RELU")

    def exp(self) -> Self:
        return in_fp32(self, lambda x: (x * LOG2_E).exp2())

    def log(self) -> Self:
        return in_fp32(self, lambda x: x.log2() * LN_2)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))."""
        return in_fp32(self, lambda x: 1.0 / ((-x).exp() + 1.0))

    def tanh(self) -> Self:
        return in_fp32(self, lambda x: (x * 2.0).sigmoid() * 2.0 - 1.0)

    def silu(self) -> Self:
        """x * sigmoid(x)."""
        return in_fp32(self, lambda x: x * x.sigmoid())

    def gelu(self) -> Self:
        """The tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
        root = math.sqrt(2 / math.pi)
        return in_fp32(self, lambda x: x * 0.5 * (((x + x * x * x * 0.044715) * root).tanh() + 1.0))

    # -- inside

    def _unary(self, uop: str) -> Self:
        return self._new(self.builder.unary(uop, self.value))

    def _binary(self, uop: str, left: Any, right: Any) -> Self:
        return self._new(self.builder.binary(uop, self._operand(left, uop), self._operand(right, uop)))

    def _logical(self, sign: str, uop: str, other: Any) -> Self:
        kind = other.dtype if isinstance(other, Traced) else DType.BOOL
        if self.dtype is not DType.BOOL or kind is not DType.BOOL:
            raise TinycError(
                "DTypeMismatch",
                f"{sign} is for bool, here it meets {self.dtype if self.dtype is not DType.BOOL else kind}",
                "compare first, as in (x > 0) & (y > 0)",
                {"layer": "frontend", "op": sign},
            )
        return self._binary(uop, self, other)


def in_fp32(x: E, compute: Callable[[E], E]) -> E:
    """Raises DTypeMismatch for i32 and bool."""
    if not x.dtype.is_float:
        raise TinycError(
            "DTypeMismatch",
            f"a function of floats meets {x.dtype}",
            "cast the operand to fp32 first",
            {"layer": "frontend"},
        )
    return compute(x.cast(DType.FP32)).cast(x.dtype) if x.dtype in (DType.FP16, DType.BF16) else compute(x)
