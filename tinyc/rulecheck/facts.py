"""What the functions of ``rules/schema.egg`` are of a ground term, and which terms are well formed.

This is the checker's own statement of each fact, independent of the rules that derive it. Where a fact is a bound
(``low``, ``free``), it is the value that plain interval or set arithmetic gives: a rule may claim a tighter one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyc.ir.tiny import COMPARE

from .context import MANY, PRIME, TAPS, Context, IllFormed, Reject
from .term import Term, Value, axis, lit, plain, show
from .wellformed import WELL_FORMED


class Facts:
    """Facts about the terms of one instance. ``expand``: what a constructor of a user's stands for, None for others."""

    def __init__(self, context: Context, expand: Callable[[Term], Term | None] = lambda _: None) -> None:
        self.context = context
        self.expand = expand
        self._memo: dict[tuple[str, Value], Any] = {}

    def _once(self, what: str, term: Term, compute: Callable[[Term], Any]) -> Any:
        key = (what, term)
        if key not in self._memo:
            self._memo[key] = compute(term)
        return self._memo[key]

    def _defined(self, term: Term) -> Term:
        found = self.expand(term)
        if found is None:
            raise IllFormed(f"what {term.head} means is not declared")
        return found

    # ---- indices ----

    def linear(self, index: Term) -> tuple[dict[Term, int], int]:
        """Coefficients by atom and the constant of a sum; requests other than sums count as one atom."""
        match index.head:
            case "Lit":
                return {}, index.args[0]
            case "Plus" | "IAdd":
                if index.head == "Plus":
                    first, const = {index.args[1]: index.args[0]}, 0
                    rest, more = self.linear(index.args[2])
                else:
                    first, const = self.linear(index.args[0])
                    first = dict(first)
                    rest, more = self.linear(index.args[1])
                for atom, coef in rest.items():
                    first[atom] = first.get(atom, 0) + coef
                return {atom: coef for atom, coef in first.items() if coef}, const + more
            case "IScale":
                inner, const = self.linear(index.args[1])
                k = index.args[0]
                return {atom: k * coef for atom, coef in inner.items() if k * coef}, k * const
            case _:
                return {index: 1}, 0

    def key(self, atom: Term) -> int:
        if atom.head == "Ax":
            return int(atom.args[0])
        if atom.head == "FloorDiv":
            return (1 << 20) + (self.print_of(atom.args[0]) * 31 + atom.args[1]) % PRIME
        if atom in self.context.leaves:
            return self.context.leaves[atom].taps
        raise IllFormed(f"{atom!r} has no place in a sum")

    def print_of(self, index: Term) -> int:
        total = 0
        while index.head == "Plus":
            coef, atom, index = index.args
            total += coef * (7 + 1000003 * self.key(atom))
        if index.head != "Lit":
            raise IllFormed(f"{index!r} is not in normal form")
        return int(total + index.args[0]) % PRIME

    def axes_of(self, value: Value) -> frozenset[Term]:
        """The axes that are spelled in an index or in indices (those that a Subst replaces are not its own)."""
        if isinstance(value, tuple):
            return frozenset[Term]().union(*(self.axes_of(each) for each in value))
        if not isinstance(value, Term):
            return frozenset()
        if value.head == "Ax":
            return frozenset([value])
        if value.head == "Subst":
            used = [value.args[0][each.args[0]] for each in self.axes_of(value.args[1])]
            return self.axes_of(tuple(used))
        if value in self.context.leaves:
            return frozenset(self.context.leaves[value].axes)
        return frozenset[Term]().union(*(self.axes_of(each) for each in value.args), frozenset())

    def values(self, index: Term) -> np.ndarray[Any, Any]:
        """All values of an index over the ranges of its axes."""
        return self._once("values", index, self._values)

    def _values(self, index: Term) -> np.ndarray[Any, Any]:
        axes = sorted(self.axes_of(index), key=lambda each: each.args)
        if math.prod(each.args[1] for each in axes) > 1 << 16:
            raise Reject  # too many values
        grids = np.meshgrid(*(np.arange(each.args[1]) for each in axes), indexing="ij", sparse=True)
        return np.asarray(evaluate_index(index, dict(zip(axes, grids, strict=True))))

    def low(self, index: Term) -> int:
        return self._once("low", index, lambda each: self._bound(each, 0))

    def high(self, index: Term) -> int:
        return self._once("high", index, lambda each: self._bound(each, 1))

    def _bound(self, index: Term, end: int) -> int:
        """Interval arithmetic on a normal form; the true bound of a request."""
        if index in self.context.leaves:
            leaf = self.context.leaves[index]
            return (leaf.low, leaf.high)[end]
        match index.head:
            case "Lit":
                return int(index.args[0])
            case "Plus":
                coef, atom, rest = index.args
                return int(coef * self._bound(atom, end if coef > 0 else 1 - end) + self._bound(rest, end))
            case "Ax":
                return (0, index.args[1] - 1)[end]
            case "FloorDiv":
                return int(self._bound(index.args[0], end) // index.args[1])
            case _:
                found = self.values(index)
                return int((found.min, found.max)[end]())

    def interval(self, index: Term, end: int) -> int:
        """Interval arithmetic through requests as well: what a rule can know of one by the bounds of its parts."""
        match index.head:
            case "IAdd":
                return sum(self.interval(each, end) for each in index.args)
            case "IScale":
                k, inner = index.args
                return int(k * self.interval(inner, end if k > 0 else 1 - end))
            case "IDiv" | "DivEnd":
                return self.interval(index.args[0], end) // int(index.args[1])
            case "DivAcc":
                return sum(self.interval(each, end) for each in index.args[:2]) // int(index.args[2])
            case _:
                return self._bound(index, end)

    def top(self, index: Term) -> int:
        return max((each.args[0] for each in self.axes_of(index)), default=-1)

    def ops_of(self, index: Term) -> int:
        if index.head == "Lit":
            return int(index.args[0] != 0)
        if index.head == "Plus":
            coef, atom, rest = index.args
            count = self.atom_ops(atom) + self.ops_of(rest)
            return count + 1 if coef != 1 or rest.head == "Plus" else count
        raise IllFormed(f"{index!r} is not in normal form")

    def atom_ops(self, atom: Term) -> int:
        return 0 if atom.head == "Ax" else 1 + self.ops_of(atom.args[0])

    def ix_points(self, index: Term) -> int:
        """Points of its axes, :data:`MANY` at most and where it is not made of axes alone."""
        points = 1
        while index.head == "Plus" and index.args[1].head == "Ax":
            points = min(MANY, min(MANY, index.args[1].args[1]) * points)
            index = index.args[2]
        return points if index == lit(0) else MANY

    def ops_upto(self, indices: Sequence[Term]) -> int:
        """Operations, but none of what ends where one axis of as many points would, as axes that are joined to one do."""
        return sum(self.ops_of(each) for each in indices if self.ix_points(each) != self.high(each) + 1)

    def axes_upto(self, base: int, shape: tuple[int, ...], count: int) -> tuple[tuple[Term, ...], int]:
        """The first ``count`` axes of a shape, and the number of the axis after them."""
        if not 0 <= count <= len(shape):
            raise IllFormed("there are not so many axes")
        found: list[Term] = []
        for size in shape[:count]:
            found.append(plain(axis(base, size)) if size > 1 else lit(0))
            base += size > 1
        return tuple(found), base

    # ---- tensors ----

    def shape(self, tensor: Term) -> tuple[int, ...] | None:
        """The shape of a tensor; None for an Imm, and for what is computed from Imms alone."""
        return self._once("shape", tensor, self._shape)

    def _shape(self, tensor: Term) -> tuple[int, ...] | None:
        if tensor in self.context.leaves:
            return self.context.leaves[tensor].shape
        match tensor.head, tensor.args:
            case "Imm", _:
                return None
            case (("TUnary" | "TBinary" | "TWhere" | "TCast"), args):
                shapes = [self.shape(each) for each in args if isinstance(each, Term)]
                return next((each for each in shapes if each is not None), None)
            case "TReduce", (_, count, x):
                return self._of(x)[: len(self._of(x)) - count]
            case ("Reshape", (_, shape)) | ("View", (_, shape, _)) | ("Valid", (shape, _, _, _)):
                return tuple(shape)
            case "Permute", (x, perm, _):
                return tuple(self._of(x)[each] for each in perm)
            case "Expand", (x, at, size):
                return _replaced(self._of(x), at, size)
            case "Pad", (x, at, before, after, _):
                return _replaced(self._of(x), at, self._of(x)[at] + before + after)
            case "Shrink", (x, at, lo, hi, step):
                return _replaced(self._of(x), at, -(-(hi - lo) // step))
            case "Flip", (x, _):
                return self._of(x)
            case _:
                return self.shape(self._defined(tensor))

    def _of(self, tensor: Term) -> tuple[int, ...]:
        found = self.shape(tensor)
        if found is None:
            raise IllFormed("a constant has no shape")
        return found

    def dtype(self, term: Term) -> str:
        """The dtype of a tensor, an expression or a buffer."""
        return self._once("dtype", term, self._dtype)

    def _dtype(self, term: Term) -> str:
        if term in self.context.leaves:
            return self.context.leaves[term].dtype
        match term.head, term.args:
            case (("Imm" | "TCast" | "Const" | "Cast" | "Fill"), (dtype, *_)):
                return str(dtype)
            case (("TBinary" | "Binary"), (op, x, _)):
                return "bool" if op in COMPARE else self.dtype(x)
            case (("TUnary" | "Unary"), (_, x)):
                return self.dtype(x)
            case (("TReduce" | "Reduce" | "TWhere" | "Select"), args):
                return self.dtype(args[-1])
            case (
                ("Reshape" | "Permute" | "Expand" | "Pad" | "Shrink" | "Flip" | "View" | "At" | "Read"),
                (x, *_),
            ):
                return self.dtype(x)
            case ("Alias", (_, b)) | ("Out", (_, b)):
                return self.dtype(b)
            case (("Valid" | "Within"), _):
                return "bool"
            case (("Stream" | "RoundedStream"), _):
                return "fp32"
            case _:
                return self.dtype(self._defined(term))

    def solid(self, tensor: Term) -> bool:
        """Not a mere broadcast: at least one operand fills the shape."""
        if tensor in self.context.leaves:
            return self.context.leaves[tensor].solid
        match tensor.head, tensor.args:
            case "TReduce", _:
                return True
            case (("TUnary" | "TBinary" | "TCast"), (_, *operands)):
                return any(map(self.solid, operands))
            case "TWhere", (_, x, y):
                return self.solid(x) or self.solid(y)
            case (("Reshape" | "Permute" | "Pad" | "Shrink" | "Flip"), (x, *_)):
                return self.solid(x)
            case _:
                return False

    def taps(self, tensor: Term) -> int:
        """Elements that one element is computed from, counted up to 33."""
        if tensor in self.context.leaves:
            return 1 if tensor.head == "Input" else self.context.leaves[tensor].taps
        match tensor.head, tensor.args:
            case "TReduce", _:
                return 1
            case (("Imm" | "Valid"), _):
                return 0
            case (("TUnary" | "TBinary" | "TWhere" | "TCast"), args):
                return min(TAPS, sum(self.taps(each) for each in args if isinstance(each, Term)))
            case _:
                return self.taps(tensor.args[0])

    # ---- expressions and buffers ----

    def extent(self, buffer: Term) -> tuple[int, ...]:
        """The shape of a buffer."""
        if buffer in self.context.leaves:
            return self.context.leaves[buffer].shape
        if buffer.head == "Fill":
            return tuple(buffer.args[1])
        if buffer.head == "Alias":
            return tuple(buffer.args[0])
        return self.extent(self._defined(buffer))

    def free(self, expr: Term) -> frozenset[Term]:
        """The axes that are spelled in an expression and not bound there."""
        return self._once("free", expr, self._free)

    def _free(self, expr: Term) -> frozenset[Term]:
        if expr in self.context.leaves:
            return frozenset(self.context.leaves[expr].axes)
        match expr.head, expr.args:
            case (("At" | "Read"), (_, index)):
                return self.axes_of(index)
            case (("Const" | "Out"), _):
                return frozenset()
            case "Within", (index, _, _):
                return self.axes_of(index)
            case (("Unary" | "Binary" | "Select" | "Cast"), args):
                return frozenset[Term]().union(*(self.free(each) for each in args if isinstance(each, Term)))
            case "Reduce", (_, bound, x):
                return self.free(x) - self.axes_of(bound)
            case (("Stream" | "RoundedStream"), (*_, bound, score, weight, _)):
                return (self.free(score) | self.free(weight)) - self.axes_of(bound)
            case _:
                return self.free(self._defined(expr))

    # ---- well-formed terms ----

    def build(self, head: str, args: tuple[Value, ...]) -> Term:
        """The term, if a program may have it. Raises IllFormed."""
        term = Term(head, args)
        rule = WELL_FORMED.get(head)
        if rule is not None:
            rule(self, *args)
        return term


def _replaced(shape: tuple[int, ...], at: int, size: int) -> tuple[int, ...]:
    if not 0 <= at < len(shape):
        raise IllFormed(f"there is no axis {at}")
    return (*shape[:at], size, *shape[at + 1 :])


def evaluate_index(index: Term, env: Mapping[Term, Any]) -> Any:
    """The value of an index or atom where ``env`` gives that of every axis (numbers or arrays that broadcast)."""
    match index.head, index.args:
        case "Lit", (value,):
            return value
        case "Plus", (coef, atom, rest):
            return coef * evaluate_index(atom, env) + evaluate_index(rest, env)
        case "Ax", _:
            if index not in env:
                raise IllFormed(f"the axis {show(index)} is out of scope")
            return env[index]
        case (("FloorDiv" | "IDiv" | "DivEnd"), (x, divisor)):
            return evaluate_index(x, env) // divisor
        case "IAdd", (x, y):
            return evaluate_index(x, env) + evaluate_index(y, env)
        case "IScale", (factor, x):
            return factor * evaluate_index(x, env)
        case "DivAcc", (kept, todo, divisor):
            return (evaluate_index(kept, env) + evaluate_index(todo, env)) // divisor
        case "Subst", (vector, x):
            return evaluate_index(x, _Substituted(vector, env))
        case "Ravel", (vector, shape, count):
            offset: Any = 0
            for each, size in zip(vector[:count], shape[:count], strict=True):
                offset = offset * size + evaluate_index(each, env)
            return offset
    raise IllFormed(f"{index!r} is no index")


class _Substituted(dict[Term, Any]):
    """Axis k is element k of a vector."""

    def __init__(self, vector: tuple[Term, ...], env: Mapping[Term, Any]) -> None:
        super().__init__()
        self.vector, self.env = vector, env

    def __contains__(self, key: object) -> bool:
        return isinstance(key, Term) and key.args[0] < len(self.vector)

    def __missing__(self, key: Term) -> Any:
        return evaluate_index(self.vector[key.args[0]], self.env)
