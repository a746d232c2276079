"""GPU IR (document 004 §9): what a kernel on a GPU does, tile by tile, with its asynchrony explicit."""

from .check import check_gpu_ir
from .contraction import TiledProduct, contraction_kernel
from .gpu_json import gpu_ir_from_json, gpu_ir_to_json
from .ir import GpuKernel

__all__ = [
    "GpuKernel",
    "TiledProduct",
    "check_gpu_ir",
    "contraction_kernel",
    "gpu_ir_from_json",
    "gpu_ir_to_json",
]
