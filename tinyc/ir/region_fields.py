"""Small pieces of a Region's JSON: names, dtypes, constants, objects with given keys, and the error for what is none."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from .args import NON_FINITE
from .diagnostics import TinycError, show
from .dtypes import DType, from_bits, parse_dtype, to_bits

ALIASES = {"div": "FDIV"}


def refused(
    path: str, why: str, suggestion: str, kind: str = "MalformedDocument", **details: object
) -> TinycError:
    """The error for the value at ``path`` of a Region's JSON."""
    return TinycError(kind, why, suggestion, {"layer": "region", "value": path}, **details)


def check_keys(
    value: object, path: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """``value`` as an object that has all of ``required`` and nothing beside ``optional``."""
    if not isinstance(value, dict):
        raise refused(
            path, f"{show(value)} stands where an object is expected", f"give {', '.join(required)}"
        )
    missing = [key for key in required if key not in value]
    if missing:
        raise refused(path, f"{missing[0]} is missing", f"give {', '.join(required)}")
    unknown = [key for key in value if key not in (*required, *optional)]
    if unknown:
        listed = ", ".join((*required, *optional))
        raise refused(path, f"it has the key {show(unknown[0])}", f"the keys are {listed}")
    return value


def read_dtype(value: object, path: str) -> DType:
    """The dtype called ``value``."""
    found = dtype_or_none(value)
    if found is None:
        listed = ", ".join(each.value for each in DType)
        raise refused(path, f"{show(value)} is no dtype", f"use one of {listed}")
    return found


def dtype_or_none(value: object) -> DType | None:
    """The dtype of a name; None for anything else."""
    return parse_dtype(value) if isinstance(value, str) else None


def anonymous_name(place: int, given: Collection[str], own: str | None = None) -> str:
    """The name of the let at ``place`` where the text gives none, unlike all that it gives (but ``own``)."""
    name = f"v{place}"
    while name in given and name != own:
        name += "_"
    return name


def neutral(op: str, dtype: DType) -> float | int | bool:
    """What a reduction starts from: ``op(neutral, x) == x``."""
    if op in ("SUM", "PROD"):
        start = 0 if op == "SUM" else 1
        return float(start) if dtype.is_float else start
    if dtype is DType.BOOL:
        return op == "MIN"
    if dtype is DType.I32:
        return -(2**31) if op == "MAX" else 2**31 - 1
    return -math.inf if op == "MAX" else math.inf


def bit_pattern(text: object, dtype: DType, path: str) -> int:
    """The bits of a constant that no number says, a NaN with a payload: ``"0x7fc00001"``."""
    try:
        bits = int(text, 16) if isinstance(text, str) and len(text) <= 10 else -1
    except ValueError:
        bits = -1
    if not 0 <= bits < (2 if dtype is DType.BOOL else 1 << 8 * dtype.itemsize):
        raise refused(path, f"{show(text)} is no bit pattern of {dtype}", 'write such as "0x7fc00001"')
    return bits


def constant_bits(value: object, dtype: DType, path: str) -> int:
    """The bit pattern of a number, or of "inf", "-inf", "nan". Raises TinycError DTypeMismatch."""
    if isinstance(value, str) and value.lower() in NON_FINITE:
        value = NON_FINITE[value.lower()]
    if dtype is DType.BOOL:
        fits = isinstance(value, bool)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        fits = False
    elif dtype is DType.I32:
        fits = -(2**31) <= value < 2**31 and value == int(value)
    else:
        fits = isinstance(value, float) or abs(value) < 2**1000
    if not fits:
        why = f"the constant {show(value)} has no counterpart in {dtype}"
        raise refused(path, why, f"use a value of {dtype}", "DTypeMismatch")
    return to_bits(value, dtype)  # type: ignore[arg-type]


def check_init(value: object, op: str, dtype: DType, path: str) -> None:
    """Raises TinycError NeutralInvalid where a reduction would not start from its neutral element."""
    wanted = neutral(op, dtype)
    try:
        bits = constant_bits(value, dtype, path)
    except TinycError as error:
        why = f"init {show(value)} has no counterpart in {dtype}"
        suggestion = f"use {wanted!r}, the neutral element, or leave init out"
        raise refused(path, why, suggestion, "NeutralInvalid") from error
    if from_bits(bits, dtype) != wanted:
        why = f"init {show(value)} is not {wanted!r}, the neutral element of {op.lower()} in {dtype}"
        suggestion = "leave init out, and combine another start value with the result"
        raise refused(path, why, suggestion, "NeutralInvalid")


def operation(op: object) -> str:
    """The name in ``tinyc.ir.tiny`` of an elementwise operation that the text calls ``op`` (I-36)."""
    return ALIASES.get(op, op.upper()) if isinstance(op, str) else ""
