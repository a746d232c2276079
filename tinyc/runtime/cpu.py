"""Runs an extracted program on the CPU: compiles its kernels, lays out its memory as planned, calls them in order."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tinyc.codegen.cpu import CpuKernel, generate
from tinyc.ir.buffer import ALIGNMENT, aligned
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.execution import planned
from tinyc.ir.plan import Extracted

from .arena import Memory, aligned_copy, aligned_empty, is_aligned
from .jit import Code, Function
from .measure import processor

Array = NDArray[Any]


@dataclass(frozen=True)
class Profile:
    """Outputs of one run, and the seconds that each instruction took, in order."""

    outputs: list[Array]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class _Step:
    """One instruction, ready to be called: buffers by id, inputs then outputs."""

    function: Function
    kernel: CpuKernel
    buffers: tuple[int, ...]
    name: str


class Executable:
    """A compiled program. Calling it is safe from several threads at once.

    Attributes:
        kernels: one per instruction number of the plan (equal ones share their machine code).
        unique_kernels: how many were compiled.
        arena_bytes: intermediate buffers of one call, with reuse (``plan.arena``).
        scratch_bytes: scratch memory of all threads of one call.
        peak_bytes: both together: all that one call allocates beyond inputs and outputs.
    """

    def __init__(self, program: Extracted, threads: int | None = None) -> None:
        """Compiles. ``threads``: how many work on one kernel (default: one per CPU).

        Raises:
            TinycError: CodegenFailed.
        """
        self.program = program
        self.threads = max(1, threads or os.cpu_count() or 1)
        pairs = zip(program.regions, program.plans, strict=True)
        self.kernels = tuple(generate(region, plan) for region, plan in pairs)
        self._code = Code(self.kernels)
        self.unique_kernels = len(self._code)
        execution = program.execution
        if any(buffer.offset is None for buffer in execution.internal()):  # a plan made by hand
            execution = planned(execution)
        self._execution = execution
        self._buffers = {buffer.id: buffer for buffer in execution.buffers}
        self._offsets = {buffer.id: buffer.offset for buffer in execution.internal()}
        self._alignment = alignments(program)
        self._steps = tuple(
            _Step(
                self._code[self.kernels[item.kernel]],
                self.kernels[item.kernel],
                (*item.inputs, *item.outputs),
                item.debug_name,
            )
            for item in execution.instructions
        )
        shares = (aligned(step.kernel.scratch_bytes) * self._parts(step.kernel) for step in self._steps)
        self.arena_bytes = execution.arena.bytes
        self.scratch_bytes = max(shares, default=0)
        self.peak_bytes = self.arena_bytes + self.scratch_bytes
        self._idle: list[Memory] = []
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Fresh output arrays for the given inputs (C-contiguous, of the plan's dtypes and shapes).

        Raises:
            TinycError: InputMismatch.
            MemoryError: where there is no memory for the outputs or the intermediate buffers.
        """
        return self._run(inputs, None)

    @property
    def machine(self) -> str:
        """What the processor calls itself."""
        return processor()

    def profile(self, inputs: Sequence[Array]) -> Profile:
        """As a call, with the time of each instruction."""
        seconds: list[float] = []
        outputs = self._run(inputs, seconds)
        return Profile(outputs, tuple(seconds))

    def _run(self, inputs: Sequence[Array], seconds: list[float] | None) -> list[Array]:
        execution = self._execution
        self._check(inputs)
        inputs = self._aligned(inputs)
        memory = self._take()
        try:
            addresses = {id: memory.address + (offset or 0) for id, offset in self._offsets.items()}
            for id, array in zip(execution.input_buffers, inputs, strict=True):
                addresses[id] = array.ctypes.data
            results: dict[int, Array] = {}
            for id in execution.output_buffers:
                if id not in execution.input_buffers and id not in results:
                    buffer = self._buffers[id]
                    alignment = max(ALIGNMENT, self._alignment.get(id, 1))
                    results[id] = aligned_empty(buffer.shape, buffer.dtype.numpy, alignment)
                    addresses[id] = results[id].ctypes.data
            scratch = memory.address + self.arena_bytes
            for step in self._steps:
                start = time.perf_counter()
                self._call(step, addresses, scratch)
                if seconds is not None:
                    seconds.append(time.perf_counter() - start)
        finally:
            self._give_back(memory)
        return self._outputs(inputs, results)

    def _outputs(self, inputs: Sequence[Array], results: dict[int, Array]) -> list[Array]:
        """One array per output: an input, or a buffer returned twice, is copied."""
        outputs: list[Array] = []
        given = dict(zip(self._execution.input_buffers, inputs, strict=True))
        for id in self._execution.output_buffers:
            array = results.get(id, given.get(id))
            assert array is not None
            taken = id in given or any(array is other for other in outputs)
            outputs.append(aligned_copy(array, ALIGNMENT) if taken else array)
        return outputs

    def _check(self, inputs: Sequence[Array]) -> None:
        ids = self._execution.input_buffers
        if len(inputs) != len(ids):
            raise TinycError(
                "InputMismatch",
                f"{len(inputs)} inputs for {len(ids)}",
                "pass one array per input of the signature",
            )
        for id, array in zip(ids, inputs, strict=True):
            buffer = self._buffers[id]
            if (
                array.dtype != buffer.dtype.numpy
                or array.shape != buffer.shape
                or not array.flags.c_contiguous
            ):
                raise TinycError(
                    "InputMismatch",
                    f"{_spell(array)} where the program takes {buffer.dtype}{list(buffer.shape)}, contiguous",
                    "pass an array of that dtype and shape; nothing is cast",
                    at={"value": buffer.name},
                )

    def _aligned(self, inputs: Sequence[Array]) -> list[Array]:
        """The inputs, copied where the Regions say that they are more aligned than the caller's array is."""
        pairs = zip(self._execution.input_buffers, inputs, strict=True)
        wanted = ((array, self._alignment.get(id, 1)) for id, array in pairs)
        return [array if is_aligned(array, size) else aligned_copy(array, size) for array, size in wanted]

    def _parts(self, kernel: CpuKernel) -> int:
        """How many threads share a kernel."""
        return max(1, min(self.threads, kernel.extent // kernel.grain))

    def _call(self, step: _Step, addresses: dict[int, int], scratch: int) -> None:
        kernel = step.kernel
        table = (ctypes.c_void_p * len(step.buffers))(*(addresses[id] for id in step.buffers))
        pointer = ctypes.addressof(table)
        parts = self._parts(kernel)
        if parts == 1:
            step.function(pointer, 0, kernel.extent, scratch)
            return
        stride = aligned(kernel.scratch_bytes)
        bounds = [kernel.extent * part // parts for part in range(parts + 1)]
        pool = self._threads()
        running = [
            pool.submit(step.function, pointer, bounds[part], bounds[part + 1], scratch + part * stride)
            for part in range(1, parts)
        ]
        try:
            step.function(pointer, 0, bounds[1], scratch)
        finally:  # an interrupt must not free memory that is still written to
            wait(running)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._pool_process != os.getpid():  # threads do not survive a fork
                self._pool = ThreadPoolExecutor(self.threads - 1, "tinyc")
                self._pool_process = os.getpid()
            return self._pool

    def _take(self) -> Memory:
        """Memory of an earlier call that is over, or new memory."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Memory(self.peak_bytes, self._execution.arena.alignment)

    def _give_back(self, memory: Memory) -> None:
        with self._lock:
            if len(self._idle) < self.threads:
                self._idle.append(memory)


def alignments(program: Extracted) -> dict[int, int]:
    """What the Regions take for granted of each buffer's address, in bytes."""
    found: dict[int, int] = {}
    for instruction in program.execution.instructions:
        region = program.regions[instruction.kernel]
        ids = (*instruction.inputs, *instruction.outputs)
        for id, ref in zip(ids, (*region.inputs, *region.outputs), strict=True):
            found[id] = max(found.get(id, 1), ref.alignment)
    return found


def _spell(array: Array) -> str:
    order = "" if array.flags.c_contiguous else ", not contiguous"
    return f"{array.dtype}{list(array.shape)}{order}"
