"""How a product is cut for a GPU: which tiles and which parts of a warp the built-in rules have (rules/meanings.egg)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tinyc.ir.units import UNITS, Unit

from .machines import limits_of
from .schedules import Block, Row, cut, fit, rows_of, unit_of
from .term import Term

if TYPE_CHECKING:
    from .world import World

LARGEST, SMALLEST = 128 * 64, 32
"""Points of a tile that is halved, at most, and along the side that is left, at least."""

KINDS, BYTES = ("matmul", "conv", "matmul-tf32", "conv-tf32"), frozenset((0, 1, 2, 4))
"""Of products, and of the elements of an operand; 0 is one that has no tiles."""

WARPS, BUSY, PART = 4, 8, 256
"""Warps that a block has at least, and a multiprocessor; points of a part that is not halved any more."""


def unit_for(world: World, problem: Term) -> Unit | None:
    """What multiplies; None where that has no tiles."""
    if problem.head != "Product" or problem.args[0] not in KINDS or not BYTES.issuperset(problem.args[5:7]):
        return None
    return UNITS.get(unit_of(world, problem))


def whole(world: World, problem: Term, rows: int, columns: int) -> bool:
    """They are whole instructions."""
    unit = unit_for(world, problem)
    return unit is not None and min(rows, columns) > 0 and rows % unit.rows == 0 == columns % unit.columns


def parts_of(world: World, problem: Term, bm: int, bn: int, wm: int, wn: int) -> bool:
    """A tile is made of such parts, and no instruction has fewer columns than one of them."""
    unit = unit_for(world, problem)
    return unit is not None and min(wm, wn) > 0 and bm % wm == 0 == bn % wn and wn <= unit.widest


def deep(world: World, problem: Term, depth: int) -> bool:
    """It is the depth of whole instructions."""
    unit = unit_for(world, problem)
    return unit is not None and depth > 0 and depth % unit.depth == 0


def owned(
    world: World, problem: Term, bm: int, bn: int, shapes: Sequence[Row] = ()
) -> Iterator[list[tuple[int, int]]]:
    """What the table, or some rows of it, give a warp of the tile, and halves of that along the longer side, for each row."""
    unit = unit_for(world, problem)
    if unit is None:
        return
    for kind, rows, columns in shapes or rows_of(world, "warp-shape", unit.name):
        wm, wn = fit(world, rows, bm) or 0, fit(world, min(columns, unit.widest), bn) or 0
        found: list[tuple[int, int]] = []
        while kind == problem.args[0] and whole(world, problem, wm, wn):
            found.append((wm, wn))
            wm, wn = (wm // 2, wn) if wn <= wm else (wm, wn // 2)
        yield found


def block(world: World, problem: Term, bm: int, bn: int, bk: int) -> bool:
    """A tile of the table, cut to the problem, or halved along the longer side where the machine is not half full."""
    unit = unit_for(world, problem)
    return unit is not None and (bm, bn, bk) in set(blocks(world, problem, unit))


def cut_tile(world: World, problem: Term, bm: int, bn: int, bk: int) -> bool:
    """A tile of the table, cut to the problem."""
    unit = unit_for(world, problem)
    return unit is not None and (bm, bn, bk) in set(cut_tiles(world, problem, unit))


def cut_tiles(world: World, problem: Term, unit: Unit, shapes: Sequence[Row] = ()) -> Iterator[Block]:
    _, _, m, n, k, *_ = problem.args
    for rows, columns, depth in shapes or rows_of(world, "tile-shape", unit.name):
        sides = ((rows, m, unit.rows), (columns, n, unit.columns), (depth, k, unit.depth))
        if all(size > 0 and size % own == 0 for size, _, own in sides):
            bm, bn, bk = (cut(world, size, max(extent, own), own) or 0 for size, extent, own in sides)
            yield bm, bn, bk


def halved(world: World, problem: Term, bm: int, bn: int, bk: int) -> bool:
    """A tile of the table, cut to the problem, or halves of its sides, in whole instructions."""
    unit = unit_for(world, problem)
    return unit is not None and (bm, bn, bk) in set(halves(world, problem, unit))


def sides(world: World, problem: Term, bm: int, bn: int) -> bool:
    """Those of some tile or its halves."""
    unit = unit_for(world, problem)
    return unit is not None and any((bm, bn) == each[:2] for each in halves(world, problem, unit))


def halves(world: World, problem: Term, unit: Unit, shapes: Sequence[Row] = ()) -> Iterator[Block]:
    for rows, columns, depth in cut_tiles(world, problem, unit, shapes):
        for bm in _halves(rows, unit.rows):
            for bn in _halves(columns, unit.columns):
                yield bm, bn, depth


def _halves(size: int, own: int) -> Iterator[int]:
    """A side, half of it, half of that, and so on, while they are whole."""
    yield size
    while size % (2 * own) == 0:
        size //= 2
        yield size


def blocks(world: World, problem: Term, unit: Unit, shapes: Sequence[Row] = ()) -> Iterator[Block]:
    """Those of :func:`block`, of some rows of the table or all."""
    k = problem.args[4]
    todo = list(cut_tiles(world, problem, unit, shapes))
    while todo:
        bm, bn, bk = todo.pop()
        yield bm, bn, bk
        busy = 2 * _grid(problem, bm, bn) > limits_of(world.context)["multiprocessors"]
        if busy or bm * bn > LARGEST or bk < min(4 * unit.depth, k):
            continue
        if bn <= bm and bm >= 2 * SMALLEST and bm % (2 * unit.rows) == 0:
            todo.append((bm // 2, bn, bk))
        if bm <= bn and bn >= 2 * SMALLEST and bn % (2 * unit.columns) == 0:
            todo.append((bm, bn // 2, bk))


def part(world: World, problem: Term, bm: int, bn: int, wm: int, wn: int) -> bool:
    """What the table gives a warp of the tile, or half of that while it is thin."""
    for halves in owned(world, problem, bm, bn):
        for own in halves:
            if own == (wm, wn):
                return True
            if not thin(world, problem, bm, bn, *own):
                break
    return False


def thin(world: World, problem: Term, bm: int, bn: int, wm: int, wn: int) -> bool:
    """Too few warps for a block and for the machine, and more than one instruction's points to share."""
    unit = unit_for(world, problem)
    if unit is None or min(bm, bn, wm, wn) < 1:
        return False
    count = unit.warps * (bm // wm) * (bn // wn)
    few = (
        count < WARPS and count * _grid(problem, bm, bn) < BUSY * limits_of(world.context)["multiprocessors"]
    )
    return few and wm * wn > PART and even(world, problem, wm, wn)


def thick(world: World, problem: Term, bm: int, bn: int, wm: int, wn: int) -> bool:
    return not thin(world, problem, bm, bn, wm, wn)


def paired(world: World, problem: Term, bm: int, bn: int, stages: int, wm: int, wn: int) -> bool:
    """Thick, or two parts of a tile that is larger than the smallest of the table, in a ring of two."""
    two = stages == 2 and min(wm, wn) > 0 and (bm // wm) * (bn // wn) == 2 and bm * bn > 64 * 64
    return two or thick(world, problem, bm, bn, wm, wn)


def even(world: World, problem: Term, wm: int, wn: int) -> bool:
    """Half of the longer side is whole instructions."""
    unit = unit_for(world, problem)
    return unit is not None and max(wm, wn) % (2 * max(unit.rows, unit.columns)) == 0


def _grid(problem: Term, bm: int, bn: int) -> int:
    _, batch, m, n, *_ = problem.args
    blocks: int = batch * -(-m // bm) * -(-n // bn)
    return blocks
