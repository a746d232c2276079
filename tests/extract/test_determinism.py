"""The same program, rules, versions and target give the same bytes: of source and, times aside, of the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = """
import hashlib, json, sys
import tinyc
sys.path.insert(0, sys.argv[1])
from models import EXAMPLES
found = {}
for name in sys.argv[2].split(","):
    example = EXAMPLES[name]
    program = tinyc.trace(example.function, **example.specs)
    compiled = tinyc.optimize_and_compile(program, shapes=dict.fromkeys(program.symbols, 17))
    found[name] = {
        "source": [kernel.source for kernel in compiled.kernels],
        "dumps": [compiled.dump(stage) for stage in ("tiny", "region", "plan", "exec", "llvm")],
        "report": json.loads(compiled.report.to_json()),
    }
print(json.dumps(found))
"""
EXAMPLES = "gemm_bias_relu,conv_grouped,attention_causal,layernorm,three_consumers,transformer_block"
TIMES = frozenset({"seconds"})


def without_times(value: Any, inside: str = "") -> Any:
    """The report less what a clock said: ``seconds``, and ``time_s`` of phases, rules and the search. Estimates stay."""
    if isinstance(value, dict):
        return {
            key: without_times(each, key)
            for key, each in value.items()
            if key not in TIMES and not (key == "time_s" and inside in ("phases", "rules", "search"))
        }
    if isinstance(value, list):
        return [without_times(each, inside) for each in value]
    return value


def run(seed: str, threads: str, examples: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "TINYC_NUM_THREADS": threads}
    command = [sys.executable, "-c", SCRIPT, examples, EXAMPLES]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    folder = str(request.config.rootpath / "docs" / "examples")
    return [run(seed, threads, folder) for seed, threads in (("0", "1"), ("1", "2"), ("4711", "2"))]


@pytest.mark.parametrize("name", EXAMPLES.split(","))
def test_sources_and_dumps_are_the_same_bytes(name: str, runs: list[dict[str, Any]]) -> None:
    first, *others = (found[name] for found in runs)
    for other in others:
        assert other["source"] == first["source"]
        assert other["dumps"] == first["dumps"]


@pytest.mark.parametrize("name", EXAMPLES.split(","))
def test_reports_are_the_same_but_for_the_clock(name: str, runs: list[dict[str, Any]]) -> None:
    first, *others = (without_times(found[name]["report"]) for found in runs)
    for other in others:
        assert other == first
