"""An extracted program's kernels for a GPU, and their machine code."""

from __future__ import annotations

from dataclasses import dataclass

from tinyc.cache import Cache
from tinyc.codegen.cuda import CudaKernel, generate
from tinyc.codegen.nvrtc import Cubin, compile_cubin
from tinyc.ir.plan import Extracted
from tinyc.ir.usage import KernelUsage

from .device import ARCHITECTURES


@dataclass(frozen=True)
class CudaProgram:
    """A program for a GPU. ``kernels``: one per Region. ``target``: of :data:`ARCHITECTURES`. ``cache``: of what NVRTC makes
    of them."""

    program: Extracted
    target: str
    kernels: tuple[CudaKernel, ...]
    cache: Cache | None = None

    def compiled(self, kernel: CudaKernel) -> Cubin:
        """``kernel``, compiled for the target. Raises TinycError TargetUnavailable, CudaRefused."""
        return compile_cubin(kernel.source, ARCHITECTURES[self.target], cache=self.cache)

    def usage(self) -> tuple[KernelUsage, ...]:
        """What each kernel takes, equal ones once. Raises as :meth:`compiled`."""
        unique = {kernel.name: kernel for kernel in self.kernels}
        return tuple(each for kernel in unique.values() for each in self.compiled(kernel).usage)


def cuda_program(program: Extracted, target: str, cache: Cache | None = None) -> CudaProgram:
    """The kernels of ``program`` in CUDA C++. Raises TinycError CodegenFailed."""
    return CudaProgram(program, target, tuple(map(generate, program.regions, program.plans)), cache)
