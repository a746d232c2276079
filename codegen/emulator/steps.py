"""What the decoder makes of instructions, and the machine executes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from .ptx import Instruction
from .threads import Lanes
from .types import Array

if TYPE_CHECKING:
    from .machine import Machine


class Flow(Enum):
    """What an instruction does to the way of its threads."""

    NEXT = "go on"
    BRANCH = "some go elsewhere"
    EXIT = "end"
    WARP = "go on when all lanes concerned are there"
    BARRIER = "go on when enough warps are there"


#: what an instruction does that sends no thread elsewhere
Run = Callable[["Machine", Lanes], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One decoded instruction.

    ``run``: what it does to machine and lanes; for a BRANCH its targets, per lane (-1: the next instruction), or one
    for all. ``guard``: the number of the predicate register and the value that it must have. ``lanes``: for WARP, which
    lanes of its own warp each lane waits for, as bits; None for all.
    """

    instruction: Instruction
    flow: Flow
    run: Callable[[Machine, Lanes], Array | int | None]
    guard: tuple[int, bool] | None = None
    lanes: Callable[[Machine, Lanes], Array] | None = None
