"""Matrix products of a warp, and the way of their operands to and from memory (PTX ISA, "Warp Level Matrix Multiply-Accumulate
Instructions": mma, ldmatrix, stmatrix, movmatrix).

Every function works on many warps at once: registers are uint32 of shape (warps, 32, registers of a lane).

**How sums are rounded.** The ISA leaves order and rounding of mma's sums open. Here the products are exact, they and ``c`` are
summed in float64, and that is rounded once to the type of ``d``, to nearest even: the sum that no order of additions errs in. The
tensor cores of real machines align the products to the largest and cut off low bits, and round towards zero, so that a float32
result may differ in its last bits, and a sum whose terms cancel in more. Integers are exact, and so is everything that float32
holds exactly at every step. Subnormal operands are kept; of a tf32 operand the lower 13 bits of the register are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from .fragments import Fragment, fragment_a, fragment_b, fragment_c, gathered, scattered
from .rounding import FORMATS, decoded, rounded
from .types import Array, parse

FLOAT_DEPTHS = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8)}
INTEGER_DEPTHS = (16, 32)
#: warps that are computed at a time, so that what lies between stays in the processor's cache
CHUNK = 32


@dataclass(frozen=True)
class Multiplication:
    """d = a b + c for a of 16 by ``k`` and b of ``k`` by 8 elements; ``a``, ``b`` and ``c`` are PTX's type names."""

    k: int
    a: str
    b: str
    c: str
    satfinite: bool

    @property
    def registers(self) -> tuple[int, int, int]:
        """How many registers of 32 bits a lane has for a, b, and for c and d."""
        left, right, sums = self.fragments
        return left.registers, right.registers, sums.registers

    @property
    def fragments(self) -> tuple[Fragment, Fragment, Fragment]:
        bits = 8 if self.a in ("s8", "u8") else 32 if self.a == "tf32" else 16
        return fragment_a(self.k, bits), fragment_b(self.k, bits), fragment_c(16 if self.c == "f16" else 32)


@cache
def multiplication(modifiers: tuple[str, ...]) -> Multiplication | None:
    """What an mma with these modifiers multiplies, None where it is not known: m16n8k4 to k32 of f16, bf16, tf32, s8 and u8."""
    found = parse(
        modifiers,
        sync=("sync",),
        aligned=("aligned",),
        shape=tuple(f"m16n8k{k}" for k in (4, 8, 16, 32)),
        row=("row",),
        column=("col",),
        satfinite=("satfinite",),
        d=("f16", "f32", "s32"),
        a=(*FLOAT_DEPTHS, "s8", "u8"),
        b=(*FLOAT_DEPTHS, "s8", "u8"),
        c=("f16", "f32", "s32"),
    )
    if found is None or not all(value for group, value in found.items() if group != "satfinite"):
        return None
    a, b, c, k = found["a"], found["b"], found["c"], int(found["shape"].removeprefix("m16n8k"))
    if found["d"] != c:
        return None
    if a in FLOAT_DEPTHS:
        if (
            a != b
            or k not in FLOAT_DEPTHS[a]
            or found["satfinite"]
            or c not in ("f32", "f16" if a == "f16" else "f32")
        ):
            return None
    elif b in FLOAT_DEPTHS or k not in INTEGER_DEPTHS or c != "s32":
        return None
    return Multiplication(k, a, b, c, bool(found["satfinite"]))


def mma(modifiers: tuple[str, ...], a: Array, b: Array, c: Array) -> Array:
    """d = a b + c of each warp, as registers like those of ``c``.

    Only for modifiers of which :func:`multiplication` knows what they are; for others the error is a ValueError.
    """
    what = multiplication(modifiers)
    if what is None:
        raise ValueError(f"mma.{'.'.join(modifiers)} is not known")
    if len(a) <= CHUNK:
        return _multiplied(what, a, b, c)
    parts = [slice(start, start + CHUNK) for start in range(0, len(a), CHUNK)]
    return np.concatenate([_multiplied(what, a[part], b[part], c[part]) for part in parts])


def _multiplied(what: Multiplication, a: Array, b: Array, c: Array) -> Array:
    left, right, sums = what.fragments
    x = elements(gathered(a, left, (16, what.k)), what.a)
    y = elements(gathered(b, right, (what.k, 8)), what.b)
    z = gathered(c, sums, (16, 8))
    with np.errstate(all="ignore"):
        product = np.matmul(x, y)
        if what.c == "s32":
            return scattered(_integers(product, z, what.satfinite), sums)
        bits = rounded((product + decoded(z, FORMATS[what.c]), None), FORMATS[what.c], "rn")
    return scattered(bits, sums)


def elements(bits: Array, kind: str) -> Array:
    """The elements of a matrix as float64, which holds all of them."""
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind in FORMATS:
        return decoded(bits, FORMATS[kind])
    return (bits.view(np.int8) if kind == "s8" else bits).astype(np.float64)


def _integers(product: Array, c: Array, satfinite: bool) -> Array:
    value = product.astype(np.int64) + c.view(np.int32)
    if satfinite:
        value = np.clip(value, -(2**31), 2**31 - 1)
    return value.astype(np.uint64).astype(np.uint32)


@dataclass(frozen=True)
class Matrices:
    """``count`` matrices of 8 by 8 elements of 16 bits, each in one register of all lanes; ``transposed`` between rows and lanes."""

    count: int
    transposed: bool


@cache
def matrices(opcode: str, modifiers: tuple[str, ...]) -> Matrices | None:
    """What an ldmatrix, stmatrix or movmatrix moves, None where it is not known."""
    if opcode not in ("ldmatrix", "stmatrix", "movmatrix"):
        return None
    found = parse(
        modifiers,
        sync=("sync",),
        aligned=("aligned",),
        shape=("m8n8",),
        count=("x1", "x2", "x4"),
        trans=("trans",),
        space=("shared", "shared::cta"),
        type=("b16",),
    )
    if found is None or not all(found[group] for group in ("sync", "aligned", "shape", "type")):
        return None
    moves = opcode == "movmatrix"
    if moves != (not found["count"]) or (moves and (found["space"] or not found["trans"])):
        return None
    return Matrices(int(found["count"][1:] or 1) if found["count"] else 1, bool(found["trans"]))


def _known(opcode: str, modifiers: tuple[str, ...]) -> Matrices:
    what = matrices(opcode, modifiers)
    if what is None:
        raise ValueError(f"{opcode}.{'.'.join(modifiers)} is not known")
    return what


def _turned(words: Array) -> Array:
    """Matrices of 8 by 8 elements as words of two, (..., 8, 4), transposed."""
    halves = np.ascontiguousarray(words).view("<u2")
    return np.ascontiguousarray(np.swapaxes(halves, -1, -2)).view("<u4")


def ldmatrix(modifiers: tuple[str, ...], rows: Array) -> Array:
    """The registers (warps, 32, count) of matrices whose rows are (warps, 8 count, 16) bytes, uint8.

    Rows come in the order of the lanes that give their addresses. Lane l gets the elements 2 (l % 4) and the next of row l // 4
    of each matrix; with ``.trans`` of its column. A ValueError is raised for modifiers that are not known.
    """
    what = _known("ldmatrix", modifiers)
    words = np.ascontiguousarray(rows).view("<u4").reshape(len(rows), what.count, 8, 4)
    words = _turned(words) if what.transposed else words
    return np.ascontiguousarray(words.reshape(len(rows), what.count, 32).swapaxes(1, 2))


def stmatrix(modifiers: tuple[str, ...], registers: Array) -> Array:
    """The rows (warps, 8 count, 16), uint8, of the matrices in registers (warps, 32, count): what ldmatrix undoes."""
    what = _known("stmatrix", modifiers)
    words = registers.swapaxes(1, 2).reshape(len(registers), what.count, 8, 4)
    words = _turned(words) if what.transposed else np.ascontiguousarray(words)
    return words.view(np.uint8).reshape(len(registers), 8 * what.count, 16)


def movmatrix(modifiers: tuple[str, ...], registers: Array) -> Array:
    """The registers (warps, 32) of the transposed matrix."""
    _known("movmatrix", modifiers)
    return _turned(registers.reshape(len(registers), 8, 4)).reshape(len(registers), 32)
