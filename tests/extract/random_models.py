"""Random pieces of models: products, attention, normalisations and elementwise steps one after another."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tinyc
from tinyc import functions
from tinyc.ir.tiny import Program

STEPS = ("linear", "residual", "attention", "layernorm", "softmax", "gelu", "relu", "scale")


def random_model(seed: int) -> Program:
    """Of 2 to 5 steps, on a matrix of one of the usual types."""
    rng = random.Random(seed)
    rows, width = rng.choice((16, 48, 128, 200, 512)), rng.choice((32, 64, 96, 256, 384))
    shapes: list[tuple[int, int]] = [(rows, width)]
    steps: list[tuple[str, slice]] = []
    for _ in range(rng.randint(2, 5)):
        step, start = rng.choice(STEPS), len(shapes)
        if step == "linear":
            shapes.append((width, width := rng.choice((32, 64, 128, 256))))
        elif step in ("residual", "attention"):
            shapes += [(width, width)] * (1 if step == "residual" else 3)
        steps.append((step, slice(start, len(shapes))))
    dtype = rng.choice(("fp32", "fp16", "bf16"))

    def model(*values: Any) -> Any:
        h = values[0]
        for step, weights in steps:
            h = APPLIED[step](h, *values[weights])
        return h

    return tinyc.trace(model, *(tinyc.spec(dtype, shape) for shape in shapes))


def _attention(h: Any, wq: Any, wk: Any, wv: Any) -> Any:
    return functions.softmax((h @ wq) @ (h @ wk).T * 0.125) @ (h @ wv)


def _layernorm(h: Any) -> Any:
    scale = 1.0 / int(h.shape[-1])
    centred = h - h.sum(axis=-1, keepdims=True) * scale
    return centred * ((centred * centred).sum(axis=-1, keepdims=True) * scale + 1e-5).rsqrt()


APPLIED: dict[str, Callable[..., Any]] = {
    "linear": lambda h, w: h @ w,
    "residual": lambda h, w: h + h @ w,
    "attention": _attention,
    "layernorm": _layernorm,
    "softmax": functions.softmax,
    "gelu": lambda h: h.gelu(),
    "relu": lambda h: h.relu(),
    "scale": lambda h: h * 0.5,
}
