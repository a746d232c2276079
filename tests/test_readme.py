"""Every code block of the README runs, and every link of the documents leads somewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("rules/*.md"))]
RUN = {"python", "bash"}
PROSE = {"text", "mermaid"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of its first line."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in found]


ALL = blocks(README.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a clone, so that what the blocks write does not land in the real one.

    Its ``bin`` comes first on the path: ``python`` and ``tinyc`` are those of the environment that runs the tests.
    """
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "bin").mkdir()
    for name, arguments in [("python", ""), ("tinyc", "-m tinyc")]:
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    for line in "".join(block.text for block in ALL if block.language == "bash").splitlines():
        if "np.save(" in line:  # read in another block, which another process of the tests may run
            run(["bash", "-euo", "pipefail", "-c", line], folder)
    return folder


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    env = {name: value for name, value in env.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=env, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def test_blocks_are_found_and_each_is_code_or_prose() -> None:
    assert {block.language for block in ALL} <= RUN | PROSE
    assert {block.language for block in ALL} >= RUN
    assert README.read_text(encoding="utf-8").count("```") == 2 * len(ALL)


@pytest.mark.parametrize(
    "block", [block for block in ALL if block.language in RUN], ids=lambda block: f"line-{block.line}"
)
def test_block_runs(block: Block, workplace: Path) -> None:
    """A python block runs as a script; of a bash block every line succeeds.

    ``make test`` would run this test again, and ``make`` would install an environment into the copy: make's lines
    are tried dry, which still fails for a target that does not exist. What ``make demo`` runs has its own test.
    """
    if block.language == "python":
        run([sys.executable, "-c", block.text], workplace)
        return
    script = re.sub(r"^make ", "make --dry-run ", block.text, flags=re.MULTILINE)
    run(["bash", "-euo", "pipefail", "-c", script], workplace)


def test_the_demo_shows_program_code_report_and_check(workplace: Path) -> None:
    recipe = run(["make", "--dry-run", "demo"], workplace).stdout
    assert "docs/examples/demo.py" in recipe
    shown = run([sys.executable, "docs/examples/demo.py"], workplace).stdout
    headings = re.findall(r"^== \d\. (.*) ==$", shown, re.MULTILINE)
    wanted = ("The naive program", "The report", "The generated code", "The result")
    for heading, start in zip(headings, wanted, strict=True):
        assert heading.startswith(start)
    assert "define void @kernel_" in shown, "LLVM IR"
    assert "The naive program lost by its " in shown
    assert len(shown.splitlines()) < 120, "short enough to be read"
    assert "right: 19500 elements" in shown


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target
