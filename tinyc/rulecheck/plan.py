"""A rule's body as a list of small steps, one application each, and the cases that it falls into.

A relation with a declared meaning becomes what it asserts. One without, that rules derive, is unfolded into the bodies of
those rules, to a bounded depth. What is left are constructors, facts that :mod:`tinyc.rulecheck.facts` knows, tables of
ground facts, primitives, and named predicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from .denote_words import BUILTIN
from .flatten import Flat, substituted
from .parse import Call, Lit, Meaning, Pattern, Rule, Schema, Unreadable, Var, variables
from .steps import KNOWN, VALUED, Arg, Case, Step

MAX_CASES = 48
MAX_DEPTH = 3
"""How deep relations are unfolded that may be recursive; others further."""
MAX_CHAIN = 8
MAX_STEPS = 400
"""Steps of unfolding; a recursive relation has no end of cases."""

# ---- cases ----------------------------------------------------------------------------------------------------------

Alternative = tuple[tuple[Call, ...], str]
"""Facts that a relation stands for in one case, and the rule that it was unfolded from, if any."""


def cases(schema: Schema, rule: Rule) -> list[Case]:
    """The cases of a rule's body. Raises Unreadable."""
    return expand(schema, rule.body)


def expand(schema: Schema, facts: Sequence[Call], how: str = "meaning", policy: bool = True) -> list[Case]:
    """The cases of some facts. ``how``: "unfold": a relation that rules derive is what they derive it from, whatever its
    meaning: fewer instances, but found where those of the meaning are too rare. "relax": relations that have a meaning
    assert nothing: more instances than there are. ``policy``: whether the policy of a word holds as well."""
    flat = Flat(schema, names={each: Var(each) for each in variables(facts)})
    flat.add(facts)
    found: list[Case] = []
    queue: list[tuple[Case, dict[Step, tuple[str, ...]], frozenset[Step]]] = []
    first = flat.done()
    if first is not None:
        queue.append((first, {}, frozenset()))
    number = 0
    steps = 0
    while queue and len(found) < MAX_CASES and steps < MAX_STEPS:
        steps += 1
        case, depths, opened = queue.pop(0)
        if opened & set(case.steps):  # what it stands for is among the steps already
            case = replace(case, steps=tuple(each for each in case.steps if each not in opened), memo={})
        open_step = next((each for each in case.steps if _is_open(schema, each)), None)
        if open_step is None:
            same = merged(schema, case)
            found += [case] if same is None else [same, case]
            continue
        above = depths.get(open_step, ())
        for facts_, origin in _alternatives(schema, open_step, above, how, policy):
            number += 1
            flat = Flat(schema, f"{number}'")
            flat.steps = [each for each in case.steps if each != open_step]
            flat.claims = (
                [*case.claims, open_step] if origin and _meant(schema, open_step) else [*case.claims]
            )
            flat.sorts, flat.names = dict(case.sorts), dict(case.names)
            known = set(flat.steps)
            try:
                flat.add([_renamed_call(each, f"{number}'") for each in facts_])
            except Unreadable:
                if origin:
                    continue  # that rule is an error of its own
                raise
            more = flat.done((*case.unfolded, origin) if origin else case.unfolded)
            if more is not None:
                below = (*above, open_step.head) if origin else above
                fresh = {each: below for each in more.steps if each not in known}
                again = (*opened, open_step) if open_step.kind == "relation" else opened
                if all(
                    any(True for _ in _alternatives(schema, each, below, how, policy))
                    for each in fresh
                    if _is_open(schema, each)
                ):
                    queue.append((more, {**depths, **fresh}, frozenset(map(flat.found, again))))
    return found


def merged(schema: Schema, case: Case) -> Case | None:
    """The case in which a value that is the same constructor twice is one term, not two that happen to be equal; None where
    there is nothing to merge."""
    flat = Flat(schema, steps=list(case.steps), sorts=dict(case.sorts), names=dict(case.names))
    flat.claims = [*case.claims]
    seen: dict[tuple[str, Arg], Step] = {}
    moved = True
    while moved and not flat.impossible:
        before = len(flat.same)
        seen.clear()
        for step in flat.steps:
            if step.kind == "term" and step.out is not None:
                other = seen.setdefault((step.head, flat.find(step.out)), step)
                for a, b in zip(other.args, step.args, strict=True):
                    flat.unite(a, b)
        moved = len(flat.same) > before
    return flat.done(case.unfolded) if flat.same else None


def _meant(schema: Schema, step: Step) -> bool:
    """Whether a word is a user's with a meaning of its own: what some rule derives, which may be wrong itself, need not have it."""
    return step.head in schema.meanings and step.head not in schema.settled


_KEEP = "\0"
"""Marks variables of the case itself, which are not renamed."""


def _renamed_call(call: Call, prefix: str) -> Call:
    def visit(found: Pattern) -> Pattern:
        if isinstance(found, Var):
            return Var(found.name[1:]) if found.name.startswith(_KEEP) else Var(prefix + found.name)
        if isinstance(found, Call):
            return Call(found.head, tuple(map(visit, found.args)))
        return found

    return Call(call.head, tuple(map(visit, call.args)))


def _kept(arg: Arg | None) -> Pattern:
    return Var(_KEEP + arg.name) if isinstance(arg, Var) else arg if arg is not None else Lit(True)


def _is_open(schema: Schema, step: Step) -> bool:
    if step.kind == "relation":
        return not is_table(schema, step.head)
    if step.kind == "fact":
        return step.head not in KNOWN
    return step.kind == "term" and is_request(schema, step.head)


def is_request(schema: Schema, head: str) -> bool:
    """A constructor that only rules explain: it has no denotation and no definition, and some rule makes it."""
    if head in BUILTIN or definition(schema, head) is not None:
        return False
    return schema.constructors[head].result in VALUED


def definition(schema: Schema, head: str) -> Meaning | None:
    """What a constructor stands for: its declared meaning, or the first rule that makes it equal to a term of its arguments
    without it. That rule defines the word and is true; the others are held to it."""
    declared = schema.meanings.get(head)
    if declared:
        if head in _said_by(schema, head):
            raise Unreadable(f"the meaning of {head} says {head} itself")
        return declared[0] if declared[0].definition is not None else None
    key = ("definition", head)
    if key not in schema.cache:
        schema.cache[key] = None  # while it is looked for, a term of itself is none
        made = filter(None, map(partial(_defined_by, head), schema.rules.values()))
        schema.cache[key] = next((each for each in made if _grounded(schema, each)), None)
    found: Meaning | None = schema.cache[key]
    return found


def _said_by(schema: Schema, head: str) -> frozenset[str]:
    """Every constructor that the declared meaning of one is made of."""
    key = ("said by", head)
    if key not in schema.cache:
        seen: set[str] = set()
        todo = [head]
        while todo:
            for meaning in schema.meanings.get(todo.pop(), ()):
                fresh = heads([meaning.definition] if meaning.definition is not None else []) - seen
                seen |= fresh
                todo += fresh
        schema.cache[key] = frozenset(seen)
    found: frozenset[str] = schema.cache[key]
    return found


def _grounded(schema: Schema, meaning: Meaning) -> bool:
    """Whether every word of a definition has a meaning, and none of them this one."""
    assert meaning.definition is not None
    words = [
        each for each in heads([meaning.definition]) if each in schema.constructors and each not in BUILTIN
    ]
    return all(definition(schema, each) is not None for each in words)


def _defined_by(head: str, rule: Rule) -> Meaning | None:
    named = {
        each.name: call
        for fact in rule.body
        if fact.head == "="
        for each in fact.args
        if isinstance(each, Var)
        for call in fact.args
        if isinstance(call, Call)
    }
    for action in rule.actions:
        if action.head != "union" or len(action.args) != 2:
            continue
        sides = [_written_out(each, named) for each in action.args]
        for made, other in (sides, sides[::-1]):
            if not isinstance(made, Call) or made.head != head or not isinstance(other, Call):
                continue
            names = [each.name for each in made.args if isinstance(each, Var)]
            if (
                len(set(names)) == len(made.args)
                and set(variables([other])) <= set(names)
                and head not in heads([other])
            ):
                return Meaning(made.args, definition=other)
    return None


def _written_out(found: Pattern, named: Mapping[str, Pattern], depth: int = 8) -> Pattern:
    """A pattern with the terms that its variables stand for."""
    if isinstance(found, Var):
        known = named.get(found.name)
        return found if known is None or not depth else _written_out(known, named, depth - 1)
    if isinstance(found, Call):
        return Call(found.head, tuple(_written_out(each, named, depth) for each in found.args))
    return found


def heads(patterns: Sequence[Pattern]) -> frozenset[str]:
    """Every word that is applied in some patterns."""
    return frozenset(
        name for each in patterns if isinstance(each, Call) for name in (each.head, *heads(each.args))
    )


def is_table(schema: Schema, relation: str) -> bool:
    """A relation that is a list of ground facts: no rule derives it."""
    return relation in schema.facts and not deriving(schema, relation)


Derivation = tuple[Rule, Call, Pattern | None]
"""A rule, the application of a word in one of its actions, and the value that this is set to or united with."""


def deriving(schema: Schema, word: str) -> Sequence[Derivation]:
    """The rules that derive a word."""
    index: dict[str, list[Derivation]] | None = schema.cache.get("deriving")
    if index is None:
        index = {}
        for rule in schema.rules.values():
            for name, call, value in _derived(rule):
                index.setdefault(name, []).append((rule, call, value))
        schema.cache["deriving"] = index
    return index.get(word, ())


def _derived(rule: Rule) -> Iterator[tuple[str, Call, Pattern | None]]:
    lets: dict[str, Pattern] = {}
    for action in rule.actions:
        if action.head == "let" and len(action.args) == 2 and isinstance(action.args[0], Var):
            lets[action.args[0].name] = substituted(action.args[1], lets)
            continue
        done = substituted(action, lets)
        assert isinstance(done, Call)
        if done.head == "set" and len(done.args) == 2 and isinstance(done.args[0], Call):
            yield done.args[0].head, done.args[0], done.args[1]
        elif done.head == "union" and len(done.args) == 2:
            for each, other in (done.args, done.args[::-1]):
                if isinstance(each, Call):
                    yield each.head, each, other
        else:
            yield done.head, done, None


def _alternatives(
    schema: Schema, step: Step, above: tuple[str, ...], how: str, policy: bool
) -> Iterator[Alternative]:
    meanings = schema.meanings.get(step.head, ())
    deeper = len(above) < MAX_DEPTH or (step.head not in above and len(above) < MAX_CHAIN)
    derived = how == "unfold" and deeper and bool(deriving(schema, step.head))
    if meanings and step.kind == "relation" and how == "relax":
        yield (), ""
        return
    if meanings and step.kind != "term" and not derived:
        value = None if step.out is None else _kept(step.out)
        for meaning in meanings:
            yield tuple(told(meaning, tuple(map(_kept, step.args)), value, policy)), ""
        return
    for row in schema.facts.get(step.head, ()):
        yield (
            tuple(Call("=", (_kept(arg), Lit(value))) for arg, value in zip(step.args, row, strict=False)),
            "facts",
        )
    if not deeper:
        return
    for rule, call, value in deriving(schema, step.head):
        equal = [Call("=", (_kept(arg), each)) for arg, each in zip(step.args, call.args, strict=False)]
        if value is not None:
            equal.append(Call("=", (_kept(step.out), value)))
        yield (*rule.body, *equal), rule.name


def told(meaning: Meaning, args: Sequence[Pattern], value: Pattern | None, policy: bool) -> list[Call]:
    """What a meaning asserts about some arguments; with its policy, or without."""
    names: dict[str, Pattern] = {}
    facts: list[Call] = []
    pairs = list(zip(meaning.args, args, strict=True))
    if meaning.value is not None and value is not None:
        pairs.append((meaning.value, value))
    for said, given in pairs:
        if isinstance(said, Var) and said.name not in names:
            names[said.name] = given
        else:
            facts.append(Call("=", (given, said)))
    asserted = (*facts, *meaning.facts, *(meaning.policy if policy else ()))
    return [found for each in asserted if isinstance(found := substituted(each, names), Call)]
