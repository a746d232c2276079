"""Expressions of a Region's lets, read from JSON (document 004 §6.3, §6.8).

Nothing is repaired: where operands lack a BroadcastInDim, a Transpose or a cast the text is refused (§6.4, I-32, I-36).
Views are checked and then looked through, so that what is read is a Region in point form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .args import NON_FINITE
from .diagnostics import show
from .dtypes import HALF, DType, from_bits
from .explicit import is_loadable, is_positional, occurring
from .index import Affine
from .infer import computes
from .region import (
    Axis,
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Select,
    Stream,
    Unary,
    Value,
    Within,
    operands,
)
from .region_fields import (
    anonymous_name,
    bit_pattern,
    check_init,
    check_keys,
    constant_bits,
    dtype_or_none,
    operation,
    read_dtype,
    refused,
)
from .region_index import is_guard, read_guards, read_index
from .region_meet import Operand, Place, meet, peek_dtype, transposed, widened
from .tiny import BINARY, COMPARE, OPERATORS, REDUCE_OPS

LOG2E = 1.4426950408889634
#: the dtypes that hold every value of a narrower one (I-08)
WIDER = {DType.FP16: (DType.FP32,), DType.BF16: (DType.FP32,)}


@dataclass
class ExprReader:
    """Reads the expressions of one Region in order; ``lets`` grows.

    ``sizes``: of every axis, iters first. ``symbols``: numbers for names in indices. ``given``: the names that the text
    gives to lets; a value without one is called after its place: ``v3`` is the fourth let. ``shared``: two Reduces
    bind one axis, as text may and a Region may not (``region_fresh``).
    """

    refs: Mapping[str, MemRef]
    iters: tuple[str, ...]
    sizes: Mapping[str, int]
    symbols: Mapping[str, int]
    given: Collection[str]
    lets: list[Let] = field(default_factory=list)
    known: dict[str, Operand] = field(default_factory=dict)
    constants: dict[tuple[DType, int], str] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    shared: bool = False

    # ---- lets ----

    def let(self, name: str, value: object, path: str, declared: DType | None) -> None:
        """Reads ``{"let": name, "expr": value}``."""
        if name in self.known:
            raise refused(path, f"two lets are called {name}", "give each let its own name", "DuplicateId")
        if isinstance(value, dict):
            made = self.expr(value, path, name)
        else:
            if isinstance(value, str) and value not in NON_FINITE:
                raise refused(path, f"{name} is only another name", f"use {show(value)} itself")
            if declared is None:
                raise refused(path, f"{name} is {show(value)}", "say which dtype the constant has")
            made = self.constant(value, declared, path, name)
        self.known[name] = made
        if declared is not None and declared is not made.dtype:
            why = f"{name} is declared {declared} and computed in {made.dtype}"
            raise refused(path, why, "insert a cast, or leave dtype out", "DTypeMismatch")

    def emit(self, dtype: DType, value: Value, axes: tuple[Place, ...], name: str | None = None) -> Operand:
        positional = {each for each in operands(value) if self.known[each].positional}
        loadable = {each for each in operands(value) if self.known[each].loadable}
        let = name or anonymous_name(len(self.lets), self.given)
        self.lets.append(Let(let, dtype, value))
        made = Operand(
            let,
            dtype,
            axes,
            is_loadable(value, positional, loadable),
            is_positional(dtype, value, positional),
        )
        self.known[let] = made
        return made

    # ---- operands ----

    def operand(self, value: object, path: str, like: DType | None = None) -> Operand:
        """An expression, the name of a let, or a bare number of dtype ``like``."""
        if isinstance(value, dict):
            return self.expr(value, path)
        if isinstance(value, str) and value.lower() not in NON_FINITE:
            found = self.known.get(value)
            if found is None:
                why = f"there is no let {show(value)} before it"
                raise refused(path, why, "name a let that stands before, or write a Read", "UnknownReference")
            return found
        if like is None:
            why = f"the dtype of the constant {show(value)} is not known"
            raise refused(path, why, 'write {"const": …, "dtype": …}', "DTypeMismatch")
        return self.constant(value, like, path)

    def several(self, values: list[Any], path: str) -> list[Operand]:
        """Operands of one dtype; that of a bare number is read off the others."""
        kinds = (self.peek(each) for each in values)
        like = next((kind for kind in kinds if kind is not None), None)
        return [self.operand(each, f"{path}[{number}]", like) for number, each in enumerate(values)]

    def peek(self, value: object) -> DType | None:
        return peek_dtype(value, self.refs, self.known)

    def constant(self, value: object, dtype: DType, path: str, name: str | None = None) -> Operand:
        """A number; one that has no name of its own is there once."""
        return self._constant(constant_bits(value, dtype, path), dtype, name)

    def _constant(self, bits: int, dtype: DType, name: str | None) -> Operand:
        if name is None and (dtype, bits) in self.constants:
            return self.known[self.constants[dtype, bits]]
        made = self.emit(dtype, Const(bits), (), name)
        if name is None:
            self.constants[dtype, bits] = made.let
        return made

    # ---- expressions ----

    def expr(self, value: dict[str, Any], path: str, name: str | None = None) -> Operand:
        if "const" in value:
            return self._const(value, path, name)
        if len(value) != 1:
            raise refused(path, f"an expression has the keys {show(list(value))}", "give one operation")
        ((op, given),) = value.items()
        inner = f"{path}.{op}" if isinstance(op, str) and op.isidentifier() else path
        if is_guard(value):
            return self._guards(value, path, name)
        forms: Mapping[str, Callable[[dict[str, Any], str, str | None], Operand]] = {
            "read": self._read,
            "cast": self._cast,
            "select": self._select,
            "reduce": self._reduce,
            "stream": self._stream,
            "BroadcastInDim": self._broadcast,
            "Transpose": self._transpose,
        }
        if op in forms:
            return forms[op](given, inner, name)
        parts = given if isinstance(given, list) else [given]
        found = operation(op)
        if op == "exp" or found in OPERATORS:
            if len(parts) != 1:
                raise refused(inner, f"{op} of {len(parts)} operands", "give one operand")
            return self._unary(op, found, parts, inner, name)
        if found in (*BINARY, *COMPARE):
            if len(parts) != 2:
                raise refused(inner, f"{op} of {len(parts)} operands", "give two operands")
            return self._binary(found, parts, inner, name)
        listed = ", ".join((*forms, "and", *(each.lower() for each in (*OPERATORS, *BINARY, *COMPARE))))
        raise refused(path, f"there is no operation {show(op)}", f"use one of {listed}")

    def _const(self, value: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(value, path, ("const", "dtype"), ("bits",))
        dtype = read_dtype(value["dtype"], f"{path}.dtype")
        if "bits" not in value:
            return self.constant(value["const"], dtype, f"{path}.const", name)
        if value["const"] != "nan" or not dtype.is_float:
            why = f"the constant {show(value['const'])} has bits"
            raise refused(f"{path}.bits", why, "give bits to a NaN alone")
        return self._constant(bit_pattern(value["bits"], dtype, f"{path}.bits"), dtype, name)

    def _read(self, given: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(given, path, ("tensor", "map"))
        tensor, index_map = given["tensor"], given["map"]
        if not isinstance(tensor, str) or tensor not in self.refs:
            why = f"there is no input {show(tensor)}"
            raise refused(f"{path}.tensor", why, "declare it under inputs", "UnknownReference")
        ref = self.refs[tensor]
        if not isinstance(index_map, list) or len(index_map) != len(ref.shape):
            why = f"{tensor} has {len(ref.shape)} axes, and its map is {show(index_map)}"
            raise refused(
                f"{path}.map", why, "give one index per axis of the buffer", "AxisAlignmentMismatch"
            )
        indices = tuple(
            read_index(each, f"{path}.map[{n}]", self.sizes, self.symbols) for n, each in enumerate(index_map)
        )
        return self.emit(ref.dtype, Read(tensor, indices), self._places(*indices), name)

    def _places(self, *indices: Affine) -> tuple[Place, ...]:
        return tuple((axis, self.sizes[axis]) for axis in occurring(*indices))

    def _cast(self, given: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(given, path, ("operand", "to"))
        to = read_dtype(given["to"], f"{path}.to")
        x = self.operand(given["operand"], f"{path}.operand")
        return self.emit(to, Cast(x.let), x.axes, name)

    def _unary(self, op: str, found: str, parts: list[Any], path: str, name: str | None) -> Operand:
        where = f"{path}[0]"
        x = self.operand(parts[0], where)
        self._computes("EXP2" if op == "exp" else found, x.dtype, path)
        if op != "exp":
            return self.emit(x.dtype, Unary(found, x.let), x.axes, name)
        scaled = Binary("MUL", x.let, self.constant(LOG2E, x.dtype, where).let)
        return self.emit(x.dtype, Unary("EXP2", self.emit(x.dtype, scaled, x.axes).let), x.axes, name)

    def _binary(self, found: str, parts: list[Any], path: str, name: str | None) -> Operand:
        x, y = self.several(parts, path)
        axes = self.meet([x, y], path)
        if x.dtype is not y.dtype:
            why = f"its operands are {x.dtype} and {y.dtype}"
            raise refused(path, why, "insert a cast: nothing is converted by itself", "DTypeMismatch")
        self._computes(found, x.dtype, path)
        return self.emit(DType.BOOL if found in COMPARE else x.dtype, Binary(found, x.let, y.let), axes, name)

    def _computes(self, op: str, dtype: DType, path: str) -> None:
        if not computes(op, dtype):
            raise refused(path, f"there is no {op} on {dtype}", "cast the operands first", "DTypeMismatch")

    def _select(self, given: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(given, path, ("pred", "then", "else"))
        pred = given["pred"]
        if is_guard(pred):
            found = read_guards(pred, f"{path}.pred", self.sizes, self.symbols)
            guards = [self._guard(each) for each in found]
        else:
            guards = [self.operand(pred, f"{path}.pred", DType.BOOL)]
        like = self.peek(given["then"]) or self.peek(given["else"])
        then = self.operand(given["then"], f"{path}.then", like)
        other = self.operand(given["else"], f"{path}.else", like)
        if guards[0].dtype is not DType.BOOL or then.dtype is not other.dtype:
            why = f"{guards[0].dtype} selects between {then.dtype} and {other.dtype}"
            raise refused(
                path, why, "select by a bool between values of one dtype: cast one", "DTypeMismatch"
            )
        for number, cond in enumerate(reversed(guards), 1):
            axes = self.meet([cond, then, other], path)
            chosen = Select(cond.let, then.let, other.let)
            then = self.emit(then.dtype, chosen, axes, name if number == len(guards) else None)
        return then

    def _guard(self, guard: tuple[Affine, int, int], name: str | None = None) -> Operand:
        index, low, high = guard
        return self.emit(DType.BOOL, Within(index, low, high), self._places(index), name)

    def _guards(self, value: object, path: str, name: str | None) -> Operand:
        guards = read_guards(value, path, self.sizes, self.symbols)
        total = self._guard(guards[0], name if len(guards) == 1 else None)
        for number, each in enumerate(guards[1:], 2):
            part = self._guard(each)
            both = Binary("MIN", total.let, part.let)
            axes = self.meet([total, part], path)
            total = self.emit(DType.BOOL, both, axes, name if number == len(guards) else None)
        return total

    # ---- reductions ----

    def _bind(self, given: object, path: str) -> tuple[Axis, ...]:
        if not isinstance(given, list) or not given:
            raise refused(path, f"it reduces {show(given)}", "list the axes that it reduces")
        axes: list[Axis] = []
        for number, each in enumerate(given):
            name = each.get("name") if isinstance(each, dict) else each
            where = f"{path}[{number}]"
            if not isinstance(name, str) or name not in self.sizes:
                raise refused(where, f"there is no axis {show(name)}", "declare it under reduce_axes")
            if name in self.iters:
                why = f"{name} is an axis of the output and a reduce axis"
                suggestion = "bind a fresh axis and compute the body over it"
                raise refused(where, why, suggestion, "AxisAlignmentMismatch")
            if any(axis.name == name for axis in axes):
                raise refused(where, f"{name} is named twice", "name each axis once")
            axes.append(Axis(name, self.sizes[name]))
        return tuple(axes)

    def _once(self, axes: tuple[Axis, ...], by: str, path: str) -> None:
        """An axis is bound by one Reduce or by Streams over one score. Where Reduces share one, ``shared`` says so."""
        for axis in axes:
            self.shared |= self.bound.get(axis.name) == "Reduce" == by
            other = self.bound.setdefault(axis.name, by)
            if other != by:
                why = f"{axis.name} is bound twice"
                raise refused(path, why, "let the stream bind an axis of its own", "AxisAlignmentMismatch")

    def _reduce(self, given: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(given, path, ("op", "axes", "body"), ("init", "dtype"))
        op = given["op"].upper() if isinstance(given["op"], str) else ""
        if op not in REDUCE_OPS:
            if operation(given["op"]) in (*BINARY, *COMPARE):
                why = f"{given['op']} does not associate: a sum in another order is another value"
                suggestion = "reduce with sum, prod, max or min, and apply the rest outside"
                raise refused(f"{path}.op", why, suggestion, "NonAssociativeTransform")
            raise refused(
                f"{path}.op", f"there is no reduction {show(given['op'])}", "use sum, prod, max or min"
            )
        if "dtype" not in given:
            why = "the dtype in which it accumulates is not given"
            raise refused(path, why, 'add "dtype": "fp32"', "AccDtypeMissing")
        dtype = read_dtype(given["dtype"], f"{path}.dtype")
        axes = self._bind(given["axes"], f"{path}.axes")
        if dtype is DType.BOOL and op in ("SUM", "PROD"):
            raise refused(
                path, f"{op} cannot accumulate in bool", "use i32 or a float dtype", "DTypeMismatch"
            )
        if "init" in given:
            check_init(given["init"], op, dtype, f"{path}.init")
        body = self._body(given["body"], op, dtype, f"{path}.body")
        if body.dtype is not dtype:
            why = f"it accumulates {body.dtype} elements in {dtype}"
            raise refused(f"{path}.body", why, f"cast the body to {dtype}", "DTypeMismatch")
        made = self.emit(dtype, Reduce(op, axes, body.let), self._without(axes, body, path), name)
        self._once(axes, "Reduce", f"{path}.axes")
        return made

    def _body(self, value: object, op: str, dtype: DType, path: str) -> Operand:
        """The body. A product that is written in place is computed in the dtype that a SUM accumulates in (I-08)."""
        parts = value.get("mul") if isinstance(value, dict) and len(value) == 1 else None
        if op != "SUM" or not isinstance(parts, list) or len(parts) != 2:
            return self.operand(value, path, dtype)
        if dtype not in WIDER.get(self.peek(value) or dtype, ()):
            return self.operand(value, path, dtype)
        found = []
        for number, each in enumerate(parts):
            part = self.operand(each, f"{path}.mul[{number}]", self.peek(value))
            if dtype in WIDER.get(part.dtype, ()):
                part = self.emit(dtype, Cast(part.let), part.axes)
            found.append(part)
        x, y = found
        if x.dtype is not y.dtype:
            raise refused(path, f"its operands are {x.dtype} and {y.dtype}", "insert a cast", "DTypeMismatch")
        return self.emit(x.dtype, Binary("MUL", x.let, y.let), self.meet(found, path))

    def _stream(self, given: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(given, path, ("axes", "score", "weight", "scale"), ("dtype", "rounded"))
        axes = self._bind(given["axes"], f"{path}.axes")
        score, weight, scale = (
            self.operand(given[key], f"{path}.{key}", DType.FP32) for key in ("score", "weight", "scale")
        )
        kinds = {score.dtype, weight.dtype, scale.dtype}
        if kinds != {DType.FP32} or dtype_or_none(given.get("dtype", "fp32")) is not DType.FP32:
            why = f"it works on {', '.join(sorted(kind.value for kind in kinds))}"
            raise refused(path, why, "cast score and weight to fp32, and give scale in fp32", "DTypeMismatch")
        value = next(let.value for let in self.lets if let.name == scale.let)
        factor = from_bits(value.bits, DType.FP32) if isinstance(value, Const) else -1
        if not 0 < factor < math.inf:
            why = f"its scale is {show(given['scale'])}: the running maximum bounds nothing then"
            suggestion = "use a positive constant as scale, and negate the score where it must be negative"
            raise refused(f"{path}.scale", why, suggestion, "NonAssociativeTransform")
        rounded = dtype_or_none(given.get("rounded"))
        if "rounded" in given and rounded not in HALF:
            why = f"its exponentials are rounded to {show(given['rounded'])}"
            raise refused(
                f"{path}.rounded", why, "round them to fp16 or bf16, or leave the key out", "DTypeMismatch"
            )
        over = {axis for part in (score, weight) for axis, _ in part.axes} - {axis.name for axis in axes}
        free = tuple((axis, size) for axis, size in self.sizes.items() if axis in over)
        made = self.emit(DType.FP32, Stream(axes, score.let, weight.let, scale.let, rounded), free, name)
        self._once(axes, f"{[axis.name for axis in axes]} of {score.let}", f"{path}.axes")
        return made

    def _without(self, axes: tuple[Axis, ...], body: Operand, path: str) -> tuple[Place, ...]:
        """The axes that are left of a reduction's body. A view may have given it a reduce axis that has no name."""
        names = tuple((axis.name, axis.size) for axis in axes)
        met = body.axes
        if not set(names) <= set(met):
            met = self.meet([body, Operand("", body.dtype, names, positional=True)], path)
        return tuple(place for place in met if place not in names)

    # ---- axes ----

    def _broadcast(self, given: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(given, path, ("operand", "result_shape", "broadcast_dimensions"))
        x = self.operand(given["operand"], f"{path}.operand")
        shape, where = given["result_shape"], f"{path}.result_shape"
        if not isinstance(shape, list):
            raise refused(where, f"result_shape is {show(shape)}", "give a list of sizes")
        sizes = [self._size(each, f"{where}[{number}]") for number, each in enumerate(shape)]
        return self._seen(x, widened(x, sizes, given["broadcast_dimensions"], path), name)

    def _size(self, value: object, path: str) -> int:
        index = read_index(value, path, {}, self.symbols)
        if index.terms or index.const < 1:
            raise refused(path, f"a size is {show(value)}", "use sizes from 1 on", "InvalidShape")
        return index.const

    def _transpose(self, given: dict[str, Any], path: str, name: str | None) -> Operand:
        check_keys(given, path, ("operand", "permutation"))
        x = self.operand(given["operand"], f"{path}.operand")
        return self._seen(x, transposed(x, given["permutation"], f"{path}.permutation"), name)

    def _seen(self, x: Operand, axes: tuple[Place, ...], name: str | None) -> Operand:
        """``x`` over other axes: a view is no let of its own, its name is another one for ``x``."""
        seen = replace(x, axes=axes, loadable=False, positional=False)
        if name is not None:
            self.known[name] = seen
        return seen

    def meet(self, parts: list[Operand], path: str) -> tuple[Place, ...]:
        return meet(parts, path, self.iters, self.sizes)
