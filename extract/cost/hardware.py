"""What the cost model and the default Plans know of a machine: one table, no constants in code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.resources import CPU, LIMITS, Limits


@dataclass(frozen=True)
class Hardware:
    """Rates of one target, and what its penalties weigh. docs/cost.md says where each is used.

    Attributes:
        name: of the target, with the variant's behind it.
        flops: FLOP/s of a tiled contraction (a multiply-add is 2); on a GPU of fp16 and bf16, with the matrix units.
        ops: simple elementwise operations per second.
        bandwidth: bytes/s of main memory.
        launch: seconds to start a kernel.
        value: seconds for each value in a kernel's code, however few elements it has: setting up its loops, fetching
            its instructions.
        write: bytes moved per byte written (a CPU's caches fetch a line before they change it).
        rows: a contraction is tiled also where other reductions of its kernel run over its rows, which are kept on chip.
        limits: what a kernel may use at most.
        vector_flops: FLOP/s of a tiled contraction that matrix units do not take (fp32, i32); 0: as ``flops``.
        sms: multiprocessors; 0 for a CPU, whose estimates do not ask for a :class:`~tinyc.extract.cost.schedule.Schedule`.
        cache_bandwidth: bytes/s from the second-level cache to the multiprocessors; 0: reads that hit it are free.
        latency: seconds from asking main memory to its answer.
        busy_warps: resident warps of a multiprocessor that keep its arithmetic units busy.
        loads: vector loads that a thread without a ring has under way.
        narrow: of a transfer's time, for each further access that the widest one takes when it is cut.
        strided: bytes moved beside each that is accessed out of order; none of a buffer of at most ``near`` bytes, which
            stays in the nearest cache.
        viewed: of a transfer's time, for an operand that is transposed on its way from shared memory.
        transposed: the same for a copy into another layout.
        tf32_flops: FLOP/s of a tiled contraction of fp32 that is rounded to tf32; 0: as ``vector_flops``.
    """

    name: str
    flops: float
    ops: float
    bandwidth: float
    launch: float
    value: float = 0.0
    write: float = 1.0
    rows: bool = False
    limits: Limits = CPU
    vector_flops: float = 0.0
    sms: int = 0
    cache_bandwidth: float = 0.0
    latency: float = 0.0
    busy_warps: int = 8
    loads: int = 4
    narrow: float = 0.0
    strided: float = 0.0
    near: int = 0
    viewed: float = 0.0
    transposed: float = 0.0
    tf32_flops: float = 0.0


#: cpu: two cores with AVX2 or better, as measured with `tinyc bench cpu-gemm`. sm80: A100 SXM 80 GB; sm86: A10; sm89:
#: L40S; sm90: H100 SXM.
#: Their peaks are the makers' data sheets, dense, with fp32 accumulation; half of the fp32 rate is simple operations,
#: since a multiply-add counts two. The cache's rate is 5120 bytes a clock of which two thirds arrive (A100), and what
#: holds products with tiles of 128 x 128 at 525 TFLOP/s (Hopper); those of sm86 and sm89 are guesses. Latencies are 479 clocks of main memory. The weights
#: of the penalties are what docs/cost.md derives; the CPU's are as measured where matrices are read across
#: (docs/benchmarks.md). The CPU's vector registers are those of AVX2 until a target says its own.
TABLE: Mapping[str, Hardware] = MappingProxyType(
    {
        "cpu": Hardware(
            "cpu",
            flops=1.0e11,
            ops=3e10,
            bandwidth=2.0e10,
            launch=5e-6,
            value=3e-8,
            write=2.0,
            strided=8.0,
            near=32 << 10,
            transposed=7.0,
        ),
        "sm80": Hardware(
            "sm80",
            flops=312e12,
            ops=9.75e12,
            bandwidth=2.039e12,
            launch=3e-6,
            value=5e-9,
            rows=True,
            limits=LIMITS["sm80"],
            vector_flops=19.5e12,
            tf32_flops=156e12,
            sms=108,
            cache_bandwidth=4.8e12,
            latency=340e-9,
            narrow=0.05,
            strided=3.0,
            viewed=0.05,
            transposed=0.5,
        ),
        "sm86": Hardware(
            "sm86",
            flops=125e12,
            ops=15.6e12,
            bandwidth=0.6e12,
            launch=3e-6,
            value=5e-9,
            rows=True,
            limits=LIMITS["sm86"],
            vector_flops=31.2e12,
            tf32_flops=62.5e12,
            sms=72,
            cache_bandwidth=2.0e12,
            latency=340e-9,
            narrow=0.05,
            strided=3.0,
            viewed=0.05,
            transposed=0.5,
        ),
        "sm89": Hardware(
            "sm89",
            flops=362e12,
            ops=45.8e12,
            bandwidth=0.864e12,
            launch=3e-6,
            value=5e-9,
            rows=True,
            limits=LIMITS["sm89"],
            vector_flops=91.6e12,
            tf32_flops=183e12,
            sms=142,
            cache_bandwidth=4.5e12,
            latency=340e-9,
            narrow=0.05,
            strided=3.0,
            viewed=0.05,
            transposed=0.5,
        ),
        "sm90": Hardware(
            "sm90",
            flops=989e12,
            ops=33.5e12,
            bandwidth=3.35e12,
            launch=3e-6,
            value=5e-9,
            rows=True,
            limits=LIMITS["sm90"],
            vector_flops=67e12,
            tf32_flops=495e12,
            sms=132,
            cache_bandwidth=8.2e12,
            latency=273e-9,
            narrow=0.05,
            strided=3.0,
            viewed=0.02,
            transposed=0.5,
        ),
    }
)

#: machines that differ from their target's row in memory only: (target, variant) -> what differs
VARIANTS: Mapping[tuple[str, str], Mapping[str, float]] = MappingProxyType(
    {
        ("sm80", "a100-40gb"): {"bandwidth": 1.555e12},
        ("sm90", "h200"): {"bandwidth": 4.8e12},
    }
)

#: simple operations that one evaluation of an operator costs. An exponential that is evaluated twice in a kernel, as in
#: a softmax, is kept in between (codegen/cpu/rows.py): each of the two is charged half. A score of a walk is a "Scan"; on matrix
#: units it is a "Walk": what the emulator counts (tests/codegen/test_cuda_attention.py), an exponential for four operations.
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
        "Walk": 8.0,
        "Row": 1000.0,
        "Gather": 10.0,
        "Stream": 2.0,
    }
)


def hardware(target: str, variant: str = "") -> Hardware:
    """The table's row, or a variant of it: ``hardware("sm90", "h200")``. Raises TinycError TargetUnavailable for one
    that is not in the table."""
    if target not in TABLE:
        raise TinycError(
            "TargetUnavailable",
            f"there is no target {target!r}",
            f"the targets are {', '.join(TABLE)}",
            at={"layer": "extract", "value": target},
        )
    if not variant:
        return TABLE[target]
    if (target, variant) not in VARIANTS:
        known = [name for owner, name in VARIANTS if owner == target]
        raise TinycError(
            "TargetUnavailable",
            f"target {target} has no variant {variant!r}",
            f"its variants are {', '.join(known)}" if known else "it has none",
            at={"layer": "extract", "value": f"{target} {variant}"},
        )
    return replace(TABLE[target], name=f"{target} {variant}", **VARIANTS[target, variant])  # type: ignore[arg-type]
