"""Runs on the GPU of this machine whatever a test emulates, and gives the test the GPU's outputs: ``pytest -p beside_gpu``.

A plugin. The driver compiles the same PTX text that the emulator reads. A kernel with a finding is not launched: it could end the
context of its process. The test's own checks then hold the GPU's outputs, and what the emulator had otherwise, bit for bit,
is written down: a line of JSON for each kernel in the folder that BESIDE_GPU names, and a summary at the end.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tinyc.codegen.emulator as emulator
from tinyc.codegen.emulator import Emulated, Uninitialised, parse_ptx
from tinyc.runtime.cuda.loader import Device, Driver, DriverError

emulated = emulator.emulate
_devices: list[Device] = []


def device() -> Device:
    """One for the process."""
    if not _devices:
        _devices.append(Device())
    return _devices[0]


def beside(
    ptx: str, kernel: str, grid: Any, block: Any, arguments: Sequence[Any], **options: Any
) -> Emulated:
    """As the emulator's ``emulate``, with the outputs of the GPU."""
    result = emulated(ptx, kernel, grid, block, arguments, **options)
    told: dict[str, Any] = {"test": os.environ.get("PYTEST_CURRENT_TEST", ""), "kernel": kernel}
    if result.findings or not result.complete:
        return result
    try:
        with device().current() as driver:
            sizes = [(*([each] if isinstance(each, int) else each), 1, 1)[:3] for each in (grid, block)]
            outputs = launched(driver, ptx, kernel, sizes, arguments, options.get("shared_bytes", 0))
    except DriverError as error:
        write({**told, "error": str(error)})
        if error.call == "cuModuleLoadData":  # PTX of a version that this driver does not know
            return result
        raise
    different = [unlike(one, other) for one, other in zip(outputs, result.outputs, strict=True)]
    write({**told, "elements": sum(each.size for each in outputs), "different": sum(different)})
    return replace(result, outputs=tuple(outputs))


def unlike(one: np.ndarray, other: np.ndarray) -> int:
    """How many elements do not have the same bits; NaN is NaN."""
    kind = f"u{one.dtype.itemsize}"
    both = np.isnan(one) & np.isnan(other) if one.dtype.kind in "fV" else False
    return int(np.count_nonzero((one.view(kind) != other.view(kind)) & ~np.asarray(both)))


def launched(
    driver: Driver,
    ptx: str,
    kernel: str,
    sizes: list[Any],
    arguments: Sequence[Any],
    shared_bytes: int,
) -> list[np.ndarray]:
    """What each argument that is a pointer points to afterwards. What nothing has written yet is as in the emulator, all
    ones."""
    text = ctypes.create_string_buffer(ptx.encode())
    module = driver("cuModuleLoadData", ctypes.addressof(text))
    buffers: list[tuple[int, np.ndarray]] = []
    known: dict[int, int] = {}
    try:
        function = driver("cuModuleGetFunction", module, kernel.encode())
        if shared_bytes > 48 << 10:
            attribute = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver("cuFuncSetAttribute", function, attribute, shared_bytes)
        parameters = parse_ptx(ptx, kernel).kernels[kernel].parameters
        content = bytearray(max((each.offset + each.size for each in parameters), default=0))
        for parameter, value in zip(parameters, arguments, strict=True):
            part = slice(parameter.offset, parameter.offset + parameter.size)
            if isinstance(value, Uninitialised):
                size = int(np.prod(value.shape)) * np.dtype(value.dtype).itemsize
                value = np.full(size, 0xFF, np.uint8).view(value.dtype).reshape(value.shape)
            elif not (isinstance(value, np.ndarray) and value.ndim):
                content[part] = emulator_scalar(parameter, value)
                continue
            address = known.get(id(value))
            array = np.ascontiguousarray(value)
            if address is None:
                address = int(driver("cuMemAlloc", max(array.nbytes, 1)))
                driver("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)
                known[id(value)] = address
            buffers.append((address, array))
            content[part] = address.to_bytes(8, "little")
        launch(driver, function, sizes, bytes(content), shared_bytes)
        driver("cuCtxSynchronize")
        outputs = []
        for address, array in buffers:
            outputs.append(np.empty(array.shape, array.dtype))
            driver("cuMemcpyDtoH", outputs[-1].ctypes.data, address, array.nbytes)
        return outputs
    finally:
        for address in {address for address, _ in buffers}:
            driver("cuMemFree", address)
        driver("cuModuleUnload", module)


def emulator_scalar(parameter: Any, value: Any) -> bytes:
    from importlib import import_module

    scalar = import_module("tinyc.codegen.emulator.emulate")._scalar
    found: bytes = scalar(0, parameter.name, parameter.type, parameter.size, value)
    return found


def launch(driver: Driver, function: Any, sizes: list[Any], content: bytes, shared_bytes: int) -> None:
    """With all parameters in one block of memory, as the driver documents CU_LAUNCH_PARAM_BUFFER_POINTER."""
    memory = ctypes.create_string_buffer(content, max(len(content), 1))
    size = ctypes.c_size_t(len(content))
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(memory), 2, ctypes.addressof(size), 0)
    driver("cuLaunchKernel", function, *sizes[0], *sizes[1], shared_bytes, 0, 0, ctypes.addressof(extra))


def write(line: dict[str, Any]) -> None:
    folder = Path(os.environ.get("BESIDE_GPU", "."))
    with (folder / f"beside-{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


EMULATORS_OWN = {
    "test_a_shuffle_from_a_lane_that_takes_no_part_gives_no_number": "NaN, where PTX says nothing",
    "test_special_registers": "%warpid, which is where a machine puts the warp",
}
"""Tests of what the emulator makes of programs whose results PTX leaves open."""


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    own = [item for item in items if item.originalname in EMULATORS_OWN]
    config.hook.pytest_deselected(items=own)
    items[:] = [item for item in items if item not in own]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    lines = [
        json.loads(line)
        for path in Path(os.environ.get("BESIDE_GPU", ".")).glob("beside-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    ran = [line for line in lines if "elements" in line]
    same = sum(not line["different"] for line in ran)
    terminalreporter.write_line(
        f"beside the GPU: {len(ran)} launches, {same} of them bit for bit as in the emulator; "
        f"{sum(line['different'] for line in ran)} of {sum(line['elements'] for line in ran)} elements differ"
    )
    for error, count in Counter(line["error"] for line in lines if "error" in line).most_common(10):
        terminalreporter.write_line(f"{count} not run: {error}")


emulator.emulate = beside
