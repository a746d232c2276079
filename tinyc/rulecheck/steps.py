"""A rule's body as a list of small steps, one application each: what :mod:`tinyc.rulecheck.plan` makes of patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .cycles import cyclic
from .parse import Call, Lit, Pattern, Schema, Unreadable, Var
from .primitives import PRIMITIVES
from .spelled import learn_elements

Arg = Var | Lit

KNOWN = frozenset(
    ["atom-key", "print-of", "low", "high", "atom-low", "atom-high", "top-axis", "ix-axes", "top-axis-upto", "ixs-axes", "shape", "dtype",
     "dtype-of", "free", "axes-upto", "axes-next", "ops-of", "atom-ops", "ops-upto", "taps-of", "buffer-taps", "fusible"]
)  # fmt: skip
"""Functions that :mod:`tinyc.rulecheck.facts` knows."""

VALUED = ("Ix", "Atom", "Expr", "Tensor", "Buf")
"""Sorts whose terms have values: different terms may be equal."""

VALUES = frozenset(
    [
        "machine",
        "parts",
        "product",
        "points",
        "last",
        "run",
        "slides",
        "limit",
        "itemsize",
        "cut",
        "fit",
        "core",
        "unit",
    ]
)
"""Predicates whose last argument is a value, or one of some values, of the others (:mod:`tinyc.rulecheck.predicates`)."""

CHOSEN = frozenset(["tail"])
"""Predicates whose last argument is one of several that the others allow."""

PREDICATES = frozenset(["holds"])
"""``(holds "name" x …)``: a predicate of :mod:`tinyc.rulecheck.predicates`."""


@dataclass(frozen=True)
class Step:
    """``kind``: term, fact, table, primitive, predicate, or relation (before cases are made)."""

    kind: str
    head: str
    args: tuple[Arg, ...]
    out: Arg | None = None

    @cached_property
    def needs(self) -> frozenset[str]:
        """The variables among its arguments."""
        return frozenset(arg.name for arg in self.args if isinstance(arg, Var))

    @cached_property
    def names(self) -> frozenset[str]:
        """The variables that it is about."""
        return self.needs | {self.out.name} if isinstance(self.out, Var) else self.needs

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.head, self.args, self.out))

    def __hash__(self) -> int:
        return self._hash

    def words(self) -> str:
        text = f"({' '.join([self.head, *map(str, self.args)])})"
        return text if self.out is None else f"(= {self.out} {text})"


LONGEST = 4200
"""The largest extent of an instance; larger ones are only counted."""

COUNTED = 600
"""The extent of an axis along which more is added up than bf16 can count, about half of it."""

MOST_AXES = 6
"""Axes of a tensor of an instance."""

_EXTENTS = frozenset(
    [
        ("vec-get", 2),
        ("Ax", 1),
        ("Expand", 2),
        ("Shrink", 2),
        ("Shrink", 3),
        ("Pad", 2),
        ("Pad", 3),
        ("Valid", 2),
        ("Valid", 3),
    ]
    + [(head, 1) for head in ("low", "high", "atom-low", "atom-high", "IDiv", "DivEnd", "FloorDiv", "Within")]
    + [("DivAcc", 2), ("Within", 2)]
)
"""Where an extent, a bound of an index, or what it is divided by stands in a step; the place after the arguments is its value."""


@dataclass(frozen=True)
class Case:
    """Steps to satisfy, the sort of each variable, what the rule's own variables are (equal ones are one), and the rules
    that were unfolded. ``claims``: relations that were, and must have their meaning nevertheless. ``memo``: what others know of it."""

    steps: tuple[Step, ...]
    sorts: Mapping[str, str]
    names: Mapping[str, Arg]
    unfolded: tuple[str, ...] = ()
    claims: tuple[Step, ...] = ()
    memo: dict[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def uses(self) -> Mapping[str, tuple[tuple[Step, int], ...]]:
        """Variable -> the steps of which it is an argument, and where."""
        found: dict[str, list[tuple[Step, int]]] = {name: [] for name in self.sorts}
        for step in self.steps:
            for position, arg in enumerate(step.args):
                if isinstance(arg, Var):
                    found.setdefault(arg.name, []).append((step, position))
        return {name: tuple(each) for name, each in found.items()}

    @cached_property
    def maps(self) -> frozenset[Var]:
        """Indices of views that the rule spells."""
        read = {step.args[2] for step in self.steps if step.kind == "term" and step.head == "View"}
        return frozenset(
            each.out
            for each in self.steps
            if isinstance(each.out, Var) and each.out in read and each.head not in ("View", "vec-get")
        )

    @cached_property
    def borders(self) -> tuple[int, ...]:
        """The numbers with which guards compare."""
        return tuple(
            arg.value
            for step in self.steps
            if step.kind == "primitive" and step.head in ("<", "<=", ">", ">=", "!=")
            for arg in step.args
            if isinstance(arg, Lit) and isinstance(arg.value, int) and 0 <= arg.value < 1 << 32
        )

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Extents at which a guard changes its mind: about the numbers that it holds extents and bounds of indices against."""
        known = {
            arg.name
            for step in self.steps
            for position, arg in enumerate((*step.args, step.out))
            if isinstance(arg, Var) and (step.head, position) in _EXTENTS
        }
        told = {
            arg.value
            for step in self.steps
            for position, arg in enumerate((*step.args, step.out))
            if isinstance(arg, Lit) and isinstance(arg.value, int) and (step.head, position) in _EXTENTS
        }
        for step in self.steps:  # in the order of the body, which computes before it compares
            if step.kind == "primitive" and any(
                isinstance(arg, Var) and arg.name in known for arg in step.args
            ):
                told |= {
                    each.value
                    for each in (*step.args, step.out)
                    if isinstance(each, Lit) and isinstance(each.value, int)
                }
                known |= {step.out.name} if isinstance(step.out, Var) else set()
        if self.counts:
            told.add(COUNTED)
        told |= {
            arg.value
            for step in self.steps
            for arg in (step.args if step.head in ("vec-of", "vec-push") else ())
            if isinstance(arg, Lit)
            and isinstance(arg.value, int)
            and arg.value > MOST_AXES  # no place of an axis
        }
        sizes = {abs(each) for each in told if abs(each) >= 3}  # the last of an axis of four is 3
        parts = {
            each // other for each in sizes for other in {abs(each) for each in told} if 1 < other < each
        }
        # of what is divided by one of them, two parts leave a rest as well
        about = {each + more for each in sizes | parts | {2 * each for each in sizes} for more in (-1, 0, 1)}
        return tuple(sorted(each for each in about if 3 < each <= LONGEST))

    @cached_property
    def counts(self) -> bool:
        """Whether it adds up what is cast, or constants of bf16, in which few integers are exact."""
        heads = {(step.head, arg) for step in self.steps for arg in step.args[:1]}
        sums = any((head, Lit("SUM")) in heads for head in ("Reduce", "TReduce"))
        cast = any(step.head in ("Cast", "TCast") for step in self.steps)
        return sums and (cast or any((head, Lit("bf16")) in heads for head in ("Const", "Imm")))

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Ranks above those that are tried anyway, of which the rule speaks: lengths of vectors, and places in them."""
        found = set[int]()
        for step in self.steps:
            said = step.args[-1] if step.head == "vec-get" else step.out
            if (
                step.head in ("vec-length", "vec-get")
                and isinstance(said, Lit)
                and isinstance(said.value, int)
            ):
                found.add(said.value + (step.head == "vec-get"))
            if step.head == "vec-of":
                found.add(len(step.args))
        return tuple(sorted(each for each in found if 3 < each <= MOST_AXES))

    @cached_property
    def starved(self) -> bool:
        """Whether it is about blocks of a packed product that are few and large."""
        return any(step.args[:1] == (Lit("starved"),) for step in self.steps)

    @cached_property
    def produced(self) -> Mapping[str, tuple[Step, ...]]:
        """Variable -> the steps that give it a value."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            if isinstance(step.out, Var):
                found.setdefault(step.out.name, []).append(step)
            last = step.args[-1] if step.kind == "predicate" else None
            if (
                isinstance(last, Var)
                and isinstance(step.args[0], Lit)
                and step.args[0].value in VALUES | CHOSEN
            ):
                found.setdefault(last.name, []).append(step)
        return {name: tuple(each) for name, each in found.items()}

    @cached_property
    def cyclic(self) -> frozenset[str]:
        """Variables that are given in terms of themselves alone: a multiple of itself divided."""
        below = {
            name: [
                {
                    arg.name
                    for arg in (step.args[:-1] if step.kind == "predicate" else step.args)
                    if isinstance(arg, Var)
                }
                for step in steps
            ]
            for name, steps in self.produced.items()
        }
        return cyclic(below, self.sorts)

    @cached_property
    def reduced(self) -> tuple[tuple[Step, Step, Step], ...]:
        """``e = t[ix]``, ``t = reduce(x)`` and ``e = reduce(y)``: the tensor x has the elements y."""
        terms = [step for step in self.steps if step.kind == "term"]
        return tuple(
            (at, tensor, reduce)
            for at in terms
            for tensor in terms
            for reduce in terms
            if (at.head, tensor.head, reduce.head) == ("At", "TReduce", "Reduce")
            and at.args[0] == tensor.out
            and at.out == reduce.out
            and tensor.args[0] == reduce.args[0]
            and all(isinstance(each, Var) for each in (at.args[1], *tensor.args[1:]))
        )

    @cached_property
    def held(self) -> tuple[Step, ...]:
        """``e = b[ix]`` where e is another term as well, and nothing else is said of b and ix: b holds what e is."""
        terms = [step for step in self.steps if step.kind == "term" and step.out is not None]
        loose = [
            step
            for step in terms
            if step.head in ("At", "Read")
            and all(
                isinstance(each, Var) and each.name not in self.produced and len(self.uses[each.name]) == 1
                for each in step.args
            )
        ]
        firm = {step.out for step in terms if step not in loose}
        return tuple(step for step in loose if step.out in firm)

    @cached_property
    def split(self) -> frozenset[str]:
        """Variables that are parts of a term which another step gives: they are read off that term."""
        return frozenset(
            name
            for name, uses in self.uses.items()
            for step, _ in uses
            if step.kind == "term" and isinstance(step.out, Var)
            if any(each.kind in ("primitive", "fact", "predicate") for each in self.produced[step.out.name])
        )


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
