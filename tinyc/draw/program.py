"""A Tiny program as a graph: a node per uop, the type of what flows at every edge (document 001)."""

from __future__ import annotations

from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Node as Uop
from tinyc.ir.tiny import Program

from .drawing import LIMIT, Drawing, Edge, Group, Node, render, shape_text


def draw_program(program: Program, form: str = "dot", limit: int = LIMIT) -> str:
    """The program as "dot" or "mermaid" text, cut at ``limit`` nodes; sizes may be symbols. Operands are numbered where
    their order matters. Raises TinycError InvalidArgument."""
    kinds = {id: shape_text(kind.dtype.value, kind.shape) for id, kind in program.types.items()}
    names = {port.node: port.name for port in program.inputs}
    nodes = [
        Node(
            _key(node.id),
            (f"input {names[node.id]}", kinds[node.id])
            if node.uop == "INPUT"
            else (f"{node.id}: {node.uop}", *_details(node)),
            "data" if node.uop == "INPUT" else "box",
        )
        for node in program.nodes
    ]
    results = [
        Node(f"output {number}", (f"output {port.name}",), "result")
        for number, port in enumerate(program.outputs)
    ]
    edges = [
        Edge(
            _key(source), _key(node.id), f"{number}: {kinds[source]}" if len(node.src) > 1 else kinds[source]
        )
        for node in program.nodes
        for number, source in enumerate(node.src)
        if isinstance(source, str)
    ]
    edges += [
        Edge(_key(port.node), result.key, kinds[port.node])
        for port, result in zip(program.outputs, results, strict=True)
    ]
    return render(Drawing((Group("", (*nodes, *results)),), tuple(edges)), form, limit)


def _key(id: str) -> str:
    return f"node {id}"


def _details(node: Uop) -> tuple[str, ...]:
    """A line for the immediates and one for what the uop says beside its operands."""
    numbers = [
        f"operand {at} = {source}" for at, source in enumerate(node.src) if not isinstance(source, str)
    ]
    said = [f"{key}={_text(value)}" for key, value in node.arg.items() if value is not None]
    return tuple(line for line in (", ".join(numbers), " ".join(said)) if line)


def _text(value: object) -> str:
    if isinstance(value, DType):
        return value.value
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)
