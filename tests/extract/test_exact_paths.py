"""The cheapest way through the cuts of a program."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dag_examples import random_dag

from tinyc.extract.exact import along
from tinyc.extract.exact.answers import Answer
from tinyc.extract.exact.bounds import Ends, Taken
from tinyc.extract.exact.dag import Dag, Node, floor, floor_of, floors
from tinyc.extract.exact.inside import Beneath, Kind, Levels
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.paths import path
from tinyc.extract.exact.rounded import Picked
from tinyc.extract.exact.solved import made_levels

OTHER = 3.0
"""What the second of two kernels costs more than the first is bounded by."""

KINDS = (Kind(0, True, True, True), Kind(0, True, True, False), Kind(0, False, True, False))


class Costing:
    """What a part costs, known only of ends that were asked for: of others, a bound of it."""

    def __init__(self, given: Sequence[Levels], made: Sequence[Levels], seed: random.Random) -> None:
        self.given, self.made = given, made
        self.costs: dict[Ends, float] = {}
        for ends in itertools.product(given, made):
            self.costs[ends] = float("inf") if seed.random() < 0.2 else float(seed.randrange(1, 40))
        self.bounds = {ends: cost if cost == float("inf") else cost / 2 for ends, cost in self.costs.items()}
        self.asked: set[Ends] = set()

    def least(self, ends: Ends) -> float:
        return self.costs[ends] if ends in self.asked else self.bounds[ends]

    def table(self, dearer: Mapping[Ends, float] | None = None) -> Any:
        more = dearer or {}
        ends = [[(before, after) for after in self.made] for before in self.given]
        return np.array([[self.least(at) + more.get(at, 0.0) for at in each] for each in ends])

    def known(self, ends: Ends) -> bool:
        return ends in self.asked or ends not in self.costs

    def solve(self, ends: Ends) -> None:
        self.asked.add(ends)

    def taken(self, ends: Ends) -> Taken:
        return self.dearer(ends, {})[1]

    def dearer(self, ends: Ends, more: Mapping[tuple[str, int], float]) -> tuple[float, Taken]:
        """Of two kernels, of which the second costs a little more than the first."""
        ways = [(self.costs[ends] + each * OTHER + more.get(("a", each), 0.0), each) for each in (0, 1)]
        seconds, column = min(ways)
        return seconds, [("a", column)]


def chained(seed: int) -> list[Answer]:
    """Parts with a few levels between them, some of them equal, one of which nothing is known."""
    draw = random.Random(seed)
    count = draw.randrange(2, 6)
    levels = [draw.randrange(1, 4) for _ in range(count - 1)]
    ends = [None, *(Beneath("b", kinds=KINDS[:number]) for number in levels), None]
    shared: dict[tuple[object, ...], Any] = {}
    answers: list[Answer] = []
    for number, (before, after) in enumerate(itertools.pairwise(ends)):
        part = Part(
            given=(f"b{number}",) if before else (),
            made=(f"b{number + 1}",),
            options={},
            targets={f"b{number + 1}": ()} if after else {},
            buffers=(),
            inside={},
            known={f"b{number}": before} if before else {},
            groups={f"b{number + 1}": after} if after else {},
        )
        what = tuple(part.levels), tuple(made_levels(part))
        if what not in shared or draw.random() < 0.5:
            shared[what] = SimpleNamespace(bounds=Costing(part.levels, made_levels(part), draw))
        unknown = number == 1 and draw.random() < 0.3
        answers.append(Answer(part, {}, {}, None if unknown else shared[what]))
    return answers


def brute(answers: Sequence[Answer], most: float) -> float:
    best = float("inf")
    for states in itertools.product(*(made_levels(each.part) for each in answers)):
        runs = [len(list(run)) for unfilled, run in itertools.groupby(states, any) if unfilled]
        if max(runs, default=0) <= most:
            ends = zip([(), *states], states, strict=False)
            found = zip(answers, ends, strict=True)
            best = min(best, sum(each.solved.bounds.costs[at] for each, at in found if each.solved))  # type: ignore[attr-defined]
    return best


@pytest.mark.parametrize("most", [0, 1, 2, float("inf")])
def test_paths_are_the_cheapest(most: float) -> None:
    """Of all, or of those with so many cuts in a row at which not all is filled; with as little asked as tells."""
    possible = asked = every = 0
    for seed in range(300):
        answers = chained(seed)
        best = brute(answers, most)
        total, states = path(answers, most)
        if best == float("inf"):
            assert total == 0.0 and not any(map(any, states))
            continue
        possible += 1
        assert total == pytest.approx(best)
        pairs = zip(answers, zip([(), *states], states, strict=False), strict=True)
        assert sum(each.solved.bounds.costs[at] for each, at in pairs if each.solved) == pytest.approx(best)  # type: ignore[attr-defined]
        costings: list[Any] = [each.solved.bounds for each in answers if each.solved]
        asked += sum(len(each.asked) for each in costings)
        every += sum(len(each.costs) for each in costings)
    assert possible > 150 and asked < every / 2


@pytest.mark.parametrize("filled", ["b1", "b2"])
def test_of_an_ending_that_makes_two_some_levels_are_those_of_the_other(filled: str) -> None:
    """They are not the first of them: those of the second buffer come one after the other."""
    group = {name: Beneath(name, kinds=KINDS) for name in ("b1", "b2")}

    def part(without: str) -> Part:
        groups = {name: each for name, each in group.items() if name != without}
        targets: dict[str, Any] = dict.fromkeys(groups, ())
        return Part((), ("b1", "b2"), {}, targets, (), {}, groups=groups)

    every, some = made_levels(part("")), made_levels(part(filled))
    assert 1 < len(some) < len(every) and set(some) <= set(every)
    for seed in range(20):
        costing = Costing([()], every, random.Random(seed))
        solved: Any = SimpleNamespace(bounds=costing)
        total, states = path([Answer(part(filled), {}, {}, solved)], float("inf"))
        best = min(costing.costs[(), at] for at in some)
        assert total == (pytest.approx(best) if best < float("inf") else 0.0)
        assert best == float("inf") or costing.costs[(), states[0]] == best


def test_what_is_known_to_cost_more_counts() -> None:
    """On the path that is asked for, and in what it costs; it ends at once where that is too much."""
    others = 0
    for seed in range(60):
        answers = chained(seed)
        total, states = path(answers)
        ends = zip([(), *states], states, strict=False)
        dearer: dict[int, dict[Ends, float]] = {}
        for each, at in zip(answers, ends, strict=True):
            if each.solved is not None:
                dearer.setdefault(id(each.solved), {})[at] = 7.0
        now, instead = path(answers, dearer=dearer)
        pairs = list(zip(answers, zip([(), *instead], instead, strict=False), strict=True))
        costs: dict[int, dict[Ends, float]] = {
            id(each.solved): each.solved.bounds.costs for each in answers if each.solved
        }  # type: ignore[attr-defined]
        known = (
            costs[id(each.solved)].get(at, 0.0) + dearer[id(each.solved)].get(at, 0.0)
            for each, at in pairs
            if each.solved
        )
        if total:
            assert total <= now <= total + 7.0 * len(answers) and now == pytest.approx(sum(known))
        others += instead != states
        assert path(answers, dearer=dearer, enough=total / 2)[0] >= min(now, total / 2)
    assert others > 10


def test_along_paths_the_cheapest_kernels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kernels cost more than their bounds: what each costs is learnt, others are taken at the same ends, and the paths end with
    the best there is."""
    monkeypatch.setattr(along, "ROUNDS", 1_000)
    monkeypatch.setattr(along, "rounded", lambda _, picked: [{each.name: each.way} for each in picked])
    monkeypatch.setattr(along, "together", lambda _, found: dict(enumerate(found)))
    later = others = 0
    for seed in range(120):
        answers, draw = chained(seed), random.Random(-seed)
        dearer: dict[tuple[int, Ends], float] = {}
        for each in answers:
            for ends in each.solved.bounds.costs if each.solved else ():  # type: ignore[attr-defined]
                dearer.setdefault((id(each.solved), ends), float(draw.choice([0, 0, 5, 30])))
            if each.solved:
                solved: Any = each.solved
                solved.merged = False
                solved.picked = Picking(solved, dearer)

        def real(answer: Answer, ends: Ends, dearer: Mapping[tuple[int, Ends], float] = dearer) -> float:
            solved: Any = answer.solved
            return solved.bounds.costs[ends] + min(dearer[id(solved), ends], OTHER) if solved else 0.0

        every = itertools.product(*(made_levels(each.part) for each in answers))
        totals = [
            sum(map(real, answers, zip([(), *states], states, strict=False)))  # type: ignore[arg-type]
            for states in every
        ]
        best = [float("inf")]
        for found in along.along(Any, answers, float("inf"), lambda best=best: best[-1]):  # type: ignore[arg-type, misc]
            total = sum(way.seconds for each in found.values() for way in each.values())  # type: ignore[attr-defined]
            best.append(min(best[-1], total))
            others += any(name.startswith("1 ") for each in found.values() for name in each)
        if min(totals) < float("inf"):
            assert best[-1] == pytest.approx(min(totals)), seed
            later += best[1] > best[-1]
    assert later > 20 and others > 20


class Picking:
    """The kernels of a :class:`Costing`, of which the first may cost more than its bound."""

    def __init__(self, solved: Any, dearer: Mapping[tuple[int, Ends], float]) -> None:
        self.solved, self.more = solved, dearer

    def __call__(self, _: Any, keys: Any, buffers: Any, ends: Ends, taken: Taken) -> list[Picked]:
        ((_, column),) = taken
        seconds = self.solved.bounds.costs[ends] + column * OTHER
        way: Any = SimpleNamespace(seconds=seconds + (0.0 if column else self.more[id(self.solved), ends]))
        return [Picked(f"{column} {ends}", way, {}, (), seconds)]


def test_what_a_root_costs_at_least_is_said_of_what_it_needs() -> None:
    """As for all at once: what parts fill is looked at once for many ends."""
    seen = 0
    for seed in range(200):
        dag = random_dag(seed, 10)
        names = sorted(dag.classes)
        root = [Node(1.5, (names[0],)), Node(0.5, (names[0],), (names[-1],))]
        found = floors(dag.classes)
        least = floor(Dag({**dag.classes, "root": root}, ("root",)))
        assert floor_of(root, found) == least
        seen += least < float("inf")
    assert seen > 100 and floor_of([], {}) == float("inf") and floor_of([Node(2.0)], {}) == 2.0
