"""A CUDA driver without a GPU, after the driver API's documentation: what it refuses, this refuses, with the same error.

It stands in for the module ``cuda.bindings.driver``. Kernels run in the emulator, on memory of this process. What the
documentation leaves undefined raises :class:`Misuse`: memory used after it was freed, freed twice, arguments
that are not the kernel's. What is asynchronous happens as late as it may: when its stream is waited for. The types of all
arguments are shown to the real bindings, which look at them before they look for a driver.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cuda.bindings import driver as real
from elf import elf_at

from tinyc.codegen.emulator import emulate
from tinyc.codegen.emulator.parse import parse_ptx
from tinyc.codegen.emulator.ptx import Kernel

R = real.CUresult
SHARED_WITHOUT_ASKING = 48 << 10


class Misuse(AssertionError):
    """A call whose outcome the documentation leaves open."""


@dataclass
class Allocation:
    address: int
    bytes: np.ndarray
    freed: bool = False


@dataclass
class Function:
    module: int
    kernel: Kernel
    ptx: str
    dynamic_shared: int = SHARED_WITHOUT_ASKING


@dataclass
class Event:
    stream: int | None = None
    place: int = 0
    """Of its latest record among what was ever put on its stream."""
    time: float | None = None


@dataclass
class Stream:
    """``captured``: what a graph is made of, while one is; nothing of it happens."""

    waiting: list[Callable[[], None]] = field(default_factory=list)
    done: int = 0
    captured: list[Callable[[], None]] | None = None


class FakeDriver:
    """``images``: machine code -> its PTX. ``memory``: bytes of the device. ``launches``: names of the kernels that ran,
    ``arguments``: what they were given."""

    def __init__(
        self, images: Mapping[bytes, str], capability: tuple[int, int] = (8, 0), memory: int = 1 << 28
    ) -> None:
        self.images, self.capability, self.memory = images, capability, memory
        self.devices, self.l2_bytes = 1, 40 << 20
        self.launches: list[str] = []
        self.arguments: list[tuple[int, ...]] = []
        self.allocations: list[Allocation] = []
        self.modules: dict[int, bytes] = {}
        self.functions: dict[int, Function] = {}
        self.events: dict[int, Event] = {}
        self.streams: dict[int, Stream] = {0: Stream()}
        self.created: set[int] = set()  # streams, by the API
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.executables: dict[int, list[Callable[[], None]]] = {}
        self.retained = 0
        self.poisoned = R.CUDA_SUCCESS  # a kernel came to grief: all later calls say so
        self._initialised = False
        self._current = threading.local()
        self._next, self._handles, self._clock = 0x7F00_0000_0000, 0x1000, 0.0
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        """Functions of the API, checked as all are; enumerations and handles, as the real bindings have them."""
        if not hasattr(type(self), f"_{name}"):
            return getattr(real, name)
        method = object.__getattribute__(self, f"_{name}")

        def call(*arguments: Any) -> tuple[Any, ...]:
            shown_to_the_real_bindings(name, arguments)
            with self._lock:
                return self._answer(name, method, arguments)

        return call

    def _answer(self, name: str, method: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        status = R.CUDA_SUCCESS
        if name not in ("cuInit", "cuGetErrorName", "cuGetErrorString"):
            if not self._initialised:
                status = R.CUDA_ERROR_NOT_INITIALIZED
            elif self.poisoned != R.CUDA_SUCCESS and not name.startswith("cuCtxP"):
                status = self.poisoned
            elif not name.startswith(("cuDevice", "cuCtxPush", "cuDriver")) and not self._contexts():
                status = R.CUDA_ERROR_INVALID_CONTEXT
            elif name in UNSAFE_WHILE_CAPTURING and any(
                each.captured is not None for each in self.streams.values()
            ):
                status = R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        found = status if status != R.CUDA_SUCCESS else method(*arguments)
        if isinstance(found, R):
            return (found, *((None,) if name in WITH_RESULT else ()))
        if found is None:
            return (R.CUDA_SUCCESS,)
        return (R.CUDA_SUCCESS, *found) if isinstance(found, tuple) else (R.CUDA_SUCCESS, found)

    def _contexts(self) -> list[int]:
        if not hasattr(self._current, "stack"):
            self._current.stack = []
        return self._current.stack

    def _handle(self) -> int:
        self._handles += 16
        return self._handles

    @property
    def shared_limit(self) -> int:
        """Of a block (CUDA C++ programming guide, table of compute capabilities)."""
        return {(8, 0): 163 << 10, (9, 0): 227 << 10}.get(self.capability, 99 << 10)

    # ---- devices and contexts ---------------------------------------------------------------------------------------

    def _cuInit(self, flags: int) -> R | None:
        if flags:
            return R.CUDA_ERROR_INVALID_VALUE
        if not self.devices:
            return R.CUDA_ERROR_NO_DEVICE
        self._initialised = True
        return None

    def _cuGetErrorName(self, status: R) -> bytes:
        return R(int(status)).name.encode()

    def _cuGetErrorString(self, status: R) -> bytes:
        return f"what {R(int(status)).name} means".encode()

    def _cuDriverGetVersion(self) -> int:
        return 13000

    def _cuDeviceGetCount(self) -> int:
        return self.devices

    def _cuDeviceGet(self, ordinal: int) -> Any:
        return real.CUdevice(ordinal) if 0 <= ordinal < self.devices else R.CUDA_ERROR_INVALID_DEVICE

    def _cuDeviceGetName(self, length: int, device: Any) -> bytes:
        return b"a fake GPU"[: length - 1].ljust(length, b"\0")

    def _cuDeviceGetAttribute(self, attribute: Any, device: Any) -> Any:
        values = {
            real.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: self.capability[0],
            real.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: self.capability[1],
            real.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: self.shared_limit,
            real.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: self.l2_bytes,
            real.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: 108,
        }
        return values.get(real.CUdevice_attribute(int(attribute)), R.CUDA_ERROR_INVALID_VALUE)

    def _cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        self.retained += 1
        return real.CUcontext(0xC0)

    def _cuDevicePrimaryCtxRelease(self, device: Any) -> R | None:
        if not self.retained:
            return R.CUDA_ERROR_INVALID_CONTEXT
        self.retained -= 1
        return None

    def _cuCtxPushCurrent(self, context: Any) -> R | None:
        if int(context) != 0xC0 or not self.retained:
            return R.CUDA_ERROR_INVALID_CONTEXT
        self._contexts().append(0xC0)
        return None

    def _cuCtxPopCurrent(self) -> Any:
        return real.CUcontext(self._contexts().pop())

    def _cuCtxSynchronize(self) -> R:
        for stream in list(self.streams):
            self._flush(stream)
        return self.poisoned

    # ---- memory -----------------------------------------------------------------------------------------------------

    def _cuMemAlloc(self, size: int) -> Any:
        if size <= 0:
            return R.CUDA_ERROR_INVALID_VALUE
        if size + sum(each.bytes.size for each in self.allocations if not each.freed) > self.memory:
            return R.CUDA_ERROR_OUT_OF_MEMORY
        found = Allocation(self._next, np.full(size, 0xFF, np.uint8))
        self._next += -(-size // 512) * 512 + (1 << 20)
        self.allocations.append(found)
        return real.CUdeviceptr(found.address)

    def _cuMemFree(self, address: Any) -> R | None:
        found = next((each for each in self.allocations if each.address == int(address)), None)
        if found is None:
            return R.CUDA_ERROR_INVALID_VALUE
        if found.freed:
            raise Misuse(f"memory at {int(address):#x} is freed twice")
        found.freed = True
        return None

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return self.memory - sum(each.bytes.size for each in self.allocations if not each.freed), self.memory

    def bytes_at(self, address: int, size: int) -> np.ndarray | None:
        """The bytes of an allocation from ``address`` on; None where there are not as many."""
        for each in self.allocations:
            offset = address - each.address
            if 0 <= offset < each.bytes.size:
                if each.freed:
                    raise Misuse(f"memory at {address:#x} is used after it was freed")
                return each.bytes[offset : offset + size] if offset + size <= each.bytes.size else None
        return None

    def _cuMemcpyHtoDAsync(self, target: Any, source: Any, size: int, stream: Any) -> R | None:
        if self.bytes_at(int(target), size) is None:
            return R.CUDA_ERROR_INVALID_VALUE

        def copy() -> None:
            into = self.bytes_at(int(target), size)
            assert into is not None
            into[:] = np.frombuffer(ctypes.string_at(int(source), size), np.uint8)

        return self._put(stream, copy)

    def _cuMemcpyDtoHAsync(self, target: Any, source: Any, size: int, stream: Any) -> R | None:
        if self.bytes_at(int(source), size) is None:
            return R.CUDA_ERROR_INVALID_VALUE

        def copy() -> None:
            content = self.bytes_at(int(source), size)
            assert content is not None
            ctypes.memmove(int(target), content.tobytes(), size)

        return self._put(stream, copy)

    def _cuMemcpyDtoDAsync(self, target: Any, source: Any, size: int, stream: Any) -> R | None:
        if self.bytes_at(int(target), size) is None or self.bytes_at(int(source), size) is None:
            return R.CUDA_ERROR_INVALID_VALUE

        def copy() -> None:
            into, content = self.bytes_at(int(target), size), self.bytes_at(int(source), size)
            assert into is not None and content is not None
            into[:] = content.copy()

        return self._put(stream, copy)

    # ---- code -------------------------------------------------------------------------------------------------------

    def _cuModuleLoadData(self, image: Any) -> Any:
        content = elf_at(int(image))
        if content not in self.images:
            return R.CUDA_ERROR_INVALID_IMAGE
        target = next(word for word in self.images[content].split() if word.startswith("sm_"))
        major, minor, exact = int(target[3:].rstrip("a")[:-1]), int(target.rstrip("a")[-1]), target[-1] == "a"
        same = self.capability == (major, minor)
        if not (same or (not exact and self.capability[0] == major and self.capability[1] > minor)):
            return R.CUDA_ERROR_NO_BINARY_FOR_GPU
        handle = self._handle()
        self.modules[handle] = content
        return real.CUmodule(handle)

    def _cuModuleUnload(self, module: Any) -> R | None:
        return None if self.modules.pop(int(module), None) is not None else R.CUDA_ERROR_INVALID_HANDLE

    def _cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        if int(module) not in self.modules:
            return R.CUDA_ERROR_INVALID_HANDLE
        ptx = self.images[self.modules[int(module)]]
        kernels = parse_ptx(ptx, None).kernels
        if name.decode() not in kernels:
            return R.CUDA_ERROR_NOT_FOUND
        handle = self._handle()
        self.functions[handle] = Function(int(module), kernels[name.decode()], ptx)
        return real.CUfunction(handle)

    def _cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> R | None:
        if int(attribute) != 8 or not 0 <= value <= self.shared_limit:
            return R.CUDA_ERROR_INVALID_VALUE
        self.functions[int(function)].dynamic_shared = max(value, SHARED_WITHOUT_ASKING)
        return None

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> R | None:
        grid, block, (shared, stream, given, _) = rest[:3], rest[3:6], rest[6:]
        found = self.functions.get(int(function))
        if found is None or found.module not in self.modules:
            return R.CUDA_ERROR_INVALID_HANDLE
        threads = block[0] * block[1] * block[2]
        if not 1 <= threads <= 1024 or block[2] > 64 or threads > self._most_threads(found.kernel):
            return R.CUDA_ERROR_INVALID_VALUE
        if not all(1 <= size <= most for size, most in zip(grid, (2**31 - 1, 65535, 65535), strict=True)):
            return R.CUDA_ERROR_INVALID_VALUE
        if shared > found.dynamic_shared:
            return R.CUDA_ERROR_INVALID_VALUE
        values, types = given
        sizes = [ctypes.sizeof(each) for each in types]
        if len(values) != len(types) or sizes != [each.size for each in found.kernel.parameters]:
            raise Misuse(f"{found.kernel.name} has {len(found.kernel.parameters)} parameters, not {sizes}")
        return self._put(stream, lambda: self._execute(found, grid, block, shared, values))

    def _most_threads(self, kernel: Kernel) -> int:
        return 1024 if kernel.block is None else int(np.prod(kernel.block))

    def _execute(self, function: Function, grid: Any, block: Any, shared: int, addresses: Any) -> None:
        """Each pointer is the rest of its allocation; what the kernel changed there is written back."""
        found = [self._rest(int(address)) for address in addresses]
        if any(each is None for each in found):
            self.poisoned = R.CUDA_ERROR_ILLEGAL_ADDRESS
            return
        before = [each.copy() for each in found if each is not None]
        result = emulate(
            function.ptx,
            function.kernel.name,
            grid,
            block,
            [each.copy() for each in before],
            shared_bytes=shared,
        )
        self.launches.append(function.kernel.name)
        self.arguments.append(tuple(map(int, addresses)))
        self._clock += sum(result.counters.instructions.values()) * 1e-3
        if result.findings:
            self.poisoned = R.CUDA_ERROR_ILLEGAL_ADDRESS
            return
        for memory, old, new in zip(found, before, result.outputs, strict=True):
            assert memory is not None
            changed = old != new
            memory[changed] = new[changed]

    def _rest(self, address: int) -> np.ndarray | None:
        for each in self.allocations:
            if each.address <= address < each.address + each.bytes.size:
                return self.bytes_at(address, each.address + each.bytes.size - address)
        return None

    # ---- streams and events -----------------------------------------------------------------------------------------

    def stream(self) -> int:
        """A new stream that waits for no other."""
        handle = self._handle()
        self.streams[handle] = Stream()
        return handle

    def _cuStreamCreate(self, flags: int) -> Any:
        if flags not in (0, 1):
            return R.CUDA_ERROR_INVALID_VALUE
        self.created.add(handle := self.stream())
        return real.CUstream(handle)

    def _cuStreamDestroy(self, stream: Any) -> R | None:
        if not int(stream) or int(stream) not in self.streams:
            return R.CUDA_ERROR_INVALID_HANDLE
        self._flush(int(stream))
        self.created.discard(int(stream))
        del self.streams[int(stream)]
        return None

    def _put(self, stream: Any, work: Callable[[], None]) -> R | None:
        found = self.streams.get(int(stream))
        if found is None:
            return R.CUDA_ERROR_INVALID_HANDLE
        (found.waiting if found.captured is None else found.captured).append(work)
        return None

    def _flush(self, stream: int, place: int | None = None) -> None:
        """Does what is waiting on ``stream``, up to its ``place``-th piece of work."""
        found = self.streams[stream]
        while found.waiting and (place is None or found.done < place):
            found.done += 1
            found.waiting.pop(0)()

    def _cuStreamSynchronize(self, stream: Any) -> R:
        if int(stream) not in self.streams:
            return R.CUDA_ERROR_INVALID_HANDLE
        self._flush(int(stream))
        return self.poisoned

    # ---- graphs ---------------------------------------------------------------------------------------------------------

    def _cuStreamBeginCapture(self, stream: Any, mode: Any) -> R | None:
        found = self.streams.get(int(stream))
        if found is None:
            return R.CUDA_ERROR_INVALID_HANDLE
        if not int(stream):
            return R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        if found.captured is not None:
            return R.CUDA_ERROR_ILLEGAL_STATE
        found.captured = []
        return None

    def _cuStreamEndCapture(self, stream: Any) -> Any:
        found = self.streams[int(stream)]
        if found.captured is None:
            return R.CUDA_ERROR_ILLEGAL_STATE
        handle = self._handle()
        self.graphs[handle], found.captured = found.captured, None
        return real.CUgraph(handle)

    def _cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        if int(graph) not in self.graphs or flags:
            return R.CUDA_ERROR_INVALID_VALUE
        handle = self._handle()
        self.executables[handle] = self.graphs[int(graph)]
        return real.CUgraphExec(handle)

    def _cuGraphDestroy(self, graph: Any) -> R | None:
        return None if self.graphs.pop(int(graph), None) is not None else R.CUDA_ERROR_INVALID_VALUE

    def _cuGraphLaunch(self, executable: Any, stream: Any) -> R | None:
        if int(executable) not in self.executables:
            return R.CUDA_ERROR_INVALID_VALUE
        for work in self.executables[int(executable)]:
            if status := self._put(stream, work):
                return status
        return None

    def _cuGraphExecDestroy(self, executable: Any) -> R | None:
        return None if self.executables.pop(int(executable), None) is not None else R.CUDA_ERROR_INVALID_VALUE

    # ---- events ---------------------------------------------------------------------------------------------------------

    def _cuEventCreate(self, flags: int) -> Any:
        handle = self._handle()
        self.events[handle] = Event()
        return real.CUevent(handle)

    def _cuEventDestroy(self, event: Any) -> R | None:
        return None if self.events.pop(int(event), None) is not None else R.CUDA_ERROR_INVALID_HANDLE

    def _cuEventRecord(self, event: Any, stream: Any) -> R | None:
        found, at = self.events.get(int(event)), self.streams.get(int(stream))
        if found is None or at is None:
            return R.CUDA_ERROR_INVALID_HANDLE
        found.stream, found.time = int(stream), None

        def record() -> None:
            found.time = self._clock

        at.waiting.append(record)
        found.place = at.done + len(at.waiting)
        return None

    def _cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> R | None:
        found = self.events.get(int(event))
        if found is None:
            return R.CUDA_ERROR_INVALID_HANDLE
        source, place = found.stream, found.place
        if source is None:
            return None
        return self._put(stream, lambda: self._flush(source, place))

    def _cuEventSynchronize(self, event: Any) -> R:
        found = self.events[int(event)]
        if found.stream is not None:
            self._flush(found.stream, found.place)
        return self.poisoned

    def _cuEventElapsedTime(self, first: Any, last: Any) -> Any:
        start, end = self.events[int(first)].time, self.events[int(last)].time
        return R.CUDA_ERROR_NOT_READY if start is None or end is None else end - start

    # ---- what tests ask ---------------------------------------------------------------------------------------------

    def held(self) -> Iterator[str]:
        """What was taken and not given back."""
        yield from (f"memory at {each.address:#x}" for each in self.allocations if not each.freed)
        yield from (f"module {handle}" for handle in self.modules)
        yield from (f"event {handle}" for handle in self.events)
        yield from (f"stream {handle}" for handle in self.created)
        yield from (f"graph {handle}" for handle in (*self.graphs, *self.executables))
        yield from (f"context {each}" for each in self._contexts())


WITH_RESULT = {
    *(
        "cuDeviceGet",
        "cuDeviceGetCount",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
    ),
    *("cuCtxPopCurrent", "cuMemAlloc", "cuModuleLoadData", "cuModuleGetFunction", "cuEventCreate"),
    *("cuEventElapsedTime", "cuDriverGetVersion", "cuMemGetInfo", "cuStreamCreate"),
    *("cuStreamEndCapture", "cuGraphInstantiate"),
}
"""The functions that give something besides their status."""


UNSAFE_WHILE_CAPTURING = {
    *("cuMemAlloc", "cuMemFree", "cuModuleLoadData", "cuModuleUnload", "cuCtxSynchronize"),
    *("cuStreamSynchronize", "cuEventSynchronize"),
}
"""Calls that the thread that captures may not make (CUstreamCaptureMode, thread local); that one waits for what is not being
captured is refused here as well."""


def _no_driver_here() -> bool:
    try:
        real.cuInit(0)
    except RuntimeError:
        return True
    return False


NO_DRIVER_HERE = _no_driver_here()


def shown_to_the_real_bindings(name: str, arguments: tuple[Any, ...]) -> None:
    """Raises what they raise for arguments of the wrong number and types."""
    if NO_DRIVER_HERE:
        try:
            getattr(real, name)(*arguments)
        except RuntimeError:
            return
