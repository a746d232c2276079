"""Rule files as data: patterns, rules, and everything that the files declare, with what each word asserts.

A body and an action are patterns: variables, literals and applications. ``rewrite`` and ``birewrite`` become rules.
``(meaning (word x …) fact …)`` is read here and nowhere else; the engine never sees it (docs/rules.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tinyc.egraph import rulefiles, sexpr
from tinyc.egraph.vocabulary import VOCABULARY
from tinyc.ir.diagnostics import TinycError


@dataclass(frozen=True)
class Var:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Lit:
    """An i64, a string or a bool."""

    value: int | str | bool

    def __str__(self) -> str:
        return f'"{self.value}"' if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True)
class Call:
    head: str
    args: tuple[Pattern, ...]

    def __str__(self) -> str:
        return f"({' '.join([self.head, *map(str, self.args)])})"


Pattern = Var | Lit | Call


@dataclass(frozen=True)
class Rule:
    """``body``: facts that must hold; ``actions``: what is added. ``direction``: of a birewrite, "" for others."""

    name: str
    ruleset: str
    body: tuple[Call, ...]
    actions: tuple[Call, ...]
    file: str
    line: int
    direction: str = ""
    problem: str = ""
    """Why the rule cannot be read; the checker reports it as an error."""


@dataclass(frozen=True)
class Signature:
    """Argument sorts and result sort of a constructor or function; a relation has the result ""."""

    args: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class Meaning:
    """One alternative of what a word asserts: the ``facts`` about ``args`` (and ``value``, of a function).

    ``policy``: facts that hold where the built-in rules say the word, and without which a program is as right.
    For a constructor: ``definition``, the term that it stands for."""

    args: tuple[Pattern, ...]
    value: Pattern | None = None
    facts: tuple[Call, ...] = ()
    policy: tuple[Call, ...] = ()
    definition: Pattern | None = None


@dataclass
class Schema:
    """All declarations of some rule files."""

    sorts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constructors: dict[str, Signature] = field(default_factory=dict)
    functions: dict[str, Signature] = field(default_factory=dict)
    merges: dict[str, Pattern] = field(default_factory=dict)
    """Function -> what two values of one row become, of the variables ``old`` and ``new``; none where they may not differ."""
    relations: dict[str, Signature] = field(default_factory=dict)
    meanings: dict[str, list[Meaning]] = field(default_factory=dict)
    facts: dict[str, list[tuple[int | str | bool, ...]]] = field(default_factory=dict)
    places: dict[tuple[str, tuple[int | str | bool, ...]], tuple[str, int]] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    """Ruleset -> class."""
    settled: set[str] = field(default_factory=set)
    """Words to which tinyc's own files give a meaning."""
    cache: dict[object, Any] = field(default_factory=dict)
    """What is computed from all of it; emptied when something is added."""

    def copy(self) -> Schema:
        """A schema to which more files can be added."""
        return Schema(
            dict(self.sorts), dict(self.constructors), dict(self.functions), dict(self.merges), dict(self.relations),
            {word: list(each) for word, each in self.meanings.items()},
            {word: list(each) for word, each in self.facts.items()},
            dict(self.places), dict(self.rules), dict(self.classes), set(self.settled),
        )  # fmt: skip

    def grows(self, table: str) -> bool:
        """Whether a user's file may add any row to a table: its meaning asserts nothing."""
        return any(not each.facts and not each.policy for each in self.meanings.get(table, ()))

    def built_in(self, table: str, row: tuple[int | str | bool, ...]) -> bool:
        """Whether a row of a table is one of tinyc's own."""
        file, _ = self.places.get((table, row), ("", 0))
        return not self.is_other(file)

    @staticmethod
    def is_other(file: str) -> bool:
        """Whether a file is none of tinyc's own rule files."""
        return Path(file).parent != rulefiles.BUILTIN.resolve().parent

    def signature(self, word: str) -> Signature | None:
        return self.constructors.get(word) or self.functions.get(word) or self.relations.get(word)


# ---- S-expressions --------------------------------------------------------------------------------------------------

Sexp = sexpr.Tokens
_INTEGER = re.compile(r"[+-]?\d+\Z")


def read(text: str) -> list[Sexp]:
    """The S-expressions of a text, strings with their quotes. Raises ValueError where parentheses do not match."""
    return sexpr.read(text)


class Unreadable(Exception):
    """A form that is no rule or declaration; says why."""


def pattern(tree: Sexp, fresh: Iterator[int]) -> Pattern:
    """A pattern; each ``_`` is a variable of its own."""
    if isinstance(tree, list):
        if not tree:
            raise Unreadable("() stands where a term is expected")
        if not isinstance(tree[0], str):
            raise Unreadable(f"a term starts with a word, not with {spelled(tree[0])}")
        return Call(tree[0], tuple(pattern(each, fresh) for each in tree[1:]))
    if tree.startswith('"'):
        return Lit(tree[1:-1])
    if _INTEGER.match(tree):
        return Lit(int(tree))
    if tree in ("true", "false"):
        return Lit(tree == "true")
    if re.match(r"[+-]?(\d+\.|\.\d|\d+e)", tree):
        raise Unreadable(
            f"{tree} is a floating-point number, and no literal of a Const or Imm whose dtype holds it"
        )
    return Var(f"_{next(fresh)}") if tree == "_" else Var(tree)


def spelled(tree: Sexp) -> str:
    return tree if isinstance(tree, str) else f"({' '.join(map(spelled, tree))})"


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


# ---- rules ----------------------------------------------------------------------------------------------------------


def rules_of(tree: list[Sexp], file: str, line: int) -> list[Rule]:
    """The rules that a ``rule``, ``rewrite`` or ``birewrite`` form is: one, or one per direction."""
    form, options = _options(tree)
    name = options.get(":name", '""')
    ruleset = options.get(":ruleset", "")
    if not isinstance(name, str) or not isinstance(ruleset, str):
        return [Rule("?", "", (), (), file, line, problem=":name and :ruleset take one word")]
    blank = Rule(name.strip('"'), ruleset, (), (), file, line)
    fresh = _count()
    try:
        if form[0] == "rule":
            if len(form) != 3 or not isinstance(form[1], list) or not isinstance(form[2], list):
                raise Unreadable("a rule is (rule (fact …) (action …) option …)")
            body, actions = (tuple(_call(each, fresh) for each in part) for part in form[1:])
            return [replace(blank, body=body, actions=actions)]
        guards = options.get(":when", [])
        if len(form) != 3 or not isinstance(guards, list):
            raise Unreadable(f"a {form[0]} is ({form[0]} left right option …)")
        left, right = pattern(form[1], fresh), pattern(form[2], fresh)
        when = tuple(_call(each, fresh) for each in guards)
        both = [(left, right, "=>"), (right, left, "<=")] if form[0] == "birewrite" else [(left, right, "")]
        root = Var("_root")
        return [
            replace(
                blank,
                body=(Call("=", (root, lhs)), *when),
                actions=(Call("union", (root, rhs)),),
                direction=way,
            )
            for lhs, rhs, way in both
        ]
    except Unreadable as error:
        return [replace(blank, problem=str(error))]


def _call(tree: Sexp, fresh: Iterator[int]) -> Call:
    found = pattern(tree, fresh)
    if not isinstance(found, Call):
        raise Unreadable(f"{spelled(tree)} is no fact and no action")
    return found


def _options(tree: list[Sexp]) -> tuple[list[Sexp], dict[str, Sexp]]:
    plain: list[Sexp] = []
    options: dict[str, Sexp] = {}
    position = 0
    while position < len(tree):
        each = tree[position]
        if isinstance(each, str) and each.startswith(":"):
            flag = each in (
                ":subsume",
                ":naive",
                ":no-decomp",
                ":unsafe-seminaive",
                ":include-subsumed",
                ":unextractable",
            )
            options[each] = "" if flag or position + 1 >= len(tree) else tree[position + 1]
            position += 1 if flag else 2
        else:
            plain.append(each)
            position += 1
    return plain, options


# ---- files ----------------------------------------------------------------------------------------------------------


def load(paths: Sequence[str | Path] = ()) -> Schema:
    """The schema of the built-in rules and of ``paths``. Raises what :func:`tinyc.egraph.rulefiles.load_rules` does."""
    schema = Schema()
    for path in rulefiles.load_rules(paths).files:
        for form in rulefiles.forms_of(path):
            declare(schema, form.text, str(path), form.line)
    return schema


def declare(schema: Schema, text: str, file: str, line: int) -> list[Rule]:
    """Adds one top-level form to ``schema``; returns the rules that it is. Raises TinycError RuleFileInvalid."""
    try:
        for tree in read(text):
            if isinstance(tree, list) and tree and isinstance(tree[0], str):
                found = _declare(schema, tree, file, line)
                if found:
                    return found
    except (ValueError, IndexError, Unreadable) as error:
        why = "the declaration is not complete" if isinstance(error, IndexError) else str(error)
        raise TinycError(
            "RuleFileInvalid",
            f"{Path(file).name}:{line}: {why}",
            "see rules/README.md for what a rule file looks like",
            at={"layer": "rules", "file": file, "line": line},
        ) from None
    return []


def _declare(schema: Schema, tree: list[Sexp], file: str, line: int) -> list[Rule]:
    head = str(tree[0])
    plain, options = _options(tree)
    schema.cache.clear()
    match head:
        case "sort":
            container = plain[2] if len(plain) > 2 else []
            schema.sorts[str(plain[1])] = tuple(map(spelled, container))
        case "datatype":
            _variants(schema, str(plain[1]), plain[2:])
        case "datatype*":
            for each in plain[1:]:
                if isinstance(each, list) and each and each[0] == "sort":
                    schema.sorts[str(each[1])] = tuple(map(spelled, each[2] if len(each) > 2 else []))
                elif isinstance(each, list) and each:
                    _variants(schema, str(each[0]), each[1:])
        case "constructor":
            schema.constructors[str(plain[1])] = Signature(tuple(map(spelled, plain[2])), spelled(plain[3]))
        case "function":
            schema.functions[str(plain[1])] = Signature(tuple(map(spelled, plain[2])), spelled(plain[3]))
            if options.get(":merge"):
                schema.merges[str(plain[1])] = pattern(options[":merge"], _count())
        case "relation":
            args = plain[2] if len(plain) > 2 else []
            schema.relations[str(plain[1])] = Signature(tuple(map(spelled, args)), "")
        case "meaning":
            _meaning(schema, plain, file)
        case "rule" | "rewrite" | "birewrite":
            rules = rules_of(tree, file, line)
            for rule in rules:
                schema.rules[rule.name + (f" {rule.direction}" if rule.direction else "")] = rule
            return rules
        case "include" | "ruleset":
            pass
        case _:
            values = tuple(_ground(each) for each in plain[1:])
            if (head, values) not in schema.places:
                schema.facts.setdefault(head, []).append(values)
                schema.places[head, values] = (file, line)
            if head == "in-phase" and len(values) == 4:
                schema.classes[str(values[0])] = str(values[2])
    return []


def _variants(schema: Schema, sort: str, listed: Sequence[Sexp]) -> None:
    schema.sorts[sort] = ()
    for each in listed:
        plain, _ = _options(each) if isinstance(each, list) else ([each], {})
        schema.constructors[str(plain[0])] = Signature(tuple(map(spelled, plain[1:])), sort)


def _ground(tree: Sexp) -> int | str | bool:
    found = pattern(tree, _count())
    if not isinstance(found, Lit):
        raise Unreadable(f"{spelled(tree)} is no constant: a fact is about numbers and strings")
    return found.value


def _meaning(schema: Schema, plain: list[Sexp], file: str) -> None:
    usage = (
        "a meaning is (meaning (word x …) fact … (policy fact …)), or (meaning (= v (function x …)) fact …)"
    )
    if len(plain) < 2:
        raise Unreadable(usage)
    fresh = _count()
    about = pattern(plain[1], fresh)
    rest = [pattern(each, fresh) for each in plain[2:]]
    value: Pattern | None = None
    if isinstance(about, Call) and about.head == "=" and len(about.args) == 2:
        value, about = about.args
    if not isinstance(about, Call):
        raise Unreadable(usage)
    word = schema.signature(about.head)
    if word is None:
        raise Unreadable(f"{about.head} is declared nowhere above, and has no meaning to be told")
    if len(word.args) != len(about.args):
        raise Unreadable(f"{about.head} takes {len(word.args)} arguments")
    if schema.is_other(file):
        if about.head in schema.settled or about.head in VOCABULARY.arity():
            raise Unreadable(f"what {about.head} means is settled: it is a word of tinyc's own")
    else:
        schema.settled.add(about.head)
    if about.head in schema.constructors:
        if len(rest) != 1:
            raise Unreadable("the meaning of a constructor is one term")
        found = Meaning(about.args, definition=rest[0])
    else:
        policy = [each for each in rest if isinstance(each, Call) and each.head == "policy"]
        rest = [each for each in rest if each not in policy]
        asked = [fact for each in policy for fact in each.args]
        if not all(isinstance(each, Call) for each in (*rest, *asked)):
            raise Unreadable(usage)
        facts, kept = (tuple(each for each in part if isinstance(each, Call)) for part in (rest, asked))
        found = Meaning(about.args, value, facts, kept)
    schema.meanings.setdefault(about.head, []).append(found)


def variables(patterns: Sequence[Pattern]) -> list[str]:
    """Names of the variables in some patterns, in order, each once."""
    found: dict[str, None] = {}
    for each in patterns:
        if isinstance(each, Var):
            found.setdefault(each.name)
        elif isinstance(each, Call):
            for name in variables(each.args):
                found.setdefault(name)
    return list(found)


def calls(part: Pattern) -> Iterator[Call]:
    """Every application in a pattern, outermost first."""
    if isinstance(part, Call):
        yield part
        for arg in part.args:
            yield from calls(arg)
