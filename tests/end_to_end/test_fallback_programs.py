"""Without an e-graph the naive program runs: right, one kernel per reduction and output, and no product of all sizes stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tiny_documents
from end_checks import buffers, check_exact, check_values, integer_inputs, largest_intermediate, normal_inputs
from tiny_documents import Document

import tinyc

NOTHING = tinyc.Budget(seconds=0)

# document, kernels of the naive program, elements of its largest intermediate buffer, whether integers stay exact
CASES: dict[str, tuple[Callable[[], Document], int, int, bool]] = {
    "gemm": (lambda: tiny_documents.gemm_bias_relu("fp32", 150, 130, 70), 2, 150 * 130, True),
    "gemm fp16": (lambda: tiny_documents.gemm_bias_relu("fp16", 33, 17, 65), 2, 33 * 17, True),
    "gemm of one": (lambda: tiny_documents.gemm_bias_relu("fp32", 1, 1, 1), 2, 1, True),
    "batched": (lambda: tiny_documents.matmul("fp32", (3, 24, 40), (3, 40, 16), (3,)), 1, 0, True),
    "conv": (
        lambda: tiny_documents.conv("fp32", (2, 8, 13, 15), (16, 8, 3, 3), stride=2, pad=1),
        2,
        2 * 16 * 7 * 8,
        True,
    ),
    "conv 3-d": (
        lambda: tiny_documents.conv("fp32", (1, 3, 6, 7, 8), (4, 3, 3, 3, 3), pad=1),
        2,
        4 * 6 * 7 * 8,
        True,
    ),
    "attention": (
        lambda: tiny_documents.attention("fp32", 1, 4, 33, 47, 16, mask=True),
        4,
        4 * 33 * 47,
        False,
    ),
    "transformer block": (lambda: tiny_documents.transformer_block(16, 32, 4, 64), 15, 16 * 64, False),
}


@pytest.mark.parametrize("name", CASES)
def test_the_naive_program_is_right_and_stores_no_large_buffer(name: str) -> None:
    document, kernels, largest, exact = CASES[name]
    compiled = tinyc.optimize_and_compile(document(), budget=NOTHING)
    report = compiled.report
    assert report.fallback and [warning.kind for warning in report.warnings] == ["EngineLost"]
    assert report.total == report.naive
    check_values(compiled, normal_inputs(compiled.program))
    if exact:
        check_exact(compiled, integer_inputs(compiled.program, largest=2))
    assert len(compiled.kernels) <= kernels
    assert largest_intermediate(compiled) <= largest
    sizes = [np.prod(shape, dtype=np.int64) for shape in buffers(compiled)]
    assert compiled.executable.arena_bytes <= 4 * int(sum(sizes)) + 64 * len(sizes)


@pytest.mark.parametrize("name", CASES)
def test_the_extracted_program_is_estimated_no_slower_than_the_naive_one(name: str) -> None:
    report = tinyc.optimize_and_compile(CASES[name][0]()).report
    assert not report.fallback
    assert report.total.time_s <= report.naive.time_s * (1 + 1e-9)
    assert report.total.kernels <= report.naive.kernels
