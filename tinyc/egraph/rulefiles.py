"""Reads what rule files declare: rules with their equations, rulesets with their phase and class.

A rule file is checked before the engine sees it: it may declare (sorts, constructors, functions, relations,
rulesets, rules, facts) and include other rule files of its folder, and do nothing else.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyc.ir.diagnostics import TinycError

from .forms import Form, TextFault, option, option_span, read_text, scan, words
from .numerals import with_bits
from .sexpr import parse, symbols

BUILTIN = Path(__file__).parent.parent / "rules" / "tinyc.egg"
DECLARING = frozenset(
    {"sort", "datatype", "datatype*", "constructor", "function", "relation", "ruleset", "rule", "rewrite"}
    | {"birewrite", "include", "meaning"}
)
"""The commands of a rule file. A fact of a relation that it declares or includes is allowed as well; whatever else the
engine knows acts (runs rules, reads files, prints), and a rule file may not."""
ACTING = frozenset(
    [
        "run",
        "run-schedule",
        "run-with",
        "let-scheduler",
        "saturate",
        "seq",
        "repeat",
        "unstable-combined-ruleset",
        "with-ruleset",
        "input",
        "output",
        "extract",
        "multi-extract",
        "query-extract",
        "keep-best",
        "check",
        "fail",
        "prove",
        "prove-exists",
        "simplify",
        "push",
        "pop",
        "print",
        "print-function",
        "print-size",
        "print-stats",
        "print-overall-statistics",
        "let",
        "set",
        "union",
        "delete",
        "subsume",
        "change",
        "panic",
        "for",
        "set-cost",
        "set-option",
        "with-dynamic-cost",
        "get-size!",
        "calc",
        "declare",
    ]
)
"""Commands that a relation may be named like: ``(output "file" …)`` is no fact but writes a file."""
RULES = ("rule", "rewrite", "birewrite")
MAX_INCLUDES = 50
"""Files that include one another in a chain."""
CLASSES = ("EXACT", "REASSOC", "BOUNDED", "REAL-ONLY", "FACT")


@dataclass(frozen=True)
class RuleInfo:
    """One rule. ``klass``: the floating-point class of its ruleset; ``equation``: the comment above it."""

    name: str
    ruleset: str
    phase: str
    klass: str
    default: bool
    file: str
    line: int
    equation: str


@dataclass(frozen=True)
class Ruleset:
    name: str
    phase: str
    klass: str
    default: bool
    file: Path
    line: int


@dataclass(frozen=True)
class RuleBase:
    """All rule files in load order, the phases in their order, rulesets and rules."""

    files: tuple[Path, ...]
    phases: tuple[str, ...]
    rulesets: tuple[Ruleset, ...]
    rules: tuple[RuleInfo, ...]

    def active(self, without: Sequence[str] = (), also: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
        """The rulesets to run, by phase in order. ``without`` may name single rules too, which are not looked at here.
        Raises UnknownRuleset for a name that no file declares."""
        known = {ruleset.name for ruleset in self.rulesets}
        rules = {rule.name for rule in self.rules}
        for name in (*without, *also):
            if name not in known and (name not in rules or name in also):
                raise TinycError(
                    "UnknownRuleset",
                    f"no rule file declares a ruleset {name!r}",
                    f"the rulesets are {', '.join(sorted(known))}",
                    at={"layer": "egraph", "value": name},
                )
        on = [r for r in self.rulesets if (r.default or r.name in also) and r.name not in without]
        return {phase: tuple(r.name for r in on if r.phase == phase) for phase in self.phases}


@dataclass(frozen=True)
class Fault:
    """What is wrong with a rule file. ``what``: "unreadable", "text", "acts", "include", "phase", "class", "unnamed",
    "ruleset" or "name-taken"; ``error``: as it is raised where the rules are to be used."""

    what: str
    error: TinycError


@dataclass(frozen=True)
class Reading:
    """Rule files with everything that is wrong with them. ``base``: what is right; ``forms``: per file."""

    base: RuleBase
    forms: Mapping[Path, tuple[Form, ...]]
    faults: tuple[Fault, ...]


def load_rules(extra: Iterable[str | Path] = ()) -> RuleBase:
    """The built-in rules and the files or folders in ``extra``.

    Raises TinycError RuleFileInvalid (with file and line) for anything that is not a well-formed rule file, and
    FileUnreadable for a file that cannot be read.
    """
    listed = tuple(extra)
    if not listed:
        return _builtin(tuple(sorted(_stamp(each) for each in os.scandir(BUILTIN.resolve().parent))))
    reading = read_rules(listed)
    if reading.faults:
        raise reading.faults[0].error
    return reading.base


@functools.lru_cache(maxsize=1)
def _builtin(stamps: tuple[tuple[str, int, int], ...]) -> RuleBase:
    """The built-in rules, read once as long as their files do not change."""
    reading = read_rules()
    if reading.faults:
        raise reading.faults[0].error
    return reading.base


def _stamp(file: os.DirEntry[str]) -> tuple[str, int, int]:
    found = file.stat()
    return file.name, found.st_size, found.st_mtime_ns


def read_rules(extra: Iterable[str | Path] = ()) -> Reading:
    """As :func:`load_rules`, but a fault is no end: all are collected."""
    reader = _Reader()
    reader.include(BUILTIN, BUILTIN.resolve().parent)
    for path in reader.spread(extra):
        reader.include(path, path.parent)
    return reader.finish()


def list_rules(extra: Iterable[str | Path] = ()) -> tuple[RuleInfo, ...]:
    """Every rule, in file order."""
    return load_rules(extra).rules


def texts_of(files: Iterable[Path]) -> tuple[str, ...]:
    """The texts of rule files. Raises TinycError FileUnreadable."""
    return tuple(_text(path) for path in files)


@functools.lru_cache(maxsize=128)
def one_rule_per_ruleset(text: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """A rule file's text with each rule in a ruleset of its own, and for each of those its ruleset and rule name.

    A rule can then be left out, or run by itself so that what it adds is counted; combined again, such rulesets run as
    fast as the whole. Lines stay; includes and meanings, which tinyc alone reads, are blanked.
    """
    homes: dict[str, tuple[str, str]] = {}
    forms, _ = scan(text)
    for form in reversed(forms):
        end = form.start + len(form.text)
        if form.head in ("include", "meaning"):
            text = text[: form.start] + "\n" * form.text.count("\n") + text[end:]
        if form.head not in RULES:
            continue
        name, home = option(form.text, ":name"), option(form.text, ":ruleset")
        span = option_span(form.text, ":ruleset")
        if not (name and home and span):
            continue  # edited since load_rules has checked it: the engine says so
        alone = "rule--" + re.sub(r"[^A-Za-z0-9]", lambda found: f"-{ord(found[0]):x}-", name)
        homes[alone] = (home, name)
        body = form.text[: span[0]] + alone + form.text[span[1] :]
        text = f"{text[: form.start]}(ruleset {alone}) {body}{text[end:]}"
    return text, dict(reversed(homes.items()))


@functools.lru_cache(maxsize=64)
def builds_of(text: str) -> Mapping[str, Mapping[str, int]]:
    """Rule -> constructor -> how often its right-hand side builds it (both sides of a birewrite)."""
    found: dict[str, Mapping[str, int]] = {}
    for form in scan(text)[0]:
        if form.head in RULES:
            tree = parse(form.text)[0]
            assert isinstance(tree, tuple)
            sides = tree[1:3] if form.head == "birewrite" else tree[2:3]
            built = Counter(name for name in symbols(sides) if name[:1].isupper())
            found[option(form.text, ":name") or ""] = built
    return found


def forms_of(path: Path) -> tuple[Form, ...]:
    """The top-level forms of a rule file, with the comments above them. Raises TinycError FileUnreadable, and
    RuleFileInvalid for the first fault of the text."""
    forms, faults = _scanned(path)
    for fault in faults:
        raise _bad(path, fault.line, fault.why)
    return forms


def _scanned(path: Path) -> tuple[tuple[Form, ...], tuple[TextFault, ...]]:
    return scan(_text(path))


def _text(path: Path) -> str:
    try:
        return with_bits(read_text(path))
    except (OSError, ValueError) as error:
        raise TinycError(
            "FileUnreadable",
            f"cannot read {path}: {error}",
            "give the path of a rule file (.egg) or of a folder with some",
            at={"layer": "rules", "file": path},
        ) from None


class _Reader:
    """Collects files, their forms and their faults."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.forms: dict[Path, tuple[Form, ...]] = {}
        self.faults: list[Fault] = []
        self.relations: set[str] = set()
        self.declared: set[str] = set()  # rulesets

    def fault(self, what: str, path: Path, line: int, why: str) -> None:
        self.faults.append(Fault(what, _bad(path, line, why)))

    def spread(self, extra: Iterable[str | Path]) -> list[Path]:
        """The files, and those of the folders in the order of their names."""
        spread: list[Path] = []
        for item in extra:
            path = _resolved(Path(item))
            found = sorted(path.glob("*.egg")) if os.path.isdir(path) else [path]
            if not found:
                self.fault("unreadable", path, 1, "the folder holds no .egg file")
            spread += map(_resolved, found)
        return spread

    def include(self, path: Path, folder: Path, above: tuple[Path, ...] = ()) -> None:
        """Reads a file and those that it includes, all of which lie in ``folder``."""
        path = _resolved(path)
        if path in self.forms:
            return
        try:
            mine, faults = _scanned(path)
        except TinycError as error:
            self.faults.append(Fault("unreadable", error))
            return
        self.forms[path] = mine
        for fault in faults:
            self.fault("text", path, fault.line, fault.why)
        for form in mine:
            if form.head == "include":
                self._included(path, form, folder, above)
            elif form.head == "relation" and len(words(form.text)) > 1:
                self.relations.add(words(form.text)[1])
            elif form.head == "ruleset":
                self.declared.update(words(form.text)[1:])
            elif form.head in ACTING or form.head not in DECLARING | self.relations:
                why = f"({form.head} …) declares nothing and is no fact of a relation declared above"
                self.fault("acts", path, form.line, why)
        self.files.append(path)

    def _included(self, path: Path, form: Form, folder: Path, above: tuple[Path, ...]) -> None:
        named = words(form.text)[1:]
        target = _resolved(path.parent / named[0]) if named else path
        if target in (*above, path):
            why = "the file includes itself" if named else "(include …) names no file"
            self.fault("include", target, 1 if named else form.line, why)
        elif not target.is_relative_to(folder):
            why = f"the file includes {named[0]}, which is outside of its folder; give it as a rule file of its own"
            self.fault("include", path, form.line, why)
        elif len(above) >= MAX_INCLUDES:
            self.fault("include", path, form.line, f"more than {MAX_INCLUDES} files include one another")
        else:
            self.include(target, folder, (*above, path))

    def finish(self) -> Reading:
        phases: dict[str, int] = {}
        rulesets: dict[str, Ruleset] = {}
        for path in self.files:
            for form in self.forms[path]:
                said = words(form.text) if form.head in ("phase", "in-phase") else []
                if form.head == "phase":
                    if len(said) != 3 or not re.fullmatch(r"-?\d{1,18}", said[2]):
                        self.fault("phase", path, form.line, 'expected (phase "<name>" <number>)')
                    elif phases.setdefault(said[1], int(said[2])) != int(said[2]):
                        why = f"phase {said[1]!r} has the number {phases[said[1]]} already"
                        self.fault("phase", path, form.line, why)
                elif form.head == "in-phase":
                    self._ruleset(path, form, said, rulesets)
        for ruleset in rulesets.values():
            if ruleset.phase not in phases:
                why = f"phase {ruleset.phase!r} is not one of {', '.join(phases)}"
                self.fault("phase", ruleset.file, ruleset.line, why)
        rules = self._rules(rulesets)
        ordered = tuple(sorted(phases, key=lambda name: phases[name]))
        base = RuleBase(tuple(self.files), ordered, tuple(rulesets.values()), rules)
        return Reading(base, self.forms, tuple(self.faults))

    def _ruleset(self, path: Path, form: Form, said: list[str], rulesets: dict[str, Ruleset]) -> None:
        if len(said) != 5 or said[3] not in CLASSES or said[4] not in ("on", "off"):
            usage = '(in-phase "<ruleset>" "<phase>" "EXACT|REASSOC|BOUNDED|REAL-ONLY|FACT" "on|off")'
            self.fault("class", path, form.line, f"expected {usage}")
        elif said[1] in rulesets:
            first = rulesets[said[1]]
            why = f"ruleset {first.name!r} has joined phase {first.phase!r} in {first.file.name}:{first.line} already"
            self.fault("class", path, form.line, why)
        else:
            rulesets[said[1]] = Ruleset(said[1], said[2], said[3], said[4] == "on", path, form.line)

    def _rules(self, rulesets: dict[str, Ruleset]) -> tuple[RuleInfo, ...]:
        rules: dict[str, RuleInfo] = {}
        for path in self.files:
            for form in self.forms[path]:
                if form.head not in RULES:
                    continue
                name, member = option(form.text, ":name"), option(form.text, ":ruleset")
                span = option_span(form.text, ":name")
                if span and not form.text[span[0] :].startswith('"'):
                    self.fault("unnamed", path, form.line, f':name takes a string: "{name}"')
                elif not name or not member:
                    what = "unnamed" if not name else "ruleset"
                    self.fault(what, path, form.line, "every rule has a :name and a :ruleset")
                elif member not in rulesets:
                    why = f"ruleset {member!r} joins no phase: (in-phase …) is missing"
                    self.fault("ruleset", path, form.line, why)
                elif member not in self.declared:
                    why = f"ruleset {member!r} is never declared: (ruleset {member}) is missing"
                    self.fault("ruleset", path, form.line, why)
                elif name in rules:
                    first = rules[name]
                    why = f"rule {name!r} stands in {first.file}:{first.line} already"
                    self.fault("name-taken", path, form.line, why)
                else:
                    home = rulesets[member]
                    place = (str(path), form.line, form.comment)
                    rules[name] = RuleInfo(name, home.name, home.phase, home.klass, home.default, *place)
        return tuple(rules.values())


def _resolved(path: Path) -> Path:
    """The path without links. A loop of links, or a character that no path has, is found when it is read."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path


def _bad(path: Path, line: int, why: str) -> TinycError:
    return TinycError(
        "RuleFileInvalid",
        f"{path.name}:{line}: {why}",
        "see rules/README.md for what a rule file looks like",
        at={"layer": "rules", "file": path, "line": line},
    )
