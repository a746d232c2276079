"""Regions as CUDA, compiled by NVRTC and run in the emulator."""

from __future__ import annotations

import numpy as np

from tinyc.codegen.cuda import generate
from tinyc.codegen.emulator import Delivery, Uninitialised, emulate
from tinyc.codegen.nvrtc import compile_ptx
from tinyc.codegen.playback import evaluate_region
from tinyc.ir.region import Region


def run(
    region: Region, arrays: dict[str, np.ndarray], delivery: Delivery = "late", arch: str = "sm_80"
) -> dict[str, np.ndarray]:
    """The outputs of the kernel by name; nothing is found wrong with it."""
    kernel = generate(region)
    inputs = [arrays[ref.name].reshape(ref.shape or (1,)) for ref in region.inputs]
    outputs = [Uninitialised(ref.shape or (1,), ref.dtype.numpy) for ref in region.outputs]
    result = emulate(
        compile_ptx(kernel.source, arch),
        kernel.name,
        kernel.grid,
        kernel.block,
        [*inputs, *outputs],
        delivery=delivery,
        source=kernel.source,
    )
    assert not result.findings, "\n".join(map(str, result.findings))
    made = result.outputs[len(inputs) :]
    return {ref.name: value.reshape(ref.shape) for ref, value in zip(region.outputs, made, strict=True)}


def compare(region: Region, arrays: dict[str, np.ndarray], rtol: float = 0, atol: float = 0) -> None:
    """The kernel against playback, NaN and the signs of infinities included."""
    got, want = run(region, arrays), evaluate_region(region, arrays)
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype and got[name].shape == expected.shape
        with np.errstate(invalid="ignore"):
            a, b = (x if x.dtype == np.int32 else x.astype(np.float32) for x in (got[name], expected))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
