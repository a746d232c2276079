"""The hardware table's coefficients, fitted to measured times (document 004 §13)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from .hardware import Hardware
from .measurements import Measurement
from .model import Roofline

COEFFICIENTS = ("flops", "vector_flops", "ops", "bandwidth", "launch", "value", "cache_bandwidth")
"""What is fitted: rates and set-up costs. Sizes of the machine are facts."""

FARTHEST = 64.0
"""A coefficient is multiplied or divided by this much at most: what a log cannot tell it leaves nearly as it is."""

OUTLIER = math.log(8.0)
"""Errors beyond a factor of 8 count linearly, not squared: a measurement that a busy machine spoiled."""

STEPS = (2.0, 1.4, 1.1, 1.03)
"""Factors by which coefficients are tried, from coarse to fine."""

ROUNDS = 40
"""Passes over the coefficients with one factor, at most."""

PRICE = 1e-4
"""Squared error that a coefficient's distance from the table costs: decides between fits that are equally good."""


@dataclass(frozen=True)
class Errors:
    """Of |log(estimate / actual)| over the rows of a log, as factors (1: every estimate is exact): the root of the mean
    square, the mean, and the median."""

    square: float
    mean: float
    median: float


def calibrate(log: Sequence[Measurement], hardware: Hardware) -> Hardware:
    """``hardware`` with the coefficients under which the Roofline's estimates fit the log best.

    It looks for the least mean square of log(estimate / actual) (Huber's, since some measurements are spoiled), over
    the rows whose target is ``hardware.name``, by trying factors on one coefficient after the other; nothing is assumed
    of the formulas. It goes only where none of the three :class:`Errors` is worse than with ``hardware``.
    """
    rows = [row for row in log if row.target == hardware.name]
    first = _errors(_ratios(rows, hardware))
    best, cost = hardware, _cost(rows, hardware, hardware, first)
    for step in STEPS if rows else ():
        for _ in range(ROUNDS):
            before = cost
            for name in COEFFICIENTS:
                for tried in _beside(best, hardware, name, step):
                    found = _cost(rows, tried, hardware, first)
                    if found < cost:
                        best, cost = tried, found
                        break
            if cost > before * (1 - 1e-6):
                break
    return best


def errors(log: Sequence[Measurement], hardware: Hardware) -> Errors:
    """How far the Roofline's estimates on ``hardware`` are from the rows of its target; exact where there are none."""
    return _errors(_ratios([row for row in log if row.target == hardware.name], hardware))


def _errors(ratios: Sequence[float]) -> Errors:
    found = [abs(each) for each in ratios] or [0.0]
    square = math.sqrt(sum(each * each for each in found) / len(found))
    return Errors(math.exp(square), math.exp(sum(found) / len(found)), math.exp(median(found)))


def _beside(best: Hardware, table: Hardware, name: str, step: float) -> Iterator[Hardware]:
    """``best`` with a coefficient a factor larger and smaller, no farther from the table than is allowed."""
    value, first = getattr(best, name), getattr(table, name)
    for factor in (step, 1 / step) if first else ():  # what the table does not charge stays free
        if 1 / FARTHEST <= value * factor / first <= FARTHEST:
            yield replace(best, **{name: value * factor})


def _cost(rows: Sequence[Measurement], hardware: Hardware, table: Hardware, most: Errors) -> float:
    """What is minimised; infinite where one of the errors is larger than ``most``."""
    ratios = _ratios(rows, hardware)
    now = _errors(ratios)
    if now.square > most.square or now.mean > most.mean or now.median > most.median:
        return math.inf
    sizes = (abs(each) for each in ratios)
    counted = (each * each if each < OUTLIER else OUTLIER * (2 * each - OUTLIER) for each in sizes)
    away = (
        math.log(getattr(hardware, name) / first) for name in COEFFICIENTS if (first := getattr(table, name))
    )
    return sum(counted) / max(1, len(rows)) + PRICE * sum(each * each for each in away)


def _ratios(rows: Sequence[Measurement], hardware: Hardware) -> list[float]:
    """log(estimate / actual) of each row."""
    model = Roofline(hardware)
    return [math.log(max(model.kernel(row.work), 1e-12) / row.actual) for row in rows]
