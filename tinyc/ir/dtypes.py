"""The element types of tensors (document 002 §1.2): fp16, bf16, fp32, i32, bool, and their bit patterns."""

from __future__ import annotations

import enum

import ml_dtypes
import numpy as np
from numpy.typing import NDArray


class DType(enum.Enum):
    """An element type. ``.value`` is the name used in documents, rules and dumps."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"
    I32 = "i32"
    BOOL = "bool"

    @property
    def numpy(self) -> np.dtype:
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory (bool: 1)."""
        return _NUMPY[self].itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.FP16, DType.BF16, DType.FP32)

    def __str__(self) -> str:
        return self.value


HALF = frozenset({DType.FP16, DType.BF16})
"""Floats of two bytes."""

_NUMPY = {
    DType.FP16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.FP32: np.dtype(np.float32),
    DType.I32: np.dtype(np.int32),
    DType.BOOL: np.dtype(np.bool_),
}
_BITS = {2: np.uint16, 4: np.uint32, 1: np.uint8}

#: other spellings accepted on import (I-49), canonicalised to the value on the right
ALIASES = {
    "f16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "f32": "fp32",
    "F32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "I32": "i32",
    "int32": "i32",
    "Bool": "bool",
}


def parse_dtype(name: str) -> DType | None:
    """The DType of a name or of an alias; None for anything else."""
    try:
        return DType(ALIASES.get(name, name))
    except ValueError:
        return None


def dtype_of(array: NDArray[np.generic]) -> DType | None:
    """The DType of a numpy array's elements; None where tinyc has no such type."""
    return next((dtype for dtype, spelled in _NUMPY.items() if spelled == array.dtype), None)


def round_tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest numbers with 10 bits of mantissa, ties away from zero; one too large for them becomes infinite, NaN stays NaN
    (PTX ISA, ``cvt.rna.tf32.f32``)."""
    bits = x.view(np.uint32)
    finite = (bits & 0x7F800000) != 0x7F800000
    return np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits).view(np.float32)


def to_bits(value: float | int | bool, dtype: DType) -> int:
    """The bit pattern of ``value`` rounded to ``dtype`` (i32 wraps). Distinguishes +0 and -0, keeps NaN."""
    if dtype is DType.I32:
        return int(value) & 0xFFFFFFFF
    if dtype is DType.BOOL:
        return int(bool(value))
    with np.errstate(over="ignore"):
        scalar = np.asarray(value, dtype=np.float64).astype(np.float32).astype(dtype.numpy)
    return int(scalar.view(_BITS[dtype.itemsize]))


def from_bits(bits: int, dtype: DType) -> float | int | bool:
    """The Python number behind a bit pattern; the inverse of :func:`to_bits`."""
    if dtype is DType.I32:
        return bits - (1 << 32) if bits >= 1 << 31 else bits
    if dtype is DType.BOOL:
        return bool(bits)
    return float(np.asarray(bits, dtype=_BITS[dtype.itemsize]).view(dtype.numpy).astype(np.float32))


WIDENING = frozenset(
    {
        (DType.FP16, DType.FP32),
        (DType.BF16, DType.FP32),
        (DType.BOOL, DType.I32),
        (DType.BOOL, DType.FP32),
    }
)
"""Casts that keep every value; rules/prop.egg has the same."""
