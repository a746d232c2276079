"""The scalar types of PTX beyond :mod:`.semantics`: what may be declared, and what fits where. PTX ISA, "Types"."""

from __future__ import annotations

from typing import Any

import numpy as np

from .semantics import Array
from .semantics.types import BITS, SIGNED
from .semantics.types import WIDTH as KNOWN

__all__ = ["WIDTH", "Array", "array_type", "of_same_kind", "resized", "unsigned"]

#: bits of each scalar type; "pred" counts as one
WIDTH = {"pred": 1, **KNOWN, "b128": 128}


def array_type(type: str) -> Any:
    """The numpy dtype that holds the bits of a register of this type."""
    return unsigned(WIDTH[type])


def unsigned(bits: int) -> Any:
    """The numpy dtype of so many bits."""
    return np.dtype(bool) if bits == 1 else BITS[bits]


def resized(value: Array, type: str, bits: int) -> Array:
    """``value``, bits of ``type``, in an array of ``bits`` bits: cut off, or extended by the sign of an s type."""
    width = WIDTH[type]
    if width == bits:
        return value
    if type[0] == "s" and bits > width:
        return value.view(SIGNED[width]).astype(SIGNED[bits]).view(BITS[bits])
    return value.astype(BITS[bits])


def of_same_kind(register: str, type: str) -> bool:
    """Whether a register declared as ``register`` may stand where ``type`` is asked, sizes apart.

    Bits stand for anything, signed integers for unsigned ones; a float register does not for an integer, nor the
    other way round (PTX ISA, "Operand Type Checking").
    """
    kinds = {_kind(register), _kind(type)}
    return len(kinds) == 1 or ("bits" in kinds and "predicate" not in kinds)


def _kind(type: str) -> str:
    if type == "pred":
        return "predicate"
    if type[0] in "us" and "x" not in type:
        return "integer"
    return "float" if type in ("f32", "f64") else "bits"
