"""The right-hand side of a match (or its left, backwards) as a term: patterns filled in, primitives worked out."""

from __future__ import annotations

from collections.abc import Sequence

from tinyc.egraph.graph import Argument
from tinyc.egraph.sexpr import Quoted, Sexpr, head

from .matches import Instance, Matches
from .terms import VECTOR, Term, Terms, Unexplained

Element = Term | int | str

Value = Element | tuple[Element, ...]
"""A term, an integer, a string, or a vector that is not in any term yet."""


class Builder:
    """Builds terms. ``filled``: what each buffer was first filled with; added to as steps make buffers."""

    def __init__(self, terms: Terms, matches: Matches, filled: dict[str, Term]) -> None:
        self.terms = terms
        self.matches = matches
        self.filled = filled

    def build(self, expression: Sexpr, instance: Instance, bound: dict[str, Value]) -> Value:
        """One side of an equality. ``bound``: what its variables stand for; added to. Raises Unexplained."""
        if isinstance(expression, Quoted):
            return f"'{expression}"
        if isinstance(expression, int):
            return expression
        if isinstance(expression, str):
            return self._variable(instance.name(expression), instance, bound)
        symbol = self.matches.whole.language.symbols.get(head(expression))
        if symbol is None or symbol.kind != "constructor":
            return self._primitive(expression, instance, bound)
        args = [
            self._operand(self.build(part, instance, bound), sort, symbol.result)
            for part, sort in zip(expression[1:], symbol.args, strict=True)
        ]
        return self.terms.make(symbol.name, args)

    def _operand(self, value: Value, sort: str, result: str) -> Element:
        """A value as an operand of a constructor. A buffer in an expression is another kernel's."""
        if isinstance(value, tuple):
            return self.terms.container(sort, VECTOR, value)
        if isinstance(value, Term) and sort == "Buf" and result != "Buf" and value.op in ("Fill", "Alias"):
            self.filled.setdefault(value.cls, value)
            return self.terms.buffer(value.cls)
        return value

    def _variable(self, name: str, instance: Instance, bound: dict[str, Value]) -> Value:
        if name in bound:
            return bound[name]
        known = instance.values.get(name)
        if isinstance(known, int) or (isinstance(known, str) and known.startswith("'")):
            return known
        made: Value | None = None
        for source in (instance.computed, instance.defined):
            if made is None and name in source:
                try:
                    made = self._checked(self.build(source[name], instance, bound), known)
                except Unexplained:
                    made = None
        if made is None:
            if known is None:
                raise Unexplained(f"{instance.rule} does not say what {name} is")
            made = self._some(known)
        bound[name] = made
        return made

    def _checked(self, made: Value, known: Argument | None) -> Value:
        if isinstance(made, Term) and known is not None and made.cls != known:
            raise Unexplained("another class")
        if isinstance(made, tuple) and isinstance(known, str):
            made = self.terms.container(known.rsplit("-", 1)[0], VECTOR, made)
            if made.cls != known:
                raise Unexplained("another class")
        return made

    def _some(self, cls: str) -> Term:
        """A term of a class that the step leaves open."""
        if cls in self.filled:
            return self.terms.buffer(cls)
        return self.terms.least(cls)

    def _primitive(self, expression: Sexpr, instance: Instance, bound: dict[str, Value]) -> Value:
        """What a primitive of the engine makes of terms; Unexplained where its value is recorded instead."""
        assert isinstance(expression, tuple)
        name, *rest = expression
        if name == "unstable-vec-map" and head(rest[0]) == "unstable-fn":
            function = rest[0]
            assert isinstance(function, tuple)
            first = [self.build(part, instance, bound) for part in function[2:]]
            return tuple(
                _element(self._called(str(function[1]), [*first, element]))
                for element in _elements(self.build(rest[1], instance, bound))
            )
        return self._called(str(name), [self.build(part, instance, bound) for part in rest])

    def _called(self, name: str, args: Sequence[Value]) -> Value:
        symbol = self.matches.whole.language.symbols.get(name)
        if symbol is not None and symbol.kind == "constructor":
            operands = [
                self._operand(arg, sort, symbol.result) for arg, sort in zip(args, symbol.args, strict=True)
            ]
            return self.terms.make(name, operands)
        match name, list(args):
            case "vec-empty", []:
                return ()
            case "vec-of", elements:
                return tuple(map(_element, elements))
            case "vec-get", [vector, int(index)] if 0 <= index < len(_elements(vector)):
                return _elements(vector)[index]
            case "vec-set", [vector, int(index), element] if 0 <= index < len(_elements(vector)):
                changed = list(_elements(vector))
                changed[index] = _element(element)
                return tuple(changed)
            case "vec-push", [vector, element]:
                return (*_elements(vector), _element(element))
            case "vec-append", vectors:
                return tuple(element for vector in vectors for element in _elements(vector))
            case "vec-range", [int(count)]:
                return tuple(range(count))
            case "vec-length", [vector]:
                return len(_elements(vector))
            case "+", [int(left), int(right)]:
                return left + right
            case "-", [int(left), int(right)]:
                return left - right
            case "*", [int(left), int(right)]:
                return left * right
        raise Unexplained(f"the primitive {name} is not known here")


def _elements(value: Value) -> tuple[Element, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, Term) and value.op == VECTOR:
        return value.args
    raise Unexplained("no vector")


def _element(value: Value) -> Element:
    if isinstance(value, tuple):
        raise Unexplained("a vector of vectors")
    return value
