"""Rings in shared memory and tokens, while GPU IR is run without data: which tile lies in which slot, who may still write or read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from .check_sizes import refuse
from .ir import CpAsync, Ring, Tile, Token, Wait
from .operand import ACCESS

Key = tuple[str, int]


@dataclass
class Slot:
    """``arrived``: for the thread that copied it; ``seen``: by all threads, since the last barrier. ``read``: since then."""

    tile: int
    token: Key
    arrived: bool = False
    seen: bool = False
    read: bool = False

    def __str__(self) -> str:
        return f"tile {self.tile}" if self.tile >= 0 else "what the turn before left"


@dataclass
class Rings:
    """``rings``: how many ``stages`` each has; ``tiles``: so many there are. ``group``: of a token. ``groups``: so many are closed,
    ``landed`` of them have arrived. ``waited``: tokens that were waited for, or need not be. ``how``: the source and the width
    with which a ring is filled. ``at``: the statement, for messages."""

    rings: tuple[Ring, ...]
    tiles: int
    produced: set[Key] = field(default_factory=set)
    group: dict[Key, int] = field(default_factory=dict)
    open: list[Key] = field(default_factory=list)
    groups: int = 0
    landed: int = 0
    waited: set[Key] = field(default_factory=set)
    slots: dict[Key, Slot] = field(default_factory=dict)
    how: dict[str, tuple[str, int]] = field(default_factory=dict)
    at: str = ""

    # ---- what statements do -------------------------------------------------------------------------------------

    def copy(self, statement: CpAsync, values: dict[str, int]) -> None:
        tile, key = self.tile(statement.tile, values), self.key(statement.out_token, values)
        ring = self.ring(statement.ring)
        if statement.bytes not in (0, *ACCESS):
            self.refuse(f"there are no copies of {statement.bytes} bytes")
        if ring.row_bytes % (statement.bytes or 1):
            self.refuse(f"rows of {ring.row_bytes} bytes are no multiple of {statement.bytes}")
        how = self.how.setdefault(ring.name, (statement.src, statement.bytes))
        if how != (statement.src, statement.bytes):
            self.refuse(f"tiles of {ring.name} are copied from {how[0]}, {how[1]} bytes at a time, elsewhere")
        if not self.has(ring, tile):
            return
        self.produce(key, tile)
        self.free(ring, tile)
        self.slots[ring.name, tile % ring.stages] = Slot(tile, key, arrived=statement.bytes == 0)
        if statement.bytes == 0:
            self.waited.add(key)
        else:
            self.open.append(key)

    def has(self, ring: Ring, tile: int) -> bool:
        """Whether there is such a tile of the ring's operand."""
        return tile < self.tiles

    def free(self, ring: Ring, tile: int) -> None:
        """Refuses where the slot of ``tile`` is not free to be written."""
        self.unused(ring.name, self.slots.get((ring.name, tile % ring.stages)), f"tile {tile}")

    def unused(self, name: str, before: Slot | None, what: str) -> None:
        """Refuses where ``before``, in a slot of ring ``name``, may still be read or written when ``what`` takes its place."""
        if before is not None and before.read:
            self.refuse(f"{before} of {name} may still be read where {what} is written")
        if before is not None and not before.arrived:
            self.refuse(f"{before} of {name} is on its way where {what} is written")

    def commit(self) -> None:
        self.group |= dict.fromkeys(self.open, self.groups)
        self.open, self.groups = [], self.groups + 1

    def wait(self, statement: Wait, values: dict[str, int]) -> None:
        self.landed = max(self.landed, self.groups - statement.pending)
        for token in statement.tokens:
            key = self.key(token, values)
            if not self.expected(key) or key in self.waited:
                continue
            if self.group.get(key, self.groups) >= self.landed:
                self.refuse(
                    f"{key[0]}[{key[1]}] is not among what has arrived: {statement.pending} groups may be under way"
                )
            self.waited.add(key)
        for slot in self.slots.values():
            slot.arrived = slot.arrived or slot.token in self.waited

    def expected(self, key: Key) -> bool:
        """Whether there is a tile of this number."""
        return key[1] < self.tiles

    def barrier(self) -> None:
        for slot in self.slots.values():
            slot.seen, slot.read = slot.arrived, False

    def read(self, ring: Ring, tile: int) -> None:
        """All threads read ``tile``."""
        slot = self.slots.get((ring.name, tile % ring.stages))
        if slot is None or slot.tile != tile:
            held = "nothing" if slot is None else str(slot)
            self.refuse(f"tile {tile} of {ring.name} is read where {held} is")
        if not slot.arrived:
            self.refuse(f"tile {tile} of {ring.name} is read before it is waited for")
        if not slot.seen:
            self.refuse(f"tile {tile} of {ring.name} is read without a barrier since it arrived")
        slot.read = True

    def taken(self) -> None:
        """The memory of the rings becomes that of something else."""
        for (name, _), slot in self.slots.items():
            if slot.read or not slot.seen:
                doing = "read" if slot.read else "written"
                self.refuse(f"{name} may still be {doing} where its memory is used again")
        self.slots.clear()

    def idle(self) -> None:
        """Nothing is under way."""
        for key in (*self.group, *self.open):
            if key not in self.waited:
                self.refuse(f"{key[0]}[{key[1]}] is never waited for")

    # ---- tokens, tiles and rings --------------------------------------------------------------------------------

    def produce(self, key: Key, tile: int) -> Key:
        if key in self.produced:
            self.refuse(f"{key[0]}[{key[1]}] is produced twice")
        if key[1] != tile:
            self.refuse(f"{key[0]}[{key[1]}] is produced for tile {tile}")
        self.produced.add(key)
        return key

    def use(self, token: Token, values: dict[str, int], wanted: Key | None, what: str) -> None:
        key = self.key(token, values)
        if key not in self.produced:
            self.refuse(f"{key[0]}[{key[1]}] is used before it is produced")
        if key != wanted:
            self.refuse(f"{key[0]}[{key[1]}] is not what {what} gives")

    def key(self, token: Token, values: dict[str, int]) -> Key:
        return token.name, self.tile(token.tile, values)

    def tile(self, tile: Tile, values: dict[str, int]) -> int:
        if tile.var is not None and tile.var not in values:
            self.refuse(f"{tile.var} is the variable of no loop around this statement")
        number = tile.at(values)
        if number < 0:
            self.refuse(f"there is no tile {number}")
        return number

    def ring(self, name: str) -> Ring:
        found = next((ring for ring in self.rings if ring.name == name), None)
        return found or self.refuse(f"there is no ring {name}")

    def columns(self, width: int, *sizes: int) -> None:
        """Refuses accesses of ``width`` elements, of rows of ``sizes`` elements."""
        if width < 1 or width & (width - 1):
            self.refuse(f"there are no accesses of {width} elements")
        for size in sizes:
            if size % width:
                self.refuse(f"{size} columns are no multiple of {width}")

    def refuse(self, why: str) -> NoReturn:
        refuse(f"statement {self.at}", why)
