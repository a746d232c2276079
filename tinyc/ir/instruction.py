"""Instructions of a whole program (document 000 §2): one operation over numbered buffers."""

from __future__ import annotations

from dataclasses import dataclass

from .buffer import BufferId


@dataclass(frozen=True)
class Instruction:
    """One operation.

    Attributes:
        kernel: number of the step that it runs: of a Region, or of a node of the program.
        inputs: buffers in operand order; one that is read twice is listed twice.
        outputs: buffers that it fills, one for most operations.
        debug_name: for people: the Region's name, the node's id.
        op: the operation: "REGION", or the node's uop.
    """

    kernel: int
    inputs: tuple[BufferId, ...]
    outputs: tuple[BufferId, ...]
    debug_name: str = ""
    op: str = "REGION"
