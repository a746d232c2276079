"""Looser operations, written out on import as movement, MUL and REDUCE (I-07, I-11, I-13, I-19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from . import dims
from .args import Reader
from .diagnostics import show, show_shape
from .dtypes import DType
from .tiny import Dim, Imm, Shape, TensorType


class Builder(Protocol):
    """What canonical.Builder gives."""

    types: dict[str, TensorType]

    def fresh(self, wanted: str, /) -> str: ...

    def emit(
        self,
        id: str,
        uop: str,
        src: Sequence[str | Imm],
        arg: Mapping[str, Any] | None = None,
        tag: str | None = None,
    ) -> str: ...


def expand(
    builder: Builder, id: str, source: str, arg: Mapping[str, Any]
) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Source and arg of the canonical EXPAND ``id``, whose operand has the result's rank (I-07).

    ``broadcast_dimensions``, one per axis of the operand: operand axis k is result axis bd[k]. Fewer, with an
    operand of the result's rank: the kept axes; the others have size 1. Absent: aligned at the right.
    """
    read = Reader(id, "EXPAND")
    arg = read.keys(arg, ("result_shape", "broadcast_dimensions"), ("result_shape",))
    result = read.shape(arg["result_shape"], "result_shape")
    shape = builder.types[source].shape
    given = arg.get("broadcast_dimensions")
    if given is None:
        axes = tuple(range(len(result) - len(shape), len(result)))
    else:
        axes = tuple(read.integer(axis, "an entry of broadcast_dimensions") for axis in _list(read, given))
    wrong = len(shape) > len(result) or any(not 0 <= axis < len(result) for axis in axes)
    if wrong or len(set(axes)) != len(axes):
        raise _mismatch(read, shape, result, given)
    if len(axes) != len(shape):
        dropped = set(range(len(result))) - set(axes)
        if len(shape) != len(result) or any(shape[axis] != 1 for axis in dropped):
            raise _mismatch(read, shape, result, given)
        axes = tuple(range(len(result)))
    if list(axes) != sorted(axes):
        perm = sorted(range(len(axes)), key=axes.__getitem__)
        source = builder.emit(builder.fresh(f"{id}.permute"), "PERMUTE", (source,), {"perm": perm})
        shape, axes = builder.types[source].shape, tuple(sorted(axes))
    if len(shape) != len(result):
        full: list[Dim] = [1] * len(result)
        for axis, dim in zip(axes, shape, strict=True):
            full[axis] = dim
        source = builder.emit(builder.fresh(f"{id}.reshape"), "RESHAPE", (source,), {"result_shape": full})
    return (source,), {"result_shape": result}


def broadcast(builder: Builder, id: str, uop: str, src: Sequence[str | Imm]) -> tuple[str | Imm, ...]:
    """Sources of equal shapes: EXPANDs are put before those that lack axes or have size 1, aligned at the right.

    An operand that fits the leading axes of the result as well as the trailing ones is an error (I-18): a row of
    statistics that lost its reduced axis would be paired with the wrong axis.
    """
    read = Reader(id, uop)
    shapes = [builder.types[source].shape for source in src if isinstance(source, str)]
    result: Shape = ()
    for shape in shapes:
        rank = max(len(shape), len(result))
        left, right = ((1,) * (rank - len(each)) + each for each in (result, shape))
        if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
            raise _mismatch(read, result, shape, None)
        result = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    sources: list[str | Imm] = []
    for at, source in enumerate(src):
        shape = builder.types[source].shape if isinstance(source, str) else result
        if not isinstance(source, str) or shape == result:
            sources.append(source)
            continue
        if 0 < len(shape) < len(result) and any(dim != 1 for dim in shape) and result[: len(shape)] == shape:
            raise read.fail(
                "BroadcastMismatch",
                f"{show_shape(shape)} fits the first and the last axes of {show_shape(result)}",
                "say which with RESHAPE and EXPAND",
                lhs_shape=list(result),
                rhs_shape=list(shape),
            )
        made = builder.fresh(f"{id}.expand{at}")
        inner, arg = expand(builder, made, source, {"result_shape": result})
        sources.append(builder.emit(made, "EXPAND", inner, arg))
    return tuple(sources)


def pool(builder: Builder, id: str, source: str, arg: Mapping[str, Any], tag: str | None) -> str:
    """Windows over the last axes: [..., H, W] -> [..., Oy, Ox, Kh, Kw], as one VIEW (I-13).

    ``kernel``, ``stride`` and ``dilation`` (both 1 where absent): one entry per windowed axis.
    ``Oy = (H - Dh*(Kh-1) - 1) // Sh + 1``; a window larger than its axis is an error.
    """
    read = Reader(id, "POOL")
    arg = read.keys(arg, ("kernel", "stride", "dilation"), ("kernel",))
    shape = builder.types[source].shape
    kernel = [read.dim(size, "an entry of kernel") for size in read.items(arg["kernel"], "kernel")]
    count = len(kernel)
    if not 0 < count <= len(shape):
        why = f"kernel {show(kernel)} has {count} entries where the operand is {show_shape(shape)}"
        raise read.fail("InvalidArgument", why, "give one entry per windowed axis")
    stride = _steps(read, arg, "stride", count)
    dilation = _steps(read, arg, "dilation", count)
    lead = len(shape) - count
    out: list[Dim] = []
    entries = [f"i{axis}" for axis in range(lead)]
    for at in range(count):
        reach = dims.mul(dilation[at], dims.sub(kernel[at], 1))
        room = dims.sub(dims.sub(shape[lead + at], reach), 1)
        if isinstance(room, int) and room < 0:
            why = f"a window of {dims.add(reach, 1)} does not fit the axis of size {shape[lead + at]}"
            raise read.fail("InvalidArgument", why, "use a smaller kernel or PAD the operand")
        by = stride[at]
        if not isinstance(by, int):
            raise read.fail("InvalidArgument", f"stride is {by}", "make the stride an integer")
        out.append(dims.add(dims.floordiv(room, by), 1))
        entries.append(f"({by})*i{lead + at}+({dilation[at]})*i{lead + count + at}")
    result = [*shape[:lead], *out, *kernel]
    return builder.emit(id, "VIEW", (source,), {"result_shape": result, "index_map": {"map": entries}}, tag)


_CONTRACT = (
    "lhs_idx",
    "rhs_idx",
    "out_idx",
    "reduce_idx",
    "pattern",
    "strides",
    "dilations",
    "dtype",
    "acc_dtype",
)


def contract(
    builder: Builder, id: str, src: Sequence[str], arg: Mapping[str, Any], tag: str | None, dtype: Any
) -> str:
    """A product summed over ``reduce_idx``: movement, MUL and REDUCE(SUM) (I-11).

    The dtype to accumulate in is ``dtype`` or ``acc_dtype``, else fp32 (i32 for i32 operands). Where an
    operand has fewer axes than names, its last axes are first windowed (conv2d): by the sizes that the other
    operand has for the last names.
    """
    read = Reader(id, "CONTRACT")
    arg = read.keys(arg, _CONTRACT, ("lhs_idx", "rhs_idx", "out_idx"))
    lhs, rhs, out = (_names(read, arg[key], key) for key in ("lhs_idx", "rhs_idx", "out_idx"))
    rest = [name for name in dict.fromkeys((*lhs, *rhs)) if name not in out]
    summed = _names(read, arg.get("reduce_idx", rest), "reduce_idx")
    if sorted(summed) != sorted(rest) or not set(out) <= {*lhs, *rhs} or not summed:
        why = (
            f"out_idx {show(out)} and reduce_idx {show(summed)} do not divide the names {show([*lhs, *rhs])}"
        )
        raise read.fail("InvalidArgument", why, "put every name of an operand into exactly one of the two")
    left = _windowed(builder, read, id, "lhs", src[0], lhs, src[1], rhs, arg)
    right = _windowed(builder, read, id, "rhs", src[1], rhs, src[0], lhs, arg)
    order = [*out, *summed]
    sizes: dict[str, Dim] = {}
    for source, names in ((left, lhs), (right, rhs)):
        shape = builder.types[source].shape
        if len(shape) != len(names):
            why = f"the operand {show(source)} is {show_shape(shape)} and its names are {show(names)}"
            raise read.fail("InvalidArgument", why, "give one name per axis")
        for name, dim in zip(names, shape, strict=True):
            if sizes.setdefault(name, dim) != dim:
                why = f"axis {name!r} has the sizes {sizes[name]} and {dim}"
                raise read.fail("AxisSizeMismatch", why, "make the sizes equal")
    full = [sizes[name] for name in order]
    factors = [
        _aligned(builder, id, side, source, names, order, full)
        for side, source, names in (("lhs", left, lhs), ("rhs", right, rhs))
    ]
    product = builder.emit(builder.fresh(f"{id}.product"), "MUL", factors)
    wide = DType.I32 if builder.types[product].dtype is DType.I32 else DType.FP32
    wanted = arg.get("dtype", arg.get("acc_dtype", dtype))
    axes = list(range(len(out), len(order)))
    into = {"op": "SUM", "axes": axes, "dtype": wide if wanted is None else wanted}
    return builder.emit(id, "REDUCE", (product,), into, tag)


def _windowed(
    builder: Builder,
    read: Reader,
    id: str,
    side: str,
    source: str,
    names: list[str],
    other: str,
    other_names: list[str],
    arg: Mapping[str, Any],
) -> str:
    shape = builder.types[source].shape
    count = len(names) - len(shape)
    if count <= 0:
        return source
    sizes = dict(zip(other_names, builder.types[other].shape, strict=False))
    if 2 * count > len(names) or any(name not in sizes for name in names[-count:]):
        why = f"{show(source)} is {show_shape(shape)} and its names are {show(names)}"
        raise read.fail("InvalidArgument", why, "give one name per axis; window names come last")
    window = {"kernel": [sizes[name] for name in names[-count:]]}
    for key, alias in (("stride", "strides"), ("dilation", "dilations")):
        if alias in arg:
            window[key] = arg[alias]
    return pool(builder, builder.fresh(f"{id}.{side}.window"), source, window, None)


def _aligned(
    builder: Builder, id: str, side: str, source: str, names: list[str], order: list[str], full: list[Dim]
) -> str:
    """``source`` with its axes at their places in ``order`` and expanded to ``full``."""
    wanted = [name for name in order if name in names]
    if wanted != names:
        perm = [names.index(name) for name in wanted]
        source = builder.emit(builder.fresh(f"{id}.{side}.permute"), "PERMUTE", (source,), {"perm": perm})
    made = builder.fresh(f"{id}.{side}")
    places = [order.index(name) for name in wanted]
    inner, arg = expand(builder, made, source, {"result_shape": full, "broadcast_dimensions": places})
    return builder.emit(made, "EXPAND", inner, arg)


def _names(read: Reader, value: object, what: str) -> list[str]:
    names = list(read.items(value, what))
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise read.fail("InvalidArgument", f"{what} is {show(value)}", "list different names of axes")
    return names


def _steps(read: Reader, arg: Mapping[str, Any], key: str, count: int) -> list[Dim]:
    given = arg.get(key)
    if given is None:
        return [1] * count
    steps = [read.dim(step, f"an entry of {key}") for step in read.items(given, key)]
    if len(steps) != count:
        why = f"{key} has {len(steps)} entries where kernel has {count}"
        raise read.fail("InvalidArgument", why, "give one entry per windowed axis")
    return steps


def _list(read: Reader, value: object) -> tuple[Any, ...]:
    return read.items(value, "broadcast_dimensions")


def _mismatch(read: Reader, shape: Shape, result: Shape, given: object) -> Exception:
    along = "" if given is None else f" along {show(given)}"
    return read.fail(
        "BroadcastMismatch",
        f"{show_shape(shape)} does not broadcast to {show_shape(result)}{along}",
        "broadcast_dimensions: the result's axis for each axis of the operand; sizes are equal or 1",
        lhs_shape=list(shape),
        rhs_shape=list(result),
    )
