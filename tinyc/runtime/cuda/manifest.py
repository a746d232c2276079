"""What it takes to run a program for a GPU, as strict JSON and machine code: all that ``loader.py`` is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tinyc.codegen.nvrtc import nvrtc_version
from tinyc.ir.execution import planned
from tinyc.ir.signature import Signature, signature_to_json

from .loader import FORMAT, VERSION
from .program import ARCHITECTURES, CudaProgram


@dataclass(frozen=True)
class Loadable:
    """``manifest``: launches, buffers, signature, versions. ``images``: the machine code of each kernel, ``sources``: its CUDA
    C++, both by the names that the manifest gives them."""

    manifest: Mapping[str, Any]
    images: Mapping[str, bytes]
    sources: Mapping[str, str]


def loadable(cuda: CudaProgram, signature: Signature, version: str) -> Loadable:
    """``cuda``, compiled. ``version``: of tinyc. Raises TinycError TargetUnavailable, CudaRefused."""
    plan = cuda.program.execution
    if any(buffer.offset is None for buffer in plan.internal()):  # a plan made by hand
        plan = planned(plan)
    unique = {kernel.name: kernel for kernel in cuda.kernels}
    numbers = {name: number for number, name in enumerate(unique)}
    cubins = {name: cuda.compiled(kernel) for name, kernel in unique.items()}
    inside = {buffer.id for buffer in plan.internal()}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "target": cuda.target,
        "arch": ARCHITECTURES[cuda.target],
        "versions": {"tinyc": version, "nvrtc": nvrtc_version()},
        "signature": signature_to_json(signature),
        "buffers": [
            {
                "id": buffer.id,
                "name": buffer.name,
                "dtype": buffer.dtype.value,
                "shape": list(buffer.shape),
                "bytes": buffer.bytes,
                "offset": buffer.offset if buffer.id in inside else None,
            }
            for buffer in plan.buffers
        ],
        "inputs": list(plan.input_buffers),
        "outputs": list(plan.output_buffers),
        "arena_bytes": plan.arena.bytes,
        "kernels": [
            {
                "name": name,
                "image": f"kernels/{name}.cubin",
                "source": f"kernels/{name}.cu",
                "grid": list(kernel.grid),
                "block": list(kernel.block),
                "shared_bytes": kernel.shared_bytes,
                "usage": [asdict(each) for each in cubins[name].usage],
            }
            for name, kernel in unique.items()
        ],
        "launches": [
            {
                "region": item.debug_name,
                "kernel": numbers[cuda.kernels[item.kernel].name],
                "arguments": [*item.inputs, *item.outputs],
            }
            for item in plan.instructions
        ],
    }
    images = {f"kernels/{name}.cubin": cubin.image for name, cubin in cubins.items()}
    sources = {f"kernels/{name}.cu": kernel.source for name, kernel in unique.items()}
    return Loadable(manifest, images, sources)
