"""Ground terms: what the variables of a rule stand for in one instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Value = Any
"""An int, str, bool, Term, a tuple of values (a Vec), a frozenset of values (a Set), or a Function."""


class Term:
    """A constructor applied to values. Heads that begin with ``?`` are opaque: any value of their sort."""

    __slots__ = ("_hash", "args", "head")

    def __init__(self, head: str, args: tuple[Value, ...]) -> None:
        self.head = head
        self.args = args
        self._hash = hash((head, args))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Term)
            and self._hash == other._hash
            and self.head == other.head
            and self.args == other.args
        )

    def __repr__(self) -> str:
        return f"({' '.join([self.head, *map(show, self.args)])})" if self.args else self.head


def show(value: Value) -> str:
    """A value as rule files spell it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(show, value)))}}}"
    return repr(value)


def walk(value: Value) -> Iterator[Term]:
    """Every term in a value, outermost first, repeated where it occurs repeatedly."""
    if isinstance(value, Term):
        yield value
        for each in value.args:
            yield from walk(each)
    elif isinstance(value, tuple | frozenset):
        for each in value:
            yield from walk(each)


def lit(value: int) -> Term:
    return Term("Lit", (value,))


def axis(number: int, extent: int) -> Term:
    return Term("Ax", (number, extent))


def plain(atom: Term) -> Term:
    """The index that is one axis."""
    return Term("Plus", (1, atom, lit(0)))


def is_axis(index: Term) -> bool:
    return (
        index.head == "Plus" and index.args[0] == 1 and index.args[1].head == "Ax" and index.args[2] == lit(0)
    )
