"""Constants that are infinite or NaN: in class BOUNDED as well, both sides of an equation make the same of them."""

from __future__ import annotations

import pytest

from tinyc.rulecheck.check import load_base
from tinyc.rulecheck.compare import compare
from tinyc.rulecheck.context import Leaf
from tinyc.rulecheck.term import Term
from tinyc.rulecheck.world import World

BASE = load_base()
X, Y, Q = (Term("?Expr", (name,)) for name in "xyq")
INFINITY, NAN, LARGEST = 0x7F800000, 0x7FC00000, 0x7F7FFFFF
SIGN = 1 << 31


def world() -> World:
    found = World(BASE, "constants")
    found.context.leaves.update({X: Leaf("x", "fp32"), Y: Leaf("y", "fp32"), Q: Leaf("q", "bool")})
    return found


def const(bits: int) -> Term:
    return Term("Const", ("fp32", bits))


def binary(op: str, x: Term, y: Term) -> Term:
    return Term("Binary", (op, x, y))


def masked(x: Term, bits: int) -> Term:
    return Term("Select", (Q, x, const(bits)))


def halved(x: Term) -> Term:
    """A product, so that what is claimed of a mask is not the same computation."""
    return binary("MUL", x, const(0x3F000000))


@pytest.mark.parametrize("bits", [INFINITY, SIGN | INFINITY, NAN])
def test_a_scale_may_move_out_of_a_mask_that_it_does_not_change(bits: int) -> None:
    assert compare(world(), masked(halved(X), bits), halved(masked(X, bits)), "BOUNDED").klass


@pytest.mark.parametrize("one", [LARGEST, INFINITY, NAN, SIGN | LARGEST, 0])
@pytest.mark.parametrize("other", [SIGN | INFINITY, NAN])
def test_a_mask_stays_what_it_is(one: int, other: int) -> None:
    for old, new in ((one, other), (other, one)):
        outcome = compare(world(), masked(halved(X), old), halved(masked(X, new)), "BOUNDED")
        assert (outcome.klass in ("", "REAL-ONLY")) == (one != other)


def test_an_infinity_may_become_nan_where_it_meets_another() -> None:
    """The condition of a bound, that nothing overflows, did not hold."""
    infinity = const(INFINITY)
    old = binary("MUL", binary("SUB", X, Y), infinity)
    new = binary("SUB", binary("MUL", X, infinity), binary("MUL", Y, infinity))
    assert compare(world(), old, new, "BOUNDED").klass == "BOUNDED"


def test_what_is_infinite_for_another_reason_is_no_matter_of_constants() -> None:
    """A quotient by zero, or a power that no number of float64 is."""
    for large in (binary("FDIV", X, binary("SUB", Y, Y)), Term("Unary", ("EXP2", const(0x7F000000)))):
        old, new = (binary("ADD", each, masked(X, INFINITY)) for each in (large, halved(large)))
        assert (
            compare(world(), old, new, "BOUNDED").why
            != "a constant that is no number makes another value of it"
        )
