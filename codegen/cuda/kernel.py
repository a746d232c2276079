"""Region in, CUDA C++ out: the whole text of one kernel for a GPU."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.region import Region
from tinyc.ir.schedule import Plan

from ..gpu import (
    GpuKernel,
    TiledProduct,
    WalkKernel,
    check_gpu_ir,
    check_walk_ir,
    contraction_kernel,
    walk_kernel,
)
from ..gpu.attention import Attention, attention_of
from ..prepare import describe, simplify
from ..streams import without_streams
from . import scalar
from .columns import columns
from .flash import flash
from .library import library
from .loops import Loops
from .merge import merged
from .rows import rows
from .sizes import asked
from .tiled import tiled
from .tiles import tiles

MOST_BLOCKS = 2**31 - 1
"""Along the first axis of a grid (CUDA C++ programming guide, table of compute capabilities)."""


@dataclass(frozen=True)
class CudaKernel:
    """A kernel for a GPU.

    ``source`` includes no header and compiles given the architecture and c++17 alone. It defines ``name``, which is launched
    with ``grid`` blocks of ``block`` threads and takes a pointer to each input, then to each output, of the Region. Equal
    programs have equal sources, names included. ``algo``: the schedule that was used. ``ir``: what the text of a contraction, or of
    attention, was made from.
    """

    name: str
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    algo: str
    ir: GpuKernel | WalkKernel | None = None


def generate(region: Region, plan: Plan | None = None) -> CudaKernel:
    """The kernel that computes ``region``: the tiled contraction that ``plan`` has, where it has one and the skeleton fits; attention,
    where its softmax streams; else in rows or columns where threads have sums to share, in tiles where it transposes, or as loops.
    ``plan``: what a contraction's tiles are, or how many threads a block has, how many share a sum, which are neighbours, and how
    wide vectors are; what it leaves open is chosen.

    Raises TinycError: CodegenFailed where an operation does not exist for its dtype, or there are more points than threads.
    """
    if plan is not None and plan.algo == "contraction":
        product = contraction_kernel(region, plan)
        if product is not None:
            return contraction(region, product)
    attention = attention_of(region, plan)
    if attention is not None:
        return walk(region, attention, walk_kernel(attention))
    ask = asked(plan, region)
    small = merged(without_streams(simplify(region)))
    try:
        loops = rows(small, ask) or columns(small, ask) or tiles(small, ask) or Loops(small, ask)
        body = loops.body()
    except scalar.Unsupported as error:
        raise _unsupported(region, error) from error
    if loops.blocks > MOST_BLOCKS:
        points = math.prod(item.size for item in region.iters)
        raise _failed(region, f"{points} points are more than a grid has threads", "use smaller sizes")
    head = [*describe(small, "//"), "", library(loops.used)]
    return _named(small, head, body, loops.threads, (loops.blocks, 1, 1), 0, loops.algo)


def contraction(region: Region, product: TiledProduct) -> CudaKernel:
    """The kernel of ``product``, which computes ``region``. Raises TinycError: GpuIrInvalid, CodegenFailed."""
    check_gpu_ir(product.kernel)
    try:
        text = tiled(product)
    except scalar.Unsupported as error:
        raise _unsupported(region, error) from error
    kernel = product.kernel
    head = [*describe(product.region, "//"), "", library(text.used)]
    named = _named(
        product.region, head, text.lines, kernel.threads, kernel.grid, text.shared_bytes, "contraction"
    )
    return replace(named, ir=kernel)


def walk(region: Region, found: Attention, ir: WalkKernel) -> CudaKernel:
    """The kernel of ``ir``, which computes ``region``, as ``found`` in it. Raises TinycError: GpuIrInvalid, CodegenFailed."""
    check_walk_ir(ir)
    try:
        body, used, shared = flash(found, ir)
    except scalar.Unsupported as error:
        raise _unsupported(region, error) from error
    head = [*describe(found.region, "//"), "", library(used)]
    named = _named(found.region, head, body, ir.threads, ir.grid, shared, "attention")
    return replace(named, ir=ir)


def _unsupported(region: Region, error: scalar.Unsupported) -> TinycError:
    return _failed(region, f"CUDA has no {error}", "cast the operands to a dtype that has the operation")


def _failed(region: Region, why: str, suggestion: str) -> TinycError:
    at = {"layer": "codegen", "node": region.name}
    return TinycError("CodegenFailed", f"{why} in kernel {region.name}", suggestion, at=at)


def _named(
    region: Region,
    head: list[str],
    body: list[str],
    threads: int,
    grid: tuple[int, int, int],
    shared_bytes: int,
    algo: str,
) -> CudaKernel:
    """The kernel with this head and body, called after its text."""
    parameters = [
        f"const {scalar.MEMORY[ref.dtype]}* __restrict__ in{number}"
        for number, ref in enumerate(region.inputs)
    ]
    parameters += [
        f"{scalar.MEMORY[ref.dtype]}* __restrict__ out{number}" for number, ref in enumerate(region.outputs)
    ]
    # One block of it may have a multiprocessor, and all of its registers, to itself. Without the 1, ptxas stops at 40
    # registers and spills what a few more would have held.
    bounds = f"{threads}, 1"
    lines = [
        *head,
        f'extern "C" __global__ void __launch_bounds__({bounds}) @KERNEL(',
        *(f"    {each}," for each in parameters[:-1]),
        f"    {parameters[-1]}) {{",
        *(f"  {line}" for line in body),
        "}",
        "",
    ]
    text = "\n".join(lines)
    name = f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return CudaKernel(name, text.replace("@KERNEL", name), grid, (threads, 1, 1), shared_bytes, algo)
