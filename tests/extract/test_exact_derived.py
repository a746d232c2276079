"""A search that does without what is computed from one value goes first where launches take most of the time."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_examples import check_runs, chosen_from

import tinyc
from tinyc import functions
from tinyc.bench.programs import transformer
from tinyc.extract.exact.derived import derived, without
from tinyc.extract.exact.exact import exact
from tinyc.extract.exact.proof import Effort
from tinyc.extract.greedy import rough
from tinyc.extract.problem import Problem


def problem_of(function: Any, *shapes: tuple[int, ...], target: str = "sm80", dtype: str = "fp32") -> Problem:
    program = tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))
    return chosen_from(program, target)[0]


def held(problem: Problem, uop: str, program_nodes: Any) -> set[str]:
    """The buffers of what nodes of a kind compute."""
    numbers = {f"node {number}" for number, node in enumerate(program_nodes) if node.uop == uop}
    return {
        name
        for name, buffer in problem.view.buffers.items()
        if buffer.arg is None and numbers.intersection(problem.view.origin(way.root) for way in buffer.ways)
    }


def test_a_softmax_of_scores_is_computed_again_where_no_product_loads_it() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return functions.softmax(q @ k.T) @ v

    program = tinyc.trace(attention, *(tinyc.spec("fp32", (16, 24)) for _ in range(3)))
    problem, _ = chosen_from(program, "sm80")
    found = derived(problem)
    sums = held(problem, "REDUCE", program.nodes)
    products = {
        name
        for name, buffer in problem.view.buffers.items()
        for way in buffer.ways
        if any(each.item.head == "Contract" for each in problem.options.get((way.root, False), ()))
    }
    assert products.isdisjoint(found)
    loaded = {
        str(option.item.payload[0])
        for key, options in problem.options.items()
        for option in options
        if key[1] and option.item.head == "Read"
    }
    assert loaded.isdisjoint(found)
    assert found & sums  # the largest score of a row; the sum of its exponentials may be that of a Stream
    assert derived(without(problem, found)) == frozenset()


def test_what_two_products_are_needed_for_is_kept() -> None:
    def gated(x: Any, u: Any, v: Any) -> Any:
        both = (x @ u).silu() * (x @ v)
        return both.exp() + both.max(axis=1, keepdims=True), both

    program = tinyc.trace(gated, *(tinyc.spec("fp32", shape) for shape in ((16, 24), (24, 32), (24, 32))))
    problem, _ = chosen_from(program, "sm80")
    found = derived(problem)
    assert found
    assert held(problem, "MAX", program.nodes).isdisjoint(found)  # of both
    assert found.isdisjoint(problem.view.graph.outputs)


@pytest.mark.parametrize("target, dtype", [("sm80", "fp16"), ("sm90", "fp32")])
def test_small_layers_are_searched_without_it_first(
    target: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same steps find less where all of them go into all ways to store something."""
    function, shapes = transformer(4, 32, 64)
    program = tinyc.trace(function, **{name: tinyc.spec(dtype, shape) for name, shape in shapes.items()})
    problem, _ = chosen_from(program, target)
    start = rough(problem)
    assert start is not None
    effort = Effort(600.0, 60_000)
    choice, proof = exact(problem, start, effort)
    monkeypatch.setattr("tinyc.extract.exact.exact.derived", lambda problem: frozenset())
    other, _ = exact(problem, start, effort)
    assert choice.seconds < other.seconds
    assert proof.bound <= choice.seconds <= start.seconds
    check_runs(problem, choice)
