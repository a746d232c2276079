"""A program for a GPU, on one: loaded once, called with arrays of the host or of the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu import Profile, alignments
from .arrays import DeviceArray, Memory
from .device import reported
from .loader import ALIGNMENT, Device, Program
from .manifest import Loadable
from .program import CudaProgram
from .timing import Timer

Array = NDArray[Any]


class Launched:
    """``cuda`` on the first GPU. Calling it is safe from several threads; on one stream calls run one after the other.

    ``peak_bytes``: all that a call takes on the device. Raises TinycError TargetUnavailable where there is no driver, no GPU,
    or one that the code does not run on; and what the driver refuses.
    """

    def __init__(self, cuda: CudaProgram, given: Loadable, device: Device) -> None:
        self.program, self.device = cuda.program, device
        with reported():
            self._code = Program(given.manifest, given.images, device)
        self._execution = cuda.program.execution
        self._buffers = {buffer.id: buffer for buffer in self._execution.buffers}
        self._alignment = alignments(cuda.program)
        self.peak_bytes = given.manifest["arena_bytes"] + self._code.outside_bytes

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Fresh arrays of the host for arrays of the host, C-contiguous, of the plan's dtypes and shapes."""
        with reported():
            return self._typed(self._code.run(inputs))

    @property
    def machine(self) -> str:
        """What the GPU calls itself."""
        return self.device.name

    def profile(self, inputs: Sequence[Array]) -> Profile:
        """As a call, with the seconds that each launch took, by events of the device."""
        timer = Timer(self.device)
        with reported():
            outputs = self._code.run(inputs, each=timer)
        return Profile(self._typed(outputs), tuple(timer.seconds))

    def on_device(self, inputs: Sequence[DeviceArray], stream: int) -> list[DeviceArray]:
        """Fresh arrays of the device for arrays of the device. It does not wait for them: they are ready after what is under
        way on ``stream``. An input that is less aligned than a kernel needs is copied."""
        execution = self._execution
        with reported():
            held: dict[int, DeviceArray] = {}
            for id, array in zip(execution.input_buffers, inputs, strict=True):
                held[id] = self._aligned(array, min(self._alignment.get(id, 1), ALIGNMENT), stream)
            given = set(held)
            for id in execution.output_buffers:
                held.setdefault(id, self._fresh(id, stream))
            self._code.launch({id: array.address for id, array in held.items()}, stream)
            outputs: list[DeviceArray] = []
            for id in execution.output_buffers:
                array = held[id]
                if id in given or any(array is other for other in outputs):
                    array = self._copied(array, stream)
                outputs.append(array)
            return outputs

    def _fresh(self, id: int, stream: int) -> DeviceArray:
        buffer = self._buffers[id]
        memory = Memory(self.device, buffer.bytes)
        return DeviceArray(memory.address, buffer.dtype, buffer.shape, memory, stream, self.device.ordinal)

    def _copied(self, array: DeviceArray, stream: int) -> DeviceArray:
        memory = Memory(self.device, array.nbytes)
        self._code.copy(memory.address, array.address, array.nbytes, stream)
        return DeviceArray(memory.address, array.dtype, array.shape, memory, stream, self.device.ordinal)

    def _aligned(self, array: DeviceArray, alignment: int, stream: int) -> DeviceArray:
        return array if array.address % alignment == 0 else self._copied(array, stream)

    def _typed(self, outputs: Sequence[Array]) -> list[Array]:
        """Of the loader, which knows no bf16."""
        ids = self._execution.output_buffers
        return [
            np.asarray(array).view(self._buffers[id].dtype.numpy).reshape(self._buffers[id].shape)
            for id, array in zip(ids, outputs, strict=True)
        ]
