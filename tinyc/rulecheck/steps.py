"""A rule's body as a list of small steps, one application each: what :mod:`tinyc.rulecheck.plan` makes of patterns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .cycles import cyclic
from .parse import Lit, Var

Arg = Var | Lit

KNOWN = frozenset(
    ["atom-key", "print-of", "low", "high", "atom-low", "atom-high", "top-axis", "ix-axes", "top-axis-upto", "ixs-axes", "shape", "dtype",
     "dtype-of", "free", "axes-upto", "axes-next", "ops-of", "ix-points", "atom-ops", "ops-upto", "taps-of", "buffer-taps", "fusible"]
)  # fmt: skip
"""Functions that :mod:`tinyc.rulecheck.facts` knows."""

VALUED = ("Ix", "Atom", "Expr", "Tensor", "Buf")
"""Sorts whose terms have values: different terms may be equal."""

VALUES = frozenset(
    [
        "machine",
        "parts",
        "product",
        "own-axes",
        "offset-in",
        "indices-in",
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
