"""Two reports side by side: what moved from the first to the second, by which term of the cost, and by which rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from .report import ExtractionReport, KernelReport, RuleReport
from .tables import paragraph, table_lines
from .text import longest_first, plan_words, shape_text
from .units import amount, change, seconds

VERSION = 1
"""Of the JSON form."""

SHOWN = 20
"""Kernels and rules of which the text tells."""


@dataclass(frozen=True)
class Moved:
    """A figure of the whole program in both reports."""

    name: str
    first: float
    second: float

    @property
    def change(self) -> float:
        return self.second - self.first


@dataclass(frozen=True)
class KernelChange:
    """A kernel that is in one report only (the other time is None), or whose estimate, schedule or plan changed. It is
    known by the buffer that it writes. ``what``: in words. ``by``: the term of its estimate that moved most, empty where
    none did or where there is no pair."""

    output: str
    what: str
    first_s: float | None
    second_s: float | None
    by: str = ""


@dataclass(frozen=True)
class RuleChange:
    """A rule whose matches or survivors differ, over all phases. None: it was not recorded. ``only``: "first" or "second"
    where the other report does not have it."""

    rule: str
    matches: tuple[int, int]
    survives: tuple[int | None, int | None]
    only: str = ""


@dataclass(frozen=True)
class Comparison:
    """From ``first`` to ``second``, which are names for people. ``totals``: kernels, flops, bytes and time_s. ``terms_s``:
    of the whole program, the longest first. ``rules``: those that matter most first."""

    first: str
    second: str
    targets: tuple[str, str]
    totals: tuple[Moved, ...]
    terms_s: tuple[Moved, ...]
    kernels: tuple[KernelChange, ...]
    rules: tuple[RuleChange, ...]

    @property
    def same(self) -> bool:
        """No figure, kernel or rule differs."""
        return not (self.kernels or self.rules or any(each.change for each in (*self.totals, *self.terms_s)))

    def to_json(self) -> str:
        """Strict JSON with sorted keys."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2, sort_keys=True, allow_nan=False)

    def __str__(self) -> str:
        return _text(self)


def compare_reports(
    first: ExtractionReport, second: ExtractionReport, names: tuple[str, str] = ("first", "second")
) -> Comparison:
    """What moved from ``first`` to ``second``: the same program by two rule sets, for two targets, before and after a
    change. Kernels are paired by the buffers that they write. ``names``: what to call the two."""
    one, two = first.total, second.total
    totals = tuple(
        Moved(name, float(getattr(one, name)), float(getattr(two, name)))
        for name in ("kernels", "flops", "bytes", "time_s")
    )
    terms = tuple(
        Moved(name, one.terms_s.get(name, 0.0), two.terms_s.get(name, 0.0))
        for name in longest_first(one.terms_s, two.terms_s)
    )
    return Comparison(
        *names,
        (first.target, second.target),
        totals,
        terms,
        _kernels(first.kernels, second.kernels),
        _rules(first.rules, second.rules),
    )


def _kernels(first: Sequence[KernelReport], second: Sequence[KernelReport]) -> tuple[KernelChange, ...]:
    one, two = ({kernel.output: kernel for kernel in kernels} for kernels in (first, second))
    found = []
    for output in dict.fromkeys((*one, *two)):
        before, after = one.get(output), two.get(output)
        if before is None and after is not None:
            found.append(KernelChange(output, _appeared(after, one.values()), None, after.time_s))
        elif after is None and before is not None:
            found.append(KernelChange(output, _gone(before, two.values()), before.time_s, None))
        elif before is not None and after is not None and (what := _differs(before, after)):
            by = _mover(before.terms_s, after.terms_s)
            found.append(KernelChange(output, what, before.time_s, after.time_s, by))
    return tuple(found)


def _gone(kernel: KernelReport, others: Iterable[KernelReport]) -> str:
    """Where its work went, if the second report says so."""
    homes = [other.region for other in others if set(other.fused) & set(kernel.fused)]
    return f"no kernel any more: computed in {', '.join(homes[:3])}" if homes else "no kernel any more"


def _appeared(kernel: KernelReport, others: Iterable[KernelReport]) -> str:
    homes = [other.region for other in others if set(other.fused) & set(kernel.fused)]
    return f"a new kernel: was computed in {', '.join(homes[:3])}" if homes else "a new kernel"


def _differs(before: KernelReport, after: KernelReport) -> str:
    """What is different about a kernel, in words; empty where nothing is."""
    said = []
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        one, two = (f"{each.dtype}{shape_text(each.shape)}" for each in (before, after))
        said.append(f"writes {two}, not {one}")
    if before.algo != after.algo:
        said.append(f"{before.algo} became {after.algo}")
    if before.plan != after.plan:
        one, two = plan_words(before.plan), plan_words(after.plan)
        said.append(f"plan {one} became {two}" if one != two else "another plan")
    gained = [name for name in after.fused if name not in before.fused]
    lost = [name for name in before.fused if name not in after.fused]
    if gained:
        said.append(f"computes {_few(gained)} too")
    if lost:
        said.append(f"computes {_few(lost)} no more")
    if not said and (
        before.time_s != after.time_s or before.bytes != after.bytes or before.flops != after.flops
    ):
        said.append("same form, another cost")
    return "; ".join(said)


def _few(names: Sequence[str]) -> str:
    return " ".join(names) if len(names) <= 4 else f"{' '.join(names[:3])} and {len(names) - 3} more"


def _mover(one: Mapping[str, float], two: Mapping[str, float]) -> str:
    """The term that moved most, with its change."""
    moves = {name: two.get(name, 0.0) - one.get(name, 0.0) for name in sorted({*one, *two})}
    most = max(moves, key=lambda name: abs(moves[name]), default="")
    return f"{most} {change(moves[most])}" if most and moves[most] else ""


def _rules(first: Sequence[RuleReport], second: Sequence[RuleReport]) -> tuple[RuleChange, ...]:
    one, two = _summed(first), _summed(second)
    found = []
    for name in sorted({*one, *two}):
        before, after = one.get(name, (0, None)), two.get(name, (0, None))
        recorded = before[1] is not None and after[1] is not None
        if before[0] != after[0] or (recorded and before[1] != after[1]):
            only = "second" if name not in one else "first" if name not in two else ""
            found.append(RuleChange(name, (before[0], after[0]), (before[1], after[1]), only))
    return tuple(sorted(found, key=_weight))


def _weight(rule: RuleChange) -> tuple[int, bool, int, str]:
    """Rules of the chosen program first, then those that only one report has, then by the change of matches."""
    survivors = abs((rule.survives[1] or 0) - (rule.survives[0] or 0))
    return -survivors, not rule.only, -abs(rule.matches[1] - rule.matches[0]), rule.rule


def _summed(rules: Iterable[RuleReport]) -> dict[str, tuple[int, int | None]]:
    """Matches and survivors of each rule over all phases. What survives is of the rule, not of a phase."""
    found: dict[str, tuple[int, int | None]] = {}
    for rule in rules:
        matches, survives = found.get(rule.rule, (0, None))
        known = [each for each in (survives, rule.survives) if each is not None]
        found[rule.rule] = matches + rule.matches, max(known, default=None)
    return found


# ---- as text --------------------------------------------------------------------------------------------------------


def _text(found: Comparison) -> str:
    lines = paragraph(
        f"From {found.first} ({found.targets[0]}) to {found.second} ({found.targets[1]}):", hanging=2
    )
    lines += paragraph(_said(found), hanging=2)
    rows = [(FIGURES[each.name], *_figures(each)) for each in found.totals]
    rows += [(f"  {each.name}", *_figures(each)) for each in found.terms_s]
    lines += ["", *table_lines([("total", "first", "second", "change"), *rows], right=(1, 2, 3), cut=(0,))]
    if found.kernels:
        shown = sorted(found.kernels, key=lambda each: -abs((each.second_s or 0.0) - (each.first_s or 0.0)))[
            :SHOWN
        ]
        lines += [
            "",
            f"Kernels that moved, {len(shown)} of {len(found.kernels)}, by the buffer that they write:",
            "",
        ]
        for kernel in shown:
            lines += paragraph(f"{kernel.output}: {_times(kernel)}: {kernel.what}", hanging=4)
    if found.rules:
        lines += ["", *_rule_lines(found.rules)]
    return "\n".join(lines)


def _rule_lines(rules: Sequence[RuleChange]) -> list[str]:
    traced = any(each.survives != (None, None) for each in rules)
    header = ["rule", "matches", "then", *(("survive", "then") if traced else ()), ""]
    rows = []
    for each in rules[:SHOWN]:
        cells = [each.rule, *map(str, each.matches), *(map(_survivors, each.survives) if traced else ())]
        rows.append((*cells, f"only in the {each.only}" if each.only else ""))
    said = f"Rules that did something else, {len(rows)} of {len(rules)}."
    said += " survive: e-nodes of the chosen program that the rule made." if traced else ""
    return [*paragraph(said), "", *table_lines([tuple(header), *rows], range(1, len(header) - 1), (0,))]


FIGURES = {"kernels": "kernels", "flops": "FLOPs", "bytes": "bytes", "time_s": "estimate"}


def _said(found: Comparison) -> str:
    """The comparison in a sentence."""
    if found.same:
        return "nothing moved."
    time = next(each for each in found.totals if each.name == "time_s")
    if not time.change:
        return f"the estimate stays at {seconds(time.first)}."
    faster = time.change < 0
    ratio = (
        time.first / time.second
        if faster and time.second
        else time.second / time.first
        if time.first
        else 0.0
    )
    most = max(found.terms_s, key=lambda each: -each.change if faster else each.change, default=None)
    by = f", most by its {most.name} ({change(most.change)})" if most is not None and most.change else ""
    times = f"{ratio:.2f} times as {'fast' if faster else 'slow'}" if ratio else "slower"
    return f"estimated {times}: {seconds(time.first)} became {seconds(time.second)}{by}."


def _figures(each: Moved) -> tuple[str, str, str]:
    if each.name in ("kernels", "flops", "bytes"):
        sign = "+" if each.change >= 0 else "-"
        return amount(each.first), amount(each.second), f"{sign}{amount(abs(each.change))}"
    return seconds(each.first), seconds(each.second), change(each.change)


def _times(kernel: KernelChange) -> str:
    if kernel.first_s is None or kernel.second_s is None:
        known = (each for each in (kernel.first_s, kernel.second_s) if each is not None)
        return seconds(next(known, 0.0))
    by = f", most by {kernel.by}" if kernel.by else ""
    return f"{seconds(kernel.first_s)} became {seconds(kernel.second_s)}{by}"


def _survivors(count: int | None) -> str:
    return "?" if count is None else str(count)
