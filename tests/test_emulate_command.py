"""tinyc emulate: arrays from files through the kernels for a GPU, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tinyc.cli import main

PROGRAM = {
    "uops": [
        {"id": "a", "uop": "INPUT", "src": [], "arg": {"tensor_id": "A", "dtype": "fp32", "shape": ["N", 3]}},
        {"id": "n", "uop": "NEG", "src": ["a"], "arg": {}},
    ]
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("negate.json").write_text(json.dumps(PROGRAM))
    np.save("a.npy", np.arange(12, dtype=np.float32).reshape(4, 3))


@pytest.mark.parametrize("options", [[], ["--target", "sm90", "--delivery", "random", "--seed", "5"]])
def test_outputs_and_counters_are_shown(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", "negate.json", "--input", "A=a.npy", "--output", "out.npz", *options]) == 0
    outputs, counters = capsys.readouterr().out.split("\n\n")
    assert "4×3" in outputs
    assert counters.splitlines()[0].split()[-4:] == ["conflicts", "sectors", "at", "least"]
    assert counters.splitlines()[-1].split()[-3:] == ["0", "4", "4"], "12 elements of 4 bytes, twice"
    with np.load("out.npz") as out:
        (name,) = out.files
        assert np.array_equal(out[name], -np.load("a.npy"))


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--input", "A=a.npy", "--target", "cpu"], "TargetUnavailable"),
        ([], "InputMismatch"),
        (["--input", "A=a.npy", "--input", "B=a.npy"], "InputMismatch"),
    ],
)
def test_what_cannot_be_emulated_is_an_error(
    options: list[str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emulate", "negate.json", *options]) == 1
    assert kind in capsys.readouterr().err
