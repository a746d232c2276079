"""Why a rule has no instance, as far as a user can do something about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .context import Reject
from .denote_words import BUILTIN
from .instantiate import Attempt
from .parse import Call, Rule, Schema, Unreadable, Var, calls
from .plan import definition, deriving, expand
from .steps import KNOWN, Case

SOON = 120
"""Attempts at a body with a fact less, for each of its cases."""


def underived(rule: Rule, schema: Schema) -> str:
    """Why the body of a rule falls into no case at all."""
    meant = list(dict.fromkeys(_unmeant(rule, schema)))
    # words that are derived from one another alone are derived from nothing
    words = [each for each in meant if not deriving(schema, each)] or meant
    if not words:
        return "its body can never hold: it asks for terms or numbers that are not equal"
    told = " and ".join(words)
    return f"nothing derives {told}, which its body asks for, and a (meaning ({words[0]} …) …) is missing"


def _unmeant(rule: Rule, schema: Schema) -> Iterator[str]:
    """Words of a body that have no meaning, and of which no file says where they hold."""
    for call in (call for fact in rule.body for call in calls(fact)):
        known = (
            schema.signature(call.head) is None
            or call.head in KNOWN
            or call.head in schema.meanings
            or call.head in schema.facts
        )
        if not known and (call.head not in schema.constructors or _opaque(schema, call.head)):
            yield call.head


def _opaque(schema: Schema, head: str) -> bool:
    return head not in BUILTIN and definition(schema, head) is None


def in_the_way(rule: Rule, schema: Schema) -> str:
    """The facts of a body without each of which it has an instance, guards rather than terms; "" where there are none."""
    found = [
        each
        for each in rule.body
        if _possible(rule, schema, [fact for fact in rule.body if fact is not each])
    ]
    guards = [each for each in found if not any(call.head in schema.constructors for call in calls(each))]
    return f"; without {' or '.join(map(str, guards or found))} there is one" if found else ""


def _possible(rule: Rule, schema: Schema, body: Sequence[Call]) -> bool:
    """Whether some facts have an instance that is soon found."""
    try:
        cases = expand(schema, body)
        sorted_out(cases)
    except Unreadable:
        return False
    for number in range(SOON * len(cases)):
        which = cases[number % len(cases)]
        try:
            Attempt(schema, which, f"{rule.name} less", number // len(cases)).run()
        except Reject:
            continue
        return True
    return False


def sorted_out(cases: Sequence[Case]) -> None:
    """Raises Unreadable where a variable could be of any sort."""
    for case in cases:
        spoken = {arg for step in case.steps for arg in (*step.args, step.out)}
        named = [arg.name for arg in case.names.values() if isinstance(arg, Var)]
        unknown = [
            name
            for name in named
            if name not in case.sorts and (Var(name) not in spoken or name not in case.produced)
        ]
        if unknown:
            raise Unreadable(f"nothing says of which sort {unknown[0]} is")


__all__ = ["in_the_way", "sorted_out", "underived"]
