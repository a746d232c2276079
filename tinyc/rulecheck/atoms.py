"""A rule as flat atoms, one application each: what lint compares and runs on paper.

``(union e (Unary "NEG" (Unary "NEG" x)))`` becomes two terms and a union. Names that the rule says are equal are one name, and
equal applications are one atom, so that it does not matter how a rule was written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .parse import Call, Lit, Pattern, Rule, Schema, Var

Arg = str | Lit
"""A variable's name, or a constant."""

MAX_ATOMS = 40
"""On a left-hand side that is looked at closely. No rule of tinyc's has half as many."""

MIRRORED = {">": "<", ">=": "<="}
SYMMETRIC = frozenset(["!=", "union"])


@dataclass(frozen=True)
class Atom:
    """``kind``: "term", "function", "relation", "primitive", or of an action "union", "set", "assert", "panic", "act".
    ``out``: what the application is called; None for what has no value."""

    kind: str
    head: str
    args: tuple[Arg, ...]
    out: Arg | None = None

    def renamed(self, names: dict[str, Arg]) -> Atom:
        def new(arg: Arg) -> Arg:
            while isinstance(arg, str) and arg in names:
                arg = names[arg]
            return arg

        args = tuple(map(new, self.args))
        if self.head in SYMMETRIC:
            args = tuple(sorted(args, key=str))
        return Atom(self.kind, self.head, args, None if self.out is None else new(self.out))


@dataclass(frozen=True)
class Atoms:
    """``body``: what must be there. ``made``: terms and computations of the right-hand side; ``actions``: what is done
    with them."""

    body: tuple[Atom, ...]
    made: tuple[Atom, ...]
    actions: tuple[Atom, ...]


def atoms_of(rule: Rule, schema: Schema) -> Atoms:
    """The atoms of a rule. A rule that contradicts itself (two constants equal) has them all the same."""
    flat = _Flat(schema)
    for fact in rule.body:
        flat.fact(fact)
    body = flat.settled()
    known = len(body)
    for action in rule.actions:
        flat.action(action)
    everything = flat.settled()
    # an application of the right-hand side that is one of the left is no new atom
    return Atoms(everything[:known], everything[known:], flat.settled_actions())


class _Flat:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.atoms: list[Atom] = []
        self.actions: list[Atom] = []
        self.same: dict[str, Arg] = {}
        self.count = 0

    def fact(self, fact: Call) -> None:
        if fact.head == "=" and len(fact.args) >= 2:
            first, *others = (self.argument(each) for each in fact.args)
            for other in others:
                self.unite(first, other)
        else:
            self.application(fact, valued=False)

    def action(self, action: Call) -> None:
        if action.head == "let" and len(action.args) == 2 and isinstance(action.args[0], Var):
            self.unite(action.args[0].name, self.argument(action.args[1]))
        elif action.head in ("union", "delete", "subsume", "panic"):
            kind = action.head if action.head in ("union", "panic") else "act"
            self.actions.append(Atom(kind, action.head, tuple(map(self.argument, action.args))))
        elif action.head == "set" and len(action.args) == 2 and isinstance(action.args[0], Call):
            place = action.args[0]
            args = (*map(self.argument, place.args), self.argument(action.args[1]))
            self.actions.append(Atom("set", place.head, args))
        elif action.head in self.schema.relations:
            self.actions.append(Atom("assert", action.head, tuple(map(self.argument, action.args))))
        else:
            self.argument(action)

    def argument(self, pattern: Pattern) -> Arg:
        match pattern:
            case Var(name):
                return name
            case Lit():
                return pattern
            case Call():
                return self.application(pattern, valued=True)

    def application(self, call: Call, valued: bool) -> Arg:
        args = tuple(map(self.argument, call.args))
        head, schema = call.head, self.schema
        if head in schema.relations:
            self.atoms.append(Atom("relation", head, args))
            return ""
        kind = (
            "term" if head in schema.constructors else "function" if head in schema.functions else "primitive"
        )
        if kind == "primitive" and not valued:
            if head in MIRRORED:
                head, args = MIRRORED[head], args[::-1]
            self.atoms.append(Atom(kind, head, args))
            return ""
        self.count += 1
        out = f"${self.count}"
        self.atoms.append(Atom(kind, head, args, out))
        return out

    def unite(self, a: Arg, b: Arg) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if isinstance(b, str) and (b.startswith("$") or isinstance(a, Lit) or not isinstance(a, str)):
            self.same[b] = a
        elif isinstance(a, str):
            self.same[a] = b

    def find(self, arg: Arg) -> Arg:
        while isinstance(arg, str) and arg in self.same:
            arg = self.same[arg]
        return arg

    def settled(self) -> tuple[Atom, ...]:
        """The atoms by their final names, each once; what equal applications are called is one name."""
        while True:
            found: dict[tuple[str, str, tuple[Arg, ...]], Atom] = {}
            again = False
            for atom in self.atoms:
                atom = atom.renamed(self.same)
                first = found.setdefault((atom.kind, atom.head, atom.args), atom)
                if first.out is not None and atom.out is not None and first.out != atom.out:
                    before = len(self.same)
                    self.unite(first.out, atom.out)
                    again |= len(self.same) > before
            if not again:
                self.atoms = list(found.values())
                return tuple(self.atoms)

    def settled_actions(self) -> tuple[Atom, ...]:
        return tuple(dict.fromkeys(action.renamed(self.same) for action in self.actions))


def alike(one: Atoms, other: Atoms, steps: int = 200_000) -> bool:
    """Whether two rules differ in the names of their variables and the order of what they say alone. False as well where
    that takes more than ``steps`` to find out."""
    if one == other:
        return True
    if signature(one) != signature(other) or len(one.body) > MAX_ATOMS:
        return False
    left, right = (
        [(part, atom) for part, each in enumerate(_parts(atoms)) for atom in each] for atoms in (one, other)
    )
    left.sort(key=lambda item: (item[0], item[1].kind, item[1].head))
    budget = iter(range(steps))
    return _matched(left, right, {}, {}, budget)


def signature(atoms: Atoms) -> tuple[object, ...]:
    """The same for rules that are alike."""

    def words(atom: Atom) -> tuple[str, ...]:
        args = sorted(f"{arg}" if isinstance(arg, Lit) else "?" for arg in (*atom.args, atom.out or ""))
        return (atom.kind, atom.head, *args)

    return tuple(tuple(sorted(map(words, part))) for part in _parts(atoms))


def _parts(atoms: Atoms) -> tuple[tuple[Atom, ...], ...]:
    return atoms.body, atoms.made, atoms.actions


def _matched(
    left: list[tuple[int, Atom]],
    right: list[tuple[int, Atom]],
    there: dict[str, str],
    back: dict[str, str],
    budget: Iterator[int],
) -> bool:
    """Backtracking, without recursion: a rule may have any number of atoms."""
    stack: list[tuple[int, dict[str, str], dict[str, str], frozenset[int]]] = [(0, there, back, frozenset())]
    while stack:
        position, there, back, used = stack.pop()
        if position == len(left):
            return True
        part, atom = left[position]
        for number, (other_part, other) in enumerate(right):
            if next(budget, None) is None:
                return False
            if number in used or other_part != part:
                continue
            for names in _renamings(atom, other, there, back):
                stack.append((position + 1, *names, used | {number}))
    return False


def _renamings(
    atom: Atom, other: Atom, there: dict[str, str], back: dict[str, str]
) -> Iterable[tuple[dict[str, str], dict[str, str]]]:
    if (atom.kind, atom.head, len(atom.args)) != (other.kind, other.head, len(other.args)):
        return
    if (atom.out is None) != (other.out is None):
        return
    orders = (
        [other.args, other.args[::-1]] if atom.head in SYMMETRIC and len(other.args) == 2 else [other.args]
    )
    for args in orders:
        forth, reverse = dict(there), dict(back)
        pairs = [*zip(atom.args, args, strict=True)]
        if atom.out is not None and other.out is not None:
            pairs.append((atom.out, other.out))
        if all(_same(a, b, forth, reverse) for a, b in pairs):
            yield forth, reverse


def _same(a: Arg, b: Arg, there: dict[str, str], back: dict[str, str]) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return there.setdefault(a, b) == b and back.setdefault(b, a) == a
    return a == b and type(a) is type(b)
