"""The document's Region and Plan of GEMM + bias + ReLU (004 §6.8.1, §8.1), and ways to change them."""

from __future__ import annotations

import copy
from typing import Any

from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis
from tinyc.ir.region import Axis, Binary, Cast, Layout, Let, MemRef, Read, Reduce, Region, Unary, Yield
from tinyc.ir.resources import CPU, LIMITS

REFERENCE: dict[str, Any] = {
    "tile": [128, 64, 64],
    "stages": 2,
    "bind": {"m.o": "block.y", "n.o": "block.x", "m.i.o": "warp.y", "n.i.o": "warp.x"},
    "warp_tile": "64x64",
    "cache": [
        {"tensor": "A", "where": "smem", "at": "k.i", "pingpong": True},
        {"tensor": "B", "where": "smem", "at": "k.i", "pingpong": True},
    ],
    "vectorize": {"axis": "n.i.i", "width": 8},
    "predicate_tail": ["m.i.i", "n.i.i", "k.i.i"],
    "epilogue": ["bias", "relu"],
    "arch": "sm80",
    "layout_hints": {"A_swizzle": True, "B_swizzle": True, "C_stride": "row"},
    "algo_choice": {"matmul": "implicit_gemm"},
    "local_edges": [{"from": "sum_k", "to": "relu", "buffer": "reg"}],
    "async": {"enable": True, "prefetch_depth": 2, "epilogue_overlap": True},
    "barrier_model": "cp_async_group",
}

SM80, SM90 = LIMITS["sm80"], LIMITS["sm90"]
MACHINES = {"sm80": SM80, "sm90": SM90, "cpu": CPU}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The reference with one place set; None removes it. ``path``: keys and numbers between dots."""
    plan = copy.deepcopy(REFERENCE)
    *way, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    place: Any = plan
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return plan


def gemm_region(
    m: int = 512,
    n: int = 512,
    k: int = 256,
    dtype: DType = DType.FP16,
    *,
    at: bool = False,
    layouts: tuple[str, str, str] = ("row_major", "col_major", "row_major"),
    alignment: int = 128,
) -> Region:
    """C = relu(A @ B + bias), summed in fp32, named as the document names it. ``at``: A is read transposed."""
    wide = DType.I32 if dtype is DType.I32 else DType.FP32
    a, b, c = (Layout(kind) for kind in layouts)
    index = (axis("k"), axis("m")) if at else (axis("m"), axis("k"))

    def load(name: str, read: Read) -> tuple[Let, ...]:
        if dtype is wide:
            return (Let(f"{name}32", wide, read),)
        return (Let(name, dtype, read), Let(f"{name}32", wide, Cast(name)))

    lets = (
        *load("a", Read("A", index)),
        *load("b", Read("B", (axis("k"), axis("n")))),
        Let("product", wide, Binary("MUL", "a32", "b32")),
        Let("acc", wide, Reduce("SUM", (Axis("k", k),), "product")),
        *load("more", Read("bias", (axis("n"),))),
        Let("c1", wide, Binary("ADD", "acc", "more32")),
        Let("c2", wide, Unary("RELU", "c1")),
        Let("c", dtype, Cast("c2")),
    )
    inputs = (
        MemRef("A", dtype, (k, m) if at else (m, k), alignment, layout=a),
        MemRef("B", dtype, (k, n), alignment, layout=b),
        MemRef("bias", dtype, (n,), alignment),
    )
    outputs = (MemRef("C", dtype, (m, n), alignment, layout=c),)
    return Region("gemm", (Axis("m", m), Axis("n", n)), inputs, outputs, lets, (Yield("c", "C"),))
