"""Compiles the entries and writes the folder: a bundle of each, bench.json, and the script with what it needs."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyc import __version__
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import dumps
from tinyc.settings import read_settings

from .entries import Entry, Input
from .folder import FILES
from .folder import bench as script
from .naive import traced

if TYPE_CHECKING:
    from tinyc.compiler import Compiled

TARGETS = ("sm80", "sm90")


@dataclass(frozen=True)
class Kernel:
    """``schedule``: how its code is laid out, with tile and stages where it has tiles. ``registers``: of a thread, as ptxas
    says; ``stack_bytes``: what a thread keeps in memory, spilled registers with it."""

    region: str
    schedule: str
    registers: int
    stack_bytes: int


@dataclass(frozen=True)
class Made:
    """What became of an entry. ``estimate_s``: seconds that the cost model gives it. ``failure``: why there is no bundle.
    ``warnings``: of the optimisation."""

    entry: Entry
    seconds: float
    kernels: tuple[Kernel, ...] = ()
    estimate_s: float = 0.0
    failure: TinycError | None = None
    warnings: tuple[str, ...] = ()


def export_set(
    entries: Iterable[Entry],
    target: str,
    folder: str | os.PathLike[str],
    command: str,
    tell: Callable[[Made], None] = lambda made: None,
) -> tuple[Made, ...]:
    """Writes ``folder``, whole or not at all; a set that is there already is replaced. An entry that does not compile is left
    out, and bench.json says so. ``command``: how the set was asked for. ``tell``: is called with each entry as it is done.

    Raises TinycError FileUnwritable where ``folder`` holds anything else, or cannot be written.
    """
    from tinyc.exported import fresh_folder

    made: list[Made] = []
    with fresh_folder(Path(os.path.abspath(folder)), _is_set, "benchmark set") as fresh:
        for entry in entries:
            made.append(_made(entry, target, fresh / _bundle(entry)))
            tell(made[-1])
        for path in _copied():
            shutil.copyfile(path, fresh / path.name)
        (fresh / "bench.json").write_text(dumps(_document(made, target, command)), encoding="utf-8")
    return tuple(made)


def _copied() -> list[Path]:
    from tinyc.runtime.cuda import loader

    return [Path(loader.__file__), *(Path(script.__file__).parent / name for name in FILES)]


def _is_set(folder: Path) -> bool:
    try:
        script.read_set(folder)
    except script.Unusable:
        return False
    return True


def _bundle(entry: Entry) -> str:
    return f"bundles/{entry.name}"


def _made(entry: Entry, target: str, folder: Path) -> Made:
    """``entry``, compiled and written to ``folder``."""
    import tinyc

    budget = tinyc.Budget(seconds=entry.limit_s, extract_seconds=read_settings().extract_seconds)
    started = time.perf_counter()
    try:
        found = tinyc.optimize_and_compile(traced(entry), target, also=entry.also, budget=budget)
        found.export(folder)
    except TinycError as error:
        return Made(entry, time.perf_counter() - started, failure=error)
    seconds = time.perf_counter() - started
    report = found.report
    warnings = tuple(map(str, report.warnings))
    return Made(entry, seconds, _kernels(found), report.total.time_s, warnings=warnings)


def _kernels(compiled: Compiled) -> tuple[Kernel, ...]:
    usage = {each.kernel: each for each in compiled.report.usage}
    schedules = [each["schedule"] for each in json.loads(compiled.dump("gpu"))["gpu"]]
    found = []
    for kernel, schedule in zip(compiled.kernels, schedules, strict=True):
        used, plan = usage[kernel.name], kernel.plan
        if schedule == "contraction" and plan.tile:
            schedule = f"{schedule} {'x'.join(map(str, plan.tile))} of {plan.stages}"
        found.append(Kernel(kernel.region.name, schedule, used.registers, used.stack_bytes))
    return tuple(found)


def _document(made: Iterable[Made], target: str, command: str) -> dict[str, Any]:
    """bench.json: docs/schemas/bench_set.schema.json."""
    from tinyc.codegen.nvrtc import nvrtc_version
    from tinyc.runtime.cuda.program import ARCHITECTURES

    return {
        "format": script.SET,
        "version": script.SET_VERSION,
        "command": command,
        "target": target,
        "arch": ARCHITECTURES[target],
        "versions": {"tinyc": __version__, "nvrtc": nvrtc_version()},
        "entries": [_listed(each) for each in made if each.failure is None],
        "failed": [
            {
                "name": each.entry.name,
                "code": each.failure.code,
                "kind": each.failure.kind,
                "why": each.failure.why,
            }
            for each in made
            if each.failure is not None
        ],
    }


def _listed(made: Made) -> dict[str, Any]:
    entry = made.entry
    return {
        "name": entry.name,
        "program": entry.program,
        "parameters": dict(entry.parameters),
        "inputs": [{**_array(each), "scale": each.scale} for each in entry.inputs],
        "output": _array(entry.output),
        "flops": entry.flops,
        "bytes": entry.bytes,
        "also": list(entry.also),
        "quick": entry.quick,
        "folder": _bundle(entry),
        "kernels": [asdict(each) for each in made.kernels],
        "estimate_s": made.estimate_s,
    }


def _array(each: Input) -> dict[str, Any]:
    return {"name": each.name, "dtype": each.dtype, "shape": list(each.shape), "bytes": each.bytes}
