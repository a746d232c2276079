"""Extraction: nothing cyclic, subsumed or unreachable; what is shared is paid once; the cost model decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc import functions
from tinyc.egraph.graph import ENode, Graph
from tinyc.extract.choice import acyclic
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.model import Roofline, Work
from tinyc.extract.greedy import Choice, extract
from tinyc.extract.problem import Problem
from tinyc.extract.view import Item, View
from tinyc.ir.dtypes import DType
from tinyc.ir.evaluate import evaluate
from tinyc.ir.region import Binary, Reduce, Unary

CPU = hardware("cpu")
MODEL = Roofline(CPU)


# ---- e-graphs written by hand ---------------------------------------------------------------------------------------
#
# One output: a buffer of 8 fp32, filled by class e over axis 0. Classes: i0 the index, r the read of the input.


def graph(**classes: list[ENode]) -> Graph:
    """Classes of expressions over axis 0; what every graph needs is added: input a, output out = Fill(e), index i0."""
    node = ENode
    common = {
        "axis": (node("Ax", (0, 8)),),
        "zero": (node("Lit", (0,)),),
        "i0": (node("Plus", (1, "axis", "zero")),),
        "ix": (node("vec-of", ("i0",)),),
        "sizes": (node("vec-of", (8,)),),
        "axes": (node("set-of", ("axis",)),),
        "a": (node("Arg", (0,)),),
        "out": (node("Fill", ("'fp32", "sizes", "e")),),
        "r": (node("Read", ("a", "ix")),),
    }
    given = {name: tuple(nodes) for name, nodes in classes.items()}
    expressions = [name for name in ("r", *given) if name not in common or name == "r"]
    free = {name: "axes" for name in expressions}
    return Graph(common | given, ("out",), free, (), {})


def unary(op: str, x: str) -> ENode:
    return ENode("Unary", (f"'{op}", x))


def chosen(found: Graph) -> Choice | None:
    solution = extract(Problem(View(found, (DType.FP32,)), MODEL, {0: 32}))
    return solution.choice if solution else None


def ops(choice: Choice | None) -> list[str]:
    assert choice is not None
    return sorted(item.op for kernel in choice.kernels for item in kernel.items.values())


def test_the_cheapest_of_equal_terms_is_taken() -> None:
    assert ops(chosen(graph(e=[unary("SIN", "r"), unary("NEG", "r")]))) == ["NEG", "Read"]


def test_a_cycle_is_never_chosen() -> None:
    """e = NEG f = SIN r, f = NEG e: cheap step for step, but only through SIN does it ever end."""
    choice = chosen(graph(e=[unary("NEG", "f"), unary("SIN", "r")], f=[unary("NEG", "e")]))
    assert ops(choice) == ["Read", "SIN"]


def test_a_class_that_is_its_own_operand_is_not_chosen() -> None:
    assert ops(chosen(graph(e=[unary("NEG", "e"), unary("SIN", "r")]))) == ["Read", "SIN"]


def test_a_graph_of_nothing_but_a_cycle_gives_nothing() -> None:
    assert chosen(graph(e=[unary("NEG", "f")], f=[unary("NEG", "e")])) is None


def test_an_operand_without_a_term_makes_its_node_useless() -> None:
    choice = chosen(graph(e=[unary("NEG", "gone"), unary("SIN", "r")], gone=[]))
    assert ops(choice) == ["Read", "SIN"]
    assert chosen(graph(e=[unary("NEG", "gone")], gone=[])) is None


def test_a_buffer_is_not_filled_from_itself() -> None:
    """e = Read(out): true, and no way to compute it."""
    back = ENode("Read", ("out", "ix"))
    assert ops(chosen(graph(e=[back, unary("SIN", "r")]))) == ["Read", "SIN"]
    assert chosen(graph(e=[back])) is None


def test_a_cycle_through_two_buffers_is_not_chosen() -> None:
    """e reads buffer b, b is filled by f, f reads the output: each of them looks like a cheap copy."""
    classes = {
        "b": [ENode("Fill", ("'fp32", "sizes", "f"))],
        "e": [ENode("Read", ("b", "ix")), unary("LOG2", "r")],
        "f": [ENode("Read", ("out", "ix"))],
    }
    found = graph(**classes)
    choice = chosen(found)
    assert ops(choice) == ["LOG2", "Read"]
    assert choice is not None and len(choice.kernels) == 1


def test_an_axis_outside_of_its_scope_is_not_chosen() -> None:
    """A term that mentions an axis which its class does not depend on would be read outside of its loop."""
    found = graph(e=[unary("SIN", "r")], s=[ENode("Read", ("a", "other"))])
    extended = Graph(
        {
            **found.classes,
            "e": (unary("NEG", "s"), unary("SIN", "r")),
            "axis16": (ENode("Ax", (16, 8)),),
            "i16": (ENode("Plus", (1, "axis16", "zero")),),
            "other": (ENode("vec-of", ("i16",)),),
            "axes16": (ENode("set-of", ("axis16",)),),
        },
        found.outputs,
        {**found.free, "s": "axes16"},
        (),
        {},
    )
    assert ops(chosen(extended)) == ["Read", "SIN"]


def test_what_two_operands_share_is_paid_once() -> None:
    """MUL(s, s) with an expensive s beats a cheaper-looking ADD of two middling terms."""
    shared = graph(
        e=[ENode("Binary", ("'MUL", "s", "s")), ENode("Binary", ("'ADD", "p", "q"))],
        s=[unary("SIN", "r")],
        p=[unary("LOG2", "r")],
        q=[unary("LOG2", "n")],
        n=[unary("SIN", "r")],
    )
    assert ops(chosen(shared)) == ["MUL", "Read", "SIN"]


DEARER = """
(ruleset dearer)
(in-phase "dearer" "algebra" "EXACT" "on")
; sin(x) == sin(x) ** 1
(rewrite (Unary "SIN" x) (Binary "POW" (Unary "COPY" x) (Const "fp32" 1065353216)) OPTION
  :ruleset dearer :name "dearer/power")
; sin(x), under a name that no rule subsumes
(rewrite (Unary "COPY" x) (Unary "LOG2" x) :ruleset dearer :name "dearer/copy")
"""


@pytest.mark.parametrize(("option", "wanted"), [("", ["SIN"]), (":subsume", ["LOG2", "POW"])])
def test_a_subsumed_term_is_not_chosen_however_cheap(option: str, wanted: list[str], tmp_path: Path) -> None:
    """The rule is wrong on purpose, so that only one of the two terms can have been taken. COPY is no operator of
    the Tiny IR: a term of it is never chosen either."""
    path = tmp_path / "dearer.egg"
    path.write_text(DEARER.replace("OPTION", option))
    program = tinyc.trace(lambda x: functions.sin(x), x=tinyc.spec("fp32", (8,)))
    (kernel,) = tinyc.optimize_and_compile(program, rules=[path]).kernels
    assert (
        sorted(let.value.op for let in kernel.region.lets if isinstance(let.value, (Unary, Binary))) == wanted
    )


# ---- whole programs ----------------------------------------------------------------------------------------------------


def right(compiled: tinyc.Compiled, **inputs: np.ndarray) -> None:
    result = compiled(**inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    for got, want in zip(outputs, evaluate(compiled.program, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def shared_product() -> tinyc.Program:
    """Three outputs of one product of matrices."""

    def function(a: Any, b: Any) -> Any:
        shared = a @ b
        return shared.relu(), shared.sum(1), shared.max(0)

    return tinyc.trace(function, a=tinyc.spec("fp32", (64, 64)), b=tinyc.spec("fp32", (64, 64)))


@dataclass(frozen=True)
class Toy:
    """A cost model of the user's: it counts nothing but what it is told to."""

    launch: float
    byte: float
    op: float
    hardware: Hardware = CPU

    def seconds(self, work: Work) -> float:
        return self.byte * (work.bytes_read + work.bytes_written) + self.op * (work.flops + work.ops)

    def kernel(self, work: Work) -> float:
        return self.seconds(work) + self.launch


def test_a_cost_model_changes_the_choice() -> None:
    """The product is computed once for its three consumers, unless a launch costs more than all arithmetic."""
    program = shared_product()
    table = hardware("cpu")
    launches = Toy(1e6, 0.0, 1e-9, Hardware("toy", table.flops, table.ops, table.bandwidth, 1e6))
    generator = np.random.default_rng(0)
    inputs = {name: generator.integers(-3, 4, (64, 64)).astype(np.float32) for name in ("a", "b")}
    kernels = {}
    for name, model in (("roofline", None), ("launches", launches)):
        compiled = tinyc.optimize_and_compile(program, cost_model=model)
        right(compiled, **inputs)
        kernels[name] = len(compiled.kernels)
        assert compiled.report.total.time_s == pytest.approx(sum(k.time_s for k in compiled.report.kernels))
    assert kernels == {"roofline": 4, "launches": 3}


def test_the_models_estimates_are_in_the_report() -> None:
    """An estimate is whatever the model says it is."""
    dear = tinyc.optimize_and_compile(shared_product(), cost_model=Toy(1e6, 0.0, 0.0))
    for kernel in dear.report.kernels:
        assert kernel.time_s == 1e6


@pytest.mark.spec("004-086")
def test_a_value_with_three_consumers_is_computed_once() -> None:
    """Within one kernel: its reduction stands there once, however many values are made of it."""
    s = tinyc.spec

    def function(x: Any) -> Any:
        total = x.sum(1, keepdims=True)
        return (x - total) * total + total

    program = tinyc.trace(function, s("fp32", (64, 129)))
    compiled = tinyc.optimize_and_compile(program)
    right(compiled, x=np.random.default_rng(0).integers(-3, 4, (64, 129)).astype(np.float32))
    found = [
        let for kernel in compiled.kernels for let in kernel.region.lets if isinstance(let.value, Reduce)
    ]
    assert len(found) == 1


FAN_OUT: dict[str, Any] = {
    "a sum read at two places": lambda x: x.sum(1)[1:] - x.sum(1)[:-1],
    "a product of matrices beside its flip": lambda x: (x @ x.T) + (x @ x.T).flip(0),
    "a maximum and its shift": lambda x: (x.max(1).pad([(1, 1)], 0.0)[2:] - x.max(1)) * x.max(1).flip(0),
    "a sum beside its transpose": lambda x: (x @ x.T) - (x @ x.T).T * 2.0,
}


@pytest.mark.parametrize("name", FAN_OUT)
@pytest.mark.spec("004-086")
def test_a_reduction_that_fans_out_in_a_kernel_is_stored_and_not_recomputed(name: str) -> None:
    """One value at two places: a Region that inlined it would hold the reduction twice, over the same elements
    (document 004 §6.7). So it has a kernel of its own, and what is made of it reads its buffer."""
    program = tinyc.trace(FAN_OUT[name], x=tinyc.spec("fp32", (48, 96)))
    compiled = tinyc.optimize_and_compile(program)
    x = np.random.default_rng(0).integers(-3, 4, (48, 96)).astype(np.float32)
    (want,) = evaluate(program, {"x": x})
    np.testing.assert_array_equal(compiled(x), want)
    found = [
        let for kernel in compiled.kernels for let in kernel.region.lets if isinstance(let.value, Reduce)
    ]
    assert len(found) == 1
    assert len(compiled.kernels) == 2


@pytest.mark.parametrize("size", [2, 33])
def test_a_long_row_of_consumers_of_one_reduction(size: int) -> None:
    """The regression that a random program found: the sum is read at every step of a chain of shifts."""

    def function(x: Any) -> Any:
        total = x.sum(1)
        for step in range(4):
            total = total + total.flip(0) * float(step)
        return total

    program = tinyc.trace(function, x=tinyc.spec("fp32", (size, size)))
    compiled = tinyc.optimize_and_compile(program)
    x = np.random.default_rng(0).integers(-2, 3, (size, size)).astype(np.float32)
    np.testing.assert_array_equal(compiled(x), evaluate(program, {"x": x})[0])
    for kernel in compiled.kernels:
        assert sum(isinstance(let.value, Reduce) for let in kernel.region.lets) <= 1


def test_a_choice_in_which_a_value_needs_itself_is_none() -> None:
    def unary(child: str) -> Item:
        return Item("Unary", "NEG", (), (child,))

    leaf = Item("Const", "Const", (DType.FP32, 0), ())
    chain = {("a", False): unary("b"), ("b", False): unary("c"), ("c", False): leaf}
    assert acyclic(("a", False), chain)
    diamond = {**chain, ("a", False): Item("Binary", "ADD", (), ("b", "c"))}
    assert acyclic(("a", False), diamond)
    for target in ("a", "b", "c"):
        assert not acyclic(("a", False), {**chain, ("c", False): unary(target)})
