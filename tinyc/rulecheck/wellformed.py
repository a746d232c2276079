"""What each constructor requires: which terms a program may have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tinyc.ir.dtypes import DType
from tinyc.ir.infer import computes
from tinyc.ir.tiny import BINARY, COMPARE, OPERATORS, REDUCE_OPS, UNARY

from .context import BITS, DTYPES, INFINITY, LEVEL, BadBinder, IllFormed
from .term import Term, is_axis, lit

if TYPE_CHECKING:
    from .facts import Facts


def _need(condition: bool, why: str) -> None:
    if not condition:
        raise IllFormed(why)


def _axis(facts: Facts, number: int, extent: int) -> None:
    _need(extent > 1, "an axis of one point is the literal 0")
    _need(number >= 0, "an axis has a negative number")
    depth = facts.context.depth
    _need(depth is None or number < LEVEL * (depth + 1), "an axis is named deeper than reductions may nest")


def _plus(facts: Facts, coef: int, atom: Term, rest: Term) -> None:
    _need(coef != 0, "a term of an index has the coefficient 0")
    _need(abs(coef) < 1 << 40, "a coefficient is out of range")
    if rest in facts.context.leaves or atom in facts.context.leaves:
        return
    others, _ = facts.linear(rest)
    if all(each.head in ("Ax", "FloorDiv") for each in others):
        _need(
            all(facts.key(atom) < facts.key(each) for each in others),
            "the terms of an index are not in order",
        )


def _divisor(least: int) -> Callable[..., None]:
    def check(facts: Facts, *args: Any) -> None:
        _need(args[-1] >= least, f"an index is divided by {args[-1]}")

    return check


def _kept(facts: Facts, *args: Any) -> None:
    divisor = args[-1]
    _need(divisor > 1, f"an index is divided by {divisor}")
    if args[0] in facts.context.leaves:
        return
    coefs, _ = facts.linear(args[0])
    if all(each.head in ("Ax", "FloorDiv") for each in coefs):
        _need(
            all(coef % divisor for coef in coefs.values()),
            "a multiple of the divisor is kept in the division",
        )
    if len(args) == 3:
        later, _ = facts.linear(args[1])
        _need(not set(coefs) & set(later), "what is kept in a division is of axes that are still to come")


def _subst(facts: Facts, vector: tuple[Term, ...], index: Term) -> None:
    named = set(facts.axes_of(index))
    if index.head == "Subst":  # also in a place of the inner vector to which nothing refers
        named |= facts.axes_of(index.args[0])
    for each in named:
        number, extent = each.args
        _need(number < len(vector), f"axis {number} has nothing to be replaced with")
        _need(
            facts.low(vector[number]) >= 0 and facts.high(vector[number]) < extent,
            f"axis {number} is replaced with an index outside of its range",
        )


def _ravel(facts: Facts, vector: tuple[Term, ...], shape: tuple[int, ...], count: int) -> None:
    _need(0 <= count <= min(len(vector), len(shape)), "an offset of more indices than there are")


def _elementwise(facts: Facts, *operands: Term) -> None:
    shapes = {facts.shape(each) for each in operands} - {None}
    _need(len(shapes) < 2, "the operands of an operator have different shapes")


def _typed(facts: Facts, op: str, known: tuple[str, ...], *operands: Term) -> None:
    _need(op in known, f"there is no operator {op!r}")
    dtypes = {facts.dtype(each) for each in operands}
    _need(len(dtypes) == 1, "the operands of an operator have different dtypes")
    (dtype,) = dtypes
    _need(computes(op, DType(dtype)), f"{op} takes no {dtype}")


def _unary(facts: Facts, op: str, x: Term) -> None:
    _typed(facts, op, OPERATORS, x)


def _tunary(facts: Facts, op: str, x: Term) -> None:
    _typed(facts, op, UNARY, x)


def _binary(facts: Facts, op: str, x: Term, y: Term) -> None:
    _typed(facts, op, (*BINARY, *COMPARE), x, y)


def _tbinary(facts: Facts, op: str, x: Term, y: Term) -> None:
    _elementwise(facts, x, y)
    _binary(facts, op, x, y)


def _select(facts: Facts, c: Term, x: Term, y: Term) -> None:
    _need(facts.dtype(c) == "bool", "the condition of a select is not bool")
    _need(facts.dtype(x) == facts.dtype(y), "the branches of a select have different dtypes")


def _where(facts: Facts, c: Term, x: Term, y: Term) -> None:
    _elementwise(facts, c, x, y)
    _select(facts, c, x, y)


def _dtype(name: str) -> None:
    _need(name in DTYPES, f"there is no dtype {name!r}")


def _cast(facts: Facts, dtype: str, x: Term) -> None:
    _dtype(dtype)
    facts.dtype(x)


def _const(facts: Facts, dtype: str, bits: int) -> None:
    _dtype(dtype)
    _need(0 <= bits < 1 << BITS[dtype], f"{bits} are no bits of {dtype}")


def _reduced(op: str, dtype: str) -> None:
    _need(op in REDUCE_OPS, f"there is no reduction {op!r}")
    _need(dtype != "bool" or op in ("MAX", "MIN"), f"{op} takes no bool")


def _treduce(facts: Facts, op: str, count: int, x: Term) -> None:
    _reduced(op, facts.dtype(x))
    shape = facts.shape(x)
    _need(shape is not None and 1 <= count <= len(shape), f"there are no {count} last axes")


def _reshape(facts: Facts, x: Term, shape: tuple[int, ...]) -> None:
    before = facts.shape(x)
    _need(before is not None, "a constant is reshaped")
    _need(all(size > 0 for size in shape), "a size is not positive")
    _need(math.prod(before or ()) == math.prod(shape), "a reshape changes the number of elements")


def _permute(facts: Facts, x: Term, perm: tuple[int, ...], inverse: tuple[int, ...]) -> None:
    rank = len(facts._of(x))
    _need(sorted(perm) == list(range(rank)), "the axes are not permuted")
    _need(
        tuple(perm.index(each) for each in range(rank)) == tuple(inverse),
        "the inverse is another permutation's",
    )


def _expand(facts: Facts, x: Term, at: int, size: int) -> None:
    shape = facts._of(x)
    _need(0 <= at < len(shape) and shape[at] == 1 and size > 0, "an axis is expanded that has not one point")


def _pad(facts: Facts, x: Term, at: int, before: int, after: int, value: Term) -> None:
    _need(
        0 <= at < len(facts._of(x)) and before >= 0 and after >= 0, "a padding of no axis, or a negative one"
    )
    _need(facts.dtype(x) == facts.dtype(value), "a padding of another dtype")
    _need(value.head == "Imm", "a padding that is no constant")


def _shrink(facts: Facts, x: Term, at: int, lo: int, hi: int, step: int) -> None:
    shape = facts._of(x)
    _need(0 <= at < len(shape) and 0 <= lo < hi <= shape[at] and step > 0, "a cut outside of the axis")


def _flip(facts: Facts, x: Term, at: int) -> None:
    _need(0 <= at < len(facts._of(x)), "a flip of no axis")


def _view(facts: Facts, x: Term, shape: tuple[int, ...], vector: tuple[Term, ...]) -> None:
    before = facts._of(x)
    _need(len(vector) == len(before), "a view with more or fewer indices than there are axes")
    for size, index in zip(before, vector, strict=True):
        for each in facts.axes_of(index):
            _need(
                each.args[0] < len(shape) and shape[each.args[0]] == each.args[1],
                "a view over an axis it has not",
            )
        found = facts.values(index)
        _need(found.min() >= 0 and found.max() < size, "a view outside of its operand")


def _valid(facts: Facts, shape: tuple[int, ...], at: int, lo: int, hi: int) -> None:
    _need(0 <= at < len(shape) and all(size > 0 for size in shape), "a mask of no axis")


def _at(facts: Facts, tensor: Term, index: tuple[Term, ...]) -> None:
    shape = facts.shape(tensor)
    _need(
        shape is None or len(index) == len(shape),
        "a tensor is read with more or fewer indices than it has axes",
    )


def _read(facts: Facts, buffer: Term, index: tuple[Term, ...]) -> None:
    _need(
        len(index) == len(facts.extent(buffer)),
        "a buffer is read with more or fewer indices than it has axes",
    )


def _binder(facts: Facts, vector: tuple[Term, ...]) -> None:
    found: list[Term] = []
    for each in vector:
        if each == lit(0):
            continue
        if not is_axis(each):
            raise BadBinder("a reduction binds something else than axes")
        found.append(each.args[1])
    if len(set(found)) != len(found):
        raise BadBinder("a reduction binds an axis twice")
    levels = [each.args[0] // LEVEL for each in found]
    if levels != sorted(levels):
        raise BadBinder("a reduction binds an inner axis before an outer one")


def _reduce(facts: Facts, op: str, bound: tuple[Term, ...], x: Term) -> None:
    _reduced(op, facts.dtype(x))
    _binder(facts, bound)


def _stream(facts: Facts, bound: tuple[Term, ...], score: Term, weight: Term, scale: int) -> None:
    _binder(facts, bound)
    _need(facts.dtype(score) == "fp32", "the scores of a stream are not fp32")
    _need(facts.dtype(weight) == "fp32", "the weights of a stream are not fp32")
    _need(0 < scale < INFINITY, "the scale of a stream is not positive and finite")


def _rounded_stream(
    facts: Facts, dtype: str, bound: tuple[Term, ...], score: Term, weight: Term, scale: int
) -> None:
    _need(dtype in ("fp16", "bf16"), "a rounded stream rounds to neither fp16 nor bf16")
    _stream(facts, bound, score, weight, scale)


def _fill(facts: Facts, dtype: str, shape: tuple[int, ...], x: Term) -> None:
    _dtype(dtype)
    _need(facts.dtype(x) == dtype, "a buffer is filled with another dtype than its own")
    _need(all(size > 0 for size in shape), "a size is not positive")


def _alias(facts: Facts, shape: tuple[int, ...], buffer: Term) -> None:
    same = math.prod(shape) == math.prod(facts.extent(buffer))
    _need(same and all(size > 0 for size in shape), "another shape with more or fewer elements")


WELL_FORMED: Mapping[str, Callable[..., None]] = {
    "Ax": _axis, "Plus": _plus, "FloorDiv": _divisor(2), "IDiv": _divisor(1), "DivAcc": _kept, "DivEnd": _kept,
    "Subst": _subst, "Ravel": _ravel,
    "Imm": _const, "TUnary": _tunary, "TBinary": _tbinary, "TWhere": _where, "TCast": _cast, "TReduce": _treduce,
    "Reshape": _reshape, "Permute": _permute, "Expand": _expand, "Pad": _pad, "Shrink": _shrink, "Flip": _flip,
    "View": _view, "Valid": _valid,
    "At": _at, "Read": _read, "Const": _const, "Unary": _unary, "Binary": _binary, "Select": _select,
    "Cast": _cast, "Reduce": _reduce, "Stream": _stream, "RoundedStream": _rounded_stream, "Fill": _fill, "Alias": _alias,
}  # fmt: skip
