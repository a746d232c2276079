"""The ``arg`` of a node in canonical form (see tiny.Node): read leniently, given back with one meaning each.

:func:`canonical_arg` is idempotent, so the verifier applies it to every node, wherever the node came from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import dims
from .diagnostics import TinycError, place, show, show_shape
from .dtypes import DType, parse_dtype
from .tiny import ARGS, REDUCE_OPS, Dim, Imm, Shape, TensorType

MAX_RANK = 16
MAX_ELEMENTS = 2**63 - 1
_NOT_NUMBERS = {"inf", "nan", "infinity"}
NON_FINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


class Reader:
    """Reads the values of one node's arg; knows the node, so that every message names it."""

    def __init__(self, id: str, uop: str) -> None:
        self.id, self.uop = id, uop

    def fail(self, kind: str, why: str, suggestion: str, **details: Any) -> TinycError:
        return TinycError(
            kind, f"{self.uop} {show(self.id)}: {why}", suggestion, place(self.id, self.uop), **details
        )

    def keys(self, arg: object, allowed: Sequence[str], required: Sequence[str]) -> Mapping[str, Any]:
        if not isinstance(arg, Mapping):
            raise self.fail("InvalidArgument", f"arg is {show(arg)}", "make arg an object {…}")
        for key in arg:
            if key not in allowed:
                listed = ", ".join(allowed) or "none"
                raise self.fail("InvalidArgument", f"arg has {show(key)}", f"this uop takes: {listed}")
        for key in required:
            if key not in arg:
                raise self.fail("InvalidArgument", f"arg lacks {key!r}", f"add {key!r} to arg")
        return arg

    def items(self, value: object, what: str, length: int | None = None) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.fail("InvalidArgument", f"{what} is {show(value)}", f"make {what} a list")
        if length is not None and len(value) != length:
            raise self.fail(
                "InvalidArgument",
                f"{what} has {len(value)} entries where the operand has rank {length}",
                f"give {what} one entry per axis of the operand",
            )
        return tuple(value)

    def integer(self, value: object, what: str) -> int:
        try:
            if isinstance(value, bool):
                raise TypeError
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            why = f"{what} is {show(value)}"
            raise self.fail("InvalidArgument", why, f"make {what} an integer") from None

    def expr(self, value: object, what: str) -> Dim:
        """An integer or an expression over symbols, of any sign."""
        if not isinstance(value, str):
            number = self._dim_int(value, what)
            if abs(number) > MAX_ELEMENTS:
                raise self.fail(
                    "InvalidShape", f"{what} {show(number)} is beyond 2^63-1", "use smaller sizes"
                )
            return number
        try:
            dim = dims.parse(value)
        except dims.DimError as error:
            raise self.fail("InvalidShape", f"{what} {show(value)}: {error}", _WRITE_DIM) from None
        for name in dims.names(dim):
            if name.lower() in _NOT_NUMBERS:
                raise self.fail("InvalidShape", f"{what} is {show(value)}, not a finite integer", _WRITE_DIM)
            if dims.is_axis(name):
                why = f"{what} {show(value)} uses {name!r}, which names an axis"
                raise self.fail("InvalidShape", why, "call the symbol something else than i0, i1, …")
        if isinstance(dim, int) and abs(dim) > MAX_ELEMENTS:
            raise self.fail("InvalidShape", f"{what} {show(value)} is beyond 2^63-1", "use smaller sizes")
        return dim

    def _dim_int(self, value: object, what: str) -> int:
        try:
            if isinstance(value, bool):
                raise TypeError
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            why = f"{what} is {show(value)}, not a finite integer or a symbol"
            raise self.fail("InvalidShape", why, _WRITE_DIM) from None

    def dim(self, value: object, what: str) -> Dim:
        """A size: evidently below 1 is an error; a symbolic size is checked again when it is bound."""
        dim = self.expr(value, what)
        most = dims.at_most(dim)
        if most is not None and most < 1:
            raise self.fail("InvalidShape", f"{what} is {dim}, below 1", "make every dimension at least 1")
        return dim

    def shape(self, value: object, what: str) -> Shape:
        if isinstance(value, str) or not isinstance(value, Sequence):
            why = f"{what} is {show(value)}"
            raise self.fail("InvalidShape", why, f'make {what} a list of integers and symbols, as [2, "M"]')
        if len(value) > MAX_RANK:
            raise self.fail(
                "InvalidShape", f"{what} has rank {len(value)}", f"use at most {MAX_RANK} dimensions"
            )
        shape = tuple(self.dim(dim, f"dimension {axis} of {what}") for axis, dim in enumerate(value))
        return self.checked(shape, what)

    def checked(self, shape: Shape, what: str) -> Shape:
        """``shape``, after the checks that a computed shape needs as well."""
        elements = 1
        for axis, dim in enumerate(shape):
            most = dims.at_most(dim)
            if most is not None and most < 1:
                why = f"dimension {axis} of {what} {show_shape(shape)} is {dim}, below 1"
                raise self.fail("InvalidShape", why, "make every dimension at least 1")
            elements *= dim if isinstance(dim, int) else 1
        if elements > MAX_ELEMENTS:
            why = f"{what} {show_shape(shape)} has more than 2^63-1 elements"
            raise self.fail("InvalidShape", why, "use smaller sizes")
        return shape

    def dtype(self, value: object, what: str) -> DType:
        dtype = value if isinstance(value, DType) else parse_dtype(value) if isinstance(value, str) else None
        if dtype is None:
            listed = ", ".join(each.value for each in DType)
            raise self.fail("InvalidArgument", f"{what} is {show(value)}", f"use one of {listed}")
        return dtype

    def number(self, value: object, what: str) -> Imm:
        """A finite or infinite number; the texts "inf", "-inf", "nan" mean themselves."""
        if isinstance(value, str) and value in NON_FINITE:
            return NON_FINITE[value]
        number = plain_number(value)
        if number is not None:
            return number
        raise self.fail("InvalidArgument", f"{what} is {show(value)}", f"make {what} a number")

    def axes(self, value: object, what: str, rank: int) -> tuple[int, ...]:
        """Non-negative axes, each once, in the order given."""
        axes: list[int] = []
        for entry in self.items(value, what):
            axis = self.integer(entry, f"an entry of {what}")
            if not -rank <= axis < rank:
                why = f"{what} names axis {show(axis)} of an operand of rank {rank}"
                raise self.fail("InvalidArgument", why, f"name axes from {-rank} to {rank - 1}")
            axes.append(axis % rank)
        if len(set(axes)) != len(axes):
            raise self.fail("InvalidArgument", f"{what} names an axis twice: {axes}", "name each axis once")
        return tuple(axes)


_WRITE_DIM = 'write an integer >= 1, a symbol such as "M", or an expression of + - * // over them'


def canonical_arg(id: str, uop: str, arg: object, operands: Sequence[TensorType]) -> dict[str, Any]:
    """The canonical arg of node ``id``, given the types of its operands (immediates left out).

    Raises TinycError InvalidArgument, InvalidShape, InvalidPermutation, AccDtypeMissing, BroadcastMismatch.
    """
    reader = Reader(id, uop)
    rule = _RULES.get(uop)
    if rule is None:
        reader.keys(arg, (), ())
        return {}
    return rule(reader, arg, operands[0].shape if operands else ())


def _input(read: Reader, arg: object, _: Shape) -> dict[str, Any]:
    arg = read.keys(arg, (*ARGS["INPUT"], "storage"), ARGS["INPUT"])
    tensor_id = arg["tensor_id"]
    if not isinstance(tensor_id, str) or not is_name(tensor_id):
        raise read.fail("InvalidArgument", f"tensor_id is {show(tensor_id)}", "use a short printable name")
    result = {
        "tensor_id": tensor_id,
        "dtype": read.dtype(arg["dtype"], "dtype"),
        "shape": read.shape(arg["shape"], "shape"),
    }
    if arg.get("storage") is not None:
        if not isinstance(arg["storage"], str):
            raise read.fail("InvalidArgument", f"storage is {show(arg['storage'])}", "make storage a text")
        result["storage"] = arg["storage"]
    return result


def _valid(read: Reader, arg: object, _: Shape) -> dict[str, Any]:
    arg = read.keys(arg, ARGS["VALID"], ARGS["VALID"])
    shape = read.shape(arg["result_shape"], "result_shape")
    return {"result_shape": shape, **{key: _exprs(read, arg[key], key, len(shape)) for key in ("lo", "hi")}}


def _reshape(read: Reader, arg: object, _: Shape) -> dict[str, Any]:
    arg = read.keys(arg, ARGS["RESHAPE"], ARGS["RESHAPE"])
    return {"result_shape": read.shape(arg["result_shape"], "result_shape")}


def _permute(read: Reader, arg: object, shape: Shape) -> dict[str, Any]:
    given = read.items(read.keys(arg, ARGS["PERMUTE"], ARGS["PERMUTE"])["perm"], "perm")
    rank = len(shape)
    perm = [read.integer(axis, "an entry of perm") for axis in given]
    axes = [axis + rank if axis < 0 else axis for axis in perm]
    if sorted(axes) != list(range(rank)):
        raise read.fail(
            "InvalidPermutation",
            f"perm {show(perm)} is no permutation of the {rank} axes of {show_shape(shape)}",
            f"name each of the axes 0 to {rank - 1} once" if rank else "use an empty perm",
        )
    return {"perm": tuple(axes)}


def _pad(read: Reader, arg: object, shape: Shape) -> dict[str, Any]:
    arg = read.keys(arg, ARGS["PAD"], ("pad",))
    given = read.items(arg["pad"], "pad")
    flat = given and not any(isinstance(entry, list | tuple) for entry in given)
    if flat and len(given) != 2 * len(shape):
        raise read.fail(
            "InvalidArgument",
            f"pad is a flat list of {len(given)} numbers where the operand has rank {len(shape)}",
            "write one [lo, hi] per axis, as [[0, 0], [1, 1]]",
        )
    pairs = [given[at : at + 2] for at in range(0, len(given), 2)] if flat else given
    if len(pairs) != len(shape):
        why = f"pad has {len(pairs)} pairs where the operand {show_shape(shape)} has rank {len(shape)}"
        raise read.fail("InvalidArgument", why, "write one [lo, hi] per axis")
    pad = []
    for axis, pair in enumerate(pairs):
        both = read.items(pair, f"pad of axis {axis}")
        if len(both) != 2:
            raise read.fail("InvalidArgument", f"pad of axis {axis} is {show(pair)}", "write [lo, hi]")
        sides = tuple(read.expr(side, f"pad of axis {axis}") for side in both)
        for side in sides:
            most = dims.at_most(side)
            if most is not None and most < 0:
                raise read.fail("InvalidArgument", f"pad of axis {axis} is {side}", "use SHRINK to cut")
        pad.append(sides)
    return {"pad": tuple(pad), "value": read.number(arg.get("value", 0), "value")}


def _shrink(read: Reader, arg: object, shape: Shape) -> dict[str, Any]:
    arg = read.keys(arg, ARGS["SHRINK"], ("lo", "hi"))
    rank = len(shape)
    lo, hi = (_exprs(read, arg[key], key, rank) for key in ("lo", "hi"))
    given = arg.get("step")
    listed = (1,) * rank if given is None else read.items(given, "step", rank)
    step = tuple(read.integer(each, "an entry of step") for each in listed)
    for axis, (low, high, by, size) in enumerate(zip(lo, hi, step, shape, strict=True)):
        if by < 1 or by > MAX_ELEMENTS:
            raise read.fail("InvalidArgument", f"step of axis {axis} is {show(by)}", "use a step >= 1")
        least, room, extent = dims.at_most(low), dims.sub(size, high), dims.sub(high, low)
        outside = (least is not None and least < 0) or (isinstance(room, int) and room < 0)
        if outside or (isinstance(extent, int) and extent < 1):
            raise read.fail(
                "InvalidArgument",
                f"lo {low}, hi {high} of axis {axis} do not lie within the operand's size {size}",
                "choose 0 <= lo < hi <= size (hi is exclusive)",
            )
    return {"lo": lo, "hi": hi, "step": step}


def _flip(read: Reader, arg: object, shape: Shape) -> dict[str, Any]:
    arg = read.keys(arg, ARGS["FLIP"], ARGS["FLIP"])
    return {"axes": tuple(sorted(read.axes(arg["axes"], "axes", len(shape))))}


def _view(read: Reader, arg: object, shape: Shape) -> dict[str, Any]:
    arg = read.keys(arg, ARGS["VIEW"], ())
    if not arg:  # the identity (I-23)
        return {"result_shape": shape, "index_map": tuple(f"i{axis}" for axis in range(len(shape)))}
    arg = read.keys(arg, ARGS["VIEW"], ARGS["VIEW"])
    result = read.shape(arg["result_shape"], "result_shape")
    given = arg["index_map"]
    if isinstance(given, Mapping):
        given = read.keys(given, ("map",), ("map",))["map"]
    entries = read.items(given, "index_map", len(shape))
    return {"result_shape": result, "index_map": tuple(_entry(read, e, len(result)) for e in entries)}


def _entry(read: Reader, value: object, rank: int) -> str:
    if not isinstance(value, str):
        return str(read.expr(value, "an entry of index_map"))
    try:
        entry = dims.parse(value)
        dims.check_affine(entry)
    except dims.DimError as error:
        why = f"index_map entry {show(value)}: {error}"
        if "%" in value:
            raise read.fail("MissingDivGuard", why, "write E % q as E - q*(E//q)") from None
        raise read.fail("InvalidArgument", why, "write an affine expression, as 2*i0+i1 or i0//2") from None
    for name in sorted(dims.names(entry)):
        if dims.is_axis(name) and int(name[1:]) >= rank:
            why = f"index_map entry {show(value)} uses {name} where the result has rank {rank}"
            raise read.fail("InvalidArgument", why, "name the axes of the result i0, i1, …")
    if isinstance(entry, int):
        read.expr(entry, "an entry of index_map")
    return str(entry)


def _cast(read: Reader, arg: object, _: Shape) -> dict[str, Any]:
    return {"to": read.dtype(read.keys(arg, ARGS["CAST"], ARGS["CAST"])["to"], "to")}


def _expand(read: Reader, arg: object, _: Shape) -> dict[str, Any]:
    arg = read.keys(arg, ARGS["EXPAND"], ARGS["EXPAND"])
    return {"result_shape": read.shape(arg["result_shape"], "result_shape")}


def _reduce(read: Reader, arg: object, shape: Shape) -> dict[str, Any]:
    arg = read.keys(arg, (*ARGS["REDUCE"], "acc_dtype"), ("op", "axes"))
    op = arg["op"].upper() if isinstance(arg["op"], str) else arg["op"]
    if op not in REDUCE_OPS:
        raise read.fail("InvalidArgument", f"op is {show(arg['op'])}", f"use one of {', '.join(REDUCE_OPS)}")
    given = arg.get("dtype", arg.get("acc_dtype"))
    if given is None:
        why = "REDUCE needs the dtype to accumulate in"
        raise read.fail("AccDtypeMissing", why, 'add "dtype": "fp32" to arg')
    named = [_named_axis(read, axis, shape) for axis in read.items(arg["axes"], "axes")]
    if not named:
        raise read.fail("InvalidArgument", "axes is empty", "name the axes to reduce, or use CAST")
    axes = tuple(sorted(read.axes(named, "axes", len(shape))))
    init = arg.get("init")
    return {
        "op": op,
        "axes": axes,
        "dtype": read.dtype(given, "dtype"),
        "init": None if init is None else read.number(init, "init"),
    }


def _named_axis(read: Reader, value: object, shape: Shape) -> object:
    """An axis named by its symbolic size (I-12): exactly one dimension must match, else in any case of letters."""
    if not isinstance(value, str):
        return value
    wanted = str(read.expr(value, "an entry of axes"))
    exact = [axis for axis, dim in enumerate(shape) if dim == wanted]
    loose = [axis for axis, dim in enumerate(shape) if isinstance(dim, str) and dim.lower() == wanted.lower()]
    found = exact or loose
    if len(found) != 1:
        why = f"axis {show(value)} matches {len(found)} dimensions of {show_shape(shape)}"
        raise read.fail("InvalidArgument", why, "name the axis by its number")
    return found[0]


def _exprs(read: Reader, value: object, what: str, rank: int) -> tuple[Dim, ...]:
    return tuple(read.expr(each, f"an entry of {what}") for each in read.items(value, what, rank))


def plain_number(value: object) -> Imm | None:
    """``value`` as a bool, int or float of Python (numpy scalars too); None for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else None


def is_name(text: str) -> bool:
    """Whether a text may name a node or a tensor."""
    return 0 < len(text) <= 256 and text.isprintable() and text not in NON_FINITE


_RULES: Mapping[str, Callable[[Reader, object, Shape], dict[str, Any]]] = {
    "INPUT": _input,
    "VALID": _valid,
    "RESHAPE": _reshape,
    "PERMUTE": _permute,
    "EXPAND": _expand,
    "PAD": _pad,
    "SHRINK": _shrink,
    "FLIP": _flip,
    "VIEW": _view,
    "CAST": _cast,
    "REDUCE": _reduce,
}
