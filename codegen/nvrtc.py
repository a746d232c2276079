"""CUDA to PTX with NVRTC, a library that needs no GPU and no driver."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tinyc.ir.diagnostics import TinycError

#: what every compilation is given besides the architecture: lines of the source in the PTX
OPTIONS = ("--std=c++17", "-lineinfo")


@lru_cache(maxsize=64)
def compile_ptx(source: str, arch: str = "sm_80", options: tuple[str, ...] = ()) -> str:
    """The PTX of a CUDA source that includes nothing. ``arch``: "sm_80", "sm_90a" and so on.

    Raises CudaRefused with NVRTC's log where it does not compile, TargetUnavailable where there is no NVRTC.
    """
    nvrtc = _library()
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        given = [f"--gpu-architecture={arch}", *OPTIONS, *options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), [each.encode() for each in given])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _text(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            raise _refused(log or status.name, arch)
        return _text(nvrtc, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _library() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise TinycError(
            "TargetUnavailable",
            f"NVRTC cannot be loaded: {error}",
            "install the package nvidia-cuda-nvrtc",
            {"layer": "cuda"},
        ) from None
    return nvrtc


def _text(nvrtc: Any, size: Any, content: Any, program: Any) -> str:
    found = b" " * _checked(nvrtc, size(program))
    _checked(nvrtc, content(program, found))
    return found.rstrip(b"\0").decode(errors="replace").strip()


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    status, *rest = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise TinycError(
            "TargetUnavailable",
            f"NVRTC answers {status.name}",
            "install a newer nvidia-cuda-nvrtc",
            {"layer": "cuda"},
        )
    return rest[0] if rest else None


def _refused(log: str, arch: str) -> TinycError:
    first = next((line for line in log.splitlines() if "error" in line), log.splitlines()[0])
    parts = first.split("(")
    line = parts[1].split(")")[0] if len(parts) > 1 else None
    at = {"layer": "cuda", "line": line if line and line.isdigit() else None}
    return TinycError("CudaRefused", f"for {arch}: {log}", "correct the source", at, log=log)
