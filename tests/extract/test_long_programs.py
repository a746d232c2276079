"""Where the search begins in a long program: with what two greedy passes find, as far as that is good for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kernel_examples import chosen_from, saturated

import tinyc
from tinyc.bench.programs import transformer
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.exact.exact import CLOSE, exact
from tinyc.extract.exact.lanes import begun
from tinyc.extract.exact.proof import Effort, unproven
from tinyc.extract.greedy import rough
from tinyc.extract.program import LONG, SURE, _begun, _proved, extract_program
from tinyc.extract.regions import build
from tinyc.ir.plan import Extracted

EFFORT = Effort(600.0, 100_000)


def blocks(number: int, tokens: int, width: int, dtype: str) -> tinyc.Program:
    function, shapes = transformer(number, tokens, width)
    return tinyc.trace(function, **{name: tinyc.spec(dtype, shape) for name, shape in shapes.items()})


@pytest.mark.parametrize(
    ("program", "target"),
    [((5, 512, 512, "fp32"), "sm80"), ((6, 40, 72, "fp32"), "cpu")],
)
def test_a_long_program_is_not_dearer_than_all_greedy_passes_find(
    program: tuple[int, int, int, str], target: str
) -> None:
    traced = blocks(*program)
    problem, greedy = chosen_from(traced, target)
    assert problem.size > LONG
    found = extract_program(traced, saturated(traced, target), Roofline(hardware(target)), effort=EFFORT)
    assert found.proof is not None
    first = rough(problem)
    assert first is not None
    assert found.proof.start == pytest.approx(first.seconds)
    assert found.proof.seconds <= greedy.seconds * (1 + 1e-9)
    assert found.proof.gap <= CLOSE


def test_a_rough_start_stores_what_it_would_compute_twice() -> None:
    """And the search may do otherwise: it is of the problem as it was. Before, all greedy passes were made instead."""
    traced = blocks(1, 16, 32, "fp16")
    problem, _ = chosen_from(traced, "cpu")
    first = rough(problem)
    assert first is not None and build(traced, problem.view, first, problem.rows).repeated
    begun = _begun(traced, problem, lambda region: None)
    assert begun is not None
    choice, extracted, searched = begun
    assert searched is problem
    assert not build(traced, problem.view, choice, problem.rows).repeated
    assert len(extracted.regions) == len(choice.kernels)


def test_a_rough_start_that_leaves_large_parts_is_not_searched_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyc.extract.exact.exact.LARGE", 100)
    traced = blocks(4, 64, 128, "fp32")
    problem, greedy = chosen_from(traced, "sm80")
    start = rough(problem)
    assert start is not None
    assert start.seconds > 1.3 * greedy.seconds
    choice, proof = exact(problem, start, EFFORT, hasty=True)
    assert choice is start
    assert proof.bound == 0
    assert proof.kernels == 0


def test_it_is_searched_from_where_greedy_passes_find_nothing_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """The greedy choice of 16 rotary blocks of 512 x 1024, whose parts are large, was taken as it is, with no bound."""
    monkeypatch.setattr("tinyc.extract.exact.exact.LARGE", 100)
    monkeypatch.setattr("tinyc.extract.program._cheapest", _begun)
    traced = blocks(5, 512, 512, "fp32")
    found = extract_program(traced, saturated(traced, "sm80"), Roofline(hardware("sm80")), effort=EFFORT)
    assert found.proof is not None
    assert found.proof.limit != "greedy"
    assert found.proof.gap <= CLOSE


@pytest.mark.parametrize("blocks", [2, 4])
def test_small_layers_cost_no_more_in_two_bytes_than_in_four(blocks: int) -> None:
    """Products of fp16 as loops were thought to keep all of a GPU busy, however few results they have: the greedy choice computed
    them again and again (5,666 us of 16 blocks, where fp32 takes 527)."""
    seconds = {}
    for dtype in ("fp16", "fp32"):
        function, shapes = transformer(blocks, 32, 64)
        program = tinyc.trace(function, **{name: tinyc.spec(dtype, shape) for name, shape in shapes.items()})
        seconds[dtype] = chosen_from(program, "sm80")[1].seconds
    assert seconds["fp16"] < 1.5 * seconds["fp32"]


@pytest.mark.parametrize(("share", "planned"), [(0.99 * SURE, 1), (1.01 * SURE, 2), (2.0, 2)])
def test_a_start_that_is_much_dearer_is_given_no_plans(
    share: float, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels compute whole layers again: of 16 layers of one token that took up to minutes, longer than the search."""
    traced = blocks(1, 16, 32, "fp16")
    problem, greedy = chosen_from(traced, "cpu")
    first = _begun(traced, problem, lambda region: None)
    assert first is not None
    monkeypatch.setattr("tinyc.extract.program.exact", lambda *_: (greedy, unproven(problem, greedy)))
    start, extracted, _ = first
    assert greedy.seconds < start.seconds
    seen: list[Extracted] = []

    def finished(other: Extracted) -> float:
        seen.append(other)
        return start.seconds if other is extracted else share * start.seconds

    choice, *_ = _proved(traced, problem.view, first, EFFORT, lambda region: None, finished)
    assert len(seen) == planned and (seen[-1] is extracted) == (planned == 2)
    assert (choice is start) == (share > 1)


@pytest.mark.parametrize("brief", [0, 100_000])
def test_a_large_start_is_given_no_plans_meanwhile(brief: int, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = blocks(1, 16, 32, "fp16")
    problem, greedy = chosen_from(traced, "cpu")
    start = _begun(traced, problem, lambda region: None)
    assert start is not None
    lanes: list[int] = []

    def noted(jobs: Sequence[Callable[[], float]], number: int) -> Any:
        lanes.append(number)
        return begun(jobs, 1)

    monkeypatch.setattr("tinyc.extract.program.begun", noted)
    monkeypatch.setattr("tinyc.extract.program.exact", lambda *_: (greedy, unproven(problem, greedy)))
    monkeypatch.setattr("tinyc.extract.program.BRIEF", brief)
    effort = replace(EFFORT, lanes=2)
    _proved(traced, problem.view, start, effort, lambda region: None, lambda _: 0.0, lambda: None)
    assert lanes == [2 if brief else 1]
