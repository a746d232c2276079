"""Whether GPU IR of attention keeps its promises: it is run without data, with every number of tiles that a block may have.

It checks that each token is produced once and waited for before what it stands for is used, that no slot is written while it, or one that
shares its memory, may be read, that scores are those of the tile that is weighed, and every tile of the block is counted and weighed once
and in order, that shares come after all of them are counted, the epilogue when all are weighed, and that its results are stored.
What it cannot see is what names stand for: ``src``, ``ops`` and ``dst``, and that ``first`` and ``last`` are the block's tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tinyc.ir.streams import STEP, row_elements

from .check_rings import Key, Rings
from .check_sizes import refuse
from .ir import Barrier, CommitGroup, CpAsync, Epilogue, Ring, StGlobalVec, Wait
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

MOST = 16
"""Stages of a ring, and groups that may be pending."""


def check_walk_ir(kernel: WalkKernel) -> None:
    """Raises TinycError GpuIrInvalid for the first statement that breaks a promise, with its number and the turn of its walk."""
    _check_sizes(kernel)
    stages = math.lcm(*(ring.stages for ring in kernel.rings))
    for first in range(min(kernel.tiles, stages) + 1):
        for last in range(first, min(kernel.tiles, first + _enough(kernel)) + 1):
            run = _Run(kernel.rings, last, kernel=kernel, first=first)
            run.all(kernel.stmts, {FIRST: first, LAST: last}, "")
            run.end()


def _enough(kernel: WalkKernel) -> int:
    """Tiles beyond which a walk is like one that is a multiple of the stages shorter: what a turn does depends on what lies around its
    tile."""
    inner = [each for walk in kernel.stmts if isinstance(walk, Columns) for each in walk.body]
    copied = [each for each in inner if isinstance(each, CpAsync)]
    pending = max((each.pending for each in inner if isinstance(each, Wait)), default=0)
    far = pending + max((abs(each.tile.offset) for each in copied), default=0)
    stages = math.lcm(*(ring.stages for ring in kernel.rings))
    if max(pending, far, *(ring.stages for ring in kernel.rings)) > MOST:
        refuse(
            "stmts", f"more than {MOST} stages, or tiles on their way, are more than a block has place for"
        )
    return 2 * (stages + far) + 1


def _check_sizes(kernel: WalkKernel) -> None:
    batch, m, n, d, e = kernel.extents
    rows, columns = kernel.tile
    if kernel.warp_rows % STEP or rows % kernel.warp_rows or columns % STEP:
        refuse(
            "tile",
            f"{rows} rows, {kernel.warp_rows} of a warp, and {columns} columns are not whole instructions",
        )
    if kernel.tiles != -(-n // columns):
        refuse("tiles", f"{n} columns in tiles of {columns} are not {kernel.tiles}")
    blocks = batch * -(-m // rows)
    if kernel.grid != (blocks, 1, 1):
        refuse("grid", f"{blocks} blocks are counted along x, the grid has {kernel.grid}")
    if len(kernel.rings) not in (3, 4) or len(kernel.starts) != len(kernel.rings):
        refuse(
            "rings", "there are rings of queries, keys and values, and one of keys that are walked over alone"
        )
    if len({ring.name for ring in kernel.rings}) < len(kernel.rings):
        refuse("rings", "each ring has a name of its own")
    wanted = [
        (rows, row_elements(e)),
        (columns, row_elements(e)),
        (columns, row_elements(d)),
        (columns, row_elements(e)),
    ]
    for ring, (own, wide), start in zip(kernel.rings, wanted, kernel.starts, strict=False):
        if (ring.rows, ring.columns) != (own, wide):
            refuse("rings", f"{ring.name} is {ring.rows} x {ring.columns}, its tile {own} x {wide}")
        if ring.swizzle and not ring.turns_within:
            refuse("rings", f"rows of {ring.row_bytes} bytes cannot be swizzled")
        if start % 16:
            refuse("rings", f"byte {start}, where {ring.name} begins, is no multiple of 16")
    _, k, _, *alone = kernel.rings
    for each in alone:
        if kernel.starts[3] != kernel.starts[1] or replace(each, name=k.name, stages=k.stages) != k:
            refuse("rings", f"{each.name} does not begin where {k.name} does, or is not laid out as that")
    if kernel.rings[0].stages != 1:
        refuse("rings", "a block has one tile of queries")


@dataclass
class _Run(Rings):
    """``first``: tile of the block, ``tiles``: one more than its last. ``held``: what the registers of scores hold, of which tile, and
    ``token``: what it gave. ``counted``, ``weighed``: so many tiles. ``last``: the tokens of what was counted and weighed last, by these
    words. ``shares``, ``epilogue``: their tokens. ``walking``: in a walk."""

    kernel: WalkKernel = field(kw_only=True)
    first: int = field(kw_only=True)
    held: tuple[Literal["scores", "weights"], int] | None = None
    token: Key | None = None
    counted: int = 0
    weighed: int = 0
    last: dict[str, Key] = field(default_factory=dict)
    shares: Key | None = None
    epilogue: Key | None = None
    stored: bool = False
    walking: bool = False

    @property
    def turns(self) -> int:
        """Of a walk."""
        return self.tiles - self.first

    def all(self, statements: Sequence[WalkStatement], values: dict[str, int], at: str) -> None:
        for number, statement in enumerate(statements):
            self.at = f"{at}{number}"
            if isinstance(statement, Columns):
                self.walk(statement, values, self.at)
            else:
                self.one(statement, values)

    def walk(self, walk: Columns, values: dict[str, int], at: str) -> None:
        if self.walking or walk.var in values:
            self.refuse("a walk is in no other, and its variable is no other's")
        self.walking = True
        for tile in range(self.first, self.tiles):
            self.all(walk.body, {**values, walk.var: tile}, f"{at}, turn {tile - self.first}, ")
        self.walking, self.at = False, at

    def one(self, statement: WalkStatement, values: dict[str, int]) -> None:
        match statement:
            case CpAsync():
                self.copy(statement, values)
            case CommitGroup():
                self.commit()
            case Wait():
                self.wait(statement, values)
            case Barrier():
                self.barrier()
            case Scores():
                self.score(statement, values)
            case Totals():
                self.total(statement, values)
            case Shares():
                self.share(statement, values)
            case Exponentials():
                self.exponentiate(statement, values)
            case Weigh():
                self.weigh(statement, values)
            case Epilogue():
                self.finish(statement, values)
            case StGlobalVec():
                self.store(statement, values)

    # ---- rings that may share memory ----------------------------------------------------------------------------

    def has(self, ring: Ring, tile: int) -> bool:
        return tile < (1 if ring is self.kernel.rings[0] else self.tiles)

    def expected(self, key: Key) -> bool:
        return key in self.produced or key[1] < self.tiles

    def free(self, ring: Ring, tile: int) -> None:
        if self.epilogue is not None:
            self.refuse(f"tile {tile} of {ring.name} is written where the epilogue's memory is")
        first, last = self.kernel.place(ring.name, tile % ring.stages)
        for (name, slot), held in list(self.slots.items()):
            start, stop = self.kernel.place(name, slot)
            if start < last and first < stop:
                self.unused(name, held, f"tile {tile} of {ring.name}")
                del self.slots[name, slot]

    # ---- what becomes of the scores -----------------------------------------------------------------------------

    def score(self, statement: Scores, values: dict[str, int]) -> None:
        tile = self.tile(statement.tile, values)
        q, keys = (self.ring(name) for name in statement.rings)
        _, k, _, *alone = self.kernel.rings
        if q is not self.kernel.rings[0] or keys not in (k, *alone):
            self.refuse(f"{q.name} times {keys.name} are no scores")
        if not self.has(keys, tile):
            self.refuse(f"the block has no tile {tile}")
        self.read(q, 0)
        self.read(keys, tile)
        self.become("scores", tile, self.key(statement.out_token, values))

    def become(self, what: Literal["scores", "weights"], tile: int, token: Key) -> None:
        self.held, self.token = (what, tile), self.produce(token, tile)

    def holds(self, what: Literal["scores", "weights"], tile: int) -> None:
        if self.held != (what, tile):
            held = "nothing" if self.held is None else f"{self.held[0]} of tile {self.held[1]}"
            self.refuse(
                f"{what} of tile {tile} are used where {held} are held"
                if self.held
                else f"there are no {what} of tile {tile}"
            )

    def next_one(self, tile: int, done: int, what: str) -> None:
        if tile != self.first + done:
            self.refuse(f"tile {tile} is {what}, tile {self.first + done} is the next one")

    def total(self, statement: Totals, values: dict[str, int]) -> None:
        tile = self.tile(statement.tile, values)
        self.use(statement.in_token, values, self.token, "the last product")
        self.holds("scores", tile)
        if self.shares is not None:
            self.refuse("shares are of all totals")
        self.count(tile)
        self.held = None
        self.last["counted"] = self.produce(self.key(statement.out_token, values), tile)

    def count(self, tile: int) -> None:
        self.next_one(tile, self.counted, "counted")
        self.counted += 1

    def share(self, statement: Shares, values: dict[str, int]) -> None:
        if self.counted != self.turns or self.weighed:
            self.refuse(f"{self.counted} of {self.turns} tiles are in the totals")
        if self.turns:
            self.use(statement.in_token, values, self.last.get("counted"), "the last of the totals")
        token = self.key(statement.out_token, values)
        self.shares = self.produce(token, token[1])

    def exponentiate(self, statement: Exponentials, values: dict[str, int]) -> None:
        tile = self.tile(statement.tile, values)
        self.use(statement.in_token, values, self.token, "the last product")
        self.holds("scores", tile)
        if statement.shares is not None:
            self.use(statement.shares, values, self.shares, "all totals")
        elif "counted" in self.last:
            self.refuse("what is in the totals already is no sum of these exponentials")
        else:
            self.count(tile)
        self.become("weights", tile, self.key(statement.out_token, values))

    def weigh(self, statement: Weigh, values: dict[str, int]) -> None:
        tile, ring = self.tile(statement.tile, values), self.ring(statement.ring)
        if ring is not self.kernel.rings[2]:
            self.refuse(f"{ring.name} are no values")
        if statement.parts not in (1, 2):
            self.refuse(f"an exponential has one part or two, not {statement.parts}")
        if self.shares is not None and statement.parts != 1:
            self.refuse("shares are rounded before they meet values")
        self.use(statement.in_token, values, self.token, "the exponentials")
        self.holds("weights", tile)
        self.read(ring, tile)
        self.next_one(tile, self.weighed, "weighed")
        self.weighed, self.held = self.weighed + 1, None
        self.last["weighed"] = self.produce(self.key(statement.out_token, values), tile)

    # ---- the end ------------------------------------------------------------------------------------------------

    def finish(self, statement: Epilogue, values: dict[str, int]) -> None:
        self.all_weighed()
        if self.epilogue is not None:
            self.refuse("there is one epilogue already")
        if statement.overlap:
            self.refuse("the memory of the epilogue is that of the rings")
        if self.turns:
            self.use(statement.in_token, values, self.last.get("weighed"), "the last tile")
        self.idle()
        self.taken()
        token = self.key(statement.out_token, values)
        self.epilogue = self.produce(token, token[1])

    def store(self, statement: StGlobalVec, values: dict[str, int]) -> None:
        self.columns(statement.width, self.kernel.extents[3])
        self.use(statement.in_token, values, self.epilogue, "the epilogue")
        if self.stored:
            self.refuse("the results are stored already")
        self.stored = True

    def all_weighed(self) -> None:
        if self.walking or self.weighed != self.turns or self.counted != self.turns:
            self.refuse(f"{self.weighed} of {self.turns} tiles are weighed, {self.counted} are in the totals")

    def end(self) -> None:
        self.at = "the end"
        self.all_weighed()
        self.idle()
        _, k, _, *alone = (self.how.get(ring.name) for ring in self.kernel.rings)
        if any(each not in (None, k) for each in alone) and k is not None:
            self.refuse("the same keys are copied in two ways")
        if not self.stored:
            self.refuse("the results are never stored")
