"""Listings of machine code, read: loops and their instructions."""

from __future__ import annotations

import numpy as np
import pytest
from contractions import Product, planned

from tinyc.bench import sass as bench
from tinyc.codegen.cuda import generate
from tinyc.codegen.nvrtc import compile_cubin
from tinyc.codegen.sass import disassemble, loops, main_loop
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType

LISTING = """
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDSM.16.M88.4 R4, [R3] ;
.L_x_0:
        /*0020*/              @!P0 HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0030*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0040*/               @P1 BRA `(.L_x_0) ;
        /*0050*/              @UP2 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0060*/               @P2 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_2:
        /*0080*/                   BRA `(.L_x_2);
"""


def test_loops_of_a_listing() -> None:
    inner, outer = loops(LISTING)
    assert dict(inner.opcodes) == {"HMMA": 1, "IADD3": 1, "BRA": 1}
    assert outer.instructions == 6 and outer.opcodes["UIADD3"] == 1
    assert main_loop(LISTING) == inner
    assert main_loop("/*0000*/ EXIT ;") is None


def test_the_main_loop_of_a_product() -> None:
    """128x64x64 with 64x32 of a warp: 4 x 4 x 4 products, their fragments, its share of the tiles, and little else."""
    product = Product(256, 256, 256, DType.FP16)
    kernel = generate(product.plain(), planned(product.roles, (128, 64, 64), (64, 32)))
    loop = main_loop(disassemble(compile_cubin(kernel.source, "sm_80").image))
    assert loop is not None
    kinds = ("HMMA", "LDSM", "LDGSTS")
    assert [loop.opcodes[kind] for kind in kinds] == [64, 24, 12]
    assert loop.instructions <= 1.15 * 173  # of Triton 3.9.0 for the same tile (docs/benchmarks.md)


def test_what_is_no_machine_code_is_refused() -> None:
    with pytest.raises(TinycError, match="nvdisasm"):
        disassemble(np.arange(64, dtype=np.uint8).tobytes())


TRITON = {
    "64x64x64 of 3": 355,
    "128x64x64 of 3": 173,
    "128x128x64 of 2": 257,
    "128x128x32 of 3": 179,
    "attention 32, 64x64, 16 rows": 268,
    "attention 32, 128x64, 16 rows": 253,
    "attention 32, 128x64, 32 rows": 484,
    "attention 64, 64x64, 16 rows": 339,
    "attention 64, 128x64, 16 rows": 330,
    "attention 64, 128x64, 32 rows": 606,
    "attention 128, 64x64, 16 rows": 654,
    "attention 128, 128x64, 16 rows": 481,
    "attention 128, 128x32, 32 rows": 555,
    "attention 256, 32x64, 16 rows": 869,
    "attention 256, 64x64, 16 rows": 923,
}
"""Instructions of the main loop of Triton 3.9.0 for the same tile (docs/benchmarks.md)."""


def test_no_loop_of_the_benchmark_is_much_longer_than_tritons() -> None:
    cases = bench.run(1)
    assert cases.keys() == TRITON.keys()
    for name, figures in cases.items():
        assert figures["loop"] <= 1.15 * TRITON[name], name
        assert figures["loop"] == sum(figures[name] for name in ("tensor", "fragments", "copies", "others"))
