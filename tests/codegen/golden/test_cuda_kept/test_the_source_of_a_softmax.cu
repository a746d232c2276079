// iters i0<64 i1<1000
// in0: fp32[64000]
// %v0: fp32 = %in0[1000*i0+r0]
// %v1: fp32 = MAX over r0<1000: %v0
// %v2: fp32 = %in0[1000*i0+r1]
// %v3: fp32 = SUB %v2 %v1
// %v4: fp32 = CAST %v3
// %v5: fp32 = 1.4426950216293335
// %v6: fp32 = MUL %v4 %v5
// %v7: fp32 = EXP2 %v6
// %v8: fp32 = SUM over r1<1000: %v7
// %v9: fp32 = %in0[1000*i0+i1]
// %v10: fp32 = SUB %v9 %v1
// %v11: fp32 = CAST %v10
// %v12: fp32 = 1.4426950216293335
// %v13: fp32 = MUL %v11 %v12
// %v14: fp32 = EXP2 %v13
// %v15: fp32 = FDIV %v14 %v8
// %v16: fp32 = CAST %v15
// out0: fp32[64, 1000] = %v16

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

extern "C" __global__ void __launch_bounds__(32, 1) kernel_42d221c31119(
    const float* __restrict__ in0,
    float* __restrict__ out0) {
  const int lane = threadIdx.x % 32;
  const int t = (int)blockIdx.x;
  const int i0 = t;
  float v1 = __int_as_float(0xff800000);
  unsigned int v0_words[8][4];
  #pragma unroll
  for (int s = 0; s < 8; ++s) {
    const int e = s * 128 + lane * 4;
    if (e < 1000) {
      const int r0 = e;
      load16(v0_words[s], in0 + 1000 * i0 + r0);
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float v0 = __uint_as_float(v0_words[s][u]);
        v1 = maximum(v1, v0);
      }
    }
  }
  // v1: what 32 threads had
  for (int step = 16; step >= 1; step >>= 1) v1 = maximum(v1, __shfl_xor_sync(~0u, v1, step));
  float v8 = 0.0f;
  float v7_kept[8][4];
  #pragma unroll
  for (int s = 0; s < 8; ++s) {
    const int e = s * 128 + lane * 4;
    if (e < 1000) {
      const int r1 = e;
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float v2 = __uint_as_float(v0_words[s][u]);
        const float v3 = v2 - v1;
        const float v4 = v3;
        const float v6 = __fmul_rn(v4, 1.442695f);
        const float v7 = exp2f(v6);
        v7_kept[s][u] = v7;
        v8 = v8 + v7;
      }
    }
  }
  // v8: what 32 threads had
  for (int step = 16; step >= 1; step >>= 1) v8 = v8 + __shfl_xor_sync(~0u, v8, step);
  #pragma unroll
  for (int s = 0; s < 8; ++s) {
    const int e = s * 128 + lane * 4;
    if (e < 1000) {
      const int i1 = e;
      unsigned int out0_words[4] = {};
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float v15 = v7_kept[s][u] / v8;
        const float v16 = v15;
        out0_words[u] = __float_as_uint(v16);
      }
      store16(out0 + t * 1000 + e, out0_words);
    }
  }
}
