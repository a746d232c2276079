"""What separates the layers of a program, and that equal layers are cut there alike."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_examples import chosen_from

import tinyc
from tinyc.bench.programs import transformer
from tinyc.extract.exact import exact
from tinyc.extract.exact.cuts import FEW, Cut, cuts, joined
from tinyc.extract.exact.parts import parts, sizes
from tinyc.extract.exact.regular import regular
from tinyc.extract.exact.separators import separators
from tinyc.extract.greedy import rough
from tinyc.extract.problem import Problem
from tinyc.extract.relaxation import Pass


def problem_of(function: Any, *shapes: tuple[int, ...], target: str = "cpu", dtype: str = "fp32") -> Problem:
    program = tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))
    return chosen_from(program, target)[0]


def test_the_stream_of_residual_layers_separates_them() -> None:
    sums: list[Any] = []

    def layers(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = x + (x @ weight).relu()
            sums.append(x)
        return x.exp()

    problem = problem_of(layers, (8, 16), *[(16, 16)] * 3)
    numbers = {number: name for name, number in problem.view.graph.names.items()}
    found = separators(problem)
    assert len(found) == 2  # the last sum is used once, by what comes behind it
    heads = [
        {item.head for item in problem.view.items[numbers[int(name.split()[1])]]} - {"Read"} for name in found
    ]
    assert heads == [{"Binary"}, {"Binary"}]
    places = [int(name.split()[1]) for name in found]
    assert places == sorted(places)  # first things first


def test_what_can_be_passed_by_does_not_separate() -> None:
    def around(x: Any, w: Any) -> Any:
        h = (x @ w).relu()
        return h * h + x  # the product is one way to x, the sum another

    assert separators(problem_of(around, (8, 8), (8, 8))) == []


def test_a_chain_of_products_has_none() -> None:
    def chain(x: Any, v: Any, w: Any) -> Any:
        return ((x @ v).relu() @ w).relu()

    assert separators(problem_of(chain, (8, 16), (16, 16), (16, 16))) == []


def _sums(program: tinyc.Program) -> set[str]:
    return {f"node {number}" for number, node in enumerate(program.nodes) if node.uop == "ADD"}


@pytest.mark.parametrize("target, dtype", [("sm80", "fp16"), ("sm80", "fp32"), ("sm90", "bf16")])
@pytest.mark.parametrize("tokens, width", [(32, 64), (64, 128)])
def test_equal_layers_are_cut_alike_where_launches_take_most_of_the_time(
    tokens: int, width: int, target: str, dtype: str
) -> None:
    """There the greedy choice computes what one layer hands to the next again in some of them, and the program was cut in some
    places and not in others: parts of two layers took ten times as long to search."""
    blocks = 6
    function, shapes = transformer(blocks, tokens, width)
    program = tinyc.trace(function, **{name: tinyc.spec(dtype, shape) for name, shape in shapes.items()})
    problem, _ = chosen_from(program, target)
    start = rough(problem)
    assert start is not None
    between = separators(problem)
    at = {
        problem.view.origin(way.root)
        for cut in cuts(problem, regular(problem, start))
        for name in cut.names
        for way in problem.view.buffers[name].ways
    }
    streams = [name for name in between if name in _sums(program)]
    assert len(streams) >= 2 * (blocks - 1)
    assert len(at.intersection(streams)) >= len(streams) - 1  # at an end of the program, it may be otherwise


def test_small_layers_of_which_a_guide_stores_nothing_are_cut_all_the_same() -> None:
    """Where each kernel computes all layers before again, no buffer carries what comes after, and rotary layers of 32 tokens were left as
    parts of thousands of options, which no number of steps was enough for."""
    function, shapes = transformer(4, 16, 32)
    program = tinyc.trace(function, **{name: tinyc.spec("fp16", shape) for name, shape in shapes.items()})
    problem, _ = chosen_from(program, "sm80")
    guide = Pass(problem).solve()
    assert guide is not None
    assert max(sizes(problem, cuts(problem, guide))) > exact.LARGE
    at = exact._cuts(problem, guide, None)
    assert max(sizes(problem, at)) <= exact.LARGE / 2
    division, kept = parts(problem, at, True)
    assert kept == at and len(division) >= 2 * 4  # attention and what follows it, of each layer


def between(sizes: list[int]) -> list[Cut]:
    return [Cut((f"b{number}",), (1.0,)) for number in range(len(sizes) - 1)]


@pytest.mark.parametrize(
    "sizes, kept",
    [
        ([32, 57, 139, 60, 231, 263, 231, 263], ["b1", "b3", "b4", "b5", "b6"]),  # 32 + 57, 139 + 60
        ([79, 143, 60, 231, 267, 231, 267], ["b0", "b2", "b3", "b4", "b5"]),  # 143 + 60; 79 is not small
        ([60, 250, 240, 230], ["b0", "b1", "b2"]),  # 310 are too many
        ([40, 40, 40, 40], ["b0", "b1", "b2"]),  # equal layers stay apart
        # 43 and 97 in all layers, and what is left at the end; 86 + 43 are as few, but not in each layer
        (
            [166, 86, 43, 97, 199, 43, 97, 243, 43, 97, 199, 43, 89],
            ["b0", "b1", "b3", "b4", "b6", "b7", "b9", "b10"],
        ),
        ([60, 250, 60, 250, 60, 250], ["b0", "b1", "b2", "b3", "b4"]),  # 310 are too many
        ([50, 200], []),
        # at the end a norm with what is before it, and one with what is after it: all four would be too much to search
        (
            [30, 135, 71, 104, 197, 104, 197, 96, 188, 45, 117, 26],
            ["b1", "b2", "b3", "b4", "b5", "b6", "b7", "b9"],
        ),
        ([300], []),
    ],
)
def test_small_parts_are_put_together_with_their_neighbours(sizes: list[int], kept: list[str]) -> None:
    assert [cut.names[0] for cut in joined(between(sizes), sizes, 300)] == kept


@pytest.mark.parametrize(
    "sizes, fewer",
    [
        ([98, 649, 73, *[204, 786] * 3, 98], 2),  # the last is like the first by chance
        ([98, 849, 73, *[204, 786] * 4, 99], 1),  # 1,020 are too many
        ([98, 649, 73, *[204, 786] * 2, 98], 0),  # and so are 747 of 2,898, more than a quarter
        ([180, 179, 164, 88], 0),  # no layers are alike, and each is much of the program
        ([1200, 73, *[204, 786] * 4], 0),
        ([200, 200, 200, 99], 0),  # all layers are alike
        ([97, 90, *[200, 210] * 2], 1),
        ([300], 0),
    ],
)
def test_what_comes_before_equal_layers_is_put_together(sizes: list[int], fewer: int) -> None:
    """A stack with rotary positions was 10 % from its bound: what its first parts make was computed again in those after, each time for
    less than it takes. Two layers, all of which that was at first, were 10 % from theirs instead of 3 %."""
    assert joined(between(sizes), sizes, 300, 1_000) == between(sizes)[fewer:]


@pytest.mark.parametrize(
    ("gap", "enough", "kept"), [(2.0, 1.0, ["b1"]), (2.0, 0.4, ["b0", "b1"]), (30.0, 1.0, ["b0", "b1"])]
)
def test_cuts_are_done_without_where_that_may_be_enough(gap: float, enough: float, kept: list[str]) -> None:
    """An encoder and a decoder were searched twice more for a gap of 6.9 % instead of 7.0 %."""
    part = SimpleNamespace(options=range(100))
    answers = [SimpleNamespace(part=part)] * 3
    at = [replace(cut, prices=(float(number),)) for number, cut in enumerate(between([100] * 3))]
    found = exact._kept(at, answers, [1.5, 0.0], gap, enough)  # type: ignore[arg-type]
    assert [cut.names[0] for cut in found] == kept


def test_cuts_of_one_layer_that_are_priced_alike_are_told_apart() -> None:
    """Norms last of 2 x 8 x 32 were 7.8 % from their bound: all three cuts of a layer had one price, and what is left without all of them
    is too large."""
    sizes = [60, 120, 200] * 4
    answers = [SimpleNamespace(part=SimpleNamespace(options=range(size))) for size in sizes]
    at = [replace(cut, prices=(1.0,)) for cut in between(sizes)]
    for losses, dropped in (([0.01, 0.02, 3.0], {2}), ([3.0, 0.01, 0.02], {0}), ([0.8, 0.01, 0.7], {0, 2})):
        each = [losses[number % 3] for number in range(len(at))]
        found = exact._kept(at, answers, each, 4.0, 1.0)  # type: ignore[arg-type]
        left = {number % 3 for number, cut in enumerate(at) if cut in found}
        assert left == {0, 1, 2} - dropped


def test_the_parts_of_a_transformer_are_those_that_were_counted() -> None:
    function, shapes = transformer(4, 32, 64)
    program = tinyc.trace(function, **{name: tinyc.spec("fp16", shape) for name, shape in shapes.items()})
    problem, _ = chosen_from(program, "sm80")
    start = rough(problem)
    assert start is not None
    at = cuts(problem, regular(problem, start))
    counted = sizes(problem, at)
    fewer = joined(at, counted, 300)
    assert counted == [len(part.options) for part in parts(problem, at)[0]]
    assert min(counted) <= FEW < min(sizes(problem, fewer)) and len(fewer) < len(at)
