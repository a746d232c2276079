"""Measured times of a compiled program's kernels, beside their estimates (document 004 §13)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinyc.extract.cost.measurements import Measurement, append, measurement
from tinyc.extract.cost.model import CostModel
from tinyc.ir.diagnostics import TinycError
from tinyc.runtime.measure import kernel_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tinyc.runtime.cpu import Executable
    from tinyc.runtime.cuda.launch import Launched


def measure(
    code: Executable | Launched,
    inputs: Sequence[NDArray[Any]],
    model: CostModel,
    repeats: int = 9,
    log: str | os.PathLike[str] | None = None,
) -> tuple[Measurement, ...]:
    """Runs ``code`` and says of each instruction what its kernel was estimated to take by ``model`` and what it took
    (median of ``repeats`` runs, in seconds). ``log``: a CSV file to which the lines are appended.

    Raises TinycError InvalidArgument where ``repeats`` is below 1, InputMismatch, FileUnwritable, OutOfMemory.
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise TinycError(
            "InvalidArgument",
            f"repeats is {repeats!r}",
            "give how often each kernel is timed, at least once",
            at={"layer": "runtime", "value": "repeats"},
        )
    program, machine = code.program, code.machine
    try:
        times = kernel_seconds(code, inputs, repeats)
    except MemoryError as error:
        raise TinycError(
            "OutOfMemory",
            f"a run allocates its outputs and {code.peak_bytes} bytes beside them: {error}",
            "use smaller sizes",
            at={"layer": "runtime"},
        ) from error
    rows = tuple(
        measurement(program.regions[item.kernel], program.plans[item.kernel], model, seconds, machine)
        for item, seconds in zip(program.execution.instructions, times, strict=True)
        if seconds > 0
    )
    if log is not None:
        append(log, rows)
    return rows
