"""Operators and dtypes for one attempt: a small constraint problem, solved before any term is built."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from tinyc.ir import tiny
from tinyc.ir.dtypes import DType
from tinyc.ir.infer import computes
from tinyc.ir.tiny import BINARY, COMPARE, REDUCE_OPS, UNARY

from .context import BITS, DTYPES
from .parse import Call, Lit, Pattern, Schema, Var, calls
from .predicates import PREDICATES
from .primitives import Fails
from .steps import Arg, Case, Step

OPERATORS: dict[tuple[str, int], tuple[str, ...]] = {
    ("Unary", 0): tiny.OPERATORS, ("TUnary", 0): UNARY,
    ("Binary", 0): (*BINARY, *COMPARE), ("TBinary", 0): (*BINARY, *COMPARE),
    ("Reduce", 0): REDUCE_OPS, ("TReduce", 0): REDUCE_OPS,
}  # fmt: skip
_NAMED = {("Cast", 0), ("TCast", 0), ("Const", 0), ("Imm", 0), ("Fill", 0)}
_TYPED = ("Expr", "Tensor", "Buf")


def misspelt(patterns: Sequence[Pattern]) -> Iterator[str]:
    """Words in the place of an operator or dtype that name none, and bits that no constant has: what speaks of them matches
    nothing."""
    told = dict(_told(patterns))
    for call in (call for part in patterns for call in calls(part)):
        first = call.args[0] if call.args else None
        if isinstance(first, Lit) and isinstance(first.value, str):
            known = OPERATORS.get((call.head, 0))
            if known is not None and first.value not in known:
                yield f'"{first.value}" is no operator of {call.head}'
            if (call.head, 0) in _NAMED and first.value not in DTYPES:
                yield f'"{first.value}" is no dtype'
            elif call.head in ("Const", "Imm"):
                yield from _no_bits(
                    first.value,
                    [told.get(each.name, each) if isinstance(each, Var) else each for each in call.args[1:]],
                )
        if call.head == "=" and any(
            isinstance(each, Call) and each.head in ("dtype", "dtype-of") for each in call.args
        ):
            said = (each.value for each in call.args if isinstance(each, Lit))
            yield from (f'"{each}" is no dtype' for each in said if each not in DTYPES)


def _told(patterns: Sequence[Pattern]) -> Iterator[tuple[str, Lit]]:
    """Variables, and the literals that they are equal to."""
    for fact in patterns:
        if isinstance(fact, Call) and fact.head == "=":
            known = [each for each in fact.args if isinstance(each, Lit)]
            yield from ((each.name, known[0]) for each in fact.args if isinstance(each, Var) and known)


def _no_bits(dtype: str, args: Sequence[Pattern]) -> Iterator[str]:
    for each in args:
        if isinstance(each, Lit) and not (type(each.value) is int and 0 <= each.value < 1 << BITS[dtype]):
            number = (
                ""
                if dtype == "bool"
                else f"; a number has a {'sign' if dtype == 'i32' else 'decimal point'}, and is not too large"
            )
            yield f"{each} are no bits of {dtype}, which go up to {(1 << BITS[dtype]) - 1}{number}"


class NoTypes(Exception):
    """The steps agree on no operators and dtypes."""


class Types:
    """``ops``: of variables in operator position; ``dtype``: of every variable that has one."""

    def __init__(self, schema: Schema, case: Case, rng: random.Random, attempt: int) -> None:
        self.schema, self.case, self.rng = schema, case, rng
        self.parent: dict[str, str] = {}
        self.fixed: dict[str, str] = {}
        self.legal: dict[str, set[str]] = {}
        self.ops = self._operators(attempt)
        for step in case.steps:
            self._unify(step)
        self.classes = self._solve()

    def dtype(self, name: str) -> str:
        return self.classes[self._find(name)]

    def strings(self) -> dict[str, str]:
        """Values of the string variables."""
        named = {name: self.classes[self._find(name)] for name, sort in self.case.sorts.items() if sort == "String"
                 and name not in self.ops and self._find(name) in self.classes}  # fmt: skip
        return {**self.ops, **named}

    # ---- operators ----

    def _operators(self, attempt: int) -> dict[str, str]:
        found: dict[str, set[str]] = {}
        order: dict[str, tuple[str, ...]] = {}
        for step in self.case.steps:
            for position, arg in enumerate(step.args):
                known = OPERATORS.get((step.head, position)) if step.kind == "term" else None
                if isinstance(arg, Var) and known:
                    found[arg.name] = found.get(arg.name, set(known)) & set(known)
                    order.setdefault(arg.name, known)
        tables = [
            (step.args, rows)
            for step in self.case.steps
            if step.kind == "relation" and (rows := _rows(self.schema, step))
        ]
        chosen: dict[str, str] = {}
        for number, (name, options) in enumerate(found.items()):
            for args, rows in tables:
                for position in (at for at, arg in enumerate(args) if arg == Var(name)):
                    options &= {str(row[position]) for row in rows if _agrees(args, row, chosen)}
            listed = [each for each in order[name] if each in options]
            if not listed:
                raise NoTypes
            # every operator comes up in turn, whatever the others are
            chosen[name] = listed[(attempt * (1 + 2 * number) + number) % len(listed)]
        return chosen

    def _op(self, arg: Arg) -> str:
        return str(arg.value) if isinstance(arg, Lit) else self.ops.get(arg.name, "")

    # ---- dtypes ----

    def _find(self, name: str) -> str:
        while name in self.parent:
            name = self.parent[name]
        return name

    def _node(self, arg: Arg | None) -> str | None:
        if arg is None:
            return None
        if isinstance(arg, Lit):
            name = f"={arg.value}"
            self.fixed[name] = str(arg.value)
            return name
        return arg.name

    def _same(self, a: Arg | None, b: Arg | None) -> None:
        x, y = self._node(a), self._node(b)
        if x is None or y is None:
            return
        x, y = self._find(x), self._find(y)
        if x != y:
            if x in self.fixed and y in self.fixed and self.fixed[x] != self.fixed[y]:
                raise NoTypes
            if x in self.fixed:
                self.fixed.setdefault(y, self.fixed[x])
            self.parent[x] = y
            if x in self.legal:
                self.legal[y] = self.legal.get(y, set(DTYPES)) & self.legal[x]

    def _allow(self, arg: Arg, legal: Sequence[str]) -> None:
        node = self._node(arg)
        if node is not None:
            root = self._find(node)
            self.legal[root] = self.legal.get(root, set(DTYPES)) & set(legal)

    def _unify(self, step: Step) -> None:
        args, out = step.args, step.out
        bool_, fp32 = Lit("bool"), Lit("fp32")
        if step.kind == "fact":
            if step.head in ("dtype", "dtype-of"):
                self._same(args[0], out)
            return
        if step.kind != "term":
            return
        match step.head:
            case "Unary" | "TUnary":
                self._same(args[1], out)
                self._allow(args[1], [d for d in DTYPES if computes(self._op(args[0]), DType(d))])
            case "Binary" | "TBinary":
                self._same(args[1], args[2])
                op = self._op(args[0])
                self._allow(args[1], [d for d in DTYPES if computes(op, DType(d))])
                self._same(bool_ if op in COMPARE else args[1], out)
            case "Select" | "TWhere":
                self._same(args[0], bool_)
                self._same(args[1], args[2])
                self._same(args[1], out)
            case "Within" | "Valid":
                self._same(out, bool_)
            case "Reduce" | "TReduce":
                self._same(args[2], out)
                if self._op(args[0]) in ("SUM", "PROD"):
                    self._allow(args[2], [d for d in DTYPES if d != "bool"])
            case "Stream":
                self._same(args[1], fp32)
                self._same(args[2], fp32)
                self._same(out, fp32)
            case "RoundedStream":
                self._same(args[2], fp32)
                self._same(args[3], fp32)
                self._same(out, fp32)
            case "Cast" | "TCast" | "Const" | "Imm":
                self._same(args[0], out)
            case "Fill":
                self._same(args[0], out)
                self._same(args[2], out)
            case "Alias" | "Out":
                self._same(args[1], out)
            case "Pad":
                self._same(args[0], args[4])
                self._same(args[0], out)
            case "Reshape" | "Permute" | "Expand" | "Shrink" | "Flip" | "View" | "At" | "Read":
                self._same(args[0], out)

    def _solve(self) -> dict[str, str]:
        names = {name for name, sort in self.case.sorts.items() if sort in _TYPED}
        for step in self.case.steps:
            for position, arg in enumerate(step.args):
                if isinstance(arg, Var) and step.kind == "term" and (step.head, position) in _NAMED:
                    names.add(arg.name)
            if step.kind == "fact" and step.head in ("dtype", "dtype-of") and isinstance(step.out, Var):
                names.add(step.out.name)
        roots = sorted({self._find(name) for name in names})
        relations = []
        for step in self.case.steps:
            rows = _rows(self.schema, step)
            nodes = [self._node(arg) for arg in (step.args[1:] if step.kind == "predicate" else step.args)]
            involved = [self._find(node) for node in nodes if node]
            if rows is not None and any(node in roots for node in involved):
                relations.append((involved, rows))
        result: dict[str, str] = {name: value for name, value in self.fixed.items() if name.startswith("=")}

        def consistent() -> bool:
            for involved, rows in relations:
                values = [result.get(node) for node in involved]
                if not any(
                    all(v is None or v == r for v, r in zip(values, row, strict=False)) for row in rows
                ):
                    return False
            return True

        def assign(position: int) -> bool:
            if position == len(roots):
                return True
            root = roots[position]
            options = list(self.legal.get(root, DTYPES) if root not in self.fixed else [self.fixed[root]])
            if root in self.fixed and root in self.legal:
                options = [each for each in options if each in self.legal[root]]
            options.sort(key=DTYPES.index) if all(each in DTYPES for each in options) else None
            self.rng.shuffle(options)
            for each in options:
                result[root] = each
                if consistent() and assign(position + 1):
                    return True
                del result[root]
            return False

        if not assign(0):
            raise NoTypes
        return result


def _agrees(args: Sequence[Arg], row: Sequence[object], chosen: Mapping[str, str]) -> bool:
    """Whether a row of a table has the literals and the operators that are known."""
    known = (arg.value if isinstance(arg, Lit) else chosen.get(arg.name) for arg in args)
    return all(each is None or each == value for each, value in zip(known, row, strict=True))


def _rows(schema: Schema, step: Step) -> list[tuple[object, ...]] | None:
    """The rows of a relation that is a table, or of a predicate on strings; None for others."""
    if step.kind == "relation":
        return list(schema.facts.get(step.head, ()))
    if (
        step.kind == "predicate"
        and isinstance(step.args[0], Lit)
        and step.args[0].value in ("float", "accumulator")
    ):
        name = str(step.args[0].value)
        return [(each,) for each in DTYPES if PREDICATES[name](None, each)]
    return None


__all__ = ["Fails", "NoTypes", "Types"]
