"""The base program: one kernel per REDUCE and per output, movement and elementwise work inlined.

It is what runs where the engine gave nothing back, and the yardstick of the report. It is the only lowering outside
of ``rules/``; it decides nothing and finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tinyc.ir.dims import to_affine
from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.execution import region_execution
from tinyc.ir.index import Affine, affine, axis, lit
from tinyc.ir.plan import Extracted, Plan
from tinyc.ir.region import (
    Axis,
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Unary,
    Value,
    Within,
    Yield,
)
from tinyc.ir.signature import signature_of
from tinyc.ir.tiny import UNARY, Imm, Node, Program

from .limits import Limits, limits
from .names import Names

Index = tuple[Affine, ...]
Point = tuple[str, Index]
"""A node of the program, at an index."""


def base_program(program: Program) -> Extracted:
    """Regions of ``program`` (integer shapes) in document order, each with the default Plan.

    Where inlining would grow without bound (``limits.py``) a value is kept in a buffer as well.
    """
    found = limits(program)
    kept: frozenset[str] = frozenset()
    while True:
        extracted, exceeded = _build(program, found, kept)
        if exceeded <= kept:
            return extracted
        kept |= exceeded


def _build(program: Program, found: Limits, kept: frozenset[str]) -> tuple[Extracted, frozenset[str]]:
    """The program with the nodes ``kept`` in buffers, and the nodes that a limit says should be."""
    nodes = program.by_id()
    names = Names()
    refs: dict[str, MemRef] = {}
    for port, declared in zip(program.inputs, signature_of(program).inputs, strict=True):
        ref = _ref(program, port.node, names.fresh(port.name))
        refs[port.node] = replace(ref, alignment=declared.alignment)
    wanted = {port.node for port in program.outputs}
    stored = [node for node in program.nodes if node.uop == "REDUCE" or node.id in wanted | kept]
    live = _live(program)
    regions: list[Region] = []
    outputs: dict[str, MemRef] = {}
    exceeded: set[str] = set()
    for node in stored:
        if node.id not in live:
            continue
        if node.uop == "INPUT":  # an output that is an input: a kernel that copies it
            out = _ref(program, node.id, names.fresh(f"{node.id}_copy"))
        else:
            out = refs[node.id] = _ref(program, node.id, names.fresh(node.id))
        outputs[node.id] = out
        regions.append(_Kernel(program, nodes, refs, out, found, exceeded).build(node))
    inputs = [refs[port.node] for port in program.inputs]
    plan = region_execution(regions, inputs, [outputs[port.node] for port in program.outputs])
    return Extracted(tuple(regions), tuple(Plan() for _ in regions), plan), frozenset(exceeded)


def _ref(program: Program, node: str, name: str) -> MemRef:
    kind = program.types[node]
    return MemRef(name, kind.dtype, tuple(map(int, kind.shape)))


def _live(program: Program) -> set[str]:
    live = {port.node for port in program.outputs}
    for node in reversed(program.nodes):
        if node.id in live:
            live.update(node.operands())
    return live


@dataclass
class _Kernel:
    program: Program
    nodes: Mapping[str, Node]
    refs: Mapping[str, MemRef]
    out: MemRef
    limits: Limits
    exceeded: set[str]
    sizes: dict[str, int] = field(default_factory=dict)
    lets: list[Let] = field(default_factory=list)
    made: dict[Point, str] = field(default_factory=dict)
    used: dict[str, MemRef] = field(default_factory=dict)

    def build(self, node: Node) -> Region:
        iters = tuple(Axis(f"i{number}", size) for number, size in enumerate(self.out.shape))
        self.sizes.update({item.name: item.size for item in iters})
        index = tuple(axis(item.name) if item.size > 1 else lit(0) for item in iters)
        if node.uop == "REDUCE":
            result = self.reduce(node, index)
        else:
            result = self.visit((node.id, index), root=node.id)
        inputs = tuple(self.used.values())
        return Region(
            f"k_{self.out.name}",
            iters,
            inputs,
            (self.out,),
            tuple(self.lets),
            (Yield(result, self.out.name),),
        )

    def emit(self, dtype: DType, value: Value) -> str:
        self.lets.append(Let(f"v{len(self.lets)}", dtype, value))
        return self.lets[-1].name

    def constant(self, value: Imm, dtype: DType) -> str:
        return self.emit(dtype, Const(to_bits(value, dtype)))

    def visit(self, start: Point, root: str | None = None) -> str:
        """The let of a node at an index; iterative, since chains may be thousands long."""
        stack = [start]
        while stack:
            point = stack[-1]
            if point in self.made:
                stack.pop()
                continue
            points = self.operands(point, root)
            missing = [operand for operand in points if operand not in self.made]
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            self.made[point] = self.value(point, [self.made[operand] for operand in points], root)
        return self.made[start]

    def stored(self, id: str, root: str | None) -> bool:
        return id in self.refs and (id != root or self.nodes[id].uop == "INPUT")

    def operands(self, point: Point, root: str | None) -> list[Point]:
        """What the value at ``point`` is computed from: nodes at indices. Movement is an index map."""
        id, index = point
        if self.stored(id, root):
            return []
        node = self.nodes[id]
        if id != root and self.limits.exceeded(node.uop, id, index):
            self.exceeded.add(id)
            return []
        source = node.src[0] if node.src else None
        match node.uop:
            case "VALID" | "INPUT":
                return []
            case "RESHAPE":
                return [(str(source), self.reshape(index, node))]
            case "PERMUTE":
                perm = tuple(node.arg["perm"])
                return [(str(source), tuple(index[perm.index(number)] for number in range(len(perm))))]
            case "EXPAND":
                before = self.program.types[str(source)].shape
                return [
                    (
                        str(source),
                        tuple(lit(0) if size == 1 else i for size, i in zip(before, index, strict=True)),
                    )
                ]
            case "PAD":
                lows = [low for low, _ in node.arg["pad"]]
                return [(str(source), tuple(i - low for i, low in zip(index, lows, strict=True)))]
            case "SHRINK":
                parts = zip(index, node.arg["lo"], node.arg["step"], strict=True)
                return [(str(source), tuple(step * i + low for i, low, step in parts))]
            case "FLIP":
                shape = self.program.types[id].shape
                flipped = {number % len(shape) for number in node.arg["axes"]}
                turned = (-1 * i + (int(shape[n]) - 1) if n in flipped else i for n, i in enumerate(index))
                return [(str(source), tuple(turned))]
            case "VIEW":
                values = {f"i{number}": i for number, i in enumerate(index)}
                return [
                    (
                        str(source),
                        tuple(self.substitute(to_affine(text), values) for text in node.arg["index_map"]),
                    )
                ]
            case _:
                return [(operand, index) for operand in node.operands()]

    def value(self, point: Point, operands: list[str], root: str | None) -> str:
        id, index = point
        node, dtype = self.nodes[id], self.program.types[id].dtype
        if self.stored(id, root):
            ref = self.refs[id]
            self.used[ref.name] = ref
            return self.emit(ref.dtype, Read(ref.name, index))
        if id in self.exceeded:
            return self.constant(
                0, dtype
            )  # a stand-in: the program is built again with this node in a buffer
        match node.uop:
            case "RESHAPE" | "PERMUTE" | "EXPAND" | "SHRINK" | "FLIP" | "VIEW":
                return operands[0]
            case "PAD":
                shape = self.program.types[str(node.src[0])].shape
                bounds = [
                    (i - low, 0, int(size))
                    for i, (low, high), size in zip(index, node.arg["pad"], shape, strict=True)
                    if low or high
                ]
                return self.guard(bounds, operands[0], self.constant(node.arg["value"], dtype), dtype)
            case "VALID":
                bounds = list(zip(index, node.arg["lo"], node.arg["hi"], strict=True))
                return self.guard(bounds, self.constant(True, dtype), self.constant(False, dtype), dtype)
            case "CAST":
                return (
                    operands[0] if self.dtype(operands[0]) is dtype else self.emit(dtype, Cast(operands[0]))
                )
            case _:
                return self.elementwise(node, operands, dtype)

    def elementwise(self, node: Node, operands: list[str], dtype: DType) -> str:
        given = iter(operands)
        sources = [next(given) if isinstance(source, str) else source for source in node.src]
        kinds = [self.dtype(source) for source in sources[node.uop == "WHERE" :] if isinstance(source, str)]
        kind = kinds[0] if kinds else dtype
        args = [
            source
            if isinstance(source, str)
            else self.constant(source, DType.BOOL if node.uop == "WHERE" and position == 0 else kind)
            for position, source in enumerate(sources)
        ]
        if node.uop == "WHERE":
            return self.emit(dtype, Select(*args))
        if node.uop in UNARY:
            return self.emit(dtype, Unary(node.uop, *args))
        return self.emit(dtype, Binary(node.uop, *args))

    def reduce(self, node: Node, index: Index) -> str:
        (source,) = node.operands()
        kind, operand = self.program.types[node.id], self.program.types[source]
        op, axes = node.arg["op"], tuple(node.arg["axes"])
        accumulate = DType.FP32 if kind.dtype.is_float else kind.dtype
        if op in ("MAX", "MIN") and operand.dtype is kind.dtype:
            accumulate = kind.dtype
        bound: list[Axis] = []
        full: list[Affine] = []
        kept = iter(index)
        for number, size in enumerate(operand.shape):
            if number in axes:
                name = f"r{len(bound)}"
                bound.append(Axis(name, int(size)))
                self.sizes[name] = int(size)
                full.append(axis(name) if int(size) > 1 else lit(0))
            else:
                full.append(next(kept))
        result = self.visit((source, tuple(full)))
        if self.dtype(result) is not accumulate:
            result = self.emit(accumulate, Cast(result))
        if bound:
            result = self.emit(accumulate, Reduce(op, tuple(bound), result))
        if node.arg.get("init") is not None:
            start = self.constant(node.arg["init"], accumulate)
            result = self.emit(accumulate, Binary({"SUM": "ADD", "PROD": "MUL"}.get(op, op), start, result))
        return result if accumulate is kind.dtype else self.emit(kind.dtype, Cast(result))

    def guard(self, bounds: Sequence[tuple[Affine, int, int]], then: str, other: str, dtype: DType) -> str:
        for index, low, high in bounds:
            first, last = index.bounds(self.sizes)
            if low <= first and last < high:
                continue
            cond = self.emit(DType.BOOL, Within(index, low, high))
            then = self.emit(dtype, Select(cond, then, other))
        return then

    def dtype(self, name: str) -> DType:
        return self.lets[int(name[1:])].dtype

    # ---- index maps ----

    def reshape(self, index: Index, node: Node) -> Index:
        to = [int(size) for size in self.program.types[node.id].shape]
        source = [int(size) for size in self.program.types[str(node.src[0])].shape]
        offset = lit(0)
        for size, i in zip(to, index, strict=True):
            offset = size * offset + i
        result: list[Affine] = []
        for size in reversed(source[1:]):
            quotient = self.divide(offset, size)
            result.append(offset - size * quotient)
            offset = quotient
        return (*([offset] if source else []), *reversed(result))

    def divide(self, index: Affine, den: int) -> Affine:
        """floor(index / den): multiples of ``den`` leave the division, the rest vanishes if its range allows."""
        whole = affine(index.const // den, ((c // den, atom) for c, atom in index.terms if c % den == 0))
        rest = affine(index.const % den, ((c, atom) for c, atom in index.terms if c % den))
        low, high = rest.bounds(self.sizes)
        return whole + (low // den if low // den == high // den else rest // den)

    def substitute(self, index: Affine, values: Mapping[str, Affine]) -> Affine:
        result = lit(index.const)
        for coef, atom in index.terms:
            if isinstance(atom, str):
                part = values[atom]
            else:
                part = self.divide(self.substitute(atom.num, values), atom.den)
            result = result + coef * part
        return result
