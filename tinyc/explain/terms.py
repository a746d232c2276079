"""Terms, and the whole e-graph that they live in: every constructor of the engine, not only what may be extracted."""

from __future__ import annotations

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass

from tinyc.egraph.graph import Argument
from tinyc.egraph.provenance import Language, Rows

VECTOR, SET, BUFFER = "vec-of", "set-of", "buffer"
"""Constructors of terms that the engine has no name for: containers, and a buffer that another kernel fills."""

BINDERS = {"Reduce": 1, "Stream": 0, "RoundedStream": 1}
"""Constructors that bind axes, and which of their operands says which."""

NORMAL_FORM = frozenset({"Lit", "Plus", "Ax", "FloorDiv"})


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A term, its operands spelled out. ``args``: operands, integers, and strings as ``"'text"``. ``cls``: its class.

    Made by :class:`Terms` only, which makes equal terms one object: terms are compared by identity.
    """

    op: str
    args: tuple[Term | int | str, ...]
    cls: str
    sort: str

    def operands(self) -> list[Term]:
        return [arg for arg in self.args if isinstance(arg, Term)]

    def values(self) -> list[Term]:
        """The operands but for tensors: the naive program, which is as deep as it likes, and is never rewritten."""
        return [arg for arg in self.args if isinstance(arg, Term) and arg.sort != "Tensor"]


@dataclass(frozen=True, slots=True)
class Node:
    """An e-node: a constructor over integers, strings as ``"'text"``, and classes."""

    op: str
    args: tuple[Argument, ...]


class Unexplained(Exception):
    """A term or an equality for which no derivation is found."""


class Whole:
    """The classes of every sort. ``nodes``: per class, in the engine's order."""

    def __init__(self, rows: Rows, language: Language) -> None:
        self.language = language
        self.rows = rows
        self.nodes: dict[str, list[Node]] = {}
        self._class: dict[Node, str] = {}
        for op in language.constructors():
            for args, cls in rows.tables.get(op, ()):
                self._add(Node(op, args), str(cls))
        for cls, elements in rows.containers.items():
            kind = language.containers.get(sort_of(cls), ("",))[0]
            node = Node(VECTOR if kind == "Vec" else SET, elements)
            self.nodes.setdefault(cls, []).append(node)
            self._class[Node(f"{sort_of(cls)} {node.op}", elements)] = cls

    def _add(self, node: Node, cls: str) -> None:
        self.nodes.setdefault(cls, []).append(node)
        self._class[node] = cls

    def find(self, node: Node) -> str:
        """The class of a node. Raises Unexplained where the e-graph has none."""
        found = self._class.get(node)
        if found is None:
            raise Unexplained(f"the e-graph has no {node.op} {' '.join(map(str, node.args))}")
        return found

    def container(self, sort: str, op: str, elements: Sequence[Argument]) -> str:
        return self.find(Node(f"{sort} {op}", tuple(elements)))


def sort_of(cls: str) -> str:
    """The sort of a class: its name is the sort and a number."""
    return cls.rsplit("-", 1)[0]


class Terms:
    """Makes terms of one e-graph, and knows a small term of every class."""

    def __init__(self, whole: Whole) -> None:
        self.whole = whole
        self._made: dict[tuple[str, str, tuple[object, ...]], Term] = {}
        self._least: dict[str, Term] | None = None
        self._lists: dict[str, list[Term]] = {}

    def make(self, op: str, args: Sequence[Term | int | str]) -> Term:
        """The term of a constructor; its class is looked up. Raises Unexplained where there is none."""
        key = (op, "", tuple(args))
        if key not in self._made:
            cls = self.whole.find(Node(op, tuple(arg.cls if isinstance(arg, Term) else arg for arg in args)))
            self._made[key] = Term(op, tuple(args), cls, sort_of(cls))
        return self._made[key]

    def container(self, sort: str, op: str, elements: Sequence[Term | int | str]) -> Term:
        key = (op, sort, tuple(elements))
        if key not in self._made:
            names = [each.cls if isinstance(each, Term) else each for each in elements]
            self._made[key] = Term(op, tuple(elements), self.whole.container(sort, op, names), sort)
        return self._made[key]

    def buffer(self, cls: str) -> Term:
        """A buffer that another kernel fills."""
        key = (BUFFER, cls, ())
        if key not in self._made:
            self._made[key] = Term(BUFFER, (), cls, "Buf")
        return self._made[key]

    def with_args(self, term: Term, args: Sequence[Term | int | str]) -> Term:
        """The same constructor over other operands of the same classes."""
        if tuple(args) == term.args:
            return term
        if term.op in (VECTOR, SET):
            return self.container(term.sort, term.op, args)
        return self.make(term.op, args)

    def root(self, term: Term) -> Node:
        """The e-node at the root of a term."""
        return Node(term.op, tuple(arg.cls if isinstance(arg, Term) else arg for arg in term.args))

    def least(self, cls: str) -> Term:
        """A small term of a class: a normal form of an index, the plainest spelling of anything else. Raises
        Unexplained for a class that holds none (of a sort of functions)."""
        if self._least is None:
            self._least = _least(self)
        if cls not in self._least:
            raise Unexplained(f"no term of class {cls} is finite")
        return self._least[cls]


def _least(terms: Terms) -> dict[str, Term]:
    """The cheapest term of each class, from the leaves up (Knuth 1977): cost, then order of the nodes."""
    whole = terms.whole
    waiting: dict[tuple[str, int], int] = {}
    users: dict[str, list[tuple[str, int]]] = {}
    costs: dict[str, int] = {}
    found: dict[str, Term] = {}
    heap: list[tuple[int, int, str, int]] = []
    order = 0

    def push(cls: str, number: int) -> None:
        nonlocal order
        node = whole.nodes[cls][number]
        operands = [arg for arg in node.args if isinstance(arg, str) and not arg.startswith("'")]
        heapq.heappush(heap, (_weight(node) + sum(costs[arg] for arg in operands), order, cls, number))
        order += 1

    for cls, nodes in whole.nodes.items():
        for number, node in enumerate(nodes):
            operands = {arg for arg in node.args if isinstance(arg, str) and not arg.startswith("'")}
            waiting[cls, number] = len(operands)
            for arg in operands:
                users.setdefault(arg, []).append((cls, number))
            if not operands:
                push(cls, number)
    while heap:
        cost, _, cls, number = heapq.heappop(heap)
        if cls in costs:
            continue
        node = whole.nodes[cls][number]
        args = [found[arg] if isinstance(arg, str) and not arg.startswith("'") else arg for arg in node.args]
        costs[cls] = cost
        found[cls] = (
            terms.container(sort_of(cls), node.op, args)
            if node.op in (VECTOR, SET)
            else terms.make(node.op, args)
        )
        for user in users.get(cls, ()):
            waiting[user] -= 1
            if not waiting[user]:
                push(*user)
    return found


def _weight(node: Node) -> int:
    if node.op in (VECTOR, SET) or node.op in NORMAL_FORM:
        return 1
    return 1 if node.op in ("At", "Read", "Const", "Arg", "Input", "Imm", "Within") else 20


def substituted(terms: Terms, term: Term, old: Term, new: Term) -> Term:
    """``term`` with ``new`` for every ``old`` in it, but inside of tensors; iterative, since terms may be deep."""
    if term.sort == "Tensor":
        return term
    done: dict[Term, Term] = {old: new}
    stack = [term]
    while stack:
        each = stack[-1]
        if each in done:
            stack.pop()
            continue
        values = each.values()
        missing = [arg for arg in values if arg not in done]
        if missing:
            stack += missing
            continue
        stack.pop()
        if any(done[arg] is not arg for arg in values):
            args = [done.get(arg, arg) if isinstance(arg, Term) else arg for arg in each.args]
            done[each] = terms.with_args(each, args)
        else:
            done[each] = each
    return done[term]


def subterms(term: Term) -> dict[Term, None]:
    """Every term in ``term`` but what is inside of tensors, operands first."""
    done: dict[Term, None] = {}
    stack = [(term, False)]
    while stack:
        each, ready = stack.pop()
        if ready:
            done.setdefault(each)
        elif each not in done:
            stack.append((each, True))
            if each.sort != "Tensor":
                stack += [(arg, False) for arg in each.operands() if arg not in done]
    return done


def fresh(term: Term, known: Container[Term]) -> list[Term]:
    """As :func:`subterms`, without those that are known and what is in them: work on a term that shares most of itself
    with another is done for the rest of it."""
    found: dict[Term, None] = {}
    stack = [(term, False)]
    while stack:
        each, ready = stack.pop()
        if ready:
            found.setdefault(each)
        elif each not in found and each not in known:
            stack.append((each, True))
            if each.sort != "Tensor":
                stack += [(arg, False) for arg in each.operands()]
    return list(found)


def exceeds(term: Term, limit: int) -> bool:
    """Whether a term has more subterms than ``limit``."""
    seen, stack = {term}, [term]
    while stack and len(seen) <= limit:
        each = stack.pop()
        if each.sort != "Tensor":
            new = [arg for arg in each.operands() if arg not in seen]
            seen.update(new)
            stack += new
    return len(seen) > limit


class Naive:
    """The terms of the naive program as they were inserted (``tinyc.egraph.encode``), made when they are asked for: what
    only facts mention need not be in any table."""

    def __init__(self, terms: Terms, encoded: Sequence[tuple[str, Sequence[object]]]) -> None:
        self.terms = terms
        self.encoded = encoded
        self._made: dict[int, Term] = {}

    def term(self, number: int) -> Term:
        """The term at a position of the encoded program. Raises Unexplained. Iterative: programs may be deep."""
        stack = [number]
        while stack:
            each = stack[-1]
            if each in self._made:
                stack.pop()
                continue
            name, raw = self.encoded[each]
            missing = [
                n
                for n in map(_reference, raw)
                if n is not None and n not in self._made and not self._vector(n)
            ]
            if missing:
                stack += missing
                continue
            stack.pop()
            kinds = self.terms.whole.language.symbols[name].args
            args = [self._argument(value, kind) for value, kind in zip(raw, kinds, strict=True)]
            self._made[each] = self.terms.make(name, args)
        return self._made[number]

    def _vector(self, number: int) -> bool:
        return self.encoded[number][0] in ("vec-of", "vec-empty")

    def _argument(self, value: object, kind: str) -> Term | int | str:
        number = _reference(value)
        if number is None:
            return f"'{value}" if isinstance(value, str) else int(value)  # type: ignore[call-overload]
        if not self._vector(number):
            return self._made[number]
        elements: list[Term | int | str] = []
        for element in self.encoded[number][1]:
            inner = _reference(element)
            elements.append(int(element) if inner is None else self.term(inner))  # type: ignore[call-overload]
        return self.terms.container(kind, VECTOR, elements)


def _reference(value: object) -> int | None:
    return value[1] if isinstance(value, list) else None
