"""CUDA through NVRTC and the emulator, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyc.codegen.emulator import Emulated, Uninitialised, emulate
from tinyc.codegen.emulator.copies import Delivery
from tinyc.codegen.nvrtc import compile_ptx

DELIVERIES: tuple[Delivery, ...] = ("late", "early", "random")

#: what the sources below share
PRELUDE = """
typedef unsigned int u32; typedef unsigned short u16; typedef unsigned long long u64;
#define KERNEL extern "C" __global__ void
__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy4(void* d, const void* s) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(d)), "l"(s) : "memory"); }
__device__ __forceinline__ void copy16(u32 d, const void* s) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(d), "l"(s) : "memory"); }
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
"""


def run(source: str, *launch: Any, **options: Any) -> Emulated:
    """``run(cuda, kernel, grid, block, arguments, …)``: compiles for sm_80 and emulates."""
    text = PRELUDE + source
    return emulate(compile_ptx(text), *launch, source=text, **options)


def kinds(result: Emulated) -> set[str]:
    return {finding.kind for finding in result.findings}


def unset(shape: int | tuple[int, ...], dtype: Any = np.float32) -> Uninitialised:
    return Uninitialised((shape,) if isinstance(shape, int) else shape, dtype)


def integers(seed: int, shape: int | Sequence[int], dtype: Any = np.float32) -> NDArray[Any]:
    """Small integers, of which all sums are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


#: A[M, K] times B[N, K] transposed, fp16 to fp32: tiles of 128x128x32, a ring of three stages of cp.async, ldmatrix, and
#: chunks of 16 bytes swizzled by the row
GEMM = """
#define BM 128
#define BN 128
#define BK 32
#define STAGES 3
__device__ __forceinline__ int chunk_written(int row, int chunk) { return chunk ^ ((row >> 1) & 3); }
__device__ __forceinline__ int chunk_read(int row, int chunk) { return chunk ^ ((row >> 1) & 3); }
__device__ __forceinline__ u32 written(int row, int chunk) { return row * 64 + chunk_written(row, chunk) * 16; }
__device__ __forceinline__ u32 read(int row, int chunk) { return row * 64 + chunk_read(row, chunk) * 16; }
__device__ __forceinline__ void matrices(u32* r, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address)); }
KERNEL __launch_bounds__(256) gemm(const u16* A, const u16* B, float* C, int M, int N, int K) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int wm = (warp & 1) * 64, wn = (warp >> 1) * 32, bm = blockIdx.y * BM, bn = blockIdx.x * BN;
  const u32 base = shared_address(memory);
  auto load = [&](int stage, int k) {
    u32 a = base + stage * (BM + BN) * 64, b = a + BM * 64;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int c = tid + i * 256, row = c >> 2, chunk = c & 3;
      copy16(a + written(row, chunk), A + (size_t)(bm + row) * K + k * BK + chunk * 8);
      copy16(b + written(row, chunk), B + (size_t)(bn + row) * K + k * BK + chunk * 8);
    }
  };
  float acc[4][4][4] = {};
  const int steps = K / BK;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) { if (s < steps) load(s, s); commit(); }
  for (int k = 0; k < steps; k++) {
    wait<STAGES - 2>();
    __syncthreads();  // all copies of this step are there, and all have left the stage that is filled next
    int next = k + STAGES - 1;
    if (next < steps) load(next % STAGES, next);
    commit();
    u32 sa = base + (k % STAGES) * (BM + BN) * 64, sb = sa + BM * 64;
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
      u32 a[4][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 4; i++) matrices(a[i], sa + read(wm + i * 16 + (lane & 15), kk * 2 + (lane >> 4)));
#pragma unroll
      for (int j = 0; j < 2; j++)
        matrices(b[j], sb + read(wn + j * 16 + (lane & 7) + ((lane >> 4) << 3), kk * 2 + ((lane >> 3) & 1)));
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
            : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j / 2][j % 2 * 2]), "r"(b[j / 2][j % 2 * 2 + 1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int row = bm + wm + i * 16 + (lane >> 2), column = bn + wn + j * 8 + (lane & 3) * 2;
      *(float2*)&C[(size_t)row * N + column] = make_float2(acc[i][j][0], acc[i][j][1]);
      *(float2*)&C[(size_t)(row + 8) * N + column] = make_float2(acc[i][j][2], acc[i][j][3]);
    }
}
"""
GEMM_SHARED = 3 * (128 + 128) * 64


def gemm(source: str, m: int, n: int, k: int, **options: Any) -> tuple[Emulated, NDArray[Any]]:
    """What :data:`GEMM`, or a source like it, makes of small integers, and what it should."""
    a, b = integers(1, (m, k), np.float16), integers(2, (n, k), np.float16)
    launch = ((n // 128, m // 128), 256, [a, b, unset((m, n)), m, n, k])
    return run(source, "gemm", *launch, shared_bytes=GEMM_SHARED, **options), a.astype(
        np.float32
    ) @ b.T.astype(np.float32)
