"""Which algorithm wins is extraction's choice: every one has shapes at which it is taken and shapes at which it is not,
costs less where it is taken, is gone without its ruleset, and computes the same."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc import functions as tc
from tinyc.bench.programs import transformer
from tinyc.codegen.playback import play
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.cost.hardware import TABLE, hardware
from tinyc.extract.cost.model import Roofline, Work
from tinyc.ir.evaluate import evaluate
from tinyc.ir.plan import Extracted
from tinyc.ir.region import Cast, Const, Read, Reduce, Region, Select, Stream, Within
from tinyc.ir.resources import LIMITS
from tinyc.ir.tiny import Program

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


KNOWN: dict[Hashable, tuple[Program, tinyc.Compiled]] = {}
"""What has been compiled, with the program, which keeps its id."""


def extracted_of(compiled: tinyc.Compiled) -> Extracted:
    """Also for targets without code."""
    assert compiled._latest is not None and not compiled.report.fallback and not compiled.report.warnings
    return compiled._latest.extracted


def compiled(
    program: Program, target: str, without: str = "", model: Roofline | None = None
) -> tinyc.Compiled:
    key = id(program), target, without, model
    if key not in KNOWN:
        options = [without] if without else []
        KNOWN[key] = program, tinyc.optimize_and_compile(program, target, without=options, cost_model=model)
    return KNOWN[key][1]


def integers(program: Program, seed: int = 0) -> list[Array]:
    """Small integers, so that every sum is exact whatever its order."""
    generator = np.random.default_rng(seed)
    kinds = (program.types[port.node] for port in program.inputs)
    return [generator.integers(-2, 3, tuple(map(int, kind.shape))).astype(kind.dtype.numpy) for kind in kinds]


def check_exact(program: Program, extracted: Extracted, arrays: list[Array] | None = None) -> None:
    """The Regions, played back, against the evaluator, with no tolerance."""
    given = integers(program) if arrays is None else arrays
    wanted = evaluate(program, {port.name: array for port, array in zip(program.inputs, given, strict=True)})
    for got, want in zip(play(extracted, given), wanted, strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def reductions(region: Region) -> list[str]:
    return [let.value.op for let in region.lets if isinstance(let.value, Reduce)]


def costs(program: Program, target: str, ruleset: str) -> tuple[float, float]:
    """Estimated seconds of the whole program with and without a ruleset."""
    pair = (compiled(program, target), compiled(program, target, ruleset))
    return tuple(each.report.total.time_s for each in pair)  # type: ignore[return-value]


def cases(table: Mapping[str, tuple[tuple[Any, ...], ...]], quick: int = 1) -> list[Any]:
    """Of each target the first case of either outcome in every run, all where marked slow."""
    found = []
    for target, rows in table.items():
        seen: dict[object, int] = {}
        for row in rows:
            seen[row[-1]] = seen.get(row[-1], 0) + 1
            marks = [pytest.mark.slow] if seen[row[-1]] > quick else []
            found.append(pytest.param(target, *row, marks=marks))
    return found


# ---- split-K ----------------------------------------------------------------------------------------------------------


@functools.cache
def product(m: int, n: int, k: int, dtype: str = "fp16") -> Program:
    def fn(a: Any, b: Any, bias: Any) -> Any:
        return (a.cast("fp32") @ b.cast("fp32") + bias).relu()

    return tinyc.trace(fn, tinyc.spec(dtype, (m, k)), tinyc.spec(dtype, (k, n)), tinyc.spec("fp32", (n,)))


def parts(extracted: Extracted) -> int:
    """In how many parts a sum is cut; 1 where it is not. The partial sums have the parts as their first axis."""
    if len(extracted.regions) == 1:
        return 1
    first, second = extracted.regions
    assert reductions(first) == reductions(second) == ["SUM"]
    assert extracted.plans[1].contraction is None
    return first.iters[0].size


SPLIT: Mapping[str, tuple[tuple[Shape, bool], ...]] = {
    "sm80": (
        ((64, 64, 4096), True),  # one tile
        ((8, 4096, 4096), True),  # a few rows, as when one token after the other is made
        ((256, 256, 4096), True),
        ((1024, 1024, 1024), False),  # enough tiles for all
        ((64, 64, 128), False),  # hardly anything to sum
        ((64, 64, 4099), False),  # no part divides it
    ),
    "sm90": (
        ((64, 64, 4096), True),
        ((8, 4096, 4096), True),
        ((64, 64, 512), False),
        ((2048, 2048, 1024), False),
    ),
    "cpu": (((64, 64, 4096), False), ((8, 512, 4096), False)),
}


@pytest.mark.parametrize(("target", "shape", "split"), cases(SPLIT))
def test_a_sum_is_cut_where_its_tiles_are_too_few(target: str, shape: Shape, split: bool) -> None:
    program = product(*shape)
    found = parts(extracted_of(compiled(program, target)))
    assert (found > 1) == split, found
    taken, left_out = costs(program, target, "splitk")
    assert taken < 0.9 * left_out if split else taken <= left_out
    assert parts(extracted_of(compiled(program, target, "splitk"))) == 1


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_partial_sums_add_up(dtype: str) -> None:
    program = product(64, 72, 4096, dtype)
    extracted = extracted_of(compiled(program, "sm80"))
    assert parts(extracted) > 1
    check_exact(program, extracted)


def test_the_sum_of_a_convolution_is_cut_along_its_channels() -> None:
    """Three summed axes: the first of them is cut, the windows are left alone."""
    program = convolution(1, 2048, 64, 6)
    extracted = extracted_of(compiled(program, "sm80"))
    assert parts(extracted) > 1
    check_exact(program, extracted)


def test_a_sum_in_integers_is_cut_exactly() -> None:
    def fn(a: Any, b: Any) -> Any:
        return a @ b

    program = tinyc.trace(fn, tinyc.spec("i32", (64, 4096)), tinyc.spec("i32", (4096, 64)))
    extracted = extracted_of(compiled(program, "sm80"))
    assert len(extracted.regions) == 2
    generator = np.random.default_rng(0)
    large = [
        generator.integers(-(2**31), 2**31, shape).astype(np.int32) for shape in ((64, 4096), (4096, 64))
    ]
    check_exact(program, extracted, large)  # it wraps, and still is the same


def test_the_rules_know_as_many_multiprocessors_as_the_table() -> None:
    for name, row in TABLE.items():
        assert LIMITS[name].multiprocessors == row.sms


STAGED: Mapping[str, tuple[tuple[Shape, bool], ...]] = {
    "sm80": (
        ((1000, 640), True),
        ((1000003,), True),  # no number of parts divides a prime
        ((3, 700001), True),
        ((999, 333), True),
        ((4001,), False),  # one block is done before a second kernel has started
        ((300, 100003), False),  # a block for each result fills the machine
    ),
    "sm90": (((1000003,), True), ((4001,), False)),
    "cpu": (((1000003,), False),),
}


@pytest.mark.parametrize(("target", "shape", "staged"), cases(STAGED))
def test_few_results_of_long_sums_are_summed_in_two_stages(target: str, shape: Shape, staged: bool) -> None:
    """All of it, or the rows of a matrix whose rows are long."""
    long = len(shape) > 1 and shape[1] > 100_000
    program = tinyc.trace(lambda x: x.sum(1) if long else x.sum(), tinyc.spec("fp32", shape))
    extracted = extracted_of(compiled(program, target))
    assert (len(extracted.regions) > 1) == staged
    taken, left_out = costs(program, target, "splitk")
    assert taken < 0.7 * left_out if staged else taken <= left_out


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["fp32", "i32", "fp16", "bf16"])
def test_an_axis_that_is_filled_up_gives_the_same(op: str, dtype: str) -> None:
    program = tinyc.trace(lambda x: getattr(x, op)(), tinyc.spec(dtype, (1031, 257)))
    result = compiled(program, "sm80")
    assert len(extracted_of(result).regions) == 2
    values = np.random.default_rng(5).integers(1, 9, (1031, 257)) * (-1 if op == "max" else 1)
    given = [values.astype(program.types[program.inputs[0].node].dtype.numpy)]
    check_exact(program, extracted_of(result), given)


# ---- attention: a stream, or kernels with the scores between them ---------------------------------------------------------


@functools.cache
def attention(heads: int, rows: int, columns: int, depth: int, dtype: str = "fp32") -> Program:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return tc.attention(q, k, v)

    sizes = ((1, heads, rows, depth), (1, heads, columns, depth), (1, heads, columns, depth))
    return tinyc.trace(fn, *(tinyc.spec(dtype, size) for size in sizes))


def streams(extracted: Extracted) -> int:
    return sum(isinstance(let.value, Stream) for region in extracted.regions for let in region.lets)


ROUNDED: Mapping[str, tuple[tuple[Shape, bool], ...]] = {
    "sm80": (
        ((64, 1024, 1024, 64), True),
        ((32, 2048, 2048, 128), True),
        ((16, 512, 512, 64), True),
        ((8, 512, 512, 64), False),  # few blocks, each twice over all keys
        ((1, 32, 8192, 64), False),  # one block would walk these rows, twice
        ((4, 64, 4096, 64), False),
    ),
    "sm90": (((8, 2048, 2048, 64), True), ((1, 32, 8192, 64), False)),
}


@pytest.mark.parametrize(("target", "shape", "streamed"), cases(ROUNDED))
def test_attention_in_fp16_streams_where_that_is_cheaper(target: str, shape: Shape, streamed: bool) -> None:
    """The softmax is rounded to fp16 before it meets v, so the scores are computed twice."""
    program = attention(*shape, dtype="fp16")
    extracted = extracted_of(compiled(program, target))
    assert (streams(extracted) > 0) == streamed
    assert all(
        let.value.rounded is not None
        for region in extracted.regions
        for let in region.lets
        if isinstance(let.value, Stream)
    )
    taken, left_out = costs(program, target, "streaming")
    assert taken < left_out if streamed else taken <= 1.001 * left_out


STREAMED: Mapping[str, tuple[tuple[Shape, bool], ...]] = {
    "cpu": (
        ((8, 64, 64, 64), True),
        ((8, 512, 512, 64), True),
        ((8, 512, 32, 64), False),  # short rows: what a row costs beside its scores
        ((512, 16, 16, 64), False),
    ),
}


@pytest.mark.parametrize(("target", "shape", "streamed"), cases(STREAMED))
@pytest.mark.spec("004-084")
def test_attention_streams_where_that_is_cheaper(target: str, shape: Shape, streamed: bool) -> None:
    program = attention(*shape)
    extracted = extracted_of(compiled(program, target))
    assert (streams(extracted) > 0) == streamed
    taken, left_out = costs(program, target, "streaming")
    assert taken < left_out if streamed else taken <= 1.001 * left_out
    assert not streams(extracted_of(compiled(program, target, "streaming")))


@pytest.mark.parametrize("target", ["sm80", "sm90"])
@pytest.mark.parametrize("shape", [(64, 1024, 1024, 64), (8, 64, 64, 64)])
def test_scores_of_fp32_are_not_streamed_on_a_gpu(target: str, shape: Shape) -> None:
    """Matrix units do not multiply them; a Stream would be loops that read all values again for each row."""
    program = attention(*shape)
    extracted = extracted_of(compiled(program, target))
    assert not streams(extracted)
    taken, left_out = costs(program, target, "streaming")
    assert taken <= 1.001 * left_out


def test_scores_that_are_given_are_not_streamed_on_a_gpu() -> None:
    def fn(s: Any, v: Any) -> Any:
        return tc.softmax(s).cast("fp16").cast("fp32") @ v.cast("fp32")

    program = tinyc.trace(fn, tinyc.spec("fp32", (64, 1024, 1024)), tinyc.spec("fp16", (64, 1024, 64)))
    assert not streams(extracted_of(compiled(program, "sm80")))


def test_two_shapes_in_one_program_are_chosen_apart() -> None:
    """Short rows and long ones: the one in kernels of its own, the other as a stream."""

    def fn(q: Any, k: Any, v: Any, p: Any, r: Any, w: Any) -> Any:
        return tc.attention(q, k, v), tc.attention(p, r, w)

    short, long = [(1, 8, 512, 64), (1, 8, 32, 64), (1, 8, 32, 64)], [(1, 8, 1024, 64)] * 3
    program = tinyc.trace(fn, *(tinyc.spec("fp32", shape) for shape in (*short, *long)))
    extracted = extracted_of(compiled(program, "cpu"))
    walked = {
        axis.size
        for region in extracted.regions
        for let in region.lets
        if isinstance(let.value, Stream)
        for axis in let.value.axes
    }
    assert walked == {1024}


@pytest.mark.parametrize("shape", [(2, 40, 16, 8), (2, 40, 96, 8)])
def test_attention_is_right_either_way(shape: Shape) -> None:
    program = attention(*shape)
    given = [np.random.default_rng(n).normal(size=tuple(map(int, program.types[port.node].shape))).astype(np.float32)
             for n, port in enumerate(program.inputs)]  # fmt: skip
    (want,) = evaluate(program, {port.name: array for port, array in zip(program.inputs, given, strict=True)})
    for without in ("", "streaming"):
        got = compiled(program, "cpu", without)(*given)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


# ---- convolutions: loops, an implicit product, or a matrix of patches ----------------------------------------------------


@functools.cache
def convolution(
    batch: int, channels: int, filters: int, size: int, groups: int = 1, dtype: str = "fp16"
) -> Program:
    def fn(x: Any, w: Any) -> Any:
        return tc.conv(x, w, pad=1, groups=groups)

    weights = (filters, channels // groups, 3, 3)
    return tinyc.trace(fn, tinyc.spec(dtype, (batch, channels, size, size)), tinyc.spec(dtype, weights))


FEW = {(1, 512, 512, 7): True, (8, 512, 512, 7): True, (1, 128, 128, 28): True, (8, 64, 128, 56): False}
"""Convolutions of 3 x 3, and whether their tiles are too few for a machine."""


@pytest.mark.parametrize("target", ["sm80", "sm90"])
@pytest.mark.parametrize("shape", FEW, ids=str)
def test_the_sum_of_a_convolution_of_few_tiles_is_cut(shape: Shape, target: str) -> None:
    """All that it sums counts, 4,608 products of 512 channels: those alone were too few to be cut."""
    taken, left_out = costs(convolution(*shape), target, "splitk")
    assert taken < 0.92 * left_out if FEW[shape] else taken == left_out


@dataclass(frozen=True)
class Nudged(Roofline):
    """As if terms were added in another order: tiles of more rows than columns cost less in the last bit."""

    def kernel(self, work: Work) -> float:
        tile = work.schedule.tile if work.schedule is not None else None
        return super().kernel(work) * (1 - 2**-52 * (tile is not None and tile[0] > tile[1]))


def test_the_last_bit_of_an_estimate_decides_nothing() -> None:
    """784 x 128 results in tiles of 32 x 64 take as long as in tiles of 64 x 32, which pad more and are dearer in a kernel that
    stores them."""
    program = convolution(1, 128, 128, 28)
    row = hardware("sm80")
    one, other = (compiled(program, "sm80", model=model).report for model in (None, Nudged(row)))
    assert math.isclose(one.total.time_s, other.total.time_s, rel_tol=1e-9)


def patches(region: Region) -> bool:
    """A kernel that only moves values."""
    return all(isinstance(let.value, Read | Cast | Const | Select | Within) for let in region.lets)


def way(extracted: Extracted) -> str:
    if any(patches(region) for region in extracted.regions):
        return "patches"
    return "product" if extracted.plans[0].contraction is not None else "loops"


CONVOLVED: Mapping[str, tuple[tuple[Shape, str], ...]] = {
    "sm80": (
        ((1, 8, 64, 16), "loops"),  # too few results and channels to fill tiles
        ((1, 32, 32, 16, 32), "loops"),  # depthwise: nothing is shared between the channels
        ((8, 64, 64, 56), "product"),
        ((16, 256, 64, 28), "product"),  # one tile of filters: each patch is gathered once anyway
        ((16, 256, 1024, 28), "patches"),  # sixteen: gathered once, copied, and loaded in vectors
    ),
    "sm90": (((1, 8, 64, 16), "loops"), ((8, 64, 64, 56), "product"), ((16, 256, 512, 28), "product")),
    "cpu": (((8, 64, 64, 56), "product"), ((1, 16, 512, 14), "product"), ((1, 32, 32, 16, 32), "loops")),
}


@pytest.mark.parametrize(("target", "shape", "expected"), cases(CONVOLVED))
def test_a_convolution_is_computed_as_is_cheapest(target: str, shape: Shape, expected: str) -> None:
    program = convolution(*shape)
    assert way(extracted_of(compiled(program, target))) == expected
    if expected == "patches":
        taken, left_out = costs(program, target, "layout")
        assert taken < left_out
        assert way(extracted_of(compiled(program, target, "layout"))) == "product"


@pytest.mark.parametrize(("channels", "filters", "size"), [(16, 256, 12), (5, 272, 14)])
def test_patches_are_right(channels: int, filters: int, size: int) -> None:
    """Where everything but matrix units is slow, patches are gathered once even of a small convolution."""
    program = convolution(2, channels, filters, size)
    slow = Roofline(replace(hardware("sm80"), ops=1e8))
    extracted = extracted_of(compiled(program, "sm80", model=slow))
    assert way(extracted) == "patches"
    check_exact(program, extracted)


# ---- a transposition: a view, or a copy ------------------------------------------------------------------------------------


@functools.cache
def turned(size: int, readers: int) -> Program:
    """One matrix, read across by so many kernels."""

    def whole(x: Any) -> Any:
        t = x.transpose(1, 0)
        results = tuple((t * float(n + 2) + 1.0).relu() for n in range(readers))
        return results if readers > 1 else results[0]

    return tinyc.trace(whole, tinyc.spec("fp32", (size, size)))


def copied(extracted: Extracted) -> bool:
    return any(patches(region) for region in extracted.regions)


TURNED: Mapping[str, tuple[tuple[int, int, bool], ...]] = {
    "sm80": ((4096, 16, True), (4096, 4, False), (4096, 1, False), (64, 4, False), (64, 2, False)),
    "sm90": ((4096, 16, True), (4096, 1, False), (64, 4, False)),
    "cpu": ((1024, 4, True), (64, 4, False), (1024, 1, False)),
}


@pytest.mark.parametrize(("target", "size", "readers", "copy"), cases(TURNED))
def test_a_transposition_is_copied_where_it_is_read_often(
    target: str, size: int, readers: int, copy: bool
) -> None:
    """On a GPU by many: each of them takes it through shared memory, as a copy would."""
    program = turned(size, readers)
    extracted = extracted_of(compiled(program, target))
    assert copied(extracted) == copy and len(extracted.regions) == readers + copy
    taken, left_out = costs(program, target, "layout")
    assert taken < 0.9 * left_out if copy else taken == pytest.approx(left_out)
    assert not copied(extracted_of(compiled(program, target, "layout")))


def test_a_product_takes_a_transposed_operand_as_a_view() -> None:
    """Tiles are packed, or transposed on their way from shared memory: a copy would only cost."""

    def fn(a: Any, b: Any) -> Any:
        return a.transpose(1, 0).cast("fp32") @ b.transpose(1, 0).cast("fp32")

    program = tinyc.trace(fn, tinyc.spec("fp16", (512, 1024)), tinyc.spec("fp16", (1024, 512)))
    for target in ("sm80", "sm90", "cpu"):
        assert not copied(extracted_of(compiled(program, target)))


@pytest.mark.parametrize("target", ["sm80", "cpu"])
def test_rows_and_columns_are_summed_without_a_copy(target: str) -> None:
    def fn(x: Any) -> Any:
        return x.sum(0), x.sum(1), x.transpose(1, 0).max(0)

    program = tinyc.trace(fn, tinyc.spec("fp32", (2048, 2048)))
    assert not copied(extracted_of(compiled(program, target)))


@pytest.mark.parametrize("target", ["sm80", "cpu"])
def test_copies_are_right(target: str) -> None:
    program = turned(24, 3)
    across = replace(hardware(target), strided=1e5, transposed=1e5, near=0)  # what three kernels pay, or one
    result = compiled(program, target, model=Roofline(across))
    assert copied(extracted_of(result))
    check_exact(program, extracted_of(result))
    if target == "cpu":
        (x,) = integers(program)
        for got, want in zip(result(x), evaluate(program, {program.inputs[0].name: x}), strict=True):
            np.testing.assert_array_equal(got, want)


# ---- what the alternatives take ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm80", "cpu"])
def test_the_e_graph_grows_by_less_than_a_third(target: str) -> None:
    """At shapes at which nothing could win it does not grow at all."""
    ours = ("splitk", "layout", "streaming")
    block, shapes = transformer(1, 512, 512)
    layer = tinyc.trace(block, **{name: tinyc.spec("fp32", shape) for name, shape in shapes.items()})
    for program, most in (
        (product(1024, 1024, 512), 1.0),
        (product(2048, 2048, 2048), 1.0),
        (attention(8, 256, 256, 64), 1.05),
        (convolution(2, 16, 64, 16), 1.0),
        (layer, 1.3),
    ):
        sizes = [
            saturate(program, load_rules(), without=without, machine=LIMITS[target]).phases[-1].enodes
            for without in ((), ours)
        ]
        assert sizes[0] <= most * sizes[1], sizes
