"""Writes the documents beside this file: ``python docs/examples/generate.py`` (the same bytes every time).

``<name>.json`` is the Tiny JSON of the traced function ``name`` in models.py; ``<name>.frontend.json`` is
Frontend JSON (document 004 §2), given here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models import EXAMPLES

from tinyc.frontend import trace_document
from tinyc.ir.document import dumps

HERE = Path(__file__).parent


def frontend(
    inputs: Mapping[str, tuple[str, list[int | str]]],
    outputs: Mapping[str, tuple[str, list[int | str]]],
    *graph: dict[str, Any],
    params: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A Frontend document; tensors are (dtype, shape), ``params`` are the inputs that are weights."""

    def entry(name: str) -> dict[str, Any]:
        if name in params:
            return {"tensor": name, "role": "param", "mutability": "immutable", "storage": "const_pool"}
        return {"tensor": name, "role": "data", "mutability": "immutable"}

    return {
        "signature": {
            "inputs": [entry(name) for name in inputs],
            "outputs": [{"tensor": name} for name in outputs],
        },
        "tensors": {
            name: {"dtype": kind, "shape": shape} for name, (kind, shape) in {**inputs, **outputs}.items()
        },
        "graph": list(graph),
    }


def node(
    op: str, name: str, inputs: list[Any], output: str, fn: str | None = None, **attrs: Any
) -> dict[str, Any]:
    what = {"fn": fn} if fn else {}
    return {
        "op": op,
        "name": name,
        **what,
        "inputs": inputs,
        "outputs": [output],
        **({"attrs": attrs} if attrs else {}),
    }


FRONTEND: dict[str, dict[str, Any]] = {
    "gemm_bias_relu": frontend(
        {"A": ("fp16", ["M", "K"]), "B": ("fp16", ["K", "N"]), "bias": ("fp16", ["N"])},
        {"C2": ("fp16", ["M", "N"])},
        node("GEMM", "gemm", ["A", "B"], "C0", acc_dtype="fp32"),
        node("Elementwise", "bias_add", ["C0", "bias"], "C1", "add"),
        node("Elementwise", "relu", ["C1"], "C2", "relu"),
        params=("bias",),
    ),
    "conv3x3_s2_p1": frontend(
        {"X": ("fp16", ["N", 8, "H", "W"]), "weight": ("fp16", [16, 8, 3, 3]), "bias": ("fp16", [16])},
        {"Y": ("fp16", ["N", 16, "Ho", "Wo"])},
        node("Conv", "conv", ["X", "weight", "bias"], "Y", stride=[2, 2], pad=[[1, 1], [1, 1]]),
        params=("weight", "bias"),
    ),
    "conv3x3_silu": frontend(
        {"X": ("fp16", [2, 8, 13, 13]), "weight": ("fp16", [16, 8, 3, 3])},
        {"Y": ("fp16", [2, 16, 13, 13])},
        node("Conv2D", "conv", ["X", "weight"], "Y0", pad=1, acc_dtype="fp32"),
        node("Elementwise", "silu", ["Y0"], "Y", "silu"),
        params=("weight",),
    ),
    "attention_causal": frontend(
        {name: ("fp16", [2, heads, 32, 16]) for name, heads in (("Q", 4), ("K", 2), ("V", 2))},
        {"O": ("fp16", [2, 4, 32, 16])},
        node("Attention", "attention", ["Q", "K", "V"], "O", scale=0.25, causal=True),
    ),
    "transformer_block": frontend(
        {
            "x": ("fp16", ["B", "T", 64]),
            **{name: ("fp16", [64]) for name in ("norm1_w", "norm1_b", "norm2_w", "norm2_b", "b2")},
            **{name: ("fp16", [64, 64]) for name in ("wq", "wk", "wv", "wo")},
            "w1": ("fp16", [64, 256]),
            "b1": ("fp16", [256]),
            "w2": ("fp16", [256, 64]),
        },
        {"y": ("fp16", ["B", "T", 64])},
        node("LayerNorm", "norm1", ["x", "norm1_w", "norm1_b"], "n1", axis=-1, eps=1e-5),
        node("GEMM", "q_proj", ["n1", "wq"], "q"),
        node("GEMM", "k_proj", ["n1", "wk"], "k"),
        node("GEMM", "v_proj", ["n1", "wv"], "v"),
        node("Attention", "attention", ["q", "k", "v"], "a", heads=4, causal=True),
        node("GEMM", "o_proj", ["a", "wo"], "o"),
        node("Elementwise", "residual1", ["x", "o"], "r", "add"),
        node("LayerNorm", "norm2", ["r", "norm2_w", "norm2_b"], "n2", axis=-1, eps=1e-5),
        node("GEMM", "up", ["n2", "w1", "b1"], "h0"),
        node("Elementwise", "gelu", ["h0"], "h", "gelu"),
        node("GEMM", "down", ["h", "w2", "b2"], "d"),
        node("Elementwise", "residual2", ["r", "d"], "y", "add"),
        params=("norm1_w", "norm1_b", "norm2_w", "norm2_b", "b2", "wq", "wk", "wv", "wo", "w1", "b1", "w2"),
    ),
}
# between the contractions of the block, values are fp16 again; undeclared they would stay in the accumulator's fp32
FRONTEND["transformer_block"]["tensors"] |= {
    name: {"dtype": "fp16", "shape": ["B", "T", width]}
    for name, width in {"q": 64, "k": 64, "v": 64, "o": 64, "h0": 256, "d": 64}.items()
}


def frontend_text(document: dict[str, Any]) -> str:
    """One line per input, tensor and node, as people write Frontend documents."""

    def lines(items: list[str], indent: str) -> str:
        return f",\n{indent}".join(items)

    signature = document["signature"]
    inputs = lines([json.dumps(each) for each in signature["inputs"]], "      ")
    tensors = lines(
        [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in document["tensors"].items()], "    "
    )
    graph = lines([json.dumps(each) for each in document["graph"]], "    ")
    return (
        f'{{\n  "signature": {{\n    "inputs": [\n      {inputs}\n    ],\n'
        f'    "outputs": {json.dumps(signature["outputs"])}\n  }},\n'
        f'  "tensors": {{\n    {tensors}\n  }},\n  "graph": [\n    {graph}\n  ]\n}}\n'
    )


def documents() -> dict[str, str]:
    """File name -> text of every document."""
    tiny = {
        f"{name}.json": dumps(trace_document(each.function, **each.specs)) for name, each in EXAMPLES.items()
    }
    return tiny | {f"{name}.frontend.json": frontend_text(each) for name, each in FRONTEND.items()}


if __name__ == "__main__":
    for name, text in documents().items():
        (HERE / name).write_text(text, encoding="utf-8")
