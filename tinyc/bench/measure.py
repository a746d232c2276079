"""What all benchmarks share: their form, the clock, and a description of the machine."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from tinyc.runtime.measure import processor

Cases = dict[str, dict[str, float]]
"""Case (a size, a program) -> figure -> value. The name of a figure carries its unit, as in ``time_s``."""

PAUSE = 0.3
"""Seconds. The threads of OpenMP spin for 0.2 s after their last work, and take a core from whoever comes next."""

PACKAGES = ("tinyc", "egglog", "llvmlite", "numpy")


@dataclass(frozen=True)
class Benchmark:
    """``run(repeats, peers)`` measures. ``meanings``: what each figure is of. ``peers``: the names that it takes."""

    name: str
    about: str
    run: Callable[[int, Sequence[str]], Cases]
    repeats: int
    meanings: Mapping[str, str]
    peers: tuple[str, ...] = ()


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of one call, and its wall time."""
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call."""
    return timed(call)[1]


def in_turns(calls: Sequence[Callable[[], Any]], repeats: int) -> list[list[float]]:
    """The times of each call, in turns, so that a busy machine slows them all. In its turn a call runs once untimed
    and once timed, after a pause in which the threads of the one before come to rest."""
    rounds = [[_settled(call) for call in calls] for _ in range(repeats)]
    return [list(times) for times in zip(*rounds, strict=True)]


def _settled(call: Callable[[], Any]) -> float:
    time.sleep(PAUSE)
    call()
    return seconds(call)


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the turns of our time by theirs: below 1 is faster."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def machine() -> dict[str, str]:
    """What the figures depend on: processor, cores, load before the run, versions. No name of the machine."""
    found = {"cpu": processor(), "cores": str(os.cpu_count()), "python": platform.python_version()}
    if hasattr(os, "getloadavg"):
        found["load"] = f"{os.getloadavg()[0]:.2f}"
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
