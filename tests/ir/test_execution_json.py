"""ExecutionPlans as JSON: byte for byte there and back, and every mistake is refused with its path."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_programs import Maker

import tinyc
from tinyc.ir.buffer import ALIGNMENT
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import dumps, program_from_document
from tinyc.ir.dtypes import DType
from tinyc.ir.execution import Step, plan_execution, planned, program_execution
from tinyc.ir.execution_json import execution_from_json, execution_to_json
from tinyc.ir.region import MemRef


def ref(name: str, size: int = 40) -> MemRef:
    return MemRef(name, DType.FP32, (size,))


STEPS = [
    Step("top", ("x",), (ref("a"),)),
    Step("left", ("a",), (ref("b"),)),
    Step("right", ("a",), (ref("c", 9),)),
    Step("join", ("b", "c", "b"), (ref("d"),)),
]
PLAN = plan_execution(STEPS, [ref("x")], ["d"])
JSON: dict[str, Any] = json.loads(dumps(execution_to_json(PLAN)))


@pytest.mark.spec("000-07", "004-138", "I-40")
def test_what_a_dump_says() -> None:
    assert list(JSON) == ["instructions", "buffers", "input_buffers", "output_buffers", "arena", "waves"]
    assert JSON["instructions"][3] == {
        "kernel": 3,
        "op": "REGION",
        "inputs": [2, 3, 2],
        "outputs": [4],
        "debug_name": "join",
    }
    assert JSON["buffers"][2] == {
        "id": 2,
        "name": "b",
        "shape": [40],
        "dtype": "fp32",
        "lifetime": [1, 3],
        "bytes": 160,
        "allocated_size": 256,
        "offset": PLAN.buffers[2].offset,
    }
    assert JSON["arena"] == {"bytes": 640, "lower_bound": 640, "alignment": ALIGNMENT}
    assert JSON["waves"] == [[0], [1, 2], [3]]


SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schemas/exec.schema.json").read_text(encoding="utf-8"))


@given(st.randoms(use_true_random=False), st.sampled_from([1, 64, 128]))
def test_there_and_back(draw: Any, alignment: int) -> None:
    """And by the schema that is published."""
    program = program_from_document(Maker(draw.randrange, 10).document())
    plan = planned(program_execution(program), alignment)
    text = dumps(execution_to_json(plan))
    again = execution_from_json(json.loads(text))
    assert again == plan and dumps(execution_to_json(again)) == text
    jsonschema.validate({"exec": json.loads(text)}, SCHEMA)


def test_the_schema_is_strict() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for path, value in (
        ("arena", ...),
        (f"{B}/offset", -1),
        (f"{B}/owner", 1),
        (f"{I}/kernel", 0.5),
        ("waves", [[]]),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"exec": changed(path, value)}, SCHEMA)


def test_a_compiled_programs_dump_is_read_back() -> None:
    spec = tinyc.spec("fp32", (8, 16))
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda x: (x @ x.T) @ x, spec), target="sm80")
    text = compiled.dump("exec")
    plan = execution_from_json(json.loads(text)["exec"])
    assert plan == compiled.plan and dumps({"exec": execution_to_json(plan)}) == text


def changed(path: str, value: Any) -> Any:
    data = copy.deepcopy(JSON)
    at: Any = data
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for key in way:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return data


B, C, I = "buffers/2", "buffers/3", "instructions/3"  # noqa: E741

WRONG: list[tuple[str, Any, str]] = [
    ("arena", ..., "exec: has no 'arena'"),
    ("arena/bytes", 639, "exec.buffers["),
    ("arena/bytes", "640", "exec.arena.bytes"),
    ("arena/lower_bound", 512, "exec.arena.lower_bound"),
    ("arena/alignment", 96, "exec.arena.alignment"),
    ("arena/alignment", 64, "exec.buffers[1].allocated_size"),
    ("arena/peak", 1, "exec.arena: has 'peak'"),
    ("buffers", {}, "exec.buffers: is {}"),
    ("buffers/0/offset", 0, "exec.buffers[0].offset"),
    ("buffers/0/allocated_size", 256, "exec.buffers[0].allocated_size"),
    (f"{B}/offset", None, "exec.buffers[2].offset"),
    (f"{B}/offset", 4, "exec.buffers[2].offset: 4 is no multiple of 128"),
    (f"{B}/offset", 1280, "exec.buffers[2].offset: the buffer ends beyond"),
    (f"{B}/offset", True, "exec.buffers[2].offset"),
    (f"{B}/offset", -128, "exec.buffers[2].offset"),
    (f"{B}/id", 3, "exec.buffers[2].id"),
    (f"{B}/name", "a", "exec.buffers[2].name"),
    (f"{B}/name", "", "exec.buffers[2].name"),
    (f"{B}/dtype", "fp64", "exec.buffers[2].dtype"),
    (f"{B}/dtype", 32, "exec.buffers[2].dtype"),
    (f"{B}/dtype", "fp16", "exec.buffers[2].bytes"),
    (f"{B}/shape", [41], "exec.buffers[2].bytes"),
    (f"{B}/shape", [0], "exec.buffers[2].shape[0]"),
    (f"{B}/shape", "40", "exec.buffers[2].shape"),
    (f"{B}/lifetime", [1, 2], "exec.buffers[2].lifetime: is [1, 2], and the instructions make it [1, 3]"),
    (f"{B}/lifetime", [1], "exec.buffers[2].lifetime"),
    (f"{B}/allocated_size", 160, "exec.buffers[2].allocated_size"),
    (f"{B}/owner", 1, "exec.buffers[2]: has 'owner'"),
    (f"{I}/inputs", [2, 9], "exec.instructions[3].inputs[1]: there is no buffer 9"),
    (f"{I}/inputs", [4], "exec.instructions[3].inputs: reads buffer 4"),
    (f"{I}/outputs", [2], "exec.instructions[3].outputs: fills buffer 2 a second time"),
    (f"{I}/outputs", [], "exec.buffers[4]: is no input"),
    (f"{I}/kernel", -1, "exec.instructions[3].kernel"),
    (f"{I}/kernel", 1.0, "exec.instructions[3].kernel"),
    (f"{I}/debug_name", None, "exec.instructions[3].debug_name"),
    (I, [], "exec.instructions[3]: is []"),
    ("input_buffers", [0, 0], "exec.input_buffers"),
    ("input_buffers", [], "exec.instructions[0].inputs: reads buffer 0"),
    ("input_buffers", [0, 1], "exec.instructions[0].outputs: fills buffer 1"),
    ("output_buffers", [5], "exec.output_buffers[0]"),
    ("output_buffers", [3], "exec.buffers["),
    ("waves", [[0], [1], [2], [3]], "exec.waves"),
    ("waves", [[0], [True, 2], [3]], "exec.waves"),
    ("waves", None, "exec.waves"),
]


@pytest.mark.parametrize(("path", "value", "why"), WRONG, ids=[f"{p}={v!r}" for p, v, _ in WRONG])
def test_a_mistake_is_refused_with_its_path(path: str, value: Any, why: str) -> None:
    with pytest.raises(TinycError) as caught:
        execution_from_json(changed(path, value))
    assert caught.value.why.startswith(why), caught.value.why
    assert caught.value.kind in ("MalformedDocument", "UnknownReference", "DuplicateId")


@pytest.mark.spec("004-138")
def test_buffers_moved_onto_each_other_are_refused() -> None:
    data = changed(f"{C}/offset", JSON["buffers"][2]["offset"])
    with pytest.raises(TinycError, match="shares bytes with buffer"):
        execution_from_json(data)


def test_instructions_in_an_order_that_cannot_run_are_refused() -> None:
    data = changed("instructions", [JSON["instructions"][n] for n in (1, 0, 2, 3)])
    with pytest.raises(
        TinycError, match=r"exec.instructions\[0\].inputs: reads buffer 1, which nothing has filled"
    ):
        execution_from_json(data)


def test_another_place_and_order_that_can_run_are_accepted() -> None:
    """A larger arena with the buffers elsewhere is a plan too."""
    data = changed("arena/bytes", 4096)
    data["buffers"][2]["offset"] = 2048
    plan = execution_from_json(data)
    assert plan.buffers[2].offset == 2048 and json.loads(dumps(execution_to_json(plan))) == data


@pytest.mark.parametrize("value", [None, [], 3, "exec", {}, {"instructions": []}, float("nan")])
def test_what_is_no_plan_at_all(value: Any) -> None:
    with pytest.raises(TinycError) as caught:
        execution_from_json(value, "my.plan")
    assert caught.value.why.startswith("my.plan: ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 5) | st.text(max_size=3),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(st.sampled_from(list(JSON) + list(JSON["buffers"][0])), x, max_size=4)
        ),
        max_leaves=8,
    ),
    st.data(),
)
def test_nothing_but_a_clear_error(value: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path, _, _ in WRONG]))
    try:
        again = execution_from_json(changed(path, value))
    except TinycError:
        return
    assert execution_to_json(again) == changed(path, value)
