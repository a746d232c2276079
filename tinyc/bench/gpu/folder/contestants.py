"""Our program, torch's and Triton's functions, on the same copies of the inputs: each a graph of one call for every copy.

The GPU starts a graph's calls by itself, so that what is timed is its time and not that of Python. Copies take turns within the
graph: by the time that one comes again, the others have driven it out of the L2 cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

ALIGNMENT = 256
"""Bytes, of each array on the device."""

WARM_CALLS = 3
"""Of each contestant: Triton and cuDNN choose their kernels in the first."""

INTERFACE = {"fp16": "<f2", "bf16": "<i2", "fp32": "<f4", "i32": "<i4"}
"""What ``__cuda_array_interface__`` calls the dtypes. It has no bf16: torch is shown the bits."""


class Copies:
    """``count`` copies of the inputs and the output of an entry. The device's errors are raised as they come."""

    def __init__(self, device: Any, entry: Mapping[str, Any], count: int, stream: int) -> None:
        self._device, self._stream, self.count = device, stream, count
        self.arrays = [*entry["inputs"], entry["output"]]
        self.places: list[list[int]] = []
        sizes = [-(-each["bytes"] // ALIGNMENT) * ALIGNMENT for each in self.arrays]
        self._bytes = sum(sizes) * count
        self._base = device.allocate(self._bytes)
        place = self._base
        for _ in range(count):
            self.places.append([place + sum(sizes[:number]) for number in range(len(sizes))])
            place += sum(sizes)

    def fill(self, arrays: Sequence[np.ndarray]) -> None:
        """Writes the inputs of every copy; outputs are all ones, which is NaN in floats."""
        out = np.full(self.arrays[-1]["bytes"], 0xFF, np.uint8)
        with self._device.current() as driver:
            for place, array in zip(self.places[0], (*arrays, out), strict=True):
                driver("cuMemcpyHtoDAsync", place, array.ctypes.data, array.nbytes, self._stream)
            for copy in self.places[1:]:
                for place, first, each in zip(copy, self.places[0], self.arrays, strict=True):
                    driver("cuMemcpyDtoDAsync", place, first, each["bytes"], self._stream)
            driver("cuStreamSynchronize", self._stream)

    def result(self, copy: int) -> np.ndarray:
        """The output of a copy, as bytes, once what is under way is done."""
        found = np.empty(self.arrays[-1]["bytes"], np.uint8)
        with self._device.current() as driver:
            driver("cuMemcpyDtoHAsync", found.ctypes.data, self.places[copy][-1], found.nbytes, self._stream)
            driver("cuStreamSynchronize", self._stream)
        return found

    def close(self) -> None:
        self._device.free(self._base, self._bytes)
        self._device.collect()


class Ours:
    """The bundle's program. ``call``: starts it on a copy. ``capture``, then ``launch``: on all of them."""

    name = "tinyc"

    def __init__(self, program: Any, copies: Copies, device: Any, stream: int) -> None:
        self._program, self._device, self._stream = program, device, stream
        numbers = (*program.manifest["inputs"], *program.manifest["outputs"])
        self._places = [dict(zip(numbers, places, strict=True)) for places in copies.places]
        self._graph: Any = None

    def call(self, copy: int) -> None:
        self._program.launch(self._places[copy], self._stream)

    def capture(self) -> None:
        for number in range(WARM_CALLS):
            self.call(number % len(self._places))
        with self._device.current() as driver:
            mode = driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            driver("cuStreamBeginCapture", self._stream, mode)
            try:
                for copy in range(len(self._places)):
                    self.call(copy)
            finally:
                graph = driver("cuStreamEndCapture", self._stream)
            self._graph = driver("cuGraphInstantiate", graph, 0)
            driver("cuGraphDestroy", graph)

    def launch(self) -> None:
        with self._device.current() as driver:
            driver("cuGraphLaunch", self._graph, self._stream)

    def close(self) -> None:
        if self._graph is not None:
            with self._device.current() as driver:
                driver("cuGraphExecDestroy", self._graph)


class Peer:
    """A function over torch's tensors, which are views of the copies; its results are memory of torch's."""

    def __init__(
        self,
        name: str,
        torch: Any,
        function: Callable[..., Any],
        parameters: Mapping[str, Any],
        views: Sequence[Sequence[Any]],
        stream: int,
    ) -> None:
        self.name, self._torch, self._views = name, torch, views
        self._function = functools.partial(function, **parameters)
        self._stream = torch.cuda.ExternalStream(stream)
        self._graph: Any = None

    def result(self) -> np.ndarray:
        """Of the first copy, as float64."""
        with self._torch.cuda.stream(self._stream):
            found: np.ndarray = self._function(*self._views[0]).double().cpu().numpy()
        return found

    def capture(self) -> None:
        torch = self._torch
        with torch.cuda.stream(self._stream):
            for number in range(WARM_CALLS):
                self._function(*self._views[number % len(self._views)])
        self._stream.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        results: list[Any] = [None] * len(self._views)
        with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
            for copy, views in enumerate(self._views):
                results[copy] = self._function(*views)  # kept, so that each call writes to a place of its own

    def launch(self) -> None:
        with self._torch.cuda.stream(self._stream):
            self._graph.replay()

    def close(self) -> None:
        self._graph = None
        self._torch.cuda.empty_cache()


class _Lent:
    """Memory of the device as torch takes it in."""

    def __init__(self, address: int, dtype: str, shape: Sequence[int]) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(shape),
            "typestr": INTERFACE[dtype],
            "data": (address, False),
            "version": 3,
        }


def views_of(torch: Any, copies: Copies) -> list[list[Any]]:
    """The inputs of each copy as tensors of torch, where they lie."""
    return [
        [_view(torch, place, each) for place, each in zip(places[:-1], copies.arrays[:-1], strict=True)]
        for places in copies.places
    ]


def _view(torch: Any, place: int, declared: Mapping[str, Any]) -> Any:
    tensor = torch.as_tensor(_Lent(place, declared["dtype"], declared["shape"]), device="cuda")
    return tensor.view(torch.bfloat16) if declared["dtype"] == "bf16" else tensor


class Clock:
    """Two events around launches on a stream."""

    def __init__(self, device: Any, stream: int) -> None:
        self._device, self._stream = device, stream
        with device.current() as driver:
            self._events = [driver("cuEventCreate", 0) for _ in range(2)]

    def seconds(self, launch: Callable[[], None], times: int) -> float:
        """Of one of so many launches. One more goes before them, so that the GPU is busy while they are sent."""
        first, last = self._events
        with self._device.current() as driver:
            launch()
            driver("cuEventRecord", first, self._stream)
            for _ in range(times):
                launch()
            driver("cuEventRecord", last, self._stream)
            driver("cuEventSynchronize", last)
            return float(driver("cuEventElapsedTime", first, last)) * 1e-3 / times

    def close(self) -> None:
        with self._device.current() as driver:
            for event in self._events:
                driver("cuEventDestroy", event)


def in_turns(
    contestants: Sequence[Ours | Peer], clock: Clock, calls: int, repeat: int, least_s: float
) -> dict[str, list[float]]:
    """Seconds of one call, by contestant, one for each turn. In every other turn they run in the opposite order.
    ``calls``: of a launch. ``least_s``: what a contestant is timed for in a turn, at least."""
    launches = {
        each.name: max(1, math.ceil(least_s / max(clock.seconds(each.launch, 1), 1e-9)))
        for each in contestants
    }
    times: dict[str, list[float]] = {each.name: [] for each in contestants}
    for turn in range(repeat):
        for each in contestants if turn % 2 == 0 else reversed(contestants):
            times[each.name].append(clock.seconds(each.launch, launches[each.name]) / calls)
    return times
