// iters i0<2 i1<14 i2<14 i3<40
// in0: fp16[2, 14, 14, 32]
// in1: fp16[40, 3, 3, 32]
// in2: fp32[40]
// %v0: fp16 = %in0[i0, i1+r1-1, i2+r2-1, r0]
// %v1: fp16 = 0.0
// %v2: bool = 0 <= i1+r1-1 < 14
// %v3: fp16 = WHERE %v2 %v0 %v1
// %v4: bool = 0 <= i2+r2-1 < 14
// %v5: fp16 = WHERE %v4 %v3 %v1
// %v6: fp16 = %in1[i3, r1, r2, r0]
// %v7: fp32 = CAST %v5
// %v8: fp32 = CAST %v6
// %v9: fp32 = MUL %v7 %v8
// %v10: fp32 = SUM over r0<32 r1<3 r2<3: %v9
// %v11: fp32 = %in2[i3]
// %v12: fp32 = ADD %v10 %v11
// %v13: fp32 = RELU %v12
// %v14: fp16 = CAST %v13
// out0: fp16[2, 14, 14, 40] = %v14

// the bits of the nearest fp16
static __device__ __forceinline__ unsigned short to_fp16(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
// NaN where one of them is
static __device__ __forceinline__ float maximum(float x, float y) {
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(x), "f"(y));
  return value;
}
// vectors of 16 bytes
template <int Words>
static __device__ __forceinline__ void load16(unsigned int (&x)[Words], const void* from) {
#pragma unroll
  for (int k = 0; k < Words; k += 4) {
    const uint4 found = ((const uint4*)from)[k / 4];
    x[k] = found.x, x[k + 1] = found.y, x[k + 2] = found.z, x[k + 3] = found.w;
  }
}
template <int Words>
static __device__ __forceinline__ void store16(void* to, const unsigned int (&x)[Words]) {
#pragma unroll
  for (int k = 0; k < Words; k += 4) ((uint4*)to)[k / 4] = make_uint4(x[k], x[k + 1], x[k + 2], x[k + 3]);
}
// the nearest of 0 ... size - 1
template <typename Index>
static __device__ __forceinline__ Index inside(Index x, Index size) { return x < 0 ? 0 : x < size ? x : size - 1; }
template <typename Element, int COUNT>
struct alignas(sizeof(Element) * COUNT < 16 ? sizeof(Element) * COUNT : 16) Vector {
  Element at[COUNT];
};
// 4 neighbours in shared memory
static __device__ __forceinline__ void read4(float* to, unsigned int at) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(at) : "memory");
}
// COUNT neighbours in shared memory, 16 bytes at a time, which the compiler would take apart
template <int COUNT, typename Element>
static __device__ __forceinline__ Vector<Element, COUNT> read_row(const Element* from) {
  Vector<Element, COUNT> row;
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(from);
  #pragma unroll
  for (int i = 0; i < COUNT; i += 4) read4(row.at + i, at + i * 4);
  return row;
}
// where byte `byte` of row `row` lies: chunks of 16 bytes change places by the row, so that 8 rows fill all banks
template <int ROW>
static __device__ __forceinline__ int swizzled(int row, int byte) {
  constexpr int CHUNKS = ROW < 128 ? ROW / 16 : 8, ROWS = ROW < 128 ? 128 / ROW : 1;
  return row * ROW + (byte ^ row / ROWS % CHUNKS * 16);
}
extern __shared__ __align__(128) unsigned char shared[];
// of byte `at` of the block's shared memory
static __device__ __forceinline__ unsigned int shared_address(int at) {
  return (unsigned int)__cvta_generic_to_shared(shared) + at;
}
// what was copied since the last one is a group
static __device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// until all but the PENDING newest groups have arrived
template <int PENDING>
static __device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }
// 16 bytes from global to shared memory, TO and FROM bytes further on, some time before wait_copies
template <int TO = 0, int FROM = 0>
static __device__ __forceinline__ void copy16(unsigned int to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%3], 16;" :: "r"(to), "l"(from), "n"(TO), "n"(FROM) : "memory");
}
// zeros unless `there`
template <int TO = 0, int FROM = 0>
static __device__ __forceinline__ void copy16(unsigned int to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0+%3], [%1+%4], 16, %2;"
               :: "r"(to), "l"(from), "r"(there ? 16 : 0), "n"(TO), "n"(FROM) : "memory");
}
// number I, I + STEP, … of COUNT of them, each TO bytes further on in shared memory and FROM in global memory
template <int COUNT, int TO, int FROM, int I = 0, int STEP = 1>
static __device__ __forceinline__ void copy16_rows(unsigned int to, const void* from) {
  copy16<I * TO, I * FROM>(to, from);
  if constexpr (I + STEP < COUNT) copy16_rows<COUNT, TO, FROM, I + STEP, STEP>(to, from);
}
// zeros from row `left` on, where each is DOWN rows below the one before
template <int COUNT, int TO, int FROM, int DOWN, int I = 0, int STEP = 1>
static __device__ __forceinline__ void copy16_rows(unsigned int to, const void* from, int left) {
  copy16<I * TO, I * FROM>(to, from, I * DOWN < left);
  if constexpr (I + STEP < COUNT) copy16_rows<COUNT, TO, FROM, DOWN, I + STEP, STEP>(to, from, left);
}
// four 8 x 8 matrices of 2-byte elements, a row of which begins BYTE bytes along its swizzled row in shared memory from `at`,
// and OFFSET bytes further on
template <int BYTE, int OFFSET>
static __device__ __forceinline__ void ldmatrix4(unsigned int& to0, unsigned int& to1, unsigned int& to2, unsigned int& to3, unsigned int at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4+%5];"
               : "=r"(to0), "=r"(to1), "=r"(to2), "=r"(to3) : "r"(at ^ (BYTE & 96)), "n"((BYTE & ~127) + OFFSET) : "memory");
}
// the blocks of COUNT x 16 x 16 elements, each ALONG bytes further along the row and DOWN bytes further on
template <int COUNT, int ALONG, int DOWN, int BYTE, int OFFSET, int I = 0, int SIZE>
static __device__ __forceinline__ void ldmatrix_blocks(unsigned int (&to)[SIZE][4], unsigned int at) {
  ldmatrix4<BYTE + I * ALONG, OFFSET + I * DOWN>(to[I][0], to[I][1], to[I][2], to[I][3], at);
  if constexpr (I + 1 < COUNT) ldmatrix_blocks<COUNT, ALONG, DOWN, BYTE, OFFSET, I + 1>(to, at);
}
// x, which would be put together again from its parts wherever something is added to it
template <typename T>
static __device__ __forceinline__ const T* in_registers(const T* x) {
  const T* same;
  asm volatile("mov.b64 %0, %1;" : "=l"(same) : "l"(x));
  return same;
}
// sums += a * b, 16 x 8 x 16; volatile, so that it stays where all lanes come
static __device__ __forceinline__ void mma_fp16(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// sums += a * b; block columns are walked to and fro, so that operands are used twice in a row
template <int ROWS, int COLUMNS, int PAIRS>
static __device__ __forceinline__ void multiply_fp16(float (&sums)[ROWS][COLUMNS][4], const unsigned int (&a)[ROWS][4], const unsigned int (&b)[PAIRS][4]) {
  #pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    #pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
      const int column = i % 2 ? COLUMNS - 1 - j : j, half = column % 2 * 2;
      mma_fp16(sums[i][column], a[i], b[column / 2][half], b[column / 2][half + 1]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(128, 1) kernel_df851cdad1d2(
    const unsigned short* __restrict__ in0,
    const unsigned short* __restrict__ in1,
    const float* __restrict__ in2,
    unsigned short* __restrict__ out0) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_m = warp / 2, warp_n = warp % 2;
  const int tile_n = (int)blockIdx.x;
  const int tile_m = (int)blockIdx.y;
  const int m0 = tile_m * 64, n0 = tile_n * 64;
  // a: m x k, 64 x 32 of in0, 16 bytes at a time
  const int a_row = threadIdx.x / 4, a_column = threadIdx.x % 4 * 8;
  const unsigned int a_to = shared_address(swizzled<64>(a_row, a_column * 2));
  int a_from[2];
  int a_guard0[2];
  int a_guard1[2];
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int i2 = (m0 + a_row + i * 32) % 14;
    const int i1 = (m0 + a_row + i * 32) / 14 % 14;
    const int i0 = (m0 + a_row + i * 32) / 14 / 14;
    a_from[i] = 6272 * i0 + 448 * i1 + 32 * i2 - 480;
    a_guard0[i] = i2 - 1;
    a_guard1[i] = i1 - 1;
  }
  auto copy_a = [&](int tile, int slot) {
    const int r0 = (tile * 32 + a_column) % 32;
    const int r2 = (tile * 32 + a_column) / 32 % 3;
    const int r1 = (tile * 32 + a_column) / 32 / 3;
    const int deep = r0 + 448 * r1 + 32 * r2;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      copy16(a_to + slot + i * 2048, in0 + (a_from[i] + deep), m0 + a_row + i * 32 < 392 && (unsigned int)(a_guard0[i] + r2) < 14u && (unsigned int)(a_guard1[i] + r1) < 14u);
    }
  };
  // b: n x k, 64 x 32 of in1, 16 bytes at a time
  const int b_row = threadIdx.x / 4, b_column = threadIdx.x % 4 * 8;
  const unsigned int b_to = shared_address(12288 + swizzled<64>(b_row, b_column * 2));
  const unsigned short* const b_from = in_registers(in1 + (n0 + b_row) * 288 + b_column);
  auto copy_b = [&](int tile, int slot) {
    const int left = 40 - n0 - b_row;  // rows from this thread's first on
    copy16_rows<2, 2048, 18432, 32>(b_to + slot, b_from + tile * 32, left);
  };
  // the sums of this warp, 32 x 32, and operands of 2 steps of 16 points of k
  float acc[2][4][4] = {};
  unsigned int a[2][2][4], b[2][2][4];
  const unsigned int a_at = shared_address(swizzled<64>(warp_m * 32 + lane / 8 % 2 * 8 + lane % 8, (lane / 16 * 8) * 2));
  const unsigned int b_at = shared_address(12288 + swizzled<64>(warp_n * 32 + lane / 16 * 8 + lane % 8, (lane / 8 % 2 * 8) * 2));
  // 9 tiles of k, in 3 slots of shared memory
  copy_a(0, 0);
  copy_b(0, 0);
  commit_copies();
  copy_a(1, 4096);
  copy_b(1, 4096);
  commit_copies();
  wait_copies<1>();
  __syncthreads();
  ldmatrix_blocks<2, 0, 1024, 0, 0>(a[0], a_at);
  ldmatrix_blocks<2, 0, 1024, 0, 0>(b[0], b_at);
  int slot0 = 0, slot1 = 1, slot2 = 2;  // of tiles k, k + 1, k + 2
  #pragma unroll 1
  for (int k = 0; k < 9; ++k) {
    ldmatrix_blocks<2, 0, 1024, 32, 0>(a[1], a_at + slot0 * 4096);
    ldmatrix_blocks<2, 0, 1024, 32, 0>(b[1], b_at + slot0 * 4096);
    if (k + 2 < 9) {
      copy_a(k + 2, slot2 * 4096);
      copy_b(k + 2, slot2 * 4096);
    }
    commit_copies();
    multiply_fp16(acc, a[0], b[0]);
    wait_copies<1>();
    __syncthreads();
    if (k + 1 < 9) {
      ldmatrix_blocks<2, 0, 1024, 0, 0>(a[0], a_at + slot1 * 4096);
      ldmatrix_blocks<2, 0, 1024, 0, 0>(b[0], b_at + slot1 * 4096);
    }
    multiply_fp16(acc, a[1], b[1]);
    slot0 = slot0 == 2 ? 0 : slot0 + 1;
    slot1 = slot1 == 2 ? 0 : slot1 + 1;
    slot2 = slot2 == 2 ? 0 : slot2 + 1;
  }
  // the sums of this warp, 16 rows at a time, as runs of a row
  float* const slab = (float*)(shared + 24576 + warp * 2560);
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    __syncwarp();
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      float* to = slab + lane / 4 * 40 + j * 8 + lane % 4 * 2;
      *(float2*)to = make_float2(acc[i][j][0], acc[i][j][1]);
      *(float2*)(to + 320) = make_float2(acc[i][j][2], acc[i][j][3]);
    }
    __syncwarp();
    #pragma unroll
    for (int e = lane; e < 64; e += 32) {
      const int m = m0 + warp_m * 32 + i * 16 + e / 4;
      const int n = n0 + warp_n * 32 + e % 4 * 8;
      const Vector<float, 8> sums = read_row<8>(slab + e / 4 * 40 + e % 4 * 8);
      if (m < 392 && n < 40) {
        const int i2 = m % 14;
        const int i1 = m / 14 % 14;
        const int i0 = m / 14 / 14;
        const int i3 = n;
        const int at = 7840 * i0 + i3 + 560 * i1 + 40 * i2;
        unsigned int v11_words[8];
        load16(v11_words, in2 + i3);
        unsigned int out0_words[4] = {};
        #pragma unroll
        for (int u = 0; u < 8; ++u) {
          const float v11 = __uint_as_float(v11_words[u]);
          const float v12 = sums.at[u] + v11;
          const float v13 = maximum(v12, 0.0f);
          const float v14 = v13;
          out0_words[u / 2] |= (unsigned int)to_fp16(v14) << u % 2 * 16;
        }
        store16(out0 + at, out0_words);
      }
    }
  }
}
