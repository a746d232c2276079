"""docs/rules.md runs: its files are written, its commands are run, and show what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tinyc.cli import main

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rules.md"


@dataclass(frozen=True)
class Block:
    """A fenced block and the text in front of it."""

    before: str
    language: str
    text: str


def blocks() -> list[Block]:
    text = PAGE.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(text[: match.start()].rstrip(), match[1], match[2]) for match in found]


def commands(text: str) -> list[tuple[str, str]]:
    """The lines after ``$``, each with what is shown below it."""
    return [
        (part.split("\n", 1)[0], part.split("\n", 1)[1]) for part in re.split(r"^\$ ", text, flags=re.M)[1:]
    ]


def shows(wanted: str, shown: str) -> bool:
    """Whether a text is as the page says; ``...`` stands for any rest of a line, on a line of its own for any lines."""
    pattern = ""
    for line in wanted.splitlines():
        pattern += r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
    return re.fullmatch(pattern, shown if shown.endswith("\n") or not shown else shown + "\n") is not None


def run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What a command shows: ``tinyc`` in this process (a start of it takes longer than most of what is shown), others by
    the shell, with the ``python`` that runs the tests."""
    words = shlex.split(command)
    if words[0] == "tinyc":
        assert not set(command) & set("|&<>;$*")
        main(words[1:])
        shown = capsys.readouterr()
        return shown.out, shown.err
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin" / "python").exists():
        (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (folder / "bin" / "python").chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
    return done.stdout, done.stderr


def test_the_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    written, ran = set(), 0
    for block in blocks():
        if block.language != "console":
            named = re.search(r"`([\w.]+)`(?: is now)?:\Z", block.before)
            assert named, f"no file name in front of:\n{block.text}"
            (tmp_path / named[1]).write_text(block.text, encoding="utf-8")
            written.add(named[1])
            continue
        for command, wanted in commands(block.text):
            shown, faults = run(command, tmp_path, capsys)
            assert faults == "", f"$ {command}\n{faults}"
            assert shows(wanted, shown), f"$ {command}\n{shown}\nand the page says:\n{wanted}"
            ran += 1
    assert written == {"repeated.json", "once.egg", "test_once.py"}
    assert ran >= 8


def test_what_the_page_may_leave_out() -> None:
    assert shows("a ...\n...\nz\n", "a b\nc\nd\nz\n") and shows("...\n", "") and shows("", "")
    assert not shows("a ...\nz\n", "a b\nc\nz\n") and not shows("", "a\n") and not shows("a\n...\n", "b\n")
