"""docs/examples: the documents are what generate.py writes, they load, and they compute what numpy computes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frontend_helpers import Array, normal, run
from test_layers import attention_reference, conv_reference

import tinyc
from tinyc.frontend import trace
from tinyc.ir.document import dumps, program_to_document
from tinyc.ir.dtypes import DType

FOLDER = Path(__file__).parents[2] / "docs" / "examples"


def _module(name: str) -> Any:
    """A module of the folder; ``generate`` finds ``models`` as a script in that folder does."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


models = _module("models")
generate = _module("generate")
DOCUMENTS = generate.documents()


def test_the_folder_holds_what_generate_writes() -> None:
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert sorted(on_disk) == sorted(DOCUMENTS)
    assert [name for name in DOCUMENTS if on_disk[name] != DOCUMENTS[name]] == []


@pytest.mark.parametrize("name", models.EXAMPLES)
def test_document_and_trace_are_one_program(name: str) -> None:
    example = models.EXAMPLES[name]
    traced = program_to_document(trace(example.function, **example.specs))
    assert dumps(program_to_document(tinyc.load(FOLDER / f"{name}.json"))) == dumps(traced)


SIZES = {"M": 6, "N": 5, "K": 7, "H": 9, "W": 10, "B": 2, "D": 3, "T": 5}


def _inputs(program: tinyc.ir.tiny.Program) -> dict[str, Array]:  # type: ignore[name-defined]
    arrays = {}
    for index, port in enumerate(program.inputs):
        kind = program.types[port.node]
        shape = [dim if isinstance(dim, int) else SIZES[dim] for dim in kind.shape]
        assert kind.dtype in (DType.FP16, DType.FP32)
        # matrices of this scale keep values of size 1 through a layer
        scale = shape[0] ** -0.5 if len(shape) == 2 and port.name.startswith("w") else 0.5
        arrays[port.name] = (normal(*shape, seed=index) * scale).astype(kind.dtype.numpy)
    return arrays


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _norm(x: Array, w: Any = 1, b: Any = 0) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def _conv(stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1) -> Callable[..., Array]:
    def compute(X: Array, weight: Array, bias: Array | None = None) -> Array:
        rank = X.ndim - 2
        return conv_reference(
            X, weight, bias, [stride] * rank, [(pad, pad)] * rank, [dilation] * rank, groups
        )

    return compute


def _block(x: Array, heads: int = 4, **p: Array) -> Array:
    def split(name: str) -> Array:
        return (normed @ p[name]).reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)

    normed = _norm(x, p["norm1_w"], p["norm1_b"])
    seen = np.tril(np.ones((x.shape[-2],) * 2, bool))
    mixed = attention_reference(split("wq"), split("wk"), split("wv"), seen=seen)
    x = x + mixed.swapaxes(-2, -3).reshape(x.shape) @ p["wo"]
    normed = _norm(x, p["norm2_w"], p["norm2_b"])
    return x + _gelu(normed @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def _three(x: Array, w: Array) -> tuple[Array, ...]:
    return np.maximum(x @ w, 0), (x @ w).sum(1), _softmax(x @ w)


def _diamond(x: Array) -> Array:
    root = np.sqrt(x * x + 1)
    return root.sum(1, keepdims=True) * root - root.max(1, keepdims=True)


def _movement(x: Array) -> Array:
    tail = np.pad(x[::-1][1::2, ::-3], ((1, 0), (0, 2)), constant_values=-1).T
    return tail.reshape(-1)[::-1][:-1:2]


def _causal(Q: Array, K: Array, V: Array) -> Array:
    return attention_reference(Q, K, V, seen=np.tril(np.ones((Q.shape[-2], K.shape[-2]), bool)))


#: in float64, from the formulas alone
REFERENCE: dict[str, Callable[..., Any]] = {
    "gemm_bias_relu": lambda A, B, bias: np.maximum(A @ B + bias, 0),
    "matmul_batched": lambda A, B: A @ B,
    "matmul_broadcast": lambda A, B: A @ B,
    "matmul_a_bt": lambda A, B: A @ B.T,
    "matmul_at_b": lambda A, B: A.T @ B,
    "conv1x1": _conv(),
    "conv3x3_s2_p1": _conv(2, 1),
    "conv_dilated": _conv(dilation=2, pad=2),
    "conv_grouped": _conv(groups=4, pad=1),
    "conv_depthwise": _conv(groups=8, pad=1),
    "conv1d": _conv(2, 2),
    "conv3d": _conv(pad=1),
    "conv3x3_silu": lambda X, weight, bias=None: _silu(_conv(pad=1)(X, weight, bias)),
    "attention": lambda Q, K, V: attention_reference(Q, K, V),
    "attention_causal": _causal,
    "attention_mask": lambda Q, K, V, mask: attention_reference(Q, K, V, mask=mask),
    "attention_scores": lambda Q, K: _softmax(Q @ K.swapaxes(-1, -2)),
    "softmax": _softmax,
    "log_softmax": lambda x: np.log(_softmax(x)),
    "layernorm": lambda x, weight, bias: _norm(x, weight, bias),
    "rmsnorm": lambda x, weight: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight,
    "mlp2": lambda x, w1, b1, w2, b2: np.maximum(x @ w1 + b1, 0) @ w2 + b2 + x,
    "gated_mlp": lambda x, gate, up, down: (_silu(x @ gate) * (x @ up)) @ down,
    "transformer_block": _block,
    "max_over_padding": lambda x: np.pad(x, ((0, 0), (1, 2))).max(1),
    "movement_chain": _movement,
    "three_consumers": _three,
    "diamond": _diamond,
    "sum_rows_columns": lambda x: x.sum((0, 2)),
    "sum_columns_rows": lambda x: x.sum((0, 2)),
    "smooth_interior": lambda x: (x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:]) / 4,
    "residual_defaults": lambda x, y: np.maximum(x, 0) + np.maximum(np.maximum(y, 0) + x, 0),
    "gradient_step": lambda w, gradient: w - gradient / 32,
    "mean_square_error": lambda x, y: ((x - y) ** 2).mean(),
    "relu_max_pool": lambda x: np.maximum(x, 0).max((2, 3)),
    "dequantised_matmul": lambda codes, scale, w: (codes * scale) @ w,
}


def _tolerance(file: str, dtype: DType) -> tuple[float, float]:
    if file == "transformer_block.frontend.json":  # six fp16 values in a row, of size 1 to 8
        return 4e-3, 1e-2
    if (
        file == "attention_causal.frontend.json"
    ):  # the probabilities are rounded to fp16 before the second product
        return 1e-3, 1e-3
    return (6e-4, 1e-4) if dtype is DType.FP16 else (1e-5, 2e-5)  # one rounding, and sums in fp32


@pytest.mark.parametrize("file", DOCUMENTS)
def test_example_computes_what_numpy_computes(file: str) -> None:
    program = tinyc.load(FOLDER / file)
    inputs = _inputs(program)
    if file == "max_over_padding.json":
        inputs = {"x": -np.abs(inputs["x"]) - np.float32(1)}
    wide = {
        ("Q" if name == "x" and "x" not in inputs else name): a.astype(np.float64)
        for name, a in inputs.items()
    }
    scale = {"scale": 0.25} if file == "attention_causal.frontend.json" else {}
    assert (
        not scale or abs(inputs["Q"].shape[-1] ** -0.5 - 0.25) < 1e-12
    )  # the document states the default scale
    expected = REFERENCE[file.split(".")[0]](**wide)
    for port, ours, theirs in zip(
        program.outputs, run(program, *inputs.values()), expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    ):  # fmt: skip
        assert ours.shape == theirs.shape
        rtol, atol = _tolerance(file, program.types[port.node].dtype)
        np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=rtol, atol=atol)


def test_transformer_stacks_grow_by_equal_parts() -> None:
    counts = []
    for blocks in (2, 3, 4):
        function, specs = models.transformer(blocks, tokens=8, width=16, heads=2)
        counts.append(len(trace(function, **specs).nodes))
    assert counts[2] - counts[1] == counts[1] - counts[0]
