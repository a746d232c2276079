"""GPU IR (document 004 §9): what a kernel on a GPU does, tile by tile, with its asynchrony explicit."""

from .check import check_gpu_ir
from .check_walk import check_walk_ir
from .contraction import TiledProduct, contraction_kernel
from .gpu_json import gpu_ir_from_json, gpu_ir_to_json
from .ir import GpuKernel
from .walk import walk_kernel
from .walk_ir import WalkKernel

__all__ = [
    "GpuKernel",
    "TiledProduct",
    "WalkKernel",
    "check_gpu_ir",
    "check_walk_ir",
    "contraction_kernel",
    "gpu_ir_from_json",
    "gpu_ir_to_json",
    "walk_kernel",
]
