"""GPU IR of attention as JSON values, and back: ``{"gpu_ir": {"walk": …, "stmts": [{"Scores": {"src_smem": ["q[0]", "k[tile]"], …}}]}}``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyc.ir.schedule import BARRIER_MODELS
from tinyc.ir.units import UNITS

from .gpu_values import a_count, a_name, a_text, a_tile, a_token, an_object, one_of, refuse, several, sizes
from .ir import Ring
from .statements_json import COMMON, RING, Readers, common_fields, ring_of, ring_to_json, statements
from .walk_ir import Columns, Exponentials, Scores, Shares, Totals, WalkKernel, WalkStatement, Weigh

EXTENTS = tuple("bmnde")

KEYS = ("arch", "unit", "walk", "extents", "tile", "warp_rows", "tiles", "grid", "rings", "stmts")


# ---- writing --------------------------------------------------------------------------------------------------------


def walk_to_json(kernel: WalkKernel) -> dict[str, Any]:
    """Strict JSON, all of ``kernel``."""
    return {
        "arch": kernel.arch,
        "unit": kernel.unit,
        "walk": {"score": kernel.score, "weighted": kernel.weighted},
        "extents": dict(zip(EXTENTS, kernel.extents, strict=True)),
        "tile": list(kernel.tile),
        "warp_rows": kernel.warp_rows,
        "tiles": kernel.tiles,
        "grid": list(kernel.grid),
        "rings": [
            {**ring_to_json(ring), "start": start}
            for ring, start in zip(kernel.rings, kernel.starts, strict=True)
        ],
        "stmts": _written(kernel.stmts),
    }


def _written(stmts: Sequence[WalkStatement]) -> list[dict[str, Any]]:
    return [{type(each).__name__: _fields(each)} for each in stmts]


def _fields(statement: WalkStatement) -> dict[str, Any]:
    match statement:
        case Columns(var, body):
            return {"var": var, "body": _written(body)}
        case Scores((q, k), tile, ops, out):
            return {"src_smem": [f"{q}[0]", f"{k}[{tile}]"], "ops": list(ops), "out_token": str(out)}
        case Totals(tile, taken, out):
            return {"tile": str(tile), "in_token": str(taken), "out_token": str(out)}
        case Shares(taken, out):
            return {"in_token": str(taken), "out_token": str(out)}
        case Exponentials(tile, shares, taken, out):
            by = {} if shares is None else {"shares": str(shares)}
            return {"tile": str(tile), **by, "in_token": str(taken), "out_token": str(out)}
        case Weigh(ring, tile, parts, taken, out):
            source, tokens = f"{ring}[{tile}]", {"in_token": str(taken), "out_token": str(out)}
            return {"src_smem": source, "parts": parts, **tokens}
        case _:
            return common_fields(statement)


# ---- reading --------------------------------------------------------------------------------------------------------


def walk_from_json(document: object, path: str) -> WalkKernel:
    """The kernel of what :func:`walk_to_json` writes. Whether it is right is not looked at.

    Raises TinycError: GpuIrInvalid with the path of what is wrong, and nothing else, whatever ``document`` is.
    """
    given = an_object(document, path, KEYS)
    walk = an_object(given["walk"], f"{path}.walk", ("score", "weighted"))
    extents = an_object(given["extents"], f"{path}.extents", EXTENTS)
    b, m, n, d, e = (a_count(extents[key], f"{path}.extents.{key}") for key in EXTENTS)
    rows, columns = sizes(given["tile"], f"{path}.tile", 2)
    x, y, z = sizes(given["grid"], f"{path}.grid", 3)
    rings = several(_placed)(given["rings"], f"{path}.rings")
    return WalkKernel(
        one_of(tuple(BARRIER_MODELS))(given["arch"], f"{path}.arch"),
        one_of(tuple(UNITS))(given["unit"], f"{path}.unit"),
        a_text(walk["score"], f"{path}.walk.score"),
        a_text(walk["weighted"], f"{path}.walk.weighted"),
        (b, m, n, d, e),
        (rows, columns),
        a_count(given["warp_rows"], f"{path}.warp_rows"),
        a_count(given["tiles"], f"{path}.tiles"),
        (x, y, z),
        tuple(ring for ring, _ in rings),
        tuple(start for _, start in rings),
        statements(READERS, given["stmts"], f"{path}.stmts", 0),
    )


def _placed(value: object, path: str) -> tuple[Ring, int]:
    given = an_object(value, path, (*RING, "start"))
    return ring_of(given, path), a_count(given["start"], f"{path}.start", 0)


def _columns(value: object, path: str, depth: int) -> WalkStatement:
    given = an_object(value, path, ("var", "body"))
    body = statements(READERS, given["body"], f"{path}.body", depth + 1)
    return Columns(a_name(given["var"], f"{path}.var"), body)


def _scores(value: object, path: str, _: int) -> WalkStatement:
    given = an_object(value, path, ("src_smem", "ops", "out_token"))
    q, k = several(a_token, 2)(given["src_smem"], f"{path}.src_smem")
    if str(q.tile) != "0":
        refuse(f"{path}.src_smem[0]", f"there is no tile {q.tile} of queries", f'write it as "{q.name}[0]"')
    ops = several(a_text)(given["ops"], f"{path}.ops")
    return Scores((q.name, k.name), k.tile, ops, a_token(given["out_token"], f"{path}.out_token"))


def _totals(value: object, path: str, _: int) -> WalkStatement:
    given = an_object(value, path, ("tile", "in_token", "out_token"))
    taken, out = (a_token(given[key], f"{path}.{key}") for key in ("in_token", "out_token"))
    return Totals(a_tile(given["tile"], f"{path}.tile"), taken, out)


def _shares(value: object, path: str, _: int) -> WalkStatement:
    given = an_object(value, path, ("in_token", "out_token"))
    return Shares(*(a_token(given[key], f"{path}.{key}") for key in ("in_token", "out_token")))


def _exponentials(value: object, path: str, _: int) -> WalkStatement:
    given = an_object(value, path, ("tile", "in_token", "out_token"), ("shares",))
    shares = a_token(given["shares"], f"{path}.shares") if "shares" in given else None
    taken, out = (a_token(given[key], f"{path}.{key}") for key in ("in_token", "out_token"))
    return Exponentials(a_tile(given["tile"], f"{path}.tile"), shares, taken, out)


def _weigh(value: object, path: str, _: int) -> WalkStatement:
    given = an_object(value, path, ("src_smem", "parts", "in_token", "out_token"))
    source = a_token(given["src_smem"], f"{path}.src_smem")
    taken, out = (a_token(given[key], f"{path}.{key}") for key in ("in_token", "out_token"))
    return Weigh(source.name, source.tile, a_count(given["parts"], f"{path}.parts"), taken, out)


READERS: Readers[WalkStatement] = {
    **COMMON,
    "Columns": _columns,
    "Scores": _scores,
    "Totals": _totals,
    "Shares": _shares,
    "Exponentials": _exponentials,
    "Weigh": _weigh,
}
