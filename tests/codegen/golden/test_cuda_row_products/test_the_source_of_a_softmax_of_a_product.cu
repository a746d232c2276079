// iters i0<100 i1<96
// in0: fp16[100, 40]
// in1: fp16[40, 96]
// %v0: fp16 = %in0[i0, r0]
// %v1: fp16 = %in1[r0, i1]
// %v2: fp32 = CAST %v0
// %v3: fp32 = CAST %v1
// %v4: fp32 = MUL %v2 %v3
// %v5: fp32 = SUM over r0<40: %v4
// %v6: fp16 = CAST %v5
// %v7: bool = 1 <= -i0+i1 < 96
// %v8: fp16 = -1000.0
// %v9: fp16 = WHERE %v7 %v8 %v6
// %v10: fp16 = %in0[i0, r1]
// %v11: fp16 = %in1[r1, r2]
// %v12: fp32 = CAST %v10
// %v13: fp32 = CAST %v11
// %v14: fp32 = MUL %v12 %v13
// %v15: fp32 = SUM over r1<40: %v14
// %v16: fp16 = CAST %v15
// %v17: bool = 1 <= -i0+r2 < 96
// %v18: fp16 = -1000.0
// %v19: fp16 = WHERE %v17 %v18 %v16
// %v20: fp32 = CAST %v19
// %v21: fp32 = MAX over r2<96: %v20
// %v22: fp16 = %in0[i0, r3]
// %v23: fp16 = %in1[r3, r4]
// %v24: fp32 = CAST %v22
// %v25: fp32 = CAST %v23
// %v26: fp32 = MUL %v24 %v25
// %v27: fp32 = SUM over r3<40: %v26
// %v28: fp16 = CAST %v27
// %v29: bool = 1 <= -i0+r4 < 96
// %v30: fp16 = -1000.0
// %v31: fp16 = WHERE %v29 %v30 %v28
// %v32: fp32 = CAST %v31
// %v33: fp32 = SUB %v32 %v21
// %v34: fp32 = 1.4426950216293335
// %v35: fp32 = MUL %v33 %v34
// %v36: fp32 = EXP2 %v35
// %v37: fp32 = SUM over r4<96: %v36
// %v38: fp32 = CAST %v9
// %v39: fp32 = SUB %v38 %v21
// %v40: fp32 = 1.4426950216293335
// %v41: fp32 = MUL %v39 %v40
// %v42: fp32 = EXP2 %v41
// %v43: fp32 = FDIV %v42 %v37
// %v44: fp16 = CAST %v43
// out0: fp16[100, 96] = %v44

static __device__ __forceinline__ float from_fp16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
// the bits of the nearest fp16
static __device__ __forceinline__ unsigned short to_fp16(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
// the nearest fp16, as fp32
static __device__ __forceinline__ float round_fp16(float value) { return from_fp16(to_fp16(value)); }
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
// vectors of 16 bytes in shared memory, which the compiler would take apart
template <int Words>
static __device__ __forceinline__ void keep16(void* to, const unsigned int (&x)[Words]) {
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
#pragma unroll
  for (int k = 0; k < Words; k += 4)
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};"
                 :: "r"(at + k * 4), "r"(x[k]), "r"(x[k + 1]), "r"(x[k + 2]), "r"(x[k + 3]) : "memory");
}
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
// four 8 x 8 matrices of 2-byte elements, a row of which begins BYTE bytes along its swizzled row in shared memory from `at`,
// and OFFSET bytes further on
template <int BYTE, int OFFSET>
static __device__ __forceinline__ void ldmatrix4_trans(unsigned int& to0, unsigned int& to1, unsigned int& to2, unsigned int& to3, unsigned int at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4+%5];"
               : "=r"(to0), "=r"(to1), "=r"(to2), "=r"(to3) : "r"(at ^ (BYTE & 96)), "n"((BYTE & ~127) + OFFSET) : "memory");
}
// the blocks of COUNT x 16 x 16 elements, each ALONG bytes further along the row and DOWN bytes further on
template <int COUNT, int ALONG, int DOWN, int BYTE, int OFFSET, int I = 0, int SIZE>
static __device__ __forceinline__ void ldmatrix_blocks_trans(unsigned int (&to)[SIZE][4], unsigned int at) {
  ldmatrix4_trans<BYTE + I * ALONG, OFFSET + I * DOWN>(to[I][0], to[I][1], to[I][2], to[I][3], at);
  if constexpr (I + 1 < COUNT) ldmatrix_blocks_trans<COUNT, ALONG, DOWN, BYTE, OFFSET, I + 1>(to, at);
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

extern "C" __global__ void __launch_bounds__(128, 1) kernel_37ca3aa51cfd(
    const unsigned short* __restrict__ in0,
    const unsigned short* __restrict__ in1,
    unsigned short* __restrict__ out0) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_m = warp / 2, warp_n = warp % 2;
  const int tile_m = (int)blockIdx.y;
  const int m0 = tile_m * 64;
  // 64 rows of 96, which are reduced when all of their tiles are there
  unsigned short* const kept = (unsigned short*)(shared + 26624);
  // a: m x k, 64 x 32 of in0, 16 bytes at a time
  const int a_row = threadIdx.x / 4, a_column = threadIdx.x % 4 * 8;
  const unsigned int a_to = shared_address(swizzled<64>(a_row, a_column * 2));
  const unsigned short* const a_from = in_registers(in0 + (m0 + a_row) * 40 + a_column);
  auto copy_a = [&](int tile, int slot) {
    const int left = a_column < 40 - tile * 32 ? 100 - m0 - a_row : 0;  // rows from this thread's first on
    copy16_rows<2, 2048, 2560, 32>(a_to + slot, a_from + tile * 32, left);
  };
  for (int tile_n = 0; tile_n < 2; ++tile_n) {
    const int n0 = tile_n * 64;
    // b: n x k, 64 x 32 of in1, 16 bytes at a time
    const int b_row = threadIdx.x / 8, b_column = threadIdx.x % 8 * 8;
    const unsigned int b_to = shared_address(8192 + swizzled<128>(b_row, b_column * 2));
    const unsigned short* const b_from = in_registers(in1 + (n0 + b_column) + b_row * 96);
    auto copy_b = [&](int tile, int slot) {
      const int left = b_column < 96 - n0 ? 40 - tile * 32 - b_row : 0;  // rows from this thread's first on
      copy16_rows<2, 2048, 3072, 16>(b_to + slot, b_from + tile * 3072, left);
    };
    // the sums of this warp, 32 x 32, and operands of 2 steps of 16 points of k
    float acc[2][4][4] = {};
    unsigned int a[2][2][4], b[2][2][4];
    const unsigned int a_at = shared_address(swizzled<64>(warp_m * 32 + lane / 8 % 2 * 8 + lane % 8, (lane / 16 * 8) * 2));
    const unsigned int b_at = shared_address(8192 + swizzled<128>(lane / 8 % 2 * 8 + lane % 8, (warp_n * 32 + lane / 16 * 8) * 2));
    // 2 tiles of k, in 2 slots of shared memory
    __syncthreads();
    copy_a(0, 0);
    copy_b(0, 0);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    ldmatrix_blocks<2, 0, 1024, 0, 0>(a[0], a_at);
    ldmatrix_blocks_trans<2, 32, 0, 0, 0>(b[0], b_at);
    int slot0 = 0, slot1 = 1;  // of tiles k, k + 1
    #pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      ldmatrix_blocks<2, 0, 1024, 32, 0>(a[1], a_at + slot0 * 4096);
      ldmatrix_blocks_trans<2, 32, 0, 0, 2048>(b[1], b_at + slot0 * 4096);
      if (k + 1 < 2) {
        copy_a(k + 1, slot1 * 4096);
        copy_b(k + 1, slot1 * 4096);
      }
      commit_copies();
      multiply_fp16(acc, a[0], b[0]);
      wait_copies<0>();
      __syncthreads();
      if (k + 1 < 2) {
        ldmatrix_blocks<2, 0, 1024, 0, 0>(a[0], a_at + slot1 * 4096);
        ldmatrix_blocks_trans<2, 32, 0, 0, 0>(b[0], b_at + slot1 * 4096);
      }
      multiply_fp16(acc, a[1], b[1]);
      slot0 = slot0 == 1 ? 0 : slot0 + 1;
      slot1 = slot1 == 1 ? 0 : slot1 + 1;
    }
    // the sums of this warp, 16 rows at a time, as runs of a row
    float* const slab = (float*)(shared + 16384 + warp * 2560);
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
        if (m < 100 && n < 96) {
          const int i0 = m;
          const int i1 = n;
          const int at = (m - m0) * 96 + n;
          unsigned int kept_words[4] = {};
          #pragma unroll
          for (int u = 0; u < 8; ++u) {
            const float v6 = round_fp16(sums.at[u]);
            const bool v7 = -i0 + (i1 + u) >= 1;
            const float v9 = v7 ? (-1000.0f) : v6;
            kept_words[u / 2] |= (unsigned int)to_fp16(v9) << u % 2 * 16;
          }
          keep16(kept + at, kept_words);
        }
      }
    }
  }
  __syncthreads();
  // each row by 8 threads
  {
    const int lane = threadIdx.x % 8, team = threadIdx.x / 8, rows = min(64, 100 - m0);
    for (int first = 0; first < rows; first += 16) {
      const int own = first + team, row = min(own, rows - 1);
      const int i0 = (m0 + row);
      const auto* const kept_row = kept + row * 96;
      const int at = 96 * i0;
      float v3 = __int_as_float(0xff800000);
      float v2_kept[2][8];
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int e = s * 64 + lane * 8;
        if (e < 96) {
          const int r0 = e;
          unsigned int v1_words[4];
          load16(v1_words, kept_row + r0);
          #pragma unroll
          for (int u = 0; u < 8; ++u) {
            const float v1 = from_fp16(v1_words[u / 2] >> u % 2 * 16);
            const float v2 = v1;
            v2_kept[s][u] = v2;
            v3 = maximum(v3, v2);
          }
        }
      }
      // v3: what 8 threads had
      for (int step = 4; step >= 1; step >>= 1) v3 = maximum(v3, __shfl_xor_sync(~0u, v3, step));
      float v10 = 0.0f;
      float v9_kept[2][8];
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int e = s * 64 + lane * 8;
        if (e < 96) {
          const int r1 = e;
          #pragma unroll
          for (int u = 0; u < 8; ++u) {
            const float v6 = v2_kept[s][u] - v3;
            const float v8 = __fmul_rn(v6, 1.442695f);
            const float v9 = exp2f(v8);
            v9_kept[s][u] = v9;
            v10 = v10 + v9;
          }
        }
      }
      // v10: what 8 threads had
      for (int step = 4; step >= 1; step >>= 1) v10 = v10 + __shfl_xor_sync(~0u, v10, step);
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int e = s * 64 + lane * 8;
        if (e < 96) {
          const int i1 = e;
          unsigned int out0_words[4] = {};
          #pragma unroll
          for (int u = 0; u < 8; ++u) {
            const float v16 = v9_kept[s][u] / v10;
            const float v17 = v16;
            out0_words[u / 2] |= (unsigned int)to_fp16(v17) << u % 2 * 16;
          }
          if (own < rows) {
            store16(out0 + at + e, out0_words);
          }
        }
      }
    }
  }
}
