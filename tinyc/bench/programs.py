"""The programs that are measured: naive for tinyc, and for numpy as one would write them there. All fp32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Array = Any
"""A tinyc tensor of the trace, or a numpy array."""
Function = Callable[..., Array]
Shapes = Mapping[str, tuple[int, ...]]

HEADS = 4


@dataclass(frozen=True)
class Model:
    """One program twice. ``shapes``: of the inputs, in the order of the arguments."""

    shapes: Shapes
    naive: Function
    numpy: Function


def transformer(blocks: int, tokens: int = 32, width: int = 64) -> tuple[Function, Shapes]:
    """A stack of blocks with parameters of their own, for ``trace(function, **specs)``."""
    block = block_shapes(width)

    def stack(x: Array, **parameters: Array) -> Array:
        for number in range(blocks):
            x = _block(x, *(parameters[f"b{number}_{name}"] for name in block))
        return x

    shapes: dict[str, tuple[int, ...]] = {"x": (tokens, width)}
    for number in range(blocks):
        shapes |= {f"b{number}_{name}": shape for name, shape in block.items()}
    return stack, shapes


def block_shapes(width: int) -> dict[str, tuple[int, ...]]:
    """The parameters of a block, in the order of its arguments."""
    square, vector = (width, width), (width,)
    return {
        "norm1": vector,
        "wq": square,
        "wk": square,
        "wv": square,
        "wo": square,
        "norm2": vector,
        "w1": (width, 4 * width),
        "b1": (4 * width,),
        "w2": (4 * width, width),
        "b2": vector,
    }


# ---- naive, for the tracer ----


def _gemm_bias_relu(a: Array, b: Array, bias: Array) -> Array:
    return (a @ b + bias).relu()


def _softmax(x: Array) -> Array:
    from tinyc import functions as tc

    return tc.softmax(x)


def _layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    from tinyc import functions as tc

    return tc.layer_norm(x, weight, bias)


def _attention(q: Array, k: Array, v: Array) -> Array:
    from tinyc import functions as tc

    return tc.attention(q, k, v)


def _mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    return (x @ w1 + b1).gelu() @ w2 + b2


def _conv(x: Array, weight: Array) -> Array:
    from tinyc import functions as tc

    return tc.conv(x, weight, pad=1)


def _block(x: Array, *parameters: Array) -> Array:
    """LayerNorm, causal attention, residual, LayerNorm, MLP, residual; x: [tokens, width]."""
    from tinyc import functions as tc

    norm1, wq, wk, wv, wo, norm2, *mlp = parameters
    tokens, width = x.shape
    normal = tc.layer_norm(x, norm1)
    q, k, v = ((normal @ w).reshape(tokens, HEADS, width // HEADS).permute(1, 0, 2) for w in (wq, wk, wv))
    x = x + tc.attention(q, k, v, causal=True).permute(1, 0, 2).reshape(tokens, width) @ wo
    return x + _mlp(tc.layer_norm(x, norm2), *mlp)


# ---- numpy ----


def _numpy_gemm_bias_relu(a: Array, b: Array, bias: Array) -> Array:
    import numpy as np

    return np.maximum(a @ b + bias, np.float32(0))


def _numpy_softmax(x: Array) -> Array:
    import numpy as np

    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _numpy_layer_norm(x: Array, weight: Array, bias: Array | None = None) -> Array:
    import numpy as np

    centred = x - x.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5)) * weight
    return normal if bias is None else normal + bias


def _numpy_attention(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    import numpy as np

    scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    if causal:
        scores = np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), scores, np.float32(-np.inf))
    return _numpy_softmax(scores) @ v


def _numpy_mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    import numpy as np

    hidden = x @ w1 + b1
    inner = np.float32((2 / np.pi) ** 0.5) * (hidden + np.float32(0.044715) * hidden * hidden * hidden)
    return (np.float32(0.5) * hidden * (1 + np.tanh(inner))) @ w2 + b2


def _numpy_conv(x: Array, weight: Array) -> Array:
    """By windows and one matrix product, as numpy has no convolution."""
    import numpy as np

    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (2, 3))
    return np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def _numpy_block(x: Array, *parameters: Array) -> Array:
    norm1, wq, wk, wv, wo, norm2, *mlp = parameters
    tokens, width = x.shape
    normal = _numpy_layer_norm(x, norm1)
    q, k, v = ((normal @ w).reshape(tokens, HEADS, width // HEADS).transpose(1, 0, 2) for w in (wq, wk, wv))
    x = x + _numpy_attention(q, k, v, causal=True).transpose(1, 0, 2).reshape(tokens, width) @ wo
    return x + _numpy_mlp(_numpy_layer_norm(x, norm2), *mlp)


MODELS: Mapping[str, Model] = {
    "gemm": Model({"a": (1024, 1024), "b": (1024, 1024)}, lambda a, b: a @ b, lambda a, b: a @ b),
    "gemm_bias_relu": Model(
        {"a": (512, 512), "b": (512, 512), "bias": (512,)}, _gemm_bias_relu, _numpy_gemm_bias_relu
    ),
    "softmax": Model({"x": (1024, 1024)}, _softmax, _numpy_softmax),
    "layernorm": Model(
        {"x": (1024, 1024), "weight": (1024,), "bias": (1024,)}, _layer_norm, _numpy_layer_norm
    ),
    "attention": Model(
        {"q": (8, 256, 64), "k": (8, 256, 64), "v": (8, 256, 64)}, _attention, _numpy_attention
    ),
    "mlp": Model(
        {"x": (128, 256), "w1": (256, 1024), "b1": (1024,), "w2": (1024, 256), "b2": (256,)},
        _mlp,
        _numpy_mlp,
    ),
    "conv3x3": Model({"x": (1, 32, 56, 56), "weight": (64, 32, 3, 3)}, _conv, _numpy_conv),
    "transformer_block": Model({"x": (128, 256), **block_shapes(256)}, _block, _numpy_block),
}
