"""Emits Tiny IR documents node by node, keeping the shape and dtype of every value (document 002 §2-§3).

A step that cannot be right is refused here, where the caller still knows what it meant; the verifier checks the
finished document once more. Broadcasting is right-aligned and always written out as RESHAPE + EXPAND (I-19).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyc.ir import dims
from tinyc.ir.diagnostics import TinycError, show_shape
from tinyc.ir.dtypes import DType, parse_dtype
from tinyc.ir.tiny import COMPARE, Dim, Imm, Shape

from . import sizes

_FLOAT_ONLY = ("FDIV", "EXP2", "LOG2", "SQRT", "RSQRT", "RECIP", "SIN", "POW")
_NOT_ON_BOOL = (*_FLOAT_ONLY, "ADD", "SUB", "MUL", "NEG", "RELU")
_I32_MIN, _I32_MAX = -(1 << 31), (1 << 31) - 1
_FLOAT_BITS = 1023
"""Longer integers are more than any float."""


@dataclass(frozen=True, slots=True)
class Value:
    """The result of a node: its id, and the shape and dtype it has."""

    id: str
    shape: Shape
    dtype: DType


Operand = Value | Imm


class Builder:
    """One document in the making. Ids are ``n0, n1, …`` in order of emission, so equal calls give equal bytes."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.inputs: dict[str, str] = {}

    def document(self, outputs: Mapping[str, Value]) -> dict[str, Any]:
        """The Tiny document: every INPUT, what the outputs need of the rest, and the signature."""
        by_id = {node["id"]: node for node in self.nodes}
        live: set[str] = set(self.inputs.values())
        stack = [value.id for value in outputs.values()]
        while stack:
            id = stack.pop()
            if id not in live:
                live.add(id)
                stack += [source for source in by_id[id].get("src", ()) if isinstance(source, str)]
        return {
            "uops": [node for node in self.nodes if node["id"] in live],
            "signature": {
                "inputs": [{"tensor": name} for name in self.inputs],
                "outputs": [{"tensor": name, "node": value.id} for name, value in outputs.items()],
            },
        }

    # -- leaves

    def input(self, name: str, dtype: DType, shape: Sequence[Dim], storage: str | None = None) -> Value:
        """A caller's array. ``storage`` is passed on as it is (document 004 §2.2: "const_pool")."""
        if name in self.inputs:
            raise TinycError(
                "DuplicateId",
                f"two inputs are called {name!r}",
                "give each input its own name",
                {"value": name},
            )
        result = tuple(sizes.size(dim) for dim in shape)
        arg: dict[str, Any] = {"tensor_id": name, "dtype": dtype.value, "shape": list(result)}
        if storage is not None:
            arg["storage"] = storage
        value = self._emit("INPUT", (), arg, result, dtype)
        self.inputs[name] = value.id
        return value

    def valid(self, shape: Sequence[Dim], lo: Sequence[Dim], hi: Sequence[Dim]) -> Value:
        """bool of ``shape``: true where ``lo <= index < hi`` on every axis."""
        arg = {"result_shape": list(shape), "lo": list(lo), "hi": list(hi)}
        return self._emit("VALID", (), arg, tuple(shape), DType.BOOL)

    # -- movement

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Row-major regrouping; one dimension may be -1. AxisSizeMismatch when the element counts differ."""
        wanted = [-1 if dim == -1 else sizes.size(dim) for dim in shape]
        if wanted.count(-1) > 1:
            raise TinycError(
                "InvalidShape", "more than one size is -1", "leave only one open", _at("RESHAPE", x)
            )
        if -1 in wanted:
            rest = sizes.divide(x.shape, (dim for dim in wanted if dim != -1))
            wanted[wanted.index(-1)] = 0 if rest is None else rest
        result = tuple(wanted)
        if dims.product(result) != dims.product(x.shape):
            raise TinycError(
                "AxisSizeMismatch",
                f"{show_shape(x.shape)} has {dims.product(x.shape)} elements and cannot become {show_shape(tuple(shape))}",
                "give a shape with the same number of elements",
                _at("RESHAPE", x),
            )
        return (
            x if result == x.shape else self._emit("RESHAPE", (x,), {"result_shape": wanted}, result, x.dtype)
        )

    def permute(self, x: Value, perm: Sequence[int]) -> Value:
        """Output axis i is input axis ``perm[i]``."""
        rank = len(x.shape)
        places = [place for place in map(sizes.integer, perm) if place is not None and -rank <= place < rank]
        order = [place % rank for place in places]
        if len(places) != len(perm) or sorted(order) != list(range(rank)):
            raise TinycError(
                "InvalidPermutation",
                f"{list(perm)} does not name each axis of {show_shape(x.shape)} once",
                f"give a permutation of 0..{rank - 1}",
                _at("PERMUTE", x),
            )
        if order == sorted(order):
            return x
        return self._emit("PERMUTE", (x,), {"perm": order}, tuple(x.shape[p] for p in order), x.dtype)

    def expand(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Right-aligned broadcast to ``shape``: size-1 and missing leading axes are repeated."""
        target = tuple(sizes.size(dim) for dim in shape)
        if len(target) < len(x.shape) or any(
            have not in (1, want) for have, want in zip(x.shape[::-1], target[::-1], strict=False)
        ):
            raise _broadcast_error("EXPAND", x.shape, target)
        x = self.reshape(x, (1,) * (len(target) - len(x.shape)) + x.shape)
        if x.shape == target:
            return x
        return self._emit("EXPAND", (x,), {"result_shape": list(target)}, target, x.dtype)

    def pad(self, x: Value, pads: Sequence[tuple[Dim, Dim]], value: Imm = 0) -> Value:
        """``pads``: one (before, after) per axis, both >= 0; the new elements are ``value``."""
        negative = any(isinstance(side, int) and side < 0 for pair in pads for side in pair)
        if len(pads) != len(x.shape) or negative:
            raise TinycError(
                "InvalidArgument",
                f"pad {list(map(list, pads))} does not give two sizes >= 0 for each axis of {show_shape(x.shape)}",
                "give one [before, after] per axis; to cut, slice instead",
                _at("PAD", x),
            )
        if all(pair == (0, 0) for pair in pads):
            return x
        result = tuple(
            dims.add(dims.add(dim, low), high) for dim, (low, high) in zip(x.shape, pads, strict=True)
        )
        arg = {"pad": [[low, high] for low, high in pads], "value": self._immediate(value, x.dtype, "PAD")}
        return self._emit("PAD", (x,), arg, result, x.dtype)

    def shrink(self, x: Value, lo: Sequence[Dim], hi: Sequence[Dim], step: Sequence[int]) -> Value:
        """Keeps ``lo <= index < hi`` on every axis, every ``step``-th of it."""
        result = tuple(
            dims.ceildiv(dims.sub(high, low), by) for low, high, by in zip(lo, hi, step, strict=True)
        )
        if any(isinstance(dim, int) and dim < 1 for dim in result):
            raise TinycError(
                "InvalidShape",
                f"the slice of {show_shape(x.shape)} from {show_shape(tuple(lo))} to {show_shape(tuple(hi))} is empty",
                "keep at least one element on every axis",
                _at("SHRINK", x),
            )
        if tuple(hi) == x.shape and not any(lo) and set(step) <= {1}:
            return x
        arg = {"lo": list(lo), "hi": list(hi), "step": list(step)}
        return self._emit("SHRINK", (x,), arg, result, x.dtype)

    def flip(self, x: Value, axes: Iterable[int]) -> Value:
        order = sorted(axes)
        return self._emit("FLIP", (x,), {"axes": order}, x.shape, x.dtype) if order else x

    def view(self, x: Value, shape: Sequence[Dim], index_map: Sequence[str]) -> Value:
        """``index_map``: for each axis of ``x`` the index to read, over the result's axes ``i0, i1, …`` (I-57)."""
        result = tuple(sizes.size(dim) for dim in shape)
        entries = [str(dims.parse(entry)) for entry in index_map]
        arg = {"result_shape": list(result), "index_map": {"map": entries}}
        return self._emit("VIEW", (x,), arg, result, x.dtype)

    # -- elementwise and reduce

    def unary(self, uop: str, x: Value) -> Value:
        _check_dtype(uop, x.dtype)
        return self._emit(uop, (x,), None, x.shape, x.dtype)

    def binary(self, uop: str, left: Operand, right: Operand) -> Value:
        """Elementwise with explicit broadcasting; at most one side is an immediate. Comparisons give bool."""
        typed = left if isinstance(left, Value) else right
        if not isinstance(typed, Value):
            raise TinycError(
                "InvalidArgument", f"both operands of {uop} are numbers", "compute it in Python", {"op": uop}
            )
        _check_dtype(uop, typed.dtype)
        sides = self._aligned(uop, typed, (left, right))
        shape = next(side.shape for side in sides if isinstance(side, Value))
        return self._emit(uop, sides, None, shape, DType.BOOL if uop in COMPARE else typed.dtype)

    def where(self, condition: Value, then: Operand, other: Operand) -> Value:
        typed = then if isinstance(then, Value) else other
        if not isinstance(typed, Value):
            raise TinycError(
                "InvalidArgument",
                "both choices of WHERE are numbers, so its dtype is open",
                "make one of them a tensor, for instance with full(shape, value, dtype)",
                {"op": "WHERE"},
            )
        if condition.dtype is not DType.BOOL:
            raise dtype_error("WHERE", condition.dtype, DType.BOOL)
        shape = broadcast_shapes(
            "WHERE", *(v.shape for v in (condition, then, other) if isinstance(v, Value))
        )
        picked = self.expand(condition, shape)
        sides = self._aligned("WHERE", typed, (then, other), shape)
        return self._emit("WHERE", (picked, *sides), None, shape, typed.dtype)

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self._emit("CAST", (x,), {"to": dtype.value}, x.shape, dtype)

    def reduce(self, x: Value, op: str, axes: Iterable[int], dtype: DType, keepdims: bool = False) -> Value:
        """``dtype``: of the accumulator and of the result (REDUCE's mandatory ``dtype``). No axes: a CAST."""
        order = sorted(axes)
        if not order:
            return self.cast(x, dtype)
        kept = tuple(dim for axis, dim in enumerate(x.shape) if axis not in order)
        arg = {"op": op, "axes": order, "dtype": dtype.value}
        value = self._emit("REDUCE", (x,), arg, kept, dtype)
        if keepdims:
            return self.reshape(value, [1 if axis in order else dim for axis, dim in enumerate(x.shape)])
        return value

    # -- inside

    def _emit(
        self, uop: str, src: Sequence[Operand], arg: dict[str, Any] | None, shape: Shape, dtype: DType
    ) -> Value:
        node: dict[str, Any] = {"id": f"n{len(self.nodes)}", "uop": uop}
        if src:
            node["src"] = [source.id if isinstance(source, Value) else source for source in src]
        if arg is not None:
            node["arg"] = arg
        self.nodes.append(node)
        return Value(node["id"], shape, dtype)

    def _aligned(
        self, uop: str, typed: Value, sides: Sequence[Operand], shape: Shape | None = None
    ) -> tuple[Operand, ...]:
        for side in sides:
            if isinstance(side, Value) and side.dtype is not typed.dtype:
                raise dtype_error(uop, side.dtype, typed.dtype)
        common = shape or broadcast_shapes(uop, *(side.shape for side in sides if isinstance(side, Value)))
        return tuple(
            self.expand(side, common) if isinstance(side, Value) else self._immediate(side, typed.dtype, uop)
            for side in sides
        )

    def _immediate(self, number: Imm, dtype: DType, uop: str) -> Imm:
        """The number as it goes into the document. A number that ``dtype`` cannot mean is a DTypeMismatch."""
        whole = int_or_none(number)
        if isinstance(number, int) and whole is not None and whole.bit_length() > _FLOAT_BITS:
            raise dtype_error(uop, f"an integer of {whole.bit_length()} bits", dtype)
        if dtype is DType.BOOL and not (isinstance(number, bool) or number in (0, 1)):
            raise dtype_error(uop, f"the number {number}", dtype)
        if dtype is DType.I32 and not (number == whole and _I32_MIN <= number <= _I32_MAX):
            raise dtype_error(uop, f"the number {number}", dtype)
        if dtype is DType.BOOL:
            return bool(number)
        return int(number) if dtype is DType.I32 else float(number)


def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """The right-aligned broadcast of the shapes; BroadcastMismatch where two sizes differ and neither is 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            if dim != 1 and result[axis] not in (1, dim):
                back = axis - rank  # from the right, where shapes are aligned
                other = next(one for one in shapes if len(one) >= -back and one[back] == result[axis])
                raise _broadcast_error(op, other, shape)
            result[axis] = dim if dim != 1 else result[axis]
    return tuple(result)


def dtype_named(name: str | DType, at: Mapping[str, object]) -> DType:
    """The DType of a name, or a DTypeMismatch that lists the names there are."""
    found = name if isinstance(name, DType) else parse_dtype(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(dtype.value for dtype in DType)
        raise TinycError("DTypeMismatch", f"{name!r} is not a dtype", f"use one of {known}", at)
    return found


def int_or_none(number: Imm) -> int | None:
    """The integer that equals ``number``; None for infinities, NaN and fractions."""
    try:
        return int(number) if int(number) == number else None
    except (OverflowError, ValueError):
        return None


def _check_dtype(uop: str, dtype: DType) -> None:
    if (uop in _FLOAT_ONLY and not dtype.is_float) or (uop in _NOT_ON_BOOL and dtype is DType.BOOL):
        raise TinycError(
            "DTypeMismatch",
            f"{uop} is not defined on {dtype}",
            "cast the operand to fp32 first"
            if dtype is not DType.BOOL
            else "cast the operand to i32 or fp32 first",
            {"layer": "frontend", "op": uop},
        )


def dtype_error(op: str, have: object, want: DType) -> TinycError:
    return TinycError(
        "DTypeMismatch",
        f"{op} meets {have} where it has {want}",
        f"cast one side; tinyc never casts by itself (x.cast({want.value!r}))",
        {"layer": "frontend", "op": op},
    )


def _broadcast_error(op: str, left: Sequence[Dim], right: Sequence[Dim]) -> TinycError:
    both = f"{show_shape(tuple(left))} and {show_shape(tuple(right))}"
    clash = [
        f"{a} against {b}"
        for a, b in zip(left[::-1], right[::-1], strict=False)
        if a != b and 1 not in (a, b)
    ]
    return TinycError(
        "BroadcastMismatch",
        f"shapes {both} do not broadcast{f', {clash[0]}' if clash else ''} (right-aligned, sizes equal or 1)",
        "reshape or slice one side so that the sizes agree",
        {"layer": "frontend", "op": op},
        lhs_shape=list(left),
        rhs_shape=list(right),
    )


def _at(uop: str, x: Value) -> dict[str, object]:
    return {"layer": "frontend", "op": uop, "node": x.id}
