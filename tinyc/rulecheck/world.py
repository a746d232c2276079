"""One instance of a rule: what its variables stand for, and what is true of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinyc.ir.dtypes import DType, from_bits

from .buffers import worth
from .context import Context, IllFormed
from .denote import Evaluator, axes_in
from .denote_words import BUILTIN
from .domains import Array, Domain, Tokens
from .facts import Facts
from .parse import Lit, Pattern, Schema, Var
from .plan import definition
from .primitives import Fails, compute
from .term import Term, Value, is_axis


class World:
    """``env``: the rule's variables; ``built``: every term made so far."""

    def __init__(self, schema: Schema, seed: str) -> None:
        self.schema, self.seed = schema, seed
        self.env: dict[str, Value] = {}
        self.context = Context()
        self.facts: Facts = Facts(self.context, self.expanded)
        self.built: dict[Term, None] = {}

    def pool_axes(self) -> frozenset[Term]:
        """Every axis of the instance."""
        return frozenset(axes_in(self.facts, list(self.built)))

    def rows(self, table: str) -> list[tuple[Value, ...]]:
        """The rows of a table, those that the instance speaks of first."""
        told = self.context.rows.get(table, [])
        return [*told, *(row for row in self.schema.facts.get(table, ()) if row not in told)]

    # ---- terms ----

    def build(self, head: str, args: tuple[Value, ...]) -> Value:
        """A term of the schema, or the value of a fact in a function value. Raises IllFormed, Fails."""
        if head in self.schema.functions:
            return known(self.facts, head, args)
        if head not in self.schema.constructors:
            raise Fails(f"{head} is no constructor")
        term = self.facts.build(head, args)
        self.built.setdefault(term)
        if head not in BUILTIN:
            self.expanded(term)  # where what it stands for is no term, it is none either
        if head in ("Input", "Arg") and term not in self.context.leaves:
            raise IllFormed(f"{term!r} is no input of this program")
        return term

    def expanded(self, term: Term) -> Term | None:
        """What a constructor with a declared meaning stands for."""
        meaning = definition(self.schema, term.head)
        if meaning is None or meaning.definition is None:
            return None
        names: dict[str, Value] = {}
        for said, given in zip(meaning.args, term.args, strict=True):
            if isinstance(said, Var):
                names[said.name] = given
        found = self.instance(meaning.definition, names)
        return found if isinstance(found, Term) else None

    def instance(self, found: Pattern, env: Mapping[str, Value]) -> Value:
        """The value of a pattern whose variables all have one. Raises IllFormed, Fails, KeyError."""
        if isinstance(found, Lit):
            return found.value
        if isinstance(found, Var):
            return env[found.name]
        args = tuple(self.instance(each, env) for each in found.args)
        if self.schema.signature(found.head) is not None:
            return self.build(found.head, args)
        return compute(found.head, args, self.build)

    # ---- truth ----

    def evaluator(self, domain: Domain, *terms: Term) -> Evaluator:
        """An evaluator over the axes of the instance and of ``terms``."""
        return Evaluator(self.facts, domain, axes_in(self.facts, [*self.built, *terms]))

    def same(self, a: Value, b: Value) -> bool:
        """Whether two values are equal whatever the opaque ones are: by name, or as the same computation."""
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(map(self.same, a, b))
        if not (isinstance(a, Term) and isinstance(b, Term)):
            return bool(a == b)
        return a == b or agree(self, a, b)

    def depends(self, expr: Term) -> frozenset[Term]:
        """The axes on which the value of an expression really depends."""
        evaluator = self.evaluator(Tokens(self.seed), expr)
        value, _ = evaluator.value(expr)
        found = set()
        for at, each in enumerate(evaluator.axes):
            if value.shape[at + 1] > 1 and not bool(np.all(value == np.take(value, [0], axis=at + 1))):
                found.add(each)
        return frozenset(found)

    def moved_by(self, index: Term) -> frozenset[Term]:
        """The axes on which the value of an index really depends."""
        evaluator = self.evaluator(Tokens(self.seed), index)
        value = evaluator.index(index)
        return frozenset(
            each
            for at, each in enumerate(evaluator.axes)
            if value.shape[at] > 1 and not bool(np.all(value == np.take(value, [0], axis=at)))
        )


def agree(world: World, a: Term, b: Term) -> bool:
    """Whether two terms are the same value: indices at every point, others as the same computation."""
    sort = world.schema.constructors.get(a.head)
    kind = sort.result if sort else a.head.lstrip("?")
    if kind in ("Ix", "Atom"):
        evaluator = world.evaluator(Tokens(world.seed), a, b)
        return bool(np.all(evaluator.index(a) == evaluator.index(b)))
    if kind == "Tensor" and world.facts.shape(a) != world.facts.shape(b):
        return False
    if kind == "Buf" and world.facts.extent(a) != world.facts.extent(b):
        return False
    if kind not in ("Expr", "Tensor", "Buf"):
        return False
    if world.facts.dtype(a) != world.facts.dtype(b):
        return False
    evaluator = world.evaluator(Tokens(world.seed, 48 if world.facts.dtype(a) == "bool" else 3), a, b)
    (x, p), (y, q) = evaluator.value(a), evaluator.value(b)
    return compared(x, y, p, q)


def compared(x: Array, y: Array, p: Array | None, q: Array | None) -> bool:
    """Equal wherever the first is defined."""
    equal = np.equal(x, y)
    if q is not None:
        equal = equal & q
    return bool(np.all(equal if p is None else equal | ~p))


# ---- facts ----------------------------------------------------------------------------------------------------------


def known(facts: Facts, name: str, args: tuple[Value, ...]) -> Value:
    """The value of a fact of the schema. Raises IllFormed where there is none."""
    match name, args:
        case "shape", (t,):
            return facts._of(t)
        case (("dtype" | "dtype-of"), (t,)):
            return facts.dtype(t)
        case "free", (e,):
            return facts.free(e)
        case "atom-key", (atom,):
            return facts.key(atom)
        case "print-of", (index,):
            return facts.print_of(index)
        case (("low" | "atom-low"), (index,)):
            return facts.low(index)
        case (("high" | "atom-high"), (index,)):
            return facts.high(index)
        case "top-axis", (index,):
            return facts.top(index)
        case "ix-axes", (index,):
            return facts.axes_of(index)
        case (("top-axis-upto" | "ixs-axes" | "ops-upto"), (vector, count)):
            if not 0 <= count <= len(vector):
                raise IllFormed("there are not so many indices")
            first = vector[:count]
            if name == "ixs-axes":
                return facts.axes_of(first)
            if name == "ops-upto":
                return facts.ops_upto(first)
            return max(map(facts.top, first), default=-1)
        case "axes-upto", (base, shape, count):
            return facts.axes_upto(base, shape, count)[0]
        case "axes-next", (base, shape, count):
            return facts.axes_upto(base, shape, count)[1]
        case "ops-of", (index,):
            return facts.ops_of(index)
        case "ix-points", (index,):
            return facts.ix_points(index)
        case "atom-ops", (atom,):
            return facts.atom_ops(atom)
        case "taps-of", (t,):
            return facts.taps(t)
        case (("buffer-taps" | "fusible"), (t,)):
            found = facts.context.assumed.get((name, args))
            if found is not None:
                return found
            return facts.taps(t) if name == "buffer-taps" else 1
    raise IllFormed(f"{name} is no fact that the checker knows")


def wrong_fact(world: World, name: str, args: tuple[Value, ...], value: Value) -> str:
    """What is true where the claim ``name(args) = value`` is false; "" where it is true.

    A bound may be tighter than interval arithmetic says, if it is one. Looser it may be only where the instance assumes
    loose facts itself."""
    facts, loose = world.facts, world.context.loose
    match name:
        case "low" | "atom-low" | "high" | "atom-high":
            (index,) = args
            span = facts.values(index)
            least, most = int(span.min()), int(span.max())
            known_, end = known(facts, name, args), int(name.endswith("high"))
            widest = (min, max)[end](known_, facts.interval(index, end))
            bound = value >= most if end else value <= least
            good = bound and (loose or (value <= widest if end else value >= widest))
            if is_axis(index) or index.head in ("Lit", "Ax"):
                good = value == (least if name.endswith("low") else most)
            loosely = f", and a bound no looser than {widest} is known" if bound else ""
            return "" if good else f"its values are {least} to {most}{loosely}"
        case "free" | "ix-axes":
            (term,) = args
            real = world.depends(term) if name == "free" else world.moved_by(term)
            most_axes = known(facts, name, args)
            good = real <= value and (loose or value <= most_axes)
            return "" if good else f"it depends on {_axes(real)} and spells {_axes(most_axes)}"
        case "ixs-axes":
            vector, count = args
            most_axes = known(facts, name, args)
            real = frozenset[Term]().union(*(world.moved_by(each) for each in vector[:count]))
            good = real <= value and (loose or value <= most_axes)
            return "" if good else f"they depend on {_axes(real)}"
        case "top-axis" | "top-axis-upto":
            true = known(facts, name, args)
            return "" if value == true or (loose and value >= true) else f"it is {true}"
        case "fusible":
            return "" if value in (-1, 0, 1) else "it is 1, 0 or -1"
        case "buffer-taps":
            (t,) = args
            taps = facts.taps(t)
            if value == 0 or (value == taps and facts.shape(t) is not None):
                return ""
            return f"it is 0, or {taps} where it may be a buffer"
        case _:
            true = known(facts, name, args)
            return "" if value == true else f"it is {_shown(true)}"


def departs(world: World, name: str, args: tuple[Value, ...], value: Value) -> str:
    """Why a fact that is true is not one that the built-in rules say; "" where it is."""
    if name == "buffer-taps" and value != 0 and not world.context.lenient and not worth(world, args[0]):
        return f"{_shown(args[0])} is not worth a buffer"
    return ""


def _axes(axes: frozenset[Term]) -> str:
    return "{" + ", ".join(sorted(map(repr, axes))) + "}"


def _shown(value: Value) -> str:
    from .term import show

    return show(value)


def number_of(world: World, c: Term) -> float | int | None:
    """The number that a constant is; None for what is none."""
    if c.head not in ("Const", "Imm"):
        return None
    return from_bits(c.args[1], DType(c.args[0]))
