"""What the rules did, as text: what survives of each, the program without one, the phases."""

from __future__ import annotations

from collections.abc import Sequence

from .report import Ablation, ExtractionReport, PhaseSummary, RuleReport
from .tables import Row, or_dash, paragraph, table_lines
from .units import change, seconds

BUSIEST = 12
"""How many rules the text shows."""


ALONE = "The program compiled again without one ruleset, and how its estimate changes"


def ablation_section(ablation: Sequence[Ablation]) -> list[str]:
    header, rows = ablation_rows(ablation)
    if not rows:
        return []
    return [
        *paragraph(f"Without: {ALONE[0].lower()}{ALONE[1:]}."),
        "",
        *table_lines([header, *rows], (1, 2, 3), (4, 0)),
    ]


def ablation_rows(ablation: Sequence[Ablation]) -> tuple[Row, list[Row]]:
    """The header, and a row for each ruleset; the most useful first."""
    ordered = sorted(ablation, key=lambda each: (-(each.change_s or 0.0), each.name))
    rows: list[Row] = [
        (
            each.name,
            or_dash(each.kernels),
            "-" if each.time_s is None else seconds(each.time_s),
            without(each),
            each.note,
        )
        for each in ordered
        if each.ruleset
    ]
    return ("left out", "kernels", "estimate", "change", "note"), rows


def without(found: Ablation | None) -> str:
    """How the estimate changes; "-" where it is not known."""
    if found is None or found.change_s is None:
        return "-"
    return change(found.change_s) if found.change_s else "none"


RULES = {
    "added": "e-nodes, less what unions merged",
    "survive": "e-nodes of the chosen program that the rule made",
    "without it": "how the estimate changes when the rule is left out",
}


def rules_section(report: ExtractionReport, times: bool) -> list[str]:
    """Without ``times`` only what survives: how often a rule matches is the engine's affair, and differs by its version."""
    if not report.rules:
        return []
    header, rows = rule_rows(report, times)
    lines = []
    if made := survivors(report):
        count = sum(len(each) for _, each in made)
        matched = f"of {len(rows)} that matched, " if times else ""
        said = (
            f"Rules: {matched}{count} made something that is in the chosen program (how many e-nodes of it)."
        )
        lines += [*paragraph(said), ""]
        for phase, each in made:
            lines += paragraph(f"{phase}: {', '.join(each)}", hanging=4)
    if not times:
        return lines
    shown = rows[:BUSIEST]
    said = (
        f"Rules that matched most, {len(shown)} of {len(rows)}."
        if len(shown) < len(rows)
        else "Rules that matched."
    )
    said += "".join(f" {name}: {meaning}." for name, meaning in RULES.items() if name in header)
    lines += [""] if lines else []
    return [*lines, *paragraph(said), "", *table_lines([header, *shown], range(2, len(header)), (1, 0))]


def survivors(report: ExtractionReport) -> list[tuple[str, list[str]]]:
    """By the phase in which they first matched, the rules that made something of the chosen program, with how much."""
    first: dict[str, RuleReport] = {}
    for rule in report.rules:
        first.setdefault(rule.rule, rule)
    found: dict[str, list[RuleReport]] = {}
    for rule in first.values():
        if rule.survives:
            found.setdefault(rule.phase, []).append(rule)
    order = {phase.phase: number for number, phase in enumerate(report.phases)}
    return [
        (
            phase,
            [
                f"{each.rule} {each.survives}"
                for each in sorted(found[phase], key=lambda each: (-(each.survives or 0), each.rule))
            ],
        )
        for phase in sorted(found, key=lambda phase: order.get(phase, len(order)))
    ]


def rule_rows(report: ExtractionReport, times: bool) -> tuple[Row, list[Row]]:
    """The header, and a row for each: what the program needs most first, then what grew the e-graph most where the rules
    were profiled, then what matched most."""
    rules = report.rules
    profiled = any(rule.enodes is not None for rule in rules)
    traced = any(rule.survives is not None for rule in rules)
    alone = {each.name: each for each in report.ablation if not each.ruleset}
    groups: dict[str, list[RuleReport]] = {}
    for rule in rules:
        groups.setdefault(rule.rule, []).append(rule)

    def rank(name: str) -> tuple[object, ...]:
        group, found = groups[name], alone.get(name)
        # what the base lowering cannot do without comes after what competes with something
        needed = (found.change_s or 0.0) if found and not found.note else 0.0
        survive, added, matches = map(sum, _sums(group))
        return -needed, -added, -matches, -survive, name

    header = ["rule", "phases", "matches"]
    header += ["added"] * profiled + ["survive"] * traced + ["without it"] * bool(alone) + ["seconds"] * times
    rows: list[Row] = []
    for name in sorted(groups, key=rank):
        group = groups[name]
        _, added, matches = map(sum, _sums(group))
        cells = [name, " ".join(rule.phase for rule in group), str(matches)]
        cells += [f"{added:+d}"] * profiled + [str(max(_sums(group)[0]))] * traced
        cells += [without(alone.get(name))] * bool(alone)
        cells += [f"{sum(rule.time_s for rule in group):.3f}"] * times
        rows.append(tuple(cells))
    return tuple(header), rows


def _sums(group: Sequence[RuleReport]) -> tuple[list[int], list[int], list[int]]:
    """Survivors, e-nodes added and matches of a rule in each phase."""
    return (
        [rule.survives or 0 for rule in group],
        [rule.enodes or 0 for rule in group],
        [rule.matches for rule in group],
    )


def phases_section(report: ExtractionReport, times: bool) -> list[str]:
    if not report.phases:
        return []
    header, rows = phase_rows(report.phases, times)
    said = "Phases of rewriting: how the e-graph grew, and whether a budget ended a phase."
    return [*paragraph(said), "", *table_lines([header, *rows], right=range(1, len(header) - 1))]


def phase_rows(phases: Sequence[PhaseSummary], times: bool) -> tuple[Row, list[Row]]:
    """The header, and a row for each phase."""
    header = ("phase", "rounds", "e-nodes", "added", *(("seconds",) * times), "ended")
    rows: list[Row] = [
        (
            phase.phase,
            str(phase.rounds),
            str(phase.enodes),
            f"{phase.added:+d}",
            *((f"{phase.time_s:.3f}",) * times),
            f"cut off: {phase.stopped}" if phase.stopped else "saturated",
        )
        for phase in phases
    ]
    return header, rows
