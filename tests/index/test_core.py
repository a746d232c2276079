"""What Poly Core says of one Region."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from core_regions import F32, Made, conv, points, region

import tinyc
from tinyc.extract.plans.candidate_check import region_of
from tinyc.index.analysis_json import analysis_to_json
from tinyc.index.compute_at import MinBuffer
from tinyc.index.core import Carried, analyze
from tinyc.index.footprint import Halo
from tinyc.index.hints import BankConflict, Barrier, conflict_ways, plan_tile
from tinyc.index.sets import Workspace
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.explicit import explicit
from tinyc.ir.index import axis
from tinyc.ir.plan import Contraction, Plan
from tinyc.ir.region import Axis, Cast, MemRef, Read, Region, Stream
from tinyc.ir.resources import LIMITS


def gemm(m: int, n: int, k: int) -> Region:
    """relu(A @ B + bias) with fp16 operands."""
    b = region(m=m, n=n)
    factors = []
    for name, shape, index in (("A", (m, k), ("m", "k")), ("B", (k, n), ("k", "n"))):
        b.inputs[name] = MemRef(name, DType.FP16, shape)
        read = b.let(Read(name, tuple(map(axis, index))), DType.FP16)
        factors.append(b.let(Cast(read), F32))
    acc = b.reduce(b.mul(*factors), k=k)
    return b.done(b.unary("RELU", b.mul(acc, b.read("bias", (n,), "n"))), name="C")


def attention(m: int, n: int, d: int, stream: bool = False) -> Region:
    """softmax(Q K') V in one Region; the scores are one reduction per use."""
    b = region(m=m, h=d)

    def score(column: str, over: str) -> str:
        product = b.mul(b.read("Q", (m, d), "m", over), b.read("K", (n, d), column, over))
        return b.reduce(product, **{over: d})

    if stream:
        weight = b.read("V", (n, d), "n0", "h")
        return b.done(
            b.let(Stream((Axis("n0", n),), score("n0", "d0"), weight, b.const(bits=to_bits(1.0, F32))))
        )
    top = b.reduce(score("n0", "d0"), "MAX", n0=n)
    power = b.unary("EXP2", b.mul(score("n1", "d1"), top))
    return b.done(b.reduce(b.mul(power, b.read("V", (n, d), "n1", "h")), n1=n))


def report(given: Region, tile: Mapping[str, int] | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        json.dumps(analysis_to_json(analyze(given, tile, **more)), allow_nan=False)
    )
    return found["analysis"]


@pytest.mark.spec("004-103", "004-096", "004-098", "004-059")
def test_the_documents_report() -> None:
    """§7.1, for sizes that the tile does not divide."""
    found = report(gemm(150, 100, 70), {"m": 128, "n": 64, "k": 64}, target="sm80")
    assert {key: found[key] for key in ("parallel_axes", "reduce_axes", "tail_axes")} == {
        "parallel_axes": ["m", "n"],
        "reduce_axes": ["k"],
        "tail_axes": ["m", "n", "k"],
    }
    assert found["compute_at"]["ok"] is True and "why" not in found["compute_at"]
    assert found["compute_at"]["halo"]["bytes"] == 0
    assert found["compute_at"]["halo"]["per_axis"] == {"m": 0, "n": 0, "k": 0}
    assert found["min_buffer"] == {"buffer": "reg", "depth": 2}


@pytest.mark.spec("004-098")
def test_tails_are_what_a_tile_does_not_divide() -> None:
    given = gemm(256, 100, 64)
    assert analyze(given, {"m": 128, "n": 64, "k": 64}).tail_axes == ("n",)
    assert analyze(given, {"m": 128, "n": 50, "k": 64}).tail_axes == ()
    assert analyze(given, {}).tail_axes == ()
    assert analyze(given, target="sm80").tail_axes == ("n",)
    assert analyze(given, target="sm90").tile == {"m": 128, "n": 128, "k": 64}
    assert analyze(gemm(8, 8, 8), target="sm80").tail_axes == ("m", "n", "k")


@pytest.mark.spec("004-095", "004-096")
def test_dependences_run_along_reductions() -> None:
    found = analyze(gemm(8, 8, 8))
    carried = {(each.kind, each.axes) for each in found.dependences if each.source == each.target == "t5"}
    assert carried == {("true", ("k",)), ("anti", ("k",)), ("output", ("k",))}
    assert Carried("t5", "k_C", "true", ()) in found.dependences
    assert found.parallel_axes == ("m", "n") and found.affine
    scores = analyze(attention(6, 7, 4))
    assert scores.parallel_axes == ("m", "h") and scores.reduce_axes == ("d0", "n0", "d1", "n1")
    assert {each.axes for each in scores.dependences if each.source == each.target} == {
        ("d0",), ("n0",), ("d1",), ("n1",),
    }  # fmt: skip


@pytest.mark.spec("004-059", "004-102")
def test_the_halo_of_a_convolution() -> None:
    found = analyze(conv(32), {"ho": 8, "wo": 8})
    assert found.compute_at.halo == {
        "ho": Halo(1, 1),
        "wo": Halo(1, 1),
        "ci": Halo(),
        "kh": Halo(),
        "kw": Halo(),
    }
    assert found.compute_at.halo_bytes == 4 * 2 * (10 * 10 - 8 * 8)
    assert found.min_buffer == MinBuffer("smem_ring", 3), "004 §15.2"
    strided = analyze(conv(33, stride=2), {"ho": 4, "wo": 4}).compute_at
    assert strided.halo["ho"] == Halo(1, 0) and strided.halo_bytes == 4 * 2 * (9 * 9 - 8 * 8)
    flat = report(conv(32, kernel=1, pad=0), {"ho": 8, "wo": 8})
    assert flat["compute_at"]["halo"]["per_axis"]["ho"] == 0 and flat["min_buffer"]["buffer"] == "reg"


def test_windows_of_reduce_axes_have_a_halo_of_their_own() -> None:
    b = region(i=3)
    given = b.done(b.reduce(b.read("x", (3, 66), "i", axis("r") + axis("s")), r=64, s=3))
    assert analyze(given, {"r": 16}).compute_at.halo == {"i": Halo(), "r": Halo(0, 2), "s": Halo()}


@pytest.mark.spec("004-101", "004-102")
def test_reductions_inside_others() -> None:
    given = attention(16, 1000, 8)
    found = analyze(given)
    assert found.compute_at.ok and found.min_buffer == MinBuffer("smem_ring", 2)
    assert found.compute_at.footprint_bytes == 4000
    refused = report(given, capacity=3999)
    assert refused["compute_at"]["ok"] is False and refused["min_buffer"] == {"buffer": "gmem", "depth": 2}
    assert "n0=1000, 4000 bytes, more than the 3999 bytes" in refused["compute_at"]["why"]
    streamed = analyze(attention(16, 1000, 8, stream=True), capacity=1)
    assert streamed.compute_at.ok and streamed.min_buffer == MinBuffer("reg")


@pytest.mark.spec("004-099")
def test_what_waits_for_loads() -> None:
    given = gemm(8, 8, 8)
    assert analyze(given).barrier is None
    assert analyze(given, target="sm80").barrier == Barrier("cp_async_group", ("commit_group", "wait_group"))
    hopper = report(given, target="sm90")["barrier"]
    assert hopper["model"] == "mbarrier" and all("mbarrier" in each for each in hopper["operations"])


@pytest.mark.spec("004-100")
def test_bank_conflicts_hang_on_the_pitch() -> None:
    found = analyze(gemm(256, 256, 256), {"m": 128, "n": 64, "k": 32}, target="sm80").bank_conflicts
    assert found == (BankConflict("A", 64, 4), BankConflict("B", 128, 8)) and all(
        each.swizzle for each in found
    )
    assert analyze(gemm(256, 256, 256), target="cpu").bank_conflicts == ()
    # eight rows of 16 bytes cover each of the 32 banks once, or meet
    ways = {16: 1, 32: 2, 48: 1, 64: 4, 80: 1, 128: 8, 144: 1, 160: 2, 256: 8, 272: 1}
    assert {pitch: conflict_ways(pitch) for pitch in ways} == ways
    padded = analyze(gemm(256, 256, 256), {"m": 128, "n": 72, "k": 40}, target="sm80").bank_conflicts
    assert not any(each.swizzle for each in padded)


@pytest.mark.spec("004-097")
def test_what_is_not_affine() -> None:
    assert analyze(conv(8)).affine
    b = region(i=8, j=8)
    flat = axis("i") * 8 + axis("j")
    assert analyze(b.done(b.read("x", (4, 16), flat // 16, flat - (flat // 16) * 16))).affine
    b = region(i=8)
    found = analyze(b.done(b.read("x", (8,), axis("i") + axis("stride"))))
    assert not found.affine and found.parallel_axes == () and found.dependences == ()


@pytest.mark.spec("004-097")
def test_indices_stay_affine_when_they_are_composed() -> None:
    """A window of every second row of a reshape, put into one index: isl holds it, and it reads the same elements."""
    flat = axis("p") * 6 + axis("q")
    reshape = (flat // 4, flat - (flat // 4) * 4)
    window = {"p": axis("i") * 2 + axis("r"), "q": axis("j") * -1 + 5}
    composed = tuple(index.substitute(window) for index in reshape)
    sizes = {"i": 3, "j": 6, "r": 2}
    ws = Workspace()
    image = ws.access(tuple(sizes), "x", composed).image(ws.box(sizes))
    read = set()
    for point in points(sizes):
        outer = {name: index.evaluate(point) for name, index in window.items()}
        read.add(tuple(index.evaluate(outer) for index in reshape))
    assert image.count() == len(read) == 36
    assert all(not image.at({"a0": row, "a1": column}).is_empty() for row, column in read)
    b = Made({"i": 3, "j": 6})
    assert analyze(b.done(b.reduce(b.read("x", (9, 4), *composed), r=2))).affine


def test_both_forms_say_the_same() -> None:
    for given in (gemm(9, 7, 5), conv(8), attention(4, 5, 6)):
        assert analyze(explicit(given), target="sm80") == analyze(given, target="sm80")


def test_regions_without_axes() -> None:
    b = Made({})
    found = report(b.done(b.read("s", ())))
    assert found["parallel_axes"] == found["reduce_axes"] == found["tail_axes"] == []
    assert found["compute_at"]["halo"] == {"bytes": 0, "per_axis": {}, "sides": {}}


def test_questions_that_are_none() -> None:
    with pytest.raises(TinycError) as raised:
        analyze(gemm(4, 4, 4), {"q": 4})
    assert raised.value.kind == "InvalidArgument" and "m, n, k" in raised.value.suggestion
    with pytest.raises(TinycError) as raised:
        analyze(gemm(4, 4, 4), target="sm70")
    assert raised.value.kind == "TargetUnavailable"


@pytest.mark.spec("004-098")
@pytest.mark.parametrize(
    ("size", "width", "tile", "tail"),
    [(64, 48, (32, 16, 8), ()), (65, 48, (32, 16, 8), ("i0",)), (20, 48, (32, 16, 8), ("i0",)), (64, 50, (32, 16, 7), ("i1", "r0"))],
)  # fmt: skip
def test_tails_are_those_of_the_plan(
    size: int, width: int, tile: tuple[int, int, int], tail: tuple[str, ...]
) -> None:
    program = tinyc.trace(lambda a, b: a @ b, tinyc.spec("fp32", (size, 24)), tinyc.spec("fp32", (24, width)))
    (kernel,) = tinyc.optimize_and_compile(program).kernels
    cut = plan_tile(kernel.region, replace(kernel.plan, tile=tile))
    assert cut == dict(zip(("i0", "i1", "r0"), tile, strict=True))
    assert analyze(kernel.region, cut).tail_axes == tail


def test_a_flattened_role_is_cut_from_its_innermost_axis() -> None:
    axes = tuple(Axis(name, size) for name, size in (("i0", 2), ("i1", 16), ("i2", 10), ("i3", 6)))
    region = Region("k", axes, (), (), (), ())
    roles = Contraction("s", "a", "b", (), ("i0", "i1", "i2"), ("i3",), ())
    assert plan_tile(region, Plan("contraction", roles, tile=(64, 8, 1))) == {
        "i0": 1,
        "i1": 6,
        "i2": 10,
        "i3": 8,
    }
    assert plan_tile(region, Plan(tile=(1, 4, 1))) == {"i0": 1, "i1": 1, "i2": 1, "i3": 4}
    assert plan_tile(region, Plan()) is None


def test_the_tile_of_a_stream_is_rows_of_a_head_with_all_their_values() -> None:
    made = region_of(("Walk", 200, 130, 64, 96, 2), LIMITS["sm80"])
    assert not isinstance(made, str)
    plan = Plan("stream", tile=(64, 32, 64), warp_tile=(16, 32))
    assert plan_tile(made[0], plan) == {"i": 64, "j": 96, "k": 32, "e": 64}
