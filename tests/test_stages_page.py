"""docs/stages.md: a section for every stage, in pipeline order, with the name of its file."""

from __future__ import annotations

import re
from pathlib import Path

from tinyc.stages import STAGES

PAGE = (Path(__file__).parent.parent / "docs" / "stages.md").read_text(encoding="utf-8")


def test_every_stage_has_a_section_and_a_row_in_pipeline_order() -> None:
    assert tuple(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == STAGES
    assert tuple(re.findall(r"^\| \[(\w+)\]", PAGE, re.MULTILINE)) == STAGES


def test_files_bear_the_number_of_their_stage() -> None:
    named = re.findall(r"\b(\d\d)-(\w+?)(?:\.json|-KERNEL\.ll)", PAGE)
    assert {stage for _, stage in named} == set(STAGES)
    assert all(int(number) == STAGES.index(stage) + 1 for number, stage in named)
