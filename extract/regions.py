"""From the chosen kernels to Regions, Plans and the ExecutionPlan.

Axis names of the e-graph may shadow (two sums side by side bind the same id), so a Region gets names of its own:
``i0, i1, …`` for the iters, ``r0, r1, …`` for reduce axes, unique within the Region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tinyc.ir.dtypes import DType
from tinyc.ir.execution import region_execution
from tinyc.ir.index import Affine, axis
from tinyc.ir.plan import Contraction, Extracted, Plan
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
    Stream,
    Unary,
    Value,
    Within,
    Yield,
    operands,
)
from tinyc.ir.rows import one_row, rounds
from tinyc.ir.signature import signature_of
from tinyc.ir.tiny import COMPARE, Program

from .choice import Choice, Kernel, Key, children_of
from .names import Names
from .view import LEVEL, View, axis_extent, axis_id


@dataclass(frozen=True)
class Built:
    """``repeated``: the classes of reductions that a kernel would compute more than once, for different axes; ``compared``: of those
    that several kernels would compute, and one of them compare.
    ``reductions``: per Region, the classes of all in it. ``reads``: per
    Region, for the let of each Read, the class that it is a value of."""

    extracted: Extracted
    repeated: frozenset[str]
    compared: frozenset[str]
    reductions: tuple[frozenset[str], ...]
    reads: tuple[Mapping[str, str], ...]


def build(program: Program, view: View, choice: Choice, rows: bool = False) -> Built:
    """Regions in execution order. Buffers and kernels are named after the document's nodes.

    ``rows``: the target keeps rows of a reduction on chip, so that a kernel may need one at several names of an axis.
    """
    names = Names()
    inputs = [
        MemRef(names.fresh(each.name), each.dtype, tuple(map(int, each.shape)), each.alignment)
        for each in signature_of(program).inputs
    ]
    buffer_names: dict[str, str] = {}
    for kernel in choice.kernels:
        number = min(
            (view.graph.names[way.root] for way in kernel.buffer.ways if way.root in view.graph.names),
            default=None,
        )
        node = program.nodes[number].id if number is not None else "value"
        buffer_names[kernel.buffer.cls] = names.fresh(node)
    refs = {
        cls: MemRef(buffer_names[cls], kernel.buffer.dtype, kernel.buffer.shape)
        for kernel in choice.kernels
        for cls in [kernel.buffer.cls]
    }
    for name, buffer in view.buffers.items():
        if buffer.arg is not None:
            refs[name] = inputs[buffer.arg]
    builders = [_RegionBuilder(view, kernel, refs, rows) for kernel in choice.kernels]
    built = [builder.build() for builder in builders]
    regions = tuple(region for region, _ in built)
    plans = tuple(plan for _, plan in built)
    repeated = {origin for builder in builders for origin in builder.repeated}
    classes: dict[str, set[str]] = {}
    for cls in view.items:
        classes.setdefault(view.origin(cls), set()).add(cls)

    def everywhere(origins: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(classes.get(origin, ()) for origin in origins))

    within = tuple(everywhere(builder.reduced) for builder in builders)
    outputs = [refs[cls] for cls in view.graph.outputs]
    extracted = Extracted(regions, plans, region_execution(regions, inputs, outputs))
    reads = tuple(builder.reads() for builder in builders)
    compared = everywhere(_compared(builders, regions))
    return Built(extracted, everywhere(repeated), compared, within, reads)


def _compared(builders: Sequence[_RegionBuilder], regions: Sequence[Region]) -> set[str]:
    """The reductions that round, that several kernels compute, and that a comparison hangs on: each kernel may add up in an order of its
    own, and p == m would not hold where m is the largest p of another."""
    kernels = Counter(origin for builder in builders for origin in builder.reduced)
    found = set[str]()
    for builder, region in zip(builders, regions, strict=True):
        lets = {let.name: let for let in region.lets}
        pending = [let.name for let in region.lets if getattr(let.value, "op", "") in COMPARE]
        seen = set[str]()
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += operands(lets[name].value)
        rounding = {name for name in seen if rounds(lets[name])}
        found |= {origin for origin, names in builder.reduced.items() if rounding.intersection(names)}
    return {origin for origin in found if kernels[origin] > 1}


@dataclass
class _RegionBuilder:
    """Walks the chosen items of one kernel from its root. A let is made once per class and renaming of its axes."""

    view: View
    kernel: Kernel
    refs: Mapping[str, MemRef]
    rows: bool = False
    lets: list[Let] = field(default_factory=list)
    made: dict[tuple[Key, tuple[tuple[str, str], ...]], str] = field(default_factory=dict)
    used: dict[str, MemRef] = field(default_factory=dict)
    reduce_axes: int = 0
    contractions: list[tuple[str, str, str, tuple[tuple[str, ...], ...]]] = field(default_factory=list)
    scans: dict[object, tuple[dict[str, str], tuple[Axis, ...]]] = field(default_factory=dict)
    reductions: int = 0
    reduced: dict[str, list[str]] = field(default_factory=dict)
    products: list[str] = field(default_factory=list)
    repeated: tuple[str, ...] = ()

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
        self.repeated = self.again(region)
        return region, self.plan(region)

    def reads(self) -> Mapping[str, str]:
        return {name: key[0] for (key, _), name in self.made.items() if self.kernel.items[key].head == "Read"}

    def plan(self, region: Region) -> Plan:
        alone = self.reductions == 1 or (self.rows and one_row(region, self.products))
        if len(self.contractions) != 1 or not alone:
            return Plan()
        reduce, lhs, rhs, (batch, m, n, k) = self.contractions[0]
        if not (m and n):
            return Plan()  # a matrix-vector product: there is nothing to tile
        return Plan("contraction", Contraction(reduce, lhs, rhs, batch, m, n, k))

    def again(self, region: Region) -> tuple[str, ...]:
        """The reductions that the kernel computes more than once: for different axes, and not to keep as a row."""
        several = {origin: names for origin, names in self.reduced.items() if len(names) > 1}
        return tuple(
            origin for origin, names in several.items() if not (self.rows and one_row(region, names))
        )

    def visit(self, start: Key, scope: Mapping[str, str]) -> str:
        """The let for ``start``; iterative, since chains of elementwise work may be thousands long."""
        stack: list[tuple[Key, dict[str, str]]] = [(start, self.restrict(start, scope))]
        while stack:
            key, inner = stack[-1]
            if self.known(key, inner):
                stack.pop()
                continue
            item = self.kernel.items[key]
            if item.head in ("Reduce", "Contract", "Stream"):
                self.stream(key, inner) if item.head == "Stream" else self.reduction(key, inner)
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
        inner, axes = self.bind(bound, scope)
        parts = [self.visit(child, inner) for child in children_of(key, item)]
        body = parts[0]
        if contract:
            body = f"v{len(self.lets)}"
            self.lets.append(Let(body, self.dtype(parts[0]), Binary("MUL", *parts)))
        made = self.emit(key, scope, self.dtype(body), Reduce(item.op, axes, body))
        self.count(key)
        if contract:
            self.products.append(made)
        if contract and all(axis_id(name) < LEVEL for name in scope):
            roles = tuple(tuple(inner[name] for name in role) for role in item.payload[1:])  # type: ignore[attr-defined]
            self.contractions.append((made, parts[0], parts[1], roles))

    def stream(self, key: Key, scope: Mapping[str, str]) -> None:
        """A Stream. Those over the same scores share their axes, so that code generation can walk them together."""
        scan, weight = children_of(key, self.kernel.items[key])
        bound, bits, rounded = self.kernel.items[scan].payload
        (score,) = children_of(scan, self.kernel.items[scan])
        where = (scan, tuple(self.restrict(scan, scope).items()))
        if where not in self.scans:
            names, axes = self.bind(bound, scope)  # type: ignore[arg-type]
            self.scans[where] = ({name: names[name] for name in bound}, axes)  # type: ignore[attr-defined]
        names, axes = self.scans[where]
        inner = {**scope, **names}
        parts = [self.visit(child, inner) for child in (score, weight)]
        factor = Const(bits)  # type: ignore[arg-type]
        there = (let.name for let in self.lets if let.dtype is DType.FP32 and let.value == factor)
        scale = next(there, f"v{len(self.lets)}")
        if scale == f"v{len(self.lets)}":
            self.lets.append(Let(scale, DType.FP32, factor))
        self.emit(key, scope, DType.FP32, Stream(axes, parts[0], parts[1], scale, rounded))  # type: ignore[arg-type]
        self.count(key)

    def bind(self, bound: Sequence[str], scope: Mapping[str, str]) -> tuple[dict[str, str], tuple[Axis, ...]]:
        """New axes for those that a reduction binds, and the scope inside it."""
        inner = {name: value for name, value in scope.items() if name not in bound}
        axes = []
        for name in bound:
            axes.append(Axis(f"r{self.reduce_axes}", axis_extent(name)))
            inner[name] = axes[-1].name
            self.reduce_axes += 1
        return inner, tuple(axes)

    def count(self, key: Key) -> None:
        self.reductions += 1
        self.reduced.setdefault(self.view.origin(key[0]), []).append(self.lets[-1].name)


def _rename(index: Affine, scope: Mapping[str, str]) -> Affine:
    return index.substitute({name: axis(scope[name]) for name in index.axes()})
