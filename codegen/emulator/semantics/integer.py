"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic Instructions").

Everything wraps modulo the width of the type unless ``.sat`` says otherwise. What the ISA leaves open is chosen as follows, so
that it is at least the same everywhere: a division by zero gives all ones as quotient and the dividend as remainder, and the most
negative number divided by -1 gives itself, remainder 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .types import BITS, SIGNED, WIDTH, Array, Compute, Operation, numbers, packed, parse

WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
ARITHMETIC = ("u16", "u32", "u64", "s16", "s32", "s64")
PACKED = ("u16x2", "s16x2")

Function = Callable[..., Array]


def integer(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """The operation of an integer arithmetic instruction, None where it is no such instruction."""
    if opcode in ("add", "sub", "min", "max"):
        return _simple(opcode, modifiers)
    if opcode in ("addc", "subc") or (opcode in ("madc", "mad") and "cc" in modifiers) or opcode == "madc":
        return _carried(opcode, modifiers)
    if opcode in ("mul", "mad", "mul24", "mad24"):
        return _multiplied(opcode, modifiers)
    if opcode in ("div", "rem", "abs", "neg", "sad"):
        return _plain(opcode, modifiers)
    if opcode in ("dp4a", "dp2a"):
        return _dot(opcode, modifiers)
    return None


def _one(function: Function) -> Compute:
    return lambda *operands: (function(*operands),)


def _simple(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    if "cc" in modifiers:
        return _carried(opcode, modifiers)
    if modifiers[-1:] == ("relu",):  # the ISA's grammar has it before the type, NVRTC writes it behind
        modifiers = ("relu", *modifiers[:-1])
    found = parse(modifiers, sat=("sat",), relu=("relu",), type=(*ARITHMETIC, *PACKED))
    if found is None or not found["type"]:
        return None
    kind = found["type"]
    if found["sat"] and (opcode not in ("add", "sub") or kind != "s32"):
        return None
    if found["relu"] and (opcode not in ("min", "max") or kind not in ("s32", "s16x2")):
        return None
    element = kind.removesuffix("x2")
    compute: Compute
    if opcode in ("min", "max"):
        compute = _one(_extreme(opcode, element, bool(found["relu"])))
    elif found["sat"]:
        compute = _one(_saturated(opcode))
    else:
        compute = _one(np.add if opcode == "add" else np.subtract)
    if kind in PACKED:
        if opcode == "sub":
            return None
        compute = packed(compute)
    return Operation((kind,), (kind, kind), compute)


def _extreme(opcode: str, kind: str, relu: bool) -> Function:
    pick = np.minimum if opcode == "min" else np.maximum

    def compute(a: Array, b: Array) -> Array:
        value = pick(numbers(a, kind), numbers(b, kind))
        if relu:
            value = np.maximum(value, value.dtype.type(0))
        return value.view(a.dtype)

    return compute


def _saturated(opcode: str) -> Function:
    def compute(a: Array, b: Array) -> Array:
        wide, other = a.view(np.int32).astype(np.int64), b.view(np.int32).astype(np.int64)
        value = wide + other if opcode == "add" else wide - other
        return np.clip(value, -(2**31), 2**31 - 1).astype(np.int32).view(np.uint32)

    return compute


def _plain(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    signed_only = opcode in ("abs", "neg")
    found = parse(modifiers, type=ARITHMETIC if not signed_only else ("s16", "s32", "s64"))
    if found is None or not found["type"]:
        return None
    kind = found["type"]
    if opcode == "abs":
        return Operation((kind,), (kind,), lambda a: (np.abs(numbers(a, kind)).view(a.dtype),))
    if opcode == "neg":
        return Operation((kind,), (kind,), lambda a: (np.negative(a),))
    if opcode == "sad":
        return Operation((kind,), (kind,) * 3, lambda a, b, c: (_distance(a, b, kind) + c,))
    return Operation((kind,), (kind, kind), _one(_quotient(kind) if opcode == "div" else _remainder(kind)))


def _distance(a: Array, b: Array, kind: str) -> Array:
    """|a - b|, which fits in the width as an unsigned number."""
    return np.where(numbers(a, kind) < numbers(b, kind), b - a, a - b)


def _magnitudes(a: Array, b: Array, kind: str) -> tuple[Array, Array, Array, Array]:
    """|a| and |b| as unsigned numbers with a zero divisor replaced by 1, the sign of a, and whether the signs differ."""
    x, y = numbers(a, kind), numbers(b, kind)
    minus, other = x < 0, y < 0
    divisor = np.where(other, np.negative(b), b)
    divisor[b == 0] = 1
    return np.where(minus, np.negative(a), a), divisor, minus, minus != other


def _quotient(kind: str) -> Function:
    def compute(a: Array, b: Array) -> Array:
        x, y, _, differ = _magnitudes(np.atleast_1d(a), np.atleast_1d(b), kind)
        value = x // y
        value = np.where(differ, np.negative(value), value)
        value[np.atleast_1d(b) == 0] = np.iinfo(a.dtype).max
        return value.reshape(a.shape)

    return compute


def _remainder(kind: str) -> Function:
    def compute(a: Array, b: Array) -> Array:
        x, y, minus, _ = _magnitudes(np.atleast_1d(a), np.atleast_1d(b), kind)
        value = x % y
        value = np.where(minus, np.negative(value), value)
        return np.where(b == 0, a, value.reshape(a.shape))

    return compute


def high(a: Array, b: Array, kind: str) -> Array:
    """The upper half of the whole product of two numbers of type ``kind``, as bits of its width."""
    width = WIDTH[kind]
    if width < 64:
        return (wide(a, b, kind) >> BITS[2 * width].type(width)).astype(a.dtype)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    cross = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (cross & mask)
    value = a1 * b1 + (cross >> half) + (other >> half)
    if kind == "s64":  # a negative a stands for a - 2**64, which takes b from the upper half; and b likewise
        value = (
            value
            - np.where(a >> np.uint64(63), b, np.uint64(0))
            - np.where(b >> np.uint64(63), a, np.uint64(0))
        )
    return value


def wide(a: Array, b: Array, kind: str) -> Array:
    """The whole product of two numbers of 16 or 32 bits, as bits of twice the width."""
    width = 2 * WIDTH[kind]
    to = SIGNED[width] if kind[0] == "s" else BITS[width]
    return (numbers(a, kind).astype(to) * numbers(b, kind).astype(to)).view(BITS[width])


def _product24(kind: str, upper: bool) -> Function:
    def extend(x: Array) -> Array:
        if kind == "u32":
            return (x & np.uint32(0xFFFFFF)).astype(np.int64)
        return (x << np.uint32(8)).view(np.int32).astype(np.int64) >> 8

    def compute(a: Array, b: Array) -> Array:
        value = extend(a) * extend(b)
        return (value >> 16 if upper else value).astype(np.uint64).astype(np.uint32)

    return compute


def _multiplied(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    short = opcode in ("mul24", "mad24")
    found = parse(
        modifiers,
        part=("lo", "hi") if short else ("lo", "hi", "wide"),
        sat=("sat",),
        type=("u32", "s32") if short else ARITHMETIC,
    )
    if found is None or not found["type"] or not found["part"]:
        return None
    kind, part = found["type"], found["part"]
    if part == "wide" and kind not in WIDE:
        return None
    if found["sat"] and (opcode, part, kind) not in (("mad", "hi", "s32"), ("mad24", "hi", "s32")):
        return None
    result = WIDE[kind] if part == "wide" else kind
    product: Function
    if short:
        product = _product24(kind, part == "hi")
    elif part == "lo":
        product = np.multiply
    else:
        half = wide if part == "wide" else high
        product = lambda a, b: half(a, b, kind)  # noqa: E731
    if opcode.startswith("mul"):
        return Operation((result,), (kind, kind), _one(product))
    add = _saturated("add") if found["sat"] else np.add
    return Operation((result,), (kind, kind, result), lambda a, b, c: (add(product(a, b), c),))


def _carried(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """add.cc, addc, sub.cc, subc, mad.cc and madc: the carry is a predicate, the last operand and the last result.

    A subtraction's carry is its borrow: set where the difference is below zero.
    """
    multiplies = opcode.startswith("mad")
    found = parse(
        modifiers, part=("lo", "hi") if multiplies else (), cc=("cc",), type=("u32", "s32", "u64", "s64")
    )
    if found is None or not found["type"] or bool(found["part"]) != multiplies:
        return None
    kind, takes, gives = found["type"], opcode.endswith("c"), bool(found["cc"])
    product = np.multiply if found["part"] == "lo" else lambda a, b: high(a, b, kind)
    less = opcode.startswith("sub")

    def compute(*operands: Array) -> tuple[Array, ...]:
        x, y = (product(*operands[:2]), operands[2]) if multiplies else operands[:2]
        value = x - y if less else x + y
        carry = x < y if less else value < x
        if takes:
            one = operands[-1].astype(value.dtype)
            carry = carry | ((value < one) if less else ((value + one) < value))
            value = value - one if less else value + one
        return (value, carry) if gives else (value,)

    operands = (kind,) * (3 if multiplies else 2) + (("pred",) if takes else ())
    return Operation((kind, "pred") if gives else (kind,), operands, compute)


def _dot(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """dp4a: the sum of four products of bytes, and c; dp2a: of two 16-bit numbers with the lower or upper two bytes of b."""
    rest = modifiers
    part = ""
    if opcode == "dp2a":
        if not modifiers or modifiers[0] not in ("lo", "hi"):
            return None
        part, rest = modifiers[0], modifiers[1:]
    if len(rest) != 2 or any(kind not in ("u32", "s32") for kind in rest):
        return None
    left, right = rest
    result = "s32" if "s32" in rest else "u32"
    size = 8 if opcode == "dp4a" else 16

    def piece(x: Array, kind: str, width: int, index: int) -> Array:
        bits = (x >> np.uint32(width * index)).astype(BITS[width])
        return numbers(bits, f"{kind[0]}{width}").astype(np.int64)

    def compute(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        value = c.astype(np.int64)
        for index in range(32 // size):
            byte = index + (2 if part == "hi" else 0)
            value = value + piece(a, left, size, index) * piece(b, right, 8, byte)
        return (value.astype(np.uint64).astype(np.uint32),)

    return Operation((result,), (left, right, result), compute)
