"""The report as JSON: what the published schema says, strict, and the same report when it is read back."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_examples import NASTY, a_kernel, a_report, many

import tinyc
from tinyc.extract.report.decisions import Decision
from tinyc.extract.report.report import ExtractionReport
from tinyc.extract.report.to_json import from_json, is_report
from tinyc.ir.diagnostics import TinycError

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "report.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = ("gemm_bias_relu", "conv3x3_silu", "attention", "three_consumers")


def parsed(report: ExtractionReport) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    return json.loads(report.to_json(), parse_constant=refuse)


def compiled(name: str, target: str) -> ExtractionReport:
    program = tinyc.load(ROOT / "docs" / "examples" / f"{name}.json")
    return tinyc.optimize_and_compile(program, target, shapes=dict.fromkeys(program.symbols, 48)).report


@pytest.mark.parametrize(("name", "target"), list(zip(EXAMPLES, ("sm80", "sm90", "cpu", "cpu"), strict=True)))
def test_reports_are_what_the_schema_says_and_come_back(name: str, target: str) -> None:
    report = compiled(name, target)
    data = parsed(report)
    VALIDATOR.validate(data)
    back = from_json(data)
    assert back == report and back.decisions == report.decisions
    assert back.to_json() == report.to_json() and str(back) == str(report)


def test_the_schema_has_the_fields_of_the_report() -> None:
    made = {"decide", "trace", "assemble", "matched"}
    names = {field.name for field in dataclasses.fields(ExtractionReport)} - made
    assert set(SCHEMA["properties"]) == names | {"version", "decisions", "rules", "usage"}
    decision = SCHEMA["properties"]["decisions"]["items"]
    assert set(decision["properties"]) == {field.name for field in dataclasses.fields(Decision)}
    assert decision["additionalProperties"] is False


@pytest.mark.parametrize("report", [a_report(), many(), a_report(a_kernel(NASTY)), a_report(decisions=())])
def test_reports_made_by_hand_come_back_too(report: ExtractionReport) -> None:
    data = parsed(report)
    VALIDATOR.validate(data)
    assert is_report(data)
    assert from_json(data) == report and from_json(data).to_json() == report.to_json()


def test_what_is_no_number_is_spelled() -> None:
    data = parsed(a_report(a_kernel(actual_s=math.inf)))
    assert data["kernels"][0]["actual_s"] == "inf"
    assert from_json(data).kernels[0].actual_s == math.inf


def test_pickling_keeps_the_decisions_and_not_what_made_them() -> None:
    report = compiled("gemm_bias_relu", "sm80")
    again = pickle.loads(pickle.dumps(report))
    assert again == report and again.decisions == report.decisions != ()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every value within a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def changed(data: Any, path: tuple[Any, ...], value: object) -> Any:
    data = copy.deepcopy(data)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


def test_whatever_else_stands_there_is_an_error_that_says_where() -> None:
    """Every value of a report, replaced by what it is not: read, or refused with its place, and never a traceback."""
    data = parsed(a_report())
    refused = 0
    for path in places(data)[1:]:
        for other in ({"odd": 1}, [[]], {}, "odd", -1, 1e308, 1e-320, True, None, 10**400):
            try:
                read = from_json(changed(data, path, other))
                assert str(read) and read.to_html()
            except TinycError as error:
                assert error.kind == "MalformedDocument" and error.at["value"].startswith("report")
                refused += 1
    assert refused > 500


@pytest.mark.parametrize("document", [7, [], "report", None, {}, {"version": 1}, {"version": True}])
def test_what_is_no_report_is_refused(document: object) -> None:
    with pytest.raises(TinycError) as caught:
        from_json(document)
    assert caught.value.kind == "MalformedDocument"
    assert not is_report(document)


def test_a_key_too_many_or_missing_is_noticed() -> None:
    data = parsed(a_report())
    for path in places(data):
        inner = data
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict) and not {"terms_s", "sizes", "seconds", "hidden_s", "at"} & {*path[-1:]}:
            surplus = changed(data, (*path, "surplus"), 1)
            if "why" not in inner:  # a diagnostic may carry details
                assert not VALIDATOR.is_valid(surplus), path
                with pytest.raises(TinycError):
                    from_json(surplus)
            less = changed(data, (*path, "surplus"), 1)
            where = less
            for key in path:
                where = where[key]
            where.clear()
            assert not VALIDATOR.is_valid(less), path
