"""Whether a Region is one: every value defined, typed and in scope. Rules are data; what they build is checked."""

from __future__ import annotations

from collections.abc import Mapping

from .dtypes import DType
from .infer import MAX_INDEX, computes, largest
from .region import (
    Binary,
    Cast,
    Const,
    Let,
    Read,
    Reduce,
    Region,
    Select,
    Unary,
    Within,
    free_axes,
    operands,
)
from .tiny import BINARY, COMPARE, REDUCE_OPS, UNARY


def fault(region: Region) -> str | None:
    """What is wrong with ``region``, in one sentence; None where nothing is."""
    known: dict[str, Let] = {}
    sizes = {axis.name: axis.size for axis in region.iters}
    for let in region.lets:
        missing = [name for name in operands(let.value) if name not in known]
        if missing or let.name in known:
            return (
                f"{let.name} uses {', '.join(missing)} before it is there" if missing else f"two {let.name}"
            )
        if isinstance(let.value, Reduce):
            sizes |= {axis.name: axis.size for axis in let.value.axes}
        known[let.name] = let
    if any(size < 1 for size in sizes.values()):
        return "an axis has no point"
    refs = {ref.name: (ref.dtype, ref.shape) for ref in region.inputs}
    for let in region.lets:
        wrong = _let(let, {name: known[name].dtype for name in operands(let.value)}, refs, sizes)
        if wrong:
            return f"{let.name}: {wrong}"
    outputs = {ref.name: ref.dtype for ref in region.outputs}
    free, iters = free_axes(region), {axis.name for axis in region.iters}
    for stored in region.yields:
        if stored.value not in known or stored.to not in outputs:
            return f"{stored.to} is filled with {stored.value}, which is not there"
        if known[stored.value].dtype is not outputs[stored.to]:
            return f"{stored.to} is {outputs[stored.to]} and filled with {known[stored.value].dtype}"
        if not free[stored.value] <= iters:
            return f"{stored.to} is filled with a value of unbound axes"
    return None


def _let(
    let: Let,
    kinds: Mapping[str, DType],
    refs: Mapping[str, tuple[DType, tuple[int, ...]]],
    sizes: Mapping[str, int],
) -> str | None:
    value, dtype = let.value, let.dtype
    indices = value.map if isinstance(value, Read) else (value.index,) if isinstance(value, Within) else ()
    for index in indices:
        if not index.axes() <= sizes.keys():
            return f"index {index} has an axis that nothing binds"
        if largest(index, sizes) > MAX_INDEX:
            return f"index {index} leaves the range of 62 bits"
    match value:
        case Read(tensor, index_map):
            if tensor not in refs:
                return f"there is no buffer {tensor}"
            kind, shape = refs[tensor]
            if kind is not dtype or len(index_map) != len(shape):
                return (
                    f"{tensor} is {kind} of rank {len(shape)}, read as {dtype} with {len(index_map)} indices"
                )
        case Const(bits):
            if not 0 <= bits < (2 if dtype is DType.BOOL else 1 << 8 * dtype.itemsize):
                return f"{bits} is no bit pattern of {dtype}"
        case Within():
            return None if dtype is DType.BOOL else f"a guard is bool, not {dtype}"
        case Unary(op, x):
            if op not in UNARY or not computes(op, kinds[x]) or kinds[x] is not dtype:
                return f"there is no {op} from {kinds[x]} to {dtype}"
        case Binary(op, x, y):
            result = DType.BOOL if op in COMPARE else kinds[x]
            if op not in (*BINARY, *COMPARE) or not computes(op, kinds[x]):
                return f"there is no {op} on {kinds[x]}"
            if kinds[x] is not kinds[y] or result is not dtype:
                return f"{op} on {kinds[x]} and {kinds[y]} gives no {dtype}"
        case Select(cond, then, other):
            if kinds[cond] is not DType.BOOL or not kinds[then] is kinds[other] is dtype:
                return f"{kinds[cond]} selects between {kinds[then]} and {kinds[other]} for {dtype}"
        case Reduce(op, axes, body):
            if op not in REDUCE_OPS or not axes or kinds[body] is not dtype:
                return f"there is no {op} over {len(axes)} axes from {kinds[body]} to {dtype}"
        case Cast():
            return None
    return None
