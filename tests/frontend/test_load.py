"""``tinyc.load``: recognised by content; every unreadable file is an error, never a traceback of another kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_frontend_json import GEMM

import tinyc
from tinyc.frontend import load as loader_function
from tinyc.frontend import load_frontend
from tinyc.ir.document import dumps, program_to_document

TINY: dict[str, Any] = {
    "uops": [
        {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "X", "dtype": "fp32", "shape": [2, 3]}},
        {"id": "y", "uop": "NEG", "src": ["x"]},
    ]
}


def _text(program: Any) -> str:
    return dumps(program_to_document(program))


def test_path_text_and_document_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "gemm.tiny"  # the suffix means nothing
    file.write_text("// a comment\n" + json.dumps(GEMM))
    expected = _text(load_frontend(GEMM))
    for source in (file, str(file), GEMM, json.dumps(GEMM), file.read_text(), "\ufeff" + json.dumps(GEMM)):
        assert _text(tinyc.load(source)) == expected
    assert tinyc.load is loader_function


def test_tiny_and_frontend_are_told_apart_by_their_content(tmp_path: Path) -> None:
    file = tmp_path / "x.frontend.json"
    file.write_text(json.dumps(TINY))
    assert [node.uop for node in tinyc.load(file).nodes] == ["INPUT", "NEG"]
    assert [node.uop for node in tinyc.load({"tiny": TINY}).nodes] == ["INPUT", "NEG"]
    assert _text(tinyc.load({"frontend": GEMM})) == _text(load_frontend(GEMM))


@pytest.mark.parametrize("document", [{}, {"uops": [], "graph": []}, {"nodes": []}, {"tiny": 3}])
def test_neither_or_both(document: dict[str, Any]) -> None:
    with pytest.raises(tinyc.TinycError) as caught:
        tinyc.load(document)
    assert caught.value.kind == "MalformedDocument"


UNREADABLE: dict[str, bytes | None] = {"missing": None, "not UTF-8": b'{"uops": "\xff\xfe"}'}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files(name: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    content = UNREADABLE[name]
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(tinyc.TinycError) as caught:
        tinyc.load(file)
    assert (caught.value.kind, caught.value.at["file"]) == ("FileUnreadable", str(file))


def test_a_folder_a_huge_file_and_odd_paths(tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as stream:
        stream.truncate((256 << 20) + 1)  # sparse: takes no space
    for source in (tmp_path, huge, "", "a\0b", "x" * 5000):
        with pytest.raises(tinyc.TinycError) as caught:
            tinyc.load(source)
        assert caught.value.kind == "FileUnreadable"


@pytest.mark.parametrize("text", ["{", "[]", "3", "", '{"uops": 3}', '{"graph": NaN}', "null"])
def test_malformed_files_name_the_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text(text)
    with pytest.raises(tinyc.TinycError) as caught:
        tinyc.load(file)
    assert (caught.value.kind, caught.value.at["file"]) == ("MalformedDocument", str(file))


def test_other_arguments() -> None:
    for source in (3, None, [1]):
        with pytest.raises(tinyc.TinycError):
            tinyc.load(source)  # type: ignore[arg-type]
