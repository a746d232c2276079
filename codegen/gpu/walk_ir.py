"""GPU IR of attention: what a block does that keeps the rows of a tile and walks over their scores (document 004 §9, §6.6).

The operands lie in rings as those of a contraction do (:mod:`.ir`): the queries of the block, which stay, and tiles of keys and of
values, numbered along n. Rings may share memory, where a walk over the keys alone comes first and leaves the place of the values free.
Scores, exponentials and sums never leave the registers of the warp that owns their rows.
:func:`~codegen.gpu.check_walk.check_walk_ir` holds every use against its token.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Barrier, CommitGroup, CpAsync, Epilogue, Ring, StGlobalVec, Tile, Token, Wait

FIRST, LAST = "first", "last"
"""The first tile of n in which some row of the block has a score, and one more than the last."""


@dataclass(frozen=True)
class Columns:
    """``body`` for each tile ``first <= var < last`` of n. Which these are depends on the block, and there may be none."""

    var: str
    body: tuple[WalkStatement, ...]


@dataclass(frozen=True)
class Scores:
    """The rows of ``rings[0]`` times tile ``tile`` of ``rings[1]``, and ``ops`` on the products: the scores that the warp holds."""

    rings: tuple[str, str]
    tile: Tile
    ops: tuple[str, ...]
    out_token: Token


@dataclass(frozen=True)
class Totals:
    """Of each row the largest score so far, and the sum of the exponentials by it. The scores are used up."""

    tile: Tile
    in_token: Token
    out_token: Token


@dataclass(frozen=True)
class Shares:
    """Of each row what an exponential is multiplied with to be a share of their sum. ``in_token``: that all tiles are in the totals."""

    in_token: Token
    out_token: Token


@dataclass(frozen=True)
class Exponentials:
    """The scores become exponentials by the largest score so far, to which the sums so far fade, and are counted in the totals; or, with
    the token ``shares``, shares of their row."""

    tile: Tile
    shares: Token | None
    in_token: Token
    out_token: Token


@dataclass(frozen=True)
class Weigh:
    """The sums += the exponentials times tile ``tile`` of ``ring``. ``parts``: elements of the ring's type of which an exponential is the
    sum."""

    ring: str
    tile: Tile
    parts: int
    in_token: Token
    out_token: Token


WalkStatement = (
    CpAsync
    | CommitGroup
    | Wait
    | Barrier
    | Columns
    | Scores
    | Totals
    | Shares
    | Exponentials
    | Weigh
    | Epilogue
    | StGlobalVec
)


@dataclass(frozen=True)
class WalkKernel:
    """The statements of a kernel that walks, and what they are about.

    Attributes:
        arch: "sm80".
        unit: what multiplies, a name of :data:`tinyc.ir.units.UNITS`.
        score, weighted: lets of the Region: what is walked over, and the Stream of the values.
        extents: points of the batch, of m (rows), n (columns of scores), d (columns of values) and e (what scores are sums over).
        tile: rows of a block, columns of a tile. warp_rows: of one warp.
        tiles: of n.
        grid: blocks along x, y and z.
        rings: of queries, keys and values, and one of keys for a walk over them alone, where there is one; ``starts``: the byte of the
            shared memory at which each begins.
    """

    arch: str
    unit: str
    score: str
    weighted: str
    extents: tuple[int, int, int, int, int]
    tile: tuple[int, int]
    warp_rows: int
    tiles: int
    grid: tuple[int, int, int]
    rings: tuple[Ring, ...]
    starts: tuple[int, ...]
    stmts: tuple[WalkStatement, ...]

    @property
    def threads(self) -> int:
        return 32 * (self.tile[0] // self.warp_rows)

    @property
    def ring_bytes(self) -> int:
        """Of the memory that all rings take together."""
        pairs = zip(self.starts, self.rings, strict=True)
        return max(start + ring.stages * ring.slot_bytes for start, ring in pairs)

    def place(self, name: str, slot: int) -> tuple[int, int]:
        """The bytes of a slot: the first, and one more than the last."""
        start, ring = next(pair for pair in zip(self.starts, self.rings, strict=True) if pair[1].name == name)
        return start + slot * ring.slot_bytes, start + (slot + 1) * ring.slot_bytes
