"""Which values are worth a buffer: in a long program the last of each chain of elementwise work (rules/chains.egg)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rule_checks import check_values, compiled, operators, traced

from tinyc import functions as tc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.program import input_dtypes
from tinyc.extract.view import View
from tinyc.ir.tiny import Program


def stored(program: Program) -> list[str]:
    """The operations whose values a buffer may hold, in the order of the program."""
    graph = saturate(program, load_rules()).graph
    assert graph is not None
    ways = [
        way.root
        for each in View(graph, input_dtypes(program)).buffers.values()
        if each.arg is None
        for way in each.ways
    ]
    numbers = sorted({graph.names[root] for root in ways if root in graph.names})
    return [str(program.nodes[number].arg.get("op", program.nodes[number].uop)) for number in numbers]


SHAPES: dict[str, tuple[int, ...]] = {
    "x": (24, 40),
    "y": (24, 40),
    "w": (40, 40),
    "u": (40, 40),
    "b": (40,),
    "v": (24,),
}

CASES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    # of a chain the last, which is the output
    "chain": (lambda x, **_: ((x * 2.0).exp() + 1.0).sqrt(), ["SQRT"]),
    # read by two operations, and by one of them twice
    "shared": (lambda x, **_: (lambda e: e / (e + 1.0))((x * 2.0).exp()), ["EXP2", "FDIV"]),
    "squared": (lambda x, **_: (lambda e: e * e)((x * 2.0).exp()).sqrt(), ["SQRT"]),
    # what is reduced or moved; a product begins a chain
    "reduced": (lambda x, **_: (x * 2.0).exp().sum(-1) * 3.0, ["EXP2", "MUL"]),
    "moved": (lambda x, **_: (x * 2.0).exp().permute(1, 0) + 1.0, ["EXP2", "ADD"]),
    "biased": (lambda x, w, b, **_: (x @ w + b).relu(), ["RELU"]),
    # two products of one sum, each of which may be filled
    "gated": (lambda x, w, u, **_: (x @ w).exp() * (x @ u), ["EXP2", "SUM", "MUL"]),
    # a comparison is smaller than what it chooses
    "chosen": (lambda x, y, **_: tc.where((x * 2.0) < y, x, y).exp(), ["CMPLT", "EXP2"]),
}


LONG = 1000
"""Nodes of a program that is long."""


def lengthened(function: Callable[..., Any]) -> Program:
    """With another output, which is computed in as many steps."""

    def longer(z: Any, **inputs: Any) -> Any:
        for _ in range(LONG):
            z = z.sin()
        made = function(**inputs)
        return (*made, z) if isinstance(made, tuple) else (made, z)

    return traced(longer, z=(3,), **SHAPES)


@pytest.mark.parametrize("name", CASES)
def test_the_last_of_a_chain_is_worth_a_buffer(name: str) -> None:
    function, expected = CASES[name]
    program = lengthened(function)
    assert len(program.nodes) >= LONG
    assert sorted(stored(program)) == sorted([*expected, "SIN"])
    check_values(compiled(program))


def test_of_a_short_program_any_value_is() -> None:
    """What is not stored is then shown to lose, by its cost."""
    program = traced(CASES["biased"][0], **SHAPES)
    assert stored(program) == ["SUM", "ADD", "RELU"]
    assert any(decision.kind == "boundary" for decision in compiled(program, target="sm80").report.decisions)


def test_what_is_to_be_stored_and_has_no_buffer_is_so_at_the_end_of_its_chain() -> None:
    """Two kernels would compute a sum that a comparison hangs on, each in an order of its own: what is made of it first is stored."""

    def function(x: Any, v: Any, **_: Any) -> Any:
        total = x.sum(-1) * 0.3
        return tc.where(total < v, total, v), total * v

    program = lengthened(function)
    assert "SUM" not in stored(program)
    result = compiled(program)
    assert operators(result)["Reduce SUM"] == 1
    check_values(result)
