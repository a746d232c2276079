"""Whether the terms of a rule are of the sorts that the words around them take: the engine refuses a rule where they are not."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

from .parse import Call, Lit, Pattern, Rule, Schema, Var, variables
from .spelled import ALIKE, CHANGED, ELEMENTS

_NUMBERS = frozenset(
    ["-", "*", "/", "%", "&", "|", "^", "<<", ">>", "min", "max", "abs", "log2", "not-i64", "<", "<=", ">", ">="]
)  # fmt: skip
"""Primitives whose operands are integers; ``+`` joins strings as well."""

_TESTS = frozenset(["<", "<=", ">", ">=", "!="])
_COUNTS = frozenset(["vec-length", "set-length"])


def ill_sorted(rule: Rule, schema: Schema) -> Iterator[str]:
    """Why the engine refuses a rule for the sort of a term, one reason at most."""
    sorts = _Sorts(schema)
    for _ in range(3):  # what stands further on says of which sort a variable is
        sorts.wrong.clear()
        for fact in rule.body:
            sorts.fact(fact)
        for action in rule.actions:
            sorts.action(action)
    yield from sorts.wrong[:1]


def unbound(rule: Rule) -> Iterator[str]:
    """Actions that speak of variables of which the body says nothing."""
    known = set(variables(rule.body))
    for action in rule.actions:
        name = action.args[0] if action.head == "let" and len(action.args) == 2 else None
        said = action.args[1:] if isinstance(name, Var) else (action,)
        missing = [each for each in variables(said) if each not in known]
        if missing:
            yield f"the action {action} speaks of {', '.join(missing)}, which the body does not bind"
        if isinstance(name, Var):
            known.add(name.name)


class _Sorts:
    """``of``: the sort of each variable, as far as it is known; ``wrong``: what does not fit."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.of: MutableMapping[str, str] = {}
        self.wrong: list[str] = []

    def fact(self, fact: Call) -> None:
        if fact.head == "=":
            self.equal(fact.args, str(fact))
        else:
            self.sort(fact, "", "")

    def action(self, action: Call) -> None:
        match action.head, action.args:
            case "let", (Var(name), value):
                found = self.sort(value, self.of.get(name, ""), str(action))
                if found:
                    self.of.setdefault(name, found)
            case "union", (_, _):
                found = self.equal(action.args, str(action))
                if found in ("i64", "String", "bool") or found in self._containers():
                    self.wrong.append(f"{action} makes two values of sort {found} one, which are no terms")
            case "set", (Call(head) as call, value):
                if head in self.schema.functions:
                    self.sort(value, self.schema.functions[head].result, str(action))
                elif head in self.schema.constructors or head in self.schema.relations:
                    self.wrong.append(f"{action} sets {head}, which is no function")
                self.sort(call, "", "")
            case "panic", _:
                pass
            case _:
                self.sort(action, "", "")

    def _containers(self) -> frozenset[str]:
        return frozenset(name for name, made in self.schema.sorts.items() if made)

    def equal(self, parts: Sequence[Pattern], where: str) -> str:
        """The sort of terms that are equal."""
        known = ""
        for each in (*parts, *parts[:-1]):  # the last may say what the first is
            known = self.sort(each, known, where) or known
        return known

    def sort(self, found: Pattern, wanted: str, where: str) -> str:
        """The sort of a pattern, which ``where`` wants to be another; "" where it is not known."""
        if isinstance(found, Var):
            known = self.of.setdefault(found.name, wanted) if wanted else self.of.get(found.name, "")
        elif isinstance(found, Lit):
            value = found.value
            known = "bool" if isinstance(value, bool) else "String" if isinstance(value, str) else "i64"
        else:
            known = self._call(found, wanted)
        if wanted and known and wanted != known:
            self.wrong.append(f"{found} is of sort {known}, and {where} takes {wanted} there")
        return known

    def _call(self, call: Call, wanted: str) -> str:
        signature = self.schema.signature(call.head)
        if signature is not None:
            for each, sort in zip(call.args, signature.args, strict=False):
                self.sort(each, sort, str(call))
            return signature.result
        return self._primitive(call, wanted)

    def _primitive(self, call: Call, wanted: str) -> str:
        where, head = str(call), call.head
        if head in _NUMBERS or head in _COUNTS:
            for each in call.args:
                self.sort(each, "i64" if head in _NUMBERS else "", where)
            return "" if head in _TESTS else "i64"
        if head == "!=":
            self.equal(call.args, where)
            return ""
        if head in ("vec-of", "set-of"):
            for each in call.args:
                self.sort(each, self._element(wanted), where)
            return wanted
        container = ""
        if head in ALIKE or head in CHANGED:
            container = wanted
        for position, each in enumerate(call.args):
            if head in ALIKE or position == 0:
                container = self.sort(each, container, where) or container
            elif position == ELEMENTS.get(head):
                self.sort(each, self._element(container), where)
            else:
                self.sort(
                    each, "i64" if head in ("vec-get", "set-get", "vec-set", "vec-remove") else "", where
                )
        if head in ("vec-get", "set-get"):
            return self._element(container)
        return container if head in ALIKE or head in CHANGED else ""

    def _element(self, container: str) -> str:
        declared = self.schema.sorts.get(container, ())
        return declared[1] if len(declared) > 1 and declared[0] in ("Vec", "Set") else ""
