"""Row softmax and attention in a program (document 004 §15.3): which blocks are qk_matmul, row_softmax, pv_matmul.

A row softmax is ``exp2((s - max s) * c) / sum of exp2((s - max s) * c)`` of one score ``s``, where the maximum and the
sum run over the same axes of it. It is attention where a contraction makes the score (scaled, masked, cast in
between) or a contraction sums the probabilities against something along those axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tinyc.ir.index import axis
from tinyc.ir.tiny import Dim

from .patterns import Contraction
from .ranges import simplify
from .walk import Point, Walk

SCORE = ("CAST", "MUL", "FDIV", "ADD", "SUB", "WHERE", "NEG", "MAX", "MIN")
"""What may lie between a contraction and the softmax of it: scales, masks, biases, limits, casts."""

WEIGHT = ("CAST", "MUL", "FDIV", "WHERE")
"""What may lie between the softmax and the contraction of it: casts, dropout."""

Sizes = Mapping[str, Dim]


@dataclass(frozen=True, slots=True)
class Attention:
    """Ids of the blocks, in the order of the program. ``qk_matmul`` and ``pv_matmul`` are empty where there is none."""

    qk_matmul: tuple[str, ...]
    row_softmax: tuple[str, ...]
    pv_matmul: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Softmax:
    """``blocks``: maximum, difference, scales, exp2, sum, division. ``axes``: those of ``result`` that it runs over."""

    score: Point
    result: str
    axes: tuple[str, ...]
    blocks: frozenset[str]


def attentions(walk: Walk, contractions: Mapping[str, Contraction]) -> tuple[Attention, ...]:
    """Every row softmax of the program, with the contractions before and after it."""
    order = {node.id: number for number, node in enumerate(walk.program.nodes)}
    divisions = (node.id for node in walk.program.nodes if node.uop in ("FDIV", "MUL"))
    softmaxes = {id: found for id in divisions if (found := _softmax(walk, id)) is not None}
    consumers: dict[str, list[str]] = {id: [] for id in softmaxes}
    for contraction in contractions.values():
        for id in _consumed(walk, contraction, softmaxes):
            consumers[id].append(contraction.name)

    def ordered(ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(ids, key=order.__getitem__))

    return tuple(
        Attention(
            ordered(_sources(walk, found.score, contractions)), ordered(found.blocks), ordered(consumers[id])
        )
        for id, found in softmaxes.items()
    )


def _softmax(walk: Walk, id: str) -> _Softmax | None:
    """The softmax whose division is ``id``."""
    sizes = walk.sizes(id)
    here = Point(id, tuple(axis(f"i{number}") for number in range(len(walk.program.types[id].shape))))
    for powers, total, between in _quotients(walk, here, sizes):
        top = walk.node(powers.id)
        if top.uop != "EXP2" or walk.node(total.id).uop != "REDUCE" or walk.node(total.id).arg["op"] != "SUM":
            continue
        rows = _rows(walk, powers, total, sizes)
        shifted = _difference(walk, powers, sizes)
        if rows is None or shifted is None:
            continue
        score, largest, inner = shifted
        if _rows(walk, score, largest, sizes) != rows:
            continue
        blocks = {id, powers.id, total.id, largest.id, *between, *inner}
        return _Softmax(score, id, rows, frozenset(blocks))
    return None


def _quotients(walk: Walk, here: Point, sizes: Sizes) -> Iterator[tuple[Point, Point, set[str]]]:
    """``(powers, total, what lies between)`` of ``powers / total`` and of ``powers * (1 / total)``."""
    left, right = (walk.operand(here, position, sizes) for position in (0, 1))
    if left is None or right is None:
        return
    if walk.node(here.id).uop == "FDIV":
        yield _bare(walk, left, sizes), _bare(walk, right, sizes), set()
        return
    for powers, inverse in ((left, right), (right, left)):
        inverse = _bare(walk, inverse, sizes)
        node = walk.node(inverse.id)
        if node.uop == "RECIP" or (node.uop == "FDIV" and node.src[0] == 1):
            total = walk.operand(inverse, len(node.src) - 1, sizes)
            if total is not None:
                yield _bare(walk, powers, sizes), _bare(walk, total, sizes), {inverse.id}


def _bare(walk: Walk, point: Point, sizes: Sizes) -> Point:
    """Through movement and casts."""
    while True:
        inner = walk.same(point, sizes)
        if inner is None:
            return point
        below = walk.follow(inner, 0, sizes) if walk.node(inner.id).uop == "CAST" else None
        if below is None:
            return inner
        point = below


def _difference(walk: Walk, powers: Point, sizes: Sizes) -> tuple[Point, Point, set[str]] | None:
    """``(s, its maximum, what lies between)`` of ``exp2((s - max) * c)``, and of ``exp2(s*c - max*c)``."""
    point = walk.operand(powers, 0, sizes)
    between: set[str] = set()
    while point is not None:
        point = _bare(walk, point, sizes)
        scaled = _scaled(walk, point, sizes)
        if scaled is None:
            break
        between.add(point.id)
        point = scaled[0]
    if point is None or walk.node(point.id).uop != "SUB":
        return None
    between.add(point.id)
    sides = [walk.operand(point, position, sizes) for position in (0, 1)]
    left, right = (None if side is None else _bare(walk, side, sizes) for side in sides)
    while left is not None and right is not None:
        node = walk.node(right.id)
        if node.uop == "REDUCE" and node.arg["op"] == "MAX":
            return left, right, between
        one, two = _scaled(walk, left, sizes), _scaled(walk, right, sizes)
        if one is None or two is None or one[1] != two[1]:
            return None
        between |= {left.id, right.id}
        left, right = _bare(walk, one[0], sizes), _bare(walk, two[0], sizes)
    return None


def _scaled(walk: Walk, point: Point, sizes: Sizes) -> tuple[Point, tuple[str, float]] | None:
    """``(x, (uop, c))`` of ``x * c``, ``c * x`` and ``x / c`` for a number c > 0."""
    node = walk.node(point.id)
    if node.uop not in ("MUL", "FDIV"):
        return None
    for position, other in ((0, 1), (1, 0)):
        number = node.src[other]
        if not isinstance(number, str) and number > 0 and (node.uop == "MUL" or position == 0):
            inner = walk.operand(point, position, sizes)
            return None if inner is None else (inner, (node.uop, float(number)))
    return None


def _rows(walk: Walk, value: Point, reduction: Point, sizes: Sizes) -> tuple[str, ...] | None:
    """The axes over which ``reduction`` runs, if what it reduces is ``value``: along all other axes both are read at the
    same place. An axis of one point has no name left in an index: it is 0 on both sides."""
    link = walk.links(reduction.id)[0]
    sideways = value.axes() - reduction.axes()
    names = [name for name in sizes if name in sideways]
    bound = [each for each in walk.info(reduction.id).reduced if each.size != 1]
    if link is None or [each.size for each in bound] != [sizes[name] for name in names]:
        return None
    values = {f"i{number}": entry for number, entry in enumerate(reduction.index)}
    values |= {each.name: axis(name) for each, name in zip(bound, names, strict=True)}
    inner = Point(link.id, tuple(simplify(entry.substitute(values), sizes) for entry in link.index))
    return tuple(names) if _bare(walk, inner, sizes) == value else None


def _sources(walk: Walk, score: Point, contractions: Mapping[str, Contraction]) -> set[str]:
    """The contractions that a score is made of."""
    found: set[str] = set()
    seen: set[str] = set()
    stack = [score.id]
    while stack:
        id = stack.pop()
        if id in seen:
            continue
        seen.add(id)
        if id in contractions:
            found.add(id)
            continue
        node = walk.node(id)
        if node.uop in SCORE:
            sources = node.src[1:] if node.uop == "WHERE" else node.src
            stack += [source for source in sources if isinstance(source, str)]
        elif node.uop in ("RESHAPE", "PERMUTE", "EXPAND", "SHRINK", "FLIP", "VIEW", "PAD"):
            stack += node.operands()
    return found


def _consumed(walk: Walk, contraction: Contraction, softmaxes: Mapping[str, _Softmax]) -> set[str]:
    """The softmaxes whose probabilities are an operand, summed along the axes of the softmax."""
    sizes = walk.sizes(contraction.name)
    found: set[str] = set()
    for load in (contraction.lhs, contraction.rhs):
        stack, seen = [Point(load.tensor, load.index)], set()
        while stack:
            point = walk.same(stack.pop(), sizes)
            if point is None or point in seen:
                continue
            seen.add(point)
            node = walk.node(point.id)
            if point.id in softmaxes:
                along = (point.index[int(name[1:])].axes() for name in softmaxes[point.id].axes)
                if all(not axes.isdisjoint(contraction.k) for axes in along):
                    found.add(point.id)
            elif node.uop in WEIGHT and walk.scop(point.id):
                below = (
                    walk.operand(point, position, sizes)
                    for position, source in enumerate(node.src)
                    if isinstance(source, str) and not (node.uop == "WHERE" and position == 0)
                )
                stack += [each for each in below if each is not None]
    return found
