"""Values in documents of GPU IR: each is what it is meant to be, or refused with its path (TinycError GpuIrInvalid)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.schedule import MAX_EXTENT
from tinyc.ir.schedule_names import nearest

from .ir import Tile, Token

T = TypeVar("T")
Read = Callable[[object, str], T]

_WARP_TILE = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TILE = re.compile(r"(?P<var>[A-Za-z_]\w*)?(?P<offset>[+-]?\d{1,10})?", re.ASCII)
_TOKEN = re.compile(r"(?P<name>[A-Za-z_]\w*)\[(?P<tile>[^\[\]]*)\]", re.ASCII)


def refuse(path: str, why: str, suggestion: str) -> NoReturn:
    raise TinycError("GpuIrInvalid", f"{path}: {why}", suggestion, at={"layer": "gpu_ir", "value": path})


def an_object(value: object, path: str, keys: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    known = (*keys, *optional)
    listed = f"give an object with the keys {', '.join(known)}" if known else "give {}"
    if not isinstance(value, dict):
        refuse(path, f"{show(value)} is no object", listed)
    for key in value:
        if key not in known:
            meant = nearest(key, list(known)) if isinstance(key, str) else ""
            refuse(path, f"there is no key {show(key)}", f"{meant!r} may be meant" if meant else listed)
    for key in keys:
        if key not in value:
            refuse(path, f"{key!r} is missing", listed)
    return value


def several(read: Read[T], count: int | None = None) -> Read[tuple[T, ...]]:
    def several(value: object, path: str) -> tuple[T, ...]:
        if not isinstance(value, list) or count not in (None, len(value)):
            wanted = "a list" if count is None else f"a list of {count}"
            refuse(path, f"{show(value)} is not {wanted}", f"give {wanted}")
        return tuple(read(each, f"{path}[{number}]") for number, each in enumerate(value))

    return several


def one_of(choices: Sequence[T]) -> Read[T]:
    def one(value: object, path: str) -> T:
        for each in choices:
            if type(value) is type(each) and value == each:
                return each
        meant = nearest(value, [str(each) for each in choices]) if isinstance(value, str) else ""
        hint = f"{meant!r} may be meant; " if meant else ""
        refuse(path, f"there is no {show(value)}", f"{hint}the choices are {', '.join(map(str, choices))}")

    return one


def a_count(value: object, path: str, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MAX_EXTENT:
        refuse(path, f"{show(value)} is no integer from {low} to {MAX_EXTENT}", "give a number of that range")
    return value


def sizes(value: object, path: str, count: int) -> tuple[int, ...]:
    return several(a_count, count)(value, path)


def a_boolean(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        refuse(path, f"{show(value)} is neither true nor false", "give true or false")
    return value


def a_text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value:
        refuse(path, f"{show(value)} is no name", "give a name as a string")
    return value


def a_name(value: object, path: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        refuse(path, f"{show(value)} is no identifier", "write letters, digits and _, a letter first")
    return value


def a_warp_tile(value: object, path: str) -> tuple[int, int]:
    found = _WARP_TILE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        refuse(path, f"{show(value)} is no tile of a warp", 'write rows and columns as "64x32"')
    return int(found[1]), int(found[2])


def a_tile(value: object, path: str) -> Tile:
    found = _TILE.fullmatch(value) if isinstance(value, str) else None
    tile = Tile(int(found["offset"] or 0), found["var"]) if found else None
    if tile is None or str(tile) != value:  # one text for each tile
        refuse(path, f"{show(value)} is no tile", 'write it as "0", "k" or "k+1"')
    return tile


def a_token(value: object, path: str) -> Token:
    found = _TOKEN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        refuse(path, f"{show(value)} is no tile of a ring, and no token", 'write it as "a[k+1]"')
    return Token(found["name"], a_tile(found["tile"], path))
