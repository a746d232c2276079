"""Import: a Tiny document, in any of the forms that are in use, becomes canonical nodes and ports.

Two forms of node (I-05). Document 002: ``{"id", "uop", "src", "arg", "tag"?}``, all shapes explicit. Document
004 §3.5: ``{"uop": "OPS.ADD", "src", "arg", "out"}``, where sources may be tensors of the ``tensors`` table
and elementwise operands are broadcast, right-aligned, by EXPANDs that are inserted here (I-19); a node that
has neither ``id`` nor ``out`` cannot be used and is left out.

Accepted in both: ``op`` for ``uop``, aliases of dtypes (I-49), the three forms of EXPAND (I-07), REDUCE axes
by name (I-12), inline expressions in ``src`` (I-22), POOL and CONTRACT (I-11, I-13; see expand.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import dims, expand
from .args import NON_FINITE, Reader, is_name
from .diagnostics import TinycError, place, show
from .infer import ARITY
from .signature import attributes
from .tiny import ELEMENTWISE, UOPS, Dim, Imm, Node, Port, TensorType
from .verify import check_node, topological
from .widen import fresh_ids

_DOCUMENT_KEYS = ("uops", "signature", "tensors", "symbols", "name", "version", "description")
_NODE_KEYS = ("id", "out", "uop", "op", "src", "arg", "tag", "dtype")
_PREFIXES = ("OPS.", "Ops.", "UOps.")
#: keys of an arg whose texts are expressions over symbols
_EXPRESSIONS = (
    "shape",
    "result_shape",
    "pad",
    "lo",
    "hi",
    "index_map",
    "axes",
    "kernel",
    "stride",
    "dilation",
)


@dataclass(frozen=True)
class Entry:
    """A node as it was written; ``src`` holds ids and immediates only. ``loose``: in the form of document 004."""

    id: str
    uop: str
    src: tuple[str | Imm, ...]
    arg: Mapping[str, Any]
    tag: str | None = None
    dtype: Any = None
    loose: bool = False

    def operands(self) -> tuple[str, ...]:
        return tuple(source for source in self.src if isinstance(source, str))


def import_document(document: object) -> tuple[list[Node], list[Port], list[Port]]:
    """Nodes in topological order, inputs and outputs of a parsed document. Raises TinycError."""
    doc = _object(document, "the document", _DOCUMENT_KEYS)
    raw = doc.get("uops")
    if not isinstance(raw, list) or not raw:
        what = (
            'the document has no "uops"' if raw is None else '"uops" is not a list of nodes, of one at least'
        )
        raise _malformed(what, 'write {"uops": [{"id": …, "uop": …}, …]}')
    entries = list(_entries(raw))
    signature = _object(doc.get("signature", {}), "signature", ("inputs", "outputs"))
    wanted = _ports(signature, "inputs")
    tables = _tables(doc.get("tensors", {}))
    entries = [*_leaves(entries, tables, {port.name for port in wanted}), *entries]
    entries = _defined(entries, _definitions(doc.get("symbols", {})))

    builder = Builder(entries)
    for entry in topological(entries, lambda each: each.id, Entry.operands):
        lower(builder, entry)
        _check_declared(builder, entry, tables)
    inputs = _inputs(entries, wanted if "inputs" in signature else None)
    outputs = _outputs(entries, signature)
    return builder.nodes, inputs, outputs


class Builder:
    """Collects canonical nodes with their types; new nodes get ids after the document's (``n8.lhs``)."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.fresh: Callable[[str], str] = fresh_ids(entry.id for entry in entries)

    def emit(
        self,
        id: str,
        uop: str,
        src: Sequence[str | Imm],
        arg: Mapping[str, Any] | None = None,
        tag: str | None = None,
    ) -> str:
        """Appends a node and gives back its id."""
        node = check_node(Node(id, uop, tuple(src), arg or {}, tag), self.types)
        self.nodes.append(node)
        return id


def lower(builder: Builder, entry: Entry) -> None:
    """Appends the canonical nodes of one entry, the last of them under the entry's id."""
    src, arg = entry.src, entry.arg
    arity = {"CONTRACT": 2, "POOL": 1}.get(entry.uop) or ARITY.get(entry.uop)
    if entry.uop in ("CONTRACT", "POOL", "EXPAND", "VIEW") and len(entry.operands()) != arity:
        why = f"{entry.uop} {show(entry.id)} has the sources {show(list(src))} and needs {arity}"
        raise TinycError("InvalidArgument", why, "give one node per operand", place(entry.id, entry.uop))
    try:
        match entry.uop:
            case "EXPAND":
                src, arg = expand.expand(builder, entry.id, entry.operands()[0], arg)
            case "POOL":
                expand.pool(builder, entry.id, entry.operands()[0], arg, entry.tag)
                return
            case "CONTRACT":
                expand.contract(builder, entry.id, entry.operands(), arg, entry.tag, entry.dtype)
                return
        if entry.loose and entry.uop in ELEMENTWISE and len(src) > 1:
            src = expand.broadcast(builder, entry.id, entry.uop, src)
    except dims.DimError as error:
        raise TinycError(
            "InvalidShape", str(error), "use simpler shapes", place(entry.id, entry.uop)
        ) from None
    key = {"INPUT": "dtype", "CAST": "to", "REDUCE": "dtype"}.get(entry.uop)
    if key and entry.dtype is not None and key not in arg and not (key == "dtype" and "acc_dtype" in arg):
        arg = {**arg, key: entry.dtype}
    builder.emit(entry.id, entry.uop, src, arg, entry.tag)


# --- reading the document ------------------------------------------------------------------------------------


def _entries(raw: Sequence[object]) -> Iterator[Entry]:
    nodes = [_object(node, f"uops[{at}]", _NODE_KEYS) for at, node in enumerate(raw)]
    loose = any("out" in node for node in nodes)
    ids: list[str] = []
    for at, node in enumerate(nodes):
        if "id" in node and "out" in node:
            raise _malformed(f'uops[{at}] has both "id" and "out"', 'write "id" only')
        id = node.get("id", node.get("out"))
        if id is None and "id" not in node and loose:
            ids.append("")
            continue
        if not isinstance(id, str) or not is_name(id):
            why = f"uops[{at}] has the id {show(id)}"
            raise _malformed(why, 'give each node a short printable "id" (and not inf, -inf or nan)')
        ids.append(id)
    fresh = fresh_ids(ids)
    known = set(ids)
    for id, node in zip(ids, nodes, strict=True):
        if id:
            yield from _entry(id, node, known, fresh)


def _entry(id: str, node: Mapping[str, Any], known: set[str], fresh: Callable[[str], str]) -> Iterator[Entry]:
    uop = node.get("uop", node.get("op"))
    name = uop
    if isinstance(uop, str):
        name = next((uop.removeprefix(each) for each in _PREFIXES if uop.startswith(each)), uop)
    if not isinstance(name, str) or name not in (*UOPS, "CONTRACT", "POOL"):
        why = f"node {show(id)} has the uop {show(uop)}"
        raise TinycError("UnknownUop", why, f"use one of {', '.join(UOPS)}", place(id))
    src, arg, tag = node.get("src", []), node.get("arg", {}), node.get("tag")
    arg = {} if arg is None else arg
    if not isinstance(src, list):
        raise _malformed(f"src of {show(id)} is {show(src)}", "make src a list of ids and numbers", id)
    if not isinstance(arg, dict):
        raise _malformed(f"arg of {show(id)} is {show(arg)}", "make arg an object {…}", id)
    if tag is not None and not isinstance(tag, str):
        raise _malformed(f"tag of {show(id)} is {show(tag)}", "make tag a text", id)
    inline: list[Entry] = []
    loose = "out" in node
    sources = tuple(
        _source(item, f"{id}.{at}", id, known, fresh, inline, loose) for at, item in enumerate(src)
    )
    yield from inline
    yield Entry(id, name, sources, arg, tag, node.get("dtype"), loose)


_SWAPPED = {"GT": "CMPLT", "LT": "CMPLT", "EQ": "CMPEQ", "NE": "CMPNE", "DIV": "FDIV"}


def _source(
    item: object,
    path: str,
    id: str,
    known: set[str],
    fresh: Callable[[str], str],
    inline: list[Entry],
    loose: bool,
) -> str | Imm:
    """One source; an inline expression is appended to ``inline`` and its new id stands for it."""
    if isinstance(item, str):
        return item if item in known else NON_FINITE.get(item, item)
    if isinstance(item, bool | int | float):
        return item
    if not isinstance(item, dict) or len(item) != 1:
        raise _malformed(
            f"{show(id)} has the source {show(item)}", 'use ids, numbers or {"mul": ["x", 2]}', id
        )
    ((word, given),) = item.items()
    name = word.upper() if isinstance(word, str) else ""
    uop = _SWAPPED.get(name, name)
    if uop not in ELEMENTWISE or uop == "CAST":
        why = f"{show(id)} has the inline expression {show(item)}"
        raise TinycError("UnknownUop", why, "use gt, lt, eq, ne, add, mul, … or a node of its own", place(id))
    parts = [_literal(part.strip()) for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(parts, list):
        raise _malformed(f"{show(id)} has the inline expression {show(item)}", 'write {"gt": ["x", 0]}', id)
    src = [_source(part, f"{path}.{at}", id, known, fresh, inline, loose) for at, part in enumerate(parts)]
    if name == "GT":
        src.reverse()
    made = fresh(path)
    inline.append(Entry(made, uop, tuple(src), {}, loose=loose))
    return made


def _literal(text: str) -> object:
    """A number written inside an inline text such as ``"C1,0"``, or the name itself."""
    for read in (int, float):
        try:
            return read(text) if len(text) < 64 and text[-1:].isdigit() else text
        except ValueError:
            continue
    return text


def _tables(raw: object) -> Mapping[str, Mapping[str, Any]]:
    """``tensors``: name -> {dtype, shape}."""
    if not isinstance(raw, dict):
        raise _malformed(f"tensors is {show(raw)}", 'write {"A": {"dtype": "fp16", "shape": ["M", "K"]}}')
    for name, entry in raw.items():
        if not is_name(name):
            raise _malformed(f"tensors has the name {show(name)}", "use short printable names")
        if not isinstance(entry, dict) or "dtype" not in entry or "shape" not in entry:
            raise _malformed(f"tensors[{show(name)}] is {show(entry)}", "give its dtype and shape")
    return raw


def _leaves(
    entries: Sequence[Entry], tables: Mapping[str, Mapping[str, Any]], wanted: set[str]
) -> Iterator[Entry]:
    """INPUT entries for the tensors of the table that are used and that no node makes, in the table's order."""
    made = {entry.id for entry in entries}
    made |= {entry.arg["tensor_id"] for entry in entries if isinstance(entry.arg.get("tensor_id"), str)}
    used = {source for entry in entries for source in entry.operands()} | wanted
    for name, entry in tables.items():
        if name in used and name not in made:
            arg = {"tensor_id": name, "dtype": entry["dtype"], "shape": entry["shape"]}
            yield Entry(name, "INPUT", (), arg)


def _check_declared(builder: Builder, entry: Entry, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """What the document says about the type of a node must be what follows from its operands."""
    found = builder.types[entry.id]
    read = Reader(entry.id, entry.uop)
    if entry.dtype is not None and read.dtype(entry.dtype, "dtype") is not found.dtype:
        why = f"dtype is {show(entry.dtype)} and its value is {found.dtype}"
        raise read.fail("DTypeMismatch", why, "insert a CAST or correct the dtype")
    declared = tables.get(entry.id)
    if declared is not None:
        dtype, shape = read.dtype(declared["dtype"], "dtype"), read.shape(declared["shape"], "shape")
        if dtype is not found.dtype:
            why = f"tensors declares it {dtype} and its value is {found.dtype}"
            raise read.fail("DTypeMismatch", why, "insert a CAST or correct tensors")
        differ = any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(shape, found.shape, strict=False)
        )
        if len(shape) != len(found.shape) or differ:
            why = f"tensors declares it {show(list(shape))} and its shape is {show(list(found.shape))}"
            raise read.fail("AxisSizeMismatch", why, "correct tensors")


def _definitions(raw: object) -> dict[str, Dim]:
    """``symbols``: name -> expression over other symbols (I-15), substituted everywhere on import."""
    if not isinstance(raw, dict):
        raise _malformed(f"symbols is {show(raw)}", 'write {"Cout": "G*Rcout"}')
    read = Reader("symbols", "document")
    result = {name: read.expr(value, f"symbol {show(name)}") for name, value in raw.items()}
    for name, value in result.items():
        if not name.isidentifier() or dims.is_axis(name) or any(each in result for each in dims.names(value)):
            why = f"symbols defines {show(name)} as {value}"
            raise _malformed(why, "define symbols by integers and symbols that are not defined themselves")
    return result


def _defined(entries: list[Entry], definitions: dict[str, Dim]) -> list[Entry]:
    if not definitions:
        return entries

    def change(value: object) -> object:
        if isinstance(value, list):
            return [change(item) for item in value]
        if isinstance(value, dict):
            return {key: change(item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        try:
            return dims.substitute(value, definitions)
        except dims.DimError:
            return value  # the reader of this arg says what is wrong with it

    def defined(entry: Entry) -> Entry:
        arg = {key: change(value) if key in _EXPRESSIONS else value for key, value in entry.arg.items()}
        return Entry(entry.id, entry.uop, entry.src, arg, entry.tag, entry.dtype, entry.loose)

    return [defined(entry) for entry in entries]


# --- the signature -------------------------------------------------------------------------------------------


def _listed(signature: Mapping[str, Any], key: str) -> list[object]:
    value = signature.get(key, [])
    if not isinstance(value, list):
        raise _malformed(f"signature.{key} is {show(value)}", 'write [{"tensor": "A"}, …]')
    return value


def _ports(signature: Mapping[str, Any], key: str) -> list[Port]:
    """The entries of the signature. The node is "" where the entry does not name one; keys that are not known here say
    nothing."""
    ports = []
    for at, raw in enumerate(_listed(signature, key)):
        given = {"tensor": raw} if isinstance(raw, str) else raw
        if not isinstance(given, dict) or not isinstance(given.get("tensor"), str):
            raise _malformed(f"signature.{key} has the entry {show(raw)}", 'write {"tensor": "A"}')
        node = given.get("node", "")
        if node is not None and not isinstance(node, str):
            raise _malformed(f"signature.{key} has the entry {show(raw)}", "make node the id of a node")
        ports.append(Port(given["tensor"], node or "", **attributes(given, f"signature.{key}[{at}]", "tiny")))
    return ports


def _inputs(entries: Sequence[Entry], wanted: Sequence[Port] | None) -> list[Port]:
    declared = [(str(e.arg.get("tensor_id")), e.id) for e in entries if e.uop == "INPUT"]
    if wanted is None:
        return [Port(tensor, id) for tensor, id in declared]
    by_tensor, ids = dict(declared), {id for _, id in declared}
    ports = []
    for port in wanted:
        found = port.node or by_tensor.get(port.name, port.name)
        if found not in ids:
            why = f"the signature's input {show(port.name)} is no INPUT of the document"
            suggestion, at = "name a tensor_id", {"layer": "tiny", "value": port.name}
            raise TinycError("UnknownReference", why, suggestion, at)
        ports.append(replace(port, node=found))
    return ports


def _outputs(entries: Sequence[Entry], signature: Mapping[str, Any]) -> list[Port]:
    """The signature's outputs; without any, the sinks of the DAG in document order (INPUTs only if alone)."""
    if "outputs" in signature:
        return [replace(port, node=port.node or port.name) for port in _ports(signature, "outputs")]
    used = {source for entry in entries for source in entry.operands()}
    sinks = [entry for entry in entries if entry.id not in used]
    computed = [entry for entry in sinks if entry.uop != "INPUT"]
    return [Port(entry.id, entry.id) for entry in computed or sinks]


# --- helpers -------------------------------------------------------------------------------------------------


def _object(value: object, what: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _malformed(f"{what} is {show(value)}", f"make {what} an object {{…}}")
    for key in value:
        if key not in allowed:
            raise _malformed(f"{what} has the key {show(key)}", f"the keys are: {', '.join(allowed)}")
    return value


def _malformed(why: str, suggestion: str, id: str | None = None) -> TinycError:
    return TinycError("MalformedDocument", why, suggestion, {"layer": "document", "node": id})
