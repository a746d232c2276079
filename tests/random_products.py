"""Random products and convolutions between movements: operands that are cut, padded, turned, repeated, widened; results that are moved
as well, and what is computed on the way. One contraction each, so that a kernel in tiles has it all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tinyc
from tinyc import functions as tc
from tinyc.ir.tiny import Program

Tensor = Any
SIZES = (3, 8, 16, 17, 24, 33, 40)


def random_product(seed: int) -> Program:
    """A matrix product, batched or not, or a convolution of 1 or 2 axes; of fp16, bf16 or fp32, or of two of them."""
    rng = random.Random(seed)
    return _convolution(rng) if seed % 3 == 2 else _matrix_product(rng)


def _matrix_product(rng: random.Random) -> Program:
    m, n, k = (rng.choice(SIZES) for _ in range(3))
    batch = rng.choice(((), (), (2,), (3,)))
    kinds = rng.choice(
        (("fp16", "fp16"), ("fp16", "fp16"), ("bf16", "bf16"), ("fp32", "fp32"), ("fp16", "fp32"))
    )
    shared = rng.choice(("", "", "left", "right"))
    one, left = _operand(rng, ((), batch)[shared != "left"] + (m, k))
    two, right = _operand(rng, ((), batch)[shared != "right"] + (k, n))
    epilogue, extra = _epilogue(rng, n)
    move = _moved(rng)

    def run(a: Tensor, b: Tensor, *others: Tensor) -> Tensor:
        total = tc.matmul(left(a).cast("fp32"), right(b).cast("fp32"))
        return move(epilogue(total, *others)).cast(kinds[0])

    inputs = zip((*kinds, "fp32"), (one, two, *extra), strict=False)
    return tinyc.trace(run, *(tinyc.spec(kind, shape) for kind, shape in inputs))


def _convolution(rng: random.Random) -> Program:
    count = rng.choice((1, 2))
    channels, features = rng.choice((3, 8, 16)), rng.choice((5, 8, 16))
    sizes = tuple(rng.choice((5, 7, 8, 11)) for _ in range(count))
    window = tuple(rng.choice((1, 2, 3)) for _ in range(count))
    kind = rng.choice(("fp16", "fp16", "bf16", "fp32"))
    last = rng.random() < 0.6
    rank = count + 2
    options = {
        "stride": rng.choice((1, 1, 2)),
        "pad": rng.choice((0, 1, 1, [[1, 2]] * count)),
        "dilation": 1 if min(sizes) < 7 else rng.choice((1, 1, 2)),
    }
    image = (rng.choice((1, 2)), *sizes, channels) if last else (rng.choice((1, 2)), channels, *sizes)
    one, left = _operand(rng, image)
    epilogue, extra = _epilogue(rng, features)
    move = _moved(rng)

    def run(x: Tensor, w: Tensor, *others: Tensor) -> Tensor:
        x = left(x)
        if last:
            x, w = x.permute(0, rank - 1, *range(1, rank - 1)), w.permute(0, rank - 1, *range(1, rank - 1))
        total = tc.conv(x, w, **options, dtype="fp32").permute(0, *range(2, rank), 1)
        return move(epilogue(total, *others)).cast(kind)

    weight = (features, *window, channels) if last else (features, channels, *window)
    inputs = zip((kind, kind, "fp32"), (one, weight, *extra), strict=False)
    return tinyc.trace(run, *(tinyc.spec(dtype, shape) for dtype, shape in inputs))


Move = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


def _operand(rng: random.Random, shape: Shape) -> tuple[Shape, Move]:
    """The shape of an input, and how it becomes an operand of ``shape``; the last two axes are moved."""
    *rest, down, along = shape
    outer = (slice(None),) * len(rest)
    match rng.choice(("whole", "whole", "turned", "cut", "steps", "flipped", "padded", "repeated", "split")):
        case "turned":
            return (*rest, along, down), lambda x: x.swapaxes(-1, -2)
        case "cut":
            first, more = rng.randint(0, 9), rng.randint(0, 9)
            part = (*outer, slice(1, 1 + down), slice(first, first + along))
            return (*rest, down + 1, first + along + more), lambda x: x[part]
        case "steps":
            steps = (*outer, slice(None, None, 2), slice(None))
            return (*rest, 2 * down, along), lambda x: x[steps]
        case "flipped":
            axis = rng.choice((-1, -2))
            return shape, lambda x: x.flip(axis)
        case "padded" if down > 2 and along > 2:
            pads = [(0, 0)] * len(rest) + [(1, 0), (0, 2)]
            return (*rest, down - 1, along - 2), lambda x: x.pad(pads)
        case "repeated":
            return (*rest, 1, along), lambda x: tc.broadcast_to(x, shape)
        case "split" if along % 2 == 0:
            order = (*range(len(rest)), len(rest) + 1, len(rest), len(rest) + 2)
            return (*rest, 2, down, along // 2), lambda x: x.permute(*order).reshape(shape)
    return shape, lambda x: x


def _epilogue(rng: random.Random, n: int) -> tuple[Callable[..., Tensor], tuple[Shape, ...]]:
    match rng.choice(("none", "bias", "chain", "chosen")):
        case "bias":
            return lambda x, b: x + b, ((n,),)
        case "chain":
            return lambda x: (x * 0.5 + 1.0).relu() - 2.0, ()
        case "chosen":
            return lambda x, b: tc.where(x > b, x, b), ((n,),)
    return lambda x: x, ()


def _moved(rng: random.Random) -> Move:
    match rng.choice(("none", "turned", "padded", "cut", "flat", "flipped", "between", "joined")):
        case "turned":
            return lambda x: x.swapaxes(-1, -2)
        case "padded":
            return lambda x: x.pad([(0, 0)] * (x.ndim - 2) + [(1, 2), (3, 0)], 1.0)
        case "cut":
            return lambda x: x[(slice(None),) * (x.ndim - 2) + (slice(None, None, 2), slice(1, None))]
        case "flat":
            return lambda x: x.reshape(-1)
        case "flipped":
            return lambda x: x.flip(-2)
        case "between":
            return lambda x: x.permute(*range(1, x.ndim), 0)
        case "joined":
            return lambda x: tc.concatenate([x, x.relu()], -1)
    return lambda x: x
