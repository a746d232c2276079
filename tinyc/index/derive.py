"""The IndexBook of a Program: one small rule per uop (document 004 §4.4).

A rule gives a :class:`Link` per operand: which element of it stands at ``i0, i1, …`` of the result. Links through
movement are composed step by step and shortened by the axes' ranges (ranges.py), so that an entry's ``inputs`` lead to
an INPUT, to a computed value or to a PAD. Where a composed map would have more than ``MAX_OPERATIONS`` operations, or
would pass through a ``non_scop`` value, the entry reads the movement node itself, whose own entry goes on from there:
so neither ladders of reshapes nor stencils grow without bound. A RESHAPE of a RESHAPE is one RESHAPE.

A map that is not affine is given as a text where there is one (``D*i1+i2``, a symbolic stride), else as the empty map;
its value is ``non_scop`` either way, and so is a value of which a size multiplies two symbols (I-26).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tinyc.ir import dims
from tinyc.ir.index import Affine, affine, axis, lit
from tinyc.ir.tiny import BINARY, COMPARE, MOVEMENT, UNARY, Dim, Node, Program, Shape
from tinyc.ir.verify import pieces as movement_pieces

from .book import NON_SCOP, Access, AxisVar, IndexBook, IndexInfo, Piece
from .domain import Bounds, Constraints, bounded, box, split
from .ranges import Sizes, operations, put, simplify, text, whole_affine
from .reshape import reshape_map

MAX_OPERATIONS = 32
"""Of a composed map, all its entries together: terms, constants and divisions."""

Entry = Affine | str
Composition = tuple[tuple[Affine, ...], tuple[Affine, ...], tuple[tuple[str, Dim], ...]]
Cut = tuple[Constraints | None, list[Constraints]]


@dataclass(frozen=True)
class Link:
    """Element ``index`` of ``source``; with texts among the entries, or None, where it is not affine."""

    source: str
    index: tuple[Entry, ...] | None

    @cached_property
    def affine(self) -> tuple[Affine, ...] | None:
        """``index`` where it is affine."""
        entries = tuple(entry for entry in self.index or () if not isinstance(entry, str))
        return entries if entries == self.index else None

    def names(self) -> frozenset[str]:
        """All axes and symbols that occur."""
        parts = (dims.names(e) if isinstance(e, str) else e.axes() for e in self.index or ())
        return frozenset[str]().union(*parts)

    def access(self) -> Access:
        entries = (entry if isinstance(entry, str) else text(entry) for entry in self.index or ())
        return Access(self.source, tuple(entries))


def index_book(program: Program) -> IndexBook:
    """For every node of a verified ``program``, in its order, what document 004 §4.2 calls its IndexInfo.

    Sizes are integers or symbolic. Deterministic; isl is used only where there is a PAD or a VALID.
    """
    return IndexBook(_Derivation(program).book(), program.symbols)


class _Derivation:
    """What is known while a book is made: the entries so far, and where each movement leads."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.infos: dict[str, IndexInfo] = {}
        self.moves: dict[str, tuple[str, tuple[Affine, ...]]] = {}
        self.composed: dict[Composition, tuple[Affine, ...] | None] = {}  # None: too long
        self.roots: dict[str, str] = {}  # a RESHAPE -> what the RESHAPEs up to it start from
        self.cuts: dict[tuple[Shape, Bounds], Cut | None] = {}
        self.ids = itertools.count()
        self.pieces = movement_pieces(program)
        self.reduce_prefix = "r"
        while any(re.fullmatch(f"{self.reduce_prefix}[0-9]+", name) for name in program.symbols):
            self.reduce_prefix += "_"

    def book(self) -> Mapping[str, IndexInfo]:
        for node in self.program.nodes:
            self.infos[node.id] = self.info(node)
        return self.infos

    def shape(self, id: str) -> Shape:
        return self.program.types[id].shape

    def info(self, node: Node) -> IndexInfo:
        shape, reduced = self.shape(node.id), self.reduced(node)
        sizes: dict[str, Dim] = {f"i{number}": size for number, size in enumerate(shape)}
        sizes |= {gone.name: gone.size for gone in reduced}
        links = [self.compose(link, node, sizes) for link in RULES[node.uop](self, node)]
        scop = all(link.affine is not None for link in links)
        scop = scop and all(isinstance(size, int) or whole_affine(size) for size in sizes.values())
        inputs = tuple(link.access() for link in links)
        bounds = self.bounds(node)
        pieces = self.divided(node, bounds, inputs) if bounds else (Piece(box(shape)),)
        if pieces is None:
            scop, pieces = False, (Piece(bounded(bounds), inputs),)
        if scop and node.uop in MOVEMENT and node.uop != "PAD":
            index = links[0].affine
            assert index is not None, "it is affine"
            self.moves[node.id] = links[0].source, index
        repeated = _repeated(shape, links, bounds)
        axes = tuple(
            AxisVar(next(self.ids), f"i{number}", size, "broadcast" if number in repeated else "iter")
            for number, size in enumerate(shape)
        )
        flags = frozenset() if scop else frozenset({NON_SCOP})
        return IndexInfo(node.id, axes, pieces, inputs, reduced, flags, self.pieces[node.id])

    def reduced(self, node: Node) -> tuple[AxisVar, ...]:
        """The axes that a REDUCE removes, under the ids that they had."""
        if node.uop != "REDUCE":
            return ()
        axes = self.infos[node.operands()[0]].axes
        return tuple(
            AxisVar(axes[gone].id, f"{self.reduce_prefix}{number}", axes[gone].size, "reduce")
            for number, gone in enumerate(node.arg["axes"])
        )

    def compose(self, link: Link, node: Node, sizes: Sizes) -> Link:
        """``link`` through the movement that it leads to, in short form; ``link`` itself where that gets too long."""
        index = link.affine
        if index is None:
            return link
        if node.uop in MOVEMENT:
            thin = [size == 1 and node.uop != "PAD" for size in self.shape(link.source)]
            short = tuple(
                lit(0) if one else simplify(entry, sizes) for entry, one in zip(index, thin, strict=True)
            )
            index = short if _readable(short) else index
        direct = Link(link.source, index)
        if link.source not in self.moves:
            return direct
        base, inner = self.moves[link.source]
        if index == _identity(len(index)):
            return Link(base, inner)
        key = (inner, index, tuple(sizes.items()))
        if key not in self.composed:
            self.composed[key] = _through(inner, index, sizes)
        found = self.composed[key]
        return direct if found is None else Link(base, found)

    def bounds(self, node: Node) -> Bounds:
        """The box in which a PAD has its operand, or a VALID is true; nothing for other nodes."""
        if node.uop == "VALID":
            return tuple(zip(node.arg["lo"], node.arg["hi"], strict=True))
        if node.uop == "PAD":
            pairs = zip(self.shape(node.operands()[0]), node.arg["pad"], strict=True)
            return tuple((lo, dims.add(lo, size)) for size, (lo, _) in pairs)
        return ()

    def divided(self, node: Node, bounds: Bounds, inputs: tuple[Access, ...]) -> tuple[Piece, ...] | None:
        """The pieces of a PAD or a VALID; None where isl cannot hold them."""
        cut = self.cut(self.shape(node.id), bounds)
        if cut is None:
            return None
        inside, outside = cut
        pad = node.uop == "PAD"
        pieces = [] if inside is None else [Piece(inside, inputs, None if pad else True)]
        pieces += [Piece(part, (), node.arg["value"] if pad else False) for part in outside]
        return tuple(pieces)

    def cut(self, shape: Shape, bounds: Bounds) -> Cut | None:
        """As :func:`domain.split`; equal layers of a model ask for equal cuts."""
        from .sets import NonAffine, TooComplex

        if (shape, bounds) not in self.cuts:
            try:
                self.cuts[shape, bounds] = split(shape, bounds, self.program.symbols)
            except (NonAffine, TooComplex):
                self.cuts[shape, bounds] = None
        return self.cuts[shape, bounds]


def _through(inner: tuple[Affine, ...], index: tuple[Affine, ...], sizes: Sizes) -> tuple[Affine, ...] | None:
    """``inner``, a map over ``i0, i1, …``, at ``index``; None where that is too long."""
    limit = max(MAX_OPERATIONS, sum(map(operations, index)))
    if sum(map(operations, inner)) > limit:
        return None
    values = {f"i{number}": entry for number, entry in enumerate(index)}
    found = tuple(simplify(put(entry, values), sizes) for entry in inner)
    return found if sum(map(operations, found)) <= limit and _readable(found) else None


def _readable(index: tuple[Affine, ...]) -> bool:
    """Whether every entry has a text that can be read again: their length and depth are limited."""
    try:
        return all(dims.parse(text(entry)) is not None for entry in index)
    except dims.DimError:
        return False


def _repeated(shape: Shape, links: list[Link], bounds: Bounds) -> set[int]:
    """The axes along which the value is the same everywhere. An axis of size 1 repeats nothing."""
    if not links or any(link.index is None for link in links):
        return set()
    used = frozenset[str]().union(*(link.names() for link in links))
    return {
        number
        for number, size in enumerate(shape)
        if size != 1 and f"i{number}" not in used and (not bounds or bounds[number] == (0, size))
    }


# --- the rules: which element of each operand stands at i0, i1, … ---------------------------------------------


def _leaf(state: _Derivation, node: Node) -> tuple[Link, ...]:
    return ()


def _elementwise(state: _Derivation, node: Node) -> tuple[Link, ...]:
    """Shapes are equal: a broadcast is an EXPAND of its own (I-19)."""
    same = _identity(len(state.shape(node.id)))
    return tuple(Link(source, same) for source in node.operands())


@functools.cache
def _identity(rank: int) -> tuple[Affine, ...]:
    """Pure, and there are few ranks."""
    return tuple(axis(f"i{number}") for number in range(rank))


def _permute(state: _Derivation, node: Node) -> tuple[Link, ...]:
    index = sorted(range(len(node.arg["perm"])), key=lambda number: node.arg["perm"][number])
    return (Link(node.operands()[0], tuple(axis(f"i{number}") for number in index)),)


def _reshape(state: _Derivation, node: Node) -> tuple[Link, ...]:
    """A chain of RESHAPEs is one: what a merge by a symbol hides, the split after it shows again."""
    (source,) = node.operands()
    source = state.roots[node.id] = state.roots.get(source, source)
    result = state.shape(node.id)
    sizes = {f"i{number}": size for number, size in enumerate(result)}
    return (Link(source, reshape_map(state.shape(source), result, sizes)),)


def _expand(state: _Derivation, node: Node) -> tuple[Link, ...]:
    (source,) = node.operands()
    index = (lit(0) if size == 1 else axis(f"i{number}") for number, size in enumerate(state.shape(source)))
    return (Link(source, tuple(index)),)


def _shrink(state: _Derivation, node: Node) -> tuple[Link, ...]:
    """in = lo + step*out (I-21)."""
    cut = enumerate(zip(node.arg["lo"], node.arg["step"], strict=True))
    return (Link(node.operands()[0], tuple(_line(lo, step, number) for number, (lo, step) in cut)),)


def _flip(state: _Derivation, node: Node) -> tuple[Link, ...]:
    flipped = node.arg["axes"]
    index = (
        _line(dims.sub(size, 1), -1, number) if number in flipped else axis(f"i{number}")
        for number, size in enumerate(state.shape(node.id))
    )
    return (Link(node.operands()[0], tuple(index)),)


def _view(state: _Derivation, node: Node) -> tuple[Link, ...]:
    index = (whole_affine(entry) or entry for entry in node.arg["index_map"])
    return (Link(node.operands()[0], tuple(index)),)


def _pad(state: _Derivation, node: Node) -> tuple[Link, ...]:
    """In the inner piece; nothing is read in the border."""
    pads = enumerate(node.arg["pad"])
    index = (
        _line(dims.mul(-1, lo), 1, number) if lo != 0 else axis(f"i{number}") for number, (lo, _) in pads
    )
    return (Link(node.operands()[0], tuple(index)),)


def _reduce(state: _Derivation, node: Node) -> tuple[Link, ...]:
    """The axes that stay are i0… again, those that go are r0…."""
    (source,) = node.operands()
    stay, gone = itertools.count(), {number: at for at, number in enumerate(node.arg["axes"])}
    index = (
        axis(f"{state.reduce_prefix}{gone[number]}" if number in gone else f"i{next(stay)}")
        for number in range(len(state.shape(source)))
    )
    return (Link(source, tuple(index)),)


def _line(offset: Dim, step: int, number: int) -> Entry:
    """offset + step*i."""
    start = whole_affine(offset)
    if start is None:
        return str(dims.add(offset, dims.mul(step, f"i{number}")))
    return start + affine(0, [(step, f"i{number}")])


RULES: Mapping[str, Callable[[_Derivation, Node], tuple[Link, ...]]] = {
    **dict.fromkeys(("INPUT", "VALID"), _leaf),
    **dict.fromkeys((*UNARY, *BINARY, *COMPARE, "WHERE", "CAST"), _elementwise),
    "PERMUTE": _permute,
    "RESHAPE": _reshape,
    "EXPAND": _expand,
    "SHRINK": _shrink,
    "FLIP": _flip,
    "VIEW": _view,
    "PAD": _pad,
    "REDUCE": _reduce,
}
