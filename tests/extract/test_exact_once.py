"""What a kernel does at least that computes a value again: sums that are different ones add up, and of one product rows are kept."""

from __future__ import annotations

import itertools
import random
from operator import le

import pytest

from tinyc.extract.cost.model import Work
from tinyc.extract.exact.once import HOWS, WAYS, Once, Product, Way, fewest_ways, most, one_product
from tinyc.extract.exact.rows import Barred
from tinyc.extract.exact.tables import _Row, _Step, ways_of

ONE: Product = ((4, 8), (16,))
OTHER: Product = ((4, 8), (32,))


def row(
    ops: float,
    below: tuple[int, ...] = (),
    *,
    sums: bool = False,
    made: bool = False,
    product: Product | None = None,
    outer: bool = True,
) -> _Row:
    """A value that is computed from the rows ``below``, each of which is evaluated wherever it is."""
    works = tuple(Work(ops=ops) for _ in HOWS)
    operands = tuple((number, True) for number in below)
    return _Row(made, outer, False, (_Step(works, sums, operands, (), Once(), ((),), False, product),))


def done(*rows: _Row, how: str = "loops") -> list[float]:
    found, _ = ways_of(rows, [Barred(frozenset())])
    return [way.work.ops for (_, kind, _), ways in found.items() if kind == how for way in ways]


@pytest.mark.parametrize("sums, ops", [(True, 5.0 + 7.0), (False, 7.0)])
def test_two_sums_are_done_both(sums: bool, ops: float) -> None:
    """Of what is no sum, one may be computed from the other without being beneath it here: the longer counts."""
    assert done(row(5.0, sums=sums), row(7.0, sums=sums), row(1.0, (0, 1), made=True)) == [ops]


def test_a_sum_that_two_are_of_is_done_once() -> None:
    shared = row(100.0, sums=True)
    one, two = row(5.0, (0,), sums=True), row(7.0, (0,), sums=True)
    assert done(shared, one, two, row(1.0, (1, 2), made=True)) == [112.0]
    assert done(shared, one, row(1.0, (1, 1), made=True)) == [105.0]


def test_what_is_no_sum_counts_with_the_sums_beneath_it() -> None:
    """Beside another sum, what is between may be of both."""
    one, two = row(5.0, sums=True), row(7.0, sums=True)
    between = row(30.0, (0,))
    assert done(one, two, between, row(1.0, (1, 2), made=True)) == [35.0]
    assert done(one, row(40.0, sums=True), between, row(1.0, (1, 2), made=True)) == [45.0]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("products, there", [((ONE, ONE), True), ((ONE, OTHER), False), ((ONE, None), True)])
def test_rows_of_one_product_are_kept(
    how: str, products: tuple[Product | None, Product | None], there: bool
) -> None:
    """Whether another one may be the same is told by its extents; what is no product is not kept."""
    one, two = (row(ops, sums=True, product=each) for ops, each in zip((5.0, 7.0), products, strict=True))
    found = done(one, two, row(1.0, (0, 1), made=True), how=how)
    assert found == ([12.0] if there or how != "rows" else [])


def way(rng: random.Random) -> Way:
    """One that does its sums, and more."""
    sums = tuple((number, (float(number), 1.0)) for number in range(4) if rng.random() < 0.5)
    own = [sum(amounts) for amounts in zip((0.0, 0.0), *(each for _, each in sums), strict=True)]
    amounts = tuple([rng.randrange(40) + each for each in own])
    return Way(None, rng.random() < 0.5, amounts, rng.choice((None, ONE, OTHER)), sums)


def ways(rng: random.Random, count: int) -> list[Way]:
    return [way(rng) for _ in range(count)]


def no_more(one: Way, other: Way) -> bool:
    """Whether whatever goes with the one does no more than with the other."""
    return (
        all(map(le, one.amounts, other.amounts))
        and one.kept in (None, other.kept)
        and (other.plain or not one.plain)
        and {number for number, _ in one.sums} <= {number for number, _ in other.sums}
    )


@pytest.mark.parametrize("seed", range(30))
def test_of_many_ways_a_few_do_no_more(seed: int) -> None:
    rng = random.Random(seed)
    every = ways(rng, rng.choice((3, 30, 300)))
    kept = fewest_ways(every)
    assert len(kept) <= WAYS
    assert all(any(no_more(one, each) for one in kept) for each in every)
    beside = ways(rng, 5)
    for each, other in itertools.product(every, beside):
        if one_product((each, other)):
            whole = most((each, other))
            parts = (most((one, other)) for one in kept if no_more(one, each))
            assert all(all(map(le, part.amounts, whole.amounts)) for part in parts)
