"""sass: what the main loop of a tiled product is on sm_80, in instructions, beside what Triton makes of the same tile. Nothing runs,
and no GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .measure import Benchmark, Cases
from .peers import load_peer

if TYPE_CHECKING:
    from tinyc.codegen.sass import Loop

SIZES = (1024, 1024, 512)
"""m, n and k: all tiles are whole."""

TILES = (
    ((64, 64, 64), (64, 64), 3),
    ((128, 64, 64), (64, 32), 3),
    ((128, 128, 64), (64, 64), 2),
    ((128, 128, 32), (64, 64), 3),
)
"""Of a block, of a warp, and stages: as many warps as Triton is given."""

MEANINGS = {
    "loop": "instructions of one turn of the main loop: one tile along k",
    "tensor": "of them, products on matrix units",
    "fragments": "loads from shared memory",
    "copies": "from global to shared memory",
    "others": "addresses, predicates, waits",
    "registers": "of a thread",
    "stack_bytes": "of a thread",
    "triton_loop": "the same loop of Triton",
    "triton_others": "",
    "ratio": "our instructions by Triton's",
}


def run(repeats: int, peers: Sequence[str] = ()) -> Cases:
    """One case per tile of :data:`TILES`: fp16 with a bias and a ReLU. Nothing is repeated."""
    import tinyc
    from tinyc.codegen.cuda import generate
    from tinyc.codegen.nvrtc import compile_cubin
    from tinyc.codegen.sass import disassemble, main_loop
    from tinyc.ir.schedule import Async, LayoutHints, Plan, Vectorize

    m, n, k = SIZES
    program = tinyc.trace(
        lambda a, b, bias: (a @ b + bias).relu(),
        tinyc.spec("fp16", (m, k)),
        tinyc.spec("fp16", (k, n)),
        tinyc.spec("fp16", (n,)),
    )
    (kernel,) = tinyc.optimize_and_compile(program, "sm80", budget=tinyc.Budget(extract_seconds=0)).kernels
    triton = load_peer("triton", "triton") if "triton" in peers else None
    cases: Cases = {}
    for tile, warp_tile, stages in TILES:
        plan = Plan(
            "contraction",
            tile=tile,
            stages=stages,
            warp_tile=warp_tile,
            arch="sm80",
            vectorize=Vectorize("n.i.i", 8),
            layout_hints=LayoutHints(True, True),
            async_=Async(True, stages, True),
        )
        cubin = compile_cubin(generate(kernel.region, plan).source, "sm_80")
        loop = main_loop(disassemble(cubin.image))
        assert loop is not None, "a product without matrix units"
        (usage,) = cubin.usage
        figures = {**_parts(loop), "registers": usage.registers, "stack_bytes": usage.stack_bytes}
        if triton is not None:
            warps = tile[0] // warp_tile[0] * (tile[1] // warp_tile[1])
            theirs = main_loop(disassemble(_triton(triton, tile, warps, stages)))
            assert theirs is not None, "Triton's product has no matrix units"
            figures |= {"triton_loop": theirs.instructions, "triton_others": _parts(theirs)["others"]}
            figures |= {"ratio": loop.instructions / theirs.instructions}
        cases[f"{'x'.join(map(str, tile))} of {stages}"] = figures
    return cases


def _parts(loop: Loop) -> dict[str, float]:
    kinds = {"tensor": "HMMA", "fragments": "LDSM", "copies": "LDGSTS"}
    parts: dict[str, float] = {name: loop.opcodes.get(opcode, 0) for name, opcode in kinds.items()}
    return {"loop": loop.instructions, **parts, "others": loop.instructions - sum(parts.values())}


def _triton(triton: Any, tile: tuple[int, int, int], warps: int, stages: int) -> bytes:
    """The same product in Triton, compiled for sm_80; sizes and strides are multiples of 16 and known as such."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from .gpu.folder.triton_kernels import gemm_bias_relu

    pointers = dict.fromkeys(("a", "b", "c", "bias"), "*fp16")
    numbers = dict.fromkeys(("M", "N", "K", "stride_a", "stride_b", "stride_c"), "i32")
    constants = {**dict(zip(("BM", "BN", "BK"), tile, strict=True)), "GROUP": 8}
    arguments = len(pointers) + len(numbers)
    source = ASTSource(
        fn=triton.jit(gemm_bias_relu),
        signature={**pointers, **numbers, **dict.fromkeys(constants, "constexpr")},
        constexprs={(arguments + place,): value for place, value in enumerate(constants.values())},
        attrs={(place,): [["tt.divisibility", 16]] for place in range(arguments)},
    )
    options = {"num_warps": warps, "num_stages": stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    return bytes(compiled.asm["cubin"])


BENCHMARK = Benchmark(
    "sass", "instructions of a product's main loop on sm_80; no GPU is needed", run, 1, MEANINGS, ("triton",)
)
