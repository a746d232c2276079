"""What is wrong with how a rule is written; whether it is true, :mod:`tinyc.rulecheck.check` finds out.

Every law of rules/README.md that can be read off a rule has a kind of finding here. A rule file may hold anything: what
cannot be read is a finding too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tinyc.egraph.forms import Form, line_of, option_span, words
from tinyc.egraph.rulefiles import BUILTIN, RULES, Reading, read_rules
from tinyc.ir.diagnostics import TinycError

from .atoms import alike, atoms_of
from .growth import grows, inventing
from .laws import Written, broken
from .parse import Rule, Schema, Unreadable, declare, read, rules_of

MAX_TOGETHER = 30
"""Rules of a user's that are run on paper together, to see whether they feed one another."""

MAX_PAIRS = 4
"""Rules of which the other of a pair is looked for; the others are said to feed on the rest."""

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Kind:
    """What is true of every finding of a kind."""

    code: str
    suggestion: str
    severity: Severity = "error"


KINDS = MappingProxyType(
    {
        "unreadable": Kind("R001", "give the path of a rule file (.egg) or of a folder with some"),
        "text": Kind("R002", "correct the text: forms, comments and nothing else"),
        "acts": Kind("R003", "take it out: a rule file declares, and does nothing"),
        "include": Kind("R004", "include files of the same folder only, and none twice in a circle"),
        "phase": Kind("R005", "use a phase of rules/phases.egg, or declare one with a number"),
        "class": Kind("R006", "say to which phase the ruleset belongs, its class, and whether it is on"),
        "unnamed": Kind("R007", 'add :name "family/what"'),
        "ruleset": Kind("R008", "declare the ruleset, and its phase with (in-phase …)"),
        "name-taken": Kind("R009", "give every rule a name of its own"),
        "malformed": Kind("R010", "compare it with a rule of rules/algebra.egg"),
        "no-equation": Kind("R011", "write `left == right`, or `fact if condition`, in a comment above the rule"),
        "large-left-side": Kind("R012", "find the pattern in steps, through a relation, or say why in the comment"),
        "no-guard": Kind("R013", "add a guard, or the word `generic` to the comment if it is true of all of them"),
        "grows": Kind("R014", "bound it by a guard, or give the result a form that the rule does not match"),
        "shadows": Kind("R015", "give it another name"),
        "duplicate": Kind("R016", "take one of them out"),
        "reorders": Kind("R017", "write the rule that needs the other order twice; rules are cheaper than e-nodes"),
        "stops": Kind("R018", "leave panic to the rules of phase check"),
        "refused": Kind("R019", "correct the rule; rules/schema.egg lists the constructors and their arguments"),
        "never-matched": Kind("R020", "look for a guard that always fails, often a dtype-of", "warning"),
        "removes": Kind("R021", "leave the term in: extraction takes what is cheapest"),
        "misspelt": Kind("R023", "correct the word, or the constant; rules/schema.egg lists what there is"),
        "merges": Kind("R022", "choose one of both: old, new, (min old new) or (max old new)"),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """``code``, ``kind`` and ``severity``: see :data:`KINDS`. ``rule``: its name, empty where it has none or the file is at
    fault. ``line``: from 1."""

    code: str
    kind: str
    severity: Severity
    rule: str
    file: str
    line: int
    why: str
    suggestion: str

    def __str__(self) -> str:
        rule = f" {self.rule}" if self.rule else ""
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.severity} {self.code} {self.kind}{rule}\n  why: {self.why}\n  try: {self.suggestion}"


def lint_rules(
    extra: Sequence[str | Path] = (), context: Sequence[str | Path] = (), examples: bool = True
) -> tuple[Finding, ...]:
    """Everything that is wrong with the rule files or folders ``extra`` (with the built-in rules if there are none), in
    the order of files and lines. ``context``: files that they build on, which are not looked at. ``examples``: run the
    example programs to find rules that never match.

    Raises nothing for what a file holds.
    """
    reading = read_rules((*context, *extra))
    known = {str(path) for path in read_rules(context).base.files} if extra else set()
    findings = [_of_error(fault.what, fault.error) for fault in reading.faults]
    whole = _written(reading)
    schema, written = whole.schema, whole.rules
    findings += whole.findings
    mine = [rule for rule in written if rule.rule.file not in known]
    for each in mine:
        rule = each.rule
        findings += [
            _finding(kind, rule.name, rule.file, rule.line, why) for kind, why in broken(each, schema)
        ]
    if extra:
        findings += _feeding(mine, schema, {finding.rule for finding in findings})
    findings += _duplicates(written)
    if examples and not any(finding.severity == "error" and finding.kind in FATAL for finding in findings):
        findings += _unmatched(reading, (*context, *extra), written, known)
    wanted = [finding for finding in findings if finding.file not in known]
    return tuple(sorted(dict.fromkeys(wanted), key=lambda each: (each.file, each.line, each.code, each.why)))


FATAL = frozenset([*list(KINDS)[:10], "refused"])
"""Kinds with which the rules cannot be loaded."""


@dataclass(frozen=True)
class _Known:
    """What some files declare. ``comments``: of rulesets; ``taken``: words, and what each is and where."""

    schema: Schema
    rules: tuple[Written, ...] = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


Files = tuple[tuple[Path, tuple[Form, ...]], ...]


def _written(reading: Reading) -> _Known:
    """The schema and the rules of all files, and what cannot be read."""
    files = tuple((path, reading.forms[path]) for path in reading.base.files)
    phases = frozenset((ruleset.name, ruleset.phase) for ruleset in reading.base.rulesets)
    faulty = frozenset(
        (fault.error.at.get("file", ""), fault.error.at.get("line", "")) for fault in reading.faults
    )
    own = sum(path.parent == BUILTIN.resolve().parent for path, _ in files)  # they come first
    tinycs = {
        ruleset.name for ruleset in reading.base.rulesets if ruleset.file.parent == BUILTIN.resolve().parent
    }
    first = _builtin(files[:own], frozenset(each for each in phases if each[0] in tinycs))
    return _more(first, files[own:], dict(phases), faulty)


@functools.lru_cache(maxsize=4)
def _builtin(files: Files, phases: frozenset[tuple[str, str]]) -> _Known:
    """Cached, as every file is linted after tinyc's own; whoever adds to it copies it."""
    return _more(_Known(Schema()), files, dict(phases), frozenset())


def _more(
    known: _Known, files: Files, phases: Mapping[str, str], faulty: frozenset[tuple[str, str]]
) -> _Known:
    """``known`` and what ``files`` say. ``faulty``: files and lines of declarations that are not looked at."""
    schema, comments, taken = known.schema.copy(), dict(known.comments), known.taken
    findings: list[Finding] = []
    found: list[tuple[Rule, Form, Mapping[str, str]]] = []
    for path, form in ((path, form) for path, forms in files for form in forms):
        if form.head not in RULES and (str(path), str(form.line)) in faulty:
            continue
        try:
            if form.head in RULES:
                (tree,) = read(form.text)
                assert isinstance(tree, list)
                for rule in rules_of(tree, str(path), form.line):
                    found.append((rule, form, taken))
                    schema.rules[f"{rule.name} {rule.direction}"] = rule
            else:
                declare(schema, form.text, str(path), form.line)
                findings += _of_declaration(form, schema, path)
                name = words(form.text)[1:2]
                if form.head in NAMING and name and name[0] in taken:
                    why = (
                        f"{name[0]} is the name of the {taken[name[0]]}, and the engine takes each name once"
                    )
                    findings.append(_finding("shadows", "", str(path), form.line, why))
                taken = {**taken, **_declared(form, schema, path)}
        except TinycError as error:
            findings.append(_of_error("malformed", error))
        except (ValueError, IndexError, AssertionError, Unreadable, RecursionError) as error:
            findings.append(_finding("malformed", "", str(path), form.line, f"it cannot be read: {error}"))
        if form.head == "ruleset":
            comments[words(form.text)[-1]] = form.comment
    written = list(known.rules)
    for rule, form, above in found:
        if rule.problem:
            findings.append(_finding("malformed", rule.name, rule.file, rule.line, rule.problem))
            continue
        said = f"{form.comment} {comments.get(rule.ruleset, '')}"
        generic = re.search(r"\bgeneric\b", said) is not None
        phase = phases.get(rule.ruleset, "")
        subsumes = option_span(form.text, ":subsume") is not None
        written.append(Written(rule, atoms_of(rule, schema), form.comment, generic, phase, above, subsumes))
    return _Known(schema, tuple(written), comments, taken, (*known.findings, *findings))


def _of_declaration(form: Form, schema: Schema, path: Path) -> Iterator[Finding]:
    """What is wrong with a declaration that can be read."""
    said = words(form.text)
    if form.head == "in-phase" and said[3:5] == ["REAL-ONLY", "on"]:
        why = f"ruleset {said[1]} is REAL-ONLY, and such a ruleset is off by default: programs ask for it"
        yield _finding("class", "", str(path), form.line, why)
    why = inventing(schema, said[1]) if form.head == "function" and len(said) > 1 else ""
    if why:
        yield _finding("merges", "", str(path), form.line, why)


NAMING = ("sort", "constructor", "function", "relation", "ruleset")
"""Declarations of one word."""


def _declared(form: Form, schema: Schema, path: Path) -> dict[str, str]:
    """The words that a form declares, and what each is and where: "relation of mine.egg:3"."""
    said = words(form.text)
    found: dict[str, str] = {}
    if form.head in NAMING:
        found = {name: form.head for name in said[1:2]}
    elif form.head in ("datatype", "datatype*"):
        found = {name: "constructor" for name in said if name in schema.constructors}
        found |= {name: "sort" for name in said if name in schema.sorts}
    return {name: f"{what} of {path.name}:{line_of(form, name)}" for name, what in found.items()}


def _feeding(mine: Sequence[Written], schema: Schema, faulty: Collection[str]) -> Iterator[Finding]:
    """Rules that grow without bound by what others of the same files make of what they made."""
    rules = [each for each in mine if each.rule.name not in faulty]
    if not 1 < len(rules) <= MAX_TOGETHER:
        return
    pairs = 0
    for each in rules:
        others = [other for other in rules if other is not each]
        atoms = [other.atoms for other in others]
        if not grows(each.atoms, schema, atoms) or grows(each.atoms, schema, atoms, once=True):
            continue  # or the others feed one another without it
        pairs += 1
        looked_at = others if pairs <= MAX_PAIRS else []
        pair = next((other for other in looked_at if grows(each.atoms, schema, [other.atoms])), None)
        by = f"rule {pair.rule.name}" if pair else "the other rules"
        why = f"it matches what {by} makes of what it makes, larger each time: together they never end"
        yield _finding("grows", each.rule.name, each.rule.file, each.rule.line, why)


def _duplicates(written: Sequence[Written]) -> Iterator[Finding]:
    """Rules that are like one before them, but for names and order."""
    groups: dict[tuple[object, ...], list[Written]] = {}
    for each in written:
        group = groups.setdefault(each.signature, [])
        first = next((other for other in group if alike(other.atoms, each.atoms)), None)
        if first is None:
            group.append(each)
        elif (first.rule.file, first.rule.line) != (each.rule.file, each.rule.line):
            why = f"it is the same rule as {first.rule.name} ({Path(first.rule.file).name}:{first.rule.line})"
            yield _finding("duplicate", each.rule.name, each.rule.file, each.rule.line, why)


def _unmatched(
    reading: Reading, files: Sequence[str | Path], written: Sequence[Written], known: set[str]
) -> Iterator[Finding]:
    """Rules that match in no example; what the engine refuses, and where it stops, is a finding as well."""
    from .stats import unmatched

    excused = {
        each.rule.name
        for each in written
        if "no example" in each.comment or any(action.kind == "panic" for action in each.atoms.actions)
    }
    wanted = {
        rule.name: rule for rule in reading.base.rules if rule.file not in known and rule.name not in excused
    }
    try:
        for name in unmatched(files, wanted):
            rule = wanted[name]
            why = "it matches in none of the example programs, of no target"
            yield _finding("never-matched", name, rule.file, rule.line, why)
    except TinycError as error:
        yield _of_error("refused", error)


def _of_error(kind: str, error: TinycError) -> Finding:
    line = error.at.get("line", "1")
    file = error.at.get("file", str(BUILTIN))
    why = error.why.removeprefix(f"{Path(file).name}:{line}: ")
    return _finding(kind, error.at.get("rule", ""), file, int(line) if line.isdigit() else 1, why)


def _finding(kind: str, rule: str, file: str, line: int, why: str) -> Finding:
    entry = KINDS[kind]
    return Finding(entry.code, kind, entry.severity, rule, file, line, why, entry.suggestion)


__all__ = ["KINDS", "Finding", "lint_rules"]
