"""What the cost model and the default Plans know of a machine: one table, no constants in code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.resources import CPU, LIMITS, Limits


@dataclass(frozen=True)
class Hardware:
    """Rates of one target. ``flops``: FLOP/s of a tiled contraction (a multiply-add is 2). ``ops``: simple
    elementwise operations per second. ``bandwidth``: bytes/s of main memory. ``launch``: seconds to start a kernel.
    ``value``: seconds for each value in a kernel's code, however few elements it has: setting up its loops, fetching
    its instructions. ``write``: bytes moved per byte written (a CPU's caches fetch a line before they change it).
    ``rows``: a contraction is tiled also where other reductions of its kernel run over its rows, which are kept on chip.
    ``limits``: what a kernel may use at most."""

    name: str
    flops: float
    ops: float
    bandwidth: float
    launch: float
    value: float = 0.0
    write: float = 1.0
    rows: bool = False
    limits: Limits = CPU


#: cpu: two cores with AVX2 or better, as measured with `tinyc bench cpu-gemm`; sm80: A100 SXM 80 GB, dense fp16
#: tensor cores with fp32 accumulation; sm90: H100 SXM. GPU figures are the makers' data sheets; the shared
#: memory of a block is 163 and 227 KiB. The CPU's vector registers are those of AVX2 until a target says its own.
TABLE: Mapping[str, Hardware] = MappingProxyType(
    {
        "cpu": Hardware("cpu", flops=1.0e11, ops=3e10, bandwidth=2.0e10, launch=5e-6, value=3e-8, write=2.0),
        "sm80": Hardware(
            "sm80",
            flops=312e12,
            ops=19.5e12,
            bandwidth=2.039e12,
            launch=3e-6,
            value=5e-9,
            rows=True,
            limits=LIMITS["sm80"],
        ),
        "sm90": Hardware(
            "sm90",
            flops=989e12,
            ops=67e12,
            bandwidth=3.35e12,
            launch=3e-6,
            value=5e-9,
            rows=True,
            limits=LIMITS["sm90"],
        ),
    }
)

#: simple operations that one evaluation of an operator costs. An exponential that is evaluated twice in a kernel, as in
#: a softmax, is kept in between (codegen/cpu/rows.py): each of the two is charged half.
WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "FDIV": 6.0,
        "RECIP": 6.0,
        "SQRT": 8.0,
        "RSQRT": 12.0,
        "EXP2": 6.0,
        "LOG2": 20.0,
        "SIN": 40.0,
        "POW": 60.0,
        "Read": 0.5,
        "Const": 0.0,
        "Within": 0.5,
        "Reduce": 4.0,
        "Scan": 16.0,
        "Stream": 2.0,
    }
)


def hardware(target: str) -> Hardware:
    """The table's row. Raises TinycError TargetUnavailable for a target that is not in it."""
    if target not in TABLE:
        raise TinycError(
            "TargetUnavailable",
            f"there is no target {target!r}",
            f"the targets are {', '.join(TABLE)}",
            at={"layer": "extract", "value": target},
        )
    return TABLE[target]
