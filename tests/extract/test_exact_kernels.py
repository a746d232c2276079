"""The exact choice of kernels: never dearer than the greedy one, priced alike, with a bound that holds; and a program in
which what is shared changes where the kernels end, which the greedy choice does not see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from dag_examples import brute_force
from kernel_examples import ENOUGH, EXAMPLES, check_runs, problem_of, shared_softmax, traced

import tinyc
from tinyc import functions
from tinyc.bench.programs import transformer
from tinyc.extract.choice import Key
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.model import Roofline, Work
from tinyc.extract.exact.answers import answered
from tinyc.extract.exact.columns import columns
from tinyc.extract.exact.dag import Dag, Node
from tinyc.extract.exact.exact import exact
from tinyc.extract.exact.hosts import Hosts
from tinyc.extract.exact.meter import Meter
from tinyc.extract.exact.parts import whole
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.relaxed import relaxed
from tinyc.extract.exact.scope import Scope
from tinyc.extract.pricing import priced
from tinyc.extract.problem import Problem
from tinyc.extract.view import Item


@dataclass(frozen=True)
class Bytes:
    """Counts bytes and launches, and nothing else."""

    hardware: Hardware

    def seconds(self, work: Work) -> float:
        return (work.bytes_read + work.bytes_written) * 1e-12

    def kernel(self, work: Work) -> float:
        return self.seconds(work) + 1e-6


@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_exact_choice_is_proved_and_never_dearer(name: str, target: str) -> None:
    problem, start = problem_of(name, target)
    choice, proof = exact(problem, start, ENOUGH)
    assert choice.seconds <= start.seconds
    assert proof.start == start.seconds and proof.seconds == choice.seconds
    assert proof.optimal and proof.bound == proof.seconds and proof.gap == 0 and proof.limit == ""
    check_runs(problem, choice)
    assert choice.seconds == pytest.approx(sum(kernel.seconds for kernel in choice.kernels))


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_weighed_costs_what_the_kernel_costs(name: str, target: str) -> None:
    """Of every kernel that is found for any buffer, by the one function that prices kernels."""
    problem, _ = problem_of(name, target)
    scope = Scope(problem, whole(problem))
    looked = 0
    for buffer in scope.buffers:
        found = columns(scope, problem.view.buffers[buffer], 1.0, 5_000)
        for column in found.found:
            kernel = priced(problem, problem.view.buffers[buffer], column.way, column.label.items())
            assert kernel is not None and column.seconds == pytest.approx(kernel.seconds, rel=1e-9)
            looked += 1
    assert looked >= len(scope.buffers)


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_stored_is_filled_by_its_own_kernels(name: str, target: str) -> None:
    """None was found for a value that all others are to read from its buffer: they were held against kernels that read it as well."""
    problem, _ = problem_of(name, target)
    for buffer in Scope(problem, whole(problem)).buffers:
        ways = problem.view.buffers[buffer].ways
        stored = problem.storing(frozenset(way.root for way in ways))
        (of_all, of_stored) = (
            columns(Scope(each, whole(each)), each.view.buffers[buffer], 1.0, 5_000)
            for each in (problem, stored)
        )
        assert [each.costs for each in of_stored.found] == [each.costs for each in of_all.found] != []


def every_kernel(problem: Problem, root: Key) -> Iterator[dict[Key, Item]]:
    """Each way to say what every value of a kernel is computed as."""
    stack: list[tuple[dict[Key, Item], tuple[Key, ...]]] = [({}, (root,))]
    while stack:
        items, waiting = stack.pop()
        if not waiting:
            yield items
            continue
        key, *rest = waiting
        if key in items:
            stack.append((items, tuple(rest)))
            continue
        stack += [({**items, key: option.item}, (*option.children, *rest)) for option in problem.options[key]]


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_the_best_of_all_choices_of_all_kernels(name: str, target: str) -> None:
    """Every kernel of every buffer, each priced, and the cheapest set of them by brute force: no search leaves any out."""
    problem, start = problem_of(name, target)
    view = problem.view
    classes: dict[str, list[Node]] = {}
    looked = 0
    for buffer in view.buffers.values():
        best: dict[frozenset[str], float] = {}
        for way in buffer.ways:
            for items in every_kernel(problem, (way.root, False)):
                looked += 1
                reads = {str(item.payload[0]) for item in items.values() if item.head == "Read"}
                kernel = None if buffer.cls in reads else priced(problem, buffer, way, items)
                if kernel is not None:
                    needs = frozenset(read for read in reads if view.buffers[read].arg is None)
                    best[needs] = min(kernel.seconds, best.get(needs, float("inf")))
        if buffer.arg is None:
            classes[buffer.cls] = [Node(seconds, (), tuple(sorted(needs))) for needs, seconds in best.items()]
    _, proof = exact(problem, start, ENOUGH)
    assert looked > 10
    assert proof.optimal
    assert brute_force(Dag(classes, tuple(dict.fromkeys(view.graph.outputs)))) == pytest.approx(proof.seconds)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_exact_choice_for_a_model_of_ones_own(name: str) -> None:
    problem, start = problem_of(name, "cpu", Bytes(hardware("cpu")))
    choice, proof = exact(problem, start, ENOUGH)
    assert choice.seconds <= start.seconds and proof.bound <= choice.seconds


@pytest.mark.parametrize("steps", [1, 20, 200, 2_000])
def test_a_search_that_its_limit_ends_keeps_the_start_and_says_how_good_it_may_be(steps: int) -> None:
    for name in ("two products", "normalised"):
        problem, start = problem_of(name, "cpu")
        _, best = exact(problem, start, ENOUGH)
        choice, proof = exact(problem, start, Effort(60.0, steps))
        assert best.seconds <= choice.seconds * (1 + 1e-9) and choice.seconds <= start.seconds
        assert proof.bound <= best.seconds * (1 + 1e-9)
        assert proof.optimal or (proof.limit == "steps" and proof.gap > 0)
        again, other = exact(problem, start, Effort(60.0, steps))
        assert (again.seconds, other.bound) == (choice.seconds, proof.bound)


@pytest.mark.parametrize("name", ["two products", "normalised"])
def test_what_is_found_before_the_steps_end_is_kept(name: str) -> None:
    problem, _ = problem_of(name, "sm80")
    part, hosts, steps = whole(problem), Hosts(problem), 1_000_000
    meter = Meter(Effort(60.0, steps))
    all_of_it = answered(hosts, [part], {}, meter, False)[0].solved
    spent = steps - meter.steps
    last = answered(hosts, [part], {}, Meter(Effort(60.0, spent)), False)[
        0
    ].solved  # ends with the last kernel
    half = answered(hosts, [part], {}, Meter(Effort(60.0, spent // 2)), False)[0].solved
    assert all_of_it is not None and last is not None and half is not None
    bounds = [
        {ends: each.bounds.solve(ends) for ends, _ in each.bounds.items()} for each in (half, last, all_of_it)
    ]
    assert (last.cost, bounds[1]) == (all_of_it.cost, bounds[2])
    launch = problem.model.hardware.launch
    assert all(launch <= bounds[0][ends] <= bound * (1 + 1e-9) for ends, bound in bounds[2].items())


@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
def test_the_bound_that_needs_no_search_is_below_the_best_choice(target: str) -> None:
    for name in EXAMPLES:
        problem, start = problem_of(name, target)
        _, best = exact(problem, start, ENOUGH)
        assert best.optimal and 0 < relaxed(problem) <= best.seconds * (1 + 1e-9), name


@pytest.mark.parametrize("target", ["cpu", "sm80"])
def test_the_bound_that_needs_no_search_knows_what_a_product_takes(target: str) -> None:
    problem, start = problem_of("large product", target)
    assert start.seconds / 2 <= relaxed(problem) <= start.seconds


def test_a_search_without_time_says_so() -> None:
    problem, start = problem_of("two products", "cpu")
    choice, proof = exact(problem, start, Effort(1e-9, 100_000))
    assert choice is start and not proof.optimal and proof.limit == "seconds" and 0 < proof.gap < 1


@pytest.mark.parametrize("blocks", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_a_transformer_is_proved_part_by_part(blocks: int) -> None:
    """Blocks that are equal are solved once: 16 of them take little more than 2. What is gated on are the gap and counts,
    the wall time is in docs/benchmarks.md."""
    function, shapes = transformer(blocks)
    program = tinyc.trace(function, **{name: tinyc.spec("fp32", shape) for name, shape in shapes.items()})
    search = tinyc.optimize_and_compile(program, budget=tinyc.Budget(extract_seconds=300.0)).report.search
    assert search is not None
    assert search.optimal and search.gap == 0 and search.limit == ""
    assert search.exact_s <= search.greedy_s
    assert search.kernels <= 4_000


# ---- end to end -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-135")
def test_sharing_changes_where_kernels_end_and_the_greedy_choice_does_not_see_it() -> None:
    """Two products of one softmax, 1024 × 1024: the exact choice ends a kernel elsewhere and is estimated at less."""
    program = traced(shared_softmax, ((1024, 1024),) * 3)
    greedy = tinyc.optimize_and_compile(program, budget=tinyc.Budget(extract_seconds=0.0))
    best = tinyc.optimize_and_compile(program, budget=tinyc.Budget(extract_seconds=60.0))
    assert greedy.report.search is not None and best.report.search is not None
    assert greedy.report.search.limit == "greedy" and not greedy.report.search.optimal
    assert best.report.search.optimal
    assert best.report.search.greedy_s == greedy.report.search.exact_s
    assert best.report.search.exact_s < best.report.search.greedy_s * (1 - 1e-5)
    ends = [
        sorted(ref.shape for kernel in each.kernels for ref in kernel.region.outputs)
        for each in (greedy, best)
    ]
    assert ends[0] != ends[1]
    given = [np.random.default_rng(seed).standard_normal((1024, 1024), dtype=np.float32) for seed in range(3)]
    exponents = np.exp(given[0].astype(np.float64) - given[0].max(axis=1, keepdims=True))
    weights = exponents / exponents.sum(axis=1, keepdims=True)
    for compiled in (greedy, best):
        for result, other in zip(compiled(*given), given[1:], strict=True):
            np.testing.assert_allclose(result, weights @ other, rtol=1e-4, atol=1e-5)


def test_the_limit_is_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    program = traced(functions.softmax, ((8, 8),))
    monkeypatch.setenv("TINYC_EXTRACT_SECONDS", "0")
    greedy = tinyc.optimize_and_compile(program).report.search
    assert greedy is not None and greedy.limit == "greedy"
    monkeypatch.setenv("TINYC_EXTRACT_SECONDS", "7.5")
    found = tinyc.optimize_and_compile(program).report.search
    assert found is not None and found.optimal
    given = tinyc.optimize_and_compile(program, budget=tinyc.Budget(extract_seconds=0)).report.search
    assert given is not None and given.limit == "greedy"  # what is given counts, not the environment
    assert "no exact search" in str(
        tinyc.optimize_and_compile(program, budget=tinyc.Budget(extract_steps=0)).report
    )


@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
@pytest.mark.parametrize("length", [128, 1024])
def test_with_its_plans_a_program_is_no_dearer_than_the_greedy_one(target: str, length: int) -> None:
    """The search sees less of a kernel than the estimate with its Plan: on sm80 the choice that it proves best stores scores
    of 1024 columns, and is dearer for it in the end."""
    kind = tinyc.spec("fp16", (1, 16, length, 64))
    program = tinyc.trace(lambda q, k, v: functions.attention(q, k, v), kind, kind, kind)
    found = tinyc.optimize_and_compile(program, target=target).report
    greedy = tinyc.optimize_and_compile(program, target=target, budget=tinyc.Budget(extract_seconds=0)).report
    assert found.total.time_s <= greedy.total.time_s * (1 + 1e-9)
    if found.search is not None and found.search.limit == "plans":
        assert "finished, that program is estimated at more" in str(found).replace("\n", " ")


@dataclass(frozen=True)
class Doubled(Roofline):
    """A subclass is no Roofline to the search: nothing that is known of the formulas may be used."""

    def kernel(self, work: Work) -> float:
        return 2 * super().kernel(work)


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("name", ["two products", "statistics", "twice"])
def test_twice_the_estimate_is_twice_the_least(name: str, target: str) -> None:
    (problem, start), (other, greedy) = (
        problem_of(name, target),
        problem_of(name, target, Doubled(hardware(target))),
    )
    choice, proof = exact(problem, start, ENOUGH)
    twice, doubled = exact(other, greedy, ENOUGH)
    assert proof.optimal and doubled.optimal
    assert twice.seconds == pytest.approx(2 * choice.seconds, rel=1e-9)
