"""What extraction chose, as terms: per kernel the buffer that it fills and the expression that fills it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinyc.extract.choice import Choice, Kernel, Key, children_of
from tinyc.extract.view import Item, View
from tinyc.ir.index import Affine

from .terms import VECTOR, Node, Term, Terms, Unexplained, sort_of


@dataclass(frozen=True)
class Goal:
    """``buffer``: class of the buffer; ``term``: a Fill, or the Alias of one."""

    buffer: str
    term: Term


class Goals:
    """Spells the chosen items. ``view``: of the same e-graph as ``terms``."""

    def __init__(self, terms: Terms, view: View) -> None:
        self.terms = terms
        self.view = view
        self._index: dict[str, Term] = {}

    def of(self, choice: Choice) -> tuple[Goal, ...]:
        return tuple(Goal(kernel.buffer.cls, self.kernel(kernel)) for kernel in choice.kernels)

    def kernel(self, kernel: Kernel) -> Term:
        root = self.expression(kernel)
        whole = self.terms.whole
        for node in whole.nodes[kernel.buffer.cls]:
            if node.op == "Fill" and self._fills(node, kernel):
                return self._filled(node, root)
            if node.op == "Alias":
                for inner in whole.nodes[str(node.args[1])]:
                    if inner.op == "Fill" and self._fills(inner, kernel):
                        shape = self.terms.least(str(node.args[0]))
                        return self.terms.make("Alias", [shape, self._filled(inner, root)])
        raise Unexplained(f"no Fill of {kernel.buffer.cls} over {kernel.way.shape}")

    def _fills(self, node: Node, kernel: Kernel) -> bool:
        shape = self.terms.least(str(node.args[1])).args
        return node.args[2] == kernel.way.root and shape == kernel.way.shape

    def _filled(self, node: Node, root: Term) -> Term:
        return self.terms.make("Fill", [node.args[0], self.terms.least(str(node.args[1])), root])

    def expression(self, kernel: Kernel) -> Term:
        """The expression of a kernel. Equal classes are equal terms unless one of them must be loadable."""
        done: dict[Key, Term] = {}
        stack = [kernel.root]
        while stack:
            key = stack[-1]
            if key in done:
                stack.pop()
                continue
            item = kernel.items[key]
            children = children_of(key, item)
            if item.head == "Stream":
                (scan, weight) = children
                children = (*children_of(scan, kernel.items[scan]), weight)
            missing = [child for child in children if child not in done]
            if missing:
                stack += missing
                continue
            stack.pop()
            done[key] = self._item(key[0], item, [done[child] for child in children])
        return done[kernel.root]

    def _item(self, cls: str, item: Item, operands: list[Term]) -> Term:
        if item.head == "Contract":
            return self._contract(cls, item, operands)
        for node in self.view.graph.classes[cls]:
            if self.view.item(cls, node) == item:
                given = iter(operands)
                kinds = self.terms.whole.language.symbols[node.op].args
                return self.terms.make(
                    node.op,
                    [
                        next(given) if kind == "Expr" else self._argument(arg, kind)
                        for arg, kind in zip(node.args, kinds, strict=True)
                    ],
                )
        raise Unexplained(f"class {cls} has no {item.head} {item.op}")

    def _contract(self, cls: str, item: Item, operands: list[Term]) -> Term:
        left, right = operands
        for row in self.view.graph.contracts:
            vector = str(row[1])
            if (row[0], row[2], row[3]) == (cls, left.cls, right.cls) and self.view.bound(
                vector
            ) == item.payload[0]:
                product = self.terms.make("Binary", ["'MUL", left, right])
                return self.terms.make("Reduce", ["'SUM", self.vector(vector), product])
        raise Unexplained(f"no contraction of class {cls}")

    def _argument(self, arg: int | str, kind: str) -> Term | int | str:
        if kind == "Ixs":
            return self.vector(str(arg))
        if kind == "Ix":
            return self.index(str(arg))
        if kind == "Buf":
            is_input = any(node.op == "Arg" for node in self.terms.whole.nodes[str(arg)])
            return self.terms.least(str(arg)) if is_input else self.terms.buffer(str(arg))
        return arg if kind in ("i64", "String") else self.terms.least(str(arg))

    def vector(self, cls: str) -> Term:
        elements = [self.index(str(element)) for element in self.view.graph.classes[cls][0].args]
        return self.terms.container(sort_of(cls), VECTOR, elements)

    def index(self, cls: str) -> Term:
        """The spelling of an index that extraction reads."""
        if cls not in self._index:
            wanted = self.view.index(cls)
            for node in self.view.graph.classes[cls]:
                if wanted is not None and self.view.affine(node) == wanted:
                    self._index[cls] = self._spelled(node)
                    break
            else:
                raise Unexplained(f"index {cls} has no normal form")
        return self._index[cls]

    def normal(self, cls: str) -> Term:
        """As :meth:`index`; a small term where an index has no normal form."""
        try:
            return self.index(cls)
        except Unexplained:
            return self.terms.least(cls)

    def _spelled(self, node: object) -> Term:
        op, args = node.op, node.args  # type: ignore[attr-defined]
        if op == "Lit":
            return self.terms.make("Lit", [args[0]])
        atoms = list(self._atoms(str(args[1])))
        if not atoms:
            raise Unexplained(f"atom {args[1]} has no normal form")
        return self.terms.make(
            "Plus", [args[0], min(atoms, key=lambda pair: pair[0])[1], self.index(str(args[2]))]
        )

    def _atoms(self, cls: str) -> Iterator[tuple[int, Term]]:
        for node in self.view.graph.classes.get(cls, ()):
            if node.op == "Ax":
                yield 0, self.terms.make("Ax", list(node.args))
            elif node.op == "FloorDiv":
                inner: Affine | None = self.view.index(str(node.args[0]))
                if inner is not None:
                    yield (
                        len(str(inner)),
                        self.terms.make("FloorDiv", [self.index(str(node.args[0])), node.args[1]]),
                    )
