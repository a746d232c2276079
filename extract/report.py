"""The extraction report: what was chosen, what each kernel is estimated to cost, what the rules did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tinyc.egraph.saturate import Saturation
from tinyc.ir.arena import EMPTY, Arena
from tinyc.ir.diagnostics import Diagnostic
from tinyc.ir.plan import Extracted
from tinyc.ir.region import Reduce, Region
from tinyc.ir.streams import walk_of

from .cost import CostModel, Work
from .estimate import Estimate, estimate

VERSION = 1
"""Of the JSON form; raised when a key changes its meaning."""

BUSIEST = 12
"""How many rules the text shows."""


@dataclass(frozen=True)
class KernelReport:
    """One kernel. ``region``: the name of its Region. ``symbol``: its entry symbol in the generated code, empty where
    there is none; equal Regions share one. ``algo``: the schedule. ``contractions``, ``reductions``: sums over
    products, all reductions. ``fused``: the document's nodes that it computes. FLOPs, bytes and seconds are estimates."""

    region: str
    symbol: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    algo: str
    flops: float
    bytes: float
    time_s: float
    contractions: int
    reductions: int
    fused: tuple[str, ...]


@dataclass(frozen=True)
class RuleReport:
    """What a rule did in one phase: matches, seconds of true time, and the e-nodes that it added (less what its
    unions merged), None where the rules were not profiled."""

    rule: str
    phase: str
    matches: int
    time_s: float
    enodes: int | None


@dataclass(frozen=True)
class PhaseSummary:
    """``enodes``: rows of constructors after the phase; ``stopped``: the budget that ended it, or None."""

    phase: str
    time_s: float
    rounds: int
    steps: int
    enodes: int
    added: int
    stopped: str | None


@dataclass(frozen=True)
class Totals:
    """A whole program, estimated. ``compute_s``, ``memory_s``, ``code_s``, ``launch_s``: the terms of
    ``time_s``; compute and memory of one kernel overlap, so that they add up to more."""

    kernels: int
    flops: float
    bytes: float
    time_s: float
    compute_s: float
    memory_s: float
    code_s: float
    launch_s: float


@dataclass(frozen=True)
class Handover:
    """A deferred buffer (document 004 §6.9): ``producer`` and ``consumer`` are the names of the two Regions. ``through``:
    "gmem", since each Region is a kernel of its own; the hint asks for less (resolution I-35)."""

    buffer: str
    producer: str
    consumer: str
    bytes: int
    through: str = "gmem"


@dataclass(frozen=True)
class InputCopies:
    """Calls in which an input came in another layout than dense row-major, or less aligned than it must be, and was
    copied."""

    input: str
    calls: int
    bytes: int


@dataclass(frozen=True)
class ExtractionReport:
    """``str()`` is a table for people, :meth:`to_json` for programs (stable; ``version`` changes with its meaning).

    ``fallback``: the engine gave nothing back and the naive program runs. ``complete``: every phase ran to its end.
    ``arena``: the memory of a call for what passes between its kernels, and the least that it could be.
    """

    target: str
    engine: str
    kernels: tuple[KernelReport, ...]
    total: Totals
    naive: Totals
    phases: tuple[PhaseSummary, ...]
    rules: tuple[RuleReport, ...]
    sizes: Mapping[str, int]
    warnings: tuple[Diagnostic, ...]
    fallback: bool
    complete: bool
    seconds: Mapping[str, float]
    copied: tuple[InputCopies, ...] = ()
    deferred: tuple[Handover, ...] = ()
    arena: Arena = EMPTY

    def to_json(self) -> str:
        """Strict JSON with sorted keys."""
        data: dict[str, Any] = {"version": VERSION, **asdict(self)}
        data["warnings"] = [warning.to_json() for warning in self.warnings]
        return json.dumps(data, indent=2, sort_keys=True, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"tinyc report, target {self.target}, egglog {self.engine}", ""]
        rows = [("region", "output", "schedule", "FLOPs", "bytes", "estimate", "fused", "kernel")]
        for kernel in self.kernels:
            shape = "x".join(map(str, kernel.shape)) or "scalar"
            rows.append(
                (
                    kernel.region,
                    f"{kernel.dtype}[{shape}]",
                    kernel.algo,
                    _count(kernel.flops),
                    _count(kernel.bytes),
                    _time(kernel.time_s),
                    _shorten(kernel.fused),
                    kernel.symbol or "no code",
                )
            )
        lines += _table(rows)
        lines += ["", *_comparison(self.total, self.naive)]
        if self.fallback:
            lines.append("the naive program runs: the engine gave nothing back")
        lines += [
            "",
            *_table(
                [("phase", "seconds", "rounds", "e-nodes", "added", "stopped"), *map(_phase_row, self.phases)]
            ),
        ]
        if self.arena.bytes:
            held = f"{_count(self.arena.bytes)}B between kernels"
            lines += ["", f"memory: {held}; {_count(self.arena.lower_bound)}B live at one time"]
        if self.rules:
            lines += ["", *_rule_table(self.rules)]
        if self.seconds:
            spent = ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in self.seconds.items())
            lines += ["", f"compiled in {sum(self.seconds.values()):.3f} s: {spent}"]
        lines += [
            f"{each.buffer} is deferred: {each.producer} hands it to {each.consumer} through memory, {_count(each.bytes)}B"
            for each in self.deferred
        ]
        lines += [
            f"input {each.input} was copied in {each.calls} calls, {_count(each.bytes)}B: not dense row-major, or not aligned"
            for each in self.copied
        ]
        lines += [f"{warning.severity}: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def make_report(
    target: str,
    model: CostModel,
    extracted: Extracted,
    naive: Extracted,
    saturation: Saturation | None,
    fused: Mapping[str, tuple[str, ...]],
    warnings: tuple[Diagnostic, ...],
    seconds: Mapping[str, float],
    fallback: bool,
    symbols: tuple[str, ...] = (),
) -> ExtractionReport:
    """``fused``: region name -> ids of the nodes it computes. ``seconds``: wall time per stage of this compilation."""
    kernels = []
    estimates = _estimates(extracted, model)
    for number, (region, plan) in enumerate(zip(extracted.regions, extracted.plans, strict=True)):
        found = estimates[number]
        reductions = [let for let in region.lets if isinstance(let.value, Reduce)]
        out = region.outputs[0]
        kernels.append(
            KernelReport(
                region.name,
                symbols[number] if symbols else "",
                out.name,
                out.dtype.value,
                out.shape,
                "stream" if plan.algo == "loops" and walk_of(region) is not None else plan.algo,
                found.flops,
                found.bytes,
                found.time_s,
                len(contractions_of(region)),
                len(reductions),
                fused.get(region.name, ()),
            )
        )
    phases = saturation.phases if saturation else ()
    return ExtractionReport(
        target,
        saturation.engine if saturation else "not run",
        tuple(kernels),
        _totals(estimates, model),
        _totals(_estimates(naive, model), model),
        tuple(
            PhaseSummary(
                p.name, p.seconds, p.rounds, p.steps, p.enodes, p.enodes - p.enodes_before, p.stopped
            )
            for p in phases
        ),
        tuple(
            RuleReport(
                rule,
                phase.name,
                matches,
                phase.rule_seconds.get(rule, 0.0),
                None if phase.rule_enodes is None else phase.rule_enodes.get(rule, 0),
            )
            for phase in phases
            for rule, matches in sorted(phase.rule_matches.items())
            if matches
        ),
        dict(sorted(phases[-1].sizes.items())) if phases else {},
        warnings,
        fallback,
        bool(saturation and saturation.complete),
        seconds,
        arena=extracted.execution.arena,
        deferred=_handovers(extracted),
    )


def _handovers(extracted: Extracted) -> tuple[Handover, ...]:
    """What Regions defer to the next one."""
    readers = {ref.name: region.name for region in extracted.regions for ref in region.inputs}
    return tuple(
        Handover(ref.name, region.name, readers[ref.name], ref.bytes)
        for region in extracted.regions
        for ref in region.outputs
        if ref.name in region.deferred and ref.name in readers
    )


def contractions_of(region: Region) -> tuple[str, ...]:
    """The sums over a product, by the names of their lets."""
    lets = {let.name: let.value for let in region.lets}
    return tuple(
        name
        for name, value in lets.items()
        if isinstance(value, Reduce) and value.op == "SUM" and getattr(lets[value.body], "op", None) == "MUL"
    )


def _estimates(program: Extracted, model: CostModel) -> list[Estimate]:
    pairs = zip(program.regions, program.plans, strict=True)
    return [estimate(region, plan, model) for region, plan in pairs]


def _totals(found: Sequence[Estimate], model: CostModel) -> Totals:
    works = [each.work for each in found]
    return Totals(
        len(found),
        sum(each.flops for each in found),
        sum(each.bytes for each in found),
        sum(each.time_s for each in found),
        sum(model.seconds(Work(flops=work.flops, ops=work.ops)) for work in works),
        sum(
            model.seconds(Work(bytes_read=work.bytes_read, bytes_written=work.bytes_written))
            for work in works
        ),
        sum(model.seconds(Work(values=work.values)) for work in works),
        len(found) * model.kernel(Work()),
    )


def _comparison(total: Totals, naive: Totals) -> list[str]:
    """The extracted program beside the naive one, and which term of the cost tells them apart."""
    rows: list[tuple[str, ...]] = [
        ("program", "kernels", "FLOPs", "bytes", "compute", "memory", "code", "launches", "estimate")
    ]
    for label, each in (("extracted", total), ("naive", naive)):
        times = (each.compute_s, each.memory_s, each.code_s, each.launch_s, each.time_s)
        rows.append((label, str(each.kernels), _count(each.flops), _count(each.bytes), *map(_time, times)))
    lines = _table(rows)
    gain = naive.time_s / total.time_s if total.time_s else 1.0
    terms = {
        "compute": naive.compute_s - total.compute_s,
        "memory": naive.memory_s - total.memory_s,
        "code": naive.code_s - total.code_s,
        "launches": naive.launch_s - total.launch_s,
    }
    most = max(terms, key=lambda term: terms[term])
    lines.append(
        f"estimated {gain:.2f} times as fast as the naive program: one kernel per reduction and output"
    )
    if terms[most] > 0:
        lines.append(f"the naive program lost by its {most}: {_time(terms[most])} more")
    return lines


def _rule_table(rules: Sequence[RuleReport]) -> list[str]:
    """The rules that grew the e-graph most where they were profiled, else those that matched most."""
    profiled = any(rule.enodes is not None for rule in rules)
    busiest = sorted(rules, key=lambda rule: (-(rule.enodes or 0), -rule.matches, rule.rule))[:BUSIEST]
    if not profiled:
        rows = [(rule.rule, rule.phase, str(rule.matches), f"{rule.time_s:.3f}") for rule in busiest]
        return _table([("rule (most matches)", "phase", "matches", "seconds"), *rows])
    grown = [
        (rule.rule, rule.phase, f"{rule.enodes or 0:+d}", str(rule.matches), f"{rule.time_s:.3f}")
        for rule in busiest
    ]
    return _table([("rule (most e-nodes)", "phase", "added", "matches", "seconds"), *grown])


def _phase_row(phase: PhaseSummary) -> tuple[str, ...]:
    return (
        phase.phase,
        f"{phase.time_s:.3f}",
        str(phase.rounds),
        str(phase.enodes),
        f"{phase.added:+d}",
        phase.stopped or "",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _count(value: float) -> str:
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.2f} {unit}"
    return f"{value:.0f}"


def _time(seconds: float) -> str:
    for limit, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= limit:
            return f"{seconds / limit:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


def _shorten(names: tuple[str, ...]) -> str:
    return " ".join(names) if len(names) <= 8 else f"{' '.join(names[:7])} … ({len(names)} nodes)"
