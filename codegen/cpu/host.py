"""What code generation needs to know of the machine that the code will run on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tinyc.ir.resources import CPU, Limits


@dataclass(frozen=True)
class Host:
    """The CPU as LLVM names it, and the few facts that change the generated text.

    ``lanes``: 32-bit lanes of one vector register. ``rows``: rows of the register tile of a contraction (its
    columns are two registers wide). ``fp16``: the CPU converts fp16 by itself; without it LLVM would call library
    functions that are not there.
    """

    cpu: str
    features: str
    lanes: int
    rows: int
    fma: bool
    fp16: bool

    @property
    def limits(self) -> Limits:
        """What a Plan may take of it."""
        return replace(CPU, lanes=self.lanes, rows=self.rows)


@lru_cache(maxsize=1)
def host() -> Host:
    """The CPU of this machine."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    triple = binding.get_default_triple()
    cpu, flags = binding.get_host_cpu_name(), features.flatten()
    if triple.startswith(("aarch64", "arm64")):
        return Host(cpu, flags, lanes=4, rows=8, fma=True, fp16=True)
    fma, fp16 = bool(features.get("fma")), bool(features.get("f16c"))
    if features.get("avx512f") and fma:
        return Host(cpu, flags, lanes=16, rows=8, fma=fma, fp16=fp16)
    if features.get("avx2"):
        return Host(cpu, flags, lanes=8, rows=6, fma=fma, fp16=fp16)
    return Host(cpu, flags, lanes=4, rows=4, fma=fma, fp16=fp16)
