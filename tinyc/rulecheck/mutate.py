"""Rules with one mistake in them, to try the checker: it must call every one unsound, or note that it departs from a policy,
or the mutant is equivalent.

Mutation follows the errors that people make in rules: an operand swapped or dropped, another operator, a guard
forgotten, a number off by one, a comparison that includes its border.

What is equivalent for a reason that can be read off the rule is not made:

- operands that commute;
- a claim that asserts nothing (a request), that the body holds already, or that is another of the rule's claims;
- a change that only narrows the body: ``>`` for ``>=``, a border moved inwards (:mod:`tinyc.rulecheck.narrow`);
- where a rule is known to be true without a guard, changes of that guard, and of a number that only it speaks of.

Nor is a rule made that the engine refuses, for a variable that nothing binds: it would be too easy to catch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from .narrow import defined, only_narrows
from .parse import Call, Lit, Meaning, Pattern, Rule, Schema, Var, variables

OPERATORS = {
    "SUM": "MAX", "MAX": "MIN", "MIN": "MAX", "PROD": "SUM",
    "ADD": "SUB", "SUB": "ADD", "MUL": "ADD", "FDIV": "MUL",
    "RELU": "NEG", "NEG": "RELU", "EXP2": "LOG2", "LOG2": "EXP2", "RECIP": "SQRT", "SQRT": "RECIP", "RSQRT": "SQRT",
}  # fmt: skip
"""Uops that are taken for one another."""

PRIMITIVES = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "min": "max",
    "max": "min",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "=": "!=",
    "!=": "=",
    "set-union": "set-intersect",
    "set-intersect": "set-union",
}
"""Operations of the engine that are taken for one another."""

ORDERED = frozenset({"-", "/", "%", "<", "<=", ">", ">=", "set-diff", "vec-append"})
"""Primitives whose operands do not commute."""

COMMUTATIVE = frozenset({"ADD", "MUL", "MAX", "MIN", "CMPEQ", "CMPNE"})
"""Operators whose operands commute, bit for bit."""


@dataclass(frozen=True)
class Mutant:
    """``id``: the rule's name, the kind of change and its number: stable while the rule is. ``change``: in words."""

    id: str
    rule: Rule
    change: str

    @property
    def text(self) -> str:
        return spelled(self.rule)


def spelled(rule: Rule) -> str:
    """The rule as a ``rule`` form."""
    body, actions = (" ".join(map(str, part)) for part in (rule.body, rule.actions))
    return f'(rule ({body})\n  ({actions})\n  :ruleset {rule.ruleset} :name "{rule.name}")'


def mutants(rule: Rule, schema: Schema, spare: Collection[str] = ()) -> tuple[Mutant, ...]:
    """Every mutant of a rule, without repetition, in a fixed order. ``spare``: ids of mutants that drop a guard and are true:
    a guard without which the rule is true can be changed at will, since it only narrows the rule."""
    sorts = sorts_of(rule, schema)
    seen = {(rule.body, rule.actions)}
    found: list[Mutant] = []
    counts: dict[str, int] = {}
    for kind, changed, change, guard in _mutations(rule, schema, sorts):
        number = counts[kind] = counts.get(kind, 0) + 1
        key = (changed.body, changed.actions)
        if key in seen or not _bound(changed, schema) or _nothing_new(changed, rule):
            continue
        seen.add(key)
        if guard is not None and (only_narrows(changed, rule) or _is_spare(guard, rule, spare)):
            continue
        name = (
            f"{rule.name} {kind} {number}"
            if kind != "dropped"
            else f"{rule.name} dropped {change.split(' ', 3)[-1]}"
        )
        found.append(Mutant(name, changed, change))
    return tuple(found)


def sample(every: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants at random; the others are as before where a rule is changed."""

    def place(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.id}".encode()).digest()

    return sorted(every, key=place)[:count]


def _is_spare(guard: Call, rule: Rule, spare: Collection[str]) -> bool:
    """Whether the rule is true without a guard, or without all that speak of the number that it names."""
    if f"{rule.name} dropped {guard}" in spare:
        return True
    named = defined(guard)
    if named is None or named[0] in variables(rule.actions):
        return False
    users = [fact for fact in rule.body if fact is not guard and named[0] in variables([fact])]
    return bool(users) and all(f"{rule.name} dropped {fact}" in spare for fact in users)


def _nothing_new(changed: Rule, rule: Rule) -> bool:
    """Whether what a rule claims otherwise than before is what its body holds, or what it claims anyway."""
    held = {str(fact) for fact in changed.body}
    held |= {f"({word} {one} {other})" for fact in changed.body if fact.head == "=" and len(fact.args) == 2
             for one, other in (fact.args, fact.args[::-1]) for word in ("set", "union")}  # fmt: skip
    if changed.body == rule.body:
        held |= set(map(str, rule.actions))
        claims = [action for action in changed.actions if action not in rule.actions]
    else:
        claims = list(changed.actions)
    return all(
        str(action) in held or (action.head == "union" and len(set(action.args)) == 1) for action in claims
    )


def _asserts(action: Call, schema: Schema) -> bool:
    """Whether a claim asserts anything: a relation whose meaning is empty only says where to look."""
    meanings = schema.meanings.get(action.head, ())
    return not meanings or any(each != Meaning(each.args, each.value) for each in meanings)


def sorts_of(rule: Rule, schema: Schema) -> dict[str, str]:
    """Variable -> sort, for those that stand where the schema says one."""
    sorts: dict[str, str] = {}

    def visit(pattern: Pattern) -> None:
        if not isinstance(pattern, Call):
            return
        word = schema.signature(pattern.head)
        for place, arg in enumerate(pattern.args):
            if isinstance(arg, Var) and word and place < len(word.args):
                sorts.setdefault(arg.name, word.args[place])
            visit(arg)
        if pattern.head in ("=", "!=", "union"):
            known = [schema.signature(arg.head) for arg in pattern.args if isinstance(arg, Call)]
            for arg in pattern.args:
                if isinstance(arg, Var) and known and known[0] is not None:
                    sorts.setdefault(arg.name, known[0].result)

    for pattern in (*rule.body, *rule.actions):
        visit(pattern)
    return sorts


def _bound(rule: Rule, schema: Schema) -> bool:
    """Whether the body binds every variable that a primitive or an action uses, as the engine asks for."""
    binding: set[str] = set()

    def bind(pattern: Pattern) -> None:
        if isinstance(pattern, Call):
            word = schema.signature(pattern.head) is not None
            binding.update(arg.name for arg in pattern.args if word and isinstance(arg, Var))
            for arg in pattern.args:
                bind(arg)

    def known(pattern: Pattern) -> bool:
        return set(variables([pattern])) <= binding

    for fact in rule.body:
        bind(fact)
    before = -1
    while before < len(binding):  # what is equal to something known is known
        before = len(binding)
        for fact in rule.body:
            if fact.head == "=" and any(map(known, fact.args)):
                binding.update(arg.name for arg in fact.args if isinstance(arg, Var))
    if not all(map(known, rule.body)):
        return False
    for action in rule.actions:
        let = action.head == "let" and isinstance(action.args[0], Var)
        if not all(map(known, action.args[1:] if let else action.args)):
            return False
        binding.update(variables(action.args[:1]) if let else ())
    return True


Mutation = tuple[str, Rule, str, Call | None]


def _mutations(rule: Rule, schema: Schema, sorts: dict[str, str]) -> Iterator[Mutation]:
    """Kind, rule, change in words, and the guard in which it is."""
    for number, fact in enumerate(rule.body):
        rest = (*rule.body[:number], *rule.body[number + 1 :])
        yield "dropped", replace(rule, body=rest), f"without the guard {fact}", None
    for number, action in enumerate(rule.actions):
        if not _asserts(action, schema):
            continue
        for kind, other, change in _inside(action, schema, sorts, own=True):
            actions = (*rule.actions[:number], other, *rule.actions[number + 1 :])
            yield kind, replace(rule, actions=actions), f"{change} in {action}", None
    for number, fact in enumerate(rule.body):
        for kind, other, change in _inside(fact, schema, sorts, own=False):
            body = (*rule.body[:number], other, *rule.body[number + 1 :])
            yield kind, replace(rule, body=body), f"{change} in {fact}", fact


def _inside(
    pattern: Call, schema: Schema, sorts: dict[str, str], own: bool
) -> Iterator[tuple[str, Call, str]]:
    """Changes of one term. ``own``: of an action; the left-hand side is not given other operands."""
    yield from _here(pattern, schema, sorts, own)
    for place, arg in enumerate(pattern.args):
        if isinstance(arg, Call):
            for kind, other, change in _inside(arg, schema, sorts, own):
                yield kind, _with(pattern, place, other), change


def _here(pattern: Call, schema: Schema, sorts: dict[str, str], own: bool) -> Iterator[tuple[str, Call, str]]:
    word = schema.signature(pattern.head)
    args = pattern.args
    for place, arg in enumerate(args):
        if isinstance(arg, Lit) and isinstance(arg.value, int) and not isinstance(arg.value, bool):
            for step in (1, -1):
                yield "off-by-one", _with(pattern, place, Lit(arg.value + step)), f"{arg} {step:+d}"
        elif isinstance(arg, Lit) and isinstance(arg.value, str) and arg.value in OPERATORS:
            other = Lit(OPERATORS[arg.value])
            yield "operator", _with(pattern, place, other), f"{other} for {arg}"
    if pattern.head in PRIMITIVES and (pattern.head != "=" or all(isinstance(arg, Lit) for arg in args)):
        name = PRIMITIVES[pattern.head]
        yield "operation", Call(name, args), f"{name} for {pattern.head}"
    if not own:
        return
    pairs = [(i, j) for i in range(len(args)) for j in range(i + 1, len(args))]
    for i, j in pairs:
        commutes = pattern.head == "IAdd" or (
            args and isinstance(args[0], Lit) and args[0].value in COMMUTATIVE
        )
        swaps = pattern.head in ORDERED or (
            word is not None and word.args[i] == word.args[j] and not commutes
        )
        if swaps and pattern.head != "union":
            turned = list(args)
            turned[i], turned[j] = args[j], args[i]
            yield "swapped", Call(pattern.head, tuple(turned)), f"{args[i]} and {args[j]} swapped"
    for place, arg in enumerate(args):
        sort = word.args[place] if word and place < len(word.args) else None
        if isinstance(arg, Var) and sort is not None:
            # the next two of its sort: with all of them, rules that count would outnumber those that compute
            names = sorted(name for name in sorts if sorts[name] == sort)
            after = names.index(arg.name) if arg.name in names else 0
            for name in (names[after + 1 :] + names[:after])[:2]:
                if name != arg.name:
                    yield "variable", _with(pattern, place, Var(name)), f"{name} for {arg}"
        elif isinstance(arg, Call):
            for operand in _operands(arg, schema):
                yield "operand", _with(pattern, place, operand), f"{operand} for {arg}"


def _operands(call: Call, schema: Schema) -> Sequence[Pattern]:
    """The arguments of a constructor that have the sort of its result."""
    word = schema.constructors.get(call.head)
    if word is None:
        return ()
    return [arg for arg, sort in zip(call.args, word.args, strict=False) if sort == word.result]


def _with(pattern: Call, place: int, arg: Pattern) -> Call:
    return Call(pattern.head, (*pattern.args[:place], arg, *pattern.args[place + 1 :]))
