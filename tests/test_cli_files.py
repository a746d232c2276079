"""Files that are not what they should be: a TinycError with status 1, never a traceback, and nothing half written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import affine, files, save, vectors, write

from tinyc.cli import main

DEEP = 100_000


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program() -> str:
    return write("affine.json", affine())


def failure(argv: list[str], kind: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The error of a command whose input is at fault: code and place, why, what to try."""
    assert main(argv) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    first, why, suggestion = shown.err.splitlines()
    assert first.startswith("tinyc: error: E1")
    assert f" {kind} at " in first
    assert why.startswith("  why: ") and len(why) > len("  why: ")
    assert suggestion.startswith("  try: ") and len(suggestion) > len("  try: ")
    return shown.err


PROGRAMS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "MalformedDocument"),
    "zeros": (bytes(1000), "MalformedDocument"),
    "random": (np.random.default_rng(0).bytes(5000), "FileUnreadable"),
    "utf-16": (json.dumps(affine()).encode("utf-16"), "FileUnreadable"),
    "latin-1": ('{"uops": "\xe9"}'.encode("latin-1"), "FileUnreadable"),
    "an executable": (b"\x7fELF\x02\x01\x01" + bytes(range(256)), "FileUnreadable"),
    "cut off": (json.dumps(affine()).encode()[:-20], "MalformedDocument"),
    "deep lists": (b"[" * DEEP + b"]" * DEEP, "MalformedDocument"),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "MalformedDocument"),
    "a long number": (b'{"uops": ' + b"9" * DEEP + b"}", "MalformedDocument"),
    "infinity": (b'{"uops": [Infinity]}', "MalformedDocument"),
    "a key twice": (b'{"uops": [], "uops": []}', "MalformedDocument"),
    "20 MB": (b'{"uops": ["' + b"x" * 20_000_000 + b'"]}', "MalformedDocument"),
}


@pytest.mark.parametrize("command", ["compile", "report", "run"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, kind = PROGRAMS[name]
    Path("p.json").write_bytes(content)
    error = failure([command, "p.json"], kind, capsys)
    assert "p.json" in error
    assert len(error) < 1000


def test_a_byte_order_mark_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.json").write_text(json.dumps(affine()), encoding="utf-8-sig")
    assert main(["compile", "p.json"]) == 0


@pytest.mark.parametrize("path", ["loop", "dangling", "/dev/null", "/proc/self/mem", "a\nb", "-", ""])
def test_paths(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("loop", "loop")
    os.symlink("nowhere", "dangling")
    assert main(["compile", path]) == 1
    assert "tinyc: error: E1" in capsys.readouterr().err


def truncated(count: int) -> Callable[[bytes], bytes]:
    return lambda good: good[:count]


HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000000)}"
ARRAYS: dict[str, Callable[[bytes], bytes]] = {
    "empty": truncated(0),
    "half a magic": truncated(4),
    "half a header": truncated(60),
    "half the data": truncated(134),
    "random": lambda good: np.random.default_rng(0).bytes(1000),
    "a broken archive": lambda good: b"PK\x03\x04" + good,
    "no header": lambda good: good[:10] + b"(" * 118 + good[128:],
    "petabytes": lambda good: b"\x93NUMPY\x01\x00\x76\x00" + HUGE.ljust(117) + b"\n",
    "a program": lambda good: json.dumps(affine()).encode(),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = vectors()
    Path("y.npy").write_bytes(ARRAYS[name](Path("y.npy").read_bytes()))
    before = files()
    error = failure(["run", program, *given, "--output", "out.npz"], "FileUnreadable", capsys)
    assert "y.npy" in error
    assert "pickle" not in error, "nobody is told to load what may run code"
    assert files() == before


@pytest.mark.parametrize("path", [".", "/dev/null", "absent", "/dev/full"])
def test_arrays_that_are_no_files(path: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    failure(["run", program, *vectors()[:2], "--input", f"y={path}"], "FileUnreadable", capsys)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.zeros(4, ">f4"), "DTypeMismatch"),
        (np.zeros(4, np.uint16), "DTypeMismatch"),
        (np.zeros(4, "V2"), "DTypeMismatch"),
        (np.array(["a"] * 4), "DTypeMismatch"),
        (np.zeros(4, [("a", "f4")]), "DTypeMismatch"),
        (np.float32(1), "InputMismatch"),
        (np.zeros((0,), np.float32), "InputMismatch"),
    ],
    ids=str,
)
def test_arrays_of_another_kind(
    values: np.ndarray, kind: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = vectors()
    save("y.npy", values)
    assert "value y" in failure(["run", program, *given], kind, capsys)


def test_an_array_in_columns_is_read_as_it_is() -> None:
    document = affine()
    for node in document["uops"][:2]:
        node["arg"]["shape"] = [2, 3]
    x = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    save("x.npy", x)
    save("y.npy", np.zeros((2, 3), np.float32))
    argv = ["run", write("p.json", document), "--input", "x=x.npy", "--input", "y=y.npy"]
    assert main([*argv, "--output", "out.npy"]) == 0
    np.testing.assert_array_equal(np.load("out.npy"), x)


@pytest.mark.parametrize(
    "path", ["/dev/full", "/proc/out.npz", "folder", "x.npy/out.npz", "/dev/null/deep/out.npz"]
)
def test_outputs_that_cannot_be_written(path: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = vectors()
    Path("folder").mkdir()
    before = files()
    failure(["run", program, *given, "--output", path], "FileUnwritable", capsys)
    assert files() == before


@pytest.mark.parametrize("path", ["/dev/full", "/proc/out", "affine.json", "affine.json/deep"])
def test_folders_that_cannot_be_made(path: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = files()
    failure(["compile", program, "--dump=tiny,region", "--out", path], "FileUnwritable", capsys)
    assert files() == before


def test_a_link_stays_and_what_it_points_to_is_written(program: str) -> None:
    os.symlink("real.npz", "link.npz")
    assert main(["run", program, *vectors(), "--output", "link.npz"]) == 0
    assert Path("link.npz").is_symlink()
    assert Path("real.npz").is_file()


@pytest.mark.parametrize("size", [1 << 45, 1 << 62])
def test_a_result_that_no_memory_holds(size: int, capsys: pytest.CaptureFixture[str]) -> None:
    document = affine(size=1)
    wide = {"result_shape": [size], "broadcast_dimensions": [0]}
    document["uops"].append({"id": "wide", "uop": "EXPAND", "src": ["out"], "arg": wide})
    save("x.npy", np.ones(1, np.float32))
    argv = ["run", write("p.json", document), "--input", "x=x.npy", "--input", "y=x.npy"]
    failure(argv, "OutOfMemory", capsys)


@pytest.mark.parametrize("content", [b"((((", b"\xff\xfe", b"(rewrite (Nothing) (Something))"])
def test_rule_files(content: bytes, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.egg").write_bytes(content)
    assert main(["compile", program, "--rules", "mine.egg"]) == 1
    error = capsys.readouterr().err
    assert "mine.egg" in error
    assert "Traceback" not in error
