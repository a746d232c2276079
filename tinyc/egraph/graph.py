"""The saturated e-graph as extraction sees it: expressions, buffers and index vectors, nothing of the engine.

The worker compacts the engine's dump to this form and sends it as JSON; :class:`Graph` reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: constructors that an extracted program may hold, with their arguments after the class they belong to
EXTRACTABLE = frozenset(
    {"Read", "Const", "Within", "Unary", "Binary", "Select", "Cast", "Reduce"}
    | {"Arg", "Fill", "Alias", "Lit", "Plus", "Ax", "FloorDiv", "vec-of", "vec-empty", "set-of", "set-empty"}
)
FACTS = frozenset({"Out", "contracts", "free", "named"})

Argument = int | str
"""An integer, a string literal as ``"'text"``, or the name of a class."""


@dataclass(frozen=True, slots=True)
class ENode:
    """A constructor and its arguments."""

    op: str
    args: tuple[Argument, ...]


@dataclass(frozen=True)
class Graph:
    """``classes``: the nodes of each class. ``outputs``: buffer class per output number. ``free``: axes of each
    expression class. ``contracts``: rows of that relation. ``names``: fill expression class -> node numbers."""

    classes: Mapping[str, tuple[ENode, ...]]
    outputs: tuple[str, ...]
    free: Mapping[str, str]
    contracts: tuple[tuple[Argument, ...], ...]
    names: Mapping[str, int]


def compact(dump: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's dump (format of egraph-serialize) without what extraction has no use for. Plain JSON."""
    nodes = dump["nodes"]

    def argument(child: str) -> Argument:
        node = nodes[child]
        kind = node["eclass"]
        if kind.startswith("i64-"):
            return int(node["op"])
        if kind.startswith("String-"):
            return "'" + node["op"][1:-1]
        return str(kind)

    classes: dict[str, list[list[Any]]] = {}
    facts: dict[str, list[list[Any]]] = {name: [] for name in FACTS}
    tensors: dict[str, set[str]] = {}
    for node in nodes.values():
        op = node["op"]
        if node["subsumed"]:
            continue
        if op in EXTRACTABLE:
            classes.setdefault(node["eclass"], []).append([op, *map(argument, node["children"])])
        elif op == "free":
            facts["free"].append([*map(argument, node["children"]), node["eclass"]])
        elif op in FACTS:
            facts[op].append([*map(argument, node["children"])])
        elif op == "At":
            tensors.setdefault(nodes[node["children"][0]]["eclass"], set()).add(node["eclass"])
    names: dict[str, int] = {}
    for number, tensor in facts.pop("named"):
        for expression in tensors.get(tensor, ()):
            names[expression] = min(number, names.get(expression, number))
    return {"classes": classes, "facts": facts, "names": names}


def read(data: Mapping[str, Any]) -> Graph:
    """The inverse of :func:`compact`. Nodes of a class come in a fixed order, whatever the engine's was."""
    classes = {
        name: tuple(sorted((ENode(op, tuple(args)) for op, *args in nodes), key=_order))
        for name, nodes in data["classes"].items()
    }
    outputs = {number: str(buffer) for number, buffer in data["facts"]["Out"]}
    return Graph(
        classes,
        tuple(outputs[number] for number in sorted(outputs)),
        {str(expression): str(axes) for expression, axes in data["facts"]["free"]},
        tuple(tuple(row) for row in data["facts"]["contracts"]),
        data["names"],
    )


def _order(node: ENode) -> tuple[str, tuple[tuple[int, int | str], ...]]:
    return node.op, tuple((0, arg) if isinstance(arg, int) else (1, arg) for arg in node.args)
