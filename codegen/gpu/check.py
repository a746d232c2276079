"""Whether GPU IR keeps its promises (document 004 §9.2): the kernel is run without data, and every use is held against its token.

It checks that each token is produced once and waited for before what it stands for is used, that a slot of a ring is never written
while it may be read or before what it was written with has arrived, that a slot holds the tile that is read from it, that every step of every
tile is multiplied once with the fragments of both operands, that the epilogue comes after the last product, and that its results are stored;
that rows are reduced when all of their tiles are there for all threads.
What it cannot see is what names stand for: that ``src`` is the operand of its ring, ``ops`` the Region's, ``dst`` its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .check_rings import Key, Rings
from .check_sizes import check_sizes
from .ir import (
    Barrier,
    CommitGroup,
    CpAsync,
    Epilogue,
    GpuKernel,
    KeepRows,
    LoadFragments,
    Loop,
    Mma,
    ReduceRows,
    Ring,
    Statement,
    StGlobalVec,
    Tile,
    Wait,
    Walk,
)

MOST_TURNS = 1 << 16
"""Of all loops together, those left out that are like others."""


def check_gpu_ir(kernel: GpuKernel) -> None:
    """Raises TinycError GpuIrInvalid for the first statement that breaks a promise, with its number and the turn of its loop."""
    check_sizes(kernel)
    run = _Run(kernel.rings, kernel.tiles, kernel=kernel)
    run.all(kernel.stmts, {}, "")
    run.end()


@dataclass
class _Run(Rings):
    """``fragments``: what each buffer holds. ``steps``, ``turns``: so many were multiplied, and taken. ``done``, ``stored``: the tokens
    of the last product and of what was stored. ``busy``: the memory of the rings may still be the epilogue's. ``turn``: of the walk over
    n; ``kept``: turns whose tiles are kept, ``there``: all threads see them; ``reduced``: the token of reduced rows."""

    kernel: GpuKernel = field(kw_only=True)
    fragments: dict[Key, tuple[int, int]] = field(default_factory=dict)
    steps: int = 0
    turns: int = 0
    done: Key | None = None
    epilogue: Epilogue | None = None
    stored: bool = False
    busy: bool = False
    turn: int | None = None
    kept: set[Key] = field(default_factory=set)
    there: bool = False
    reduced: Key | None = None

    def all(self, statements: Sequence[Statement], values: dict[str, int], at: str) -> None:
        for number, statement in enumerate(statements):
            self.at = f"{at}{number}"
            if isinstance(statement, Loop):
                self.loop(statement, values, f"{at}{number}")
            elif isinstance(statement, Walk):
                self.walk(statement, values, f"{at}{number}")
            else:
                self.one(statement, values)

    def loop(self, loop: Loop, values: dict[str, int], at: str) -> None:
        if loop.var in values:
            self.refuse(f"{loop.var} is the variable of a loop around this one")
        alike = self.alike(loop)
        turn = before = 0
        while turn < loop.count:
            if alike and turn == alike.start:
                self.jump(len(alike), self.steps - before)
                turn = alike.stop
            before = self.steps
            self.turns += 1
            if self.turns > MOST_TURNS:
                self.refuse(f"{MOST_TURNS} turns of loops are not the end")
            self.all(loop.body, {**values, loop.var: turn}, f"{at}, turn {turn}, ")
            turn += 1

    def walk(self, walk: Walk, values: dict[str, int], at: str) -> None:
        """The first turns and the last: those between are like the second."""
        bn, n = self.kernel.tile[1], self.kernel.extents[2]
        if values or self.kept:
            self.refuse("there is one walk over n, in no loop")
        if self.kernel.kept is None or walk.count != -(-n // bn):
            self.refuse(f"{walk.count} tiles of n are walked, a block has {self.kernel.counts['n.o']}")
        for turn in sorted({*range(min(walk.count, 2)), walk.count - 1}):
            self.at = at
            self.begin(turn)
            self.all(walk.body, {walk.var: turn}, f"{at}, turn {turn}, ")
            self.at = f"{at}, the end of turn {turn}"
            self.all_multiplied()
            self.idle()
            if not any(number == turn for _, number in self.kept):
                self.refuse(f"tile {turn} of n is not kept")
        self.turn = None

    def begin(self, turn: int) -> None:
        """A turn of the walk over n: what lies in the rings is of no use any more, and may still be read."""
        self.idle()
        self.turn, self.steps, self.done, self.epilogue = turn, 0, None, None
        self.produced, self.waited, self.group, self.fragments = set(self.kept), set(), {}, {}
        for slot in self.slots.values():
            slot.tile, slot.token, slot.seen = -1, ("", -1), False

    def alike(self, loop: Loop) -> range:
        """Turns that need no check. What a turn does depends on what lies around its tile, so that those that are far from either
        end of a long loop are like those a multiple of the stages before."""
        tiles = [tile for each in loop.body for tile in _tiles(each)]
        if any(isinstance(each, Loop) for each in loop.body) or any(tile.var != loop.var for tile in tiles):
            return range(0)
        stages = math.lcm(*(ring.stages for ring in self.kernel.rings))
        pending = max((each.pending for each in loop.body if isinstance(each, Wait)), default=0)
        far = 2 * (stages + pending + max((abs(tile.offset) for tile in tiles), default=0))
        length = (min(loop.count, self.kernel.tiles) - 2 * far) // stages * stages
        return range(far, far + max(length, 0))

    def jump(self, by: int, steps: int) -> None:
        """As if ``by`` more turns had been taken, of ``steps`` steps each."""

        def moved(key: Key) -> Key:
            return key[0], key[1] + by

        self.produced |= {moved(key) for key in self.produced}
        self.waited |= {moved(key) for key in self.waited}
        self.group = {moved(key): group for key, group in self.group.items()}
        self.open = [moved(key) for key in self.open]
        self.fragments = {key: (tile + by, step) for key, (tile, step) in self.fragments.items()}
        for slot in self.slots.values():
            slot.tile, slot.token = slot.tile + by, moved(slot.token)
        self.steps += by * steps

    def one(self, statement: Statement, values: dict[str, int]) -> None:
        match statement:
            case CpAsync():
                self.copy(statement, values)
            case CommitGroup():
                self.commit()
            case Wait():
                self.wait(statement, values)
            case Barrier():
                self.busy, self.there = False, self.turn is None
                self.barrier()
            case LoadFragments():
                self.load(statement, values)
            case Mma():
                self.multiply(statement, values)
            case Epilogue():
                self.finish(statement, values)
            case KeepRows():
                self.keep(statement, values)
            case ReduceRows():
                self.reduce(statement, values)
            case StGlobalVec():
                self.store(statement, values)

    def free(self, ring: Ring, tile: int) -> None:
        if self.busy or (self.epilogue is not None and not self.epilogue.overlap):
            self.refuse(f"tile {tile} of {ring.name} is written where the epilogue's memory is")
        super().free(ring, tile)

    def load(self, statement: LoadFragments, values: dict[str, int]) -> None:
        tile = self.tile(statement.tile, values)
        rings = [self.ring(name) for name in statement.rings]
        if statement.step >= self.kernel.steps:
            self.refuse(f"a tile has {self.kernel.steps} steps, and {statement.step} is none of them")
        if tile >= self.kernel.tiles:
            return
        for ring in rings:
            self.read(ring, tile)
            self.fragments[ring.name, statement.buffer] = (tile, statement.step)

    def multiply(self, statement: Mma, values: dict[str, int]) -> None:
        tile = self.tile(statement.tile, values)
        for ring in self.kernel.rings:
            held = self.fragments.get((ring.name, statement.buffer))
            if held != (tile, statement.step):
                holds = "nothing" if held is None else f"step {held[1]} of tile {held[0]}"
                self.refuse(
                    f"step {statement.step} of tile {tile} is multiplied, buffer {statement.buffer} of {ring.name} holds {holds}"
                )
        if self.steps != tile * self.kernel.steps + statement.step:
            self.refuse(f"step {statement.step} of tile {tile} is not the next one")
        self.steps += 1
        if statement.out_token is not None:
            if statement.step != self.kernel.steps - 1:
                self.refuse(f"{statement.out_token} is produced before the last step of the tile")
            self.done = self.produce(self.key(statement.out_token, values), tile)
            self.waited.add(self.done)

    def finish(self, statement: Epilogue, values: dict[str, int]) -> None:
        self.all_multiplied()
        if self.epilogue is not None:
            self.refuse("there is one epilogue already")
        self.use(statement.in_token, values, self.done, "the last product")
        if not statement.overlap:
            self.idle()
            self.taken()
            self.busy = True
        self.epilogue = statement
        token = self.key(statement.out_token, values)
        self.produce(token, token[1])

    def keep(self, statement: KeepRows, values: dict[str, int]) -> None:
        self.rows(statement.dst)
        if self.turn is None:
            self.refuse("rows are kept in the walk over n")
        self.columns(statement.width, self.kernel.warp_tile[1], self.kernel.extents[2])
        self.use(statement.in_token, values, self.ended(values), "the epilogue")
        self.busy, self.there = self.epilogue is not None and not self.epilogue.overlap, False
        self.kept.add(self.produce(self.key(statement.out_token, values), self.turn))

    def reduce(self, statement: ReduceRows, values: dict[str, int]) -> None:
        self.rows(statement.src)
        if statement.team not in (1, 2, 4, 8, 16, 32):
            self.refuse(f"{statement.team} threads are no part of a warp")
        last = max(self.kept, key=lambda key: key[1], default=None)
        if self.turn is not None or last is None:
            self.refuse("rows are reduced before all of their tiles are kept")
        self.use(statement.in_token, values, last, "the last tile of n")
        if not self.there:
            self.refuse("rows are reduced without a barrier since they were kept")
        key = self.key(statement.out_token, values)
        self.reduced = self.produce(key, key[1])

    def rows(self, name: str) -> None:
        if self.kernel.kept is None or name != self.kernel.kept.name:
            self.refuse(f"there are no rows {name}")

    def ended(self, values: dict[str, int]) -> Key | None:
        """What the epilogue gives."""
        return None if self.epilogue is None else self.key(self.epilogue.out_token, values)

    def store(self, statement: StGlobalVec, values: dict[str, int]) -> None:
        if self.kernel.kept is None:
            self.columns(statement.width, self.kernel.warp_tile[1], self.kernel.extents[2])
            self.use(statement.in_token, values, self.ended(values), "the epilogue")
        else:
            self.columns(statement.width, self.kernel.extents[2])
            self.use(statement.in_token, values, self.reduced, "the reduction")
        if self.stored:
            self.refuse("the results are stored already")
        self.stored = True

    def end(self) -> None:
        self.at = "the end"
        self.all_multiplied()
        self.idle()
        if not self.stored:
            self.refuse("the results are never stored")

    def all_multiplied(self) -> None:
        if self.steps != self.kernel.tiles * self.kernel.steps:
            self.refuse(f"{self.steps} of {self.kernel.tiles * self.kernel.steps} steps are multiplied")


def _tiles(statement: Statement) -> Iterator[Tile]:
    """All that a statement names."""
    match statement:
        case CpAsync(tile=tile, out_token=token):
            yield from (tile, token.tile)
        case Wait(tokens=tokens):
            yield from (token.tile for token in tokens)
        case LoadFragments(tile=tile):
            yield tile
        case Mma(tile=tile, out_token=done):
            yield tile
            yield from () if done is None else (done.tile,)
        case Epilogue(in_token=taken, out_token=given) | KeepRows(in_token=taken, out_token=given):
            yield from (taken.tile, given.tile)
        case ReduceRows(in_token=taken, out_token=given):
            yield from (taken.tile, given.tile)
        case StGlobalVec(in_token=taken):
            yield taken.tile
