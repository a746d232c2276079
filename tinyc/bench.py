"""Benchmarks: ``tinyc bench NAME``. A benchmark measures and says what it found; it judges nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. ``name`` carries the unit, as in ``time_s``; ``meaning`` says what it is of."""

    name: str
    value: float
    meaning: str


def cpu_gemm(size: int = 1024, repeats: int = 7) -> tuple[Figure, ...]:
    """An fp32 product of two ``size`` × ``size`` matrices on the CPU, beside numpy's in the same process."""
    import numpy as np

    import tinyc

    spec = tinyc.spec("fp32", (size, size))
    started = time.perf_counter()
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda a, b: a @ b, spec, spec))
    compile_s = time.perf_counter() - started
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    np.testing.assert_allclose(compiled(a, b), a @ b, rtol=1e-3, atol=1e-3)
    # one after the other in turns, so that a busy machine slows both
    pairs = [(_seconds(lambda: compiled(a, b)), _seconds(lambda: a @ b)) for _ in range(repeats)]
    ours, numpys = (min(times) for times in zip(*pairs, strict=True))
    executable = compiled.executable
    return (
        Figure("time_s", ours, f"one call, best of {repeats}"),
        Figure("numpy_time_s", numpys, f"numpy, best of {repeats}"),
        Figure("ratio", ours / numpys, "time of a call over numpy's"),
        Figure(
            "median_ratio",
            statistics.median(one / other for one, other in pairs),
            "the same, median of turns",
        ),
        Figure("gflops_per_s", 2 * size**3 / ours / 1e9, "of a call; a multiply-add is 2"),
        Figure("compile_s", compile_s, "from the function to the compiled program"),
        Figure("threads", executable.threads, "of a call"),
        Figure("arena_bytes", executable.arena_bytes, "intermediate buffers"),
        Figure("scratch_bytes", executable.scratch_bytes, "scratch of all threads"),
        Figure("peak_bytes", executable.peak_bytes, "all that a call allocates beyond its operands"),
    )


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


#: name -> benchmark
BENCHMARKS: Mapping[str, Callable[[], tuple[Figure, ...]]] = MappingProxyType({"cpu-gemm": cpu_gemm})
