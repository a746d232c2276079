"""Schedule Plans as JSON values (document 004 §8.1), and back.

The keys are the document's, in its order, with ``region``, ``algo`` and ``contraction`` before them; what a Plan does
not say is left out. Reading checks the Plan by itself; :func:`tinyc.ir.check_plan.check_plan` holds it against a
Region and a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from .diagnostics import TinycError, show
from .schedule import (
    ALGO_CHOICES,
    ALGOS,
    ARCHS,
    BARRIER_MODELS,
    DEEP_STAGES,
    EDGE_BUFFERS,
    MAX_EXTENT,
    ORDERS,
    PLACES,
    Async,
    Cache,
    Contraction,
    LayoutHints,
    LocalEdge,
    Plan,
    Vectorize,
    known_choice,
    rings,
)
from .schedule_names import PART, nearest

T = TypeVar("T")

KEYS = (
    "region",
    "algo",
    "contraction",
    "tile",
    "stages",
    "bind",
    "warp_tile",
    "cache",
    "vectorize",
    "predicate_tail",
    "epilogue",
    "arch",
    "layout_hints",
    "algo_choice",
    "local_edges",
    "async",
    "barrier_model",
)


# ---- writing --------------------------------------------------------------------------------------------------------


def plan_to_json(region: str, plan: Plan) -> dict[str, Any]:
    """``region``: the name of the Region that the Plan is for."""
    hints, vectorize, overlap, roles = plan.layout_hints, plan.vectorize, plan.async_, plan.contraction
    said: dict[str, Any] = {
        "region": region,
        "algo": plan.algo,
        "contraction": roles
        and {
            "reduce": roles.reduce,
            "lhs": roles.lhs,
            "rhs": roles.rhs,
            **{role: list(getattr(roles, role)) for role in ("batch", "m", "n", "k")},
        },
        "tile": plan.tile and list(plan.tile),
        "stages": plan.stages,
        "bind": dict(plan.bind),
        "warp_tile": plan.warp_tile and "x".join(map(str, plan.warp_tile)),
        "cache": [
            {"tensor": each.tensor, "where": each.where, "at": each.at, "pingpong": each.pingpong}
            for each in plan.cache
        ],
        "vectorize": vectorize and {"axis": vectorize.axis, "width": vectorize.width},
        "predicate_tail": list(plan.predicate_tail),
        "epilogue": list(plan.epilogue),
        "arch": plan.arch,
        "layout_hints": hints
        and {"A_swizzle": hints.a_swizzle, "B_swizzle": hints.b_swizzle, "C_stride": hints.c_stride},
        "algo_choice": dict(plan.algo_choice),
        "local_edges": [_edge_to_json(edge) for edge in plan.local_edges],
        "async": overlap
        and {
            "enable": overlap.enable,
            "prefetch_depth": overlap.prefetch_depth,
            "epilogue_overlap": overlap.epilogue_overlap,
        },
        "barrier_model": plan.barrier_model,
    }
    return {key: value for key, value in said.items() if value is not None and value != [] and value != {}}


def _edge_to_json(edge: LocalEdge) -> dict[str, Any]:
    depth = {} if edge.depth is None else {"depth": edge.depth}
    return {"from": edge.source, "to": edge.target, "buffer": edge.buffer, **depth}


# ---- reading --------------------------------------------------------------------------------------------------------


def plan_from_json(data: object, path: str = "plan") -> Plan:
    """The Plan of a parsed document. ``path``: how errors call the place, ``plan.tile[1]: …``.

    Without ``algo`` a Plan with a tile or a contraction is one of a contraction, any other one of loops. ``region``
    may be there and is the caller's.

    Raises:
        TinycError: PlanInvalid, and nothing else, whatever ``data`` is.
    """
    given = _object(data, path, KEYS)
    if "region" in given:
        _text(given["region"], f"{path}.region")
    tile = _maybe(given, "tile", path, _tile)
    roles = _maybe(given, "contraction", path, _contraction)
    tiled = tile is not None or roles is not None
    algo = _maybe(given, "algo", path, _one_of(ALGOS)) or ("contraction" if tiled else "loops")
    if algo == "loops" and tile is not None and tile[0] != 1:
        refuse(
            f"{path}.tile", "loops have no rows", "give [1, points, threads of a sum], or plan a contraction"
        )
    arch = _maybe(given, "arch", path, _one_of(ARCHS))
    if algo == "loops" and roles is not None:
        refuse(f"{path}.contraction", "the algo is loops", 'give algo "contraction", or leave it out')
    return Plan(
        algo=algo,
        contraction=roles,
        tile=tile,
        stages=_maybe(given, "stages", path, _one_ring(rings(arch))),
        bind=_maybe(given, "bind", path, _bind) or (),
        warp_tile=_maybe(given, "warp_tile", path, _warp_tile),
        cache=_maybe(given, "cache", path, _each(_cache)) or (),
        vectorize=_maybe(given, "vectorize", path, _vectorize),
        predicate_tail=_maybe(given, "predicate_tail", path, _distinct(_part)) or (),
        epilogue=_maybe(given, "epilogue", path, _distinct(_text)) or (),
        arch=arch,
        layout_hints=_maybe(given, "layout_hints", path, _layout_hints),
        algo_choice=_maybe(given, "algo_choice", path, _algo_choice) or (),
        local_edges=_maybe(given, "local_edges", path, _each(_edge)) or (),
        async_=_maybe(given, "async", path, _async),
        barrier_model=_maybe(given, "barrier_model", path, _one_of(tuple(BARRIER_MODELS.values()))),
    )


def refuse(path: str, why: str, suggestion: str) -> NoReturn:
    """Raises PlanInvalid at ``path``."""
    raise TinycError("PlanInvalid", f"{path}: {why}", suggestion, at={"layer": "plan", "value": path})


def _maybe(given: Mapping[str, Any], key: str, path: str, read: Callable[[object, str], T]) -> T | None:
    value = given.get(key)
    return None if value is None else read(value, f"{path}.{key}")


def _object(data: object, path: str, keys: Sequence[str], needed: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(data, dict):
        refuse(path, f"{show(data)} is no object", f"give an object with the keys {', '.join(keys)}")
    for key in data:
        if key not in keys:
            meant = nearest(str(key), list(keys))
            refuse(
                f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else path,
                f"there is no key {show(key)}",
                f"{meant!r} may be meant" if meant else f"the keys are {', '.join(keys)}",
            )
    for key in needed:
        if key not in data:
            refuse(path, f"{key!r} is missing", f"give {', '.join(map(repr, needed))}")
    return data


def _integer(value: object, path: str, low: int = 1, high: int | None = None) -> int:
    top = MAX_EXTENT if high is None else high
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= top:
        refuse(path, f"{show(value)} is no integer from {low} to {top}", "give a whole number in that range")
    return value


def _boolean(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        refuse(path, f"{show(value)} is neither true nor false", "give true or false")
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value:
        refuse(path, f"{show(value)} is no name", "give a name as a string")
    return value


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        refuse(path, f"{show(value)} is no list", "give a list")
    return value


def _each(read: Callable[[object, str], T]) -> Callable[[object, str], tuple[T, ...]]:
    return lambda value, path: tuple(
        read(each, f"{path}[{number}]") for number, each in enumerate(_list(value, path))
    )


def _distinct(read: Callable[[object, str], str]) -> Callable[[object, str], tuple[str, ...]]:
    def distinct(value: object, path: str) -> tuple[str, ...]:
        found = _each(read)(value, path)
        for number, name in enumerate(found):
            if name in found[:number]:
                refuse(f"{path}[{number}]", f"{show(name)} is there already", "name each once")
        return found

    return distinct


def _one_of(names: Sequence[str]) -> Callable[[object, str], str]:
    def one(value: object, path: str) -> str:
        if not isinstance(value, str) or value not in names:
            meant = nearest(value, list(names)) if isinstance(value, str) else ""
            hint = f"{meant!r} may be meant; " if meant else ""
            refuse(path, f"there is no {show(value)}", f"{hint}the choices are {', '.join(names)}")
        return value

    return one


def _part(value: object, path: str) -> str:
    name = _text(value, path)
    if not PART.fullmatch(name) or name.endswith((".o.o", ".o.i")):
        refuse(path, f"{show(name)} is no axis part", "write m, m.o, m.i, m.i.o or m.i.i")
    return name


def _tile(value: object, path: str) -> tuple[int, int, int]:
    sizes = _list(value, path)
    if len(sizes) != 3:
        refuse(path, f"{len(sizes)} sizes", "give three: [BM, BN, BK]")
    bm, bn, bk = (_integer(size, f"{path}[{number}]") for number, size in enumerate(sizes))
    return bm, bn, bk


def _one_ring(known: tuple[int, ...]) -> Callable[[object, str], int]:
    def one(value: object, path: str) -> int:
        stages = _integer(value, path)
        if stages not in known:
            listed = " or ".join(map(str, known)) if len(known) < 3 else f"{known[0]} to {known[-1]}"
            refuse(path, f"there are no rings of {stages} tiles", f"give {listed}")
        return stages

    return one


def _warp_tile(value: object, path: str) -> tuple[int, int]:
    parts = value.split("x") if isinstance(value, str) else []
    if len(parts) != 2 or not all(each.isascii() and each.isdigit() and len(each) < 10 for each in parts):
        refuse(path, f"{show(value)} is no tile of a warp", 'write rows and columns as "64x32"')
    rows, columns = (_integer(int(each), path) for each in parts)
    return rows, columns


def _bind(value: object, path: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        refuse(path, f"{show(value)} is no object", 'write {"m.o": "block.y", …}')
    return tuple(
        (_part(part, f"{path}[{show(part)}]"), _one_of(PLACES)(where, f"{path}[{show(part)}]"))
        for part, where in value.items()
    )


def _cache(value: object, path: str) -> Cache:
    given = _object(value, path, ("tensor", "where", "at", "pingpong"), ("tensor", "at"))
    return Cache(
        _text(given["tensor"], f"{path}.tensor"),
        _part(given["at"], f"{path}.at"),
        _one_of(("smem",))(given.get("where", "smem"), f"{path}.where"),
        _boolean(given.get("pingpong", True), f"{path}.pingpong"),
    )


def _vectorize(value: object, path: str) -> Vectorize:
    given = _object(value, path, ("axis", "width"), ("axis", "width"))
    width = _integer(given["width"], f"{path}.width")
    if width & (width - 1):
        below = 1 << (width.bit_length() - 1)
        refuse(f"{path}.width", f"{width} is no power of two", f"give {below} or {2 * below}")
    return Vectorize(_part(given["axis"], f"{path}.axis"), width)


def _layout_hints(value: object, path: str) -> LayoutHints:
    given = _object(value, path, ("A_swizzle", "B_swizzle", "C_stride"))
    return LayoutHints(
        _boolean(given.get("A_swizzle", False), f"{path}.A_swizzle"),
        _boolean(given.get("B_swizzle", False), f"{path}.B_swizzle"),
        _one_of(ORDERS)(given.get("C_stride", "row"), f"{path}.C_stride"),
    )


def _algo_choice(value: object, path: str) -> tuple[tuple[str, str], ...]:
    given = _object(value, path, tuple(ALGO_CHOICES))
    for kind, name in given.items():
        if not known_choice(kind, _text(name, f"{path}.{kind}")):
            choices = [*ALGO_CHOICES[kind], *(["splitk_<parts>"] if kind != "attention" else [])]
            refuse(f"{path}.{kind}", f"there is no {show(name)}", f"the choices are {', '.join(choices)}")
    return tuple(given.items())


def _edge(value: object, path: str) -> LocalEdge:
    given = _object(value, path, ("from", "to", "buffer", "depth"), ("from", "to", "buffer"))
    return LocalEdge(
        _text(given["from"], f"{path}.from"),
        _text(given["to"], f"{path}.to"),
        _one_of(EDGE_BUFFERS)(given["buffer"], f"{path}.buffer"),
        _maybe(given, "depth", path, lambda depth, at: _integer(depth, at, 1, max(DEEP_STAGES))),
    )


def _async(value: object, path: str) -> Async:
    given = _object(value, path, ("enable", "prefetch_depth", "epilogue_overlap"), ("enable",))
    enable = _boolean(given["enable"], f"{path}.enable")
    depth = _integer(given.get("prefetch_depth", 1), f"{path}.prefetch_depth", 1, max(DEEP_STAGES))
    overlap = _boolean(given.get("epilogue_overlap", False), f"{path}.epilogue_overlap")
    if overlap and not enable:
        refuse(f"{path}.epilogue_overlap", "async is not enabled", "set enable, or leave the overlap out")
    return Async(enable, depth, overlap)


def _contraction(value: object, path: str) -> Contraction:
    keys = ("reduce", "lhs", "rhs", "batch", "m", "n", "k")
    given = _object(value, path, keys, ("reduce", "lhs", "rhs", "m", "n", "k"))
    reduce, lhs, rhs = (_text(given[key], f"{path}.{key}") for key in ("reduce", "lhs", "rhs"))
    axes = {
        role: _distinct(_text)(given.get(role, []), f"{path}.{role}") for role in ("batch", "m", "n", "k")
    }
    return Contraction(reduce, lhs, rhs, **axes)
