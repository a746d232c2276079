"""What the lanes of a warp hold of a tile for ``mma.sync`` m16n8k16, or m16n8k8 of tf32, and how it gets there (PTX ISA, "Matrix fragments
for mma.m16n8k16 with floating point type", "for mma.m16n8k8", and ldmatrix).

A warp multiplies blocks of 16 x 8 points, whose sums are ``acc[block row][block column][4]``. One ldmatrix.x4 loads the 16 x 16 elements of
a block row of a, or of two block columns of b: lane l gives the address of row l % 8 of the 8 x 8 matrix l / 8. A ring whose rows lie along
the operand's own axis is turned on the way (.trans).

An element of tf32 is two of two bytes, so that the same bytes are loaded in the same way; what is turned is loaded word by word, lane l
that of row l % 4 and column l / 4, and of the row 4 further down. Each is rounded before it is multiplied.
"""

from __future__ import annotations

from tinyc.ir.dtypes import DType
from tinyc.ir.units import UNITS

from ..gpu.ir import GpuKernel, Ring
from .copies import place

BLOCK = 16
"""Points of m, n and k of a block; of tf32 half as many of k."""


def declarations(kernel: GpuKernel, buffers: int, dtype: DType) -> list[str]:
    """The sums, the fragments, and ``a_at``, ``b_at``: where a lane's first row begins in slot 0 of a ring."""
    rows, columns = _blocks(kernel)
    return [
        f"float acc[{rows}][{columns}][4] = {{}};",
        f"unsigned int a[{buffers}][{rows}][4], b[{buffers}][{-(-columns // 2)}][4];",
        *(
            f"const unsigned int {ring.name}_at = shared_address({_start(kernel, ring)});"
            for ring in kernel.rings
        ),
    ]


def load(kernel: GpuKernel, ring: Ring, step: int, buffer: int, slot: str) -> list[str]:
    """The fragments of ``step`` into ``buffer``. ``slot``: bytes from the ring's slot 0."""
    left = ring is kernel.rings[0]
    rows, columns = _blocks(kernel)
    count = rows if left else columns // 2
    if ring.words:
        return _words(ring, left, count, columns, step, f"{ring.name}[{buffer}]", slot)
    down = BLOCK * ring.row_bytes
    byte, offset, along, below = (
        (0, step * down, 2 * BLOCK, 0) if ring.turned else (2 * BLOCK * step, 0, 0, down)
    )
    if not ring.swizzle:
        byte, offset, along, below = 0, byte + offset, 0, along + below
    turned = _turned(ring)
    at = f"{ring.name}_at" + (f" + {slot}" if slot != "0" else "")
    to = f"{ring.name}[{buffer}]"
    lines = []
    if count:
        lines += [f"ldmatrix_blocks{turned}<{count}, {along}, {below}, {byte}, {offset}>({to}, {at});"]
    if not left and columns % 2:
        last = f"{byte + count * along}, {offset + count * below}"
        lines += [f"ldmatrix2{turned}<{last}>({to}[{count}][0], {to}[{count}][1], {at});"]
    return lines


def _words(ring: Ring, left: bool, count: int, columns: int, step: int, to: str, slot: str) -> list[str]:
    """The same for rows of words along the operand's own axis."""
    at = f"{ring.name}_at" + (f" + {slot}" if slot != "0" else "")
    deep, offset = 4 * ring.row_bytes, 8 * step * ring.row_bytes
    how = f"{str(ring.swizzle).lower()}, {deep}, {offset}"
    lines = []
    if count:
        lines += [f"load_words<{how}, {'1, 2' if left else '2, 1'}, {count}>({to}, {at});"]
    if not left and columns % 2:
        lines += [f"load_word<{how}, {64 * count}>({to}[{count}][0], {to}[{count}][1], {at});"]
    return lines


def multiply(kernel: GpuKernel, buffer: int, dtype: DType) -> str:
    """One step."""
    return f"{_multiply(kernel)}(acc, a[{buffer}], b[{buffer}]);"


def _multiply(kernel: GpuKernel) -> str:
    left, _ = kernel.rings
    return "multiply_tf32" if UNITS[kernel.unit].arch != kernel.unit else f"multiply_{left.dtype}"


def stage(kernel: GpuKernel, pitch: int) -> list[str]:
    """The sums of block row ``i``, 16 rows of the warp, to ``slab``, whose rows are ``pitch`` floats apart."""
    _, columns = _blocks(kernel)
    return [
        "#pragma unroll",
        f"for (int j = 0; j < {columns}; ++j) {{",
        f"  float* to = slab + lane / 4 * {pitch} + j * 8 + lane % 4 * 2;",
        "  *(float2*)to = make_float2(acc[i][j][0], acc[i][j][1]);",
        f"  *(float2*)(to + {8 * pitch}) = make_float2(acc[i][j][2], acc[i][j][3]);",
        "}",
    ]


def functions(kernel: GpuKernel, dtype: DType) -> set[str]:
    """Of the library."""
    _, right = kernel.rings
    odd = {f"ldmatrix2{_turned(right)}"} if _blocks(kernel)[1] % 2 and not right.words else set()
    loads = {"load_words" if ring.words else f"ldmatrix4{_turned(ring)}" for ring in kernel.rings}
    return loads | odd | {_multiply(kernel)}


def _blocks(kernel: GpuKernel) -> tuple[int, int]:
    """Instructions of a warp, along m and n."""
    return kernel.warp_tile[0] // BLOCK, kernel.warp_tile[1] // 8


def _turned(ring: Ring) -> str:
    return "_trans" if ring.turned else ""


def _start(kernel: GpuKernel, ring: Ring) -> str:
    """Where the lane's row of its matrix begins. The two matrices along k of a are its third and fourth registers, of b its second and
    fourth."""
    left = ring is kernel.rings[0]
    part, warp = (kernel.warp_tile[0], "warp_m") if left else (kernel.warp_tile[1], "warp_n")
    near, far = "lane / 8 % 2 * 8", "lane / 16 * 8"
    own, deep = (near, far) if left else (far, near)
    start = kernel.start(ring)
    head = f"{start} + " if start else ""
    if ring.words:
        return head + place(ring, "lane % 4", f"({warp} * {part} + lane / 4) * 4")
    if ring.turned:
        return head + place(ring, f"{deep} + lane % 8", f"({warp} * {part} + {own}) * 2")
    return head + place(ring, f"{warp} * {part} + {own} + lane % 8", f"({deep}) * 2")
