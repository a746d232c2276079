"""Small functions that generated kernels call. A source holds those that it uses, so that it includes no header."""

from __future__ import annotations

from collections.abc import Collection

_HEAD = "static __device__ __forceinline__"

#: name -> the functions that it calls, and its text
_FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "from_fp16": (
        (),
        f"""{_HEAD} float from_fp16(unsigned short bits) {{
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}}
""",
    ),
    "to_fp16": (
        (),
        f"""{_HEAD} unsigned short to_fp16(float value) {{
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}}
""",
    ),
    "round_fp16": (
        ("from_fp16", "to_fp16"),
        f"""// the nearest fp16, as fp32
{_HEAD} float round_fp16(float value) {{ return from_fp16(to_fp16(value)); }}
""",
    ),
    "from_bf16": (
        (),
        f"""{_HEAD} float from_bf16(unsigned short bits) {{ return __uint_as_float((unsigned int)bits << 16); }}
""",
    ),
    "to_bf16": (
        (),
        f"""{_HEAD} unsigned short to_bf16(float value) {{
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}}
""",
    ),
    "round_bf16": (
        ("from_bf16", "to_bf16"),
        f"""// the nearest bf16, as fp32
{_HEAD} float round_bf16(float value) {{ return from_bf16(to_bf16(value)); }}
""",
    ),
    "maximum": (
        (),
        f"""// NaN where one of them is
{_HEAD} float maximum(float x, float y) {{
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(x), "f"(y));
  return value;
}}
""",
    ),
    "minimum": (
        (),
        f"""// NaN where one of them is
{_HEAD} float minimum(float x, float y) {{
  float value;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(x), "f"(y));
  return value;
}}
""",
    ),
    "floor_div": (
        (),
        f"""// rounded down, for y > 0
template <typename Index>
{_HEAD} Index floor_div(Index x, Index y) {{ return x / y - (x % y < 0); }}
""",
    ),
    "inside": (
        (),
        f"""// the nearest of 0 ... size - 1
template <typename Index>
{_HEAD} Index inside(Index x, Index size) {{ return x < 0 ? 0 : x < size ? x : size - 1; }}
""",
    ),
}


def library(used: Collection[str]) -> str:
    """The text of the functions ``used`` and of all that they call, each after those that it calls."""
    needed = set(used).union(*(_FUNCTIONS[name][0] for name in used))
    return "".join(text for name, (_, text) in _FUNCTIONS.items() if name in needed)
