"""The axes that terms, e-nodes and classes depend on.

A class depends on fewer axes than a term of it may mention: ``x * 1[r]`` is ``x``. A term may leave a reduction over
``r`` only if it does not mention ``r``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .terms import BINDERS, Node, Term, Whole, fresh

Axis = tuple[int, int]
"""Id and extent."""

Axes = frozenset[Axis]


class Scopes:
    """``free``: the axes of each expression class (fact ``free`` of the rules). ``normal``: an index of a class."""

    def __init__(self, whole: Whole, free: Mapping[str, Axes], normal: Callable[[str], Term]) -> None:
        self.whole = whole
        self.classes = free
        self.normal = normal
        self._terms: dict[Term, Axes] = {}

    def term(self, term: Term) -> Axes:
        """The axes that a term mentions and does not bind."""
        return mentioned(term, self._terms)

    def fits(self, term: Term) -> bool:
        """Whether a term mentions no axis that its class does not depend on."""
        return self.term(term) <= self.classes.get(term.cls, self.term(term))

    def node_fits(self, node: Node, cls: str) -> bool:
        """Whether an e-node has a term that fits."""
        return self.node(node) <= self.classes.get(cls, frozenset())

    def node(self, node: Node) -> Axes:
        kinds = self.whole.language.symbols[node.op].args
        axes: Axes = frozenset()
        bound: Axes = frozenset()
        for arg, kind in zip(node.args, kinds, strict=True):
            if kind == "Expr":
                axes |= self.classes.get(str(arg), frozenset())
            elif kind == "Ix":
                axes |= self.term(self.normal(str(arg)))
            elif kind == "Ixs":
                parts = (self.term(self.normal(str(part))) for part in self.whole.nodes[str(arg)][0].args)
                vector: Axes = frozenset().union(*parts)
                if node.op in BINDERS:
                    bound = vector
                else:
                    axes |= vector
        return axes - bound


def mentioned(term: Term, memo: dict[Term, Axes]) -> Axes:
    """The axes that an expression or index mentions and does not bind. ``memo``: of terms that were asked for before."""
    if term.sort == "Tensor":
        return frozenset()
    for each in fresh(term, memo):
        if each.sort == "Tensor":
            continue
        match each.op, each.args:
            case "Ax", (int(id), int(extent)):
                memo[each] = frozenset({(id, extent)})
            case "Reduce", (_, Term() as axes, Term() as body):
                memo[each] = memo[body] - memo[axes]
            case (
                ("Stream" | "RoundedStream"),
                (*_, Term() as axes, Term() as score, Term() as weight, int()),
            ):
                memo[each] = (memo[score] | memo[weight]) - memo[axes]
            case "Subst", (Term() as vector, _):
                memo[each] = memo[vector]  # the axes of the second are replaced
            case (("Fill" | "Alias"), _):
                memo[each] = frozenset()
            case _, args:
                parts = (memo[arg] for arg in args if isinstance(arg, Term) and arg.sort != "Tensor")
                memo[each] = frozenset().union(*parts)
    return memo[term]
