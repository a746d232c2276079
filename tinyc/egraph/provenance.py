"""Which rule made what: rule files instrumented to record their own matches, and the records as data.

The engine's proofs cannot be used from Python (notes: ``(prove …)`` panics in 13.2 and 14), so provenance is ours. Every
rule that makes two terms equal, or adds a term, gets one action more: a row of a relation of its own with the value
of each of its variables. Terms on both sides can be rebuilt from such a row. The relation is in no query, so it
changes no match; its name is in lower case, so it counts as no e-node of a budget.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .encode import Encoded
from .forms import scan
from .graph import RECORD as TABLE
from .rulefiles import RULES
from .sexpr import Quoted, Sexpr, head, parse, spell, symbols

VALUE = "value-record-"
"""What a primitive computed on a right-hand side is named by this and a number."""

SCALARS = ("i64", "String")


@dataclass(frozen=True)
class Symbol:
    """A declared constructor, function or relation. ``kind`` is one of these words; a relation has no ``result``."""

    name: str
    kind: str
    args: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class Language:
    """What rule files declare. ``containers``: sort -> what it is made of, as ("Vec", "Ix")."""

    symbols: Mapping[str, Symbol]
    containers: Mapping[str, tuple[str, ...]]

    def constructors(self) -> tuple[str, ...]:
        return tuple(name for name, symbol in self.symbols.items() if symbol.kind == "constructor")


@dataclass(frozen=True)
class RuleRecord:
    """The record of one rule (of one direction of a birewrite).

    ``table``: its relation. ``columns``: variables with their sorts, in the order of the relation. ``query``: the facts on
    the left. ``unions``: pairs of expressions that it makes equal. ``adds``: terms and facts that it adds besides.
    ``values``: what was computed by a primitive -> its expression.
    """

    rule: str
    table: str
    columns: tuple[tuple[str, str], ...]
    query: tuple[Sexpr, ...]
    unions: tuple[tuple[Sexpr, Sexpr], ...]
    adds: tuple[Sexpr, ...]
    values: Mapping[str, Sexpr]


@dataclass(frozen=True)
class Instrumented:
    """``texts``: per rule file its text with records."""

    texts: tuple[str, ...]
    records: tuple[RuleRecord, ...]
    language: Language

    @property
    def tables(self) -> list[str]:
        """The tables that explanations are made from."""
        return [*self.language.constructors(), *(record.table for record in self.records)]


def instrument(texts: Sequence[str]) -> Instrumented:
    """Rule files as texts, in load order and as ``load_rules`` has checked them, with records. Lines stay."""
    return _instrumented(tuple(texts))


@functools.lru_cache(maxsize=8)
def _instrumented(texts: tuple[str, ...]) -> Instrumented:
    """A pure function, so its cache is only a matter of speed: every explanation reads the same few files."""
    language = read_language(texts)
    forms = [
        (number, form) for number, text in enumerate(texts) for form in scan(text)[0] if form.head in RULES
    ]
    bodies = [(number, form, tuple(_rules_of(parse(form.text)[0]))) for number, form in forms]
    markers = _markers((body for _, _, found in bodies for body in found), language)
    records: list[RuleRecord] = []
    recorded = list(texts)
    edits: list[tuple[int, int, int, str]] = []
    for number, form, found in bodies:
        spelled = []
        for body in found:
            made = _recorded(body, language, markers, len(records))
            if made is not None:
                records.append(made[0])
                columns = " ".join(sort for _, sort in made[0].columns)
                spelled.append(f"(relation {made[0].table} ({columns})) {made[1]}")
            elif len(found) > 1:
                spelled.append(body.spelled(body.actions))
        if spelled:
            padding = "\n" * form.text.count("\n")
            edits.append((number, form.start, form.start + len(form.text), " ".join(spelled) + padding))
    for number, start, end, text in sorted(edits, reverse=True):
        recorded[number] = recorded[number][:start] + text + recorded[number][end:]
    return Instrumented(tuple(recorded), tuple(records), language)


def read_language(texts: Iterable[str]) -> Language:
    """Constructors, functions, relations and containers of rule files."""
    declared: dict[str, Symbol] = {}
    containers: dict[str, tuple[str, ...]] = {}
    for text in texts:
        for form in scan(text)[0]:
            if form.head in ("sort", "datatype", "datatype*", "constructor", "function", "relation"):
                _declare(parse(form.text)[0], declared, containers)
    return Language(declared, containers)


def _declare(form: Sexpr, declared: dict[str, Symbol], containers: dict[str, tuple[str, ...]]) -> None:
    assert isinstance(form, tuple)
    match form:
        case ("sort", str(name), tuple(made)):
            containers[name] = tuple(map(spell, made))
        case ("datatype", str(name), *variants):
            for variant in variants:
                _variant(variant, name, declared)
        case ("datatype*", *kinds):
            for kind in kinds:
                if head(kind) == "sort":
                    _declare(kind, declared, containers)
                else:
                    assert isinstance(kind, tuple)
                    _declare(("datatype", *kind), declared, containers)
        case ("constructor", str(name), tuple(args), str(result), *_):
            declared[name] = Symbol(name, "constructor", tuple(map(str, args)), result)
        case ("function", str(name), tuple(args), str(result), *_):
            declared[name] = Symbol(name, "function", tuple(map(str, args)), result)
        case ("relation", str(name), tuple(args)):
            declared[name] = Symbol(name, "relation", tuple(map(str, args)), "")


def _variant(variant: Sexpr, sort: str, declared: dict[str, Symbol]) -> None:
    assert isinstance(variant, tuple)
    args = []
    for part in variant[1:]:
        if isinstance(part, str) and part.startswith(":"):
            break  # :cost, :unextractable
        args.append(str(part))
    declared[str(variant[0])] = Symbol(str(variant[0]), "constructor", tuple(args), sort)


@dataclass(frozen=True)
class _Body:
    """One rule. ``tail``: its options but the name."""

    name: str
    query: tuple[Sexpr, ...]
    actions: tuple[Sexpr, ...]
    tail: tuple[Sexpr, ...]

    def spelled(self, actions: tuple[Sexpr, ...]) -> str:
        options = "".join(f" {spell(part)}" for part in self.tail)
        return f'(rule {spell(self.query)} {spell(actions)}{options} :name "{self.name}")'


def _rules_of(form: Sexpr) -> Iterator[_Body]:
    """A form as rules: a rewrite is one, a birewrite two."""
    assert isinstance(form, tuple)
    parts = form[3:]
    options: dict[str, Sexpr] = {}
    tail: list[Sexpr] = []
    position = 0
    while position < len(parts):
        word = str(parts[position])
        flag = position + 1 == len(parts) or (
            isinstance(parts[position + 1], str)
            and not isinstance(parts[position + 1], Quoted)
            and str(parts[position + 1]).startswith(":")
        )
        value = True if flag else parts[position + 1]
        options[word] = value
        if word not in (":name", ":when", ":subsume"):
            tail += [word] if flag else [word, parts[position + 1]]
        position += 1 if flag else 2
    name = str(options[":name"])
    if form[0] == "rule":
        assert isinstance(form[1], tuple) and isinstance(form[2], tuple)
        yield _Body(name, form[1], form[2], tuple(tail))
        return
    when = options.get(":when", ())
    assert isinstance(when, tuple)
    pairs = [(form[1], form[2], name)]
    if form[0] == "birewrite":
        pairs.append((form[2], form[1], f"{name} (right to left)"))
    for left, right, each in pairs:
        actions: tuple[Sexpr, ...] = (("union", _ROOT, right),)
        if ":subsume" in options:
            actions = (*actions, ("subsume", left))
        yield _Body(each, (("=", _ROOT, left), *when), actions, tuple(tail))


_ROOT = "rewrite-root"


def _markers(bodies: Iterable[_Body], language: Language) -> frozenset[str]:
    """The relations through which a rule reaches terms that it does not spell: their rows have to be explained too."""
    known = list(bodies)
    markers: set[str] = {"contracts"}
    while True:
        found = set(markers)
        for body in known:
            sorts = _sorts(body.query, language)
            roots = [
                part
                for action in body.actions
                for part in (action[1:] if head(action) == "union" or head(action) in markers else ())  # type: ignore[index]
            ]
            if not roots:
                continue
            wanted = {name for part in roots for name in symbols(part) if name in sorts}
            for name in wanted - _reached(
                body, wanted if head(body.actions[0]) != "union" else set(), language
            ):
                if (
                    sorts[name] in SCALARS
                    or sorts[name] in ("Ix", "Atom")
                    or sorts[name] in language.containers
                ):
                    continue
                found |= {
                    head(fact)
                    for fact in body.query
                    if head(fact) in language.symbols
                    and language.symbols[head(fact)].kind == "relation"
                    and name in symbols(fact)
                }
        if found == markers:
            return frozenset(markers)
        markers = found


def _reached(body: _Body, roots: set[str], language: Language) -> set[str]:
    """The variables that stand in a pattern of a constructor."""
    reached: set[str] = set()
    for fact in body.query:
        match fact:
            case ("=", str(name), tuple(pattern)) | ("=", tuple(pattern), str(name)):
                symbol = language.symbols.get(head(pattern))
                if symbol is not None and symbol.kind == "constructor":
                    reached |= {name, *symbols(pattern)}
    return reached


def _sorts(facts: Iterable[Sexpr], language: Language) -> dict[str, str]:
    """The sorts of variables, as far as constructors, functions and relations declare them."""
    sorts: dict[str, str] = {}

    def visit(expression: Sexpr) -> str:
        """The sort of an expression, "" where it is not declared."""
        if not isinstance(expression, tuple):
            return ""
        if head(expression) == "=":
            found = [visit(part) for part in expression[1:]]
            sort = next(filter(None, found), "")
            for part in expression[1:]:
                if sort and isinstance(part, str) and not isinstance(part, Quoted):
                    sorts.setdefault(part, sort)
            return ""
        symbol = language.symbols.get(head(expression))
        for number, part in enumerate(expression[1:]):
            visit(part)
            if symbol is not None and isinstance(part, str) and not isinstance(part, Quoted):
                sorts.setdefault(part, symbol.args[number])
        return symbol.result if symbol is not None else ""

    for fact in facts:
        visit(fact)
    return sorts


def _recorded(
    body: _Body, language: Language, markers: frozenset[str], number: int
) -> tuple[RuleRecord, str] | None:
    """The rule with its record, and its text; None for a rule that need not be recorded."""
    actions: list[Sexpr] = []
    values: dict[str, Sexpr] = {}
    lets: dict[str, Sexpr] = {}
    unions: list[tuple[Sexpr, Sexpr]] = []
    adds: list[Sexpr] = []
    sorts = dict(_sorts(body.query, language))

    def lower(expression: Sexpr, sort: str) -> Sexpr:
        """The expression with the results of primitives named, where a constructor takes them."""
        if not isinstance(expression, tuple):
            return expression
        symbol = language.symbols.get(head(expression))
        if symbol is not None:
            parts = (lower(part, symbol.args[n]) for n, part in enumerate(expression[1:]))
            return (expression[0], *parts)
        inner: Sexpr = (expression[0], *(lower(part, "") for part in expression[1:]))
        if not sort:
            return inner
        name = f"{VALUE}{len(values)}"
        values[name], sorts[name] = inner, sort
        actions.append(("let", name, inner))
        return name

    for action in body.actions:
        match action:
            case ("let", str(name), expression):
                symbol = language.symbols.get(head(expression))
                made = lower(expression, "")
                lets[name] = made
                if symbol is not None:
                    sorts[name] = symbol.result
                actions.append(("let", name, made))
                if symbol is not None and symbol.kind == "constructor":
                    adds.append(name)
            case ("union", left, right):
                pair = (lower(left, ""), lower(right, ""))
                unions.append(pair)
                actions.append(("union", *pair))
            case tuple() if head(action) in language.symbols:
                made = lower(action, "")
                actions.append(made)
                if language.symbols[head(action)].kind == "constructor" or head(action) in markers:
                    adds.append(made)
            case _:
                actions.append(action)
    if not unions and not adds:
        return None
    for name, sort in _sorts([*body.actions, *actions], language).items():
        sorts.setdefault(name, sort)
    used = dict.fromkeys(
        name
        for part in (*body.query, *actions)
        for name in symbols(part)
        if name in sorts and (sorts[name] in SCALARS or not _is_function(sorts[name], language))
    )
    columns = tuple((name, sorts[name]) for name in used)
    table = f"{TABLE}{number}"
    record = RuleRecord(body.name, table, columns, body.query, tuple(unions), tuple(adds), {**lets, **values})
    row = (table, *(name for name, _ in columns))
    return record, body.spelled((*actions, row))


def _is_function(sort: str, language: Language) -> bool:
    return language.containers.get(sort, ("",))[0] == "UnstableFn"


@dataclass(frozen=True)
class Rows:
    """Tables of a saturated e-graph, subsumed rows included. ``tables``: per constructor and record its rows, arguments
    and result; ``containers``: the elements of each vector and set."""

    tables: Mapping[str, Sequence[tuple[tuple[int | str, ...], int | str]]]
    containers: Mapping[str, tuple[int | str, ...]]


def read_rows(message: Mapping[str, Any]) -> Rows:
    """What the worker has sent."""
    return Rows(
        {name: [(tuple(args), result) for args, result in rows] for name, rows in message["rows"].items()},
        {name: tuple(elements) for name, elements in message["containers"].items()},
    )


@dataclass(frozen=True)
class Provenance:
    """What explanations are made from: the whole e-graph, the records of its rules, and what was inserted."""

    language: Language
    records: tuple[RuleRecord, ...]
    rows: Rows
    encoded: Encoded
