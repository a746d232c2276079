"""The elements of naive tensors: the numpy reference of ``tinyc.ir.numeric``, on the terms that enter the e-graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyc.ir import numeric
from tinyc.ir.dtypes import DType, from_bits
from tinyc.ir.numeric import Array, Rounding
from tinyc.ir.tiny import COMPARE, TensorType

from .indices import NoMeaning, evaluate
from .inputs import Input
from .terms import Term

MAX_ELEMENTS = 1 << 26
"""Of one array."""

GATHERED = 1 << 22
"""A tensor of at most so many elements is computed as a whole; of a larger one only the elements that are asked for."""

PRODUCTS = 1 << 28
"""So is a sum of products of at most so many."""


class TooLarge(Exception):
    """What should be evaluated does not fit."""


class Tensors:
    """Elements of tensors for one set of inputs. ``reals``: floats are float64 and are not rounded."""

    def __init__(self, inputs: Sequence[Input], types: Sequence[TensorType], reals: bool) -> None:
        self.inputs = [
            array.astype(np.float64) if reals and kind.dtype.is_float else array
            for array, kind in zip(inputs, types, strict=True)
        ]
        self.types = types
        self.reals = reals
        self._whole: dict[Term, Array] = {}
        self._adds: dict[Term, bool] = {}
        self._single: set[Term] = set()
        self._dtypes: dict[Term, DType] = {}
        self._shapes: dict[Term, tuple[int, ...]] = {}

    def kind(self, dtype: DType) -> Rounding:
        return Rounding(dtype, self.reals)

    def constant(self, dtype: str, bits: int) -> Array:
        kind = self.kind(DType(dtype.removeprefix("'")))
        return np.asarray(from_bits(bits, kind.dtype)).astype(kind.stored)

    def dtype(self, term: Term) -> DType:
        return _memoised(term, self._dtypes, self._dtype)

    def _dtype(self, term: Term) -> DType:
        match term.op, term.args:
            case "Input", (int(number),):
                return self.types[number].dtype
            case (("Imm" | "TCast"), (str(name), _)):
                return DType(name[1:])
            case "TBinary", (str(op), _, _) if op[1:] in COMPARE:
                return DType.BOOL
            case "Valid", _:
                return DType.BOOL
            case "TWhere", (_, Term() as then, _):
                return self._dtypes[then]
            case _, args:
                return next(
                    self._dtypes[arg] for arg in args if isinstance(arg, Term) and arg.sort == "Tensor"
                )

    def shape(self, term: Term) -> tuple[int, ...]:
        """() for an Imm, which has every shape."""
        return _memoised(term, self._shapes, self._shape)

    def _shape(self, term: Term) -> tuple[int, ...]:
        args = term.args
        inner = [self._shapes[arg] for arg in term.operands() if arg.sort == "Tensor"]
        match term.op:
            case "Input":
                return tuple(int(size) for size in self.types[_int(args[0])].shape)
            case "Imm":
                return ()
            case "TReduce":
                return inner[0][: len(inner[0]) - _int(args[1])]
            case "Reshape" | "View":
                return _ints(args[1])
            case "Valid":
                return _ints(args[0])
            case "Permute":
                return tuple(inner[0][axis] for axis in _ints(args[1]))
            case "Expand":
                return _with(inner[0], _int(args[1]), _int(args[2]))
            case "Pad":
                axis, low, high = (_int(arg) for arg in args[1:4])
                return _with(inner[0], axis, inner[0][axis] + low + high)
            case "Shrink":
                axis, low, high, step = (_int(arg) for arg in args[1:])
                return _with(inner[0], axis, -(-(high - low) // step))
            case "Flip" | "TUnary" | "TCast":
                return inner[0]
            case "TBinary" | "TWhere":
                return max(inner, key=len)
        raise NoMeaning(term.op)

    def adds(self, term: Term) -> bool:
        """Whether its elements are sums or products of many others, somewhere in it."""
        return _memoised(term, self._adds, self._added)

    def _added(self, term: Term) -> bool:
        if term.op == "TReduce" and term.args[0] in ("'SUM", "'PROD"):
            return True
        return any(self._adds[arg] for arg in term.operands() if arg.sort == "Tensor")

    # ---- whole tensors ----

    def whole(self, term: Term) -> Array:
        """All elements. Raises TooLarge."""
        return _memoised(term, self._whole, self._computed, self._needed)

    def _needed(self, term: Term) -> list[Term]:
        product = self._product(term)
        return [arg for arg in (product or term).operands() if arg.sort == "Tensor"]

    def _product(self, term: Term) -> Term | None:
        """The product that is only summed, and is never stored."""
        inner = term.args[2] if term.op == "TReduce" and term.args[0] == "'SUM" else None
        return (
            inner if isinstance(inner, Term) and inner.op == "TBinary" and inner.args[0] == "'MUL" else None
        )

    def _computed(self, term: Term) -> Array:
        shape = self.shape(term)
        product = self._product(term)
        if (
            product is None
            and math.prod(shape) > MAX_ELEMENTS
            and term.op not in ("Expand", "Permute", "Flip")
        ):
            raise TooLarge(f"a tensor of {math.prod(shape)} elements")
        if product is not None:
            full = self.shape(product)
            left, right = (np.broadcast_to(self._whole[arg], full) for arg in product.operands())
            axes = range(len(shape), len(full))
            kind = self.kind(self.dtype(term))
            return kind.round(numeric.sum_of_products(left, right, tuple(axes), kind, kind))
        operands = [self._whole[arg] for arg in term.operands() if arg.sort == "Tensor"]
        args = term.args
        match term.op:
            case "Input":
                given = self.inputs[_int(args[0])]
                if not given.stored:
                    raise TooLarge(f"an input of {math.prod(given.shape)} elements")
                return given.values
            case "Imm":
                return self.constant(str(args[0]), _int(args[1]))
            case "TReduce":
                kind = self.kind(self.dtype(term))
                axes = range(len(shape), operands[0].ndim)
                return kind.round(numeric.reduce(str(args[0])[1:], operands[0], tuple(axes), kind))
            case "Reshape":
                return operands[0].reshape(shape)
            case "Permute":
                return operands[0].transpose(_ints(args[1]))
            case "Expand":
                return np.broadcast_to(operands[0], shape)
            case "Pad":
                axis, low = _int(args[1]), _int(args[2])
                padded = np.full(shape, operands[1], operands[0].dtype)
                padded[_along(axis, slice(low, low + operands[0].shape[axis]))] = operands[0]
                return padded
            case "Shrink":
                axis, low, high, step = (_int(arg) for arg in args[1:])
                return np.asarray(operands[0][_along(axis, slice(low, high, step))])
            case "Flip":
                return np.flip(operands[0], _int(args[1]))
            case "Valid" | "View":
                index = np.meshgrid(*(np.arange(size) for size in shape), indexing="ij", sparse=True)
                return np.asarray(np.broadcast_to(self.at(term, tuple(index)), shape))
        return numeric.elementwise(
            self.function(term), [np.broadcast_to(operand, shape) for operand in operands]
        )

    def function(self, term: Term) -> Callable[..., Array]:
        """Of a constructor that works element by element, of tensors or of expressions."""
        kind = self.kind(self.dtype(term))
        return scalar_function(term, kind, lambda each: self.dtype(each))

    # ---- single elements ----

    def at(self, term: Term, index: tuple[Array, ...]) -> Array:
        """The elements at an index, whose entries have one shape and lie inside the tensor."""
        if term.op == "Imm":
            return np.asarray(
                np.broadcast_to(self.constant(str(term.args[0]), _int(term.args[1])), _common(index))
            )
        if not self._only_single(term, math.prod(_common(index))):
            try:
                whole = self.whole(term)
                return np.asarray(np.broadcast_to(whole[index] if index else whole, _common(index)))
            except TooLarge:
                self._single.add(term)
        args = term.args
        operands = [arg for arg in term.operands() if arg.sort == "Tensor"]
        match term.op:
            case "Input":
                return self.inputs[_int(args[0])].at(index)
            case "TReduce":
                return self._reduced(term, operands[0], index)
            case "Valid":
                axis, low, high = (_int(arg) for arg in args[1:])
                return np.asarray((low <= index[axis]) & (index[axis] < high))
            case "View":
                vector = args[2]
                assert isinstance(vector, Term)
                found = tuple(
                    np.asarray(np.broadcast_to(evaluate(part, lambda id, _: index[id]), _common(index)))
                    for part in vector.operands()
                )
                return self.at(operands[0], found)
            case "Reshape":
                offset = _ravelled(index, self.shape(term))
                return self.at(operands[0], unravelled(offset, self.shape(operands[0])))
            case "Permute":
                inverse = _ints(args[2])
                return self.at(operands[0], tuple(index[axis] for axis in inverse))
            case "Expand":
                axis = _int(args[1])
                return self.at(operands[0], _with(index, axis, np.zeros_like(index[axis])))
            case "Shrink":
                axis, low, _, step = (_int(arg) for arg in args[1:])
                return self.at(operands[0], _with(index, axis, low + step * index[axis]))
            case "Flip":
                axis = _int(args[1])
                return self.at(operands[0], _with(index, axis, self.shape(term)[axis] - 1 - index[axis]))
            case "Pad":
                axis, low = _int(args[1]), _int(args[2])
                size = self.shape(operands[0])[axis]
                moved = index[axis] - low
                inside = (moved >= 0) & (moved < size)
                value = self.at(operands[0], _with(index, axis, np.clip(moved, 0, size - 1)))
                return np.where(inside, value, self.at(operands[1], index))
        return self.function(term)(*(self.at(operand, index) for operand in operands))

    def _only_single(self, term: Term, points: int) -> bool:
        """Whether ``points`` elements are computed one by one, and not all of them."""
        if term.op in ("View", "Valid") or term in self._single:
            return True
        if term.op != "TReduce":
            return math.prod(self.shape(term)) > GATHERED
        full = self.shape(next(arg for arg in term.operands() if arg.sort == "Tensor"))
        count = math.prod(full[len(self.shape(term)) :])
        most = GATHERED if self._product(term) is None else PRODUCTS
        return math.prod(full) > most and points * count <= GATHERED

    def _reduced(self, term: Term, operand: Term, index: tuple[Array, ...]) -> Array:
        """Elements of a reduction of a tensor that is too large to be computed as a whole."""
        common, kind = _common(index), self.kind(self.dtype(term))
        sizes = self.shape(operand)[len(self.shape(term)) :]
        count = math.prod(sizes)
        if math.prod(common) * count > GATHERED:
            raise TooLarge(f"{math.prod(common)} sums of {count} elements")
        bound = [part.reshape((1,) * len(common) + (count,)) for part in unravelled(np.arange(count), sizes)]
        outer = [np.broadcast_to(part, common)[..., None] for part in index]
        values = np.broadcast_to(self.at(operand, (*outer, *bound)), (*common, count))
        return kind.round(numeric.reduce(str(term.args[0])[1:], values, (len(common),), kind))


def scalar_function(term: Term, kind: Rounding, dtype_of: Callable[[Term], DType]) -> Callable[..., Array]:
    """The function of an elementwise constructor, of a tensor's or an expression's."""
    match term.op.removeprefix("T"), term.args:
        case ("Unary", (str(op), Term() as x)) | ("Binary", (str(op), Term() as x, _)):
            return numeric.function(op[1:], dtype_of(x), kind)
        case ("Cast", _):
            return lambda x: numeric.cast(np.asarray(x), kind)
        case ("Where" | "Select", _):
            return lambda condition, then, other: np.asarray(np.where(condition, then, other))
    raise NoMeaning(term.op)


def unravelled(offset: Array, shape: Sequence[int]) -> tuple[Array, ...]:
    """The index of a row-major offset; the first entry takes what is left over."""
    index: list[Array] = []
    for size in reversed(shape[1:]):
        index.append(offset % size)
        offset = offset // size
    return (offset, *reversed(index)) if shape else ()


def _ravelled(index: Sequence[Array], shape: Sequence[int]) -> Array:
    offset: Any = np.zeros_like(index[0]) if index else np.asarray(0)
    for size, part in zip(shape, index, strict=True):
        offset = offset * size + part
    return np.asarray(offset)


def _memoised(
    term: Term,
    memo: dict[Term, Any],
    compute: Callable[[Term], Any],
    needed: Callable[[Term], list[Term]] | None = None,
) -> Any:
    """``compute`` of a term after that of its operands; iterative, since programs may be thousands deep."""
    stack = [term]
    while stack:
        each = stack[-1]
        if each in memo:
            stack.pop()
            continue
        operands = needed(each) if needed else [arg for arg in each.operands() if arg.sort == "Tensor"]
        missing = [arg for arg in operands if arg not in memo]
        if missing:
            stack += missing
            continue
        stack.pop()
        memo[each] = compute(each)
    return memo[term]


def _common(index: Sequence[Array]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(part.shape for part in index)) if index else ()


def _int(value: Term | int | str) -> int:
    assert isinstance(value, int)
    return value


def _ints(value: Term | int | str) -> tuple[int, ...]:
    assert isinstance(value, Term)
    return tuple(_int(arg) for arg in value.args)


def _with(values: Any, axis: int, value: Any) -> Any:
    return (*values[:axis], value, *values[axis + 1 :])


def _along(axis: int, cut: slice) -> tuple[slice, ...]:
    return (*(slice(None) for _ in range(axis)), cut)
