"""What a dumped Region is made of: the few expressions of document 004 §6.1, and what becomes of each movement (§6.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_programs import random_inputs

import tinyc
from tinyc.codegen.playback import evaluate_region, play
from tinyc.extract.base import base_program
from tinyc.ir.evaluate import evaluate
from tinyc.ir.region_json import region_to_json
from tinyc.ir.tiny import BINARY, COMPARE, UNARY
from tinyc.ir.verify import bind

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))
WORDS = {"read", "const", "and", "cast", "select", "reduce", "BroadcastInDim", "Transpose"}
WORDS |= {op.lower() for op in (*UNARY, *BINARY, *COMPARE)}
KEYS = {"name", "iters", "reduce_axes", "inputs", "outputs", "lets", "yield"}


def expressions(value: Any) -> Iterator[tuple[str, Any]]:
    """All expressions in a let's: the operation and what it is given."""
    if isinstance(value, dict):
        op = "const" if "const" in value else next(iter(value))
        yield op, value[op]
        inner = value[op]
        if op in ("and", "read", "const"):
            return
        if isinstance(inner, dict):
            parts = [inner[key] for key in ("pred", "then", "else", "operand", "body") if key in inner]
        else:
            parts = inner
        for each in parts:
            yield from expressions(each)


def dumped(fn: Callable[..., Any], *specs: Any) -> list[tuple[str, Any]]:
    """The expressions of the one Region that a traced function becomes; its playback is right."""
    program = tinyc.trace(fn, *specs)
    compiled = tinyc.optimize_and_compile(program)
    (kernel,) = compiled.kernels
    inputs = random_inputs(program, 3)
    made = evaluate_region(kernel.region, {port.name: inputs[port.name] for port in program.inputs})
    for got, want in zip(made.values(), evaluate(program, inputs), strict=True):
        np.testing.assert_array_equal(got.reshape(want.shape), want)
    written = region_to_json(kernel.region)
    return [each for let in written["lets"] for each in expressions(let["expr"])]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.spec("004-068", "004-069", "004-090")
def test_the_vocabulary(path: Path) -> None:
    """No name of a pattern, no stage and no inner buffer: reads, values, reductions, views; what is stored is an output."""
    program = tinyc.load(path)
    if program.symbols:
        program = bind(program, {name: 4 + 2 * number for number, name in enumerate(program.symbols)})
    for region in base_program(program).regions:
        written = region_to_json(region)
        assert written.keys() <= KEYS
        assert {op for let in written["lets"] for op, _ in expressions(let["expr"])} <= WORDS
        assert [item["to"] for item in written["yield"]] == [ref["name"] for ref in written["outputs"]]


@pytest.mark.spec("004-067")
def test_a_region_is_a_kernel_and_writes_its_outputs_alone() -> None:
    program = tinyc.load(next(path for path in EXAMPLES if path.stem == "attention"))
    compiled = tinyc.optimize_and_compile(program)
    assert [kernel.region.name for kernel in compiled.kernels] == [
        step.debug_name for step in compiled.plan.instructions
    ]
    inputs = random_inputs(compiled.program, 1)
    before = {name: array.copy() for name, array in inputs.items()}
    for array in inputs.values():
        array.flags.writeable = False
    play(base_program(compiled.program), list(inputs.values()))
    compiled(**inputs)
    for name, array in inputs.items():
        np.testing.assert_array_equal(array, before[name])


def test_expand_becomes_a_broadcast() -> None:
    found = dumped(lambda x, y: x + y, tinyc.spec("fp32", (3, 4), "x"), tinyc.spec("fp32", (4,), "y"))
    (view,) = [given for op, given in found if op == "BroadcastInDim"]
    assert view["result_shape"] == [3, 4] and view["broadcast_dimensions"] == [1]


def test_permute_becomes_a_transpose() -> None:
    found = dumped(
        lambda x, y: x + y.transpose(1, 0), tinyc.spec("fp32", (3, 4), "x"), tinyc.spec("fp32", (4, 3), "y")
    )
    assert [given["permutation"] for op, given in found if op == "Transpose"] == [[1, 0]]


def test_reshape_is_folded_into_the_map() -> None:
    found = dumped(lambda x: x.reshape(4, 6).relu(), tinyc.spec("fp32", (8, 3), "x"))
    (read,) = [given for op, given in found if op == "read"]
    assert read["map"] == ["2*i0+(i1)//3", "i1-3*((i1)//3)"]


@pytest.mark.spec("I-33")
def test_pad_becomes_a_select_of_its_own_value() -> None:
    found = dumped(lambda x: x.pad(((1, 2),), value=-2.0).max(), tinyc.spec("fp32", (5,), "x"))
    (chosen,) = [given for op, given in found if op == "select"]
    assert chosen["pred"] == {"and": [{"ge": ["r0-1", 0]}, {"lt": ["r0-1", 5]}]}
    assert chosen["else"] == -2.0 and chosen["then"]["read"]["map"] == ["r0-1"]


def test_slices_and_steps_are_maps() -> None:
    found = dumped(lambda x: x[1:8:3].relu(), tinyc.spec("fp32", (9,), "x"))
    assert [given["map"] for op, given in found if op == "read"] == [["3*i0+1"]]
