"""What the checker says about a rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

CLASSES = ("EXACT", "REASSOC", "BOUNDED", "REAL-ONLY")
"""Floating-point classes, tightest first. A rule of class FACT makes nothing equal."""


@dataclass(frozen=True)
class Counterexample:
    """An instance of a rule at which it is wrong.

    ``variables``: the rule's variables and what they stand for, in the order of the rule. ``left``, ``right``: both
    results, or what is true and what the rule claims. ``why``: one sentence.
    """

    variables: tuple[tuple[str, str], ...]
    left: str
    right: str
    why: str

    def __str__(self) -> str:
        lines = [self.why]
        lines += [f"  {name} = {value}" for name, value in self.variables]
        return "\n".join([*lines, f"  true:    {self.left}", f"  claimed: {self.right}"])


@dataclass(frozen=True)
class Note:
    """What a sound rule says otherwise than the built-in rules do: programs are as right, but other buffers, problems or
    plans are tried. ``word``: of which policy it departs, "" where it asks for what none of the built-in rules says;
    ``variables``: an instance at which it does; ``why``: one sentence."""

    word: str
    variables: tuple[tuple[str, str], ...]
    why: str

    def __str__(self) -> str:
        head = f"departs from the policy of {self.word}: {self.why}" if self.word else self.why
        return "\n".join([head, *(f"  {name} = {value}" for name, value in self.variables)])


@dataclass(frozen=True)
class Verdict:
    """The verdict on one rule.

    ``klass``: the declared class, that of its ruleset. ``measured``: the tightest class that held on all instances, or
    FACT for a rule that makes nothing equal; empty unless the rule is sound. ``verdict``: "sound", "unsound", or
    "error" (it could not be tried; never a skip). ``method``: how, see docs/rules.md: "terms", "integers", "rationals",
    "bits", "bound", "isl", "facts", "table", "unfolded", joined by "+". ``symbolic``: whether this settles all values,
    over all shapes with extents 1 to 3, and does not only sample them. ``instances``: how many were tried. ``notes``: one for
    each word of whose policy a sound rule departs.
    """

    rule: str
    ruleset: str
    klass: str
    verdict: str
    method: str
    symbolic: bool
    instances: int
    measured: str
    why: str
    file: str
    line: int
    counterexample: Counterexample | None = None
    notes: tuple[Note, ...] = ()

    @property
    def sound(self) -> bool:
        return self.verdict == "sound"

    def __str__(self) -> str:
        head = f"{self.verdict:8} {self.rule}  [{self.klass}"
        head += f", measured {self.measured}" if self.measured and self.measured != self.klass else ""
        head += f"; {self.method}; {self.instances} instances]" if self.method else "]"
        if self.sound:
            text = "\n".join(f"note: {each}" for each in self.notes)
        else:
            text = str(self.counterexample) if self.counterexample else self.why
        return "\n".join([head, *(f"    {line}" for line in text.splitlines())])


def to_json(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a stable JSON document: ``{"schema": 1, "sound": bool, "rules": [...]}``."""
    document = {
        "schema": 1,
        "sound": all(each.sound for each in verdicts),
        "symbolic": sum(each.symbolic for each in verdicts),
        "rules": [asdict(each) for each in verdicts],
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)


def to_text(verdicts: Sequence[Verdict], all_rules: bool = False) -> str:
    """The unsound and untried rules, and those with a note (all of them with ``all_rules``), and a last line with the
    counts."""
    shown = [str(each) for each in verdicts if all_rules or not each.sound or each.notes]
    bad = sum(not each.sound for each in verdicts)
    symbolic = sum(each.symbolic for each in verdicts)
    shown.append(f"{len(verdicts)} rules: {len(verdicts) - bad} sound ({symbolic} symbolic), {bad} not")
    return "\n".join(shown)


def readable(value: Any) -> str:
    """A number as one reads it; a float with the digits that tell it from its neighbours."""
    if isinstance(value, complex | np.complexfloating):
        value = value.real
    if isinstance(value, bool | np.bool_):
        return str(value)
    if isinstance(value, int | np.integer):
        text = str(int(value))
        return text if len(text) < 40 else f"{text[:12]}… ({len(text)} digits)"
    extreme = hasattr(value, "dtype") and value != 0 and not 1e-30 <= abs(float(value)) <= 1e30
    return f"{float(value):.9g}" if extreme else str(value)
