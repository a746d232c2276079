"""Tiny IR (document 002): a pure DAG of movement, elementwise and reduce nodes, named by id.

This module holds the data and the vocabulary. Reading and writing documents: ``tinyc.ir.document``. Shapes,
dtypes and diagnostics: ``tinyc.ir.verify``. Values: ``tinyc.ir.evaluate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .dtypes import DType
from .region import ROW_MAJOR, Layout

Dim = int | str
"""A size: an integer >= 1, or the canonical text of an integer expression over symbols, such as ``"2*M+1"``."""

Shape = tuple[Dim, ...]

Imm = float | int | bool
"""An immediate operand. It takes the dtype of the node's other operands and any shape."""

MOVEMENT = ("RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP", "VIEW")
UNARY = ("NEG", "EXP2", "LOG2", "RELU", "SQRT", "RSQRT", "RECIP", "SIN")
ROUNDED = "TF32"
"""fp32 rounded to 10 bits of mantissa, ties away from zero: what matrix units take of it (:func:`tinyc.ir.dtypes.round_tf32`).
No uop: rules alone introduce it, and Regions may hold it."""
OPERATORS = (*UNARY, ROUNDED)
"""Of one operand, in rules and in Regions."""
BINARY = ("ADD", "SUB", "MUL", "FDIV", "POW", "MAX", "MIN")
COMPARE = ("CMPLT", "CMPNE", "CMPEQ")
REDUCE_OPS = ("SUM", "MAX", "MIN", "PROD")
ELEMENTWISE = (*UNARY, *BINARY, *COMPARE, "CAST", "WHERE")
UOPS = ("INPUT", "VALID", *MOVEMENT, *ELEMENTWISE, "REDUCE")

#: uop -> the keys of its arg after canonicalisation (an optional key is always present then)
ARGS: Mapping[str, tuple[str, ...]] = {
    "INPUT": ("tensor_id", "dtype", "shape"),
    "VALID": ("result_shape", "lo", "hi"),
    "RESHAPE": ("result_shape",),
    "PERMUTE": ("perm",),
    "EXPAND": ("result_shape",),
    "PAD": ("pad", "value"),
    "SHRINK": ("lo", "hi", "step"),
    "FLIP": ("axes",),
    "VIEW": ("result_shape", "index_map"),
    "CAST": ("to",),
    "REDUCE": ("op", "axes", "dtype", "init"),
    **{uop: () for uop in (*UNARY, *BINARY, *COMPARE, "WHERE")},
}


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype of a node's value."""

    shape: Shape
    dtype: DType


@dataclass(frozen=True)
class Node:
    """One node. ``src``: ids of earlier nodes or immediates, in order; an id is a ``str``, an immediate is not.

    ``arg`` is canonical (see :data:`ARGS`): lists are tuples, ``dtype``/``to`` are :class:`DType`, PERMUTE axes
    and REDUCE axes are non-negative and REDUCE axes sorted, EXPAND has the operand's rank already equal to the
    result's (the loader puts a RESHAPE before it where it must), SHRINK has ``step``, REDUCE has ``init`` (None
    for the neutral element), VIEW's ``index_map`` is a tuple of texts over ``i0, i1, …``, PAD's ``value`` and
    REDUCE's ``init`` are numbers. INPUT may also have ``storage``, a text that means nothing here.
    """

    id: str
    uop: str
    src: tuple[str | Imm, ...] = ()
    arg: Mapping[str, Any] = field(default_factory=dict)
    tag: str | None = None

    def operands(self) -> tuple[str, ...]:
        """The ids among ``src``, in order."""
        return tuple(source for source in self.src if isinstance(source, str))


@dataclass(frozen=True)
class Port:
    """One input or output of a program: the caller's name, and the node that holds the value.

    The rest is the ABI of the Graph Signature (document 004 §2.2); :class:`tinyc.ir.signature.Argument` says what each
    means. ``alignment``: None where the document does not say.
    """

    name: str
    node: str
    role: str = "data"
    mutability: str = "immutable"
    alignment: int | None = None
    layout: Layout = ROW_MAJOR
    storage: str | None = None


@dataclass(frozen=True)
class Program:
    """A verified program: ``nodes`` in topological order, ``types`` of every node.

    ``inputs`` and ``outputs`` are in signature order (for a document without signature: INPUT nodes in document
    order, sinks of the DAG in document order). ``symbols``: the free symbols of all shapes, sorted.
    ``frontend``: the text of the Frontend document that it comes from, empty where there is none.
    Built only by ``tinyc.ir.verify.verify``.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    types: Mapping[str, TensorType]
    symbols: tuple[str, ...] = ()
    frontend: str = field(default="", compare=False, repr=False)

    def node(self, id: str) -> Node:
        return self._index[id]

    def by_id(self) -> dict[str, Node]:
        return dict(self._index)

    @cached_property
    def _index(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}
