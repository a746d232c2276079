"""The reports in docs/reports: what a stranger reads first, so they are looked at whenever they change.

``pytest tests/test_report_pages.py --update-golden`` writes them anew. Nothing in them depends on the machine that
compiles: the CPU's row of the table is taken as it is, and what a clock said is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden import Golden

import tinyc
from tinyc import functions as tc
from tinyc.extract.cost.hardware import hardware
from tinyc.frontend import nn
from tinyc.pipeline import Options, compile_program

PAGES = Path(__file__).parent.parent / "docs" / "reports"


def gemm_bias_relu() -> tinyc.Program:
    s = tinyc.spec

    def function(A: Any, B: Any, bias: Any) -> Any:
        return (tc.matmul(A, B, dtype="fp32") + bias.cast("fp32")).relu().cast("fp16")

    return tinyc.trace(function, s("fp16", (1024, 512)), s("fp16", (512, 1024)), s("fp16", (1024,)))


def conv3x3() -> tinyc.Program:
    s = tinyc.spec

    def function(X: Any, W: Any, bias: Any) -> Any:
        return nn.conv(X, W, bias, pad=1, dtype="fp32").relu().cast("fp16")

    return tinyc.trace(function, s("fp16", (8, 64, 56, 56)), s("fp16", (128, 64, 3, 3)), s("fp16", (128,)))


def attention() -> tinyc.Program:
    s = tinyc.spec
    heads = s("fp16", (1, 16, 1024, 64))
    return tinyc.trace(lambda Q, K, V: nn.attention(Q, K, V), heads, heads, heads)


PROGRAMS = {"gemm_bias_relu": gemm_bias_relu, "conv3x3": conv3x3, "attention": attention}


@pytest.mark.parametrize("target", ["sm80", "sm90", "cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_report_reads_as_it_did(
    name: str, target: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinyc.pipeline.machine", hardware)
    report = compile_program(PROGRAMS[name](), Options(target), code=False).report
    assert report.complete and not report.fallback and not report.warnings
    Golden(PAGES / f"{name}-{target}", request.config.getoption("--update-golden"))(
        report.to_text(times=False)
    )


def test_there_is_no_page_beside_them() -> None:
    pages = {f"{name}-{target}.txt" for name in PROGRAMS for target in ("sm80", "sm90", "cpu")}
    assert {path.name for path in PAGES.iterdir()} == pages | {"README.md"}
