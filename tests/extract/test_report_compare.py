"""Two reports side by side: what moved, by which term, and by which rule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_examples import a_kernel, a_report, many

import tinyc
from tinyc.extract.report.compare import compare_reports
from tinyc.extract.report.report import ExtractionReport, RuleReport
from tinyc.extract.report.tables import WIDTH

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"


def attention(**options: Any) -> ExtractionReport:
    return tinyc.optimize_and_compile(EXAMPLES / "attention.json", **options).report


def test_a_report_is_the_same_as_itself() -> None:
    for report in (a_report(), many()):
        found = compare_reports(report, report)
        assert found.same and "nothing moved." in str(found)
        assert found.kernels == found.rules == ()


def test_what_a_ruleset_does_is_named_by_its_rules() -> None:
    found = compare_reports(attention(), attention(without=("streaming",)), ("with", "without"))
    assert not found.same
    gone = {each.rule for each in found.rules if each.only == "first"}
    assert gone and any(rule.startswith("streaming/") for rule in gone)
    assert not any(each.rule.startswith("streaming/") and each.matches[1] for each in found.rules)
    new = [each for each in found.kernels if each.first_s is None]
    assert new and all("was computed in k_" in each.what for each in new)
    totals = {each.name: each for each in found.totals}
    assert totals["kernels"].second > totals["kernels"].first and totals["time_s"].change > 0
    assert sum(each.change for each in found.terms_s) == pytest.approx(totals["time_s"].change)
    text = str(found)
    assert "From with (cpu) to without (cpu):" in text and "times as slow" in text


def test_two_targets() -> None:
    found = compare_reports(attention(target="sm80"), attention(target="sm90"))
    assert found.targets == ("sm80", "sm90")
    assert next(each for each in found.totals if each.name == "time_s").change < 0
    assert "times as fast" in str(found)


def test_a_kernel_says_what_became_of_it() -> None:
    plan = a_kernel().plan
    first = a_report(a_kernel("k_C"), a_kernel("k_gone", fused=("n9",)), a_kernel("k_same", fused=("n7",)))
    second = a_report(
        a_kernel(
            "k_C",
            terms_s={"compute": 2e-5},
            time_s=2e-5,
            plan=replace(plan, tile=(64, 64, 64)),
            fused=("n1", "n2", "n9"),
        ),
        a_kernel("k_new", fused=("n8",)),
        a_kernel("k_same", fused=("n7",)),
    )
    found = {each.output: each for each in compare_reports(first, second).kernels}
    assert set(found) == {"C", "gone", "new"}
    assert "128x64x64 warp 64x64 3 stages became 64x64x64" in found["C"].what
    assert "computes n9 too" in found["C"].what and found["C"].by == "compute +12.00 us"
    assert found["gone"].what == "no kernel any more: computed in k_C" and found["gone"].second_s is None
    assert found["new"].what == "a new kernel" and found["new"].first_s is None


def test_rules_that_survive_in_the_program_come_first() -> None:
    def rules(*found: tuple[str, int, int | None]) -> ExtractionReport:
        return a_report(
            rules=tuple(RuleReport(name, "fuse", count, 0.0, None, s) for name, count, s in found)
        )

    found = compare_reports(
        rules(("a", 5, 0), ("b", 900, 0), ("c", 1, 4)),
        rules(("a", 5, 0), ("b", 2, 0), ("c", 1, 1), ("e", 1, 0)),
    ).rules
    assert [each.rule for each in found] == ["c", "e", "b"]
    assert found[0].survives == (4, 1) and found[1].only == "second" and found[2].matches == (900, 2)


@pytest.mark.parametrize("pair", [(a_report(), many()), (many(), a_report(a_kernel("k_" + "long" * 60)))])
def test_the_text_fits_and_the_json_is_strict(pair: tuple[ExtractionReport, ExtractionReport]) -> None:
    found = compare_reports(*pair)
    assert max(map(len, str(found).splitlines())) <= WIDTH
    data = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert data["version"] == 1 and {each["name"] for each in data["totals"]} >= {"time_s", "bytes", "flops"}
