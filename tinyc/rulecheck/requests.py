"""What the built-in rules ask for, and where they look: the policy of the words that ask (rules/meanings.egg). An answer is
true whatever was asked, and the candidates of a problem that no kernel is are never looked up: asking for more is sound.

While an instance is made, its requests are noted (:meth:`Context.note`); what a rule then asks for is held against them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import ROUNDED

from .context import LEVEL
from .machines import limits_of
from .schedules import points_of, rows_of, unit_of
from .term import Term, Value

if TYPE_CHECKING:
    from .world import World

CORES = (64, 256)
"""Points that the rows and the columns of a packed product have at least."""

SHALLOW = 64
"""Products that go into a tile at a time, where its own are fewer: what a part of a sum is measured in."""


def asked_cut(world: World, size: int, extent: int, unit: int) -> bool:
    """A side of a problem's tile, what a block takes of a row, or half of what is asked for while that covers the extent."""
    if min(size, extent, unit) <= 0 or size % unit:
        return False
    world.context.note("cut", (size, extent, unit))
    told = world.context.noted("cut")
    problems = [each for each in world.built if each.head in ("Product", "Row")]
    if not world.context.complete:
        return True
    halves = {(s // 2, e, u) for s, e, u in told if s % (2 * u) == 0 and s // 2 >= e}
    sides = (each for problem in problems for each in _sides(world, problem))
    return (size, extent, unit) in {*told, *halves, *sides}


def _sides(world: World, problem: Term) -> Iterator[tuple[int, int, int]]:
    """Size, extent and unit of all that may be cut for a problem."""
    if problem.head == "Row":
        n, size = problem.args
        if size <= 0:
            return
        width = min(n & -n, limits_of(world.context)["access"] // size)
        for (lanes,) in rows_of(world, "warp-threads"):
            for (threads,) in rows_of(world, "block-threads"):
                yield threads * width, max(n, lanes * width), lanes * width
        return
    _, _, m, n, k, *_ = problem.args
    unit = unit_of(world, problem)
    for rows, columns, depth, *_ in rows_of(world, "compute-unit", unit):
        for bm, bn, bk in rows_of(world, "tile-shape", unit):
            yield bm, max(m, rows), rows
            yield bn, max(n, columns), columns
            yield bk, max(k, depth), depth


def tile(world: World, problem: Term, bm: int, bn: int, bk: int) -> bool:
    """A tile that the instance has: nothing is asserted of it, but its sides may be asked for."""
    world.context.note("tile", (problem, bm, bn, bk))
    return True


def asked_fit(world: World, part: int, whole: int) -> bool:
    """Rows of a warp's part, or as many of its columns as one instruction has, and those of a tile."""
    if min(part, whole) <= 0:
        return False
    pairs = [
        (one, other)
        for problem, bm, bn, _ in world.context.noted("tile")
        for unit in (unit_of(world, problem),)
        for kind, rows, columns in rows_of(world, "warp-shape", unit)
        for _, _, _, widest, *_ in rows_of(world, "compute-unit", unit)
        if kind == problem.args[0]
        for one, other in ((rows, bm), (min(columns, widest), bn))
    ]
    return not world.context.complete or (part, whole) in pairs


def asked_core(world: World, axes: Value, least: int) -> bool:
    """The rows or columns of a contraction."""
    world.context.note("core-least", (axes, least))
    if not world.context.complete:
        return least in CORES
    sides = [side for row in world.context.noted("contraction") for side in row[4:6]]
    return (axes in sides and least in CORES) or (axes, least) in world.context.noted("core-least")


def contracted(world: World, batch: Value, m: Value, n: Value) -> bool:
    """The roles of a contraction."""
    told = [row[3:] for row in world.context.noted("contraction")]
    return not world.context.complete or (batch, m, n) in told


def operand(world: World, x: Term, summed: Value, batch: Value) -> bool:
    """It is a factor of a contraction over these axes."""
    world.context.note("operand", (x, summed, batch))
    told = world.context.noted("contraction")
    factors = [(each, ks, bs) for a, b, ks, bs, _, _ in told for each in (a, b)]
    factors += world.context.noted("operand")
    return not world.context.complete or (x, summed, batch) in factors


def tail(world: World, index: Term, rest: Term) -> bool:
    """``rest`` is what follows some of the first terms of a sum in normal form."""
    world.context.note("tail", (index, rest))
    if (index, rest) in world.context.noted("tail"):
        return True
    facts = world.facts
    (whole, const), (part, more) = facts.linear(index), facts.linear(rest)
    before = [facts.key(atom) for atom in whole if atom not in part]
    after = min(map(facts.key, part), default=None)
    return (
        const == more
        and all(whole.get(atom) == coef for atom, coef in part.items())
        and (after is None or all(key < after for key in before))
    )


def tails(world: World, index: Term) -> list[Term]:
    """Every tail of a sum."""
    facts = world.facts
    coefs, const = facts.linear(index)
    found: list[Value] = [world.build("Lit", (const,))]
    for atom in sorted(coefs, key=facts.key, reverse=True):
        found.append(world.build("Plus", (coefs[atom], atom, found[-1])))
    return found


# ---- problems ----


def problem(world: World, term: Term) -> bool:
    """What a contraction of the instance, or a loop, is to a schedule."""
    world.context.note("problem", (term,))
    match term.head:
        case "Product" | "Packed":
            told = world.context.noted("contraction")
            made = _products if term.head == "Product" else _packed
            found = [each for row in told for each in made(world, *row)]
        case "Walk":
            found = list(_walks(world, term.args[3]))
        case "Row":
            fills = [each for each in world.built if each.head == "Fill" and each.args[1]]
            found = [(_row(each.args[1]), DType(each.args[0]).itemsize) for each in fills]
        case _:
            fills = [each for each in world.built if each.head == "Fill"]
            sums = [c for (c,) in world.context.noted("summed")]
            found = [(_row(each.args[1]), c, DType(each.args[0]).itemsize) for each in fills for c in sums]
    return not world.context.complete or term.args in found or (term,) in world.context.noted("problem")


def streamed(world: World, bound: Value, score: Term, weight: Term) -> bool:
    """What some Stream weights, and by which scores."""
    world.context.note("streamed", (bound, score, weight))
    made = [each.args[-4:-1] for each in world.built if each.head in ("Stream", "RoundedStream")]
    told = (*made, *world.context.noted("streamed"))
    return not world.context.complete or (bound, score, weight) in told


def _walks(world: World, said: int) -> Iterator[tuple[Value, ...]]:
    """Rows, columns, depth, width and bytes of an element: a Stream beside a contraction of which one side is walked. ``said``: the
    width, which is any where facts are loose, since weights may then be known to depend on more axes than are spelled in them."""
    facts = world.facts
    for bound, score, weight in world.context.noted("streamed"):
        walked = facts.axes_of(bound)
        wide = facts.free(weight) - facts.free(score) - walked
        # of the axes that scores are known to depend on there may be more than are spelled in them
        widths = {
            points_of(frozenset(part))
            for count in range(len(wide) + 1)
            for part in itertools.combinations(wide, count)
        }
        widths |= {said} if world.context.loose else set()
        for _, _, summed, _, m, n in world.context.noted("contraction"):
            for size, _ in world.context.noted("loads", weight):
                for rows, columns in ((m, n), (n, m)):
                    if columns == walked:
                        sizes = points_of(rows), points_of(columns), points_of(summed)
                        yield from ((*sizes, width, size) for width in sorted(widths))


def _row(shape: tuple[int, ...]) -> int:
    """The points along the last axis that has several; 1 where none has."""
    return next((size for size in reversed(shape) if size > 1), 1)


def summed_points(world: World, count: int) -> bool:
    """The points of some reduction."""
    world.context.note("summed", (count,))
    made = [each for each in world.built if each.head == "Reduce"]
    told = {points_of(world.facts.axes_of(each.args[1])) for each in made}
    return not world.context.complete or count in told or (count,) in world.context.noted("summed")


def _products(
    world: World, a: Term, b: Term, summed: Value, batch: Value, m: Value, n: Value
) -> Iterator[tuple[Value, ...]]:
    noted = world.context.noted
    rounded = all(each.head == "Unary" and each.args[0] == ROUNDED for each in (a, b))
    a, b = (each.args[1] if rounded else each for each in (a, b))
    for left, slid in noted("staged", a):
        for right, slides_ in noted("staged", b):
            for points, along in noted("ordered", batch, m, n):
                kind = ("conv" if slid or slides_ else "matmul") + ("-tf32" if rounded else "")
                yield (
                    kind,
                    points_of(batch),
                    points_of(m),
                    points_of(n),
                    points_of(summed),
                    left,
                    right,
                    points,
                    along,
                )


def _packed(
    world: World, a: Term, b: Term, summed: Value, batch: Value, m: Value, n: Value
) -> Iterator[tuple[Value, ...]]:
    noted = world.context.noted
    whole = points_of(batch) * points_of(m) * points_of(n)
    for _, along in noted("ordered", batch, m, n):
        rows, columns = (n, m) if along == "m" else (m, n)
        for (r,), (c,) in itertools.product(noted("core", rows, 64), noted("core", columns, 256)):
            yield whole // (r * c), r, c, points_of(summed)


def tiles(world: World, count: int, depth: int) -> bool:
    """The result of a contraction has so many tiles of a shape of this depth, too few for the machine."""
    world.context.note("tiles", (count, depth))
    if not world.context.complete or (count, depth) in world.context.noted("tiles"):
        return count > 0 and depth > 0
    told = world.context.noted("contraction")
    shapes = [row for row in rows_of(world, "tile-shape") if row[2] == depth and min(row) > 0]
    most = limits_of(world.context)["multiprocessors"]
    counts = {
        points_of(batch) * -(-points_of(m) // int(bm)) * -(-points_of(n) // int(bn))
        for _, _, _, batch, m, n in told
        for bm, bn, _ in shapes
    }
    return count in counts and 2 * count <= most


def filling(world: World, r: Term) -> bool:
    """It has an element at a kernel's own axes, and so may fill a buffer."""
    world.context.note("filling", (r,))
    elements = [each for each in world.built if each.head == "At" and each.args[0] == r]
    found = any(
        max((each.args[0] for each in world.facts.axes_of(at.args[1])), default=-1) < LEVEL for at in elements
    )
    return not world.context.complete or found or (r,) in world.context.noted("filling")


def asked_parts(world: World, r: Term, n: int, x: Term, parts: int) -> bool:
    """No part itself, cut in so many as a machine computes at once, each long enough: a product with few tiles, or a reduction
    with few results."""
    world.context.note("parts", (r, n, x, parts))
    if not world.context.complete or (r, n, x, parts) in world.context.noted("parts"):
        return True
    return _whole(world, r) and (_tiled(world, n, x, parts) or _staged(world, n, x, parts))


def asked_more(world: World, r: Term, n: int, x: Term, more: int) -> bool:
    """So many points of the first reduced axis are lacking to cut a reduction with few results in equal parts, and there are
    more of them than parts."""
    world.context.note("more", (r, n, x, more))
    if not world.context.complete or (r, n, x, more) in world.context.noted("more"):
        return True
    extent = _first(world, n, x)
    return _whole(world, r) and any(
        0 < more < parts < extent and (extent + more) % parts == 0 and _staged(world, n, x, parts)
        for (parts,) in world.rows("stage-parts")
    )


def _whole(world: World, r: Term) -> bool:
    """No part of another reduction, and the value of a kernel."""
    return world.context.assumed.get(("fusible", (r,)), -1) >= 0 and filling(world, r)


def _first(world: World, n: int, x: Term) -> int:
    """The points of the first of the last ``n`` axes."""
    shape = world.facts._of(x)
    return shape[len(shape) - n]


def _tiled(world: World, n: int, x: Term, parts: int) -> bool:
    """A sum of few tiles, of which each part is four deep, and as long as one along the first of its axes."""
    shape, most = world.facts._of(x), limits_of(world.context)["multiprocessors"]
    points = math.prod(shape[len(shape) - n :])
    long = (parts,) in world.rows("split-parts") and SHALLOW * parts <= _first(world, n, x)
    return long and any(
        parts * count <= most and max(4, parts) * 4 * max(SHALLOW, depth) <= points
        for count, depth in world.context.noted("tiles")
    )


def _staged(world: World, n: int, x: Term, parts: int) -> bool:
    """A long reduction of few results."""
    shape, most = world.facts._of(x), limits_of(world.context)["multiprocessors"]
    results, points = math.prod(shape[: len(shape) - n]), math.prod(shape[len(shape) - n :])
    return (parts,) in world.rows("stage-parts") and any(
        parts * results <= most and max(least, parts * part) <= points
        for least, part in world.rows("long-reduction")
    )
