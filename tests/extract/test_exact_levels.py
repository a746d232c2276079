"""A part of a program is solved for each way in which what lies between it and the next may be had."""

from __future__ import annotations

import math

import pytest
from kernel_examples import ENOUGH, chosen_from

import tinyc
from tinyc.bench.programs import transformer
from tinyc.extract.choice import outside
from tinyc.extract.exact.cuts import cuts
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.inside import Beneath, Kind, combined
from tinyc.extract.exact.mates import regular
from tinyc.extract.exact.parts import Part, parts
from tinyc.extract.exact.solved import Meter, Solved, answered
from tinyc.extract.problem import Problem


@pytest.fixture(scope="module")
def divided() -> tuple[Problem, list[Part]]:
    function, shapes = transformer(2, 256, 256)
    program = tinyc.trace(function, **{name: tinyc.spec("fp16", shape) for name, shape in shapes.items()})
    problem, start = chosen_from(program, "sm80")
    division, _ = parts(problem, cuts(problem, regular(problem, start)), True)
    return problem, division


@pytest.fixture(scope="module")
def solutions(divided: tuple[Problem, list[Part]]) -> list[tuple[Part, Solved]]:
    problem, division = divided
    meter, known = Meter(ENOUGH), dict[tuple[object, ...], Solved | None]()
    answers = [answered(Hosts(problem), part, known, meter, True) for part in division]
    return [(answer.part, answer.solved) for answer in answers if answer.solved is not None]


def groups(division: list[Part]) -> list[Beneath]:
    return [each for part in division for each in part.groups.values()]


def test_a_buffer_may_be_missing_in_a_few_ways(divided: tuple[Problem, list[Part]]) -> None:
    found = groups(divided[1])
    assert len(found) >= 4
    for each in found:
        assert each.levels == 1 + len(each.kinds)
        assert {kind.partial for kind in each.kinds} == ({True, False} if each.partial else {False})
        assert all(kind.deep for kind in each.kinds if not kind.partial)
    assert combined([1, 2]) == [(0, 0), (0, 1)]


def test_less_is_computed_where_partial_sums_are_there(divided: tuple[Problem, list[Part]]) -> None:
    problem, division = divided

    def least(each: Beneath, read: bool) -> float:
        """In loops; a row of a product that is kept may be had at other places for nothing."""
        found = [ways for (partial, how, _), ways in each.once.items() if partial == read and how == "loops"]
        ways = [way for each in found for way in each]
        return min((problem.model.seconds(way.work) for way in ways), default=math.inf)

    pairs = [(least(each, True), least(each, False)) for each in groups(division) if each.partial]
    assert pairs and all(with_them <= without for with_them, without in pairs)
    assert any(with_them < without / 2 for with_them, without in pairs)


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
        assert solved.bounds[zero] <= solved.cost * (1 + 1e-9)
        for (given, made), seconds in solved.bounds.items():
            assert seconds >= 0
            if any(given) and not any(made):
                missing += seconds > solved.bounds[zero] * 1.01
    assert missing


def test_a_level_says_where_values_are_computed(divided: tuple[Problem, list[Part]]) -> None:
    problem, division = divided
    for each in groups(division):
        places = {outside(problem.view.free[key[0]]) for key in each.able}
        inner = [kind for kind in each.kinds if not kind.outer]
        assert bool(inner) == (False in places and True in places) or places == {False}
        assert Kind(False, True, True) in each.kinds or True not in places
