"""What a compiled program says of itself: kernels by name, and what each rule did."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tinyc


def three_products() -> tinyc.Compiled:
    """x @ a, x @ b and x @ c: three equal Regions over other buffers."""
    square = tinyc.spec("fp32", (16, 16))

    def function(x: Any, a: Any, b: Any, c: Any) -> Any:
        return x @ a, x @ b, x @ c

    return tinyc.optimize_and_compile(tinyc.trace(function, square, square, square, square))


def softmax(profile: bool) -> tinyc.Compiled:
    from tinyc import functions as tc

    program = tinyc.trace(lambda x: tc.softmax(x), tinyc.spec("fp32", (8, 32)))
    return tinyc.optimize_and_compile(program, profile=profile)


def test_a_kernels_name_is_the_entry_symbol_of_its_source() -> None:
    for kernel in three_products().kernels:
        assert kernel.source.count(f"define void @{kernel.name}(") == 1


def test_equal_regions_share_a_kernel_whose_source_names_them_all() -> None:
    compiled = three_products()
    kernels = compiled.kernels
    assert len(kernels) == 3
    assert len({kernel.region.name for kernel in kernels}) == 3
    (source,) = {kernel.source for kernel in kernels}
    assert source.splitlines()[:3] == [f"; Region {kernel.region.name}" for kernel in kernels]
    assert compiled.executable.unique_kernels == 1


def test_report_and_dump_name_kernels_as_the_kernels_do() -> None:
    compiled = three_products()
    named = [(kernel.region.name, kernel.name) for kernel in compiled.kernels]
    assert [(kernel.region, kernel.symbol) for kernel in compiled.report.kernels] == named
    llvm = json.loads(compiled.dump("llvm"))["llvm"]
    assert [(kernel["region"], kernel["symbol"]) for kernel in llvm] == named
    assert [kernel["source"] for kernel in llvm] == [kernel.source for kernel in compiled.kernels]
    text = str(compiled.report)
    for region, symbol in named:
        rows = [line.split() for line in text.splitlines() if line.startswith(f"{region} ")]
        assert rows[0][-1] == symbol


def test_a_profile_says_what_every_rule_added() -> None:
    report = softmax(profile=True).report
    for phase in report.phases:
        rules = [rule for rule in report.rules if rule.phase == phase.phase]
        assert sum(rule.enodes or 0 for rule in rules) == phase.added
        assert all(rule.enodes is not None for rule in rules)
    assert any(rule.enodes for rule in report.rules)
    assert "added: e-nodes" in str(report)


def test_without_a_profile_the_e_nodes_of_rules_are_not_known() -> None:
    compiled = softmax(profile=False)
    rules = json.loads(compiled.report.to_json())["rules"]
    assert rules
    assert {rule["enodes"] for rule in rules} == {None}
    assert "added: e-nodes" not in str(compiled.report)


def test_a_profile_changes_no_kernel() -> None:
    plain, profiled = softmax(profile=False), softmax(profile=True)
    assert [kernel.source for kernel in plain.kernels] == [kernel.source for kernel in profiled.kernels]
    assert plain.report.sizes == profiled.report.sizes


def test_the_report_says_by_which_term_the_naive_program_lost() -> None:
    report = softmax(profile=False).report
    for totals in (report.total, report.naive):
        assert sum(totals.terms_s.values()) == pytest.approx(totals.time_s)
    for kernel in report.kernels:
        assert sum(kernel.terms_s.values()) == pytest.approx(kernel.time_s)
    launches = report.naive.terms_s["launch"] / report.total.terms_s["launch"]
    assert launches == pytest.approx(report.naive.kernels / report.total.kernels)
    assert "The naive program lost by its " in " ".join(str(report).split())
