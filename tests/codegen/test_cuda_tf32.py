"""Tiled contractions of fp32 that is rounded to tf32, in the emulator: products and convolutions, with Plans made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contractions import Product, planned
from cuda_regions import compare, emulated, outputs_of
from region_builder import F16, F32, Build
from test_cuda_contraction import ONE_MEMORY, ptxas
from test_stream import arrays

from tinyc.codegen.cuda import generate
from tinyc.codegen.emulator import DELIVERIES, Emulated
from tinyc.codegen.gpu.check import check_gpu_ir
from tinyc.codegen.gpu.gpu_json import gpu_ir_from_json, gpu_ir_to_json
from tinyc.codegen.playback import evaluate_region
from tinyc.extract.plans.rank import fault
from tinyc.ir.index import affine
from tinyc.ir.plan import Contraction, Plan
from tinyc.ir.region import Region
from tinyc.ir.resources import LIMITS
from tinyc.ir.tiny import ROUNDED

SMALL = ((32, 32, 16), (16, 16))
MIDDLE = ((64, 64, 32), (32, 32))
LARGE = ((128, 64, 32), (64, 32))
NARROW = ((128, 64, 32), (32, 32))
"""These two are of rules/hardware.egg."""


class Rounded(Product):
    """With both operands rounded."""

    def widened(self, value: str) -> str:
        return self.unary(ROUNDED, super().widened(value))


def integers(region: Region, largest: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(2)
    return {
        ref.name: generator.integers(-largest, largest + 1, ref.shape).astype(ref.dtype.numpy)
        for ref in region.inputs
    }


def exact(region: Region, plan: Plan, number: int = 0, largest: int = 1023) -> Emulated:
    """Integers of 10 bits lose nothing; sums of 70 of their products are below 2^27, and most not exact: small ones are."""
    kernel = generate(region, plan)
    assert kernel.algo == "contraction" and kernel.ir is not None and kernel.ir.unit == "sm80-tf32"
    check_gpu_ir(kernel.ir)
    assert gpu_ir_from_json(gpu_ir_to_json(kernel.ir)) == kernel.ir
    return compare(region, integers(region, largest), plan=plan, delivery=DELIVERIES[number % 3])


PRODUCTS: list[tuple[tuple[int, int, int], Any, int, dict[str, Any]]] = [
    ((150, 130, 70), LARGE, 3, {}),
    ((150, 130, 70), MIDDLE, 2, {"at": True}),
    ((128, 256, 64), NARROW, 3, {"bt": True}),
    ((128, 256, 64), LARGE, 2, {"at": True, "bt": True}),
    ((257, 129, 33), MIDDLE, 3, {"bt": True, "ahead": ONE_MEMORY}),
    ((72, 80, 8), MIDDLE, 3, {}),
    ((72, 80, 8), SMALL, 2, {"at": True, "bt": True}),
    ((1, 1, 1), SMALL, 2, {}),
    (
        (40, 44, 20),
        ((32, 48, 16), (16, 24)),
        3,
        {"at": True},
    ),  # an odd number of blocks, rows that cannot be swizzled
    ((40, 72, 20), ((32, 72, 16), (16, 24)), 3, {"swizzle": False}),
]


@pytest.mark.parametrize(
    "number", range(len(PRODUCTS)), ids=lambda number: "x".join(map(str, PRODUCTS[number][0]))
)
def test_products_of_small_integers_are_exact(number: int) -> None:
    """Each with its copies arriving at another time."""
    sizes, tiles, stages, options = PRODUCTS[number]
    layout = {name: options[name] for name in ("at", "bt") if name in options}
    how = {name: options[name] for name in ("ahead", "swizzle") if name in options}
    product = Rounded(*sizes, F32, **layout)
    largest = 1023 if sizes[2] <= 16 else 450  # sums below 2^24
    exact(product.plain(), planned(product.roles, *tiles, stages, width=4, **how), number, largest)


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({"batch": 3}, ()),
        ({"batch": 3, "shared": "B", "at": True}, (("m.o", "block.x"), ("n.o", "block.x"))),
        ({"order": "ji", "batch": 2, "bt": True}, ()),
    ],
)
def test_batches_and_results_that_lie_along_m(
    options: dict[str, Any], places: tuple[tuple[str, str], ...]
) -> None:
    product = Rounded(70, 40, 48, F32, **options)
    along = "m.i.i" if product.order == "ji" else "n.i.i"
    exact(product.plain(), replace(planned(product.roles, width=4, along=along), bind=places), largest=400)


@pytest.mark.parametrize("layout", [{"bt": True}, {"at": True}])
def test_products_of_any_numbers_are_within_the_bound(layout: dict[str, bool]) -> None:
    """|got - real| <= 2^-10 sum|a||b| + (k + 2) u sum|a||b|, and not as near as fp32 would be."""
    product = Rounded(65, 72, 100, F32, **layout)
    region = product.plain()
    given = arrays(region)
    (got,) = outputs_of(region, emulated(region, given, plan=planned(product.roles, width=4))).values()
    a, b = (given[name].astype(np.float64) for name in "AB")
    a, b = a.T if layout.get("at") else a, b.T if layout.get("bt") else b
    off = np.abs(got.astype(np.float64) - a @ b)
    terms = np.abs(a) @ np.abs(b)
    assert (off <= (2.0**-10 + 102 * 2.0**-24) * terms).all()
    assert off.max() > 2.0**-20 * terms.max()
    (rounded,) = evaluate_region(region, given).values()
    assert (np.abs(got - rounded.astype(np.float64)) <= 102 * 2.0**-24 * terms).all()


def convolution(channels_last: bool) -> tuple[Region, Contraction]:
    """3 x 3 of 9 x 7 pixels and 16 channels, padded, with a bias and ReLU."""
    iters = {"n": 2, "y": 9, "x": 7, "o": 24} if channels_last else {"n": 2, "o": 24, "y": 9, "x": 7}
    b = Build(**iters)
    at = [affine(-1, ((1, "y"), (1, "r"))), affine(-1, ((1, "x"), (1, "s")))]
    b.input("X", F32, *((2, 9, 7, 16) if channels_last else (2, 16, 9, 7)))
    b.input("W", F32, *((24, 3, 3, 16) if channels_last else (24, 16, 3, 3)))
    value = b.read("X", "n", *([*at, "c"] if channels_last else ["c", *at]))
    for index, size in zip(at, (9, 7), strict=True):
        value = b.select(b.within(index, 0, size), value, b.const(0.0, F32))
    weight = b.read("W", "o", *(["r", "s", "c"] if channels_last else ["c", "r", "s"]))
    x, y = b.unary(ROUNDED, value), b.unary(ROUNDED, weight)
    total = b.reduce("SUM", b.binary("MUL", x, y), c=16, r=3, s=3)
    out = b.unary("RELU", b.binary("ADD", total, b.read(b.input("bias", F32, 24), "o")))
    return b.done(out), Contraction(total, x, y, (), ("n", "y", "x"), ("o",), ("c", "r", "s"))


@pytest.mark.parametrize("channels_last", [True, False])
def test_convolutions_of_integers_are_exact(channels_last: bool) -> None:
    region, roles = convolution(channels_last)
    along = "n.i.i" if channels_last else "m.i.i"
    exact(region, planned(roles, *MIDDLE, width=4 if channels_last else 1, along=along), 2, largest=200)


def test_rows_of_a_product_are_kept() -> None:
    """The product less the largest of its row, in one kernel."""
    b = Build(i=70, j=100)
    b.input("A", F32, 70, 40)
    b.input("B", F32, 40, 100)
    made = []
    for column, p in (("j", "p"), ("r", "q")):
        x, y = (b.unary(ROUNDED, each) for each in (b.read("A", "i", p), b.read("B", p, column)))
        made.append((b.reduce("SUM", b.binary("MUL", x, y), **{p: 40}), x, y))
    (total, x, y), (other, *_) = made
    region = b.done(b.binary("SUB", total, b.reduce("MAX", other, r=100)))
    exact(
        region, planned(Contraction(total, x, y, (), ("i",), ("j",), ("p",)), *MIDDLE, width=4), largest=300
    )


def test_what_is_rounded_on_one_side_alone_is_computed_otherwise() -> None:
    """And in loops the rounding is there: on either side, also of a product that no Plan tiles."""
    for sides in ("A", "B", "AB"):
        b = Build(i=33, j=20)
        x, y = b.read(b.input("A", F32, 33, 40), "i", "p"), b.read(b.input("B", F32, 40, 20), "p", "j")
        x = b.unary(ROUNDED, x) if "A" in sides else x
        y = b.unary(ROUNDED, y) if "B" in sides else y
        total = b.reduce("SUM", b.binary("MUL", x, y), p=40)
        region, roles = b.done(total), Contraction(total, x, y, (), ("i",), ("j",), ("p",))
        plan = planned(roles, width=4) if sides != "AB" else Plan(arch="sm80")
        kernel = generate(region, plan)
        assert kernel.algo != "contraction" and kernel.ir is None
        assert "mma" not in kernel.source and "round_tf32(" in kernel.source
        compare(region, arrays(region), rtol=1e-5, atol=1e-5, plan=plan)


def test_halves_that_are_rounded_are_not_taken_for_fp32() -> None:
    product = Rounded(32, 32, 32, F16)
    kernel = generate(product.plain(), planned(product.roles))
    assert kernel.algo != "contraction"


# ---- what it costs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiles", "layout"),
    [(LARGE, {"bt": True}), (LARGE, {"at": True}), (MIDDLE, {}), (NARROW, {"at": True, "bt": True})],
)
def test_the_main_loop_has_no_conflicts_and_wide_accesses(tiles: Any, layout: dict[str, bool]) -> None:
    product = Rounded(128, 128, 64, F32, **layout)
    result = exact(product.plain(), planned(product.roles, *tiles, 3, width=4), largest=400)
    main = ("ldmatrix", "cp.async", "ld.shared.b32")
    for each in result.counters.shared:
        assert each.wavefronts <= each.ideal * (1 if each.instruction.startswith(main) else 2), each
    kinds = {each.instruction for each in result.counters.global_}
    assert kinds == {"cp.async.cg.shared.global", "st.global.v4.f32"}
    assert all(each.sectors == each.ideal for each in result.counters.global_)
    # 2 x 128 x 128 x 64 on the matrix units, and nothing beside them
    assert result.counters.tensor_operations == 2 * 128 * 128 * 64
    assert any("tf32" in name and name.startswith("mma") for name in result.counters.instructions)
    assert not any(name.startswith("fma") for name in result.counters.instructions)


@pytest.mark.parametrize("tiles", [LARGE, MIDDLE, NARROW])
@pytest.mark.parametrize("layout", [{"bt": True}, {"at": True}])
def test_main_tiles_neither_spill_nor_use_a_stack(tiles: Any, layout: dict[str, bool]) -> None:
    product = Rounded(500, 500, 500, F32, **layout)
    b = product.unary("RELU", product.binary("ADD", product.total, product.full("bias", "j", F32)))
    figures = ptxas(generate(product.done(b), planned(product.roles, *tiles, width=4)))
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in figures
    assert int(re.findall(r"Used (\d+) registers", figures)[0]) <= 255


def test_what_is_turned_may_be_swizzled_where_its_rows_are_long_enough() -> None:
    """A Plan says so of rows of 128 bytes; fp32 that is multiplied by lanes is not."""
    for kind, rows, allowed in ((Rounded, 64, True), (Rounded, 16, False), (Product, 64, False)):
        product = kind(128, 128, 64, F32, at=True)
        plan = planned(product.roles, (rows, 64, 32), (16, 32), width=4)
        error = fault(plan, product.plain(), LIMITS["sm80"])
        assert (error is None or "swizzle" not in error.why) is allowed, error
