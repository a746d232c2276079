"""How a Region is to be computed (Plan), and in which order the kernels run (ExecutionPlan, document 000)."""

from __future__ import annotations

from dataclasses import dataclass, field

from .dtypes import DType
from .region import MemRef, Region


@dataclass(frozen=True)
class Contraction:
    """A Reduce(SUM) over a product, with the roles of its axes: names of the Region's axes, in order.

    ``lhs`` depends on batch, m and k axes only; ``rhs`` on batch, n and k; all k axes are the Reduce's.
    """

    reduce: str
    lhs: str
    rhs: str
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The schedule of one kernel. ``algo``: "loops" (nested loops over the iters) or "contraction" (tiled)."""

    algo: str = "loops"
    contraction: Contraction | None = None


@dataclass(frozen=True)
class BufferInfo:
    """A buffer of the whole program. ``lifetime``: first and last instruction that touches it, inclusive."""

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: DType
    lifetime: tuple[int, int]
    bytes: int


@dataclass(frozen=True)
class Instruction:
    """Runs kernel number ``kernel``; ``inputs`` and ``outputs`` are buffer ids in the order of the Region's."""

    kernel: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    debug_name: str = ""


@dataclass(frozen=True)
class ExecutionPlan:
    """Kernels in order over numbered buffers; inputs and outputs in signature order."""

    instructions: tuple[Instruction, ...]
    buffers: tuple[BufferInfo, ...]
    input_buffers: tuple[int, ...]
    output_buffers: tuple[int, ...]


@dataclass(frozen=True)
class Extracted:
    """What extraction hands to code generation: Regions with their Plans, and the order they run in."""

    regions: tuple[Region, ...]
    plans: tuple[Plan, ...]
    execution: ExecutionPlan
    notes: tuple[str, ...] = field(default=())


def buffer_of(ref: MemRef, id: int, lifetime: tuple[int, int]) -> BufferInfo:
    return BufferInfo(id, ref.name, ref.shape, ref.dtype, lifetime, ref.bytes)
