"""docs/stages.md: a section for every stage, in pipeline order, with the name of its file; and its commands run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import environment

from tinyc.stages import STAGES

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "stages.md").read_text(encoding="utf-8")


def test_every_stage_has_a_section_and_a_row_in_pipeline_order() -> None:
    assert tuple(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == STAGES
    assert tuple(re.findall(r"^\| \[(\w+)\]", PAGE, re.MULTILINE)) == STAGES


def test_files_bear_the_number_of_their_stage() -> None:
    named = re.findall(r"\b(\d\d)-(\w+?)(?:\.json|-KERNEL\.(?:ll|cu))", PAGE)
    assert {stage for _, stage in named} == set(STAGES)
    assert all(int(number) == STAGES.index(stage) + 1 for number, stage in named)


@pytest.mark.parametrize("code", re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_the_commands_run(code: str, tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    (tmp_path / "tinyc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tinyc "$@"\n')
    (tmp_path / "tinyc").chmod(0o755)
    env = environment() | {"PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])}
    done = subprocess.run(["bash", "-eu", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "define void @kernel_" in done.stdout
