"""Ground instances of a rule: terms, shapes, axes and numbers for its variables, so that its body holds.

What a pattern says is built as it says; what it leaves open is opaque (any value of its dtype, over any axes) or chosen, from
small to large: shapes of extents 1 to 3, axes on several levels with equal and unequal extents and shared ids, indices
with coefficients of both signs and divisions, numbers at the borders of guards. Guards are then evaluated as the engine
evaluates them. An instance that fails one is dropped.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Mapping

from .context import IllFormed, Leaf, Reject
from .generate import DRAWS, GENERATORS, PREREQUISITES, built, satisfying, shape_of_number
from .parse import Lit, Schema, Var
from .predicates import VALUES, holds, value_of
from .primitives import Fails, compute
from .steps import Arg, Case, Step
from .term import Term, Value, axis, is_axis, lit, plain
from .types import NoTypes, Types
from .world import World, known, wrong_fact

_ORDER = {
    "Tensor": 0,
    "Buf": 0,
    "Ixs": 1,
    "Ints": 1,
    "Expr": 2,
    "Ix": 3,
    "Atom": 4,
    "Axes": 4,
    "String": 6,
    "i64": 7,
}


class Attempt:
    """One try. ``number`` counts from 0 and sets how large things are: the first tries are small. ``loose``: whether facts
    may be looser than they need to be, such as a bound that no value reaches. ``opaque``: whether indices and atoms that the
    rule leaves open are opaque too, any integers within assumed bounds."""

    def __init__(
        self, schema: Schema, case: Case, seed: str, number: int, loose: bool = True, opaque: bool = False
    ) -> None:
        self.schema, self.case, self.number = schema, case, number
        self.rng: random.Random = random.Random(f"{seed} {number}")
        self.world: World = World(schema, f"{seed} {number}")
        self.env = self.world.env
        self.level: int = 0 if number < 12 else 1 if number < 40 else 2
        self.opaque = opaque
        self.loose = loose and number % 4 == 3
        self.world.context.machine = ("sm80", "sm90", "cpu")[number % 3]
        self.later: list[tuple[Value, Value]] = []
        self.pool = self._pool()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: Types

    def run(self) -> World:
        """The instance. Raises Reject."""
        try:
            self.types = Types(self.schema, self.case, self.rng, self.number)
            self.env.update(self.types.strings())
            self._solve()
            for a, b in self.later:
                if not self.world.same(a, b):
                    raise Reject
        except (NoTypes, Fails, IllFormed):
            raise Reject from None
        return self.world

    def _pool(self) -> list[Term]:
        # problems count points and hold no values, so their axes may be long
        counted = any(
            step.kind == "predicate" and step.args[0] in (Lit("points"), Lit("core"))
            for step in self.case.steps
        )
        sizes = (3, 8, 64, 100) if counted and self.number % 2 else (2, 3)
        extent = [self.rng.choice(sizes) for _ in range(5)]
        found = [axis(0, extent[0]), axis(16, extent[2]), axis(1, extent[1])]
        if self.level:
            found += [axis(17, extent[3])]
        if self.level == 2:
            found += [axis(32, extent[4])] if self.rng.random() < 0.5 else [axis(2, extent[4])]
            if self.rng.random() < 0.3:
                found.append(axis(16, 2 if extent[2] != 2 else 3))
        return found

    # ---- the loop ----

    def _solve(self) -> None:
        pending = list(self.case.steps)
        names = [name for name in self.case.sorts if name not in self.env]
        while True:
            moved = True
            while moved:
                rest = [step for step in pending if not self._taken(step)]
                moved = len(rest) < len(pending)
                pending = rest
            names = [name for name in names if name not in self.env]
            if not names:
                break
            name = max(names, key=self._rank)
            self.env[name] = (
                self._guided(name, pending) if self.case.sorts[name] == "i64" else self._generated(name)
            )
        if pending:
            raise Reject

    def _guided(self, name: str, pending: list[Step]) -> int:
        """A number that no guard excludes at once, if one is found soon."""
        found = self._generated(name)
        for _ in range(DRAWS):
            if not self._excluded(name, found, pending):
                break
            found = self._generated(name)
        return int(found)

    def _excluded(self, name: str, value: int, pending: list[Step]) -> bool:
        env = {**self.env, name: value}
        steps = [step for step in pending if step.kind == "primitive" or step.head in ("holds",)]
        moved = True
        try:
            while moved:
                moved = False
                for step in list(steps):
                    if not all(isinstance(arg, Lit) or arg.name in env for arg in step.args):
                        continue
                    args = tuple(arg.value if isinstance(arg, Lit) else env[arg.name] for arg in step.args)
                    steps.remove(step)
                    moved = True
                    if step.kind == "predicate":
                        if args[0] in VALUES and not holds(self.world, args):
                            return True
                        continue
                    result = compute(step.head, args, self.world.build)
                    if isinstance(step.out, Var) and step.out.name not in env:
                        env[step.out.name] = result
                    elif step.out is not None:
                        old = step.out.value if isinstance(step.out, Lit) else env[step.out.name]
                        if isinstance(old, int) and old != result:
                            return True
        except (Fails, IllFormed):
            return True
        return False

    def bound(self, arg: Arg | None) -> bool:
        return isinstance(arg, Lit) or (isinstance(arg, Var) and arg.name in self.env)

    def get(self, arg: Arg) -> Value:
        return arg.value if isinstance(arg, Lit) else self.env[arg.name]

    def bind(self, arg: Arg, value: Value) -> None:
        """Binds a variable, or requires that it be equal."""
        if not self.bound(arg):
            assert isinstance(arg, Var)
            self.env[arg.name] = value
            return
        old = self.get(arg)
        if old == value:
            return
        if isinstance(old, Term | tuple) and isinstance(value, Term | tuple):
            self.later.append((old, value))
        else:
            raise Reject

    def _taken(self, step: Step) -> bool:
        """Whether a step is done with."""
        if not all(map(self.bound, step.args)):
            if step.kind == "term" and step.out is not None and self.bound(step.out):
                return self._destructured(step)
            if step.kind == "predicate" and all(map(self.bound, step.args[:-1])):
                found = value_of(
                    self.world, str(self.get(step.args[0])), tuple(map(self.get, step.args[1:-1]))
                )
                if found is not None:
                    self.bind(step.args[-1], found)
                    return True
            return False
        args = tuple(map(self.get, step.args))
        match step.kind:
            case "term":
                if step.head in ("Input", "Arg"):
                    self.program_input(args[0], step)
                term = self.world.build(step.head, args)
                assert step.out is not None
                self.bind(step.out, term)
            case "fact":
                assert step.out is not None
                self._fact(step.head, args, step.out)
            case "primitive":
                value = compute(step.head, args, self.world.build)
                if step.out is not None:
                    self.bind(step.out, value)
            case "relation":
                if args not in self.schema.facts[step.head]:
                    raise Reject
            case "predicate":
                if args[0] == "output":
                    if self.world.context.outputs.setdefault(args[1], args[2]) != args[2]:
                        raise Reject
                elif not holds(self.world, args):
                    raise Reject
        return True

    def program_input(self, number: int, step: Step) -> None:
        """Input ``number`` of the program, and its buffer."""
        leaves = self.world.context.leaves
        tensor, buffer = Term("Input", (number,)), Term("Arg", (number,))
        if tensor not in leaves:
            root = self.types._find(step.out.name) if isinstance(step.out, Var) else ""
            dtype = self.types.classes.get(root, "fp32")
            leaves[tensor] = leaves[buffer] = Leaf(f"input{number}", dtype, shape_of_number(self))

    def _destructured(self, step: Step) -> bool:
        assert step.out is not None
        term = self.get(step.out)
        if not isinstance(term, Term) or term.head != step.head:
            return False
        for arg, value in zip(step.args, term.args, strict=True):
            self.bind(arg, value)
        return True

    def _fact(self, name: str, args: tuple[Value, ...], out: Arg) -> None:
        """A fact may hold any value that is true: a bound that is not the tightest, an axis too many."""
        world = self.world
        if self.bound(out):
            value = self.get(out)
            if name == "fusible":
                if world.context.assumed.setdefault((name, args), value) != value:
                    raise Reject
                return
            if known(world.facts, name, args) == value:
                return
            world.context.loose = True
            if wrong_fact(world, name, args, value):
                raise Reject
            return
        value = known(world.facts, name, args)
        if name in ("fusible", "buffer-taps"):
            options = (1, 0) if name == "fusible" else (value, 0)
            value = world.context.assumed.setdefault((name, args), self.rng.choice(options))
        elif self.loose and self.rng.random() < 0.4:
            other = self._looser(name, args, value)
            if other != value:
                world.context.loose = True
                value = other
        self.bind(out, value)

    def _looser(self, name: str, args: tuple[Value, ...], value: Value) -> Value:
        if (
            name in ("low", "atom-low", "high", "atom-high")
            and not is_axis(args[0])
            and args[0].head not in ("Ax", "Lit")
        ):
            return value + (-1 if name.endswith("low") else 1) * self.rng.choice((0, 1, 2))
        if name == "free" and args[0].head.startswith("?"):
            return value | {self.rng.choice(self.pool)}
        return value

    # ---- which variable next ----

    def _rank(self, name: str) -> tuple[int, ...]:
        """Higher is sooner: what nothing else gives, whose neighbours are there, containers before numbers."""
        case = self.case
        ready = 1
        for step, position in case.uses[name]:
            if step.kind == "predicate" and step.args[0] == Lit("pack") and position > 4:
                ready &= all(map(self.bound, step.args[1:5]))
            for each in PREREQUISITES.get((step.head, position), ()):
                arg = step.args[each]
                if isinstance(arg, Var) and arg.name != name and arg.name not in self.env:
                    ready = 0
        return (
            name not in case.produced,
            name in case.cyclic,
            name not in case.split,
            ready,
            -_ORDER.get(case.sorts[name], 5),
        )

    def _generated(self, name: str) -> Value:
        sort = self.case.sorts[name]
        uses = self.case.uses[name]
        for step, position in uses:
            if step.kind == "relation":
                rows = [row for row in self.schema.facts[step.head] if self._fits(step, row)]
                if not rows:
                    raise Reject
                return self.rng.choice(rows)[position]
            if step.kind == "predicate":
                found = satisfying(self, name, step, position)
                if found is not None:
                    return found
        generator = GENERATORS.get(sort)
        if generator is not None:
            return generator(self, name, uses)
        return built(self, sort, 0)

    def _fits(self, step: Step, row: tuple[Value, ...]) -> bool:
        return all(
            not self.bound(arg) or self.get(arg) == value for arg, value in zip(step.args, row, strict=True)
        )

    # ---- axes and indices ----

    @functools.cached_property
    def roles(self) -> Mapping[Term, str]:
        """Each axis of the pool a role in a contraction."""
        order = sorted(self.pool, key=lambda each: each.args)
        return {each: self.rng.choice(("left", "right", "left", "right", "batch", "")) for each in order}

    def role(self, name: str) -> str:
        """Which factor of a contraction an expression is, if any."""
        for step in self.case.steps:
            if step.kind == "predicate" and step.args[0] == Lit("roles"):
                for side, arg in (("left", step.args[1]), ("right", step.args[2])):
                    made = self.case.produced.get(arg.name, ()) if isinstance(arg, Var) else ()
                    if made and made[0].args[0] == Var(name):
                        return side
        return ""

    def axes(self) -> list[Term]:
        """The pool, and the axes of shapes that have come up."""
        return self.pool

    def axis_of(self, extent: int, level: int = 0) -> Term:
        """An axis of this extent: one of the pool, or a new one."""
        options = [each for each in self.pool if each.args[1] == extent]
        if options and self.rng.random() < 0.8:
            return self.rng.choice(options)
        used = {each.args[0] for each in self.pool}
        number = next(each for each in itertools.count(level) if each not in used)
        found = axis(number, extent)
        if len(self.pool) < 6:
            self.pool.append(found)
        elif options:
            return self.rng.choice(options)
        return found

    def total(self, terms: list[tuple[int, Term]], const: int) -> Term:
        """A sum in normal form."""
        coefs: dict[Term, int] = {}
        for coef, atom in terms:
            coefs[atom] = coefs.get(atom, 0) + coef
        facts = self.world.facts
        result = lit(const)
        for atom in sorted((each for each, coef in coefs.items() if coef), key=facts.key, reverse=True):
            result = self.world.build("Plus", (coefs[atom], atom, result))
        return result

    def some_axis(self) -> Term:
        return self.rng.choice(self.pool)

    def atom(self) -> Term:
        if self.level == 0 or self.rng.random() < 0.65:
            return self.some_axis()
        inner = self.total(
            [(self.rng.choice((1, 2, 3, -1)), self.some_axis()), (1, self.some_axis())],
            self.rng.choice((0, 1)),
        )
        return self.world.build("FloorDiv", (inner, self.rng.choice((2, 3, 4))))

    def index(self) -> Term:
        """Any index in normal form."""
        rng = self.rng
        kind = rng.random()
        const = rng.choice((0, 0, 1, -1, 2, 5, -7)) if self.level else rng.choice((0, 1))
        if kind < 0.15:
            return lit(const)
        if kind < 0.45:
            return plain(self.some_axis())
        count = 1 if kind < 0.75 else rng.choice((2, 2, 3))
        coefs = (1, 2, 3, -1, -2, 4, 6) if self.level else (1, 2, -1)
        return self.total([(rng.choice(coefs), self.atom()) for _ in range(count)], const)

    def within(self, size: int) -> Term:
        """An index with values from 0 to ``size`` - 1."""
        rng = self.rng
        kind = rng.random()
        if size == 1 or kind < 0.08:
            return lit(rng.randrange(size))
        if self.level == 2 and kind > 0.93:
            return self.long(self.axis_of(size))
        if kind < 0.6 or self.level == 0:
            return plain(self.axis_of(size))
        if kind < 0.7:
            return self.total([(-1, self.axis_of(size))], size - 1)
        atom = self.atom() if kind < 0.9 else self.world.build("FloorDiv", (plain(self.axis_of(size * 2)), 2))
        low, high = self.world.facts.low(atom), self.world.facts.high(atom)
        if low >= 0 and high < size:
            coef = rng.choice([c for c in (1, 2, 3) if c * high < size])
            return self.total([(coef, atom)], rng.randint(0, size - 1 - coef * high))
        return plain(self.axis_of(size))

    def long(self, atom: Term) -> Term:
        """The value of an axis, spelled with more than 32 operations."""
        index = plain(atom)
        for _ in range(14):
            inner = self.world.build("IAdd", (self.world.build("IScale", (2, index)), lit(1)))
            coefs, const = self.world.facts.linear(inner)
            half = self.world.build("FloorDiv", (self.total([(c, a) for a, c in coefs.items()], const), 2))
            index = self.total([(1, half)], 0)
        return index

    def binder(self) -> tuple[Term, ...]:
        rng = self.rng
        inner = sorted({each for each in self.pool if each.args[0] >= 16}, key=lambda each: each.args)
        kind = rng.random()
        if kind < 0.1:
            return rng.choice([(), (lit(0),)])
        chosen = [rng.choice(inner)] if kind < 0.55 else rng.sample(inner, rng.randint(1, min(3, len(inner))))
        if rng.random() < 0.05:
            chosen = [self.pool[0], *chosen]
        chosen.sort(key=lambda each: each.args[0] // 16)
        found = [plain(each) for each in chosen]
        if rng.random() < 0.15:
            found.insert(rng.randint(0, len(found)), lit(0))
        return tuple(found)
