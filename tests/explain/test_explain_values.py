"""The evaluator of explanations against the reference evaluator, element by element."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from explain_helpers import random_program, recorded, traced

import tinyc
from tinyc import functions as tc
from tinyc.explain.checks import Checker
from tinyc.explain.explain import derive_program
from tinyc.explain.inputs import random_inputs
from tinyc.explain.tensors import Tensors
from tinyc.explain.values import Values
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program

PROGRAMS: dict[str, Program] = {
    "conv": traced(lambda x, w: tc.conv(x, w, pad=1, stride=2), (1, 2, 5, 6), (3, 2, 3, 3)),
    # a scale of 1/2: of others, rule streaming/scale-outside makes a constant that is rounded
    "attention": traced(lambda q, k, v: tc.attention(q, k, v, causal=True), (2, 4, 4), (2, 4, 4), (2, 4, 4)),
    **{f"random {seed}": random_program(seed) for seed in (20, 23)},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_naive_and_chosen_terms_have_the_values_of_the_program(name: str) -> None:
    program = PROGRAMS[name]
    source = recorded(program)
    found = derive_program(source)
    types = [program.types[port.node] for port in program.inputs]
    inputs = random_inputs(types, 3, "integers")
    named = {port.name: given.values for port, given in zip(program.inputs, inputs, strict=True)}
    wanted = evaluate(program, named, float64=True)
    values = Values(Tensors(inputs, types, reals=True), found.filled)
    goals = Values(Tensors(inputs, types, reals=True), {cls: goal.term for cls, goal in found.goals.items()})
    for cls, array in zip(source.view.graph.outputs, wanted, strict=True):
        offset = np.arange(max(1, math.prod(array.shape)))
        chain = next(chain for chain in found.chains if chain.buffer == cls)
        with np.errstate(all="ignore"):
            for each, term in ((values, chain.start), (goals, found.goals[cls].term)):
                made, known = each.buffer(term, offset)
                assert known is None or known.all()
                flat = np.broadcast_to(made, offset.shape)
                np.testing.assert_allclose(flat, array.reshape(-1), rtol=1e-9, atol=1e-9)


def test_values_of_two_classes_are_not_said_to_be_equal() -> None:
    program = traced(lambda x, y: (x + y).relu() * y - x, (4, 5), (4, 5))
    found = derive_program(recorded(program))
    (chain,) = found.chains
    checker = Checker([program.types[port.node] for port in program.inputs], found.filled)
    whole = (chain.start, chain.start)
    terms = [link.move.before for link in chain.links if link.move.before.sort == "Expr"]
    assert len({term.cls for term in terms}) >= 5
    for first, second in itertools.product(terms, terms):
        finding = checker.step(first, second, whole, "EXACT")
        assert finding.checked == (first.cls == second.cls)
        assert finding.checked or "became" in finding.why


@pytest.mark.parametrize("width", [3, 32])
def test_a_scale_that_a_step_rounds_is_not_called_wrong(width: int) -> None:
    """Rule streaming/scale-outside makes one constant of two; it is off by a rounding over the reals."""
    program = traced(lambda q, k, v: tc.attention(q, k, v, causal=True), *[(2, 16, width)] * 3)
    text = str(tinyc.optimize_and_compile(program, target="cpu").explain())
    assert "WRONG" not in text and "streaming/scale-outside" in text


def test_another_scale_is_called_wrong() -> None:
    """What is admitted of a constant that a step makes are roundings: one that is off by a thousandth is found."""
    program = traced(lambda q, k, v: tc.attention(q, k, v, causal=True), *[(2, 16, 3)] * 3)
    found = derive_program(recorded(program))
    checker = Checker([program.types[port.node] for port in program.inputs], found.filled)
    moves = [link.move for chain in found.chains for link in chain.links]
    streams = [move for move in moves if move.after.op == "Stream" != move.before.op]
    assert streams
    for move in streams:
        args = tuple(arg + 8192 if isinstance(arg, int) else arg for arg in move.after.args)
        assert checker.step(move.before, move.after, None, "BOUNDED").checked
        finding = checker.step(move.before, replace(move.after, args=args), None, "BOUNDED")
        assert finding.wrong and "became" in finding.why
