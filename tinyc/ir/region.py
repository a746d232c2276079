"""Region Buffer SSA (document 004 §6): one Region is one kernel; inside it only values, its outputs in memory.

A Region is a flat list of ``lets`` in dependence order. A let names a value of given dtype at one point of the
axes it depends on; an axis is one of ``iters`` or is bound by exactly one Reduce (Streams over one score may share
theirs). Axis names are unique within the Region. A let used inside a Reduce's body may depend on that Reduce's axes.

Every arithmetic value is computed in fp32 (i32: wrapping 32-bit) and rounded to its let's dtype.

A Read may point outside its buffer only where every use of it is cut off by a Select whose condition is false
there; generated code must not touch memory outside the buffer even so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .buffer import ALIGNMENT
from .dtypes import DType
from .index import Affine


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis that runs over ``0 <= name < size``."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How a buffer lies in memory (document 004 §6.2). ``kind``: row_major, col_major (the last two axes change places)
    or swizzled. ``params``: sorted pairs, such as ``("swizzle", "xor32"), ("vec_bytes", 16)``.

    It says nothing about values: an index means the same element in every layout."""

    kind: str = "row_major"
    params: tuple[tuple[str, str | int], ...] = ()


ROW_MAJOR = Layout()


@dataclass(frozen=True, slots=True)
class MemRef:
    """A dense buffer. ``alignment``: bytes of which its address is a multiple, of a caller's array as its signature
    says. ``noalias``: no other buffer of the Region shares its memory."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    alignment: int = ALIGNMENT
    noalias: bool = True
    layout: Layout = ROW_MAJOR

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Read:
    """The element of buffer ``tensor`` at ``map`` (one Affine per dimension of the buffer)."""

    tensor: str
    map: tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Const:
    """A constant, as the bit pattern of the let's dtype."""

    bits: int


@dataclass(frozen=True, slots=True)
class Within:
    """bool: ``lo <= index < hi``."""

    index: Affine
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Unary:
    """``op`` of tiny.OPERATORS."""

    op: str
    x: str


@dataclass(frozen=True, slots=True)
class Cast:
    """``x`` converted to the let's dtype (to i32: truncates, saturates, NaN -> 0; to bool: x != 0)."""

    x: str


@dataclass(frozen=True, slots=True)
class Binary:
    """``op`` of tiny.BINARY or tiny.COMPARE (the latter give bool)."""

    op: str
    x: str
    y: str


@dataclass(frozen=True, slots=True)
class Select:
    """``then`` where the bool ``cond`` holds, else ``other``."""

    cond: str
    then: str
    other: str


@dataclass(frozen=True, slots=True)
class Reduce:
    """``op`` of tiny.REDUCE_OPS over ``axes``, started from the neutral element; ``body`` has the let's dtype."""

    op: str
    axes: tuple[Axis, ...]
    body: str


@dataclass(frozen=True, slots=True)
class Stream:
    """``sum over axes of EXP2((score - max over axes of score) * scale) * weight`` in fp32, in one pass.

    The running maximum and the running sum are rescaled when the maximum grows (document 004 §6.6, R4's bridge;
    Milakov and Gimelshein, arXiv 1805.02867). ``score``, ``weight`` and ``scale`` are fp32 lets; ``scale`` is a
    positive Const. A row of which every score is -inf gives NaN, as the two-pass form does.

    With ``rounded``, fp16 or bf16, the exponentials are divided by their sum over ``axes`` and rounded to that dtype
    before they meet the weight: the softmax of a program in that dtype, with its rounding. That takes two walks over
    the scores, the first of them for their maximum and their sum."""

    axes: tuple[Axis, ...]
    score: str
    weight: str
    scale: str
    rounded: DType | None = None


@dataclass(frozen=True, slots=True)
class BroadcastInDim:
    """``x`` seen over more axes; nothing is moved. ``axes``: the axes of the result, in order;
    ``broadcast_dimensions``: where in ``axes`` the axes of ``x`` are."""

    x: str
    axes: tuple[str, ...]
    broadcast_dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transpose:
    """``x`` with its axes in another order: axis i of the result is axis ``permutation[i]`` of ``x``."""

    x: str
    permutation: tuple[int, ...]


Value = Read | Const | Within | Unary | Cast | Binary | Select | Reduce | Stream | BroadcastInDim | Transpose


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    dtype: DType
    value: Value


@dataclass(frozen=True, slots=True)
class Yield:
    """Stores the value of let ``value`` at every point of ``iters``, in order, to output buffer ``to``."""

    value: str
    to: str


@dataclass(frozen=True)
class Region:
    """One kernel. Each output's shape is the sizes of ``iters`` (an output of rank 0 has no iters).

    ``deferred``: the outputs whose only reader is the next Region (``materialize: "deferred"``, §6.9): a hint that
    they need not go through memory.
    """

    name: str
    iters: tuple[Axis, ...]
    inputs: tuple[MemRef, ...]
    outputs: tuple[MemRef, ...]
    lets: tuple[Let, ...]
    yields: tuple[Yield, ...]
    deferred: tuple[str, ...] = ()


def operands(value: Value) -> tuple[str, ...]:
    """The lets that a value is computed from, in order."""
    match value:
        case Unary(_, x) | Cast(x) | BroadcastInDim(x, _, _) | Transpose(x, _):
            return (x,)
        case Binary(_, x, y):
            return (x, y)
        case Select(cond, then, other):
            return (cond, then, other)
        case Reduce(_, _, body):
            return (body,)
        case Stream(_, score, weight, scale):
            return (score, weight, scale)
        case _:
            return ()


def row_axis(region: Region) -> Axis | None:
    """The axis along which loops fill the output: the last of ``iters`` that has several points; the last of all where none has,
    None where there is none."""
    wide = [item for item in region.iters if item.size > 1] or list(region.iters)
    return wide[-1] if wide else None


def free_axes(region: Region) -> dict[str, frozenset[str]]:
    """For each let, the axes its value depends on (bound ones removed)."""
    free: dict[str, frozenset[str]] = {}
    for let in region.lets:
        axes: frozenset[str] = frozenset().union(*(free[name] for name in operands(let.value)))
        match let.value:
            case Read(_, index_map):
                axes = axes.union(*(index.axes() for index in index_map))
            case Within(index, _, _):
                axes |= index.axes()
            case Reduce(_, bound, _) | Stream(bound, _, _, _):
                axes -= {axis.name for axis in bound}
        free[let.name] = axes
    return free


def axis_sizes(region: Region) -> dict[str, int]:
    """The size of every axis: the iters, then those that reductions bind."""
    sizes = {axis.name: axis.size for axis in region.iters}
    for let in region.lets:
        if isinstance(let.value, Reduce | Stream):
            sizes |= {axis.name: axis.size for axis in let.value.axes}
    return sizes


def anonymous(region: Region) -> Region:
    """``region`` without the names that a user gave: equal for kernels that compute the same from other buffers."""
    names = {ref.name: f"b{number}" for number, ref in enumerate((*region.inputs, *region.outputs))}

    def renamed(let: Let) -> Let:
        value = let.value
        if not isinstance(value, Read):
            return let
        return Let(let.name, let.dtype, Read(names[value.tensor], value.map))

    return Region(
        "",
        region.iters,
        tuple(replace(ref, name=names[ref.name]) for ref in region.inputs),
        tuple(replace(ref, name=names[ref.name]) for ref in region.outputs),
        tuple(renamed(let) for let in region.lets),
        tuple(Yield(item.value, names[item.to]) for item in region.yields),
        tuple(names[name] for name in region.deferred),
    )
