"""Small functions of generated kernels that keep tiles in shared memory: swizzled places, copies, fragments, and products on matrix
units. PTX ISA, "cp.async", "ldmatrix", "mma"."""

from __future__ import annotations

from collections.abc import Mapping

HEAD = "static __device__ __forceinline__"

Functions = Mapping[str, tuple[tuple[str, ...], str]]
"""By name, the functions that each calls, which are before it, and its text."""


def _copies(size: int) -> Functions:
    """Of ``size`` bytes, 4, 8 or 16; those of 16 pass by the first-level cache."""
    name, cache = f"copy{size}", "cg" if size == 16 else "ca"
    one = f"""// {size} bytes from global to shared memory, TO and FROM bytes further on, some time before wait_copies
template <int TO = 0, int FROM = 0>
{HEAD} void {name}(unsigned int to, const void* from) {{
  asm volatile("cp.async.{cache}.shared.global [%0+%2], [%1+%3], {size};" :: "r"(to), "l"(from), "n"(TO), "n"(FROM) : "memory");
}}
// zeros unless `there`
template <int TO = 0, int FROM = 0>
{HEAD} void {name}(unsigned int to, const void* from, bool there) {{
  asm volatile("cp.async.{cache}.shared.global [%0+%3], [%1+%4], {size}, %2;"
               :: "r"(to), "l"(from), "r"(there ? {size} : 0), "n"(TO), "n"(FROM) : "memory");
}}
"""
    rows = f"""// number I, I + STEP, … of COUNT of them, each TO bytes further on in shared memory and FROM in global memory
template <int COUNT, int TO, int FROM, int I = 0, int STEP = 1>
{HEAD} void {name}_rows(unsigned int to, const void* from) {{
  {name}<I * TO, I * FROM>(to, from);
  if constexpr (I + STEP < COUNT) {name}_rows<COUNT, TO, FROM, I + STEP, STEP>(to, from);
}}
// zeros from row `left` on, where each is DOWN rows below the one before
template <int COUNT, int TO, int FROM, int DOWN, int I = 0, int STEP = 1>
{HEAD} void {name}_rows(unsigned int to, const void* from, int left) {{
  {name}<I * TO, I * FROM>(to, from, I * DOWN < left);
  if constexpr (I + STEP < COUNT) {name}_rows<COUNT, TO, FROM, DOWN, I + STEP, STEP>(to, from, left);
}}
"""
    return {name: ((), one), f"{name}_rows": ((name,), rows)}


TILE_FUNCTIONS: Functions = {
    "swizzled": (
        (),
        f"""// where byte `byte` of row `row` lies: chunks of 16 bytes change places by the row, so that 8 rows fill all banks
template <int ROW>
{HEAD} int swizzled(int row, int byte) {{
  constexpr int CHUNKS = ROW < 128 ? ROW / 16 : 8, ROWS = ROW < 128 ? 128 / ROW : 1;
  return row * ROW + (byte ^ row / ROWS % CHUNKS * 16);
}}
""",
    ),
    "swizzled_pairs": (
        (),
        f"""// the same for words that lanes read one by one, 8 of each of 4 rows: pairs of chunks change places
template <int ROW>
{HEAD} int swizzled_pairs(int row, int byte) {{ return row * ROW + (byte ^ row % 4 * 32); }}
""",
    ),
    "shared_address": (
        (),
        f"""extern __shared__ __align__(128) unsigned char shared[];
// of byte `at` of the block's shared memory
{HEAD} unsigned int shared_address(int at) {{
  return (unsigned int)__cvta_generic_to_shared(shared) + at;
}}
""",
    ),
    "copy_groups": (
        (),
        f"""// what was copied since the last one is a group
{HEAD} void commit_copies() {{ asm volatile("cp.async.commit_group;" ::: "memory"); }}
// until all but the PENDING newest groups have arrived
template <int PENDING>
{HEAD} void wait_copies() {{ asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }}
""",
    ),
    **_copies(16),
    **_copies(8),
    **_copies(4),
    "ldmatrix4": (
        (),
        f"""// four 8 x 8 matrices of 2-byte elements, a row of which begins BYTE bytes along its swizzled row in shared memory from `at`,
// and OFFSET bytes further on
template <int BYTE, int OFFSET>
{HEAD} void ldmatrix4(unsigned int& to0, unsigned int& to1, unsigned int& to2, unsigned int& to3, unsigned int at) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0,%1,%2,%3}}, [%4+%5];"
               : "=r"(to0), "=r"(to1), "=r"(to2), "=r"(to3) : "r"(at ^ (BYTE & 96)), "n"((BYTE & ~127) + OFFSET) : "memory");
}}
// the blocks of COUNT x 16 x 16 elements, each ALONG bytes further along the row and DOWN bytes further on
template <int COUNT, int ALONG, int DOWN, int BYTE, int OFFSET, int I = 0, int SIZE>
{HEAD} void ldmatrix_blocks(unsigned int (&to)[SIZE][4], unsigned int at) {{
  ldmatrix4<BYTE + I * ALONG, OFFSET + I * DOWN>(to[I][0], to[I][1], to[I][2], to[I][3], at);
  if constexpr (I + 1 < COUNT) ldmatrix_blocks<COUNT, ALONG, DOWN, BYTE, OFFSET, I + 1>(to, at);
}}
""",
    ),
    "ldmatrix4_trans": (
        (),
        f"""// four 8 x 8 matrices of 2-byte elements, a row of which begins BYTE bytes along its swizzled row in shared memory from `at`,
// and OFFSET bytes further on
template <int BYTE, int OFFSET>
{HEAD} void ldmatrix4_trans(unsigned int& to0, unsigned int& to1, unsigned int& to2, unsigned int& to3, unsigned int at) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%0,%1,%2,%3}}, [%4+%5];"
               : "=r"(to0), "=r"(to1), "=r"(to2), "=r"(to3) : "r"(at ^ (BYTE & 96)), "n"((BYTE & ~127) + OFFSET) : "memory");
}}
// the blocks of COUNT x 16 x 16 elements, each ALONG bytes further along the row and DOWN bytes further on
template <int COUNT, int ALONG, int DOWN, int BYTE, int OFFSET, int I = 0, int SIZE>
{HEAD} void ldmatrix_blocks_trans(unsigned int (&to)[SIZE][4], unsigned int at) {{
  ldmatrix4_trans<BYTE + I * ALONG, OFFSET + I * DOWN>(to[I][0], to[I][1], to[I][2], to[I][3], at);
  if constexpr (I + 1 < COUNT) ldmatrix_blocks_trans<COUNT, ALONG, DOWN, BYTE, OFFSET, I + 1>(to, at);
}}
""",
    ),
    "ldmatrix2": (
        (),
        f"""// two of them
template <int BYTE, int OFFSET>
{HEAD} void ldmatrix2(unsigned int& to0, unsigned int& to1, unsigned int at) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%0,%1}}, [%2+%3];"
               : "=r"(to0), "=r"(to1) : "r"(at ^ (BYTE & 96)), "n"((BYTE & ~127) + OFFSET) : "memory");
}}
""",
    ),
    "ldmatrix2_trans": (
        (),
        f"""// two of them
template <int BYTE, int OFFSET>
{HEAD} void ldmatrix2_trans(unsigned int& to0, unsigned int& to1, unsigned int at) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%0,%1}}, [%2+%3];"
               : "=r"(to0), "=r"(to1) : "r"(at ^ (BYTE & 96)), "n"((BYTE & ~127) + OFFSET) : "memory");
}}
""",
    ),
    "load_words": (
        (),
        f"""// the words BYTE bytes along a row in shared memory from `at`, OFFSET bytes further on, and DEEP bytes further still
template <bool SWIZZLED, int DEEP, int OFFSET, int BYTE>
{HEAD} void load_word(unsigned int& to0, unsigned int& to1, unsigned int at) {{
  constexpr int TURN = SWIZZLED ? BYTE & 96 : 0, REST = OFFSET + BYTE - TURN;
  asm volatile("ld.shared.b32 %0, [%1+%2];" : "=r"(to0) : "r"(at ^ TURN), "n"(REST) : "memory");
  asm volatile("ld.shared.b32 %0, [%1+%2];" : "=r"(to1) : "r"(at ^ TURN), "n"(REST + DEEP) : "memory");
}}
// those of COUNT blocks of 16, half a block along the row in register NEAR, DEEP bytes further on in register FAR
template <bool SWIZZLED, int DEEP, int OFFSET, int NEAR, int FAR, int COUNT, int I = 0, int SIZE>
{HEAD} void load_words(unsigned int (&to)[SIZE][4], unsigned int at) {{
  load_word<SWIZZLED, DEEP, OFFSET, I * 64>(to[I][0], to[I][FAR], at);
  load_word<SWIZZLED, DEEP, OFFSET, I * 64 + 32>(to[I][NEAR], to[I][3], at);
  if constexpr (I + 1 < COUNT) load_words<SWIZZLED, DEEP, OFFSET, NEAR, FAR, COUNT, I + 1>(to, at);
}}
""",
    ),
    "opaque": (
        (),
        f"""// x, which the compiler does not know: it unrolls no loop that ends there
{HEAD} int opaque(int x) {{
  int same;
  asm volatile("mov.s32 %0, %1;" : "=r"(same) : "r"(x));
  return same;
}}
""",
    ),
    "in_registers": (
        (),
        f"""// x, which would be put together again from its parts wherever something is added to it
template <typename T>
{HEAD} const T* in_registers(const T* x) {{
  const T* same;
  asm volatile("mov.b64 %0, %1;" : "=l"(same) : "l"(x));
  return same;
}}
""",
    ),
    "row_places": (
        ("opaque",),
        f"""// of a swizzled row that begins at `row`: where it does, and where 32, 64 and 96 bytes along it are, kept in registers
{HEAD} void row_places(unsigned int (&at)[4], unsigned int row) {{
  #pragma unroll
  for (int k = 0; k < 4; ++k) at[k] = opaque(row ^ k * 32);
}}
""",
    ),
    **{
        f"ldmatrix_places{turned}": (
            (f"ldmatrix4{turned}", "row_places"),
            f"""// ldmatrix_blocks{turned} of a row whose places are known
template <int COUNT, int ALONG, int DOWN, int BYTE, int OFFSET, int I = 0, int SIZE>
{HEAD} void ldmatrix_blocks{turned}(unsigned int (&to)[SIZE][4], const unsigned int (&at)[4]) {{
  constexpr int ALL = BYTE + I * ALONG, REST = ALL % 128;
  ldmatrix4{turned}<ALL - REST, OFFSET + I * DOWN>(to[I][0], to[I][1], to[I][2], to[I][3], at[REST / 32]);
  if constexpr (I + 1 < COUNT) ldmatrix_blocks{turned}<COUNT, ALONG, DOWN, BYTE, OFFSET, I + 1>(to, at);
}}
""",
        )
        for turned in ("", "_trans")
    },
    "power_of_two": (
        (),
        f"""// within 2 units in the last place; results below 2^-126 are 0
{HEAD} float power_of_two(float x) {{
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}}
""",
    ),
    "pair_fp16": (
        (),
        f"""// two fp16, the first in the low half
{HEAD} unsigned int pair_fp16(float low, float high) {{
  unsigned int bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}}
""",
    ),
    "pair_bf16": (
        (),
        f"""// two bf16, the first in the low half
{HEAD} unsigned int pair_bf16(float low, float high) {{
  unsigned int bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}}
""",
    ),
    "mma_fp16": (
        (),
        f"""// sums += a * b, 16 x 8 x 16; volatile, so that it stays where all lanes come
{HEAD} void mma_fp16(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}}
""",
    ),
    "mma_bf16": (
        (),
        f"""// sums += a * b, 16 x 8 x 16; volatile, so that it stays where all lanes come
{HEAD} void mma_bf16(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}}
""",
    ),
    "mma_tf32": (
        (),
        f"""// sums += a * b, 16 x 8 x 8; volatile, so that it stays where all lanes come
{HEAD} void mma_tf32(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {{
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}}
""",
    ),
    "multiply_fp16": (
        ("mma_fp16",),
        f"""// sums += a * b; block columns are walked to and fro, so that operands are used twice in a row
template <int ROWS, int COLUMNS, int PAIRS>
{HEAD} void multiply_fp16(float (&sums)[ROWS][COLUMNS][4], const unsigned int (&a)[ROWS][4], const unsigned int (&b)[PAIRS][4]) {{
  #pragma unroll
  for (int i = 0; i < ROWS; ++i) {{
    #pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {{
      const int column = i % 2 ? COLUMNS - 1 - j : j, half = column % 2 * 2;
      mma_fp16(sums[i][column], a[i], b[column / 2][half], b[column / 2][half + 1]);
    }}
  }}
}}
""",
    ),
    "multiply_tf32": (
        ("mma_tf32", "tf32"),
        f"""// sums += a * b, rounded to tf32; block columns are walked to and fro, so that operands are used twice in a row
template <int ROWS, int COLUMNS, int PAIRS>
{HEAD} void multiply_tf32(float (&sums)[ROWS][COLUMNS][4], const unsigned int (&a)[ROWS][4], const unsigned int (&b)[PAIRS][4]) {{
  unsigned int x[ROWS][4], y[COLUMNS][2];
  #pragma unroll
  for (int i = 0; i < 4 * ROWS; ++i) x[i / 4][i % 4] = tf32(__uint_as_float(a[i / 4][i % 4]));
  #pragma unroll
  for (int j = 0; j < 2 * COLUMNS; ++j) y[j / 2][j % 2] = tf32(__uint_as_float(b[j / 4][j % 4]));
  #pragma unroll
  for (int i = 0; i < ROWS; ++i) {{
    #pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {{
      const int column = i % 2 ? COLUMNS - 1 - j : j;
      mma_tf32(sums[i][column], x[i], y[column][0], y[column][1]);
    }}
  }}
}}
""",
    ),
    "multiply_bf16": (
        ("mma_bf16",),
        f"""// sums += a * b; block columns are walked to and fro, so that operands are used twice in a row
template <int ROWS, int COLUMNS, int PAIRS>
{HEAD} void multiply_bf16(float (&sums)[ROWS][COLUMNS][4], const unsigned int (&a)[ROWS][4], const unsigned int (&b)[PAIRS][4]) {{
  #pragma unroll
  for (int i = 0; i < ROWS; ++i) {{
    #pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {{
      const int column = i % 2 ? COLUMNS - 1 - j : j, half = column % 2 * 2;
      mma_bf16(sums[i][column], a[i], b[column / 2][half], b[column / 2][half + 1]);
    }}
  }}
}}
""",
    ),
}
