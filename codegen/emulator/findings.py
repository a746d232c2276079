"""What an emulation finds wrong with a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .ptx import Instruction
from .threads import WARP, Threads

Kind = Literal[
    "race",
    "in-flight",
    "uninitialised",
    "out-of-bounds",
    "misaligned",
    "read-only",
    "barrier",
    "missing-lanes",
    "deadlock",
]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong at one instruction, as it was first seen.

    ``line``: of the PTX; ``cuda``: file and line of the CUDA source, "" where the PTX does not say; ``text``: that line,
    where the source is at hand. ``block``: blockIdx; ``warp`` and ``lane`` in the block. ``space`` and ``address``: of
    the first byte; -1 where no memory is concerned. ``count``: how many accesses or threads were found so at this
    instruction for this reason.
    """

    kind: Kind
    instruction: str
    line: int
    cuda: str
    text: str
    block: tuple[int, int, int]
    warp: int
    lane: int
    space: str
    address: int
    why: str
    count: int = 1

    def __str__(self) -> str:
        place = f"PTX line {self.line}" + (f", {self.cuda}" if self.cuda else "")
        code = f"\n    {self.text}" if self.text else ""
        where = f", {self.space} address {self.address:#x}" if self.address >= 0 else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        who = f"block {self.block}, warp {self.warp}, lane {self.lane}"
        return f"{self.kind} at {place}: {self.instruction}{times}{code}\n    {who}{where}: {self.why}"


class Findings:
    """Collects findings: one for each kind, instruction and other instruction concerned, with a count."""

    def __init__(self, source: str | None) -> None:
        self._lines = source.splitlines() if source else []
        self._found: dict[tuple[str, Instruction, int], Finding] = {}

    def add(
        self,
        kind: Kind,
        instruction: Instruction,
        threads: Threads,
        slot: int,
        why: str,
        space: str = "",
        address: int = -1,
        count: int = 1,
        other: int = 0,
    ) -> None:
        """``slot``: of the thread in the grid. ``other``: PTX line of the access that it clashes with, if any."""
        key = (kind, instruction, other)
        if key in self._found:
            self._found[key] = replace(self._found[key], count=self._found[key].count + count)
            return
        block, inside = divmod(slot, threads.stride)
        place, text = instruction.cuda, ""
        if place and place.line <= len(self._lines):
            text = self._lines[place.line - 1].strip()
        self._found[key] = Finding(
            kind,
            instruction.name,
            instruction.line,
            str(place) if place else "",
            text,
            threads.block_name(block),
            inside // WARP,
            inside % WARP,
            space,
            address,
            why,
            count,
        )

    def found(self) -> tuple[Finding, ...]:
        """In the order of the PTX."""
        return tuple(sorted(self._found.values(), key=lambda each: (each.line, each.kind)))
