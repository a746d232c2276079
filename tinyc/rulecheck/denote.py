"""The value of a term in a domain: what every constructor of the schema means.

An expression is an array over samples and the axes of the instance (length 1 along an axis on which it does not depend);
a tensor or buffer is an array over samples and its shape. A mask says where a value is defined: a read outside of a
tensor has none, which is no fault as long as a select does not choose it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .context import IllFormed, Reject
from .domains import Array, Domain
from .facts import Facts, evaluate_index
from .term import Term, Value, axis, is_axis

LARGEST = 1 << 16
"""Points of all axes of an instance."""

LONGEST = 1 << 13
"""Points of a reduction, which are taken one by one."""

_GROWING = frozenset(["Expand", "Pad", "View", "Fill"])
"""What makes more elements of few."""

Valued = tuple[Array, Array | None]
"""The value, and where it is defined (None: everywhere)."""


def axes_in(facts: Facts, terms: Sequence[Term]) -> tuple[Term, ...]:
    """Every axis that the values of some terms range over, in order."""
    found: set[Term] = set()
    seen: set[Term] = set()
    todo: list[Value] = list(terms)
    while todo:
        each = todo.pop()
        if isinstance(each, tuple | frozenset):
            todo += each
        if not isinstance(each, Term) or each in seen:
            continue
        seen.add(each)
        todo += each.args
        if each.head == "Ax":
            found.add(each)
        elif each in facts.context.leaves:
            found.update(facts.context.leaves[each].axes)
        elif each.head == "Fill":
            found.update(filled_axes(each.args[1]))
    return tuple(sorted(found, key=lambda each: each.args))


def filled_axes(shape: tuple[int, ...]) -> list[Term]:
    """The axes over which a buffer of a shape is filled."""
    sizes = [size for size in shape if size > 1]
    return [axis(number, size) for number, size in enumerate(sizes)]


class Evaluator:
    """Values of terms in one domain. ``axes``: those of :func:`axes_in`, for all terms that will be asked for."""

    def __init__(self, facts: Facts, domain: Domain, axes: tuple[Term, ...]) -> None:
        if math.prod(each.args[1] for each in axes) > LARGEST:
            raise Reject  # too many points to evaluate
        self.facts, self.domain, self.axes = facts, domain, axes
        self.place = {each: at for at, each in enumerate(axes)}
        grids = np.meshgrid(*(np.arange(each.args[1]) for each in axes), indexing="ij", sparse=True)
        self.env = dict(zip(axes, grids, strict=True))
        self._memo: dict[Term, Valued] = {}

    def value(self, term: Term) -> Valued:
        """Of an expression, tensor or buffer. Raises IllFormed for what has no value."""
        if term not in self._memo:
            self._memo[term] = self._value(term)
        return self._memo[term]

    def index(self, index: Term) -> Array:
        """An index or atom, over the axes, without samples."""
        found = np.asarray(evaluate_index(index, self.env))
        return found.reshape(found.shape or (1,) * len(self.axes))

    def _value(self, term: Term) -> Valued:
        facts, domain = self.facts, self.domain
        leaf = facts.context.leaves.get(term)
        if leaf is not None:
            made: tuple[int, ...] | None = leaf.shape
        elif term.head in _GROWING:
            made = facts.extent(term) if term.head == "Fill" else facts.shape(term)
        else:
            made = None
        if made is not None and math.prod(made) > LARGEST:
            raise Reject  # too many elements
        if leaf is not None:
            if term.head == "?Expr":
                shape = tuple(each.args[1] if each in leaf.axes else 1 for each in self.axes)
                return domain.leaf(leaf.name, leaf.dtype, shape), None
            if leaf.elements is not None:
                return self._filled(leaf.shape, leaf.elements, leaf.axes)
            return domain.leaf(leaf.name, leaf.dtype, leaf.shape), None
        match term.head, term.args:
            case (("Imm" | "Const"), (dtype, bits)):
                return self._spread(domain.const(dtype, bits), term), None
            case (("TUnary" | "Unary"), (op, x)):
                value, mask = self.value(x)
                return domain.unary(op, facts.dtype(x), value), mask
            case (("TBinary" | "Binary"), (op, x, y)):
                (a, p), (b, q) = self._alike(x, y)
                return domain.binary(op, facts.dtype(x), a, b), _both(p, q)
            case (("TWhere" | "Select"), (c, x, y)):
                (a, p), (b, q), (d, r) = self._alike(c, x, y)
                value = domain.select(a, b, d)
                if q is None and r is None:
                    return value, p
                chosen = domain.select(domain.truth(a.astype(bool)) if q is None else a, _all(q), _all(r))
                return value, _both(p, chosen.astype(bool))
            case (("TCast" | "Cast"), (dtype, x)):
                value, mask = self.value(x)
                return domain.cast(facts.dtype(x), dtype, value), mask
            case "Within", (index, lo, hi):
                found = self.index(index)
                return domain.truth(np.asarray((found >= lo) & (found < hi))[None]), None
            case "Reduce", (op, bound, x):
                value, mask = self._rows(x, bound)
                return self._folded(op, x, value), None if mask is None else np.asarray(mask.all(axis=-1))
            case "Stream", (bound, score, weight, scale):
                (s, p), (w, q) = self._rows(score, bound), self._rows(weight, bound)
                mask = _both(p, q)
                return domain.stream(s, w, scale), None if mask is None else np.asarray(mask.all(axis=-1))
            case "RoundedStream", (dtype, bound, score, weight, scale):
                (s, p), (w, q) = self._rows(score, bound), self._rows(weight, bound)
                mask, value = _both(p, q), domain.rounded_stream(dtype, s, w, scale)
                return value, None if mask is None else np.asarray(mask.all(axis=-1))
            case (("At" | "Read"), (source, index)):
                return self._element(source, index)
            case "Fill", (_, shape, x):
                return self._filled(shape, x, filled_axes(shape))
            case "Alias", (shape, buffer):
                return _reshaped(self.value(buffer), shape)
            case "Out", (_, buffer):
                return self.value(buffer)
            case _:
                moved = self._moved(term)
                return moved if moved is not None else self.value(facts._defined(term))

    # ---- tensors ----

    def _spread(self, value: Array, term: Term) -> Array:
        """A constant over the axes of the instance; an Imm stays one number."""
        return value.reshape((1,) * (1 + len(self.axes))) if term.head == "Const" else value

    def _alike(self, *terms: Term) -> list[Valued]:
        """Values of operands; a constant of any shape takes the rank of the others."""
        found = [self.value(each) for each in terms]
        rank = max(value.ndim for value, _ in found)
        return [
            (value.reshape(value.shape[:1] + (1,) * (rank - 1)) if value.ndim == 1 else value, mask)
            for value, mask in found
        ]

    def _moved(self, term: Term) -> Valued | None:
        match term.head, term.args:
            case "TReduce", (op, count, x):
                value, mask = self._whole(x)
                value = value.reshape(*value.shape[: value.ndim - count], -1)
                folded = self._folded(op, x, value)
                if mask is not None:
                    mask = np.asarray(mask.reshape(*mask.shape[: mask.ndim - count], -1).all(axis=-1))
                return folded, mask
            case "Reshape", (x, shape):
                return _reshaped(self._whole(x), shape)
            case "Permute", (x, perm, _):
                return _each(self._whole(x), lambda a: a.transpose(0, *(each + 1 for each in perm)))
            case "Expand", (x, at, size):
                return _each(self._whole(x), lambda a: np.repeat(a, size, axis=at + 1))
            case "Shrink", (x, at, lo, hi, step):
                cut = (slice(None),) * (at + 1) + (slice(lo, hi, step),)
                return _each(self._whole(x), lambda a: a[cut])
            case "Flip", (x, at):
                return _each(self._whole(x), lambda a: np.flip(a, at + 1))
            case "Pad", (x, at, before, after, value):
                inside, mask = self._whole(x)
                (outside, _), widths = self.value(value), [(0, 0)] * inside.ndim
                widths[at + 1] = (before, after)
                within = np.pad(np.ones(inside.shape[1:], bool), widths[1:])[None]
                padded = np.pad(inside, widths, mode="edge") if inside.size else inside
                outside = outside.reshape(outside.shape[:1] + (1,) * (inside.ndim - 1))
                kept = None if mask is None else np.pad(mask, widths, constant_values=True)
                return np.where(within, padded, outside), kept
            case "View", (x, shape, vector):
                value, mask = self._whole(x)
                grids = np.meshgrid(*map(np.arange, shape), indexing="ij", sparse=True)
                env = {axis(k, size): grid for k, (size, grid) in enumerate(zip(shape, grids, strict=True))}
                index: tuple[Any, ...] = tuple(
                    np.broadcast_to(evaluate_index(each, env), shape) for each in vector
                )

                def seen(array: Array) -> Array:
                    found = array[(slice(None), *index)]
                    return np.broadcast_to(
                        found.reshape(-1, *_padded(found.shape[1:], len(shape))), (len(found), *shape)
                    )

                return seen(value), None if mask is None else seen(mask)
            case "Valid", (shape, at, lo, hi):
                along = np.arange(shape[at])
                inside = ((along >= lo) & (along < hi)).reshape(
                    [-1 if k == at else 1 for k in range(len(shape))]
                )
                return self.domain.truth(np.array(np.broadcast_to(inside, shape))[None]), None
        return None

    def _whole(self, tensor: Term) -> Valued:
        """A tensor whose array has all of its shape."""
        shape = self.facts.shape(tensor)
        if shape is None:
            raise IllFormed("a constant has no shape")
        value, mask = self.value(tensor)
        full = np.broadcast_to(
            value.reshape(value.shape[0], *_padded(value.shape[1:], len(shape))), (value.shape[0], *shape)
        )
        return full, None if mask is None else np.broadcast_to(mask, full.shape)

    # ---- expressions ----

    def _folded(self, op: str, x: Term, value: Array) -> Array:
        """A reduction of elements of ``x`` over the last axis."""
        if value.shape[-1] > LONGEST:
            raise Reject  # too many points
        return value[..., 0] if value.shape[-1] == 1 else self.domain.fold(op, self.facts.dtype(x), value)

    def _rows(self, x: Term, bound: tuple[Term, ...]) -> Valued:
        """An expression with its bound axes as one last axis, in their order."""
        value, mask = self.value(x)
        places = [self.place[each.args[1]] + 1 for each in bound if is_axis(each)]

        def rows(array: Array) -> Array:
            shape = list(array.shape)
            for place in places:
                shape[place] = self.axes[place - 1].args[1]
            spread = np.broadcast_to(array, shape)
            moved = np.moveaxis(spread, places, range(spread.ndim - len(places), spread.ndim))
            count = math.prod(shape[place] for place in places)
            flat = moved.reshape(*moved.shape[: spread.ndim - len(places)], count)
            for place in sorted(places):
                flat = np.expand_dims(flat, place)
            return flat

        full = rows(value)
        return full, None if mask is None else rows(np.broadcast_to(mask, value.shape))

    def _element(self, source: Term, index: tuple[Term, ...]) -> Valued:
        tensor = source.head not in ("Arg", "Fill", "Alias", "?Buf")
        shape = self.facts.shape(source) if tensor else self.facts.extent(source)
        if shape is None:
            value, mask = self.value(source)
            return value.reshape(value.shape[:1] + (1,) * len(self.axes)), mask
        places = [self.index(each) for each in index]
        return self._gathered(self._whole(source) if tensor else self.value(source), shape, places)

    def _gathered(self, whole: Valued, shape: tuple[int, ...], places: list[Array]) -> Valued:
        value, mask = whole
        if not places:
            flat = value.reshape(value.shape[0], *(1,) * len(self.axes))
            return flat, None if mask is None else mask.reshape(flat.shape)
        inside: Any = True
        clipped = []
        for place, size in zip(np.broadcast_arrays(*places), shape, strict=True):
            inside = inside & (place >= 0) & (place < size)
            clipped.append(np.clip(place, 0, size - 1))
        found = value[(slice(None), *clipped)]
        defined = None if bool(np.all(inside)) else np.asarray(inside)[None]
        return found, _both(defined, None if mask is None else mask[(slice(None), *clipped)])

    def _filled(self, shape: tuple[int, ...], x: Term, axes: Sequence[Term]) -> Valued:
        """The values of an expression over ``axes``, those of the shape's extents above 1."""
        value, mask = self.value(x)
        own = [self.place[each] for each in axes]
        order = (0, *(at + 1 for at in own), *(at + 1 for at in range(len(self.axes)) if at not in own))

        def filled(array: Array) -> Array:
            array = array.reshape(
                array.shape[:1] + (1,) * (len(self.axes) + 1 - array.ndim) + array.shape[1:]
            )
            for at in range(len(self.axes)):
                if at not in own and array.shape[at + 1] > 1:
                    first = np.take(array, [0], axis=at + 1)
                    if not bool(np.all(np.equal(array, first) | (array != array))):
                        raise IllFormed("a buffer is filled over an axis that is not one of its own")
                    array = first
            full = list(array.shape)
            for at in own:
                full[at + 1] = self.axes[at].args[1]
            return np.broadcast_to(array, full).transpose(order).reshape(array.shape[0], *shape)

        return filled(value), None if mask is None else filled(np.broadcast_to(mask, value.shape))


def _padded(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return shape if len(shape) == rank else (*shape, *(1,) * (rank - len(shape)))


def _both(p: Array | None, q: Array | None) -> Array | None:
    return q if p is None else p if q is None else np.asarray(p & q)


def _all(mask: Array | None) -> Array:
    return np.ones((), bool) if mask is None else mask


def _each(valued: Valued, move: Any) -> Valued:
    value, mask = valued
    return move(value), None if mask is None else move(mask)


def _reshaped(valued: Valued, shape: tuple[int, ...]) -> Valued:
    return _each(valued, lambda a: a.reshape(a.shape[0], *shape))
