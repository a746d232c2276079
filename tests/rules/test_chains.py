"""Which values are worth a buffer: the last of each chain of elementwise work (rules/chains.egg)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rule_checks import check_values, compiled, traced

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


SHAPES: dict[str, tuple[int, ...]] = {"x": (24, 40), "y": (24, 40), "w": (40, 40), "u": (40, 40), "b": (40,)}

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


@pytest.mark.parametrize("name", CASES)
def test_the_last_of_a_chain_is_worth_a_buffer(name: str) -> None:
    function, expected = CASES[name]
    program = traced(function, **SHAPES)
    assert stored(program) == expected
    check_values(compiled(program))
