"""What the tests of the command line share: a small program, its arrays, and the command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent


def affine(dtype: str = "fp32", size: int | str = 4) -> dict[str, Any]:
    """relu(x + y) over one axis."""
    return {
        "uops": [
            {
                "id": "x",
                "uop": "INPUT",
                "src": [],
                "arg": {"tensor_id": "x", "dtype": dtype, "shape": [size]},
            },
            {
                "id": "y",
                "uop": "INPUT",
                "src": [],
                "arg": {"tensor_id": "y", "dtype": dtype, "shape": [size]},
            },
            {"id": "sum", "uop": "ADD", "src": ["x", "y"], "arg": {}},
            {"id": "out", "uop": "RELU", "src": ["sum"], "arg": {}},
        ]
    }


def write(name: str, document: object) -> str:
    Path(name).write_text(json.dumps(document), encoding="utf-8")
    return name


def save(name: str, values: Any) -> str:
    np.save(name, values)
    return name


def vectors() -> list[str]:
    """The --input arguments of :func:`affine`; the result is [0, 3, 0, 7]."""
    x = save("x.npy", np.array([1, 2, 3, 4], dtype=np.float32))
    y = save("y.npy", np.array([-1, 1, -4, 3], dtype=np.float32))
    return ["--input", f"x={x}", "--input", f"y={y}"]


def files() -> set[str]:
    return {path.relative_to(Path()).as_posix() for path in Path().rglob("*") if path.is_file()}


def tinyc_process(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(tinyc_command(*argv), capture_output=True, text=True, env=environment(), **options)


def tinyc_command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "tinyc", *argv]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def processes_with(variable: str) -> list[str]:
    """The command lines of the processes whose environment holds ``variable``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # another user's, or gone
            continue
    return found
