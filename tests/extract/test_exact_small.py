"""Layers that are so small that launches take most of the time and kernels run as loops: what a kernel does that goes on in an
earlier part, and from what it has what that part made."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from kernel_examples import ENOUGH, chosen_from

import tinyc
from tinyc.bench.transformers import beside, norm_first, norm_last, rotary, stack
from tinyc.extract.choice import Choice, Key, children_of, tiles
from tinyc.extract.exact import exact as search
from tinyc.extract.exact.answers import Answer, answered
from tinyc.extract.exact.cases import Cases
from tinyc.extract.exact.columns import Column, Columns
from tinyc.extract.exact.covers import Covers
from tinyc.extract.exact.cuts import Cut, cuts
from tinyc.extract.exact.floors import Floor
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.inside import INSIDE
from tinyc.extract.exact.meter import Meter
from tinyc.extract.exact.once import HOWS
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.parts import parts, whole
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.regular import before_norms, guided, launched, looped, regular
from tinyc.extract.exact.scope import Scope
from tinyc.extract.exact.separators import norms
from tinyc.extract.exact.solved import Solved, _picked
from tinyc.extract.exact.sources import beneath_sums
from tinyc.extract.exact.tables import Known, _Step, ways_of
from tinyc.extract.exact.within import OTHERS, Unfilled, Within, _common, within
from tinyc.extract.exact.worth import Worth
from tinyc.extract.pricing import priced, walks
from tinyc.extract.problem import Problem
from tinyc.extract.view import Item


def small(
    block: Any, layers: int, size: tuple[int, int, int, int], target: str, dtype: str
) -> tuple[Problem, Choice]:
    """``size``: batch, tokens, width, heads."""
    program = stack(block, layers, *size, dtype)
    return chosen_from(program, target)


@pytest.fixture(scope="module")
def last() -> tuple[Problem, Choice]:
    return small(norm_last, 3, (1, 16, 48, 4), "sm80", "fp16")


@pytest.fixture(scope="module")
def first() -> tuple[Problem, Choice]:
    return small(norm_first, 2, (1, 16, 64, 4), "sm80", "fp16")


def reached(root: Key, items: Mapping[Key, Item]) -> dict[Key, Item]:
    found, stack = dict[Key, Item](), [root]
    while stack:
        key = stack.pop()
        if key not in found:
            found[key] = items[key]
            stack += () if items[key] is INSIDE else children_of(key, items[key])
    return found


@pytest.fixture(scope="module")
def single() -> tuple[Problem, Choice]:
    return small(norm_last, 2, (1, 21, 48, 4), "sm90", "fp32")


@pytest.fixture(scope="module")
def odd() -> tuple[Problem, Choice]:
    return small(beside, 2, (1, 7, 40, 5), "sm80", "bf16")


@pytest.mark.parametrize("which", ["first", "last", "single", "odd"])
def test_what_is_known_of_loops_is_so_of_kernels_that_are_known(
    which: str, request: pytest.FixtureRequest
) -> None:
    """Of kernels of a program, with a value of theirs taken as one of an earlier part."""
    problem, start = request.getfixturevalue(which)
    cases = Cases(Scope(problem, whole(problem), False, Hosts(problem)))
    running, count, fewer, sure = problem.running, 0, 0, 0
    for kernel in start.kernels:
        schedule = kernel.work.schedule
        if schedule is None or schedule.algo != "loops":
            continue
        size = problem.works.element(kernel.buffer)
        wanted = running.timer(replace(schedule, row_blocks=1))
        for key in kernel.items:
            if key == kernel.root or key[1] or kernel.items[key].head == "Const":
                continue
            known = reached(kernel.root, {**kernel.items, key: INSIDE})
            loops = cases.loops_of(kernel.way.shape, known)
            found = {running.timer(way) for way in cases.looped(loops, size)}
            assert wanted in found, (kernel.buffer.cls, key)
            every = cases.looped(loops._replace(points=0, widest=0, more=True, along=(True, False)), size)
            count, fewer = count + 1, fewer + (len(found) < len(every))
            sure += len(loops.along) == 1
    assert count > 100 and fewer > 50 and sure > 20, (count, fewer, sure)


def test_what_is_walked_costs_that_where_buffers_are_taken_as_one() -> None:
    """Attention of heads that turn, of few tokens: in loops it would take less, but what matrix units can walk is walked."""
    problem, start = small(rotary, 3, (2, 32, 192, 12), "sm80", "fp16")
    at = cuts(problem, guided(problem, start))
    division, _ = parts(problem, at, True, True, False, None, search.LARGE)
    answers = answered(Hosts(problem), division, {}, Meter(ENOUGH), True, True, True)
    for each in answers:
        assert each.solved is not None and each.solved.merged
        named = {number: name for name, number in each.solved.number.items()}
        for number, found in each.solved.columns.items():
            costs = each.solved.bounds._costs.columns[named[number]]
            for numbers, least in zip(found, map(min, costs), strict=True):
                picked = _picked(problem, each.keys, each.buffers, numbers)
                if INSIDE in picked.items.values():
                    continue
                kernel = priced(problem, problem.view.buffers[picked.name], picked.way, picked.items)
                scanned = tiles(problem.view, picked.items, problem.row) == "scanned"
                if kernel is not None and scanned and walks(problem, kernel.items):
                    assert least > 0.9 * kernel.seconds, (picked.name, least, kernel.seconds)


def test_norms_that_layers_end_with(last: tuple[Problem, Choice], first: tuple[Problem, Choice]) -> None:
    """Of three layers the last norm is the output, and no separator."""
    problem, _ = last
    within = norms(problem)
    assert within
    filled = {
        name
        for name, buffer in problem.view.buffers.items()
        if any(problem.view.origin(way.root) in within for way in buffer.ways)
    }
    assert filled and filled.isdisjoint(
        name for name, buffer in problem.view.buffers.items() if buffer.arg is not None
    )
    products = {
        problem.view.origin(key[0])
        for key, options in problem.options.items()
        for option in options
        # a product of two values, and no sum of squares
        if option.item.head == "Contract" and len(set(option.item.children)) > 1
    }
    assert within.isdisjoint(products)
    assert not norms(first[0]) and before_norms(first[0]) is None


def test_layers_end_with_what_is_normalised(last: tuple[Problem, Choice]) -> None:
    problem, _ = last
    bare = before_norms(problem)
    assert bare is not None
    within = norms(problem)
    filled = [kernel.buffer for kernel in bare.kernels]
    outputs = set(problem.view.graph.outputs)
    assert not [
        buffer.cls
        for buffer in filled
        if buffer.cls not in outputs and any(problem.view.origin(way.root) in within for way in buffer.ways)
    ]


def solved_parts(problem: Problem, guide: Choice, told: bool) -> list[Answer]:
    division, _ = parts(problem, cuts(problem, guide), True, True, told)
    known: dict[tuple[object, ...], Solved | None] = {}
    return answered(Hosts(problem), division, known, Meter(ENOUGH), True, True, merges=True)


@pytest.mark.parametrize("target, dtype, width, heads", [("sm80", "fp16", 32, 2), ("sm90", "fp32", 48, 4)])
def test_what_kernels_read_at_their_output_axes_may_not_be_enough_for_others(
    monkeypatch: pytest.MonkeyPatch, target: str, dtype: str, width: int, heads: int
) -> None:
    """A bound in which these are told apart is no looser, and holds. So is one that knows that all of these values are needed within
    reductions, with fewer levels."""
    problem, start = small(norm_last, 3, (1, 16, width, heads), target, dtype)
    guide = before_norms(problem) or regular(problem, start)
    needed = search.path(solved_parts(problem, guide, False))[0]
    monkeypatch.setattr("tinyc.extract.exact.parts._within_reductions", lambda program, part: False)
    loose, close = (search.path(solved_parts(problem, guide, told))[0] for told in (False, True))
    choice, _ = search.exact(problem, start, ENOUGH)
    assert loose * 1.005 < close <= choice.seconds * (1 + 1e-9)
    assert needed == pytest.approx(close, rel=1e-9)


def test_paths_leave_so_many_cuts_in_a_row_unfilled(last: tuple[Problem, Choice]) -> None:
    problem, start = last
    answers = solved_parts(problem, before_norms(problem) or regular(problem, start), True)
    totals: list[float] = []
    for most in (0, 1, 2, float("inf")):
        total, states = search.path(answers, most)
        runs = [len(list(run)) for unfilled, run in itertools.groupby(states, any) if unfilled]
        assert max(runs, default=0) <= most
        totals.append(total)
    assert totals == sorted(totals, reverse=True) and totals[-1] < totals[0]


def test_what_is_summed_is_told_apart_from_the_sum() -> None:
    """As from what a layer adds once it is normalised: it can be had from its product, and from what that sums at more cost."""

    def layer(x: Any, v: Any, w: Any) -> Any:
        y = (x @ v).relu() @ w
        return x + y * ((y * y).sum(axis=1, keepdims=True) + 1.0).rsqrt()

    specs = [tinyc.spec("fp16", shape) for shape in ((16, 64), (64, 128), (128, 64))]
    problem, _ = chosen_from(tinyc.trace(layer, *specs), "sm80")
    view = problem.view
    made = [(way.root, False) for name in view.graph.outputs for way in view.buffers[name].ways]
    unfilled = {name: buffer for name, buffer in view.buffers.items() if buffer.arg is None}
    wide = {name for name, buffer in unfilled.items() if buffer.shape == (16, 128)}
    products = {
        name
        for name, buffer in unfilled.items()
        for option in (option for way in buffer.ways for option in problem.options[way.root, False])
        if option.item.head == "Contract" and len(set(option.item.children)) > 1
    } - wide
    _, apart, past, _ = beneath_sums(problem, made, set(), set(unfilled))
    assert wide & past.keys() and products & past.keys()
    assert not [names for names in apart if names & wide and names & products]


@pytest.mark.parametrize("seed", range(20))
def test_sets_are_made_few_by_what_they_have_in_common(seed: int) -> None:
    rng = random.Random(seed)
    masks = {rng.getrandbits(9) for _ in range(rng.randint(1, 12))}
    found = _common(masks)
    assert len(found) <= OTHERS
    assert all(any(each & mask == each for each in found) for mask in masks)
    if len(masks) <= OTHERS:
        assert set(found) <= masks


@pytest.mark.slow
@pytest.mark.parametrize(
    "block, size, target, dtype",
    [
        (norm_first, (1, 16, 64, 4), "sm80", "fp16"),
        (norm_first, (1, 16, 32, 2), "sm90", "fp32"),
        (norm_last, (1, 16, 48, 4), "sm80", "fp16"),
        (norm_last, (2, 8, 32, 2), "sm80", "fp16"),
        (norm_last, (8, 32, 128, 8), "sm90", "fp16"),
        (norm_last, (1, 100, 256, 8), "sm80", "fp32"),
    ],
)
def test_sixteen_small_layers_are_close(
    block: Any, size: tuple[int, int, int, int], target: str, dtype: str
) -> None:
    problem, start = small(block, 16, size, target, dtype)
    choice, proof = search.exact(problem, start, Effort(60.0, 150_000))
    assert proof.gap <= search.CLOSE and choice.seconds <= start.seconds


@pytest.fixture(scope="module")
def told(last: tuple[Problem, Choice]) -> tuple[Problem, list[Part]]:
    """Parts with dozens of levels."""
    problem, start = last
    return problem, parts(problem, cuts(problem, before_norms(problem) or start), True, True, True)[0]


def test_levels_that_are_alike_count_the_same(told: tuple[Problem, list[Part]]) -> None:
    """Most are, and are looked at once: what kernels do at them, which of them there are, and what is charged for them."""
    problem, division = told
    alike = every = 0
    for part in division[1:4]:
        scope = Scope(problem, part, True)
        for name, group in part.known.items():
            for outer, how in itertools.product((True, False), HOWS):
                done: dict[object, object] = {}
                for level in range(group.levels):
                    found = done.setdefault(group.like(level, outer), group.done(level, how, outer))
                    assert found == group.done(level, how, outer)
                alike, every = alike + len(done), every + group.levels
            marks = [
                sum(
                    bit
                    for (each, there, _), bit in scope.given.marks.items()
                    if (each, there) == (name, outer)
                )
                for outer in (True, False)
            ]
            for levels, bits in itertools.product(part.levels, (0, marks[0], marks[1], sum(marks), -1)):
                at, kinds = part.at(levels), bits & (sum(marks) | sum(scope.given.only))
                able = all(
                    at[each] in there for (each, there), bit in scope.given._only.items() if kinds & bit
                )
                places = all(
                    not kinds & bit or not at[each] or part.known[each].kinds[at[each] - 1].at(outer)
                    for (each, outer, _), bit in scope.given.marks.items()
                )
                assert (not kinds & scope.given.barred(levels)) == (able and places)
                times = scope.given._repeated(kinds, "tiled", None)
                again = {
                    each: sum(bool(kinds & bit) for bit in scope.given.times[each])
                    for each, outer in times
                    if not outer
                }
                ways = scope.given._done("tiled", at, times, again) if able else []
                assert list(scope.given.once(kinds, "tiled", levels)) == list(ways)
        for group in part.groups.values():
            ends = [part.levels[0], part.levels[-1], part.levels[len(part.levels) // 2]]
            ways_ = [Within(bit, scope.inside, 0.0, None, None, False, True) for bit in (0, 1, 2)]
            unfilled = Unfilled(scope, group, {given: ways_ for given in part.levels})
            there: dict[object, list[Within]] = {}
            for level, given in itertools.product(range(1, group.levels), (*ends, *part.levels[1:9])):
                what = unfilled.like(level, given)
                assert there.setdefault(what, unfilled.at(level, given)) == unfilled.at(level, given)
                assert what is not None or not unfilled.at(level, given)
    assert alike < every / 2


def test_loops_compute_again_what_a_row_does_not_depend_on(told: tuple[Problem, list[Part]]) -> None:
    """As often as the kernel has rows that the value has no axis of; tiles compute it once."""
    problem, division = told
    more = 0
    for part in division[1:]:
        scope = Scope(problem, part, True)
        given, ops = scope.given, scope.amounts.fields.index("ops")
        shapes = {tuple(way.shape) for name in part.buffers for way in problem.view.buffers[name].ways}
        for ((name, outer, outputs), bit), shape in itertools.product(given.marks.items(), sorted(shapes)):
            wide = [number for number, size in enumerate(size for size in shape if size > 1)]
            sizes = [size for size in shape if size > 1]
            rows = math.prod(sizes[number] for number in wide[:-1] if number not in outputs)
            assert given._repeated(bit, "loops", shape) == {(name, outer): rows}
            assert given._repeated(bit, "tiled", shape) == {(name, outer): 1.0}
            once, often = (given.once(bit, "loops", None, each) for each in (None, shape))
            if once:
                fewest = [min(amounts[ops] for amounts, _ in ways) for ways in (once, often)]
                assert fewest[0] <= fewest[1] <= rows * fewest[0]
                more += fewest[0] < fewest[1]
    assert more


def test_a_buffer_is_worth_what_it_takes_where_it_may_be_filled(told: tuple[Problem, list[Part]]) -> None:
    """What computes a value of what is given takes longer at some levels, and cannot be at others."""
    problem, division = told
    scope = Scope(problem, division[1], True)
    name, count = scope.buffers[0], len(scope.levels)
    way = problem.view.buffers[name].ways[0]
    label: Any = None
    given = division[1].given[0]
    barred = next(number for number, at in enumerate(scope.levels) if scope.given.barred(at))
    able = next(number for number, at in enumerate(scope.levels) if not scope.given.barred(at))
    costs = [4.0 if number < count / 2 else 8.0 for number in range(count)]
    costs[barred] = float("inf")
    read = Column(name, way, label, scope.bits[given], (5.0,) * count)
    worth = Worth(scope)
    price = worth.price[given]
    assert price[0] == 0.0 and set(price[1:]) == {division[1].prices[0]}
    worth.add(name, Columns((Column(name, way, label, 0, tuple(costs)), read), None, 1))
    found = worth.cost(name, 0)
    assert list(found) == [min(cost, 5.0 + dear) for cost, dear in zip(costs, price, strict=True)]
    assert list(worth.cost(name, scope.bits[given])) == [min(cost, 5.0) for cost in costs]
    limit = worth.of(name)
    assert limit(0, 0) == max(found) and able != barred
    marks = scope.given.barred(scope.levels[barred])
    there = [not scope.given.barred(at) & marks for at in scope.levels]
    assert limit(0, marks) == max(seconds for seconds, is_so in zip(found, there, strict=True) if is_so)


def test_what_is_lacking_is_looked_at_with_what_is_not(told: tuple[Problem, list[Part]]) -> None:
    """As by itself: the same values with other work for those that are given."""
    problem, division = told
    known = Known()
    parts(problem, [Cut(part.given, part.prices) for part in division[1:]], True, True, True, known)
    seen = 0
    for (table, sources), (found, rows) in known.tables.items():
        if not any(source.lacking for source in sources):
            continue
        for number, source in enumerate(sources):
            swapped = tuple(
                row._replace(
                    options=tuple(
                        each._replace(before=(each.before[0], each.before[source.lacking]))
                        if isinstance(each, _Step)
                        else each
                        for each in row.options
                    )
                )
                for row in table
            )
            alone, able = ways_of(swapped, [source._replace(lacking=min(source.lacking, 1))])
            assert able[0] == rows[number]
            for how, outer in itertools.product(HOWS, (True, False)):
                assert alone[0, how, outer] == found[number, how, outer]
        seen += 1
    assert seen >= 2


def test_many_ways_are_estimated_as_each_is(
    told: tuple[Problem, list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compute a value within a kernel of a later part."""
    problem, division = told
    of_many, seen = Floor.of_many, 0

    def compared(
        self: Floor, amounts: Any, reads: int, held: Any, less: Mapping[int, Any] = MappingProxyType({})
    ) -> Any:
        nonlocal seen
        found = of_many(self, amounts, reads, held, less)
        for number, each in enumerate(amounts):
            for many, one in zip(found, self.by_levels(each, reads, held, less), strict=True):
                assert [level[number] for level in many] == pytest.approx(one, rel=1e-12)
                seen += len(one)
        return found

    monkeypatch.setattr(Floor, "of_many", compared)
    for part in division[1:3]:
        scope = Scope(problem, part, True)
        within(scope, part.made[0], {})
    assert seen > 1000


def test_rows_that_tables_have_in_common_are_as_in_one_alone() -> None:
    """Where a kind of kernel cannot compute what is given, a class that is farther from hand was taken as the nearest: equal layers
    were as many as there are."""
    problem, start = chosen_from(stack(rotary, 4, 2, 100, 64, 4, "fp32"), "sm80")
    known, at = Known(), cuts(problem, regular(problem, start))
    parts(problem, at, True, True, True, known)
    assert len(known.tables) > 10
    for (table, sources), found in known.tables.items():
        assert ways_of(table, sources) == found


def test_what_is_left_out_makes_other_covers(told: tuple[Problem, list[Part]]) -> None:
    """Only of what is made of it: the others are kept."""
    problem, division = told
    scope = Scope(problem, division[2], True)
    case = scope.cases.tiled[0]
    for position in range(len(scope.order)):
        scope.covers.of(position, case, None)
    kept = dict(scope.covers._known[case, None])
    place = next(place for place, key in enumerate(scope.order) if len(scope.options[key]) > 2 and place > 9)
    scope.dropped.add((case, place, 1))
    scope.covers.forget(case, [place])
    left = scope.covers._known[case, None]
    assert place not in left and len(left) > len(kept) / 4
    fresh = Covers(scope)
    assert all(
        scope.covers.of(position, case, None) == fresh.of(position, case, None)
        for position in range(len(scope.order))
    )


def test_guides_are_the_same_in_two_processes(
    last: tuple[Problem, Choice], first: tuple[Problem, Choice]
) -> None:
    for problem, start in (last, first):
        alone, beside = (guided(problem, start, lanes) for lanes in (1, 2))
        assert alone.seconds == beside.seconds and alone.kernels == beside.kernels
    assert launched(*last) and looped(last[1])
