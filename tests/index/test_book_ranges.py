"""Shorter index expressions have the same values, and bounds hold them: tried at every point."""

from __future__ import annotations

import itertools

import pytest
from book_programs import book_of, leaf, op
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyc.index.ranges import divide, interval, simplify, text
from tinyc.ir import dims
from tinyc.ir.index import Affine, axis, lit

SIZES = {"i0": 5, "i1": 1, "i2": 3}


@st.composite
def indices(draw: st.DrawFn, depth: int = 3) -> Affine:
    total = lit(draw(st.integers(-6, 6)))
    for _ in range(draw(st.integers(1, 3))):
        coef = draw(st.sampled_from((1, 1, 2, 3, 4, 6, 12, -1, -3, -4)))
        if depth and draw(st.booleans()):
            part = draw(indices(depth - 1)) // draw(st.sampled_from((2, 3, 4, 6, 12)))
        else:
            part = axis(draw(st.sampled_from(sorted(SIZES))))
        total = total + part * coef
        if draw(st.integers(0, 3)) == 0:  # a remainder, as reshapes make them
            total = total + part - (part // 3) * 3
    return total


@settings(max_examples=400)
@given(indices(), st.integers(1, 13))
def test_simplify_divide_and_interval(index: Affine, den: int) -> None:
    points = [
        dict(zip(SIZES, point, strict=True))
        for point in itertools.product(*(range(n) for n in SIZES.values()))
    ]
    short, quotient = simplify(index, SIZES), divide(index, den, SIZES)
    low, high = interval(index, SIZES)
    assert low is not None and high is not None
    for point in points:
        value = index.evaluate(point)
        assert low <= value <= high
        assert short.evaluate(point) == value
        assert quotient.evaluate(point) == value // den
    again = dims.to_affine(text(short))
    assert [again.evaluate(point) for point in points] == [short.evaluate(point) for point in points]


def test_what_is_not_known_has_no_bound() -> None:
    sizes = {"i0": "M", "i1": 4}
    assert interval(axis("i0") + axis("i1"), sizes) == (0, None)
    assert interval(axis("M") - axis("i1"), sizes) == (-2, None)
    assert interval(axis("i0") - (axis("i0") // 8) * 8, sizes) == (0, 7)
    assert text(simplify((4 * axis("i0") + axis("i1")) // 4, sizes)) == "i0"
    assert text(simplify((4 * axis("i1") + axis("i0")) // 4, sizes)) == "i1+i0//4"


@pytest.mark.parametrize("shape", [[8], ["M"]])
def test_many_divisions_take_no_time(shape: list[int | str]) -> None:
    """isl would take hours for this one, and the polynomial of a size could double with each division."""
    view = {"result_shape": shape, "index_map": {"map": ["i0" + "//3*2" * 10 + "//3"]}}
    book = book_of(leaf("x", "N"), op("y", "VIEW", "x", **view), op("z", "FLIP", "y", axes=[0]))
    assert book.values["z"].flags == frozenset()


def test_an_affine_of_a_long_text_is_read_from_the_value_before() -> None:
    """Composed, the map could not be written: then the movement itself is read."""
    deep = axis("i0")
    for _ in range(16):
        deep = (deep * 2) // 3
    uops = [
        leaf("x", 10**6),
        op("y", "VIEW", "x", result_shape=[200_000], index_map={"map": [str(dims.from_affine(deep))]}),
        op("z", "SHRINK", "y", lo=[0], hi=[200_000], step=[999]),
    ]
    assert [access.value_id for access in book_of(*uops).values["z"].inputs] == ["y"]
