"""Random pieces of models, small enough to be emulated: products, convolutions, attention, norms and steps between them.

``Maker`` of random_programs.py joins uops as they come; here they come as models have them, so that what is made for them is tried
in company: tiles with epilogues, streams, rows that are kept, copies in another layout.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tinyc
from tinyc import functions as tc
from tinyc.ir.tiny import Program

Tensor = Any
SIZES = (1, 5, 8, 16, 17, 24, 32, 40)


@dataclass
class Model:
    """Draws steps on a matrix. ``shapes``: of the inputs that the steps so far have asked for; ``steps``: functions of the matrix and
    of the inputs; ``rows``, ``width``: of the matrix after them."""

    rng: random.Random
    rows: int
    width: int
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    steps: list[Callable[..., Tensor]] = field(default_factory=list)

    def asked(self, *shape: int) -> int:
        """The number of a new input."""
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def linear(self) -> Callable[..., Tensor]:
        old, self.width = self.width, self.rng.choice(SIZES)
        turned = self.rng.random() < 0.5
        w = self.asked(*((self.width, old) if turned else (old, self.width)))
        bias, activation = self.asked(self.width), self.rng.choice(("relu", "gelu", "silu", None))

        def step(h: Tensor, x: tuple[Tensor, ...]) -> Tensor:
            found = h @ (x[w].T if turned else x[w]) + x[bias]
            return getattr(found, activation)() if activation else found

        return step

    def residual(self) -> Callable[..., Tensor]:
        w, wide = self.asked(self.width, self.width), self.rng.random() < 0.5
        return lambda h, x: (
            (h.cast("fp32") + tc.matmul(h, x[w], dtype="fp32")).cast(h.dtype) if wide else h + h @ x[w]
        )

    def gated(self) -> Callable[..., Tensor]:
        size = self.rng.choice(SIZES)
        up, gate, down = (
            self.asked(*shape) for shape in ((self.width, size), (self.width, size), (size, self.width))
        )
        return lambda h, x: ((h @ x[up]) * (h @ x[gate]).sigmoid()) @ x[down]

    def attention(self) -> Callable[..., Tensor]:
        """Of one head or two, with keys of the matrix or of an input."""
        heads = 2 if self.width % 2 == 0 and self.rng.random() < 0.5 else 1
        size, causal = self.width // heads, self.rng.random() < 0.5
        keys = self.asked(self.rng.choice(SIZES), self.width) if self.rng.random() < 0.5 else -1
        weights = [self.asked(self.width, self.width) for _ in range(3)]

        def step(h: Tensor, x: tuple[Tensor, ...]) -> Tensor:
            source = h if keys < 0 else x[keys]
            q, k, v = (
                (each @ x[w]).reshape(-1, heads, size).permute(1, 0, 2)
                for each, w in zip((h, source, source), weights, strict=True)
            )
            return tc.attention(q, k, v, causal=causal).permute(1, 0, 2).reshape(h.shape)

        return step

    def convolved(self) -> Callable[..., Tensor]:
        """The rows are the image, what is beside them its channels."""
        old, self.width = self.width, self.rng.choice(SIZES)
        taps, stride = self.rng.choice((1, 3)), self.rng.choice((1, 2))
        w = self.asked(self.width, old, taps)
        self.rows = (self.rows - 1) // stride + 1
        return lambda h, x: tc.conv(h.T.expand_dims(0), x[w], stride=stride, pad=taps // 2).squeeze(0).T

    def norm(self) -> Callable[..., Tensor]:
        w = self.asked(self.width)
        kind = tc.rms_norm if self.rng.random() < 0.5 else lambda h, w: tc.layer_norm(h, w, w)
        return lambda h, x: kind(h, x[w])

    def softmax(self) -> Callable[..., Tensor]:
        axis = self.rng.choice((0, 1))
        return lambda h, x: tc.softmax(h, axis)

    def moved(self) -> Callable[..., Tensor]:
        way = self.rng.choice(("turned", "padded", "cut", "flipped"))
        if way == "turned":
            self.rows, self.width = self.width, self.rows
            return lambda h, x: h.T
        if way == "padded":
            self.rows, self.width = self.rows + 1, self.width + 2
            return lambda h, x: h.pad([(1, 0), (0, 2)], 0.5)
        if way == "cut" and self.rows > 1:
            self.rows = (self.rows + 1) // 2
            return lambda h, x: h[::2]
        return lambda h, x: h.flip(0)

    def scaled(self) -> Callable[..., Tensor]:
        column = self.asked(self.rows, 1)
        return lambda h, x: h * x[column] + 0.25

    STEPS = (linear, linear, residual, gated, attention, attention, convolved, norm, softmax, moved, scaled)


def small_model(seed: int) -> Program:
    """Of 2 to 4 steps in one dtype; sometimes with the sums of the rows as a second output."""
    rng = random.Random(seed)
    model = Model(rng, rng.choice(SIZES), rng.choice(SIZES))
    first = model.asked(model.rows, model.width)
    for _ in range(rng.randint(2, 4)):
        model.steps.append(rng.choice(Model.STEPS)(model))
    both, dtype = rng.random() < 0.25, rng.choice(("fp32", "fp16", "fp16", "bf16"))

    def run(*x: Tensor) -> Any:
        h = x[first]
        for step in model.steps:
            h = step(h, x)
        return (h, h.sum(1)) if both else h

    return tinyc.trace(run, *(tinyc.spec(dtype, shape) for shape in model.shapes))
