"""The report as text: sections, each with a sentence that says what it is, and tables of at most 110 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyc.ir.usage import KernelUsage

from .decisions import Decision
from .report import (
    ExtractionReport,
    KernelReport,
    PlanReport,
    SearchReport,
    Totals,
)
from .rule_text import ablation_section, phases_section, rules_section
from .tables import Row, or_dash, paragraph, table_lines
from .units import amount, change, seconds, share

LISTED = 40
"""How many kernels the text shows: the slowest, in the order in which they run."""


def to_text(report: ExtractionReport, times: bool) -> str:
    """``times``: with what a clock said."""
    sections = [
        _summary(report, times),
        _kernels(report, times),
        _plans(report),
        *((_usage(report),) * times),
        _estimates(report),
        _terms(report.total, report.naive),
        _decisions(report.decisions),
        ablation_section(report.ablation),
        rules_section(report, times),
        phases_section(report, times),
        _rest(report, times),
    ]
    lines: list[str] = []
    for section in sections:
        if section:
            lines += [*([""] if lines else []), *section]
    return "\n".join(line.rstrip() for line in lines)


# ---- sections -------------------------------------------------------------------------------------------------------


def _summary(report: ExtractionReport, times: bool) -> list[str]:
    engine = f", egglog {report.engine}" if times else ""
    lines = [f"tinyc report, target {report.target}{engine}", ""]
    lines += paragraph(" ".join(headline(report)))
    for warning in report.warnings:
        lines += paragraph(f"{warning.severity}: {warning}", hanging=2)
    return lines


def headline(report: ExtractionReport) -> list[str]:
    """The report in a few sentences."""
    total, naive = report.total, report.naive
    count = f"{total.kernels} kernel{'s' * (total.kernels != 1)}"
    said = [f"{count}, estimated {seconds(total.time_s)}."]
    if report.fallback:
        said.append("The naive program runs: the engine gave nothing back.")
    elif report.phases and total.time_s:
        gain = naive.time_s / total.time_s
        said.append(
            f"That is {gain:.2f} times as fast as the naive program, which has one kernel per reduction and output: "
            f"{naive.kernels} kernel{'s' * (naive.kernels != 1)}, {seconds(naive.time_s)}."
        )
    lost = dearest(total.terms_s, naive.terms_s)
    if lost and not report.fallback and naive.time_s > total.time_s:
        term, more = lost
        said.append(f"The naive program lost by its {term}: {seconds(more)} more.")
    for what, names in (("Left out", report.without), ("Switched on", report.also), ("Added", report.added)):
        if names:
            said.append(f"{what}: {', '.join(names)}.")
    if report.search is not None:
        said.append(searched(report.search))
    measured = [kernel for kernel in report.kernels if kernel.actual_s is not None]
    if measured:
        actual = sum(kernel.actual_s or 0.0 for kernel in measured)
        guess = sum(kernel.time_s for kernel in measured)
        said.append(
            f"Measured: {seconds(actual)} where the estimate says {seconds(guess)} ({len(measured)} kernels)."
        )
    return said


def searched(search: SearchReport) -> str:
    """How good the choice is, in a sentence."""
    weighed = f"{search.kernels} kernels weighed, {search.variables} variables"
    if search.optimal:
        said = f"No other choice of kernels is estimated at less: proved by an integer program ({weighed})."
    elif search.limit == "greedy":
        said = "The greedy choice of kernels, as it is: no exact search was asked for."
    elif search.limit == "plans":
        said = (
            f"The search knows a choice of kernels at {share(search.gap)} less ({weighed}), but it does not see all that Plans "
            "cost: finished, that program is estimated at more."
        )
    elif search.limit == "legality":
        said = f"The search knows a choice of kernels at {share(search.gap)} less ({weighed}), but not all of them can be built."
    elif search.gap >= 1:
        said = f"No bound of other choices was found: the exact search ended at its limit of {search.limit}."
    elif search.limit == "parts":
        said = f"Another choice of kernels could be estimated at {share(search.gap)} less at most: the search was in parts ({weighed})."
    else:
        ended = f"; the exact search ended at its limit of {search.limit} ({weighed})" if search.limit else ""
        said = f"Another choice of kernels could be estimated at {share(search.gap)} less at most{ended}."
    # both are prices of the search, which finished Plans may undercut: not the estimate above
    if search.exact_s < search.greedy_s * (1 - 1e-6):
        said += (
            f" Before Plans were finished, it began with kernels at {seconds(search.greedy_s)} and put these "
            f"at {seconds(search.exact_s)}."
        )
    return said


def _kernels(report: ExtractionReport, symbols: bool) -> list[str]:
    shown, hidden = _slowest(report.kernels)
    if not shown:
        return []
    header = (
        "region",
        "output",
        "schedule",
        "FLOPs",
        "bytes",
        "estimate",
        "bound by",
        *(("kernel",) * symbols),
    )
    rows = [
        (
            kernel.region,
            f"{kernel.dtype}{shape_text(kernel.shape)}",
            kernel.algo,
            amount(kernel.flops),
            amount(kernel.bytes),
            seconds(kernel.time_s),
            bound_by(kernel),
            *((kernel.symbol or "no code",) * symbols),
        )
        for kernel in shown
    ]
    lines = [
        *paragraph(
            "Kernels, in the order in which they run. A multiply-add is two FLOPs; bytes count each buffer once."
        ),
        "",
        *table_lines([header, *rows], right=(3, 4, 5), cut=(1, 0, *((7,) * symbols))),
    ]
    if hidden:
        lines.append(
            f"and {len(hidden)} faster ones, {seconds(sum(each.time_s for each in hidden))} together"
        )
    fused = [
        paragraph(f"{kernel.region} computes {_shorten(kernel.fused)}", hanging=2)
        for kernel in shown
        if kernel.fused
    ]
    if fused:
        lines += [
            "",
            "Which nodes of the document each kernel computes:",
            "",
            *(line for each in fused for line in each),
        ]
    return lines


PLAN_COLUMNS = (
    "algorithm",
    "tile",
    "warp",
    "stages",
    "vector",
    "blocks",
    "threads",
    "regs",
    "smem",
    "occ",
    "waves",
)


def _plans(report: ExtractionReport) -> list[str]:
    """Only what some kernel has a Plan for."""
    shown, _ = _slowest(report.kernels)
    planned = [kernel for kernel in shown if kernel.plan.tile or kernel.plan.blocks]
    if not planned:
        return []
    columns = list(zip(*(plan_cells(kernel.plan) for kernel in planned), strict=True))
    kept = [number for number, column in enumerate(columns) if any(cell != "-" for cell in column)]
    header = ("kernel", *(PLAN_COLUMNS[number] for number in kept))
    rows = [(kernel.region, *(plan_cells(kernel.plan)[number] for number in kept)) for kernel in planned]
    return [
        *paragraph(plan_legend(header)),
        "",
        *table_lines([header, *rows], right=range(2, len(header)), cut=(0, 1)),
    ]


USAGE_COLUMNS = ("kernel", "arch", "registers", "stack", "spill stores", "spill loads", "shared")
USAGE_LEGEND = (
    "Compiled: what each kernel takes, by ptxas. registers, stack: of a thread, bytes of local memory; spill stores and loads: "
    "bytes of the instructions; shared: of a block, without what its launch asks for."
)


def _usage(report: ExtractionReport) -> list[str]:
    """What a compiler says, whose version is not tinyc's to choose."""
    if not report.usage:
        return []
    rows = [usage_cells(each) for each in report.usage]
    return [*paragraph(USAGE_LEGEND), "", *table_lines([USAGE_COLUMNS, *rows], right=range(2, 7))]


def usage_cells(usage: KernelUsage) -> Row:
    """One cell for each of :data:`USAGE_COLUMNS`."""
    sizes = (usage.stack_bytes, usage.spill_store_bytes, usage.spill_load_bytes, usage.shared_bytes)
    return usage.kernel, usage.arch, str(usage.registers), *(f"{amount(size)}B" for size in sizes)


PLANS = {
    "tile": "points of m x n x k (loops: 1 x points x threads of a sum)",
    "warp": "the part of one warp (wgmma: of a warpgroup)",
    "stages": "tiles in the shared-memory ring",
    "vector": "elements of one access",
    "regs": "of a thread",
    "smem": "of a block",
    "occ": "resident warps over those possible",
}


def plan_legend(header: Sequence[str]) -> str:
    """What the columns of the plans mean."""
    said = "; ".join(f"{name}: {meaning}" for name, meaning in PLANS.items() if name in header)
    return f"Plans: how each kernel is cut for the machine. {said}."


def plan_cells(plan: PlanReport) -> Row:
    """One cell for each of :data:`PLAN_COLUMNS`; "-" where there is nothing to say."""
    stages = or_dash(plan.stages) + (" async" if plan.async_copies else "")
    return (
        plan.algorithm,
        "x".join(map(str, plan.tile)) if plan.tile else "-",
        "x".join(map(str, plan.warp_tile)) if plan.warp_tile else "-",
        stages,
        or_dash(plan.vector),
        or_dash(plan.blocks),
        or_dash(plan.threads),
        or_dash(plan.registers),
        f"{amount(plan.smem_bytes)}B" if plan.smem_bytes else "-",
        share(plan.occupancy) if plan.occupancy is not None else "-",
        or_dash(plan.waves),
    )


def plan_words(plan: PlanReport) -> str:
    """A Plan in a few words: its tile, warp and stages."""
    parts = [
        plan.algorithm if plan.algorithm != "implicit_gemm" else "",
        "x".join(map(str, plan.tile)) if plan.tile else "",
        f"warp {'x'.join(map(str, plan.warp_tile))}" if plan.warp_tile else "",
        f"{plan.stages} stages" if plan.stages else "",
    ]
    return " ".join(part for part in parts if part)


def _estimates(report: ExtractionReport) -> list[str]:
    """What each kernel's estimate is made of, and what was measured."""
    shown, _ = _slowest(report.kernels)
    if not shown:
        return []
    lines = [
        *paragraph(
            "Estimates: the terms of each kernel's time, the longest first (docs/cost.md). Arithmetic and memory overlap: "
            "the shorter of the two is hidden."
        ),
        "",
    ]
    for kernel in shown:
        lines += paragraph(f"{kernel.region}: {sum_text(kernel)}", hanging=4)
    return lines


def sum_text(kernel: KernelReport) -> str:
    """A kernel's estimate as a sum of its terms."""
    terms = sorted(kernel.terms_s.items(), key=lambda term: (-term[1], term[0]))
    parts = [
        f"{'- ' if value < 0 else '+ ' if number else ''}{name} {seconds(abs(value))}"
        for number, (name, value) in enumerate(terms)
    ]
    said = f"{seconds(kernel.time_s)} = {' '.join(parts)}" if parts else seconds(kernel.time_s)
    hidden = "".join(f"; hides {name} {seconds(value)}" for name, value in kernel.hidden_s.items() if value)
    actual = f"; measured {seconds(kernel.actual_s)}" if kernel.actual_s is not None else ""
    return said + hidden + actual


def _terms(total: Totals, naive: Totals) -> list[str]:
    """The extracted program beside the naive one."""
    header = ("program", "kernels", "FLOPs", "bytes", "estimate")
    rows = [
        (label, str(each.kernels), amount(each.flops), amount(each.bytes), seconds(each.time_s))
        for label, each in (("extracted", total), ("naive", naive))
    ]
    terms = [
        (
            name,
            seconds(total.terms_s.get(name, 0.0)),
            seconds(naive.terms_s.get(name, 0.0)),
            change(naive.terms_s.get(name, 0.0) - total.terms_s.get(name, 0.0)),
        )
        for name in longest_first(total.terms_s, naive.terms_s)
    ]
    return [
        *paragraph("The extracted program beside the naive one, and where the time goes in each."),
        "",
        *table_lines([header, *rows], right=(1, 2, 3, 4)),
        "",
        *table_lines([("term", "extracted", "naive", "naive costs more"), *terms], right=(1, 2, 3)),
    ]


def _decisions(decisions: Sequence[Decision]) -> list[str]:
    if not decisions:
        return []
    header = ("about", "chosen", "runner-up", "costs", "lost by")
    rows = [
        (about(each), each.chosen, each.runner_up, change(each.change_s), lost_text(each))
        for each in decisions
    ]
    return [
        *paragraph(
            "Decisions: what else could have been chosen, what the whole program (of a plan: its kernel) would cost more "
            "with it, and the term by which it lost. Programs are compared as the search sees them, before they have plans."
        ),
        "",
        *table_lines([header, *rows], right=(3,), cut=(1, 2, 0)),
    ]


def about(decision: Decision) -> str:
    return decision.subject + (f" ({decision.count} alike)" if decision.count > 1 else "")


def lost_text(decision: Decision) -> str:
    """The term by which the runner-up lost, and what it lost by it."""
    if decision.change_s < 0:
        return "not found by the search"
    if not decision.lost_by:
        return "-"
    more = decision.terms_s[decision.lost_by]
    return decision.lost_by if more == decision.change_s else f"{decision.lost_by} {change(more)}"


def _rest(report: ExtractionReport, times: bool) -> list[str]:
    return [line for text in rest(report, times) for line in paragraph(text)]


def rest(report: ExtractionReport, times: bool) -> list[str]:
    """What is said of memory, of copies and of the compilation's time, a sentence each."""
    lines = []
    if report.arena.bytes:
        held, live = amount(report.arena.bytes), amount(report.arena.lower_bound)
        lines.append(f"Memory: {held}B between kernels; {live}B live at one time.")
    lines += [
        f"{each.region}: {'no Plan is better than' if each.taken else 'passed over:'} {each.plan}, {each.why}."
        for each in report.refused * times
    ]
    lines += [
        f"{each.buffer} is deferred: {each.producer} hands it to {each.consumer} through memory, {amount(each.bytes)}B."
        for each in report.deferred
    ]
    lines += [
        f"input {each.input} was copied in {each.calls} calls, {amount(each.bytes)}B: not dense row-major, or not aligned"
        for each in report.copied
    ]
    if times and report.seconds:
        ordered = sorted(report.seconds.items(), key=lambda item: (-item[1], item[0]))
        spent = ", ".join(f"{stage} {taken:.3f} s" for stage, taken in ordered)
        lines.append(f"Compiled in {sum(report.seconds.values()):.3f} s: {spent}.")
    return lines


# ---- pieces ---------------------------------------------------------------------------------------------------------


def dearest(fast: Mapping[str, float], slow: Mapping[str, float]) -> tuple[str, float] | None:
    """The term that is most larger in ``slow``, and by how much; None where none is."""
    more = {name: value - fast.get(name, 0.0) for name, value in slow.items()}
    most = max(sorted(more), key=lambda name: more[name], default="")
    return (most, more[most]) if most and more[most] > 0 else None


def longest_first(*terms: Mapping[str, float]) -> list[str]:
    """The names of all terms, by the longest time that one of them has."""
    longest = {name: max(each.get(name, 0.0) for each in terms) for name in {*terms[0], *terms[-1]}}
    return sorted(longest, key=lambda name: (-longest[name], name))


def bound_by(kernel: KernelReport) -> str:
    """The longest term of a kernel's estimate."""
    return max(sorted(kernel.terms_s), key=lambda name: kernel.terms_s[name], default="-")


def shape_text(shape: Sequence[int]) -> str:
    return f"[{'x'.join(map(str, shape)) or 'scalar'}]"


def _slowest(kernels: Sequence[KernelReport]) -> tuple[list[KernelReport], list[KernelReport]]:
    """Those that are shown, in order, and the others."""
    ranked = sorted(range(len(kernels)), key=lambda number: (-kernels[number].time_s, number))
    shown = set(ranked[:LISTED])
    return [k for n, k in enumerate(kernels) if n in shown], [
        k for n, k in enumerate(kernels) if n not in shown
    ]


def _shorten(names: Sequence[str]) -> str:
    return " ".join(names) if len(names) <= 24 else f"{' '.join(names[:23])} … ({len(names)} nodes)"
