"""Constants that a rule makes: in class BOUNDED they may be rounded, once, and where nothing hangs on their last digit."""

from __future__ import annotations

import numpy as np
import pytest

from tinyc.rulecheck.check import load_base
from tinyc.rulecheck.compare import compare
from tinyc.rulecheck.made import made
from tinyc.rulecheck.term import Term
from tinyc.rulecheck.world import World

BASE = load_base()
THIRD = 1051372203
"""Bits of the number nearest to 1/3, which is larger."""


def number(value: float) -> Term:
    return bits(int(np.float32(value).view(np.uint32)))


def bits(value: int) -> Term:
    return Term("Const", ("fp32", value))


def binary(op: str, x: Term, y: Term) -> Term:
    return Term("Binary", (op, x, y))


QUOTIENT = binary("FDIV", number(1.0), number(3.0))


@pytest.mark.parametrize("klass", ["BOUNDED", "REAL-ONLY"])
def test_the_nearest_number_is_a_quotient_and_no_other_is(klass: str) -> None:
    world = World(BASE, "quotient")
    assert compare(world, QUOTIENT, bits(THIRD), klass).klass
    for other in (THIRD - 1, THIRD + 1):
        outcome = compare(world, QUOTIENT, bits(other), klass)
        assert (outcome.klass, outcome.method) == ("", {"rationals"})


@pytest.mark.parametrize("klass", ["EXACT", "REASSOC"])
def test_where_no_rounding_is_admitted_none_is(klass: str) -> None:
    assert compare(World(BASE, "quotient"), QUOTIENT, bits(THIRD), klass).klass == ""


def test_a_constant_of_the_old_side_is_that_number() -> None:
    """However near it is to what the new side would have to say."""
    world = World(BASE, "old")
    old = binary("ADD", QUOTIENT, binary("SUB", bits(THIRD), bits(THIRD)))
    assert made(world, QUOTIENT, bits(THIRD)) == {bits(THIRD)} and made(world, old, bits(THIRD)) == set()
    assert compare(world, old, bits(THIRD), "BOUNDED").klass == ""


def test_what_decides_something_is_no_rounding() -> None:
    """Whether 1/3 is less than the number nearest to it, or what is left of three times it."""
    world = World(BASE, "decides")
    less = binary("CMPLT", QUOTIENT, bits(THIRD))
    chosen = Term("Select", (less, number(1.0), number(2.0)))
    cut = Term("Cast", ("i32", binary("MUL", number(3.0), bits(THIRD))))
    for term in (less, chosen, cut, Term("Cast", ("fp32", cut))):
        assert made(world, QUOTIENT, term) == set()


@pytest.mark.parametrize("special", [0, 1 << 31, 1, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000])
def test_only_normal_numbers_are_rounded_to(special: int) -> None:
    assert made(World(BASE, "special"), QUOTIENT, bits(special)) == set()
