"""Of problems that are much alike, those that cost no less than others."""

from __future__ import annotations

import itertools
import random

import pytest
from kernel_examples import chosen_from

from tinyc.bench.transformers import beside, stack
from tinyc.extract.exact.bounds import Bounds
from tinyc.extract.exact.dag import Dag, Node
from tinyc.extract.exact.dominance import dearer_costs, dearer_nodes
from tinyc.extract.exact.exact import exact
from tinyc.extract.exact.ilp import Limits, solve
from tinyc.extract.exact.proof import Effort


def test_costs_that_are_no_less_in_all_are_dearer() -> None:
    never = float("inf")
    found = dearer_costs([(1.0, 2.0), (1.0, 3.0), (2.0, 1.0), (never, never)])
    assert found.tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [True, True, True, True],
    ]


def test_a_class_is_dearer_where_the_other_has_a_node_as_good_as_each() -> None:
    def nodes(*each: tuple[float, str]) -> tuple[Node, ...]:
        return tuple(Node(cost, (), tuple(needs)) for cost, needs in each)

    classes = [nodes((2.0, "ab")), nodes((2.0, "a"), (5.0, "c")), nodes((1.0, "abc")), nodes()]
    assert dearer_nodes(classes).tolist() == [
        [True, True, False, False],
        [False, True, False, False],
        [False, False, True, False],
        [True, True, True, True],  # it cannot be had
    ]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_dearer_costs_no_less(seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "b", "c", "d"]

    def node(below: list[str]) -> Node:
        return Node(float(rng.randint(0, 4)), (), tuple(each for each in below if rng.random() < 0.4))

    shapes = {name: [node(names[:place]) for _ in range(2)] for place, name in enumerate(names)}
    costs = [[float(rng.randint(0, 3)) for _ in range(8)] for _ in range(4)]
    roots = [[node(names) for _ in range(rng.randint(0, 3))] for _ in range(5)]

    def cost(each: list[float], root: list[Node]) -> float:
        every = iter(each)
        classes = {
            name: [Node(next(every), (), old.buffers) for old in found] for name, found in shapes.items()
        }
        answer = solve(Dag(classes | {"root": root}, ("root",)), Limits())
        return float("inf") if answer is None else answer.cost

    below, above = dearer_costs(costs), dearer_nodes(roots)
    found = [[cost(each, root) for root in roots] for each in costs]
    for one, two in itertools.product(itertools.product(range(4), range(5)), repeat=2):
        if below[one[0], two[0]] and above[one[1], two[1]]:
            assert found[one[0]][one[1]] >= found[two[0]][two[1]]


def test_ends_that_are_dearer_are_not_solved_where_no_path_is_through_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of parallel blocks of 128 x 32, 1,672 ends were solved where 272 are enough. What is known of the others is no more than they
    cost."""
    problem, start = chosen_from(stack(beside, 5, 1, 128, 32, 2, "bf16"), "sm90")
    every: list[Bounds] = []
    begin = Bounds.__init__

    def noted(self: Bounds, *given: object) -> None:
        begin(self, *given)  # type: ignore[arg-type]
        every.append(self)

    monkeypatch.setattr(Bounds, "__init__", noted)
    exact(problem, start, Effort(120.0, 250_000, lanes=1))
    large = max(every, key=lambda bounds: len(bounds.items()))
    ends = {id(large._form[each]): each for each, _ in large.items()}.values()
    rest = [each for each in ends if not large.known(each)]
    assert 2 * len(rest) > len(ends)
    for each in random.Random(0).sample(rest, 40):
        before = large.least(each)
        assert before <= large.solve(each) * (1 + 1e-9)
