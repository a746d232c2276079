"""Region + Plan in, LLVM IR out: the whole text of one kernel for the CPU."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass

from tinyc.ir.check_plan import check_plan
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.plan import Plan
from tinyc.ir.region import Binary, Reduce, Region, Stream, Unary
from tinyc.ir.schedule_names import Scope

from ..prepare import describe, simplify
from ..streams import without_streams
from . import scalar
from .contraction import emit_contraction
from .emit import Emitter
from .host import Host, host
from .library import library
from .loops import emit_loops
from .walk import emit_walk

#: work that is worth handing to another thread, in operations on one element: about 100 microseconds
GRAIN = 1 << 21

#: operations that cost several additions
_WEIGHTS = {"EXP2": 10, "LOG2": 30, "SIN": 30, "POW": 60, "FDIV": 3, "RECIP": 3, "SQRT": 4, "RSQRT": 6}
#: what packed and tiled sums of products gain over plain loops
_CONTRACTION_GAIN = 12


@dataclass(frozen=True)
class CpuKernel:
    """A kernel for the CPU.

    ``source`` defines ``void name(ptr buffers, i64 begin, i64 end, ptr scratch)``: ``buffers`` points to the
    addresses of inputs then outputs; the call does the turns ``begin <= t < end`` of a parallel loop of ``extent``
    turns, for which ``scratch`` points to ``scratch_bytes`` of its own, 64-byte aligned. Turns may run in any
    order and on any thread; ``grain`` is the fewest that are worth a thread. Equal programs have equal sources,
    names included. ``algo``: the schedule that was used.
    """

    name: str
    source: str
    extent: int
    grain: int
    scratch_bytes: int
    algo: str


def generate(region: Region, plan: Plan, on: Host | None = None) -> CpuKernel:
    """The kernel that computes ``region``. ``on``: the CPU to generate for (default: this one).

    The Plan is obeyed: its tile gives the blocks of the loops, its vectorize the width of the vectors. What it leaves
    open is chosen here; a contraction without a tile runs as loops where it is small, or not of the form of
    :mod:`.contraction`.

    Raises:
        TinycError: CodegenFailed where an operation does not exist for its dtype; E15xx where the Plan is not for
            this Region or this CPU.
    """
    target = on or host()
    check_plan(plan, region, target.limits)
    scope = Scope(plan, region)
    small = simplify(without_streams(region, rounded=True))
    try:
        extent, emitter, algo = None, Emitter(small, target), "contraction"
        if scope.contraction is not None:
            extent = emit_contraction(emitter, scope.contraction, plan)
        if extent is None and plan.tile is None:
            emitter, algo = Emitter(small, target), "stream"
            extent = emit_walk(emitter)
        if extent is None:
            emitter, algo = Emitter(small, target), "loops"
            if plan.vectorize is not None:
                emitter.widths = dict.fromkeys(scope.innermost(plan.vectorize.axis), plan.vectorize.width)
            extent = emit_loops(emitter, plan.tile[1] if plan.tile else None)
    except scalar.Unsupported as error:
        raise TinycError(
            "CodegenFailed",
            f"the CPU has no {error} in kernel {region.name}",
            "cast the operands to a dtype that has the operation",
            at={"layer": "codegen", "node": region.name},
        ) from error
    text = _module(small, emitter)
    name = f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    gain = _CONTRACTION_GAIN if algo in ("contraction", "stream") else 1
    share = max(1, _work(emitter) // gain // extent)
    return CpuKernel(
        name, text.replace("@KERNEL", f"@{name}"), extent, max(1, -(-GRAIN // share)), emitter.scratch, algo
    )


def _work(emitter: Emitter) -> int:
    """Operations on one element in the whole kernel, each weighted by its cost."""
    work = 0
    for let in emitter.region.lets:
        axes = emitter.free[let.value.body if isinstance(let.value, Reduce) else let.name]
        if isinstance(let.value, Stream):
            axes |= {item.name for item in let.value.axes}
        weight = _WEIGHTS.get(let.value.op, 1) if isinstance(let.value, Unary | Binary) else 1
        work += weight * math.prod(emitter.sizes[name] for name in axes)
    return work


_INTRINSICS = re.compile(r"call (?P<type>[^@]+) @(?P<name>llvm\.[\w.]+|powf|sinf|log2f)\(")
_ARGUMENTS = {
    "llvm.fma": 3,
    "llvm.maximum": 2,
    "llvm.minimum": 2,
    "llvm.smax": 2,
    "llvm.smin": 2,
    "powf": 2,
}


def _declarations(text: str) -> list[str]:
    """One declaration per intrinsic or library function that the text calls."""
    found = {}
    for match in _INTRINSICS.finditer(text):
        kind, name = match["type"], match["name"]
        if name.startswith("llvm.memset"):
            arguments = "ptr, i8, i64, i1"
        elif name.startswith("llvm.fptosi"):
            arguments = "float"
        else:
            stem = name if not name.startswith("llvm.") else ".".join(name.split(".")[:2])
            arguments = ", ".join([kind] * _ARGUMENTS.get(stem, 1))
        # Without this, LLVM assumes that a libm call may write errno, and keeps loads from moving over it.
        suffix = "" if name.startswith("llvm.") else " nounwind willreturn memory(none)"
        found[name] = f"declare {kind} @{name}({arguments}){suffix}"
    return [found[name] for name in sorted(found)]


def _module(region: Region, emitter: Emitter) -> str:
    inputs = [f"%in{number}" for number in range(len(region.inputs))]
    outputs = [f"%out{number}" for number in range(len(region.outputs))]
    # As parameters the buffers can be declared not to overlap, which frees the vectoriser from checks.
    parameters = [f"ptr noalias readonly {name}" for name in inputs]
    parameters += [f"ptr noalias {name}" for name in (*outputs, "%scratch")]
    body = [
        f"define internal void @body({', '.join(parameters)}, i64 %begin, i64 %end) noinline nounwind {{",
        "entry:",
        *emitter.entry,
        *emitter.frames[0].lines,
        "  ret void",
        "}",
        "",
        "define void @KERNEL(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {",
    ]
    for number, name in enumerate([*inputs, *outputs]):
        body.append(f"  {name}.slot = getelementptr inbounds ptr, ptr %buffers, i64 {number}")
        body.append(f"  {name} = load ptr, ptr {name}.slot")
    arguments = ", ".join(f"ptr {name}" for name in (*inputs, *outputs, "%scratch"))
    body += [f"  call void @body({arguments}, i64 %begin, i64 %end)", "  ret void", "}", ""]
    text = "\n".join([library(emitter.used, emitter.host), *emitter.functions, *body])
    return "\n".join([*describe(region, ";"), "", text, *_declarations(text), *emitter.metadata, ""])
