"""A derivation between two terms of one class: rules applied at places, from the recorded matches.

The term at a root is brought to the wanted e-node along the shortest path of equalities in its class; before a rule is
applied, what its left-hand side asks for further down is derived in the same way. Nothing is invented: every step is a
recorded match, and both of its sides are spelled out and looked up in the e-graph.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tinyc.egraph.sexpr import Quoted, Sexpr, head

from .build import Builder, Value
from .matches import Edge, Instance, Matches
from .scopes import Scopes
from .terms import BUFFER, SET, VECTOR, Node, Term, Terms, Unexplained, substituted

MAX_TRIES = 24
"""Matches that are tried in vain from one term on, before it is given up."""

MAX_NESTED = 40
"""Derivations within derivations."""

MAX_DEEP = 250
"""Operands of operands in which two spellings of one value may differ."""

MAX_EFFORT = 100_000
"""Rules that are tried for one kernel."""

BACKWARDS = 3.0
"""A step from right to left counts as much as this many from left to right."""

UNWRAPPING, WRAPPING = 4.0, 20.0
"""So do a step that takes an operation away (``x * 1 == x``), since it is not known which e-node ``x`` has at its root, and
a step that adds one, which is hardly ever wanted."""

INDEX_SORTS = ("Ix", "Atom", "Ixs")
TENSOR_SORTS = ("Tensor", "Atom", "Ints", "Axes")
"""Sorts of terms in which no index is asked for."""


@dataclass(frozen=True, eq=False)
class Move:
    """One rule applied: ``before == after``, both terms of one class. ``forwards``: from its left to its right."""

    instance: Instance
    forwards: bool
    before: Term
    after: Term


Moves = list[tuple[Move, Term]]
"""Each with the whole term after it."""


class Deriver:
    """Finds derivations. ``filled``: what each buffer was first filled with, added to as steps make buffers."""

    def __init__(self, terms: Terms, matches: Matches, scopes: Scopes) -> None:
        self.terms = terms
        self.matches = matches
        self.scopes = scopes
        self.normal = scopes.normal
        self._tidy: set[Term] = set()
        self.filled: dict[str, Term] = {}
        self.builder = Builder(terms, matches, self.filled)
        self._reaching: set[tuple[Term, Node | None]] = set()
        self._failed: set[tuple[Term, Node | None]] = set()
        self.effort = 0

    def equal(self, term: Term, goal: Term, depth: int = 0) -> Moves:
        """The steps from one term to another. Raises Unexplained."""
        if term is goal:
            return []
        if depth > MAX_DEEP:
            raise Unexplained("two spellings of one value differ too deep inside of it")
        if term.cls != goal.cls:
            raise Unexplained("terms of two classes")
        moves = self.reach(term, self.terms.root(goal))
        current = moves[-1][1] if moves else term
        for number, wanted in enumerate(goal.args):
            arg = current.args[number]
            if isinstance(arg, Term) and isinstance(wanted, Term):
                moves += self._lifted(current, number, self.equal(arg, wanted, depth + 1))
                current = moves[-1][1] if moves else term
        return moves

    def reach(self, term: Term, wanted: Node) -> Moves:
        """The steps to a term whose root is the e-node ``wanted``. Raises Unexplained."""
        if self.terms.root(term) == wanted:
            return []
        return self._guarded(term, wanted, lambda node: node == wanted)

    def scoped(self, term: Term, depth: int = 0) -> Moves:
        """The steps to a term that mentions no axis which its class does not depend on. Raises Unexplained."""
        if self.scopes.fits(term):
            return []
        if depth > MAX_DEEP:
            raise Unexplained("an axis is mentioned too deep inside of a value")
        moves: Moves = []
        if not self.scopes.node_fits(self.terms.root(term), term.cls):
            moves = self._guarded(term, None, lambda node: self.scopes.node_fits(node, term.cls))
        current = moves[-1][1] if moves else term
        for number in range(len(current.args)):
            arg = current.args[number]
            if isinstance(arg, Term) and arg.sort == "Expr":
                moves += self._lifted(current, number, self.scoped(arg, depth + 1))
                current = moves[-1][1] if moves else term
        return moves

    def _guarded(self, term: Term, wanted: Node | None, good: Callable[[Node], bool]) -> Moves:
        """The steps to a root that is good: ``wanted``, or (None) one of several."""
        if term.op in (VECTOR, SET, BUFFER):
            raise Unexplained(f"a {term.op} is not rewritten")
        goal = (term, wanted)
        if goal in self._reaching or goal in self._failed or len(self._reaching) > MAX_NESTED:
            raise Unexplained("the derivation goes in a circle")
        self._reaching.add(goal)
        try:
            return self._reach(term, good, wrapping=False)
        except Unexplained:
            if len(self._reaching) > 1:
                raise  # what is wrapped once may be wrapped for ever
            try:
                return self._reach(term, good, wrapping=True)
            except Unexplained:
                self._failed.add(goal)
                raise
        finally:
            self._reaching.discard(goal)

    def _reach(self, term: Term, good: Callable[[Node], bool], wrapping: bool) -> Moves:
        """Hop by hop along shortest paths; a hop that leads nowhere is taken back. ``wrapping``: an operation may be put
        around the term on the way, and not only at its end."""
        hops: list[tuple[Term, tuple[Edge, bool], Moves]] = []
        current, tries = term, 0
        banned: dict[Term, set[tuple[Edge, bool]]] = {}
        while not good(self.terms.root(current)):
            own = banned.setdefault(current, set())
            found = self._first(current, good, own, wrapping) if tries < MAX_TRIES else None
            if found is None and not hops:
                raise Unexplained(f"no recorded match leads on from {term.op}")
            if found is None:
                current, failed, _ = hops.pop()
                banned[current].add(failed)
                continue
            self.effort += 1
            if self.effort > MAX_EFFORT:
                raise Unexplained("the derivation is too long")
            try:
                made = self._apply(current, *found)
            except Unexplained:
                own.add(found)
                tries += 1
                continue
            root = self.terms.root(made[-1][1])
            if any(root == self.terms.root(each) for each in (current, *(before for before, _, _ in hops))):
                own.add(found)
                tries += 1
                continue
            hops.append((current, found, made))
            current = made[-1][1]
        return [move for _, _, moves in hops for move in moves]

    def _first(
        self, term: Term, good: Callable[[Node], bool], banned: set[tuple[Edge, bool]], wrapping: bool
    ) -> tuple[Edge, bool] | None:
        """The first equality on a shortest path to a good e-node."""
        start = self.terms.root(term)
        leaving = self.matches.leaving(term.cls)
        order = 0
        heap: list[tuple[float, int, Node | None, tuple[Edge, bool] | None]] = [(0.0, 0, start, None)]
        done: set[Node | None] = set()
        while heap:
            cost, _, node, first = heapq.heappop(heap)
            if node is not None and good(node):
                return first
            if node in done:
                continue
            done.add(node)
            # a side that is a mere variable is any term of the class: None stands for all its e-nodes
            for at in (node, None) if node is not None else tuple(leaving):
                for edge, forwards in leaving.get(at, ()):
                    if first is None and (edge, forwards) in banned:
                        continue
                    target = edge.ends[forwards]
                    if at is None and not wrapping and not (target is not None and good(target)):
                        continue
                    step = 1.0 if forwards else BACKWARDS
                    step = WRAPPING if at is None else UNWRAPPING if target is None else step
                    order += 1
                    heapq.heappush(heap, (cost + step, order, target, first or (edge, forwards)))
            if node is None:
                for other in filter(good, self.matches.whole.nodes[term.cls]):
                    order += 1
                    heapq.heappush(heap, (cost, order, other, first))
        return None

    # ---- one rule ----

    def _apply(self, term: Term, edge: Edge, forwards: bool) -> Moves:
        """The rule applied at the root of a term, after what it asks for inside of it."""
        try:
            return self._applied(term, edge, forwards, frozenset(), again=False)
        except Unexplained:
            source = edge.sides[not forwards]
            several = _several(source, edge.instance)
            if not several:
                raise
            # two operands have to be one: bring both to the plainest form instead of one to the other
            return self._applied(term, edge, forwards, several, again=False)

    def _applied(self, term: Term, edge: Edge, forwards: bool, plain: frozenset[str], again: bool) -> Moves:
        """As :meth:`_apply`. ``plain``: variables to be bound to the plainest term of their class. ``again``: values that
        leave the scope of their axes have been seen to."""
        source, target = edge.sides if forwards else edge.sides[::-1]
        bound: dict[str, Value] = {}
        moves = self._settle(term, source, edge.instance, bound, plain)
        current = moves[-1][1] if moves else term
        made = self.builder.build(target, edge.instance, bound)
        if isinstance(made, Term) and not self.scopes.term(made) <= self.scopes.term(current):
            # what leaves a reduction must not mention its axes
            inner = [] if again else self._scoped_operands(current, bound)
            if not inner:
                raise Unexplained("a value would leave the scope of its axes")
            return [*moves, *inner, *self._applied(inner[-1][1], edge, forwards, plain, again=True)]
        if not isinstance(made, Term) or made.cls != term.cls:
            raise Unexplained(f"{edge.instance.rule} gives a term of another class")
        if made is current:
            raise Unexplained(f"{edge.instance.rule} changes nothing")
        moves = [*moves, (Move(edge.instance, forwards, current, made), made)]
        return [*moves, *self._normalised(made)]

    def _scoped_operands(self, term: Term, bound: dict[str, Value]) -> Moves:
        """The steps after which the values that a rule moves mention no axes but those of their classes."""
        moves: Moves = []
        for value in bound.values():
            if isinstance(value, Term) and value.sort == "Expr" and not self.scopes.fits(value):
                before = value
                for move, after in self.scoped(value):
                    term = substituted(self.terms, term, before, after)
                    moves.append((move, term))
                    before = after
        return moves

    def _normalised(self, term: Term) -> Moves:
        """The steps that bring the indices in a term into normal form: so they are read, and matched, best."""
        if term.sort in INDEX_SORTS:
            return []
        moves: Moves = []
        while (found := self._request(term)) is not None:
            before = found
            for move, after in self.equal(before, self.normal(before.cls)):
                term = substituted(self.terms, term, before, after)
                moves.append((move, term))
                before = after
        return moves

    def _request(self, term: Term) -> Term | None:
        """The first index in a term that is not spelled as extraction reads it."""
        stack, seen = [term], {term}
        while stack:
            each = stack.pop()
            if each.sort == "Ix":
                if each is not self.normal(each.cls):
                    return each
                continue
            if each.sort in TENSOR_SORTS or each in self._tidy:
                continue
            fresh = [arg for arg in each.operands() if arg not in seen]
            seen.update(fresh)
            stack += reversed(fresh)
        self._tidy.update(seen)
        return None

    def _settle(
        self,
        term: Term,
        pattern: Sexpr,
        instance: Instance,
        bound: dict[str, Value],
        plain: frozenset[str] = frozenset(),
    ) -> Moves:
        """The steps until ``term`` has the form of ``pattern``; its variables are bound then."""
        if isinstance(pattern, str):
            name = instance.name(pattern)
            if name in bound:
                known = bound[name]
                return self.equal(term, known) if isinstance(known, Term) else []
            if instance.values.get(name, term.cls) != term.cls:
                raise Unexplained("another class")
            shape = instance.defined.get(name)
            if shape is None and head(instance.computed.get(name, 0)) in self.matches.whole.language.symbols:
                shape = instance.computed[name]
            moves: Moves = []
            if shape is not None:
                moves = self._settle(term, shape, instance, bound, plain)
            elif name in plain and term.sort == "Expr":
                moves = self.equal(term, self.terms.least(term.cls))
            bound[name] = moves[-1][1] if moves else term
            return moves
        wanted = self.matches.end(pattern, instance)
        if wanted is None or not isinstance(pattern, tuple):
            raise Unexplained(f"a pattern of {instance.rule} is no constructor")
        if pattern[0] in ("Fill", "Alias") and term.op == BUFFER:
            term = self.filled.get(term.cls, term)
        moves = self.reach(term, wanted)
        current = moves[-1][1] if moves else term
        for number, part in enumerate(pattern[1:]):
            arg = current.args[number]
            if isinstance(arg, Term) and not isinstance(part, (int, Quoted)):
                moves += self._lifted(current, number, self._settle(arg, part, instance, bound, plain))
                current = moves[-1][1] if moves else term
        return moves

    def _lifted(self, term: Term, number: int, moves: Moves) -> Moves:
        """Steps of one operand as steps of the term."""
        lifted: Moves = []
        for move, arg in moves:
            term = self.terms.with_args(term, [*term.args[:number], arg, *term.args[number + 1 :]])
            lifted.append((move, term))
        return lifted


def _several(pattern: Sexpr, instance: Instance) -> frozenset[str]:
    """The variables that stand more than once in a pattern, definitions spelled out."""
    counts: Counter[str] = Counter()

    def visit(part: Sexpr) -> None:
        if isinstance(part, tuple):
            for each in part[1:]:
                visit(each)
        elif isinstance(part, str) and not isinstance(part, Quoted):
            name = instance.name(part)
            counts[name] += 1
            if counts[name] == 1:
                visit(instance.defined.get(name, ()))

    visit(pattern)
    return frozenset(name for name, count in counts.items() if count > 1 and name not in instance.defined)
