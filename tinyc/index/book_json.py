"""The IndexBook as JSON (document 004 §4.5), and back without a byte of difference.

Value -> ``{"axes": [{id, name, size, kind}], "domain": {"constraints": [["0<=i0", "i0<M"]]}, "inputs": [{value_id,
map}]}``. A domain of several pieces is ``{"pieces": [{constraints, inputs?, value?}]}``. Only where there is something
to say: ``reduce_axes`` (ids) with ``reduced`` (the axes), ``flags``, and ``chain_pieces`` (004 §14, W2101).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from tinyc.ir import dims
from tinyc.ir.args import NON_FINITE, plain_number
from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.jsonc import finite
from tinyc.ir.tiny import Dim, Imm

from .book import NON_SCOP, Access, AxisVar, IndexBook, IndexInfo, Piece
from .domain import Constraints, sides

_KINDS = ("iter", "reduce", "broadcast")
_T = TypeVar("_T")


def book_to_json(book: IndexBook) -> dict[str, Any]:
    """Value -> its entry, of strict-JSON values, in the order of the book."""
    return {id: _entry(info) for id, info in book.values.items()}


def _entry(info: IndexInfo) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "axes": [_axis(axis) for axis in info.axes],
        "domain": _domain(info.pieces),
        "inputs": [_access(access) for access in info.inputs],
    }
    if info.reduced:
        entry["reduce_axes"] = list(info.reduce_axes)
        entry["reduced"] = [_axis(axis) for axis in info.reduced]
    if info.flags:
        entry["flags"] = sorted(info.flags)
    if info.chain_pieces != 1:
        entry["chain_pieces"] = info.chain_pieces
    return entry


def _axis(axis: AxisVar) -> dict[str, Any]:
    return {"id": axis.id, "name": axis.name, "size": axis.size, "kind": axis.kind}


def _access(access: Access) -> dict[str, Any]:
    return {"value_id": access.value_id, "map": list(access.map)}


def _domain(pieces: tuple[Piece, ...]) -> dict[str, Any]:
    if len(pieces) == 1 and not pieces[0].inputs and pieces[0].value is None:
        return {"constraints": [list(pair) for pair in pieces[0].constraints]}
    return {"pieces": [_piece(piece) for piece in pieces]}


def _piece(piece: Piece) -> dict[str, Any]:
    entry: dict[str, Any] = {"constraints": [list(pair) for pair in piece.constraints]}
    if piece.inputs:
        entry["inputs"] = [_access(access) for access in piece.inputs]
    if piece.value is not None:
        entry["value"] = finite(piece.value)
    return entry


# --- reading -------------------------------------------------------------------------------------------------


def book_from_json(data: object) -> IndexBook:
    """The book of a dump: value -> entry, or that within ``{"indexbook": …}`` or ``{"index_book": …}``.

    ``symbols`` are the names that occur, sorted. Raises TinycError MalformedDocument with the path to what is wrong,
    as ``index_book.T.axes[1].size``; whether the book is right is for ``check_book`` to say.
    """
    for key in ("indexbook", "index_book"):
        inner = data.get(key) if isinstance(data, Mapping) and len(data) == 1 else None
        if isinstance(inner, Mapping) and "axes" not in inner:
            data = inner
    root = "index_book"
    values = {
        id: _read_info(id, entry, f"{root}.{id}") for id, entry in _object(data, root, None, ()).items()
    }
    return IndexBook(values, tuple(sorted(_symbols(values))))


def _read_info(id: str, data: object, path: str) -> IndexInfo:
    optional = ("reduce_axes", "reduced", "flags", "chain_pieces")
    entry = _object(data, path, ("axes", "domain", "inputs"), optional)
    reduced = _list(entry.get("reduced", []), f"{path}.reduced", _read_axis)
    recorded = _list(entry.get("reduce_axes", []), f"{path}.reduce_axes", _read_count)
    if recorded != tuple(axis.id for axis in reduced):
        _fail(f"{path}.reduce_axes", recorded, "the ids of reduced, in its order")
    flags = _list(entry.get("flags", []), f"{path}.flags", _read_flag)
    return IndexInfo(
        id,
        _list(entry["axes"], f"{path}.axes", _read_axis),
        _read_domain(entry["domain"], f"{path}.domain"),
        _list(entry["inputs"], f"{path}.inputs", _read_access),
        reduced,
        frozenset(flags),
        _read_count(entry.get("chain_pieces", 1), f"{path}.chain_pieces"),
    )


def _read_axis(data: object, path: str) -> AxisVar:
    entry = _object(data, path, ("id", "name", "size", "kind"), ())
    kind = entry["kind"]
    if kind not in _KINDS:
        _fail(f"{path}.kind", kind, f"one of {', '.join(_KINDS)}")
    id, name = _read_count(entry["id"], f"{path}.id"), _read_text(entry["name"], f"{path}.name")
    if not name.isidentifier() or not name.isascii():
        _fail(f"{path}.name", name, "a name such as i0")
    return AxisVar(id, name, _read_size(entry["size"], f"{path}.size"), kind)


def _read_size(data: object, path: str) -> Dim:
    if isinstance(data, int) and not isinstance(data, bool) and data >= 1:
        return data
    try:
        size = dims.parse(data) if isinstance(data, str) else None
    except dims.DimError:
        size = None
    if size is None or size != data:
        _fail(path, data, "an integer >= 1 or an expression over symbols in its shortest form, as 2*M+1")
    return size


def _read_domain(data: object, path: str) -> tuple[Piece, ...]:
    entry = _object(data, path, (), ("constraints", "pieces"))
    if len(entry) != 1:
        _fail(path, data, "either constraints or pieces")
    if "constraints" in entry:
        return (Piece(_read_constraints(entry["constraints"], f"{path}.constraints")),)
    pieces = _list(entry["pieces"], f"{path}.pieces", _read_piece)
    return pieces or _fail(f"{path}.pieces", [], "at least one piece")


def _read_piece(data: object, path: str) -> Piece:
    entry = _object(data, path, ("constraints",), ("inputs", "value"))
    inputs = _list(entry.get("inputs", []), f"{path}.inputs", _read_access)
    value = _read_number(entry["value"], f"{path}.value") if "value" in entry else None
    return Piece(_read_constraints(entry["constraints"], f"{path}.constraints"), inputs, value)


def _read_constraints(data: object, path: str) -> Constraints:
    def conjunction(found: object, path: str) -> tuple[str, ...]:
        return _list(found, path, _read_constraint)

    return _list(data, path, conjunction)


def _read_constraint(data: object, path: str) -> str:
    found = _read_text(data, path)
    try:
        for side in sides(found)[:2]:
            dims.parse(side)
    except dims.DimError as error:
        _fail(path, data, f"two expressions with <= or < between ({error})")
    return found


def _read_access(data: object, path: str) -> Access:
    entry = _object(data, path, ("value_id", "map"), ())
    return Access(
        _read_text(entry["value_id"], f"{path}.value_id"), _list(entry["map"], f"{path}.map", _read_index)
    )


def _read_index(data: object, path: str) -> str:
    """Any text that is an expression; a ``%`` is for ``check_book`` to name (E1203)."""
    found = _read_text(data, path)
    try:
        if "%" not in found:
            dims.parse(found)
    except dims.DimError as error:
        _fail(path, data, f"an index such as 2*i0+i1 ({error})")
    return found


def _read_flag(data: object, path: str) -> str:
    return NON_SCOP if data == NON_SCOP else _fail(path, data, f'"{NON_SCOP}"')


def _read_number(data: object, path: str) -> Imm:
    if isinstance(data, str) and data in NON_FINITE:
        return NON_FINITE[data]
    number = None if isinstance(data, str) else plain_number(data)
    return _fail(path, data, "a number") if number is None else number


def _read_count(data: object, path: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or data < 0:
        _fail(path, data, "an integer >= 0")
    return data


def _read_text(data: object, path: str) -> str:
    return data if isinstance(data, str) else _fail(path, data, "a text")


def _list(data: object, path: str, read: Callable[[object, str], _T]) -> tuple[_T, ...]:
    if not isinstance(data, list | tuple):
        _fail(path, data, "a list")
    return tuple(read(item, f"{path}[{at}]") for at, item in enumerate(data))


def _object(
    data: object, path: str, required: tuple[str, ...] | None, optional: tuple[str, ...]
) -> Mapping[str, Any]:
    """An object with the ``required`` keys (None: with any keys) and no others but the ``optional`` ones."""
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        _fail(path, data, "an object {…}")
    if required is None:
        return data
    for key in required:
        if key not in data:
            _fail(f"{path}.{key}", "nothing", "a value")
    for key in data:
        if key not in (*required, *optional):
            _fail(f"{path}.{key}", data[key], f"no key but {', '.join((*required, *optional))}")
    return data


def _fail(path: str, data: object, wanted: str) -> NoReturn:
    why = f"{path} is {show(data)}"
    at = {"layer": "indexbook"}
    raise TinycError("MalformedDocument", why, f"it must be {wanted}", at, path=path)


def _symbols(values: Mapping[str, IndexInfo]) -> set[str]:
    from .align import texts

    found: set[str] = set()
    for info in values.values():
        axes = (*info.axes, *info.reduced)
        used = frozenset[str]().union(
            *(dims.names(axis.size) for axis in axes),
            *(dims.names(text) for text in texts(info) if "%" not in text),
        )
        found |= used - {axis.name for axis in axes}
    return found
