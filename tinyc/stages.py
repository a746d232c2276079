"""The stages at which a user can stop and read (document 004 §10, §13): each as strict JSON, in pipeline order.

Every function here gives an object with the stage's name as its only key; :class:`tinyc.compiler.Compiled` makes text
of it. What it takes to go on from Regions and Plans (``tinyc.resume``) is in their entries: the first Region's
``program`` is the signature and the buffer of each of its arguments, a Plan's ``kernel`` is its Region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinyc.codegen.gpu.gpu_json import gpu_ir_to_json
from tinyc.frontend.frontend_json import frontend_document
from tinyc.index.analysis_json import analysis_to_json
from tinyc.index.book_json import book_to_json
from tinyc.index.core import analyze
from tinyc.index.derive import index_book
from tinyc.index.hints import plan_tile
from tinyc.index.poly_json import view_to_json
from tinyc.index.polyview import poly_view
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import program_to_document
from tinyc.ir.execution_json import execution_to_json
from tinyc.ir.plan import Extracted
from tinyc.ir.region import Region
from tinyc.ir.region_json import region_to_json
from tinyc.ir.schedule_json import plan_to_json
from tinyc.ir.signature import Signature, signature_to_json
from tinyc.ir.tiny import Program

if TYPE_CHECKING:
    from tinyc.codegen.cuda import CudaKernel

STAGES = (
    "frontend",
    "tiny",
    "indexbook",
    "poly_view",
    "region",
    "analysis",
    "plan",
    "exec",
    "llvm",
    "gpu",
    "cu",
)
"""What ``dump`` and ``--dump`` know, in pipeline order. The last three are code: of the CPU, and of GPUs."""

OF_CODE = {"llvm": "cpu", "gpu": "gpu", "cu": "gpu"}
"""The stages that only some targets have."""

OF_PROGRAM = frozenset({"frontend", "tiny", "indexbook", "poly_view"})
"""The stages before the e-graph: symbols may be unbound there, and a dumped Region has none of them."""


def code_stage(target: str) -> str:
    """The stage that holds a target's source."""
    return "llvm" if target in ("cpu", "auto") else "cu"


def stages_of(target: str) -> tuple[str, ...]:
    """The stages that a program for ``target`` has."""
    own = "cpu" if target in ("cpu", "auto") else "gpu"
    return tuple(stage for stage in STAGES if OF_CODE.get(stage, own) == own)


def program_stage(stage: str, program: Program) -> dict[str, Any]:
    """A stage of :data:`OF_PROGRAM` as ``{stage: …}``."""
    match stage:
        case "frontend":
            return {"frontend": frontend_document(program)}
        case "tiny":
            return {"tiny": program_to_document(program)}
        case "indexbook":
            return {"indexbook": book_to_json(index_book(program))}
        case _:
            return {"poly_view": view_to_json(poly_view(program, index_book(program)))}


def extracted_stage(stage: str, extracted: Extracted, signature: Signature, arch: str) -> dict[str, Any]:
    """region, analysis, plan or exec as ``{stage: …}``, with one entry per kernel where there are kernels."""
    pairs = list(zip(extracted.regions, extracted.plans, strict=True))
    match stage:
        case "region":
            return {"region": _regions(extracted, signature)}
        case "plan":
            plans = [plan_to_json(region.name, plan) for region, plan in pairs]
            regions = _regions(extracted, signature)
            return {"plan": [{**plan, "kernel": region} for plan, region in zip(plans, regions, strict=True)]}
        case "analysis":
            return {"analysis": analyses(extracted, arch)}
        case _:
            return {"exec": execution_to_json(extracted.execution)}


def gpu_stage(regions: Sequence[Region], kernels: Sequence[CudaKernel]) -> dict[str, Any]:
    """The schedule of each kernel for a GPU and, where it is tiled, its GPU IR, as ``{"gpu": …}``."""
    return {
        "gpu": [
            {
                "region": region.name,
                "symbol": kernel.name,
                "schedule": kernel.algo,
                **({} if kernel.ir is None else gpu_ir_to_json(kernel.ir)),
            }
            for region, kernel in zip(regions, kernels, strict=True)
        ]
    }


def _regions(extracted: Extracted, signature: Signature) -> list[dict[str, Any]]:
    """One entry per kernel; the first says of which program they are."""
    execution = extracted.execution
    names = {buffer.id: buffer.name for buffer in execution.buffers}
    program = {
        **signature_to_json(signature),
        "buffers": {
            "inputs": [names[id] for id in execution.input_buffers],
            "outputs": [names[id] for id in execution.output_buffers],
        },
    }
    regions = [region_to_json(region) for region in extracted.regions]
    return [{**regions[0], "program": program}, *regions[1:]]


def analyses(extracted: Extracted, arch: str) -> list[dict[str, Any]]:
    """What Poly Core says of each kernel, cut as its Plan cuts it."""
    pairs = zip(extracted.regions, extracted.plans, strict=True)
    return [
        analysis_to_json(analyze(region, plan_tile(region, plan), arch))["analysis"] for region, plan in pairs
    ]


def check_stage(stage: str, known: Sequence[str] = STAGES) -> None:
    """Raises InvalidArgument for a stage that there is not."""
    if stage not in known:
        raise TinycError(
            "InvalidArgument",
            f"there is no stage {stage!r}",
            f"the stages are {', '.join(known)}",
            at={"layer": "compiler", "value": stage},
        )
