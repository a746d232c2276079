"""How instances of a rule are made: from the lists of what there is, on machines that it can be about, and at its borders."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from tinyc.rulecheck.borders import Borders, last
from tinyc.rulecheck.check import load_base
from tinyc.rulecheck.context import Reject
from tinyc.rulecheck.instantiate import Attempt
from tinyc.rulecheck.machines import machines_for
from tinyc.rulecheck.parse import declare
from tinyc.rulecheck.plan import expand
from tinyc.rulecheck.schedules import packs
from tinyc.rulecheck.steps import Case
from tinyc.rulecheck.tiling import blocks, unit_for
from tinyc.rulecheck.types import Types
from tinyc.rulecheck.world import World

BASE = load_base()


def cases(name: str) -> list[Case]:
    return expand(BASE, BASE.rules[name].body)


def made(name: str, tries: int) -> Iterator[tuple[partial[Attempt], Attempt]]:
    """The attempts at a rule that make an instance."""
    found = cases(name)
    for number in range(tries):
        which = number % len(found)
        make = partial(Attempt, BASE, found[which], f"{name} {which}", number // len(found))
        attempt = make()
        try:
            attempt.run()
        except Reject:
            continue
        yield make, attempt


def value(world: World, attempt: Attempt, name: str) -> Any:
    return world.env[attempt.case.names[name].name]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("plan/pair", 10),  # two parts of a tile that is not small, with registers and memory for it
        ("plan/idle-rows", 20),
        ("plan/thin-columns", 15),
        ("plan/smallest", 25),
        ("problem/walk", 20),  # a product beside a Stream over its columns
        ("tf32/product", 60),
    ],
)
def test_tries_of_a_rule_with_many_guards_make_instances(name: str, least: int) -> None:
    """Of 400; of numbers at random one in hundreds held."""
    assert sum(1 for _ in made(name, 400)) >= least


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("plan/starved", ("cpu",)),
        ("plan/line", ("sm80", "sm90")),  # a CPU has no warps
        ("plan/pair", ("sm80", "sm90")),
        ("problem/row-last", ("sm80", "sm90", "cpu")),
    ],
)
def test_instances_are_of_machines_that_a_rule_can_be_about(name: str, wanted: tuple[str, ...]) -> None:
    assert all(machines_for(BASE, case) == wanted for case in cases(name))


def test_what_stands_in_a_list_is_chosen_from_it() -> None:
    found = 0
    for _, attempt in made("plan/whole-tile", 60):
        world = attempt.world
        problem, *tile = (value(world, attempt, each) for each in ("pr", "bm", "bn", "bk"))
        unit = unit_for(world, problem)
        assert unit is not None and tuple(tile) in list(blocks(world, problem, unit))
        found += bool(attempt.invented)
    assert found, "now and then it is of a shape that tinyc does not have"


def test_what_is_chosen_from_a_list_follows_the_number_that_moves() -> None:
    """Blocks are equal parts of the rows, so with other rows they are others."""
    moved = 0
    for make, attempt in made("plan/starved", 100):
        before = value(attempt.world, attempt, "mc")
        for world in Borders().of(make, attempt):
            problem, *block = (value(world, attempt, each) for each in ("pr", "mc", "nc", "kc"))
            assert tuple(block) in packs(world, *problem.args)
            moved += block[0] != before
    assert moved


def test_there_are_instances_where_a_quotient_jumps() -> None:
    """Rows of which the last part has one alone: one less, and there is a part less."""
    alone = 0
    for make, attempt in made("plan/halve-rows", 600):
        for world in Borders().of(make, attempt):
            rows, half = value(world, attempt, "pr").args[1], value(world, attempt, "h")
            alone += rows % half == 1
    assert alone >= 3


def test_the_last_number_that_holds_is_found() -> None:
    attempt = next(each for _, each in made("plan/whole-row", 10))

    def upto(most: int, number: int) -> Attempt:
        if not 3 <= number <= most:
            raise Reject
        seen.append(number)
        return attempt

    for most in (6, 7, 100, 4096):
        seen: list[int] = []
        assert last(partial(upto, most), 5, 1) is attempt and max(seen) == most
        assert last(partial(upto, most), 5, -1) is attempt and min(seen) == 3
    assert last(partial(upto, 5), 5, 1) is None


def test_operators_of_a_table_of_pairs_are_chosen_together() -> None:
    """Of ten and four operators each, one pair in forty would be a row."""
    base = BASE.copy()
    for form in ("(relation over (String String))", '(over "ADD" "MAX")', '(over "MUL" "MIN")'):
        declare(base, form, "x.egg", 1)
    text = '(rule ((= e (Binary f x (Reduce g ix y))) (over f g)) ((union e x)) :ruleset identity :name "mine/a")'
    (rule,) = declare(base, text, "x.egg", 1)
    (case,) = expand(base, rule.body)
    types = [Types(base, case, Random(number), number).ops for number in range(20)]
    assert {(each["f"], each["g"]) for each in types} == {("ADD", "MAX"), ("MUL", "MIN")}


@pytest.mark.parametrize("number", range(3))
def test_what_is_asked_for_twice_differs(number: int) -> None:
    """A plan rule that mixes what two facts say is right where they say the same."""
    base = BASE.copy()
    text = """(rule ((plan-block pr bm bn bk) (plan-block pr cm cn ck)) ((plan-block pr bm cn bk))
      :ruleset plan :name "mine/a")"""
    (rule,) = declare(base, text, "x.egg", 1)
    (case,) = expand(base, rule.body)
    differ, found = 0, 0
    for each in range(60):
        attempt = Attempt(base, case, f"mixed {number}", each)
        try:
            world = attempt.run()
        except Reject:
            continue
        found += 1
        differ += any(
            value(world, attempt, f"b{side}") != value(world, attempt, f"c{side}") for side in "mnk"
        )
    assert differ > found // 2 > 5
