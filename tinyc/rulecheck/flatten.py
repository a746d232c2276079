"""Patterns made into steps: one application each, with a variable for each value in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .parse import Call, Lit, Pattern, Schema, Unreadable, Var
from .primitives import PRIMITIVES
from .spelled import learn_elements
from .steps import PREDICATES, VALUED, Arg, Case, Step


@dataclass
class Flat:
    """Steps under construction. Equal variables are one."""

    schema: Schema
    prefix: str = ""
    steps: list[Step] = field(default_factory=list)
    same: dict[str, Arg] = field(default_factory=dict)
    sorts: dict[str, str] = field(default_factory=dict)
    names: dict[str, Arg] = field(default_factory=dict)
    claims: list[Step] = field(default_factory=list)
    impossible: bool = False
    _next: int = 0

    def fresh(self) -> Var:
        self._next += 1
        return Var(f"{self.prefix}${self._next}")

    def find(self, arg: Arg) -> Arg:
        while isinstance(arg, Var) and arg.name in self.same:
            arg = self.same[arg.name]
        return arg

    def found(self, step: Step) -> Step:
        """``step``, with one name for what is equal."""
        out = None if step.out is None else self.find(step.out)
        return replace(step, args=tuple(map(self.find, step.args)), out=out)

    def unite(self, a: Arg, b: Arg) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if isinstance(b, Var) and not (isinstance(a, Var) and b.name.find("$") < 0 <= a.name.find("$")):
            self.same[b.name] = a
        elif isinstance(a, Var):
            self.same[a.name] = b
        else:
            self.impossible = True

    def add(self, facts: Sequence[Call]) -> None:
        for fact in facts:
            if fact.head == "=":
                self._equal(fact.args)
            else:
                self.arg(fact, statement=True)

    def _equal(self, parts: Sequence[Pattern]) -> None:
        if len(parts) < 2:
            raise Unreadable("(= …) takes two terms at least")
        ordered = sorted(parts, key=lambda each: isinstance(each, Call))
        first = ordered[0]
        root = self.arg(first) if isinstance(first, Call) else first
        for each in ordered[1:]:
            if isinstance(each, Call):
                self.arg(each, root)
            else:
                self.unite(root, each)

    def arg(self, found: Pattern, out: Arg | None = None, statement: bool = False) -> Arg:
        """The variable or literal that stands for a pattern; with ``out`` that it must be equal to."""
        if not isinstance(found, Call):
            return found
        args = tuple(self.arg(each) for each in found.args)
        kind = self.kind(found)
        test = kind in ("relation", "predicate") or (statement and kind == "primitive")
        result = None if test else (out if out is not None else self.fresh())
        self.steps.append(Step(kind, found.head, args, result))
        return result if result is not None else Lit(True)

    def kind(self, call: Call) -> str:
        schema = self.schema
        signature = schema.signature(call.head)
        if signature is not None:
            if len(signature.args) != len(call.args):
                raise Unreadable(
                    f"{call.head} takes {len(signature.args)} arguments, not {len(call.args)}: {call}"
                )
            if call.head in schema.constructors:
                return "term"
            return "fact" if call.head in schema.functions else "relation"
        if call.head in PREDICATES:
            return "predicate"
        if call.head in PRIMITIVES:
            return "primitive"
        raise Unreadable(f"{call.head} is declared nowhere, and no primitive that the checker knows")

    def _merge(self) -> None:
        """Equal terms of a sort that is mere data have equal parts, or are of different constructors and never equal."""
        seen: dict[Arg, Step] = {}
        for step in self.steps:
            if (
                step.kind != "term"
                or step.out is None
                or self.schema.constructors[step.head].result in VALUED
            ):
                continue
            other = seen.setdefault(self.find(step.out), step)
            if other.head != step.head:
                self.impossible = True
                return
            for a, b in zip(other.args, step.args, strict=True):
                self.unite(a, b)

    def done(self, unfolded: tuple[str, ...] = ()) -> Case | None:
        """The case; None if it can never hold."""
        self._merge()
        steps = [self.found(each) for each in self.steps]
        sorts: dict[str, str] = {}
        for name, sort in self.sorts.items():
            root = self.find(Var(name))
            if isinstance(root, Var):
                sorts.setdefault(root.name, sort)
        for step in steps:
            learn(self.schema, step, sorts)
        learn_elements(self.schema, steps, sorts)
        names = {name: self.find(arg) for name, arg in self.names.items()}
        claims = tuple(map(self.found, self.claims))
        return None if self.impossible else Case(tuple(dict.fromkeys(steps)), sorts, names, unfolded, claims)


def learn(schema: Schema, step: Step, sorts: dict[str, str]) -> None:
    """The sorts of the variables of a step, as far as its declaration says."""
    signature = schema.signature(step.head)
    if signature is not None:
        for arg, sort in zip(step.args, signature.args, strict=True):
            if isinstance(arg, Var):
                sorts.setdefault(arg.name, sort)
        if isinstance(step.out, Var):
            sorts.setdefault(step.out.name, signature.result)
    elif step.kind == "primitive":
        for arg, sort in zip(step.args, _PRIMITIVE_SORTS.get(step.head, ()), strict=False):
            if isinstance(arg, Var) and sort:
                sorts.setdefault(arg.name, sort)


_I = ("i64",) * 8
_PRIMITIVE_SORTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(["-", "*", "/", "%", "<", "<=", ">", ">=", "&", "|", "^", "<<", ">>", "min", "max", "abs"], _I),
    "vec-get": ("", "i64"), "vec-set": ("", "i64"), "vec-remove": ("", "i64"), "vec-range": ("i64",),
}  # fmt: skip


def renamed(found: Pattern, prefix: str) -> Pattern:
    if isinstance(found, Var):
        return Var(prefix + found.name)
    if isinstance(found, Call):
        return Call(found.head, tuple(renamed(each, prefix) for each in found.args))
    return found


def substituted(found: Pattern, names: Mapping[str, Pattern]) -> Pattern:
    if isinstance(found, Var):
        return names.get(found.name, found)
    if isinstance(found, Call):
        return Call(found.head, tuple(substituted(each, names) for each in found.args))
    return found
