"""The catalogue of diagnostics, its page, and what the page's examples bring out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import environment

from tinyc import TinycError, functions, load, optimize_and_compile, spec, trace
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.plans.default_plan import default_plan
from tinyc.ir import CATALOGUE, CODES, Diagnostic
from tinyc.ir.check_plan import check_plan
from tinyc.ir.diagnostics import Severity
from tinyc.ir.roles import contraction_of

PAGE = Path(__file__).parent.parent / "docs" / "diagnostics.md"
FIXED = {
    "E1001": "BroadcastMismatch",
    "E1002": "AxisSizeMismatch",
    "E1003": "InvalidPermutation",
    "E1004": "AccDtypeMissing",
    "E1005": "DTypeMismatch",
    "E1102": "NegativeStrideUnsupported",
    "E1203": "MissingDivGuard",
    "E1301": "NonSCoP",
    "E1304": "AxisAlignmentMismatch",
    "E1401": "UnguardedAccess",
    "E1402": "NonAssociativeTransform",
    "E1403": "NeutralInvalid",
    "W2101": "ExcessivePiecewise",
}
"""What document 004 §14 and resolution I-47 fix."""


@dataclass(frozen=True)
class Section:
    """A section of the page: what its heading says, its text, and its blocks as (language, code)."""

    code: str
    kind: str
    text: str

    @property
    def blocks(self) -> list[tuple[str, str]]:
        return re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)


def sections() -> list[Section]:
    parts = re.split(r"^## (\w\d{4}) (\w+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [Section(*parts[at : at + 3]) for at in range(0, len(parts), 3)]


def listed() -> list[tuple[str, str, str, str]]:
    """(code, kind, severity, summary) of all that can be said, by code."""
    rows = []
    for kind, entry in CATALOGUE.items():
        severity = "reserved" if entry.reserved else entry.severity
        rows.append((entry.code, kind, severity, entry.summary))
        if entry.warns:
            rows.append((entry.warns, kind, "warning", entry.summary))
    return sorted(rows)


# ---- the table ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("I-47", "004-148", "004-150")
def test_the_fixed_codes_name_their_kinds() -> None:
    found = {code: kind for code, kind, _, _ in listed()}
    assert {code: found.get(code) for code in FIXED} == FIXED


def test_codes_are_unique_and_say_their_severity() -> None:
    codes = [row[0] for row in listed()]
    assert len(codes) == len(set(codes))
    for code, _, severity, _ in listed():
        assert (code[0] == "W") == (severity == "warning"), code
    assert CATALOGUE["NonSCoP"].severity == "note"
    assert {kind: entry.code for kind, entry in CATALOGUE.items()} == CODES


def test_every_entry_is_short_and_in_sentences() -> None:
    for kind, entry in CATALOGUE.items():
        assert re.fullmatch(r"[EW]\d{4}", entry.code), kind
        for text in (entry.summary, entry.suggestion):
            assert 10 <= len(text) <= 120 and text[0].islower() and not text.endswith("."), (kind, text)


@pytest.mark.spec("004-146", "I-47")
@pytest.mark.parametrize(("code", "kind"), [(row[0], row[1]) for row in listed()])
def test_every_diagnostic_has_the_fields(code: str, kind: str) -> None:
    at = {"layer": "tiny", "op": "ADD", "value": None, "node": 3}
    level: Severity | None = "warning" if code == CATALOGUE[kind].warns else None
    found = Diagnostic(kind, "because", "do this", at, {"n": 1}, level)
    assert found.to_json() == {
        "code": code,
        "kind": kind,
        "severity": level or CATALOGUE[kind].severity,
        "at": {"layer": "tiny", "op": "ADD", "node": "3"},
        "why": "because",
        "suggestion": "do this",
        "n": 1,
    }
    error = TinycError(kind, "because", "do this", at)
    assert (error.code, error.kind, error.at) == (CODES[kind], kind, found.at)
    assert (error.why, error.suggestion, error.severity) == ("because", "do this", "error")


@pytest.mark.spec("I-09", "004-150", "002-33")
def test_pieces_warn_first_and_are_refused_beyond_the_cap() -> None:
    def rings(count: int) -> Any:
        def function(x: Any) -> Any:
            for value in range(count):
                x = x.pad(((1, 1),), value=value)
            return x

        return trace(function, spec("fp32", (4,)))

    def warned(count: int) -> list[tuple[str, str, str, int]]:
        warnings = optimize_and_compile(rings(count)).report.warnings
        return [(each.code, each.kind, each.severity, each.details["pieces"]) for each in warnings]

    assert warned(7) == []  # 15 pieces
    assert warned(8) == [("W2101", "ExcessivePiecewise", "warning", 17)]
    with pytest.raises(TinycError) as caught:
        rings(128)  # 257 pieces
    error = caught.value
    assert (error.code, error.kind, error.severity) == ("E1014", "ExcessivePiecewise", "error")


@pytest.mark.spec("I-20", "004-032", "004-148")
def test_negative_strides_are_legal_and_their_code_is_never_emitted() -> None:
    view = {"result_shape": [3], "index_map": {"map": [1, "2-i0"]}}
    x = {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [2, 3]}}
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    for uop, arg, wanted in [("FLIP", {"axes": [0, 1]}, given[::-1, ::-1]), ("VIEW", view, given[1, ::-1])]:
        program = load({"uops": [x, {"id": "y", "uop": uop, "src": ["x"], "arg": arg}]})
        compiled = optimize_and_compile(program)
        assert compiled.report.warnings == ()
        np.testing.assert_array_equal(compiled(given), wanted)
    reserved = [kind for kind, entry in CATALOGUE.items() if entry.reserved]
    assert reserved == ["NegativeStrideUnsupported"]
    for path in sources():
        if path.name != "diagnostics.py":
            assert reserved[0] not in path.read_text(encoding="utf-8"), path


@pytest.mark.spec("004-147")
@pytest.mark.parametrize(
    "shapes, at",
    [([("M", "K", "N"), ("M", "K", "N2")], -1), ([(2, 3), (4, 3)], -2), ([(3,), (2, 4)], -1), ([(2, 1), (1, 3), (5, 3)], -2)],
)  # fmt: skip
def test_a_broadcast_mismatch_holds_both_shapes(shapes: list[tuple[int | str, ...]], at: int) -> None:
    specs = [spec("fp32", shape) for shape in shapes]
    with pytest.raises(TinycError) as caught:
        trace(lambda *given: functions.where(given[0] < 0, given[1], given[-1]), *specs)
    error = caught.value
    assert error.code == "E1001"
    lhs, rhs = error.details["lhs_shape"], error.details["rhs_shape"]
    assert tuple(lhs) in shapes and tuple(rhs) in shapes
    assert lhs[at] != rhs[at] and f"{lhs[at]} against {rhs[at]}" in error.why


@pytest.mark.spec("004-152")
@pytest.mark.parametrize(("smem", "registers"), [(40 << 10, 255), (8 << 10, 255), (163 << 10, 128)])
def test_a_default_plan_is_lowered_where_it_would_take_too_much(smem: int, registers: int) -> None:
    """What a Plan of the user's is refused for, a default one gives way to: smaller tiles, fewer stages."""
    half = spec("fp16", (512, 512))
    region = optimize_and_compile(trace(lambda a, b: a @ b, half, half)).kernels[0].region
    machine = hardware("sm80")
    less = replace(machine, limits=replace(machine.limits, smem_bytes=smem, registers=registers))
    whole, lowered = (default_plan(region, contraction_of(region), each) for each in (machine, less))
    with pytest.raises(TinycError) as caught:
        check_plan(whole, region, less.limits)
    assert caught.value.code in ("E1501", "E1502")
    taken = check_plan(lowered, region, less.limits)
    assert taken.smem_bytes <= smem and taken.registers_per_thread <= registers
    assert lowered.algo == "contraction" and lowered.tile != whole.tile


# ---- the sources ----------------------------------------------------------------------------------------------------


def sources() -> Iterable[Path]:
    root = PAGE.parent.parent
    for folder in ("tinyc", "extract", "codegen"):
        yield from sorted((root / folder).rglob("*.py"))


def test_every_kind_has_a_producer() -> None:
    """A kind that nothing emits would be a promise; only reserved ones may be without."""
    texts = "\n".join(path.read_text(encoding="utf-8") for path in sources() if path.name != "diagnostics.py")
    silent = {kind for kind, entry in CATALOGUE.items() if not entry.reserved and f'"{kind}"' not in texts}
    assert silent == set()


def test_pages_that_messages_name_exist() -> None:
    for path in sources():
        for page in re.findall(r"\b(?:docs|rules)/[\w/]+(?:\.\w+)+", path.read_text(encoding="utf-8")):
            assert (PAGE.parent.parent / page).exists(), f"{path} names {page}"


# ---- the page -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-146")
def test_the_page_has_a_section_for_every_code_and_an_example_unless_reserved() -> None:
    assert [(each.code, each.kind) for each in sections()] == [(row[0], row[1]) for row in listed()]
    for each in sections():
        languages = [language for language, _ in each.blocks]
        if CATALOGUE[each.kind].reserved:
            assert languages == [] and "Reserved" in each.text
        else:
            assert languages and set(languages) <= {"python", "bash"}, each.code


def test_the_table_of_the_page_is_the_catalogue() -> None:
    rows = re.findall(
        r"^\| \[(\w+)\]\(#(.*?)\) \| (\w+) \| (\w+) \| (.*?) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    wanted = [
        (code, f"{code}-{kind}".lower(), kind, severity, summary)
        for code, kind, severity, summary in listed()
    ]
    assert rows == wanted


PLACES = {"layer", "op", "value", "node", "file", "line", "rule", "variable"}
EXAMPLES = [(each, *block) for each in sections() for block in each.blocks]


@pytest.mark.spec("004-146", "004-091", "004-142", "I-47")
@pytest.mark.parametrize(
    ("section", "language", "code"),
    EXAMPLES,
    ids=[f"{each.code}-{number}" for number, (each, _, _) in enumerate(EXAMPLES)],
)
def test_the_example_brings_out_its_code(
    section: Section, language: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = said(code) if language == "python" else printed(code, tmp_path / "bin")
    assert found == {section.code}


def said(code: str) -> set[str]:
    """The codes of what a block of Python raises, reports or finds."""
    names: dict[str, Any] = {}
    try:
        exec(compile(code, "example", "exec"), names)
    except TinycError as error:
        assert error.severity == "error"
        assert error.at and set(error.at) <= PLACES
        return {error.code}
    found = names["found"] if "found" in names else names["compiled"].report.warnings
    assert all(each.severity in ("warning", "note") for each in found)
    assert all(each.at and set(each.at) <= PLACES for each in found)
    return {each.code for each in found}


def printed(code: str, folder: Path) -> set[str]:
    """The codes that the commands of a block print on standard error. ``folder``: where ``tinyc`` is put."""
    folder.mkdir()
    (folder / "tinyc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tinyc "$@"\n')
    (folder / "tinyc").chmod(0o755)
    env = environment() | {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr, done.stderr
    return set(re.findall(r"^tinyc: error: (\w\d{4}) ", done.stderr, re.MULTILINE))
