"""Of two products, a kernel tiles neither: what that says of kernels that compute again what no buffer is filled with."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from kernel_examples import ENOUGH, chosen_from

from tinyc.bench.transformers import norm_first, rotary, stack
from tinyc.extract.choice import Choice
from tinyc.extract.exact import exact as search
from tinyc.extract.exact.along import _picked
from tinyc.extract.exact.answers import Answer, answered
from tinyc.extract.exact.bounds import Ends
from tinyc.extract.exact.chains import reads
from tinyc.extract.exact.cuts import cuts
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.inside import holding_the_same
from tinyc.extract.exact.meter import Meter
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.parts import parts
from tinyc.extract.exact.paths import path
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.regular import regular
from tinyc.extract.exact.rounded import rounded
from tinyc.extract.exact.solved import made_levels
from tinyc.extract.exact.tables import Known, _Step, ways_of
from tinyc.extract.problem import Problem


def narrow() -> tuple[Problem, Choice]:
    """Products that take hardly longer than to read what they are of."""
    return chosen_from(stack(norm_first, 5, 4, 512, 64, 4), "sm90")


def gated() -> tuple[Problem, Choice]:
    return chosen_from(stack(rotary, 3, 2, 512, 64, 2), "sm80")


def short() -> tuple[Problem, Choice]:
    """Where launches take most of the time, and layers are computed again."""
    return chosen_from(stack(norm_first, 8, 2, 32, 256, 8), "sm80")


def divided(problem: Problem, start: Choice) -> list[Part]:
    return parts(problem, cuts(problem, regular(problem, start)), True, True)[0]


@pytest.mark.parametrize("made", [narrow, gated, short])
def test_no_kernel_costs_less_than_its_bound(made: Callable[[], tuple[Problem, Choice]]) -> None:
    """Along paths that are drawn, as ends are given what they cost more. Kernels were left out that cost more than others that compute
    again what is given, at the one level at which these cost least: at others, the bound was 5 % above what there is."""
    problem, start = made()
    known: dict[tuple[object, ...], Any] = {}
    effort = Effort(120.0, 400_000)  # gated layers take 249,506 steps
    answers = answered(Hosts(problem), divided(problem, start), known, Meter(effort), True, True)
    draw, seen = random.Random(0), 0
    for _ in range(20):
        dearer: dict[int, dict[Ends, float]] = {}
        for each in answers:
            assert each.solved is not None and not each.solved.merged
            ends = [(before, after) for before in each.part.levels for after in made_levels(each.part)]
            dearer[id(each.solved)] = {at: draw.random() * 4e-5 for at in ends if draw.random() < 0.6}
        _, states = path(answers, draw.choice([1, 2, float("inf")]), dearer)
        seen += checked(problem, answers, list(zip([(), *states], states, strict=False)))
    assert seen > 50


def checked(problem: Problem, answers: list[Answer], ends: list[Ends]) -> int:
    """How many kernels compute what no buffer is filled with."""
    picked = [
        kernel for each, at in zip(answers, ends, strict=True) for kernel in _picked(problem, each, at) or ()
    ]
    same, count, unfilled = holding_the_same(problem), 0, set[str]()
    for each, (_, after) in zip(answers, ends, strict=True):
        for group, level in zip(each.part.groups.values(), after, strict=False):
            source = group.sources[group.kinds[level - 1].source] if level else None
            # a bound may fill more than its level says: no kernel reads that
            for number in source.barred if source else ():
                unfilled.update(group.partial[number])
            unfilled.update(same[group.name] if source else ())
    for kernel, ways in zip(picked, rounded(problem, picked), strict=True):
        for found in ways.values():
            if unfilled.isdisjoint(reads(found)):
                assert found.seconds >= kernel.seconds * (1 - 1e-9)
                count += any(item.op == "inside" for item in kernel.items.values())
    return count


@pytest.mark.parametrize("made", [narrow, gated])
def test_what_is_computed_again_by_two_products_is_bounded_closely(
    made: Callable[[], tuple[Problem, Choice]],
) -> None:
    """What adds up layers without a buffer tiles no two products of theirs, and what reads one factor of a gate computes the other."""
    problem, start = made()
    _, proof = search.exact(problem, start, ENOUGH)
    assert proof.gap <= 0.05


def test_a_product_of_several_parts_may_be_the_one_that_is_tiled() -> None:
    """Parts share no buffer, and so hardly ever a product; where one does, a kernel may do less."""
    problem, start = narrow()
    known = Known()
    parts(problem, cuts(problem, regular(problem, start)), True, True, known=known)
    fewer = 0
    for (table, sources), (found, _) in known.tables.items():
        rows = [
            row._replace(
                options=tuple(
                    [each._replace(twice=True) if isinstance(each, _Step) else each for each in row.options]
                )
            )
            for row in table
        ]
        other, _ = ways_of(tuple(rows), sources)
        for place, ways in found.items():
            least = [
                min((way.work.flops + way.work.ops for way in each), default=float("inf"))
                for each in (other[place], ways)
            ]
            assert least[0] <= least[1]
            fewer += least[0] < least[1]
    assert fewer


def test_factors_of_a_gate_are_told_apart() -> None:
    """What a sum is of is computed from both; with one of them the other is computed, with both the sum is, still."""
    groups = [each for part in divided(*gated()) for each in part.groups.values()]
    both = [source for each in groups for source in each.sources if len(source.some) > 1]
    assert both and not any(source.light for source in both)
