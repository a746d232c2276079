"""What single launches take on a GPU."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .loader import Device, Driver

LONG = 1e-3
"""Seconds. A launch that takes less is repeated until it does: between two events there is also what the host takes to start it."""

MOST = 64
"""Times that a launch is repeated."""


@dataclass
class Timer:
    """Runs each launch that it is given, and appends to ``seconds`` what it took: of a short one the mean of several in a row,
    which finds in the cache what it finds there. A launch writes the same as often as it is repeated. Raises DriverError."""

    device: Device
    seconds: list[float] = field(default_factory=list)

    def __call__(self, start: Callable[[int], None]) -> None:
        with self.device.current() as driver, _stream(driver) as stream:
            driver("cuStreamSynchronize", 0)  # the inputs have arrived
            once = _elapsed(driver, stream, lambda: start(stream))
            count = min(math.ceil(LONG / max(once, LONG / MOST)), MOST)
            if count == 1:
                self.seconds.append(once)
                return
            with _graph(driver, stream, [start] * count) as graph:
                driver("cuGraphLaunch", graph, stream)  # so that the GPU is busy while the next one is sent
                took = _elapsed(driver, stream, lambda: driver("cuGraphLaunch", graph, stream))
                self.seconds.append(took / count)


@contextlib.contextmanager
def _stream(driver: Driver) -> Iterator[int]:
    """One of its own; what is on it is done in the end."""
    stream = driver("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
    try:
        yield int(stream)
    finally:
        driver("cuStreamSynchronize", stream)
        driver("cuStreamDestroy", stream)


@contextlib.contextmanager
def _graph(driver: Driver, stream: int, starts: Sequence[Callable[[int], None]]) -> Iterator[Any]:
    """Launches, to be started at once."""
    mode = driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    driver("cuStreamBeginCapture", stream, mode)
    try:
        for start in starts:
            start(stream)
    finally:
        graph = driver("cuStreamEndCapture", stream)
    try:
        executable = driver("cuGraphInstantiate", graph, 0)
    finally:
        driver("cuGraphDestroy", graph)
    try:
        yield executable
    finally:
        driver("cuStreamSynchronize", stream)
        driver("cuGraphExecDestroy", executable)


def _elapsed(driver: Driver, stream: int, work: Callable[[], Any]) -> float:
    """Seconds between two events around ``work``."""
    first, last = (driver("cuEventCreate", 0) for _ in range(2))
    try:
        driver("cuEventRecord", first, stream)
        work()
        driver("cuEventRecord", last, stream)
        driver("cuEventSynchronize", last)
        return float(driver("cuEventElapsedTime", first, last)) * 1e-3
    finally:
        for event in (first, last):
            driver("cuEventDestroy", event)
