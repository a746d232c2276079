"""Benchmarks: ``tinyc bench NAME``. A benchmark measures and says what it found; it judges nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import estimates, explanations, extraction, gemm, models, sass, scaling
from .measure import Benchmark

#: name -> benchmark
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        each.name: each
        for each in (
            gemm.BENCHMARK,
            models.BENCHMARK,
            estimates.BENCHMARK,
            scaling.BENCHMARK,
            extraction.BENCHMARK,
            explanations.BENCHMARK,
            sass.BENCHMARK,
        )
    }
)
