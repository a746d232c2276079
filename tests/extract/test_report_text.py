"""The report as text: sections that fit a terminal, and say what they are."""

from __future__ import annotations

import pytest
from report_examples import a_kernel, a_report, many

from tinyc.extract.report.report import ExtractionReport, PlanReport, SearchReport
from tinyc.extract.report.tables import WIDTH
from tinyc.extract.report.text import LISTED, headline

LONG = "a_kernel_with_a_name_that_goes_on_" * 6


@pytest.mark.parametrize(
    "report",
    [
        a_report(),
        many(),
        a_report(a_kernel(LONG, symbol=LONG, shape=(1,) * 40, fused=(LONG,) * 50)),
        a_report(a_kernel(plan=PlanReport("loops"), terms_s={}, hidden_s={}, fused=())),
        a_report(a_kernel(flops=0.0, size=0.0, time_s=0.0, terms_s={"launch": 0.0})),
    ],
)
def test_no_line_is_longer_than_a_terminal_or_ends_in_blanks(report: ExtractionReport) -> None:
    for times in (True, False):
        lines = report.to_text(times).splitlines()
        assert max(map(len, lines)) <= WIDTH
        assert not any(line != line.rstrip() for line in lines)
        assert "\n\n\n" not in report.to_text(times)


def test_every_part_is_there() -> None:
    text = " ".join(str(a_report()).split())
    for said in (
        "1 kernel, estimated 10.00 us.",
        "Left out: streaming.",
        "could be estimated at 4.0% less at most; the exact search ended at its limit of seconds",
        "warning: ",
        "Kernels,",
        "Plans:",
        "Estimates:",
        "Decisions:",
        "n1 SUM (3 alike)",
        "launch +3.00 us",
        "Without:",
        "Rules that matched.",
        "cut off: enodes",
        "compute 8.00 us + launch 3.00 us - overlap 1.00 us; hides memory 2.00 us",
    ):
        assert said in text, said


def test_without_times_nothing_that_a_clock_said_is_left() -> None:
    report = a_report()
    text = report.to_text(times=False)
    assert not [said for said in ("  seconds", "Compiled in", "13.2.0", "kernel_k_C") if said in text]
    assert "Compiled in 0.300 s: saturate 0.200 s, extract 0.100 s." in str(report)


def test_of_many_kernels_the_slowest_are_shown_in_order() -> None:
    report = many()
    text = str(report)
    assert f"and {len(report.kernels) - LISTED} faster ones" in text
    shown = [line.split()[0] for line in text.splitlines() if line.startswith("k_") and "kernel_k_" in line]
    assert len(shown) == LISTED and "k_118" in shown and "k_0" not in shown
    assert shown == [kernel.region for kernel in report.kernels if kernel.region in shown]


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (
            SearchReport(True, 0.0, 1e-5, 1e-5, 0.1, 7, 99),
            "proved by an integer program (7 kernels weighed, 99",
        ),
        (
            SearchReport(False, 0.03, 1e-5, 1e-5, 9.0, 7, 99, "nodes"),
            "at 3.0% less at most; the exact search ended",
        ),
        (
            SearchReport(False, 0.5, 2e-5, 1e-5),
            "Before Plans were finished, it began with kernels at 20.00 us and put these at 10.00 us.",
        ),
    ],
)
def test_how_good_the_choice_is_takes_a_sentence(search: SearchReport, said: str) -> None:
    assert said in " ".join(headline(a_report(search=search)))


def test_estimate_against_actual() -> None:
    report = a_report(a_kernel(actual_s=1.5e-5), a_kernel("k_other"))
    text = str(report)
    assert "Measured: 15.00 us where the estimate says 10.00 us (1 kernels)." in text.replace("\n", " ")
    assert text.replace("\n    ", " ").count("; measured 15.00 us") == 1


def test_a_fallback_says_so() -> None:
    assert "The naive program runs" in str(a_report(fallback=True))
