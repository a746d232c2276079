"""The GPU of this machine, and the errors of its driver as tinyc's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tinyc.ir.diagnostics import TinycError

from .loader import BundleError, Device, DriverError, runs_on

ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {"sm90": "sm_90a", "sm89": "sm_89", "sm86": "sm_86", "sm80": "sm_80"}
)
"""What NVRTC calls the targets with code for a GPU; the first whose code runs on a GPU is the one for it."""


def first_device() -> Device:
    """The first GPU of this machine. Raises TinycError TargetUnavailable where there is none."""
    with reported():
        return Device()


def target_for(device: Device) -> str | None:
    """The target whose code runs on ``device``; None where none does."""
    return next((name for name, arch in ARCHITECTURES.items() if runs_on(arch, device.capability)), None)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """What the loader raises, as a TinycError."""
    try:
        yield
    except BundleError as error:
        raise TinycError(
            "TargetUnavailable",
            str(error),
            "compile for the GPU that is here, or emulate(...)",
            {"layer": "cuda"},
        ) from None
    except DriverError as error:
        at = {"layer": "cuda", "op": error.call}
        if error.name in ("", "CUDA_ERROR_NO_DEVICE"):
            suggestion = 'use target="cpu", or emulate(...), which takes what a call takes'
            raise TinycError("TargetUnavailable", str(error), suggestion, at) from None
        if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
            raise TinycError("OutOfMemory", f"on the GPU: {error}", "use smaller sizes", at) from None
        suggestion = "run the same call as emulate(...), which says what a kernel does wrong"
        if error.name == "CUDA_ERROR_NOT_INITIALIZED":
            suggestion = "a forked process cannot use the GPU of its parent: start it with the method spawn"
        raise TinycError("DriverFailed", str(error), suggestion, at, name=error.name) from None
