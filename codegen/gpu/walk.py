"""The skeleton of attention (Dao, FlashAttention-2, arXiv 2307.08691): what of a Region is queries, keys and values in, GPU IR out.

While the scores of a tile are multiplied its values are on their way, and the next keys while its exponentials are. Where the
program rounds the probabilities a walk over the keys alone comes first; tiles of keys take turns in the memory that is the values'
later, so that one is on its way while the scores of the other are multiplied.
"""

from __future__ import annotations

from dataclasses import replace

from tinyc.ir.region import Let, Region, Stream, operands

from .attention import Attention
from .ir import Barrier, CommitGroup, CpAsync, Epilogue, Ring, StGlobalVec, Tile, Token, Wait
from .walk_ir import (
    FIRST,
    LAST,
    Columns,
    Exponentials,
    Scores,
    Shares,
    Totals,
    WalkKernel,
    WalkStatement,
    Weigh,
)

VAR = "tile"


def walk_kernel(found: Attention) -> WalkKernel:
    """The GPU IR of ``found``."""
    q, k, v = found.rings
    rings, starts = [q, k, v], [found.start(number) for number in range(3)]
    if found.rounded:
        # a second tile of keys lies where the values will: behind the first
        stages = 2 if v.slot_bytes >= k.slot_bytes else 1
        rings.append(replace(k, name="keys", stages=stages))
        starts.append(found.start(1))
    extents = (found.batch.size, found.m.size, found.n.size, found.d.size, found.e.size)
    rows, columns = found.tiles
    return WalkKernel(
        "sm80", "sm80", found.score, found.weighted, extents, found.tile, found.rows, columns,
        (rows * found.batch.size, 1, 1), tuple(rings), tuple(starts), _statements(found, rings),
    )  # fmt: skip


def _statements(found: Attention, rings: list[Ring]) -> tuple[WalkStatement, ...]:
    q = _copy(found, "q", Tile(0))
    totals, shares = _totals(found, rings[-1]) if found.rounded else ((), ())
    weighed = Token("weighed", Tile(-1, LAST))
    ended = Token("epilogue", Tile(0))
    return (
        q,
        *totals,
        _copy(found, "k", Tile(0, FIRST)),
        CommitGroup(),
        *shares,
        Columns(VAR, _weighed(found)),
        Wait((Token("q", Tile(0)),), 0),
        Barrier(),
        Epilogue(_ops(found.region, {found.weighted, *found.totals}), False, weighed, ended),
        StGlobalVec(tuple(f"out{number}" for number in range(len(found.region.outputs))), found.width, ended),
    )


def _totals(found: Attention, keys: Ring) -> tuple[tuple[WalkStatement, ...], tuple[WalkStatement, ...]]:
    """The walk over the keys alone, and what comes of it."""
    now, then = Tile(0, VAR), Tile(1, VAR)
    scored, counted, shares = Token("scored", now), Token("counted", now), Token("shares", Tile(0))
    next_one = (_copy(found, "keys", then), CommitGroup())
    scores = Scores(("q", "keys"), now, _score_ops(found), scored)
    body: tuple[WalkStatement, ...] = (Wait((Token("q", Tile(0)), Token("keys", now)), 0), Barrier())
    if keys.stages > 1:
        body = (*body, *next_one, scores)
    else:
        body = (*body, scores, Barrier(), *next_one)
    walk = (
        _copy(found, "keys", Tile(0, FIRST)),
        CommitGroup(),
        Columns(VAR, (*body, Totals(now, scored, counted))),
        *((Barrier(),) if keys.stages > 1 else ()),
    )
    return walk, (Shares(Token("counted", Tile(-1, LAST)), shares),)


def _weighed(found: Attention) -> tuple[WalkStatement, ...]:
    now = Tile(0, VAR)
    scores, weights, weighed = (Token(name, now) for name in ("scores", "weights", "weighed"))
    shares = Token("shares", Tile(0)) if found.rounded else None
    return (
        Wait((Token("q", Tile(0)), Token("k", now)), 0),
        Barrier(),
        _copy(found, "v", now),
        CommitGroup(),
        Scores(("q", "k"), now, _score_ops(found), scores),
        Wait((Token("v", now),), 0),
        Barrier(),
        _copy(found, "k", Tile(1, VAR)),
        CommitGroup(),
        Exponentials(now, shares, scores, weights),
        Weigh("v", now, 2 if found.exact else 1, weights, weighed),
    )


def _copy(found: Attention, ring: str, tile: Tile) -> CpAsync:
    source = {"q": found.q, "k": found.k, "keys": found.k, "v": found.v}[ring]
    return CpAsync(ring, tile, f"in{source.number}", source.bytes, Token(ring, tile))


def _score_ops(found: Attention) -> tuple[str, ...]:
    return _ops(found.region, {found.reduce}, found.score)


def _ops(region: Region, start: set[str], end: str | None = None) -> tuple[str, ...]:
    """The operations of the lets that depend on ``start``, of those that ``end`` depends on where it is given."""
    needed = {let.name for let in region.lets} if end is None else _needed(region, end)
    after: set[str] = set(start)
    found = []
    for let in region.lets:
        if let.name not in start and let.name in needed and after & set(operands(let.value)):
            after.add(let.name)
            found += [] if isinstance(let.value, Stream) else [_title(let)]
    return tuple(found)


def _needed(region: Region, name: str) -> set[str]:
    lets = {let.name: let for let in region.lets}
    found: set[str] = set()
    todo = [name]
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += [operand for operand in operands(lets[each].value) if operand in lets]
    return found


def _title(let: Let) -> str:
    return str(getattr(let.value, "op", type(let.value).__name__)).lower()
