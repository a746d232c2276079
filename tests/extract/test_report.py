"""The report: what it says of kernels, of the naive program and of the rules, as text and as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc import functions as tc
from tinyc.ir.diagnostics import TinycError

GEMM = (150, 130, 70)


def gemm(m: int, n: int, k: int, dtype: str = "fp32", epilogue: bool = True) -> tinyc.Program:
    s = tinyc.spec

    def function(A: Any, B: Any, bias: Any) -> Any:
        acc = tc.matmul(A, B, dtype="fp32")
        return ((acc + bias.cast("fp32")).relu() if epilogue else acc).cast(dtype)

    return tinyc.trace(function, s(dtype, (m, k)), s(dtype, (k, n)), s(dtype, (n,)))


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
@pytest.mark.parametrize("size", [GEMM, (64, 64, 64), (17, 257, 2)])
def test_flops_and_bytes_of_a_gemm(size: tuple[int, int, int], target: str) -> None:
    """2 m n k for the product and 2 m n for bias and ReLU; each operand read once, the result written once."""
    m, n, k = size
    report = tinyc.optimize_and_compile(gemm(*size), target=target).report
    (kernel,) = report.kernels
    assert kernel.flops == 2 * m * n * k + 2 * m * n
    assert kernel.bytes == 4 * (m * k + k * n + n + m * n)
    assert (report.total.flops, report.total.bytes) == (kernel.flops, kernel.bytes)
    assert report.total.kernels == 1 and (kernel.contractions, kernel.reductions) == (1, 1)
    assert 0 < kernel.time_s < 1


def test_bytes_follow_the_dtype() -> None:
    m, n, k = GEMM
    for dtype, size in (("fp16", 2), ("bf16", 2)):
        (kernel,) = tinyc.optimize_and_compile(gemm(*GEMM, dtype=dtype)).report.kernels
        assert kernel.bytes == size * (m * k + k * n + n + m * n)
        assert kernel.dtype == dtype


def test_a_product_without_epilogue() -> None:
    m, n, k = GEMM
    program = tinyc.trace(lambda A, B: A @ B, tinyc.spec("fp32", (m, k)), tinyc.spec("fp32", (k, n)))
    (kernel,) = tinyc.optimize_and_compile(program).report.kernels
    assert (kernel.flops, kernel.bytes) == (2 * m * n * k, 4 * (m * k + k * n + m * n))


def test_the_extracted_program_is_no_dearer_than_the_naive_one() -> None:
    report = tinyc.optimize_and_compile(gemm(*GEMM)).report
    assert report.naive.kernels == 2, "the reduction, and the output"
    assert report.total.time_s < report.naive.time_s
    assert report.total.bytes < report.naive.bytes


def test_totals_are_sums() -> None:
    s = tinyc.spec
    program = tinyc.trace(lambda x, w, v: (x @ w).relu() @ v, *[s("fp32", (64, 64))] * 3)
    report = tinyc.optimize_and_compile(program).report
    assert report.total.kernels == len(report.kernels) == 2
    assert report.total.flops == sum(kernel.flops for kernel in report.kernels)
    assert report.total.bytes == sum(kernel.bytes for kernel in report.kernels)
    assert report.total.time_s == pytest.approx(sum(kernel.time_s for kernel in report.kernels))


def test_json_is_strict_versioned_and_carries_its_units() -> None:
    report = tinyc.optimize_and_compile(gemm(*GEMM)).report
    data = strict(report.to_json())
    assert data["version"] == 2 and data["target"] == "cpu"
    assert data["fallback"] is False and data["complete"] is True and data["warnings"] == []
    (kernel,) = data["kernels"]
    for part in (kernel, data["total"], data["naive"]):
        for key in ("time_s", "bytes", "flops"):
            assert isinstance(part[key], (int, float)) and part[key] > 0
    assert kernel["shape"] == [150, 130] and kernel["algo"] == "contraction"
    assert all({"phase", "time_s", "enodes"} <= set(phase) for phase in data["phases"])
    assert all({"rule", "phase", "matches", "time_s"} <= set(rule) for rule in data["rules"])
    assert report.to_json() == report.to_json()


def test_warnings_are_in_the_json_and_in_the_text() -> None:
    report = tinyc.optimize_and_compile(gemm(*GEMM), budget=tinyc.Budget(seconds=0)).report
    data = strict(report.to_json())
    assert data["fallback"] is True and data["complete"] is False
    (warning,) = data["warnings"]
    assert {"code", "kind", "at", "why", "suggestion"} <= set(warning)
    assert "warning" in str(report) and "EngineLost" in str(report)


def test_the_text_is_a_table_that_can_be_read() -> None:
    report = tinyc.optimize_and_compile(gemm(*GEMM)).report
    text = str(report)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    assert "cpu" in lines[0]
    row = next(line for line in lines if line.startswith("k_"))
    assert "fp32[150x130]" in row and "contraction" in row and "2.77 M" in row
    assert any(line.startswith("extracted") for line in lines) and any(
        line.startswith("naive") for line in lines
    )
    assert not any(line != line.rstrip() for line in lines)


def test_fused_nodes_are_the_documents() -> None:
    """Every computed node of the document is computed by some kernel, under the document's id."""
    document = {
        "uops": [
            {"id": "first", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [8, 9]}},
            {"id": "absolute", "uop": "MAX", "src": ["first", 0.0]},
            {
                "id": "total",
                "uop": "REDUCE",
                "src": ["absolute"],
                "arg": {"op": "SUM", "axes": [1], "dtype": "fp32"},
            },
            {"id": "root", "uop": "SQRT", "src": ["total"]},
        ]
    }
    (kernel,) = tinyc.optimize_and_compile(document).report.kernels
    assert kernel.fused == ("absolute", "total", "root")


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_gpu_targets_report_and_do_not_run_without_a_gpu(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    compiled = tinyc.optimize_and_compile(gemm(*GEMM), target=target)
    assert compiled.report.target == target and target in str(compiled.report)
    assert strict(compiled.dump("region"))["region"] and strict(compiled.dump("plan"))["plan"]
    arrays = [np.ones(shape, np.float32) for shape in ((150, 70), (70, 130), (130,))]
    assert all(kernel.source.count(f" {kernel.name}(") == 1 for kernel in compiled.kernels)
    for attempt in (lambda: compiled(*arrays), lambda: compiled.executable, lambda: compiled.dump("llvm")):
        with pytest.raises(TinycError) as caught:
            attempt()
        assert caught.value.kind == "TargetUnavailable" and target in caught.value.why


def test_targets_estimate_by_their_own_row_of_the_table() -> None:
    times = {
        target: tinyc.optimize_and_compile(gemm(512, 512, 512), target=target).report.total.time_s
        for target in ("cpu", "sm80", "sm90")
    }
    assert times["sm90"] < times["sm80"] < times["cpu"]


def test_an_unknown_target_names_those_that_there_are() -> None:
    with pytest.raises(TinycError) as caught:
        tinyc.optimize_and_compile(gemm(2, 3, 4), target="sm75")
    assert caught.value.kind == "TargetUnavailable" and "sm80" in caught.value.suggestion
