"""Every instruction that NVRTC writes for all sorts of CUDA is known, unless it is memory or control."""

from __future__ import annotations

import re

import pytest

from tinyc.codegen.emulator.semantics import operation
from tinyc.codegen.emulator.semantics.tensor import matrices, multiplication
from tinyc.codegen.emulator.semantics.warp import collective
from tinyc.codegen.nvrtc import compile_ptx

FLOAT32 = r"""
extern "C" __global__ void functions(float* o, const float* x, const float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a = x[i], b = y[i], r = 0;
  r += expf(a) + exp2f(a) + logf(a) + log2f(a) + log1pf(a) + expm1f(a) + exp10f(a) + log10f(a) + powf(a, b);
  r += sinf(a) + cosf(b) + tanf(a) + tanhf(a) + sinhf(a) + coshf(a) + atanf(a) + asinf(a) + acosf(a) + atan2f(a, b);
  r += erff(a) + erfcf(a) + erfinvf(a) + normcdff(a) + lgammaf(a) + tgammaf(a) + sinpif(a);
  r += rsqrtf(a) + sqrtf(a) + cbrtf(a) + a / b + fmodf(a, b) + remainderf(a, b) + hypotf(a, b);
  r += roundf(a) + rintf(a) + floorf(a) + truncf(a) + ceilf(a) + nearbyintf(b) + lroundf(a) + llrintf(a);
  r += fminf(a, b) + fmaxf(a, b) + fabsf(a) + copysignf(a, b) + fdimf(a, b) + ldexpf(a, n) + fmaf(a, b, r);
  int e;
  r += frexpf(a, &e) + e + isnan(a) + isinf(b) + isfinite(a) + signbit(b);
  r += (a < b) + (a > b) + (a <= b) + (a >= b) + (a != b) + (a == b) + !(a < b) + !(a > b) + !(a <= b) + !(a >= b);
  r += __expf(a) + __logf(a) + __sinf(a) + __cosf(a) + __tanf(a) + __powf(a, b) + __fdividef(a, b);
  r += __frcp_rn(a) + __frcp_rz(a) + __fsqrt_rd(a) + __fdiv_ru(a, b) + __fadd_rz(a, b) + __fmul_ru(a, b);
  r += __fmaf_rd(a, b, r) + __saturatef(a) + __frsqrt_rn(a);
  r += __float2int_rn(a) + __float2uint_ru(a) + __float2ll_rd(a) + __float2ull_rn(a) + __float_as_int(a);
  r += __int2float_rz(e) + __ll2float_rn(e) + __uint2float_ru(e) + __ull2float_rd(e);
  o[i] = r;
}
"""
FLOAT64 = r"""
extern "C" __global__ void functions(double* o, const double* x, const double* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double a = x[i], b = y[i];
  double r = a * b + a / b - sqrt(a) + exp(a) + log(b) + pow(a, b) + sin(a) + tanh(b) + fmin(a, b) + fmax(a, b);
  r += floor(a) + rint(b) + round(a) + trunc(a) + fabs(b) + fma(a, b, a) + rsqrt(a) + erf(b) + fmod(a, b) + copysign(a, b);
  r += __dadd_rz(a, b) + __dmul_ru(a, b) + __fma_rd(a, b, r) + __ddiv_rz(a, b) + __dsqrt_ru(a) + __drcp_rn(a);
  r += (int)a + (long long)b + (unsigned)a + (unsigned long long)b + (float)a + __double2float_rz(b) + isnan(a);
  r += (double)n + (double)(unsigned)n + (double)(long long)r + __double2hiint(a);
  o[i] = r;
}
"""
INTEGER = r"""
extern "C" __global__ void functions(long long* o, const int* x, const unsigned* y, const long long* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int a = x[i];
  unsigned b = y[i];
  long long c = z[i];
  unsigned long long d = c;
  long long r = a / 7 + a % 7 + b / 10u + b % 10u + a / (n + 1) + b % (n + 3) + c / 9 + c % 13 + d / 11;
  r += c / (a + 1) + d % (b + 1) + a / 8 + a % 8 + b / 16;
  r += __ffs(a) + __clz(a) + __popc(b) + __brev(b) + __ffsll(c) + __clzll(c) + __popcll(d) + __brevll(d);
  r += __funnelshift_l(a, b, n) + __funnelshift_r(a, b, n) + __funnelshift_lc(a, b, n) + __byte_perm(a, b, n);
  r += __mulhi(a, n) + __umulhi(b, b) + __mul64hi(c, r) + __umul64hi(d, d) + __mul24(a, n) + __umul24(b, b);
  r += __sad(a, n, b) + __usad(b, b, 7) + __hadd(a, n) + __rhadd(a, n) + __dp4a(a, n, a) + __dp2a_lo(a, n, a);
  r += min(a, n) + max(a, n) + min(b, 7u) + max(c, r) + min(d, 4ull) + abs(a) + llabs(c);
  r += (a << n) + (a >> n) + (b >> n) + (c << n) + (c >> n) + (d >> n) + (a & n) + (a | n) + (a ^ n) + ~a + !a;
  r += ((a < n) && (b > 3u)) + ((a == n) || (c != 5)) + (short)a + (char)b + (unsigned char)a + (unsigned short)b;
  short s = a;
  unsigned short u = b;
  char q = a;
  bool p = a > 3;
  p ^= b > 5;
  r += s * u + (short)(s * s) + (s < q) + (u >> 3) + (s >> n) + q * 3 + p + s / 3 + u % 5 + q / 7;
  r += (long long)a * n + (unsigned long long)b * b + ((a >> 4) & 15) + ((b >> n) & 255);
  r += __vadd2(a, n) + __vmaxs2(a, n) + __vabsdiffu4(a, n) + __vsads2(a, n) + __vcmpgtu4(a, n) + __viaddmax_s32(a, n, 3);
  r += __vimin_s32_relu(a, n) + __viaddmin_s16x2_relu(a, n, a);
  r += __shfl_sync(~0u, a, 3) + __shfl_xor_sync(~0u, a, 4) + __shfl_up_sync(~0u, a, 1) + __shfl_down_sync(~0u, c, 2);
  r += __ballot_sync(~0u, a) + __any_sync(~0u, a) + __all_sync(~0u, a) + __activemask();
  r += __match_any_sync(~0u, a) + __match_all_sync(~0u, a, &n);
  r += __reduce_add_sync(~0u, a) + __reduce_max_sync(~0u, a) + __reduce_and_sync(~0u, b);
  __int128 w = (__int128)c * c + d;
  unsigned __int128 v = (unsigned __int128)d * d;
  v -= c;
  v += w;
  r += (long long)(w >> 64) + ((long long)(v >> 64) ^ (long long)v);
  o[i] = r;
}
"""
CASTS = """
#define CAST(A, B) extern "C" __global__ void A##_to_##B(B* o, const A* x) { o[threadIdx.x] = (B)x[threadIdx.x]; }
typedef signed char s8; typedef unsigned char u8; typedef short s16; typedef unsigned short u16;
typedef int s32; typedef unsigned u32; typedef long long s64; typedef unsigned long long u64;
typedef float f32; typedef double f64; typedef bool b1;
#define ROW(A) CAST(A, s8) CAST(A, u8) CAST(A, s16) CAST(A, u16) CAST(A, s32) CAST(A, u32) CAST(A, s64) CAST(A, u64) \\
  CAST(A, f32) CAST(A, f64) CAST(A, b1)
ROW(s8) ROW(u8) ROW(s16) ROW(u16) ROW(s32) ROW(u32) ROW(s64) ROW(u64) ROW(f32) ROW(f64) ROW(b1)
"""
HALF = r"""
#define H "h"
#define ONE(name, text, T, c) __device__ T name(T a, T b, T d) { T r; asm(text " %0, %1, %2, %3;" : "=" c(r) : c(a), c(b), c(d)); return r; }
#define TWO(name, text, T, c) __device__ T name(T a, T b) { T r; asm(text " %0, %1, %2;" : "=" c(r) : c(a), c(b)); return r; }
TWO(add, "add.f16", unsigned short, "h") TWO(mul, "mul.rn.f16", unsigned short, "h") TWO(min_, "min.f16", unsigned short, "h")
TWO(max2, "max.NaN.f16x2", unsigned, "r") TWO(max3, "max.bf16x2", unsigned, "r") ONE(fma1, "fma.rn.f16", unsigned short, "h")
ONE(fma2, "fma.rn.f16x2", unsigned, "r") ONE(fma3, "fma.rn.bf16x2", unsigned, "r") ONE(fma4, "fma.rn.relu.bf16x2", unsigned, "r")
extern "C" __global__ void halves(unsigned* o, const unsigned* x, const float* f) {
  unsigned a = x[0], b = x[1], r, s;
  unsigned short h;
  float g;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f[0]));
  asm("cvt.f32.f16 %0, %1;" : "=f"(g) : "h"(h));
  o[0] = add(h, a) + mul(h, b) + min_(h, a) + max2(a, b) + max3(a, b) + fma1(h, a, b) + fma2(a, b, a) + fma3(a, b, b) + g;
  o[1] = fma4(a, b, a);
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f[1]));
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(f[2]), "f"(f[3]));
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(s) : "f"(f[2]), "f"(f[3]));
  o[2] = r + s + h;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(f[4]));
  asm("ex2.approx.f16x2 %0, %1;" : "=r"(s) : "r"(a));
  o[3] = r + s;
  asm("tanh.approx.f32 %0, %1;" : "=f"(g) : "f"(f[5]));
  asm("{ .reg .pred p, q; setp.lt.and.f16x2 p|q, %1, %2, 1; selp.b32 %0, 1, 2, q; }" : "=r"(r) : "r"(a), "r"(b));
  asm("lop3.b32 %0, %1, %2, %1, 0xe8;" : "=r"(s) : "r"(a), "r"(b));
  o[4] = g + r + s;
}
"""
TENSOR = r"""
extern "C" __global__ void tensors(float* o, unsigned p) {
  unsigned a0, a1, a2, a3, b0, b1;
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3) : "r"(p));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(p));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(b0) : "r"(b1));
#define MMA(form) asm volatile("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
    : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  MMA("m16n8k16.row.col.f32.f16.f16.f32")
  MMA("m16n8k16.row.col.f32.bf16.bf16.f32")
  MMA("m16n8k8.row.col.f32.tf32.tf32.f32")
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" : : "r"(p), "r"(a0));
  o[threadIdx.x] = c0 + c1 + c2 + c3;
}
"""

#: what is the machine's: memory, control, synchronisation and addresses
MACHINE = {
    "ld",
    "st",
    "bra",
    "ret",
    "call",
    "cvta",
    "bar",
    "barrier",
    "brx",
    "exit",
    "trap",
    "atom",
    "red",
    "isspacep",
}
#: a statement: labels, a guard, and the instruction
STATEMENT = re.compile(r"(?:[$%\w]+:\s*)*(?:@!?[%\w]+\s+)?([a-z]\w*(?:\.[\w:]+)*)")


def instructions(ptx: str) -> set[str]:
    """The instructions in a PTX text, without their operands."""
    text = re.sub(r"//.*|\.loc.*|\.file.*", "", ptx)
    statements = (each.strip() for line in text.splitlines() for each in re.split(r"[;{}]", line))
    found = (STATEMENT.match(each) for each in statements)
    return {each.group(1) for each in found if each and "." in each.group(1)}


def known(instruction: str) -> bool:
    opcode, *modifiers = instruction.split(".")
    given = tuple(modifiers)
    if opcode == "mma":
        return multiplication(given) is not None
    return any(find(opcode, given) is not None for find in (operation, collective, matrices))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("source", "least"),
    [(FLOAT32, 80), (FLOAT64, 60), (INTEGER, 95), (CASTS, 35), (HALF, 25), (TENSOR, 6)],
    ids=["float32", "float64", "integer", "casts", "half", "tensor"],
)
def test_what_nvrtc_writes_is_known(source: str, least: int, arch: str) -> None:
    if source is TENSOR and arch == "sm_80":
        source = "\n".join(line for line in source.splitlines() if "stmatrix" not in line)
        least -= 1
    found = set()
    for options in (("--device-int128",), ("--device-int128", "--use_fast_math")):
        found |= instructions(compile_ptx(source, arch, options))
    mine = {each for each in found if each.split(".")[0] not in MACHINE}
    assert len(mine) >= least, sorted(mine)
    assert sorted(each for each in mine if not known(each)) == []
