"""Layers that are so small that launches take most of the time and kernels run as loops: what a kernel does that goes on in an
earlier part, and from what it has what that part made."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kernel_examples import ENOUGH, chosen_from
from test_other_transformers import norm_first, norm_last, shapes

import tinyc
from tinyc.extract.choice import Choice, Key, children_of
from tinyc.extract.exact import exact as search
from tinyc.extract.exact.answers import Answer, answered
from tinyc.extract.exact.cases import Cases
from tinyc.extract.exact.cuts import cuts
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.inside import INSIDE
from tinyc.extract.exact.meter import Meter
from tinyc.extract.exact.parts import parts, whole
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.regular import before_norms, regular
from tinyc.extract.exact.scope import Scope
from tinyc.extract.exact.separators import norms
from tinyc.extract.exact.solved import Solved
from tinyc.extract.exact.sources import beneath_sums
from tinyc.extract.exact.within import OTHERS, _common
from tinyc.extract.problem import Problem
from tinyc.extract.view import Item


def small(block: Any, layers: int, size: tuple[int, ...], target: str, dtype: str) -> tuple[Problem, Choice]:
    """``size``: batch, tokens, width, heads."""
    batch, tokens, width, heads = size

    def function(x: Any, **parameters: Any) -> Any:
        for layer in range(layers):
            x = block(x, {name: parameters[f"{name}_{layer}"] for name in shapes(width)}, heads)
        return x

    specs = {
        f"{name}_{layer}": tinyc.spec(dtype, shape)
        for layer in range(layers)
        for name, shape in shapes(width).items()
    }
    program = tinyc.trace(function, x=tinyc.spec(dtype, (batch, tokens, width)), **specs)
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


@pytest.mark.parametrize("which", ["first", "last"])
def test_what_is_known_of_loops_is_so_of_kernels_that_are_known(
    which: str, request: pytest.FixtureRequest
) -> None:
    """Of kernels of a program, with a value of theirs taken as one of an earlier part."""
    problem, start = request.getfixturevalue(which)
    cases = Cases(Scope(problem, whole(problem), False, Hosts(problem)))
    running, count, fewer = problem.running, 0, 0
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
            every = cases.looped(loops._replace(points=0, widest=0, more=True), size)
            count, fewer = count + 1, fewer + (len(found) < len(every))
    assert count > 100 and fewer > 50, (count, fewer)


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


@pytest.mark.parametrize("target, dtype", [("sm80", "fp16"), ("sm90", "fp32")])
def test_what_kernels_read_at_their_output_axes_may_not_be_enough_for_others(target: str, dtype: str) -> None:
    """A bound in which these are told apart is no looser, and holds."""
    problem, start = small(norm_last, 3, (1, 16, 32, 2), target, dtype)
    guide = before_norms(problem) or regular(problem, start)
    loose, close = (search.path(solved_parts(problem, guide, told))[0] for told in (False, True))
    choice, _ = search.exact(problem, start, ENOUGH)
    assert loose * 1.005 < close <= choice.seconds * (1 + 1e-9)


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
    _, apart, past = beneath_sums(problem, made, set(), set(unfilled))
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
    ],
)
def test_sixteen_small_layers_are_close(block: Any, size: tuple[int, ...], target: str, dtype: str) -> None:
    problem, start = small(block, 16, size, target, dtype)
    choice, proof = search.exact(problem, start, Effort(60.0, 150_000))
    assert proof.gap <= search.CLOSE and choice.seconds <= start.seconds
