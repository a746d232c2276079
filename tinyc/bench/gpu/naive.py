"""The programs of :mod:`.entries`, naive, as tinyc is given them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .entries import Entry

if TYPE_CHECKING:
    from tinyc.ir.tiny import Program

Tensor = Any


def traced(entry: Entry) -> Program:
    """The program of an entry. Raises TinycError."""
    import tinyc

    function = functools.partial(NAIVE[entry.program], **entry.parameters)
    return tinyc.trace(function, *(tinyc.spec(each.dtype, each.shape, each.name) for each in entry.inputs))


def _gemm(a: Tensor, b: Tensor, *, layout: str) -> Tensor:
    a = a.swapaxes(-1, -2) if layout[0] == "t" else a
    b = b.swapaxes(-1, -2) if layout[1] == "t" else b
    return a @ b


def _gemm_bias_relu(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    return (a @ b + bias).relu()


def _conv(x: Tensor, weight: Tensor, *, form: str, stride: int, pad: int, groups: int) -> Tensor:
    from tinyc import functions as tc

    if form == "nchw":
        return tc.conv(x, weight, stride=stride, pad=pad, groups=groups)
    x, weight = x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2)
    return tc.conv(x, weight, stride=stride, pad=pad, groups=groups).permute(0, 2, 3, 1)


def _attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    from tinyc import functions as tc

    return tc.attention(q, k, v, causal=causal)


def _softmax(x: Tensor) -> Tensor:
    from tinyc import functions as tc

    return tc.softmax(x)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from tinyc import functions as tc

    return tc.layer_norm(x, weight, bias)


def _bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return (x + bias).gelu()


def _sum(x: Tensor, *, axis: int) -> Tensor:
    return x.sum(axis)


def _transformer_block(x: Tensor, *parameters: Tensor, heads: int) -> Tensor:
    from tinyc import functions as tc

    norm1, wq, wk, wv, wo, norm2, w1, b1, w2, b2 = parameters
    tokens, width = x.shape
    normal = tc.layer_norm(x, norm1)
    q, k, v = ((normal @ w).reshape(tokens, heads, width // heads).permute(1, 0, 2) for w in (wq, wk, wv))
    x = x + tc.attention(q, k, v, causal=True).permute(1, 0, 2).reshape(tokens, width) @ wo
    return x + (tc.layer_norm(x, norm2) @ w1 + b1).gelu() @ w2 + b2


NAIVE: Mapping[str, Callable[..., Tensor]] = {
    "gemm": _gemm,
    "gemm_bias_relu": _gemm_bias_relu,
    "conv": _conv,
    "attention": _attention,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "bias_gelu": _bias_gelu,
    "sum": _sum,
    "transformer_block": _transformer_block,
}
