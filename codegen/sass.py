"""The instructions of machine code: what ptxas made of a kernel, loop by loop. nvdisasm reads it, a program of the package
nvidia-cuda-nvdisasm (or of a CUDA toolkit)."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tinyc.ir.diagnostics import TinycError

_LABEL = re.compile(r"(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)[^;]*;")
_BRANCH = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")
TENSOR = "HMMA"
"""What multiplies on the matrix units of sm_80."""


@dataclass(frozen=True)
class Loop:
    """The instructions between a label and a branch back to it. ``opcodes``: how many of each, without modifiers."""

    opcodes: Mapping[str, int]

    @property
    def instructions(self) -> int:
        return sum(self.opcodes.values())


def loops(text: str) -> tuple[Loop, ...]:
    """Of nvdisasm's listing, in its order; inner ones are counted in outer ones too."""
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    found: list[Loop] = []
    for line in text.splitlines():
        if label := _LABEL.match(line.strip()):
            labels[label[1]] = len(opcodes)
        elif instruction := _INSTRUCTION.match(line.strip()):
            opcodes.append(instruction[1])
            branch = _BRANCH.search(line)
            if branch and branch[1] in labels and labels[branch[1]] < len(opcodes) - 1:
                found.append(Loop(Counter(opcodes[labels[branch[1]] :])))
    return tuple(found)


def main_loop(text: str) -> Loop | None:
    """The one with the most products on matrix units; None where none has any."""
    most = max(loops(text), key=lambda loop: loop.opcodes.get(TENSOR, 0), default=None)
    return most if most is not None and most.opcodes.get(TENSOR) else None


def disassemble(image: bytes) -> str:
    """nvdisasm's listing of a cubin. Raises TargetUnavailable where there is no nvdisasm."""
    program = _nvdisasm()
    if program is None:
        raise TinycError(
            "TargetUnavailable",
            "machine code cannot be read: there is no nvdisasm",
            "install the package nvidia-cuda-nvdisasm",
            {"layer": "cuda"},
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(image)
        made = subprocess.run([program, "-c", str(path)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise TinycError(
            "TargetUnavailable",
            f"nvdisasm cannot read it: {made.stderr.strip()}",
            "install a newer nvidia-cuda-nvdisasm",
            {"layer": "cuda"},
        )
    return made.stdout


def _nvdisasm() -> str | None:
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in ("nvdisasm", "nvdisasm.exe"):
            return str(file.locate())
    return shutil.which("nvdisasm")
