"""The operations of Frontend JSON (document 004 §2): what each takes, and how it is lowered to tensors.

A lowering gives its result in the dtype it was computed in: GEMM and Conv in ``acc_dtype``, so that what follows
applies to the accumulator; Reduce in its ``dtype``; all others in the dtype of their operands. Where the tensor
table declares the result, a CAST to the declared dtype follows (frontend_json.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from tinyc.ir.diagnostics import TinycError, show, show_shape
from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Imm

from . import functions as fn
from . import nn
from .base import Axes
from .builder import dtype_named
from .tensor import Tensor

Operands = Sequence[Tensor | Imm]


class Attrs:
    """The attributes of one node: each is read once, with its kind; :meth:`close` refuses what nobody read."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._read: list[str] = []

    def get(self, name: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        self._read.append(name)
        value = self._given.get(name)
        if value is None:
            return default
        allowed = kinds if isinstance(kinds, tuple) else (kinds,)
        if value is default or (
            isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
        ):
            return value
        wanted = " or ".join("number" if kind is float else kind.__name__ for kind in allowed)
        raise _error("InvalidArgument", f"attribute {name!r} is {show(value)}", f"give {wanted}")

    def need(self, name: str, kinds: type | tuple[type, ...]) -> Any:
        if self._given.get(name) is None:
            raise _error("InvalidArgument", f"attribute {name!r} is missing", f"add {name!r} to attrs")
        return self.get(name, kinds)

    def dtype(self, name: str) -> DType | None:
        value = self.get(name, str)
        return None if value is None else dtype_named(value, {})

    def axes(self, x: Tensor, default: Axes = None) -> Axes:
        """``axis`` or ``axes``: an integer, a symbolic size that one dimension has (I-12), or a list of these."""
        one, many = self.get("axis", (int, str, list)), self.get("axes", (int, str, list))
        given = many if one is None else one
        if given is None:
            return default
        listed = [_axis(entry, x) for entry in (given if isinstance(given, list) else [given])]
        return listed if isinstance(given, list) else listed[0]

    def close(self) -> None:
        for name in self._given:
            if name not in self._read:
                listed = ", ".join(sorted(set(self._read))) or "none"
                raise _error("InvalidArgument", f"there is no attribute {name!r}", f"this op takes: {listed}")


Lowering = Callable[[Operands, Attrs], Tensor]


@dataclass(frozen=True)
class Op:
    """How many inputs an op takes (least, most), and its lowering."""

    least: int
    most: int
    lower: Lowering


def lower(op: str, operands: Operands, given: Mapping[str, Any]) -> Tensor:
    """The result of one node. Raises TinycError: UnsupportedOp, InvalidArgument, and what the lowering finds."""
    known = OPS.get(op)
    if known is None:
        raise _error("UnsupportedOp", f"there is no op {show(op)}", f"use one of {', '.join(OPS)}")
    if not known.least <= len(operands) <= known.most:
        count = str(known.least) if known.least == known.most else f"{known.least} to {known.most}"
        raise _error("InvalidArgument", f"{op} has {len(operands)} inputs", f"give {count}")
    if op != "Elementwise" and any(not isinstance(operand, Tensor) for operand in operands):
        raise _error("InvalidArgument", f"an input of {op} is a number", "name a tensor")
    attrs = Attrs(given)
    result = known.lower(operands, attrs)
    attrs.close()
    return result


def _gemm(operands: Any, attrs: Attrs) -> Tensor:
    """alpha * A B + beta * C; A: [..., M, K] ([..., K, M] with trans_a), B: [..., K, N], C broadcasts."""
    a, b, *rest = operands
    acc = attrs.dtype("acc_dtype") or (DType.FP32 if a.dtype.is_float else a.dtype)
    left = a.swapaxes(-1, -2) if attrs.get("trans_a", bool, False) else a
    right = b.swapaxes(-1, -2) if attrs.get("trans_b", bool, False) else b
    alpha, beta = attrs.get("alpha", (int, float), 1), attrs.get("beta", (int, float), 1)
    product = fn.matmul(left, right, dtype=acc, acc=acc)
    product = product if alpha == 1 else product * alpha
    for bias in rest:
        wide = bias.cast(acc)
        product = product + (wide if beta == 1 else wide * beta)
    return product


def _conv(rank: int | None) -> Lowering:
    def lowered(operands: Any, attrs: Attrs) -> Tensor:
        x, weight, *bias = operands
        if rank is not None and x.ndim != rank + 2:
            raise _error(
                "AxisSizeMismatch", f"x {show_shape(x.value.shape)} for Conv{rank}D", "give [N, C, *spatial]"
            )
        acc = attrs.dtype("acc_dtype") or (DType.FP32 if x.dtype.is_float else x.dtype)
        return nn.conv(
            x,
            weight,
            bias[0] if bias else None,
            attrs.get("stride", (int, list), 1),
            attrs.get("pad", (int, list), 0),
            attrs.get("dilation", (int, list), 1),
            attrs.get("groups", int, 1),
            dtype=acc,
            acc=acc,
        )

    return lowered


def _attention(operands: Any, attrs: Attrs) -> Tensor:
    """With ``heads`` the inputs are [B, M, heads*D], k and v with ``kv_heads`` (default: heads), and so is the result."""
    q, k, v, *mask = operands
    heads = attrs.get("heads", int)
    shared = attrs.get("kv_heads", int, heads)
    if heads is not None:
        q, k, v = _split(q, heads), _split(k, shared), _split(v, shared)
    elif shared is not None:
        raise _error(
            "InvalidArgument", "kv_heads is given without heads", "give both, or 4-dimensional inputs"
        )
    result = nn.attention(
        q,
        k,
        v,
        mask[0] if mask else None,
        attrs.get("scale", (int, float)),
        attrs.get("causal", (bool, str), False),
    )
    if heads is None:
        return result
    joined = result.swapaxes(-2, -3)
    return joined.reshape(*joined.value.shape[:-2], -1)


def _split(x: Tensor, heads: int) -> Tensor:
    """[..., M, heads*D] to [..., heads, M, D]."""
    if x.ndim < 2 or heads < 1:
        raise _error(
            "InvalidArgument", f"{heads} heads of {show_shape(x.value.shape)}", "give [B, M, heads*D]"
        )
    return x.reshape(*x.value.shape[:-1], heads, -1).swapaxes(-2, -3)


def _layer_norm(operands: Any, attrs: Attrs) -> Tensor:
    x, weight, bias = (*operands, None, None)[:3]
    return nn.layer_norm(x, weight, bias, attrs.axes(x, -1), attrs.get("eps", (int, float), 1e-5))


def _rms_norm(operands: Any, attrs: Attrs) -> Tensor:
    x, weight = (*operands, None)[:2]
    return nn.rms_norm(x, weight, attrs.axes(x, -1), attrs.get("eps", (int, float), 1e-5))


def _reduce(operands: Any, attrs: Attrs) -> Tensor:
    x = _only(operands)
    op = attrs.need("op", str)
    axes, keepdims, dtype = attrs.axes(x), attrs.get("keepdims", bool, False), attrs.dtype("dtype")
    kind = op.lower()
    if kind in ("sum", "prod"):
        return x.sum(axes, keepdims, dtype) if kind == "sum" else x.prod(axes, keepdims, dtype)
    if kind in ("max", "min", "mean"):
        wide = x if dtype is None else x.cast(dtype)
        return {"max": wide.max, "min": wide.min, "mean": wide.mean}[kind](axes, keepdims)
    raise _error("InvalidArgument", f"op is {show(op)}", "use sum, prod, max, min or mean")


def _pool(kind: Literal["max", "mean"]) -> Lowering:
    def lowered(operands: Any, attrs: Attrs) -> Tensor:
        (x,) = operands
        return nn.pool(
            x,
            kind,
            attrs.need("kernel", (int, list)),
            attrs.get("stride", (int, list)),
            attrs.get("pad", (int, list), 0),
            attrs.get("dilation", (int, list), 1),
        )

    return lowered


def _elementwise(operands: Any, attrs: Attrs) -> Tensor:
    name = attrs.need("fn", str)
    if name == "cast":
        if len(operands) != 1 or not isinstance(operands[0], Tensor):
            raise _error("InvalidArgument", f"cast has {len(operands)} inputs", "give 1 tensor")
        to = attrs.dtype("to") or attrs.dtype("dtype")
        if to is None:
            raise _error("InvalidArgument", "attribute 'to' is missing", "add 'to' to attrs")
        return operands[0].cast(to)
    known = FUNCTIONS.get(name)
    if known is None:
        raise _error(
            "UnsupportedOp", f"there is no elementwise fn {show(name)}", f"use one of {', '.join(FUNCTIONS)}"
        )
    count, compute = known
    if len(operands) != count:
        raise _error("InvalidArgument", f"{name} has {len(operands)} inputs", f"give {count}")
    if not any(isinstance(operand, Tensor) for operand in operands):
        raise _error("InvalidArgument", f"{name} has no tensor among its inputs", "name at least one tensor")
    if name == "where":
        if not isinstance(operands[0], Tensor):
            raise _error("InvalidArgument", "the condition of where is a number", "name a bool tensor")
        return compute(operands[0], *_common(operands[1:]))
    return compute(*_common(operands))


def _common(operands: Operands) -> list[Any]:
    """fp16, bf16 and fp32 meet in fp32, by explicit CASTs (I-14, I-22); i32 and bool mix with nothing."""
    kinds = {operand.dtype for operand in operands if isinstance(operand, Tensor)}
    if len(kinds) < 2 or not all(kind.is_float for kind in kinds):
        return list(operands)
    return [operand.cast(DType.FP32) if isinstance(operand, Tensor) else operand for operand in operands]


def _transpose(operands: Any, attrs: Attrs) -> Tensor:
    return fn.transpose(operands[0], attrs.get("perm", list))


def _reshape(operands: Any, attrs: Attrs) -> Tensor:
    return fn.reshape(operands[0], attrs.need("shape", list))


def _concat(operands: Any, attrs: Attrs) -> Tensor:
    return fn.concatenate(operands, attrs.get("axis", int, 0))


def _softmax(compute: Callable[[Tensor, Axes], Tensor]) -> Lowering:
    return lambda operands, attrs: compute(_only(operands), attrs.axes(_only(operands), -1))


def _only(operands: Any) -> Tensor:
    tensor: Tensor = operands[0]
    return tensor


def _axis(entry: object, x: Tensor) -> int:
    if isinstance(entry, int) and not isinstance(entry, bool):
        return entry
    found = [axis for axis, dim in enumerate(x.value.shape) if dim == entry and isinstance(dim, str)]
    if len(found) == 1:
        return found[0]
    raise _error(
        "InvalidArgument",
        f"axis {show(entry)} names {len(found)} dimensions of {show_shape(x.value.shape)}",
        "name the axis by its number",
    )


def _error(kind: str, why: str, suggestion: str) -> TinycError:
    return TinycError(kind, why, suggestion)


OPS: Mapping[str, Op] = MappingProxyType(
    {
        "GEMM": Op(2, 3, _gemm),
        "Conv": Op(2, 3, _conv(None)),
        "Conv1D": Op(2, 3, _conv(1)),
        "Conv2D": Op(2, 3, _conv(2)),
        "Conv3D": Op(2, 3, _conv(3)),
        "Attention": Op(3, 4, _attention),
        "LayerNorm": Op(1, 3, _layer_norm),
        "RMSNorm": Op(1, 2, _rms_norm),
        "Softmax": Op(1, 1, _softmax(nn.softmax)),
        "LogSoftmax": Op(1, 1, _softmax(nn.log_softmax)),
        "Elementwise": Op(1, 3, _elementwise),
        "Reduce": Op(1, 1, _reduce),
        "MaxPool": Op(1, 1, _pool("max")),
        "AvgPool": Op(1, 1, _pool("mean")),
        "Transpose": Op(1, 1, _transpose),
        "Reshape": Op(1, 1, _reshape),
        "Concat": Op(1, 1 << 16, _concat),
    }
)

#: fn of Elementwise -> number of inputs, and what it computes; numbers may stand for all but one of them
FUNCTIONS: Mapping[str, tuple[int, Callable[..., Tensor]]] = MappingProxyType(
    {
        "add": (2, lambda x, y: x + y),
        "sub": (2, lambda x, y: x - y),
        "mul": (2, lambda x, y: x * y),
        "div": (2, lambda x, y: x / y),
        "pow": (2, lambda x, y: x**y),
        "max": (2, fn.maximum),
        "min": (2, fn.minimum),
        "less": (2, lambda x, y: x < y),
        "less_equal": (2, lambda x, y: x <= y),
        "greater": (2, lambda x, y: x > y),
        "greater_equal": (2, lambda x, y: x >= y),
        "equal": (2, lambda x, y: x == y),
        "not_equal": (2, lambda x, y: x != y),
        "ne": (2, lambda x, y: x != y),
        "eq": (2, lambda x, y: x == y),
        "and": (2, lambda x, y: x & y),
        "or": (2, lambda x, y: x | y),
        "not": (1, lambda x: ~x),
        "where": (3, fn.where),
        "neg": (1, lambda x: -x),
        "abs": (1, fn.absolute),
        "relu": (1, fn.relu),
        "exp": (1, fn.exp),
        "exp2": (1, fn.exp2),
        "log": (1, fn.log),
        "log2": (1, fn.log2),
        "sqrt": (1, fn.sqrt),
        "rsqrt": (1, fn.rsqrt),
        "recip": (1, lambda x: x.recip()),
        "sin": (1, fn.sin),
        "tanh": (1, fn.tanh),
        "sigmoid": (1, fn.sigmoid),
        "silu": (1, fn.silu),
        "gelu": (1, fn.gelu),
    }
)
