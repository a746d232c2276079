"""Frontend JSON (document 004 §2): a Graph Signature, a table of tensors, and a graph of pure nodes.

The lowering is deterministic: inputs in signature order, then the nodes in document order as far as their inputs
allow. An entry of ``tensors`` fixes the dtype (by a CAST) and the shape of a result. A symbol that occurs only in
the shapes of results stands for whatever is derived there (an output size of a convolution, say), the same
everywhere; ``"symbols": {"Ho": "(H-1)//2+1"}`` states such equalities.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tinyc.ir import dims
from tinyc.ir.args import is_name
from tinyc.ir.diagnostics import TinycError, show, show_shape
from tinyc.ir.document import dumps, parse_json, program_from_document, program_to_document
from tinyc.ir.dtypes import DType
from tinyc.ir.signature import attributes, said
from tinyc.ir.tiny import Dim, Imm, Program, Shape, TensorType

from .builder import Builder, dtype_named
from .creation import writing_to
from .frontend_ops import lower
from .sizes import size
from .tensor import Tensor

_ENTRY_KEYS = ("tensor", "role", "mutability", "storage", "alignment", "layout")
#: the op of a node that holds a whole Tiny document
TINY = "Tiny"
#: nodes that only mark inputs and outputs, for debugging (I-06)
_MARKERS = ("Input", "Output")


@dataclass(frozen=True)
class _Node:
    """One node of the graph, its form checked."""

    name: str
    op: str
    inputs: tuple[str | Imm, ...]
    output: str
    attrs: Mapping[str, Any]

    @property
    def at(self) -> dict[str, object]:
        return {"layer": "frontend", "op": self.op, "node": self.name}


def load_frontend(document: object) -> Program:
    """The verified Program of a parsed Frontend document. Raises TinycError naming the node at fault."""
    if (inner := _tiny_within(document)) is not None:
        return program_from_document(inner)
    program = program_from_document(frontend_to_tiny(document))
    try:
        return replace(program, frontend=dumps(document))
    except (TypeError, ValueError):  # a parsed document that was made in Python and holds what JSON does not
        return program


def frontend_document(program: Program) -> dict[str, Any]:
    """The Frontend document of ``program``: the one it was read from, sizes not bound.

    A program that was not written in Frontend operations is one node of op "Tiny", which holds its Tiny document.
    """
    if program.frontend:
        document: dict[str, Any] = parse_json(program.frontend)
        return document
    tiny = program_to_document(program)
    outputs = list(dict.fromkeys(port.name for port in program.outputs))
    inputs = [port.name for port in program.inputs]
    types = {port.name: program.types[port.node] for port in (*program.outputs, *program.inputs)}
    tensors = {
        name: {"dtype": types[name].dtype.value, "shape": list(types[name].shape)}
        for name in dict.fromkeys((*inputs, *outputs))
    }
    node = {"op": TINY, "name": "tiny", "inputs": inputs, "outputs": outputs, "attrs": tiny}
    signature = {
        "inputs": [{"tensor": port.name, **said(port)} for port in program.inputs],
        "outputs": [{"tensor": port.name, **said(port)} for port in program.outputs],
    }
    return {"signature": signature, "tensors": tensors, "graph": [node]}


def _tiny_within(document: object) -> object:
    """The Tiny document of a graph whose only node is one of op "Tiny"; None for any other graph."""
    graph = document.get("graph") if isinstance(document, Mapping) else None
    if isinstance(graph, list) and len(graph) == 1 and isinstance(graph[0], Mapping):
        return graph[0].get("attrs", {}) if graph[0].get("op") == TINY else None
    return None


def frontend_to_tiny(document: object) -> dict[str, Any]:
    """As :func:`load_frontend`, before verification: the Tiny document with the signature's names."""
    if not isinstance(document, Mapping):
        raise _malformed(f"the document is {show(document)}", "give {signature, tensors, graph}")
    _only_keys(document, ("signature", "tensors", "graph", "symbols", "name"), "the document")
    signature = _member(document, "signature", dict)
    entries, results = (
        _entries(_member(signature, key, list), f"signature.{key}") for key in ("inputs", "outputs")
    )
    equal = _equalities(document.get("symbols", {}))
    table = {
        _name(name, "tensors"): _tensor_type(name, declared, equal)
        for name, declared in _member(document, "tensors", dict).items()
    }
    nodes = _nodes(_member(document, "graph", list), {entry["tensor"] for entry in entries})
    _check_names(entries, results, table, nodes)

    builder = Builder()
    values: dict[str, Tensor] = {}
    for entry in entries:
        declared = table[entry["tensor"]]
        storage = entry.get("storage")
        value = builder.input(entry["tensor"], declared.dtype, declared.shape, storage)
        values[entry["tensor"]] = Tensor(builder, value)
    known = {name for value in values.values() for dim in value.value.shape for name in dims.names(dim)}
    derived: dict[str, Dim] = {}
    with writing_to(builder):
        for node in _in_order(nodes, set(values)):
            try:
                operands = [values[each] if isinstance(each, str) else each for each in node.inputs]
                result = lower(node.op, operands, node.attrs)
                if node.output in table:
                    result = _declared(result, node.output, table[node.output], known, derived)
                values[node.output] = result
            except TinycError as error:
                at = {**error.at, **node.at}
                raise TinycError(error.kind, error.why, error.suggestion, at, **error.details) from None
            except dims.DimError as error:
                raise TinycError("InvalidShape", str(error), "use simpler sizes", node.at) from None
    tiny = builder.document({entry["tensor"]: values[entry["tensor"]].value for entry in results})
    for key, listed in (("inputs", entries), ("outputs", results)):
        for port, entry in zip(tiny["signature"][key], listed, strict=True):
            said = {**document["tensors"].get(entry["tensor"], {}), **entry}
            port.update((name, said[name]) for name in _ENTRY_KEYS if said.get(name) is not None)
    return tiny


def _declared(
    result: Tensor, name: str, declared: TensorType, known: set[str], derived: dict[str, Dim]
) -> Tensor:
    """``result`` as the table declares it. Symbols met here for the first time are entered in ``derived``."""
    shape = result.value.shape
    for want, have in zip(declared.shape, shape, strict=False):
        if isinstance(want, str) and want.isidentifier() and want not in known:
            derived.setdefault(want, have)
    if tuple(dims.substitute(dim, derived) for dim in declared.shape) != shape:
        raise TinycError(
            "AxisSizeMismatch",
            f"{name} is declared {show_shape(declared.shape)}, but the node gives {show_shape(shape)}",
            "correct the entry in 'tensors', or state equal sizes in 'symbols'",
        )
    return result.cast(declared.dtype)


def _entries(given: list[Any], what: str) -> list[dict[str, Any]]:
    """The signature's inputs or outputs; a bare name stands for ``{"tensor": name}``."""
    entries: list[dict[str, Any]] = []
    for each in given:
        entry = {"tensor": each} if isinstance(each, str) else each
        if not isinstance(entry, dict) or "tensor" not in entry:
            raise _malformed(f"{what} has {show(each)}", 'give {"tensor": name}')
        _only_keys(entry, _ENTRY_KEYS, f"an entry of {what}")
        _name(entry["tensor"], what)
        attributes(entry, f"{what}[{len(entries)}]", "frontend")
        entries.append(entry)
    names = [entry["tensor"] for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise TinycError(
                "DuplicateId",
                f"{what} names {show(name)} twice",
                "name it once",
                {"layer": "frontend", "value": name},
            )
    return entries


def _equalities(given: object) -> dict[str, Dim]:
    if not isinstance(given, Mapping):
        raise _malformed(f"symbols is {show(given)}", 'give {"Ho": "(H-1)//2+1"}')
    equal: dict[str, Dim] = {}
    for name, text in given.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise _malformed(f"symbols names {show(name)}", "name a symbol")
        equal[name] = dims.substitute(size(text), equal)
    return equal


def _tensor_type(name: str, declared: object, equal: Mapping[str, Dim]) -> TensorType:
    at = {"layer": "frontend", "value": name}
    if not isinstance(declared, Mapping) or not {"dtype", "shape"} <= declared.keys():
        raise TinycError(
            "MalformedDocument", f"tensors has {show(declared)} for {show(name)}", "give {dtype, shape}", at
        )
    _only_keys(declared, ("dtype", "shape", "layout", "alignment"), f"tensor {show(name)}")
    listed = declared["shape"]
    if not isinstance(listed, list | tuple):
        raise TinycError("InvalidShape", f"the shape of {show(name)} is {show(listed)}", "give a list", at)
    try:
        shape: Shape = tuple(dims.substitute(size(dim), equal) for dim in listed)
    except TinycError as error:
        raise TinycError(error.kind, error.why, error.suggestion, at) from None
    dtype: DType = dtype_named(declared["dtype"], at)
    return TensorType(shape, dtype)


def _nodes(graph: list[Any], inputs: set[str]) -> list[_Node]:
    """The nodes in document order, each name once and each tensor produced once."""
    nodes: list[_Node] = []
    names: set[str] = set()
    produced: dict[str, str] = {}
    for index, each in enumerate(graph):
        if not isinstance(each, Mapping) or not isinstance(each.get("op"), str):
            raise _malformed(f"graph[{index}] is {show(each)}", "give {op, name, inputs, outputs, attrs}")
        node_name = each.get("name", f"{each['op']}{index}")
        at = {"layer": "frontend", "op": each["op"], "node": node_name}
        _only_keys(each, ("op", "name", "inputs", "outputs", "attrs", "fn"), f"node {show(node_name)}", at)
        if each["op"] in _MARKERS:
            continue
        sources, outputs, attrs = each.get("inputs"), each.get("outputs"), each.get("attrs", {})
        if not isinstance(sources, list) or not all(isinstance(s, str | int | float) for s in sources):
            raise _malformed(f"inputs is {show(sources)}", "give a list of tensor names", at)
        if not isinstance(outputs, list) or len(outputs) != 1 or not isinstance(outputs[0], str):
            raise _malformed(
                f"outputs is {show(outputs)}", "give a list with the one tensor that this op produces", at
            )
        if not isinstance(attrs, Mapping):
            raise _malformed(f"attrs is {show(attrs)}", "make attrs an object", at)
        if not isinstance(node_name, str) or node_name in names:
            raise TinycError(
                "DuplicateId", f"the name {show(node_name)} is taken", "give each node its own name", at
            )
        if outputs[0] in produced or outputs[0] in inputs:
            maker = f"node {show(produced[outputs[0]])}" if outputs[0] in produced else "an input"
            raise TinycError(
                "DuplicateId", f"{show(outputs[0])} is already {maker}", "produce each tensor once", at
            )
        names.add(node_name)
        produced[_name(outputs[0], "outputs", at)] = node_name
        both = {**attrs, "fn": each["fn"]} if "fn" in each else attrs
        nodes.append(_Node(node_name, each["op"], tuple(sources), outputs[0], both))
    return nodes


def _check_names(
    entries: Iterable[Mapping[str, Any]],
    results: list[dict[str, Any]],
    table: Mapping[str, TensorType],
    nodes: list[_Node],
) -> None:
    """Every name that is used has a source; every name that is declared is used."""
    inputs = {entry["tensor"] for entry in entries}
    sources = inputs | {node.output for node in nodes}
    for name in sorted(inputs - table.keys()):
        raise _unknown(
            f"input {show(name)} is not in 'tensors'", "declare its dtype and shape", {"value": name}
        )
    for node in nodes:
        for each in node.inputs:
            if isinstance(each, str) and each not in sources:
                raise _unknown(
                    f"input {show(each)} is produced by nothing", "name an input or a result", node.at
                )
    if not results:
        raise _malformed("signature.outputs is empty", "name at least one result")
    for entry in results:
        if entry["tensor"] not in sources:
            raise _unknown(
                f"output {show(entry['tensor'])} is produced by no node",
                "name the result of a node in signature.outputs",
                {"value": entry["tensor"]},
            )
    for name in sorted(table.keys() - sources):
        raise _unknown(
            f"tensor {show(name)} is declared, but neither an input nor a result",
            "remove it from 'tensors', or correct its name",
            {"value": name},
        )


def _in_order(nodes: list[_Node], ready: set[str]) -> list[_Node]:
    """Document order as far as inputs allow: always the first node whose inputs are there. CyclicGraph else."""
    waiting: dict[str, list[int]] = {}
    missing: list[int] = []
    for index, node in enumerate(nodes):
        open_inputs = {each for each in node.inputs if isinstance(each, str) and each not in ready}
        missing.append(len(open_inputs))
        for each in open_inputs:
            waiting.setdefault(each, []).append(index)
    heap = [index for index, count in enumerate(missing) if not count]
    order: list[_Node] = []
    while heap:
        node = nodes[heapq.heappop(heap)]
        order.append(node)
        for index in waiting.get(node.output, ()):
            missing[index] -= 1
            if not missing[index]:
                heapq.heappush(heap, index)
    if len(order) < len(nodes):
        stuck = [node for node, count in zip(nodes, missing, strict=True) if count]
        names = ", ".join(node.name for node in stuck[:8])
        raise TinycError(
            "CyclicGraph", f"these nodes wait for each other: {names}", "break the cycle", stuck[0].at
        )
    return order


def _member(mapping: Mapping[str, Any], key: str, kind: type) -> Any:
    value = mapping.get(key)
    if not isinstance(value, kind):
        have = "is missing" if key not in mapping else f"is {show(value)}"
        raise _malformed(f"{key!r} {have}", f"give {key!r} as {'an object' if kind is dict else 'a list'}")
    return value


def _only_keys(
    given: Mapping[str, Any], keys: Iterable[str], what: str, at: Mapping[str, object] | None = None
) -> None:
    for key in given:
        if key not in keys:
            raise _malformed(f"{what} has {show(key)}", f"use only {', '.join(keys)}", at)


def _name(name: object, what: str, at: Mapping[str, object] | None = None) -> str:
    if isinstance(name, str) and is_name(name):
        return name
    raise _malformed(f"{what} names {show(name)}", "use a short printable name", at)


def _malformed(why: str, suggestion: str, at: Mapping[str, object] | None = None) -> TinycError:
    return TinycError("MalformedDocument", why, suggestion, {"layer": "frontend", **(at or {})})


def _unknown(why: str, suggestion: str, at: Mapping[str, object]) -> TinycError:
    return TinycError("UnknownReference", why, suggestion, {"layer": "frontend", **at})
