"""Conversions between types (PTX ISA, "Data Movement and Conversion Instructions: cvt").

A float becomes an integer within the range of its type; a NaN becomes 0, or 1 in the highest bit alone where the source is f64 or
the integer has 64 bits. A NaN becomes the target format's own, whose bits the ISA leaves open.
"""

from __future__ import annotations

import numpy as np

from .floating import above_zero, saturated
from .rounding import (
    BF16,
    F16,
    F32,
    FORMATS,
    ROUNDINGS,
    TF32,
    Format,
    Pair,
    decoded,
    flushed,
    integral,
    rounded,
    two_sum,
)
from .types import BITS, INTEGERS, SIGNED, WIDTH, Array, Compute, Operation, numbers, parse, quiet

TO_INTEGER = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def conversion(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """The operation of cvt or cvt.pack, None where it is no such instruction or the combination does not exist."""
    if opcode != "cvt" or len(modifiers) < 2:
        return None
    to, source = modifiers[-2:]
    if to == "tf32" or to in ("f16x2", "bf16x2"):
        return _to_narrow(modifiers)
    found = parse(
        modifiers[:-2],
        mode=(*ROUNDINGS, *TO_INTEGER),
        ftz=("ftz",),
        sat=("sat",),
        relu=("relu",),
        satfinite=("satfinite",),
    )
    if found is None:
        return None
    if to in INTEGERS and source in INTEGERS:
        return _between_integers(to, source, found)
    if to in INTEGERS and source in FORMATS:
        return _float_to_integer(to, source, found)
    if to in FORMATS and source in INTEGERS:
        return _integer_to_float(to, source, found)
    if to in FORMATS and source in FORMATS:
        return _between_floats(to, source, found)
    return None


def _only(found: dict[str, str], *allowed: str) -> bool:
    return all(not value or group in allowed for group, value in found.items())


def _between_integers(to: str, source: str, found: dict[str, str]) -> Operation | None:
    if not _only(found, "sat"):
        return None
    if found["sat"]:
        return Operation((to,), (source,), lambda a: (clamped(a, source, to),))
    signed = source[0] == "s" and WIDTH[to] > WIDTH[source]
    target = BITS[WIDTH[to]]
    if signed:
        wide = SIGNED[WIDTH[to]]
        return Operation((to,), (source,), lambda a: (numbers(a, source).astype(wide).view(target),))
    return Operation((to,), (source,), lambda a: (a.astype(target),))


def limits(kind: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    width = WIDTH[kind]
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)


def clamped(a: Array, source: str, to: str) -> Array:
    """Integers of type ``source`` brought into the range of ``to``, as its bits."""
    (low, high), (least, greatest) = limits(to), limits(source)
    values = numbers(a, source)
    values = np.maximum(values, values.dtype.type(max(low, least)))
    values = np.minimum(values, values.dtype.type(min(high, greatest)))
    return values.astype(BITS[WIDTH[to]] if to[0] == "u" else SIGNED[WIDTH[to]]).view(BITS[WIDTH[to]])


def _float_to_integer(to: str, source: str, found: dict[str, str]) -> Operation | None:
    if not _only(found, "mode", "ftz", "sat") or found["mode"] not in TO_INTEGER:
        return None
    if found["ftz"] and source != "f32":
        return None
    form, mode, flushes = FORMATS[source], TO_INTEGER[found["mode"]], bool(found["ftz"])
    width = WIDTH[to]
    nan = (1 << (width - 1)) if source == "f64" or width == 64 else 0

    def compute(a: Array) -> tuple[Array, ...]:
        values = decoded(flushed(a, form) if flushes else a, form)
        return (to_integer(integral(values, mode), to, nan),)

    return Operation((to,), (source,), quiet(compute))


def to_integer(whole: Array, to: str, nan: int) -> Array:
    """Whole numbers (float64) as bits of an integer type, clamped to its range; ``nan`` for NaN."""
    low, high = limits(to)
    kind = BITS[WIDTH[to]]
    over, under = whole >= float(high + 1), whole < float(low)
    inside = np.where(over | under | np.isnan(whole), 0.0, whole)
    values = inside.astype(np.int64 if to[0] == "s" else np.uint64).astype(kind)
    values = np.where(over, kind.type(high), values)
    values = np.where(under, kind.type(low & ((1 << WIDTH[to]) - 1)), values)
    return np.where(np.isnan(whole), kind.type(nan), values)


def _integer_to_float(to: str, source: str, found: dict[str, str]) -> Operation | None:
    if not _only(found, "mode", "ftz", "sat") or found["mode"] not in ROUNDINGS:
        return None
    form, mode, clamps = FORMATS[to], found["mode"], bool(found["sat"])
    if clamps and form is BF16:
        return None

    def compute(a: Array) -> tuple[Array, ...]:
        bits = rounded(exactly(a, source), form, mode)
        return (saturated(bits, form) if clamps else bits,)

    return Operation((to,), (source,), quiet(compute))


def exactly(a: Array, source: str) -> Pair:
    """Integers as pairs: an upper and a lower part are exact in float64."""
    values = numbers(a, source)
    if WIDTH[source] < 64:
        exact = values.astype(np.float64)
        return exact, None
    lower = values & values.dtype.type(0xFFFFFFFF)
    return two_sum((values - lower).astype(np.float64), lower.astype(np.float64))


def _between_floats(to: str, source: str, found: dict[str, str]) -> Operation | None:
    form, origin, mode = FORMATS[to], FORMATS[source], found["mode"]
    narrows = form.precision < origin.precision or form.emax < origin.emax
    flushes_in, flushes_out = bool(found["ftz"]) and source == "f32", bool(found["ftz"]) and to == "f32"
    if found["ftz"] and not (flushes_in or flushes_out):
        return None
    if (found["relu"] or found["satfinite"]) and (
        form.bits != 16 or origin is not F32 or mode not in ("rn", "rz")
    ):
        return None
    if found["sat"] and (found["relu"] or found["satfinite"] or form is BF16):
        return None
    if mode in TO_INTEGER and form is not origin:
        return None
    if mode in ROUNDINGS and not narrows and {to, source} != {"bf16", "f16"}:
        return None
    if not mode and narrows:
        return None
    whole, satfinite = TO_INTEGER.get(mode, ""), bool(found["satfinite"])
    lasts = [function for name, function in (("sat", saturated), ("relu", above_zero)) if found[name]]

    def compute(a: Array) -> tuple[Array, ...]:
        if form is origin and not (whole or flushes_in or lasts):
            return (a.copy(),)
        values = decoded(flushed(a, origin) if flushes_in else a, origin)
        if whole:
            values = integral(values, whole)
        bits = narrowed(values, form, mode if mode in ROUNDINGS else "rn", satfinite)
        for last in lasts:
            bits = last(bits, form)
        return (flushed(bits, form) if flushes_out else bits,)

    return Operation((to,), (source,), quiet(compute))


def narrowed(values: Array, form: Format, mode: str, satfinite: bool = False) -> Array:
    """Numbers of float64 rounded to a format, as bits."""
    return rounded((values, None), form, mode, satfinite)


def _to_narrow(modifiers: tuple[str, ...]) -> Operation | None:
    """cvt to tf32, and of two f32 to one packed register: the first operand is its upper half."""
    found = parse(
        modifiers,
        mode=("rn", "rz", "rna"),
        before=("satfinite",),
        relu=("relu",),
        satfinite=("satfinite",),
        to=("tf32", "f16x2", "bf16x2"),
        source=("f32",),
    )
    if found is None or not found["mode"] or not found["to"] or not found["source"]:
        return None
    to, mode, relu = found["to"], found["mode"], bool(found["relu"])
    satfinite = bool(found["satfinite"] or found["before"])
    if mode == "rna" and (to != "tf32" or relu):
        return None
    form = {"tf32": TF32, "f16x2": F16, "bf16x2": BF16}[to]

    def one(a: Array) -> Array:
        bits = narrowed(decoded(a, F32), form, mode, satfinite)
        return above_zero(bits, form) if relu else bits

    compute: Compute
    if to == "tf32":
        compute = lambda a: (one(a),)  # noqa: E731
        return Operation(("b32",), ("f32",), quiet(compute))

    def pair(a: Array, b: Array) -> tuple[Array, ...]:
        return ((one(a).astype(np.uint32) << np.uint32(16)) | one(b),)

    return Operation((to,), ("f32", "f32"), quiet(pair))
