"""The engine's primitives in Python: 64-bit integers whose overflow fails, vectors, sets, booleans.

``/`` and ``%`` truncate towards zero. A primitive that fails makes no match in a body and stops the engine in an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .term import Term, Value, show

LIMIT = 1 << 63

ORDERS = ("<", "<=", ">", ">=")
"""Of numbers."""

LONGEST = 1 << 12
"""Elements of a vector; a longer one is no index and no shape."""


class Fails(Exception):
    """A primitive has no value at these arguments."""


@dataclass(frozen=True)
class Function:
    """``(unstable-fn "name" a …)``: a word with its first arguments."""

    name: str
    args: tuple[Value, ...]


def _integer(value: int) -> int:
    if not -LIMIT <= value < LIMIT:
        raise Fails("the integer overflows")
    return value


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise Fails("division by zero")
    quotient = abs(a) // abs(b)
    return _integer(quotient if (a < 0) == (b < 0) else -quotient)


def _remainder(a: int, b: int) -> int:
    return a - b * _quotient(a, b)


class _Unmet(Fails):
    """A condition is false; spelled only where somebody reads it."""

    def __str__(self) -> str:
        return (
            f"({' '.join(map(str, (self.args[0], *map(show, self.args[1:]))))}) does not hold"
            if self.args
            else ""
        )


def _chosen(condition: bool) -> tuple[()]:
    if not condition:
        raise _Unmet
    return ()


def _at(vector: tuple[Value, ...], index: int) -> Value:
    if not 0 <= index < len(vector):
        raise Fails("the index is outside of the vector")
    return vector[index]


def _with(vector: tuple[Value, ...], index: int, value: Value) -> tuple[Value, ...]:
    _at(vector, index)
    return (*vector[:index], value, *vector[index + 1 :])


def _without(vector: tuple[Value, ...], index: int) -> tuple[Value, ...]:
    _at(vector, index)
    return (*vector[:index], *vector[index + 1 :])


def _short(vector: tuple[Value, ...]) -> tuple[Value, ...]:
    if len(vector) > LONGEST:
        raise Fails(f"a vector of {len(vector)} elements")
    return vector


def _range(count: int) -> tuple[Value, ...]:
    if count > LONGEST:
        raise Fails(f"a vector of {count} elements")
    return tuple(range(count))


def _shift(value: int, by: int) -> int:
    if not 0 <= by < 64:
        raise Fails("a shift by more than the width")
    return by


def _popped(vector: tuple[Value, ...]) -> tuple[Value, ...]:
    _at(vector, 0)
    return vector[:-1]


def _plus(*values: Any) -> Any:
    return "".join(values) if isinstance(values[0], str) else _integer(sum(values))


def _log2(value: int) -> int:
    if value <= 0:
        raise Fails("the logarithm of what is not positive")
    return value.bit_length() - 1


def _signed(value: int) -> int:
    return (value + LIMIT) % (2 * LIMIT) - LIMIT


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "+": _plus,
    "-": lambda a, b=None: _integer(-a if b is None else a - b),
    "*": lambda a, b: _integer(a * b),
    "/": _quotient,
    "%": _remainder,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: _signed(a << _shift(a, b)),
    ">>": lambda a, b: a >> _shift(a, b),
    "not-i64": lambda a: ~a,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "abs": lambda a: _integer(abs(a)),
    "log2": _log2,
    "<": lambda a, b: _chosen(a < b),
    "<=": lambda a, b: _chosen(a <= b),
    ">": lambda a, b: _chosen(a > b),
    ">=": lambda a, b: _chosen(a >= b),
    "!=": lambda a, b: _chosen(a != b),
    "bool-=": lambda a, b: a == b,
    "bool-!=": lambda a, b: a != b,
    "bool-<": lambda a, b: a < b,
    "bool-<=": lambda a, b: a <= b,
    "bool->": lambda a, b: a > b,
    "bool->=": lambda a, b: a >= b,
    "and": lambda *values: all(values),
    "or": lambda *values: any(values),
    "not": lambda a: not a,
    "xor": lambda a, b: a != b,
    "=>": lambda a, b: not a or b,
    "guard": lambda a: _chosen(a),
    "vec-of": lambda *values: values,
    "vec-empty": lambda: (),
    "vec-length": len,
    "vec-get": _at,
    "vec-set": _with,
    "vec-push": lambda vector, value: (*vector, value),
    "vec-pop": _popped,
    "vec-append": lambda *vectors: _short(tuple(each for vector in vectors for each in vector)),
    "vec-remove": _without,
    "vec-contains": lambda vector, value: _chosen(value in vector),
    "vec-not-contains": lambda vector, value: _chosen(value not in vector),
    "vec-range": _range,
    "set-of": lambda *values: frozenset(values),
    "set-empty": lambda: frozenset(),
    "set-insert": lambda s, value: s | {value},
    "set-remove": lambda s, value: s - {value},
    "set-union": lambda *sets: frozenset().union(*sets),
    "set-diff": lambda a, b: a - b,
    "set-intersect": lambda *sets: frozenset.intersection(*sets),
    "set-length": len,
    "set-get": lambda s, index: _at(tuple(sorted(s, key=repr)), index),
    "set-contains": lambda s, value: _chosen(value in s),
    "set-not-contains": lambda s, value: _chosen(value not in s),
    "unstable-fn": lambda name, *args: Function(name, args),
    "unstable-app": None,  # type: ignore[dict-item]  # these three apply a function, see :func:`compute`
    "unstable-vec-map": None,  # type: ignore[dict-item]
    "unstable-vec-fold": None,  # type: ignore[dict-item]
}


def compute(head: str, args: tuple[Value, ...], build: Callable[[str, tuple[Value, ...]], Value]) -> Value:
    """The value of a primitive; ``build`` gives that of a word that a function value names. Raises Fails."""

    def apply(function: Value, *more: Value) -> Value:
        if not isinstance(function, Function):
            raise Fails("what is applied is no function")
        if function.name in PRIMITIVES:
            return compute(function.name, (*function.args, *more), build)
        return build(function.name, (*function.args, *more))

    try:
        if head == "unstable-app":
            return apply(*args)
        if head == "unstable-vec-map":
            function, vector = args
            return tuple(apply(function, each) for each in vector)
        if head == "unstable-vec-fold":
            function, value, vector = args
            for each in vector:
                value = apply(function, value, each)
            return value
        result: Value = PRIMITIVES[head](*args)
        return result
    except _Unmet:
        raise _Unmet(head, *args) from None
    except (TypeError, AttributeError, ValueError) as error:
        raise Fails(f"({head} …) does not take such arguments: {error}") from None


def is_term(value: Value) -> bool:
    return isinstance(value, Term)
