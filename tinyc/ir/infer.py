"""The type of one node from the types of its operands: the rules of document 002 §3 and design §1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from . import dims
from .args import Reader
from .diagnostics import show, show_shape
from .dtypes import DType
from .index import Affine
from .tiny import BINARY, COMPARE, ROUNDED, UNARY, UOPS, Imm, Node, Shape, TensorType

_FLOAT_ONLY = ("EXP2", "LOG2", "SQRT", "RSQRT", "RECIP", "SIN", "FDIV", "POW")
_BOOL_TOO = ("MAX", "MIN", *COMPARE)
_KINDS = {DType.BOOL: 0, DType.I32: 1, DType.FP16: 2, DType.BF16: 2, DType.FP32: 2}
_ENUMERATED = 1 << 22

MAX_INDEX = 2**62
"""Index arithmetic is done in 64-bit integers."""

#: uop -> number of sources
ARITY = {
    "INPUT": 0,
    "VALID": 0,
    "WHERE": 3,
    **dict.fromkeys((*BINARY, *COMPARE), 2),
    **{uop: 1 for uop in UOPS if uop not in ("INPUT", "VALID", "WHERE", *BINARY, *COMPARE)},
}


def infer(node: Node, operands: Sequence[TensorType]) -> TensorType:
    """The type of ``node``, whose arg is canonical; ``operands``: the types of ``node.operands()``.

    Raises TinycError BroadcastMismatch, AxisSizeMismatch, DTypeMismatch, InvalidShape, InvalidArgument,
    NeutralInvalid, OutOfBoundsMap.
    """
    read, arg = Reader(node.id, node.uop), node.arg
    if node.uop in (*UNARY, *BINARY, *COMPARE, "WHERE"):
        return _elementwise(read, node, operands)
    match node.uop:
        case "INPUT":
            return TensorType(arg["shape"], arg["dtype"])
        case "VALID":
            return TensorType(arg["result_shape"], DType.BOOL)
    (operand,) = operands
    shape, dtype = operand.shape, operand.dtype
    match node.uop:
        case "CAST":
            return TensorType(shape, arg["to"])
        case "REDUCE":
            return _reduce(read, node, operand)
        case "RESHAPE":
            shape = _reshape(read, shape, arg["result_shape"])
        case "PERMUTE":
            shape = tuple(shape[axis] for axis in arg["perm"])
        case "EXPAND":
            shape = _expand(read, shape, arg["result_shape"])
        case "PAD":
            check_immediate(read, arg["value"], dtype, "value")
            padded = (dims.add(dim, dims.add(*sides)) for dim, sides in zip(shape, arg["pad"], strict=True))
            shape = read.checked(tuple(padded), "the result")
        case "SHRINK":
            cut = zip(arg["lo"], arg["hi"], arg["step"], strict=True)
            sizes = tuple(dims.ceildiv(dims.sub(hi, lo), step) for lo, hi, step in cut)
            shape = read.checked(sizes, "the result")
        case "VIEW":
            _view_stays_inside(read, shape, arg["result_shape"], arg["index_map"])
            shape = arg["result_shape"]
    return TensorType(shape, dtype)


def computes(uop: str, dtype: DType) -> bool:
    """Whether an elementwise operation other than WHERE and CAST has operands of ``dtype``."""
    if dtype is DType.BOOL:
        return uop in _BOOL_TOO
    if uop == ROUNDED:
        return dtype is DType.FP32
    return dtype.is_float or uop not in _FLOAT_ONLY


def _elementwise(read: Reader, node: Node, operands: Sequence[TensorType]) -> TensorType:
    if not operands:
        why = "all its operands are immediates, so its shape and dtype are not known"
        raise read.fail("DTypeMismatch", why, "compute the constant in the document")
    for left, right in itertools.pairwise(operands):
        if left.shape != right.shape:
            raise read.fail(
                "BroadcastMismatch",
                f"its operands have the shapes {show_shape(left.shape)} and {show_shape(right.shape)}",
                "make them equal with RESHAPE and EXPAND",
                lhs_shape=list(left.shape),
                rhs_shape=list(right.shape),
            )
    values, types = list(node.src), list(operands)
    if node.uop == "WHERE":
        condition = values.pop(0)
        if isinstance(condition, str):
            if types[0].dtype is not DType.BOOL:
                why = f"its condition {show(condition)} is {types[0].dtype}"
                raise read.fail("DTypeMismatch", why, "compare first: CMPLT, CMPNE or CMPEQ give bool")
            types = types[1:]
        elif not isinstance(condition, bool):
            raise read.fail("DTypeMismatch", f"its condition is {show(condition)}", "use true or false")
        if not types:
            why = "both its branches are immediates, so its dtype is not known"
            raise read.fail("DTypeMismatch", why, "EXPAND and CAST a tensor for one of the branches")
    dtype = types[0].dtype
    if any(each.dtype is not dtype for each in types):
        listed = " and ".join(each.dtype.value for each in types)
        raise read.fail("DTypeMismatch", f"its operands are {listed}", "insert a CAST")
    if node.uop != "WHERE":
        if dtype is DType.BOOL and not computes(node.uop, dtype):
            why = "its operands are bool"
            raise read.fail(
                "DTypeMismatch", why, "CAST to i32 or a float first; and, or are MIN, MAX on bool"
            )
        if not computes(node.uop, dtype):
            raise read.fail("DTypeMismatch", "its operands are i32", "CAST to a float dtype first")
    for value in values:
        if not isinstance(value, str):
            check_immediate(read, value, dtype, "the immediate")
    return TensorType(operands[0].shape, DType.BOOL if node.uop in COMPARE else dtype)


def check_immediate(read: Reader, value: Imm, dtype: DType, what: str, kind: str = "DTypeMismatch") -> None:
    """Raises ``kind`` where ``value`` has no counterpart in ``dtype`` (floats round, that is no fault)."""
    if dtype is DType.BOOL:
        fits = isinstance(value, bool) or value in (0, 1)
    elif isinstance(value, bool):
        fits = False
    elif dtype is DType.I32:
        fits = math.isfinite(value) and value == int(value) and -(2**31) <= value < 2**31
    else:
        fits = not isinstance(value, int) or abs(value) < 2**1000
    if not fits:
        why = f"{what} {show(value)} has no counterpart in {dtype}"
        raise read.fail(kind, why, f"use a value of {dtype}, or CAST the operand first")


def _reduce(read: Reader, node: Node, operand: TensorType) -> TensorType:
    arg, dtype = node.arg, node.arg["dtype"]
    if dtype is DType.BOOL and arg["op"] in ("SUM", "PROD"):
        raise read.fail("DTypeMismatch", f"{arg['op']} cannot accumulate in bool", "use i32 or a float dtype")
    if _KINDS[dtype] < _KINDS[operand.dtype]:
        raise read.fail(
            "DTypeMismatch",
            f"it accumulates {operand.dtype} elements in {dtype}",
            "CAST the operand first, or accumulate in a dtype that holds its values",
        )
    if arg["init"] is not None:
        check_immediate(read, arg["init"], dtype, "init", "NeutralInvalid")
    gone = set(arg["axes"])
    return TensorType(tuple(dim for axis, dim in enumerate(operand.shape) if axis not in gone), dtype)


def _reshape(read: Reader, shape: Shape, result: Shape) -> Shape:
    before, after = dims.product(shape), dims.product(result)
    if before != after:
        raise read.fail(
            "AxisSizeMismatch",
            f"{show_shape(shape)} has {before} elements and result_shape {show_shape(result)} has {after}",
            'keep the number of elements; where symbols are related, say so in the document\'s "symbols"',
            operand_shape=list(shape),
            result_shape=list(result),
        )
    return result


def _expand(read: Reader, shape: Shape, result: Shape) -> Shape:
    if len(shape) != len(result) or any(a not in (b, 1) for a, b in zip(shape, result, strict=True)):
        raise read.fail(
            "BroadcastMismatch",
            f"the operand {show_shape(shape)} does not expand to {show_shape(result)}",
            "only dimensions of size 1 expand; RESHAPE the operand to the result's rank first",
            lhs_shape=list(shape),
            rhs_shape=list(result),
        )
    return result


def _view_stays_inside(read: Reader, shape: Shape, result: Shape, index_map: tuple[str, ...]) -> None:
    """Checks what is bound; the rest is checked again when the symbols are bound."""
    if not all(isinstance(dim, int) for dim in result):
        return
    sizes = {f"i{axis}": int(dim) for axis, dim in enumerate(result)}
    for axis, (text, size) in enumerate(zip(index_map, shape, strict=True)):
        entry = dims.parse(text)
        if isinstance(size, str) or not dims.names(entry) <= sizes.keys():
            continue
        index = dims.to_affine(entry)
        if largest(index, sizes) > MAX_INDEX:
            raise read.fail(
                "InvalidArgument",
                f"index_map entry {text!r} leaves the range of 62 bits on its way",
                "divide earlier, or make the coefficients smaller",
                axis=axis,
            )
        low, high = value_range(index, sizes)
        if low < 0 or high >= size:
            raise read.fail(
                "OutOfBoundsMap",
                f"index_map entry {text!r} runs from {low} to {high} over an axis of size {size}",
                "PAD the operand first, or make result_shape smaller",
                axis=axis,
            )


def largest(index: Affine, sizes: Mapping[str, int]) -> int:
    """A bound on the absolute value of everything that is computed on the way to ``index``, divisions included."""
    total = abs(index.const)
    for coef, atom in index.terms:
        inner = sizes[atom] if isinstance(atom, str) else max(largest(atom.num, sizes), atom.den)
        total += max(abs(coef), 1) * inner
    return total


def value_range(index: Affine, sizes: dict[str, int]) -> tuple[int, int]:
    """Inclusive range of ``index``: exact without floor divisions and for up to 2^22 points, else an interval."""
    low, high = index.bounds(sizes)
    if all(isinstance(atom, str) for _, atom in index.terms):
        return low, high
    names = sorted(index.axes())
    points = math.prod(sizes[name] for name in names)
    if points > _ENUMERATED:
        return low, high
    grids = np.meshgrid(*(np.arange(sizes[name]) for name in names), indexing="ij", sparse=True)
    values = evaluate_index(index, dict(zip(names, grids, strict=True)))
    return int(values.min()), int(values.max())


def evaluate_index(index: Affine, grids: dict[str, np.ndarray]) -> np.ndarray:
    """The values of ``index`` over integer arrays that broadcast against each other."""
    total = np.asarray(index.const)
    for coef, atom in index.terms:
        if isinstance(atom, str):
            part = grids[atom]
        else:
            part = evaluate_index(atom.num, grids) // atom.den
        total = total + coef * part
    return total
