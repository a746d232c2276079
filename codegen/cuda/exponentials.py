"""From scores to exponentials, in the registers of the warp that owns their rows (Dao, FlashAttention-2, arXiv 2307.08691).

A lane has rows lane / 4 and lane / 4 + 8 of each of ``blocks`` blocks of 16 rows, and ``columns`` blocks of 8 columns: ``s[i][j][4]``, as the results of mma.sync lie.
``top`` is the largest score of a row so far, ``total`` the lane's part of the sum of its exponentials; ``scale`` is what scores are
multiplied with under the power of two.
"""

from __future__ import annotations

from tinyc.ir.dtypes import DType

from . import scalar


def softened(blocks: int, columns: int, wide: int, scale: str) -> list[str]:
    """From scores to exponentials; what the sums so far were multiplied with is exchanged for the new maximum. ``wide``: of
    the sums of values, 0 where there are none yet."""
    faded = [
        "    #pragma unroll",
        f"    for (int j = 0; j < {wide}; ++j) {{",
        "      o[i][j][2 * half] *= fade;",
        "      o[i][j][2 * half + 1] *= fade;",
        "    }",
    ]
    return [
        "#pragma unroll",
        f"for (int i = 0; i < {blocks}; ++i) {{",
        "  #pragma unroll",
        "  for (int half = 0; half < 2; ++half) {",
        "    float most = top[i][half];",
        "    #pragma unroll",
        f"    for (int j = 0; j < {columns}; ++j) {{",
        "      most = maximum(most, maximum(s[i][j][2 * half], s[i][j][2 * half + 1]));",
        "    }",
        "    most = maximum(most, __shfl_xor_sync(~0u, most, 1));",
        "    most = maximum(most, __shfl_xor_sync(~0u, most, 2));",
        f"    const float base = most == {scalar.neutral('MAX', DType.FP32)} ? 0.0f : most;  // no score yet",
        f"    const float fade = power_of_two((top[i][half] - base) * {scale});",
        "    top[i][half] = most;",
        "    total[i][half] *= fade;",
        *(faded if wide else ()),
        "    #pragma unroll",
        f"    for (int j = 0; j < {columns}; ++j) {{",
        "      #pragma unroll",
        "      for (int part = 2 * half; part < 2 * half + 2; ++part) {",
        f"        s[i][j][part] = power_of_two((s[i][j][part] - base) * {scale});",
        "        total[i][half] += s[i][j][part];",
        "      }",
        "    }",
        "  }",
        "}",
    ]


def shares(blocks: int) -> list[str]:
    """Of each row, what an exponential is multiplied with to be a share of their sum."""
    return [
        f"float share[{blocks}][2];  // of the whole row, for an exponential of one",
        "#pragma unroll",
        f"for (int i = 0; i < {blocks}; ++i) {{",
        "  #pragma unroll",
        "  for (int half = 0; half < 2; ++half) {",
        "    float sum = total[i][half];",
        "    sum += __shfl_xor_sync(~0u, sum, 1);",
        "    sum += __shfl_xor_sync(~0u, sum, 2);",
        "    share[i][half] = 1.0f / sum;",
        "  }",
        "}",
    ]


def divided(blocks: int, columns: int, scale: str) -> list[str]:
    """From scores to the probabilities that they are."""
    return [
        "#pragma unroll",
        f"for (int i = 0; i < {blocks}; ++i) {{",
        "  #pragma unroll",
        "  for (int half = 0; half < 2; ++half) {",
        f"    const float base = top[i][half] == {scalar.neutral('MAX', DType.FP32)} ? 0.0f : top[i][half];",
        "    #pragma unroll",
        f"    for (int j = 0; j < {columns}; ++j) {{",
        "      #pragma unroll",
        "      for (int k = 2 * half; k < 2 * half + 2; ++k) {",
        f"        s[i][j][k] = power_of_two((s[i][j][k] - base) * {scale}) * share[i][half];",
        "      }",
        "    }",
        "  }",
        "}",
    ]
