"""An explanation as data, as text for people, and as JSON for programs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tinyc.ir.diagnostics import TinycError, show

VERSION = 1
"""Of the JSON; it changes where a reader has to."""


@dataclass(frozen=True)
class Step:
    """One rule applied at one value of one kernel.

    Attributes:
        number: its place in the explanation, from 1.
        rule, ruleset, klass: its name, its ruleset and the floating-point class of that.
        equation: the comment above the rule.
        file, line: where the rule stands.
        forwards: from its left side to its right.
        via: the rules that found the marker relations which it asks for.
        kernel: name of the Region.
        site: where in the kernel's expression the value stands, as the positions of operands from the root; the
            first place where it stands in several, which are rewritten together. Empty in a very large kernel.
        before, after: the value, as text.
        kernel_before, kernel_after: all that fills the kernel's buffer, as text; empty in a very large kernel.
        checked: both sides agreed on random inputs, at the site and, in a kernel that is not large, as whole kernels.
        wrong: they did not agree.
        error: the largest difference that was seen, relative to the largest value.
        why: what is wrong, or why nothing could be tried; else "".
    """

    number: int
    rule: str
    ruleset: str
    klass: str
    equation: str
    file: str
    line: int
    forwards: bool
    via: tuple[str, ...]
    kernel: str
    site: tuple[int, ...]
    before: str
    after: str
    kernel_before: str
    kernel_after: str
    checked: bool
    wrong: bool
    error: float
    why: str


@dataclass(frozen=True)
class KernelSteps:
    """The chain of one kernel.

    Attributes:
        kernel: name of the Region. buffer: what it fills.
        naive, chosen: what fills the buffer before the first step and after the last, as text.
        tensors: the naive tensors that the steps mention, each with what it is computed by.
        steps: in order; of equal kernels only the first has them.
        like: the kernel whose steps are the same but for the names of tensors and buffers; "" for one with its own.
        unexplained: what no recorded rule explains; "" where the chain ends at the chosen term.
    """

    kernel: str
    buffer: str
    naive: str
    chosen: str
    tensors: tuple[str, ...]
    steps: tuple[Step, ...]
    like: str
    unexplained: str


@dataclass(frozen=True)
class Explanation:
    """From the naive program to the extracted one.

    Attributes:
        kernels: outputs first, each before the kernels whose buffers it reads.
        made: per rule, how many of the chosen e-nodes it builds (facts that extraction chose by included).
        note: why there is nothing to explain; else "".
    """

    kernels: tuple[KernelSteps, ...]
    made: Mapping[str, int]
    note: str = ""

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps that are spelled out, kernel by kernel."""
        return tuple(step for kernel in self.kernels for step in kernel.steps)

    @property
    def explained(self) -> bool:
        """Whether every kernel's chain ends at what was extracted."""
        return not any(kernel.unexplained for kernel in self.kernels)

    @property
    def checked(self) -> bool:
        """Whether every step was tried on numbers, and agreed."""
        return all(step.checked for step in self.steps)

    @property
    def survivors(self) -> frozenset[str]:
        """The rules of which something survives in the chosen program."""
        return frozenset(self.made)

    def only(self, kernel: str) -> Explanation:
        """The part about one kernel (its name, or its buffer's); of one that is like another, with the steps of that.
        Raises TinycError InvalidArgument."""
        chosen = next((each for each in self.kernels if kernel in (each.kernel, each.buffer)), None)
        if chosen is None:
            raise TinycError(
                "InvalidArgument",
                f"there is no kernel {show(kernel)}",
                f"the kernels are {', '.join(each.kernel for each in self.kernels) or 'not explained'}",
                at={"layer": "compiler", "value": kernel},
            )
        parts = [chosen]
        if chosen.like:
            parts.append(next(each for each in self.kernels if each.kernel == chosen.like))
        return Explanation(tuple(parts), self.made, self.note)

    def of_rule(self, rule: str) -> Explanation:
        """The steps of one rule, and those that it found a marker relation for; a note where it has none."""
        kernels = tuple(
            replace(kernel, steps=steps)
            for kernel in self.kernels
            if (steps := tuple(step for step in kernel.steps if rule in (step.rule, *step.via)))
        )
        if kernels or self.note:
            return Explanation(kernels, self.made, self.note)
        count, made = len(self.steps), self.made.get(rule, 0)
        ending = f"{_count(made, 'fact')} of it were chosen" if made else "nothing it made was chosen"
        return Explanation((), self.made, f"none of the {_count(count, 'step')} is one of {rule}: {ending}")

    def __str__(self) -> str:
        return "\n".join(_text(self))

    def to_json(self) -> str:
        """Strict JSON, the same for equal explanations."""
        document = {
            "explanation": {
                "version": VERSION,
                "explained": self.explained,
                "checked": self.checked,
                "note": self.note,
                "made": dict(sorted(self.made.items())),
                "kernels": [
                    {
                        **{key: value for key, value in asdict(kernel).items() if key != "steps"},
                        "steps": [_json(step) for step in kernel.steps],
                    }
                    for kernel in self.kernels
                ],
            }
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _json(step: Step) -> dict[str, object]:
    fields = asdict(step)
    fields["class"] = fields.pop("klass")
    fields["file"] = Path(step.file).name
    fields["error"] = min(step.error, 1e300)  # JSON has no infinity
    return fields


def _text(explanation: Explanation) -> Iterator[str]:
    if explanation.note:
        yield explanation.note
        return
    yield _summary(explanation)
    alike = Counter(kernel.like for kernel in explanation.kernels if kernel.like)
    for kernel in explanation.kernels:
        yield ""
        if kernel.like:
            yield f"kernel {kernel.kernel}: the steps of {kernel.like}, with other names"
            continue
        others = (
            f" ({_count(alike[kernel.kernel], 'kernel')} more with the same steps)"
            if alike[kernel.kernel]
            else ""
        )
        yield f"kernel {kernel.kernel}{others}"
        yield f"  naive:  {kernel.naive}"
        yield from (f"          {tensor}" for tensor in kernel.tensors)
        for group in _groups(kernel.steps):
            yield from _spelled(group)
        yield f"  chosen: {kernel.chosen}"
        if kernel.unexplained:
            yield f"  NOT EXPLAINED: {kernel.unexplained}"


def _summary(explanation: Explanation) -> str:
    steps = explanation.steps
    said = f"{_count(len(steps), 'step')} in {_count(len(explanation.kernels), 'kernel')}"
    if not steps:
        return f"{said}: what runs is the naive program, and no rule was needed"
    wrong = sum(step.wrong for step in steps)
    untried = sum(not step.checked for step in steps) - wrong
    if not wrong and not untried:
        largest = max(step.error for step in steps)
        return f"{said}, all checked on random inputs (largest relative difference {largest:.1e})"
    states = [f"{wrong} WRONG"] * bool(wrong) + [f"{untried} NOT CHECKED"] * bool(untried)
    return f"{said}, {', '.join(states)}, the others checked on random inputs"


def _groups(steps: Iterable[Step]) -> list[list[Step]]:
    """Steps one by one; those of the index normal form together."""
    groups: list[list[Step]] = []
    for step in steps:
        last = groups[-1][-1] if groups else None
        quiet = step.ruleset == "index" and step.checked
        if quiet and last and last.ruleset == "index" and last.checked and last.number == step.number - 1:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _spelled(group: list[Step]) -> Iterator[str]:
    first = group[0].number
    if len(group) > 1:
        counts = Counter(step.rule.removeprefix("index/") for step in group)
        rules = ", ".join(f"{rule}{f' x{count}' if count > 1 else ''}" for rule, count in counts.items())
        yield f"  {first}-{first + len(group) - 1}. index arithmetic: {rules}"
        return
    (step,) = group
    direction = "" if step.forwards else " (right to left)"
    place = f"{step.klass}, {Path(step.file).name}:{step.line}"
    yield f"  {first}. {step.rule}{direction}  [{place}]  {_short(step.equation)}"
    if step.via:
        yield f"       by way of {', '.join(dict.fromkeys(step.via))}"
    yield f"       {step.before}"
    yield f"    -> {step.after}"
    if not step.checked:
        yield f"       {'WRONG' if step.wrong else 'NOT CHECKED'}: {step.why}"


def _short(equation: str) -> str:
    """The part of a rule's comment that is an equation."""
    parts = re.split(r"(?<=[.;:]) ", equation)
    return next((part for part in parts if " == " in part), parts[0]).rstrip(".;:")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
