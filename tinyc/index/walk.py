"""Walks from a value to what it is made of, with the index that goes along: an element of this value is that element of
another one. Movement is composed; what a condition decides at every point, as the ranges of the axes show, is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tinyc.ir import dims
from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, FloorDiv, axis
from tinyc.ir.tiny import ELEMENTWISE, MOVEMENT, Dim, Imm, Node, Program

from .book import NON_SCOP, IndexBook, IndexInfo
from .ranges import interval, simplify, whole_affine
from .sets import MAX_DIVISIONS, NonAffine, TooComplex, Workspace

Index = tuple[Affine, ...]

MAX_STEPS = 32
"""An index that takes more goes through no further RESHAPE or VIEW, whose value is then copied (rules/bounds.egg). Nor
does one that isl would not take."""


@dataclass(frozen=True, slots=True)
class Point:
    """Element ``index`` of value ``id``."""

    id: str
    index: Index

    def axes(self) -> frozenset[str]:
        return frozenset().union(*(entry.axes() for entry in self.index))


@dataclass(frozen=True, slots=True)
class Guard:
    """``low <= index < high``."""

    index: Affine
    low: Dim
    high: Dim


@dataclass(frozen=True, slots=True)
class Choice:
    """``guards ? inner : other``, where None is the constant ``value`` (``inner`` is None for a constant, too).
    ``verdict``: which of the two stands at every point, None where that varies. ``single``: the condition is one range
    after another, each of which puts ``other``."""

    guards: tuple[Guard, ...]
    inner: Point | None
    other: Point | None
    value: Imm | None
    verdict: bool | None
    single: bool


class Walk:
    """A program and its book. Every method is a pure function of both; ``sizes``: of the axes that an index is over."""

    def __init__(self, program: Program, book: IndexBook) -> None:
        self.program = program
        self.book = book
        self._links: dict[str, tuple[Point | None, ...]] = {}

    def node(self, id: str) -> Node:
        return self.program.node(id)

    def info(self, id: str) -> IndexInfo:
        return self.book.values[id]

    def dtype(self, id: str) -> DType:
        return self.program.types[id].dtype

    def scop(self, id: str) -> bool:
        return NON_SCOP not in self.info(id).flags

    def affine(self, id: str) -> bool:
        """Whether all its accesses are, and its sizes."""
        return self.scop(id) and all(link is not None for link in self.links(id))

    def sizes(self, id: str) -> dict[str, Dim]:
        """Of the axes of a value and those that it reduces."""
        info = self.info(id)
        return {each.name: each.size for each in (*info.axes, *info.reduced)}

    def links(self, id: str) -> tuple[Point | None, ...]:
        """What is read at a point of ``id``, per operand that is a value; None where the map is not affine."""
        if id not in self._links:
            found: list[Point | None] = []
            for access in self.info(id).inputs:
                index = [whole_affine(text) for text in access.map]
                rank = len(self.info(access.value_id).axes)
                known = tuple(entry for entry in index if entry is not None)
                whole = len(known) == len(index) == rank and self.scop(id)
                found.append(Point(access.value_id, known) if whole else None)
            self._links[id] = tuple(found)
        return self._links[id]

    def follow(self, point: Point, operand: int, sizes: Mapping[str, Dim]) -> Point | None:
        """What the ``operand``-th value of ``point`` is read at."""
        link = self.links(point.id)[operand]
        if link is None:
            return None
        values = {f"i{number}": entry for number, entry in enumerate(point.index)}
        return Point(link.id, tuple(simplify(entry.substitute(values), sizes) for entry in link.index))

    def operand(self, point: Point, position: int, sizes: Mapping[str, Dim]) -> Point | None:
        """The source at ``position`` of the node, None for an immediate."""
        sources = self.node(point.id).src
        if not isinstance(sources[position], str):
            return None
        before = sum(isinstance(source, str) for source in sources[:position])
        return self.follow(point, before, sizes)

    # ---- conditions ----

    def guards(self, point: Point) -> tuple[Guard, ...]:
        """Of a PAD or a VALID: where it has its operand or is true, per axis."""
        node, shape = self.node(point.id), self.program.types[point.id].shape
        if node.uop == "VALID":
            bounds = zip(node.arg["lo"], node.arg["hi"], strict=True)
            return tuple(Guard(entry, *pair) for entry, pair in zip(point.index, bounds, strict=True))
        inner = zip(self.program.types[node.operands()[0]].shape, node.arg["pad"], strict=True)
        kept = ((low, dims.add(low, size)) for size, (low, _) in inner)
        cut = zip(point.index, shape, kept, strict=True)
        return tuple(Guard(entry, *pair) for entry, size, pair in cut if pair != (0, size))

    def decided(self, guard: Guard, sizes: Mapping[str, Dim]) -> bool | None:
        """Whether a guard holds everywhere (True) or nowhere (False), as far as ranges show."""
        low, high = interval(guard.index, sizes)
        if not isinstance(guard.low, int) or not isinstance(guard.high, int):
            return self._proven(guard, sizes)
        if low is not None and high is not None and guard.low <= low and high < guard.high:
            return True
        outside = (low is not None and low >= guard.high) or (high is not None and high < guard.low)
        return False if outside else None

    def _proven(self, guard: Guard, sizes: Mapping[str, Dim]) -> bool | None:
        """By isl, where a bound is symbolic."""
        used = {name: size for name, size in sizes.items() if name in guard.index.axes()}
        try:
            box = Workspace(self.program.symbols).box(used)
            inside = box.where(guard.index, guard.low, guard.high)
            return True if inside.contains(box) else False if inside.is_empty() else None
        except (NonAffine, TooComplex):
            return None

    def select(self, point: Point, sizes: Mapping[str, Dim]) -> Choice | None:
        """``guards ? inner : other`` of a PAD, and of a WHERE whose condition is a VALID behind movement."""
        node = self.node(point.id)
        if node.uop == "PAD":
            guards = self.guards(point)
            verdicts = {self.decided(guard, sizes) for guard in guards}
            verdict = False if False in verdicts else None if None in verdicts else True
            return Choice(guards, self.follow(point, 0, sizes), None, node.arg["value"], verdict, True)
        condition = self.operand(point, 0, sizes) if node.uop == "WHERE" else None
        while condition is not None and self.node(condition.id).uop in MOVEMENT:
            padded = self.node(condition.id).uop == "PAD"
            condition = None if padded else self.follow(condition, 0, sizes)
        if condition is None or self.node(condition.id).uop != "VALID":
            return None
        guards = self.guards(condition)
        # the rules nest the ranges of a VALID, the last innermost: it is one range if all others go away
        single = all(self.decided(guard, sizes) is True for guard in guards[:-1])
        verdict = None if not single else self.decided(guards[-1], sizes) if guards else True
        inner, other = (self.operand(point, position, sizes) for position in (1, 2))
        constant = None if isinstance(node.src[2], str) else node.src[2]
        return Choice(guards, inner, other, constant, verdict, single)

    def same(self, point: Point, sizes: Mapping[str, Dim]) -> Point | None:
        """The value behind movement that the book did not compose, casts that change nothing, and conditions that are
        decided at every point. None: a constant stands there."""
        while self.scop(point.id):
            node = self.node(point.id)
            if node.uop in ("PAD", "WHERE"):
                choice = self.select(point, sizes)
                if choice is None or choice.verdict is None:
                    return point
                step = choice.inner if choice.verdict else choice.other
                if step is None:
                    return None
            elif node.uop in MOVEMENT or self._idle(node):
                grows = node.uop in ("RESHAPE", "VIEW") and sum(map(_steps, point.index)) > MAX_STEPS
                step = None if grows else self.follow(point, 0, sizes)
                if step is None or max(map(_divisions, step.index), default=0) > MAX_DIVISIONS:
                    return point
            else:
                return point
            point = step
        return point

    def _idle(self, node: Node) -> bool:
        return node.uop == "CAST" and self.dtype(node.operands()[0]) is self.dtype(node.id)

    # ---- what a value is made of ----

    @cached_property
    def solid(self) -> frozenset[str]:
        """Values that are no mere broadcast: they would be worth a buffer."""
        found: set[str] = set()
        for node in self.program.nodes:
            sources = [source for source in node.src if isinstance(source, str)]
            if node.uop == "EXPAND":
                same = self.program.types[sources[0]].shape == self.program.types[node.id].shape
                solid = same and sources[0] in found
            elif node.uop in ("INPUT", "REDUCE"):
                solid = True
            elif node.uop == "WHERE":
                solid = any(isinstance(source, str) and source in found for source in node.src[1:])
            else:
                solid = node.uop != "VIEW" and any(source in found for source in sources)
            if solid:
                found.add(node.id)
        return frozenset(found)

    def stored(self, id: str) -> bool:
        """Whether a kernel may read the value at hand from memory: an input, a reduction, elementwise work that is solid (a
        cast to fp32 is not work)."""
        node = self.node(id)
        if node.uop in ("INPUT", "REDUCE") or (node.uop in MOVEMENT and node.uop != "PAD"):
            return True  # movement that is not composed any further is copied
        if node.uop == "CAST" and node.arg["to"] is DType.FP32:
            return False
        return node.uop in ELEMENTWISE and id in self.solid

    @cached_property
    def depends(self) -> Mapping[str, frozenset[int]]:
        """On which of its axes each value depends; axes of one point aside."""
        found: dict[str, frozenset[int]] = {}
        for node in self.program.nodes:
            shape = self.program.types[node.id].shape
            every = frozenset(number for number, size in enumerate(shape) if size != 1)
            names = {f"i{number}": number for number in every}
            here = Point(node.id, tuple(axis(f"i{number}") for number in range(len(shape))))
            links = [link for link in self.links(node.id) if link is not None]
            if node.uop == "INPUT" or not self.affine(node.id):
                found[node.id] = every
                continue
            axes = frozenset[str]().union(*(self._axes_of(link, found) for link in links))
            if node.uop in ("PAD", "VALID"):
                sizes = self.sizes(node.id)
                cut = (guard for guard in self.guards(here) if self.decided(guard, sizes) is not True)
                axes = axes.union(*(guard.index.axes() for guard in cut))
            found[node.id] = frozenset(names[name] for name in axes if name in names)
        return found

    def _axes_of(self, point: Point, known: Mapping[str, frozenset[int]]) -> frozenset[str]:
        return frozenset().union(*(point.index[number].axes() for number in known[point.id]))

    def free(self, point: Point, sizes: Mapping[str, Dim]) -> frozenset[str]:
        """The axes on which the value at ``point`` depends."""
        passed: list[tuple[frozenset[str], frozenset[str]]] = []
        found: frozenset[str] = frozenset()
        below: Point | None = point
        while below is not None and (inner := self.same(below, sizes)) is not None:
            uop = self.node(inner.id).uop
            below = self.follow(inner, 0, sizes) if uop in ("PAD", "CAST") and self.affine(inner.id) else None
            if below is None:
                found = self._axes_of(inner, self.depends)
            else:
                guards = self.guards(inner) if uop == "PAD" else ()
                cut = (guard for guard in guards if self.decided(guard, sizes) is None)
                passed.append((inner.axes(), frozenset().union(*(guard.index.axes() for guard in cut))))
        for axes, conditions in reversed(passed):
            found = (found | conditions) & axes
        return found


def _steps(index: Affine) -> int:
    """Operations that compute an index, as rules/bounds.egg counts them."""
    count = int(index.const != 0)
    for position, (coef, atom) in enumerate(index.terms, 1):
        count += 1 + _steps(atom.num) if isinstance(atom, FloorDiv) else 0
        count += coef != 1 or position < len(index.terms)
    return count


def _divisions(index: Affine) -> int:
    return sum(1 + _divisions(atom.num) for _, atom in index.terms if isinstance(atom, FloorDiv))
