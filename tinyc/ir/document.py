"""Tiny documents: text to Program and back, without a byte of difference after the first time.

The canonical document is ``{"uops": [...], "signature": {"inputs": [...], "outputs": [...]}}``: nodes in the
form of document 002, in topological order; each entry of the signature is ``{"tensor": name, "node": id}``, where
``name`` is the caller's, with role, mutability, alignment, layout and storage where they are not the usual ones (data,
immutable, the element's size, row_major, none; see signature.py). Infinities and NaN are the strings "inf", "-inf", "nan".

Beyond that, reading accepts (see canonical.py): a signature whose entries have no ``node`` (an input is then
found by its tensor_id, an output by the id of its node) or no signature at all (INPUTs and sinks in document
order); ``tensors``: ``{name: {dtype, shape}}`` for names that no node declares; ``symbols``: ``{name:
expression}``, equalities between symbols that are substituted on import; and the whole inside ``{"tiny": …}``,
as dumps have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .canonical import import_document
from .dtypes import DType
from .jsonc import check_nesting, dumps, finite, parse_json
from .signature import said
from .tiny import Node, Port, Program
from .verify import verify

__all__ = ["dumps", "parse_json", "program_from_document", "program_to_document"]


def program_from_document(document: object) -> Program:
    """The verified Program of a parsed Tiny document.

    Raises TinycError with one of the kinds E1001 to E1014, and nothing else, whatever ``document`` is.
    """
    check_nesting(document)
    if isinstance(document, dict) and document.keys() == {"tiny"}:
        document = document["tiny"]
    nodes, inputs, outputs = import_document(document)
    return verify(nodes, inputs, outputs)


def program_to_document(program: Program) -> dict[str, Any]:
    """The canonical document of ``program``, of strict-JSON values."""
    return {
        "uops": [_node(node) for node in program.nodes],
        "signature": {
            "inputs": [_port(port) for port in program.inputs],
            "outputs": [_port(port) for port in program.outputs],
        },
    }


def _node(node: Node) -> dict[str, Any]:
    result: dict[str, Any] = {"id": node.id, "uop": node.uop}
    if node.src:
        result["src"] = [finite(source) for source in node.src]
    arg = {key: _value(key, value) for key, value in node.arg.items() if value is not None}
    if arg:
        result["arg"] = arg
    if node.tag is not None:
        result["tag"] = node.tag
    return result


def _value(key: str, value: Any) -> Any:
    if isinstance(value, DType):
        return value.value
    if key == "index_map":
        return {"map": list(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return finite(value)


def _port(port: Port) -> dict[str, Any]:
    return {"tensor": port.name, "node": port.node, **said(port)}
