"""Runs the kernels of a compiled tensor program on an NVIDIA GPU. Needs numpy, cuda-bindings and the driver, nothing else.

In a bundle that `tinyc export` wrote, this file stands beside manifest.json and the kernels:

    from loader import load
    program = load()
    result = program(A=a, B=b)        # numpy arrays in, numpy arrays out; bf16 as ml_dtypes.bfloat16 or as uint16 bits

or, with arrays from files: python loader.py A=a.npy B=b.npy --output out.npz
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 256
"""Bytes: of every buffer; what the driver allocates is at least so aligned."""

FORMAT, VERSION = "tinyc bundle", 2
"""Of manifest.json; the number changes with the meaning of a key."""

WAITING_BYTES, WAITING = 256 << 20, 256
"""Of memory that was given back: as many bytes, in as many pieces, wait until all work is done before they are free."""

ELEMENTS = {"fp16": "<f2", "bf16": "<u2", "fp32": "<f4", "i32": "<i4", "bool": "|b1"}
"""How numpy calls the dtypes of a manifest. It has no bf16."""


class DriverError(RuntimeError):
    """The driver refused a call. ``name``: what it calls the error, such as "CUDA_ERROR_OUT_OF_MEMORY"; "" where there is no
    driver. ``call``: the function."""

    def __init__(self, call: str, name: str, text: str) -> None:
        super().__init__(f"{call}: {name}: {text}" if name else text)
        self.call, self.name, self.text = call, name, text


class BundleError(ValueError):
    """A bundle that is damaged or for another GPU, or arrays that it does not take."""


class Driver:
    """The CUDA driver API: ``driver("cuMemAlloc", size)`` is what the function gives. Raises DriverError."""

    def __init__(self) -> None:
        try:
            self.api = importlib.import_module("cuda.bindings.driver")
            self("cuInit", 0)
        except DriverError:
            raise
        except (ImportError, RuntimeError, OSError) as error:
            raise DriverError("cuInit", "", f"there is no CUDA driver here: {error}") from None

    def __call__(self, call: str, *arguments: Any) -> Any:
        status, *found = getattr(self.api, call)(*arguments)
        if int(status):
            name, text = (
                getattr(self.api, f"cuGetError{what}")(status)[1] or b"" for what in ("Name", "String")
            )
            raise DriverError(call, name.decode() or str(int(status)), text.decode())
        return found[0] if len(found) == 1 else tuple(found)


class Device:
    """A GPU. It has the context that everyone in this process shares, from the first time that one is needed. ``capability``: such as (8, 0). ``shared_bytes``: of
    shared memory that a block can have. Raises DriverError."""

    def __init__(self, ordinal: int = 0) -> None:
        self.driver = driver = Driver()
        self.ordinal = ordinal
        self._handle = driver("cuDeviceGet", ordinal)
        found = {
            name: driver(
                "cuDeviceGetAttribute",
                getattr(driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"),
                self._handle,
            )
            for name in (
                "COMPUTE_CAPABILITY_MAJOR",
                "COMPUTE_CAPABILITY_MINOR",
                "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
            )
        }
        major, minor, self.shared_bytes = found.values()
        self.capability = (major, minor)
        name = driver("cuDeviceGetName", 128, self._handle)
        self.name = bytes(name).split(b"\0")[0].decode(errors="replace")
        self._context: Any = None
        self._freed: dict[int, int] = {}
        self._lock = threading.RLock()  # what is collected while it is held may give memory back

    @contextlib.contextmanager
    def current(self) -> Iterator[Driver]:
        """The driver, whose calls are about this GPU; the caller's context is what it was afterwards."""
        with self._lock:
            if self._context is None:
                self._context = self.driver("cuDevicePrimaryCtxRetain", self._handle)
        self.driver("cuCtxPushCurrent", self._context)
        try:
            yield self.driver
        finally:
            self.driver("cuCtxPopCurrent")

    def allocate(self, size: int) -> int:
        """The address of ``size`` bytes, not set to anything. Raises DriverError CUDA_ERROR_OUT_OF_MEMORY."""
        with self.current() as driver:
            try:
                return int(driver("cuMemAlloc", size))
            except DriverError as error:
                if error.name != "CUDA_ERROR_OUT_OF_MEMORY" or not self._freed:
                    raise
            self.collect()
            return int(driver("cuMemAlloc", size))

    def free(self, address: int, size: int) -> None:
        """Gives memory back, once all that is under way is done: whoever was handed it may work on any stream. To wait for that
        each time would make every call wait for the one before, so that it is done for many at a time."""
        with self._lock:
            self._freed[address] = size
            if sum(self._freed.values()) > WAITING_BYTES or len(self._freed) > WAITING:
                with contextlib.suppress(DriverError):  # the process may be at its end
                    self.collect()

    def collect(self) -> None:
        """Waits until all work is done, and frees what was given back. Raises DriverError."""
        if self._context is None:
            return  # nothing was ever begun
        with self._lock, self.current() as driver:
            freed, self._freed = self._freed, {}
            driver("cuCtxSynchronize")
            for address in freed:
                driver("cuMemFree", address)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the process the driver may be gone
            if self._freed:
                self.collect()

    def close(self) -> None:
        """Lets go of the context, which else stays until the process ends: nothing may be left on the GPU."""
        with contextlib.suppress(DriverError):
            if self._context is not None:
                self.collect()
                self._context = None
                self.driver("cuDevicePrimaryCtxRelease", self._handle)


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether machine code for ``arch`` ("sm_80", "sm_90a") runs on a GPU: of the same generation, no older; where it uses
    what one GPU alone has ("a"), on that one (CUDA C++ programming guide, binary compatibility)."""
    digits = arch.removeprefix("sm_").rstrip("a")
    major, minor = int(digits[:-1]), int(digits[-1])
    if arch.endswith("a"):
        return capability == (major, minor)
    return capability[0] == major and capability[1] >= minor


class Program:
    """A program on a device. Calls from several threads run one after the other.

    ``manifest``: as :func:`load` reads it. ``images``: machine code by the names that its kernels give. Intermediate buffers
    lie in one block, which is kept from call to call, one for each stream. Raises BundleError, DriverError.
    """

    def __init__(self, manifest: Mapping[str, Any], images: Mapping[str, bytes], device: Device) -> None:
        self.manifest, self.device = manifest, device
        self._lock = threading.Lock()
        self._modules: dict[str, Any] = {}
        self._blocks: dict[tuple[str, int], tuple[int, int]] = {}
        self._buffers = {each["id"]: each for each in manifest["buffers"]}
        if not runs_on(manifest["arch"], device.capability):
            has = ".".join(map(str, device.capability))
            raise BundleError(
                f"the kernels are for {manifest['arch']}, and {device.name} has compute capability {has}"
            )
        with device.current() as driver:
            self._functions = [self._function(driver, kernel, images) for kernel in manifest["kernels"]]
        outside = [*manifest["inputs"], *manifest["outputs"]]
        self._outside, self.outside_bytes = _laid_out([self._buffers[id] for id in dict.fromkeys(outside)])

    def _function(self, driver: Driver, kernel: Mapping[str, Any], images: Mapping[str, bytes]) -> Any:
        image = kernel["image"]
        if image not in self._modules:
            content = np.frombuffer(images[image], np.uint8)
            self._modules[image] = driver("cuModuleLoadData", content.ctypes.data)
        function = driver("cuModuleGetFunction", self._modules[image], kernel["name"].encode())
        if kernel["shared_bytes"] > self.device.shared_bytes:
            wanted = f"{kernel['name']} takes {kernel['shared_bytes']} bytes of shared memory"
            raise BundleError(f"{wanted}, and {self.device.name} has {self.device.shared_bytes} for a block")
        if kernel["shared_bytes"] > 48 << 10:  # more has to be asked for
            attribute = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver("cuFuncSetAttribute", function, attribute, kernel["shared_bytes"])
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs for these numpy arrays, in the order of the signature or by name: the array itself, or a tuple for
        several. Raises BundleError, DriverError."""
        inputs = self.manifest["signature"]["inputs"]
        names = [each["tensor"] for each in inputs]
        given = dict(zip(names, args, strict=False)) | kwargs
        if len(args) + len(kwargs) != len(names) or set(given) != set(names):
            raise BundleError(f"the inputs are {', '.join(names)}, each once")
        results = tuple(self.run([_checked(each, given[each["tensor"]]) for each in inputs]))
        outputs = self.manifest["signature"]["outputs"]
        shaped = tuple(_laid(each, array) for each, array in zip(outputs, results, strict=True))
        return shaped[0] if len(shaped) == 1 else shaped

    def run(
        self,
        inputs: Sequence[np.ndarray],
        stream: int = 0,
        each: Callable[[Callable[[int], None]], None] | None = None,
    ) -> list[np.ndarray]:
        """The outputs for inputs in the host's memory, each contiguous and of the manifest's bytes. ``each``: is handed every
        launch in turn, as a function of a stream, and has it done when it returns. Raises DriverError."""
        manifest = self.manifest
        with self._lock, self.device.current() as driver:
            base = self._block("outside", stream, self.outside_bytes)
            places = {id: base + offset for id, offset in self._outside.items()}
            outputs = []
            try:
                for id, array in zip(manifest["inputs"], inputs, strict=True):
                    driver("cuMemcpyHtoDAsync", places[id], array.ctypes.data, array.nbytes, stream)
                for start in self._launches(driver, places, stream):
                    if each is None:
                        start(stream)
                    else:
                        each(start)
                for id in manifest["outputs"]:
                    buffer = self._buffers[id]
                    array = np.empty(buffer["shape"], ELEMENTS[buffer["dtype"]])
                    driver("cuMemcpyDtoHAsync", array.ctypes.data, places[id], array.nbytes, stream)
                    outputs.append(array)
            finally:  # nothing may be copied to or from arrays that are gone
                driver("cuStreamSynchronize", stream)
            return outputs

    def launch(self, places: Mapping[int, int], stream: int = 0) -> None:
        """Starts the kernels on buffers of the device and does not wait for them. ``places``: the address of each input and
        output by the buffer's number. Raises DriverError."""
        with self._lock, self.device.current() as driver:
            for start in self._launches(driver, places, stream):
                start(stream)

    def copy(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """Copies on the device, after what is under way on ``stream``."""
        with self.device.current() as driver:
            driver("cuMemcpyDtoDAsync", target, source, size, stream)

    def _launches(
        self, driver: Driver, outside: Mapping[int, int], stream: int
    ) -> Iterator[Callable[[int], None]]:
        """The launches in order, each to be started on a stream. ``stream``: whose memory is used between them."""
        arena = self._block("arena", stream, self.manifest["arena_bytes"])
        inside = {
            id: arena + each["offset"] for id, each in self._buffers.items() if each["offset"] is not None
        }
        places = {**inside, **outside}
        for step in self.manifest["launches"]:
            kernel, function = self.manifest["kernels"][step["kernel"]], self._functions[step["kernel"]]
            addresses = tuple(places[id] for id in step["arguments"])
            sizes = (*kernel["grid"], *kernel["block"], kernel["shared_bytes"])
            arguments = (addresses, (ctypes.c_void_p,) * len(addresses))
            yield functools.partial(_start, driver, function, sizes, arguments)

    def _block(self, what: str, stream: int, size: int) -> int:
        """Memory that is used by one call after the other; each stream has its own, since nothing orders two streams."""
        if (what, stream) not in self._blocks:
            self._blocks[what, stream] = (self.device.allocate(size) if size else 0, size)
        return self._blocks[what, stream][0]

    def close(self) -> None:
        """Gives back all that the program holds on the device, once its work is done."""
        modules = list(self._modules.values())
        for address, size in self._blocks.values():
            if size:
                self.device.free(address, size)
        self._blocks.clear()
        self._modules.clear()
        with contextlib.suppress(DriverError):
            self.device.collect()
        for module in modules:
            with contextlib.suppress(DriverError), self.device.current() as driver:
                driver("cuModuleUnload", module)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the process the driver may be gone
            self.close()


def _start(driver: Driver, function: Any, sizes: tuple[int, ...], arguments: Any, stream: int) -> None:
    """``sizes``: of the grid and of a block, and the bytes of shared memory."""
    driver("cuLaunchKernel", function, *sizes, stream, arguments, 0)


def load(folder: str | Path | None = None, device: Device | None = None) -> Program:
    """The program of a bundle: the folder of this file, unless another is given. Raises BundleError, DriverError, OSError."""
    place = Path(__file__).parent if folder is None else Path(folder)
    manifest = read_manifest(place)
    images = {name: (place / name).read_bytes() for name in {each["image"] for each in manifest["kernels"]}}
    for name, content in images.items():
        if hashlib.sha256(content).hexdigest() != manifest["files"][name]["sha256"]:
            raise BundleError(f"{name} is not what the manifest says it is; export the program anew")
    return Program(manifest, images, device or Device())


def read_manifest(folder: Path) -> dict[str, Any]:
    """What manifest.json of a bundle says. Raises BundleError where there is none, it is of another version, or damaged."""
    manifest = found_manifest(folder)
    if manifest.get("version") != VERSION:
        found = manifest.get("version")
        raise BundleError(f"the bundle is of version {found}, and this reads {VERSION}: export it anew")
    if manifest.get("sha256") != manifest_digest(manifest):
        raise BundleError(f"manifest.json in {folder} is not as it was written: export the program anew")
    return manifest


def found_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle, be it of another version or damaged. Raises BundleError where there is none."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"there is no bundle in {folder}: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError(f"there is no bundle in {folder}: manifest.json is of something else")
    return manifest


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of all that a manifest says beside it: what it has wrong, a kernel would do wrong."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _laid_out(buffers: Sequence[Mapping[str, Any]]) -> tuple[dict[int, int], int]:
    """Where each buffer begins in one block, and the bytes of all."""
    places, end = {}, 0
    for each in buffers:
        places[each["id"]] = end
        end += -(-each["bytes"] // ALIGNMENT) * ALIGNMENT
    return places, end


def _checked(declared: Mapping[str, Any], array: Any) -> np.ndarray:
    """``array`` as contiguous bytes of what is declared."""
    name, dtype, shape = declared["tensor"], declared["dtype"], tuple(declared["shape"])
    array = np.asarray(array)
    fits = array.dtype == np.dtype(ELEMENTS[dtype]) or (dtype == "bf16" and array.dtype.name == "bfloat16")
    if not fits or array.shape != shape:
        given = f"{array.dtype}{list(array.shape)}"
        raise BundleError(f"input {name} is {given}, and the program takes {dtype}{list(shape)}")
    return np.ascontiguousarray(array)


def _laid(declared: Mapping[str, Any], array: np.ndarray) -> np.ndarray:
    """A result as its caller is to have it."""
    array = array.reshape(declared["shape"])
    if declared["layout"]["kind"] == "col_major" and array.ndim > 1:
        array = np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    return array


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description="Run this bundle on arrays from files.")
    parser.add_argument("inputs", metavar="NAME=FILE.npy", nargs="*")
    parser.add_argument("--output", metavar="FILE.npz", required=True)
    args = parser.parse_args()
    try:
        program = load()
        given = {name: np.load(path) for name, _, path in (each.partition("=") for each in args.inputs)}
        results = program(**given)
        names = [each["tensor"] for each in program.manifest["signature"]["outputs"]]
        values = results if isinstance(results, tuple) else (results,)
        np.savez(args.output, **dict(zip(names, values, strict=True)))
    except (BundleError, DriverError, OSError, ValueError, EOFError) as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")


if __name__ == "__main__":
    main()
