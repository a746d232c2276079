"""Faults that are planted in right kernels: each is found, in every delivery; the right kernel is clean in every one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from emulated import DELIVERIES, GEMM, GEMM_SHARED, integers, run, unset

from tinyc.codegen.emulator import Emulated

X = integers(0, 256)


@dataclass(frozen=True)
class Kernel:
    """A right kernel. ``arguments``: as of ``emulate``; ``wanted``: what the last of them must hold in the end."""

    name: str
    source: str
    grid: Any
    block: Any
    arguments: list[Any]
    wanted: Any
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, source: str, delivery: str) -> Emulated:
        return run(
            source, self.name, self.grid, self.block, self.arguments, delivery=delivery, **self.options
        )


REVERSE = Kernel(
    "reverse",
    """
KERNEL reverse(const float* x, float* y) {
  __shared__ float tile[256];
  int t = threadIdx.x;
  tile[t] = x[t];
  __syncthreads();
  y[t] = tile[255 - t];
}""",
    1,
    256,
    [X, unset(256)],
    X[::-1],
)

#: two tiles one after the other in one buffer
TILES = Kernel(
    "tiles",
    """
KERNEL tiles(const float* x, float* y, int n) {
  __shared__ float tile[64];
  int t = threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k++) {
    tile[t] = x[k * 64 + t];
    __syncthreads();  // filled
    sum += tile[(t + 33) % 64];
    __syncthreads();  // left
  }
  y[t] = sum;
}""",
    1,
    64,
    [X, unset(64), 4],
    np.roll(X.reshape(4, 64).sum(0), -33),
)

#: warp 0 fills what warp 1 reads, with barriers of two warps for full and empty
HANDOVER = Kernel(
    "handover",
    """
KERNEL handover(const float* x, float* y, int n) {
  __shared__ float slot[32];
  int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int k = 0; k < n; k++) {
      asm volatile("bar.sync 1, 64;" ::: "memory");  // empty: producer
      slot[lane] = x[k * 32 + lane];
      asm volatile("bar.arrive 2, 64;" ::: "memory");  // full: producer
    }
  } else {
    float sum = 0;
    for (int k = 0; k < n; k++) {
      asm volatile("bar.arrive 1, 64;" ::: "memory");  // empty: consumer
      asm volatile("bar.sync 2, 64;" ::: "memory");  // full: consumer
      sum += slot[31 - lane];
    }
    y[lane] = sum;
  }
}""",
    1,
    64,
    [X, unset(32), 8],
    X.reshape(8, 32).sum(0)[::-1],
)

WARP_SUM = Kernel(
    "warp_sum",
    """
KERNEL warp_sum(const float* x, float* y) {
  __shared__ float part[256];
  int t = threadIdx.x, lane = t % 32;
  part[t] = x[t];
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) {
    float other = part[t ^ step];
    __syncwarp();  // all have read
    part[t] += other;
    __syncwarp();  // all have written
  }
  y[t] = part[t - lane];
}""",
    1,
    256,
    [X, unset(256)],
    np.repeat(X.reshape(8, 32).sum(1), 32),
)

SHUFFLE = Kernel(
    "shuffle",
    """
KERNEL shuffle(const float* x, float* y) {
  int t = threadIdx.x;
  float sum = x[t];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  y[t] = sum;
}""",
    1,
    64,
    [X[:64], unset(64)],
    np.repeat(X[:64].reshape(2, 32).sum(1), 32),
)

#: a ring of three stages: every thread's word of each stage is read by its neighbour
RING = Kernel(
    "ring",
    """
KERNEL ring(const float* x, float* y, int n) {
  __shared__ float stage[3][64];
  int t = threadIdx.x;
  float sum = 0;
  for (int s = 0; s < 2; s++) { if (s < n) copy4(&stage[s][t], x + s * 64 + t); commit(); }
  for (int k = 0; k < n; k++) {
    wait<1>();
    __syncthreads();  // there
    if (k + 2 < n) copy4(&stage[(k + 2) % 3][t], x + (k + 2) * 64 + t);
    commit();
    sum += stage[k % 3][t ^ 37];
  }
  y[t] = sum;
}""",
    1,
    64,
    [X, unset(64), 4],
    X.reshape(4, 64).sum(0)[np.arange(64) ^ 37],
)

#: each block leaves a sum; the last one to end adds them up
LAST_BLOCK = Kernel(
    "last_block",
    """
__device__ u32 ended = 0;
KERNEL last_block(const float* x, float* part, float* y) {
  __shared__ bool last;
  int t = threadIdx.x;
  float sum = x[blockIdx.x * 32 + t];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (t == 0) {
    part[blockIdx.x] = sum;
    __threadfence();  // written
    last = atomicAdd(&ended, 1) == gridDim.x - 1;
    __threadfence();  // to be read
  }
  __syncthreads();
  if (last && t == 0) {
    float all = 0;
    for (int b = 0; b < gridDim.x; b++) all += part[b];
    y[0] = all;
  }
}""",
    8,
    32,
    [X, unset(8), unset(1)],
    X.sum(keepdims=True),
)

#: warp 1 waits for a flag that warp 0 sets
FLAG = Kernel(
    "flag",
    """
KERNEL flag(const float* x, float* y) {
  __shared__ float value[32];
  __shared__ int ready;
  int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x >= 32) {
    value[lane] = x[lane];
    __syncwarp();
    if (lane == 0) {
      __threadfence_block();  // written
      *(volatile int*)&ready = 1;
    }
  } else {
    while (*(volatile int*)&ready == 0) { }
    __threadfence_block();  // to be read
    y[lane] = value[31 - lane];
  }
}""",
    1,
    64,
    [X[:32], unset(32)],
    X[31::-1],
)

HISTOGRAM = Kernel(
    "histogram",
    """
KERNEL histogram(const int* x, int* y) {
  __shared__ int count[16];
  int t = threadIdx.x;
  if (t < 16) count[t] = 0;
  __syncthreads();
  atomicAdd(&count[x[t]], 1);
  __syncthreads();  // counted
  if (t < 16) y[t] = count[t];
}""",
    1,
    256,
    [(X + 4).astype(np.int32), unset(16, np.int32)],
    np.bincount((X + 4).astype(int), minlength=16).astype(np.int32),
)

#: rows of 32 with a tail: what is beyond the end is zero
TAIL = Kernel(
    "tail",
    """
KERNEL tail(const float* x, float* y, int n) {
  __shared__ float tile[256];
  int t = threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
    ::"r"(shared_address(&tile[t])), "l"(x + t), "r"(t < n ? 4 : 0) : "memory");
  commit();
  wait<0>();
  __syncthreads();
  y[t] = tile[t ^ 1];
}""",
    1,
    256,
    [X[:201].copy(), unset(256), 201],
    np.concatenate([X[:201], np.zeros(55, np.float32)])[np.arange(256) ^ 1],
)

#: the buffer that was copied from is used again after the copies
SOURCE = Kernel(
    "source",
    """
KERNEL source(float* x, float* y) {
  __shared__ float tile[64];
  int t = threadIdx.x;
  copy4(&tile[t], x + t);
  commit();
  wait<0>();  // before the source changes
  x[t] = 7;
  wait<0>();
  y[t] = tile[t];
}""",
    1,
    64,
    [X[:64], unset(64)],
    X[:64],
)

VECTORS = Kernel(
    "vectors",
    """
KERNEL vectors(const float* x, float* y) {
  int t = threadIdx.x;
  float4 v = *(const float4*)(x + 4 * t);
  y[t] = v.x + v.y + v.z + v.w;
}""",
    1,
    32,
    [X[:128], unset(32)],
    X[:128].reshape(32, 4).sum(1),
)

HALVES = Kernel(
    "halves",
    """
KERNEL halves(const u16* x, u16* y) {
  __shared__ u16 tile[64];
  int t = threadIdx.x;
  tile[t] = x[t];
  __syncthreads();
  y[t] = tile[63 - t];
}""",
    1,
    64,
    [np.arange(64, dtype=np.uint16), unset(64, np.uint16)],
    np.arange(63, -1, -1).astype(np.uint16),
)

EPILOGUE = Kernel(
    "epilogue",
    """
KERNEL epilogue(const float* x, float* y) {
  __shared__ float tile[64];
  int t = threadIdx.x;
  tile[t] = x[t];
  __syncthreads();
  float sum = tile[t] + tile[63 - t];
  __syncthreads();  // before the tile is used again
  tile[t] = sum;
  __syncthreads();
  y[t] = tile[(t + 1) % 64];
}""",
    1,
    64,
    [X[:64], unset(64)],
    np.roll(X[:64] + X[63::-1], -1),
)

EARLY_EXIT = Kernel(
    "early_exit",
    """
KERNEL early_exit(const float* x, float* y, int n) {
  __shared__ float tile[64];
  int t = threadIdx.x;
  if (t < n) tile[t] = x[t];
  __syncthreads();
  if (t >= n) return;
  y[t] = tile[n - 1 - t];
}""",
    1,
    64,
    [X[:32], unset(32), 32],
    X[31::-1],
)

LOCAL = Kernel(
    "local_array",
    """
KERNEL local_array(const int* x, int* y) {
  int v[8];
  for (int i = 0; i < 8; i++) v[i] = i * i;
  y[threadIdx.x] = v[x[threadIdx.x]];
}""",
    1,
    32,
    [np.arange(32, dtype=np.int32) % 8, unset(32, np.int32)],
    (np.arange(32, dtype=np.int32) % 8) ** 2,
)

MATRIX = Kernel(
    "matrix",
    """
KERNEL matrix(const u32* x, u32* y) {
  __shared__ __align__(16) u32 tile[32];
  int lane = threadIdx.x;
  tile[lane] = x[lane];
  __syncthreads();
  u32 r, at = shared_address(tile) + (lane % 8) * 16;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at) : "memory");
  y[lane] = r;
}""",
    1,
    32,
    [np.arange(32, dtype=np.uint32), unset(32, np.uint32)],
    np.arange(32, dtype=np.uint32),
)

NEIGHBOURS = Kernel(
    "neighbours",
    """
KERNEL neighbours(const float* x, float* z, float* y) {
  int t = blockIdx.x * 64 + threadIdx.x;
  z[t] = 2 * x[t];
  __syncthreads();
  y[t] = z[t ^ 1];
}""",
    4,
    64,
    [X, unset(256), unset(256)],
    2 * X[np.arange(256) ^ 1],
)

_A, _B = integers(1, (128, 128), np.float16), integers(2, (128, 128), np.float16)
PRODUCT = Kernel(
    "gemm",
    GEMM,
    (1, 1),
    256,
    [_A, _B, unset((128, 128)), 128, 128, 128],
    _A.astype(np.float32) @ _B.T.astype(np.float32),
    {"shared_bytes": GEMM_SHARED},
)

TWO_TILES = Kernel(
    "two_tiles",
    """
KERNEL two_tiles(const float* x, float* y) {
  __shared__ float here[64];
  __shared__ float there[64];
  int t = threadIdx.x;
  here[t] = x[t];
  there[63 - t] = 2 * x[t];
  __syncthreads();
  y[t] = here[t] + there[t];
}""",
    1,
    64,
    [X[:64], unset(64)],
    X[:64] + 2 * X[63::-1],
)

BESIDE = Kernel(
    "beside",
    """
KERNEL beside(const float* x, float* y) {
  __shared__ float here[64];
  extern __shared__ float there[];
  int t = threadIdx.x;
  here[t] = x[t];
  there[63 - t] = 2 * x[t];
  __syncthreads();
  y[t] = here[t] + there[t];
}""",
    1,
    64,
    [X[:64], unset(64)],
    X[:64] + 2 * X[63::-1],
    {"shared_bytes": 256},
)

KERNELS = [
    *(REVERSE, TILES, HANDOVER, WARP_SUM, SHUFFLE, RING, LAST_BLOCK, FLAG, HISTOGRAM, TAIL, SOURCE, VECTORS, HALVES),
    *(EPILOGUE, EARLY_EXIT, LOCAL, MATRIX, NEIGHBOURS, TWO_TILES, BESIDE, PRODUCT),
]  # fmt: skip


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_right_kernel_is_clean_and_right(kernel: Kernel, delivery: str) -> None:
    result = kernel.run(kernel.source, delivery)
    assert [str(each) for each in result.findings] == [] and result.complete
    outputs = [each for each in result.outputs if each.shape == np.shape(kernel.wanted)]
    np.testing.assert_array_equal(outputs[-1], kernel.wanted)


SYNC = "__syncthreads();"
FAULTS = [
    ("no barrier between writing and reading a tile", REVERSE, SYNC, "", "race"),
    ("a barrier that half of the threads reach", REVERSE, SYNC, f"if (t < 128) {SYNC}", "barrier"),
    ("a barrier that half of a warp reaches", REVERSE, SYNC, f"if (t < 16) {SYNC}", "barrier"),
    ("two barriers for the halves of a warp", REVERSE, SYNC,
     'if (t % 2) { asm volatile("bar.sync 0;" ::: "memory"); y[t] = 0; } else { asm volatile("bar.sync 0;" ::: "memory"); }',
     "barrier"),
    ("an edge of the tile that nobody writes", REVERSE, "tile[t] = x[t];", "if (t < 255) tile[t] = x[t];", "uninitialised"),
    ("a read one beyond the end", REVERSE, "x[t]", "x[t + 1]", "out-of-bounds"),
    ("a write one row beyond the end", REVERSE, "y[t]", "y[t + 256]", "out-of-bounds"),
    ("a read before the start", REVERSE, "x[t]", "x[t - 1]", "out-of-bounds"),
    ("a tile that another lies beside, left by one", TWO_TILES, "here[t]", "here[t + 1]", "out-of-bounds"),
    ("a tile that dynamic memory lies beside, left by one", BESIDE, "here[t]", "here[t + 1]", "out-of-bounds"),
    ("dynamic memory that begins one word too soon", BESIDE, "there[t]", "there[t - 1]", "out-of-bounds"),
    ("a tile that is too small", REVERSE, "tile[255 - t]", "tile[256 - t]", "out-of-bounds"),
    ("an output read before it is written", REVERSE, "y[t] =", "y[t] +=", "uninitialised"),
    ("two threads write one word", REVERSE, "y[t] =", "y[t / 2] =", "race"),
    ("a tile filled again before all have read it", TILES, f"{SYNC}  // left", "", "race"),
    ("a tile read before it is filled", TILES, f"{SYNC}  // filled", "", "race"),
    ("a loop with a barrier that ends sooner for some", TILES, "k < n;", "k < n - t / 32;", "barrier"),
    ("a barrier of warps where all must wait", TILES, f"{SYNC}  // left", "__syncwarp();", "race"),
    ("a barrier that counts a warp too many", HANDOVER, "2, 64;", "2, 96;", "deadlock"),
    ("a barrier that counts a warp too few", HANDOVER, "2, 64;", "2, 32;", "race"),
    ("two warps that take one barrier each for itself", TILES, f"{SYNC}  // filled", 'asm volatile("bar.sync 1, 32;" ::: "memory");', "race"),
    ("a barrier of two sizes", HANDOVER, "bar.sync 2, 64;", "bar.sync 2, 96;", "barrier"),
    ("waiting at another barrier", HANDOVER, '"bar.sync 2, 64;"', '"bar.sync 3, 64;"', "deadlock"),
    ("a producer that does not wait until the slot is empty", HANDOVER,
     'asm volatile("bar.sync 1, 64;" ::: "memory");', 'asm volatile("bar.arrive 1, 64;" ::: "memory");', "deadlock"),
    ("a consumer that does not wait until the slot is full", HANDOVER,
     'asm volatile("bar.sync 2, 64;" ::: "memory");', 'asm volatile("bar.arrive 2, 64;" ::: "memory");', "race"),
    ("lanes that do not wait until all have read", WARP_SUM, "__syncwarp();  // all have read", "", "race"),
    ("lanes that do not wait until all have written", WARP_SUM, "__syncwarp();  // all have written", "", "race"),
    ("a warp barrier without the lanes that read", WARP_SUM, "__syncwarp();  // all have written",
     "if (lane < 16) __syncwarp(0xffffu); else __syncwarp(0xffff0000u);", "race"),
    ("a warp barrier that half of its lanes reach", WARP_SUM, "__syncwarp();  // all have read",
     "if (lane < 16) __syncwarp();", "race"),
    ("lanes that wait for each other at different barriers", WARP_SUM, "__syncwarp();  // all have read",
     f"if (lane < 16) __syncwarp(); else {SYNC}", "missing-lanes"),
    ("a shuffle that half of its lanes reach", SHUFFLE, "for (int step", "if (t % 32 < 16) for (int step", "missing-lanes"),
    ("a mask without the lane itself", SHUFFLE, "0xffffffffu", "0xfffeffffu", "missing-lanes"),
    ("no wait for the copies", RING, "wait<1>();", "", "in-flight"),
    ("a wait that leaves a group too many", RING, "wait<1>();", "wait<2>();", "in-flight"),
    ("a commit that is missing at the end", RING, "    commit();\n    sum", "    if (k + 2 < n) commit();\n    sum", "in-flight"),
    ("no barrier after the wait", RING, f"{SYNC}  // there", "", "race"),
    ("a barrier before the wait", RING, f"wait<1>();\n    {SYNC}", f"{SYNC}\n    wait<1>();", "race"),
    ("a stage filled while it is read", RING, "stage[(k + 2) % 3]", "stage[(k + 3) % 3]", "in-flight"),
    ("a ring of two stages with copies two ahead", RING, "(k + 2) % 3", "k % 2", "in-flight"),
    ("a fill that starts before the others have read", RING,
     f"    wait<1>();\n    {SYNC}  // there\n    if (k + 2 < n) copy4(&stage[(k + 2) % 3][t], x + (k + 2) * 64 + t);\n    commit();\n    sum += stage[k % 3][t ^ 37];",
     f"    wait<1>();\n    {SYNC}\n    sum += stage[k % 2][t ^ 37];\n    if (k + 2 < n) copy4(&stage[k % 2][t], x + (k + 2) * 64 + t);\n    commit();",
     "race"),
    ("a source that changes under the copy", SOURCE, "wait<0>();  // before the source changes", "", "in-flight"),
    ("a copy of a tail that reads beyond the end", TAIL, "t < n ? 4 : 0", "4", "out-of-bounds"),
    ("a sum of other blocks' results without a fence", LAST_BLOCK, "__threadfence();  // written", "", "race"),
    ("a fence for the block where others read", LAST_BLOCK, "__threadfence();  // written", "__threadfence_block();", "race"),
    ("a fence for the block where others wrote", LAST_BLOCK,
     "__threadfence();  // to be read\n  }\n  __syncthreads();\n  if (last && t == 0) {",
     "__threadfence_block();\n    if (last) {\n      float all = 0;\n      for (int b = 0; b < gridDim.x; b++) all += part[b];\n      y[0] = all;\n    }\n  }\n  if (last && t > 99) {",
     "race"),
    ("a sum that does not wait for other blocks", LAST_BLOCK, "last = atomicAdd(&ended, 1) == gridDim.x - 1;",
     "last = blockIdx.x == gridDim.x - 1;", "race"),
    ("a counter that is added to without an atomic", LAST_BLOCK, "atomicAdd(&ended, 1)", "ended++", "race"),
    ("a flag without a fence before it", FLAG, "__threadfence_block();  // written", "", "race"),
    ("a flag without a fence after it", FLAG, "__threadfence_block();  // to be read", "", "race"),
    ("a flag that is a plain word", FLAG, "*(volatile int*)&ready = 1;", "ready = 1;", "race"),
    ("counts without atomics", HISTOGRAM, "atomicAdd(&count[x[t]], 1);", "count[x[t]]++;", "race"),
    ("counts that are read too soon", HISTOGRAM, f"{SYNC}  // counted", "", "race"),
    ("counts of which some start anywhere", HISTOGRAM, "if (t < 16) count", "if (t < 8) count", "uninitialised"),
    ("a vector at an odd word", VECTORS, "x + 4 * t", "x + 1 + 4 * (t % 31)", "misaligned"),
    ("a vector that leaves the buffer", VECTORS, "x + 4 * t", "x + 4 * (t + 1)", "out-of-bounds"),
    ("a word over two halves of others", HALVES, "tile[t] = x[t];", "if (t % 2) tile[t] = x[t]; else *(u32*)&tile[t] = x[t];", "race"),
    ("an epilogue in a tile that is still read", EPILOGUE, f"{SYNC}  // before the tile is used again", "", "race"),
    ("threads that end before a barrier", EARLY_EXIT, "if (t < n) tile[t] = x[t];", "if (t >= n) return; tile[t] = x[t];", "barrier"),
    ("lanes that end before a barrier", EARLY_EXIT, "if (t < n) tile[t] = x[t];", "if (t == 5) return; tile[t] = x[t % n];", "barrier"),
    ("threads that end before a barrier that counts them", EARLY_EXIT, f"if (t < n) tile[t] = x[t];\n  {SYNC}",
     'if (t >= n) return; tile[t] = x[t]; asm volatile("bar.sync 0, 64;" ::: "memory");', "deadlock"),
    ("an index beyond a thread's array", LOCAL, "v[x[threadIdx.x]]", "v[x[threadIdx.x] + 1]", "out-of-bounds"),
    ("a matrix row that is not aligned", MATRIX, "(lane % 8) * 16", "(lane % 8) * 16 + 8 * (lane == 0)", "misaligned"),
    ("a matrix that half of the warp loads", MATRIX, "  asm volatile(\"ldm", "  if (lane < 16) asm volatile(\"ldm", "missing-lanes"),
    ("a read of what another block writes", NEIGHBOURS, "z[t ^ 1]", "z[t ^ 64]", "race"),
    ("no barrier between writing and reading global memory", NEIGHBOURS, SYNC, "", "race"),
    ("a product without a wait", PRODUCT, "wait<STAGES - 2>();", "wait<STAGES - 1>();", "in-flight"),
    ("a product without its barrier", PRODUCT, f"{SYNC}  // all", "// all", "race"),
    ("a product that fills the stage it reads", PRODUCT, "load(next % STAGES, next)", "load(k % STAGES, next)", "in-flight"),
    ("a product whose tile is one row too high", PRODUCT, "(size_t)(bm + row) * K", "(size_t)(bm + row + 1) * K", "out-of-bounds"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["early_exit", "shuffle"])
def test_threads_that_end_early_can_be_excused(name: str) -> None:
    barrier = """
KERNEL early_exit(const float* x, float* y, int n) {
  __shared__ float tile[64];
  if (threadIdx.x >= n) return;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[n - 1 - threadIdx.x];
}"""
    exchange = """
KERNEL shuffle(const float* x, float* y, int n) {
  if (threadIdx.x >= n) return;
  y[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x], 1);
}"""
    source = barrier if name == "early_exit" else exchange
    for excused in (True, False):
        result = run(source, name, 1, 64, [X, unset(30), 30], excuse_ended=excused)
        wanted = X[29::-1] if name == "early_exit" else X[np.arange(30) ^ 1]
        np.testing.assert_array_equal(result.outputs[1], wanted)
        kind = "barrier" if name == "early_exit" else "missing-lanes"
        assert {each.kind for each in result.findings} == (set() if excused else {kind})


@pytest.mark.parametrize(
    ("value", "target", "found"),
    [("7", "0", False), ("threadIdx.x & 1", "threadIdx.x & 1", False), ("threadIdx.x & 1", "0", True)],
)
def test_lanes_that_store_equal_values_can_be_excused(value: str, target: str, found: bool) -> None:
    """Of one warp, and with one instruction; nothing orders the lanes, but whichever stores, the same is there."""
    source = f"KERNEL same(int* y) {{ y[{target}] = {value}; }}"
    start = np.zeros(2, np.int32)
    for excused in (True, False):
        result = run(source, "same", 1, 32, [start], excuse_equal=excused)
        assert {each.kind for each in result.findings} == ({"race"} if found or not excused else set())
    two_warps = run(source, "same", 1, 64, [start], excuse_equal=True)
    assert {each.kind for each in two_warps.findings} == {"race"}


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize(
    ("kernel", "right", "wrong", "kind"), [fault[1:] for fault in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_a_planted_fault_is_found(kernel: Kernel, right: str, wrong: str, kind: str, delivery: str) -> None:
    assert kernel.source.count(right) >= 1
    result = kernel.run(kernel.source.replace(right, wrong), delivery)
    assert kind in {each.kind for each in result.findings}, [str(each) for each in result.findings]
    for each in result.findings:
        assert each.line > 0 and each.cuda.startswith("kernel.cu:") and each.text, str(each)
