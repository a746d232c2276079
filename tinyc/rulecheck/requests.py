"""What rules may ask for, and where they may look. An answer is true whatever was asked, but a request that belongs to no
problem of the instance is a mistake.

While an instance is made, its requests are noted (:meth:`Context.note`); what a rule then asks for must be made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tinyc.egraph.encode import machine_limits
from tinyc.ir.resources import LIMITS

from .term import Term, Value

if TYPE_CHECKING:
    from .world import World

CORES = (64, 256)
"""Points that the rows and the columns of a packed product have at least."""


def rows_of(world: World, table: str) -> list[tuple[Value, ...]]:
    """The rows of a table of the hardware for the machine, without its name."""
    return [row[1:] for row in world.rows(table) if row[0] == world.context.machine]


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
        width = min(n & -n, machine_limits(LIMITS[world.context.machine])["access"] // size)
        for (lanes,) in rows_of(world, "warp-threads"):
            for (threads,) in rows_of(world, "block-threads"):
                yield threads * width, max(n, lanes * width), lanes * width
        return
    _, _, m, n, k, left, right, _, _ = problem.args
    size = max(2, left, right)
    step = 32 // size
    for rows, columns, *_ in rows_of(world, "matrix-unit"):
        for bm, bn, depth in rows_of(world, "tile-shape"):
            yield bm, max(m, rows), rows
            yield bn, max(n, columns), columns
            yield 2 * depth // size, max(k, step), step


def tile(world: World, problem: Term, bm: int, bn: int, bk: int) -> bool:
    """A tile that the instance has."""
    world.context.note("tile", (problem, bm, bn, bk))
    return True


def asked_fit(world: World, part: int, whole: int) -> bool:
    """Rows or columns of a warp's part, and those of a tile."""
    if min(part, whole) <= 0:
        return False
    pairs = [
        (one, other)
        for problem, bm, bn, _ in world.context.noted("tile")
        for kind, rows, columns in rows_of(world, "warp-shape")
        if kind == problem.args[0]
        for one, other in ((rows, bm), (columns, bn))
    ]
    return not world.context.complete or (part, whole) in pairs


def asked_core(world: World, axes: Value, least: int) -> bool:
    """The rows or columns of a contraction."""
    world.context.note("core-least", (axes, least))
    if not world.context.complete:
        return least in CORES
    sides = [side for row in world.context.noted("contraction") for side in row[4:6]]
    return (axes in sides and least in CORES) or (axes, least) in world.context.noted("core-least")


def tail(world: World, index: Term, rest: Term) -> bool:
    """``rest`` is what follows some of the first terms of a sum in normal form."""
    world.context.note("tail", (index, rest))
    if (index, rest) in world.context.noted("tail"):
        return True
    facts = world.facts
    (whole, const), (part, more) = facts.linear(index), facts.linear(rest)
    if any(each in world.context.leaves for each in whole):
        return not world.context.complete
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
