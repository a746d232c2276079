"""Regions, Plans and ExecutionPlans as JSON values (document 004 §6.8, §8; document 000)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .dtypes import from_bits
from .plan import ExecutionPlan, Plan
from .region import Binary, Cast, Const, Let, MemRef, Read, Reduce, Region, Select, Unary, Within


def region_to_json(region: Region) -> dict[str, Any]:
    """Index expressions are texts over the axes; constants are values of the let's dtype."""
    return {
        "name": region.name,
        "iters": [{"name": axis.name, "size": axis.size} for axis in region.iters],
        "inputs": [_memref(ref) for ref in region.inputs],
        "outputs": [{**_memref(ref), "materialize": "gmem"} for ref in region.outputs],
        "lets": [{"let": let.name, "dtype": let.dtype.value, "expr": _expr(let)} for let in region.lets],
        "yield": [{"from": item.value, "to": item.to} for item in region.yields],
    }


def _memref(ref: MemRef) -> dict[str, Any]:
    return {
        "name": ref.name,
        "memref": {
            "dtype": ref.dtype.value,
            "shape": list(ref.shape),
            "alignment": ref.alignment,
            "noalias": True,
            "layout": {"kind": "row_major"},
        },
    }


def _expr(let: Let) -> dict[str, Any]:
    match let.value:
        case Read(tensor, index_map):
            return {"read": {"tensor": tensor, "map": [str(index) for index in index_map]}}
        case Const(bits):
            return {"const": _number(from_bits(bits, let.dtype))}
        case Within(index, low, high):
            return {"within": {"index": str(index), "lo": low, "hi": high}}
        case Unary(op, x):
            return {op.lower(): [x]}
        case Cast(x):
            return {"cast": {"operand": x, "to": let.dtype.value}}
        case Binary(op, x, y):
            return {op.lower(): [x, y]}
        case Select(cond, then, other):
            return {"select": {"pred": cond, "then": then, "else": other}}
        case Reduce(op, axes, body):
            return {
                "reduce": {
                    "op": op.lower(),
                    "axes": [{"name": axis.name, "size": axis.size} for axis in axes],
                    "dtype": let.dtype.value,
                    "body": body,
                }
            }


def _number(value: float | int | bool) -> float | int | bool | str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "nan" if value != value else ("inf" if value > 0 else "-inf")
    return value


def plan_to_json(region: str, plan: Plan) -> dict[str, Any]:
    """``region``: the name of the Region that the plan is for."""
    return {"region": region, **asdict(plan)}


def execution_to_json(execution: ExecutionPlan) -> dict[str, Any]:
    data = asdict(execution)
    for buffer in data["buffers"]:
        buffer["dtype"] = buffer["dtype"].value
    return data
