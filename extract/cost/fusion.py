"""What merging kernels changes, in the document's terms (004 §11, the difference that fusion makes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .model import Roofline, Work

PENALTIES = ("fan-out", "narrow vectors", "strided accesses", "transposition", "piecewise")
ADDED = ("epilogue", "overlap", "code", "launch")


def fusion_terms(model: Roofline, before: Sequence[Work], after: Work) -> Mapping[str, float]:
    """The change of the estimate, in seconds, where the kernels ``before`` become the one kernel ``after``:

    Δtime = work + occupancy + penalties − saved bytes / bandwidth (+ epilogue, overlap, code, launch).

    "saved bytes" is what no longer goes through memory (negative), "work" the change of the longer side of the roofline
    at its peak beside that, "occupancy" (the document's Δocc_time) what occupancy, pipeline and waves take more or less.
    The values add up to ``kernel(after)`` minus the kernels before.
    """
    ideal = _ideal(model, after) - sum(_ideal(model, work) for work in before)
    sides = _side(model, after) - sum(_side(model, work) for work in before)
    saved = max(0.0, sum(map(_memory, before)) - _memory(after)) / model.hardware.bandwidth
    terms, olds = model.terms(after), [model.terms(work) for work in before]
    change = {name: terms[name] - sum(old[name] for old in olds) for name in (*PENALTIES, *ADDED)}
    return {
        "work": ideal + saved,
        "occupancy": sides - ideal,
        "penalties": sum(change[name] for name in PENALTIES),
        "saved bytes": -saved,
        **{name: change[name] for name in ADDED},
    }


def _memory(work: Work) -> float:
    return work.bytes_read + work.bytes_written


def _side(model: Roofline, work: Work) -> float:
    found = model.quantities(work)
    return max(found["compute_side"], found["memory_side"])


def _ideal(model: Roofline, work: Work) -> float:
    """The longer side, were the machine evenly full and the epilogue free where it is a term of its own."""
    row = model.hardware
    scheduled = work.schedule is not None and row.sms > 0
    compute = work.flops / row.flops + work.vector_flops / (row.vector_flops or row.flops)
    compute += work.tf32_flops / (row.tf32_flops or row.vector_flops or row.flops)
    compute += (work.ops - (work.epilogue_ops if scheduled else 0.0)) / row.ops
    return max(compute, (work.bytes_read + row.write * work.bytes_written) / row.bandwidth)
