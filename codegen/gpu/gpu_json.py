"""GPU IR as JSON values (document 004 §9.3), and back.

A kernel is ``{"gpu_ir": {"arch": …, …, "stmts": [{"CpAsync": {"dst_smem": "a[k+2]", …}}, …]}}``. ``a[k+2]`` is tile k + 2 of ring a, or
the token of that name. Reading checks the form; :func:`~codegen.gpu.check.check_gpu_ir` checks what the statements do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.dtypes import DType
from tinyc.ir.schedule import BARRIER_MODELS, MAX_EXTENT, Contraction
from tinyc.ir.schedule_names import nearest
from tinyc.ir.units import UNITS

from .ir import (
    Barrier,
    CommitGroup,
    CpAsync,
    Epilogue,
    GpuKernel,
    KeepRows,
    Kept,
    LoadFragments,
    Loop,
    Mma,
    ReduceRows,
    Ring,
    Statement,
    StGlobalVec,
    Tile,
    Token,
    Wait,
    Walk,
)

T = TypeVar("T")
Read = Callable[[object, str], T]

ROLES = ("batch", "m", "n", "k")

PARTS = ("b", "m.o", "n.o")
"""What the blocks of a grid count."""

NESTED = 8
"""Loops in each other, at most."""


# ---- writing --------------------------------------------------------------------------------------------------------


def gpu_ir_to_json(kernel: GpuKernel) -> dict[str, Any]:
    """``{"gpu_ir": …}``: strict JSON, all of ``kernel``."""
    roles, kept = kernel.roles, kernel.kept
    return {
        "gpu_ir": {
            "arch": kernel.arch,
            "unit": kernel.unit,
            "depth": kernel.depth,
            "contraction": {
                "reduce": roles.reduce,
                "lhs": roles.lhs,
                "rhs": roles.rhs,
                **{role: list(getattr(roles, role)) for role in ROLES},
            },
            "extents": dict(zip("bmnk", kernel.extents, strict=True)),
            "tile": list(kernel.tile),
            "warp_tile": "x".join(map(str, kernel.warp_tile)),
            "tiles": kernel.tiles,
            "grid": list(kernel.grid),
            "places": [list(place) for place in kernel.places],
            "rings": [
                {
                    "name": ring.name,
                    "dtype": ring.dtype.value,
                    "rows": ring.rows,
                    "columns": ring.columns,
                    "stages": ring.stages,
                    "turned": ring.turned,
                    "swizzle": ring.swizzle,
                }
                for ring in kernel.rings
            ],
            **({} if kept is None else {"kept": _kept_to_json(kept)}),
            "stmts": [_statement_to_json(each) for each in kernel.stmts],
        }
    }


def _kept_to_json(kept: Kept) -> dict[str, Any]:
    sizes = {"rows": kept.rows, "columns": kept.columns, "pitch": kept.pitch}
    return {"name": kept.name, "dtype": kept.dtype.value, **sizes}


def _statement_to_json(statement: Statement) -> dict[str, Any]:
    return {type(statement).__name__: _fields(statement)}


def _fields(statement: Statement) -> dict[str, Any]:
    match statement:
        case CpAsync(ring, tile, src, bytes, token):
            return {"dst_smem": f"{ring}[{tile}]", "src": src, "bytes": bytes, "out_token": str(token)}
        case CommitGroup() | Barrier():
            return {}
        case Wait(tokens, pending):
            return {"token": [str(each) for each in tokens], "pending": pending}
        case LoadFragments(rings, tile, step, buffer):
            return {"src_smem": [f"{ring}[{tile}]" for ring in rings], "step": step, "buffer": buffer}
        case Mma(tile, step, buffer, out):
            done = {} if out is None else {"out_token": str(out)}
            return {"tile": str(tile), "step": step, "buffer": buffer, **done}
        case Loop(var, count, body) | Walk(var, count, body):
            return {"var": var, "count": count, "body": [_statement_to_json(each) for each in body]}
        case Epilogue(ops, overlap, in_token, out_token):
            taken, given = str(in_token), str(out_token)
            return {"ops": list(ops), "in_token": taken, "out_token": given, "async": overlap}
        case KeepRows(dst, width, in_token, out_token):
            taken, given = str(in_token), str(out_token)
            return {"dst_smem": dst, "width": width, "in_token": taken, "out_token": given}
        case ReduceRows(src, team, ops, in_token, out_token):
            taken, given = str(in_token), str(out_token)
            return {"src_smem": src, "team": team, "ops": list(ops), "in_token": taken, "out_token": given}
        case StGlobalVec(dst, width, in_token):
            return {"ptr": list(dst), "width": width, "in_token": str(in_token)}


# ---- reading --------------------------------------------------------------------------------------------------------


def gpu_ir_from_json(data: object) -> GpuKernel:
    """The kernel of a parsed document, as :func:`gpu_ir_to_json` writes it. Whether it is right is not looked at.

    Raises TinycError: GpuIrInvalid with the path of what is wrong, and nothing else, whatever ``data`` is.
    """
    path = "gpu_ir"
    given = _object(_object(data, "document", (path,))[path], path, KEYS, ("kept",))
    bm, bn, bk = _sizes(given["tile"], f"{path}.tile", 3)
    rows, columns = _warp_tile(given["warp_tile"], f"{path}.warp_tile")
    x, y, z = _sizes(given["grid"], f"{path}.grid", 3)
    first, second = _several(_ring, 2)(given["rings"], f"{path}.rings")
    return GpuKernel(
        _one_of(tuple(BARRIER_MODELS))(given["arch"], f"{path}.arch"),
        _one_of(tuple(UNITS))(given["unit"], f"{path}.unit"),
        _count(given["depth"], f"{path}.depth"),
        _roles(given["contraction"], f"{path}.contraction"),
        _extents(given["extents"], f"{path}.extents"),
        (bm, bn, bk),
        (rows, columns),
        _count(given["tiles"], f"{path}.tiles"),
        (x, y, z),
        _several(_place, len(PARTS))(given["places"], f"{path}.places"),
        (first, second),
        _statements(given["stmts"], f"{path}.stmts", 0),
        _kept(given["kept"], f"{path}.kept") if "kept" in given else None,
    )


KEYS = (
    "arch", "unit", "depth", "contraction", "extents", "tile", "warp_tile", "tiles", "grid", "places", "rings", "stmts",
)  # fmt: skip


def _roles(value: object, path: str) -> Contraction:
    given = _object(value, path, ("reduce", "lhs", "rhs", *ROLES))
    reduce, lhs, rhs = (_text(given[key], f"{path}.{key}") for key in ("reduce", "lhs", "rhs"))
    return Contraction(
        reduce, lhs, rhs, **{role: _several(_text)(given[role], f"{path}.{role}") for role in ROLES}
    )


def _extents(value: object, path: str) -> tuple[int, int, int, int]:
    given = _object(value, path, tuple("bmnk"))
    b, m, n, k = (_count(given[key], f"{path}.{key}") for key in "bmnk")
    return b, m, n, k


def _place(value: object, path: str) -> tuple[str, str]:
    part, way = _several(_text, 2)(value, path)
    return _one_of(PARTS)(part, f"{path}[0]"), _one_of(tuple("xyz"))(way, f"{path}[1]")


def _ring(value: object, path: str) -> Ring:
    given = _object(value, path, ("name", "dtype", "rows", "columns", "stages", "turned", "swizzle"))
    rows, columns, stages = (_count(given[key], f"{path}.{key}") for key in ("rows", "columns", "stages"))
    return Ring(
        _name(given["name"], f"{path}.name"),
        _dtype(given["dtype"], f"{path}.dtype"),
        rows,
        columns,
        stages,
        _boolean(given["turned"], f"{path}.turned"),
        _boolean(given["swizzle"], f"{path}.swizzle"),
    )


def _kept(value: object, path: str) -> Kept:
    given = _object(value, path, ("name", "dtype", "rows", "columns", "pitch"))
    rows, columns, pitch = (_count(given[key], f"{path}.{key}") for key in ("rows", "columns", "pitch"))
    return Kept(
        _name(given["name"], f"{path}.name"), _dtype(given["dtype"], f"{path}.dtype"), rows, columns, pitch
    )


def _dtype(value: object, path: str) -> DType:
    return DType(_one_of(tuple(each.value for each in DType))(value, path))


def _statements(value: object, path: str, depth: int) -> tuple[Statement, ...]:
    if depth > NESTED:
        _refuse(path, f"there are more than {NESTED} loops in each other", "unroll some")
    return _several(lambda each, at: _statement(each, at, depth))(value, path)


def _statement(value: object, path: str, depth: int) -> Statement:
    if not isinstance(value, dict) or len(value) != 1:
        _refuse(path, f"{show(value)} is no statement", 'give an object with one key, as {"Barrier": {}}')
    ((name, given),) = value.items()
    return _READERS[_one_of(tuple(_READERS))(name, path)](given, f"{path}.{name}", depth)


def _cp_async(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("dst_smem", "src", "bytes", "out_token"))
    to = _token(given["dst_smem"], f"{path}.dst_smem")
    return CpAsync(
        to.name,
        to.tile,
        _name(given["src"], f"{path}.src"),
        _one_of((0, 4, 8, 16))(given["bytes"], f"{path}.bytes"),
        _token(given["out_token"], f"{path}.out_token"),
    )


def _wait(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("token", "pending"))
    return Wait(
        _several(_token)(given["token"], f"{path}.token"), _count(given["pending"], f"{path}.pending", 0)
    )


def _load_fragments(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("src_smem", "step", "buffer"))
    first, second = _several(_token, 2)(given["src_smem"], f"{path}.src_smem")
    if first.tile != second.tile:
        _refuse(
            f"{path}.src_smem", f"{first.tile} and {second.tile} are two tiles", "load the same tile of both"
        )
    step, buffer = (_count(given[key], f"{path}.{key}", 0) for key in ("step", "buffer"))
    return LoadFragments((first.name, second.name), first.tile, step, buffer)


def _mma(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("tile", "step", "buffer"), ("out_token",))
    step, buffer = (_count(given[key], f"{path}.{key}", 0) for key in ("step", "buffer"))
    out = _token(given["out_token"], f"{path}.out_token") if "out_token" in given else None
    return Mma(_tile(given["tile"], f"{path}.tile"), step, buffer, out)


def _loop(kind: type[Loop] | type[Walk]) -> Callable[[object, str, int], Statement]:
    def loop(value: object, path: str, depth: int) -> Statement:
        given = _object(value, path, ("var", "count", "body"))
        return kind(
            _name(given["var"], f"{path}.var"),
            _count(given["count"], f"{path}.count"),
            _statements(given["body"], f"{path}.body", depth + 1),
        )

    return loop


def _epilogue(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("ops", "in_token", "out_token", "async"))
    return Epilogue(
        _several(_text)(given["ops"], f"{path}.ops"),
        _boolean(given["async"], f"{path}.async"),
        _token(given["in_token"], f"{path}.in_token"),
        _token(given["out_token"], f"{path}.out_token"),
    )


def _keep_rows(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("dst_smem", "width", "in_token", "out_token"))
    return KeepRows(
        _name(given["dst_smem"], f"{path}.dst_smem"),
        _count(given["width"], f"{path}.width"),
        _token(given["in_token"], f"{path}.in_token"),
        _token(given["out_token"], f"{path}.out_token"),
    )


def _reduce_rows(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("src_smem", "team", "ops", "in_token", "out_token"))
    return ReduceRows(
        _name(given["src_smem"], f"{path}.src_smem"),
        _count(given["team"], f"{path}.team"),
        _several(_text)(given["ops"], f"{path}.ops"),
        _token(given["in_token"], f"{path}.in_token"),
        _token(given["out_token"], f"{path}.out_token"),
    )


def _st_global_vec(value: object, path: str, _: int) -> Statement:
    given = _object(value, path, ("ptr", "width", "in_token"))
    return StGlobalVec(
        _several(_name)(given["ptr"], f"{path}.ptr"),
        _count(given["width"], f"{path}.width"),
        _token(given["in_token"], f"{path}.in_token"),
    )


_READERS: dict[str, Callable[[object, str, int], Statement]] = {
    "CpAsync": _cp_async,
    "CommitGroup": lambda value, path, _: CommitGroup(**_object(value, path, ())),
    "Wait": _wait,
    "Barrier": lambda value, path, _: Barrier(**_object(value, path, ())),
    "LoadFragments": _load_fragments,
    "Mma": _mma,
    "Loop": _loop(Loop),
    "Walk": _loop(Walk),
    "Epilogue": _epilogue,
    "KeepRows": _keep_rows,
    "ReduceRows": _reduce_rows,
    "StGlobalVec": _st_global_vec,
}


# ---- values ---------------------------------------------------------------------------------------------------------

_WARP_TILE = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TILE = re.compile(r"(?P<var>[A-Za-z_]\w*)?(?P<offset>[+-]?\d{1,10})?", re.ASCII)
_TOKEN = re.compile(r"(?P<name>[A-Za-z_]\w*)\[(?P<tile>[^\[\]]*)\]", re.ASCII)


def _refuse(path: str, why: str, suggestion: str) -> NoReturn:
    raise TinycError("GpuIrInvalid", f"{path}: {why}", suggestion, at={"layer": "gpu_ir", "value": path})


def _object(value: object, path: str, keys: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    known = (*keys, *optional)
    listed = f"give an object with the keys {', '.join(known)}" if known else "give {}"
    if not isinstance(value, dict):
        _refuse(path, f"{show(value)} is no object", listed)
    for key in value:
        if key not in known:
            meant = nearest(key, list(known)) if isinstance(key, str) else ""
            _refuse(path, f"there is no key {show(key)}", f"{meant!r} may be meant" if meant else listed)
    for key in keys:
        if key not in value:
            _refuse(path, f"{key!r} is missing", listed)
    return value


def _several(read: Read[T], count: int | None = None) -> Read[tuple[T, ...]]:
    def several(value: object, path: str) -> tuple[T, ...]:
        if not isinstance(value, list) or count not in (None, len(value)):
            wanted = "a list" if count is None else f"a list of {count}"
            _refuse(path, f"{show(value)} is not {wanted}", f"give {wanted}")
        return tuple(read(each, f"{path}[{number}]") for number, each in enumerate(value))

    return several


def _one_of(choices: Sequence[T]) -> Read[T]:
    def one(value: object, path: str) -> T:
        for each in choices:
            if type(value) is type(each) and value == each:
                return each
        meant = nearest(value, [str(each) for each in choices]) if isinstance(value, str) else ""
        hint = f"{meant!r} may be meant; " if meant else ""
        _refuse(path, f"there is no {show(value)}", f"{hint}the choices are {', '.join(map(str, choices))}")

    return one


def _count(value: object, path: str, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MAX_EXTENT:
        _refuse(
            path, f"{show(value)} is no integer from {low} to {MAX_EXTENT}", "give a number of that range"
        )
    return value


def _sizes(value: object, path: str, count: int) -> tuple[int, ...]:
    return _several(_count, count)(value, path)


def _boolean(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        _refuse(path, f"{show(value)} is neither true nor false", "give true or false")
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value:
        _refuse(path, f"{show(value)} is no name", "give a name as a string")
    return value


def _name(value: object, path: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        _refuse(path, f"{show(value)} is no identifier", "write letters, digits and _, a letter first")
    return value


def _warp_tile(value: object, path: str) -> tuple[int, int]:
    found = _WARP_TILE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        _refuse(path, f"{show(value)} is no tile of a warp", 'write rows and columns as "64x32"')
    return int(found[1]), int(found[2])


def _tile(value: object, path: str) -> Tile:
    found = _TILE.fullmatch(value) if isinstance(value, str) else None
    tile = Tile(int(found["offset"] or 0), found["var"]) if found else None
    if tile is None or str(tile) != value:  # one text for each tile
        _refuse(path, f"{show(value)} is no tile", 'write it as "0", "k" or "k+1"')
    return tile


def _token(value: object, path: str) -> Token:
    found = _TOKEN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        _refuse(path, f"{show(value)} is no tile of a ring, and no token", 'write it as "a[k+1]"')
    return Token(found["name"], _tile(found["tile"], path))
