"""Regions as CUDA, compiled by NVRTC and run in the emulator."""

from __future__ import annotations

import numpy as np

from tinyc.codegen.cuda import CudaKernel, generate
from tinyc.codegen.emulator import Counters, Delivery, Emulated, Uninitialised, emulate
from tinyc.codegen.nvrtc import compile_ptx
from tinyc.codegen.playback import evaluate_region
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region


def launched(
    kernel: CudaKernel,
    region: Region,
    arrays: dict[str, np.ndarray],
    delivery: Delivery = "late",
    arch: str = "sm_80",
) -> Emulated:
    """What ``kernel``, which computes ``region``, left behind, and what was found."""
    inputs = [arrays[ref.name].reshape(ref.shape or (1,)) for ref in region.inputs]
    outputs = [Uninitialised(ref.shape or (1,), ref.dtype.numpy) for ref in region.outputs]
    return emulate(
        compile_ptx(kernel.source, arch),
        kernel.name,
        kernel.grid,
        kernel.block,
        [*inputs, *outputs],
        shared_bytes=kernel.shared_bytes,
        delivery=delivery,
        source=kernel.source,
    )


def emulated(
    region: Region,
    arrays: dict[str, np.ndarray],
    delivery: Delivery = "late",
    arch: str = "sm_80",
    plan: Plan | None = None,
) -> Emulated:
    """What the kernel left behind; nothing is found wrong with it, and it has no local memory."""
    kernel = generate(region, plan)
    result = launched(kernel, region, arrays, delivery, arch)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert (
        ".local" not in compile_ptx(kernel.source, arch) or "sinf(" in kernel.source
    )  # which reduces in an array
    return result


def run(
    region: Region,
    arrays: dict[str, np.ndarray],
    delivery: Delivery = "late",
    arch: str = "sm_80",
    plan: Plan | None = None,
) -> dict[str, np.ndarray]:
    """The outputs of the kernel by name; nothing is found wrong with it."""
    return outputs_of(region, emulated(region, arrays, delivery, arch, plan))


def outputs_of(region: Region, result: Emulated) -> dict[str, np.ndarray]:
    made = result.outputs[len(region.inputs) :]
    return {ref.name: value.reshape(ref.shape) for ref, value in zip(region.outputs, made, strict=True)}


def compare(
    region: Region,
    arrays: dict[str, np.ndarray],
    rtol: float = 0,
    atol: float = 0,
    plan: Plan | None = None,
    delivery: Delivery = "late",
) -> Emulated:
    """The kernel against playback, NaN and the signs of infinities included."""
    result, want = emulated(region, arrays, delivery, plan=plan), evaluate_region(region, arrays)
    got = outputs_of(region, result)
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype and got[name].shape == expected.shape
        with np.errstate(invalid="ignore"):
            a, b = (x if x.dtype == np.int32 else x.astype(np.float32) for x in (got[name], expected))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    return result


def traffic(counters: Counters) -> tuple[int, int]:
    """Sectors of 32 bytes that are read from global memory and written to it; no access touches more than it must."""
    for each in counters.global_:
        assert each.sectors == each.ideal, each
    assert counters.bank_conflicts == 0
    sectors = {"ld": 0, "st": 0}
    for each in counters.global_:
        sectors[each.instruction.split(".")[0]] += each.sectors
    return sectors["ld"], sectors["st"]
