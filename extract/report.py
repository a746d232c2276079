"""The extraction report: what was chosen, what each kernel is estimated to cost, what the rules did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tinyc.egraph.saturate import Saturation
from tinyc.ir.diagnostics import Diagnostic
from tinyc.ir.plan import Extracted
from tinyc.ir.region import Reduce, Region

from .cost import CostModel
from .estimate import estimate

VERSION = 1
"""Of the JSON form; raised when a key changes its meaning."""


@dataclass(frozen=True)
class KernelReport:
    """One kernel. ``symbol``: its entry symbol in the generated code. ``algo``: the schedule. ``contractions``, ``reductions``: sums over products, all reductions.
    ``fused``: the document's nodes that it computes. FLOPs, bytes and seconds are estimates."""

    name: str
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
    """What a rule did in one phase: matches, and seconds of true time."""

    rule: str
    phase: str
    matches: int
    time_s: float


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
    kernels: int
    flops: float
    bytes: float
    time_s: float


@dataclass(frozen=True)
class ExtractionReport:
    """``str()`` is a table for people, :meth:`to_json` for programs (stable; ``version`` changes with its meaning).

    ``fallback``: the engine gave nothing back and the naive program runs. ``complete``: every phase ran to its end.
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

    def to_json(self) -> str:
        """Strict JSON with sorted keys."""
        data: dict[str, Any] = {"version": VERSION, **asdict(self)}
        data["warnings"] = [warning.to_json() for warning in self.warnings]
        return json.dumps(data, indent=2, sort_keys=True, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"tinyc report, target {self.target}, egglog {self.engine}", ""]
        rows = [("kernel", "output", "schedule", "FLOPs", "bytes", "estimate", "fused")]
        for kernel in self.kernels:
            shape = "x".join(map(str, kernel.shape)) or "scalar"
            rows.append(
                (
                    kernel.name,
                    f"{kernel.dtype}[{shape}]",
                    kernel.algo,
                    _count(kernel.flops),
                    _count(kernel.bytes),
                    _time(kernel.time_s),
                    _shorten(kernel.fused),
                )
            )
        for label, total in (("extracted", self.total), ("naive", self.naive)):
            rows.append(
                (
                    label,
                    f"{total.kernels} kernels",
                    "",
                    _count(total.flops),
                    _count(total.bytes),
                    _time(total.time_s),
                    "",
                )
            )
        lines += _table(rows)
        gain = self.naive.time_s / self.total.time_s if self.total.time_s else 1.0
        lines += ["", f"estimated {gain:.2f} times as fast as one kernel per reduction and output"]
        if self.fallback:
            lines.append("the naive program runs: the engine gave nothing back")
        lines += [
            "",
            *_table(
                [("phase", "seconds", "rounds", "e-nodes", "added", "stopped"), *map(_phase_row, self.phases)]
            ),
        ]
        busiest = sorted(self.rules, key=lambda rule: (-rule.matches, rule.rule))[:12]
        if busiest:
            rule_rows = [(rule.rule, rule.phase, str(rule.matches), f"{rule.time_s:.3f}") for rule in busiest]
            lines += ["", *_table([("rule (most matches)", "phase", "matches", "seconds"), *rule_rows])]
        lines += [f"warning: {warning}" for warning in self.warnings]
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
    for number, (region, plan) in enumerate(zip(extracted.regions, extracted.plans, strict=True)):
        found = estimate(region, plan, model)
        reductions = [let for let in region.lets if isinstance(let.value, Reduce)]
        (out,) = region.outputs
        kernels.append(
            KernelReport(
                region.name,
                symbols[number] if symbols else "",
                out.name,
                out.dtype.value,
                out.shape,
                plan.algo,
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
        Totals(
            len(kernels),
            sum(kernel.flops for kernel in kernels),
            sum(kernel.bytes for kernel in kernels),
            sum(kernel.time_s for kernel in kernels),
        ),
        _totals(naive, model),
        tuple(
            PhaseSummary(
                p.name, p.seconds, p.rounds, p.steps, p.enodes, p.enodes - p.enodes_before, p.stopped
            )
            for p in phases
        ),
        tuple(
            RuleReport(rule, phase.name, matches, phase.rule_seconds.get(rule, 0.0))
            for phase in phases
            for rule, matches in sorted(phase.rule_matches.items())
            if matches
        ),
        dict(sorted(phases[-1].sizes.items())) if phases else {},
        warnings,
        fallback,
        bool(saturation and saturation.complete),
        seconds,
    )


def contractions_of(region: Region) -> tuple[str, ...]:
    """The sums over a product, by the names of their lets."""
    lets = {let.name: let.value for let in region.lets}
    return tuple(
        name
        for name, value in lets.items()
        if isinstance(value, Reduce) and value.op == "SUM" and getattr(lets[value.body], "op", None) == "MUL"
    )


def _totals(program: Extracted, model: CostModel) -> Totals:
    found = [
        estimate(region, plan, model) for region, plan in zip(program.regions, program.plans, strict=True)
    ]
    return Totals(
        len(found), sum(e.flops for e in found), sum(e.bytes for e in found), sum(e.time_s for e in found)
    )


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
