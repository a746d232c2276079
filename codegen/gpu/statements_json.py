"""What documents of GPU IR of every kind hold: rings, and the statements that move tiles, wait and store (document 004 §9.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tinyc.ir.diagnostics import show
from tinyc.ir.dtypes import DType

from .gpu_values import (
    a_boolean,
    a_count,
    a_name,
    a_text,
    a_token,
    an_object,
    one_of,
    refuse,
    several,
)
from .ir import Barrier, CommitGroup, CpAsync, Epilogue, Ring, StGlobalVec, Wait

S = TypeVar("S")
Common = CpAsync | CommitGroup | Wait | Barrier | Epilogue | StGlobalVec

Readers = Mapping[str, Callable[[object, str, int], S]]
"""By a statement's name: its fields, their path, and how many loops it is in."""

NESTED = 8
"""Loops in each other, at most."""


# ---- writing --------------------------------------------------------------------------------------------------------


def ring_to_json(ring: Ring) -> dict[str, Any]:
    return {
        "name": ring.name,
        "dtype": ring.dtype.value,
        "rows": ring.rows,
        "columns": ring.columns,
        "stages": ring.stages,
        "turned": ring.turned,
        "swizzle": ring.swizzle,
    }


def common_fields(statement: Common) -> dict[str, Any]:
    match statement:
        case CpAsync(ring, tile, src, bytes, token):
            return {"dst_smem": f"{ring}[{tile}]", "src": src, "bytes": bytes, "out_token": str(token)}
        case CommitGroup() | Barrier():
            return {}
        case Wait(tokens, pending):
            return {"token": [str(each) for each in tokens], "pending": pending}
        case Epilogue(ops, overlap, in_token, out_token):
            taken, given = str(in_token), str(out_token)
            return {"ops": list(ops), "in_token": taken, "out_token": given, "async": overlap}
        case StGlobalVec(dst, width, in_token):
            return {"ptr": list(dst), "width": width, "in_token": str(in_token)}


# ---- reading --------------------------------------------------------------------------------------------------------

RING = ("name", "dtype", "rows", "columns", "stages", "turned", "swizzle")


def a_ring(value: object, path: str) -> Ring:
    return ring_of(an_object(value, path, RING), path)


def ring_of(given: Mapping[str, object], path: str) -> Ring:
    """Of an object with the keys :data:`RING`, others beside them."""
    rows, columns, stages = (a_count(given[key], f"{path}.{key}") for key in ("rows", "columns", "stages"))
    return Ring(
        a_name(given["name"], f"{path}.name"),
        a_dtype(given["dtype"], f"{path}.dtype"),
        rows,
        columns,
        stages,
        a_boolean(given["turned"], f"{path}.turned"),
        a_boolean(given["swizzle"], f"{path}.swizzle"),
    )


def a_dtype(value: object, path: str) -> DType:
    return DType(one_of(tuple(each.value for each in DType))(value, path))


def statements(readers: Readers[S], value: object, path: str, depth: int) -> tuple[S, ...]:
    """A list of those that ``readers`` know."""

    def statement(value: object, path: str) -> S:
        if not isinstance(value, dict) or len(value) != 1:
            refuse(path, f"{show(value)} is no statement", 'give an object with one key, as {"Barrier": {}}')
        ((name, given),) = value.items()
        return readers[one_of(tuple(readers))(name, path)](given, f"{path}.{name}", depth)

    if depth > NESTED:
        refuse(path, f"there are more than {NESTED} loops in each other", "unroll some")
    return several(statement)(value, path)


def _cp_async(value: object, path: str, _: int) -> Common:
    given = an_object(value, path, ("dst_smem", "src", "bytes", "out_token"))
    to = a_token(given["dst_smem"], f"{path}.dst_smem")
    return CpAsync(
        to.name,
        to.tile,
        a_name(given["src"], f"{path}.src"),
        one_of((0, 4, 8, 16))(given["bytes"], f"{path}.bytes"),
        a_token(given["out_token"], f"{path}.out_token"),
    )


def _wait(value: object, path: str, _: int) -> Common:
    given = an_object(value, path, ("token", "pending"))
    return Wait(
        several(a_token)(given["token"], f"{path}.token"), a_count(given["pending"], f"{path}.pending", 0)
    )


def _epilogue(value: object, path: str, _: int) -> Common:
    given = an_object(value, path, ("ops", "in_token", "out_token", "async"))
    return Epilogue(
        several(a_text)(given["ops"], f"{path}.ops"),
        a_boolean(given["async"], f"{path}.async"),
        a_token(given["in_token"], f"{path}.in_token"),
        a_token(given["out_token"], f"{path}.out_token"),
    )


def _st_global_vec(value: object, path: str, _: int) -> Common:
    given = an_object(value, path, ("ptr", "width", "in_token"))
    return StGlobalVec(
        several(a_name)(given["ptr"], f"{path}.ptr"),
        a_count(given["width"], f"{path}.width"),
        a_token(given["in_token"], f"{path}.in_token"),
    )


COMMON: Readers[Common] = {
    "CpAsync": _cp_async,
    "CommitGroup": lambda value, path, _: CommitGroup(**an_object(value, path, ())),
    "Wait": _wait,
    "Barrier": lambda value, path, _: Barrier(**an_object(value, path, ())),
    "Epilogue": _epilogue,
    "StGlobalVec": _st_global_vec,
}
