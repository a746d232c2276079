"""How far from hand what a part is given is, and what that makes kernels do and charges them."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import pytest
from kernel_examples import chosen_from

from tinyc.bench.transformers import beside, norm_first, stack
from tinyc.extract.choice import Choice
from tinyc.extract.cost.model import Work
from tinyc.extract.exact import distance, inside
from tinyc.extract.exact import exact as search
from tinyc.extract.exact.answers import Answer
from tinyc.extract.exact.cuts import Cut, cuts
from tinyc.extract.exact.inside import Beneath
from tinyc.extract.exact.once import HOWS, Once, fewest
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.parts import parts
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.regular import regular
from tinyc.extract.exact.rows import Barred, Rows
from tinyc.extract.exact.scope import Scope
from tinyc.extract.exact.sources import CLASSES, FAR, FARTHER, NEAR
from tinyc.extract.exact.tables import _Read, _Row, _Step, ways_of
from tinyc.extract.exact.within import WHOLE, Unfilled, Within, within
from tinyc.extract.problem import Problem


@pytest.fixture(scope="module")
def chain() -> tuple[Problem, list[Part]]:
    problem, start = chosen_from(stack(norm_first, 4, 4, 256, 32, 2), "sm80")
    return problem, parts(problem, cuts(problem, regular(problem, start)), True, True, True)[0]


def steps(given: float, own: float, earlier: bool) -> tuple[_Row, ...]:
    """A value that is computed from another of the same part, and from what the part is given. ``earlier``: an earlier part may compute
    that other as well."""

    def row(made: bool, work: Work, below: tuple[tuple[int, bool], ...], before: float) -> _Row:
        works = tuple(work for _ in HOWS)
        had = (((tuple((Once(Work(ops=before)),) for _ in HOWS)),) if before else (),)
        return _Row(made, True, earlier, (_Step(works, False, below, (), Once(), ((), *had), False),))

    return row(False, Work(ops=own), (), 0.0), row(True, Work(ops=1.0), ((0, False),), given)


@pytest.mark.parametrize("given, own", [(7.0, 10.0), (10.0, 7.0)])
def test_what_is_done_in_two_parts_adds_up(given: float, own: float) -> None:
    """No value is of two parts, unless both may compute it: then it may be the same."""
    for earlier, ops in ((False, given + own), (True, max(given, own))):
        found, rows = ways_of(
            steps(given, own, earlier), [Barred(frozenset()), Barred(frozenset(), False, 1)]
        )
        near, far = ([way.work.ops for way in found[number, "loops", True]] for number in (0, 1))
        assert near == [own] and far == [ops]
        assert rows == [{1}, {1}]


def test_equal_rows_of_two_tables_may_be_elsewhere() -> None:
    """Then what is below them is, too."""

    def row(made: bool, ops: float, below: tuple[tuple[int, bool], ...], *reads: _Read) -> _Row:
        works = tuple(Work(ops=ops) for _ in HOWS)
        return _Row(made, True, False, (*reads, _Step(works, False, below, (), Once(), ((),), False)))

    read = _Read(Once(Work(bytes_read=8.0)), tuple(Work() for _ in HOWS), 1)
    known, some = Rows(), row(False, 5.0, (), read)
    ways_of((some, row(True, 1.0, ((0, False),))), [Barred(frozenset())], known)
    other = row(False, 100.0, ()), some, row(True, 1.0, ((1, False),))
    asked = [Barred(frozenset({1}))]
    found, _ = ways_of(other, asked, known)
    assert [way.work.ops for way in found[0, "loops", True]] == [5.0]
    assert (found, _) == ways_of(other, asked)


def test_farther_is_one_sum_more(chain: tuple[Problem, list[Part]]) -> None:
    """A kernel of a part that computes its value again from what is computed again takes both products."""
    problem, division = chain
    groups = [each for part in division for each in part.groups.values()]
    assert len(groups) >= 4

    def least(each: Beneath, lacking: int) -> float:
        return min(problem.model.seconds(way.work) for way in each.further["loops", True, lacking])

    for number, each in enumerate(groups):
        costs = [least(each, lacking) for lacking in CLASSES]
        assert costs == sorted(costs) and costs[NEAR] < costs[FAR]
        if number >= 2:  # with what takes least of the layer before
            assert costs[FARTHER] > 0.99 * (costs[FAR] + least(groups[number - 1], FAR)) > 1.2 * costs[FAR]
    assert groups[-1].kinds == groups[-3].kinds  # it is no use to look farther: layers are equal


@pytest.mark.parametrize(
    "deep, little, grows",
    [(1, float("-inf"), False), (100, distance.LITTLE, False), (100, float("-inf"), True)],
)
def test_after_some_equal_layers_or_where_it_is_little_no_more_is_done(
    deep: int, little: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was added in each layer made all of them different; what one before does is never too much."""
    problem, start = chosen_from(stack(beside, 5, 2, 32, 64, 2), "sm80")
    at, grown = cuts(problem, regular(problem, start)), 0
    monkeypatch.setattr(distance, "DEEP", deep)
    monkeypatch.setattr(distance, "LITTLE", little)
    groups = [each for part in parts(problem, at, True, True, True)[0] for each in part.groups.values()]
    for one, two in itertools.pairwise(groups[1:]):
        for what, ways in two.further.items():
            grown += set(fewest([*one.further[what], *ways])) != set(ways)
    assert bool(grown) == grows


@pytest.fixture(scope="module")
def narrow() -> tuple[Problem, Choice, list[Cut]]:
    problem, start = chosen_from(stack(beside, 4, 2, 128, 128, 4, "bf16"), "sm90")
    return problem, start, cuts(problem, regular(problem, start))


def test_where_there_are_many_levels_what_makes_much_of_a_difference_is_told(
    narrow: tuple[Problem, Choice, list[Cut]],
) -> None:
    """With 97 of them for 41, parallel blocks of 128 were searched for two thirds longer."""
    problem, _, at = narrow
    coarse, fine = (
        [each for part in parts(problem, at, True, True, finely=finely)[0] for each in part.groups.values()]
        for finely in (False, True)
    )
    assert not any(each.coarse for each in fine)
    assert any(each.coarse for each in coarse)
    for one, other in zip(coarse, fine, strict=True):
        missing = set(other.kinds).difference(one.kinds)
        assert one.coarse == {kind.source for kind in missing}
        for level, kind in enumerate(one.kinds, 1):
            assert one.coarsely(level) == (kind.source in one.coarse)
        assert not one.coarsely(0)
        # the classes that are told apart, and no others; what is near always is
        assert one.sources == other.sources and set(one.kinds) <= set(other.kinds)
        assert {kind.source for kind in one.kinds} == {
            kind.source for kind in one.kinds if kind.lacking == NEAR
        }
        for what, ways in one.once.items():
            assert other.once[what] == ways


def test_of_small_parts_all_levels_are_told(narrow: tuple[Problem, Choice, list[Cut]]) -> None:
    """How long the search takes is a matter of levels and of options."""
    problem, _, at = narrow
    division, _ = parts(problem, at, True, True)
    options = max(len(part.options) for part in division)
    with pytest.MonkeyPatch.context() as patch:
        finest = max(
            each.levels
            for part in parts(problem, at, True, True, finely=True)[0]
            for each in part.known.values()
        )
        for pairs, coarse in ((options * finest + 1, False), (options * finest // 2, True)):
            patch.setattr(inside, "PAIRS", pairs)
            division, _ = parts(problem, at, True, True)
            assert any(each.coarse for part in division for each in part.groups.values()) == coarse


def test_more_levels_are_of_use_where_a_path_is_not_filled_there(
    narrow: tuple[Problem, Choice, list[Cut]],
) -> None:
    problem, _, at = narrow
    division, _ = parts(problem, at, True, True)
    answers = [Answer(part, {}, {}, None) for part in division]
    filled = [(0,) * len(part.made) for part in division]
    assert not search._coarse(answers, filled)
    looked: set[bool] = set()
    for number, part in enumerate(division[:-1]):
        (group,) = part.groups.values()
        for level in range(1, group.levels):
            states = [*filled[:number], (level,), *filled[number + 1 :]]
            assert search._coarse(answers, states) == group.coarsely(level)
            looked.add(group.coarsely(level))
    assert looked == {False, True}


def test_the_more_levels_there_are_the_fewer_classes_are_told(
    narrow: tuple[Problem, Choice, list[Cut]], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, _, at = narrow
    monkeypatch.setattr(inside, "TOLD", (0.1, 0.3, 0.5))

    def levels(pairs: float) -> list[int]:
        monkeypatch.setattr(inside, "PAIRS", pairs)
        return [each.levels for part in parts(problem, at, True, True)[0] for each in part.groups.values()]

    fine, coarse, coarsest = levels(float("inf")), levels(30_000), levels(18_000)
    assert all(a >= b >= c for a, b, c in zip(fine, coarse, coarsest, strict=True))
    assert sum(fine) > sum(coarse) > sum(coarsest)


def test_more_levels_are_looked_at_where_what_is_found_is_not_close(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, start = chosen_from(stack(norm_first, 4, 4, 1024, 32, 2), "sm90")
    monkeypatch.setattr(inside, "PAIRS", 2)  # as if these were many
    looked, bounds = list[bool](), dict[float, float]()
    divide = search.parts

    def noted(*given: Any) -> Any:
        looked.append(given[-1])
        return divide(*given)

    monkeypatch.setattr(search, "parts", noted)
    for close in (0.5, 1e-9):
        looked.clear()
        monkeypatch.setattr(search, "CLOSE", close)
        choice, proof = search.exact(problem, start, Effort(600.0, 250_000))
        bounds[close] = proof.bound
        assert proof.optimal or any(looked) == (close < 0.5)
        assert proof.bound <= choice.seconds * (1 + 1e-9)
    assert bounds[1e-9] >= bounds[0.5]


def test_levels_say_how_far_what_they_are_had_from_is(chain: tuple[Problem, list[Part]]) -> None:
    _, division = chain
    seen = set()
    for part in division:
        for each in part.groups.values():
            assert each.lacks(0) == NEAR
            for level, kind in enumerate(each.kinds, 1):
                source = each.sources[kind.source]
                if source.distance == FAR:
                    assert each.lacks(level) == (FARTHER if kind.lacking >= FAR else FAR)
                else:
                    assert each.lacks(level) in (source.distance, kind.lacking)
                seen.add((source.distance, kind.lacking))
        for levels in part.levels:
            assert part.lacks(levels) == min(
                (part.known[name].lacks(level) for name, level in zip(part.given, levels, strict=True)),
                default=NEAR,
            )
    assert {(FAR, NEAR), (FAR, FAR), (NEAR, NEAR)} <= seen


def test_one_that_does_much_more_is_charged_as_a_whole(chain: tuple[Problem, list[Part]]) -> None:
    """If it tiles a product; others leave out what each such kernel is counted for where the value is used. Nothing is both."""
    problem, division = chain
    launch, seen = problem.model.hardware.launch, 0
    for part in division[2:-1]:
        scope = Scope(problem, part, True)
        (group,) = part.groups.values()
        for tiled, more in ((True, 2.0), (True, 0.5), (False, 2.0)):
            way = Within(0, 0, 5 * launch, None, None, False, False, tiled, (5 - more * WHOLE) * launch)
            unfilled = Unfilled(scope, group, {given: [way] for given in part.levels})
            for level, kind in enumerate(group.kinds, 1):
                if not kind.lacking or not kind.deep or kind.outer or not kind.inner:
                    continue
                for given in part.levels:
                    offered = unfilled.at(level, given)
                    whole = (
                        tiled
                        and more > 1
                        and any(each.whole for each in group.kinds if each.source == kind.source)
                    )
                    if group.sources[kind.source].light or unfilled.like(level, given) is None:
                        continue
                    assert bool(offered) == (whole == kind.whole)
                    for each in offered:
                        assert unfilled.charge(each, level) == (way.seconds if whole else way.rest)
                        seen += 1
    assert seen


def test_ways_that_take_longer_than_to_fill_the_buffer_are_one(chain: tuple[Problem, list[Part]]) -> None:
    """No more is asked of them. All others are there, also those that take so long with what does not count of each."""
    problem, division = chain
    lacking = False
    for part in division[3:6]:
        scope, name = Scope(problem, part, True), part.made[0]
        lacking |= any(kind.lacking for kind in part.group(name).kinds)
        every, _ = within(scope, name, {})
        most = statistics.median(way.seconds for ways in every.values() for way in ways if way.seconds)
        few, _ = within(scope, name, {name: most})

        def found(ways: list[Within]) -> set[tuple[object, ...]]:
            return {
                (way.reads, way.marks, way.outer, way.tiled, way.seconds, way.rest)
                for way in ways
                if way.copy is None  # these take as long as what they are copies of
            }

        for at, ways in few.items():
            assert found([way for way in ways if not way.some]) <= found(every[at])
            assert found([way for way in every[at] if way.rest <= most]) <= found(ways)
            assert all(way.seconds > most for way in ways if way.some)
        alone = ([way for way in ways if not way.some] for ways in few.values())
        assert sum(map(len, map(found, alone))) < sum(map(len, map(found, every.values())))
    assert lacking
