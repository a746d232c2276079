"""Streams on the CPU: softmax and what it weights, in one walk over the scores, against playback."""

from __future__ import annotations

import numpy as np
import pytest
from region_builder import BF16, F16, F32, LOOPS, compare, evaluate_region, generate, run
from stream_regions import LOG2E, StreamBuild, attention

from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region

RNG = np.random.default_rng(11)


def arrays(region: Region, scale: float = 1.0) -> dict[str, np.ndarray]:
    return {ref.name: (RNG.normal(size=ref.shape) * scale).astype(ref.dtype.numpy) for ref in region.inputs}


def check(region: Region, given: dict[str, np.ndarray], algo: str = "stream") -> None:
    assert generate(region, LOOPS).algo == algo
    compare(region, given, rtol=2e-5, atol=2e-6)


SHAPES = [
    (1, 1, 1),
    (1, 300, 7),
    (3, 5, 2),
    (5, 257, 64),
    (7, 256, 17),
    (64, 96, 16),
    (70, 513, 33),
    (130, 40, 1),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_from_memory(shape: tuple[int, int, int]) -> None:
    region = attention(*shape)
    compare(region, arrays(region, 3.0), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("shape", "dtype", "causal"),
    [
        *((shape, F32, number % 2 == 1) for number, shape in enumerate(SHAPES)),
        *((SHAPES[5], dtype, causal) for dtype in (F16, BF16) for causal in (False, True)),
        ((70, 70, 33), F32, True),
    ],
)
def test_scores_from_a_product(shape: tuple[int, int, int], dtype: DType, causal: bool) -> None:
    region = attention(*shape, k=24, h=2, dtype=dtype, causal=causal)
    compare(region, arrays(region), rtol=2e-5, atol=4e-6)


def test_walks_are_used() -> None:
    for region in (attention(70, 300, 16, k=8), attention(1, 300, 16, k=8, h=3), attention(70, 300, 16)):
        assert generate(region, LOOPS).algo == "stream"


def test_rows_may_be_the_last_axis_of_the_output() -> None:
    region = attention(21, 70, 6, k=5, h=2, last="m")
    check(region, arrays(region))


@pytest.mark.parametrize("dtype", (F16, BF16))
@pytest.mark.parametrize("shape", SHAPES[1:6])
def test_probabilities_that_are_rounded_are_written_out(shape: tuple[int, int, int], dtype: DType) -> None:
    """The rules offer none for the CPU; a Region that holds one is computed as the reductions that it stands for. A quotient
    at a border between two numbers may be rounded either way."""
    region = attention(*shape, rounded=dtype)
    given = arrays(region, 3.0)
    assert generate(region, LOOPS).algo == "loops"
    step = 2.0**-10 if dtype is F16 else 2.0**-7
    largest = np.abs(given["V"]).max()
    compare(region, given, rtol=2e-5, atol=2e-6 + float(step * largest * 0.01))


# ---- values: what grows, what is infinite, what is no number ------------------------------------------------------


def special(m: int = 12, n: int = 600) -> dict[str, np.ndarray]:
    """A row of every kind; blocks are 256 columns wide."""
    s = RNG.normal(size=(1, m, n)).astype(np.float32)
    s[0, 0] = -np.inf
    s[0, 1, :300] = -np.inf  # the maximum starts in the second block
    s[0, 2, 300:] = -np.inf
    s[0, 3] = np.arange(n)  # the maximum grows with every block
    s[0, 4] = -np.arange(n)
    s[0, 5] = 7.0
    s[0, 6, 599] = 1e4
    s[0, 7] *= 1e4
    s[0, 8, 260] = np.nan
    s[0, 9, 5] = np.inf
    s[0, 10] = -1e38
    s[0, 11, 1:] = -np.inf
    return {"S": s, "V": RNG.normal(size=(1, n, 5)).astype(np.float32)}


def test_special_scores() -> None:
    region = attention(12, 600, 5)
    given = special()
    check(region, given)
    got = run(region, given)["y0"][0]
    assert np.isnan(got[[0, 8, 9]]).all() and np.isfinite(np.delete(got, [0, 8, 9], 0)).all()
    np.testing.assert_array_equal(got[11], given["V"][0, 0])


def test_special_scores_of_few_rows() -> None:
    """Without the micro-kernel."""
    given = special()
    for row in range(12):
        region = attention(1, 600, 5)
        check(region, {"S": given["S"][:, row : row + 1], "V": given["V"]}, generate(region, LOOPS).algo)
    region = attention(3, 600, 5)
    for row in range(0, 12, 3):
        check(region, {"S": given["S"][:, row : row + 3], "V": given["V"]})


@pytest.mark.parametrize("rows", [2, 9])
def test_a_row_of_which_every_score_is_minus_infinity(rows: int) -> None:
    """By itself, not divided by another sum that is 0 as well."""
    b = StreamBuild(m=rows, d=6)
    s = b.read(b.input("S", F32, rows, 300), "m", "n")
    v = b.read(b.input("V", F32, 300, 6), "n", "d")
    region = b.done(b.stream(s, v, n=300), b.stream(s, b.const(1.0), n=300))
    given = arrays(region)
    given["S"][1] = -np.inf
    check(region, given)
    got = run(region, given)
    assert all(np.isnan(got[name][1]).all() and np.isfinite(got[name][0]).all() for name in got)


def test_weights_that_are_not_finite_count_where_their_probability_is_zero() -> None:
    """0 * inf is NaN, as in two passes: in its own column of the result, in every row."""
    region = attention(6, 600, 4)
    given = arrays(region)
    given["S"][0, :, 10] = given["S"][0, :, 590] = -np.inf
    given["V"][0, 10, 1], given["V"][0, 590, 2] = np.inf, np.nan
    check(region, given)
    got = run(region, given)["y0"][0]
    assert np.isnan(got[:, 1:3]).all() and np.isfinite(got[:, [0, 3]]).all()


def test_one_hot_scores_pick_values_exactly() -> None:
    region = attention(40, 520, 9, k=520)
    given = arrays(region)
    chosen = RNG.permutation(520)[:40]
    given["K"][0] = np.eye(520) * 4096
    given["Q"][0] = np.eye(520, dtype=np.float32)[chosen] * 64
    np.testing.assert_array_equal(run(region, given)["y0"][0], given["V"][0, chosen])


def test_small_integers_are_exact() -> None:
    """Scores that are integers, scale 1: every exponential is a power of two and every sum exact."""
    b = StreamBuild(m=70, d=20)
    s = b.read(b.input("S", F32, 70, 600), "m", "n")
    v = b.read(b.input("V", F32, 600, 20), "n", "d")
    region = b.done(b.stream(s, v, 1.0, n=600))
    given = {
        "S": RNG.integers(-3, 4, (70, 600)).astype(np.float32),
        "V": RNG.integers(-4, 5, (600, 20)).astype(np.float32),
    }
    e = np.exp2(given["S"] - given["S"].max(1, keepdims=True))
    np.testing.assert_array_equal(
        run(region, given)["y0"], (e.astype(np.float64) @ given["V"]).astype(np.float32)
    )


# ---- forms ---------------------------------------------------------------------------------------------------------


def test_streams_of_several_weights() -> None:
    """Of one axis, of another, of the columns alone, and constant."""
    b = StreamBuild(m=20, d=6)
    s = b.read(b.input("S", F32, 20, 300), "m", "n")
    v = b.read(b.input("V", F32, 300, 6), "n", "d")
    w = b.read(b.input("W", F32, 300), "n")
    parts = [b.stream(s, x, n=300) for x in (v, w, b.const(1.0), b.const(0.5))]
    total = parts[0]
    for part in parts[1:]:
        total = b.binary("ADD", total, part)
    region = b.done(total, b.binary("FDIV", parts[0], parts[2]))
    check(region, arrays(region))


def test_a_weight_of_each_row() -> None:
    """Then no two rows share a matrix product."""
    b = StreamBuild(m=20, d=6)
    s = b.read(b.input("S", F32, 20, 300), "m", "n")
    region = b.done(b.stream(s, b.read(b.input("V", F32, 20, 300, 6), "m", "n", "d"), n=300))
    check(region, arrays(region))


def test_two_axes_at_once() -> None:
    b = StreamBuild(m=9, d=5)
    s = b.read(b.input("S", F32, 9, 20, 30), "m", "n", "o")
    region = b.done(b.stream(s, b.read(b.input("V", F32, 20, 30, 5), "n", "o", "d"), n=20, o=30))
    check(region, arrays(region))


def test_rows_of_two_axes_apart() -> None:
    b = StreamBuild(a=6, d=5, c=7)
    s = b.read(b.input("S", F32, 6, 7, 300), "a", "c", "n")
    region = b.done(b.stream(s, b.read(b.input("V", F32, 300, 5), "n", "d"), n=300))
    check(region, arrays(region))


def test_an_output_axis_that_the_streams_do_not_know() -> None:
    b = StreamBuild(x=3, m=20, d=6)
    s = b.read(b.input("S", F32, 20, 40), "m", "n")
    part = b.stream(s, b.read(b.input("V", F32, 40, 6), "n", "d"), n=40)
    region = b.done(b.binary("ADD", part, b.read(b.input("B", F32, 3, 6), "x", "d")))
    check(region, arrays(region))


def test_a_reduction_beside_the_streams_and_one_in_the_scores() -> None:
    b = StreamBuild(m=20, d=6)
    s = b.read(b.input("S", F32, 20, 300), "m", "n")
    squares = b.read("S", "m", "p")
    length = b.unary("RSQRT", b.reduce("SUM", b.binary("MUL", squares, squares), p=300))
    mixed = b.stream(b.binary("MUL", s, length), b.read(b.input("V", F32, 300, 6), "n", "d"), n=300)
    region = b.done(b.binary("MUL", mixed, length))
    check(region, arrays(region))


@pytest.mark.parametrize("other", ["score", "scale", "axes"])
def test_streams_that_no_one_walk_computes_take_two_passes(other: str) -> None:
    b = StreamBuild(m=10, d=6)
    s = b.read(b.input("S", F32, 10, 30), "m", "n")
    v = b.read(b.input("V", F32, 30, 6), "n", "d")
    first = b.stream(s, v, n=30)
    if other == "axes":
        second = b.stream(b.read("S", "m", "o"), b.const(1.0), o=30)
    else:
        score = b.unary("NEG", s) if other == "score" else s
        second = b.stream(score, b.const(1.0), 0.5 if other == "scale" else LOG2E, n=30)
    region = b.done(b.binary("FDIV", first, second))
    check(region, arrays(region), "loops")


def test_a_stream_in_a_reduction_takes_two_passes() -> None:
    b = StreamBuild(m=10)
    s = b.read(b.input("S", F32, 10, 4, 30), "m", "h", "n")
    v = b.read(b.input("V", F32, 4, 30), "h", "n")
    region = b.done(b.reduce("SUM", b.unary("RELU", b.stream(s, v, n=30)), h=4))
    check(region, arrays(region), "loops")
    given = {"S": special()["S"][:, :10, None, :30].repeat(4, 2)[0], "V": np.ones((4, 30), np.float32)}
    check(region, given, "loops")


def test_a_stream_of_a_streams_result() -> None:
    """The weight of the second needs the first, whole."""
    b = StreamBuild(m=10, d=6)
    s = b.read(b.input("S", F32, 10, 30), "m", "n")
    total = b.stream(s, b.const(1.0), n=30)
    weight = b.binary("FDIV", b.read(b.input("V", F32, 30, 6), "n", "d"), total)
    region = b.done(b.stream(s, weight, n=30))
    check(region, arrays(region), "loops")


def test_a_scalar_and_axes_of_one_point() -> None:
    b = StreamBuild()
    s = b.read(b.input("S", F32, 50), "n")
    region = b.done(b.unary("LOG2", b.stream(s, b.const(1.0), n=50)))
    check(region, arrays(region), "loops")
    b = StreamBuild(m=4, d=1)
    s = b.read(b.input("S", F32, 4, 1), "m", "n")
    region = b.done(b.stream(s, b.read(b.input("V", F32, 1, 1), "n", "d"), n=1))
    check(region, arrays(region), "loops")
    check(
        region,
        {"S": np.float32([[1], [-np.inf], [np.inf], [np.nan]]), "V": np.ones((1, 1), np.float32)},
        "loops",
    )


def test_threads_and_the_source_change_nothing() -> None:
    region = attention(200, 300, 40, k=16, h=3, causal=True)
    given = arrays(region)
    one, two = (run(region, given, threads=threads)["y0"] for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert generate(region, LOOPS).source == generate(region, LOOPS).source
    want = evaluate_region(region, given)["y0"]
    np.testing.assert_allclose(one, want, rtol=2e-5, atol=2e-6)


def test_scratch_does_not_grow_with_the_scores() -> None:
    small, large = (generate(attention(256, n, 64, k=64), LOOPS) for n in (1024, 16384))
    assert small.algo == "stream" and small.scratch_bytes == large.scratch_bytes < 1 << 20
