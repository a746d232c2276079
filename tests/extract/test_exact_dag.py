"""Exact DAG extraction, held against every solution there is, and against a solver that is told the problem otherwise."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import highspy
import pytest
from dag_examples import brute_force, by_order, chain, random_dag

from tinyc.extract.exact.dag import Dag, Node, components, cost_of, floor, greedy, taken, valid
from tinyc.extract.exact.frontier import Frontier
from tinyc.extract.exact.ilp import TOLERANCE, Limits, solve
from tinyc.extract.exact.reduce import possible, reduced

SMALL = range(500)
LARGE = range(10_000, 10_200)


@pytest.mark.parametrize("states", [0, Limits().states], ids=["integer program", "states first"])
@pytest.mark.parametrize(
    "seeds", [SMALL[:50], pytest.param(SMALL[50:], marks=pytest.mark.slow)], ids=["first", "rest"]
)
def test_on_500_small_problems_the_exact_cost_is_that_of_brute_force(seeds: range, states: int) -> None:
    seen = {"none": 0, "circle": 0, "shared": 0, "buffer": 0, "group": 0, "better": 0}
    for seed in seeds:
        dag = random_dag(seed, 12)
        best, found, start = brute_force(dag), solve(dag, Limits(states=states)), greedy(dag)
        if best is None:
            assert found is None and start is None, seed
            seen["none"] += 1
            continue
        assert found is not None and start is not None, seed
        assert valid(dag, found.solution), seed
        assert found.cost == pytest.approx(cost_of(dag, found.solution)), seed
        assert found.optimal and not found.limit, seed
        assert found.cost == pytest.approx(best, rel=TOLERANCE, abs=1e-9), seed
        assert found.cost <= cost_of(dag, start) * (1 + 1e-12), seed
        seen["better"] += found.cost < cost_of(dag, start) * (1 - TOLERANCE)
        nodes = taken(dag, found.solution)
        needs = [need for node in nodes.values() for need in node.needs]
        seen["circle"] += any(len(part) > 1 for part in components(_edges(dag)))
        seen["shared"] += len(needs) > len(set(needs))
        seen["buffer"] += any(node.buffers for node in nodes.values())
        seen["group"] += any(node.group is not None and dag.groups[node.group] for node in nodes.values())
    assert all(count >= 2 for count in seen.values()), seen


@pytest.mark.parametrize("states", [0, Limits().states], ids=["integer program", "states first"])
@pytest.mark.parametrize(
    "seeds", [LARGE[:12], pytest.param(LARGE[12:], marks=pytest.mark.slow)], ids=["first", "rest"]
)
def test_on_200_larger_problems_it_is_the_answer_of_another_solver(seeds: range, states: int) -> None:
    solved = better = 0
    for seed in seeds:
        dag = random_dag(seed, 40)
        best, found, start = by_order(dag), solve(dag, Limits(states=states)), greedy(dag)
        assert (found is None) == (best is None), seed
        if found is None or best is None or start is None:
            continue
        assert valid(dag, found.solution) and found.optimal, seed
        assert found.cost == pytest.approx(best, rel=TOLERANCE, abs=1e-5), seed
        assert found.cost <= cost_of(dag, start) * (1 + 1e-12), seed
        solved += 1
        better += found.cost < cost_of(dag, start) * (1 - TOLERANCE)
    assert solved >= len(seeds) // 2 and better >= 2, (solved, better)


def test_a_problem_is_set_up_once_for_several_roots_and_limits() -> None:
    """What is said of a limit is so, and what is not known is only where classes need each other or groups are paid."""
    told = {True: 0, False: 0}
    for seed in range(30_000, 30_080):
        dag = random_dag(seed, 9)
        frontier = Frontier(dag, possible(Dag(dag.classes, tuple(dag.classes), dag.groups)))
        for root in dag.classes:
            one = Dag(dag.classes, (*dag.roots, root), dag.groups)
            best = brute_force(one)
            if best is None:
                assert frontier.search(one.roots, 10_000)[0] is None
                continue
            for most in (best * 0.999 - 1e-6, best * 1.001 + 1e-6):
                solution, sure = frontier.search(one.roots, 10_000, most)
                assert sure == frontier.able
                if sure:
                    assert (solution is not None) == (most >= best), seed
                    told[solution is not None] += 1
                if solution is not None:
                    assert valid(one, solution) and cost_of(one, solution) == pytest.approx(best)
            assert frontier.search(one.roots, 0) == (None, False)
    assert min(told.values()) >= 50, told


def test_what_several_problems_have_in_common_is_set_up_once() -> None:
    """Over the same classes, others that need them: what was found for one is of use to the next, and all are solved."""
    solved = reused = 0
    for seed in range(40_000, 40_040):
        names, rng = [*random_dag(seed, 9).classes], random.Random(seed)
        given = random_dag(seed, 9).classes
        # needs come first: there are no circles, and no groups
        classes = {
            name: [replace(node, group=None) for node in given[name] if node.needs <= {*names[:number]}]
            for number, name in enumerate(names)
        }
        every = Dag(classes, tuple(names))
        frontier = Frontier(every, possible(every))
        for _ in range(8):
            own = {
                name: [
                    Node(
                        float(rng.randint(0, 4)),
                        (),
                        tuple(rng.sample(below, rng.randint(0, min(3, len(below))))),
                    )
                    for _ in range(rng.randint(1, 4))
                ]
                for name, below in (("beside", names), ("end", [*names, "beside"]))
            }
            one = Dag({**classes, **own}, ("end",))
            best, over = brute_force(one), frontier.over(own)
            solution, sure = over.search(("end",), 10_000)
            assert (sure or best is None) and (solution is None) == (best is None), seed
            if solution is not None:
                assert valid(one, solution) and cost_of(one, solution) == pytest.approx(best), seed
                assert over.count(("end",)) == sum(map(len, possible(one).values())), seed
                solved += 1
        assert frontier.able
        reused += bool(frontier.best)
    assert solved >= 100 and reused >= 10, (solved, reused)


def test_what_is_left_out_beforehand_is_not_missed() -> None:
    """The reduced problem has a solution that costs as little, of all small problems."""
    for seed in range(20_000, 20_100):
        dag = random_dag(seed, 9)
        best = brute_force(dag)
        if best is not None:
            kept = reduced(dag)
            rest = {name: [dag.classes[name][number] for number in numbers] for name, numbers in kept.items()}
            # what the kept nodes need is kept as well
            assert all(need in rest for nodes in rest.values() for node in nodes for need in node.needs), seed
            least = brute_force(Dag(rest, dag.roots, dag.groups))
            assert least == pytest.approx(best), seed


def test_what_must_be_had_in_turn_is_a_bound() -> None:
    exact_ones = possible = 0
    for seed in range(300):
        dag = random_dag(seed, 12)
        best = brute_force(dag)
        if best is None:
            assert floor(dag) == float("inf") or any(
                len(part) > 1
                for part in components(_edges(dag))  # what is had only in a circle
            ), seed
            continue
        possible += 1
        least = floor(dag)
        assert least <= best * (1 + 1e-12), seed
        exact_ones += least == pytest.approx(best)
    assert 0 < exact_ones < possible
    steps = {"a": [Node(2.0)], "b": [Node(3.0, ("a",)), Node(6.0)], "c": [Node(1.0, ("a",), ("b",))]}
    assert floor(Dag(steps, ("c",))) == 6.0  # 2 + 3 + 1: "a" leads to "b"
    assert floor(Dag({"a": [Node(1.0, ("b",))], "b": [Node(1.0, ("a",))]}, ("a",))) == float("inf")


def test_what_is_shared_is_paid_once() -> None:
    """Two roots: each is cheaper by itself with a node of its own, together with what they share."""
    dag = Dag(
        {
            "left": [Node(6.0), Node(1.0, ("shared",))],
            "right": [Node(6.0), Node(1.0, ("shared",))],
            "shared": [Node(8.0)],
        },
        ("left", "right"),
    )
    found, start = solve(dag), greedy(dag)
    assert found is not None and start is not None
    assert found.cost == 10.0 and found.optimal
    assert cost_of(dag, start) == 12.0  # each of them by itself


def test_buffers_do_not_fill_each_other() -> None:
    """t = aᵀ and tᵀ = a could be copies of each other for nothing; one of them has to be computed."""
    dag = Dag(
        {"a": [Node(0.0, (), ("t",)), Node(5.0)], "t": [Node(0.0, (), ("a",)), Node(7.0)]},
        ("a", "t"),
    )
    found = solve(dag)
    assert found is not None and found.cost == 5.0 and valid(dag, found.solution)
    assert not valid(dag, {"a": 0, "t": 0})


def test_a_group_is_paid_once() -> None:
    dag = Dag(
        {"x": [Node(1.0, (), (), "g"), Node(3.0)], "y": [Node(1.0, (), (), "g"), Node(3.0)]},
        ("x", "y"),
        {"g": 3.0},
    )
    found = solve(dag)
    assert found is not None and found.cost == 5.0


@pytest.mark.parametrize(
    "dag",
    [
        Dag({"a": [Node(1.0, ("b",))], "b": [Node(1.0, ("a",))]}, ("a",)),
        Dag({"a": [Node(1.0, ("a",))]}, ("a",)),
        Dag({"a": [Node(1.0)], "b": []}, ("a", "b")),
        Dag({"a": [Node(1.0, ("missing",))]}, ("a",)),
    ],
)
def test_a_root_that_cannot_be_had_is_said(dag: Dag) -> None:
    assert solve(dag) is None
    assert greedy(dag) is None


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
def test_a_cost_is_a_number_that_is_not_negative(cost: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        solve(Dag({"a": [Node(cost)]}, ("a",)))


def test_many_steps_with_circles_between_them() -> None:
    """Each step has two buffers that may be copied from one another, and both are wanted at some steps."""
    for length in (1, 2, 3):
        dag = chain(length)
        found = solve(dag)
        assert found is not None and found.optimal and valid(dag, found.solution)
        assert found.cost == pytest.approx(brute_force(dag), rel=TOLERANCE)
    dag = chain(30)
    found = solve(dag)
    assert found is not None and found.optimal and valid(dag, found.solution)


def test_a_search_without_time_gives_the_start_and_an_honest_gap() -> None:
    for seed in range(30_000, 30_060):
        dag = random_dag(seed, 30)
        best, start = solve(dag), greedy(dag)
        if best is None or start is None:
            continue
        for limits in (Limits(seconds=0.0), Limits(rounds=0), Limits(rounds=1), Limits(nodes=0, rounds=2)):
            found = solve(dag, limits)
            assert found is not None and valid(dag, found.solution), seed
            assert found.cost <= cost_of(dag, start) * (1 + 1e-12), seed
            assert found.bound <= best.cost * (1 + TOLERANCE), seed
            assert found.cost * (1 - found.gap) <= best.cost * (1 + TOLERANCE), seed
            assert found.optimal == (found.limit == ""), seed
            if found.optimal:
                assert found.cost == pytest.approx(best.cost, rel=TOLERANCE, abs=1e-9), seed


def test_a_better_start_is_kept() -> None:
    kept = 0
    for seed in range(60):
        dag = random_dag(seed, 12)
        best, own = solve(dag), greedy(dag)
        if best is not None and own is not None and best.cost < cost_of(dag, own):
            found = solve(dag, Limits(seconds=0.0), start=best.solution)
            assert found is not None and found.cost == best.cost, seed
            kept += 1
    assert kept >= 3


def test_the_same_problem_has_the_same_solution() -> None:
    for seed in range(40_000, 40_020):
        dag = random_dag(seed, 30)
        once, again = solve(dag), solve(dag)
        assert (once and once.solution) == (again and again.solution), seed


def _edges(dag: Dag) -> dict[str, frozenset[str]]:
    return {
        name: frozenset(need for node in nodes for need in node.needs) for name, nodes in dag.classes.items()
    }


@pytest.mark.parametrize("trusted", [True, False])
def test_a_solver_that_leaves_a_cost_out_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """HiGHS 1.16 said of this one, after its presolve, that the optimum costs less than the bound of fractions. One that says so with
    any version is asked without presolve, and what it says then counts, if that is what its solution costs."""

    class Forgetful(highspy.Highs):  # type: ignore[misc]
        presolve = "choose"

        def setOptionValue(self, option: str, value: Any) -> Any:
            if option == "presolve":
                Forgetful.presolve = value
            return super().setOptionValue(option, value)

        def getInfo(self) -> Any:
            info = super().getInfo()
            if not (trusted and Forgetful.presolve == "off") and info.mip_node_count >= 0:
                info.objective_function_value = info.mip_dual_bound = 1e9
            return info

    dag = random_dag(175, 12)
    monkeypatch.setattr(highspy, "Highs", Forgetful)
    found = solve(dag, Limits(states=0))
    assert found is not None and found.optimal == trusted and found.cost == pytest.approx(20.0)
    assert found.bound <= 20.0 * (1 + 1e-9) and found.gap >= 0.0
    assert Forgetful.presolve == "off"


@pytest.mark.parametrize(
    ("seed", "cost"), [(10_070, 97.06851512662654), (30_041, 82.05999630490363), (43_990, 150.58275307254146)]
)
def test_circles_that_are_not_all_of_what_is_taken_are_found(seed: int, cost: float) -> None:
    """A class can be taken by two nodes, of which one is in a circle: what the other leads to is not all there is. And
    where there are more circles than could be forbidden one at a time, the classes get places. (The costs: CBC's.)"""
    dag = random_dag(seed, 40)
    found = solve(dag, Limits(states=0))
    assert found is not None and valid(dag, found.solution)
    assert found.optimal and found.cost == pytest.approx(cost)


def test_solving_writes_nothing_to_standard_output() -> None:
    """Of a process of its own: a solver's banner comes from C, and once (HiGHS 1.16.0)."""
    text = (
        "from tinyc.extract.exact.dag import Dag, Node\nfrom tinyc.extract.exact.ilp import Limits, solve\n"
        "classes = {'a': [Node(1.0, ('b',)), Node(3.0)], 'b': [Node(1.0, ('a',)), Node(3.0)]}\n"
        "assert solve(Dag(classes, ('a', 'b')), Limits(states=0)).cost == 4.0"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
