"""Static figures of the main kernels: products, convolutions, attention, rows.

What a GPU would do can be counted without one: accesses of global memory are 16 bytes wide, lanes meet in no bank in the main loop,
and no thread keeps anything in local memory. The first two in the emulator, where sizes are aligned; the last of kernels as they are
chosen for sizes that are worth a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from contractions import Product, convolution, planned
from cuda_regions import launched
from region_builder import BF16, F16, F32
from stream_regions import attention
from test_cuda_kept import layer_norm, softmax
from test_stream import arrays

import tinyc
from tinyc import functions as tc
from tinyc.codegen.cuda import generate
from tinyc.codegen.emulator import Counters
from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region

Tensor = Any
COPIES = {"cp.async.cg.shared.global"}  # 16 bytes are all that it copies


def gemm_bias_relu(dtype: DType, **layout: bool) -> tuple[Region, Plan]:
    product = Product(128, 128, 128, dtype, **layout)
    b = product.unary("RELU", product.binary("ADD", product.total, product.full("bias", "j", F32)))
    return product.done(product.cast(b, dtype)), planned(product.roles, (128, 64, 64), (64, 32))


def conv(window: int, **options: int) -> tuple[Region, Plan]:
    pad = window // 2
    region, roles = convolution(1, 64, 64, (8, 16), (window, window), F16, pad=pad, **options)
    return region, planned(roles, (128, 64, 64), (64, 32))


def streamed(d: int, dtype: DType, causal: bool) -> tuple[Region, None]:
    return attention(128, 128, d, k=d, h=1, dtype=dtype, causal=causal, out=dtype), None


TILED: dict[str, Callable[[], tuple[Region, Plan | None]]] = {
    "product": lambda: gemm_bias_relu(F16),
    "product, TN, bf16": lambda: gemm_bias_relu(BF16, at=True),
    "product, NT": lambda: gemm_bias_relu(F16, bt=True),
    "convolution 3x3": lambda: conv(3),
    "convolution 3x3, stride 2": lambda: conv(3, stride=2),
    "convolution 1x1": lambda: conv(1),
    "attention": lambda: streamed(64, F16, False),
    "attention, causal, bf16": lambda: streamed(64, BF16, True),
    "attention, d 128, causal": lambda: streamed(128, F16, True),
}
ROWS: dict[str, Callable[[], Region]] = {
    "softmax": lambda: softmax(4, 1024),
    "softmax, fp16": lambda: softmax(2, 2048, F16),
    "softmax of 5,000": lambda: softmax(2, 5000),
    "layer norm": lambda: layer_norm(4, 768),
    "layer norm, bf16": lambda: layer_norm(2, 4096, BF16),
}


def counters(region: Region, plan: Plan | None) -> Counters:
    kernel = generate(region, plan)
    assert plan is None or kernel.algo == plan.algo
    result = launched(kernel, region, arrays(region))
    assert not result.findings, "\n".join(map(str, result.findings))
    return result.counters


def check_wide(found: Counters, copies: set[str]) -> None:
    """Each access 16 bytes; no sector in part but of what an epilogue reads of a bias, of which lanes share a few."""
    kinds = {each.instruction for each in found.global_}
    assert kinds >= copies
    assert all(".v4." in kind for kind in kinds - copies), kinds
    for each in found.global_:
        assert each.sectors == each.ideal or (copies and each.instruction.startswith("ld.")), each


@pytest.mark.parametrize("name", TILED)
def test_tiles_are_copied_whole_and_lanes_meet_in_no_bank(name: str) -> None:
    """In the loop. The epilogue, which is not in it, passes its sums through shared memory: at most two lanes meet there."""
    found = counters(*TILED[name]())
    check_wide(found, COPIES)
    assert found.classes["tensor"] > 0
    for each in found.shared:
        loop = each.instruction.startswith(("cp.async", "ldmatrix"))
        assert each.wavefronts <= each.ideal * (1 if loop else 2), each
    kinds = {each.instruction.split(".")[0] for each in found.shared}
    assert kinds >= {"cp", "ldmatrix"}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_read_and_written_16_bytes_at_a_time(name: str) -> None:
    found = counters(ROWS[name](), None)
    check_wide(found, set())
    assert found.bank_conflicts == 0


# ---- as they are chosen ------------------------------------------------------------------------------------------------------


def gemm(A: Tensor, B: Tensor, bias: Tensor) -> Tensor:
    return (tc.matmul(A, B, dtype="fp32") + bias.cast("fp32")).relu().cast(A.dtype)


def channels_last(X: Tensor, W: Tensor) -> Tensor:
    found = tc.conv(X.permute(0, 3, 1, 2), W.permute(0, 3, 1, 2), pad=1, dtype="fp32").silu()
    return found.permute(0, 2, 3, 1).cast(X.dtype)


def heads(length: int, d: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("q", "k", "v"), (4, 16, length, d))


PROGRAMS: dict[str, tuple[Callable[..., Any], str, dict[str, tuple[int, ...]]]] = {
    "product": (gemm, "fp16", {"A": (4096, 4096), "B": (4096, 4096), "bias": (4096,)}),
    "product NT, bf16": (lambda A, B: A @ B.T, "bf16", {"A": (2048, 4096), "B": (4096, 4096)}),
    "product TN": (lambda A, B: A.T @ B, "fp16", {"A": (4096, 2048), "B": (4096, 1024)}),
    "product, fp32": (gemm, "fp32", {"A": (1024, 1024), "B": (1024, 1024), "bias": (1024,)}),
    "product, ragged": (gemm, "fp16", {"A": (1500, 1300), "B": (1300, 700), "bias": (700,)}),
    "products": (lambda A, B: A @ B, "fp16", {"A": (16, 512, 512), "B": (16, 512, 512)}),
    "convolution": (channels_last, "fp16", {"X": (16, 56, 56, 128), "W": (128, 3, 3, 128)}),
    "convolution, channels first": (
        lambda X, W: tc.conv(X, W, pad=1),
        "fp16",
        {"X": (8, 64, 56, 56), "W": (64, 64, 3, 3)},
    ),
    "attention": (tc.attention, "fp16", heads(2048, 64)),
    "attention, causal": (lambda q, k, v: tc.attention(q, k, v, causal=True), "bf16", heads(2048, 128)),
    "softmax": (tc.softmax, "fp16", {"x": (4096, 4096)}),
    "softmax of 5,000": (tc.softmax, "fp32", {"x": (1000, 5000)}),
    "layer norm": (tc.layer_norm, "bf16", {"x": (4096, 12288), "weight": (12288,), "bias": (12288,)}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_that_is_chosen_spills(name: str) -> None:
    """Nor has it a stack, or local memory."""
    function, dtype, shapes = PROGRAMS[name]
    program = tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes.values()))
    compiled = tinyc.optimize_and_compile(
        program, "sm80", also=["streaming-unrounded"], budget=tinyc.Budget(extract_seconds=0)
    )
    assert len(compiled.report.usage) == len({kernel.source for kernel in compiled.kernels})
    for usage in compiled.report.usage:
        assert (usage.stack_bytes, usage.spill_store_bytes, usage.spill_load_bytes) == (0, 0, 0), usage
        assert usage.registers <= 255
