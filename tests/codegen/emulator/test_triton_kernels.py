"""Kernels that another compiler made: Triton's for sm_80 (from_triton/triton_sources.py, written for this), as PTX in files.

They compute what numpy says, and are not accused; changed so that they are wrong, they are. The PTX has instructions and habits that
tinyc's own kernels do not have: guarded loads, sizes of 0 for ``cp.async``, shuffles of whole blocks, atomics, wide multiplications.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated import DELIVERIES, kinds, unset
from numpy.typing import NDArray

from tinyc.codegen.emulator import Emulated, emulate
from tinyc.codegen.emulator.copies import Delivery
from tinyc.codegen.emulator.parse import parse_ptx

HERE = Path(__file__).parent / "from_triton"
NAMES = sorted(path.stem for path in HERE.glob("*.ptx"))
RNG = np.random.default_rng(0)
Array = NDArray[Any]


def text(name: str) -> str:
    return (HERE / f"{name}.ptx").read_text()


def run(
    name: str,
    grid: int | tuple[int, ...],
    arguments: list[Any],
    delivery: Delivery = "late",
    ptx: str = "",
) -> Emulated:
    """Triton adds two pointers to scratch memory, which these kernels do not use."""
    ptx = ptx or text(name)
    (kernel,) = parse_ptx(ptx).kernels.values()
    assert kernel.block is not None
    (shared,) = re.findall(r"// shared: (\d+) bytes", ptx)
    return emulate(
        ptx,
        kernel.name,
        grid,
        kernel.block,
        [*arguments, 0, 0],
        shared_bytes=int(shared),
        delivery=delivery,
        seed=1,
        excuse_equal=True,  # what a warp has reduced all of its lanes store
    )


def right(result: Emulated) -> tuple[Array, ...]:
    assert not result.findings, "\n".join(map(str, result.findings))
    return result.outputs


def test_the_files_are_those_of_the_sources_and_name_no_machine() -> None:
    sources = (HERE / "triton_sources.py").read_text()
    assert {re.findall(r": (\w+) of triton_sources.py", text(name))[0] for name in NAMES} == set(
        re.findall(r"(?m)^def (\w+)", sources)
    )
    for name in NAMES:
        assert text(name).startswith("// Triton 3.9.0: ")
        assert not re.search(r"\.file|\.loc\b|\.debug|/(?:home|root|work|usr|tmp)/", text(name))


@pytest.mark.parametrize("count", [512, 1000, 1])
def test_an_addition(count: int) -> None:
    x, y = RNG.normal(size=(2, count)).astype(np.float32)
    out = right(run("add", -(-count // 512), [x, y, unset(count), count]))[2]
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("columns", [1, 33, 1000, 1024])
def test_softmax(columns: int) -> None:
    x = RNG.normal(size=(5, columns)).astype(np.float32) * 3
    out = right(run("softmax", 5, [x, unset((5, columns)), columns, columns]))[1]
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("columns", [96, 200, 256])
def test_layer_norm(columns: int) -> None:
    x, w, b = (
        RNG.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((3, columns), columns, columns)
    )
    arguments = [x, w, b, unset((3, columns), ml_dtypes.bfloat16), columns, 1e-5]
    out = right(run("layer_norm", 3, arguments))[3]
    wide, w, b = (array.astype(np.float64) for array in (x, w, b))
    centred = wide - wide.mean(1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(out.astype(np.float64), want, rtol=2.0**-8, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (150, 70)])
def test_sums_by_atomics(rows: int, columns: int) -> None:
    x = RNG.integers(-4, 5, (rows, columns)).astype(np.float32)
    arguments = [x, np.zeros(columns, np.float32), np.zeros(1, np.float32), rows, columns]
    _, of_columns, of_all = right(run("sums", (-(-rows // 64), -(-columns // 32)), arguments))
    np.testing.assert_array_equal(of_columns, x.sum(0))
    assert of_all[0] == x.sum()


@pytest.mark.parametrize("columns", [7, 256])
def test_running_sums_and_the_place_of_the_largest(columns: int) -> None:
    x = RNG.integers(-50, 51, (4, columns)).astype(np.int32)
    found = unset((4, columns), np.int32), unset(4, np.int32), unset(4, np.int32)
    _, running, largest, place = right(run("scan", 4, [x, *found, columns]))
    np.testing.assert_array_equal(running, x.cumsum(1))
    np.testing.assert_array_equal(largest, x.max(1))
    np.testing.assert_array_equal(place, x.argmax(1))


def test_a_sort() -> None:
    x = RNG.integers(-999, 999, (2, 256)).astype(np.int32)
    out = right(run("sort", 2, [x, unset((2, 256), np.int32)]))[1]
    np.testing.assert_array_equal(out, np.sort(x, 1))


def test_blocks_that_wait_for_each_other() -> None:
    lock, out = right(run("locked", 5, [np.zeros(1, np.int32), np.zeros(128, np.int32)]))
    assert (out == 5).all() and not lock.any()


def philox(seed: int, counter: Array) -> Array:
    """Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3), the first of its four words."""
    c = [counter.astype(np.uint64), *(np.zeros_like(counter, np.uint64) for _ in range(3))]
    mask, key = np.uint64(0xFFFFFFFF), [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        high = [each >> np.uint64(32) for each in (second, first)]
        c = [
            high[0] ^ c[1] ^ np.uint64(key[0]),
            second & mask,
            high[1] ^ c[3] ^ np.uint64(key[1]),
            first & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0].astype(np.uint32)


def test_random_bits() -> None:
    out = right(run("random_bits", 2, [unset(400, np.int32), 12345, 400]))[0]
    np.testing.assert_array_equal(out.view(np.uint32), philox(12345, np.arange(400)))


# ---- products --------------------------------------------------------------------------------------------------------------------

TILES = {"gemm_fp16": (64, 64), "gemm_tf32": (64, 32), "gemm_int8": (32, 32)}
KINDS: dict[str, tuple[Any, Any]] = {
    "gemm_fp16": (np.float16, np.float16),
    "gemm_tf32": (np.float32, np.float32),
    "gemm_int8": (np.int8, np.int32),
}


def product(name: str, m: int, n: int, k: int) -> tuple[tuple[int, int], list[Any], Array]:
    """Grid, arguments and result, of integers that are exact in the result's dtype. Rows are a multiple of 16 apart."""
    kind, result = KINDS[name]
    wide, across = -(-k // 16) * 16, -(-n // 16) * 16
    a, b = (RNG.integers(-3, 4, shape).astype(kind) for shape in ((m, wide), (k, across)))
    bias = RNG.integers(-3, 4, n).astype(result)
    grid = (-(-m // TILES[name][0]) * -(-n // TILES[name][1]), 1)
    want = a[:, :k].astype(np.int64) @ b[:, :n].astype(np.int64) + bias.astype(np.int64)
    return grid, [a, b, unset((m, n), result), bias, m, n, k, wide, across], np.maximum(want, 0)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("gemm_fp16", size) for size in ((64, 64, 64), (80, 48, 112), (16, 16, 16), (48, 144, 160))),
        *(
            (name, size)
            for name in ("gemm_tf32", "gemm_int8")
            for size in ((64, 64, 64), (70, 50, 40), (1, 1, 1))
        ),
    ],
    ids=str,
)
def test_a_product(name: str, size: tuple[int, int, int]) -> None:
    grid, arguments, want = product(name, *size)
    for delivery in DELIVERIES if size[0] in (70, 80) else DELIVERIES[:1]:
        out = right(run(name, grid, arguments, delivery))[2]
        np.testing.assert_array_equal(out.astype(np.int64), want)


def test_a_wait_too_few_is_found() -> None:
    """The ring's newest copies may be under way when the oldest are read; were one more to be, what is read would be."""
    ptx = text("gemm_fp16")
    grid, arguments, _ = product("gemm_fp16", 64, 64, 160)
    changed = re.sub(r"(wait_group\s+)(\d)", lambda found: f"{found[1]}{int(found[2]) + 2}", ptx)
    assert changed != ptx
    assert "in-flight" in kinds(run("gemm_fp16", grid, arguments, ptx=changed))


def test_a_barrier_too_few_is_found() -> None:
    ptx = re.sub(r"(?m)^\s*bar\.sync\s+0;\n", "", text("softmax"))
    assert ptx != text("softmax")
    x = RNG.normal(size=(1, 1000)).astype(np.float32)
    found = kinds(run("softmax", 1, [x, unset((1, 1000)), 1000, 1000], ptx=ptx))
    assert found & {"race", "uninitialised"}


# ---- attention -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 63, 128])
def test_attention(length: int) -> None:
    q, k, v = RNG.normal(size=(3, 2, length, 64)).astype(np.float16)
    scale = 0.125
    arguments = [q, k, v, unset(q.shape, np.float16), scale, length]
    scores = np.einsum("hmd,hnd->hmn", q.astype(np.float64), k.astype(np.float64)) * scale
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    want, size = p @ v.astype(np.float64), p @ np.abs(v.astype(np.float64))
    for delivery in DELIVERIES if length == 63 else DELIVERIES[:1]:
        out = right(run("attention", (-(-length // 64), 2), arguments, delivery))[3]
        assert (np.abs(out - want) <= 2.0**-11 * (1.01 * size + np.abs(want)) + 2.0**-24).all()
