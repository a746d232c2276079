"""The Graph Signature as ABI (document 004 §2.2, §13): what a caller hands in and gets back.

It is all that the runtime needs to receive arrays, so a program that goes on from a dumped Region can be called too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import dims
from .args import Reader, is_name
from .buffer import ALIGNMENT
from .diagnostics import TinycError, show
from .dtypes import DType
from .region import ROW_MAJOR, Layout
from .tiny import Port, Program, Shape

ROLES = ("data", "param")
LAYOUTS = ("row_major", "col_major")
MAX_ALIGNMENT = 4096

_KEYS = ("tensor", "dtype", "shape", "role", "mutability", "alignment", "layout", "storage")


@dataclass(frozen=True)
class Argument:
    """One input or output.

    Attributes:
        name: the caller's.
        shape: integers, or texts over symbols that bind at the call.
        role: "data", or "param" for what stays the same from call to call.
        mutability: "immutable": inputs are never written, an output belongs to the caller alone.
        alignment: bytes, a power of two; 0 becomes the element's size. An input that is less aligned is copied before
            a kernel sees it; an output is at least so aligned.
        layout: of the caller's array. Kernels see row-major inputs, and any other array is copied once; an output of
            "col_major" is handed back with its last two axes the other way round in memory.
        storage: where the caller keeps it, such as "const_pool"; passed on as it is.
    """

    name: str
    dtype: DType
    shape: Shape
    role: str = "data"
    mutability: str = "immutable"
    alignment: int = 0
    layout: Layout = ROW_MAJOR
    storage: str | None = None

    def __post_init__(self) -> None:
        if not self.alignment:
            object.__setattr__(self, "alignment", self.dtype.itemsize)


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs in the order of a call. ``symbols``: every symbol that the inputs' shapes must bind."""

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    symbols: tuple[str, ...] = ()


def signature_of(program: Program) -> Signature:
    """The signature of a Tiny program. What it does not say is filled in: the weakest alignment for inputs, that of
    all memory that tinyc allocates for outputs."""

    def argument(port: Port, least: int) -> Argument:
        kind = program.types[port.node]
        storage = port.storage or program.node(port.node).arg.get("storage")
        alignment = max(port.alignment or 0, least, kind.dtype.itemsize)
        return Argument(
            port.name, kind.dtype, kind.shape, port.role, port.mutability, alignment, port.layout, storage
        )

    return Signature(
        tuple(argument(port, 0) for port in program.inputs),
        tuple(argument(port, ALIGNMENT) for port in program.outputs),
        program.symbols,
    )


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """``{"inputs": [{"tensor", "dtype", "shape", "role", …}], "outputs": […]}``; ``symbols`` where there are any."""
    value: dict[str, Any] = {
        "inputs": [_argument_to_json(each) for each in signature.inputs],
        "outputs": [_argument_to_json(each) for each in signature.outputs],
    }
    if signature.symbols:
        value["symbols"] = list(signature.symbols)
    return value


def _argument_to_json(argument: Argument) -> dict[str, Any]:
    value: dict[str, Any] = {
        "tensor": argument.name,
        "dtype": argument.dtype.value,
        "shape": list(argument.shape),
        "role": argument.role,
        "mutability": argument.mutability,
        "alignment": argument.alignment,
        "layout": {"kind": argument.layout.kind},
    }
    if argument.storage is not None:
        value["storage"] = argument.storage
    return value


def signature_from_json(
    value: object, path: str = "signature", shapes: Mapping[str, int] | None = None
) -> Signature:
    """The signature of a JSON value. ``shapes``: sizes of symbols, filled in where they occur.

    Only tensor, dtype and shape are needed. Raises TinycError MalformedDocument, InvalidArgument, InvalidShape,
    DuplicateId and UnsupportedOp, with the path of what is wrong (``signature.inputs[1].role``).
    """
    if not isinstance(value, dict):
        raise _error(path, f"is {show(value)}", 'give {"inputs": […], "outputs": […]}')
    for key in value:
        if key not in ("inputs", "outputs", "symbols"):
            raise _error(path, f"has {show(key)}", "use the keys inputs, outputs and symbols")
    inputs, outputs = (_arguments(value, key, path, shapes or {}) for key in ("inputs", "outputs"))
    if not outputs:
        raise _error(f"{path}.outputs", "is empty", "name at least one result")
    found = {name for each in (*inputs, *outputs) for dim in each.shape for name in dims.names(dim)}
    listed = value.get("symbols", [])
    if not isinstance(listed, list) or not all(isinstance(n, str) and n.isidentifier() for n in listed):
        raise _error(f"{path}.symbols", f"is {show(listed)}", "give a list of names")
    return Signature(inputs, outputs, tuple(sorted(found | (set(listed) - (shapes or {}).keys()))))


def _arguments(
    value: Mapping[str, Any], key: str, path: str, shapes: Mapping[str, int]
) -> tuple[Argument, ...]:
    listed = value.get(key)
    if not isinstance(listed, list):
        raise _error(f"{path}.{key}", f"is {show(listed)}", 'give a list of {"tensor", "dtype", "shape"}')
    found: dict[str, Argument] = {}
    for number, each in enumerate(listed):
        at = f"{path}.{key}[{number}]"
        if not isinstance(each, dict) or not {"tensor", "dtype", "shape"} <= each.keys():
            raise _error(at, f"is {show(each)}", "give its tensor, dtype and shape")
        for name in each:
            if name not in _KEYS:
                raise _error(at, f"has {show(name)}", f"use the keys {', '.join(_KEYS)}")
        name = each["tensor"]
        if not isinstance(name, str) or not is_name(name):
            raise _error(f"{at}.tensor", f"is {show(name)}", "use a short printable name")
        if name in found:
            why = f"{at}.tensor: {show(name)} is listed twice"
            raise TinycError("DuplicateId", why, "name it once", {"layer": "signature", "value": at})
        dtype, shape = _type(each, at, shapes)
        found[name] = Argument(name, dtype, shape, **attributes(each, at))
    return tuple(found.values())


def _type(given: Mapping[str, Any], path: str, shapes: Mapping[str, int]) -> tuple[DType, Shape]:
    reader = Reader(path, "signature")
    try:
        dtype, shape = reader.dtype(given["dtype"], "dtype"), reader.shape(given["shape"], "shape")
        return dtype, reader.checked(tuple(dims.substitute(dim, shapes) for dim in shape), "shape")
    except dims.DimError as error:
        raise _error(f"{path}.shape", str(error), "use simpler sizes") from None
    except TinycError as error:
        at = {"layer": "signature", "value": path}
        why = f"{path}: {error.why.removeprefix(f'signature {show(path)}: ')}"
        raise TinycError(error.kind, why, error.suggestion, at, **error.details) from None


def attributes(entry: Mapping[str, Any], path: str, layer: str = "signature") -> dict[str, Any]:
    """What an entry of a signature says beside its name and type, as fields of :class:`Argument` and of
    :class:`tinyc.ir.tiny.Port`. Raises TinycError MalformedDocument, and UnsupportedOp for a layout of no array."""
    found: dict[str, Any] = {}
    role = entry.get("role", "data")
    if role not in ROLES:
        raise _error(f"{path}.role", f"is {show(role)}", "use data or param", layer)
    mutability = entry.get("mutability", "immutable")
    if mutability != "immutable":
        suggestion = "use immutable: nodes are pure and inputs are never written"
        raise _error(f"{path}.mutability", f"is {show(mutability)}", suggestion, layer)
    found |= {"role": role, "mutability": mutability}
    if entry.get("storage") is not None:
        if not isinstance(entry["storage"], str):
            raise _error(f"{path}.storage", f"is {show(entry['storage'])}", "give a text", layer)
        found["storage"] = entry["storage"]
    if entry.get("alignment") is not None:
        found["alignment"] = _alignment(entry["alignment"], path, layer)
    if entry.get("layout") is not None:
        found["layout"] = _layout(entry["layout"], path, layer)
    return found


def said(port: Port) -> dict[str, Any]:
    """The inverse of :func:`attributes`: what of ``port`` is not as it is when nothing is said."""
    given = {
        "role": port.role,
        "mutability": port.mutability,
        "alignment": port.alignment,
        "layout": {"kind": port.layout.kind},
        "storage": port.storage,
    }
    silent = {"role": "data", "mutability": "immutable", "layout": {"kind": "row_major"}}
    return {key: value for key, value in given.items() if value != silent.get(key)}


def _alignment(value: object, path: str, layer: str) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):  # type: ignore[operator]
        suggestion = f"give a power of two up to {MAX_ALIGNMENT}"
        raise _error(f"{path}.alignment", f"is {show(value)}", suggestion, layer)
    return value  # type: ignore[return-value]


def _layout(value: object, path: str, layer: str) -> Layout:
    kind = value.get("kind") if isinstance(value, dict) else value
    if not isinstance(kind, str) or (isinstance(value, dict) and value.keys() - {"kind", "params"}):
        raise _error(f"{path}.layout", f"is {show(value)}", 'give {"kind": "row_major"}', layer)
    if kind not in LAYOUTS or (isinstance(value, dict) and value.get("params")):
        raise TinycError(
            "UnsupportedOp",
            f"{path}.layout: an array of a caller does not lie {show(value)}",
            f"use one of {', '.join(LAYOUTS)}, without params",
            {"layer": layer, "value": path},
        )
    return Layout(kind)


def _error(path: str, why: str, suggestion: str, layer: str = "signature") -> TinycError:
    return TinycError("MalformedDocument", f"{path}: {why}", suggestion, {"layer": layer, "value": path})
