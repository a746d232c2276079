"""What a compiled kernel takes of a GPU, as its assembler counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelUsage:
    """``kernel``: the entry symbol. ``arch``: such as "sm_80".

    ``registers``: of a thread. ``stack_bytes``: of a thread, in local memory, which is memory of the device: arrays that no
    register can hold, and spilled registers. A kernel without a stack touches no local memory.
    ``spill_store_bytes``, ``spill_load_bytes``: of the instructions that spill; one in a loop counts once.
    ``shared_bytes``: of a block, without what is asked for at the launch.
    """

    kernel: str
    arch: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int

    @property
    def fault(self) -> str | None:
        """Why another Plan should be tried: the kernel keeps values in local memory. None where it does not."""
        if self.spill_store_bytes or self.spill_load_bytes:
            spilled = (
                f"{self.spill_store_bytes} bytes of spill stores, {self.spill_load_bytes} of spill loads"
            )
            return f"{spilled}, with {self.registers} registers"
        return f"a stack of {self.stack_bytes} bytes" if self.stack_bytes else None
