"""Reads what rule files declare: rules with their equations, rulesets with their phase and class.

A rule file is checked before the engine sees it: it may declare (sorts, constructors, functions, relations,
rulesets, rules, facts) and include other rule files, and do nothing else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyc.ir.diagnostics import TinycError

BUILTIN = Path(__file__).parent.parent / "rules" / "tinyc.egg"
DECLARING = frozenset(
    {"sort", "datatype", "datatype*", "constructor", "function", "relation", "ruleset", "rule", "rewrite"}
    | {"birewrite", "include"}
)
"""The commands of a rule file. A fact of a relation that it declares or includes is allowed as well; whatever else the
engine knows acts (runs rules, reads files, prints), and a rule file may not."""
ACTING = frozenset(
    [
        "run",
        "run-schedule",
        "input",
        "output",
        "extract",
        "check",
        "fail",
        "push",
        "pop",
        "simplify",
        "prove",
        "prove-exists",
        "print-function",
        "print-size",
        "print-stats",
        "let",
        "set",
        "union",
        "delete",
        "subsume",
        "panic",
        "multi-extract",
        "with-ruleset",
        "unstable-combined-ruleset",
        "keep-best",
        "query-extract",
    ]
)
"""Commands that a relation may be named like: ``(output "file" …)`` is no fact but writes a file."""
_NAME = re.compile(r':name\s+"([^"]+)"')
_RULESET = re.compile(r":ruleset\s+([^\s()]+)")
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
class Form:
    """One top-level form: its head, text, first line, offset in the file, and the comment right above it."""

    head: str
    text: str
    line: int
    start: int
    comment: str


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
        """The rulesets to run, by phase in order. Raises UnknownRuleset for a name that no file declares."""
        known = {ruleset.name for ruleset in self.rulesets}
        for name in (*without, *also):
            if name not in known:
                raise TinycError(
                    "UnknownRuleset",
                    f"no rule file declares a ruleset {name!r}",
                    f"the rulesets are {', '.join(sorted(known))}",
                    at={"layer": "egraph", "value": name},
                )
        on = [r for r in self.rulesets if (r.default or r.name in also) and r.name not in without]
        return {phase: tuple(r.name for r in on if r.phase == phase) for phase in self.phases}


def load_rules(extra: Iterable[str | Path] = ()) -> RuleBase:
    """The built-in rules and the files or folders in ``extra``.

    Raises TinycError RuleFileInvalid (with file and line) for anything that is not a well-formed rule file, and
    FileUnreadable for a file that cannot be read.
    """
    files: list[Path] = []
    forms: dict[Path, tuple[Form, ...]] = {}
    relations: set[str] = set()
    for path in (BUILTIN, *_spread(extra)):
        _collect(path, files, forms, relations, ())
    phases: dict[str, int] = {}
    rulesets: dict[str, Ruleset] = {}
    for path in files:
        for form in forms[path]:
            words = _words(form)
            if form.head == "phase" and len(words) == 3:
                phases[words[1]] = int(words[2])
            if form.head == "in-phase":
                ruleset = _ruleset(path, form, words)
                rulesets[ruleset.name] = ruleset
    for ruleset in rulesets.values():
        if ruleset.phase not in phases:
            raise _bad(
                ruleset.file, ruleset.line, f"phase {ruleset.phase!r} is not one of {', '.join(phases)}"
            )
    rules = _rules(files, forms, rulesets)
    ordered = tuple(sorted(phases, key=lambda name: phases[name]))
    return RuleBase(tuple(files), ordered, tuple(rulesets.values()), rules)


def list_rules(extra: Iterable[str | Path] = ()) -> tuple[RuleInfo, ...]:
    """Every rule, in file order."""
    return load_rules(extra).rules


def without_includes(path: Path) -> str | None:
    """The file's text with its includes blanked, lines kept; None where it has none and can be loaded as it is."""
    forms = forms_of(path)
    if not any(form.head == "include" for form in forms):
        return None
    lines = path.read_text(encoding="utf-8").split("\n")
    for form in forms:
        if form.head == "include":
            for line in range(form.line - 1, form.line + form.text.count("\n")):
                lines[line] = ""
    return "\n".join(lines)


def one_rule_per_ruleset(path: Path) -> tuple[str, dict[str, tuple[str, str]]]:
    """The file's text with each rule in a ruleset of its own, and for each of those its ruleset and rule name.

    For profiling: what one rule adds can then be counted. Lines stay; includes are blanked.
    """
    text = path.read_text(encoding="utf-8")
    homes: dict[str, tuple[str, str]] = {}
    for form in reversed(forms_of(path)):
        end = form.start + len(form.text)
        if form.head == "include":
            text = text[: form.start] + "\n" * form.text.count("\n") + text[end:]
        if form.head not in ("rule", "rewrite", "birewrite"):
            continue
        name, home = _NAME.search(form.text), _RULESET.search(form.text)
        assert name and home, "checked by load_rules"
        alone = "rule--" + re.sub(r"[^A-Za-z0-9]+", "-", name[1])
        homes[alone] = (home[1], name[1])
        body = form.text[: home.start(1)] + alone + form.text[home.end(1) :]
        text = f"{text[: form.start]}(ruleset {alone}) {body}{text[end:]}"
    return text, dict(reversed(homes.items()))


def forms_of(path: Path) -> tuple[Form, ...]:
    """The top-level forms of a rule file, with the comments above them."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TinycError(
            "FileUnreadable",
            f"cannot read {path}: {error}",
            "give the path of a rule file (.egg) or of a folder with some",
            at={"layer": "rules", "file": path},
        ) from None
    return _scanned(path, text)


def _spread(extra: Iterable[str | Path]) -> list[Path]:
    spread: list[Path] = []
    for item in extra:
        path = Path(item).resolve()
        found = sorted(path.glob("*.egg")) if path.is_dir() else [path]
        if not found:
            raise _bad(path, 1, "the folder holds no .egg file")
        spread += found
    return spread


def _collect(
    path: Path,
    files: list[Path],
    forms: dict[Path, tuple[Form, ...]],
    relations: set[str],
    above: tuple[Path, ...],
) -> None:
    path = path.resolve()
    if path in above:
        raise _bad(path, 1, "the file includes itself")
    if path in forms:
        return
    mine = forms_of(path)
    forms[path] = mine
    for form in mine:
        if form.head == "include":
            target = _words(form)[1] if len(_words(form)) > 1 else ""
            _collect(path.parent / target, files, forms, relations, (*above, path))
        elif form.head == "relation" and len(_words(form)) > 1:
            relations.add(_words(form)[1])
        elif form.head in ACTING or form.head not in DECLARING | relations:
            raise _bad(
                path,
                form.line,
                f"({form.head} …) declares nothing and is no fact of a relation declared above",
            )
    files.append(path)


def _ruleset(path: Path, form: Form, words: list[str]) -> Ruleset:
    usage = '(in-phase "<ruleset>" "<phase>" "EXACT|REASSOC|BOUNDED|REAL-ONLY|FACT" "on|off")'
    if len(words) != 5 or words[3] not in CLASSES or words[4] not in ("on", "off"):
        raise _bad(path, form.line, f"expected {usage}")
    return Ruleset(words[1], words[2], words[3], words[4] == "on", path, form.line)


def _rules(
    files: list[Path], forms: dict[Path, tuple[Form, ...]], rulesets: dict[str, Ruleset]
) -> tuple[RuleInfo, ...]:
    rules: dict[str, RuleInfo] = {}
    for path in files:
        for form in forms[path]:
            if form.head not in ("rule", "rewrite", "birewrite"):
                continue
            name, member = _NAME.search(form.text), _RULESET.search(form.text)
            if not name or not member:
                raise _bad(path, form.line, "every rule has a :name and a :ruleset")
            if member[1] not in rulesets:
                raise _bad(path, form.line, f"ruleset {member[1]!r} joins no phase: (in-phase …) is missing")
            if name[1] in rules:
                first = rules[name[1]]
                raise _bad(path, form.line, f"rule {name[1]!r} stands in {first.file}:{first.line} already")
            home = rulesets[member[1]]
            rules[name[1]] = RuleInfo(
                name[1], home.name, home.phase, home.klass, home.default, str(path), form.line, form.comment
            )
    return tuple(rules.values())


@functools.lru_cache(maxsize=64)
def _scanned(path: Path, text: str) -> tuple[Form, ...]:
    """A pure function, so its cache is only a matter of speed: every compilation reads the same few files."""
    return tuple(_scan(path, text))


def _scan(path: Path, text: str) -> Iterable[Form]:
    position, line = 0, 1
    comment: list[str] = []
    while position < len(text):
        char = text[position]
        if char == "\n":
            line += 1
            position += 1
            if text.startswith("\n", position):
                comment = []
        elif char.isspace():
            position += 1
        elif char == ";":
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            if not text[text.rfind("\n", 0, position) + 1 : position].strip():
                comment.append(
                    text[position:end].lstrip(";").strip()
                )  # what follows a form is about that form
            position = end
        elif char == "(":
            end = _closing(path, text, position, line)
            body = text[position:end]
            head = re.match(r"\(\s*([^\s()]*)", body)
            yield Form(head[1] if head else "", body, line, position, _heading(comment))
            line += body.count("\n")
            position = end
            # rules that stand together share the comment above the first
            if not text.startswith("\n(", position):
                comment = []
        else:
            raise _bad(
                path, line, f"expected a form, a comment or nothing, found {text[position : position + 20]!r}"
            )


def _heading(comment: list[str]) -> str:
    """A comment as one line; the banner of a section (``---- text ----``) only where nothing else is said."""
    own = [line for line in comment if not line.startswith("----")]
    return " ".join(own if own else comment).strip(" -")


def _closing(path: Path, text: str, start: int, line: int) -> int:
    depth, position = 0, start
    while position < len(text):
        char = text[position]
        if char == '"':
            position += 1
            while position < len(text) and text[position] != '"':
                position += 2 if text[position] == "\\" else 1
        elif char == ";":
            newline = text.find("\n", position)
            position = len(text) if newline < 0 else newline
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    raise _bad(path, line, "this form is never closed")


def _words(form: Form) -> list[str]:
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^\s()"]+)', form.text)]


def _bad(path: Path, line: int, why: str) -> TinycError:
    return TinycError(
        "RuleFileInvalid",
        f"{path.name}:{line}: {why}",
        "see rules/README.md for what a rule file looks like",
        at={"layer": "rules", "file": path, "line": line},
    )
