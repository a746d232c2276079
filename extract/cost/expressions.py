"""Arithmetic that is written as text, and functions made of it: of numbers, or of anything else that adds and multiplies.

Text is parsed, never run: names, numbers, ``+ - * /``, comparisons, and calls of the functions that are given.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

Function = Callable[[Sequence[Any]], Any]
"""Of the values of the names that may occur, in their places."""

_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.GtE: operator.ge,
}


@cache
def names_in(text: str) -> frozenset[str]:
    """The names in ``text`` that are not called."""
    nodes = list(ast.walk(_parsed(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called)


def compiled(
    text: str,
    places: Mapping[str, int],
    known: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
) -> Function | Any:
    """``text`` as a function; as its value, where all of it is known. ``places``: name -> where its value is in the
    argument; ``known``: name -> its value, which is worked in once. Raises KeyError for a name or function that is in none
    of them, TypeError for other syntax."""
    return _closure(_parsed(text), places, known, functions)


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _closure(
    node: ast.expr,
    places: Mapping[str, int],
    known: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
) -> Any:
    """A constant where nothing varies, else a Function."""

    def parts(*nodes: ast.expr) -> list[Any]:
        return [_closure(each, places, known, functions) for each in nodes]

    match node:
        case ast.Constant(int() | float() as value):
            return value
        case ast.Name(name):
            return known[name] if name in known else itemgetter(places[name])
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATORS:
            return _applied(_OPERATORS[type(sign)], parts(left, right))
        case ast.Compare(left, [sign], [right]) if type(sign) in _OPERATORS:
            return _applied(_OPERATORS[type(sign)], parts(left, right))
        case ast.Call(ast.Name(name), arguments, []):
            return _applied(functions[name], parts(*arguments))
    raise TypeError(f"{ast.unparse(node)} is no arithmetic")


def _applied(function: Callable[..., Any], parts: list[Any]) -> Any:
    """``function`` of the parts: now, where all are constants; less, where one is 0 or 1 and says enough."""
    if not any(map(callable, parts)):
        return function(*parts)
    if len(parts) == 2:
        one, two = parts
        if not callable(one):
            if one == 0 and function in (operator.mul, operator.truediv):
                return 0.0
            same = (one == 0 and function is operator.add) or (one == 1 and function is operator.mul)
            return two if same else lambda values: function(one, two(values))
        if not callable(two):
            if two == 0 and function is operator.mul:
                return 0.0
            same = two == 0 and function in (operator.add, operator.sub)
            same = same or (two == 1 and function in (operator.mul, operator.truediv))
            return one if same else lambda values: function(one(values), two)
        return lambda values: function(one(values), two(values))
    every = [part if callable(part) else lambda values, part=part: part for part in parts]
    return lambda values: function(*[part(values) for part in every])
