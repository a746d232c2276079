"""Index expressions and guards of a Region as JSON: ``"2*i2+r1-1"``, numbers, or the nested form of document 004 §6.8.

Read into :class:`Affine` as written, so that a text which tinyc wrote comes back as itself. (``dims.py`` brings sizes
and maps of Tiny IR into a normal form; here the form that extraction chose is kept.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .diagnostics import TinycError, show
from .index import Affine, Atom, affine, axis, lit
from .infer import MAX_INDEX, largest
from .region_fields import refused

MAX_TEXT = 20_000
MAX_DEPTH = 64
MAX_NUMBER = 2**62
COMPARISONS = ("ge", "gt", "lt", "le", "eq")

_Bounds = tuple[Affine, int | None, int | None]

_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_][A-Za-z0-9_]*)|(//|[-+*()%]))")


def read_index(value: object, path: str, sizes: Mapping[str, int], symbols: Mapping[str, int]) -> Affine:
    """The index expression ``value`` over the axes of ``sizes``; ``symbols`` stand for numbers. An axis hides a symbol.

    Raises TinycError MalformedDocument, UnknownReference for a name that is neither, InvalidShape beyond 62 bits.
    """

    def name(text: str, where: str) -> Affine:
        if text in sizes:
            return axis(text)
        if text in symbols:
            return lit(symbols[text])
        raise refused(
            where,
            f"{show(text)} is no axis of the Region and no bound symbol",
            "name an axis among iters or reduce_axes, or bind the symbol with a shape",
            "UnknownReference",
        )

    return _in_range(_read(value, path, name), path, sizes)


def _read(value: object, path: str, name: Callable[[str, str], Affine]) -> Affine:
    if isinstance(value, int) and not isinstance(value, bool):
        return lit(_checked(value, path))
    if isinstance(value, str):
        return _Text(value, path, name).read()
    if not isinstance(value, dict) or len(value) != 1:
        raise refused(
            path, f"an index is {show(value)}", 'use a text such as "2*i0+r0-1", or {"add": [a, b]}'
        )
    ((op, given),) = value.items()
    inner = f"{path}.{op}" if op in ("add", "sub", "mul", "floordiv") else path
    if (
        not isinstance(given, list)
        or not 2 <= len(given) <= 64
        or (len(given) > 2 and op not in ("add", "mul"))
    ):
        raise refused(
            inner, f"{show(op)} of {show(given)} in an index", "use add, sub, mul or floordiv of two indices"
        )
    parts = [_read(each, f"{inner}[{number}]", name) for number, each in enumerate(given)]
    total = parts[0]
    for part in parts[1:]:
        if op == "add":
            total = total + part
        elif op == "sub":
            total = total - part
        elif op == "mul":
            total = _product(total, part, inner)
        elif op == "floordiv":
            total = _quotient(total, part, inner)
        else:
            raise refused(path, f"there is no {show(op)} in an index", "use add, sub, mul or floordiv")
    return total


def _product(left: Affine, right: Affine, path: str) -> Affine:
    if left.terms and right.terms:
        why = f"({left}) * ({right}) multiplies two axes"
        raise refused(path, why, "an index is affine: multiply an axis by numbers and symbols only")
    product = left * right.const if left.terms else right * left.const
    for coef in (product.const, *(coef for coef, _ in product.terms)):
        _checked(coef, path)
    return product


def _quotient(left: Affine, right: Affine, path: str) -> Affine:
    if right.terms or right.const < 1:
        raise refused(path, f"({left}) // ({right})", "divide by a positive number")
    return left // right.const


def _checked(value: int, path: str) -> int:
    if abs(value) > MAX_NUMBER:
        raise refused(path, "a number beyond 62 bits in an index", "use smaller numbers")
    return value


def read_guards(
    value: object, path: str, sizes: Mapping[str, int], symbols: Mapping[str, int]
) -> list[tuple[Affine, int, int]]:
    """Conditions on indices, each as ``lo <= index < hi``: ``{"and": [{"ge": [index, number]}, …]}`` with ge, gt, lt, le,
    eq. A bound that is not given is one that always holds. Raises as :func:`read_index` does."""
    found: list[_Bounds] = []
    for index, low, high in _comparisons(value, path, sizes, symbols):
        last = found[-1] if found else None
        if last and last[0] == index and low is None and last[2] is None:
            found[-1] = (index, last[1], high)
        elif last and last[0] == index and high is None and last[1] is None:
            found[-1] = (index, low, last[2])
        else:
            found.append((index, low, high))
    if not found:
        raise refused(path, "it joins no condition", 'give conditions such as {"ge": ["i0-1", 0]}')
    guards = []
    for index, low, high in found:
        least, most = index.bounds(sizes)
        guards.append((index, least if low is None else low, most + 1 if high is None else high))
    return guards


def is_guard(value: object) -> bool:
    """Whether a JSON value is a condition on indices."""
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in ("and", *COMPARISONS)


def _comparisons(
    value: object, path: str, sizes: Mapping[str, int], symbols: Mapping[str, int]
) -> list[_Bounds]:
    if not is_guard(value) or not isinstance(value, dict):
        raise refused(path, f"a condition is {show(value)}", 'use {"ge": [index, number]} or {"lt": …}')
    ((op, given),) = value.items()
    if op == "and" and isinstance(given, list):
        parts = (
            _comparisons(each, f"{path}.and[{number}]", sizes, symbols) for number, each in enumerate(given)
        )
        return [each for part in parts for each in part]
    if op == "and" or not isinstance(given, list) or len(given) != 2:
        raise refused(path, f"a condition is {show(value)}", 'use {"ge": [index, number]} or {"lt": …}')
    left, right = (read_index(each, f"{path}.{op}[{n}]", sizes, symbols) for n, each in enumerate(given))
    if not left.terms and right.terms:
        left, right = right, left
        op = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}.get(op, op)
    if right.terms:
        left, right = _in_range(left - right, path, sizes), lit(0)
    bound = right.const
    low = {"ge": bound, "gt": bound + 1, "eq": bound}.get(op)
    high = {"lt": bound, "le": bound + 1, "eq": bound + 1}.get(op)
    return [(left, low, high)]


def _in_range(index: Affine, path: str, sizes: Mapping[str, int]) -> Affine:
    if largest(index, sizes) > MAX_INDEX:
        raise refused(path, f"{index} leaves the range of 62 bits", "use smaller numbers", "InvalidShape")
    return index


class _Text:
    """Sums of products of names, numbers, quotients and parentheses."""

    def __init__(self, text: str, path: str, name: Callable[[str, str], Affine]) -> None:
        self.text, self.path, self.name = text, path, name
        self.tokens = self._split()
        self.at = 0
        self.depth = 0

    def read(self) -> Affine:
        value = self._sum()
        if self.at < len(self.tokens):
            raise self._wrong(f"{self.tokens[self.at]!r} is unexpected")
        return value

    def _wrong(self, why: str) -> TinycError:
        return refused(
            self.path, f"{why} in the index {show(self.text)}", 'write an index such as "2*i0+r0//3-1"'
        )

    def _split(self) -> list[str]:
        tokens: list[str] = []
        at, text = 0, self.text.rstrip()
        if len(text) > MAX_TEXT:
            raise self._wrong(f"{len(text)} characters (at most {MAX_TEXT})")
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong(f"{text[at:].strip()[:1]!r} is unexpected")
            token = match.group(match.lastindex or 0)
            if token == "%":
                why, fix = "% (a remainder)", "write it as e - q*(e//q)"
                raise refused(self.path, why, fix, "MissingDivGuard")
            if token[0].isdigit() and len(token) > 20:
                raise self._wrong(f"a number of {len(token)} digits")
            tokens.append(token)
            at = match.end()
        return tokens

    def _sum(self) -> Affine:
        terms: list[tuple[int, Atom]] = []
        const, sign = 0, 1
        while True:
            part = self._term() * sign
            const += part.const
            terms += part.terms
            if self.at >= len(self.tokens) or self.tokens[self.at] not in ("+", "-"):
                return affine(_checked(const, self.path), terms)
            sign = 1 if self.tokens[self.at] == "+" else -1
            self.at += 1

    def _term(self) -> Affine:
        total = self._factor()
        while self.at < len(self.tokens) and self.tokens[self.at] in ("*", "//"):
            token = self.tokens[self.at]
            self.at += 1
            combine = _product if token == "*" else _quotient
            total = combine(total, self._factor(), self.path)
        return total

    def _factor(self) -> Affine:
        if self.at >= len(self.tokens):
            raise self._wrong("a name or a number is missing")
        token = self.tokens[self.at]
        self.at += 1
        if token in ("-", "("):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self._wrong("nested too deep")
            value = self._sum() if token == "(" else self._factor() * -1
            self.depth -= 1
            if token == "(":
                if self.at >= len(self.tokens) or self.tokens[self.at] != ")":
                    raise self._wrong("a parenthesis is not closed")
                self.at += 1
            return value
        if token[0].isdigit():
            return lit(_checked(int(token), self.path))
        if token[0].isalpha() or token[0] == "_":
            return self.name(token, self.path)
        raise self._wrong(f"{token!r} stands where a name or a number is expected")
