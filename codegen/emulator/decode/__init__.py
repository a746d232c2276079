"""From the instructions of a kernel to the steps of a machine. Everything is decoded, and so known, before anything runs.

``arithmetic``: registers from registers. ``access``: memory. ``warp``: what the lanes of a warp do together. ``control``:
branches, barriers, fences. An instruction belongs to the first of them that knows it.
"""

from __future__ import annotations

from ..errors import refused
from ..ptx import Kernel
from ..steps import Flow, Step
from .access import access
from .arithmetic import arithmetic
from .control import control
from .operands import Names
from .warp import warp

__all__ = ["Names", "decode"]


def decode(kernel: Kernel, names: Names) -> tuple[Step, ...]:
    """One step per instruction, and an end after the last. Raises PtxInvalid at the first that is not known."""
    steps = list[Step]()
    for pc, instruction in enumerate(kernel.instructions):
        guard = instruction.guard
        if guard is not None and guard.register.type != "pred":
            raise refused(f"the guard {guard.register.name} is no predicate", instruction)
        step = control(instruction, pc, names) or warp(instruction, pc, names)
        if step is None:
            run = access(instruction, pc, names) or arithmetic(instruction, names)
            if run is None:
                raise refused("this instruction is not known", instruction)
            wanted = (guard.register.number, not guard.negated) if guard else None
            step = Step(instruction, Flow.NEXT, run, wanted)
        steps.append(step)
    return tuple(steps)
