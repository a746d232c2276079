"""What the rules make of every example, phase by phase: a changed rule shows as a difference.

E-nodes per constructor are the same for every version of the engine; rounds, steps and matches per rule are not, and
have a file per major version. After a change, on an interpreter of each version (3.11 and 3.12):

    python -m pytest --update-golden tests/rules/test_saturation_golden.py
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import pytest
from golden import Golden

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import PhaseReport, Saturation, saturate
from tinyc.ir.verify import bind

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
DOCUMENTS = tuple(sorted(path.name for path in FOLDER.glob("*.json")))
SIZES = {"M": 40, "N": 24, "K": 36, "H": 9, "W": 10, "B": 2, "D": 8, "T": 12}
RULES = load_rules()


@functools.cache
def saturated(name: str) -> Saturation:
    program = tinyc.load(FOLDER / name)
    return saturate(bind(program, {symbol: SIZES[symbol] for symbol in program.symbols}), RULES)


def counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()) if count)


def constructors(phases: tuple[PhaseReport, ...]) -> list[str]:
    """Rows per constructor after each phase that added some; facts are spelled in lower case."""
    lines, before = [], ""
    for phase in phases:
        now = counts({name: count for name, count in phase.sizes.items() if name[:1].isupper()})
        lines.append(f"{phase.name} {phase.enodes}: {now if now != before else 'as before'}")
        before = now
    return lines


def matches(phase: PhaseReport) -> list[str]:
    """Steps, and matches per rule, a line per family."""
    lines = [f"{phase.name}: {phase.rounds} rounds, {phase.steps} steps"]
    by_family = groupby(sorted(phase.rule_matches), key=lambda rule: rule.split("/")[0])
    for family, rules in by_family:
        found = counts({rule.split("/")[1]: phase.rule_matches[rule] for rule in rules})
        lines += [f"  {family}: {found}"] if found else []
    return lines


@pytest.mark.parametrize("name", DOCUMENTS)
def test_enodes(name: str, golden: Golden) -> None:
    result = saturated(name)
    assert result.complete
    golden("\n".join(constructors(result.phases)))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_matches(name: str, golden: Golden) -> None:
    result = saturated(name)
    major = result.engine.split(".")[0]
    golden("\n".join(line for phase in result.phases for line in matches(phase)), f".egglog{major}.txt")


def test_the_same_again() -> None:
    """What the goldens hold does not change from run to run."""
    first = saturated("transformer_block.json")
    saturated.cache_clear()
    again = saturated("transformer_block.json")
    assert [matches(phase) for phase in again.phases] == [matches(phase) for phase in first.phases]
    assert again.graph == first.graph
