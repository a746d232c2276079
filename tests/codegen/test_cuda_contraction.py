"""Tiled contractions for a GPU, in the emulator: products and convolutions, with Plans made by hand."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contractions import Product, convolution, planned
from cuda_regions import compare, emulated, outputs_of
from golden import Golden
from region_builder import BF16, F16, F32, I32, Build
from test_stream import arrays

import tinyc
from tinyc.codegen.cuda import CudaKernel, generate
from tinyc.codegen.emulator import DELIVERIES, Delivery, Emulated
from tinyc.codegen.gpu.ir import CpAsync
from tinyc.codegen.nvrtc import OPTIONS
from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis, lit
from tinyc.ir.plan import Plan
from tinyc.ir.region import Read, Region
from tinyc.ir.schedule import Async, Contraction

SMALL = ((64, 64, 16), (32, 32))
MIDDLE = ((64, 64, 32), (32, 32))
LARGE = ((128, 64, 64), (64, 32))
WIDE = ((128, 128, 64), (64, 32))
NOTHING_AHEAD = Async(False, 1, False)
ONE_MEMORY = Async(True, 3, False)
"""The epilogue has the memory of the rings."""


def integers(region: Region, largest: int = 3) -> dict[str, np.ndarray]:
    """Such that all sums are exact in fp32, and most in fp16."""
    generator = np.random.default_rng(0)
    return {
        ref.name: generator.integers(-largest, largest + 1, ref.shape).astype(ref.dtype.numpy)
        for ref in region.inputs
    }


def exact(region: Region, plan: Plan, delivery: Delivery = "late", largest: int = 3) -> Emulated:
    assert generate(region, plan).algo == "contraction"
    return compare(region, integers(region, largest), plan=plan, delivery=delivery)


# ---- products -------------------------------------------------------------------------------------------------------


Tiles = tuple[tuple[int, int, int], tuple[int, int]]

PRODUCTS: list[tuple[tuple[int, int, int], DType, Tiles, int, dict[str, Any]]] = [
    ((150, 130, 70), F16, LARGE, 3, {}),
    ((150, 130, 70), BF16, MIDDLE, 2, {"at": True, "bt": True}),
    ((128, 256, 64), BF16, WIDE, 2, {"bt": True}),
    ((128, 192, 136), F16, SMALL, 3, {"at": True}),
    ((1, 1, 1), F16, LARGE, 2, {}),
    ((257, 129, 33), F16, MIDDLE, 3, {"at": True, "ahead": ONE_MEMORY}),
    ((72, 80, 8), BF16, LARGE, 3, {"bt": True}),
    ((64, 72, 200), F16, MIDDLE, 2, {"ahead": NOTHING_AHEAD, "swizzle": False}),
    ((64, 72, 200), BF16, SMALL, 3, {"at": True, "bt": True, "swizzle": False}),
    ((40, 44, 100), F16, ((32, 48, 48), (16, 24)), 3, {"at": True}),
    ((40, 44, 100), F16, ((48, 32, 96), (48, 16)), 2, {"bt": True, "ahead": ONE_MEMORY}),
    ((150, 40, 20), BF16, ((16, 16, 16), (16, 16)), 2, {}),  # so many tiles that they are walked in bands
    ((70, 36, 50), F32, ((32, 32, 16), (16, 32)), 3, {"bt": True}),
    ((36, 70, 50), I32, ((32, 32, 16), (32, 16)), 2, {"at": True}),
]


@pytest.mark.spec("004-004", "004-121", "004-123")
@pytest.mark.parametrize(
    "number", range(len(PRODUCTS)), ids=lambda number: "x".join(map(str, PRODUCTS[number][0]))
)
def test_products_of_integers_are_exact(number: int) -> None:
    """Each with its copies arriving at another time."""
    sizes, dtype, tiles, stages, options = PRODUCTS[number]
    layout = {name: options[name] for name in ("at", "bt") if name in options}
    how = {name: options[name] for name in ("ahead", "swizzle") if name in options}
    product = Product(*sizes, dtype, **layout)
    plan = planned(product.roles, *tiles, stages, **how)
    exact(product.plain(), plan, DELIVERIES[number % len(DELIVERIES)])


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_copies_may_arrive_at_any_time(delivery: Delivery) -> None:
    product = Product(40, 48, 200, F16)
    exact(product.plain(), planned(product.roles, (32, 32, 32), (16, 16), 3), delivery)


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({"batch": 3}, ()),
        ({"batch": 3, "shared": "B", "at": True}, (("m.o", "block.x"), ("n.o", "block.x"))),
        ({"batch": 2, "shared": "A", "bt": True}, (("b", "block.x"), ("m.o", "block.z"), ("n.o", "block.y"))),
        ({"order": "ji"}, (("m.o", "block.x"), ("n.o", "block.y"))),
        ({"order": "ji", "batch": 2, "at": True, "bt": True}, ()),
    ],
)
def test_batches_and_results_that_lie_along_m(
    options: dict[str, Any], places: tuple[tuple[str, str], ...]
) -> None:
    product = Product(70, 40, 48, F16, **options)
    along = "m.i.i" if product.order == "ji" else "n.i.i"
    exact(product.plain(), replace(planned(product.roles, along=along), bind=places))


@pytest.mark.parametrize(
    ("start", "row", "bytes"), [(8, 80, 16), (4, 80, 8), (2, 66, 4), (3, 80, 0), (8, 81, 0)]
)
def test_an_operand_within_a_buffer_is_copied_as_wide_as_it_lies(start: int, row: int, bytes: int) -> None:
    b = Build(i=40, j=48)
    b.input("A", F16, 50, row)
    x = b.cast(b.let(F16, Read("A", (axis("i") + lit(7), axis("p") + lit(start)))), F32)
    y = b.cast(b.read(b.input("B", F16, 48, 64), "j", "p"), F32)
    total = b.reduce("SUM", b.binary("MUL", x, y), p=64)
    region = b.done(total)
    plan = planned(Contraction(total, x, y, (), ("i",), ("j",), ("p",)))
    kernel = generate(region, plan)
    assert kernel.ir is not None
    widths = {each.ring: each.bytes for each in kernel.ir.stmts if isinstance(each, CpAsync)}
    assert widths == {"a": bytes, "b": 16}
    exact(region, plan)


@pytest.mark.parametrize(("dtype", "unit"), [(F16, 2.0**-11), (BF16, 2.0**-8)], ids=["fp16", "bf16"])
def test_products_of_any_numbers_are_within_the_bound(dtype: DType, unit: float) -> None:
    """|got - real| <= (k + 2) u sum|a||b| + u'|real|, u of fp32 and u' of the result."""
    product = Product(65, 72, 300, dtype)
    region = product.plain()
    given = arrays(region)
    result = emulated(region, given, plan=planned(product.roles))
    (got,) = outputs_of(region, result).values()
    a, b = (given[name].astype(np.float64) for name in "AB")
    bound = 302 * 2.0**-24 * (np.abs(a) @ np.abs(b)) * (1 + unit) + unit * np.abs(a @ b) + 2.0**-25
    assert (np.abs(got.astype(np.float64) - a @ b) <= bound).all()


# ---- epilogues ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-123")
@pytest.mark.parametrize(("n", "order", "width"), [(72, "ij", 8), (70, "ij", 8), (72, "ji", 4)])
def test_epilogues_of_all_that_may_follow(n: int, order: str, width: int) -> None:
    """A bias, a column, a residual, casts, ReLU, a select, a comparison; and three results of three dtypes."""
    b = Product(66, n, 40, F16, order=order)
    biased = b.binary("ADD", b.cast(b.total, F16), b.full("bias", "j"))
    scaled = b.binary("MUL", b.cast(biased, F32), b.full("column", "i", F32))
    added = b.unary("RELU", b.binary("ADD", scaled, b.cast(b.full("residual", order), F32)))
    small = b.binary("CMPLT", added, b.const(40.0))
    chosen = b.select(small, added, b.const(40.0))
    plan = planned(b.roles, width=width, along="n.i.i" if order == "ij" else "m.i.i")
    region = b.done(b.cast(chosen, BF16), biased, small)
    exact(region, plan, largest=1)


def test_an_epilogue_of_other_functions() -> None:
    b = Product(64, 72, 24, F16)
    power = b.unary("EXP2", b.binary("MUL", b.total, b.const(0.125)))
    region = b.done(b.cast(b.binary("FDIV", power, b.binary("ADD", power, b.const(1.0))), F16))
    compare(region, arrays(region), rtol=2e-3, atol=1e-4, plan=planned(b.roles))


# ---- convolutions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "options", "tiles"),
    [
        ((2, 32, 24, (9, 7), (3, 3), F16), {"pad": 1}, MIDDLE),
        ((2, 32, 20, (9, 11), (3, 3), BF16), {"pad": 1, "stride": 2}, SMALL),
        ((1, 6, 40, (9, 9), (5, 3), F16), {"pad": 2, "dilation": 2}, MIDDLE),
        ((2, 16, 24, (9, 7), (3, 3), F16), {"pad": 1, "channels_last": False}, MIDDLE),
        ((3, 3, 10, (8, 8), (2, 2), F16), {"channels_last": False, "stride": 2}, SMALL),
        ((2, 8, 16, (40,), (5,), F16), {"pad": 2}, MIDDLE),
        ((1, 8, 16, (4, 5, 6), (3, 3, 3), F16), {"pad": 1}, SMALL),
        ((1, 64, 72, (7, 9), (1, 1), F16), {}, LARGE),
    ],
)
def test_convolutions_of_integers_are_exact(
    given: tuple[Any, ...], options: dict[str, Any], tiles: Tiles
) -> None:
    region, roles = convolution(*given, **options)
    along = "n.i.i" if options.get("channels_last", True) else "m.i.i"
    exact(region, planned(roles, *tiles, along=along), "random", largest=1)


# ---- what the optimiser plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "sizes"), [("sm80", (256, 256, 72)), ("sm90", (256, 256, 128))])
def test_programs_with_their_own_plans(target: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    program = tinyc.trace(
        lambda a, b, c: ((a @ b) + c).relu(), *(tinyc.spec("fp16", shape) for shape in ((m, k), (k, n), (n,)))
    )
    compiled = tinyc.optimize_and_compile(program, target, budget=tinyc.Budget(extract_seconds=0))
    (kernel,) = compiled.kernels
    assert kernel.plan.algo == "contraction"
    exact(kernel.region, kernel.plan, "random")


def test_what_the_skeleton_cannot_do_is_done_otherwise() -> None:
    """An operand that is computed."""
    b = Build(i=32, j=32)
    x = b.unary("RELU", b.cast(b.read(b.input("A", F16, 32, 16), "i", "p"), F32))
    y = b.cast(b.read(b.input("B", F16, 16, 32), "p", "j"), F32)
    total = b.reduce("SUM", b.binary("MUL", x, y), p=16)
    region = b.done(total)
    plan = planned(Contraction(total, x, y, (), ("i",), ("j",), ("p",)))
    kernel = generate(region, plan)
    assert kernel.algo != "contraction" and kernel.ir is None
    compare(region, integers(region), plan=plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_any_plan_of_any_product_and_convolution(seed: int) -> None:
    """Or the skeleton declines it."""
    pick = random.Random(seed)
    dtype = pick.choice([F16, F16, BF16, F32, I32])
    order = pick.choice(["ij", "ji"])
    if seed % 4:
        product = Product(
            *(pick.choice([1, 3, 8, 16, 33, 64, 70, 130]) for _ in range(3)),
            dtype,
            at=pick.random() < 0.5,
            bt=pick.random() < 0.5,
            batch=pick.choice([0, 0, 3]),
            shared=pick.choice(["", "A", "B"]),
            order=order,
        )
        region, roles = product.plain(), product.roles
    else:
        last = order == "ij"
        size, window = pick.choice(
            [((11,), (3,)), ((7, 9), (3, 2)), ((8, 8), (3, 3)), ((4, 5, 6), (2, 3, 1))]
        )
        ways = {name: pick.randint(low, 2) for name, low in (("stride", 1), ("dilation", 1), ("pad", 0))}
        given = (pick.randint(1, 3), pick.choice([3, 8, 16, 24]), pick.choice([5, 16, 40]), size, window)
        region, roles = convolution(*given, pick.choice([F16, BF16]), channels_last=last, **ways)
    warp_tile = pick.choice([(16, 16), (32, 32), (64, 32), (32, 64), (16, 8), (64, 64), (48, 32), (32, 24)])
    across, down = pick.choice([(1, 1), (2, 2), (2, 1), (1, 2), (4, 1)])
    plan = planned(
        roles,
        (
            warp_tile[0] * across,
            warp_tile[1] * down,
            pick.choice([16, 32, 48, 64] if dtype.itemsize == 2 else [16, 32]),
        ),
        warp_tile,
        pick.choice([2, 3]),
        width=pick.choice([2, 4, 8]),
        along=pick.choice(["n.i.i", "m.i.i"]),
        swizzle=pick.random() < 0.7,
        ahead=pick.choice([NOTHING_AHEAD, ONE_MEMORY, Async(True, 2, True), Async(True, 3, True)]),
    )
    compare(region, integers(region, 1), plan=plan, delivery=pick.choice(DELIVERIES))


# ---- what it costs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiles", "stages", "layout"),
    [
        (MIDDLE, 3, {}),
        (LARGE, 2, {"bt": True}),
        (LARGE, 3, {"at": True}),
        (WIDE, 3, {"at": True, "bt": True}),
    ],
)
def test_the_main_loop_has_no_conflicts_and_wide_accesses(
    tiles: Tiles, stages: int, layout: dict[str, bool]
) -> None:
    product = Product(128, 128, 128, F16, **layout)
    result = exact(product.plain(), planned(product.roles, *tiles, stages))
    for each in result.counters.shared:
        main = "ldmatrix" in each.instruction or "cp.async" in each.instruction
        assert each.wavefronts <= each.ideal * (1 if main else 2), each  # two in the epilogue
    kinds = {each.instruction for each in result.counters.global_}
    assert kinds == {"cp.async.cg.shared.global", "st.global.v4.u32"}
    assert all(each.sectors == each.ideal for each in result.counters.global_)


@pytest.mark.parametrize("tiles", [MIDDLE, LARGE, WIDE, ((256, 64, 32), (64, 32))])
def test_main_tiles_neither_spill_nor_use_a_stack(tiles: Tiles) -> None:
    product = Product(500, 500, 500, F16)
    b = product.unary("RELU", product.binary("ADD", product.total, product.full("bias", "j", F32)))
    figures = ptxas(generate(product.done(product.cast(b, F16)), planned(product.roles, *tiles)))
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in figures
    assert int(re.findall(r"Used (\d+) registers", figures)[0]) <= 255


def ptxas(kernel: CudaKernel) -> str:
    """What ptxas says of the kernel's machine code."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(kernel.source.encode(), b"kernel.cu", 0, [], [])
    options = [b"--gpu-architecture=sm_80", b"--ptxas-options=-v", *(each.encode() for each in OPTIONS)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log
    return log.decode()


# ---- the text -------------------------------------------------------------------------------------------------------


def test_the_source_of_a_product(golden: Golden) -> None:
    product = Product(256, 192, 128, F16)
    b = product.unary("RELU", product.binary("ADD", product.total, product.full("bias", "j", F32)))
    kernel = generate(product.done(product.cast(b, F16)), planned(product.roles, *LARGE))
    golden(kernel.source, ".cu")


def test_the_source_of_a_convolution(golden: Golden) -> None:
    region, roles = convolution(2, 32, 40, (14, 14), (3, 3), F16, pad=1)
    golden(generate(region, planned(roles, *MIDDLE)).source, ".cu")
