"""How the emulator says that it cannot read or run a PTX text."""

from __future__ import annotations

from tinyc.ir.diagnostics import TinycError

from .ptx import Instruction

SUGGESTION = "write the kernel without it; docs/emulator.md says what is known"


def malformed(why: str, line: int, suggestion: str = SUGGESTION) -> TinycError:
    """A text that is not read: ``line`` is that of the PTX."""
    return TinycError("PtxInvalid", why, suggestion, {"layer": "ptx", "line": line})


def refused(why: str, instruction: Instruction, suggestion: str = SUGGESTION) -> TinycError:
    """An instruction that is not known, or that is used wrongly."""
    at = {"layer": "ptx", "op": instruction.name, "line": instruction.line}
    if instruction.cuda:
        at["file"] = str(instruction.cuda)
    return TinycError("PtxInvalid", f"{instruction.name}: {why}", suggestion, at)
