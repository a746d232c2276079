"""What extraction hands on. Plan: ``tinyc.ir.schedule``; ExecutionPlan: ``tinyc.ir.execution``."""

from __future__ import annotations

from dataclasses import dataclass, field

from .buffer import BufferInfo
from .execution import ExecutionPlan
from .instruction import Instruction
from .region import Region
from .schedule import Contraction, Plan

__all__ = ["BufferInfo", "Contraction", "ExecutionPlan", "Extracted", "Instruction", "Plan"]


@dataclass(frozen=True)
class Extracted:
    """What extraction hands to code generation: Regions with their Plans, and the order they run in."""

    regions: tuple[Region, ...]
    plans: tuple[Plan, ...]
    execution: ExecutionPlan
    notes: tuple[str, ...] = field(default=())
