"""Region in, CUDA C++ out: the whole text of one kernel for a GPU."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.region import Region

from ..prepare import describe, simplify
from . import scalar
from .library import library
from .loops import Loops

THREADS = 256
"""Of a block."""

WARP = 32

MOST_BLOCKS = 2**31 - 1
"""Along the first axis of a grid (CUDA C++ programming guide, table of compute capabilities)."""


@dataclass(frozen=True)
class CudaKernel:
    """A kernel for a GPU.

    ``source`` includes no header and compiles given the architecture and c++17 alone. It defines ``name``, which is launched
    with ``grid`` blocks of ``block`` threads and takes a pointer to each input, then to each output, of the Region. Equal
    programs have equal sources, names included. ``algo``: the schedule that was used.
    """

    name: str
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    algo: str


def generate(region: Region) -> CudaKernel:
    """The kernel that computes ``region``, as loops: Plans do not steer it yet.

    Raises TinycError: CodegenFailed where an operation does not exist for its dtype, or there are more points than threads.
    """
    small = simplify(region)
    loops = Loops(small)
    try:
        body = loops.body()
    except scalar.Unsupported as error:
        raise _failed(
            region, f"CUDA has no {error}", "cast the operands to a dtype that has the operation"
        ) from error
    points = loops.points()
    threads = min(THREADS, -(-points // WARP) * WARP)
    blocks = -(-points // threads)
    if blocks > MOST_BLOCKS:
        raise _failed(region, f"{points} points are more than a grid has threads", "use smaller sizes")
    text = _source(small, loops, body, threads, points)
    name = f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return CudaKernel(name, text.replace("@KERNEL", name), (blocks, 1, 1), (threads, 1, 1), 0, "loops")


def _failed(region: Region, why: str, suggestion: str) -> TinycError:
    at = {"layer": "codegen", "node": region.name}
    return TinycError("CodegenFailed", f"{why} in kernel {region.name}", suggestion, at=at)


def _source(region: Region, loops: Loops, body: list[str], threads: int, points: int) -> str:
    parameters = [
        f"const {scalar.MEMORY[ref.dtype]}* __restrict__ in{number}"
        for number, ref in enumerate(region.inputs)
    ]
    parameters += [
        f"{scalar.MEMORY[ref.dtype]}* __restrict__ out{number}" for number, ref in enumerate(region.outputs)
    ]
    thread = f"const {loops.index} t = ({loops.index})blockIdx.x * {threads} + threadIdx.x;"
    lines = [
        *describe(region, "//"),
        "",
        library(loops.used),
        f'extern "C" __global__ void __launch_bounds__({threads}) @KERNEL(',
        *(f"    {each}," for each in parameters[:-1]),
        f"    {parameters[-1]}) {{",
        f"  {thread}",
        f"  if (t >= {points}) return;",
        *(f"  {line}" for line in body),
        "}",
        "",
    ]
    return "\n".join(lines)
