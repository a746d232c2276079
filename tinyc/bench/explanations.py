"""explanations: what it costs to record the rules' matches, and to explain a program from the records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .measure import Benchmark, Cases, timed
from .programs import MODELS, Model

if TYPE_CHECKING:
    from tinyc.ir.tiny import Program

EXPLAINED = ("gemm", "gemm_bias_relu", "attention", "transformer_block")

EXPLANATIONS = 3
"""They are measured at most so often: trying the steps takes long, and is not compared with anything."""

MEANINGS = {
    "enodes": "after the last phase",
    "records": "rows that the rules have recorded",
    "engine_s": "the phases alone, in the engine, nothing recorded",
    "recorded_engine_s": "the same with records",
    "engine_ratio": "recorded over not: the median of the turns",
    "saturate_s": "saturation with process and transfer, nothing recorded",
    "recorded_saturate_s": "the same with records, and the e-graph with all that explanations need",
    "saturate_ratio": "recorded over not: the median of the turns",
    "derive_s": "the chain of every kernel from the records",
    "explain_s": "the same, with every step tried on numbers and spelled out",
    "steps": "of the explanation",
    "unchecked": "steps that disagree or could not be tried",
}


def run(repeats: int, peers: Sequence[str] = (), models: Mapping[str, Model] | None = None) -> Cases:
    """Medians of ``repeats`` turns: without records, then with. One turn before them warms both engines."""
    import tinyc

    cases: Cases = {}
    for name, model in (models or {name: MODELS[name] for name in EXPLAINED}).items():
        program = tinyc.trace(model.naive, *(tinyc.spec("fp32", shape) for shape in model.shapes.values()))
        _saturations(program)
        cases[name] = {
            **_medians(repeats, partial(_saturations, program)),
            **_medians(min(repeats, EXPLANATIONS), partial(_explanation, program)),
        }
    return cases


def _medians(repeats: int, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    rounds = [measure() for _ in range(repeats)]
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def _saturations(program: Program) -> dict[str, float]:
    from tinyc.egraph.rulefiles import load_rules
    from tinyc.egraph.saturate import saturate
    from tinyc.pipeline import machine

    rules, limits = load_rules(), machine("cpu").limits
    plain, plain_s = timed(lambda: saturate(program, rules, machine=limits))
    recorded, recorded_s = timed(lambda: saturate(program, rules, machine=limits, record=True))
    assert recorded.provenance is not None, "the engine gave nothing back"
    tables = recorded.provenance.rows.tables
    engine_s, recorded_engine_s = (sum(phase.seconds for phase in each.phases) for each in (plain, recorded))
    return {
        "enodes": plain.phases[-1].enodes,
        "records": sum(len(tables[each.table]) for each in recorded.provenance.records),
        "engine_s": engine_s,
        "recorded_engine_s": recorded_engine_s,
        "engine_ratio": recorded_engine_s / engine_s,
        "saturate_s": plain_s,
        "recorded_saturate_s": recorded_s,
        "saturate_ratio": recorded_s / plain_s,
    }


def _explanation(program: Program) -> dict[str, float]:
    from tinyc.explain.explain import derive_program, explain_program
    from tinyc.explained import record
    from tinyc.pipeline import Options, compile_program

    options = Options("cpu")
    found = record(compile_program(program, options, code=False), options)
    assert found is not None, "the naive program was used"
    _, derive_s = timed(lambda: derive_program(found, wholes=False))
    explanation, explain_s = timed(lambda: explain_program(found))
    return {
        "derive_s": derive_s,
        "explain_s": explain_s,
        "steps": len(explanation.steps),
        "unchecked": sum(not step.checked for step in explanation.steps),
    }


BENCHMARK = Benchmark(
    "explanations",
    "saturation with the rules' matches recorded and without, and explaining from them",
    run,
    9,
    MEANINGS,
)
