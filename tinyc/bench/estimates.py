"""cpu-estimates: the cost model's estimates of the benchmark programs' kernels beside their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .measure import Benchmark, Cases
from .models import compile_model, random_arrays
from .programs import MODELS, Model

if TYPE_CHECKING:
    from tinyc.extract.cost.measurements import Measurement

MEANINGS = {
    "kernels": "of the program",
    "estimate_s": "their estimates added up",
    "time_s": "their times added up: of each the median of the runs",
    "ratio": "estimate over time",
    "least_ratio": "of one kernel: the one most underestimated",
    "most_ratio": "of one kernel: the one most overestimated",
    "typical_error": "the factor between estimate and time of the median kernel, whichever is longer",
}


def run(repeats: int, peers: Sequence[str] = (), models: Mapping[str, Model] = MODELS) -> Cases:
    """One case for each program, and one for all kernels together."""
    measured = {name: _measured(model, repeats) for name, model in models.items()}
    every = tuple(row for rows in measured.values() for row in rows)
    return {name: _figures(rows) for name, rows in {**measured, "all": every}.items()}


def _measured(model: Model, repeats: int) -> tuple[Measurement, ...]:
    return compile_model(model).measure(*random_arrays(model), repeats=repeats)


def _figures(rows: Sequence[Measurement]) -> dict[str, float]:
    from tinyc.extract.cost.calibration import errors
    from tinyc.extract.cost.hardware import hardware
    from tinyc.extract.cost.measurements import accuracy

    quantiles = accuracy(rows).quantiles
    estimate, time = sum(row.estimate for row in rows), sum(row.actual for row in rows)
    return {
        "kernels": len(rows),
        "estimate_s": estimate,
        "time_s": time,
        "ratio": estimate / time,
        "least_ratio": quantiles[0],
        "most_ratio": quantiles[-1],
        "typical_error": errors(rows, hardware("cpu")).median,
    }


BENCHMARK = Benchmark(
    "cpu-estimates",
    "the cost model's estimates beside the times of kernels",
    run,
    15,
    MEANINGS,
)
