"""isl's proof that no Read leaves its buffer, against hand-made Regions and against trying every point."""

from __future__ import annotations

import random

import pytest
from core_regions import BOOL, F32, Made, conv, leaving, needed_at, random_region, region, sizes_of

from tinyc.index import bounds
from tinyc.index.bounds import check_access, unguarded
from tinyc.ir.check_region import fault
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import to_bits
from tinyc.ir.explicit import explicit
from tinyc.ir.index import axis
from tinyc.ir.region import Axis, Binary, Cast, Region, Select, Stream

GEOMETRIES = [
    (3, 2, 1, 1),
    (3, 1, 1, 1),
    (5, 2, 2, 1),
    (3, 2, 1, 2),
    (2, 3, 1, 1),
    (4, 1, 3, 1),
    (3, 2, 2, 3),
]


def found(given: Region) -> dict[str, int]:
    """Read -> the dimension that is reported, by isl alone; intervals first must say the same."""
    assert fault(given) is None
    proven = {each.let: each.dimension for each in unguarded(given, prove=True)}
    assert {each.let: each.dimension for each in unguarded(given)} == proven
    return proven


@pytest.mark.spec("I-27", "004-087")
def test_the_documents_guard_admits_a_row_that_is_not_there_for_odd_sizes() -> None:
    with pytest.raises(TinycError) as raised:
        check_access(conv(5, stride=2, high=5 + 2), prove=True)
    error = raised.value
    assert (error.code, error.kind) == ("E1401", "UnguardedAccess")
    assert error.details["region"] == "k_Y" and error.details["tensor"] == "X"
    assert error.details["dimension"] == 1 and error.details["value"] == 5
    point = error.details["point"]
    assert 2 * point["ho"] + point["kh"] - 1 == 5
    assert error.at["value"] == "t0" and "X" in error.why and "is 5, outside of 0 <= index < 5" in error.why
    assert "Select" in error.suggestion and "Within(2*ho+kh-1, 0, 5)" in error.suggestion
    check_access(conv(5, stride=2), prove=True)
    # of an even image the last window ends at its border, so the document's guard lets nothing through
    check_access(conv(6, stride=2, high=6 + 2), prove=True)
    check_access(conv(6, stride=2), prove=True)


@pytest.mark.spec("I-27")
@pytest.mark.parametrize(("kernel", "stride", "pad", "dilation"), GEOMETRIES)
def test_conv_guards_at_all_sizes(kernel: int, stride: int, pad: int, dilation: int) -> None:
    for size in range(dilation * (kernel - 1) + 1, 10):
        geometry = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation, "channels": 1}
        assert found(conv(size, **geometry)) == {}
        rows = range((size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1)
        touched = {stride * row + dilation * tap - pad for row in rows for tap in range(kernel)}
        assert bool(found(conv(size, **geometry, high=size + 2 * pad))) == (max(touched) >= size)
        assert bool(found(conv(size, **geometry, high=size + 1))) == (size in touched)
        assert bool(found(conv(size, **geometry, low=-1))) == (-1 in touched)


def window() -> tuple[Made, str]:
    """x[i + r - 1] of 6 elements, unguarded."""
    b = region(i=6)
    return b, b.read("x", (6,), axis("i") + axis("r") - 1)


def summed(b: Made, value: str) -> Region:
    return b.done(b.reduce(value, r=3))


ONE = to_bits(1.0, F32)
INDEX = axis("i") + axis("r") - 1


def test_a_sound_guard_is_not_accused() -> None:
    b, x = window()
    assert found(summed(b, b.select(b.within(INDEX, 0, 6), x))) == {}
    b, x = window()
    assert found(summed(b, b.select(b.within(axis("i") + axis("r"), 1, 7), x))) == {}
    b, x = window()
    assert found(summed(b, b.select(b.both(b.within(INDEX, -5, 6), b.within(INDEX, 0, 99)), x))) == {}
    b, x = window()  # the border asked for, and the Read in the else branch
    outside = b.either(b.within(INDEX, -9, 0), b.within(INDEX, 6, 99))
    assert found(summed(b, b.select(outside, b.const(), x))) == {}
    b, x = window()  # not outside, spelled as a comparison
    inside = b.let(
        Binary("CMPEQ", b.either(b.within(INDEX, -9, 0), b.within(INDEX, 6, 9)), b.const(BOOL)), BOOL
    )
    assert found(summed(b, b.select(inside, x))) == {}
    b, x = window()  # the guard stands further out
    assert found(summed(b, b.select(b.within(INDEX, 0, 6), b.unary("NEG", b.mul(x, x))))) == {}


@pytest.mark.spec("004-087")
@pytest.mark.parametrize("low, high", [(-1, 6), (0, 7), (-1, 7), (0, 6)])
def test_a_guard_that_is_off_by_one(low: int, high: int) -> None:
    b, x = window()
    given = summed(b, b.select(b.within(INDEX, low, high), x))
    assert found(given) == ({} if (low, high) == (0, 6) else {x: 0})


@pytest.mark.spec("004-087")
def test_guards_that_guard_nothing() -> None:
    b, x = window()
    assert found(summed(b, x)) == {x: 0}, "none"
    b, x = window()
    assert found(summed(b, b.select(b.within("i", 0, 6), x))) == {x: 0}, "on the wrong axis"
    b, x = window()
    assert found(summed(b, b.select(b.within(INDEX, 0, 6), b.const(), x))) == {x: 0}, "inverted"
    b, x = window()
    weak = b.either(b.within(INDEX, 0, 6), b.within("r", 0, 1))
    assert found(summed(b, b.select(weak, x))) == {x: 0}, "weakened by OR"
    b, x = window()
    data = b.either(b.within(INDEX, 0, 6), b.mask("m", (6,), "i"))
    assert found(summed(b, b.select(data, x))) == {x: 0}, "weakened by data"
    b, x = window()
    kept = b.let(Cast(b.within(INDEX, 0, 6)), F32)
    assert found(summed(b, b.mul(x, kept))) == {x: 0}, "multiplied by zero"
    b, x = window()
    guarded = b.select(b.within(INDEX, 0, 6), x)
    assert found(summed(b, b.mul(guarded, x))) == {x: 0}, "used a second time without the guard"
    b, x = window()
    both = b.let(Select(b.within(INDEX, 0, 6), b.mask("m", (6,), INDEX), b.const(BOOL)), BOOL)
    assert found(summed(b, b.select(both, x))) == {}, "a mask behind its own guard, and with it"


def test_a_condition_that_is_read_out_of_bounds_is_found() -> None:
    b = region(i=6)
    mask = b.mask("m", (5,), "i")
    assert found(b.done(b.select(mask, b.read("x", (6,), "i")))) == {mask: 0}


def test_a_guard_outside_of_a_reduction_guards_its_body() -> None:
    b = region(i=6)
    x = b.read("x", (4, 3), "i", "r")
    assert found(b.done(b.select(b.within("i", 0, 4), b.reduce(x, r=3)))) == {}
    b = region(i=6)
    x = b.read("x", (4, 3), "i", "r")
    assert found(b.done(b.select(b.within("i", 0, 5), b.reduce(x, r=3)))) == {x: 0}


def test_a_stream_needs_its_scores_where_it_is_needed() -> None:
    def streamed(size: int, high: int) -> Region:
        b = region(i=4)
        score, weight = b.read("s", (4, size), "i", "r"), b.read("v", (8,), "r")
        b.select(b.within("i", 0, high), b.let(Stream((Axis("r", 8),), score, weight, b.const(bits=ONE))))
        return b.done()

    assert found(streamed(8, 4)) == {}
    assert found(streamed(7, 4)) == {"t0": 1}
    assert found(streamed(7, 0)) == {}


def test_both_forms_of_a_region() -> None:
    for given in (conv(5, stride=2), conv(5, stride=2, high=7)):
        assert bool(found(explicit(given))) == bool(found(given)) == (given == conv(5, stride=2, high=7))


def test_what_nobody_uses_and_scalars() -> None:
    b = region(i=4)
    b.read("x", (1,), "i")
    assert found(b.done(b.read("y", (4,), "i"))) == {}
    b = region()
    assert found(b.done(b.read("s", ()))) == {}
    b = region()
    assert found(b.done(b.read("s", (3,), 3))) == {"t0": 0}


def test_large_axes_and_divisions() -> None:
    b = region(i=1 << 20, j=1 << 10)
    flat = axis("i") * 1024 + axis("j")
    x = b.read("x", (1 << 15, 1 << 15), flat // (1 << 15), flat - (flat // (1 << 15)) * (1 << 15))
    assert found(b.done(x)) == {}
    b = region(i=1 << 20, j=1 << 10)
    x = b.read("x", (1 << 15, (1 << 15) - 1), flat // (1 << 15), flat - (flat // (1 << 15)) * (1 << 15))
    assert found(b.done(x)) == {x: 1}


def test_where_isl_gives_up_every_point_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unguarded(conv(5, stride=2), prove=True, max_operations=1) == ()
    (first,) = unguarded(conv(5, stride=2, high=7), prove=True, max_operations=1)
    assert first.value == 5 and first.point is not None
    monkeypatch.setattr(bounds, "MAX_POINTS", 8)
    (first,) = unguarded(conv(5, stride=2), max_operations=1)
    assert first.point is None and "too hard to prove" in str(first)


def test_against_every_point_of_random_regions() -> None:
    generator = random.Random(7)
    seen = {True: 0, False: 0}
    for _ in range(300):
        given = random_region(generator.randrange)
        outside = leaving(given)
        findings = {each.let: each for each in unguarded(given, prove=True)}
        assert findings.keys() == outside.keys()
        assert {each.let for each in unguarded(given)} == set(outside)
        for let, finding in findings.items():
            assert finding.dimension == min(outside[let])
            assert finding.point is not None and finding.value is not None
            assert not 0 <= finding.value < finding.size
            whole = {**dict.fromkeys(sizes_of(given), 0), **finding.point}
            assert let in needed_at(given, whole), "the witness is a point at which the Read is needed"
        seen[bool(outside)] += 1
    assert min(seen.values()) > 60


def test_points_one_by_one_agree_with_isl() -> None:
    generator = random.Random(8)
    for _ in range(80):
        given = random_region(generator.randrange)
        tried = {each.let for each in unguarded(given, prove=True, max_operations=1)}
        assert tried == {each.let for each in unguarded(given, prove=True)}


def test_the_witness_reads_well() -> None:
    b = region(i=6)
    x = b.read("x", (6,), axis("i") + axis("r"))
    (finding,) = unguarded(b.done(b.reduce(x, r=2)))
    assert str(finding) == (
        "t0 reads dimension 0 of x at i+r, which at i=5, r=1 is 6, outside of 0 <= index < 6"
    )


def test_several_reads_are_counted_in_one_error() -> None:
    b = region(i=4)
    parts = [b.read(f"x{number}", (3,), "i") for number in range(3)]
    with pytest.raises(TinycError, match="so do 2 more Reads"):
        check_access(b.done(b.mul(b.mul(parts[0], parts[1]), parts[2])))
