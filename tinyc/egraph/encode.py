"""A Tiny program as terms of ``rules/schema.egg``: one term per step, no rewriting.

Names never enter the engine: inputs and nodes are numbers. Movement goes in one axis at a time; a reduction goes in
over the last axes, behind a PERMUTE where it must; an explicit ``init`` is an operation outside the reduction; what
accumulates in fp32 but is stored narrower is followed by a cast.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dims import to_affine
from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.index import Affine
from tinyc.ir.resources import Limits
from tinyc.ir.tiny import COMPARE, UNARY, Node, Program, TensorType

MAX_RANK = 16
"""Axis ids leave room for 16 axes per level of nesting."""

Argument = int | str | list[Any]
"""An i64, a String, or ``["@", k]``: the term at position k."""


@dataclass
class Encoded:
    """Flat terms ``[constructor, [arguments]]``, facts ``[relation, [arguments]]``, and function values
    ``[function, [arguments], value]``; all plain JSON."""

    terms: list[tuple[str, list[Argument]]] = field(default_factory=list)
    facts: list[tuple[str, list[Argument]]] = field(default_factory=list)
    sets: list[tuple[str, list[Argument], Argument]] = field(default_factory=list)


def encode(
    program: Program, max_depth: int = 2, apart: Collection[str] = (), machine: Limits | None = None
) -> Encoded:
    """The terms of ``program``, whose shapes must be integers. ``max_depth``: reductions nested in one kernel.
    ``apart``: ids of REDUCE nodes that no other reduction may hold in its kernel (function ``fusible`` of the rules).
    ``machine``: what plan candidates are made for (``target-machine`` and ``limit-of`` of rules/hardware.egg); None: none are."""
    encoded = _Encoder(program, frozenset(apart)).run(max_depth)
    if machine is not None:
        encoded.facts.append(("target-machine", [machine.arch]))
        encoded.sets += [("limit-of", [name], value) for name, value in machine_limits(machine).items()]
    return encoded


def machine_limits(machine: Limits) -> dict[str, int]:
    """What the rules ask of a machine, by the names that they give it."""
    return {
        "smem": machine.smem_bytes,
        "threads": machine.threads,
        "registers": machine.registers,
        "registers-per-sm": machine.registers_per_sm,
        "multiprocessors": machine.multiprocessors,
        "access": machine.access_bytes,
        "lanes": machine.lanes,
        "rows": machine.rows,
    }


class _Encoder:
    def __init__(self, program: Program, apart: frozenset[str]) -> None:
        self.program = program
        self.apart = apart
        self.out = Encoded()
        self.seen: dict[tuple[str, tuple[Any, ...]], int] = {}
        self.value: dict[str, Argument] = {}

    def run(self, max_depth: int) -> Encoded:
        for number, port in enumerate(self.program.inputs):
            kind = self.program.types[port.node]
            ref = self.term("Input", number)
            self.out.sets.append(("shape", [ref], self.ints(_sizes(kind))))
            self.out.sets.append(("dtype", [ref], kind.dtype.value))
            self.value[port.node] = ref
        for number, node in enumerate(self.program.nodes):
            if node.uop != "INPUT":
                self.value[node.id] = self.node(node)
            self.out.facts.append(("node-number", [number, self.value[node.id]]))
        for number, port in enumerate(self.program.outputs):
            self.out.facts.append(("program-output", [number, self.value[port.node]]))
        self.out.facts.append(("max-depth", [max_depth]))
        self.out.facts.append(("program-size", [len(self.program.nodes)]))
        return self.out

    # ---- terms ----

    def term(self, name: str, *args: Argument) -> Argument:
        key = (name, tuple(tuple(arg) if isinstance(arg, list) else arg for arg in args))
        if key not in self.seen:
            self.seen[key] = len(self.out.terms)
            self.out.terms.append((name, list(args)))
        return ["@", self.seen[key]]

    def ints(self, values: tuple[int, ...]) -> Argument:
        return self.term("vec-of", *values) if values else self.term("vec-empty")

    def imm(self, value: float | int | bool, dtype: DType) -> Argument:
        return self.term("Imm", dtype.value, to_bits(value, dtype))

    def cast(self, x: Argument, source: DType, to: DType) -> Argument:
        return x if source is to else self.term("TCast", to.value, x)

    # ---- nodes ----

    def node(self, node: Node) -> Argument:
        kind = self.program.types[node.id]
        if len(kind.shape) > MAX_RANK:
            raise TinycError(
                "InvalidShape",
                f"{node.id} has rank {len(kind.shape)}, more than {MAX_RANK}",
                "merge some of the axes with RESHAPE",
                at={"layer": "egraph", "node": node.id, "op": node.uop},
            )
        match node.uop:
            case "VALID":
                return self.valid(node, _sizes(kind))
            case "REDUCE":
                return self.reduce(node, kind)
            case "RESHAPE" | "PERMUTE" | "EXPAND" | "PAD" | "SHRINK" | "FLIP" | "VIEW":
                return self.movement(node, kind)
            case _:
                return self.elementwise(node)

    def elementwise(self, node: Node) -> Argument:
        operand = next(
            self.program.types[source].dtype
            for source in (node.src[1:] if node.uop == "WHERE" and _any_node(node.src[1:]) else node.src)
            if isinstance(source, str)
        )
        args: list[Argument] = []
        for position, source in enumerate(node.src):
            if isinstance(source, str):
                args.append(self.value[source])
            else:
                condition = node.uop == "WHERE" and position == 0
                where = self.program.types[node.id].dtype if node.uop == "WHERE" else operand
                args.append(self.imm(source, DType.BOOL if condition else where))
        if node.uop == "WHERE":
            return self.term("TWhere", *args)
        if node.uop == "CAST":
            return self.cast(args[0], operand, node.arg["to"])
        if node.uop in UNARY:
            return self.term("TUnary", node.uop, *args)
        if node.uop in COMPARE:
            return self.term("TBinary", node.uop, *args)
        return self.term("TBinary", node.uop, *args)

    def movement(self, node: Node, kind: TensorType) -> Argument:
        (source,) = node.operands()
        x, shape, before = self.value[source], _sizes(kind), _sizes(self.program.types[source])
        match node.uop:
            case "RESHAPE":
                return self.term("Reshape", x, self.ints(shape)) if shape != before else x
            case "PERMUTE":
                return self.permute(x, tuple(node.arg["perm"]))
            case "EXPAND":
                for axis, (size, wanted) in enumerate(zip(before, shape, strict=True)):
                    x = self.term("Expand", x, axis, wanted) if size != wanted else x
            case "PAD":
                value = self.imm(node.arg["value"], kind.dtype)
                for axis, (low, high) in enumerate(node.arg["pad"]):
                    x = self.term("Pad", x, axis, low, high, value) if low or high else x
            case "SHRINK":
                for axis, (low, high, step) in enumerate(
                    zip(node.arg["lo"], node.arg["hi"], node.arg["step"], strict=True)
                ):
                    whole = low == 0 and high == before[axis] and step == 1
                    x = x if whole else self.term("Shrink", x, axis, low, high, step)
            case "FLIP":
                for axis in node.arg["axes"]:
                    x = self.term("Flip", x, axis % len(shape))
            case "VIEW":
                index_map = [self.index(to_affine(text), shape) for text in node.arg["index_map"]]
                vector = self.term("vec-of", *index_map) if index_map else self.term("vec-empty")
                x = self.term("View", x, self.ints(shape), vector)
        return x

    def permute(self, x: Argument, perm: tuple[int, ...]) -> Argument:
        if perm == tuple(range(len(perm))):
            return x
        inverse = tuple(perm.index(axis) for axis in range(len(perm)))
        return self.term("Permute", x, self.ints(perm), self.ints(inverse))

    def valid(self, node: Node, shape: tuple[int, ...]) -> Argument:
        if not shape:
            return self.term("Reshape", self.term("Valid", self.ints((1,)), 0, 0, 1), self.ints(()))
        bounds = list(zip(node.arg["lo"], node.arg["hi"], strict=True))
        result: Argument | None = None
        for axis, (low, high) in reversed(list(enumerate(bounds))):
            here = self.term("Valid", self.ints(shape), axis, low, high)
            no = self.imm(False, DType.BOOL)
            result = here if result is None else self.term("TWhere", here, result, no)
        assert result is not None
        return result

    def reduce(self, node: Node, kind: TensorType) -> Argument:
        (source,) = node.operands()
        operand = self.program.types[source]
        axes: tuple[int, ...] = tuple(node.arg["axes"])
        op: str = node.arg["op"]
        accumulate = DType.FP32 if kind.dtype.is_float else kind.dtype
        if op in ("MAX", "MIN") and operand.dtype is kind.dtype:
            accumulate = kind.dtype  # picking a value needs no wider type
        x = self.cast(self.value[source], operand.dtype, accumulate)
        if axes:
            rank = len(operand.shape)
            kept = tuple(axis for axis in range(rank) if axis not in axes)
            x = self.term("TReduce", op, len(axes), self.permute(x, (*kept, *axes)))
            if node.id in self.apart:
                self.out.sets.append(("fusible", [x], 0))
        if node.arg.get("init") is not None:
            combine = {"SUM": "ADD", "PROD": "MUL"}.get(op, op)
            x = self.term("TBinary", combine, self.imm(node.arg["init"], accumulate), x)
        return self.cast(x, accumulate, kind.dtype)

    def index(self, index: Affine, shape: tuple[int, ...]) -> Argument:
        """An Affine over ``i0, i1, …`` as an index term over axes 0, 1, …; the rules bring it into normal form."""
        result = self.term("Lit", index.const)
        for coef, atom in index.terms:
            if isinstance(atom, str):
                axis = int(atom[1:])
                if shape[axis] == 1:
                    continue  # an axis of one point is the literal 0
                spelled = self.term("Ax", axis, shape[axis])
            else:
                spelled = self.term("FloorDiv", self.index(atom.num, shape), atom.den)
            single = self.term("Plus", coef, spelled, self.term("Lit", 0))
            result = self.term("IAdd", single, result)
        return result


def _sizes(kind: TensorType) -> tuple[int, ...]:
    assert all(isinstance(size, int) for size in kind.shape), kind
    return tuple(int(size) for size in kind.shape)


def _any_node(sources: tuple[Any, ...]) -> bool:
    return any(isinstance(source, str) for source in sources)
