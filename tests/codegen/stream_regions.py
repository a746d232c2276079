"""Regions with Streams: attention."""

from __future__ import annotations

from region_builder import Build

from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis
from tinyc.ir.region import Axis, Region, Stream

LOG2E = 1.4426950408889634


class StreamBuild(Build):
    def stream(
        self, score: str, weight: str, scale: float = LOG2E, rounded: DType | None = None, **axes: int
    ) -> str:
        bound = tuple(Axis(name, size) for name, size in axes.items())
        return self.let(DType.FP32, Stream(bound, score, weight, self.const(scale), rounded))


def attention(
    m: int,
    n: int,
    d: int,
    *,
    k: int = 0,
    h: int = 1,
    dtype: DType = DType.FP32,
    causal: bool = False,
    last: str = "d",
    out: DType = DType.FP32,
    rounded: DType | None = None,
) -> Region:
    """softmax(S) V per head h; S is read, or Q Kᵀ over ``k`` where that is given. ``last``: the last output axis. ``out``: of the
    result. ``rounded``: of the probabilities."""
    sizes = {"h": h, "m": m, "d": d} if last == "d" else {"h": h, "d": d, "m": m}
    b = StreamBuild(**sizes)
    if k:
        q = b.read(b.input("Q", dtype, h, m, k), "h", "m", "p")
        key = b.read(b.input("K", dtype, h, n, k), "h", "n", "p")
        if dtype is not DType.FP32:
            q, key = b.cast(q, DType.FP32), b.cast(key, DType.FP32)
        score = b.reduce("SUM", b.binary("MUL", q, key), p=k)
    else:
        score = b.read(b.input("S", DType.FP32, h, m, n), "h", "m", "n")
    if causal:
        seen = b.within(axis("m") - axis("n"), 0, m)
        score = b.select(seen, score, b.const(float("-inf")))
    value = b.read(b.input("V", dtype, h, n, d), "h", "n", "d")
    if dtype is not DType.FP32:
        value = b.cast(value, DType.FP32)
    if rounded is not None:
        result = b.stream(score, value, rounded=rounded, n=n)
        return b.done(result if out is DType.FP32 else b.cast(result, out))
    total = b.stream(score, b.const(1.0), n=n)
    mixed = b.stream(score, value, n=n)
    result = b.binary("FDIV", mixed, total)
    return b.done(result if out is DType.FP32 else b.cast(result, out))
