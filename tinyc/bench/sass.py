"""sass: what the main loop of a tiled product, and of attention, is on sm_80, in instructions, beside what Triton makes of the same
tile. Nothing runs, and no GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .measure import Benchmark, Cases
from .peers import load_peer

if TYPE_CHECKING:
    from tinyc.codegen.sass import Loop
    from tinyc.ir.region import Region
    from tinyc.ir.schedule import Plan

SIZES = (1024, 1024, 512)
"""m, n and k: all tiles are whole."""

TILES = (
    ((64, 64, 64), (64, 64), 3),
    ((128, 64, 64), (64, 32), 3),
    ((128, 128, 64), (64, 64), 2),
    ((128, 128, 32), (64, 64), 3),
)
"""Of a block, of a warp, and stages: as many warps as Triton is given."""

HEADS, TOKENS = 8, 2048
WALKS = (
    (32, (64, 64), 16),
    (32, (128, 64), 16),
    (32, (128, 64), 32),
    (64, (64, 64), 16),
    (64, (128, 64), 16),
    (64, (128, 64), 32),
    (128, (64, 64), 16),
    (128, (128, 64), 16),
    (128, (128, 32), 32),
    (256, (32, 64), 16),
    (256, (64, 64), 16),
)
"""Attention: elements of a head, rows of a block and keys of a tile, rows of a warp."""

MEANINGS = {
    "loop": "instructions of one turn of the main loop: one tile along k, or of keys",
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
    """A case for each tile of :data:`TILES`, fp16 with a bias and a ReLU, and of :data:`WALKS`, in one walk, as Triton's is. Nothing
    is repeated."""
    triton = load_peer("triton", "triton") if "triton" in peers else None
    return {**_products(triton), **_walks(triton)}


def _products(triton: Any) -> Cases:
    import tinyc
    from tinyc.ir.schedule import Async, LayoutHints, Plan, Vectorize

    m, n, k = SIZES
    program = tinyc.trace(
        lambda a, b, bias: (a @ b + bias).relu(),
        tinyc.spec("fp16", (m, k)),
        tinyc.spec("fp16", (k, n)),
        tinyc.spec("fp16", (n,)),
    )
    (kernel,) = tinyc.optimize_and_compile(program, "sm80", budget=tinyc.Budget(extract_seconds=0)).kernels
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
        warps = tile[0] // warp_tile[0] * (tile[1] // warp_tile[1])
        image = _triton(triton, tile, warps, stages) if triton is not None else None
        cases[f"{'x'.join(map(str, tile))} of {stages}"] = _figures(kernel.region, plan, image)
    return cases


def _walks(triton: Any) -> Cases:
    import tinyc
    from tinyc import functions as tc

    cases: Cases = {}
    for depth, (rows, columns), own in WALKS:
        spec = tinyc.spec("fp16", (HEADS, TOKENS, depth))
        program = tinyc.trace(lambda q, k, v: tc.attention(q, k, v), spec, spec, spec)
        compiled = tinyc.optimize_and_compile(
            program, "sm80", also=("streaming-unrounded",), budget=tinyc.Budget(extract_seconds=0)
        )
        (kernel,) = compiled.kernels
        plan = replace(kernel.plan, tile=(rows, columns, depth), warp_tile=(own, columns))
        image = _triton_attention((depth, rows, columns), rows // own) if triton is not None else None
        cases[f"attention {depth}, {rows}x{columns}, {own} rows"] = _figures(kernel.region, plan, image)
    return cases


def _figures(region: Region, plan: Plan, peer: bytes | None) -> dict[str, float]:
    """Of our kernel, and of Triton's ``peer``."""
    from tinyc.codegen.cuda import generate
    from tinyc.codegen.nvrtc import compile_cubin
    from tinyc.codegen.sass import disassemble, main_loop

    cubin = compile_cubin(generate(region, plan).source, "sm_80")
    loop = main_loop(disassemble(cubin.image))
    assert loop is not None, "a kernel without matrix units"
    (usage,) = cubin.usage
    figures = {**_parts(loop), "registers": usage.registers, "stack_bytes": usage.stack_bytes}
    if peer is not None:
        theirs = main_loop(disassemble(peer))
        assert theirs is not None, "Triton's kernel has no matrix units"
        figures |= {"triton_loop": theirs.instructions, "triton_others": _parts(theirs)["others"]}
        figures |= {"ratio": loop.instructions / theirs.instructions}
    return figures


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


def _triton_attention(constants: tuple[int, int, int], warps: int) -> bytes:
    """Attention in Triton; the length is a multiple of 16 and known as such."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from .triton_attention import attention

    pointers = dict.fromkeys(("q", "k", "v", "out"), "*fp16")
    numbers = {"N": "i32", "scale": "fp32"}
    names = dict(zip(("D", "BM", "BN"), constants, strict=True))
    arguments = len(pointers) + len(numbers)
    source = ASTSource(
        fn=attention,
        signature={**pointers, **numbers, **dict.fromkeys(names, "constexpr")},
        constexprs={(arguments + place,): value for place, value in enumerate(constants)},
        attrs={(place,): [["tt.divisibility", 16]] for place in range(len(pointers) + 1)},
    )
    compiled = triton.compile(
        source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps, "num_stages": 2}
    )
    return bytes(compiled.asm["cubin"])


BENCHMARK = Benchmark(
    "sass",
    "instructions of the main loops of products and attention on sm_80; no GPU is needed",
    run,
    1,
    MEANINGS,
    ("triton",),
)
