"""Small functions that generated kernels call. A source holds those that it uses, so that it includes no header.

Here are those of single values and of accesses to memory; ``tile_library.py`` has those of tiles."""

from __future__ import annotations

from collections.abc import Collection

from .tile_library import HEAD, TILE_FUNCTIONS, Functions

_VALUE_FUNCTIONS: Functions = {
    "from_fp16": (
        (),
        f"""{HEAD} float from_fp16(unsigned short bits) {{
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}}
""",
    ),
    "to_fp16": (
        (),
        f"""// the bits of the nearest fp16
{HEAD} unsigned short to_fp16(float value) {{
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}}
""",
    ),
    "round_fp16": (
        ("from_fp16", "to_fp16"),
        f"""// the nearest fp16, as fp32
{HEAD} float round_fp16(float value) {{ return from_fp16(to_fp16(value)); }}
""",
    ),
    "from_bf16": (
        (),
        f"""{HEAD} float from_bf16(unsigned short bits) {{ return __uint_as_float((unsigned int)bits << 16); }}
""",
    ),
    "to_bf16": (
        (),
        f"""// the bits of the nearest bf16
{HEAD} unsigned short to_bf16(float value) {{
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}}
""",
    ),
    "round_bf16": (
        ("from_bf16", "to_bf16"),
        f"""// the nearest bf16, as fp32
{HEAD} float round_bf16(float value) {{ return from_bf16(to_bf16(value)); }}
""",
    ),
    "tf32": (
        (),
        f"""// the nearest number with 10 bits of mantissa, ties away from zero
{HEAD} unsigned int tf32(float value) {{
  unsigned int bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}}
""",
    ),
    "round_tf32": (
        ("tf32",),
        f"""{HEAD} float round_tf32(float x) {{ return __uint_as_float(tf32(x)); }}
""",
    ),
    "maximum": (
        (),
        f"""// NaN where one of them is
{HEAD} float maximum(float x, float y) {{
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(x), "f"(y));
  return value;
}}
""",
    ),
    "minimum": (
        (),
        f"""// NaN where one of them is
{HEAD} float minimum(float x, float y) {{
  float value;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(x), "f"(y));
  return value;
}}
""",
    ),
    "load16": (
        (),
        f"""// vectors of 16 bytes
template <int Words>
{HEAD} void load16(unsigned int (&x)[Words], const void* from) {{
#pragma unroll
  for (int k = 0; k < Words; k += 4) {{
    const uint4 found = ((const uint4*)from)[k / 4];
    x[k] = found.x, x[k + 1] = found.y, x[k + 2] = found.z, x[k + 3] = found.w;
  }}
}}
""",
    ),
    "load8": (
        (),
        f"""template <int Words>
{HEAD} void load8(unsigned int (&x)[Words], const void* from) {{
#pragma unroll
  for (int k = 0; k < Words; k += 2) {{
    const uint2 found = ((const uint2*)from)[k / 2];
    x[k] = found.x, x[k + 1] = found.y;
  }}
}}
""",
    ),
    "load4": (
        (),
        f"""template <int Words>
{HEAD} void load4(unsigned int (&x)[Words], const void* from) {{
#pragma unroll
  for (int k = 0; k < Words; ++k) x[k] = ((const unsigned int*)from)[k];
}}
""",
    ),
    "load2": (
        (),
        f"""{HEAD} void load2(unsigned int (&x)[1], const void* from) {{ x[0] = *(const unsigned short*)from; }}
""",
    ),
    "load_some": (
        (),
        f"""// the first ``count`` elements of a vector
template <typename Element, int Words>
{HEAD} void load_some(unsigned int (&x)[Words], const Element* from, int count) {{
#pragma unroll
  for (int k = 0; k < Words; ++k) x[k] = 0;
#pragma unroll
  for (int u = 0; u < Words * 4 / (int)sizeof(Element); ++u)
    if (u < count) x[u * sizeof(Element) / 4] |= (unsigned int)from[u] << u * sizeof(Element) % 4 * 8;
}}
""",
    ),
    "store16": (
        (),
        f"""template <int Words>
{HEAD} void store16(void* to, const unsigned int (&x)[Words]) {{
#pragma unroll
  for (int k = 0; k < Words; k += 4) ((uint4*)to)[k / 4] = make_uint4(x[k], x[k + 1], x[k + 2], x[k + 3]);
}}
""",
    ),
    "keep16": (
        (),
        f"""// vectors of 16 bytes in shared memory, which the compiler would take apart
template <int Words>
{HEAD} void keep16(void* to, const unsigned int (&x)[Words]) {{
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
#pragma unroll
  for (int k = 0; k < Words; k += 4)
    asm volatile("st.shared.v4.u32 [%0], {{%1,%2,%3,%4}};"
                 :: "r"(at + k * 4), "r"(x[k]), "r"(x[k + 1]), "r"(x[k + 2]), "r"(x[k + 3]) : "memory");
}}
""",
    ),
    "store8": (
        (),
        f"""template <int Words>
{HEAD} void store8(void* to, const unsigned int (&x)[Words]) {{
#pragma unroll
  for (int k = 0; k < Words; k += 2) ((uint2*)to)[k / 2] = make_uint2(x[k], x[k + 1]);
}}
""",
    ),
    "store4": (
        (),
        f"""template <int Words>
{HEAD} void store4(void* to, const unsigned int (&x)[Words]) {{
#pragma unroll
  for (int k = 0; k < Words; ++k) ((unsigned int*)to)[k] = x[k];
}}
""",
    ),
    "store2": (
        (),
        f"""{HEAD} void store2(void* to, const unsigned int (&x)[1]) {{ *(unsigned short*)to = x[0]; }}
""",
    ),
    "store_some": (
        (),
        f"""template <typename Element, int Words>
{HEAD} void store_some(Element* to, const unsigned int (&x)[Words], int count) {{
#pragma unroll
  for (int u = 0; u < Words * 4 / (int)sizeof(Element); ++u)
    if (u < count) to[u] = x[u * sizeof(Element) / 4] >> u * sizeof(Element) % 4 * 8;
}}
""",
    ),
    "floor_div": (
        (),
        f"""// rounded down, for y > 0
template <typename Index>
{HEAD} Index floor_div(Index x, Index y) {{ return x / y - (x % y < 0); }}
""",
    ),
    "inside": (
        (),
        f"""// the nearest of 0 ... size - 1
template <typename Index>
{HEAD} Index inside(Index x, Index size) {{ return x < 0 ? 0 : x < size ? x : size - 1; }}
""",
    ),
    "vector": (
        (),
        """template <typename Element, int COUNT>
struct alignas(sizeof(Element) * COUNT < 16 ? sizeof(Element) * COUNT : 16) Vector {
  Element at[COUNT];
};
""",
    ),
    "read4_float": (
        (),
        f"""// 4 neighbours in shared memory
{HEAD} void read4(float* to, unsigned int at) {{
  asm volatile("ld.shared.v4.f32 {{%0,%1,%2,%3}}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(at) : "memory");
}}
""",
    ),
    "read4_int": (
        (),
        f"""// 4 neighbours in shared memory
{HEAD} void read4(int* to, unsigned int at) {{
  asm volatile("ld.shared.v4.s32 {{%0,%1,%2,%3}}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}}
""",
    ),
    "read_row": (
        ("vector",),
        f"""// COUNT neighbours in shared memory, 16 bytes at a time, which the compiler would take apart
template <int COUNT, typename Element>
{HEAD} Vector<Element, COUNT> read_row(const Element* from) {{
  Vector<Element, COUNT> row;
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(from);
  #pragma unroll
  for (int i = 0; i < COUNT; i += 4) read4(row.at + i, at + i * 4);
  return row;
}}
""",
    ),
}

_FUNCTIONS: Functions = {**_VALUE_FUNCTIONS, **TILE_FUNCTIONS}


def library(used: Collection[str]) -> str:
    """The text of the functions ``used`` and of all that they call, each after those that it calls."""
    needed = set(used)
    while more := set().union(*(_FUNCTIONS[name][0] for name in needed)) - needed:
        needed |= more
    return "".join(text for name, (_, text) in _FUNCTIONS.items() if name in needed)
