"""As much of torch as ``bench.py`` calls, over the memory of a :class:`FakeDriver`: what it asks of the GPU takes 2 ms there.

Values are computed at once, in float64; time passes on the stream that is current, or when a graph is replayed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from fake_driver import FakeDriver

MILLISECONDS = 2.0


class Tensor:
    def __init__(self, torch: FakeTorch, array: np.ndarray) -> None:
        self._torch, self._array, self.shape = torch, array, array.shape

    def double(self) -> Tensor:
        return Tensor(self._torch, self._array.astype(np.float64))

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self._torch, self._array.view(dtype))

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self._array

    def swapaxes(self, one: int, other: int) -> Tensor:
        return Tensor(self._torch, self._array.swapaxes(one, other))

    def sum(self, axis: int) -> Tensor:
        return self._torch.computed(self._array.astype(np.float64).sum(axis))


class FakeTorch:
    """``wrong``: is added to every product. ``replays``: the streams that graphs were replayed on."""

    __version__ = "0.fake"
    bfloat16 = ml_dtypes.bfloat16

    def __init__(self, driver: FakeDriver, wrong: float = 0.0) -> None:
        self._driver, self._wrong = driver, wrong
        self._stream = 0
        self._capturing: Graph | None = None
        self.replays: list[int] = []
        self.version = SimpleNamespace(cuda="fake")
        self.nn = SimpleNamespace(functional=SimpleNamespace())
        self.backends = SimpleNamespace(
            cudnn=SimpleNamespace(version=lambda: 0), cuda=SimpleNamespace(matmul=SimpleNamespace())
        )
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            empty_cache=lambda: None,
            ExternalStream=lambda number: SimpleNamespace(
                number=number, synchronize=lambda: driver._flush(number)
            ),
            stream=self._on,
            graph=self._graph,
            CUDAGraph=lambda: Graph(self),
        )

    def set_grad_enabled(self, wanted: bool) -> None:
        pass

    def as_tensor(self, lent: Any, device: str) -> Tensor:
        interface = lent.__cuda_array_interface__
        shape, kind = interface["shape"], np.dtype(interface["typestr"])
        found = self._driver.bytes_at(interface["data"][0], int(np.prod(shape)) * kind.itemsize)
        assert found is not None and device == "cuda" and interface["version"] == 3
        return Tensor(self, found.view(kind).reshape(shape))

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        one, other = (each._array.astype(np.float64) for each in (a, b))
        return self.computed(one @ other + (self._wrong if a._array.dtype != np.float64 else 0))

    def softmax(self, x: Tensor, axis: int) -> Tensor:
        raise RuntimeError("not compiled for this GPU\nand more lines of it")

    def computed(self, array: np.ndarray) -> Tensor:
        """A result, which takes its time on the current stream."""
        if self._capturing is not None:
            self._capturing.work.append(self._pass)
        else:
            self._driver._put(self._stream, self._pass)
        return Tensor(self, array)

    def _pass(self) -> None:
        self._driver._clock += MILLISECONDS

    @contextlib.contextmanager
    def _on(self, stream: Any) -> Iterator[None]:
        before, self._stream = self._stream, stream.number
        yield
        self._stream = before

    @contextlib.contextmanager
    def _graph(self, graph: Graph, stream: Any, capture_error_mode: str) -> Iterator[None]:
        assert stream.number, "the default stream cannot be captured"
        self._capturing = graph
        yield
        self._capturing = None


class Graph:
    def __init__(self, torch: FakeTorch) -> None:
        self._torch = torch
        self.work: list[Callable[[], None]] = []

    def replay(self) -> None:
        self._torch.replays.append(self._torch._stream)
        for work in self.work:
            self._torch._driver._put(self._torch._stream, work)
