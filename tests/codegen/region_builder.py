"""Builds Regions by hand, and runs them on both sides of the comparison."""

from __future__ import annotations

import numpy as np

from tinyc.codegen.cpu import generate
from tinyc.codegen.playback import evaluate_region
from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.plan import BufferInfo, Contraction, ExecutionPlan, Extracted, Instruction, Plan
from tinyc.ir.region import (
    Axis,
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Unary,
    Value,
    Within,
    Yield,
)  # fmt: skip
from tinyc.runtime.cpu import Executable

F16, BF16, F32, I32, BOOL = DType.FP16, DType.BF16, DType.FP32, DType.I32, DType.BOOL
LOOPS = Plan()


def ix(*parts: str | int | Affine) -> tuple[Affine, ...]:
    return tuple(axis(p) if isinstance(p, str) else lit(p) if isinstance(p, int) else p for p in parts)


class Build:
    """A Region under construction; every method returns the name of its let."""

    def __init__(self, **iters: int) -> None:
        self.iters = tuple(Axis(name, size) for name, size in iters.items())
        self.inputs: dict[str, MemRef] = {}
        self.lets: list[Let] = []
        self.types: dict[str, DType] = {}

    def let(self, dtype: DType, value: Value) -> str:
        name = f"t{len(self.lets)}"
        self.lets.append(Let(name, dtype, value))
        self.types[name] = dtype
        return name

    def input(self, name: str, dtype: DType, *shape: int) -> str:
        self.inputs[name] = MemRef(name, dtype, shape)
        return name

    def read(self, name: str, *index: str | int | Affine) -> str:
        return self.let(self.inputs[name].dtype, Read(name, ix(*index)))

    def const(self, value: float, dtype: DType = F32) -> str:
        return self.let(dtype, Const(to_bits(value, dtype)))

    def unary(self, op: str, x: str) -> str:
        return self.let(self.types[x], Unary(op, x))

    def cast(self, x: str, dtype: DType) -> str:
        return self.let(dtype, Cast(x))

    def binary(self, op: str, x: str, y: str) -> str:
        return self.let(BOOL if op.startswith("CMP") else self.types[x], Binary(op, x, y))

    def select(self, cond: str, then: str, other: str) -> str:
        return self.let(self.types[then], Select(cond, then, other))

    def within(self, index: Affine | str, lo: int, hi: int) -> str:
        return self.let(BOOL, Within(ix(index)[0], lo, hi))

    def reduce(self, op: str, body: str, **axes: int) -> str:
        bound = tuple(Axis(name, size) for name, size in axes.items())
        return self.let(self.types[body], Reduce(op, bound, body))

    def done(self, *outputs: str) -> Region:
        shape = tuple(item.size for item in self.iters)
        refs = tuple(MemRef(f"y{i}", self.types[name], shape) for i, name in enumerate(outputs))
        yields = tuple(Yield(name, ref.name) for name, ref in zip(outputs, refs, strict=True))
        return Region("region", self.iters, tuple(self.inputs.values()), refs, tuple(self.lets), yields)


def program(region: Region, plan: Plan = LOOPS) -> Extracted:
    """A program of one kernel."""
    refs = (*region.inputs, *region.outputs)
    buffers = tuple(BufferInfo(i, r.name, r.shape, r.dtype, (0, 0), r.bytes) for i, r in enumerate(refs))
    ins = tuple(range(len(region.inputs)))
    outs = tuple(range(len(ins), len(refs)))
    return Extracted((region,), (plan,), ExecutionPlan((Instruction(0, ins, outs),), buffers, ins, outs))


def run(
    region: Region, arrays: dict[str, np.ndarray], plan: Plan = LOOPS, threads: int = 2
) -> dict[str, np.ndarray]:
    executable = Executable(program(region, plan), threads)
    results = executable([arrays[ref.name] for ref in region.inputs])
    return {ref.name: value for ref, value in zip(region.outputs, results, strict=True)}


def compare(
    region: Region, arrays: dict[str, np.ndarray], plan: Plan = LOOPS, rtol: float = 0, atol: float = 0
) -> None:
    """The compiled kernel against playback, NaN and the signs of infinities included."""
    got, want = run(region, arrays, plan), evaluate_region(region, arrays)
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype and got[name].shape == expected.shape
        with np.errstate(invalid="ignore"):
            a, b = (x if x.dtype == np.int32 else x.astype(np.float32) for x in (got[name], expected))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def gemm(
    m: int, n: int, k: int, dtype: DType = F32, *, at: bool = False, bt: bool = False, relu: bool = False
):
    """C[m, n] = sum A[m, k] * B[k, n], accumulated in fp32; the operands transposed where asked."""
    b = Build(i=m, j=n)
    b.input("A", dtype, *((k, m) if at else (m, k)))
    b.input("B", dtype, *((n, k) if bt else (k, n)))
    x = b.read("A", *(("p", "i") if at else ("i", "p")))
    y = b.read("B", *(("j", "p") if bt else ("p", "j")))
    wide = I32 if dtype is I32 else F32
    if dtype is not wide:
        x, y = b.cast(x, wide), b.cast(y, wide)
    total = b.reduce("SUM", b.binary("MUL", x, y), p=k)
    out = total
    if relu:
        b.input("bias", wide, n)
        out = b.unary("RELU", b.binary("ADD", total, b.read("bias", "j")))
    if dtype is not wide:
        out = b.cast(out, dtype)
    return b.done(out), Plan("contraction", Contraction(total, x, y, (), ("i",), ("j",), ("p",)))


__all__ = [
    "BF16", "BOOL", "F16", "F32", "I32", "Affine", "Build", "Contraction", "Executable", "Plan", "axis", "compare",
    "gemm", "generate", "ix", "lit", "program", "run",
]  # fmt: skip
