"""A part of a program is solved for each way in which what lies between it and the next may be had."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from operator import le
from typing import Any

import pytest
from kernel_examples import ENOUGH, check_runs, chosen_from

import tinyc
from tinyc.bench.programs import transformer
from tinyc.bench.transformers import norm_last, stack
from tinyc.extract.choice import Key, outside
from tinyc.extract.cost.model import Work, amounts_of
from tinyc.extract.exact.answers import Answer, answered
from tinyc.extract.exact.cases import SCAN
from tinyc.extract.exact.cuts import Cut, cuts
from tinyc.extract.exact.exact import assembled
from tinyc.extract.exact.frames import frame_of
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.ilp import solve
from tinyc.extract.exact.inside import INSIDE, Beneath, Kind, Levels, combined, holding_the_same
from tinyc.extract.exact.meter import Meter
from tinyc.extract.exact.once import HOWS, Once, fewest, of_fields
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.parts import parts
from tinyc.extract.exact.regular import regular
from tinyc.extract.exact.rounded import Picked, rounded, together
from tinyc.extract.exact.scope import Scope
from tinyc.extract.exact.solved import Solved
from tinyc.extract.exact.sources import FAR, NEAR
from tinyc.extract.exact.within import Unfilled, Within
from tinyc.extract.problem import Problem
from tinyc.extract.view import LEVEL, axis_extent, axis_id


@pytest.fixture(scope="module")
def divided() -> tuple[Problem, list[Part]]:
    function, shapes = transformer(2, 384, 256)
    program = tinyc.trace(function, **{name: tinyc.spec("fp16", shape) for name, shape in shapes.items()})
    problem, start = chosen_from(program, "sm80")
    division, _ = parts(problem, cuts(problem, regular(problem, start)), True)
    return problem, division


@pytest.fixture(scope="module")
def answers(divided: tuple[Problem, list[Part]]) -> list[Answer]:
    problem, division = divided
    meter, known = Meter(ENOUGH), dict[tuple[object, ...], Solved | None]()
    return answered(Hosts(problem), division, known, meter, True)


@pytest.fixture(scope="module")
def solutions(answers: list[Answer]) -> list[tuple[Part, Solved]]:
    return [(answer.part, answer.solved) for answer in answers if answer.solved is not None]


def groups(division: list[Part]) -> list[Beneath]:
    return [each for part in division for each in part.groups.values()]


def test_a_buffer_may_be_missing_in_a_few_ways(divided: tuple[Problem, list[Part]]) -> None:
    found = groups(divided[1])
    assert len(found) >= 4
    for each in found:
        assert each.levels == 1 + len(each.kinds)
        assert {kind.source for kind in each.kinds} == set(range(len(each.sources)))
        assert len(each.sources) == len(each.partial) + 1
        assert {kind.deep for kind in each.kinds} == {True, False}
        names = [name for names in each.partial for name in names]
        assert all(each.partial) and len(names) == len(set(names)) and each.name not in names
    assert any(len(each.partial) >= 2 for each in found)  # as good as it, and sums
    assert combined([1, 2]) == [(0, 0), (0, 1)]


def test_partial_sums_are_told_apart_by_how_many_there_are(divided: tuple[Problem, list[Part]]) -> None:
    """They were one set: a program that fills eight sums was taken to read two, and a transformer of 197 tokens was 5.6 % from its
    bound."""
    problem, division = divided
    several = 0
    for each in groups(division):
        sizes: list[int] = []
        for names in each.partial[: each.light]:
            buffers = [problem.view.buffers[name] for name in names]
            if any(len(buffer.shape) == 3 for buffer in buffers):  # the rows and columns of each sum
                (size,) = {problem.works.bytes(buffer) for buffer in buffers}
                sizes.append(size)
        assert sizes == sorted(set(sizes))
        several += len(sizes) > 1
    assert several


def test_less_is_computed_where_partial_sums_are_there(divided: tuple[Problem, list[Part]]) -> None:
    problem, division = divided

    def least(each: Beneath, read: int) -> float:
        """In loops; a row of a product that is kept may be had at other places for nothing."""
        found = [ways for (number, _, how, _), ways in each.once.items() if number == read and how == "loops"]
        ways = [way for each in found for way in each]
        return min((problem.model.seconds(way.work) for way in ways), default=math.inf)

    for each in groups(division):
        costs = [least(each, read) for read in range(len(each.partial) + 1)]
        assert costs == sorted(costs)
    pairs = [(least(each, 0), least(each, len(each.partial))) for each in groups(division) if each.partial]
    assert any(with_them < without / 2 for with_them, without in pairs)


@pytest.mark.parametrize("later", [False, True])
def test_what_a_sum_is_added_to_is_read_beside_it(later: bool) -> None:
    """``later``: the first value is an input that a kernel of a later part may read for itself: what it reads is counted there, and
    not beneath once more."""

    def residual(x: Any, *weights: Any) -> Any:
        first = x
        for weight in weights:
            x = x + (x @ weight).relu()
        return x * first if later else x

    shapes = ((16, 64), *[(64, 64)] * 3)
    problem, start = chosen_from(
        tinyc.trace(residual, *(tinyc.spec("fp32", shape) for shape in shapes)), "cpu"
    )
    division, _ = parts(problem, cuts(problem, regular(problem, start)), True)
    found = groups(division)
    assert len(found) == 2
    size = 4 * 16 * 64
    for number, each in enumerate(found):
        counted = 0 if later and not number else size
        reading = [way for way in each.once[0, NEAR, "loops", True] if way.work.ops < 16 * 64 * 64]  # no sum
        assert [way.work.bytes_read for way in reading] == [size + counted]  # h W, and what it is added to
    (again,) = found[0].once[1, NEAR, "loops", True]  # h W is computed again
    assert again.work.bytes_read == (0 if later else size)


def test_values_that_can_only_be_read_are_not_computed(divided: tuple[Problem, list[Part]]) -> None:
    _, division = divided
    for part in division:
        for name, each in part.known.items():
            assert each.name == name
            assert all(key in each.able for key in part.inside)


def test_what_is_missing_is_not_free(solutions: list[tuple[Part, Solved]]) -> None:
    """The less of what a part is given is there, the more it costs at least; the less it makes, the less. Its own kernels are
    not below the bound of having all."""
    assert len(solutions) >= 4
    missing = 0
    for part, solved in solutions:
        zero = (0,) * len(part.given), (0,) * len(part.made)
        assert solved.bounds.solve(zero) <= solved.cost * (1 + 1e-9)
        for (given, made), _ in solved.bounds.items():
            seconds = solved.bounds.solve((given, made))
            assert seconds >= 0
            if any(given) and not any(made):
                missing += seconds > solved.bounds.solve(zero) * 1.01
    assert missing


def test_buffers_are_near_that_some_cheap_solution_fills(solutions: list[tuple[Part, Solved]]) -> None:
    """Held against a solution for each buffer, by itself."""
    counts = [0, 0]
    for part, solved in solutions:
        bounds = solved.bounds
        for ends, _ in bounds.items()[::7]:
            least = bounds.solve(ends)
            if math.isinf(least):
                continue
            for most in (least / 100, least / 20):
                near = bounds.near(ends, most)
                names = {name for name in part.buffers if name in bounds._costs.columns}
                assert near <= names
                for name in names:
                    dag = bounds._form[ends].dag
                    answer = solve(replace(dag, roots=(*dag.roots, name)))
                    cheap = answer is not None and answer.bound <= least + most
                    assert (name in near) == cheap, name
                    counts[name in near] += 1
    assert min(counts) >= 10, counts


def test_a_level_says_where_values_are_computed(divided: tuple[Problem, list[Part]]) -> None:
    problem, division = divided
    for each in groups(division):
        places = {outside(problem.view.free[key[0]]) for key in each.able}
        inner = [kind for kind in each.kinds if not kind.outer]
        assert bool(inner) == (False in places and True in places) or places == {False}
        assert Kind(len(each.partial), True, False in places, True) in each.kinds or True not in places


def test_what_is_rooted_in_what_is_given_cannot_be_filled_without_it(
    divided: tuple[Problem, list[Part]],
) -> None:
    """Walked upwards from what is there: inputs, and nothing of what is given."""
    problem, division = divided
    assert not division[0].rooted and any(part.rooted for part in division)
    for part in division:
        filled = {name for name, buffer in problem.view.buffers.items() if buffer.arg is not None}
        origins = {
            problem.view.origin(way.root) for name in part.given for way in problem.view.buffers[name].ways
        }
        had: set[Key] = set()
        while True:
            more = {
                key
                for key, options in part.options.items()
                if problem.view.origin(key[0]) not in origins or not part.given
                for option in options
                if option.item is not INSIDE
                and (option.item.head != "Read" or str(option.item.payload[0]) in filled)
                and had.issuperset(option.children)
            }
            fresh = {
                name
                for name in part.buffers
                if any((way.root, False) in had | more for way in problem.view.buffers[name].ways)
            }
            if more <= had and fresh <= filled:
                break
            had |= more
            filled |= fresh
        assert part.rooted.isdisjoint(filled)
        assert not part.given or part.rooted.issuperset(name for name in part.made if name in part.buffers)


def test_kernels_of_a_bound_are_kernels_of_the_program(
    divided: tuple[Problem, list[Part]], answers: list[Answer]
) -> None:
    """Along any way through the parts: what is computed of what is not filled is computed from what is."""
    problem, _ = divided
    choose, some, paths = random.Random(5), 0, 0
    for _ in range(160):
        picked: list[Picked] = []
        before: Levels = ()
        for answer in answers:
            assert answer.solved is not None
            bounds = answer.solved.bounds
            ends = [at[1] for at, _ in bounds.items() if at[0] == before and bounds.taken(at) is not None]
            after = choose.choice([min(ends), choose.choice(ends)]) if ends else before
            more = answer.solved.picked(problem, answer.keys, answer.buffers, (before, after))
            if more is None:
                break
            picked, before = [*picked, *more], after
        else:
            paths += 1
            kernels = together(problem, rounded(problem, picked))
            choice = assembled(problem, kernels) if kernels else None
            if choice is not None:
                some += 1
                check_runs(problem, choice)
    assert paths >= 80 and some >= 12


def test_every_way_to_have_a_value_is_there_at_some_level(divided: tuple[Problem, list[Part]]) -> None:
    """Whatever a kernel of a later part does to compute a value that is not filled, some level counts it: no more is charged for it
    than it takes, and where later parts count it as a whole, nothing of an earlier part is charged to it."""
    problem, division = divided
    launch, seen = problem.model.hardware.launch, set[tuple[bool, bool, bool]]()
    for part in division[1:-1]:
        scope = Scope(problem, part, True)
        for name, group in part.groups.items():
            partial = scope.bits[group.partial[0][0]] if group.partial else 0
            rooted = scope.bits[next(iter(sorted(part.rooted - {name})))]
            for reads, seconds, some, tiled in itertools.product(
                (0, partial, rooted), (0.0, launch / 100, 5 * launch), (False, True), (False, True)
            ):
                rest = seconds if tiled else seconds / 2
                way = Within(reads, scope.inside, seconds, None, None, some, True, tiled, rest)
                places = [way, way._replace(outer=False)]
                unfilled = Unfilled(scope, group, dict.fromkeys(part.levels, places))
                for given in part.levels:
                    there = [
                        (level, offered)
                        for level, kind in enumerate(group.kinds, 1)
                        if kind.outer
                        for offered in unfilled.at(level, given)
                    ]
                    assert there
                    for level, offered in there:
                        charge, deep = unfilled.charge(offered, level), group.kinds[level - 1].deep
                        free = not part.charged(given) or bool(offered.reads & unfilled.rooted)
                        assert charge <= seconds and (deep or (charge == 0 and free))
                        seen.add((deep, charge > 0, part.charged(given)))
    assert len(seen) >= 5


def test_the_kernel_that_is_charged_need_not_read_what_the_sums_read(
    divided: tuple[Problem, list[Part]],
) -> None:
    """Another one may, in a later part than that in which what is charged here is counted no more."""
    problem, plain = divided
    at = [Cut(part.given, part.prices) for part in plain[1:]]
    division, _ = parts(problem, at, True, True)
    seconds, seen = 5 * problem.model.hardware.launch, 0
    for part in division[1:-1]:
        scope = Scope(problem, part, True)
        for group in part.groups.values():
            way = Within(0, 0, seconds, None, None, False, True)
            places = [way, way._replace(outer=False)]
            unfilled = Unfilled(scope, group, dict.fromkeys(part.levels, places))
            sources = {scope.bits[name] for names in group.partial[group.light :] for name in names}
            for level, kind in enumerate(group.kinds, 1):
                heavy = group.light <= kind.source < len(group.partial)
                if heavy and kind.outer and kind.deep and not kind.lacking:
                    offered = unfilled.at(level, part.levels[0])
                    assert offered and all(each.reads in sources for each in offered)
                    assert all(unfilled.charge(each, level) == seconds for each in offered)
                    seen += 1
    assert seen


def test_each_evaluation_after_the_first_computes_the_sum_again(divided: tuple[Problem, list[Part]]) -> None:
    """A LayerNorm evaluates its operand three times: for the mean, for the variance, and for what is divided."""
    problem, division = divided
    seen = 0
    for part in division[1:]:
        scope = Scope(problem, part, True)
        for known in part.known.values():
            inner = [
                key for key in part.inside if key in known.able and not outside(problem.view.free[key[0]])
            ]
            for key in inner[:1]:
                mark, level = scope.given.mark(key), (len(known.kinds),)
                ops = [
                    min(
                        (
                            sum(way)
                            for way, _ in scope.given.once(
                                mark | scope.given.again(key, times), "loops", level
                            )
                        ),
                        default=0.0,
                    )
                    for times in (1, 2, 3)
                ]
                assert ops == sorted(ops) and ops[2] - ops[1] == pytest.approx(ops[1] - ops[0])
                seen += ops[2] > 2 * ops[0] > 0
    assert seen


def test_of_as_many_operations_fewer_in_the_epilogue_are_no_less() -> None:
    """One that does all of its operations beside a product hides them; the bound was above the best choice."""
    beside, before = (Once(Work(ops=1e6, epilogue_ops=each)) for each in (1e6, 1e3))
    assert set(fewest([beside, before])) == {beside, before}
    least = of_fields(min, [beside.work, before.work])
    assert least.epilogue_ops == 1e3 and least.ops == 1e3


def test_what_the_part_is_given_is_lacking_at_levels_of_its_own(divided: tuple[Problem, list[Part]]) -> None:
    """Where x + h W is had from h W, and x is not filled either, x is computed as well; and where a sum is computed again, this one is
    as well as that of x."""
    problem, plain = divided
    division, _ = parts(problem, [Cut(part.given, part.prices) for part in plain[1:]], True, True)
    more = both = 0
    for before, part in itertools.pairwise(division):
        for each in part.groups.values():
            for kind in each.kinds:
                # charged as a whole is what computes sums again, and does more for what is given than is counted of each kernel
                assert not kind.whole or (
                    kind.lacking and kind.deep and each.sources[kind.source].distance == FAR
                )
                assert kind.lacking in each.told(kind) and NEAR in each.told(kind)
            given = [group.further["loops", True, FAR] for group in before.groups.values()]
            for (number, lacking, *place), ways in each.once.items():
                near, far = (
                    min((way.work.ops for way in found), default=math.inf)
                    for found in (each.once[number, NEAR, *place], ways)
                )
                assert near <= far
                more += lacking > NEAR and near < far < math.inf
                if lacking >= FAR and place == ["loops", True] and len(given) == 1:
                    least = min((way.work.ops for way in given[0]), default=0.0)
                    both += 0 < near + least <= far * (1 + 1e-9) < math.inf
    assert more and both


def test_what_is_computed_again_counts_by_the_axes_of_what_is_made() -> None:
    """A kernel that computes a value at its output axes has these, and fetches a weight for each of its rows; never less is counted
    than where nothing is known of it, nor more than in any kernel that there is with these axes."""
    problem, start = chosen_from(stack(norm_last, 2, 2, 32, 64, 2), "sm80")
    division, _ = parts(problem, cuts(problem, regular(problem, start)), True)
    shapes = {tuple(way.shape) for buffer in problem.view.buffers.values() for way in buffer.ways}
    wide = {shape: dict(enumerate(size for size in shape if size > 1)).items() for shape in shapes}
    more = barred = 0

    def outputs(key: Key) -> frozenset[str]:
        return frozenset(axis for axis in problem.view.free[key[0]] if axis_id(axis) < LEVEL)

    for part in division[:-1]:
        keys = [key for key in problem.order if not key[1] and key in part.options]
        made = frozenset(key for name in part.made for key in part.targets[name])
        axes = {outputs(key) for key in made}
        frame = frame_of(problem, keys, made, ())
        for key, options in zip(frame.keys, frame.options, strict=True):
            above = [each for each in axes if outputs(key) <= each]
            for (option, works, *_), (number, how) in itertools.product(options, enumerate(HOWS)):
                work, least = works[number], problem.works.work(key, option.item, how)
                if work is None:  # no such kernel holds it
                    assert how == "scanned" and option.item.head in ("Reduce", "Contract")
                    barred += outside(problem.view.free[key[0]])
                    continue
                assert all(map(le, amounts_of(least), amounts_of(work)))
                more += work.reread_bytes > least.reread_bytes
                for shape, each in itertools.product(shapes, above):
                    if {axis_id(axis): axis_extent(axis) for axis in each}.items() <= wide[shape]:
                        most = problem.works.work(key, option.item, how, shape)
                        assert all(map(le, amounts_of(work), amounts_of(most)))
    assert more and barred


def test_what_streams_weight_is_not_computed_where_it_is_walked(divided: tuple[Problem, list[Part]]) -> None:
    """Matrix units take it as it is loaded; in loops it may be."""
    problem, division = divided
    seen = 0
    for part in division:
        scope = Scope(problem, part, True)
        for case, position, number in scope.dropped:
            key = scope.order[position]
            heads = [option.item.head for option in scope.options[key]]
            assert case == SCAN
            if heads[number] == "Reduce" and "Contract" in heads:
                continue  # it is that, then
            assert key[0] in problem.weighted and not key[1]
            assert heads[number] not in ("Read", "Const", "Cast")
            seen += 1
    assert seen and any(
        item.head == "Stream" and item.children[1] in problem.weighted
        for items in problem.view.items.values()
        for item in items
    )


@pytest.mark.parametrize("beside", [False, True])
def test_buffers_past_a_dear_sum_are_told_apart(beside: bool) -> None:
    """Norms last: what the product is added to has sums beneath it as well, but cheap ones. Two products beside each other: to have
    one is not to have both, and where both are told apart, one kernel computes the lesser at least where none reads it."""

    def function(x: Any, *weights: Any) -> Any:
        rest = iter(weights)
        for _ in range(2):
            x = x - x.sum(axis=1, keepdims=True) * 0.5
            x = x * ((x * x).sum(axis=1, keepdims=True) + 1.0).rsqrt()
            more = x @ next(rest) if beside else x
            x = more + (x @ next(rest)).relu() @ next(rest)
        return x

    shapes = ((32, 64), *[*[(64, 64)] * beside, (64, 256), (256, 64)] * 2)
    program = tinyc.trace(function, *(tinyc.spec("fp32", shape) for shape in shapes))
    problem, start = chosen_from(program, "sm80")
    division, _ = parts(problem, cuts(problem, regular(problem, start)), True, True)
    found = [each for each in groups(division) if len(each.partial) > each.light + 1]
    assert found
    for each in found:
        ops = [
            min(
                way.work.ops + way.work.flops + way.work.vector_flops
                for way in each.once[read, NEAR, "loops", True]
            )
            for read, source in enumerate(each.sources)
            if source.some and (source.light or read >= each.light)
        ]
        first, *rest = [ops.pop(), *ops] if beside else ops
        assert first <= min(rest) and rest == sorted(rest) and rest[-1] > 10 * first
        assert sum(source.light and len(source.some) > 1 for source in each.sources) == beside


def had(problem: Problem, key: Key, barred: set[str], known: dict[Key, bool], top: bool = True) -> bool:
    """Whether a kernel can have a value that reads nothing of ``barred``. ``top``: and does not read this one."""
    if top or key not in known:
        known[key] = False  # within a circle
        known[key] = any(
            not top and option.item.payload[0] not in barred
            if option.item.head == "Read"
            else all(had(problem, child, barred, known, False) for child in option.children)
            for option in problem.options[key]
        )
    return known[key]


@pytest.mark.parametrize("target, dtype", [("sm80", "fp16"), ("sm90", "fp16"), ("cpu", "fp32")])
def test_what_can_be_computed_at_a_level_may_be(target: str, dtype: str) -> None:
    """Nests of sums are so deep at most: beneath, a product can only be read."""
    function, shapes = transformer(3, 32, 64)
    program = tinyc.trace(function, **{name: tinyc.spec(dtype, shape) for name, shape in shapes.items()})
    problem, start = chosen_from(program, target)
    division, _ = parts(problem, cuts(problem, regular(problem, start)), True, True)
    same, barring = holding_the_same(problem), 0
    for group in groups(division):
        names = [set(same[group.name]), *map(set, group.partial)]
        for read in range(len(group.partial) + 1):
            barred = set[str]().union(*names[: read + 1])
            for key in sorted(group.able):
                able = key in group.able_at[read, NEAR]
                assert able or not had(problem, key, barred, {})
                barring += not able
    assert barring
