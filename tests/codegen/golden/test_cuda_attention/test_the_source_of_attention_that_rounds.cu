// iters i0<2 i1<128 i2<64
// in0: fp16[2, 128, 64]
// in1: fp16[2, 128, 64]
// in2: fp16[2, 128, 64]
// %v0: fp16 = %in0[i0, i1, r0]
// %v1: fp16 = %in1[i0, r1, r0]
// %v2: fp32 = CAST %v0
// %v3: fp32 = CAST %v1
// %v4: fp32 = MUL %v2 %v3
// %v5: fp32 = SUM over r0<64: %v4
// %v6: bool = 0 <= i1-r1 < 128
// %v7: fp32 = -inf
// %v8: fp32 = WHERE %v6 %v5 %v7
// %v9: fp16 = %in2[i0, r1, i2]
// %v10: fp32 = CAST %v9
// %v11: fp32 = 1.4426950216293335
// %v12: fp32 = STREAM over r1<128: fp16(exp2(%v8 * %v11) / sum) * %v10
// %v13: fp16 = CAST %v12
// out0: fp16[2, 128, 64] = %v13

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
template <int Words>
static __device__ __forceinline__ void store16(void* to, const unsigned int (&x)[Words]) {
#pragma unroll
  for (int k = 0; k < Words; k += 4) ((uint4*)to)[k / 4] = make_uint4(x[k], x[k + 1], x[k + 2], x[k + 3]);
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
// x, which the compiler does not know: it unrolls no loop that ends there
static __device__ __forceinline__ int opaque(int x) {
  int same;
  asm volatile("mov.s32 %0, %1;" : "=r"(same) : "r"(x));
  return same;
}
// x, which would be put together again from its parts wherever something is added to it
template <typename T>
static __device__ __forceinline__ const T* in_registers(const T* x) {
  const T* same;
  asm volatile("mov.b64 %0, %1;" : "=l"(same) : "l"(x));
  return same;
}
// of a swizzled row that begins at `row`: where it does, and where 32, 64 and 96 bytes along it are, kept in registers
static __device__ __forceinline__ void row_places(unsigned int (&at)[4], unsigned int row) {
  #pragma unroll
  for (int k = 0; k < 4; ++k) at[k] = opaque(row ^ k * 32);
}
// ldmatrix_blocks of a row whose places are known
template <int COUNT, int ALONG, int DOWN, int BYTE, int OFFSET, int I = 0, int SIZE>
static __device__ __forceinline__ void ldmatrix_blocks(unsigned int (&to)[SIZE][4], const unsigned int (&at)[4]) {
  constexpr int ALL = BYTE + I * ALONG, REST = ALL % 128;
  ldmatrix4<ALL - REST, OFFSET + I * DOWN>(to[I][0], to[I][1], to[I][2], to[I][3], at[REST / 32]);
  if constexpr (I + 1 < COUNT) ldmatrix_blocks<COUNT, ALONG, DOWN, BYTE, OFFSET, I + 1>(to, at);
}
// ldmatrix_blocks_trans of a row whose places are known
template <int COUNT, int ALONG, int DOWN, int BYTE, int OFFSET, int I = 0, int SIZE>
static __device__ __forceinline__ void ldmatrix_blocks_trans(unsigned int (&to)[SIZE][4], const unsigned int (&at)[4]) {
  constexpr int ALL = BYTE + I * ALONG, REST = ALL % 128;
  ldmatrix4_trans<ALL - REST, OFFSET + I * DOWN>(to[I][0], to[I][1], to[I][2], to[I][3], at[REST / 32]);
  if constexpr (I + 1 < COUNT) ldmatrix_blocks_trans<COUNT, ALONG, DOWN, BYTE, OFFSET, I + 1>(to, at);
}
// within 2 units in the last place; results below 2^-126 are 0
static __device__ __forceinline__ float power_of_two(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
// two fp16, the first in the low half
static __device__ __forceinline__ unsigned int pair_fp16(float low, float high) {
  unsigned int bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
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

extern "C" __global__ void __launch_bounds__(128, 1) kernel_66496b755f2e(
    const unsigned short* __restrict__ in0,
    const unsigned short* __restrict__ in1,
    const unsigned short* __restrict__ in2,
    unsigned short* __restrict__ out0) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int m0 = (1 - (int)blockIdx.x % 2) * 64, batch = (int)blockIdx.x / 2;
  const int e0 = 0, d0 = 0;  // all of e and d are in a tile
  const int i0 = batch;
  // q: m x e, 64 x 64 of in0, 16 bytes at a time
  const int q_row = threadIdx.x / 8, q_column = threadIdx.x % 8 * 8;
  const unsigned int q_to = shared_address(swizzled<128>(q_row, q_column * 2));
  const unsigned short* const q_from = in_registers(in0 + 8192 * i0 + (m0 + q_row) * 64 + q_column);
  auto copy_q = [&](int tile, int slot) {
    copy16_rows<4, 2048, 2048>(q_to + slot, q_from + tile * 64);
  };
  // k: e x n, 64 x 64 of in1, 16 bytes at a time
  const int k_row = threadIdx.x / 8, k_column = threadIdx.x % 8 * 8;
  const unsigned int k_to = shared_address(8192 + swizzled<128>(k_row, k_column * 2));
  const unsigned short* const k_from = in_registers(in1 + 8192 * i0 + (e0 + k_column) + k_row * 64);
  auto copy_k = [&](int tile, int slot) {
    copy16_rows<4, 2048, 2048>(k_to + slot, k_from + tile * 4096);
  };
  // v: d x n, 64 x 64 of in2, 16 bytes at a time
  const int v_row = threadIdx.x / 8, v_column = threadIdx.x % 8 * 8;
  const unsigned int v_to = shared_address(16384 + swizzled<128>(v_row, v_column * 2));
  const unsigned short* const v_from = in_registers(in2 + 8192 * i0 + (d0 + v_column) + v_row * 64);
  auto copy_v = [&](int tile, int slot) {
    copy16_rows<4, 2048, 2048>(v_to + slot, v_from + tile * 4096);
  };
  float o[1][8][4] = {};  // sums of exponentials times v
  float top[1][2], total[1][2] = {};  // of rows lane / 4 and lane / 4 + 8 of a block
  #pragma unroll
  for (int i = 0; i < 1; ++i) top[i][0] = top[i][1] = __int_as_float(0xff800000);
  // where the rows of a fragment begin of which this lane has the addresses
  unsigned int q_at[4], k_at[4], v_at[4];
  row_places(q_at, shared_address(swizzled<128>(warp * 16 + lane / 8 % 2 * 8 + lane % 8, (lane / 16 * 8) * 2)));
  row_places(k_at, shared_address(8192 + swizzled<128>(lane / 16 * 8 + lane % 8, (lane / 8 % 2 * 8) * 2)));
  row_places(v_at, shared_address(16384 + swizzled<128>(lane / 8 % 2 * 8 + lane % 8, (lane / 16 * 8) * 2)));
  const int first = 0, last = opaque(min(2, (m0 + 127) / 64));  // tiles of n
  copy_q(0, 0);
  if (first < last) copy_k(first, first % 2 * 8192);
  commit_copies();
  // the keys alone: of each row the largest score, and what its exponentials are divided by
  for (int tile = first; tile < last; ++tile) {
    wait_copies<0>();  // for q[0] and keys[tile]
    __syncthreads();
    if (tile + 1 < last) copy_k(tile + 1, (tile + 1) % 2 * 8192);
    commit_copies();
    // scores: q times the keys, 16 points of e at a time
    float s[1][8][4] = {};
    const unsigned int keys_at[4] = {k_at[0] + tile % 2 * 8192, k_at[1] + tile % 2 * 8192, k_at[2] + tile % 2 * 8192, k_at[3] + tile % 2 * 8192};
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 0, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 0, 0>(b, keys_at);
      multiply_fp16(s, a, b);
    }
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 32, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 32, 0>(b, keys_at);
      multiply_fp16(s, a, b);
    }
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 64, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 64, 0>(b, keys_at);
      multiply_fp16(s, a, b);
    }
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 96, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 96, 0>(b, keys_at);
      multiply_fp16(s, a, b);
    }
    if (!(tile * 64 + 64 <= m0 + 1)) {  // some scores are left out
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int part = 0; part < 4; ++part) {
            const int m = m0 + warp * 16 + i * 16 + lane / 4 + part / 2 * 8;
            const int n = tile * 64 + j * 8 + lane % 4 * 2 + part % 2;
            const float sum = s[i][j][part];
            const int i1 = m;
            const int r1 = n;
            const bool v6 = i1 - r1 >= 0;
            const float v8 = v6 ? sum : __int_as_float(0xff800000);
            s[i][j][part] = v8;
          }
        }
      }
    }
    // the sum of exponentials, by the largest score so far; what was added up before fades to it
    #pragma unroll
    for (int i = 0; i < 1; ++i) {
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = top[i][half];
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          most = maximum(most, maximum(s[i][j][2 * half], s[i][j][2 * half + 1]));
        }
        most = maximum(most, __shfl_xor_sync(~0u, most, 1));
        most = maximum(most, __shfl_xor_sync(~0u, most, 2));
        const float base = most == __int_as_float(0xff800000) ? 0.0f : most;  // no score yet
        const float fade = power_of_two((top[i][half] - base) * 1.442695f);
        top[i][half] = most;
        total[i][half] *= fade;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int part = 2 * half; part < 2 * half + 2; ++part) {
            s[i][j][part] = power_of_two((s[i][j][part] - base) * 1.442695f);
            total[i][half] += s[i][j][part];
          }
        }
      }
    }
  }
  __syncthreads();
  if (first < last) copy_k(first, 0);
  commit_copies();
  float share[1][2];  // of the whole row, for an exponential of one
  #pragma unroll
  for (int i = 0; i < 1; ++i) {
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = total[i][half];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      share[i][half] = 1.0f / sum;
    }
  }
  // keys and values
  for (int tile = first; tile < last; ++tile) {
    wait_copies<0>();  // for q[0] and k[tile]
    __syncthreads();
    copy_v(tile, 0);
    commit_copies();
    // scores: q times the keys, 16 points of e at a time
    float s[1][8][4] = {};
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 0, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 0, 0>(b, k_at);
      multiply_fp16(s, a, b);
    }
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 32, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 32, 0>(b, k_at);
      multiply_fp16(s, a, b);
    }
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 64, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 64, 0>(b, k_at);
      multiply_fp16(s, a, b);
    }
    {
      unsigned int a[1][4], b[4][4];
      ldmatrix_blocks<1, 0, 2048, 96, 0>(a, q_at);
      ldmatrix_blocks<4, 0, 2048, 96, 0>(b, k_at);
      multiply_fp16(s, a, b);
    }
    if (!(tile * 64 + 64 <= m0 + 1)) {  // some scores are left out
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int part = 0; part < 4; ++part) {
            const int m = m0 + warp * 16 + i * 16 + lane / 4 + part / 2 * 8;
            const int n = tile * 64 + j * 8 + lane % 4 * 2 + part % 2;
            const float sum = s[i][j][part];
            const int i1 = m;
            const int r1 = n;
            const bool v6 = i1 - r1 >= 0;
            const float v8 = v6 ? sum : __int_as_float(0xff800000);
            s[i][j][part] = v8;
          }
        }
      }
    }
    wait_copies<0>();  // for v[tile]
    __syncthreads();
    if (tile + 1 < last) copy_k(tile + 1, 0);
    commit_copies();
    // probabilities: exponentials as shares of their row
    #pragma unroll
    for (int i = 0; i < 1; ++i) {
      #pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float base = top[i][half] == __int_as_float(0xff800000) ? 0.0f : top[i][half];
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int k = 2 * half; k < 2 * half + 2; ++k) {
            s[i][j][k] = power_of_two((s[i][j][k] - base) * 1.442695f) * share[i][half];
          }
        }
      }
    }
    // the sums: weights, from the registers that they are in, times the values, 16 columns at a time
    {
      unsigned int p[1][4], b[4][4];
      ldmatrix_blocks_trans<4, 32, 0, 0, 0>(b, v_at);
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        #pragma unroll
        for (int half = 0; half < 4; ++half) {
          const float* pair = &s[i][0 + half / 2][half % 2 * 2];
          p[i][half] = pair_fp16(pair[0], pair[1]);
        }
      }
      multiply_fp16(o, p, b);
    }
    {
      unsigned int p[1][4], b[4][4];
      ldmatrix_blocks_trans<4, 32, 0, 0, 2048>(b, v_at);
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        #pragma unroll
        for (int half = 0; half < 4; ++half) {
          const float* pair = &s[i][2 + half / 2][half % 2 * 2];
          p[i][half] = pair_fp16(pair[0], pair[1]);
        }
      }
      multiply_fp16(o, p, b);
    }
    {
      unsigned int p[1][4], b[4][4];
      ldmatrix_blocks_trans<4, 32, 0, 0, 4096>(b, v_at);
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        #pragma unroll
        for (int half = 0; half < 4; ++half) {
          const float* pair = &s[i][4 + half / 2][half % 2 * 2];
          p[i][half] = pair_fp16(pair[0], pair[1]);
        }
      }
      multiply_fp16(o, p, b);
    }
    {
      unsigned int p[1][4], b[4][4];
      ldmatrix_blocks_trans<4, 32, 0, 0, 6144>(b, v_at);
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        #pragma unroll
        for (int half = 0; half < 4; ++half) {
          const float* pair = &s[i][6 + half / 2][half % 2 * 2];
          p[i][half] = pair_fp16(pair[0], pair[1]);
        }
      }
      multiply_fp16(o, p, b);
    }
  }
  wait_copies<0>();  // for q[0]
  __syncthreads();
  // the sums of this warp, 16 rows at a time, as runs of a row
  float* const slab = (float*)(shared + warp * 4672);
  #pragma unroll
  for (int i = 0; i < 1; ++i) {
    __syncwarp();
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = total[i][half];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      // a row without any score is no number
      const float whole = top[i][half] == __int_as_float(0xff800000) ? __int_as_float(0x7fffffff) : 1.0f;
      const int row = lane / 4 + half * 8;
      if (lane % 4 == 0) slab[1152 + row] = sum * whole;
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        *(float2*)(slab + row * 72 + j * 8 + lane % 4 * 2) =
            make_float2(o[i][j][2 * half] * whole, o[i][j][2 * half + 1] * whole);
      }
    }
    __syncwarp();
    for (int e = lane; e < 128; e += 32) {
      const int row = e / 8, d = e % 8 * 8;
      const int m = m0 + warp * 16 + i * 16 + row;
      const Vector<float, 8> sums = read_row<8>(slab + row * 72 + d);
      const float row_total = slab[1152 + row];
      const int i1 = m;
      const int i2 = d;
      const int at = i2 + 8192 * i0 + 64 * i1;
      unsigned int out0_words[4] = {};
      #pragma unroll
      for (int u = 0; u < 8; ++u) {
        const float v13 = sums.at[u];
        out0_words[u / 2] |= (unsigned int)to_fp16(v13) << u % 2 * 16;
      }
      store16(out0 + at, out0_words);
    }
  }
}
