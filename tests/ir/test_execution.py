"""The ExecutionPlan (document 000): order, buffers, lifetimes, waves."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_programs import Maker

import tinyc
from tinyc.ir.arena import Arena
from tinyc.ir.buffer import ALIGNMENT, BufferInfo, aligned
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import program_from_document
from tinyc.ir.dtypes import DType
from tinyc.ir.execution import (
    ExecutionPlan,
    Step,
    lifetimes,
    plan_execution,
    planned,
    program_execution,
    waves,
)
from tinyc.ir.instruction import Instruction
from tinyc.ir.region import MemRef
from tinyc.ir.tiny import UOPS, Node

F32 = DType.FP32


def ref(name: str, size: int = 4) -> MemRef:
    return MemRef(name, F32, (size,))


def step(name: str, reads: str, writes: str) -> Step:
    return Step(name, tuple(reads.split()), tuple(ref(each) for each in writes.split()))


def order(plan: ExecutionPlan) -> list[str]:
    return [instruction.debug_name for instruction in plan.instructions]


def refused(steps: Iterable[Step], inputs: str, outputs: str) -> TinycError:
    with pytest.raises(TinycError) as caught:
        plan_execution(list(steps), [ref(each) for each in inputs.split()], outputs.split())
    assert caught.value.at["layer"] == "execution" and caught.value.suggestion
    return caught.value


DIAMOND = [step("top", "x", "a"), step("left", "a", "b"), step("right", "a", "c"), step("join", "b c", "d")]


# --- order -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("000-08", "000-16")
def test_steps_in_order_stay_in_order() -> None:
    assert order(plan_execution(DIAMOND, [ref("x")], ["d"])) == ["top", "left", "right", "join"]


@pytest.mark.spec("000-08")
def test_any_order_becomes_topological_and_is_stable() -> None:
    """Among the steps that could be next, the first as given; ``kernel`` is the step's number as given."""
    plan = plan_execution(DIAMOND[::-1], [ref("x")], ["d"])
    assert order(plan) == ["top", "right", "left", "join"]
    assert [instruction.kernel for instruction in plan.instructions] == [3, 1, 2, 0]


GRAPHS = st.lists(st.lists(st.integers(0, 30), max_size=4), min_size=1, max_size=25)


@pytest.mark.spec("000-08", "000-10", "000-11", "000-13", "000-14", "I-40")
@given(GRAPHS, st.randoms(use_true_random=False))
def test_every_graph_in_every_order(graph: list[list[int]], draw: Any) -> None:
    steps = [
        Step(f"s{n}", tuple(f"t{(each % (n + 1)) - 1}" for each in reads), (ref(f"t{n}", n + 1),))
        for n, reads in enumerate(graph)
    ]
    shuffled = list(steps)
    draw.shuffle(shuffled)
    plan = plan_execution(shuffled, [ref("t-1")], [steps[-1].writes[0].name])
    filled = {0}
    for number, instruction in enumerate(plan.instructions):
        given_step = shuffled[instruction.kernel]
        assert set(instruction.inputs) <= filled and not filled & set(instruction.outputs)
        assert tuple(plan.buffers[id].name for id in instruction.inputs) == given_step.reads
        assert instruction.outputs == (number + 1,), "one fresh buffer each, in order"
        filled.update(instruction.outputs)
    assert sorted(instruction.kernel for instruction in plan.instructions) == list(range(len(steps)))
    assert [buffer.id for buffer in plan.buffers] == list(range(len(steps) + 1))
    level = {0: 0}
    for number, wave in enumerate(waves(plan)):
        for n in wave:
            needed = [level[id] for id in plan.instructions[n].inputs]
            assert max(needed, default=0) == number, "as early as its operands allow"
            level.update(dict.fromkeys(plan.instructions[n].outputs, number + 1))
    assert sorted(n for wave in waves(plan) for n in wave) == list(range(len(steps)))


@pytest.mark.spec("I-40")
def test_waves_of_a_diamond() -> None:
    assert waves(plan_execution(DIAMOND[::-1], [ref("x")], ["d"])) == ((0,), (1, 2), (3,))
    assert waves(plan_execution([], [ref("x")], ["x"])) == ()
    assert waves(plan_execution([step("make", "", "a"), step("use", "x", "b")], [ref("x")], ["a"])) == (
        (0, 1),
    )


@pytest.mark.spec("000-09")
@pytest.mark.parametrize(
    ("steps", "cycle"),
    [
        ([step("one", "x b", "a"), step("two", "a", "b")], {"one", "two"}),
        ([step("self", "a", "a")], {"self"}),
        ([*DIAMOND, step("p", "d s", "q"), step("r", "q", "s"), step("after", "s", "z")], {"p", "r"}),
    ],
)
def test_a_cycle_is_refused_by_name(steps: list[Step], cycle: set[str]) -> None:
    error = refused(steps, "x", "a")
    assert error.kind == "CyclicGraph" and error.code == "E1010"
    named = {each.name for each in steps if repr(each.name) in error.why}
    assert named == cycle


def test_what_nobody_makes_is_refused() -> None:
    error = refused([step("s", "x y", "a")], "x", "a")
    assert error.kind == "UnknownReference" and "'y'" in error.why and "'s'" in error.why
    assert refused([step("s", "x", "a")], "x", "b").kind == "UnknownReference"


def test_two_makers_are_refused() -> None:
    error = refused([step("s", "x", "a"), step("t", "x", "b a")], "x", "a")
    assert error.kind == "DuplicateId" and all(word in error.why for word in ("'a'", "'s'", "'t'"))
    assert "an input" in refused([step("s", "x", "x")], "x", "x").why
    assert refused([step("s", "x", "a a")], "x", "a").kind == "DuplicateId"
    assert refused([], "x x", "x").kind == "DuplicateId"
    assert refused([step("s", "x", "a"), step("s", "x", "b")], "x", "a").kind == "DuplicateId"


def test_a_step_may_write_several_tensors_and_read_one_twice() -> None:
    plan = plan_execution([step("s", "x x", "a b"), step("t", "b a b", "c")], [ref("x")], ["c", "a"])
    assert plan.instructions[0] == Instruction(0, (0, 0), (1, 2), "s")
    assert plan.instructions[1].inputs == (2, 1, 2) and plan.output_buffers == (3, 1)


# --- buffers ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("000-01", "000-02", "000-04")
def test_buffers_are_data() -> None:
    buffer = BufferInfo(3, "a", (2, 5), DType.I32, (0, 1), 40)
    assert hash(buffer) == hash(copy.deepcopy(buffer)) and {buffer.id: buffer}[3] is buffer
    assert sorted([2, buffer.id, 0]) == [0, 2, 3] and "name='a'" in repr(buffer)
    assert {"fp32", "i32", "fp16", "bf16", "bool"} == {dtype.value for dtype in DType}


@pytest.mark.spec("000-03", "000-16")
def test_lifetimes_and_sizes() -> None:
    plan = plan_execution(DIAMOND, [ref("x"), ref("unused")], ["d", "b"])
    assert {b.name: b.lifetime for b in plan.buffers} == {
        "x": (0, 0), "unused": (0, 0), "a": (0, 2), "b": (1, 3), "c": (2, 3), "d": (3, 3),
    }  # fmt: skip
    sizes = {b.name: (b.bytes, b.allocated_size, b.offset) for b in plan.buffers}
    assert sizes["x"] == (16, 0, None), "an input is the caller's"
    assert sizes["b"] == sizes["d"] == (16, ALIGNMENT, None), "an output does not lie in the arena"
    assert sorted(sizes[name][2] or 0 for name in "ac") == [0, ALIGNMENT], "a is read when c is written"
    assert plan.arena == Arena(2 * ALIGNMENT, 2 * ALIGNMENT, ALIGNMENT)


def test_nothing_to_do() -> None:
    plan = plan_execution([], [ref("x")], ["x", "x"])
    assert plan.instructions == () and plan.output_buffers == (0, 0) and plan.buffers[0].lifetime == (0, 0)


def test_a_result_that_nobody_reads_has_memory_while_it_is_written() -> None:
    plan = plan_execution([step("a", "x", "a"), step("b", "x", "b"), step("c", "b", "c")], [ref("x")], ["c"])
    assert plan.buffers[1].lifetime == (0, 0) and plan.buffers[1].offset == plan.buffers[2].offset == 0


def test_planned_again_with_another_alignment() -> None:
    plan = planned(plan_execution(DIAMOND, [ref("x")], ["d"]), 512)
    assert plan.arena.alignment == 512 and all((b.offset or 0) % 512 == 0 for b in plan.buffers)
    assert [b.allocated_size for b in plan.buffers] == [0, 512, 512, 512, 512]
    assert planned(plan) == plan_execution(DIAMOND, [ref("x")], ["d"])


@pytest.mark.spec("000-05", "000-06", "000-07", "000-17")
def test_the_parts_of_a_plan() -> None:
    """Modules buffer, instruction and execution; frozen data all through."""
    assert [each.__module__ for each in (BufferInfo, Instruction, ExecutionPlan)] == [
        "tinyc.ir.buffer", "tinyc.ir.instruction", "tinyc.ir.execution",
    ]  # fmt: skip
    plan = plan_execution(DIAMOND, [ref("x")], ["d"])
    assert isinstance(plan.instructions, tuple) and isinstance(plan.buffers, tuple)
    assert plan.input_buffers == (0,) and plan.output_buffers == (4,)
    assert plan.instructions[3] == Instruction(3, (2, 3), (4,), "join", "REGION")
    assert copy.deepcopy(plan) == plan == pickle.loads(pickle.dumps(plan)) and hash(plan) == hash(
        copy.copy(plan)
    )
    with pytest.raises(AttributeError):
        plan.instructions[0].kernel = 1  # type: ignore[misc]


@pytest.mark.spec("000-15")
@pytest.mark.parametrize("uop", UOPS)
def test_operations_have_a_name_and_are_cloned_freely(uop: str) -> None:
    node = Node("n", uop, ("a", 2.0), {"axes": (0,), "dtype": F32}, "tag")
    for clone in (copy.copy(node), copy.deepcopy(node), pickle.loads(pickle.dumps(node))):
        assert clone == node and clone is not node and clone.uop == uop and repr(uop) in repr(clone)


# --- from a program --------------------------------------------------------------------------------------------

ORDERED = {
    "uops": [
        {"id": "b", "uop": "INPUT", "arg": {"tensor_id": "b", "dtype": "fp16", "shape": [3]}},
        {"id": "a", "uop": "INPUT", "arg": {"tensor_id": "a", "dtype": "fp16", "shape": [3]}},
        {"id": "d", "uop": "SUB", "src": ["a", "b"]},
        {"id": "q", "uop": "FDIV", "src": ["b", "a"]},
        {"id": "s", "uop": "MUL", "src": ["d", "d"]},
        {"id": "m", "uop": "CMPLT", "src": ["a", "b"]},
        {"id": "w", "uop": "WHERE", "src": ["m", 0.5, "q"]},
        {"id": "i", "uop": "CAST", "src": ["w"], "arg": {"to": "i32"}},
    ],
    "signature": {
        "inputs": [{"tensor": "a"}, {"tensor": "b"}],
        "outputs": [{"tensor": "i"}, {"tensor": "late", "node": "s"}, {"tensor": "same", "node": "a"}],
    },
}


@pytest.mark.spec(
    "000-08", "000-10", "000-11", "000-12", "000-13", "000-14", "I-01", "I-02", "I-03", "I-04"
)  # fmt: skip
def test_the_plan_of_a_program() -> None:
    """Operands in operand order, repeats kept; dtypes of the nodes; signature order; no instruction for inputs."""
    plan = program_execution(program_from_document(ORDERED))
    names = [buffer.name for buffer in plan.buffers]
    assert names == ["a", "b", "d", "q", "s", "m", "w", "i"]
    assert [(each.op, each.debug_name, each.inputs, each.outputs) for each in plan.instructions] == [
        ("SUB", "d", (0, 1), (2,)),
        ("FDIV", "q", (1, 0), (3,)),
        ("MUL", "s", (2, 2), (4,)),
        ("CMPLT", "m", (0, 1), (5,)),
        ("WHERE", "w", (5, 3), (6,)),
        ("CAST", "i", (6,), (7,)),
    ]
    assert plan.input_buffers == (0, 1) and plan.output_buffers == (7, 4, 0)
    dtypes = {buffer.name: buffer.dtype.value for buffer in plan.buffers}
    assert dtypes == dict.fromkeys("abdqsw", "fp16") | {"m": "bool", "i": "i32"}
    assert plan.buffers[5].bytes == 3 and plan.buffers[7].bytes == 12


def test_sizes_must_be_known() -> None:
    program = tinyc.trace(lambda x: x + 1.0, tinyc.spec("fp32", ("M",)))
    with pytest.raises(TinycError) as caught:
        program_execution(program)
    assert caught.value.kind == "UnboundSymbol" and "M" in caught.value.why


@pytest.mark.spec("000-08", "000-10", "000-13")
@given(st.randoms(use_true_random=False))
def test_the_plans_of_random_programs(draw: Any) -> None:
    program = program_from_document(Maker(draw.randrange, 10).document())
    plan = program_execution(program)
    names = {buffer.id: buffer.name for buffer in plan.buffers}
    assert [names[id] for id in plan.input_buffers] == [port.node for port in program.inputs]
    assert [names[id] for id in plan.output_buffers] == [port.node for port in program.outputs]
    computed = [node for node in program.nodes if node.uop != "INPUT"]
    assert len(computed) == len(plan.instructions) and len(plan.buffers) == len(program.nodes)
    for node, instruction in zip(computed, plan.instructions, strict=True):
        assert tuple(names[id] for id in instruction.inputs) == node.operands()
        assert [names[id] for id in instruction.outputs] == [node.id]
    for buffer in plan.buffers:
        kind = program.types[buffer.name]
        assert (buffer.shape, buffer.dtype) == (kind.shape, kind.dtype)
    lives = lifetimes(plan.instructions, len(plan.buffers), plan.input_buffers, plan.output_buffers)
    assert [buffer.lifetime for buffer in plan.buffers] == lives
    assert all(b.allocated_size == aligned(b.bytes) for b in plan.buffers if b.id not in plan.input_buffers)
