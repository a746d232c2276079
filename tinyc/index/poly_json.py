"""The Poly-View as JSON (document 004 §5.2; feature 004-066), and back without a byte of difference.

{"blocks": [{"name", "kind", "domain": {"set", "pieces"?}, "accesses": [{"tensor", "map"}], "attrs"}],
 "edges": [{"from", "to", "kind", "tensor", "relation"}],
 "boundaries"?: [diagnostics], "attention"?: [{"qk_matmul", "row_softmax", "pv_matmul"}], "aliases"?: {spelling: name}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, get_args

from tinyc.ir.diagnostics import Diagnostic, TinycError, show
from tinyc.ir.jsonc import check_nesting

from .attention import Attention
from .polyview import LAYER, Block, BlockAccess, BlockKind, Edge, EdgeKind, PolyView
from .sets import well_formed

_ROLES = ("qk_matmul", "row_softmax", "pv_matmul")
_NOTE = ("code", "kind", "severity", "at", "why", "suggestion")
T = TypeVar("T")


def view_to_json(view: PolyView) -> dict[str, Any]:
    """Strict-JSON values. Keys with a question mark above are there where they are not empty."""
    data: dict[str, Any] = {
        "blocks": [_block(block) for block in view.blocks],
        "edges": [
            {
                "from": edge.source,
                "to": edge.target,
                "kind": edge.kind,
                "tensor": edge.tensor,
                "relation": edge.relation,
            }
            for edge in view.edges
        ],
    }
    if view.boundaries:
        data["boundaries"] = [note.to_json() for note in view.boundaries]
    if view.attention:
        data["attention"] = [
            {role: list(getattr(group, role)) for role in _ROLES} for group in view.attention
        ]
    if view.aliases:
        data["aliases"] = dict(view.aliases)
    return data


def _block(block: Block) -> dict[str, Any]:
    domain: dict[str, Any] = {"set": block.domain}
    if block.pieces:
        domain["pieces"] = list(block.pieces)
    return {
        "name": block.name,
        "kind": block.kind,
        "domain": domain,
        "accesses": [{"tensor": access.tensor, "map": access.map} for access in block.accesses],
        "attrs": dict(block.attrs),
    }


# --- reading -------------------------------------------------------------------------------------------------


def view_from_json(data: object) -> PolyView:
    """The view of a dump: the object above, or that within ``{"poly_view": …}``.

    Raises TinycError MalformedDocument with the path to what is wrong, as ``poly_view.blocks[1].domain.set``.
    """
    check_nesting(data)
    if isinstance(data, Mapping) and data.keys() == {LAYER}:
        data = data[LAYER]
    given = _object(data, LAYER, ("blocks", "edges"), ("boundaries", "attention", "aliases"))
    blocks = _each(given["blocks"], f"{LAYER}.blocks", _read_block)
    seen: set[str] = set()
    for number, block in enumerate(blocks):
        if block.name in seen:
            _refuse(f"{LAYER}.blocks[{number}].name", f"there is another block {show(block.name)}")
        seen.add(block.name)
    aliases = given.get("aliases", {})
    if not isinstance(aliases, Mapping):
        _refuse(f"{LAYER}.aliases", f"{show(aliases)} is no object")
    named = {key: _text(value, f"{LAYER}.aliases.{show(key)}") for key, value in aliases.items()}
    groups = _each(given.get("attention", []), f"{LAYER}.attention", _read_attention)
    edges = _each(given["edges"], f"{LAYER}.edges", _read_edge)
    notes = _each(given.get("boundaries", []), f"{LAYER}.boundaries", _read_note)
    for number, edge in enumerate(edges):
        for end, name in (("from", edge.source), ("to", edge.target)):
            if name not in seen:
                _refuse(f"{LAYER}.edges[{number}].{end}", f"there is no block {show(name)}")
    return PolyView(blocks, edges, notes, groups, named)


def _read_block(data: object, path: str) -> Block:
    given = _object(data, path, ("name", "kind", "domain", "accesses", "attrs"))
    domain = _object(given["domain"], f"{path}.domain", ("set",), ("pieces",))
    attrs = given["attrs"]
    if not isinstance(attrs, Mapping):
        _refuse(f"{path}.attrs", f"{show(attrs)} is no object")
    return Block(
        _text(given["name"], f"{path}.name"),
        _one_of(given["kind"], f"{path}.kind", get_args(BlockKind)),
        _set(domain["set"], f"{path}.domain.set"),
        _each(given["accesses"], f"{path}.accesses", _read_access),
        dict(attrs),
        _each(domain.get("pieces", []), f"{path}.domain.pieces", _set),
    )


def _read_access(data: object, path: str) -> BlockAccess:
    given = _object(data, path, ("tensor", "map"))
    return BlockAccess(_text(given["tensor"], f"{path}.tensor"), _map(given["map"], f"{path}.map"))


def _read_edge(data: object, path: str) -> Edge:
    given = _object(data, path, ("from", "to", "kind", "tensor", "relation"))
    return Edge(
        _text(given["from"], f"{path}.from"),
        _text(given["to"], f"{path}.to"),
        _one_of(given["kind"], f"{path}.kind", get_args(EdgeKind)),
        _text(given["tensor"], f"{path}.tensor"),
        _map(given["relation"], f"{path}.relation"),
    )


def _read_attention(data: object, path: str) -> Attention:
    given = _object(data, path, _ROLES)
    return Attention(*(_each(given[role], f"{path}.{role}", _text) for role in _ROLES))


def _read_note(data: object, path: str) -> Diagnostic:
    if not isinstance(data, Mapping):
        _refuse(path, f"{show(data)} is no object")
    given = _object(data, path, _NOTE, tuple(str(key) for key in data))
    _one_of(given["kind"], f"{path}.kind", ("NonSCoP",))
    if not isinstance(given["at"], Mapping) or "value" not in given["at"]:
        _refuse(f"{path}.at", "it names no value")
    at = {key: _text(value, f"{path}.at.{show(key)}") for key, value in given["at"].items()}
    details = {key: value for key, value in given.items() if key not in _NOTE}
    why, suggestion = (_text(given[key], f"{path}.{key}") for key in ("why", "suggestion"))
    note = Diagnostic("NonSCoP", why, suggestion, at, details)
    for key, wanted in (("code", note.code), ("severity", note.severity)):
        _one_of(given[key], f"{path}.{key}", (wanted,))
    return note


def _object(data: object, path: str, needed: Sequence[str], others: Sequence[str] = ()) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        _refuse(path, f"{show(data)} is no object")
    for key in needed:
        if key not in data:
            _refuse(path, f"it lacks {show(key)}")
    for key in data:
        if key not in needed and key not in others:
            _refuse(path, f"{show(key)} is no key of it")
    return data


def _each(data: object, path: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
    if not isinstance(data, Sequence) or isinstance(data, str):
        _refuse(path, f"{show(data)} is no list")
    return tuple(read(item, f"{path}[{number}]") for number, item in enumerate(data))


def _text(data: object, path: str) -> str:
    if not isinstance(data, str) or not data:
        _refuse(path, f"{show(data)} is no text")
    return data


def _one_of(data: object, path: str, known: Sequence[Any]) -> Any:
    if data not in known:
        _refuse(path, f"{show(data)} is none of {', '.join(known)}")
    return data


def _set(data: object, path: str) -> str:
    text = _text(data, path)
    if not well_formed(text):
        _refuse(path, f"{show(text)} is no set in isl's notation")
    return text


def _map(data: object, path: str) -> str:
    text = _text(data, path)
    if not well_formed(text, relation=True):
        _refuse(path, f"{show(text)} is no map in isl's notation")
    return text


def _refuse(path: str, why: str) -> NoReturn:
    raise TinycError(
        "MalformedDocument",
        f"{path}: {why}",
        "compare it with what --dump=poly_view writes",
        at={"layer": LAYER, "value": path},
    )
