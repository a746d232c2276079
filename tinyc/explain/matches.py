"""The recorded matches of the rules, as equalities between e-nodes of one class.

A rule may reach its terms through marker relations (``summed-product``, ``shifted-exponential``): such a match is unfolded with
the matches that made the markers true, until its left-hand side is spelled in constructors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tinyc.egraph.graph import Argument
from tinyc.egraph.provenance import SCALARS, Rows, RuleRecord
from tinyc.egraph.sexpr import Quoted, Sexpr, head, symbols

from .terms import Node, Unexplained, Whole

MAX_UNFOLDED = 12
"""Markers under markers."""


@dataclass(frozen=True, eq=False)
class Match:
    """One match of a rule. ``values``: of its variables, a class, an integer, or a string as ``"'text"``."""

    record: RuleRecord
    values: Mapping[str, Argument]


@dataclass
class Instance:
    """A match, unfolded. Variables of the matches behind it have prefixes. ``defined``: variable -> the pattern of a
    constructor that it stands for; ``computed``: variable -> what it was computed by; ``same``: variable -> its other
    name; ``because``: the rules that made the markers true."""

    rule: str
    values: dict[str, Argument]
    defined: dict[str, Sexpr]
    computed: dict[str, Sexpr]
    unions: tuple[tuple[Sexpr, Sexpr], ...]
    same: dict[str, str] = field(default_factory=dict)
    because: tuple[str, ...] = ()

    def name(self, variable: str) -> str:
        while variable in self.same:
            variable = self.same[variable]
        return variable


@dataclass(frozen=True, eq=False)
class Edge:
    """One equality of one match. ``ends``: the e-node at the root of each side; None where a side is a mere variable."""

    instance: Instance
    sides: tuple[Sexpr, Sexpr]
    ends: tuple[Node | None, Node | None]


class Matches:
    """All matches of one e-graph."""

    def __init__(self, records: Sequence[RuleRecord], rows: Rows, whole: Whole) -> None:
        self.whole = whole
        self._producers: dict[tuple[str, tuple[Argument, ...]], list[Match]] = {}
        self._of_class: dict[str, list[Match]] = {}
        self._edges: dict[str, tuple[Edge, ...]] = {}
        self._leaving: dict[str, Mapping[Node | None, Sequence[tuple[Edge, bool]]]] = {}
        self._unfolding: set[tuple[str, tuple[Argument, ...]]] = set()
        self._sorts = {record.table: dict(record.columns) for record in records}
        self.matches: list[Match] = []
        for record in records:
            names = [name for name, _ in record.columns]
            for args, _ in rows.tables.get(record.table, ()):
                self._add(Match(record, dict(zip(names, args, strict=True))))

    def _add(self, match: Match) -> None:
        self.matches.append(match)
        values = {name: value for name, value in match.values.items()}
        for added in match.record.adds:
            symbol = self.whole.language.symbols.get(head(added))
            if symbol is not None and symbol.kind == "relation":
                key = self.key(added, values)
                if key is not None:
                    self._producers.setdefault(key, []).append(match)
        for left, _ in match.record.unions:
            cls = self._value(left, values)
            if isinstance(cls, str):
                self._of_class.setdefault(cls, []).append(match)

    def edges(self, cls: str) -> tuple[Edge, ...]:
        """The equalities that rules have found in a class."""
        if cls not in self._edges:
            self._edges[cls] = tuple(
                edge
                for match in dict.fromkeys(self._of_class.get(cls, ()))
                for edge in self._edges_of(match, cls)
            )
        return self._edges[cls]

    def leaving(self, cls: str) -> Mapping[Node | None, Sequence[tuple[Edge, bool]]]:
        """The equalities of a class by the e-node that they lead away from, in both directions (True: forwards)."""
        if cls not in self._leaving:
            found: dict[Node | None, list[tuple[Edge, bool]]] = {}
            for edge in self.edges(cls):
                for forwards in (True, False):
                    found.setdefault(edge.ends[not forwards], []).append((edge, forwards))
            self._leaving[cls] = found
        return self._leaving[cls]

    def _edges_of(self, match: Match, cls: str) -> Iterator[Edge]:
        try:
            instance = self.unfold(match)
        except Unexplained:
            return
        for left, right in instance.unions:
            if self._value(left, instance.values) == cls:
                yield Edge(instance, (left, right), (self.end(left, instance), self.end(right, instance)))

    # ---- values of expressions ----

    def _value(self, expression: Sexpr, values: Mapping[str, Argument]) -> Argument | None:
        if isinstance(expression, Quoted):
            return f"'{expression}"
        if isinstance(expression, int):
            return expression
        if isinstance(expression, str):
            return values.get(expression)
        node = self.node(expression, values)
        if node is None:
            return None
        try:
            return self.whole.find(node)
        except Unexplained:
            return None

    def node(self, expression: Sexpr, values: Mapping[str, Argument]) -> Node | None:
        symbol = self.whole.language.symbols.get(head(expression))
        if symbol is None or symbol.kind != "constructor" or not isinstance(expression, tuple):
            return None
        args = [self._value(part, values) for part in expression[1:]]
        known = tuple(arg for arg in args if arg is not None)
        return Node(symbol.name, known) if len(known) == len(args) else None

    def end(self, side: Sexpr, instance: Instance) -> Node | None:
        """The e-node at the root of one side of an equality."""
        seen: set[str] = set()
        while isinstance(side, str) and side not in seen:
            seen.add(side)
            side = instance.name(side)
            side = instance.defined.get(side, instance.computed.get(side, side))
        return self.node(side, instance.values)

    def key(self, fact: Sexpr, values: Mapping[str, Argument]) -> tuple[str, tuple[Argument, ...]] | None:
        assert isinstance(fact, tuple)
        args = tuple(self._value(part, values) for part in fact[1:])
        return None if None in args else (head(fact), args)  # type: ignore[return-value]

    # ---- unfolding ----

    def unfold(self, match: Match, depth: int = 0) -> Instance:
        """The match with those that made its markers true, as far as its terms need them. Raises Unexplained."""
        record = match.record
        defined = dict(_definitions(record.query, self.whole))
        instance = Instance(
            record.rule, dict(match.values), defined, dict(record.values), record.unions, {}, ()
        )
        if depth > MAX_UNFOLDED:
            raise Unexplained(f"markers of {record.rule} go in a circle")
        if not self._lacks(record, defined, depth):
            return instance
        number = 0
        for fact in record.query:
            symbol = self.whole.language.symbols.get(head(fact))
            if symbol is None or symbol.kind != "relation":
                continue
            key = self.key(fact, match.values)
            if key is None or key not in self._producers or key in self._unfolding:
                continue
            self._unfolding.add(key)
            try:
                inner, made = self._produced(key, depth)
            finally:
                self._unfolding.discard(key)
            if inner is not None:
                number += 1
                self._join(instance, fact, inner, made, f"{depth}.{number}.")
        return instance

    def _produced(self, key: tuple[str, tuple[Argument, ...]], depth: int) -> tuple[Instance | None, Sexpr]:
        """The shortest way in which a fact became true: its match, and how that spells the fact."""
        best: tuple[Instance | None, Sexpr] = (None, ())
        for match in self._producers[key]:
            try:
                found = self.unfold(match, depth + 1)
            except Unexplained:
                continue
            if best[0] is None or len(found.because) < len(best[0].because):
                spelled = next(
                    added
                    for added in match.record.adds
                    if head(added) == key[0] and self.key(added, match.values) == key
                )
                best = found, spelled
        return best

    def _lacks(self, record: RuleRecord, defined: Mapping[str, Sexpr], depth: int) -> bool:
        """Whether the terms of the equality (of the markers that are made true) are not all in reach of a pattern."""
        sorts = self._sorts[record.table]
        made = [part for union in record.unions for part in union] if not depth else list(record.adds)
        wanted = {name for part in made for name in symbols(part)}
        wanted |= {name for part in record.values.values() for name in symbols(part)} if not depth else set()
        plain = {
            name
            for name in wanted
            if sorts.get(name, "i64") not in (*SCALARS, "Ix", "Atom", "Axes")
            and self.whole.language.containers.get(sorts[name], ("",))[0] != "Vec"
            and name not in record.values
        }
        reached: set[str] = set()
        roots = [left for left, _ in record.unions if isinstance(left, str)] if not depth else list(plain)
        stack = [name for name in roots if name in defined]
        while stack:
            name = stack.pop()
            if name not in reached:
                reached |= {name}
                stack += [each for each in symbols(defined.get(name, ())) if each in sorts]
        return bool(plain - reached)

    def _join(self, instance: Instance, fact: Sexpr, inner: Instance, made: Sexpr, prefix: str) -> None:
        """Adds what is known about a marker to the match that asked for it."""
        assert isinstance(fact, tuple) and isinstance(made, tuple)

        def renamed(expression: Sexpr) -> Sexpr:
            if isinstance(expression, tuple):
                return (*expression[:1], *(renamed(part) for part in expression[1:]))
            if isinstance(expression, str) and not isinstance(expression, Quoted):
                known = (
                    expression in inner.values or expression in inner.defined or expression in inner.computed
                )
                return prefix + expression if known or expression in inner.same else expression
            return expression

        instance.values |= {prefix + name: value for name, value in inner.values.items()}
        instance.defined |= {prefix + name: renamed(value) for name, value in inner.defined.items()}
        instance.computed |= {prefix + name: renamed(value) for name, value in inner.computed.items()}
        instance.same |= {prefix + name: prefix + value for name, value in inner.same.items()}
        instance.because = (*instance.because, inner.rule, *inner.because)
        for mine, theirs in zip(fact[1:], made[1:], strict=True):
            other = renamed(theirs)
            if isinstance(mine, str) and not isinstance(mine, Quoted):
                mine = instance.name(mine)
                if isinstance(other, str) and not isinstance(other, Quoted):
                    other = instance.name(other)
                    if other == mine:
                        continue
                    for known in (instance.defined, instance.computed):
                        if other in known:
                            known.setdefault(mine, known[other])
                    instance.same[other] = mine
                elif isinstance(other, tuple):
                    instance.defined.setdefault(mine, other)
            elif isinstance(other, str) and not isinstance(other, Quoted) and isinstance(mine, tuple):
                instance.defined.setdefault(instance.name(other), mine)


def _definitions(query: Sequence[Sexpr], whole: Whole) -> Iterator[tuple[str, Sexpr]]:
    """Variables that stand for the pattern of a constructor; the first where there are several."""
    seen: set[str] = set()
    for fact in query:
        match fact:
            case ("=", str(name), tuple(pattern)) | ("=", tuple(pattern), str(name)):
                symbol = whole.language.symbols.get(head(pattern))
                constructs = symbol is not None and symbol.kind == "constructor"
                if constructs and not isinstance(name, Quoted) and name not in seen:
                    seen.add(name)
                    yield name, pattern
