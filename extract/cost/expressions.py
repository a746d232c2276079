"""Arithmetic that is written as text, and functions made of it: of numbers, or of anything else that adds and multiplies.

Text holds names, numbers, ``+ - * /``, comparisons, and calls of the functions that are given, and nothing else is let
through. What is known is worked in first; what is left becomes one Python function, since extraction asks for a cost some
hundred thousand times.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any

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


def folded(
    text: str,
    known: Mapping[str, ast.expr],
    functions: Mapping[str, Callable[..., Any]],
) -> ast.expr:
    """``text`` with what is ``known`` of its names put in: a constant where all of it is. Raises KeyError for a name or
    function that is in none of them, TypeError for other syntax."""
    return _folded(_parsed(text), known, functions)


def constant(value: Any) -> ast.expr:
    return ast.Constant(value)


def function(
    parameters: Sequence[str],
    steps: Iterable[tuple[str, ast.expr]],
    results: Sequence[ast.expr],
    functions: Mapping[str, Callable[..., Any]],
) -> Callable[..., tuple[Any, ...]]:
    """A function of ``parameters`` that gives each step's value a name, in turn, and returns ``results``. Expressions are
    those of :func:`folded`."""
    found: Callable[..., tuple[Any, ...]] = _made(
        parameters, _steps(steps), ast.Tuple(list(results), ast.Load()), functions
    )
    return found


def of_sequence(
    values: Sequence[str],
    parameters: Sequence[str],
    steps: Iterable[tuple[str, ast.expr]],
    result: ast.expr,
    functions: Mapping[str, Callable[..., Any]],
    chooses: bool = True,
) -> FunctionType:
    """The same of a sequence of numbers, whose ``values`` have these names, and of ``parameters``, with one result. ``chooses``: of a
    ``where`` one side is looked at; of arrays, both are."""
    chosen = _Chosen() if chooses else ast.NodeTransformer()
    steps = [(name, chosen.visit(copy.deepcopy(value))) for name, value in steps]
    named = ast.Tuple([ast.Name(name, ast.Store()) for name in values], ast.Store())
    first = ast.Assign([named], ast.Name("sequence", ast.Load()))
    made = _steps(steps)
    return _made(("sequence", *parameters), [first, *made], chosen.visit(copy.deepcopy(result)), functions)


def bound(made: FunctionType, values: Sequence[Any]) -> Callable[..., Any]:
    """``made`` with its last parameters given."""
    return FunctionType(made.__code__, made.__globals__, made.__name__, tuple(values))


def _steps(steps: Iterable[tuple[str, ast.expr]]) -> list[ast.stmt]:
    return [ast.Assign([ast.Name(name, ast.Store())], value) for name, value in steps]


def _made(
    parameters: Sequence[str],
    body: Sequence[ast.stmt],
    result: ast.expr,
    functions: Mapping[str, Callable[..., Any]],
) -> FunctionType:
    arguments = ast.arguments([], [ast.arg(name) for name in parameters], None, [], [], None, [])
    made = ast.FunctionDef("made", arguments, [*body, ast.Return(result)], [])
    module = ast.fix_missing_locations(ast.Module([made], []))
    # no text is run here: the nodes are those that _folded lets through, over the names that are given and no builtins
    names: dict[str, Any] = {"__builtins__": {}, **functions}
    exec(compile(module, "<formulas>", "exec"), names)
    found: FunctionType = names["made"]
    return found


class _Chosen(ast.NodeTransformer):
    """``where`` of numbers as a condition, which is no call."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("where"), [condition, then, otherwise], []):
                return ast.IfExp(condition, then, otherwise)
        return node


def names_of(value: ast.expr) -> frozenset[str]:
    """The names in an expression."""
    return frozenset(node.id for node in ast.walk(value) if isinstance(node, ast.Name))


def hoisted(value: ast.expr, late: Collection[str], early: list[tuple[str, ast.expr]]) -> ast.expr:
    """``value`` with names for the largest parts in which none of the names ``late`` is; the parts are added to ``early``."""
    if isinstance(value, ast.Constant | ast.Name):
        return value
    if names_of(value).isdisjoint(late):
        early.append((f"early{len(early)}", value))
        return ast.Name(early[-1][0], ast.Load())
    match value:
        case ast.BinOp(left, sign, right):
            return ast.BinOp(hoisted(left, late, early), sign, hoisted(right, late, early))
        case ast.Compare(left, signs, [right]):
            return ast.Compare(hoisted(left, late, early), signs, [hoisted(right, late, early)])
        case ast.Call(called, arguments, []):
            return ast.Call(called, [hoisted(each, late, early) for each in arguments], [])
    raise TypeError(f"{ast.unparse(value)} is no arithmetic")


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _folded(
    node: ast.expr, known: Mapping[str, ast.expr], functions: Mapping[str, Callable[..., Any]]
) -> ast.expr:
    match node:
        case ast.Constant(int() | float()):
            return node
        case ast.Name(name):
            return known[name]
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATORS:
            one, two = (_folded(each, known, functions) for each in (left, right))
            return _simple(_OPERATORS[type(sign)], one, two) or ast.BinOp(one, sign, two)
        case ast.Compare(left, [sign], [right]) if type(sign) in _OPERATORS:
            one, two = (_folded(each, known, functions) for each in (left, right))
            return _simple(_OPERATORS[type(sign)], one, two) or ast.Compare(one, [sign], [two])
        case ast.Call(ast.Name(name), arguments, []):
            called = functions[name]
            parts = [_folded(each, known, functions) for each in arguments]
            if all(isinstance(part, ast.Constant) for part in parts):
                return constant(called(*map(_value, parts)))
            return ast.Call(ast.Name(name, ast.Load()), parts, [])
    raise TypeError(f"{ast.unparse(node)} is no arithmetic")


def _simple(operation: Callable[[Any, Any], Any], one: ast.expr, two: ast.expr) -> ast.expr | None:
    """The result, where both are constants, or where one is 0 or 1 and says enough."""
    a, b = _value(one), _value(two)
    if a is not None and b is not None:
        return constant(operation(a, b))
    if a == 0 and operation in (operator.mul, operator.truediv):
        return constant(0.0)
    if b == 0 and operation is operator.mul:
        return constant(0.0)
    if (a == 0 and operation is operator.add) or (a == 1 and operation is operator.mul):
        return two
    if (b == 0 and operation in (operator.add, operator.sub)) or (
        b == 1 and operation in (operator.mul, operator.truediv)
    ):
        return one
    return None


def _value(node: ast.expr) -> Any:
    return node.value if isinstance(node, ast.Constant) else None
