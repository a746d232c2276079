"""What a Region computes, by numpy: the oracle that generated kernels are held against. No loops, no LLVM.

Each let is an array over the axes it depends on, in the order of ``tinyc.ir.explicit``. Work in fp32 (i32: 32 bits that
wrap), rounded to the let's dtype. Both forms of a Region are played back: BroadcastInDim and Transpose move dimensions
of arrays, by number, so that a wrong one shows. A buffer's layout says nothing about values (document 004 §6.11).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyc.ir.dtypes import DType, from_bits, round_tf32
from tinyc.ir.explicit import Axes, axis_facts
from tinyc.ir.index import Affine
from tinyc.ir.plan import Extracted
from tinyc.ir.region import (
    Axis,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Let,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Transpose,
    Unary,
    Within,
    operands,
)
from tinyc.ir.tiny import ROUNDED

Array = NDArray[Any]

#: largest array of one let, in elements; above it the Region is evaluated in slices of its iters
LIMIT = 1 << 24

_UNARY: Mapping[str, Callable[[Array], Array]] = {
    "NEG": np.negative,
    "EXP2": np.exp2,
    "LOG2": np.log2,
    "RELU": lambda x: np.maximum(x, x.dtype.type(0)),
    "SQRT": np.sqrt,
    "RSQRT": lambda x: np.float32(1) / np.sqrt(x),
    "RECIP": lambda x: np.float32(1) / x,
    "SIN": np.sin,
    ROUNDED: round_tf32,
}
_BINARY = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "FDIV": np.divide,
    "POW": np.power,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "CMPLT": np.less,
    "CMPNE": np.not_equal,
    "CMPEQ": np.equal,
}
_REDUCE = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}


@dataclass(frozen=True)
class _Span:
    """An axis with the part of it that is evaluated."""

    axis: Axis
    start: int
    stop: int


def play(extracted: Extracted, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a whole program, in signature order: its Regions in the order of the ExecutionPlan, by numpy.

    ``inputs``: one array per input of the program, of its dtype and shape. Nothing is shared with generated code.
    """
    plan = extracted.execution
    shapes = {buffer.id: buffer.shape for buffer in plan.buffers}
    arrays = {id: np.asarray(array) for id, array in zip(plan.input_buffers, inputs, strict=True)}
    for step in plan.instructions:
        region = extracted.regions[step.kernel]
        sources = zip(region.inputs, step.inputs, strict=True)
        made = evaluate_region(region, {ref.name: arrays[id].reshape(ref.shape) for ref, id in sources})
        arrays |= {id: made[ref.name] for ref, id in zip(region.outputs, step.outputs, strict=True)}
    return [arrays[id].reshape(shapes[id]).copy() for id in plan.output_buffers]


def evaluate_region(region: Region, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of ``region`` by name. ``inputs``: one array per input buffer, of its dtype and shape."""
    outputs = {ref.name: np.empty(ref.shape, ref.dtype.numpy) for ref in region.outputs}
    axes = axis_facts(region).axes
    widest = _widest(region, axes)
    pending = [tuple(_Span(axis, 0, axis.size) for axis in region.iters)]
    while pending:
        spans = pending.pop()
        if _largest(region, widest, spans) > LIMIT and (halves := _halve(spans)) is not None:
            pending += halves
            continue
        place = tuple(slice(span.start, span.stop) for span in spans)
        for name, value in _Evaluation(region, axes, inputs, spans).outputs().items():
            outputs[name][place] = value
    return outputs


def _widest(region: Region, axes: Mapping[str, Axes]) -> set[frozenset[str]]:
    """The sets of axes over which arrays are made, those inside reductions included."""
    found = {frozenset(own) for own in axes.values()}
    for let in region.lets:
        if isinstance(let.value, Reduce | Stream):
            bound = {axis.name for axis in let.value.axes}
            found.add(frozenset(bound.union(*(axes[name] for name in operands(let.value)))))
    return found


def _largest(region: Region, widest: set[frozenset[str]], spans: tuple[_Span, ...]) -> int:
    sizes = {span.axis.name: span.stop - span.start for span in spans}
    for let in region.lets:
        if isinstance(let.value, Reduce | Stream):
            sizes |= {axis.name: axis.size for axis in let.value.axes}
    return max((math.prod(sizes[name] for name in axes) for axes in widest), default=0)


def _halve(spans: tuple[_Span, ...]) -> list[tuple[_Span, ...]] | None:
    widest = max(range(len(spans)), key=lambda i: spans[i].stop - spans[i].start, default=None)
    if widest is None or spans[widest].stop - spans[widest].start < 2:
        return None
    span = spans[widest]
    middle = (span.start + span.stop) // 2
    parts = (replace(span, stop=middle), replace(span, start=middle))
    return [(*spans[:widest], part, *spans[widest + 1 :]) for part in parts]


class _Evaluation:
    """One evaluation over a part of the iters."""

    def __init__(
        self,
        region: Region,
        axes: Mapping[str, Axes],
        inputs: Mapping[str, Array],
        spans: tuple[_Span, ...],
    ) -> None:
        self.region, self.axes, self.inputs = region, axes, inputs
        self.iters = tuple(span.axis.name for span in spans)
        self.points = {span.axis.name: np.arange(span.start, span.stop) for span in spans}
        for let in region.lets:
            if isinstance(let.value, Reduce | Stream):
                self.points |= {axis.name: np.arange(axis.size) for axis in let.value.axes}
        self.dtypes = {let.name: let.dtype for let in region.lets}
        self.values: dict[str, Array] = {}

    def outputs(self) -> dict[str, Array]:
        with np.errstate(all="ignore"):
            for let in self.region.lets:
                value = self._round(self._value(let), let.dtype)
                self.values[let.name] = np.broadcast_to(value, self._shape(self.axes[let.name]))
        shape = self._shape(self.iters)
        found = {}
        for item in self.region.yields:
            value = self._over(item.value, self.iters)
            found[item.to] = np.broadcast_to(value, shape).astype(self.dtypes[item.value].numpy)
        return found

    def _shape(self, axes: Axes) -> tuple[int, ...]:
        return tuple(len(self.points[axis]) for axis in axes)

    def _over(self, name: str, axes: Axes) -> Array:
        """The value of a let with one dimension (of size 1 where it does not depend on it) per axis."""
        own = self.axes[name]
        if own == axes:
            return self.values[name]
        value = self.values[name].transpose([own.index(axis) for axis in axes if axis in own])
        return value.reshape([len(self.points[axis]) if axis in own else 1 for axis in axes])

    def _index(self, index: Affine, axes: Axes) -> Array:
        total: Array = np.full((1,) * len(axes), index.const, np.int64)
        for coef, atom in index.terms:
            if isinstance(atom, str):
                shape = [-1 if axis == atom else 1 for axis in axes]
                total = total + coef * self.points[atom].reshape(shape)
            else:
                total = total + coef * (self._index(atom.num, axes) // atom.den)
        return total

    def _value(self, let: Let) -> Array:
        axes = self.axes[let.name]
        shape = self._shape(axes)
        match let.value:
            case Read(tensor, index_map):
                source = np.asarray(self.inputs[tensor])
                # a Read outside of its buffer gives some value that a Select throws away
                where = (
                    np.clip(self._index(index, axes), 0, size - 1)
                    for index, size in zip(index_map, source.shape, strict=True)
                )
                value = np.broadcast_to(source[tuple(where)], shape)
                return value.astype(np.float32) if let.dtype.is_float else value
            case Const(bits):
                kind = np.float32 if let.dtype.is_float else let.dtype.numpy
                if let.dtype is DType.FP32:
                    return np.array(bits, np.uint32).view(np.float32)
                return np.array(from_bits(bits, let.dtype), kind)
            case Within(index, lo, hi):
                value = self._index(index, axes)
                return np.broadcast_to((lo <= value) & (value < hi), shape)
            case Unary(op, x):
                return np.asarray(_UNARY[op](self._over(x, axes)))
            case Cast(x):
                return _cast(self._over(x, axes), self.dtypes[x], let.dtype)
            case Binary(op, x, y):
                return np.asarray(_BINARY[op](self._over(x, axes), self._over(y, axes)))
            case Select(cond, then, other):
                return np.where(self._over(cond, axes), self._over(then, axes), self._over(other, axes))
            case Reduce(op, bound, body):
                value = self._spread(axes, bound, body)
                across = tuple(range(len(axes), value.ndim))
                return np.asarray(_REDUCE[op].reduce(value, axis=across, dtype=value.dtype))
            case Stream():
                return self._stream(axes, let.value)
            case BroadcastInDim(x, _, places):
                own = [places.index(number) for number in sorted(places)]
                value = self.values[x].transpose(own)
                seen = [shape[number] if number in places else 1 for number in range(len(shape))]
                return np.broadcast_to(value.reshape(seen), shape)
            case Transpose(x, permutation):
                return self.values[x].transpose(permutation)
        raise AssertionError(let.value)

    def _spread(self, axes: Axes, bound: tuple[Axis, ...], name: str) -> Array:
        """A let over the axes of a reduction's result, and the bound ones after them."""
        wide = (*axes, *(axis.name for axis in bound))
        return np.broadcast_to(self._over(name, wide), self._shape(wide))

    def _stream(self, axes: Axes, stream: Stream) -> Array:
        """What one pass must give, in two: the running maximum is an art of the kernel, not of the value."""
        scores, weights = (self._spread(axes, stream.axes, name) for name in (stream.score, stream.weight))
        across = tuple(range(len(axes), scores.ndim))
        top = scores.max(axis=across, keepdims=True)
        power = np.exp2((scores - top) * self.values[stream.scale])
        if stream.rounded is not None:
            power = self._round(power / power.sum(axis=across, keepdims=True), stream.rounded)
        return np.asarray((power * weights).sum(axis=across, dtype=np.float32))

    def _round(self, value: Array, dtype: DType) -> Array:
        if not dtype.is_float:
            return np.asarray(value, dtype.numpy)
        return np.asarray(value, np.float32).astype(dtype.numpy).astype(np.float32)


def _cast(value: Array, source: DType, target: DType) -> Array:
    if target is DType.BOOL:
        return value != 0
    if target is DType.I32 and source.is_float:
        clipped = np.clip(np.nan_to_num(value.astype(np.float64), nan=0.0), -(2.0**31), 2.0**31 - 1)
        return clipped.astype(np.int32)
    return value.astype(np.int32 if target is DType.I32 else np.float32)
