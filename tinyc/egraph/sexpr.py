"""Rule text as data: what the engine's parser reads, as nested tuples."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .forms import tokens

_INTEGER = re.compile(r"-?\d+")


class Quoted(str):
    """A string literal, without its quotes. A plain ``str`` is a symbol."""

    __slots__ = ()


Sexpr = str | int | tuple["Sexpr", ...]
"""A symbol, a string literal (:class:`Quoted`), an integer, or a list. Other literals (1.5, true) are symbols."""


Tokens = str | list["Tokens"]
"""A token as it stands in the text, strings with their quotes; or a list."""


def read(text: str) -> list[Tokens]:
    """The forms of ``text``, token by token. Raises ValueError where parentheses do not match."""
    stack: list[list[Tokens]] = [[]]
    for token in tokens(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise ValueError("a parenthesis is closed that was never opened")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise ValueError("a parenthesis is not closed")
    return stack[0]


def parse(text: str) -> tuple[Sexpr, ...]:
    """The forms of ``text``, which must be well-formed (``rulefiles.forms_of`` has seen to that)."""
    return tuple(map(_typed, read(text)))


def _typed(form: Tokens) -> Sexpr:
    if isinstance(form, list):
        return tuple(map(_typed, form))
    if form.startswith('"'):
        return Quoted(form[1:-1])
    return int(form) if _INTEGER.fullmatch(form) else form


def spell(expression: Sexpr) -> str:
    """The text of one form, on one line."""
    if isinstance(expression, tuple):
        return f"({' '.join(map(spell, expression))})"
    return f'"{expression}"' if isinstance(expression, Quoted) else str(expression)


def head(expression: Sexpr) -> str:
    """What a list starts with; "" for anything else."""
    if isinstance(expression, tuple) and expression and isinstance(expression[0], str):
        return expression[0]
    return ""


def symbols(expression: Sexpr) -> Iterator[str]:
    """Every symbol in an expression, heads of lists included, in order."""
    if isinstance(expression, tuple):
        for part in expression:
            yield from symbols(part)
    elif isinstance(expression, str) and not isinstance(expression, Quoted):
        yield expression
