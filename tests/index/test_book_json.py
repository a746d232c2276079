"""The JSON of the IndexBook: what is malformed is named by its path."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from book_programs import GEMM, book_of, checked_book, conv_s2_p1, leaf, masked_scores, op

from tinyc.index.book import IndexBook
from tinyc.index.book_json import book_from_json, book_to_json
from tinyc.ir import Program, TinycError, dumps, parse_json

CONV = conv_s2_p1()


@pytest.mark.spec("004-035", "004-040")
@pytest.mark.parametrize("program", [GEMM, CONV, masked_scores("B", 1, 1, "N")])
def test_round_trip(program: Program) -> None:
    book = checked_book(program)
    text = dumps({"indexbook": book_to_json(book)})
    again = book_from_json(parse_json(text))
    assert again == book
    assert dumps({"indexbook": book_to_json(again)}) == text
    assert book_from_json({"index_book": book_to_json(book)}) == book


def test_values_that_json_has_no_numbers_for() -> None:
    pad = {"pad": [[1, 0]], "value": float("-inf")}
    book = book_of(
        leaf("x", 3), op("y", "PAD", "x", **pad), op("z", "REDUCE", "y", op="MAX", axes=[0], dtype="fp32")
    )
    text = dumps(book_to_json(book))
    assert '"-inf"' in text
    assert book_from_json(parse_json(text)) == book


def test_a_value_may_be_called_like_the_dump() -> None:
    book = book_of(leaf("index_book", 3))
    assert book_from_json(book_to_json(book)) == book


def entry_of(program: Program, id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    data = copy.deepcopy(book_to_json(checked_book(program)))
    return data, data[id]


BROKEN: dict[str, Any] = {
    ".axes[1].size": 0,
    ".axes[0].size": "2*",
    ".axes[0].id": -1,
    ".axes[0].name": "i 0",
    ".axes[0].kind": "loop",
    ".axes": {"i0": 4},
    ".axes[2]": "i2",
    ".axes[0]": {"id": 0, "name": "i0", "size": 4},
    ".domain": {},
    ".domain.constraints": "0<=i0",
    ".domain.constraints[0]": 4,
    ".domain.constraints[0][0]": "i0",
    ".domain.constraints[0][1]": "i0<j<M",
    ".inputs[0].value_id": 3,
    ".inputs[1].map": "i0",
    ".inputs[1].map[0]": "i0//0",
    ".inputs[0].axes": [],
    ".flags": "non_scop",
    ".flags[0]": "fast",
    ".chain_pieces": "many",
    ".reduce_axes": [7],
}


@pytest.mark.parametrize("path", BROKEN)
def test_what_is_malformed_is_named_by_its_path(path: str) -> None:
    data, entry = entry_of(GEMM, "T")
    entry["flags"] = ["non_scop"]
    *steps, last = path.replace("[", ".[").strip(".").split(".")
    at: Any = entry
    for step in steps:
        at = at[int(step[1:-1])] if step.startswith("[") else at[step]
    key = int(last[1:-1]) if last.startswith("[") else last
    at[key] = BROKEN[path]
    with pytest.raises(TinycError) as caught:
        book_from_json(data)
    assert caught.value.code == "E1006"
    named = caught.value.details["path"]
    missing = ".kind" if path == ".axes[0]" else ""
    assert named == f"index_book.T{path}{missing}"
    assert named in caught.value.why


@pytest.mark.parametrize("path", ["axes", "domain", "inputs"])
def test_what_is_missing_is_named_by_its_path(path: str) -> None:
    data, entry = entry_of(GEMM, "C0")
    del entry[path]
    with pytest.raises(TinycError) as caught:
        book_from_json(data)
    assert caught.value.details["path"] == f"index_book.C0.{path}"


@pytest.mark.parametrize("data", [None, 3, [], "book", {"T": 3}, {"T": {}}, {3: {}}, {"indexbook": []}])
def test_what_is_no_book(data: object) -> None:
    with pytest.raises(TinycError) as caught:
        book_from_json(data)
    assert caught.value.kind == "MalformedDocument"


def test_an_empty_book() -> None:
    assert book_from_json({}) == IndexBook({})


@pytest.mark.parametrize(
    ("path", "value"), [("value", "much"), ("inputs", 3), ("constraints", None), ("color", 1)]
)
def test_pieces_are_read_as_strictly(path: str, value: object) -> None:
    data, entry = entry_of(CONV, "Xp")
    entry["domain"]["pieces"][1][path] = value
    with pytest.raises(TinycError) as caught:
        book_from_json(data)
    assert caught.value.details["path"] == f"index_book.Xp.domain.pieces[1].{path}"
