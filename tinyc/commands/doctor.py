"""doctor: does everything that tinyc stands on work here, and what to do where it does not."""

from __future__ import annotations

import argparse
import json
import platform
import re
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from tinyc.ir.diagnostics import TinycError
from tinyc.settings import Settings

from .console import say, say_table


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``required``: tinyc's CPU target needs it. ``advice`` is empty where there is nothing to do."""

    name: str
    ok: bool
    required: bool
    detail: str
    advice: str


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = subparsers.add_parser("doctor", help="check the installation and say what to do")
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(command=doctor_command)


def doctor_command(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status 0 where everything required works, else 1."""
    checks = diagnose(settings)
    if args.json:
        say(json.dumps({"version": 1, "checks": [asdict(check) for check in checks]}, indent=1))
    else:
        rows = [
            (check.name, _state(check), textwrap.shorten(check.detail, 90), check.advice) for check in checks
        ]
        say_table(("check", "state", "found", "what to do"), rows, settings.color)
    return 0 if all(check.ok for check in checks if check.required) else 1


def diagnose(settings: Settings) -> list[Check]:
    return [
        Check("python", True, True, f"{platform.python_version()} on {platform.platform()}", ""),
        *_versions(),
        _try("engine", _engine, "reinstall egglog: pip install --force-reinstall egglog"),
        _try("llvm", _llvm, "reinstall llvmlite: pip install --force-reinstall llvmlite"),
        _try("main job", _main_job, "report it: CONTRIBUTING.md, Reporting a fault"),
        _try(
            "cache folder",
            lambda: _cache_folder(settings),
            "set TINYC_CACHE_DIR to a folder you may write to",
        ),
        Check("threads", True, True, f"{settings.num_threads}", ""),
        _try("nvrtc", _nvrtc, "only CUDA targets need it: pip install nvidia-cuda-nvrtc", required=False),
        _try(
            "gpu driver", _driver, "only running on a GPU needs it: install NVIDIA's driver", required=False
        ),
    ]


def _state(check: Check) -> str:
    return "ok" if check.ok else "FAILED" if check.required else "absent"


def _try(name: str, probe: Callable[[], str], advice: str, required: bool = True) -> Check:
    """A check that is right where ``probe`` returns (what it found) and wrong where it raises, whatever it is."""
    try:
        return Check(name, True, required, probe(), "")
    except TinycError as error:
        return Check(name, False, required, error.why, advice)
    except Exception as error:
        return Check(name, False, required, f"{type(error).__name__}: {error}", advice)


def _versions() -> list[Check]:
    """One check per package that tinyc depends on, as its own metadata lists them."""
    try:
        requirements = metadata.requires("tinyc") or ()
    except metadata.PackageNotFoundError:
        return [Check("tinyc", False, False, "run from its folder, not installed", "pip install -e '.[dev]'")]
    checks = [Check("tinyc", True, True, metadata.version("tinyc"), "")]
    for requirement in requirements:
        if "extra ==" in requirement:
            continue
        name = re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]
        try:
            checks.append(Check(name, True, True, metadata.version(name), ""))
        except metadata.PackageNotFoundError:
            checks.append(Check(name, False, True, "not installed", f"pip install '{requirement}'"))
    return checks


def _engine() -> str:
    from tinyc.egraph.rulefiles import list_rules

    return f"{len(list_rules())} rules load"


def _llvm() -> str:
    """Builds and calls a machine-code function, on this processor."""
    import ctypes

    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    module = binding.parse_assembly("define i32 @answer() { ret i32 42 }")
    with binding.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        answer = ctypes.CFUNCTYPE(ctypes.c_int32)(engine.get_function_address("answer"))()
    if answer != 42:
        raise RuntimeError(f"generated code returned {answer}, not 42")
    version = ".".join(map(str, binding.llvm_version_info))
    return f"LLVM {version} for {binding.get_host_cpu_name()}"


def _main_job() -> str:
    """A small matrix product through every layer, held against numpy (small integers: no tolerance)."""
    import numpy as np

    import tinyc

    def product(a: Any, b: Any) -> Any:
        return a @ b

    spec = tinyc.spec("fp32", (3, 3))
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    got = tinyc.optimize_and_compile(tinyc.trace(product, spec, spec))(a, a.T)
    if not np.array_equal(got, a @ a.T):
        raise RuntimeError("a 3×3 matrix product came out wrong")
    return "a 3×3 matrix product comes out right"


def _cache_folder(settings: Settings) -> str:
    """Writes and removes a file in the cache folder, or in the nearest parent that exists."""
    if settings.cache is not None and not settings.cache.usable():
        raise RuntimeError(f"{settings.cache.folder} cannot be written, or others may write to it")
    folder = settings.cache_dir
    while not folder.exists():
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):
        return f"{settings.cache_dir}" + ("" if folder == settings.cache_dir else " (not made yet)")


def _nvrtc() -> str:
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise RuntimeError(f"nvrtcVersion: {status.name}")
    return f"NVRTC {major}.{minor}"


def _driver() -> str:
    """The driver, the first GPU, and the target that is "auto" here."""
    from tinyc.runtime.cuda.device import first_device, target_for

    device = first_device()
    version = device.driver("cuDriverGetVersion")
    count = device.driver("cuDeviceGetCount")
    capability = ".".join(map(str, device.capability))
    target = target_for(device)
    runs = f'target="auto" is {target}' if target else 'no target has code for it: target="auto" is cpu'
    found = f"{device.name}, compute capability {capability}: {runs}"
    return f"CUDA {version // 1000}.{version % 1000 // 10}, {count} device(s); the first is {found}"
