"""Small programs for the exact search, and what is chosen from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

import tinyc
from tinyc import functions
from tinyc.egraph.budget import Budget
from tinyc.egraph.graph import Graph
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.choice import Choice
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import CostModel, Roofline
from tinyc.extract.exact.proof import Effort
from tinyc.extract.greedy import extract, improve
from tinyc.extract.pricing import priced
from tinyc.extract.problem import Problem
from tinyc.extract.streams import walked_on_matrix_units
from tinyc.extract.view import View, input_dtypes
from tinyc.ir.tiny import Program
from tinyc.pipeline import machine

ENOUGH = Effort(60.0, 200_000)


def shared_softmax(x: Any, u: Any, w: Any) -> Any:
    """Two products of one softmax."""
    s = functions.softmax(x)
    return s @ u, s @ w


def statistics(x: Any) -> Any:
    e = (x * x).exp().exp()
    return e.sum(axis=1), e.sum(axis=0), e.max(axis=1), e.max(axis=0)


def normalised(x: Any, w: Any) -> Any:
    y = x.exp()
    z = y.sum(axis=1, keepdims=True)
    return (y / z) @ w, (y * z).sum(axis=0)


def gelu(x: Any, w: Any, b: Any) -> Any:
    return (x @ w + b).gelu()


def shifted(x: Any) -> Any:
    e = (x - x.max(axis=1, keepdims=True)).exp()
    return e, e.sum(axis=0)


def squares(x: Any) -> Any:
    return (x * x).sum(axis=1), (x * x).max(axis=0), x.T


def twice(x: Any, w: Any) -> Any:
    y = (x @ w).exp()
    return y, y.sum(axis=1)


EXAMPLES: Mapping[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax": (functions.softmax, ((32, 48),)),
    "two products": (shared_softmax, ((64, 64), (64, 64), (64, 32))),
    "statistics": (statistics, ((64, 64),)),
    "normalised": (normalised, ((64, 32), (32, 16))),
    "shifted": (shifted, ((16, 24),)),
    "squares": (squares, ((16, 24),)),
    "twice": (twice, ((16, 24), (24, 8))),
    "attention": (functions.attention, ((2, 8, 4),) * 3),
    "gelu": (gelu, ((64, 32), (32, 48), (48,))),
    "walked": (functions.attention, ((2, 64, 32),) * 3),
}

HALF = frozenset({"walked"})
"""Those of fp16, which matrix units multiply."""


def product(x: Any, w: Any) -> Any:
    return x @ w


LARGE: Mapping[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "large product": (product, ((1024, 1024), (1024, 1024)))
}


def traced(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], dtype: str = "fp32") -> Program:
    return tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))


def chosen_from(program: Program, target: str, model: CostModel | None = None) -> tuple[Problem, Choice]:
    """What is chosen from, and the greedy choice."""
    graph = saturated(program, target)
    sizes = {
        number: program.types[port.node].dtype.itemsize
        * int(np.prod([int(each) for each in program.types[port.node].shape]))
        for number, port in enumerate(program.inputs)
    }
    view, chosen = View(graph, input_dtypes(program)), model or Roofline(hardware(target))
    problem = Problem(walked_on_matrix_units(view) if chosen.hardware.sms else view, chosen, sizes)
    found = extract(problem)
    assert found is not None
    return problem, improve(problem, found.choice)


def saturated(program: Program, target: str) -> Graph:
    # as on any machine, however long it takes
    graph = saturate(
        program, load_rules(()), budget=Budget(seconds=600.0), machine=machine(target).limits
    ).graph
    assert graph is not None
    return graph


def problem_of(name: str, target: str, model: CostModel | None = None) -> tuple[Problem, Choice]:
    """Of one of the examples."""
    return _problem_of(name, target) if model is None else chosen_from(_example(name), target, model)


@cache
def _problem_of(name: str, target: str) -> tuple[Problem, Choice]:
    return chosen_from(_example(name), target)


def _example(name: str) -> Program:
    return traced(*{**EXAMPLES, **LARGE}[name], "fp16" if name in HALF else "fp32")


def check_runs(problem: Problem, choice: Choice) -> None:
    """A choice can run: each kernel reads what is filled before it, and costs what it is said to."""
    filled: set[str] = set()
    for kernel in choice.kernels:
        again = priced(problem, kernel.buffer, kernel.way, kernel.items)
        assert again is not None and again.seconds == kernel.seconds
        for item in kernel.items.values():
            if item.head == "Read" and problem.view.buffers[str(item.payload[0])].arg is None:
                assert str(item.payload[0]) in filled
        filled.add(kernel.buffer.cls)
    assert filled.issuperset(problem.view.graph.outputs)
