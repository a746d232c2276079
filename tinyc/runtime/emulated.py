"""Runs an extracted program for a GPU on the CPU: its kernels as NVRTC compiles them, in the emulator, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyc.codegen.cuda import CudaKernel, generate
from tinyc.codegen.emulator import Counters, Delivery, Finding, Uninitialised, emulate
from tinyc.codegen.nvrtc import compile_ptx
from tinyc.ir.plan import Extracted

Array = NDArray[Any]

ARCHITECTURES: Mapping[str, str] = {"sm80": "sm_80", "sm90": "sm_90a"}
"""What NVRTC calls the targets."""


@dataclass(frozen=True)
class CudaProgram:
    """A program for a GPU. ``kernels``: one per Region. ``target``: of :data:`ARCHITECTURES`."""

    program: Extracted
    target: str
    kernels: tuple[CudaKernel, ...]


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


def cuda_program(program: Extracted, target: str) -> CudaProgram:
    """The kernels of ``program`` in CUDA C++. Raises TinycError CodegenFailed."""
    return CudaProgram(program, target, tuple(map(generate, program.regions)))


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
            compile_ptx(kernel.source, ARCHITECTURES[cuda.target]),
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
