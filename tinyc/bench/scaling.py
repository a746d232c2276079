"""compile-scaling: what a transformer stack costs to compile, block by block."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from .measure import Benchmark, Cases, seconds, timed
from .programs import transformer

BLOCKS = (1, 2, 4, 8, 16)

MEANINGS = {
    "nodes": "of the naive program",
    "enodes": "after the last phase",
    "enodes_per_added_block": "against the case before",
    "enodes_per_added_block_spread": "largest over smallest so far, less 1",
    "engine_s": "the phases alone, in the engine",
    "saturate_s": "saturation: encoding, the engine's process, reading the e-graph back",
    "extract_s": "extraction, Regions and Plans",
    "search_s": "the exact search for the cheapest kernels, a part of extract_s",
    "gap": "by which share of its estimate the choice of kernels could be better at most; 0: it is proved optimal",
    "codegen_s": "LLVM IR and machine code of all kernels",
    "ready_s": "from the program to something callable; the engine is warm",
    "first_call_s": "the first call",
    "kernels": "of the extracted program",
    "unique_kernels": "compiled; equal ones share their code",
}


def run(repeats: int, peers: Sequence[str] = (), blocks: Sequence[int] = BLOCKS) -> Cases:
    """Medians of ``repeats`` compilations each. One block is compiled first, so that the engine is warm."""
    _measure(1)
    cases: Cases = {}
    for count in blocks:
        rounds = [_measure(count) for _ in range(repeats)]
        cases[str(count)] = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    added = []
    for (one, before), (two, after) in pairwise(cases.items()):
        added.append((after["enodes"] - before["enodes"]) / (int(two) - int(one)))
        after["enodes_per_added_block"] = added[-1]
        after["enodes_per_added_block_spread"] = max(added) / min(added) - 1
    return cases


def _measure(blocks: int) -> dict[str, float]:
    import numpy as np

    import tinyc

    function, shapes = transformer(blocks)
    specs = {name: tinyc.spec("fp32", shape) for name, shape in shapes.items()}
    program = tinyc.trace(function, **specs)
    compiled, ready_s = timed(lambda: tinyc.optimize_and_compile(program))
    report = compiled.report
    inputs = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return {
        "nodes": len(program.nodes),
        **{f"enodes_{phase.phase}": phase.added for phase in report.phases},
        "enodes": report.phases[-1].enodes,
        "engine_s": sum(phase.time_s for phase in report.phases),
        **{f"{stage}_s": spent for stage, spent in report.seconds.items()},
        "search_s": report.search.time_s if report.search else 0.0,
        "gap": report.search.gap if report.search else 1.0,
        "ready_s": ready_s,
        "first_call_s": seconds(lambda: compiled(**inputs)),
        "kernels": len(compiled.kernels),
        "unique_kernels": compiled.executable.unique_kernels,
    }


BENCHMARK = Benchmark(
    "compile-scaling", "e-nodes and seconds to compile 1 to 16 transformer blocks", run, 3, MEANINGS
)
