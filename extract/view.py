"""The e-graph, decoded for extraction: index terms as Affines, axes by name, nodes that keep their scope.

An axis ``(Ax id extent)`` is named ``a<id>x<extent>``: equal names are equal axes. Ids below 16 are the output axes
of a kernel in order; a reduction nested d deep binds ids from 16*d.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tinyc.egraph.graph import ENode, Graph
from tinyc.ir.dtypes import HALF, DType
from tinyc.ir.index import Affine, FloorDiv, affine, lit
from tinyc.ir.tiny import BINARY, COMPARE, OPERATORS, REDUCE_OPS, ROUNDED, Program

KNOWN = {
    "Unary": frozenset(OPERATORS),
    "Binary": frozenset((*BINARY, *COMPARE)),
    "Cast": frozenset(dtype.value for dtype in DType),
}

INFINITY = 0x7F800000
"""The bits of fp32 infinity."""

LEVEL = 16
"""Axis ids per level of nesting."""


def axis_name(id: int, extent: int) -> str:
    return f"a{id}x{extent}"


@functools.cache
def axis_id(name: str) -> int:
    return int(name[1:].split("x")[0])


@functools.cache
def axis_extent(name: str) -> int:
    return int(name.split("x")[1])


@dataclass(frozen=True)
class Way:
    """One way to fill a buffer: over the axes of ``shape``, by the expression class ``root``. Where ``shape`` is not
    the buffer's, it has as many elements in the same row-major order."""

    shape: tuple[int, ...]
    root: str


@dataclass(frozen=True)
class Buffer:
    """A buffer class. ``arg``: number of the program's input, or None where a kernel fills it."""

    cls: str
    arg: int | None
    dtype: DType
    shape: tuple[int, ...]
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """An e-node that extraction may choose. ``head``: Read, Const, Within, Unary, Binary, Select, Cast, Reduce,
    Contract, Stream or Scan. ``payload``: what is not an expression. ``children``: expression classes.

    Contract is a Reduce("SUM") over a product of its two children, each loaded from memory as it is. A Stream is taken
    apart: Scan is its walk over the scores, with their running maximum and their exponentials, in a class of its own
    which all Streams over the same scores share; the Stream is what adds up its weights along that walk. One whose
    probabilities are rounded has a Scan of its own, which walks the scores twice."""

    head: str
    op: str
    payload: tuple[object, ...]
    children: tuple[str, ...]
    _hash: int = field(
        init=False, repr=False, compare=False
    )  # asked for much more often than there are items

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.head, self.op, self.payload, self.children)))

    def __hash__(self) -> int:
        return self._hash


class View:
    """Items of every expression class, buffers, and index vectors of one :class:`Graph`.

    ``malformed``: nodes that no program can hold, in words. They are left out: rules are data, and may be wrong.
    """

    def __init__(self, graph: Graph, inputs: Sequence[DType]) -> None:
        """``inputs``: the dtypes of the program's."""
        self.graph = graph
        self.inputs = inputs
        self.malformed: list[str] = []
        self._index: dict[str, Affine | None] = {}
        self.buffers: dict[str, Buffer] = {}
        for name, nodes in graph.classes.items():
            buffer = self._buffer(name, nodes)
            if buffer is not None:
                self.buffers[name] = buffer
        self.free = {name: self._axes(axes) for name, axes in graph.free.items()}
        self.items: dict[str, tuple[Item, ...]] = {}
        for name, nodes in graph.classes.items():
            if name in self.free:
                found = [item for node in nodes if (item := self.item(name, node)) is not None]
                self.items[name] = tuple(dict.fromkeys(found))
        for row in graph.contracts:
            self._add_contraction(row)
        self.buffers = {name: self._fillable(buffer) for name, buffer in self.buffers.items()}

    def origin(self, cls: str) -> str:
        """What a class computes, wherever it is needed: the document's node, or itself where it has none."""
        number = self.graph.names.get(cls)
        return cls if number is None else f"node {number}"

    def loads(self, cls: str) -> Iterator[tuple[str, Item]]:
        """How the operand of a contraction may be loaded, behind a rounding, widening casts and guards: Reads, and their classes."""
        seen, pending = {cls}, [cls]
        while pending:
            here = pending.pop()
            for item in self.items.get(here, ()):
                if item.head == "Read":
                    yield here, item
                inner = {"Cast": item.children, "Select": item.children[1:2]}.get(item.head, ())
                inner = item.children if is_rounded(item) else inner
                pending += [child for child in inner if child not in seen]
                seen.update(inner)

    # ---- index terms ----

    def vector(self, cls: str) -> tuple[Affine, ...] | None:
        """The Affines of an index vector; None where an element has no normal form (the rules did not finish)."""
        for node in self.graph.classes.get(cls, ()):
            parts = [self.index(str(arg)) for arg in node.args]
            found = [part for part in parts if part is not None]
            if len(found) == len(parts):
                return tuple(found)
        return None

    def index(self, cls: str) -> Affine | None:
        if cls not in self._index:
            self._index[cls] = None  # a cycle of requests has no value
            found = [
                value for node in self.graph.classes.get(cls, ()) if (value := self.affine(node)) is not None
            ]
            self._index[cls] = min(found, key=lambda value: (len(str(value)), str(value)), default=None)
        return self._index[cls]

    def affine(self, node: ENode) -> Affine | None:
        if node.op == "Lit":
            return lit(int(node.args[0]))
        if node.op != "Plus":
            return None
        rest = self.index(str(node.args[2]))
        atoms = self.graph.classes.get(str(node.args[1]), ())
        best: Affine | None = None
        for atom in atoms:
            single: Affine | None = None
            if atom.op == "Ax":
                single = affine(0, ((int(node.args[0]), axis_name(int(atom.args[0]), int(atom.args[1]))),))
            elif atom.op == "FloorDiv" and (inner := self.index(str(atom.args[0]))) is not None:
                single = affine(0, ((int(node.args[0]), FloorDiv(inner, int(atom.args[1]))),))
            if single is not None and (best is None or len(str(single)) < len(str(best))):
                best = single
        return None if rest is None or best is None else best + rest

    def _axes(self, cls: str) -> frozenset[str]:
        axes = set()
        for node in self.graph.classes.get(cls, ())[:1]:
            for arg in node.args:
                for atom in self.graph.classes[str(arg)]:
                    if atom.op == "Ax":
                        axes.add(axis_name(int(atom.args[0]), int(atom.args[1])))
        return frozenset(axes)

    # ---- nodes ----

    def _buffer(self, name: str, nodes: tuple[ENode, ...]) -> Buffer | None:
        arg = next((node for node in nodes if node.op == "Arg"), None)
        if arg is not None:
            number = int(arg.args[0])
            known = self._known(arg, 0 <= number < len(self.inputs), str(number))
            return Buffer(name, number, self.inputs[number], (), ()) if known else None
        fill = next((node for node in nodes if node.op == "Fill"), None)
        if fill is None:
            return None
        ways = [Way(self._sizes(node.args[1]), str(node.args[2])) for node in nodes if node.op == "Fill"]
        for alias in (node for node in nodes if node.op == "Alias"):
            inner = self.graph.classes.get(str(alias.args[1]), ())
            ways += [Way(self._sizes(node.args[1]), str(node.args[2])) for node in inner if node.op == "Fill"]
        dtype, shape = self._dtype(fill, str(fill.args[0])), self._sizes(fill.args[1])
        if dtype is None:
            return None
        return Buffer(name, None, dtype, shape, tuple(dict.fromkeys(ways)))

    def _fillable(self, buffer: Buffer) -> Buffer:
        """The buffer with the ways that fill all of it, over axes of their own."""
        ways = []
        for way in buffer.ways:
            axes = (size for size in way.shape if size > 1)
            names = {axis_name(number, size) for number, size in enumerate(axes)}
            if (
                math.prod(way.shape) == math.prod(buffer.shape)
                and self.free.get(way.root, frozenset()) <= names
            ):
                ways.append(way)
            else:
                self.malformed.append(f"a buffer of shape {list(buffer.shape)} filled over {list(way.shape)}")
        return replace(buffer, ways=tuple(ways))

    def _dtype(self, node: ENode, text: str) -> DType | None:
        try:
            return DType(text[1:])
        except ValueError:
            self.malformed.append(f"{node.op} with the dtype {text[1:]!r}")
            return None

    def _sizes(self, shape: int | str) -> tuple[int, ...]:
        nodes = self.graph.classes.get(str(shape), (ENode("vec-of", ()),))
        return tuple(int(size) for size in nodes[0].args)

    def item(self, cls: str, node: ENode) -> Item | None:
        """The node as an Item; None where it depends on axes that its class does not (equal values need not
        mention them, and a use outside their scope would be wrong)."""
        item: Item | None = None
        axes: frozenset[str] = frozenset()
        match node.op:
            case "Read":
                vector = self.vector(str(node.args[1]))
                if vector is not None and str(node.args[0]) in self.buffers:
                    item = Item("Read", "Read", (str(node.args[0]), vector), ())
                    axes = _union(index.axes() for index in vector)
            case "Const":
                dtype, bits = self._dtype(node, str(node.args[0])), int(node.args[1])
                if dtype is not None and self._known(node, 0 <= bits < _patterns(dtype), str(bits)):
                    item = Item("Const", "Const", (dtype, bits), ())
            case "Within":
                index = self.index(str(node.args[0]))
                if index is not None:
                    item = Item("Within", "Within", (index, int(node.args[1]), int(node.args[2])), ())
                    axes = index.axes()
            case "Unary" | "Binary" | "Cast":
                op = str(node.args[0])[1:]
                if self._known(node, op in KNOWN[node.op], op):
                    item = Item(node.op, op, (), tuple(map(str, node.args[1:])))
            case "Select":
                item = Item("Select", "Select", (), tuple(map(str, node.args)))
            case "Reduce":
                item = self._reduce(node)
            case "Stream":
                item = self._stream(node, None, *node.args)
            case "RoundedStream":
                item = self._stream(node, self._dtype(node, str(node.args[0])), *node.args[1:])
        if item is None or any(child not in self.free for child in item.children):
            return None
        axes |= _union(self.free[child] for child in item.children)
        if item.head == "Reduce":
            axes -= frozenset(item.payload)
        if item.head == "Stream":
            axes -= frozenset(item.payload[0])  # type: ignore[call-overload]
        return item if axes <= self.free[cls] else None

    def bound(self, cls: str) -> tuple[str, ...]:
        """The axes that a reduction over an index vector binds; none where they are not known."""
        vector = self.vector(cls) or ()
        return tuple(name for index in vector for name in sorted(index.axes(), key=axis_id))

    def _reduce(self, node: ENode) -> Item | None:
        bound = self.bound(str(node.args[1]))
        op = str(node.args[0])[1:]
        if not bound or not self._known(node, op in REDUCE_OPS, op):
            return None
        return Item("Reduce", op, bound, (str(node.args[2]),))

    def _stream(self, node: ENode, rounded: DType | None, *args: int | str) -> Item | None:
        """A Stream; its payload are the bound axes, the bits of the scale, and to what its probabilities are rounded."""
        vector, score, weight, bits = str(args[0]), str(args[1]), str(args[2]), int(args[3])
        bound = self.bound(vector)
        if not bound or not self._known(node, 0 < bits < INFINITY, str(bits)) or score not in self.free:
            return None
        if node.op == "RoundedStream" and not self._known(node, rounded in HALF, str(node.args[0])):
            return None
        scan = f"scan {' '.join(bound)} {score} {bits} {rounded or ''}"
        self.free[scan] = self.free[score] - frozenset(bound)
        self.items[scan] = (Item("Scan", "Scan", (bound, bits, rounded), (score,)),)
        return Item("Stream", "Stream", (bound, bits, rounded), (scan, weight))

    def _known(self, node: ENode, known: bool, what: str) -> bool:
        if not known:
            self.malformed.append(f"{node.op} {what}")
        return known

    def _add_contraction(self, row: tuple[int | str, ...]) -> None:
        cls, vector, left, right, *roles = (str(part) for part in row)
        bound = self.vector(vector)
        if cls not in self.items or bound is None or left not in self.free or right not in self.free:
            return
        axes = tuple(name for index in bound for name in sorted(index.axes(), key=axis_id))
        reduced = (self.free[left] | self.free[right]) - frozenset(axes)
        if not axes or not reduced <= self.free[cls]:
            return
        batch, m, n, k = (tuple(sorted(self._axes(role), key=axis_id)) for role in roles)
        item = Item("Contract", "SUM", (axes, batch, m, n, k), (left, right))
        if item not in self.items[cls]:
            self.items[cls] = (*self.items[cls], item)


def is_rounded(item: Item) -> bool:
    """Whether it rounds an operand for matrix units."""
    return item.op == ROUNDED


def input_dtypes(program: Program) -> tuple[DType, ...]:
    """Of the inputs, in their order."""
    return tuple(program.types[port.node].dtype for port in program.inputs)


def _patterns(dtype: DType) -> int:
    return 2 if dtype is DType.BOOL else 1 << 8 * dtype.itemsize


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)
