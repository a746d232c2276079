"""Ground terms: what the variables of a rule stand for in one instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Value = Any
"""An int, str, bool, Term, a tuple of values (a Vec), a frozenset of values (a Set), or a Function."""


READABLE = 1000
"""Constructors in a term that is spelled out."""


class Term:
    """A constructor applied to values. Heads that begin with ``?`` are opaque: any value of their sort. ``size``: constructors
    in it, each as often as it occurs: a term that repeats its parts may have more than there is time to look at."""

    __slots__ = ("_hash", "args", "head", "size")

    def __init__(self, head: str, args: tuple[Value, ...]) -> None:
        self.head = head
        self.args = args
        self._hash = hash((head, args))
        self.size: int = 1 + sum(each.size for each in args if isinstance(each, Term))

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
        if self.size > READABLE:
            return f"({self.head} …)"
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
    """Every term in a value, outermost first, each once."""
    seen: set[Term] = set()
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, Term):
            if each in seen:
                continue
            seen.add(each)
            yield each
            todo += reversed(each.args)
        elif isinstance(each, tuple | frozenset):
            todo += reversed(tuple(each))


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
