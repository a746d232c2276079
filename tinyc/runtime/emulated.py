"""Runs an extracted program for a GPU on the CPU: its kernels as NVRTC compiles them, in the emulator, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyc.codegen.emulator import Counters, Delivery, Finding, Uninitialised, emulate

from .cuda.program import CudaProgram

Array = NDArray[Any]


@dataclass(frozen=True)
class KernelFinding:
    """What is wrong with the kernel of a Region."""

    region: str
    finding: Finding

    def __str__(self) -> str:
        return f"{self.region}: {self.finding}"


@dataclass(frozen=True)
class Emulation:
    """What a program did in the emulator. ``outputs``: in signature order. ``findings``: empty where its kernels are right.
    ``counters``: by the name of the Region."""

    outputs: tuple[Any, ...]
    findings: tuple[KernelFinding, ...]
    counters: Mapping[str, Counters]


def emulate_program(
    cuda: CudaProgram, inputs: Sequence[Array], delivery: Delivery = "late", seed: int = 0
) -> Emulation:
    """What ``cuda`` makes of ``inputs``, one array of the right dtype and shape per input; each kernel that is run is watched.
    Every buffer lies by itself. ``delivery``, ``seed``: see :func:`tinyc.codegen.emulator.emulate`.

    Raises TinycError TargetUnavailable where there is no NVRTC, and what the emulator raises."""
    plan = cuda.program.execution
    shapes = {buffer.id: buffer.shape for buffer in plan.buffers}
    arrays = {id: np.asarray(array) for id, array in zip(plan.input_buffers, inputs, strict=True)}
    findings: list[KernelFinding] = []
    counters: dict[str, Counters] = {}
    for step in plan.instructions:
        region, kernel = cuda.program.regions[step.kernel], cuda.kernels[step.kernel]
        sources = zip(region.inputs, step.inputs, strict=True)
        result = emulate(
            cuda.compiled(kernel).ptx,
            kernel.name,
            kernel.grid,
            kernel.block,
            [
                *(arrays[id].reshape(ref.shape or (1,)) for ref, id in sources),
                *(Uninitialised(ref.shape or (1,), ref.dtype.numpy) for ref in region.outputs),
            ],
            shared_bytes=kernel.shared_bytes,
            delivery=delivery,
            seed=seed,
            source=kernel.source,
        )
        arrays |= zip(step.outputs, result.outputs[len(region.inputs) :], strict=True)
        findings += (KernelFinding(region.name, each) for each in result.findings)
        counters[region.name] = result.counters
    outputs = tuple(arrays[id].reshape(shapes[id]).copy() for id in plan.output_buffers)
    return Emulation(outputs, tuple(findings), counters)
