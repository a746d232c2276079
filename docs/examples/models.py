"""The example programs as traced functions: plain Python over tinyc tensors, every one of them naive.

``EXAMPLES`` names them with the inputs they are traced with; ``generate.py`` writes each as ``<name>.json``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinyc import functions as tc
from tinyc import spec
from tinyc.frontend import Spec

# mypy and readers: a tensor of the trace; the functions work on any dtype that the operations know
Tensor = Any


def gemm_bias_relu(A: Tensor, B: Tensor, bias: Tensor) -> Tensor:
    """[M, K] @ [K, N] + [N], ReLU; bias and ReLU apply to the fp32 accumulator."""
    acc = tc.matmul(A, B, dtype="fp32")
    return (acc + bias.cast("fp32")).relu().cast(A.dtype)


def matmul(A: Tensor, B: Tensor) -> Tensor:
    return A @ B


def matmul_a_bt(A: Tensor, B: Tensor) -> Tensor:
    """[M, K] @ [N, K] transposed."""
    return A @ B.T


def matmul_at_b(A: Tensor, B: Tensor) -> Tensor:
    """[K, M] transposed @ [K, N]."""
    return A.T @ B


def conv(**options: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """A convolution with the options of ``tinyc.functions.conv``."""
    return lambda X, weight: tc.conv(X, weight, **options)


def conv3x3_silu(X: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return tc.conv(X, weight, bias, pad=1, dtype="fp32").silu().cast(X.dtype)


def attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """softmax(Q Kᵀ / sqrt(D)) V."""
    return tc.attention(Q, K, V)


def attention_causal(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return tc.attention(Q, K, V, causal=True)


def attention_mask(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """``mask`` is added to the scaled scores."""
    return tc.attention(Q, K, V, mask)


def attention_scores(Q: Tensor, K: Tensor) -> Tensor:
    """The row softmax of document 002 §5.3, without scale and V."""
    return tc.softmax(tc.matmul(Q, K.swapaxes(-1, -2), dtype="fp32")).cast(Q.dtype)


def softmax(x: Tensor) -> Tensor:
    return tc.softmax(x)


def log_softmax(x: Tensor) -> Tensor:
    return tc.log_softmax(x)


def layernorm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return tc.layer_norm(x, weight, bias)


def rmsnorm(x: Tensor, weight: Tensor) -> Tensor:
    return tc.rms_norm(x, weight)


def mlp2(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Two layers and a residual: ``x`` is read by the first layer and by the sum at the end."""
    hidden = (x @ w1 + b1).relu()
    return hidden @ w2 + b2 + x


def gated_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """silu(x gate) * (x up), then down: two products share their input."""
    return ((x @ gate).silu() * (x @ up)) @ down


def max_over_padding(x: Tensor) -> Tensor:
    """With only negative values the zeros of the padding win: PAD is not neutral to MAX (I-33)."""
    return x.pad([(0, 0), (1, 2)]).max(1)


def movement_chain(x: Tensor) -> Tensor:
    """FLIP, strided SHRINK, PAD and PERMUTE of what is left, twice reshaped."""
    tail = x.flip(0)[1::2, ::-3].pad([(1, 0), (0, 2)], -1.0).T
    return tail.reshape(-1).flip()[:-1:2]


def three_consumers(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One product, read by three outputs."""
    shared = x @ w
    return shared.relu(), shared.sum(1), tc.softmax(shared)


def diamond(x: Tensor) -> Tensor:
    """Two paths from one value that meet again."""
    root = (x * x + 1.0).sqrt()
    return root.sum(1, keepdims=True) * root - root.max(1, keepdims=True)


def sum_rows_columns(x: Tensor) -> Tensor:
    """Axis 2 first, then axis 0."""
    return x.sum(2).sum(0)


def sum_columns_rows(x: Tensor) -> Tensor:
    """Axis 0 first, then what was axis 2."""
    return x.sum(0).sum(1)


def smooth_interior(x: Tensor) -> Tensor:
    """A three-point average of each row, padded with zeros; of the result, what no padding has touched."""
    padded = x.pad([(0, 0), (1, 1)])
    smooth = (padded[:, :-2] + 2.0 * padded[:, 1:-1] + padded[:, 2:]) / 4.0
    return smooth[:, 1:-1]


def residual_defaults(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    """A residual with its default scale, between two layers that both end in a ReLU."""
    return x.relu() + scale * (y.relu() + x).relu().relu()


def gradient_step(w: Tensor, gradient: Tensor, batch: int = 32) -> Tensor:
    """A step against the gradient, summed over a batch."""
    step = -(gradient / batch)
    return w + step


def mean_square_error(x: Tensor, y: Tensor) -> Tensor:
    """One number: what a model is trained to make small."""
    return ((x - y) * (x - y)).mean()


def relu_max_pool(x: Tensor) -> Tensor:
    """ReLU, then the maximum over each image."""
    return x.relu().max((2, 3))


def dequantised_matmul(codes: Tensor, scale: Tensor, w: Tensor) -> Tensor:
    """Each row of codes times its scale, then a product."""
    return (codes.cast("fp32") * scale) @ w.cast("fp32")


def transformer_block(x: Tensor, heads: int, p: dict[str, Tensor]) -> Tensor:
    """LayerNorm, attention, residual, LayerNorm, MLP, residual. x: [T, E]; weights as :func:`block_specs` says."""
    tokens, width = x.shape
    normal = tc.layer_norm(x, p["norm1_w"], p["norm1_b"])
    q, k, v = (
        (normal @ p[name]).reshape(tokens, heads, width // heads).permute(1, 0, 2)
        for name in ("wq", "wk", "wv")
    )
    mixed = tc.attention(q, k, v, causal=True).permute(1, 0, 2).reshape(tokens, width)
    x = x + mixed @ p["wo"]
    normal = tc.layer_norm(x, p["norm2_w"], p["norm2_b"])
    return x + (normal @ p["w1"] + p["b1"]).gelu() @ p["w2"] + p["b2"]


def block_specs(width: int, hidden: int, dtype: str = "fp32", prefix: str = "") -> dict[str, Spec]:
    """The parameters of one transformer block."""
    shapes: dict[str, tuple[int, ...]] = {
        **{name: (width,) for name in ("norm1_w", "norm1_b", "norm2_w", "norm2_b", "b2")},
        **{name: (width, width) for name in ("wq", "wk", "wv", "wo")},
        "w1": (width, hidden),
        "b1": (hidden,),
        "w2": (hidden, width),
    }
    return {prefix + name: spec(dtype, shape) for name, shape in shapes.items()}


def transformer(
    blocks: int, tokens: int | str = 32, width: int = 64, heads: int = 4, dtype: str = "fp32"
) -> tuple[Callable[..., Tensor], dict[str, Spec]]:
    """A stack of ``blocks`` and its inputs, for ``trace(function, **specs)``. The blocks have parameters of their own."""
    prefixes = [f"b{index}_" if blocks > 1 else "" for index in range(blocks)]

    def stack(x: Tensor, **parameters: Tensor) -> Tensor:
        for prefix in prefixes:
            own = {
                name.removeprefix(prefix): each
                for name, each in parameters.items()
                if name.startswith(prefix)
            }
            x = transformer_block(x, heads, own)
        return x

    specs = {"x": spec(dtype, (tokens, width))}
    for prefix in prefixes:
        specs |= block_specs(width, 4 * width, dtype, prefix)
    return stack, specs


@dataclass(frozen=True)
class Example:
    """A traced function and its inputs."""

    function: Callable[..., Any]
    specs: dict[str, Spec]


def _example(function: Callable[..., Any], dtype: str, **shapes: tuple[int | str, ...]) -> Example:
    return Example(function, {name: spec(dtype, shape) for name, shape in shapes.items()})


EXAMPLES: dict[str, Example] = {
    "gemm_bias_relu": _example(gemm_bias_relu, "fp16", A=("M", "K"), B=("K", "N"), bias=("N",)),
    "matmul_batched": _example(matmul, "fp32", A=(3, 24, 40), B=(3, 40, 16)),
    "matmul_broadcast": _example(matmul, "fp32", A=(2, 1, 24, 40), B=(3, 40, 16)),
    "matmul_a_bt": _example(matmul_a_bt, "fp16", A=("M", "K"), B=("N", "K")),
    "matmul_at_b": _example(matmul_at_b, "fp16", A=("K", "M"), B=("K", "N")),
    "conv1x1": _example(conv(), "fp32", X=(2, 8, 14, 14), weight=(16, 8, 1, 1)),
    "conv3x3_s2_p1": _example(conv(stride=2, pad=1), "fp16", X=("N", 8, "H", "W"), weight=(16, 8, 3, 3)),
    "conv_dilated": _example(conv(dilation=2, pad=2), "fp32", X=(1, 4, 15, 16), weight=(8, 4, 3, 3)),
    "conv_grouped": _example(conv(groups=4, pad=1), "fp32", X=(2, 8, 9, 9), weight=(12, 2, 3, 3)),
    "conv_depthwise": _example(conv(groups=8, pad=1), "fp32", X=(2, 8, 9, 10), weight=(8, 1, 3, 3)),
    "conv1d": _example(conv(stride=2, pad=2), "fp32", X=(2, 6, 33), weight=(10, 6, 5)),
    "conv3d": _example(conv(pad=1), "fp32", X=(1, 3, 6, 7, 8), weight=(4, 3, 3, 3, 3)),
    "conv3x3_silu": _example(conv3x3_silu, "fp32", X=(2, 8, 13, 13), weight=(16, 8, 3, 3), bias=(16,)),
    "attention": _example(attention, "fp32", Q=(2, 4, 32, 16), K=(2, 4, 48, 16), V=(2, 4, 48, 16)),
    "attention_causal": _example(
        attention_causal, "fp32", Q=(2, 4, 32, 16), K=(2, 4, 32, 16), V=(2, 4, 32, 16)
    ),
    "attention_mask": _example(
        attention_mask, "fp32", Q=(2, 4, 32, 16), K=(2, 4, 48, 16), V=(2, 4, 48, 16), mask=(32, 48)
    ),
    "attention_scores": _example(attention_scores, "fp16", Q=("B", "H", "M", "D"), K=("B", "H", "N", "D")),
    "softmax": _example(softmax, "fp32", x=("M", 96)),
    "log_softmax": _example(log_softmax, "fp32", x=("M", 96)),
    "layernorm": _example(layernorm, "fp32", x=("M", 96), weight=(96,), bias=(96,)),
    "rmsnorm": _example(rmsnorm, "fp32", x=("M", 96), weight=(96,)),
    "mlp2": _example(mlp2, "fp32", x=("M", 48), w1=(48, 80), b1=(80,), w2=(80, 48), b2=(48,)),
    "gated_mlp": _example(gated_mlp, "fp32", x=("M", 48), gate=(48, 80), up=(48, 80), down=(80, 48)),
    "transformer_block": Example(*transformer(1)),
    "max_over_padding": _example(max_over_padding, "fp32", x=(6, 10)),
    "movement_chain": _example(movement_chain, "fp32", x=(9, 14)),
    "three_consumers": _example(three_consumers, "fp32", x=(20, 30), w=(30, 12)),
    "diamond": _example(diamond, "fp32", x=(16, 24)),
    "sum_rows_columns": _example(sum_rows_columns, "fp32", x=(6, 7, 8)),
    "sum_columns_rows": _example(sum_columns_rows, "fp32", x=(6, 7, 8)),
    "smooth_interior": _example(smooth_interior, "fp32", x=("M", 64)),
    "residual_defaults": _example(residual_defaults, "fp32", x=("M", 64), y=("M", 64)),
    "gradient_step": _example(gradient_step, "fp32", w=("M", 64), gradient=("M", 64)),
    "mean_square_error": _example(mean_square_error, "fp32", x=(256, 256), y=(256, 256)),
    "relu_max_pool": _example(relu_max_pool, "fp32", x=(2, 8, 14, 14)),
    "dequantised_matmul": Example(
        dequantised_matmul,
        {"codes": spec("fp16", ("M", 64)), "scale": spec("fp32", ("M", 1)), "w": spec("fp16", (64, 48))},
    ),
}
