"""CUDA to PTX and to machine code with NVRTC, a library that needs no GPU and no driver."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

from tinyc.cache import Cache, key_of
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.usage import KernelUsage

#: what every compilation is given besides the architecture: lines of the source in the PTX, and ptxas's figures in the log, which
#: what NVRTC finds in its own cache comes without (it has one where there is a driver)
OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v", "--no-cache")

#: what the source is called; NVRTC would put the folder that it runs in before a relative name, and into the machine code
NAME = "/kernel.cu"


@dataclass(frozen=True)
class Cubin:
    """A source, compiled. ``image``: machine code for one architecture, as the driver loads it; empty of a virtual one
    ("compute_80"). ``usage``: what each of its kernels takes."""

    ptx: str
    image: bytes
    usage: tuple[KernelUsage, ...]


def compile_ptx(
    source: str, arch: str = "sm_80", options: tuple[str, ...] = (), cache: Cache | None = None
) -> str:
    """The PTX of a CUDA source that includes nothing. ``arch``: "sm_80", "sm_90a" and so on.

    Raises CudaRefused with NVRTC's log where it does not compile, TargetUnavailable where there is no NVRTC.
    """
    return compile_cubin(source, arch, options, cache).ptx


@lru_cache(maxsize=256)
def compile_cubin(
    source: str, arch: str = "sm_80", options: tuple[str, ...] = (), cache: Cache | None = None
) -> Cubin:
    """PTX and machine code of a CUDA source that includes nothing, and what its kernels take. ``cache``: where results of
    earlier processes are found and this one is kept.

    Raises what :func:`compile_ptx` raises.
    """
    if cache is None:
        return _compiled(source, arch, options)
    key = key_of("cubin", nvrtc_version(), arch, NAME, *OPTIONS, *options, source)
    found = _from_bytes(cache.get(key))
    if found is None:
        found = _compiled(source, arch, options)
        cache.put(key, _to_bytes(found))
    return found


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Such as "13.0 (13.0.88)"; the package's own version where it is one. Raises TargetUnavailable."""
    nvrtc = _library()
    _, major, minor = nvrtc.nvrtcVersion()
    try:
        package = f" ({metadata.version('nvidia-cuda-nvrtc')})"
    except metadata.PackageNotFoundError:
        package = ""
    return f"{major}.{minor}{package}"


def _compiled(source: str, arch: str, options: tuple[str, ...]) -> Cubin:
    nvrtc = _library()
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), NAME.encode(), 0, [], []))
    try:
        given = [f"--gpu-architecture={arch}", *OPTIONS, *options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), [each.encode() for each in given])
        log = _text(_content(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program))
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _refused(log or status.name, arch)
        ptx = _text(_content(nvrtc, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program))
        image = b""
        if arch.startswith("sm_"):
            image = _content(nvrtc, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return Cubin(ptx, image, usage_in(log))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def usage_in(log: str) -> tuple[KernelUsage, ...]:
    """What ptxas's ``-v`` says of each kernel: a line with its name, then its figures, and those of functions that it calls.
    A kernel of which it does not say all is left out."""
    parts = re.split(r"Compiling entry function '(\w+)' for '(\w+)'", log)[1:]
    found = []
    for name, arch, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        registers = _most(r"Used (\d+) registers", text)
        stack = _most(r"(\d+) bytes stack frame", text)
        stores, loads = (_most(rf"(\d+) bytes spill {each}", text) for each in ("stores", "loads"))
        shared = _most(r"(\d+) bytes smem", text) or 0  # is not said where there is none
        if registers is not None and stack is not None and stores is not None and loads is not None:
            found.append(KernelUsage(name, arch, registers, stack, stores, loads, shared))
    return tuple(found)


def _most(pattern: str, text: str) -> int | None:
    return max(map(int, re.findall(pattern, text)), default=None)


def _to_bytes(cubin: Cubin) -> bytes:
    """A line of JSON with all but the image, then the image."""
    said = {"ptx": cubin.ptx, "usage": [asdict(each) for each in cubin.usage]}
    return json.dumps(said).encode() + b"\n" + cubin.image


def _from_bytes(content: bytes | None) -> Cubin | None:
    """The inverse; None where ``content`` is none, or of another tinyc."""
    if content is None:
        return None
    said, _, image = content.partition(b"\n")
    try:
        value = json.loads(said)
        return Cubin(value["ptx"], image, tuple(KernelUsage(**each) for each in value["usage"]))
    except (ValueError, KeyError, TypeError):
        return None


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


def _content(nvrtc: Any, size: Any, content: Any, program: Any) -> bytes:
    # of its own: a bytes object of one byte is the one that the whole process shares, and NVRTC would write into that
    found = bytearray(_checked(nvrtc, size(program)))
    _checked(nvrtc, content(program, found))
    return bytes(found)


def _text(content: bytes) -> str:
    return content.rstrip(b"\0").decode(errors="replace").strip()


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
