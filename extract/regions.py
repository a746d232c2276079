"""From the chosen kernels to Regions, Plans and the ExecutionPlan.

Axis names of the e-graph may shadow (two sums side by side bind the same id), so a Region gets names of its own:
``i0, i1, …`` for the iters, ``r0, r1, …`` for reduce axes, unique within the Region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, axis
from tinyc.ir.plan import BufferInfo, Contraction, ExecutionPlan, Extracted, Instruction, Plan
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
from tinyc.ir.tiny import COMPARE, Program

from .choice import Choice, Kernel, Key, children_of
from .names import Names
from .view import LEVEL, View, axis_extent, axis_id


@dataclass(frozen=True)
class Built:
    """``repeated``: the classes of reductions that a kernel would compute more than once (for different axes): what
    fans out is not to be recomputed (document 004 §6.7). ``reductions``: per Region, the classes of all in it."""

    extracted: Extracted
    repeated: frozenset[str]
    reductions: tuple[frozenset[str], ...]


def build(program: Program, view: View, choice: Choice) -> Built:
    """Regions in execution order. Buffers and kernels are named after the document's nodes."""
    args = [
        (port.name, program.types[port.node].dtype, tuple(map(int, program.types[port.node].shape)))
        for port in program.inputs
    ]
    names = Names()
    input_names = [names.fresh(name) for name, _, _ in args]
    buffer_names: dict[str, str] = {}
    for kernel in choice.kernels:
        number = min(
            (view.graph.names[way.root] for way in kernel.buffer.ways if way.root in view.graph.names),
            default=None,
        )
        node = program.nodes[number].id if number is not None else "value"
        buffer_names[kernel.buffer.cls] = names.fresh(node)
    refs = {
        cls: MemRef(buffer_names[cls], kernel.buffer.dtype or DType.FP32, kernel.buffer.shape)
        for kernel in choice.kernels
        for cls in [kernel.buffer.cls]
    }
    for name, buffer in view.buffers.items():
        if buffer.arg is not None:
            refs[name] = MemRef(input_names[buffer.arg], args[buffer.arg][1], args[buffer.arg][2])
    builders = [_RegionBuilder(view, kernel, refs) for kernel in choice.kernels]
    built = [builder.build() for builder in builders]
    regions = tuple(region for region, _ in built)
    plans = tuple(plan for _, plan in built)
    repeated = {origin for builder in builders for origin, count in builder.reduced.items() if count > 1}
    within = tuple(_classes(view, frozenset(builder.reduced)) for builder in builders)
    inputs = [MemRef(name, dtype, shape) for name, (_, dtype, shape) in zip(input_names, args, strict=True)]
    outputs = [refs[cls] for cls in view.graph.outputs]
    extracted = Extracted(regions, plans, execution_plan(regions, inputs, outputs))
    return Built(extracted, _classes(view, frozenset(repeated)), within)


def _classes(view: View, origins: frozenset[str]) -> frozenset[str]:
    return frozenset(cls for cls in view.items if view.origin(cls) in origins) if origins else origins


def execution_plan(
    regions: Sequence[Region], inputs: Sequence[MemRef], outputs: Sequence[MemRef]
) -> ExecutionPlan:
    """The regions in order over numbered buffers: inputs first, then one per region output.

    ``outputs``: of the program; their shapes are the signature's, whatever axes their kernels run over.
    """
    shown = {ref.name: ref for ref in outputs}
    refs = [*inputs, *(shown.get(ref.name, ref) for region in regions for ref in region.outputs)]
    ids = {ref.name: number for number, ref in enumerate(refs)}
    first: dict[str, int] = {ref.name: 0 for ref in inputs}
    last: dict[str, int] = {ref.name: 0 for ref in inputs}
    instructions = []
    for number, region in enumerate(regions):
        for ref in (*region.inputs, *region.outputs):
            first.setdefault(ref.name, number)
            last[ref.name] = number
        instructions.append(
            Instruction(
                number,
                tuple(ids[ref.name] for ref in region.inputs),
                tuple(ids[ref.name] for ref in region.outputs),
                region.name,
            )
        )
    for name in shown:
        last[name] = max(len(regions) - 1, 0)
    buffers = tuple(
        BufferInfo(
            ids[ref.name], ref.name, ref.shape, ref.dtype, (first[ref.name], last[ref.name]), ref.bytes
        )
        for ref in refs
    )
    return ExecutionPlan(
        tuple(instructions),
        buffers,
        tuple(ids[ref.name] for ref in inputs),
        tuple(ids[ref.name] for ref in outputs),
    )


@dataclass
class _RegionBuilder:
    """Walks the chosen items of one kernel from its root. A let is made once per class and renaming of its axes."""

    view: View
    kernel: Kernel
    refs: Mapping[str, MemRef]
    lets: list[Let] = field(default_factory=list)
    made: dict[tuple[Key, tuple[tuple[str, str], ...]], str] = field(default_factory=dict)
    used: dict[str, MemRef] = field(default_factory=dict)
    reduce_axes: int = 0
    contractions: list[tuple[str, str, str, tuple[tuple[str, ...], ...]]] = field(default_factory=list)
    reductions: int = 0
    reduced: dict[str, int] = field(default_factory=dict)

    def build(self) -> tuple[Region, Plan]:
        shape = self.kernel.way.shape
        iters = tuple(Axis(f"i{number}", size) for number, size in enumerate(shape))
        scope: dict[str, str] = {}
        level = 0
        for number, size in enumerate(shape):
            if size > 1:
                scope[f"a{level}x{size}"] = f"i{number}"
                level += 1
        result = self.visit(self.kernel.root, scope)
        ref = self.refs[self.kernel.buffer.cls]
        name, out = ref.name, MemRef(ref.name, ref.dtype, shape)
        region = Region(
            f"k_{name}", iters, tuple(self.used.values()), (out,), tuple(self.lets), (Yield(result, name),)
        )
        return region, self.plan()

    def plan(self) -> Plan:
        if len(self.contractions) != 1 or self.reductions != 1:
            return Plan()
        reduce, lhs, rhs, (batch, m, n, k) = self.contractions[0]
        return Plan("contraction", Contraction(reduce, lhs, rhs, batch, m, n, k))

    def visit(self, start: Key, scope: Mapping[str, str]) -> str:
        """The let for ``start``; iterative, since chains of elementwise work may be thousands long."""
        stack: list[tuple[Key, dict[str, str]]] = [(start, self.restrict(start, scope))]
        while stack:
            key, inner = stack[-1]
            if self.known(key, inner):
                stack.pop()
                continue
            item = self.kernel.items[key]
            if item.head in ("Reduce", "Contract"):
                self.reduction(key, inner)
                stack.pop()
                continue
            missing = [
                (child, self.restrict(child, inner))
                for child in children_of(key, item)
                if not self.known(child, self.restrict(child, inner))
            ]
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            operands = [
                self.known(child, self.restrict(child, inner)) or "" for child in children_of(key, item)
            ]
            dtype, value = self.value(key, operands, inner)
            self.emit(key, inner, dtype, value)
        found = self.known(start, self.restrict(start, scope))
        assert found is not None
        return found

    def restrict(self, key: Key, scope: Mapping[str, str]) -> dict[str, str]:
        return {name: scope[name] for name in sorted(self.view.free[key[0]])}

    def known(self, key: Key, scope: Mapping[str, str]) -> str | None:
        return self.made.get((key, tuple(scope.items())))

    def emit(self, key: Key, scope: Mapping[str, str], dtype: DType, value: Value) -> str:
        name = f"v{len(self.lets)}"
        self.lets.append(Let(name, dtype, value))
        self.made[(key, tuple(scope.items()))] = name
        return name

    def value(self, key: Key, operands: list[str], scope: Mapping[str, str]) -> tuple[DType, Value]:
        item = self.kernel.items[key]
        match item.head:
            case "Read":
                ref = self.refs[str(item.payload[0])]
                self.used[ref.name] = ref
                index_map = tuple(_rename(index, scope) for index in item.payload[1])  # type: ignore[attr-defined]
                return ref.dtype, Read(ref.name, index_map)
            case "Const":
                dtype, bits = item.payload
                return dtype, Const(bits)  # type: ignore[return-value, arg-type]
            case "Within":
                index, low, high = item.payload
                return DType.BOOL, Within(_rename(index, scope), low, high)  # type: ignore[arg-type]
            case "Unary":
                return self.dtype(operands[0]), Unary(item.op, operands[0])
            case "Cast":
                return DType(item.op), Cast(operands[0])
            case "Select":
                return self.dtype(operands[1]), Select(*operands)
            case _:
                dtype = DType.BOOL if item.op in COMPARE else self.dtype(operands[0])
                return dtype, Binary(item.op, *operands)

    def dtype(self, name: str) -> DType:
        return self.lets[int(name[1:])].dtype

    def reduction(self, key: Key, scope: Mapping[str, str]) -> None:
        """A Reduce with axes of its own; its body is walked in the scope that they extend."""
        item = self.kernel.items[key]
        contract = item.head == "Contract"
        bound: tuple[str, ...] = item.payload[0] if contract else item.payload  # type: ignore[assignment]
        inner = {name: value for name, value in scope.items() if name not in bound}
        axes = []
        for name in bound:
            axes.append(Axis(f"r{self.reduce_axes}", axis_extent(name)))
            inner[name] = f"r{self.reduce_axes}"
            self.reduce_axes += 1
        parts = [self.visit(child, inner) for child in children_of(key, item)]
        body = parts[0]
        if contract:
            body = f"v{len(self.lets)}"
            self.lets.append(Let(body, self.dtype(parts[0]), Binary("MUL", *parts)))
        made = self.emit(key, scope, self.dtype(body), Reduce(item.op, tuple(axes), body))
        self.reductions += 1
        origin = self.view.origin(key[0])
        self.reduced[origin] = self.reduced.get(origin, 0) + 1
        if contract and all(axis_id(name) < LEVEL for name in scope):
            roles = tuple(tuple(inner[name] for name in role) for role in item.payload[1:])  # type: ignore[attr-defined]
            self.contractions.append((made, parts[0], parts[1], roles))


def _rename(index: Affine, scope: Mapping[str, str]) -> Affine:
    return index.substitute({name: axis(scope[name]) for name in index.axes()})
