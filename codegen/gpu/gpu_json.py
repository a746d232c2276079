"""GPU IR as JSON values (document 004 §9.3), and back.

A kernel of a contraction is ``{"gpu_ir": {"arch": …, …, "stmts": [{"CpAsync": {"dst_smem": "a[k+2]", …}}, …]}}``. ``a[k+2]`` is tile k + 2 of ring a, or
the token of that name. :mod:`.walk_json` writes kernels of attention. Reading checks the form; :func:`~codegen.gpu.check.check_gpu_ir` checks what the statements do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyc.ir.schedule import BARRIER_MODELS, Contraction
from tinyc.ir.units import UNITS

from .gpu_values import (
    a_count,
    a_name,
    a_text,
    a_tile,
    a_token,
    a_warp_tile,
    an_object,
    one_of,
    refuse,
    several,
    sizes,
)
from .ir import (
    GpuKernel,
    KeepRows,
    Kept,
    LoadFragments,
    Loop,
    Mma,
    ReduceRows,
    Statement,
    Walk,
)
from .statements_json import COMMON, Readers, a_dtype, a_ring, common_fields, ring_to_json, statements
from .walk_ir import WalkKernel
from .walk_json import walk_from_json, walk_to_json

ROLES = ("batch", "m", "n", "k")

PARTS = ("b", "m.o", "n.o")
"""What the blocks of a grid count."""

# ---- writing --------------------------------------------------------------------------------------------------------


def gpu_ir_to_json(kernel: GpuKernel | WalkKernel) -> dict[str, Any]:
    """``{"gpu_ir": …}``: strict JSON, all of ``kernel``."""
    if isinstance(kernel, WalkKernel):
        return {"gpu_ir": walk_to_json(kernel)}
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
            "rings": [ring_to_json(ring) for ring in kernel.rings],
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
        case LoadFragments(rings, tile, step, buffer):
            return {"src_smem": [f"{ring}[{tile}]" for ring in rings], "step": step, "buffer": buffer}
        case Mma(tile, step, buffer, out):
            done = {} if out is None else {"out_token": str(out)}
            return {"tile": str(tile), "step": step, "buffer": buffer, **done}
        case Loop(var, count, body) | Walk(var, count, body):
            return {"var": var, "count": count, "body": [_statement_to_json(each) for each in body]}
        case KeepRows(dst, width, in_token, out_token):
            taken, given = str(in_token), str(out_token)
            return {"dst_smem": dst, "width": width, "in_token": taken, "out_token": given}
        case ReduceRows(src, team, ops, in_token, out_token):
            taken, given = str(in_token), str(out_token)
            return {"src_smem": src, "team": team, "ops": list(ops), "in_token": taken, "out_token": given}
        case _:
            return common_fields(statement)


# ---- reading --------------------------------------------------------------------------------------------------------


def gpu_ir_from_json(data: object) -> GpuKernel | WalkKernel:
    """The kernel of a parsed document, as :func:`gpu_ir_to_json` writes it. Whether it is right is not looked at.

    Raises TinycError: GpuIrInvalid with the path of what is wrong, and nothing else, whatever ``data`` is.
    """
    path = "gpu_ir"
    document = an_object(data, "document", (path,))[path]
    if isinstance(document, dict) and "walk" in document:
        return walk_from_json(document, path)
    given = an_object(document, path, KEYS, ("kept",))
    bm, bn, bk = sizes(given["tile"], f"{path}.tile", 3)
    rows, columns = a_warp_tile(given["warp_tile"], f"{path}.warp_tile")
    x, y, z = sizes(given["grid"], f"{path}.grid", 3)
    first, second = several(a_ring, 2)(given["rings"], f"{path}.rings")
    return GpuKernel(
        one_of(tuple(BARRIER_MODELS))(given["arch"], f"{path}.arch"),
        one_of(tuple(UNITS))(given["unit"], f"{path}.unit"),
        a_count(given["depth"], f"{path}.depth"),
        _roles(given["contraction"], f"{path}.contraction"),
        _extents(given["extents"], f"{path}.extents"),
        (bm, bn, bk),
        (rows, columns),
        a_count(given["tiles"], f"{path}.tiles"),
        (x, y, z),
        several(_place, len(PARTS))(given["places"], f"{path}.places"),
        (first, second),
        statements(READERS, given["stmts"], f"{path}.stmts", 0),
        _kept(given["kept"], f"{path}.kept") if "kept" in given else None,
    )


KEYS = (
    "arch", "unit", "depth", "contraction", "extents", "tile", "warp_tile", "tiles", "grid", "places", "rings", "stmts",
)  # fmt: skip


def _roles(value: object, path: str) -> Contraction:
    given = an_object(value, path, ("reduce", "lhs", "rhs", *ROLES))
    reduce, lhs, rhs = (a_text(given[key], f"{path}.{key}") for key in ("reduce", "lhs", "rhs"))
    return Contraction(
        reduce, lhs, rhs, **{role: several(a_text)(given[role], f"{path}.{role}") for role in ROLES}
    )


def _extents(value: object, path: str) -> tuple[int, int, int, int]:
    given = an_object(value, path, tuple("bmnk"))
    b, m, n, k = (a_count(given[key], f"{path}.{key}") for key in "bmnk")
    return b, m, n, k


def _place(value: object, path: str) -> tuple[str, str]:
    part, way = several(a_text, 2)(value, path)
    return one_of(PARTS)(part, f"{path}[0]"), one_of(tuple("xyz"))(way, f"{path}[1]")


def _kept(value: object, path: str) -> Kept:
    given = an_object(value, path, ("name", "dtype", "rows", "columns", "pitch"))
    rows, columns, pitch = (a_count(given[key], f"{path}.{key}") for key in ("rows", "columns", "pitch"))
    return Kept(
        a_name(given["name"], f"{path}.name"), a_dtype(given["dtype"], f"{path}.dtype"), rows, columns, pitch
    )


def _load_fragments(value: object, path: str, _: int) -> Statement:
    given = an_object(value, path, ("src_smem", "step", "buffer"))
    first, second = several(a_token, 2)(given["src_smem"], f"{path}.src_smem")
    if first.tile != second.tile:
        refuse(
            f"{path}.src_smem", f"{first.tile} and {second.tile} are two tiles", "load the same tile of both"
        )
    step, buffer = (a_count(given[key], f"{path}.{key}", 0) for key in ("step", "buffer"))
    return LoadFragments((first.name, second.name), first.tile, step, buffer)


def _mma(value: object, path: str, _: int) -> Statement:
    given = an_object(value, path, ("tile", "step", "buffer"), ("out_token",))
    step, buffer = (a_count(given[key], f"{path}.{key}", 0) for key in ("step", "buffer"))
    out = a_token(given["out_token"], f"{path}.out_token") if "out_token" in given else None
    return Mma(a_tile(given["tile"], f"{path}.tile"), step, buffer, out)


def _loop(kind: type[Loop] | type[Walk]) -> Callable[[object, str, int], Statement]:
    def loop(value: object, path: str, depth: int) -> Statement:
        given = an_object(value, path, ("var", "count", "body"))
        return kind(
            a_name(given["var"], f"{path}.var"),
            a_count(given["count"], f"{path}.count"),
            statements(READERS, given["body"], f"{path}.body", depth + 1),
        )

    return loop


def _keep_rows(value: object, path: str, _: int) -> Statement:
    given = an_object(value, path, ("dst_smem", "width", "in_token", "out_token"))
    return KeepRows(
        a_name(given["dst_smem"], f"{path}.dst_smem"),
        a_count(given["width"], f"{path}.width"),
        a_token(given["in_token"], f"{path}.in_token"),
        a_token(given["out_token"], f"{path}.out_token"),
    )


def _reduce_rows(value: object, path: str, _: int) -> Statement:
    given = an_object(value, path, ("src_smem", "team", "ops", "in_token", "out_token"))
    return ReduceRows(
        a_name(given["src_smem"], f"{path}.src_smem"),
        a_count(given["team"], f"{path}.team"),
        several(a_text)(given["ops"], f"{path}.ops"),
        a_token(given["in_token"], f"{path}.in_token"),
        a_token(given["out_token"], f"{path}.out_token"),
    )


READERS: Readers[Statement] = {
    **COMMON,
    "LoadFragments": _load_fragments,
    "Mma": _mma,
    "Loop": _loop(Loop),
    "Walk": _loop(Walk),
    "KeepRows": _keep_rows,
    "ReduceRows": _reduce_rows,
}
