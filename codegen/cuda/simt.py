"""Products by the lanes themselves, for elements that the matrix units do not take: fp32 and i32.

A warp multiplies ``rows`` x ``columns`` points with 4 x 8 lanes. A lane has a row in every 4 and a column in every 8 where the operand's
rows lie along k in shared memory, and 4 neighbours in every 16 rows or 32 columns where they lie along its own axis (2 in every 16 where
a warp has no more): either way the 16 bytes that it loads at a time share no bank with another lane's, unless they are the same. One step is 4 points of k.
"""

from __future__ import annotations

from tinyc.ir.dtypes import DType

from ..gpu.ir import GpuKernel, Ring
from . import scalar
from .copies import place

LANES = (4, 8)
"""Of a warp, along m and n."""

DEPTH = 4
"""Points of k in one step: elements of 4 bytes that a lane loads together."""


def kind(dtype: DType) -> str:
    """The C++ type of a sum, and of what is multiplied."""
    return scalar.REGISTER[dtype]


def declarations(kernel: GpuKernel, buffers: int, dtype: DType) -> list[str]:
    """The sums, the operands of a step, where a lane's first are in slot 0 of a ring, and functions ``load_a(to, at, step)``,
    ``load_b`` and ``multiply(a, b)``."""
    rows, columns = _points(kernel)
    vector = f"Vector<{kind(dtype)}, {DEPTH}>"
    lines = [
        f"{kind(dtype)} acc[{rows}][{columns}] = {{}};",
        f"{vector} a[{buffers}][{rows}], b[{buffers}][{columns}];  // {DEPTH} points of k each",
    ]
    for side, ring in enumerate(kernel.rings):
        lines.append(f"const int {ring.name}_at = {_start(kernel, ring, side)};")
        count = (rows, columns)[side]
        lines += [f"auto load_{ring.name} = [&]({vector} (&to)[{count}], int at, int step) {{"]
        lines += [f"  {line}" for line in _load(ring, side, count, dtype)]
        lines += ["};"]
    return [*lines, *_multiply(kernel, dtype)]


def load(kernel: GpuKernel, ring: Ring, step: int, buffer: int, slot: str) -> list[str]:
    """The operands of ``step`` into ``buffer``. ``slot``: bytes from the ring's slot 0."""
    at = f"{ring.name}_at" + (f" + {slot}" if slot != "0" else "")
    return [f"load_{ring.name}({ring.name}[{buffer}], {at}, {step});"]


def multiply(kernel: GpuKernel, buffer: int, dtype: DType) -> str:
    """One step."""
    return f"multiply(a[{buffer}], b[{buffer}]);"


def _multiply(kernel: GpuKernel, dtype: DType) -> list[str]:
    """Function ``multiply(a, b)``: one step."""
    rows, columns = _points(kernel)
    vector = f"Vector<{kind(dtype)}, {DEPTH}>"
    x, y = "a[i].at[k]", "b[j].at[k]"
    if dtype is DType.I32:
        product = f"(int)((unsigned int)acc[i][j] + (unsigned int){x} * (unsigned int){y})"
    else:
        product = f"fmaf({x}, {y}, acc[i][j])"
    return [
        f"auto multiply = [&]({vector} (&a)[{rows}], {vector} (&b)[{columns}]) {{",
        "  #pragma unroll",
        f"  for (int k = 0; k < {DEPTH}; ++k) {{",
        "    #pragma unroll",
        f"    for (int i = 0; i < {rows}; ++i) {{",
        "      #pragma unroll",
        f"      for (int j = 0; j < {columns}; ++j) acc[i][j] = {product};",
        "    }",
        "  }",
        "};",
    ]


def stage(kernel: GpuKernel, pitch: int) -> list[str]:
    """The sums of 16 rows of the warp, the ``i``-th 16, to ``slab``, whose rows are ``pitch`` elements apart."""
    left, right = kernel.rings
    _, columns = _points(kernel)
    row = "lane / 8 * 4 + r" if left.turned else "r * 4 + lane / 8"
    near = min(4, columns)
    column = (
        f"j / {near} * {8 * near} + lane % 8 * {near} + j % {near}" if right.turned else "j * 8 + lane % 8"
    )
    return [
        "#pragma unroll",
        "for (int r = 0; r < 4; ++r) {",
        "  #pragma unroll",
        f"  for (int j = 0; j < {columns}; ++j) slab[({row}) * {pitch} + {column}] = acc[i * 4 + r][j];",
        "}",
    ]


def functions(kernel: GpuKernel, dtype: DType) -> set[str]:
    """Of the library."""
    return {"vector"}


def _points(kernel: GpuKernel) -> tuple[int, int]:
    """Of one lane."""
    return kernel.warp_tile[0] // LANES[0], kernel.warp_tile[1] // LANES[1]


def _start(kernel: GpuKernel, ring: Ring, side: int) -> str:
    part, warp, lane = (
        (kernel.warp_tile[0], "warp_m", "lane / 8"),
        (kernel.warp_tile[1], "warp_n", "lane % 8"),
    )[side]
    start = f"{kernel.start(ring)} + " if kernel.start(ring) else ""
    if ring.turned:
        return f"{start}({warp} * {part} + {lane} * {min(4, part // LANES[side])}) * {ring.dtype.itemsize}"
    return start + place(ring, f"{warp} * {part} + {lane}", "0")


def _load(ring: Ring, side: int, count: int, dtype: DType) -> list[str]:
    if ring.turned:
        near = min(4, count)  # neighbours
        apart = LANES[side] * near * ring.dtype.itemsize
        found = f"Vector<{kind(dtype)}, {near}>"
        return [
            "#pragma unroll",
            f"for (int k = 0; k < {DEPTH}; ++k) {{",
            "  #pragma unroll",
            f"  for (int i = 0; i < {count}; i += {near}) {{",
            f"    const int from = at + (step * {DEPTH} + k) * {ring.row_bytes} + i / {near} * {apart};",
            f"    const {found} found = *(const {found}*)(shared + from);",
            "    #pragma unroll",
            f"    for (int e = 0; e < {near}; ++e) to[i + e].at[k] = found.at[e];",
            "  }",
            "}",
        ]
    down = LANES[side]
    where = f"at + step * 16 + i * {down * ring.row_bytes}"
    if ring.swizzle:
        # the chunk changes place by the row: by that of the lane, which is in `at`, and by the i-th row's further bits
        rows = max(1, 128 // ring.row_bytes)
        chunks = min(8, ring.row_bytes // 16)
        turn = f"step * 16 & 127 ^ i * {down} / {rows} % {chunks} * 16" if down % 8 else "step * 16 & 127"
        where = f"(at ^ ({turn})) + (step * 16 & ~127) + i * {down * ring.row_bytes}"
    return [
        "#pragma unroll",
        f"for (int i = 0; i < {count}; ++i) to[i] = *(const Vector<{kind(dtype)}, {DEPTH}>*)(shared + {where});",
    ]
