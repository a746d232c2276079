"""numpy's functions for traced tensors, under numpy's names; ``tinyc.exp(x)`` is ``x.exp()``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyc.ir import dims
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Dim, Imm

from .base import Axes
from .creation import arange, full, ones, zeros
from .nn import attention, conv, layer_norm, log_softmax, rms_norm, softmax
from .tensor import Tensor, matmul, need_tensors

__all__ = [
    "abs",
    "absolute",
    "arange",
    "attention",
    "broadcast_to",
    "cast",
    "concatenate",
    "conv",
    "exp",
    "exp2",
    "expand_dims",
    "flip",
    "full",
    "gelu",
    "layer_norm",
    "log",
    "log2",
    "log_softmax",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "ones",
    "pad",
    "permute",
    "prod",
    "relu",
    "reshape",
    "rms_norm",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sliding_window",
    "softmax",
    "sqrt",
    "squeeze",
    "stack",
    "sum",
    "swapaxes",
    "tanh",
    "transpose",
    "var",
    "where",
    "zeros",
]


def where(condition: Tensor, then: Any, other: Any) -> Tensor:
    """Elementwise choice; shapes broadcast. Two Python numbers give fp32, i32 or bool, as they are written."""
    condition = _tensor("where", condition)
    if not isinstance(then, Tensor) and not isinstance(other, Tensor):
        kinds = {type(then), type(other)}
        kind = "fp32" if float in kinds else "i32" if int in kinds else "bool"
        then = full((), then, kind)
    sides = [
        side.value if isinstance(side, Tensor) else condition._operand(side, "where")
        for side in (then, other)
    ]
    return condition._new(condition.builder.where(condition.value, *sides))


def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Joins along ``axis``. Each part is padded to its place and chosen there, so NaN and -0 pass unchanged."""
    first, *rest = (_tensor("concatenate", tensor) for tensor in tensors) if tensors else (None,)
    if first is None:
        raise _error("InvalidArgument", "concatenate", "no tensors", "give at least one")
    place = first._axis(axis)
    if any(_without(t, place) != _without(first, place) or t.ndim != first.ndim for t in rest):
        shapes = ", ".join(str(list(t.shape)) for t in tensors)
        raise _error(
            "AxisSizeMismatch", "concatenate", f"shapes {shapes}", f"agree on every axis but {place}"
        )
    total: Dim = dims.add(0, 0)
    for tensor in tensors:
        total = dims.add(total, tensor.value.shape[place])
    result, start = _placed(first, place, 0, total), first.value.shape[place]
    for tensor in rest:
        end = dims.add(start, tensor.value.shape[place])
        shape = [total if axis == place else dim for axis, dim in enumerate(first.value.shape)]
        lo = [start if axis == place else 0 for axis in range(first.ndim)]
        hi = [end if axis == place else dim for axis, dim in enumerate(shape)]
        here = first._new(first.builder.valid(shape, lo, hi))
        result, start = where(here, _placed(tensor, place, start, total), result), end
    return result


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Joins along a new axis."""
    return concatenate([_tensor("stack", tensor).expand_dims(axis) for tensor in tensors], axis)


def exp(x: Tensor) -> Tensor:
    return _tensor("exp", x).exp()


def exp2(x: Tensor) -> Tensor:
    return _tensor("exp2", x).exp2()


def log(x: Tensor) -> Tensor:
    return _tensor("log", x).log()


def log2(x: Tensor) -> Tensor:
    return _tensor("log2", x).log2()


def sqrt(x: Tensor) -> Tensor:
    return _tensor("sqrt", x).sqrt()


def rsqrt(x: Tensor) -> Tensor:
    return _tensor("rsqrt", x).rsqrt()


def sin(x: Tensor) -> Tensor:
    return _tensor("sin", x).sin()


def relu(x: Tensor) -> Tensor:
    return _tensor("relu", x).relu()


def sigmoid(x: Tensor) -> Tensor:
    return _tensor("sigmoid", x).sigmoid()


def tanh(x: Tensor) -> Tensor:
    return _tensor("tanh", x).tanh()


def silu(x: Tensor) -> Tensor:
    return _tensor("silu", x).silu()


def gelu(x: Tensor) -> Tensor:
    """The tanh form."""
    return _tensor("gelu", x).gelu()


def absolute(x: Tensor) -> Tensor:
    return _tensor("abs", x).__abs__()


def maximum(x: Any, y: Any) -> Tensor:
    """Elementwise; NaN wins, as in numpy."""
    return x.maximum(y) if isinstance(x, Tensor) else _tensor("maximum", y).maximum(x)


def minimum(x: Any, y: Any) -> Tensor:
    return x.minimum(y) if isinstance(x, Tensor) else _tensor("minimum", y).minimum(x)


def cast(x: Tensor, dtype: str | DType) -> Tensor:
    return _tensor("cast", x).cast(dtype)


def reshape(x: Tensor, shape: Dim | Sequence[Dim]) -> Tensor:
    return _tensor("reshape", x).reshape(shape)


def permute(x: Tensor, perm: Sequence[int]) -> Tensor:
    return _tensor("permute", x).permute(perm)


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    return _tensor("transpose", x).transpose(*(axes or ()))


def swapaxes(x: Tensor, one: int, two: int) -> Tensor:
    return _tensor("swapaxes", x).swapaxes(one, two)


def broadcast_to(x: Tensor, shape: Dim | Sequence[Dim]) -> Tensor:
    return _tensor("broadcast_to", x).broadcast_to(shape)


def expand_dims(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    return _tensor("expand_dims", x).expand_dims(axis)


def squeeze(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    return _tensor("squeeze", x).squeeze(axis)


def flip(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    return _tensor("flip", x).flip(axis)


def pad(x: Tensor, pads: int | Sequence[Any], value: Imm = 0) -> Tensor:
    return _tensor("pad", x).pad(pads, value)


def sliding_window(
    x: Tensor,
    kernel: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    return _tensor("sliding_window", x).sliding_window(kernel, axis, stride, dilation)


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False, dtype: str | DType | None = None) -> Tensor:
    return _tensor("sum", x).sum(axis, keepdims, dtype)


def prod(x: Tensor, axis: Axes = None, keepdims: bool = False, dtype: str | DType | None = None) -> Tensor:
    return _tensor("prod", x).prod(axis, keepdims, dtype)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _tensor("max", x).max(axis, keepdims)


def min(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _tensor("min", x).min(axis, keepdims)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _tensor("mean", x).mean(axis, keepdims)


def var(x: Tensor, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
    return _tensor("var", x).var(axis, keepdims, ddof)


abs = absolute


def _tensor(op: str, x: object) -> Tensor:
    need_tensors(op, x)
    if isinstance(x, Tensor):
        return x
    raise _error("InvalidArgument", op, f"{op} of nothing", "give a tensor")


def _placed(x: Tensor, axis: int, start: Dim, total: Dim) -> Tensor:
    """``x`` at ``start`` of an axis of size ``total``, zeros (False) around it."""
    after = dims.sub(total, dims.add(start, x.value.shape[axis]))
    pads: list[tuple[Dim, Dim]] = [(start, after) if k == axis else (0, 0) for k in range(x.ndim)]
    return x._new(x.builder.pad(x.value, pads))


def _without(x: Tensor, axis: int) -> tuple[Dim, ...]:
    return (*x.value.shape[:axis], *x.value.shape[axis + 1 :])


def _error(kind: str, op: str, why: str, suggestion: str) -> TinycError:
    return TinycError(kind, why, suggestion, {"layer": "frontend", "op": op})
