"""The log of measured times (document 004 §13): one line of CSV per kernel and measurement, appended.

The first columns are the document's, FLOPs to plan; behind them is what tells measurements apart, and the Work that the
estimate was made of, from which :mod:`tinyc.extract.cost.calibration` learns.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region, anonymous
from tinyc.ir.schedule_json import plan_to_json

from .estimate import estimate
from .model import CostModel, Roofline, Work
from .schedule import Schedule

COLUMNS = (
    *("FLOPs", "Bytes", "occ", "estimate", "actual", "plan"),
    *("target", "machine", "region", "hash", "work"),
)

LEAST: Mapping[str, float] = MappingProxyType(
    dict.fromkeys(("blocks", "threads", "stages", "steps", "vector_bytes", "padding", "row_blocks"), 1.0)
    | {"matrix": 1e-3}
)
"""What the numbers of a Schedule are at least; the others 0."""


@dataclass(frozen=True)
class Measurement:
    """One measured kernel.

    Attributes:
        flops: arithmetic, a multiply-add is 2.
        bytes: each buffer read once, outputs written once.
        occ: resident warps over those possible; 1 on the CPU.
        estimate, actual: seconds.
        plan: as strict JSON.
        target, machine: the row of the hardware table, and what the processor calls itself.
        region: its name. hash: of the Region without names, and the Plan; equal kernels have equal ones.
        work: what the estimate was made of.
    """

    flops: float
    bytes: float
    occ: float
    estimate: float
    actual: float
    plan: str
    target: str
    machine: str
    region: str
    hash: str
    work: Work


@dataclass(frozen=True)
class Log:
    """``rows`` in the order of the file; ``damaged``: (line number, what is wrong with it) of those left out."""

    rows: tuple[Measurement, ...]
    damaged: tuple[tuple[int, str], ...] = ()


def measurement(
    region: Region, plan: Plan, model: CostModel, actual: float, machine: str = ""
) -> Measurement:
    """What the log says of a kernel that took ``actual`` seconds."""
    found = estimate(region, plan, model)
    written = json.dumps(plan_to_json(region.name, plan), sort_keys=True, separators=(",", ":"))
    occupied = model.occupancy(found.work) if isinstance(model, Roofline) else 1.0
    return Measurement(
        found.flops,
        found.bytes,
        occupied,
        found.time_s,
        actual,
        written,
        model.hardware.name,
        machine,
        region.name,
        kernel_hash(region, plan),
        found.work,
    )


def kernel_hash(region: Region, plan: Plan) -> str:
    """16 hexadecimal digits that say which kernel it is, whatever its names are."""
    said = plan_to_json("", plan)
    text = f"{anonymous(region)!r}\n{json.dumps(said, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- the file -------------------------------------------------------------------------------------------------------


def append(path: str | os.PathLike[str], rows: Iterable[Measurement]) -> None:
    """Adds lines to the log, and its head where it is new. One write: several processes may append at once, and a line
    that another left unfinished is ended first. Raises TinycError FileUnwritable."""
    lines = "".join(_line(_cells(row)) for row in rows)
    if not lines:
        return
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            _lock(handle)
            size = os.fstat(handle).st_size
            if size == 0:
                lines = _line(COLUMNS) + lines
            else:
                os.lseek(handle, size - 1, os.SEEK_SET)
                lines = lines if os.read(handle, 1) == b"\n" else "\n" + lines
            left = memoryview(lines.encode())
            while left:
                left = left[os.write(handle, left) :]
        finally:
            os.close(handle)
    except OSError as error:
        raise TinycError(
            "FileUnwritable",
            f"the log cannot be written: {error.strerror or error}",
            "give a file in a folder that can be written",
            at={"file": os.fspath(path)},
        ) from error


def read_log(path: str | os.PathLike[str]) -> Log:
    """The measurements in a log. A damaged line is reported and left out. Raises TinycError FileUnreadable."""
    try:
        text = Path(path).read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise TinycError(
            "FileUnreadable",
            f"the log cannot be read: {error.strerror or error}",
            "check its path",
            at={"file": os.fspath(path)},
        ) from error
    rows: list[Measurement] = []
    damaged: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.rstrip("\r") == _line(COLUMNS).rstrip("\n"):
            continue  # a head in the middle comes from two logs put together
        try:
            rows.append(_parsed(line))
        except (ValueError, TypeError, KeyError, csv.Error, RecursionError) as error:
            damaged.append((number, str(error) or type(error).__name__))
    return Log(tuple(rows), tuple(damaged))


def _cells(row: Measurement) -> tuple[str, ...]:
    numbers = (row.flops, row.bytes, row.occ, row.estimate, row.actual)
    words = (row.plan, row.target, row.machine, row.region, row.hash)
    work = {name: value for name, value in asdict(row.work).items() if value}
    said = json.dumps(work, sort_keys=True, separators=(",", ":"))
    return (*(repr(float(value)) for value in numbers), *(" ".join(word.split()) for word in words), said)


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _parsed(line: str) -> Measurement:
    cells = next(csv.reader([line], strict=True))
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{len(cells)} columns, not {len(COLUMNS)}")
    flops, size, occ, guess, actual = map(_number, cells[:5])
    if actual <= 0:
        raise ValueError(f"a kernel cannot take {actual} seconds")
    plan, target, machine, region, digits = cells[5:10]
    work = _work(json.loads(cells[10]))
    return Measurement(flops, size, occ, guess, actual, plan, target, machine, region, digits, work)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{text} is no amount")
    return value


def _work(said: object) -> Work:
    if not isinstance(said, dict):
        raise ValueError("the work is no object")
    schedule = said.pop("schedule", None)
    amounts = {name: _number(str(value)) for name, value in said.items()}
    return Work(**amounts, schedule=None if schedule is None else _schedule(schedule))


def _schedule(said: Mapping[str, object]) -> Schedule:
    values = dict(said)
    for name in ("tile", "warp_tile"):
        value = values.get(name)
        if isinstance(value, list):
            values[name] = tuple(value)
    schedule = Schedule(**values)  # type: ignore[arg-type]
    for item in fields(schedule):
        value, kind = getattr(schedule, item.name), type(item.default)
        if kind in (int, float) and not isinstance(value, bool):
            right = (
                isinstance(value, int | kind) and math.isfinite(value) and value >= LEAST.get(item.name, 0)
            )
        else:
            right = isinstance(value, kind) if kind in (bool, str) else kind is type(None)
        if not right:
            raise ValueError(f"{item.name} is {value!r}")
    return schedule


def _lock(handle: int) -> None:
    """Others wait until the handle is closed; where files cannot be locked, O_APPEND alone keeps lines whole."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return
    fcntl.flock(handle, fcntl.LOCK_EX)


# ---- estimate against actual ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy:
    """Estimates against measured times. ``pairs``: region -> (estimate, actual) in seconds, the latest of each.
    ``quantiles``: of estimate / actual over all rows, at 0, 10, 25, 50, 75, 90 and 100 %."""

    pairs: Mapping[str, tuple[float, float]]
    quantiles: tuple[float, ...]
    count: int


LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def accuracy(rows: Sequence[Measurement], model: CostModel | None = None) -> Accuracy:
    """How near the estimates are, those of the log or those that ``model`` makes of the same work."""
    guesses = [row.estimate if model is None else model.kernel(row.work) for row in rows]
    ratios = sorted(guess / row.actual for guess, row in zip(guesses, rows, strict=True))
    pairs = {row.region: (guess, row.actual) for guess, row in zip(guesses, rows, strict=True)}
    return Accuracy(pairs, tuple(_quantile(ratios, level) for level in LEVELS) if ratios else (), len(ratios))


def _quantile(ordered: Sequence[float], level: float) -> float:
    place = level * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
