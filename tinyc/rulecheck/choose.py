"""Values for which predicates hold, where some at random hardly would: what a schedule is made of, from the lists of those that
there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.units import Unit

from .parse import Lit, Var
from .predicates import CHOICES
from .requests import CORES
from .schedules import Row, ordered_of, packs, points_of, rows_of, runs_of
from .shapes import same_size
from .steps import Arg, Case, Step
from .term import Value
from .tiling import blocks, cut_tiles, halves, owned, unit_for

if TYPE_CHECKING:
    from .instantiate import Attempt


INVENTED = 2
"""Rows of a table that are made up together."""


@dataclass(frozen=True)
class Listing:
    """What the last places of a predicate may be, given the first ``given`` after its name."""

    given: int
    rows: Callable[..., Iterable[Row]]


def listing_of(step: Step) -> Listing | None:
    """Of a predicate, if it has one."""
    if step.kind != "predicate" or not isinstance(step.args[0], Lit):
        return None
    return LISTED.get(step.args[0].value)


def rows_for(attempt: Attempt, name: str) -> list[dict[str, Value]] | None:
    """What a variable may be, and others with it that stand beside it in a predicate; None where nobody lists that, or what it
    hangs on is not known yet."""
    for listing, step in _listings(attempt.case, name):
        first, rest = step.args[1 : 1 + listing.given], step.args[1 + listing.given :]
        if all(map(attempt.bound, first)):
            rows = list(dict.fromkeys(listing.rows(attempt, *map(attempt.get, first))))
            fitting = [row for row in rows if _fitting(attempt, rest, row) is not None]
            others = _others(attempt, step, fitting) if attempt.rng.random() < 0.7 else fitting
            return [found for row in others if (found := _fitting(attempt, rest, row)) is not None]
    return None


def _others(attempt: Attempt, step: Step, rows: list[Row]) -> list[Row]:
    """The rows that no other step has which asks for the same; all, where there are no more. What is said of two is often wrong of
    two that differ."""
    taken = {
        tuple(map(attempt.get, other.args[-len(rows[0]) :]))
        for other in attempt.case.steps
        if rows
        and other is not step
        and other.args[:1] == step.args[:1]
        and all(map(attempt.bound, other.args))
    }
    return [row for row in rows if tuple(row) not in taken] or rows


def _listings(case: Case, name: str) -> Sequence[tuple[Listing, Step]]:
    """The lists of what a variable may be, the narrowest first, each with its predicate."""
    key = f"listing {name}"
    if key not in case.memo:
        ranks = list(LISTED.values())
        asked = [(listing_of(step), step, position) for step, position in case.uses[name]]
        found = [(listing, step) for listing, step, position in asked if listing and position > listing.given]
        case.memo[key] = sorted(found, key=lambda each: ranks.index(each[0]))
    listings: Sequence[tuple[Listing, Step]] = case.memo[key]
    return listings


def _fitting(attempt: Attempt, args: Sequence[Arg], row: Row) -> dict[str, Value] | None:
    """The values that a row gives to variables that have none; None where it does not fit the others."""
    found: dict[str, Value] = {}
    for arg, value in zip(args, row, strict=True):
        known = (
            attempt.get(arg) if attempt.bound(arg) else found.get(arg.name) if isinstance(arg, Var) else None
        )
        if known is None:
            found[str(arg)] = value
        elif known != value:
            return None
    return found


# ---- lists ------------------------------------------------------------------------------------------------------------


def _invented(attempt: Attempt, table: str, row: Callable[[], Row]) -> None:
    """Now and then some rows of a table that tinyc does not have; every other time they differ in one place alone."""
    if not attempt.world.context.rows.get(table) and attempt.invents(table):
        first, *others = (row() for _ in range(INVENTED))
        if attempt.rng.random() < 0.5:
            at = attempt.rng.randrange(len(first))
            others = [(*first[:at], each[at], *first[at + 1 :]) for each in others]
        attempt.invented[table] = [first, *others]
        attempt.world.context.rows[table] = list(attempt.invented[table])


def _told(attempt: Attempt, table: str, owner: str) -> list[Row]:
    """The rows of a table that the instance speaks of, or all."""
    told = attempt.world.context.rows.get(table, ())
    return [row[1:] for row in told if row[0] == owner] or rows_of(attempt.world, table, owner)


def _packs(attempt: Attempt, outer: int, m: int, n: int, k: int) -> Iterable[Row]:
    """Blocks of a packed product; now and then of a shape of some equal parts of each side."""
    rng = attempt.rng

    def shape() -> Row:
        alike = rng.randint(1, 8)
        return (
            attempt.world.context.machine,
            *(-(-side // rng.choice((alike, rng.randint(1, 8)))) for side in (m, n, k)),
        )

    _invented(attempt, "tile-shape", shape)
    return packs(attempt.world, outer, m, n, k, _told(attempt, "tile-shape", attempt.world.context.machine))


def _whole(attempt: Attempt, problem: Value) -> Iterable[Row]:
    """Rows and columns of some whole instructions."""
    unit = unit_for(attempt.world, problem)
    if unit is None:
        return []
    counts = (1, 2, 3, 4, 5, 8, 9, 16)
    return [(unit.rows * some, unit.columns * more) for some in counts for more in counts]


def _deep(attempt: Attempt, problem: Value) -> Iterable[Row]:
    unit = unit_for(attempt.world, problem)
    return [] if unit is None else [(unit.depth * some,) for some in (1, 2, 3, 4, 5, 8, 16)]


def _tiles(
    attempt: Attempt, problem: Value, made: Callable[..., Iterable[Row]], places: int = 3
) -> Iterable[Row]:
    """What is made of the shapes of the table, now and then of one that it does not have; the first sides of that."""
    unit = unit_for(attempt.world, problem)
    if unit is None:
        return []
    _invented(attempt, "tile-shape", lambda: _shape(attempt, unit))
    shapes = _told(attempt, "tile-shape", unit.name)
    return dict.fromkeys(row[:places] for row in made(attempt.world, problem, unit, shapes))


def _shape(attempt: Attempt, unit: Unit) -> Row:
    """Some whole instructions, about as many as the tiles of the table have."""
    rng = attempt.rng

    def side(own: int, most: int) -> int:
        return own * rng.choice((1, 2, 3, 4, 8, 16, *(rng.randint(1, max(1, most // own)) for _ in range(3))))

    return (unit.name, side(unit.rows, 256), side(unit.columns, 256), side(unit.depth, 128))


def _own_shape(attempt: Attempt, unit: Unit, kind: Value, bm: int, bn: int) -> Row:
    """A part of a tile, or what does not divide it."""
    rng = attempt.rng
    some = (max(1, each * 8 // rng.choice((4, 8, 8, 16, 16, 24, 24, 32, 40, 48, 64))) for each in (bm, bn))
    return (unit.name, kind, *some)


def _parts(attempt: Attempt, problem: Value, bm: int, bn: int) -> Iterable[Row]:
    """What a warp has of a tile, and halves of that."""
    unit = unit_for(attempt.world, problem)
    if unit is None or min(bm, bn) < 1:
        return []
    _invented(attempt, "warp-shape", lambda: _own_shape(attempt, unit, problem.args[0], bm, bn))
    told = [
        own
        for halves in owned(attempt.world, problem, bm, bn, _told(attempt, "warp-shape", unit.name))
        for own in halves
    ]
    return told or [own for halves in owned(attempt.world, problem, bm, bn) for own in halves]


def _ordered(attempt: Attempt, batch: Value, m: Value, n: Value) -> Iterable[Row]:
    found = ordered_of(batch, m, n)
    return [] if found is None else [found]


def _shares(attempt: Attempt, axes: Value) -> Iterable[Row]:
    """Points at the last axis without a gap, and all of them."""
    last = max((each.args[0] for each in axes), default=-1)
    return [(each,) for each in (*runs_of(axes, last), points_of(axes))]


LISTED: Mapping[Value, Listing] = {
    "roles": Listing(3, lambda attempt, a, b, summed: [((a & b) - summed, a - b, b - a)]),
    "ordered": Listing(3, _ordered),
    "pack": Listing(4, _packs),
    "block": Listing(1, partial(_tiles, made=blocks)),
    "halved": Listing(1, partial(_tiles, made=halves)),
    "sides": Listing(1, partial(_tiles, made=halves, places=2)),
    "cut-tile": Listing(1, partial(_tiles, made=cut_tiles)),
    "parts-of": Listing(3, _parts),
    "whole": Listing(1, _whole),
    "deep": Listing(1, _deep),
    "staged": Listing(
        3, lambda attempt, *_: [(0, 0), (0, 0), *((size, w) for size in (2, 4, 1) for w in (0, 0, 1))]
    ),
    "share": Listing(1, _shares),
    "asked-core": Listing(1, lambda attempt, axes: [(least,) for least in CORES]),
    **{
        name: Listing(0, lambda attempt, values=values: [(each,) for each in values])
        for name, values in CHOICES.items()
    },
}
"""Of the predicates of rules/meanings.egg, the narrowest first."""


# ---- others -----------------------------------------------------------------------------------------------------------


def satisfying(attempt: Attempt, name: str, step: Step, position: int) -> Value | None:
    """A value for which a predicate holds that has no list; None where any will do."""
    what = step.args[0]
    assert isinstance(what, Lit)
    rng = attempt.rng
    if what.value == "fit" and position == 1 and attempt.bound(step.args[2]) and rng.random() < 0.5:
        return max(1, attempt.get(step.args[2]) * 8 // rng.choice((1, 8, 8, 16, 24, 32, 40, 48, 64)))
    if what.value in ("number", "neutral", "divisor") and position == 1:
        dtype = attempt.types.dtype(name)
        if what.value == "divisor" and rng.random() < 0.6:
            return None
        number = float(attempt.get(step.args[2])) if what.value == "number" else -0.0
        if what.value == "divisor":
            number = rng.choice((1.0, 2.0, -3.0, 0.1, 1e-30, 1e30))
        bits = to_bits(number if dtype not in ("i32", "bool") else int(number), DType(dtype))
        return attempt.world.build("Const", (dtype, bits))
    if what.value == "elements" and position == 1 and attempt.bound(step.args[2]):
        return rng.choice(same_size(attempt.get(step.args[2])))
    return None
