"""extraction: how near the best the choice of kernels is for deep transformers, and what it takes to say so."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .measure import Benchmark, Cases
from .transformers import beside, norm_first, norm_last, rotary, stack

BLOCKS = 16


class Case(NamedTuple):
    """``size``: batch, tokens, width, heads."""

    block: Any
    size: tuple[int, int, int, int]
    dtype: str
    target: str


CASES: Mapping[str, Case] = {
    "norms first, small": Case(norm_first, (1, 16, 64, 4), "fp16", "sm80"),
    "norms first": Case(norm_first, (1, 256, 256, 4), "fp16", "sm80"),
    "norms first, large": Case(norm_first, (1, 1024, 768, 12), "fp16", "sm90"),
    "norms first, fp32": Case(norm_first, (1, 64, 128, 4), "fp32", "cpu"),
    "norms last": Case(norm_last, (1, 128, 256, 4), "fp16", "sm80"),
    "rotary": Case(rotary, (1, 128, 256, 4), "fp16", "sm80"),
    "rotary, batch": Case(rotary, (4, 128, 512, 8), "fp16", "sm90"),
    "beside": Case(beside, (4, 128, 512, 8), "fp16", "sm90"),
}
"""Blocks of :mod:`~tinyc.bench.transformers`."""

MEANINGS = {
    "enodes": "after the last phase",
    "saturate_s": "saturation: encoding, the engine's process, reading the e-graph back",
    "extract_s": "extraction, with the Plans of what is chosen",
    "search_s": "the exact search for the cheapest kernels, a part of extract_s",
    "estimate_s": "what the search says that the program takes",
    "gap": "by which share of that the choice of kernels could be better at most; 0: it is proved optimal",
    "kernels": "of the program",
}


def run(
    repeats: int, peers: Sequence[str] = (), cases: Mapping[str, Case] = CASES, blocks: int = BLOCKS
) -> Cases:
    """Medians of ``repeats`` runs each. No code is made."""
    found: Cases = {}
    for name, case in cases.items():
        rounds = [_measure(case, blocks) for _ in range(repeats)]
        found[name] = {figure: statistics.median(each[figure] for each in rounds) for figure in rounds[0]}
    return found


def _measure(case: Case, blocks: int) -> dict[str, float]:
    from tinyc.pipeline import Options, compile_program

    program = stack(case.block, blocks, *case.size, case.dtype)
    report = compile_program(program, Options(case.target), code=False).report
    search = report.search
    return {
        "enodes": report.phases[-1].enodes,
        "saturate_s": report.seconds["saturate"],
        "extract_s": report.seconds["extract"],
        "search_s": search.time_s if search else 0.0,
        "estimate_s": search.exact_s if search else 0.0,
        "gap": search.gap if search else 1.0,
        "kernels": len(report.kernels),
    }


BENCHMARK = Benchmark(
    "extraction",
    "how near the best the kernels of 16 transformer blocks are, and how long that takes",
    run,
    3,
    MEANINGS,
)
