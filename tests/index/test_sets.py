"""The wrapper over isl: named dimensions, against sets of points counted by hand and by plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import islpy as isl
import pytest
from hypothesis import given, settings

from tinyc.index.sets import IntSet, NonAffine, TooComplex, Workspace, well_formed
from tinyc.ir.index import Affine, affine, axis

SIZES = {"i": 4, "j": 6}
WORDS = ("min", "max", "mod", "floor", "and", "or", "exists", "true", "NaN")


def points(found: IntSet) -> set[tuple[int, ...]]:
    """All points of a bounded set: each, taken out, is one less."""
    seen = set()
    while (point := found.sample()) is not None:
        seen.add(tuple(point[name] for name in found.names))
        for name, value in point.items():
            assert found.bounds(name) is not None and value >= found.bounds(name)[0]  # type: ignore[index]
        here = found
        for name, value in point.items():
            here = here.where(name, value, value + 1)
        found = found.subtract(here)
    return seen


def boxed(**sizes: int) -> IntSet:
    return Workspace().box(sizes)


@st.composite
def affines(draw: st.DrawFn) -> Affine:
    """Over i and j, sometimes within a floor division."""
    numbers = st.integers(-3, 3)
    found = affine(draw(numbers), [(draw(numbers), "i"), (draw(numbers), "j")])
    return found // draw(st.integers(1, 4)) + draw(numbers) if draw(st.booleans()) else found


@given(st.lists(st.tuples(affines(), st.integers(-4, 8), st.integers(-4, 8)), max_size=3))
@settings(max_examples=60)
def test_constraints_hold_for_exactly_the_points_that_satisfy_them(
    cuts: list[tuple[Affine, int, int]],
) -> None:
    found = boxed(**SIZES)
    for index, low, high in cuts:
        found = found.where(index, low, high)
    wanted = {
        (i, j)
        for i, j in itertools.product(range(4), range(6))
        if all(low <= index.evaluate({"i": i, "j": j}) < high for index, low, high in cuts)
    }
    assert points(found) == wanted
    assert found.count() == len(wanted)
    assert found.is_empty() == (not wanted)
    for number, name in enumerate("ij"):
        values = [point[number] for point in wanted]
        assert found.bounds(name) == ((min(values), max(values)) if values else None)
    assert points(found.project(("j",))) == {(j,) for _, j in wanted}
    assert points(found.project(("j", "i"))) == {(j, i) for i, j in wanted}
    assert points(found.simplify()) == wanted
    assert points(found.simplify(boxed_in(found)).intersect(boxed_in(found))) == wanted


def boxed_in(other: IntSet) -> IntSet:
    return other.workspace.box(SIZES)


@given(affines(), affines(), st.integers(0, 4))
@settings(max_examples=40)
def test_images_and_preimages_are_those_of_the_function(one: Affine, two: Affine, low: int) -> None:
    ws = Workspace()
    domain = ws.box(SIZES).where("i+j", low)
    access = ws.access(("i", "j"), "A", (one, two))

    def at(point: tuple[int, ...]) -> tuple[int, int]:
        values = dict(zip("ij", point, strict=True))
        return one.evaluate(values), two.evaluate(values)

    inside = points(domain)
    assert points(access.image(domain)) == set(map(at, inside))
    window = ws.universe(("a0", "a1")).where("a0", -1, 3).where("a1", 0, 4)
    hit = {point for point in inside if -1 <= at(point)[0] < 3 and 0 <= at(point)[1] < 4}
    assert points(access.preimage(window).intersect(domain)) == hit
    assert access.on(domain).is_injective() == (len(set(map(at, inside))) == len(inside))
    assert access.on(domain).is_empty() == (not inside)
    reads = isl.PwMultiAff(access.on(domain).simplify(domain).function())
    assert isl.Map.from_pw_multi_aff(reads).get_tuple_name(isl.dim_type.out) == "A"


def test_the_example_of_the_module() -> None:
    ws = Workspace()
    near = ws.box({"i": 4, "j": 8}).where("i + j", 0, 5)
    reads = ws.access(("i", "j"), "A", ("2*i", "j//3"))
    assert reads.image(near).bounds("a0") == (0, 6)
    assert reads.image(near).bounds("a1") == (0, 1)


def test_union_intersection_difference_and_containment() -> None:
    ws = Workspace()
    line = ws.universe(("x",))
    low, high = line.where("x", 0, 6), line.where("x", 4, 9)
    assert points(low.union(high)) == {(x,) for x in range(9)}
    assert points(low.intersect(high)) == {(4,), (5,)}
    assert points(low.subtract(high)) == {(x,) for x in range(4)}
    assert low.union(high).simplify().pieces() == 1
    assert low.contains(line.where("x", 1, 3)) and not low.contains(high)
    assert low.equals(line.where("2*x", -1, 11)) and not low.equals(high)
    assert low.contains(ws.empty(("x",)))


def test_empty_unbounded_and_pointless_sets() -> None:
    ws = Workspace()
    empty, line, dot = ws.empty(("x",)), ws.universe(("x",)), ws.box({})
    assert empty.is_empty() and empty.count() == 0 and empty.bounds("x") is None and empty.sample() is None
    assert line.count() is None and line.bounds("x") is None and line.sample() is not None
    assert line.where("x", 3).bounds("x") is None
    assert dot.count() == 1 and dot.sample() == {} and not dot.is_empty()
    assert ws.box({"x": 0}).is_empty() and ws.box({"x": -2}).is_empty()
    assert ws.box({"x": 10**30}).count() == 10**30
    assert ws.access((), "A", ()).function() == "{ [] -> A[] }"


def test_symbolic_sizes_are_at_least_one() -> None:
    ws = Workspace(("M", "N"))
    rows = ws.box({"i": "M"})
    assert not rows.is_empty()
    assert rows.contains(ws.box({"i": 1})) and not rows.contains(ws.box({"i": 2}))
    assert ws.box({"i": "M+N"}).contains(rows) and not rows.contains(ws.box({"i": "N"}))
    assert ws.box({"i": "M"}).where("i", "M").is_empty()
    assert ws.box({"i": "(M+1)//2"}).contains(ws.box({"i": "M//2"}))
    assert rows.bounds("i") is None and rows.count() is None


def test_a_set_that_depends_on_no_symbol_has_bounds_among_symbols() -> None:
    ws = Workspace(("M",))
    assert ws.box({"i": 5}).bounds("i") == (0, 4) and ws.box({"i": 5}).count() == 5
    assert ws.box({"i": "M"}).where("i", 0, 1).bounds("i") == (0, 0)


@pytest.mark.parametrize("word", WORDS)
def test_names_may_be_words_of_isl(word: str) -> None:
    ws = Workspace((word,))
    rows = ws.box({f"{word}2": word})
    assert rows.contains(ws.box({f"{word}2": 1}))
    assert word in str(rows)
    assert Workspace().box({word: 3}).bounds(word) == (0, 2)
    spelled = Workspace((word,), spelled={word: f"{word}_"})
    text = str(spelled.box({"i": word}))
    assert isl.Set(text).dim(isl.dim_type.param) == 1 and f"[{word}_]" in text
    assert well_formed(spelled.access(("i",), "A", (word,)).function(), relation=True)


def test_a_name_like_those_used_inside_changes_nothing() -> None:
    ws = Workspace(("p1", "x0"))
    found = ws.box({"x1": "p1", "p0": "x0", "y0": 3})
    assert str(found) == "[p1, x0] -> { [x1, p0, y0] : 0 <= x1 < p1 and 0 <= p0 < x0 and 0 <= y0 <= 2 }"
    access = ws.access(("x1", "p0"), "s0", ("x1+2*p0", "x0"))
    assert access.function() == "[p1, x0] -> { [x1, p0] -> s0[x1 + 2p0, x0] }"


def test_texts_are_isls_and_bear_the_names() -> None:
    ws = Workspace(("M",))
    access = ws.access(("m", "k"), "A", ("m", "2*k-1", "k//3"))
    domain = ws.box({"m": "M", "k": 9})
    assert access.function() == "[M] -> { [m, k] -> A[m, -1 + 2k, (floor((k)/3))] }"
    inside = access.on(domain.where("2*k-1", 0, 12)).simplify(domain)
    assert inside.function() == "[M] -> { [m, k] -> A[m, -1 + 2k, (floor((k)/3))] : 0 < k <= 6 }"
    meets = ws.access(("i",), "A", ("i",)).on(ws.box({"i": 4}))
    assert meets.meets(meets).relation("S", "T") == "[M] -> { S[i] -> T[i' = i] : M > 0 and 0 <= i <= 3 }"


def test_relations_of_points() -> None:
    ws = Workspace()
    domain = ws.box({"i": 3, "r": 4})
    acc = ws.access(("i", "r"), "acc", ("i",)).on(domain)
    later = acc.meets(acc).forward()
    assert not later.varies("i") and later.varies("r")
    assert later.simplify().relation("S", "S") == (
        "{ S[i, r] -> S[i' = i, r'] : 0 <= i <= 2 and r >= 0 and r < r' <= 3 }"
    )
    assert (
        ws.access(("i", "r"), "acc", ("i", "r"))
        .on(domain)
        .meets(ws.access(("i", "r"), "acc", ("i", "r")))
        .forward()
        .is_empty()
    )
    words = ws.access(("i",), "B", ("4*i",)).on(ws.box({"i": 3})).widened(4)
    assert points(words.image(ws.box({"i": 3}))) == {(byte,) for byte in range(12)}


@pytest.mark.parametrize(
    "index", ["i*j", "i//j", "i%2", "i/2", "k", "M*i", "", "i+", "1.5", "__import__('os')"]
)
def test_what_isl_cannot_hold_is_refused(index: str) -> None:
    ws = Workspace(("M",))
    with pytest.raises(NonAffine):
        ws.box(SIZES).where(index, 0)
    with pytest.raises(NonAffine):
        ws.access(("i", "j"), "A", (index,))


def _mixed(ws: Workspace) -> dict[str, Callable[[], Any]]:
    one, other = ws.box({"i": 3}), ws.box({"j": 3})
    access = ws.access(("i",), "A", ("i",))
    return {
        "union": lambda: one.union(other),
        "intersect": lambda: one.intersect(other),
        "contains": lambda: one.contains(other),
        "of another workspace": lambda: one.equals(Workspace().box({"i": 3})),
        "image": lambda: access.image(other),
        "on": lambda: access.on(other),
        "preimage": lambda: access.preimage(other),
        "meets": lambda: access.meets(ws.access(("i",), "A", ("i", "i"))),
        "project": lambda: one.project(("k",)),
        "bounds": lambda: one.bounds("k"),
        "twice": lambda: ws.universe(("i", "i")),
        "map unions": lambda: access.union(ws.access(("i",), "B", ("i",))),
    }


@pytest.mark.parametrize("what", _mixed(Workspace()))
def test_dimensions_that_do_not_match_are_refused(what: str) -> None:
    with pytest.raises(ValueError):
        _mixed(Workspace())[what]()


def test_an_analysis_ends_at_its_limit_and_spares_others() -> None:
    small = Workspace(max_operations=2000)
    with pytest.raises(TooComplex):
        whole = small.box({f"a{number}": 9 for number in range(6)})
        for step in range(60):
            whole = whole.subtract(whole.where(f"a{step % 6}+2*a{(step + 1) % 6}", step % 7, step % 7 + 2))
    with pytest.raises(TooComplex):
        small.box({"i": 3})
    assert Workspace().box({"i": 3}).count() == 3


def test_affines_and_texts_say_the_same() -> None:
    ws = Workspace(("M",))
    index = axis("i") * 2 + axis("M") // 3 - 1
    assert ws.spell(index, ("i",)) == ws.spell("2*i + M//3 - 1", ("i",))
    assert ws.box({"i": 7}).where(index, 0).equals(ws.box({"i": 7}).where("2*i+M//3-1", 0))


def test_well_formed_texts() -> None:
    assert well_formed("[M] -> { [i] : 0 <= i < M }") and well_formed("{ [i] -> A[i] }", relation=True)
    assert not well_formed("{ [i] : i < M }") and not well_formed("{ [i] -> A[i] }")
    assert not well_formed("", relation=True) and not well_formed("{ [i -> A[i] }", relation=True)
