"""The CPU target: a Region and its Plan become LLVM IR. See :func:`generate`."""

from .kernel import CpuKernel, generate

__all__ = ["CpuKernel", "generate"]
