"""The naive programs of the first issue as Tiny JSON, written out uop by uop as document 002 §5 does.

Nothing here goes through the tracer: a program that only one front end can spell shows in the other's test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]
Shape = Sequence[int]

LOG2_E = 1.4426950408889634


class Doc:
    """A document in the making. Every method adds nodes and returns an id; ``shape`` knows their shapes."""

    def __init__(self) -> None:
        self.uops: list[dict[str, Any]] = []
        self.shape: dict[str, tuple[int, ...]] = {}
        self.dtype: dict[str, str] = {}

    def add(self, uop: str, src: Sequence[Any], arg: dict[str, Any], shape: Shape, dtype: str) -> str:
        id = f"n{len(self.uops)}"
        self.uops.append({"id": id, "uop": uop, "src": list(src), "arg": arg})
        self.shape[id], self.dtype[id] = tuple(shape), dtype
        return id

    def input(self, name: str, dtype: str, *shape: int) -> str:
        return self.add("INPUT", [], {"tensor_id": name, "dtype": dtype, "shape": list(shape)}, shape, dtype)

    def document(self) -> Document:
        return {"uops": self.uops}

    # ---- movement ----

    def reshape(self, x: str, *shape: int) -> str:
        return self.add("RESHAPE", [x], {"result_shape": list(shape)}, shape, self.dtype[x])

    def expand(self, x: str, *shape: int) -> str:
        return self.add("EXPAND", [x], {"result_shape": list(shape)}, shape, self.dtype[x])

    def permute(self, x: str, *perm: int) -> str:
        shape = [self.shape[x][axis] for axis in perm]
        return self.add("PERMUTE", [x], {"perm": list(perm)}, shape, self.dtype[x])

    def pad(self, x: str, *pad: tuple[int, int], value: float = 0) -> str:
        shape = [size + low + high for size, (low, high) in zip(self.shape[x], pad, strict=True)]
        arg = {"pad": [list(pair) for pair in pad], "value": value}
        return self.add("PAD", [x], arg, shape, self.dtype[x])

    def shrink(self, x: str, *bounds: tuple[int, int, int]) -> str:
        low, high, step = (list(part) for part in zip(*bounds, strict=True))
        shape = [-(-(last - first) // by) for first, last, by in bounds]
        return self.add("SHRINK", [x], {"lo": low, "hi": high, "step": step}, shape, self.dtype[x])

    def flip(self, x: str, *axes: int) -> str:
        return self.add("FLIP", [x], {"axes": list(axes)}, self.shape[x], self.dtype[x])

    def view(self, x: str, shape: Shape, *index: str) -> str:
        arg = {"result_shape": list(shape), "index_map": {"map": list(index)}}
        return self.add("VIEW", [x], arg, shape, self.dtype[x])

    def valid(self, shape: Shape, low: Shape, high: Shape) -> str:
        arg = {"result_shape": list(shape), "lo": list(low), "hi": list(high)}
        return self.add("VALID", [], arg, shape, "bool")

    def spread(self, x: str, shape: Shape, axes: Sequence[int]) -> str:
        """``x`` as axes ``axes`` of ``shape``, repeated along the others: RESHAPE and EXPAND."""
        thin = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
        thin = self.reshape(x, *thin)
        return self.expand(thin, *shape) if self.shape[thin] != tuple(shape) else thin

    # ---- elementwise and reductions ----

    def cast(self, x: str, to: str) -> str:
        return x if self.dtype[x] == to else self.add("CAST", [x], {"to": to}, self.shape[x], to)

    def unary(self, uop: str, x: str) -> str:
        return self.add(uop, [x], {}, self.shape[x], self.dtype[x])

    def binary(self, uop: str, x: Any, y: Any) -> str:
        like = x if isinstance(x, str) else y
        return self.add(uop, [x, y], {}, self.shape[like], self.dtype[like])

    def where(self, condition: str, x: Any, y: Any) -> str:
        like = x if isinstance(x, str) else y
        return self.add("WHERE", [condition, x, y], {}, self.shape[like], self.dtype[like])

    def reduce(self, op: str, x: str, axes: Sequence[int], dtype: str = "fp32") -> str:
        kept = [size for axis, size in enumerate(self.shape[x]) if axis not in axes]
        return self.add("REDUCE", [x], {"op": op, "axes": list(axes), "dtype": dtype}, kept, dtype)

    # ---- what document 002 §5 writes out ----

    def matmul(self, a: str, b: str, batch: Shape = ()) -> str:
        """[..., M, K] @ [..., K, N] in fp32, spelled as in §5.1: reshape, permute, expand, multiply, sum."""
        (m, k), n = self.shape[a][-2:], self.shape[b][-1]
        full, own = [*batch, m, n, k], len(batch)
        left_axes = [own - (len(self.shape[a]) - 2) + axis for axis in range(len(self.shape[a]) - 2)]
        right_axes = [own - (len(self.shape[b]) - 2) + axis for axis in range(len(self.shape[b]) - 2)]
        rank = len(self.shape[b])
        turned = self.permute(b, *range(rank - 2), rank - 1, rank - 2)
        left = self.broadcast(a, full, [*left_axes, own, own + 2])
        right = self.broadcast(turned, full, [*right_axes, own + 1, own + 2])
        return self.reduce("SUM", self.binary("MUL", left, right), [own + 2])

    def broadcast(self, x: str, shape: Shape, axes: Sequence[int]) -> str:
        """As :meth:`spread`, where axes of ``x`` may be of size 1."""
        sizes = dict(zip(axes, self.shape[x], strict=True))
        thin = self.reshape(x, *(sizes.get(axis, 1) for axis in range(len(shape))))
        return self.expand(thin, *shape) if self.shape[thin] != tuple(shape) else thin

    def exp(self, x: str) -> str:
        return self.unary("EXP2", self.binary("MUL", x, LOG2_E))

    def keep(self, x: str, shape: Shape) -> str:
        """A value without the last axis, repeated along it."""
        return self.spread(x, shape, range(len(shape) - 1))

    def softmax(self, x: str) -> str:
        """Over the last axis: §5.3."""
        shape, last = self.shape[x], len(self.shape[x]) - 1
        top = self.keep(self.reduce("MAX", x, [last]), shape)
        power = self.exp(self.binary("SUB", x, top))
        return self.binary("FDIV", power, self.keep(self.reduce("SUM", power, [last]), shape))

    def layer_norm(self, x: str, weight: str, bias: str) -> str:
        shape, last = self.shape[x], len(self.shape[x]) - 1
        mean = self.binary("FDIV", self.reduce("SUM", x, [last]), float(shape[-1]))
        centred = self.binary("SUB", x, self.keep(mean, shape))
        square = self.reduce("SUM", self.binary("MUL", centred, centred), [last])
        variance = self.binary("FDIV", square, float(shape[-1]))
        scale = self.unary("RSQRT", self.binary("ADD", variance, 1e-5))
        normal = self.binary("MUL", centred, self.keep(scale, shape))
        return self.binary(
            "ADD",
            self.binary("MUL", normal, self.spread(weight, shape, [last])),
            self.spread(bias, shape, [last]),
        )

    def add_row(self, x: str, row: str) -> str:
        return self.binary("ADD", x, self.spread(row, self.shape[x], [len(self.shape[x]) - 1]))

    def causal(self, rows: int, columns: int) -> str:
        """bool [rows, columns]: column <= row. A window of a VALID, since j - i + rows - 1 < rows says just that."""
        diagonal = self.valid([rows + columns - 1], [0], [rows])
        return self.view(diagonal, [rows, columns], f"i1-i0+{rows - 1}")


def gemm_bias_relu(dtype: str, m: int, n: int, k: int) -> Document:
    """Bias and ReLU on the fp32 accumulator, then one rounding."""
    doc = Doc()
    a, b, bias = doc.input("A", dtype, m, k), doc.input("B", dtype, k, n), doc.input("bias", dtype, n)
    acc = doc.matmul(a, b)
    acc = doc.add_row(acc, doc.cast(bias, "fp32"))
    doc.cast(doc.unary("RELU", acc), dtype)
    return doc.document()


def matmul(dtype: str, a_shape: Shape, b_shape: Shape, batch: Shape = (), flip: str = "") -> Document:
    """``flip``: "a" or "b" is stored with its last two axes exchanged."""
    doc = Doc()
    operands = []
    for name, shape in (("A", a_shape), ("B", b_shape)):
        x = doc.input(name, dtype, *shape)
        if name.lower() in flip:
            rank = len(shape)
            x = doc.permute(x, *range(rank - 2), rank - 1, rank - 2)
        operands.append(x)
    doc.cast(doc.matmul(operands[0], operands[1], batch), dtype)
    return doc.document()


def conv(
    dtype: str,
    x_shape: Shape,
    w_shape: Shape,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Document:
    """§5.2 over any number of spatial axes: PAD, a VIEW of the windows, MUL, SUM over channels and taps in fp32."""
    doc = Doc()
    batch, channels, *sizes = x_shape
    filters, _, *taps = w_shape
    x, w = doc.input("X", dtype, *x_shape), doc.input("W", dtype, *w_shape)
    padded = doc.pad(x, (0, 0), (0, 0), *[(pad, pad)] * len(sizes)) if pad else x
    out = [
        (size + 2 * pad - dilation * (tap - 1) - 1) // stride + 1
        for size, tap in zip(sizes, taps, strict=True)
    ]
    count, inner = len(sizes), channels // groups
    places = [f"{stride}*i{2 + axis}+{dilation}*i{2 + count + axis}" for axis in range(count)]
    windows = doc.view(padded, [batch, channels, *out, *taps], "i0", "i1", *places)
    full = [batch, groups, filters // groups, *out, inner, *taps]
    split = doc.reshape(windows, batch, groups, inner, *out, *taps)
    order = [0, 1, *range(3, 3 + count), 2, *range(3 + count, 3 + 2 * count)]
    left = doc.broadcast(doc.permute(split, *order), full, [0, 1, *range(3, len(full))])
    kernels = doc.reshape(w, groups, filters // groups, inner, *taps)
    right = doc.broadcast(kernels, full, [1, 2, *range(3 + count, len(full))])
    total = doc.reduce("SUM", doc.binary("MUL", left, right), range(3 + count, len(full)))
    doc.cast(doc.reshape(total, batch, filters, *out), dtype)
    return doc.document()


def attention(
    dtype: str, batch: int, heads: int, m: int, n: int, d: int, causal: bool = False, mask: bool = False
) -> Document:
    """softmax(scale * Q Kᵀ + mask) V with scale 1/sqrt(d), all in fp32."""
    doc = Doc()
    q, k, v = (doc.input(name, dtype, batch, heads, rows, d) for name, rows in (("Q", m), ("K", n), ("V", n)))
    scores = doc.matmul(q, doc.permute(k, 0, 1, 3, 2), (batch, heads))
    scores = doc.binary("MUL", scores, 1 / math.sqrt(d))
    shape = (batch, heads, m, n)
    if mask:
        added = doc.cast(doc.input("mask", dtype, m, n), "fp32")
        scores = doc.binary("ADD", scores, doc.spread(added, shape, [2, 3]))
    if causal:
        scores = doc.where(doc.spread(doc.causal(m, n), shape, [2, 3]), scores, "-inf")
    weights = doc.softmax(scores)
    mixed = doc.matmul(weights, doc.cast(v, "fp32"), (batch, heads))
    doc.cast(mixed, dtype)
    return doc.document()


def transformer_block(tokens: int, width: int, heads: int, hidden: int) -> Document:
    """LayerNorm, causal attention, residual, LayerNorm, MLP, residual; fp32."""
    doc = Doc()
    x = doc.input("x", "fp32", tokens, width)

    def weight(name: str, *shape: int) -> str:
        return doc.input(name, "fp32", *shape)

    normal = doc.layer_norm(x, weight("norm1_w", width), weight("norm1_b", width))
    size = width // heads
    q, k, v = (
        doc.permute(doc.reshape(doc.matmul(normal, weight(name, width, width)), tokens, heads, size), 1, 0, 2)
        for name in ("wq", "wk", "wv")
    )
    scores = doc.matmul(q, doc.permute(k, 0, 2, 1), (heads,))
    scores = doc.binary("MUL", scores, 1 / math.sqrt(size))
    seen = doc.spread(doc.causal(tokens, tokens), (heads, tokens, tokens), [1, 2])
    mixed = doc.matmul(doc.softmax(doc.where(seen, scores, "-inf")), v, (heads,))
    mixed = doc.reshape(doc.permute(mixed, 1, 0, 2), tokens, width)
    x = doc.binary("ADD", x, doc.matmul(mixed, weight("wo", width, width)))
    normal = doc.layer_norm(x, weight("norm2_w", width), weight("norm2_b", width))
    up = doc.add_row(doc.matmul(normal, weight("w1", width, hidden)), weight("b1", hidden))
    gate = doc.binary("ADD", doc.exp(doc.binary("MUL", up, -1.702)), 1.0)
    down = doc.matmul(doc.binary("FDIV", up, gate), weight("w2", hidden, width))
    doc.binary("ADD", x, doc.add_row(down, weight("b2", width)))
    return doc.document()
