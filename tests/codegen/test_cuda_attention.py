"""Attention on a GPU's matrix units: Streams whose rows a warp owns, in the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from golden import Golden
from stream_regions import StreamBuild, attention

import tinyc
from tinyc.codegen.cuda import generate
from tinyc.codegen.emulator import DELIVERIES, Counters, Delivery, Uninitialised, emulate
from tinyc.codegen.nvrtc import compile_cubin, compile_ptx
from tinyc.extract.cost.estimate import estimate
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region

F16, BF16, F32 = DType.FP16, DType.BF16, DType.FP32
HALF = {F16: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-24}
"""Relative error of rounding."""


def run(
    region: Region, arrays: dict[str, np.ndarray], delivery: Delivery = "late"
) -> tuple[np.ndarray, Counters]:
    kernel = generate(region)
    assert kernel.algo == "attention"
    (out,) = region.outputs
    result = emulate(
        compile_ptx(kernel.source),
        kernel.name,
        kernel.grid,
        kernel.block,
        [*(arrays[ref.name] for ref in region.inputs), Uninitialised(out.shape, out.dtype.numpy)],
        shared_bytes=kernel.shared_bytes,
        delivery=delivery,
        seed=1,
        source=kernel.source,
    )
    assert not result.findings, "\n".join(map(str, result.findings))
    return result.outputs[-1], result.counters


def data(region: Region, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {ref.name: generator.normal(size=ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}


def expected(arrays: dict[str, np.ndarray], seen: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """In fp64: the result, and the sum of the sizes of its terms."""
    q, k, v = (arrays[name].astype(np.float64) for name in "QKV")
    s = np.einsum("hmk,hnk->hmn", q, k)
    if seen is not None:
        s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p @ v, p @ np.abs(v)


def within(got: np.ndarray, want: np.ndarray, size: np.ndarray, parts: DType, out: DType, k: int) -> None:
    """Componentwise: a rounded exponential, scores of ``k`` products and sums in fp32, a rounded result."""
    arithmetic = 2.0**-24 * (64 * k + 4 * 64 + want.shape[-2])
    bound = (
        size * (HALF[parts] + arithmetic) + (np.abs(want) + size * HALF[parts]) * HALF[out] * 1.01 + 2.0**-25
    )
    error = np.abs(got.astype(np.float64) - want)
    assert (error <= bound).all(), f"{(error / bound).max()} of the bound"


@pytest.mark.parametrize(
    ("m", "n", "d", "k", "dtype", "causal"),
    [
        (1, 1, 64, 64, F16, False),
        (63, 63, 64, 64, F16, True),
        (128, 128, 128, 128, F16, True),
        (200, 200, 32, 32, BF16, True),
        (70, 130, 96, 96, F16, False),
        (64, 65, 256, 256, F16, False),
        (33, 129, 40, 24, F16, False),  # whole instructions, not whole tiles
        (20, 70, 33, 17, BF16, False),  # element by element
        (1, 200, 64, 64, F16, False),
        (130, 1, 16, 128, F16, False),
    ],
)
def test_attention_of_any_length_and_width(
    m: int, n: int, d: int, k: int, dtype: DType, causal: bool
) -> None:
    region = attention(m, n, d, k=k, h=2, dtype=dtype, causal=causal, out=dtype)
    arrays = data(region, m + n)
    arrays = {name: array / 4 if name in "QK" else array for name, array in arrays.items()}
    arrays = {name: array.astype(dtype.numpy) for name, array in arrays.items()}
    seen = np.tri(m, n, dtype=bool) if causal else None
    want, size = expected(arrays, seen)
    for delivery in DELIVERIES if m == 63 else ("late",):
        got, _ = run(region, arrays, delivery)
        within(got, want, size, dtype, dtype, k)


def test_exponentials_keep_their_precision_where_the_result_does() -> None:
    """An fp32 result of fp16 values: rounded to fp16 alone, the exponentials would be 4096 times less exact."""
    region = attention(65, 100, 64, k=32, dtype=F16)
    arrays = {name: (array / 4).astype(np.float16) for name, array in data(region).items()}
    got, _ = run(region, arrays)
    want, size = expected(arrays)
    error = np.abs(got - want) / size
    assert error.max() < 2.0**-17  # 2^-11 if they were rounded once; two parts keep 22 bits
    rough = attention(65, 100, 64, k=32, dtype=F16, out=F16)
    assert "what the rounding left out" in generate(region).source
    assert "what the rounding left out" not in generate(rough).source


def within_rounded(
    got: np.ndarray, arrays: dict[str, np.ndarray], dtype: DType, out: DType, seen: np.ndarray | None = None
) -> None:
    """The probabilities are rounded to ``dtype``, each to a number that it may be rounded to after the arithmetic of fp32;
    beside that only sums in fp32 and the result's rounding are allowed."""
    q, k, v = (arrays[name].astype(np.float64) for name in "QKV")
    s = np.einsum("hmk,hnk->hmn", q, k)
    if seen is not None:
        s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    columns, sizes = p.shape[-1], np.einsum("hmk,hnk->hmn", np.abs(q), np.abs(k))
    # an exponential is off by what its exponent is: the scores' sums, the difference to the largest, the scale
    exponent = (q.shape[-1] + 4) * (sizes + sizes.max(axis=-1, keepdims=True))
    off = 2.0**-24 * (exponent + columns + 16)
    low, near, high = (each.astype(np.float32).astype(dtype.numpy).astype(np.float64) for each in (p * (1 - off), p, p * (1 + off)))  # fmt: skip
    want, size = near @ v, near @ np.abs(v)
    bound = (high - low) @ np.abs(v) + 2.0**-24 * columns * size
    bound += (np.abs(want) + bound) * HALF[out] * 1.01 + 2.0**-25
    error = np.abs(got.astype(np.float64) - want)
    assert (error <= bound).all(), f"{(error / bound).max()} of the bound"


@pytest.mark.parametrize(
    ("m", "n", "d", "k", "dtype", "causal", "out"),
    [
        (1, 1, 64, 64, F16, False, F16),
        (63, 63, 64, 64, F16, True, F16),
        (128, 128, 128, 128, F16, True, F32),
        (200, 200, 32, 32, BF16, True, BF16),
        (70, 130, 96, 96, F16, False, F32),
        (64, 65, 256, 256, F16, False, F16),
        (33, 129, 40, 24, F16, False, F32),
        (20, 70, 33, 17, BF16, False, F32),
        (1, 200, 64, 64, F16, False, F32),
        (130, 1, 16, 128, F16, False, F16),
    ],
)
def test_probabilities_that_the_program_rounds_are_divided_and_rounded(
    m: int, n: int, d: int, k: int, dtype: DType, causal: bool, out: DType
) -> None:
    region = attention(m, n, d, k=k, h=2, dtype=dtype, causal=causal, out=out, rounded=dtype)
    arrays = {name: (array / 4 if name in "QK" else array) for name, array in data(region, m + n).items()}
    arrays = {name: array.astype(dtype.numpy) for name, array in arrays.items()}
    seen = np.tri(m, n, dtype=bool) if causal else None
    for delivery in DELIVERIES if m == 63 else ("late",):
        got, counters = run(region, arrays, delivery)
        within_rounded(got, arrays, dtype, out, seen)
    if (m, d) == (128, 128):  # of four tiles three are visited; their scores twice
        assert counters.tensor_operations == 2 * 3 * 3 * 2 * 64**2 * 128
        with pytest.raises(AssertionError):  # the bound sees whether they were rounded
            got, _ = run(attention(m, n, d, k=k, h=2, dtype=dtype, causal=causal, out=out), arrays)
            within_rounded(got, arrays, dtype, out, seen)


def test_a_rounded_row_that_sees_nothing_is_no_number() -> None:
    m = n = 100
    b = StreamBuild(m=m, d=32)
    q, k, v = (
        b.cast(b.read(b.input(name, F16, 100, 32), *index), F32)
        for name, index in (("Q", "mp"), ("K", "np"), ("V", "nd"))
    )
    score = b.reduce("SUM", b.binary("MUL", q, k), p=32)
    score = b.select(b.within(axis("m") - axis("n"), 30, m), score, b.const(float("-inf")))
    region = b.done(b.cast(b.stream(score, v, rounded=F16, n=n), F16))
    arrays = {name: (array / 4).astype(np.float16) for name, array in data(region, 7).items()}
    got, _ = run(region, arrays)
    assert np.isnan(got[:30]).all() and not np.isnan(got[30:]).any()


def test_integers_are_exact() -> None:
    """One score of each row is far above all others: the result is its row of v, whatever is rounded."""
    m, d = 66, 64
    generator = np.random.default_rng(5)
    codes = np.unique(generator.choice([-16.0, 16.0], size=(130, 16)), axis=0)
    n = len(codes)
    region = attention(m, n, d, k=16, dtype=F16, out=F16)
    chosen = generator.integers(n, size=m)
    v = generator.integers(-99, 99, size=(1, n, d))
    arrays = {"Q": codes[chosen][None], "K": codes[None], "V": v}
    got, _ = run(region, {name: array.astype(np.float16) for name, array in arrays.items()})
    np.testing.assert_array_equal(got[0].astype(int), v[0, chosen])


@pytest.mark.parametrize("shift", (-70, 0, 70))
def test_tiles_without_any_score_are_left_out(shift: int) -> None:
    """A window of a shifted diagonal: the walk begins and ends with its tiles, and rows that see nothing are no numbers."""
    m = n = 200
    b = StreamBuild(m=m, d=64)
    q, k, v = (
        b.cast(b.read(b.input(name, F16, 200, 64), *index), F32)
        for name, index in (("Q", "mp"), ("K", "np"), ("V", "nd"))
    )
    score = b.reduce("SUM", b.binary("MUL", q, k), p=64)
    window = b.within(axis("m") - axis("n") + 200 + shift, 200, 240)  # 0 <= m - n + shift < 40
    score = b.select(window, score, b.const(float("-inf")))
    total, mixed = b.stream(score, b.const(1.0), n=n), b.stream(score, v, n=n)
    region = b.done(b.cast(b.binary("FDIV", mixed, total), F16))
    arrays = {name: (array / 4).astype(np.float16) for name, array in data(region, 7).items()}
    got, counters = run(region, arrays)
    row, column = np.indices((m, n))
    seen = (row - column + shift >= 0) & (row - column + shift < 40)
    alive = seen.any(axis=1)
    with np.errstate(invalid="ignore"):
        want, size = expected({name: array[None] for name, array in arrays.items()}, seen[None])
    assert np.isnan(got[~alive]).all()
    within(got[alive], want[0, alive], size[0, alive], F16, F16, 64)
    row, column = np.indices(
        (256, 256)
    )  # tiles of 64 rows and 64 columns, of which there are 16; two products of 64^3
    window = (row - column + shift >= 0) & (row - column + shift < 40)
    tiles = np.count_nonzero(window.reshape(4, 64, 4, 64).any(axis=(1, 3)))
    assert counters.tensor_operations == tiles * 2 * 2 * 64**3


@pytest.mark.parametrize("m", [128, 200, 40])
def test_heads_that_share_keys_leave_tiles_out(m: int) -> None:
    """Rows of three heads are walked as one; blocks that lie in one head leave out what is after their last row."""
    heads, n = 3, m
    b = StreamBuild(h=heads, m=m, d=64)
    q = b.cast(b.read(b.input("Q", F16, heads, m, 64), "h", "m", "p"), F32)
    k, v = (
        b.cast(b.read(b.input(name, F16, n, 64), *index), F32) for name, index in (("K", "np"), ("V", "nd"))
    )
    score = b.reduce("SUM", b.binary("MUL", q, k), p=64)
    score = b.select(b.within(axis("m") - axis("n"), 0, m), score, b.const(float("-inf")))
    total, mixed = b.stream(score, b.const(1.0), n=n), b.stream(score, v, n=n)
    region = b.done(b.cast(b.binary("FDIV", mixed, total), F16))
    arrays = {name: (array / 4).astype(np.float16) for name, array in data(region, 7).items()}
    got, counters = run(region, arrays)
    row, column = np.indices((m, n))
    shared = {"Q": arrays["Q"], **{name: np.repeat(arrays[name][None], heads, 0) for name in "KV"}}
    want, size = expected(shared, np.repeat((row >= column)[None], heads, 0))
    within(got, want, size, F16, F16, 64)
    walked = 0  # tiles of 64 x 64
    for first in range(0, heads * m, 64):
        inside = first % m + 64 <= m
        walked += (first % m + 63) // 64 + 1 if inside else -(-n // 64)
    assert counters.tensor_operations == walked * 2 * 2 * 64**3


def test_one_query_leaves_masked_keys_out() -> None:
    """It has no axis of rows."""
    n, seen = 130, 60
    b = StreamBuild(m=1, d=64)
    q, k, v = (
        b.cast(b.read(b.input(name, F16, size, 64), *index), F32)
        for name, size, index in (("Q", 1, "mp"), ("K", n, "np"), ("V", n, "nd"))
    )
    score = b.reduce("SUM", b.binary("MUL", q, k), p=64)
    score = b.select(b.within(axis("n"), 0, seen), score, b.const(float("-inf")))
    total, mixed = b.stream(score, b.const(1.0), n=n), b.stream(score, v, n=n)
    region = b.done(b.cast(b.binary("FDIV", mixed, total), F16))
    arrays = {name: (array / 4).astype(np.float16) for name, array in data(region, 7).items()}
    got, counters = run(region, arrays)
    want, size = expected(
        {name: array[None] for name, array in arrays.items()}, np.arange(n)[None, None] < seen
    )
    within(got, want[0], size[0], F16, F16, 64)
    assert counters.tensor_operations == 2 * 2 * 64**3  # one tile of 64 x 64, of three


def test_scores_that_are_no_numbers_reach_the_result() -> None:
    region = attention(20, 70, 32, k=32, dtype=F16, out=F16)
    arrays = data(region)
    arrays["Q"][0, 3, 5] = np.nan
    arrays["Q"][0, 9, 5] = np.inf
    got, _ = run(region, arrays)
    bad = np.isnan(got[0]).any(axis=-1)
    assert bad[3] and bad[9] and bad.sum() == 2


QUARTER = {"ex2", "cvt"}
"""Instructions that a multiprocessor takes four times as long for as for a sum."""


@pytest.mark.parametrize("rounded", [None, F16])
def test_a_score_takes_what_the_estimate_says(rounded: DType | None) -> None:
    """Of tiles that are added to a walk, on all lanes. (ptxas leaves out moves; products and copies are counted elsewhere.)"""
    counted, estimated = list[float](), list[float]()
    for n in (128, 256):
        region = attention(64, n, 64, k=64, h=2, dtype=F16, rounded=rounded, out=F16)
        _, counters = run(region, data(region))
        found = 0.0
        for name, count in counters.instructions.items():
            opcode = name.split(".")[0]
            if (
                opcode
                in {"add", "sub", "mul", "fma", "max", "min", "setp", "selp", "xor", "and", "shl"} | QUARTER
            ):
                found += 32 * count * (4 if opcode in QUARTER else 1)
        counted.append(found)
        estimated.append(estimate(region, Plan("stream", arch="sm80"), Roofline(hardware("sm80"))).work.ops)
    scores = 2 * 64 * 128
    lanes, said = ((each[1] - each[0]) / scores for each in (counted, estimated))
    assert 12 <= lanes < 20 and said == pytest.approx(lanes, rel=0.25)


def test_fragments_meet_no_bank_twice_and_copies_are_whole() -> None:
    region = attention(128, 128, 64, k=64, h=1, dtype=F16, out=F16)
    arrays = data(region)
    _, counters = run(region, arrays)
    for site in counters.shared:
        if site.instruction.startswith(("ldmatrix", "cp.async")):
            assert site.conflicts == 0, site
    reads = [site for site in counters.global_ if site.sectors]
    assert all(site.sectors == site.ideal for site in reads)


@pytest.mark.parametrize("rounded", (None, F16))
@pytest.mark.parametrize("d", (64, 128, 256))
def test_nothing_spills(d: int, rounded: DType | None) -> None:
    """Sixteen or thirty-two rows of a warp, their sums and exponentials, in registers."""
    kernel = generate(attention(2048, 2048, d, k=d, h=32, dtype=F16, out=F16, rounded=rounded))
    (usage,) = compile_cubin(kernel.source, "sm_80").usage
    assert (usage.stack_bytes, usage.spill_store_bytes, usage.spill_load_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("dtype", "also", "heads", "rows"),
    [("fp32", (), 8, 70), ("fp16", (), 32, 200), ("fp16", ("streaming-unrounded",), 16, 70)],
)
def test_a_program_whose_softmax_streams(dtype: str, also: tuple[str, ...], heads: int, rows: int) -> None:
    """fp16 queries, keys and values; probabilities in fp32, or rounded to fp16, with the rounding or by a rule that leaves it
    out."""

    def program(q, k, v):  # type: ignore[no-untyped-def]
        scores = (q.cast("fp32") @ k.cast("fp32").swapaxes(-1, -2)) * 0.125
        weights = (scores - scores.max(axis=-1, keepdims=True)).exp()
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return weights.cast(dtype).cast("fp32") @ v.cast("fp32")

    shape = (2, heads, rows, 64)
    spec = tinyc.spec("fp16", shape)
    compiled = tinyc.optimize_and_compile(tinyc.trace(program, spec, spec, spec), "sm80", also=also)
    assert [generate(each.region, each.plan).algo for each in compiled.kernels] == ["attention"]
    generator = np.random.default_rng(3)
    q, k, v = (generator.normal(size=shape).astype(np.float16) for _ in range(3))
    result = compiled.emulate(q, k, v)
    assert not result.findings
    arrays = {
        "Q": q.reshape(-1, rows, 64) * np.float16(0.125),
        "K": k.reshape(-1, rows, 64),
        "V": v.reshape(-1, rows, 64),
    }
    want, size = expected(arrays)
    within(result.outputs[0].reshape(want.shape), want, size, F32 if dtype == "fp32" else F16, F32, 64)


def test_the_source_of_attention(golden: Golden) -> None:
    region = attention(128, 128, 64, k=64, h=2, dtype=F16, causal=True, out=F16)
    golden(generate(region).source, ".cu")


def test_the_source_of_attention_that_rounds(golden: Golden) -> None:
    region = attention(128, 128, 64, k=64, h=2, dtype=F16, causal=True, out=F16, rounded=F16)
    golden(generate(region).source, ".cu")
