"""Every command on every example program: what is printed and written is whole, strict, and agrees with itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc.cli import main
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind
from tinyc.stages import stages_of

EXAMPLES = sorted((Path(__file__).parent.parent / "docs" / "examples").glob("*.json*"))
SIZE = 8
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bound(example: Path) -> Program:
    """The example with every symbol bound to SIZE."""
    program = tinyc.load(example)
    return bind(program, dict.fromkeys(program.symbols, SIZE))


def shapes(example: Path) -> list[str]:
    return [word for symbol in tinyc.load(example).symbols for word in ("--shape", f"{symbol}={SIZE}")]


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=pytest.fail)


def values(program: Program) -> dict[str, Any]:
    """Normal, of a size at which sums over a few dozen stay near 1, as in a trained model."""
    random = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for port in program.inputs:
        kind = program.types[port.node]
        shape = tuple(map(int, kind.shape))
        found[port.name] = (random.standard_normal(shape) / 8).astype(kind.dtype.numpy)
    return found


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 30


@each_example
def test_compile_writes_every_stage(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stages, the sources and the report name kernels alike: a Region's name, and an entry symbol."""
    given = shapes(example)
    assert (
        main(["compile", str(example), *given, f"--dump={','.join(stages_of('cpu'))}", "--out", "out"]) == 0
    )
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed) == sorted(str(path) for path in Path("out").iterdir())
    stages: dict[str, Any] = {}
    for number, stage in enumerate(stages_of("cpu"), 1):
        if stage != "llvm":
            document = strict(Path(f"out/{number:02d}-{stage}.json").read_text(encoding="utf-8"))
            assert list(document) == [stage]
            stages[stage] = document[stage]
    regions = [region["name"] for region in stages["region"]]
    assert len(set(regions)) == len(regions) > 0
    assert [plan["region"] for plan in stages["plan"]] == regions
    assert [step["debug_name"] for step in stages["exec"]["instructions"]] == regions

    assert main(["report", str(example), *given, "--json", "--quick"]) == 0
    report = strict(capsys.readouterr().out)
    kernels = report["kernels"]
    assert [kernel["region"] for kernel in kernels] == regions
    assert {Path(line).name for line in printed if line.endswith(".ll")} == {
        f"09-llvm-{kernel['symbol']}.ll" for kernel in kernels
    }
    for kernel in kernels:
        source = Path(f"out/09-llvm-{kernel['symbol']}.ll").read_text(encoding="utf-8")
        assert source.count(f"define void @{kernel['symbol']}(") == 1
        assert source.startswith("; Region ")
        assert f"; Region {kernel['region']}\n" in source
    assert not report["fallback"]
    assert report["total"]["kernels"] == len(kernels)


@each_example
def test_run_computes_what_the_evaluator_computes(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = bound(example)
    inputs = values(program)
    for name, array in inputs.items():
        np.save(f"{name}.npy", array)
    given = [word for name in inputs for word in ("--input", f"{name}={name}.npy")]
    assert main(["run", str(example), *given, *shapes(example), "--output", "out.npz"]) == 0
    printed = capsys.readouterr().out.splitlines()[2:]
    names = [port.name for port in program.outputs]
    assert [line.split()[0] for line in printed] == names
    with np.load("out.npz") as out:
        assert out.files == names
        for name, wanted in zip(names, evaluate(program, inputs), strict=True):
            assert out[name].dtype == wanted.dtype
            np.testing.assert_allclose(
                out[name].astype(np.float64), wanted.astype(np.float64), rtol=1e-3, atol=1e-3
            )


@each_example
def test_compile_and_report_say_what_came_out(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = shapes(example)
    assert main(["compile", str(example), *given]) == 0
    shown = capsys.readouterr()
    header, _, *rows = shown.out.splitlines()
    assert header.split() == ["region", "schedule", "for", "each", "reads", "writes", "kernel"]
    assert main(["report", str(example), *given, "--target", "sm90", "--quick"]) == 0
    report = capsys.readouterr()
    assert report.out.startswith("tinyc report, target sm90")
    assert shown.err == report.err == ""
    assert len(rows) == len({row.split()[0] for row in rows}) > 0
    assert "kernel_" in report.out and "no code" not in report.out
