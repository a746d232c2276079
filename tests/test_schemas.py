"""The published JSON Schemas: every stage of every example, on every target, is what they say; what is not is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tinyc
from tinyc.compiler import STAGES
from tinyc.stages import stages_of

ROOT = Path(__file__).parent.parent
SCHEMAS = {
    path.name.split(".")[0]: json.loads(path.read_text())
    for path in (ROOT / "docs" / "schemas").glob("*.schema.json")
}
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.json"))


def dumps_of(path: Path, target: str) -> Iterator[tuple[str, Any]]:
    program = tinyc.load(path)
    compiled = tinyc.optimize_and_compile(program, target, shapes=dict.fromkeys(program.symbols, 24))
    for stage in stages_of(target):
        yield stage, json.loads(compiled.dump(stage))


def test_every_stage_has_a_schema_that_is_one() -> None:
    assert set(STAGES) <= set(SCHEMAS)
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("number", range(0, len(EXAMPLES), 2), ids=lambda number: EXAMPLES[number].stem)
def test_dumps_are_what_the_schemas_say(number: int) -> None:
    path, target = EXAMPLES[number], ("cpu", "sm80", "sm90")[number % 3]
    for stage, document in dumps_of(path, target):
        jsonschema.Draft202012Validator(SCHEMAS[stage]).validate(document)


def test_programs_whose_sizes_are_not_bound_fit_too() -> None:
    program = tinyc.load(next(path for path in EXAMPLES if path.stem == "gemm_bias_relu"))
    assert program.symbols
    compiled = tinyc.optimize_and_compile(program)
    for stage in ("frontend", "tiny", "indexbook", "poly_view"):
        jsonschema.Draft202012Validator(SCHEMAS[stage]).validate(json.loads(compiled.dump(stage)))


def objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all objects within a JSON value whose keys are fixed by the schema."""
    if isinstance(value, dict):
        yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from objects(inner, (*path, key))


FREE = (
    "indexbook",
    "tensors",
    "attrs",
    "bind",
    "algo_choice",
    "per_axis",
    "sides",
    "tile",
    "params",
    "at",
    "aliases",
    "symbols",
)


def test_a_key_too_many_or_a_wrong_type_is_noticed() -> None:
    path = next(path for path in EXAMPLES if path.stem == "conv3x3_silu")
    for stage, document in dumps_of(path, "sm80"):
        validator = jsonschema.Draft202012Validator(SCHEMAS[stage])
        tried = 0
        for where in objects(document):
            if (where and where[-1] in FREE) or "attrs" in where:
                continue
            changed = copy.deepcopy(document)
            inner = changed
            for key in where:
                inner = inner[key]
            inner["surplus"] = 1
            assert not validator.is_valid(changed), (stage, where)
            tried += 1
        assert tried, stage
        assert not validator.is_valid({stage: 7})
        assert not validator.is_valid({})
