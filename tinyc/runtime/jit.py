"""LLVM IR text to machine code in this process, by llvmlite."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tinyc.codegen.cpu import CpuKernel
from tinyc.ir.diagnostics import TinycError

Function = Any
"""A ctypes function ``(buffers, begin, end, scratch)``. Calling it releases the GIL."""


@lru_cache(maxsize=1)
def _prepare() -> None:
    """LLVM's one-time set-up, and the C library's mathematics for generated code to call."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    libm = ctypes.util.find_library("m")
    if libm is not None:
        binding.load_library_permanently(libm)


def _machine() -> Any:
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=3)


def optimised(kernel: CpuKernel, machine: Any | None = None) -> Any:
    """The LLVM module of a kernel after all passes. ``str()`` of it is the optimised text.

    Raises:
        TinycError: CodegenFailed where LLVM does not accept the source; that is a fault of tinyc.
    """
    from llvmlite import binding

    _prepare()
    try:
        module = binding.parse_assembly(kernel.source)
        module.verify()
    except RuntimeError as error:
        raise TinycError(
            "CodegenFailed",
            f"LLVM refuses the source of {kernel.name}: {error}",
            "report this as a fault of tinyc, with the source of the kernel",
            at={"layer": "codegen", "op": kernel.name},
        ) from error
    tuning = binding.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = len(kernel.source) < VECTOR_LIMIT
    builder = binding.create_pass_builder(machine or _machine(), tuning)
    builder.getModulePassManager().run(module, builder)
    return module


#: characters of source (about 5,000 lets) above which a kernel is not vectorised: LLVM's time for it grows faster
#: than the code, to most of a minute for 10,000 bf16 lets, against 5 s for scalar code
VECTOR_LIMIT = 500_000


def assembly(kernel: CpuKernel) -> str:
    """The machine code of a kernel as text."""
    machine = _machine()
    return str(machine.emit_assembly(optimised(kernel, machine)))


class Code:
    """Machine code of some kernels, in memory as long as its functions. Equal kernels are compiled once."""

    def __init__(self, kernels: Iterable[CpuKernel]) -> None:
        from llvmlite import binding

        _prepare()
        unique = {kernel.name: kernel for kernel in kernels}
        machine = _machine()
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
        for kernel in unique.values():
            engine.add_module(optimised(kernel, machine))
        engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self._functions = {name: signature(engine.get_function_address(name)) for name in unique}
        for function in self._functions.values():
            function.engine = engine  # type: ignore[attr-defined]  # the code goes when its engine does

    def __getitem__(self, kernel: CpuKernel) -> Function:
        return self._functions[kernel.name]

    def __len__(self) -> int:
        return len(self._functions)
