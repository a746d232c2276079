"""Ground instances of a rule: terms, shapes, axes and numbers for its variables, so that its body holds.

What a pattern says is built as it says; what it leaves open is opaque (any value of its dtype, over any axes) or chosen, from
small to large: shapes of extents 1 to 3, axes on several levels with equal and unequal extents and shared ids, indices
with coefficients of both signs and divisions, numbers at the borders of guards. Guards are then evaluated as the engine
evaluates them. An instance that fails one is dropped.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .bindings import Bindings
from .choose import rows_for, satisfying
from .context import IllFormed, Leaf, Reject
from .denote import filled_axes
from .generate import GENERATORS, built
from .guards import GUARDS, room
from .machines import SCARCE, less, limits_of, machines_for
from .order import next_of
from .parse import Lit, Schema, Var
from .predicates import holds, value_of
from .primitives import ORDERS, Fails, compute
from .prove import prove
from .requests import tails
from .scope import Scope, factors
from .shapes import DRAWS, shape_of_number
from .spelled import SPELLING, SPELLINGS, apart, spelled, spelled_so
from .steps import Arg, Case, Step
from .term import Term, Value, is_axis, lit, plain
from .types import NoTypes, Types
from .verdict import CLASSES
from .world import World, known, wrong_fact


class Attempt(Scope, Bindings):
    """One try. ``number`` counts from 0 and sets how large things are: the first tries are small. ``loose``: whether facts
    may be looser than they need to be, such as a bound that no value reaches. ``opaque``: whether indices and atoms that the
    rule leaves open are opaque too, any integers within assumed bounds. ``lenient``: whether it leaves policies out.
    ``fixed``: numbers and words that are not chosen, or as near to these as lists of what there may be have any; ``rows``: of
    tables, made up before.

    ``free``: numbers and words that nothing else gives; ``listed``: those of them that stand in such a list; ``invented``: rows
    of tables that were made up for it; ``extents``: of shapes of which points are only counted, which may be any as well;
    ``limits``: what there may be less of on a machine."""

    def __init__(
        self,
        schema: Schema,
        case: Case,
        seed: str,
        number: int,
        loose: bool = True,
        opaque: bool = False,
        lenient: bool = False,
        fixed: Mapping[str, Value] = MappingProxyType({}),
        rows: Mapping[str, list[tuple[Value, ...]]] = MappingProxyType({}),
    ) -> None:
        self.schema, self.case, self.number = schema, case, number
        # problems count points and hold no values, so their axes may be long
        counted = any(
            step.kind == "predicate"
            and step.args[0] in (Lit("points"), Lit("run"), Lit("product"), Lit("tiles"))
            for step in case.steps
        )
        self.counted = counted
        # about as many points as a guard speaks of, with no axis more
        limits = [each for each in case.borders if each > 100] if counted and number % 2 else []
        level = 0 if number < 12 or (limits and number % 4 == 3) else 1 if number < 40 else 2
        world = World(schema, f"{seed} {number}")
        rng = random.Random(f"{seed} {number}")
        sizes: tuple[int, ...] = (2, 3)
        if counted and number % 2:
            sizes = factors(rng, rng.choice(limits) - rng.choice((0, 1))) if limits else (3, 8, 64, 100)
        elif case.extents and number % 3 == 2:
            sizes = (2, 3, 2, 3, rng.choice(case.extents))
        Scope.__init__(self, rng, world, level, sizes, case.extents, counted)
        Bindings.__init__(self, world.env)
        self.opaque = opaque
        self.loose = loose and number % 4 == 3
        self.world.context.lenient = lenient
        machines = machines_for(schema, case)
        self.world.context.machine = machines[number % len(machines)]
        self.world.context.rows.update({table: list(told) for table, told in rows.items()})
        self.fixed, self.free, self.listed = fixed, dict[str, Value](), set[str]()
        self.invented = {table: list(told) for table, told in rows.items()}
        less_ = less(self.world.context.machine, random.Random(f"{seed} {number} limits"))
        self.world.context.limits.update(less_)
        every = limits_of(self.world.context)
        self.limits = {name: int(fixed.get(f"limit {name}", every[name])) for name in SCARCE}
        self.world.context.limits.update(self.limits)
        self.later: list[tuple[Value, Value]] = []
        self.extents: dict[str, int] = {}
        self.types: Types

    def run(self) -> World:
        """The instance. Raises Reject."""
        try:
            self.types = self._types()
            self.env.update(self.types.strings())
            self._solve()
            for a, b in self.later:
                if not self.world.same(a, b):
                    raise Reject
            for step in self.case.claims:
                value = None if step.out is None else self.get(step.out)
                if not prove(
                    self.world, step.head, tuple(map(self.get, step.args)), value, CLASSES[-1]
                ).klass:
                    raise Reject
        except (NoTypes, Fails, IllFormed):
            raise Reject from None
        return self.world

    def _types(self) -> Types:
        """Operators and dtypes. Instances that differ in numbers alone have the same, and follow one another. Raises NoTypes."""
        known: tuple[str, Types, Any] | None = self.case.memo.get("types")
        if known is not None and known[0] == self.world.seed:
            self.rng.setstate(known[2])
            return known[1]
        types = Types(self.schema, self.case, self.rng, self.number)
        self.case.memo["types"] = (self.world.seed, types, self.rng.getstate())
        return types

    # ---- the loop ----

    def _solve(self) -> None:
        pending: list[tuple[Step, frozenset[str]]] = [(step, frozenset()) for step in self.case.steps]
        names = [name for name in self.case.sorts if name not in self.env]
        while True:
            moved = True
            while moved:
                rest = self._left(pending)
                moved = len(rest) < len(pending) or self._tied()
                pending = rest
            names = [name for name in names if name not in self.env]
            if not names:
                break
            found = self._chosen(
                next_of(self.schema, self.case, names, self.env), [step for step, _ in pending]
            )
            self.env.update(found)
            self.free.update(
                {name: value for name, value in found.items() if self.case.sorts[name] in ("i64", "String")}
            )
        if pending:
            raise Reject

    def _left(self, pending: list[tuple[Step, frozenset[str]]]) -> list[tuple[Step, frozenset[str]]]:
        """The steps that are not done with, each with the variables of which it waits for one."""
        rest = []
        known = self.env.keys()
        for each in pending:
            step, waits = each
            if waits and known.isdisjoint(waits):
                rest.append(each)
            elif not self._taken(step):
                rest.append((step, step.names - known))
        return rest

    def _tied(self) -> bool:
        """Makes the operand of a reduction the tensor of the elements that the rule says it has; and what holds a value, beside
        which the rule has another term for it, a buffer of that term."""
        facts = self.world.facts
        for at, tensor, reduce in self.case.reduced:
            own = (tensor.args[2], tensor.args[1], at.args[1])
            if any(map(self.bound, own)) or not all(map(self.bound, reduce.args)):
                continue
            _, bound, elements = map(self.get, reduce.args)
            index = self._spelled(facts.free(elements) - facts.axes_of(bound))
            term = self._holder(own[0], "?Tensor", (*index, *bound), elements)
            for arg, value in zip(own, (term, len(bound), tuple(index)), strict=True):
                self.bind(arg, value)
            return True
        for step in self.case.held:
            assert step.out is not None
            if any(map(self.bound, step.args)) or not self.bound(step.out):
                continue
            elements = self.get(step.out)
            index = self._spelled(facts.free(elements))
            kind = "?Tensor" if step.head == "At" else "?Buf"
            self.bind(step.args[1], tuple(index))
            self.bind(step.args[0], self._holder(step.args[0], kind, tuple(index), elements))
            return True
        return False

    def _spelled(self, axes: frozenset[Term]) -> list[Term]:
        """An index for each of some axes, and now and then one for an axis of one point."""
        index = [plain(each) for each in sorted(axes, key=lambda each: each.args)]
        if self.rng.random() < 0.2:
            index.insert(self.rng.randint(0, len(index)), lit(0))
        return index

    def _holder(self, arg: Arg, kind: str, index: tuple[Term, ...], elements: Term) -> Term:
        """What has these elements at an index."""
        assert isinstance(arg, Var)
        over = tuple(each.args[1] for each in index if is_axis(each))
        shape = tuple(each.args[1].args[1] if is_axis(each) else 1 for each in index)
        term = Term(kind, (arg.name,))
        self.world.context.leaves[term] = Leaf(
            arg.name, self.world.facts.dtype(elements), shape, over, elements=elements
        )
        return term

    def _chosen(self, name: str, pending: list[Step]) -> Mapping[str, Value]:
        """A value for a variable; with those of others where they are listed together."""
        rows = rows_for(self, name)
        if rows is not None:
            found = self._listed(rows, pending)
            self.listed.update(found)
            return found
        if name in self.fixed:
            return {name: self.fixed[name]}
        if self.case.sorts[name] in ("i64", "String"):
            return {name: self._guided(name, pending)}
        return {name: self._generated(name)}

    def _listed(self, rows: list[dict[str, Value]], pending: list[Step]) -> dict[str, Value]:
        """One of some rows that no guard excludes at once, every other time one that some guard hardly admits; or the one that is
        nearest to what is fixed."""
        if any(name in self.fixed for row in rows for name in row):
            return min(rows, key=self._distance)
        self.rng.shuffle(rows)
        orders = [step for step in pending if step.kind == "primitive" and step.head in ORDERS]
        close = self.rng.choice(orders) if orders and self.rng.random() < 0.5 else None
        guards = [step for step in pending if step.kind in GUARDS]
        rooms = (
            (left, row)
            for row in rows
            if (left := room(self.world, {**self.env, **row}, guards, close)) is not None
        )
        found = min(rooms, key=lambda each: each[0], default=None) if close else next(rooms, None)
        if found is None:
            raise Reject
        return found[1]

    def _distance(self, row: dict[str, Value]) -> int:
        pairs = [(self.fixed[name], value) for name, value in row.items() if name in self.fixed]
        return sum(abs(a - b) if isinstance(a, int) else a != b for a, b in pairs)

    def _guided(self, name: str, pending: list[Step]) -> Value:
        """A number or word that no guard excludes at once, if one is found soon."""
        borders = self.case.borders if self.number % 2 and self.case.sorts[name] == "i64" else ()
        guards = [step for step in pending if step.kind in GUARDS]
        found = self._generated(name)
        for draw in range(DRAWS):
            if room(self.world, {**self.env, name: found}, guards) is not None:
                break
            if borders and draw % 3 == 2:  # the generators know only of small numbers
                found = self.rng.choice(borders) + self.rng.choice((0, 0, 1, -1))
            else:
                found = self._generated(name)
        return found

    def stretched(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape with the extents that are fixed, if its points are only counted."""
        if not self.counted:
            return shape
        names = [f"{name} {at}" for at in range(len(shape))]
        found = {each: int(self.fixed.get(each, size)) for each, size in zip(names, shape, strict=True)}
        if min(found.values(), default=1) < 1:
            raise Reject
        self.extents.update(found)
        return tuple(found.values())

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
        if not self.env.keys() >= step.needs:
            if step.kind == "term" and step.out is not None and self.bound(step.out):
                return self._destructured(step)
            if step.head in SPELLING and self.bound(step.out):
                return self._spelled_apart(step)
            if step.kind == "predicate" and all(map(self.bound, step.args[:-1])):
                found = value_of(
                    self.world, str(self.get(step.args[0])), tuple(map(self.get, step.args[1:-1]))
                )
                if found is None and step.args[0] == Lit("tail"):
                    found = self.rng.choice(tails(self.world, self.get(step.args[1])))
                if found is not None:
                    self.bind(step.args[-1], found)
                    return True
            return step.kind == "relation" and self._only_row(step)
        args = tuple(map(self.get, step.args))
        match step.kind:
            case "term":
                if step.head in ("Input", "Arg"):
                    self.program_input(args[0], step)
                term = self.world.build(step.head, args)
                if step.head == "Fill" and not self.world.facts.free(args[2]) <= set(filled_axes(args[1])):
                    raise Reject  # no buffer is filled so
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
                self._row(step.head, args)
            case "predicate":
                if args[0] == "output":
                    if self.world.context.outputs.setdefault(args[1], args[2]) != args[2]:
                        raise Reject
                elif not holds(self.world, args):
                    raise Reject
        return True

    def _only_row(self, step: Step) -> bool:
        """Whether one row alone of a table fits what is known, and has been taken."""
        if self.invents(step.head) or not any(map(self.bound, step.args)):
            return False
        rows = [row for row in self.schema.facts[step.head] if self._fits(step, row)]
        if not rows:
            raise Reject
        if len(rows) > 1:
            return False
        for arg, value in zip(step.args, rows[0], strict=True):
            self.bind(arg, value)
        self._row(step.head, rows[0])
        return True

    def _row(self, table: str, args: tuple[Value, ...]) -> None:
        """A row of a table, or one that a user's file may add."""
        told = self.world.context.rows.setdefault(table, [])
        if args not in self.schema.facts[table]:
            words = [tuple(each for each in row if isinstance(each, str)) for row in self.schema.facts[table]]
            if not self.invents(table) or tuple(each for each in args if isinstance(each, str)) not in words:
                raise Reject
        if args not in told:
            told.append(args)

    def invents(self, table: str) -> bool:
        """Whether rows of a table are made up, in every other try."""
        turn = sum(map(ord, table)) % 4
        return self.schema.grows(table) and self.number >> turn & 1 == 1

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

    def _spelled_apart(self, step: Step) -> bool:
        assert step.out is not None
        found = apart(self, step, self.get(step.out), self.rng)
        if found is None:
            raise Reject
        for arg, value in found:
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
            options = (1, 0, -1) if name == "fusible" else (value, 0)
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

    # ---- values ----

    def _generated(self, name: str) -> Value:
        sort = self.case.sorts[name]
        uses = self.case.uses[name]
        for step, position in uses:
            if step.kind == "relation":
                told = [row for row in self.world.context.rows.get(step.head, ()) if self._fits(step, row)]
                if told and self.rng.random() < 0.85:
                    return self.rng.choice(told)[position]
                if self.invents(step.head) and sort == "i64":
                    continue
                rows = [row for row in self.schema.facts[step.head] if self._fits(step, row)]
                if sort == "String":  # a name that all tables have in which it is looked up
                    rows = [row for row in rows if all(self._named(other, row[position]) for other in uses)]
                if not rows and not self.invents(step.head):
                    raise Reject
                return self.rng.choice(rows or self.schema.facts[step.head])[position]
            if step.kind == "predicate":
                found = satisfying(self, name, step, position)
                if found is not None:
                    return found
        generator = GENERATORS.get(sort)
        how = spelled(self.case).get(name)
        if generator is not None and how is not None:
            drawn = (generator(self, name, uses) for _ in range(SPELLINGS))
            found = spelled_so(self, how, drawn, uses)
            if found is None:
                raise Reject
            return found
        if generator is not None:
            return generator(self, name, uses)
        return built(self, sort, 0)

    def _fits(self, step: Step, row: tuple[Value, ...]) -> bool:
        env = self.env
        for arg, value in zip(step.args, row, strict=True):
            if (env.get(arg.name, value) if isinstance(arg, Var) else arg.value) != value:
                return False
        return True

    def _named(self, use: tuple[Step, int], name: Value) -> bool:
        """Whether a table has a row with this name there; what is no table has any."""
        step, position = use
        rows = self.schema.facts[step.head] if step.kind == "relation" else ()
        return step.kind != "relation" or any(row[position] == name and self._fits(step, row) for row in rows)
