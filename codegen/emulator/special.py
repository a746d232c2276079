"""The special registers that are known, as functions of where a thread stands. PTX ISA, "Special Registers"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from .types import Array

if TYPE_CHECKING:
    from .machine import Machine


def _size(which: str, axis: int) -> Callable[[Machine], Array]:
    return _all(lambda machine: int(getattr(machine.threads, which)[axis]))


def _axis(which: str, axis: int) -> Callable[[Machine], Array]:
    return lambda machine: getattr(machine.threads, which)(axis).astype(np.uint32)


def _all(value: Callable[[Machine], int]) -> Callable[[Machine], Array]:
    return lambda machine: np.full(machine.threads.count, value(machine), np.uint32)


def _bits(below: bool, own: bool, above: bool) -> Callable[[Machine], Array]:
    """The lanes of a warp that lie below the own one, are it, or lie above it, as bits."""

    def mask(machine: Machine) -> Array:
        lane = machine.threads.lane.astype(np.uint64)
        bit = np.uint64(1) << lane
        found = np.uint64(below) * (bit - np.uint64(1)) + np.uint64(own) * bit
        found += np.uint64(above) * (np.uint64((1 << 32) - 1) - (bit - np.uint64(1)) - bit)
        return found.astype(np.uint32)

    return mask


#: name -> its value for every thread of the machine, 32 bits wide, and 64 where ``%clock64`` and the like ask for it
SPECIAL: Mapping[str, Callable[[Machine], Array]] = {
    **{f"%tid.{axis}": _axis("thread_index", at) for at, axis in enumerate("xyz")},
    **{f"%ctaid.{axis}": _axis("block_index", at) for at, axis in enumerate("xyz")},
    **{f"%ntid.{axis}": _size("block_shape", at) for at, axis in enumerate("xyz")},
    **{f"%nctaid.{axis}": _size("grid_shape", at) for at, axis in enumerate("xyz")},
    "%laneid": lambda machine: machine.threads.lane.astype(np.uint32),
    "%warpid": lambda machine: machine.threads.warp_in_block.astype(np.uint32),
    "%nwarpid": _all(lambda machine: 64),  # warps that a multiprocessor of sm_80 or sm_90 tells apart
    "%lanemask_eq": _bits(False, True, False),
    "%lanemask_lt": _bits(True, False, False),
    "%lanemask_le": _bits(True, True, False),
    "%lanemask_gt": _bits(False, False, True),
    "%lanemask_ge": _bits(False, True, True),
    "%smid": _all(lambda machine: 0),
    "%nsmid": _all(lambda machine: 1),
    "%gridid": _all(lambda machine: 0),
    "%clock": _all(lambda machine: machine.executed & 0xFFFFFFFF),
    "%clock_hi": _all(lambda machine: 0),
    "%globaltimer_lo": _all(lambda machine: machine.executed & 0xFFFFFFFF),
    "%clock64": lambda machine: np.full(machine.threads.count, machine.executed, np.uint64),
    "%globaltimer": lambda machine: np.full(machine.threads.count, machine.executed, np.uint64),
    "%dynamic_smem_size": _all(lambda machine: machine.memory.dynamic_shared),
    # a multiple of what is allocated at once, as PTX has it for sm_80 and later
    "%total_smem_size": _all(lambda machine: -(-machine.memory.shared_size // 128) * 128),
}
