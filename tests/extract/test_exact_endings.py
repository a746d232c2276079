"""Parts at the end of a program are ones of those before them, but for what comes after."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_examples import chosen_from

from tinyc.bench.transformers import beside, norm_first, rotary, stack
from tinyc.extract.exact.answers import Answer, answered
from tinyc.extract.exact.canonical import canonical
from tinyc.extract.exact.cuts import cuts
from tinyc.extract.exact.endings import ended, ending
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.meter import Meter
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.parts import parts
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.regular import regular
from tinyc.extract.problem import Problem
from tinyc.ir.tiny import Program

ENOUGH = Effort(600.0, 1_000_000)

STACKS = {
    "norm_first": (norm_first, (1, 64, 64, 2), "sm80"),
    "rotary": (rotary, (1, 32, 64, 2), "sm90"),
    "beside": (beside, (2, 32, 64, 2), "sm80"),
}


def divided(program: Program, target: str) -> tuple[Problem, list[Part]]:
    problem, start = chosen_from(program, target)
    return problem, parts(problem, cuts(problem, regular(problem, start)), True, True, True)[0]


@pytest.fixture(scope="module", params=STACKS)
def division(request: pytest.FixtureRequest) -> tuple[Problem, list[Part]]:
    block, size, target = STACKS[request.param]
    return divided(stack(block, 6, *size), target)


@pytest.fixture(scope="module")
def answers(division: tuple[Problem, list[Part]]) -> list[Answer]:
    problem, found = division
    return answered(Hosts(problem), found, {}, Meter(ENOUGH), True)


def solved_apart(problem: Problem, part: Part) -> Answer:
    return answered(Hosts(problem), [part], {}, Meter(ENOUGH), True)[0]


def test_the_last_layer_is_solved_with_one_before_it(
    division: tuple[Problem, list[Part]], answers: list[Answer]
) -> None:
    """It costs what it costs by itself where all kernels of that one were found, else no more; and its kernels are its own."""
    problem, found = division
    last = answers[-1]
    own = solved_apart(problem, last.part)
    assert last.solved is not None and own.solved is not None
    assert any(last.solved is each.solved for each in answers[:-1])
    after, exact = (0,) * len(found[-1].made), 0
    for before in found[-1].levels:
        ends = before, after
        least, apart = last.solved.bounds.solve(ends), own.solved.bounds.solve(ends)
        assert least <= apart * (1 + 1e-9)
        if not last.solved.cut and found[-1].known == last.part.known:
            exact += least == pytest.approx(apart, rel=1e-9)
        taken = last.solved.picked(problem, last.keys, last.buffers, ends)
        assert taken is None or {each.name for each in taken} <= set(found[-1].buffers)
    assert exact or last.solved.cut
    kernels = last.solved.kernels(problem, last.keys, last.buffers)
    assert kernels is not None and set(kernels) <= set(found[-1].buffers)
    seconds = sum(each.seconds for each in kernels.values())
    assert seconds == pytest.approx(last.solved.cost, rel=1e-9)
    assert seconds == pytest.approx(own.solved.cost, rel=1e-9) or last.solved.cut


def test_an_ending_is_no_dearer_than_by_itself(
    division: tuple[Problem, list[Part]], answers: list[Answer]
) -> None:
    """One whose values are needed at fewer places, too: with more of them, more kernels may be had."""
    problem, found = division
    forms = [canonical(problem, part)[0] for part in found]
    seen = 0
    for answer, form in zip(answers, forms, strict=True):
        alike = [each.solved for each, other in zip(answers, forms, strict=True) if other != form]
        if forms.count(form) == 1 and any(answer.solved is each for each in alike):
            seen += 1
            own = solved_apart(problem, answer.part)
            assert answer.solved is not None and own.solved is not None
            for ends, _ in own.solved.bounds.items():
                assert answer.solved.bounds.solve(ends) <= own.solved.bounds.solve(ends) * (1 + 1e-9)
    assert seen


def test_it_is_told_from_what_is_not_like_it(division: tuple[Problem, list[Part]]) -> None:
    """What is written in another type, what reads more, and what is not alike at all."""
    problem, found = division
    often = [
        (number, part)
        for number, part in enumerate(found)
        if [canonical(problem, each)[0] for each in found].count(canonical(problem, part)[0]) > 1
    ]
    last = found[-1]
    assert often and ending(problem, last, often) is not None
    assert ending(problem, last, []) is None
    assert ending(problem, replace(last, inside_bytes=last.inside_bytes + 1), often) is None
    key, *_ = last.options
    fewer = {**last.options, key: last.options[key][:-1]}
    assert ending(problem, replace(last, options=fewer), often) is None
    assert ending(problem, found[0], often) is None


def test_nothing_is_needed_for_what_comes_after(division: tuple[Problem, list[Part]]) -> None:
    problem, found = division
    for part in found:
        less = ended(problem, part, {})
        assert less.options.keys() <= part.options.keys() and set(less.buffers) <= set(part.buffers)
        assert not less.targets and not less.groups
        assert canonical(problem, ended(problem, part, part.targets)) == canonical(problem, part)
