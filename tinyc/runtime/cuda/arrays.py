"""Arrays that lie on a GPU already: read where they are, results handed out there."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.signature import Argument, Signature

from ..arrays import check_declared
from .dlpack import CUDA, capsule_of, described
from .loader import Device

LEGACY = 0
"""The stream that waits for all others, and they for it; protocols between arrays call it 1."""


class Memory:
    """Bytes on a device, given back when nobody holds them any more."""

    def __init__(self, device: Device, size: int) -> None:
        self.device, self.size = device, size
        self.address = device.allocate(size)
        weakref.finalize(self, device.free, self.address, size)


@dataclass(frozen=True)
class DeviceArray:
    """Row-major elements at ``address`` on GPU ``ordinal``, ready once what is under way on ``stream`` is done. Other libraries
    take it by ``__dlpack__`` or ``__cuda_array_interface__`` without a copy. ``owner`` keeps the memory."""

    address: int
    dtype: DType
    shape: tuple[int, ...]
    owner: Any = field(repr=False)
    stream: int = LEGACY
    ordinal: int = 0

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype is DType.BF16:
            raise AttributeError("the CUDA array interface has no bf16; use __dlpack__")
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
            "stream": self.stream or 1,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.ordinal

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """``stream``: of the receiver, which is made to wait for ours; -1 if it need not."""
        if stream != -1 and isinstance(self.owner, Memory):
            after(self.owner.device, self.stream, LEGACY if stream in (None, 1) else stream or LEGACY)
        return capsule_of(self.address, self.ordinal, self.dtype, self.shape, self.owner)


def after(device: Device, first: int, second: int) -> None:
    """What comes next on stream ``second`` waits for what is under way on ``first``."""
    if first == second:
        return
    with device.current() as driver:
        event = driver("cuEventCreate", 2)  # without a clock, CU_EVENT_DISABLE_TIMING
        driver("cuEventRecord", event, first)
        driver("cuStreamWaitEvent", second, event, 0)
        driver("cuEventDestroy", event)  # the driver keeps it until it is over


def on_device(value: Any) -> bool:
    """Whether ``value`` is an array on a GPU."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) == CUDA
    return hasattr(value, "__cuda_array_interface__")


def stream_of(values: Sequence[Any]) -> int:
    """The stream on which the caller's library works now."""
    if any(_library(value) == "torch" for value in values):
        return int(sys.modules["torch"].cuda.current_stream().cuda_stream)
    return LEGACY


def receive_on_device(
    signature: Signature, given: Sequence[Any], device: Device, stream: int
) -> tuple[list[DeviceArray], str, dict[str, int]]:
    """As :func:`tinyc.runtime.arrays.receive`, for arrays that all lie on ``device``: what they are, where, the library they
    are of, and the bytes of those that their library had to copy. Work on ``stream`` may use them.

    Raises TinycError InputMismatch, DTypeMismatch.
    """
    found, copied = [], dict[str, int]()
    for declared, value in zip(signature.inputs, given, strict=True):
        array, dense = _taken(declared, value, device, stream)
        check_declared(declared, array.dtype, str(array.dtype), array.shape)
        if not dense:
            again = _contiguous(value)
            if again is None:
                why = f"input {declared.name!r} lies on the device, and not in row-major order"
                raise _mismatch(why, "pass a contiguous array", declared)
            array, _ = _taken(declared, again, device, stream)
            copied[declared.name] = array.nbytes
        found.append(array)
    return found, next((name for name in map(_library, given) if name), ""), copied


def returned(array: DeviceArray, kind: str) -> Any:
    """A result as an array of the library ``kind``, without a copy."""
    module = sys.modules.get(kind)
    return module.from_dlpack(array) if module and kind in ("torch", "cupy") else array


def _library(value: Any) -> str:
    name = type(value).__module__.partition(".")[0]
    return name if name in ("torch", "cupy") else ""


def _contiguous(value: Any) -> Any:
    match _library(value):
        case "torch":
            return value.detach().contiguous()
        case "cupy":
            return sys.modules["cupy"].ascontiguousarray(value)
    return None


def _taken(declared: Argument, value: Any, device: Device, stream: int) -> tuple[DeviceArray, bool]:
    """``value``, and whether its elements lie in row-major order without gaps."""
    if not on_device(value):
        raise _mismatch(
            f"input {declared.name!r} is no array on the GPU, and others are",
            "pass all inputs from the GPU, or all from the host",
            declared,
        )
    try:
        if hasattr(value, "__dlpack__"):
            return _from_dlpack(declared, value, device, stream)
        return _from_interface(declared, value.__cuda_array_interface__, value, device, stream)
    except (TypeError, RuntimeError, BufferError, ValueError, KeyError) as error:
        why = f"input {declared.name!r} cannot be read: {error}"
        raise _mismatch(why, "pass an array that offers __dlpack__", declared) from None


def _from_dlpack(declared: Argument, value: Any, device: Device, stream: int) -> tuple[DeviceArray, bool]:
    if value.__dlpack_device__()[1] != device.ordinal:
        other = value.__dlpack_device__()[1]
        why = f"input {declared.name!r} lies on GPU {other}, and the kernels run on {device.ordinal}"
        raise _mismatch(why, "move it there", declared)
    given = value.detach() if _library(value) == "torch" else value
    capsule = given.__dlpack__(stream=stream or 1)  # its library waits for what it has under way
    said = described(capsule)
    if said.dtype is None:
        raise _unknown(declared, "of a DLPack capsule")
    array = DeviceArray(said.address, said.dtype, said.shape, (capsule, value), stream, device.ordinal)
    return array, said.strides is None or _dense(said.shape, said.strides)


def _from_interface(
    declared: Argument, said: dict[str, Any], value: Any, device: Device, stream: int
) -> tuple[DeviceArray, bool]:
    """Of version 2 or 3 of the CUDA array interface."""
    if said.get("mask") is not None:
        raise _mismatch(f"input {declared.name!r} has a mask, which would be lost", "pass its data", declared)
    dtype = next((each for each in DType if each.numpy.str == said["typestr"]), None)
    if dtype is None or dtype is DType.BF16:
        raise _unknown(declared, said["typestr"])
    if (theirs := said.get("stream")) is not None:
        after(device, LEGACY if theirs == 1 else int(theirs), stream)
    shape, strides = tuple(said["shape"]), said.get("strides")
    dense = strides is None or _dense(shape, tuple(step / dtype.itemsize for step in strides))
    return DeviceArray(int(said["data"][0]), dtype, shape, value, stream, device.ordinal), dense


def _dense(shape: Sequence[int], strides: Sequence[float]) -> bool:
    wanted = 1
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and step != wanted:
            return False
        wanted *= size
    return True


def _unknown(declared: Argument, what: str) -> TinycError:
    return TinycError(
        "DTypeMismatch",
        f"input {declared.name!r} has elements {what}, the program declares {declared.dtype.value}",
        "convert the array before the call; tinyc never casts inputs",
        at={"layer": "runtime", "value": declared.name},
    )


def _mismatch(why: str, suggestion: str, declared: Argument) -> TinycError:
    return TinycError("InputMismatch", why, suggestion, at={"layer": "runtime", "value": declared.name})
