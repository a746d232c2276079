"""Bits: logic, shifts, fields, counts and selection of bytes (PTX ISA, "Logic and Shift Instructions", "Integer Arithmetic
Instructions" for fields and counts, "Data Movement" for mov and prmt)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .types import SIGNED, WIDTH, Array, Operation, numbers, parse

BINARY: dict[str, Callable[..., Array]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
MOVED = (
    "pred",
    *(f"{kind}{bits}" for bits in (16, 32, 64) for kind in "bus"),
    "f16",
    "bf16",
    "f32",
    "f64",
    "f16x2",
    "bf16x2",
)


def logic(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """The operation of an instruction on bits, None where it is no such instruction."""
    if opcode in ("lop3", "shf", "prmt", "bfind", "fns"):
        return _special(opcode, modifiers)
    if len(modifiers) != 1:
        return None
    (kind,) = modifiers
    if opcode == "mov" and kind in MOVED:
        return Operation((kind,), (kind,), lambda a: (a.copy(),))
    if opcode in ("and", "or", "xor", "not", "cnot") and kind in ("pred", "b16", "b32", "b64"):
        if opcode == "cnot":
            return (
                None if kind == "pred" else Operation((kind,), (kind,), lambda a: ((a == 0).astype(a.dtype),))
            )
        if opcode == "not":
            return Operation((kind,), (kind,), lambda a: (np.invert(a),))
        function = BINARY[opcode]
        return Operation((kind,), (kind, kind), lambda a, b: (function(a, b),))
    if opcode == "shl" and kind in ("b16", "b32", "b64"):
        return Operation((kind,), (kind, "u32"), lambda a, b: (shifted_left(a, b),))
    if opcode == "shr" and kind[1:] in ("16", "32", "64") and kind[0] in "bus":
        return Operation((kind,), (kind, "u32"), lambda a, b: (shifted_right(a, b, kind),))
    if opcode in ("popc", "clz", "brev") and kind in ("b32", "b64"):
        function = {"popc": population, "clz": leading_zeros, "brev": reversed_bits}[opcode]
        return Operation((kind if opcode == "brev" else "u32",), (kind,), lambda a: (function(a),))
    if opcode == "bfe" and kind in ("u32", "u64", "s32", "s64"):
        return Operation((kind,), (kind, "u32", "u32"), lambda a, b, c: (extracted(a, b, c, kind),))
    if opcode == "bfi" and kind in ("b32", "b64"):
        return Operation((kind,), (kind, kind, "u32", "u32"), lambda a, b, c, d: (inserted(a, b, c, d),))
    return None


def shifted_left(a: Array, count: Array) -> Array:
    """a << count; a count beyond the width shifts everything out."""
    width = 8 * a.dtype.itemsize
    return np.left_shift(a, np.minimum(count, width - 1).astype(a.dtype)) * (count < width)


def shifted_right(a: Array, count: Array, kind: str) -> Array:
    """a >> count; a count beyond the width leaves zeros, or copies of the sign for a signed type."""
    width = 8 * a.dtype.itemsize
    bounded = np.minimum(count, width - 1)
    if kind[0] == "s":
        return np.right_shift(numbers(a, kind), bounded.astype(SIGNED[width])).view(a.dtype)
    return np.right_shift(a, bounded.astype(a.dtype)) * (count < width)


def population(a: Array) -> Array:
    """The number of ones, uint32."""
    return np.bitwise_count(a).astype(np.uint32)


def _smeared(a: Array) -> Array:
    """a with a one in every place below its highest one."""
    step = 1
    while step < 8 * a.dtype.itemsize:
        a = a | (a >> a.dtype.type(step))
        step *= 2
    return a


def leading_zeros(a: Array) -> Array:
    """The number of zeros above the highest one, uint32; the width for zero."""
    return np.uint32(8 * a.dtype.itemsize) - population(_smeared(a))


def reversed_bits(a: Array) -> Array:
    """The bits in the opposite order."""
    width = 8 * a.dtype.itemsize
    for step, pattern in ((1, 0x55), (2, 0x33), (4, 0x0F)):
        mask = a.dtype.type(int.from_bytes(bytes([pattern]) * (width // 8), "little"))
        by = a.dtype.type(step)
        a = ((a & mask) << by) | ((a >> by) & mask)
    return a.byteswap()


def extracted(a: Array, start: Array, length: Array, kind: str) -> Array:
    """The field of ``length`` bits from ``start`` (each taken modulo 256), extended by the sign bit for a signed type.

    The sign is the field's highest bit, or that of ``a`` where the field ends beyond it; it fills what lies beyond.
    """
    width = WIDTH[kind]
    position, size = start & np.uint32(0xFF), length & np.uint32(0xFF)
    field = shifted_right(a, position, "b")
    bounded = np.minimum(size, width)
    mask = _mask(a, bounded)
    field = field & mask
    if kind[0] == "s":
        last = np.clip(position.astype(np.int64) + size - 1, 0, width - 1)
        sign = ((a >> last.astype(a.dtype)) & a.dtype.type(1)) * (size != 0)
        beyond = np.minimum(np.maximum(width - position.astype(np.int64), 0), bounded).astype(np.uint32)
        field = field | (np.negative(sign.astype(a.dtype)) & ~_mask(a, beyond))
    return field


def _mask(a: Array, size: Array) -> Array:
    """``size`` ones from bit 0 up, of the dtype of ``a``; ``size`` is at most the width."""
    return ~shifted_left(np.full_like(a, np.iinfo(a.dtype).max), size.astype(np.uint32))


def inserted(a: Array, b: Array, start: Array, length: Array) -> Array:
    """b with its field of ``length`` bits from ``start`` (each taken modulo 256) replaced by the lowest bits of a."""
    position, size = start & np.uint32(0xFF), length & np.uint32(0xFF)
    mask = shifted_left(_mask(a, np.minimum(size, 8 * a.dtype.itemsize)), position)
    return (b & ~mask) | (shifted_left(a, position) & mask)


def _special(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    if opcode == "lop3" and modifiers == ("b32",):
        return Operation(
            ("b32",), ("b32", "b32", "b32", "u32"), lambda a, b, c, table: (looked_up(a, b, c, table),)
        )
    if opcode == "shf":
        found = parse(modifiers, direction=("l", "r"), mode=("clamp", "wrap"), type=("b32",))
        if found is None or not all(found.values()):
            return None
        left, wraps = found["direction"] == "l", found["mode"] == "wrap"
        return Operation(("b32",), ("b32", "b32", "u32"), lambda a, b, c: (funnel(a, b, c, left, wraps),))
    if opcode == "bfind":
        found = parse(modifiers, amount=("shiftamt",), type=("u32", "u64", "s32", "s64"))
        if found is None or not found["type"]:
            return None
        kind, amount = found["type"], bool(found["amount"])
        return Operation(("u32",), (kind,), lambda a: (highest(a, kind, amount),))
    if opcode == "prmt":
        found = parse(modifiers, type=("b32",), mode=("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"))
        if found is None or not found["type"]:
            return None
        mode = found["mode"]
        return Operation(("b32",), ("b32", "b32", "b32"), lambda a, b, c: (permuted(a, b, c, mode),))
    return None


def looked_up(a: Array, b: Array, c: Array, table: Array) -> Array:
    """In each place the bit of ``table`` (8 bits) at 4 a + 2 b + c."""
    value = np.zeros_like(a)
    for row in range(8):
        term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        value = value | (term & np.negative((table >> np.uint32(row)) & np.uint32(1)))
    return value


def funnel(a: Array, b: Array, count: Array, left: bool, wraps: bool) -> Array:
    """32 bits of the 64 that are b above a, shifted: the upper ones after a left shift, the lower ones after a right one."""
    by = count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    if left:
        return ((both << by.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
    return (both >> by.astype(np.uint64)).astype(np.uint32)


def highest(a: Array, kind: str, amount: bool) -> Array:
    """The place of the highest bit that is no sign, 0xffffffff where there is none; with ``amount`` how far it is from the top."""
    width = WIDTH[kind]
    if kind[0] == "s":
        a = np.where(numbers(a, kind) < 0, ~a, a)
    zeros = leading_zeros(a)
    return np.where(zeros == width, np.uint32(0xFFFFFFFF), zeros if amount else np.uint32(width - 1) - zeros)


#: for each mode of prmt and each value of its selector the bytes taken, from the lowest; PTX ISA, tables of "prmt"
PERMUTATIONS: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def permuted(a: Array, b: Array, selector: Array, mode: str) -> Array:
    """Four bytes of the eight that are b above a; without a mode each by four bits of the selector, whose highest bit asks for
    copies of the byte's sign instead of the byte."""
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    value = np.zeros_like(a)
    table = np.array(PERMUTATIONS[mode], np.uint64) if mode else None
    for place in range(4):
        if table is not None:
            index = table[(selector & np.uint32(3)).astype(np.intp), place]
        else:
            index = ((selector >> np.uint32(4 * place)) & np.uint32(7)).astype(np.uint64)
        byte = ((both >> (index * np.uint64(8))) & np.uint64(0xFF)).astype(np.uint32)
        if table is None:
            replicate = (selector >> np.uint32(4 * place + 3)) & np.uint32(1)
            byte = np.where(replicate, (byte >> np.uint32(7)) * np.uint32(0xFF), byte)
        value = value | (byte << np.uint32(8 * place))
    return value
