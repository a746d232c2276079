"""How far a right result may be from the exact one, element by element: a bound that follows from the arithmetic used.

Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, §3.3) of a whole program: beside each value, in
float64, a bound of what rounding may have made of it. Every node rounds to its dtype; sums may be added up in any order.
Much tighter than a tolerance where terms are small, and no tighter than the arithmetic where they cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyc.ir import numeric
from tinyc.ir.dtypes import DType
from tinyc.ir.numeric import Rounding, elementwise
from tinyc.ir.tiny import COMPARE, Node, Program

Array = NDArray[Any]

UNIT = {DType.FP32: 2.0**-24, DType.FP16: 2.0**-11, DType.BF16: 2.0**-8}
LEAST = {DType.FP32: 2.0**-149, DType.FP16: 2.0**-24, DType.BF16: 2.0**-133}
MOST = {DType.FP32: 2.0**128, DType.FP16: 65520.0, DType.BF16: 2.0**128}
FUNCTION = 8 * UNIT[DType.FP32]
"""Relative, of EXP2, LOG2, SIN and POW: what the GPU's own are documented with (2 ulp), and the steps around them."""


@dataclass(frozen=True)
class Bounded:
    """``value``: exact for exact inputs, but for float64. ``error``: of the same shape; inf where nothing can be said, of
    booleans where they may be either."""

    value: Array
    error: Array


def bounded(program: Program, inputs: Mapping[str, Array]) -> tuple[Bounded, ...]:
    """The outputs of ``program``, in signature order."""
    names = {port.node: port.name for port in program.inputs}
    values: dict[str, Bounded] = {}
    with np.errstate(all="ignore"):
        for node in program.nodes:
            if node.uop == "INPUT":
                array = inputs[names[node.id]]
                exact = array.astype(np.float64) if program.types[node.id].dtype.is_float else array
                values[node.id] = Bounded(exact, _none(exact))
            else:
                values[node.id] = _computed(node, values, program)
    return tuple(values[port.node] for port in program.outputs)


def within(got: Array, bound: Bounded) -> Array:
    """Elementwise; where nothing can be said, anything is."""
    with np.errstate(invalid="ignore"):
        have = got.astype(np.float64)
        close = np.abs(have - bound.value) <= bound.error
        return np.asarray(close | (have == bound.value) | ~np.isfinite(bound.error) | np.isnan(bound.value))


def _none(value: Array) -> Array:
    return np.broadcast_to(np.float64(0), value.shape)


def _computed(node: Node, values: Mapping[str, Bounded], program: Program) -> Bounded:
    kind = Rounding(program.types[node.id].dtype, True)
    if node.uop == "VALID":
        value = numeric.valid(node.arg["result_shape"], node.arg["lo"], node.arg["hi"])
        return Bounded(value, _none(value))
    first = values[node.operands()[0]]
    if node.uop in MOVES:
        move = MOVES[node.uop]
        pad = numeric.constant(node.arg.get("value", 0), kind)
        return Bounded(move(first.value, node, pad), move(first.error, node, np.float64(0)))
    from_dtype = program.types[node.operands()[-1]].dtype
    if node.uop == "REDUCE":
        return _reduced(node, _cast(first, from_dtype, kind), kind)
    src = [_operand(node, at, values, from_dtype, first.value.shape) for at in range(len(node.src))]
    if node.uop == "CAST":
        return _cast(first, from_dtype, kind)
    if node.uop == "WHERE":
        return _chosen(*src)
    value = elementwise(numeric.function(node.uop, from_dtype, kind), [each.value for each in src])
    parts = [part for each in src for part in (each.value, each.error)]
    if node.uop in COMPARE:
        return Bounded(value, elementwise(_unsure, parts))
    error = elementwise(ERRORS[node.uop], [value, *parts])
    if node.uop in ("NEG", "RELU", "MAX", "MIN"):  # of which each gives an operand
        return Bounded(value, error)
    return _rounded(value, error, kind.dtype)


def _operand(
    node: Node, at: int, values: Mapping[str, Bounded], dtype: DType, shape: tuple[int, ...]
) -> Bounded:
    source = node.src[at]
    if isinstance(source, str):
        return values[source]
    wanted = DType.BOOL if node.uop == "WHERE" and at == 0 else dtype
    value = np.broadcast_to(numeric.constant(source, Rounding(wanted, True)), shape)
    return Bounded(value, _none(value))


def _rounded(value: Array, error: Array, dtype: DType) -> Bounded:
    """Computed in fp32, rounded to ``dtype``."""
    if not dtype.is_float:
        return Bounded(value, elementwise(lambda e: np.where(e > 0, np.inf, 0.0), [error]))  # it may wrap
    unit = UNIT[dtype] + (UNIT[DType.FP32] if dtype is not DType.FP32 else 0)

    def grown(x: Array, e: Array) -> Array:
        e = e + unit * (np.abs(x) + e) + LEAST[dtype]
        e = np.where(np.abs(x) + e >= MOST[dtype], np.inf, e)
        return np.where(np.isinf(x), 0.0, e)  # and no other value is near to an infinite one

    return Bounded(value, elementwise(grown, [value, error]))


def _cast(x: Bounded, dtype: DType, kind: Rounding) -> Bounded:
    value = elementwise(lambda each: numeric.cast(each, kind), [x.value])
    if kind.dtype is DType.BOOL:
        return Bounded(value, elementwise(lambda v, e: _unsure(v, e, 0.0, 0.0), [x.value, x.error]))
    if not kind.dtype.is_float:
        return Bounded(value, elementwise(lambda e: np.where(e > 0, np.ceil(e) + 1, 0.0), [x.error]))
    if dtype is DType.BOOL or (dtype.is_float and UNIT[dtype] >= UNIT[kind.dtype]):
        return Bounded(value, x.error)
    return _rounded(value, x.error, kind.dtype)


def _chosen(condition: Bounded, then: Bounded, other: Bounded) -> Bounded:
    value = elementwise(np.where, [condition.value, then.value, other.value])

    def error(y: Array, c: Array, unsure: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
        either = np.maximum(np.abs(a - y) + ea, np.abs(b - y) + eb)
        return np.where(unsure > 0, either, np.where(c, ea, eb))

    parts = [condition.value, condition.error, then.value, then.error, other.value, other.error]
    return Bounded(value, elementwise(error, [value, *parts]))


def _unsure(a: Array, ea: Array, b: Array | float, eb: Array | float) -> Array:
    """Where a comparison may give either."""
    size = ea + eb
    return np.where((size > 0) & ~(np.abs(np.asarray(a, np.float64) - b) > size), np.inf, 0.0)


def _reduced(node: Node, x: Bounded, kind: Rounding) -> Bounded:
    op, axes = node.arg["op"], tuple(node.arg["axes"])
    value, size = numeric.reduce(op, x.value, axes, kind), np.abs(x.value)
    count = math.prod(x.value.shape[axis] for axis in axes)
    if op in ("MAX", "MIN") or not kind.dtype.is_float:
        error = x.error.max(axis=axes)
    elif op == "SUM":
        # each addition rounds; in a random walk they do not all round the same way (Higham and Mary: 6 deviations)
        steps = min(count, 6 * math.sqrt(count)) + 8
        total = x.error.sum(axis=axes)
        error = total + steps * UNIT[DType.FP32] * (size.sum(axis=axes) + total)
    else:
        grown = (size + x.error).prod(axis=axes) * (1 + UNIT[DType.FP32]) ** (2 * count)
        error = grown - size.prod(axis=axes)
    if node.arg["init"] is not None:
        begin = numeric.constant(node.arg["init"], kind)
        value = np.asarray(numeric.REDUCERS[op](begin, value))
        error = error * np.abs(begin) if op == "PROD" else error
    return _rounded(value, error, kind.dtype)


# ---- what the errors of operands make of the result's: (result, a, ea, b, eb) -> error -------------------------------------


def _quotient(q: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
    room = np.abs(b) - eb
    return np.where(room > 0, (ea + np.abs(q) * eb) / np.maximum(room, 1e-300), np.inf)


def _product(y: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
    return _times(np.abs(a), eb) + _times(np.abs(b), ea) + _times(ea, eb)


def _times(size: Array, error: Array) -> Array:
    """An infinite factor is no less infinite for an error of the other, nor is what is exact."""
    return np.where(error == 0, 0.0, size * error)


def _power(y: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
    spread = np.abs(b) * _relative(a, ea) + np.abs(np.log(np.abs(a))) * eb
    exact = (ea == 0) & (eb == 0)
    return np.abs(y) * (np.where(exact, 0.0, np.expm1(spread)) + FUNCTION * (1 + np.abs(np.log2(np.abs(y)))))


def _relative(a: Array, ea: Array) -> Array:
    return np.where(ea == 0, 0.0, np.where(np.abs(a) > ea, ea / np.maximum(np.abs(a) - ea, 1e-300), np.inf))


def _root(y: Array, a: Array, ea: Array) -> Array:
    return np.where(ea == 0, 0.0, y - np.sqrt(np.maximum(a - ea, 0.0)))


ERRORS: Mapping[str, Callable[..., Array]] = {
    "NEG": lambda y, a, ea: ea,
    "RELU": lambda y, a, ea: ea,
    "EXP2": lambda y, a, ea: y * (np.exp2(ea) - 1 + FUNCTION),
    "LOG2": lambda y, a, ea: _relative(a, ea) / math.log(2) + FUNCTION * (1 + np.abs(y)),
    "SQRT": _root,
    "RSQRT": lambda y, a, ea: y * _relative(a, ea) + 4 * UNIT[DType.FP32] * np.abs(y),
    "RECIP": lambda y, a, ea: _quotient(y, np.ones_like(a), np.zeros_like(ea), a, ea),
    "SIN": lambda y, a, ea: np.minimum(ea + FUNCTION * (1 + np.abs(a)), 2.0),
    "ADD": lambda y, a, ea, b, eb: ea + eb,
    "SUB": lambda y, a, ea, b, eb: ea + eb,
    "MUL": _product,
    "FDIV": _quotient,
    "POW": _power,
    "MAX": lambda y, a, ea, b, eb: np.maximum(ea, eb),
    "MIN": lambda y, a, ea, b, eb: np.maximum(ea, eb),
}


# ---- movement ------------------------------------------------------------------------------------------------------------


def _pad(x: Array, node: Node, value: Any) -> Array:
    return np.pad(x, node.arg["pad"], constant_values=value)


def _shrink(x: Array, node: Node, _: Any) -> Array:
    cut: Sequence[tuple[int, int, int]] = [
        *zip(node.arg["lo"], node.arg["hi"], node.arg["step"], strict=True)
    ]
    return x[tuple(slice(*each) for each in cut)]


MOVES: Mapping[str, Callable[[Array, Node, Any], Array]] = {
    "RESHAPE": lambda x, node, _: x.reshape(node.arg["result_shape"]),
    "PERMUTE": lambda x, node, _: x.transpose(node.arg["perm"]),
    "EXPAND": lambda x, node, _: np.broadcast_to(x, node.arg["result_shape"]),
    "PAD": _pad,
    "SHRINK": _shrink,
    "FLIP": lambda x, node, _: np.flip(x, node.arg["axes"]) if node.arg["axes"] else x,
    "VIEW": lambda x, node, _: numeric.view(x, node.arg["result_shape"], node.arg["index_map"]),
}
