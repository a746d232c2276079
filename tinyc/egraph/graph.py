"""The saturated e-graph as extraction sees it: expressions, buffers and index vectors, nothing of the engine.

The worker compacts the engine's tables to this form and sends it as JSON; :class:`Graph` reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the engine itself lives in the worker's process only
    from .engine import Tables

Argument = int | str
"""An integer, a string literal as ``"'text"``, or the name of a class."""


EXTRACTABLE = (
    *(
        "Ax",
        "FloorDiv",
        "Lit",
        "Plus",
        "Read",
        "Const",
        "Within",
        "Unary",
        "Binary",
        "Select",
        "Cast",
        "Reduce",
        "Stream",
        "RoundedStream",
    ),
    *("Arg", "Fill", "Alias"),
)
"""Constructors that an extracted program may hold; the names of classes follow this order."""

RECORD = "rule-record-"
"""What the names of the tables start with in which rules record their matches (provenance.py)."""

PROBLEMS = ("Product", "Packed", "Row", "Fold", "Walk")
"""Constructors of what the schedule of a kernel depends on."""

TABLES = (*EXTRACTABLE, "Out", "contracts", "free", "node-number", "At", *PROBLEMS, "plan-candidate")
"""What is read from the engine."""


@dataclass(frozen=True, slots=True)
class ENode:
    """A constructor and its arguments."""

    op: str
    args: tuple[Argument, ...]


@dataclass(frozen=True)
class Graph:
    """``classes``: the nodes of each class. ``outputs``: buffer class per output number. ``free``: axes of each
    expression class. ``contracts``: rows of that relation. ``names``: fill expression class -> node numbers.
    ``candidates``: plan candidates by problem, both as the rules spell them (rules/problem.egg, rules/plan.egg): of
    problem ``(constructor, *arguments)`` the rows of ``plan-candidate`` without the problem, in a fixed order."""

    classes: Mapping[str, tuple[ENode, ...]]
    outputs: tuple[str, ...]
    free: Mapping[str, str]
    contracts: tuple[tuple[Argument, ...], ...]
    names: Mapping[str, int]
    candidates: Mapping[tuple[Argument, ...], tuple[tuple[Argument, ...], ...]] = field(default_factory=dict)


def compact(tables: Tables) -> dict[str, Any]:
    """Rows of the engine in the form that is sent. Plain JSON."""
    classes: dict[str, list[list[Any]]] = {}
    for op in EXTRACTABLE:
        for args, cls in tables.rows[op]:
            classes.setdefault(str(cls), []).append([op, *args])
    for cls, elements in tables.containers.items():
        classes[cls] = [["set-of" if cls.startswith("Axes") else "vec-of", *elements]]
    tensors: dict[Argument, list[str]] = {}
    for (tensor, _), cls in tables.rows["At"]:
        tensors.setdefault(tensor, []).append(str(cls))
    names: dict[str, int] = {}
    for (number, tensor), _ in tables.rows["node-number"]:
        for expression in tensors.get(tensor, ()):
            names[expression] = min(int(number), names.get(expression, int(number)))
    problems = {cls: [op, *args] for op in PROBLEMS for args, cls in tables.rows[op]}
    facts = {
        "candidate": [[problems[args[0]], *args[1:]] for args, _ in tables.rows["plan-candidate"]],
        "Out": [args for args, _ in tables.rows["Out"]],
        "contracts": [args for args, _ in tables.rows["contracts"]],
        "free": [[expression, axes] for (expression,), axes in tables.rows["free"]],
    }
    return {"classes": classes, "facts": facts, "names": names}


def read(data: Mapping[str, Any]) -> Graph:
    """The inverse of :func:`compact`. Nodes of a class come in a fixed order, whatever the engine's was."""
    classes = {
        name: tuple(sorted((ENode(op, tuple(args)) for op, *args in nodes), key=_order))
        for name, nodes in data["classes"].items()
    }
    candidates: dict[tuple[Argument, ...], list[tuple[Argument, ...]]] = {}
    for problem, *row in data["facts"]["candidate"]:
        candidates.setdefault(tuple(map(_plain, problem)), []).append(tuple(map(_plain, row)))
    outputs = {number: str(buffer) for number, buffer in data["facts"]["Out"]}
    return Graph(
        classes,
        tuple(outputs[number] for number in sorted(outputs)),
        {str(expression): str(axes) for expression, axes in data["facts"]["free"]},
        tuple(tuple(row) for row in data["facts"]["contracts"]),
        data["names"],
        {problem: tuple(sorted(rows, key=repr)) for problem, rows in sorted(candidates.items(), key=repr)},
    )


def _plain(argument: Argument) -> Argument:
    """A string without the mark that tells it from the name of a class."""
    return argument[1:] if isinstance(argument, str) and argument.startswith("'") else argument


def _order(node: ENode) -> tuple[str, tuple[tuple[int, int | str], ...]]:
    return node.op, tuple((0, arg) if isinstance(arg, int) else (1, arg) for arg in node.args)
