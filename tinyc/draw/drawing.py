"""A drawing as data, and as text of the two languages.

Ids are made here (``d0, d1, …``) and every text of a user is a quoted label, escaped, so that no name can become
syntax. A drawing is cut at a number of nodes: nobody reads a picture of thousands, and Mermaid draws no more than 500
edges and 50,000 characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tinyc.ir.diagnostics import TinycError, show

FORMS = ("dot", "mermaid")
LIMIT = 150
"""Nodes of one drawing; at most twice as many edges are drawn."""

MAX_LABEL = 48
"""Characters of one line of a label."""


@dataclass(frozen=True)
class Node:
    """``key``: anything that names it within the drawing. ``lines``: of its label. ``kind``: box, data (a buffer, an
    input), result or note."""

    key: str
    lines: tuple[str, ...]
    kind: str = "box"


@dataclass(frozen=True)
class Edge:
    """From the node ``start`` to the node ``end``, by keys."""

    start: str
    end: str
    label: str = ""


@dataclass(frozen=True)
class Group:
    """Nodes that are drawn within one frame; an empty title draws none."""

    title: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Drawing:
    """Groups of nodes in order, and edges between them; an edge to a node that is not there is left out.
    ``hidden``: how many nodes were cut."""

    groups: tuple[Group, ...]
    edges: tuple[Edge, ...]
    hidden: int = 0


def render(drawing: Drawing, form: str = "dot", limit: int = LIMIT) -> str:
    """The drawing as "dot" or "mermaid" text, cut at ``limit`` nodes. Raises TinycError InvalidArgument."""
    if form not in FORMS:
        raise TinycError(
            "InvalidArgument",
            f"there is no drawing of form {show(form)}",
            f"use one of {', '.join(FORMS)}",
            {"layer": "draw", "value": show(form)},
        )
    if limit < 1:
        raise TinycError(
            "InvalidArgument", f"a drawing of {limit} nodes", "use at least 1", {"layer": "draw"}
        )
    cut = _cut(drawing, limit)
    keys = [node.key for group in cut.groups for node in group.nodes]
    ids = {key: f"d{number}" for number, key in enumerate(keys)}
    edges = [edge for edge in cut.edges if edge.start in ids and edge.end in ids]
    notes = []
    if cut.hidden:
        notes.append(f"{cut.hidden} more nodes are not drawn")
    if len(edges) > 2 * limit:
        notes.append(f"{len(edges) - 2 * limit} more edges are not drawn")
    groups = cut.groups
    if notes:
        groups = (*groups, Group("", (Node("note", tuple(notes), "note"),)))
        ids["note"] = "note"
    return (_dot if form == "dot" else _mermaid)(groups, edges[: 2 * limit], ids)


def _cut(drawing: Drawing, limit: int) -> Drawing:
    """The first ``limit`` nodes, group by group."""
    groups: list[Group] = []
    room = limit
    for group in drawing.groups:
        if room > 0:
            groups.append(Group(group.title, group.nodes[:room]))
        room -= len(group.nodes)
    return Drawing(tuple(groups), drawing.edges, drawing.hidden + max(0, -room))


# --- DOT -------------------------------------------------------------------------------------------------------

_DOT_KINDS = {
    "box": "shape=box",
    "data": 'shape=box, style="rounded,filled", fillcolor="#eef3fb"',
    "result": 'shape=box, style="rounded,filled", fillcolor="#eaf6ea"',
    "note": "shape=note",
}


def _dot(groups: Sequence[Group], edges: Sequence[Edge], ids: Mapping[str, str]) -> str:
    lines = ["digraph tinyc {", "  rankdir=TB;", '  node [fontname="sans-serif", fontsize=10];']
    lines.append('  edge [fontname="sans-serif", fontsize=9];')
    for number, group in enumerate(groups):
        indent = "  "
        if group.title:
            lines += [f"  subgraph cluster_{number} {{", f"    label={_dot_text((group.title,))};"]
            indent = "    "
        for node in group.nodes:
            lines.append(f"{indent}{ids[node.key]} [{_DOT_KINDS[node.kind]}, label={_dot_text(node.lines)}];")
        if group.title:
            lines.append("  }")
    for edge in edges:
        label = f" [label={_dot_text((edge.label,))}]" if edge.label else ""
        lines.append(f"  {ids[edge.start]} -> {ids[edge.end]}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_text(lines: Sequence[str]) -> str:
    """A quoted string. Graphviz reads backslash escapes and HTML entities in it."""

    def escaped(char: str) -> str:
        return {"\\": "\\\\", '"': '\\"', "&": "&amp;"}.get(char, char)

    return '"' + "\\n".join(_escaped(line, escaped) for line in lines) + '"'


# --- Mermaid ---------------------------------------------------------------------------------------------------

_MERMAID_KINDS = {"box": ("[", "]"), "data": ("([", "])"), "result": ("([", "])"), "note": (">", "]")}


def _mermaid(groups: Sequence[Group], edges: Sequence[Edge], ids: Mapping[str, str]) -> str:
    lines = ["flowchart TB"]
    for number, group in enumerate(groups):
        indent = "  "
        if group.title:
            lines.append(f"  subgraph g{number} [{_mermaid_text((group.title,))}]")
            indent = "    "
        for node in group.nodes:
            left, right = _MERMAID_KINDS[node.kind]
            lines.append(f"{indent}{ids[node.key]}{left}{_mermaid_text(node.lines)}{right}")
        if group.title:
            lines.append("  end")
    for edge in edges:
        arrow = f"-->|{_mermaid_text((edge.label,))}|" if edge.label else "-->"
        lines.append(f"  {ids[edge.start]} {arrow} {ids[edge.end]}")
    return "\n".join(lines) + "\n"


def _mermaid_text(lines: Sequence[str]) -> str:
    """A quoted label. What is not a letter, a digit or one of a few signs becomes an entity by its number (``#34;``),
    which Mermaid decodes after it has read the syntax."""

    def escaped(char: str) -> str:
        return char if char.isalnum() or char in " _.,:()[]=+*/-" else f"#{ord(char)};"

    return '"' + "<br/>".join(_escaped(line, escaped) for line in lines) + '"'


# --- text ------------------------------------------------------------------------------------------------------


def _escaped(line: str, escape: Callable[[str], str]) -> str:
    """``line`` shortened, with what cannot be printed (line ends, controls, marks of direction) as its number."""
    short = line if len(line) <= MAX_LABEL else f"{line[: MAX_LABEL - 1]}…"
    plain = "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in short)
    return "".join(map(escape, plain)) or " "


def shape_text(dtype: str, shape: Sequence[int | str]) -> str:
    """``fp16[M, 128]``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"
