"""Whether a Region is one: every value defined, typed and in scope. Rules and files are data; what they build is checked.

That no Read leaves its buffer unguarded is proven elsewhere (``tinyc.index``): this needs no polyhedra.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .diagnostics import TinycError, show, show_shape
from .dtypes import HALF, DType, from_bits
from .explicit import AxisFacts, empty_facts, misaligned
from .index import Affine
from .infer import MAX_INDEX, computes, largest
from .region import (
    Axis,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Transpose,
    Unary,
    Within,
    free_axes,
    operands,
)
from .tiny import BINARY, COMPARE, OPERATORS, REDUCE_OPS

LAYOUTS = ("row_major", "col_major", "swizzled")
MAX_NAME = 200
MAX_ALIGNMENT = 1 << 16

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*\Z")
_AXIS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_SUGGESTIONS = {
    "BroadcastMismatch": "insert BroadcastInDim or Transpose, so that operands meet over the same axes in one order",
    "AxisAlignmentMismatch": "give every output the sizes of the iters, and let each Reduce bind axes of its own",
    "DTypeMismatch": "insert a cast",
    "InvalidPermutation": "name every axis of the operand once",
    "UnknownReference": "name a let that stands before, or a buffer of the Region",
    "DuplicateId": "give each its own name",
    "InvalidShape": "use sizes from 1 on, below 2^63 bytes in all",
    "NonAssociativeTransform": "reduce with sum, prod, max or min; stream with a positive scale",
}


@dataclass(frozen=True)
class Fault:
    """``where``: the let or buffer at fault."""

    kind: str
    why: str
    where: str | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.why}" if self.where else self.why


def fault(region: Region) -> str | None:
    """What is wrong with ``region``, in either form, in one sentence; None where nothing is."""
    found = next(_faults(region), None)
    return None if found is None else str(found)


def check_region(region: Region) -> None:
    """Raises TinycError for the first thing that is wrong with ``region``, in either form.

    The kinds are those of document 004 §6.10 where it has one (BroadcastMismatch, AxisAlignmentMismatch,
    NonAssociativeTransform), else DTypeMismatch, InvalidPermutation, InvalidShape, UnknownReference, DuplicateId and
    MalformedDocument. A Region that has a BroadcastInDim or a Transpose must have every one that it needs (§6.4).
    """
    found = next(_faults(region), None)
    if found is not None:
        suggestion = _SUGGESTIONS.get(found.kind, "write the Region as a dump of the stage region shows it")
        at = {"layer": "region", "op": region.name, "value": found.where}
        raise TinycError(found.kind, found.why, suggestion, at)


def is_name(name: object) -> bool:
    """Whether ``name`` can be the name of a Region, a buffer or a let: it goes into dumps and into sources."""
    return isinstance(name, str) and len(name) <= MAX_NAME and _NAME.match(name) is not None


def is_axis_name(name: object) -> bool:
    """Whether ``name`` can be the name of an axis: it is written in index expressions."""
    return isinstance(name, str) and len(name) <= MAX_NAME and _AXIS_NAME.match(name) is not None


def _faults(region: Region) -> Iterator[Fault]:
    yield from _names(region)
    for ref in (*region.inputs, *region.outputs):
        yield from _memref(ref)
    yield from _scope(region)
    facts = empty_facts(region)
    known: dict[str, Let] = {}
    refs = {ref.name: ref for ref in region.inputs}
    sizes = {axis.name: axis.size for axis in (*region.iters, *_bound(region))}
    for let in region.lets:
        kinds = {name: known[name].dtype for name in operands(let.value)}
        for found in _let(let, kinds, refs, sizes, known, facts):
            yield Fault(found.kind, found.why, let.name)
        known[let.name] = let
        facts.add(let)
    yield from _outputs(region, known)
    if any(isinstance(let.value, BroadcastInDim | Transpose) for let in region.lets):
        wrong = misaligned(region)
        if wrong is not None:
            yield Fault("BroadcastMismatch", wrong)


def _names(region: Region) -> Iterator[Fault]:
    axes = [axis.name for axis in (*region.iters, *_bound(region))]
    buffers = [ref.name for ref in (*region.inputs, *region.outputs)]
    lets = [let.name for let in region.lets]
    for name in (region.name, *buffers, *lets):
        if not is_name(name):
            yield Fault("MalformedDocument", f"{show(name)} is no name")
    for name in axes:
        if not is_axis_name(name):
            yield Fault("MalformedDocument", f"{show(name)} is no name of an axis")
    for what, listed in (("buffers", buffers), ("values", lets), ("axes", axes)):
        twice = [name for name, count in Counter(listed).items() if count > 1]
        if twice:
            kind = "AxisAlignmentMismatch" if what == "axes" else "DuplicateId"
            yield Fault(kind, f"two {what} are called {twice[0]}", twice[0])
    for axis in (*region.iters, *_bound(region)):
        if axis.size < 1:
            yield Fault("InvalidShape", f"axis {axis.name} has no point: its size is {axis.size}")


def _bound(region: Region) -> tuple[Axis, ...]:
    """The axes that Reduces and Streams bind. Streams over one score may share theirs: one pass computes them all."""
    reduces = [let.value.axes for let in region.lets if isinstance(let.value, Reduce)]
    streams = {(let.value.axes, let.value.score): 0 for let in region.lets if isinstance(let.value, Stream)}
    return tuple(axis for axes in (*reduces, *(axes for axes, _ in streams)) for axis in axes)


def _memref(ref: MemRef) -> Iterator[Fault]:
    if any(size < 1 for size in ref.shape) or ref.bytes >= 2**63:
        yield Fault("InvalidShape", f"its shape is {show_shape(ref.shape)}", ref.name)
    if not 1 <= ref.alignment <= MAX_ALIGNMENT or ref.alignment & (ref.alignment - 1):
        yield Fault("MalformedDocument", f"its alignment is {ref.alignment}, no power of two", ref.name)
    layout = ref.layout
    if layout.kind not in LAYOUTS:
        yield Fault("MalformedDocument", f"there is no layout {show(layout.kind)}", ref.name)
    keys = [key for key, _ in layout.params]
    plain = all(is_name(key) and (isinstance(value, int) or is_name(value)) for key, value in layout.params)
    if not plain or keys != sorted(set(keys)):
        why = f"its layout has the parameters {show(dict(layout.params))}; names and integers are wanted"
        yield Fault("MalformedDocument", why, ref.name)


def _scope(region: Region) -> Iterator[Fault]:
    """Every value defined before it is used."""
    known: set[str] = set()
    for let in region.lets:
        for name in operands(let.value):
            if name not in known:
                yield Fault("UnknownReference", f"it uses {name} before it is there", let.name)
        known.add(let.name)


def _outputs(region: Region, known: Mapping[str, Let]) -> Iterator[Fault]:
    sizes = tuple(axis.size for axis in region.iters)
    outputs = {ref.name: ref for ref in region.outputs}
    if not outputs:
        yield Fault("MalformedDocument", "it has no output")
    for ref in region.outputs:
        if ref.shape != sizes:
            why = f"its shape is {show_shape(ref.shape)}, and the iters have the sizes {show_shape(sizes)}"
            yield Fault("AxisAlignmentMismatch", why, ref.name)
    stored = [item.to for item in region.yields]
    for name in outputs:
        if stored.count(name) != 1:
            yield Fault("MalformedDocument", f"{stored.count(name)} values are stored in it", name)
    free, iters = free_axes(region), {axis.name for axis in region.iters}
    for item in region.yields:
        if item.value not in known or item.to not in outputs:
            yield Fault("UnknownReference", f"{item.to} is filled with {item.value}, which is not there")
            return
        kind, dtype = known[item.value].dtype, outputs[item.to].dtype
        if kind is not dtype:
            yield Fault("DTypeMismatch", f"it is {dtype} and filled with {kind}", item.to)
        unbound = sorted(free[item.value] - iters)
        if unbound:
            why = f"it is filled with {item.value}, a value of unbound axes ({', '.join(unbound)})"
            yield Fault("AxisAlignmentMismatch", why, item.to)
    for name in region.deferred:
        if name not in outputs or region.deferred.count(name) > 1:
            yield Fault("UnknownReference", f"{show(name)} is deferred and no output of its own")


def _let(
    let: Let,
    kinds: Mapping[str, DType],
    refs: Mapping[str, MemRef],
    sizes: Mapping[str, int],
    known: Mapping[str, Let],
    facts: AxisFacts,
) -> Iterator[Fault]:
    value, dtype = let.value, let.dtype
    match value:
        case Read(tensor, index_map):
            yield from _indices(index_map, sizes)
            if tensor not in refs:
                yield Fault("UnknownReference", f"there is no buffer {tensor} among its inputs")
                return
            ref = refs[tensor]
            if ref.dtype is not dtype or len(index_map) != len(ref.shape):
                kind = "DTypeMismatch" if ref.dtype is not dtype else "AxisAlignmentMismatch"
                why = f"{tensor} is {ref.dtype} of rank {len(ref.shape)}, read as {dtype}"
                yield Fault(kind, f"{why} with {len(index_map)} indices")
        case Const(bits):
            if not 0 <= bits < (2 if dtype is DType.BOOL else 1 << 8 * dtype.itemsize):
                yield Fault("DTypeMismatch", f"{bits} is no bit pattern of {dtype}")
        case Within(index, low, high):
            yield from _indices((index,), sizes)
            if max(abs(low), abs(high)) > MAX_INDEX:
                yield Fault("InvalidShape", "its bounds leave the range of 62 bits")
            if dtype is not DType.BOOL:
                yield Fault("DTypeMismatch", f"a guard is bool, not {dtype}")
        case Unary(op, x):
            if op not in OPERATORS or not computes(op, kinds[x]) or kinds[x] is not dtype:
                yield Fault("DTypeMismatch", f"there is no {op} from {kinds[x]} to {dtype}")
        case Binary(op, x, y):
            result = DType.BOOL if op in COMPARE else kinds[x]
            if op not in (*BINARY, *COMPARE) or not computes(op, kinds[x]):
                yield Fault("DTypeMismatch", f"there is no {op} on {kinds[x]}")
            elif kinds[x] is not kinds[y] or result is not dtype:
                yield Fault("DTypeMismatch", f"{op} on {kinds[x]} and {kinds[y]} gives no {dtype}")
        case Select(cond, then, other):
            if kinds[cond] is not DType.BOOL or not kinds[then] is kinds[other] is dtype:
                why = f"{kinds[cond]} selects between {kinds[then]} and {kinds[other]} for {dtype}"
                yield Fault("DTypeMismatch", why)
        case Reduce(op, axes, body):
            if op not in REDUCE_OPS:
                yield Fault("NonAssociativeTransform", f"{op} is no reduction: it does not associate")
            if kinds[body] is not dtype or (dtype is DType.BOOL and op in ("SUM", "PROD")):
                yield Fault("DTypeMismatch", f"there is no {op} from {kinds[body]} to {dtype}")
            if not axes:
                yield Fault("MalformedDocument", "it reduces over 0 axes")
        case Stream():
            yield from _stream(let, value, kinds, known)
        case BroadcastInDim(x) | Transpose(x):
            if kinds[x] is not dtype:
                yield Fault("DTypeMismatch", f"a view of {kinds[x]} is not {dtype}")
            yield from _view(value, facts)
        case Cast():
            pass


def _indices(indices: tuple[Affine, ...], sizes: Mapping[str, int]) -> Iterator[Fault]:
    for index in indices:
        if not index.axes() <= sizes.keys():
            yield Fault("UnknownReference", f"index {index} has an axis that nothing binds")
        elif largest(index, sizes) > MAX_INDEX:
            yield Fault("InvalidShape", f"index {index} leaves the range of 62 bits")


def _stream(let: Let, value: Stream, kinds: Mapping[str, DType], known: Mapping[str, Let]) -> Iterator[Fault]:
    if {let.dtype, *kinds.values()} != {DType.FP32}:
        yield Fault("DTypeMismatch", "its score, weight, scale and result are fp32")
    if not value.axes:
        yield Fault("MalformedDocument", "it runs over 0 axes")
    if value.rounded is not None and value.rounded not in HALF:
        yield Fault("DTypeMismatch", f"its exponentials are rounded to {value.rounded}, not to fp16 or bf16")
    scale = known[value.scale]
    if not isinstance(scale.value, Const) or not 0 < from_bits(scale.value.bits, DType.FP32) < float("inf"):
        yield Fault(
            "NonAssociativeTransform", "its scale is no positive constant, so the maximum is no bound"
        )


def _view(value: BroadcastInDim | Transpose, facts: AxisFacts) -> Iterator[Fault]:
    own = facts.axes[value.x]
    if isinstance(value, Transpose):
        if sorted(value.permutation) != list(range(len(own))):
            why = f"{list(value.permutation)} is no permutation of {len(own)} axes"
            yield Fault("InvalidPermutation", why)
        return
    places, wide = value.broadcast_dimensions, value.axes
    unknown = [name for name in wide if name not in facts.rank]
    if unknown or len(set(wide)) < len(wide):
        yield Fault("UnknownReference", f"its result is over {', '.join(wide)}, not over axes of the Region")
    elif len(places) != len(own) or not all(0 <= place < len(wide) for place in places):
        why = f"broadcast_dimensions {list(places)} do not place {len(own)} axes among {len(wide)}"
        yield Fault("BroadcastMismatch", why)
    elif tuple(wide[place] for place in places) != own:
        yield Fault(
            "BroadcastMismatch", f"({', '.join(own)}) is not at {list(places)} of ({', '.join(wide)})"
        )
