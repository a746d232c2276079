"""What equal parts have in common, and which of the buffers that are as good are looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from kernel_examples import chosen_from

import tinyc
from tinyc.bench.programs import transformer
from tinyc.bench.transformers import norm_first, stack
from tinyc.extract.exact import answers, solved
from tinyc.extract.exact import exact as search
from tinyc.extract.exact.answers import answered
from tinyc.extract.exact.canonical import canonical
from tinyc.extract.exact.cuts import cuts
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.merged import MERGINGS
from tinyc.extract.exact.meter import Meter
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.parts import parts, sizes
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.regular import regular
from tinyc.extract.exact.scope import Scope
from tinyc.extract.exact.solved import Solved, Try, tries
from tinyc.extract.exact.within import within
from tinyc.extract.greedy import rough
from tinyc.extract.problem import Problem


@pytest.fixture(scope="module")
def division() -> tuple[Problem, list[Part]]:
    function, shapes = transformer(6, 128, 256)
    program = tinyc.trace(function, **{name: tinyc.spec("fp16", shape) for name, shape in shapes.items()})
    problem, _ = chosen_from(program, "sm80")
    start = rough(problem)
    assert start is not None
    found, _ = parts(problem, cuts(problem, regular(problem, start)), True, True)
    return problem, found


def test_deep_layers_are_like_those_before_them() -> None:
    """All but the first, and the last two, of which less is needed. The ninth had fewer options: where rows are halved, more than 32 elements
    were read from a buffer, and to those of the stream each layer adds two sums (``rules/bounds.egg``)."""
    problem, start = chosen_from(stack(norm_first, 9, 1, 1, 64, 2), "sm90")
    counts = sizes(problem, cuts(problem, regular(problem, start)))
    assert len(counts) == 19
    assert len(set(counts[2:-1:2])) == len(set(counts[3:-4:2])) == 1


def test_sets_of_buffers_have_no_order(division: tuple[Problem, list[Part]]) -> None:
    """Theirs was that of their names, and so equal layers with other names were solved again."""
    problem, found = division
    several = 0
    for part in found:
        turned = {
            name: replace(group, partial=tuple(names[::-1] for names in group.partial))
            for name, group in part.groups.items()
        }
        several += any(len(names) > 1 for group in part.groups.values() for names in group.partial)
        assert canonical(problem, part) == canonical(problem, replace(part, groups=turned))
    assert several


def test_parts_that_are_given_the_same_at_other_prices_are_solved_once(
    division: tuple[Problem, list[Part]],
) -> None:
    """Those of the first layers, of which less is before them."""
    problem, found = division
    forms = [canonical(problem, part)[0] for part in found]
    (twice, *_) = (form for form in forms if forms.count(form) > 1)
    first, *others = (part for part, form in zip(found, forms, strict=True) if form == twice)
    cheap = replace(first, prices=tuple(price / 20 for price in first.prices))
    meter = Meter(Effort(600.0, 100_000))
    answers = answered(Hosts(problem), [cheap, *others], {}, meter, True)
    assert others and answers[0].solved is not None
    assert {id(answer.solved) for answer in answers} == {id(answers[0].solved)}
    dearest = tuple(map(max, *(part.prices for part in (cheap, *others)), cheap.prices))
    assert all(answer.part.prices == dearest for answer in answers)


def test_what_is_read_at_least_for_a_value_counts_where_no_more_is_known(
    division: tuple[Problem, list[Part]],
) -> None:
    _, found = division
    for part in found:
        known = {key for each in part.known.values() for key in each.able}
        assert known.isdisjoint(part.inside_reads)
        assert bool(part.inside_bytes) <= bool(part.inside_reads)


def test_of_buffers_that_are_as_good_some_are_looked_at() -> None:
    """All of them were, up to four, and rotary layers of 32 tokens took more steps than there were; then the first and the last, and norms
    last of 32 tokens were a tenth dearer."""
    buffers = {number: f"b{number}" for number in range(7)}

    class Bounds:
        def near(self, ends: Any, most: float) -> list[str]:
            return ["b0", "b5"]

    numbers = {name: number for number, name in buffers.items()}
    each = Solved(Bounds(), numbers, {}, 0.0, {}, False, {0: [0, 1, 2, 3, 4], 5: [5, 6]}, True)  # type: ignore[arg-type]
    ends = ((), ())
    assert set(each.filled(buffers, ends, 0.0, ())) == {"b0", "b1", "b4", "b5", "b6"}
    assert set(each.filled(buffers, ends, 0.0, ("b2", "b3"))) == {"b0", "b1", "b2", "b3", "b4", "b5", "b6"}


def test_of_a_part_like_no_other_all_is_looked_at_that_its_own_kernels_fill(
    division: tuple[Problem, list[Part]],
) -> None:
    """Only what is filled at the cheapest ends was: where values of the first parts are computed again later, for little by the bound
    and for much in truth, rotary stacks lost a hundredth of their time."""
    problem, found = division
    start = rough(problem)
    assert start is not None
    answers = answered(Hosts(problem), found, {}, Meter(Effort(600.0, 100_000)), True, True)
    count = Counter(id(answer.solved) for answer in answers)
    states = [answer.solved.bounds.items()[-1][0][1] for answer in answers if answer.solved is not None]
    nothing = replace(start, kernels=())
    unused = search._unused(problem, answers, (states,), nothing)
    looked_at = set[str]()
    for answer in answers:
        assert answer.solved is not None
        if count[id(answer.solved)] == 1:
            zero = answer.part.levels[0], (0,) * len(answer.part.made)
            looked_at.update(answer.solved.filled(answer.buffers, zero, 0.0, ()))
    assert len(looked_at) >= 5 and unused
    assert unused.isdisjoint(looked_at)


def test_what_kernels_fill_with_which_parts_agree_is_looked_at(division: tuple[Problem, list[Part]]) -> None:
    """Of all parts. Only what is filled along the cheapest path was, of those that are like others: by the bound, the kernel that streams
    may turn the queries itself, from their product, which is taken as one with them, and that of no layer but the first and the last
    read them turned. 16 rotary layers of 96 tokens took 943.0 us; 891.9 now."""
    problem, found = division
    start = rough(problem)
    assert start is not None
    answers = answered(Hosts(problem), found, {}, Meter(Effort(600.0, 100_000)), True, True)
    solutions = [(answer, answer.solved) for answer in answers if answer.solved is not None]
    agreed = {answer.buffers[number] for answer, known in solutions for number in known.chosen}
    unused = search._unused(problem, answers, (), replace(start, kernels=()))
    assert len(agreed) > len(found) and unused and unused.isdisjoint(agreed)


def test_an_attempt_ends_where_there_are_too_many_ways_to_do_without_what_is_made(
    monkeypatch: pytest.MonkeyPatch, division: tuple[Problem, list[Part]]
) -> None:
    """All of them were looked at, for an attempt that had failed: a layer of diffusion took four seconds of that."""
    problem, found = division
    part = found[1]
    (name,) = part.targets
    scope = Scope(problem, part, True)
    ways, full = within(scope, name, {})
    assert not full and all(ways.values())
    assert within(scope, name, {}, 5) == ({}, True)
    monkeypatch.setattr(solved, "EVERY", 5)  # of all searches for ways
    assert solved._within(scope, {}, False) == ({name: {}}, True)
    assert solved._within(scope, {}, True) == ({name: ways}, False)  # no attempt follows


@pytest.mark.parametrize("lone", [True, False])
def test_a_part_like_no_other_goes_on_to_what_is_sure_to_end(
    monkeypatch: pytest.MonkeyPatch, division: tuple[Problem, list[Part]], lone: bool
) -> None:
    problem, found = division
    part = found[1]
    tried: list[float] = []
    weighed = solved._weighed

    def noted(scope: Scope, meter: Meter, attempt: Try) -> Any:
        tried.append(attempt.most)
        return weighed(scope, meter, attempt)

    monkeypatch.setattr(solved, "_weighed", noted)
    monkeypatch.setattr(solved, "WHOLE", 10)
    monkeypatch.setattr(solved, "LONE", 7)
    meter = Meter(Effort(600.0, 100_000))
    answer = solved.searched(Hosts(problem), part, meter, True, tries(part, meter, True, lone))
    assert answer is not None and answer.scope.merges
    assert len(MERGINGS) == 2
    assert tried == ([10, float("inf")] if lone else [10, 20, float("inf")])
    tried.clear()
    meter.merging = {len(part.buffers) + 1: 1}  # of other parts some are taken as one
    assert solved.searched(Hosts(problem), part, meter, True, tries(part, meter, True, lone))
    assert tried == ([7] if lone else [20]) + [float("inf")]


def test_a_part_like_no_other_is_merged_as_the_others_are(
    monkeypatch: pytest.MonkeyPatch, division: tuple[Problem, list[Part]]
) -> None:
    problem, found = division
    part = found[1]
    tried: list[int] = []
    weighed = solved._weighed

    def noted(scope: Scope, meter: Meter, attempt: Try) -> Any:
        tried.append(len(scope.buffers))
        return weighed(scope, meter, attempt)

    monkeypatch.setattr(solved, "_weighed", noted)
    meter = Meter(Effort(600.0, 100_000))
    meter.merging[len(part.buffers)] = 1
    answer = solved.searched(Hosts(problem), part, meter, True, tries(part, meter, True, True))
    assert answer is not None and answer.scope.merges
    assert tried == [len(Scope(problem, part, True, None, MERGINGS[0]).buffers)]


def test_a_search_that_is_left_takes_hardly_more_steps_than_it_may(
    division: tuple[Problem, list[Part]],
) -> None:
    """One buffer of a rotary layer took 20,161 where all of them may take 10,000, and more were taken as one after all."""
    problem, found = division
    left = 0
    for part in found:
        for whole in (20.0, 50.0, 200.0, 800.0):
            meter = Meter(Effort(600.0, 100_000))
            attempt = Try(0, whole, whole * 2 / 3, False)
            known = solved._weighed(Scope(problem, part, True, Hosts(problem), None), meter, attempt)
            assert 100_000 - meter.steps <= 1.5 * whole
            left += known is None
    assert left >= 8


@pytest.mark.parametrize("most", [0, 100])
def test_of_few_large_parts_some_buffers_are_taken_as_one_at_once(
    most: int, monkeypatch: pytest.MonkeyPatch, division: tuple[Problem, list[Part]]
) -> None:
    """To look at them apart took up to four seconds of parallel blocks, and did not end in half of them."""
    problem, found = division
    tried: list[int] = []
    searched = answers.searched

    def noted(hosts: Any, part: Any, meter: Any, loosely: bool, attempts: Any) -> Any:
        tried.extend(each.way for each in attempts)
        return searched(hosts, part, meter, loosely, attempts)

    monkeypatch.setattr(answers, "searched", noted)
    monkeypatch.setattr(answers, "BUFFERS", most)
    monkeypatch.setattr(answers, "KINDS", len(found))
    every = answered(Hosts(problem), found, {}, Meter(Effort(600.0, 250_000)), True, True, True)
    assert (min(tried) > 0) == (most == 0)
    assert all(each.solved is not None for each in every)
