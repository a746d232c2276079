"""Vectors in memory: 16 bytes or fewer with one access. In registers they are words of four bytes until their elements are
needed, so that what a thread keeps of a row of fp16 takes half the registers."""

from __future__ import annotations

from collections.abc import Mapping

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, FloorDiv, lit
from tinyc.ir.region import MemRef

from .scalar import LOAD, STORE

ACCESS = 16
"""Bytes of the widest access."""

WORD = {4: "unsigned int", 2: "unsigned short", 1: "unsigned char"}
"""Types of as many bytes that hold the bits of an element."""


def words(dtype: DType, width: int) -> int:
    """Words that hold ``width`` elements."""
    return -(-dtype.itemsize * width // 4)


def piece(ref: MemRef, index_map: tuple[Affine, ...], axis: str, width: int, sizes: Mapping[str, int]) -> int:
    """How many of ``width`` elements along ``axis`` one access reads, if the first is at a multiple of ``width``: a power of
    two; 0 where they are read one by one."""
    position, together, stride = lit(0), width, ref.elements
    for expression, size in zip(index_map, ref.shape, strict=True):
        stride //= size
        low, high = expression.bounds(sizes)
        if low >= 0 and high < size:
            position = position + expression * stride
        elif axis in expression.axes():
            return 0  # some of the elements may lie outside
        else:
            together = _common(together, stride)
    for coef, atom in position.terms:
        if atom == axis:
            if coef != 1:
                return 0
            continue
        if isinstance(atom, FloorDiv) and axis in atom.num.axes():
            return 0
        together = _common(together, coef)
    if not any(atom == axis for _, atom in position.terms):
        return 0
    return accessed(ref, _common(together, position.const), width)


def accessed(ref: MemRef, together: int, width: int) -> int:
    """Elements of one access, of ``together`` that lie aligned to as many; 0 where an access has less than a word."""
    size = ref.dtype.itemsize
    while together * size > min(ACCESS, ref.alignment):
        together //= 2
    whole = together == width and together * size == 2
    return together if together * size >= 4 or whole else 0


def _common(width: int, steps: int) -> int:
    """The largest power of two that divides both."""
    while steps % width:
        width //= 2
    return width


def element(dtype: DType, array: str) -> str:
    """The value of element ``u`` of the words ``array``."""
    match dtype:
        case DType.FP32:
            return f"__uint_as_float({array}[u])"
        case DType.I32:
            return f"(int){array}[u]"
        case DType.BOOL:
            return f"({array}[u / 4] >> u % 4 * 8 & 255) != 0"
    return f"{LOAD[dtype]}({array}[u / 2] >> u % 2 * 16)"


def put(dtype: DType, array: str, value: str) -> str:
    """Writes ``value`` as element ``u`` of the words ``array``, which are 0 before."""
    match dtype:
        case DType.FP32:
            return f"{array}[u] = __float_as_uint({value});"
        case DType.I32:
            return f"{array}[u] = (unsigned int)({value});"
        case DType.BOOL:
            return f"{array}[u / 4] |= (unsigned int)({value}) << u % 4 * 8;"
    return f"{array}[u / 2] |= (unsigned int){STORE[dtype]}({value}) << u % 2 * 16;"
