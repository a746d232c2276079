"""One value of a let in LLVM: its types in registers and in memory, and the instruction of each operation.

In registers a float of any width is an fp32 number that its dtype can hold; i32 is ``i32`` and bool is ``i1``.
"""

from __future__ import annotations

from tinyc.ir import tiny
from tinyc.ir.dtypes import DType, from_bits

from .library import float_literal

REGISTER = {
    DType.FP32: "float",
    DType.FP16: "float",
    DType.BF16: "float",
    DType.I32: "i32",
    DType.BOOL: "i1",
}
MEMORY = {DType.FP32: "float", DType.FP16: "i16", DType.BF16: "i16", DType.I32: "i32", DType.BOOL: "i8"}
ROUND = {DType.FP16: "round_fp16", DType.BF16: "round_bf16"}
LOAD = {DType.FP16: "from_fp16", DType.BF16: "from_bf16"}
STORE = {DType.FP16: "to_fp16", DType.BF16: "to_bf16"}

#: results of these are one of the operands (or its negative), so they need no rounding
EXACT = frozenset({"NEG", "RELU", "MAX", "MIN"})

_FLOAT_BINARY = {"ADD": "fadd", "SUB": "fsub", "MUL": "fmul", "FDIV": "fdiv"}
_INT_BINARY = {"ADD": "add", "SUB": "sub", "MUL": "mul"}
_BOOL_BINARY = {"ADD": "or", "MAX": "or", "SUM": "or", "MUL": "and", "MIN": "and", "PROD": "and"}
_COMPARE = {
    "CMPLT": ("fcmp olt", "icmp slt", "icmp ult"),
    "CMPNE": ("fcmp une", "icmp ne", "icmp ne"),
    "CMPEQ": ("fcmp oeq", "icmp eq", "icmp eq"),
}
_LIBM = {"SIN": "sinf", "LOG2": "log2f"}

Step = tuple[str, tuple[str, ...]]
"""An instruction without its result, and the library or intrinsic functions that it calls."""


class Unsupported(Exception):
    """An operation that the dtype does not have."""


def constant(bits: int, dtype: DType) -> str:
    """A constant by its bit pattern, NaN payloads and the sign of zero included."""
    if dtype is DType.BOOL:
        return "true" if bits else "false"
    value = from_bits(bits, dtype)
    if dtype is DType.I32:
        return str(value)
    if value != value:
        wide = bits << 16 if dtype is DType.BF16 else bits
        if dtype is DType.FP16:
            wide = (bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x3FF) << 13
        return f"bitcast (i32 {wide} to float)"
    return float_literal(float(value))


def unary(op: str, dtype: DType, x: str) -> list[str]:
    """Instructions for ``op`` of ``x`` (``{0}``, ``{1}``… are the results of the steps before)."""
    if dtype is DType.I32 and op in ("NEG", "RELU"):
        return [f"sub i32 0, {x}" if op == "NEG" else f"call i32 @llvm.smax.i32(i32 {x}, i32 0)"]
    if dtype is DType.BOOL and op == "RELU":
        return [f"or i1 {x}, false"]
    if not dtype.is_float:
        raise Unsupported(f"{op} for {dtype}")
    match op:
        case "NEG":
            return [f"fneg float {x}"]
        case "RELU":
            return [f"call float @llvm.maximum.f32(float {x}, float 0.0)"]
        case "SQRT":
            return [f"call float @llvm.sqrt.f32(float {x})"]
        case "RSQRT":
            return [f"call float @llvm.sqrt.f32(float {x})", "fdiv float 1.0, {0}"]
        case "RECIP":
            return [f"fdiv float 1.0, {x}"]
        case "EXP2":
            return [f"call float @exp2_f32(float {x})"]
        case tiny.ROUNDED:
            return [f"call float @round_tf32(float {x})"]
        case _:
            return [f"call float @{_LIBM[op]}(float {x})"]


def binary(op: str, dtype: DType, x: str, y: str, flags: str = "") -> str:
    """The instruction for ``op`` of two values of ``dtype``. ``flags``: fast-math flags of an accumulation."""
    if op in _COMPARE:
        kind = 0 if dtype.is_float else 1 if dtype is DType.I32 else 2
        return f"{_COMPARE[op][kind]} {REGISTER[dtype]} {x}, {y}"
    op = {"SUM": "ADD", "PROD": "MUL"}.get(op, op)
    if dtype is DType.BOOL and op in _BOOL_BINARY:
        return f"{_BOOL_BINARY[op]} i1 {x}, {y}"
    if dtype is DType.I32:
        if op in _INT_BINARY:
            return f"{_INT_BINARY[op]} i32 {x}, {y}"
        if op in ("MAX", "MIN"):
            return f"call i32 @llvm.s{op.lower()}.i32(i32 {x}, i32 {y})"
    if not dtype.is_float:
        raise Unsupported(f"{op} for {dtype}")
    if op in _FLOAT_BINARY:
        return f"{_FLOAT_BINARY[op]}{flags} float {x}, {y}"
    if op == "POW":
        return f"call float @powf(float {x}, float {y})"
    return f"call float @llvm.{op.lower()}imum.f32(float {x}, float {y})"


def cast(source: DType, target: DType, x: str) -> str | None:
    """The instruction that converts a value in registers, before rounding; None where the bits stay."""
    if (source.is_float and target.is_float) or source is target:
        return None
    if target is DType.BOOL:
        return f"fcmp une float {x}, 0.0" if source.is_float else f"icmp ne i32 {x}, 0"
    if target is DType.I32:
        if source.is_float:
            return f"call i32 @llvm.fptosi.sat.i32.f32(float {x})"
        return f"zext i1 {x} to i32"
    return f"sitofp i32 {x} to float" if source is DType.I32 else f"uitofp i1 {x} to float"


def neutral(op: str, dtype: DType) -> str:
    """The value that a reduction starts from."""
    if dtype is DType.BOOL:
        return "true" if op in ("MIN", "PROD") else "false"
    if dtype is DType.I32:
        return {"SUM": "0", "PROD": "1", "MAX": str(-(2**31)), "MIN": str(2**31 - 1)}[op]
    values = {"SUM": 0.0, "PROD": 1.0, "MAX": float("-inf"), "MIN": float("inf")}
    return float_literal(values[op])
