"""One value of a let in CUDA C++: its types in registers and in memory, and the expression of each operation.

In registers a float of any width is an fp32 number that its dtype can hold. Products that are added are not contracted to one
rounding (``__fmul_rn``), so that fusing changes no result; integers wrap, which C++ promises of unsigned ones alone.
"""

from __future__ import annotations

import math

import numpy as np

from tinyc.ir.dtypes import DType, from_bits
from tinyc.ir.tiny import ROUNDED

REGISTER = {
    DType.FP32: "float",
    DType.FP16: "float",
    DType.BF16: "float",
    DType.I32: "int",
    DType.BOOL: "bool",
}
MEMORY = {
    DType.FP32: "float",
    DType.FP16: "unsigned short",
    DType.BF16: "unsigned short",
    DType.I32: "int",
    DType.BOOL: "unsigned char",
}
ROUND = {DType.FP16: "round_fp16", DType.BF16: "round_bf16"}
LOAD = {DType.FP16: "from_fp16", DType.BF16: "from_bf16"}
STORE = {DType.FP16: "to_fp16", DType.BF16: "to_bf16"}

#: results of these are one of the operands (or its negative), so they need no rounding
EXACT = frozenset({"NEG", "RELU", "MAX", "MIN"})

_COMPARE = {"CMPLT": "<", "CMPNE": "!=", "CMPEQ": "=="}
# both sides are computed always: where they hold a shuffle, all lanes take part
_BOOL_BINARY = {"ADD": "|", "MAX": "|", "SUM": "|", "MUL": "&", "MIN": "&", "PROD": "&"}
_INT_BINARY = {"ADD": "+", "SUB": "-", "MUL": "*"}


class Unsupported(Exception):
    """An operation that the dtype does not have."""


def number(value: float) -> str:
    """An fp32 literal."""
    if math.isfinite(value):
        return _bracketed(f"{np.float32(value)!s}f")
    return f"__int_as_float(0x{int(np.float32(value).view(np.uint32)):08x})"


def _bracketed(literal: str) -> str:
    """So that -x of it is no decrement."""
    return f"({literal})" if literal.startswith("-") else literal


def constant(bits: int, dtype: DType) -> str:
    """A constant by its bit pattern, NaN payloads and the sign of zero included."""
    if dtype is DType.BOOL:
        return "true" if bits else "false"
    value = from_bits(bits, dtype)
    if dtype is DType.I32:
        return _bracketed(str(value)) if value != -(2**31) else "(-2147483647 - 1)"
    if value == value:
        return number(float(value))
    wide = bits << 16 if dtype is DType.BF16 else bits
    if dtype is DType.FP16:
        wide = (bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x3FF) << 13
    return f"__int_as_float(0x{wide:08x})"


def unary(op: str, dtype: DType, x: str) -> str:
    """``op`` of the value ``x`` of ``dtype``. Raises Unsupported."""
    if dtype is DType.I32 and op in ("NEG", "RELU"):
        return f"(int)(0u - (unsigned int){x})" if op == "NEG" else f"max({x}, 0)"
    if dtype is DType.BOOL and op == "RELU":
        return x
    if not dtype.is_float:
        raise Unsupported(f"{op} for {dtype}")
    return {
        "NEG": f"-{x}",
        "RELU": f"maximum({x}, 0.0f)",
        "SQRT": f"sqrtf({x})",
        "RSQRT": f"1.0f / sqrtf({x})",
        "RECIP": f"1.0f / {x}",
        "EXP2": f"exp2f({x})",
        "LOG2": f"log2f({x})",
        "SIN": f"sinf({x})",
        ROUNDED: f"round_tf32({x})",
    }[op]


def binary(op: str, dtype: DType, x: str, y: str) -> str:
    """``op``, of a pair or of a reduction, of two values of ``dtype``. Raises Unsupported."""
    if op in _COMPARE:
        return f"{x} {_COMPARE[op]} {y}"
    if dtype is DType.BOOL and op in _BOOL_BINARY:
        return f"{x} {_BOOL_BINARY[op]} {y}"
    op = {"SUM": "ADD", "PROD": "MUL"}.get(op, op)
    if dtype is DType.I32:
        if op in _INT_BINARY:
            return f"(int)((unsigned int){x} {_INT_BINARY[op]} (unsigned int){y})"
        if op in ("MAX", "MIN"):
            return f"{op.lower()}({x}, {y})"
    if not dtype.is_float:
        raise Unsupported(f"{op} for {dtype}")
    return {
        "ADD": f"{x} + {y}",
        "SUB": f"{x} - {y}",
        "MUL": f"__fmul_rn({x}, {y})",
        "FDIV": f"{x} / {y}",
        "POW": f"powf({x}, {y})",
        "MAX": f"maximum({x}, {y})",
        "MIN": f"minimum({x}, {y})",
    }[op]


def cast(source: DType, target: DType, x: str) -> str:
    """``x`` converted, before rounding."""
    if (source.is_float and target.is_float) or source is target:
        return x
    if target is DType.BOOL:
        return f"{x} != 0"
    if target is DType.I32:  # from a float: truncates, saturates, NaN -> 0
        return f"__float2int_rz({x})" if source.is_float else f"(int){x}"
    return f"(float){x}"


def neutral(op: str, dtype: DType) -> str:
    """The value that a reduction starts from."""
    if dtype is DType.BOOL:
        return "true" if op in ("MIN", "PROD") else "false"
    if dtype is DType.I32:
        return {"SUM": "0", "PROD": "1", "MAX": "(-2147483647 - 1)", "MIN": "2147483647"}[op]
    return number({"SUM": 0.0, "PROD": 1.0, "MAX": float("-inf"), "MIN": float("inf")}[op])
