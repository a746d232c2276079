"""docs/cost.md: its formulas and its table are those of the code, and its examples run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tinyc.extract.cost.formulas import FORMULAS, MACHINE, PART
from tinyc.extract.cost.hardware import TABLE, VARIANTS, hardware
from tinyc.extract.cost.model import Roofline, Work
from tinyc.extract.cost.schedule import Schedule

PAGE = (Path(__file__).parent.parent / "docs" / "cost.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.spec("004-129", "004-130")
def test_the_formulas_are_those_of_the_code() -> None:
    written = [line for block in blocks("text") for line in block.splitlines()]
    wanted = []
    for formula in (*FORMULAS, PART):
        wanted.append(f"{formula.name} = {formula.text}")
        wanted += [f"    plain: {formula.plain}"] if formula.plain else []
    assert written == wanted


def test_the_table_is_that_of_the_code() -> None:
    columns = r" (\S+) \|" * (len(TABLE) + 1)
    rows = re.findall(rf"^\| (\w+) \|{columns}$", PAGE, re.MULTILINE)
    found = {name: (values, unit) for name, *values, unit in rows if name in MACHINE}
    assert list(found) == list(MACHINE)
    for name, (values, unit) in found.items():
        assert unit == MACHINE[name][0]
        for target, value in zip(TABLE, values, strict=True):
            lines = Roofline(hardware(target)).explain(Work(schedule=Schedule()))
            known = {line.name: line.value for line in lines}
            if name in known:  # the CPU's formulas ask for fewer
                assert float(value) == pytest.approx(known[name], rel=1e-4), (name, target)
            elif name not in (
                "registers_per_sm",
                "warps_per_sm",
                "blocks_per_sm",
                "access_bytes",
                "busy_warps",
                "loads",
            ):
                assert float(value) == getattr(hardware(target), name, 0), (name, target)
    for target, variant in VARIANTS:
        assert f'hardware("{target}", "{variant}")' in PAGE


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks("python"))
    example = doctest.DocTestParser().get_doctest(text, {}, "cost.md", "docs/cost.md", 0)
    report: list[str] = []
    doctest.DocTestRunner().run(example, out=report.append)
    assert not report, "".join(report)
    assert len(example.examples) >= 25
