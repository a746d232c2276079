"""The tensor that a traced function computes with: like a numpy array, but every operation emits a Tiny node.

Differences from numpy are deliberate: dtypes never mix by themselves (DTypeMismatch asks for a cast; Python
numbers take the tensor's dtype), a tensor has no value while it is traced, and arrays come in as inputs only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from tinyc.ir.diagnostics import TinycError, show_shape
from tinyc.ir.dtypes import DType

from .base import number_of
from .builder import dtype_error, dtype_named
from .movement import Movement
from .reduction import Reduction

#: numpy scalars may stand left of a tensor, as in ``np.sqrt(64) * x``
_UFUNCS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "add": operator.add,
        "subtract": operator.sub,
        "multiply": operator.mul,
        "divide": operator.truediv,
        "power": operator.pow,
        "less": operator.lt,
        "less_equal": operator.le,
        "greater": operator.gt,
        "greater_equal": operator.ge,
        "equal": operator.eq,
        "not_equal": operator.ne,
    }
)


class Tensor(Movement, Reduction):
    """A value of known shape and dtype in the document that a trace writes."""

    __slots__ = ()

    def __matmul__(self, other: Any) -> Tensor:
        return matmul(self, self._tensor(other, "@"))

    def __len__(self) -> int:
        dim = self.value.shape[0] if self.ndim else None
        if isinstance(dim, int):
            return dim
        raise TinycError(
            "InvalidShape",
            f"the first size of {show_shape(self.value.shape)} is not a number",
            "use x.shape[0], or trace with integer sizes",
            {"layer": "frontend", "op": "len"},
        )

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"Tensor({self.value.id}: {self.dtype}{show_shape(self.value.shape)})"

    # -- what a traced tensor cannot do

    def __bool__(self) -> NoReturn:
        raise TinycError(
            "InvalidArgument",
            "a traced tensor has no value, so Python cannot branch on it",
            "choose elementwise with where(condition, a, b); combine conditions with & | ~",
            {"layer": "frontend", "op": "bool"},
        )

    def __float__(self) -> NoReturn:
        raise TinycError(
            "InvalidArgument",
            "a traced tensor has no value, so it is no number of Python's",
            "use the tensor's methods, or tinyc's functions; cast(\"i32\") truncates",
            {"layer": "frontend", "op": "float"},
        )

    __int__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = __float__

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise _numpy_error("numpy.asarray")

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise _numpy_error(f"numpy.{function.__name__}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Tensor:
        apply = _UFUNCS.get(ufunc.__name__)
        if apply is None or method != "__call__" or options or len(inputs) != 2:
            raise _numpy_error(f"numpy.{ufunc.__name__}")
        left, right = (
            each if isinstance(each, Tensor) else number_of(each, ufunc.__name__) for each in inputs
        )
        result: Tensor = apply(left, right)
        return result

    def __floordiv__(self, _: Any) -> NoReturn:
        raise _no_operator("//", "FDIV with / on floats, or SHRINK with a step by slicing")

    def __mod__(self, _: Any) -> NoReturn:
        raise _no_operator("%", "a reshape that splits the axis")

    def __lshift__(self, _: Any) -> NoReturn:
        raise _no_operator("<< or >>", "a product with a power of two")

    __rfloordiv__ = __divmod__ = __rdivmod__ = __floordiv__
    __rmod__, __rshift__, __rlshift__, __rrshift__ = __mod__, __lshift__, __lshift__, __lshift__

    def __setitem__(self, *_: Any) -> NoReturn:
        raise _no_operator("assignment to an element", "where(condition, new, old), or concatenate")


def matmul(a: Tensor, b: Tensor, dtype: str | DType | None = None, acc: str | DType | None = None) -> Tensor:
    """numpy's matmul: [..., M, K] @ [..., K, N] -> [..., M, N]; vectors as in numpy; leading axes broadcast.

    Accumulates in ``acc`` (fp32 for floats, else the operands' dtype); the result has ``dtype`` (the operands').
    Raises DTypeMismatch, AxisSizeMismatch, BroadcastMismatch.
    """
    need_tensors("matmul", a, b)
    if a.dtype is not b.dtype:
        raise dtype_error("matmul", b.dtype, a.dtype)
    if not a.ndim or not b.ndim or a.value.shape[-1] != b.value.shape[-2 if b.ndim > 1 else 0]:
        raise TinycError(
            "AxisSizeMismatch",
            f"{show_shape(a.value.shape)} @ {show_shape(b.value.shape)}: the inner sizes differ",
            "transpose or reshape so that the last axis of the left is the last but one of the right",
            {"layer": "frontend", "op": "matmul"},
        )
    rows = a if a.ndim > 1 else a.expand_dims(0)
    columns = b.swapaxes(-1, -2) if b.ndim > 1 else b.expand_dims(0)
    product = contract(rows.expand_dims(-2), columns.expand_dims(-3), 1, acc).cast(dtype or a.dtype)
    kept = [
        dim
        for axis, dim in enumerate(product.value.shape)
        if not (a.ndim == 1 and axis == product.ndim - 2) and not (b.ndim == 1 and axis == product.ndim - 1)
    ]
    return product.reshape(kept)


def contract(a: Tensor, b: Tensor, count: int, acc: str | DType | None = None) -> Tensor:
    """The sum over the last ``count`` axes of the broadcast product, in ``acc`` (fp32 for floats).

    The operands are cast before the product, so that a product is not rounded to fp16 (I-08).
    """
    wide = dtype_named(acc, {"op": "contract"}) if acc else DType.FP32 if a.dtype.is_float else a.dtype
    rank = max(a.ndim, b.ndim)
    product = a.cast(wide) * b.cast(wide)
    return product._new(product.builder.reduce(product.value, "SUM", range(rank - count, rank), wide))


def need_tensors(op: str, *given: object) -> None:
    """Raises InvalidArgument where one is neither a traced tensor nor left out."""
    for each in given:
        if each is not None and not isinstance(each, Tensor):
            raise TinycError(
                "InvalidArgument",
                f"{op} meets a {type(each).__name__}, not a traced tensor",
                "call it inside tinyc.trace on the function's arguments; arrays come in as inputs",
                {"layer": "frontend", "op": op},
            )


def _numpy_error(name: str) -> TinycError:
    return TinycError(
        "InvalidArgument",
        f"{name} cannot compute with a traced tensor",
        "use the tensor's methods, Python operators, or tinyc's functions of the same name",
        {"layer": "frontend", "op": name},
    )


def _no_operator(name: str, instead: str) -> TinycError:
    return TinycError(
        "UnsupportedOp",
        f"{name} is not in the vocabulary of tensors",
        f"use {instead}",
        {"layer": "frontend", "op": name},
    )
