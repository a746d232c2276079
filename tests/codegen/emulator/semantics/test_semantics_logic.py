"""Logic, shifts, fields, counts and bytes against the ISA's definitions, bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from integers import check, number, width

from tinyc.codegen.emulator.semantics import operation


@pytest.mark.parametrize("size", [16, 32, 64])
def test_logic_and_shifts(size: int) -> None:
    kind, ones = f"b{size}", (1 << size) - 1
    check("and", (kind,), lambda a, b: a & b)
    check("or", (kind,), lambda a, b: a | b)
    check("xor", (kind,), lambda a, b: a ^ b)
    check("not", (kind,), lambda a: ~a & ones)
    check("cnot", (kind,), lambda a: int(a == 0))
    check("mov", (kind,), lambda a: a)
    check("shl", (kind,), lambda a, n: (a << min(n, 64)) & ones)
    for sign in "bu":
        check("shr", (f"{sign}{size}",), lambda a, n: a >> min(n, 64))
    check("shr", (f"s{size}",), lambda a, n: (number(a, f"s{size}") >> min(n, 64)) & ones)


def test_predicates() -> None:
    check("and", ("pred",), lambda a, b: a and b)
    check("or", ("pred",), lambda a, b: a or b)
    check("xor", ("pred",), lambda a, b: a != b)
    check("not", ("pred",), lambda a: not a)
    check("mov", ("pred",), lambda a: a)


def test_mov_gives_a_new_array() -> None:
    a = np.arange(4, dtype=np.uint32)
    (result,) = operation("mov", ("u32",)).compute(a)
    result[0] = 9
    assert a[0] == 0


@pytest.mark.parametrize("size", [32, 64])
def test_counts_of_bits(size: int) -> None:
    kind = f"b{size}"
    check("popc", (kind,), lambda a: a.bit_count())
    check("clz", (kind,), lambda a: size - a.bit_length())
    check("brev", (kind,), lambda a: int(f"{a:0{size}b}"[::-1], 2))

    def found(kind: str, amount: bool) -> Callable[[int], int]:
        def place(a: int) -> int:
            value = number(a, kind)
            highest = (~value if value < 0 else value).bit_length() - 1
            if highest < 0:
                return 0xFFFFFFFF
            return size - 1 - highest if amount else highest

        return place

    for sign in "us":
        check("bfind", (f"{sign}{size}",), found(f"{sign}{size}", False))
        check("bfind", ("shiftamt", f"{sign}{size}"), found(f"{sign}{size}", True))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields(kind: str) -> None:
    """The ISA's loops, bit by bit: beyond the highest bit of a comes the sign of the field."""
    size = width(kind)

    def extracted(a: int, start: int, length: int) -> int:
        position, count = start & 0xFF, length & 0xFF
        if kind[0] == "u" or count == 0:
            sign = 0
        else:
            sign = a >> min(position + count - 1, size - 1) & 1
        value = 0
        for place in range(size):
            bit = a >> (position + place) & 1 if place < count and position + place < size else sign
            value |= bit << place
        return value

    check("bfe", (kind,), extracted)
    if kind[0] == "u":

        def inserted(a: int, b: int, start: int, length: int) -> int:
            position, count = start & 0xFF, length & 0xFF
            for place in range(count):
                if position + place < size:
                    b = b & ~(1 << (position + place)) | (a >> place & 1) << (position + place)
            return b

        check("bfi", (f"b{size}",), inserted)


def test_lop3_looks_up_each_bit() -> None:
    def expected(a: int, b: int, c: int, table: int) -> int:
        value = 0
        for place in range(32):
            row = (a >> place & 1) * 4 + (b >> place & 1) * 2 + (c >> place & 1)
            value |= (table >> row & 1) << place
        return value

    check("lop3", ("b32",), expected)
    (result,) = operation("lop3", ("b32",)).compute(
        *(np.array([x], np.uint32) for x in (0xF0, 0xCC, 0xAA, 0x80))
    )
    assert result.tolist() == [0x80]


def test_funnel_shifts() -> None:
    for mode in ("clamp", "wrap"):

        def count(n: int, mode: str = mode) -> int:
            return min(n, 32) if mode == "clamp" else n & 31

        check(
            "shf",
            ("l", mode, "b32"),
            lambda a, b, n, count=count: ((b << 32 | a) << count(n)) >> 32 & 0xFFFFFFFF,
        )
        check("shf", ("r", mode, "b32"), lambda a, b, n, count=count: (b << 32 | a) >> count(n) & 0xFFFFFFFF)


PRMT = {  # the ISA's table: the bytes for control 0 to 3, the highest first
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def test_prmt_picks_bytes() -> None:
    def byte(a: int, b: int, index: int) -> int:
        return (b << 32 | a) >> (8 * index) & 0xFF

    def general(a: int, b: int, control: int) -> int:
        value = 0
        for place in range(4):
            choice = control >> (4 * place) & 15
            picked = byte(a, b, choice & 7)
            if choice & 8:
                picked = 0xFF if picked & 0x80 else 0
            value |= picked << (8 * place)
        return value

    check("prmt", ("b32",), general)
    for mode, rows in PRMT.items():

        def special(a: int, b: int, control: int, rows: tuple[str, ...] = rows) -> int:
            picks = [byte(a, b, int(index)) for index in reversed(rows[control & 3])]
            return int.from_bytes(bytes(picks), "little")

        check("prmt", ("b32", mode), special)
