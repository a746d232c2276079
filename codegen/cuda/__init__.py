"""The CUDA targets: a Region becomes CUDA C++ that includes no header. See :func:`generate`."""

from .kernel import CudaKernel, generate

__all__ = ["CudaKernel", "generate"]
