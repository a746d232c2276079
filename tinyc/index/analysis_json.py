"""The report of Poly Core as JSON values (document 004 §7.1)."""

from __future__ import annotations

from typing import Any

from .compute_at import ComputeAt, MinBuffer
from .core import Analysis


def analysis_to_json(analysis: Analysis) -> dict[str, Any]:
    """``{"analysis": {…}}``: the document's keys first, then ours. Strict JSON."""
    found = analysis.barrier
    return {
        "analysis": {
            "region": analysis.region,
            "parallel_axes": list(analysis.parallel_axes),
            "reduce_axes": list(analysis.reduce_axes),
            "tail_axes": list(analysis.tail_axes),
            "compute_at": compute_at_to_json(analysis.compute_at),
            "min_buffer": min_buffer_to_json(analysis.min_buffer),
            "target": analysis.target,
            "tile": dict(analysis.tile),
            "affine": analysis.affine,
            "dependences": [
                {"from": each.source, "to": each.target, "kind": each.kind, "axes": list(each.axes)}
                for each in analysis.dependences
            ],
            "barrier": None
            if found is None
            else {"model": found.model, "operations": list(found.operations)},
            "bank_conflicts": [
                {"tensor": each.tensor, "pitch_bytes": each.pitch, "ways": each.ways, "swizzle": each.swizzle}
                for each in analysis.bank_conflicts
            ],
        }
    }


def compute_at_to_json(found: ComputeAt) -> dict[str, Any]:
    """``halo.per_axis`` counts elements of both sides together, ``halo.sides`` gives [low, high] where there are any.
    ``why`` is there only where ``ok`` is false."""
    halo = {
        "bytes": found.halo_bytes,
        "per_axis": {name: each.total for name, each in found.halo.items()},
        "sides": {name: [each.low, each.high] for name, each in found.halo.items() if each.total},
    }
    report: dict[str, Any] = {
        "ok": found.ok,
        "halo": halo,
        "footprint_bytes": found.footprint_bytes,
        "recompute": found.recompute,
    }
    return report if found.why is None else {**report, "why": found.why}


def min_buffer_to_json(found: MinBuffer) -> dict[str, Any]:
    return {"buffer": found.buffer, "depth": found.depth}
