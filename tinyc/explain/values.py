"""The value of an expression at points of its axes, and where it has one.

The points of the outermost axes are sampled; a reduction takes all points of its axes. A read outside of its tensor has
no value, which is no fault where a Select does not choose it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyc.ir import numeric
from tinyc.ir.dtypes import DType
from tinyc.ir.numeric import Array
from tinyc.ir.tiny import COMPARE

from .indices import NoMeaning, evaluate
from .scopes import Axis, mentioned
from .tensors import Tensors, TooLarge, scalar_function, unravelled
from .terms import BINDERS, BUFFER, Term, fresh

MAX_POINTS = 1 << 24
"""Of one value, sampled points times those of reductions."""

KEPT_BYTES = 1 << 28
"""Values that are kept for the next step."""

Valued = tuple[Array, Array | None]
"""Values, and where there are any (None: everywhere)."""


@dataclass(eq=False)
class Scope:
    """Values of axes. ``shape``: points of each scope from the outermost; ``inner``: scopes of reductions in it."""

    axes: Mapping[Axis, Array]
    shape: tuple[int, ...]
    parent: Scope | None = None
    inner: dict[tuple[Axis, ...], Scope] = field(default_factory=dict)

    def bind(self, axes: tuple[Axis, ...]) -> Scope:
        if axes not in self.inner:
            count = math.prod(extent for _, extent in axes)
            shape = (*self.shape, count)
            if math.prod(shape) > MAX_POINTS:
                raise TooLarge(f"a value of {math.prod(shape)} points")
            points = np.indices([extent for _, extent in axes]).reshape(len(axes), count)
            own = {
                axis: row.reshape((1,) * len(self.shape) + (count,))
                for axis, row in zip(axes, points, strict=True)
            }
            self.inner[axes] = Scope(own, shape, self)
        return self.inner[axes]

    def lookup(self, id: int, extent: int) -> Array:
        scope: Scope | None = self
        while scope is not None:
            if (id, extent) in scope.axes:
                found = scope.axes[id, extent]
                return found.reshape(found.shape + (1,) * (len(self.shape) - found.ndim))
            scope = scope.parent
        raise NoMeaning(f"axis {id} of extent {extent} outside of its reduction")


class Values:
    """Values of expressions for one set of inputs. ``filled``: what each buffer is filled with."""

    def __init__(self, tensors: Tensors, filled: Mapping[str, Term]) -> None:
        self.tensors = tensors
        self.filled = filled
        self._memo: dict[tuple[Term, Scope], Valued] = {}
        self._bytes = 0
        self._free: dict[Term, frozenset[Axis]] = {}
        self._dtypes: dict[Term, DType] = {}

    # ---- what is known without values ----

    def free(self, term: Term) -> frozenset[Axis]:
        """The axes that an expression or index depends on."""
        return mentioned(term, self._free)

    def dtype(self, term: Term) -> DType:
        """Of an expression."""
        for each in fresh(term, self._dtypes):
            if each.sort == "Expr":
                self._dtypes[each] = self._dtype(each)
        return self._dtypes[term]

    def _dtype(self, term: Term) -> DType:
        match term.op, term.args:
            case (("Const" | "Cast"), (str(name), _)):
                return DType(name[1:])
            case "At", (Term() as tensor, *_):
                return self.tensors.dtype(tensor)
            case "Read", (Term() as buffer, _):
                return self._buffer_dtype(buffer)
            case "Within", _:
                return DType.BOOL
            case (("Stream" | "RoundedStream"), _):
                return DType.FP32
            case "Binary", (str(op), _, _) if op[1:] in COMPARE:
                return DType.BOOL
            case "Select", (_, Term() as then, _):
                return self._dtypes[then]
            case _, args:
                inner = [arg for arg in args if isinstance(arg, Term) and arg.sort == "Expr"]
                if not inner:
                    raise NoMeaning(term.op)
                return self._dtypes[inner[0]]

    def _buffer_dtype(self, buffer: Term) -> DType:
        match self._contents(buffer):
            case Term("Arg", (int(number),)):
                return self.tensors.types[number].dtype
            case Term("Fill", (str(name), _, _)):
                return DType(name[1:])
            case Term("Alias", (_, Term() as inner)):
                return self._buffer_dtype(inner)
        raise NoMeaning(buffer.op)

    def _contents(self, buffer: Term) -> Term:
        if buffer.op != BUFFER:
            return buffer
        if buffer.cls not in self.filled:
            raise NoMeaning("a buffer that nothing fills")
        return self.filled[buffer.cls]

    # ---- values ----

    def value(self, term: Term, scope: Scope) -> Valued:
        """Of an expression; of as many dimensions as the scope has, 1 where it does not vary.

        Raises NoMeaning and TooLarge. Iterative, since expressions may be thousands deep."""
        self.free(term)
        self.dtype(term)
        stack = [(term, self._narrowed(term, scope))]
        while stack:
            each, at = stack[-1]
            if (each, at) in self._memo:
                stack.pop()
                continue
            inner = self._inner(each, at)
            wanted = [(arg, self._narrowed(arg, inner)) for arg in each.operands() if arg.sort == "Expr"]
            missing = [pair for pair in wanted if pair not in self._memo]
            if missing:
                stack += missing
                continue
            stack.pop()
            operands = [_deeper(self._memo[pair], len(inner.shape)) for pair in wanted]
            made = self._compute(each, at, inner, operands)
            self._memo[each, at] = made
            self._bytes += made[0].nbytes
        found = _deeper(self._memo[term, self._narrowed(term, scope)], len(scope.shape))
        if self._bytes > KEPT_BYTES:
            self._memo.clear()
            self._bytes = 0
        return found

    def _narrowed(self, term: Term, scope: Scope) -> Scope:
        """The outermost scope that a value can be computed in."""
        free = self._free[term]
        while scope.parent is not None and not any(axis in scope.axes for axis in free):
            scope = scope.parent
        return scope

    def _inner(self, term: Term, scope: Scope) -> Scope:
        if term.op not in BINDERS:
            return scope
        vector = term.args[BINDERS[term.op]]
        assert isinstance(vector, Term)
        axes = tuple(axis for part in vector.operands() for axis in sorted(self._free[part]))
        return scope.bind(axes)

    def _compute(self, term: Term, scope: Scope, inner: Scope, operands: Sequence[Valued]) -> Valued:
        args, kind = term.args, self.tensors.kind(self._dtypes[term])
        match term.op:
            case "At":
                return self._element(args[0], self._index(args[1], scope))
            case "Read":
                return self._read(args[0], self._index(args[1], scope))
            case "Const":
                dtype, bits = args
                assert isinstance(dtype, str) and isinstance(bits, int)
                return self.tensors.constant(dtype, bits).reshape((1,) * len(scope.shape)), None
            case "Within":
                index, low, high = args
                assert isinstance(index, Term) and isinstance(low, int) and isinstance(high, int)
                at = _atleast(evaluate(index, scope.lookup), scope)
                return np.asarray((low <= at) & (at < high)), None
            case "Select":
                return _select(*operands)
            case "Reduce":
                ((body, known),) = operands
                body = np.broadcast_to(body, (*body.shape[:-1], inner.shape[-1]))
                cast = numeric.cast(np.asarray(body), kind)
                value = kind.round(numeric.reduce(str(args[0])[1:], cast, (cast.ndim - 1,), kind))
                return value, None if known is None else np.asarray(known.all(-1))
            case "Stream" | "RoundedStream":
                return self._stream(term, inner, operands)
        function = scalar_function(term, kind, self._dtypes.__getitem__)
        known = _both([mask for _, mask in operands])
        return np.asarray(function(*np.broadcast_arrays(*(value for value, _ in operands)))), known

    def _stream(self, term: Term, inner: Scope, operands: Sequence[Valued]) -> Valued:
        (score, first), (weight, second) = operands
        score, weight = (np.broadcast_to(x, (*x.shape[:-1], inner.shape[-1])) for x in (score, weight))
        scale = self.tensors.constant("fp32", int(term.args[-1]))  # type: ignore[arg-type]
        powers = np.exp2((score - score.max(-1, keepdims=True)) * scale)
        if term.op == "RoundedStream":
            whole, rounding = (
                powers / powers.sum(-1, keepdims=True),
                self.tensors.kind(DType(str(term.args[0])[1:])),
            )
            powers = numeric.cast(numeric.cast(whole, rounding), self.tensors.kind(DType.FP32))
        known = _both([first, second])
        return np.asarray((powers * weight).sum(-1)), None if known is None else np.asarray(known.all(-1))

    def _index(self, vector: Term | int | str, scope: Scope) -> tuple[Array, ...]:
        assert isinstance(vector, Term)
        return tuple(_atleast(evaluate(part, scope.lookup), scope) for part in vector.operands())

    def _element(self, tensor: Term | int | str, index: tuple[Array, ...]) -> Valued:
        assert isinstance(tensor, Term)
        if tensor.op == "Imm":
            return self.tensors.at(tensor, index), None
        inside, known = _clipped(index, self.tensors.shape(tensor))
        return self.tensors.at(tensor, inside), known

    def _read(self, buffer: Term | int | str, index: tuple[Array, ...]) -> Valued:
        assert isinstance(buffer, Term)
        match self._contents(buffer):
            case Term("Arg", (int(number),)):
                given = self.tensors.inputs[number]
                inside, known = _clipped(index, given.shape)
                return given.at(inside), known
            case Term("Fill", (_, Term() as sizes, Term() as value)):
                shape = tuple(int(size) for size in sizes.args)  # type: ignore[arg-type]
                inside, known = _clipped(index, shape)
                return self._filled(value, inside, shape, known)
            case Term("Alias", (Term() as sizes, Term() as inner)):
                shape = tuple(int(size) for size in sizes.args)  # type: ignore[arg-type]
                inside, known = _clipped(index, shape)
                offset = np.asarray(np.ravel_multi_index(inside, shape) if shape else 0)
                made, defined = self.buffer(inner, offset)
                common = offset.shape
                made = np.broadcast_to(made, (offset.size,)).reshape(common)
                if defined is not None:
                    defined = np.broadcast_to(defined, (offset.size,)).reshape(common)
                return made, _both([known, defined])
        raise NoMeaning(buffer.op)

    def _filled(
        self, value: Term, index: tuple[Array, ...], shape: Sequence[int], known: Array | None
    ) -> Valued:
        """What fills a buffer, at an index."""
        if value.op == "At" and isinstance(value.args[1], Term) and len(index) == len(shape):
            tensor = value.args[0]
            assert isinstance(tensor, Term)
            if self.tensors.shape(tensor) == tuple(shape):
                return self.tensors.at(tensor, index), known
        common = np.broadcast_shapes(*(part.shape for part in index)) if index else (1,)
        flat = [np.broadcast_to(part, common).reshape(-1) for part in index]
        made, defined = self.value(value, fill_scope(flat, shape))
        count = math.prod(common)
        made = np.broadcast_to(made, (count,)).reshape(common)
        if defined is not None:
            defined = np.broadcast_to(defined, (count,)).reshape(common)
        return made, _both([known, defined])

    def buffer(self, buffer: Term, offset: Array) -> Valued:
        """The elements of a buffer at row-major offsets."""
        contents = self._contents(buffer)
        if contents.op == "Alias":
            inner = contents.args[1]
            assert isinstance(inner, Term)
            return self.buffer(inner, offset)
        sizes = contents.args[1]
        assert contents.op == "Fill" and isinstance(sizes, Term)
        shape = tuple(int(size) for size in sizes.args)  # type: ignore[arg-type]
        value = contents.args[2]
        assert isinstance(value, Term)
        return self.value(value, unravelled_scope(offset.reshape(-1), shape))


def fill_scope(index: Sequence[Array], shape: Sequence[int]) -> Scope:
    """The axes 0, 1, … of a buffer at an index, one-dimensional; an axis of one point has none."""
    long = [(part, size) for part, size in zip(index, shape, strict=True) if size > 1]
    count = index[0].size if index else 1
    return Scope({(number, size): part for number, (part, size) in enumerate(long)}, (count,))


def unravelled_scope(offset: Array, shape: Sequence[int]) -> Scope:
    """The axes of a buffer at row-major offsets."""
    return fill_scope(unravelled(offset, shape), shape) if shape else Scope({}, offset.shape)


def _atleast(index: Array, scope: Scope) -> Array:
    return index.reshape(index.shape + (1,) * (len(scope.shape) - index.ndim))


def _deeper(valued: Valued, dimensions: int) -> Valued:
    value, known = valued
    more = (1,) * (dimensions - value.ndim)
    return value.reshape(value.shape + more), None if known is None else known.reshape(
        known.shape + (1,) * (dimensions - known.ndim)
    )


def _clipped(index: Sequence[Array], shape: Sequence[int]) -> tuple[tuple[Array, ...], Array | None]:
    """The index, moved inside the shape; and where it was inside (None: everywhere)."""
    if len(index) != len(shape):
        raise NoMeaning(f"{len(index)} indices for {len(shape)} axes")
    known: Array | None = None
    inside = []
    for part, size in zip(index, shape, strict=True):
        good = (part >= 0) & (part < size)
        known = known if good.all() else good if known is None else known & good
        inside.append(part if good.all() else np.clip(part, 0, size - 1))
    return tuple(inside), known


def _both(masks: Sequence[Array | None]) -> Array | None:
    known: Array | None = None
    for mask in masks:
        if mask is not None:
            known = mask if known is None else known & mask
    return known


def _select(condition: Valued, then: Valued, other: Valued) -> Valued:
    value = np.where(condition[0], then[0], other[0])
    if then[1] is None and other[1] is None:
        return value, condition[1]
    yes = True if then[1] is None else then[1]
    no = True if other[1] is None else other[1]
    return value, _both([condition[1], np.asarray(np.where(condition[0], yes, no))])
