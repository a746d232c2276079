"""ContractionPattern (document 004 §5.2; resolutions I-11, I-30, I-54): which sums are matrix products or convolutions.

A REDUCE(SUM) directly above a MUL, of which both operands are loads: a value in memory behind movement, widening casts
and selects that put zeros around it (PAD, or WHERE over VALID). Every summed axis must occur in both operands. The
rules' ``contracts`` facts (rules/contraction.egg) say the same of the same sums, axis by axis; a test holds the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tinyc.ir.dtypes import WIDENING, DType, to_bits
from tinyc.ir.index import Affine, axis
from tinyc.ir.tiny import Dim

from .ranges import text
from .walk import Guard, Point, Walk

Pattern = Literal["matmul", "conv"]


@dataclass(frozen=True, slots=True)
class Load:
    """An operand: the element of ``tensor`` at ``index`` where all ``guards`` hold, else 0. ``absorbed``: the values
    between the product and the load, casts and zero-filled selects."""

    tensor: str
    index: tuple[Affine, ...]
    guards: tuple[Guard, ...]
    absorbed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contraction:
    """``out[i…] = sum over r… of lhs * rhs``. ``product``: the MUL. The roles hold axes of more than one point: ``batch``
    occurs in both operands, ``m`` in lhs only, ``n`` in rhs only, ``k`` is summed."""

    name: str
    pattern: Pattern
    product: str
    lhs: Load
    rhs: Load
    out: tuple[str, ...]
    reduce: tuple[str, ...]
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]

    def names(self, load: Load) -> tuple[str, ...]:
        """The axes in the index of an operand: the first of each dimension, then those that are added to one."""
        known = (*self.out, *self.reduce)
        dimensions = [[name for name in _ordered(entry) if name in known] for entry in load.index]
        firsts = [names[0] for names in dimensions if names]
        return tuple(dict.fromkeys((*firsts, *(name for names in dimensions for name in names[1:]))))

    def affine_offsets(self) -> dict[str, list[str]]:
        """Of a convolution, for every tensor that is read at sums of axes: the index of each of its dimensions, before
        any padding."""
        if self.pattern == "matmul":
            return {}
        found: dict[str, list[str]] = {}
        for load in (self.lhs, self.rhs):
            if any(_mixes(entry, self.out, self.reduce) for entry in load.index):
                name = load.tensor if load.tensor not in found else f"{load.tensor} (rhs)"
                found[name] = [text(entry) for entry in load.index]
        return found


def contractions(walk: Walk) -> Mapping[str, Contraction]:
    """The ContractionPatterns of a program, by the id of the REDUCE."""
    found = {}
    for node in walk.program.nodes:
        if node.uop == "REDUCE" and node.arg["op"] == "SUM":
            contraction = _contraction(walk, node.id)
            if contraction is not None:
                found[node.id] = contraction
    return found


def _contraction(walk: Walk, id: str) -> Contraction | None:
    sizes = walk.sizes(id)
    reduced = tuple(each.name for each in walk.info(id).reduced)
    out = tuple(each.name for each in walk.info(id).axes)
    k = frozenset(name for name in reduced if sizes[name] != 1)
    product = _product(walk, id, sizes)
    if product is None or not k:
        return None
    left, right = (walk.operand(product, position, sizes) for position in (0, 1))
    if left is None or right is None:
        return None
    lhs, rhs = _load(walk, left, sizes), _load(walk, right, sizes)
    if lhs is None or rhs is None:
        return None
    in_left, in_right = walk.free(left, sizes), walk.free(right, sizes)
    if not k <= in_left or not k <= in_right:
        return None

    def those(names: frozenset[str]) -> tuple[str, ...]:
        return tuple(name for name in sizes if name in names)

    conv = any(_slides(load, sizes, out, reduced) for load in (lhs, rhs))
    return Contraction(
        id,
        "conv" if conv else "matmul",
        product.id,
        lhs,
        rhs,
        out,
        reduced,
        those(in_left & in_right - k),
        those(in_left - in_right),
        those(in_right - in_left),
        those(k),
    )


def _product(walk: Walk, id: str, sizes: Mapping[str, Dim]) -> Point | None:
    """The MUL that a sum adds up, in a dtype in which products may be regrouped."""
    here = Point(id, tuple(axis(each.name) for each in walk.info(id).axes))
    below = walk.follow(here, 0, sizes) if walk.scop(id) else None
    point = below and walk.same(below, sizes)
    if point is None or walk.node(point.id).uop != "MUL" or not walk.scop(point.id):
        return None
    accumulates = DType.FP32 if walk.dtype(id).is_float else walk.dtype(id)
    dtype = walk.dtype(point.id)
    return point if dtype is accumulates and dtype in (DType.FP32, DType.I32) else None


def _load(walk: Walk, start: Point, sizes: Mapping[str, Dim]) -> Load | None:
    """What is read from memory at ``start``, through widening casts and zero-filled selects: the innermost value that is
    stored."""
    passed: list[tuple[Point, tuple[Guard, ...]]] = []
    below: Point | None = start
    while below is not None and (point := walk.same(below, sizes)) is not None:
        below, guards = _inner(walk, point, sizes)
        passed.append((point, guards))
    for depth, (point, _) in reversed(list(enumerate(passed))):
        if walk.stored(point.id) or not walk.scop(point.id):
            held = tuple(guard for _, guards in passed[:depth] for guard in guards)
            return Load(point.id, point.index, held, tuple(each.id for each, _ in passed[:depth]))
    return None


def _inner(walk: Walk, point: Point, sizes: Mapping[str, Dim]) -> tuple[Point | None, tuple[Guard, ...]]:
    """The operand of a widening cast, or what a select puts zeros around, and where it does not."""
    node, dtype = walk.node(point.id), walk.dtype(point.id)
    if not walk.affine(point.id):
        return None, ()
    if node.uop == "CAST" and (walk.dtype(node.operands()[0]), dtype) in WIDENING:
        return walk.follow(point, 0, sizes), ()
    choice = walk.select(point, sizes)
    if choice is None or choice.value is None or to_bits(choice.value, dtype) != 0:
        return None, ()
    return (choice.inner if choice.single or walk.stored(point.id) else None), choice.guards


def _ordered(entry: Affine) -> list[str]:
    """The names in an index in the order in which they are read; those of a division last."""
    found: list[str] = []
    for _, atom in entry.terms:
        found += [atom] if isinstance(atom, str) else _ordered(atom.num)
    return list(dict.fromkeys(found))


def _mixes(entry: Affine, out: Sequence[str], reduced: Sequence[str]) -> bool:
    """A sum of an output axis and a reduce axis."""
    axes = entry.axes()
    return not axes.isdisjoint(out) and not axes.isdisjoint(reduced)


def _slides(load: Load, sizes: Mapping[str, Dim], out: Sequence[str], reduced: Sequence[str]) -> bool:
    """Whether an operand is read as windows are: at sums of an output axis and a reduce axis. A sum in one dimension
    whose parts lie side by side (heads of 16: ``16*i1+r0`` where r0 < 16) is a split axis, and no window."""
    mixed = [entry for entry in load.index if _mixes(entry, out, reduced)]
    return len(mixed) > 1 or any(not _side_by_side(entry, sizes) for entry in mixed)


def _side_by_side(entry: Affine, sizes: Mapping[str, Dim]) -> bool:
    reach: Dim = 1
    for coef, atom in sorted(entry.terms, key=lambda term: term[0]):
        if not isinstance(atom, str) or coef != reach:
            return False
        size = sizes.get(atom)
        reach = coef * size if isinstance(size, int) else 0
    return True
