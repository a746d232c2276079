"""Integer arithmetic against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from integers import KINDS, check, clamped, number, samples, width, wrapped

from tinyc.codegen.emulator.semantics import operation


@pytest.mark.parametrize("kind", KINDS)
def test_sums_products_and_extremes(kind: str) -> None:
    def n(bits: int) -> int:
        return number(bits, kind)

    check("add", (kind,), lambda a, b: wrapped(a + b, kind))
    check("sub", (kind,), lambda a, b: wrapped(a - b, kind))
    check("mul", ("lo", kind), lambda a, b: wrapped(a * b, kind))
    check("mul", ("hi", kind), lambda a, b: wrapped((n(a) * n(b)) >> width(kind), kind))
    check("mad", ("lo", kind), lambda a, b, c: wrapped(a * b + c, kind))
    check("mad", ("hi", kind), lambda a, b, c: wrapped(((n(a) * n(b)) >> width(kind)) + c, kind))
    check("min", (kind,), lambda a, b: a if n(a) < n(b) else b)
    check("max", (kind,), lambda a, b: a if n(a) > n(b) else b)
    check("sad", (kind,), lambda a, b, c: wrapped(abs(n(a) - n(b)) + c, kind))


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products(kind: str) -> None:
    double = f"{kind[0]}{2 * width(kind)}"
    check("mul", ("wide", kind), lambda a, b: wrapped(number(a, kind) * number(b, kind), double))
    check("mad", ("wide", kind), lambda a, b, c: wrapped(number(a, kind) * number(b, kind) + c, double))


def test_saturated_sums() -> None:
    check("add", ("sat", "s32"), lambda a, b: clamped(number(a, "s32") + number(b, "s32"), "s32"))
    check("sub", ("sat", "s32"), lambda a, b: clamped(number(a, "s32") - number(b, "s32"), "s32"))
    assert operation("add", ("sat", "u32")) is None

    def expected(a: int, b: int, c: int) -> int:
        return clamped(((number(a, "s32") * number(b, "s32")) >> 32) + number(c, "s32"), "s32")

    check("mad", ("hi", "sat", "s32"), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_division_rounds_towards_zero(kind: str) -> None:
    """By zero: all ones and the dividend, which the ISA leaves open; the least number by -1: itself and 0."""

    def quotient(a: int, b: int) -> int:
        if b == 0:
            return wrapped(-1, kind)
        x, y = number(a, kind), number(b, kind)
        return wrapped(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), kind)

    def remainder(a: int, b: int) -> int:
        x, y = number(a, kind), number(b, kind)
        return a if b == 0 else wrapped(abs(x) % abs(y) * (-1 if x < 0 else 1), kind)

    check("div", (kind,), quotient)
    check("rem", (kind,), remainder)


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_abs_and_neg(kind: str) -> None:
    check("abs", (kind,), lambda a: wrapped(abs(number(a, kind)), kind))
    check("neg", (kind,), lambda a: wrapped(-a, kind))


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_products_of_24_bits(kind: str) -> None:
    def n(bits: int) -> int:
        low = bits & 0xFFFFFF
        return low - (1 << 24) if kind == "s32" and low >> 23 else low

    check("mul24", ("lo", kind), lambda a, b: wrapped(n(a) * n(b), kind))
    check("mul24", ("hi", kind), lambda a, b: wrapped((n(a) * n(b)) >> 16, kind))
    check("mad24", ("lo", kind), lambda a, b, c: wrapped(n(a) * n(b) + c, kind))
    check("mad24", ("hi", kind), lambda a, b, c: wrapped(((n(a) * n(b)) >> 16) + c, kind))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_carries_and_borrows(kind: str) -> None:
    size = width(kind)
    full = 1 << size

    def carried(total: int) -> tuple[int, bool]:
        return total % full, not 0 <= total < full

    check("add", ("cc", kind), lambda a, b: carried(a + b))
    check("addc", (kind,), lambda a, b, c: carried(a + b + c)[0])
    check("addc", ("cc", kind), lambda a, b, c: carried(a + b + c))
    check("sub", ("cc", kind), lambda a, b: carried(a - b))
    check("subc", (kind,), lambda a, b, c: carried(a - b - c)[0])
    check("subc", ("cc", kind), lambda a, b, c: carried(a - b - c))
    for part in ("lo", "hi"):

        def product(a: int, b: int, part: str = part) -> int:
            whole = number(a, kind) * number(b, kind)
            return (whole if part == "lo" else whole >> size) % full

        check("mad", (part, "cc", kind), lambda a, b, c, p=product: carried(p(a, b) + c))
        check("madc", (part, kind), lambda a, b, c, d, p=product: carried(p(a, b) + c + d)[0])
        check("madc", (part, "cc", kind), lambda a, b, c, d, p=product: carried(p(a, b) + c + d))


def test_a_product_of_128_bits_by_carries() -> None:
    """What NVRTC makes of a product of 64-bit numbers in 32-bit pieces."""
    a, b = samples("u64", 1), samples("u64", 2)
    low, high = (a & 0xFFFFFFFF).astype(np.uint32), (a >> np.uint64(32)).astype(np.uint32)
    other_low, other_high = (b & 0xFFFFFFFF).astype(np.uint32), (b >> np.uint64(32)).astype(np.uint32)
    (first,) = operation("mul", ("lo", "u32")).compute(low, other_low)
    (upper,) = operation("mul", ("hi", "u32")).compute(low, other_low)
    second, carry = operation("mad", ("lo", "cc", "u32")).compute(low, other_high, upper)
    (third,) = operation("madc", ("hi", "u32")).compute(low, other_high, np.zeros_like(low), carry)
    second, carry = operation("mad", ("lo", "cc", "u32")).compute(high, other_low, second)
    third, carry = operation("madc", ("hi", "cc", "u32")).compute(high, other_low, third, carry)
    (fourth,) = operation("addc", ("u32",)).compute(np.zeros_like(low), np.zeros_like(low), carry)
    third, carry = operation("mad", ("lo", "cc", "u32")).compute(high, other_high, third)
    (fourth,) = operation("madc", ("hi", "u32")).compute(high, other_high, fourth, carry)
    for index, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        pieces = [int(piece[index]) for piece in (first, second, third, fourth)]
        assert sum(piece << (32 * place) for place, piece in enumerate(pieces)) == x * y


@pytest.mark.parametrize("left", ["u32", "s32"])
@pytest.mark.parametrize("right", ["u32", "s32"])
def test_dot_products(left: str, right: str) -> None:
    def piece(bits: int, kind: str, size: int, place: int) -> int:
        return number((bits >> (size * place)) & ((1 << size) - 1), f"{kind[0]}{size}")

    def four(a: int, b: int, c: int) -> int:
        return wrapped(sum(piece(a, left, 8, i) * piece(b, right, 8, i) for i in range(4)) + c, "u32")

    check("dp4a", (left, right), four)
    for part, first in (("lo", 0), ("hi", 2)):

        def two(a: int, b: int, c: int, first: int = first) -> int:
            return wrapped(
                sum(piece(a, left, 16, i) * piece(b, right, 8, first + i) for i in (0, 1)) + c, "u32"
            )

        check("dp2a", (part, left, right), two)


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_packed_integers(kind: str) -> None:
    element = kind.removesuffix("x2")

    def each(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
        def whole(a: int, b: int) -> int:
            halves = [function((a >> shift) & 0xFFFF, (b >> shift) & 0xFFFF) & 0xFFFF for shift in (0, 16)]
            return halves[0] | halves[1] << 16

        return whole

    check("add", (kind,), each(lambda a, b: a + b))
    check("min", (kind,), each(lambda a, b: min(number(a, element), number(b, element))))
    check("max", (kind,), each(lambda a, b: max(number(a, element), number(b, element))))
    if kind == "s16x2":
        check("max", ("relu", kind), each(lambda a, b: max(number(a, element), number(b, element), 0)))
    check("min", ("s32", "relu"), lambda a, b: max(min(number(a, "s32"), number(b, "s32")), 0))


@pytest.mark.parametrize("count", [2, 4])
def test_video_instructions(count: int) -> None:
    size = 32 // count

    def parts(bits: int, sign: str) -> list[int]:
        return [
            number((bits >> (size * place)) & ((1 << size) - 1), f"{sign}{size}") for place in range(count)
        ]

    functions: dict[str, Callable[[int, int], int]] = {
        "vadd": lambda x, y: x + y,
        "vsub": lambda x, y: x - y,
        "vmin": min,
        "vmax": max,
        "vabsdiff": lambda x, y: abs(x - y),
    }
    for name, function in functions.items():
        for sign in "us":
            for more in ("", "sat", "add"):

                def expected(
                    a: int, b: int, c: int, sign: str = sign, more: str = more, function=function
                ) -> int:
                    values = [function(*pair) for pair in zip(parts(a, sign), parts(b, sign), strict=True)]
                    if more == "add":
                        return (sum(values) + c) & 0xFFFFFFFF
                    if more == "sat":
                        values = [clamped(value, f"{sign}{size}") for value in values]
                    return sum(
                        wrapped(value, f"u{size}") << (size * place) for place, value in enumerate(values)
                    )

                kind = f"{sign}32"
                check(f"{name}{count}", (kind, kind, kind, *((more,) if more else ())), expected, count=800)
