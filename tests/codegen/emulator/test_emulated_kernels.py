"""Kernels of all sorts, compiled by NVRTC: what they compute, against numpy; that nothing is found; how long a product takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated import DELIVERIES, GEMM, gemm, integers, run, unset
from numpy.typing import NDArray

from tinyc.codegen.emulator import Emulated

Array = NDArray[Any]


def clean(result: Emulated) -> tuple[Array, ...]:
    assert [str(each) for each in result.findings] == [] and result.complete
    return result.outputs


def test_elementwise_with_a_tail() -> None:
    x, y = integers(0, 1000), integers(1, 1000)
    source = """
KERNEL add(const float* __restrict__ x, const float* __restrict__ y, float* z, int n, float a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = a * x[i] + y[i];
}"""
    result = run(source, "add", 8, 128, [x, y, unset(1000), 1000, 2.5])
    np.testing.assert_array_equal(clean(result)[2], np.float32(2.5) * x + y)
    np.testing.assert_array_equal(result.outputs[0], x)


@pytest.mark.parametrize("block", [32, 33, 100, 256, 1024])
def test_block_sizes_that_are_no_multiple_of_a_warp(block: int) -> None:
    source = """
KERNEL reversed(const int* x, int* y) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}"""
    x = np.arange(3 * block, dtype=np.int32)
    result = run(source, "reversed", 3, block, [x, unset(3 * block, np.int32)], shared_bytes=4 * block)
    np.testing.assert_array_equal(clean(result)[1], x.reshape(3, block)[:, ::-1].ravel())


def test_grids_and_blocks_of_three_axes() -> None:
    source = """
KERNEL where(int* y) {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  y[block * 60 + thread] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z
    + 1000 * blockIdx.x + 10000 * blockIdx.y + 100000 * blockIdx.z;
}"""
    grid, block = (2, 3, 4), (5, 4, 3)
    (found,) = clean(run(source, "where", grid, block, [unset(24 * 60, np.int32)]))
    z, y, x = np.meshgrid(*(np.arange(size) for size in reversed(block)), indexing="ij")
    inner = (x + 10 * y + 100 * z).ravel()
    bz, by, bx = np.meshgrid(*(np.arange(size) for size in reversed(grid)), indexing="ij")
    outer = (1000 * bx + 10000 * by + 100000 * bz).ravel()
    np.testing.assert_array_equal(found.reshape(24, 60), outer[:, None] + inner)


def test_blocks_run_in_batches_give_the_same() -> None:
    source = """
__device__ int total = 3;
KERNEL count(int* y) { y[blockIdx.x * 32 + threadIdx.x] = blockIdx.x; atomicAdd(&total, 1);
  if (threadIdx.x == 0) atomicMax(&y[32 * 64], atomicAdd(&total, 0)); }"""
    y = np.zeros(32 * 64 + 1, np.int32)
    for together in (32, 64, 4096):
        (found,) = clean(run(source, "count", 64, 32, [y], together=together))
        np.testing.assert_array_equal(found[:-1], np.repeat(np.arange(64), 32))
        assert found[-1] == 3 + 32 * 64


def test_block_sum_with_shuffles() -> None:
    source = """
KERNEL sums(const float* x, float* y, int n) {
  __shared__ float part[8];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 8) {
    sum = part[threadIdx.x];
    for (int step = 4; step > 0; step /= 2) sum += __shfl_down_sync(0xffu, sum, step);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
  }
}"""
    x = integers(0, (5, 777))
    np.testing.assert_array_equal(clean(run(source, "sums", 5, 256, [x, unset(5), 777]))[1], x.sum(1))


def test_a_shuffle_from_a_lane_that_takes_no_part_gives_no_number() -> None:
    source = """
KERNEL shuffle(const float* x, float* y) {
  int t = threadIdx.x;
  if (t < 16) y[t] = __shfl_down_sync(0xffffu, x[t], 4);
}"""
    x = integers(0, 32)
    y = clean(run(source, "shuffle", 1, 32, [x, unset(16)]))[1]
    np.testing.assert_array_equal(y, np.concatenate([x[4:16], np.full(4, np.nan, np.float32)]))


def test_tiled_product() -> None:
    source = """
KERNEL product(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float ta[16][17], tb[16][17];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int p = 0; p < k; p += 16) {
    ta[threadIdx.y][threadIdx.x] = row < m && p + threadIdx.x < k ? a[row * k + p + threadIdx.x] : 0;
    tb[threadIdx.y][threadIdx.x] = p + threadIdx.y < k && column < n ? b[(p + threadIdx.y) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}"""
    m, n, k = 45, 50, 37
    a, b = integers(0, (m, k)), integers(1, (k, n))
    result = run(source, "product", (4, 3), (16, 16), [a, b, unset((m, n)), m, n, k])
    np.testing.assert_array_equal(clean(result)[2], a @ b)


def test_softmax() -> None:
    source = """
KERNEL softmax(const float* x, float* y, int n) {
  int lane = threadIdx.x % 32, row = blockIdx.x * 4 + threadIdx.x / 32;
  float most = -__int_as_float(0x7f800000), sum = 0;
  for (int i = lane; i < n; i += 32) most = fmaxf(most, x[row * n + i]);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  for (int i = lane; i < n; i += 32) sum += expf(x[row * n + i] - most);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  for (int i = lane; i < n; i += 32) y[row * n + i] = expf(x[row * n + i] - most) / sum;
}"""
    x = np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32)
    wanted = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    np.testing.assert_allclose(
        clean(run(source, "softmax", 2, 128, [x, unset(x.shape), 100]))[1], wanted, rtol=3e-6
    )


def test_sine_takes_its_slow_path_for_large_numbers() -> None:
    source = """
KERNEL sine(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = sinf(x[i]); }"""
    x = np.array([0, -0.0, 1, -2, 1e5, 2e5, -3e7, 1e20, 3e38, 1e-40, np.pi], np.float32)
    found = clean(run(source, "sine", 1, 32, [x, unset(len(x)), len(x)]))[1]
    np.testing.assert_allclose(found, np.sin(x.astype(np.float64)), rtol=2e-6, atol=1e-45)


def test_divergent_loops_and_a_switch() -> None:
    source = """
KERNEL collatz(const int* x, int* y) {
  int n = x[threadIdx.x], steps = 0;
  while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; steps++; if (steps > 200) break; }
  switch (steps % 11) {
    case 0: steps += 1; break; case 1: steps *= 2; break; case 2: steps = -steps; break; case 3: steps ^= 5; break;
    case 4: steps <<= 3; break; case 5: steps |= 64; case 6: steps += 100; break; case 7: steps = 7; break;
    default: steps -= 9;
  }
  y[threadIdx.x] = steps;
}"""

    def wanted(n: int) -> int:
        steps = 0
        while n != 1:
            n = 3 * n + 1 if n % 2 else n // 2
            steps += 1
        return {
            0: steps + 1, 1: steps * 2, 2: -steps, 3: steps ^ 5, 4: steps << 3, 5: (steps | 64) + 100, 6: steps + 100, 7: 7,
        }.get(steps % 11, steps - 9)  # fmt: skip

    x = np.arange(1, 129, dtype=np.int32)
    found = clean(run(source, "collatz", 1, 128, [x, unset(128, np.int32)]))[1]
    assert found.tolist() == [wanted(int(n)) for n in x]


def test_integers_of_64_bits_and_divisions() -> None:
    source = """
KERNEL wide(const long long* x, const long long* y, long long* z) {
  int i = threadIdx.x;
  z[4 * i] = x[i] * y[i]; z[4 * i + 1] = x[i] / y[i]; z[4 * i + 2] = x[i] % y[i];
  z[4 * i + 3] = __mul64hi(x[i], y[i]) ^ (long long)__popcll(x[i]) ^ ((unsigned long long)y[i] >> 7);
}"""
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**62), 2**62, 32)
    y = rng.integers(-(2**33), 2**33, 32) | 1
    found = clean(run(source, "wide", 1, 32, [x, y, unset(128, np.int64)]))[2].reshape(32, 4)
    for row, (a, b) in zip(found.tolist(), zip(x.tolist(), y.tolist(), strict=True), strict=True):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        product = (a * b + 2**63) % 2**64 - 2**63
        high = (a * b) >> 64
        bits = (a % 2**64).bit_count()
        wanted = high ^ bits ^ ((b % 2**64) >> 7)
        assert row == [product, quotient, a - quotient * b, (wanted + 2**63) % 2**64 - 2**63]


def test_half_arithmetic_through_assembly() -> None:
    source = """
KERNEL halves(const u32* x, const u32* y, u32* z) {
  u32 a = x[threadIdx.x], b = y[threadIdx.x], r;
  asm("{ .reg .b32 t; mul.rn.f16x2 t, %1, %2; add.rn.f16x2 %0, t, %1; }" : "=r"(r) : "r"(a), "r"(b));
  z[threadIdx.x] = r;
}"""
    x, y = integers(0, 64, np.float16), integers(1, 64, np.float16)
    arguments = [x.view(np.uint32), y.view(np.uint32), unset(32, np.uint32)]
    np.testing.assert_array_equal(
        clean(run(source, "halves", 1, 32, arguments))[2].view(np.float16), x * y + x
    )


def test_a_half_converted_by_hand() -> None:
    source = """
KERNEL convert(const float* x, u16* y, float* z) {
  u16 h; float f;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x[threadIdx.x]));
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  y[threadIdx.x] = h; z[threadIdx.x] = f;
}"""
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    result = clean(run(source, "convert", 1, 64, [x, unset(64, np.uint16), unset(64)]))
    np.testing.assert_array_equal(result[1].view(np.float16), x.astype(np.float16))
    np.testing.assert_array_equal(result[2], x.astype(np.float16).astype(np.float32))


ATOMICS: list[tuple[str, Callable[[Array], int]]] = [
    ("atomicAdd", lambda x: int(x.sum())),
    ("atomicMin", lambda x: min(9, int(x.min()))),
    ("atomicMax", lambda x: max(9, int(x.max()))),
    ("atomicAnd", lambda x: int(np.bitwise_and.reduce(x) & 9)),
    ("atomicOr", lambda x: int(np.bitwise_or.reduce(x) | 9)),
    ("atomicXor", lambda x: int(np.bitwise_xor.reduce(x) ^ 9)),
]


@pytest.mark.parametrize(("function", "wanted"), ATOMICS, ids=[name for name, _ in ATOMICS])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics(function: str, wanted: Callable[[Array], int], space: str) -> None:
    place = "y" if space == "global" else "&s"
    source = f"""
KERNEL atomic(const int* x, int* y) {{
  __shared__ int s;
  if (threadIdx.x == 0) s = {0 if function == "atomicAdd" else 9};
  __syncthreads();
  {function}({place}, x[threadIdx.x]);
  __syncthreads();
  if ({int(space == "shared")} && threadIdx.x == 0) *y = s;
}}"""
    x = np.random.default_rng(0).integers(-100, 100, 256).astype(np.int32)
    start = np.array([0 if function == "atomicAdd" else 9], np.int32)
    assert clean(run(source, "atomic", 1, 256, [x, start]))[1][0] == wanted(x)


def test_atomics_that_give_what_was_there() -> None:
    source = """
KERNEL tickets(int* next, int* mine, float* sum, unsigned* wheel, int* lock) {
  int t = blockIdx.x * 64 + threadIdx.x;
  mine[t] = atomicAdd(next, 1);
  atomicAdd(sum, 0.5f);
  atomicInc(wheel, 9);
  atomicDec(wheel + 1, 9);
  if (atomicCAS(lock, 0, t + 1) == 0) lock[1] = t + 1;
  atomicExch(lock + 2, 5);
}"""
    counters = [np.zeros(1, np.int32), unset(256, np.int32), np.zeros(1, np.float32), np.zeros(2, np.uint32)]
    result = clean(run(source, "tickets", 4, 64, [*counters, np.zeros(3, np.int32)]))
    assert sorted(result[1].tolist()) == list(range(256))
    assert result[0][0] == 256 and result[2][0] == 128
    assert result[3].tolist() == [256 % 10, -256 % 10]
    assert result[4][0] == result[4][1] > 0 and result[4][2] == 5


def test_votes_matches_and_reductions() -> None:
    source = """
KERNEL votes(const int* x, u32* y) {
  int t = threadIdx.x, v = x[t];
  y[t] = __ballot_sync(~0u, v > 0);
  y[64 + t] = __any_sync(~0u, v == 4) + 2 * __all_sync(~0u, v < 5) + 4 * __syncthreads_count(v > 2);
  y[128 + t] = __match_any_sync(~0u, v);
  y[192 + t] = __reduce_add_sync(~0u, (u32)v);
}"""
    x = integers(3, 64, np.int32)
    y = clean(run(source, "votes", 1, 64, [x, unset(256, np.uint32)]))[1].reshape(4, 2, 32)
    for warp, own in enumerate(x.reshape(2, 32)):
        bits = [
            sum(1 << lane for lane in range(32) if test[lane]) for test in (own > 0, *(own == v for v in own))
        ]
        assert set(y[0, warp].tolist()) == {bits[0]}
        many = 4 * int((x > 2).sum()) + int((own == 4).any()) + 2
        assert set(y[1, warp].tolist()) == {many}
        assert y[2, warp].tolist() == bits[1:]
        assert set(y[3, warp].tolist()) == {int(own.sum()) % 2**32}


def test_constants_globals_and_tables() -> None:
    source = """
__constant__ float weights[4] = {1.5f, -2.f, 0.25f, 8.f};
__device__ int table[3][2] = {{1, 2}, {3, 4}, {5, 6}};
struct Pair { int a; double b; };
KERNEL tables(float* y, int* z, Pair p) {
  int t = threadIdx.x;
  y[t] = weights[t % 4] + (float)p.b;
  z[t] = table[t % 3][t % 2] + p.a;
}"""
    pair = np.array([(7, 0.5)], dtype=np.dtype([("a", "i4"), ("b", "f8")], align=True))[0]
    y, z = clean(run(source, "tables", 1, 32, [unset(32), unset(32, np.int32), pair]))
    t = np.arange(32)
    np.testing.assert_array_equal(y, np.array([1.5, -2, 0.25, 8], np.float32)[t % 4] + np.float32(0.5))
    np.testing.assert_array_equal(z, np.array([[1, 2], [3, 4], [5, 6]])[t % 3, t % 2] + 7)


def test_generic_pointers_to_shared_local_and_global_memory() -> None:
    source = """
__device__ __noinline__ void dummy() {}
KERNEL generic(int* x, int* y) {
  __shared__ int s[32];
  int own[4] = {1, 2, 3, 4};
  int t = threadIdx.x;
  s[t] = 10 * t;
  x[t] = 100 * t;
  __syncthreads();
  int* p = t % 3 == 0 ? &s[t] : t % 3 == 1 ? &x[t] : &own[t % 4];
  *p += 1;
  y[t] = *p + own[0];
}"""
    _, y = clean(run(source, "generic", 1, 32, [unset(32, np.int32), unset(32, np.int32)]))
    wanted = [(10 * t, 100 * t, 1 + t % 4)[t % 3] + 1 + (1 + (t % 3 == 2 and t % 4 == 0)) for t in range(32)]
    assert y.tolist() == wanted


def test_threads_of_a_warp_that_end_at_different_times() -> None:
    source = """
KERNEL ends(int* y) {
  int t = threadIdx.x;
  for (int i = 0; i < 40; i++) { if (i == t) return; y[t] = i; }
}"""
    (y,) = clean(run(source, "ends", 1, 32, [np.full(32, -1, np.int32)]))
    assert y.tolist() == [t - 1 for t in range(32)]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_tensor_core_product(delivery: str) -> None:
    """Measured and printed (pytest -s), not asserted: how long 256x256x128 takes."""
    start = time.perf_counter()
    result, wanted = gemm(GEMM, 256, 256, 128, delivery=delivery)
    print(f"256x256x128, {delivery}: {time.perf_counter() - start:.2f} s")
    np.testing.assert_array_equal(clean(result)[2], wanted)


def test_a_swizzle_that_only_the_writer_has_gives_a_wrong_product() -> None:
    plain = "__device__ __forceinline__ int chunk_read(int row, int chunk) { return chunk; }"
    right = (
        "__device__ __forceinline__ int chunk_read(int row, int chunk) { return chunk ^ ((row >> 1) & 3); }"
    )
    assert right in GEMM
    result, wanted = gemm(GEMM.replace(right, plain), 128, 128, 64)
    assert not np.array_equal(result.outputs[2], wanted)
    assert result.counters.bank_conflicts > 0


def test_no_swizzle_at_all_is_right_and_has_bank_conflicts() -> None:
    result, wanted = gemm(GEMM.replace("chunk ^ ((row >> 1) & 3)", "chunk"), 128, 128, 64)
    np.testing.assert_array_equal(clean(result)[2], wanted)
    assert result.counters.bank_conflicts > 0
    swizzled, _ = gemm(GEMM, 128, 128, 64)
    assert swizzled.counters.bank_conflicts == 0
