"""The report as HTML: one page, or a piece of one for a notebook. No script, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from .html import Html, element, joined, table
from .report import ExtractionReport, KernelReport
from .roofline import intensity, roofline
from .rule_text import ALONE, ablation_rows, phase_rows, rule_rows, survivors
from .text import (
    PLAN_COLUMNS,
    USAGE_COLUMNS,
    USAGE_LEGEND,
    about,
    bound_by,
    headline,
    longest_first,
    lost_text,
    plan_cells,
    plan_legend,
    rest,
    shape_text,
    sum_text,
    usage_cells,
)
from .units import amount, change, seconds

STYLE = """
.tinyc-report{--ink:#1b1f24;--dim:#57606a;--paper:#fff;--line:#d0d7de;--band:#f6f8fa;--dot:#0a58ca;--roof:#9a3412;
color:var(--ink);background:var(--paper);font:15px/1.5 system-ui,sans-serif;padding:1rem 1.25rem;color-scheme:light dark}
@media(prefers-color-scheme:dark){.tinyc-report{--ink:#e6edf3;--dim:#9da7b3;--paper:#0d1117;--line:#3d444d;
--band:#161b22;--dot:#6cb6ff;--roof:#f0a35e}}
.tinyc-report h1{font-size:1.5rem;margin:.2rem 0 .6rem;overflow-wrap:anywhere}
.tinyc-report h2{font-size:1.15rem;margin:1.8rem 0 .4rem}
.tinyc-report p{max-width:75ch;margin:.4rem 0;overflow-wrap:anywhere}
.tinyc-report .warning{border-left:4px solid var(--roof);padding-left:.7rem;white-space:pre-wrap}
.tinyc-report .scroll{overflow-x:auto;margin:.5rem 0}
.tinyc-report table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;background:var(--paper)}
.tinyc-report caption{text-align:left;color:var(--dim);padding:.2rem 0}
.tinyc-report th,.tinyc-report td{padding:.25rem .7rem;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top;white-space:nowrap;color:var(--ink)}
.tinyc-report td:last-child{white-space:normal;min-width:8rem;max-width:60rem}
.tinyc-report thead th{border-bottom:2px solid var(--line);background:var(--band)}
.tinyc-report tbody th{font-weight:600}
.tinyc-report .n{text-align:right}
.tinyc-report svg{display:block;width:100%;min-width:600px;max-width:900px;height:auto}
.tinyc-report svg text{font:11px system-ui,sans-serif;fill:var(--ink)}
.tinyc-report svg .frame{fill:none;stroke:var(--line)}
.tinyc-report svg .grid{stroke:var(--line);stroke-width:.6}
.tinyc-report svg .roof{stroke:var(--roof);stroke-width:1.8}
.tinyc-report svg .lower{stroke-dasharray:5 4;stroke-width:1.2}
.tinyc-report svg .on{fill:var(--roof)}
.tinyc-report svg .kernel{fill:var(--dot);stroke:var(--paper);stroke-width:1}
.tinyc-report svg .actual{fill:none;stroke:var(--dot);stroke-width:1.6}
.tinyc-report svg .to-actual{stroke:var(--dot);stroke-dasharray:2 2}
.tinyc-report summary{cursor:pointer;color:var(--dim)}
.tinyc-report ul{margin:.4rem 0;padding-left:1.2rem}
.tinyc-report li{overflow-wrap:anywhere}
"""
"""Contrast of ink on paper is over 7 : 1 in both colour schemes, of all other text over 4.5 : 1."""


def to_html(report: ExtractionReport, title: str) -> str:
    """A whole page."""
    name = f"{title}, {report.target}" if title else report.target
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"tinyc report: {name}"),
        element("style", Html(STYLE + "body{margin:0}")),
    )
    body = element("body", element("main", _content(report, name), class_="tinyc-report"))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def fragment(report: ExtractionReport) -> str:
    """What a notebook shows; its style touches nothing else."""
    style = element("style", Html(STYLE))
    return element("div", style, _content(report, report.target), class_="tinyc-report")


def _content(report: ExtractionReport, name: str) -> Html:
    parts = [
        element("h1", f"tinyc report: {name}"),
        *(element("p", text) for text in headline(report)),
        *(element("p", f"{each.severity}: {each}", class_="warning") for each in report.warnings),
    ]
    if report.kernels:
        parts += [_roofline(report), _kernels(report), _terms(report)]
    parts += [_decisions(report), _ablation(report), _rules(report), _phases(report), _rest(report)]
    return joined(parts)


def _section(title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content)


def _roofline(report: ExtractionReport) -> Html:
    said = (
        f"Each dot is a kernel, as estimated on {report.machine.name}. The lines are what the machine can do at most: "
        "on the left memory limits it, on the right arithmetic. What lies far below both spends its time elsewhere, such "
        "as on its launch. Rings are measured times."
    )
    plot = element(
        "div", roofline(report), class_="scroll", tabindex="0", role="region", aria_label="Roofline plot"
    )
    return _section("Roofline", element("p", said), plot)


def _kernels(report: ExtractionReport) -> Html:
    measured = any(kernel.actual_s is not None for kernel in report.kernels)
    header = ("region", "output", "FLOPs", "bytes", "FLOP/B", "estimate", *(("measured",) * measured))
    rows = [
        (
            kernel.region,
            f"{kernel.dtype}{shape_text(kernel.shape)}",
            amount(kernel.flops),
            amount(kernel.bytes),
            amount(intensity(kernel)),
            seconds(kernel.time_s),
            *((_actual(kernel),) * measured),
            bound_by(kernel),
            kernel.symbol or "no code",
            _few(kernel.fused),
        )
        for kernel in report.kernels
    ]
    plans = [(kernel.region, *plan_cells(kernel.plan)) for kernel in report.kernels]
    taken = [usage_cells(each) for each in report.usage]
    compiled = table(USAGE_LEGEND, USAGE_COLUMNS, taken, range(2, len(USAGE_COLUMNS)))
    sums = element(
        "ul", *(element("li", f"{kernel.region}: {sum_text(kernel)}") for kernel in report.kernels)
    )
    return _section(
        "Kernels",
        table(
            "In the order in which they run, with the nodes of the document that they compute",
            (*header, "bound by", "symbol", "computes"),
            rows,
            range(2, len(header)),
        ),
        table(plan_legend(PLAN_COLUMNS), ("kernel", *PLAN_COLUMNS), plans, range(2, 1 + len(PLAN_COLUMNS))),
        compiled if taken else Html(""),
        element("details", element("summary", "What each estimate is the sum of"), sums),
    )


def _actual(kernel: KernelReport) -> str:
    return "-" if kernel.actual_s is None else seconds(kernel.actual_s)


def _few(names: Sequence[str]) -> str:
    return " ".join(names) if len(names) <= 8 else f"{' '.join(names[:7])} … ({len(names)} nodes)"


def _terms(report: ExtractionReport) -> Html:
    total, naive = report.total, report.naive
    rows = [
        (
            name,
            seconds(total.terms_s.get(name, 0.0)),
            seconds(naive.terms_s.get(name, 0.0)),
            change(naive.terms_s.get(name, 0.0) - total.terms_s.get(name, 0.0)),
        )
        for name in longest_first(total.terms_s, naive.terms_s)
    ]
    rows.append(
        ("estimate", seconds(total.time_s), seconds(naive.time_s), change(naive.time_s - total.time_s))
    )
    header = ("term", "extracted", "naive", "naive costs more")
    caption = "The terms of the cost model, of this program and of the naive one"
    return _section("Where the time goes", table(caption, header, rows, (1, 2, 3)))


def _decisions(report: ExtractionReport) -> Html:
    if not report.decisions:
        return Html("")
    rows = [
        (about(each), each.kind, each.chosen, each.runner_up, change(each.change_s), lost_text(each))
        for each in report.decisions
    ]
    header = ("about", "kind", "chosen", "runner-up", "costs", "lost by")
    return _section(
        "Decisions", table("What else could have been chosen, and why it was not", header, rows, (4,))
    )


def _ablation(report: ExtractionReport) -> Html:
    header, rows = ablation_rows(report.ablation)
    return _section("Without", table(ALONE, header, rows, (1, 2, 3))) if rows else Html("")


def _rules(report: ExtractionReport) -> Html:
    if not report.rules:
        return Html("")
    header, rows = rule_rows(report, True)
    made = [(phase, ", ".join(each)) for phase, each in survivors(report)]
    lasting = table("What is in the chosen program, and how many e-nodes of it", ("phase", "made by"), made)
    shown = table(f"The {min(len(rows), 15)} that matched most", header, rows[:15], range(2, len(header)))
    others = element(
        "details",
        element("summary", f"All {len(rows)} that matched"),
        table("All rules that matched", header, rows, range(2, len(header))),
    )
    return _section("Rules", lasting if made else Html(""), shown, others if len(rows) > 15 else Html(""))


def _phases(report: ExtractionReport) -> Html:
    if not report.phases:
        return Html("")
    header, rows = phase_rows(report.phases, True)
    caption = "How the e-graph grew, and whether a budget ended a phase"
    return _section("Phases", table(caption, header, rows, range(1, len(header) - 1)))


def _rest(report: ExtractionReport) -> Html:
    lines = rest(report, True)
    return _section("Memory and time", *(element("p", line) for line in lines)) if lines else Html("")
