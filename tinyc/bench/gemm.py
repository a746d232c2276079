"""cpu-gemm: one fp32 matrix product on the CPU, beside numpy's in the same process."""

from __future__ import annotations

from collections.abc import Sequence

from .measure import Benchmark, Cases, in_turns, median_ratio, timed

MEANINGS = {
    "time_s": "one call, best of all turns",
    "numpy_time_s": "numpy, best of all turns",
    "ratio": "time of a call over numpy's, best by best",
    "median_ratio": "the same, median of the turns",
    "gflops_per_s": "of a call; a multiply-add is 2",
    "compile_s": "from the program to something callable, the engine's start included",
    "threads": "of a call",
    "arena_bytes": "intermediate buffers",
    "scratch_bytes": "scratch of all threads",
    "peak_bytes": "all that a call allocates beyond its operands",
}


def run(repeats: int, peers: Sequence[str] = (), size: int = 1024) -> Cases:
    """A product of two ``size`` × ``size`` matrices."""
    import numpy as np

    import tinyc

    spec = tinyc.spec("fp32", (size, size))
    program = tinyc.trace(lambda a, b: a @ b, spec, spec)
    compiled, compile_s = timed(lambda: tinyc.optimize_and_compile(program))
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    np.testing.assert_allclose(compiled(a, b), a @ b, rtol=1e-3, atol=1e-3)
    ours, numpys = in_turns([lambda: compiled(a, b), lambda: a @ b], repeats)
    executable = compiled.executable
    return {
        f"{size}x{size}x{size}": {
            "time_s": min(ours),
            "numpy_time_s": min(numpys),
            "ratio": min(ours) / min(numpys),
            "median_ratio": median_ratio(ours, numpys),
            "gflops_per_s": 2 * size**3 / min(ours) / 1e9,
            "compile_s": compile_s,
            "threads": executable.threads,
            "arena_bytes": executable.arena_bytes,
            "scratch_bytes": executable.scratch_bytes,
            "peak_bytes": executable.peak_bytes,
        }
    }


BENCHMARK = Benchmark("cpu-gemm", "an fp32 matrix product of 1024³ beside numpy's", run, 7, MEANINGS)
