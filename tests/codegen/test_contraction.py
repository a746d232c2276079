"""The packed and tiled matrix product: sizes and tails, layouts, prologues, epilogues, convolutions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from region_builder import BF16, F16, F32, I32, Build, axis, compare, gemm, generate, run

from tinyc.codegen.cpu.host import host
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Contraction, Plan
from tinyc.runtime.arena import Memory
from tinyc.runtime.jit import Code

RNG = np.random.default_rng(4)


def integers(dtype: DType, *shape: int) -> np.ndarray:
    """Small integers: every sum is exact in any order, so results are compared bit for bit."""
    return RNG.integers(-3, 4, shape).astype(dtype.numpy)


SIZES = [(150, 130, 70), (1, 1, 1), (64, 64, 64), (257, 129, 33), (33, 40, 1), (5, 300, 1000), (600, 17, 129)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("relu", [False, True])
def test_gemm(size: tuple[int, int, int], relu: bool) -> None:
    m, n, k = size
    region, plan = gemm(m, n, k, relu=relu)
    arrays = {"A": integers(F32, m, k), "B": integers(F32, k, n), "bias": integers(F32, n)}
    want = arrays["A"] @ arrays["B"]
    want = np.maximum(want + arrays["bias"], 0) if relu else want
    np.testing.assert_array_equal(run(region, arrays, plan)["y0"], want)
    np.testing.assert_array_equal(run(region, arrays)["y0"], want)
    tiled = m >= 4 and n >= 16 and m * n * k >= 4096
    assert generate(region, plan).algo == ("contraction" if tiled else "loops")


@pytest.mark.spec("004-002")
@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, I32], ids=str)
def test_layouts_and_dtypes(at: bool, bt: bool, dtype: DType) -> None:
    m, n, k = 65, 47, 50
    region, plan = gemm(m, n, k, dtype, at=at, bt=bt)
    a, b = integers(dtype, m, k), integers(dtype, k, n)
    wide = np.int32 if dtype is I32 else np.float32
    want = (a.astype(wide) @ b.astype(wide)).astype(dtype.numpy)
    arrays = {"A": np.ascontiguousarray(a.T) if at else a, "B": np.ascontiguousarray(b.T) if bt else b}
    assert generate(region, plan).algo == "contraction"
    np.testing.assert_array_equal(run(region, arrays, plan)["y0"], want)


def test_one_hot_probes_find_every_product() -> None:
    """A = identity picks out B: a dropped k or a stale tile would show."""
    n = 200
    region, plan = gemm(n, n, n)
    arrays = {"A": np.eye(n, dtype=np.float32), "B": RNG.normal(size=(n, n)).astype(np.float32)}
    np.testing.assert_array_equal(run(region, arrays, plan)["y0"], arrays["B"])


def test_error_stays_within_the_bound_of_fp32_sums() -> None:
    m, n, k = 130, 140, 900
    region, plan = gemm(m, n, k)
    a, b = (RNG.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = k * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    assert (np.abs(run(region, {"A": a, "B": b}, plan)["y0"] - exact) <= bound).all()


@pytest.mark.parametrize("shared", [False, True])
def test_batched(shared: bool) -> None:
    h, m, n, k = 3, 20, 40, 24
    b = Build(h=h, i=m, j=n)
    b.input("A", F32, h, m, k)
    b.input("B", F32, *((k, n) if shared else (h, k, n)))
    x, y = b.read("A", "h", "i", "p"), b.read("B", *(("p", "j") if shared else ("h", "p", "j")))
    total = b.reduce("SUM", b.binary("MUL", x, y), p=k)
    batch, rows = ((), ("h", "i")) if shared else (("h",), ("i",))
    plan = Plan("contraction", Contraction(total, x, y, batch, rows, ("j",), ("p",)))
    region = b.done(total)
    arrays = {"A": integers(F32, h, m, k), "B": integers(F32, *((k, n) if shared else (h, k, n)))}
    assert generate(region, plan).algo == "contraction"
    np.testing.assert_array_equal(run(region, arrays, plan)["y0"], arrays["A"] @ arrays["B"])


def test_heads_are_split_in_the_output() -> None:
    """out[b, h, t, d] = sum_c X[b, t, c] W[c, h*16 + d]: m = (b, t) and n = (h, d) interleave in the output."""
    B, T, H, D, C = 2, 33, 3, 16, 48
    b = Build(b=B, h=H, t=T, d=D)
    b.input("X", F32, B, T, C)
    b.input("W", F32, C, H * D)
    x, w = b.read("X", "b", "t", "c"), b.read("W", "c", axis("h") * D + axis("d"))
    total = b.reduce("SUM", b.binary("MUL", x, w), c=C)
    plan = Plan("contraction", Contraction(total, x, w, (), ("b", "t"), ("h", "d"), ("c",)))
    region = b.done(total)
    arrays = {"X": integers(F32, B, T, C), "W": integers(F32, C, H * D)}
    want = (arrays["X"] @ arrays["W"]).reshape(B, T, H, D).transpose(0, 2, 1, 3)
    assert generate(region, plan).algo == "contraction"
    np.testing.assert_array_equal(run(region, arrays, plan)["y0"], want)


def test_vector_axis_is_the_last_iter_whatever_the_roles() -> None:
    region, plan = gemm(40, 64, 32)
    c = plan.contraction
    assert c is not None
    swapped = Plan("contraction", Contraction(c.reduce, c.rhs, c.lhs, (), c.n, c.m, c.k))
    arrays = {"A": integers(F32, 40, 32), "B": integers(F32, 32, 64)}
    np.testing.assert_array_equal(run(region, arrays, swapped)["y0"], arrays["A"] @ arrays["B"])
    assert generate(region, swapped).source == generate(region, plan).source


def conv(
    images: int,
    channels: int,
    outputs: int,
    size: int,
    kernel: int,
    stride: int,
    pad: int,
    dilation: int,
    groups: int,
):
    """Convolution of X[N, C, H, H] with W[O, C / groups, K, K], reads guarded."""
    out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    inner, per = channels // groups, outputs // groups
    b = Build(n=images, g=groups, o=per, y=out, x=out)
    b.input("X", F32, images, channels, size, size)
    b.input("W", F32, outputs, inner, kernel, kernel)
    iy = axis("y") * stride + axis("u") * dilation - pad
    ix = axis("x") * stride + axis("v") * dilation - pad
    value = b.read("X", "n", axis("g") * inner + axis("c"), iy, ix)
    if pad:
        inside = b.binary("MIN", b.within(iy, 0, size), b.within(ix, 0, size))
        value = b.select(inside, value, b.const(0.0))
    weight = b.read("W", axis("g") * per + axis("o"), "c", "u", "v")
    total = b.reduce("SUM", b.binary("MUL", weight, value), c=inner, u=kernel, v=kernel)
    roles = Contraction(total, weight, value, ("g",), ("o",), ("n", "y", "x"), ("c", "u", "v"))
    return b.done(total), Plan("contraction", roles)


CONVS = {
    "3x3 s2 p1 odd": (1, 8, 16, 15, 3, 2, 1, 1, 1),
    "3x3 s2 p1 even": (2, 8, 16, 14, 3, 2, 1, 1, 1),
    "1x1": (2, 32, 24, 9, 1, 1, 0, 1, 1),
    "dilated": (1, 6, 8, 17, 3, 1, 2, 2, 1),
    "grouped": (2, 12, 16, 10, 3, 1, 1, 1, 4),
    "depthwise": (1, 16, 16, 12, 3, 1, 1, 1, 16),
    "wide": (2, 3, 8, 40, 3, 1, 1, 1, 1),
}


@pytest.mark.parametrize("name", CONVS)
def test_convolution(name: str) -> None:
    n, c, o, size, k, stride, pad, dilation, groups = CONVS[name]
    region, plan = conv(*CONVS[name])
    x, w = integers(F32, n, c, size, size), integers(F32, o, c // groups, k, k)
    out = region.iters[-1].size
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    want = np.zeros((n, groups, o // groups, out, out), np.float32)
    for u in range(k):
        for v in range(k):
            rows = slice(u * dilation, u * dilation + stride * (out - 1) + 1, stride)
            columns = slice(v * dilation, v * dilation + stride * (out - 1) + 1, stride)
            part = padded[:, :, rows, columns].reshape(n, groups, c // groups, out, out)
            weights = w[:, :, u, v].reshape(groups, o // groups, c // groups)
            want += np.einsum("ngcyx,goc->ngoyx", part, weights)
    np.testing.assert_array_equal(run(region, {"X": x, "W": w}, plan)["y0"], want)
    np.testing.assert_array_equal(run(region, {"X": x, "W": w})["y0"], want)
    assert generate(region, plan).algo == ("loops" if name == "depthwise" else "contraction")


def test_operands_may_be_expressions_with_reductions() -> None:
    """softmax(S) @ V in one kernel: the row maximum and sum are computed once per row of a tile."""
    m, n, k = 70, 48, 90
    b = Build(i=m, j=n)
    b.input("S", F32, m, k)
    b.input("V", F32, k, n)
    largest = b.reduce("MAX", b.read("S", "i", "r"), r=k)
    total = b.reduce("SUM", b.unary("EXP2", b.binary("SUB", b.read("S", "i", "q"), largest)), q=k)
    weight = b.binary("FDIV", b.unary("EXP2", b.binary("SUB", b.read("S", "i", "p"), largest)), total)
    value = b.read("V", "p", "j")
    out = b.reduce("SUM", b.binary("MUL", weight, value), p=k)
    region, plan = (
        b.done(out),
        Plan("contraction", Contraction(out, weight, value, (), ("i",), ("j",), ("p",))),
    )
    arrays = {
        "S": RNG.normal(size=(m, k)).astype(np.float32),
        "V": RNG.normal(size=(k, n)).astype(np.float32),
    }
    compare(region, arrays, plan, rtol=1e-4, atol=1e-6)
    kernel = generate(region, plan)
    assert kernel.algo == "contraction"
    assert kernel.source.count("%acc.") > 0 and kernel.scratch_bytes < 1 << 20


def test_epilogue_with_its_own_reductions_and_two_outputs() -> None:
    region, plan = gemm(50, 60, 70)
    b = Build(i=50, j=60)
    b.inputs, b.lets = {ref.name: ref for ref in region.inputs}, list(region.lets)
    b.types = {let.name: let.dtype for let in region.lets}
    total = region.yields[0].value
    scale = b.reduce("MAX", b.read("A", "i", "r"), r=70)
    scaled = b.binary("MUL", total, scale)
    both = b.done(scaled, b.cast(total, BF16))
    arrays = {"A": integers(F32, 50, 70), "B": integers(F32, 70, 60)}
    compare(both, arrays, plan)


def test_products_that_are_rounded_before_the_sum_are_not_contracted() -> None:
    """A Plan that says so is refused, not obeyed."""
    b = Build(i=32, j=32)
    b.input("A", BF16, 32, 32)
    x, y = b.read("A", "i", "p"), b.read("A", "p", "j")
    total = b.reduce("SUM", b.cast(b.binary("MUL", x, y), F32), p=32)
    plan = Plan("contraction", Contraction(total, x, y, (), ("i",), ("j",), ("p",)))
    region = b.done(total)
    with pytest.raises(TinycError) as caught:
        generate(region, plan)
    assert caught.value.kind == "PlanMismatch" and "plan.contraction.reduce" in caught.value.why
    compare(region, {"A": RNG.normal(size=(32, 32)).astype(BF16.numpy)}, rtol=1e-6, atol=1e-6)


def test_scratch_of_a_large_product_is_small() -> None:
    region, plan = gemm(1024, 1024, 1024)
    assert generate(region, plan).scratch_bytes < 8 << 20


@pytest.mark.parametrize(("lanes", "rows", "fma"), [(16, 8, True), (8, 6, True), (4, 8, True), (4, 4, False)])
@pytest.mark.parametrize("size", [(150, 130, 70), (65, 47, 800)], ids=str)
def test_register_tiles_of_other_cpus(lanes: int, rows: int, fma: bool, size: tuple[int, int, int]) -> None:
    """The text for AVX-512, AVX2, NEON and SSE, run here (LLVM splits or joins the vectors)."""
    m, n, k = size
    region, plan = gemm(m, n, k, F16)
    kernel = generate(region, plan, replace(host(), lanes=lanes, rows=rows, fma=fma, fp16=False))
    assert kernel.algo == "contraction"
    a, b, out = integers(F16, m, k), integers(F16, k, n), np.empty((m, n), np.float16)
    table = np.array([array.ctypes.data for array in (a, b, out)], np.uint64)
    memory = Memory(kernel.scratch_bytes)
    Code([kernel])[kernel](table.ctypes.data, 0, kernel.extent, memory.address)
    np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))
