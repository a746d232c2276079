"""Whether a rule feeds itself for ever: it is run on paper, alone or with others, on the smallest thing that it matches.

The left-hand side, with a value of its own for every variable, is the first e-graph (the canonical instance). The rules then
run round by round on what was made. Facts of analyses (``shape``, ``dtype-of``, ``free``) are taken to be known of every term,
and a primitive whose arguments are no numbers has a value that nothing is known of; a dtype is followed through
operators. Numbers are tried until the guards allow a first match. A rule that still grows after :data:`ROUNDS` rounds has
no end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .atoms import MAX_ATOMS, Arg, Atom, Atoms
from .parse import Call, Lit, Pattern, Schema
from .primitives import Fails, compute

ROUNDS = 12
"""More than the numbers that are tried can be counted down from."""

STEPS = 150
"""Rounds in which values of functions may change, and nothing else: those that are counted up to a bound reach it by then."""

ROWS = 600
"""Rows at which it is clear that there is no end."""

MATCHES = 20_000
"""Steps of the search for matches, over all rounds."""

RANK = 2
"""The length of every vector of which nothing is known."""

SHRINKING = ("vec-pop", "vec-remove", "set-remove")
ARITHMETIC = frozenset(["+", "-", "*", "/", "%", "&", "|", "^", "min", "max", "abs", "log2"])
NUMBERS = (2, 1, 0, 3, 4, 8, -1, 7, 16, 1065353216)
TRIES = 60


@dataclass(frozen=True)
class Class:
    """An equivalence class of terms."""

    number: int


@dataclass(frozen=True)
class Unknown:
    """The value of a primitive or an analysis, of which no more is known than how it came about."""

    head: str
    args: tuple[Value, ...]


Value = Class | Unknown | int | str | bool
Known = dict[str, Value]


class Undecided(Exception):
    """Finding the matches takes too long."""


@dataclass
class Paper:
    """An e-graph on paper. ``rows``: head -> arguments -> class (True of a relation, the value of a function)."""

    rows: dict[str, dict[tuple[Value, ...], Value]] = field(default_factory=dict)
    parents: dict[Value, Value] = field(default_factory=dict)
    count: int = 0
    steps: int = 0
    changes: int = 0
    """Values of functions that became others."""

    def fresh(self) -> Class:
        self.count += 1
        return Class(self.count)

    def find(self, value: Value) -> Value:
        if isinstance(value, (int, str)):
            return value
        passed: list[Value] = []
        while value in self.parents:
            passed.append(value)
            value = self.parents[value]
        for each in passed[:-1]:  # the next one takes the short way
            self.parents[each] = value
        if isinstance(value, Unknown):
            return Unknown(value.head, tuple(map(self.find, value.args)))
        return value

    def add(self, head: str, args: tuple[Value, ...]) -> Value:
        """The class of a term."""
        table = self.rows.setdefault(head, {})
        args = tuple(map(self.find, args))
        if args not in table:
            table[args] = self.fresh()
        return self.find(table[args])

    def unite(self, a: Value, b: Value) -> None:
        a, b = self.find(a), self.find(b)
        if a != b and isinstance(b, Class):
            self.parents[b] = a
        elif a != b and isinstance(a, Class):
            self.parents[a] = b

    def rebuild(self) -> None:
        """Equal arguments make equal terms."""
        changed = True
        while changed:
            changed = False
            for head, table in self.rows.items():
                again: dict[tuple[Value, ...], Value] = {}
                for args, out in table.items():
                    found = tuple(map(self.find, args))
                    if found in again:
                        before = len(self.parents)
                        self.unite(again[found], out)
                        changed |= len(self.parents) > before
                    else:
                        changed |= found != args
                        again[found] = self.find(out)
                self.rows[head] = again

    def put(self, head: str, args: tuple[Value, ...], value: Value, merge: Pattern | None) -> None:
        """Sets a function; where it has a number already, to what both become."""
        table = self.rows.setdefault(head, {})
        old = table.get(args)
        if type(old) is int and type(value) is int and merge is not None:
            value = merged(merge, old, value)
            self.changes += value != old
        table[args] = value

    def size(self) -> int:
        return sum(map(len, self.rows.values()))


def merged(merge: Pattern, old: int, new: int) -> int:
    """What a ``:merge`` makes of two numbers. Raises Fails."""
    if isinstance(merge, Call):
        found = compute(merge.head, tuple(merged(each, old, new) for each in merge.args), None)  # type: ignore[arg-type]
        if type(found) is not int:
            raise Fails("a merge of numbers that is no number")
        return found
    if isinstance(merge, Lit) and type(merge.value) is int:
        return merge.value
    return {"old": old, "new": new}.get(str(merge), new)


def inventing(schema: Schema, function: str) -> str:
    """Why the values of a function are none that any rule sets: a value that is set again becomes another. "" where not so."""
    merge = schema.merges.get(function)
    if merge is None or schema.functions[function].result != "i64":
        return ""
    for value in (2, 3, -1):
        try:
            found = merged(merge, value, value)
        except (Fails, TypeError, KeyError):
            return ""
        if found != value:
            return f"{function} is {value}, and is set to {value} again: its :merge {merge} makes that {found}, which no rule said"
    return ""


def grows(rule: Atoms, schema: Schema, others: Sequence[Atoms] = (), once: bool = False) -> bool:
    """Whether the rule grows without bound on its own, or with ``others`` that match what it makes. False where no numbers
    satisfy its guards, and where the rules are too large to be sure. ``once``: the rule itself runs one time only."""
    if any(len(each.body) > MAX_ATOMS for each in (rule, *others)):
        return False
    sorts = _sorts(rule, schema)
    computed = {atom.out for atom in rule.body if atom.kind == "primitive"}
    names = sorted({name for atom in rule.body for name in _names(atom)} - computed)
    numbers = [name for name in names if sorts.get(name) == "i64"]
    rng = random.Random(0)
    tried = 0
    for attempt in range(TRIES):
        first: Known = {}
        for position, name in enumerate(numbers):
            first[name] = NUMBERS[attempt % len(NUMBERS)] if attempt < len(NUMBERS) else rng.choice(NUMBERS)
            if attempt >= 2 * len(NUMBERS):
                first[name] = rng.choice(NUMBERS[: 2 + position])
        found = _run(rule, others if once else (rule, *others), schema, sorts, first)
        if found:
            return True
        tried += found is not None
        if tried >= 3 or (not numbers and tried):
            break
    return False


def _run(
    first: Atoms, rules: Sequence[Atoms], schema: Schema, sorts: Mapping[str, str], numbers: Known
) -> bool | None:
    """On an instance of the rule ``first``. None: these numbers do not satisfy its guards."""
    paper = Paper()
    known = _frozen(first, paper, sorts, numbers)
    if known is None:
        return None
    try:
        _apply(first, paper, known, schema)
        paper.rebuild()
        rounds = 0
        for _ in range(STEPS):
            before, changes = paper.size(), paper.changes
            found = [(rule, match) for rule in rules for match in _matches(rule, paper, schema)]
            for rule, match in found:
                _apply(rule, paper, match, schema)
                if paper.size() > ROWS:
                    return True
            paper.rebuild()
            if paper.size() <= before and paper.changes == changes:
                return False
            rounds += paper.size() > before
            if rounds == ROUNDS:
                return True
    except (Undecided, Fails, IndexError, ValueError):
        return False  # where a primitive fails, the engine would stop
    return True


def _frozen(rule: Atoms, paper: Paper, sorts: Mapping[str, str], numbers: Known) -> Known | None:
    """The left-hand side as an e-graph, and what its variables are there."""
    known: Known = dict(numbers)
    ordered = [atom for atom in rule.body if atom.kind != "primitive"]
    primitives = [atom for atom in rule.body if atom.kind == "primitive"]
    if not _computed(primitives, paper, known, final=False):
        return None
    for atom in ordered:
        for name in _names(atom):
            if name not in known:
                sort = sorts.get(name, "")
                opaque = sort in ("String", "i64", "bool") or sort not in ("", *_TERMS)
                known[name] = Unknown(name, ()) if opaque else paper.fresh()
    if not _computed(primitives, paper, known, final=True):
        return None
    for atom in ordered:
        args = tuple(_value(arg, known) for arg in atom.args)
        table = paper.rows.setdefault(atom.head, {})
        table[args] = True if atom.out is None else _value(atom.out, known)
    paper.rebuild()
    return {name: paper.find(value) for name, value in known.items()}


_TERMS = ("Expr", "Tensor", "Buf", "Ix", "Atom")


def _apply(rule: Atoms, paper: Paper, match: Known, schema: Schema) -> None:
    known = dict(match)
    waiting = list(rule.made)
    while waiting:
        ready = [
            atom for atom in waiting if all(not isinstance(arg, str) or arg in known for arg in atom.args)
        ]
        if not ready:
            return  # it uses a name that nothing defines: the engine refuses it
        for atom in ready:
            args = tuple(_value(arg, known) for arg in atom.args)
            value = paper.add(atom.head, args) if atom.kind == "term" else _looked_up(atom, args, paper)
            if isinstance(atom.out, str):
                known.setdefault(atom.out, value)
        waiting = [atom for atom in waiting if atom not in ready]
    for action in rule.actions:
        if any(isinstance(arg, str) and arg not in known for arg in action.args):
            return
        args = tuple(paper.find(_value(arg, known)) for arg in action.args)
        if action.kind == "union" and len(args) == 2:
            paper.unite(*args)
        elif action.kind == "assert":
            paper.rows.setdefault(action.head, {})[args] = True
        elif action.kind == "set" and args:
            paper.put(action.head, args[:-1], args[-1], schema.merges.get(action.head))


def _matches(rule: Atoms, paper: Paper, schema: Schema) -> Iterator[Known]:
    """Terms and relations are looked for; functions and primitives are computed from what was found."""
    searched = [atom for atom in rule.body if atom.kind in ("term", "relation")]
    rest = [atom for atom in rule.body if atom.kind not in ("term", "relation")]
    if not searched:
        searched = [atom for atom in rest if atom.kind == "function"]
        rest = [atom for atom in rest if atom.kind != "function"]
    stack: list[tuple[int, Known]] = [(0, {})]
    while stack:
        position, known = stack.pop()
        if position == len(searched):
            if _computed(rest, paper, known, final=True):
                yield known
            continue
        atom = searched[position]
        for args, out in paper.rows.get(atom.head, {}).items():
            paper.steps += 1
            if paper.steps > MATCHES:
                raise Undecided
            extended = dict(known)
            pairs = [*zip(atom.args, args, strict=False)]
            if atom.out is not None:
                pairs.append((atom.out, out))
            if all(_bound(arg, paper.find(value), extended) for arg, value in pairs):
                stack.append((position + 1, extended))


def _computed(atoms: list[Atom], paper: Paper, known: Known, final: bool) -> bool:
    """Computes what can be computed, into ``known``; whether nothing contradicts. ``final``: what is left is unknown."""
    waiting = list(atoms)
    while True:
        ready = [
            atom for atom in waiting if all(not isinstance(arg, str) or arg in known for arg in atom.args)
        ]
        if not ready:
            return True
        for atom in ready:
            args = tuple(paper.find(_value(arg, known)) for arg in atom.args)
            try:
                value = _looked_up(atom, args, paper)
            except (Fails, IndexError, ValueError):  # it has no value, or too few arguments
                return False
            if value is False and atom.out is None:
                return False
            if atom.out is not None and not _agrees(atom.out, value, known):
                return False
        waiting = [atom for atom in waiting if atom not in ready]


def _looked_up(atom: Atom, args: tuple[Value, ...], paper: Paper) -> Value:
    """The value of a function or primitive. Raises Fails where it has none."""
    if atom.kind == "function":
        row = paper.rows.get(atom.head, {}).get(args)
        if row is not None:
            return paper.find(row)
        if atom.head == "dtype-of" or atom.head == "dtype":
            return _dtype(args[0], paper, 20)
        return Unknown(atom.head, args)
    if atom.head in ("<", "<=", "!=") and all(isinstance(arg, (int, str)) for arg in args):
        first, second = args
        if atom.head == "!=":
            return first != second
        assert isinstance(first, int) and isinstance(second, int)
        return first < second if atom.head == "<" else first <= second
    if atom.head == "!=":
        return args[0] != args[1]
    if atom.head in ("vec-length", "set-length"):
        return _length(args[0])
    if (
        atom.head in ("vec-get", "set-get")
        and isinstance(args[1], int)
        and not 0 <= args[1] < _length(args[0])
    ):
        raise Fails("it has no such element")
    if atom.head in SHRINKING and _length(args[0]) == 0:
        raise Fails("it is empty")
    if atom.head in ARITHMETIC and all(isinstance(arg, int) for arg in args):
        found = compute(atom.head, args, None)  # type: ignore[arg-type]
        return found if isinstance(found, (int, str)) else Unknown(atom.head, args)
    return Unknown(atom.head, args)


def _length(value: Value) -> int:
    """Of a vector or set."""
    if not isinstance(value, Unknown):
        return RANK
    match value.head:
        case "vec-empty" | "set-empty":
            return 0
        case "vec-of" | "set-of":
            return len(value.args)
        case "vec-append" | "set-union":
            return sum(map(_length, value.args))
        case "vec-push" | "set-insert":
            return _length(value.args[0]) + 1
        case head if head in SHRINKING:
            return _length(value.args[0]) - 1
        case "vec-set":
            return _length(value.args[0])
    return RANK


def _dtype(value: Value, paper: Paper, depth: int) -> Value:
    """The dtype of a term: what a Cast or constant says, otherwise that of an operand."""
    for head, table in paper.rows.items():
        for args, out in table.items():
            if paper.find(out) != value or not depth:
                continue
            if head in ("Cast", "Const", "TCast", "Imm") and args:
                return args[0]
            operands = [arg for arg in args if isinstance(arg, Class) and arg != value]
            if (
                head in ("Unary", "Binary", "Reduce", "Select", "TUnary", "TBinary", "TReduce", "TWhere")
                and operands
            ):
                return _dtype(operands[-1], paper, depth - 1)
    return Unknown("dtype-of", (value,))


def _agrees(arg: Arg, value: Value, known: Known) -> bool:
    """Binds a name, or compares: what is unknown may be anything."""
    if isinstance(arg, str) and arg not in known:
        known[arg] = value
        return True
    other = _value(arg, known)
    return isinstance(value, Unknown) or isinstance(other, Unknown) or value == other


def _bound(arg: Arg, value: Value, known: Known) -> bool:
    """Binds a name of a pattern, or compares."""
    if isinstance(arg, str):
        return known.setdefault(arg, value) == value
    return isinstance(value, Unknown) or arg.value == value


def _value(arg: Arg, known: Known) -> Value:
    return known[arg] if isinstance(arg, str) else arg.value


def _names(atom: Atom) -> Iterator[str]:
    yield from (arg for arg in (*atom.args, atom.out) if isinstance(arg, str))


def _sorts(rule: Atoms, schema: Schema) -> dict[str, str]:
    """The sorts of names, as far as declarations tell; numbers where a primitive of numbers takes them."""
    sorts: dict[str, str] = {}
    for atom in (*rule.body, *rule.made, *rule.actions):
        declared = schema.signature(atom.head)
        if declared is not None:
            for arg, sort in zip(atom.args, (*declared.args, declared.result), strict=False):
                if isinstance(arg, str):
                    sorts.setdefault(arg, sort)
            if isinstance(atom.out, str):
                sorts.setdefault(atom.out, declared.result)
    return sorts
