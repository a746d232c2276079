"""Tiles of an operand on their way into shared memory: what one thread of the block copies.

The threads walk a tile row by row, each a piece of a row, and again some rows further on. What depends on the operand's own axes is
computed once, before the loop over k; what depends on k, once per tile. Where both are linear, all that is left in the loop is one
address of each side, and constants; where few threads copy long rows, as many addresses in shared memory as there are places that the
swizzle moves their chunks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..gpu.ir import Ring
from ..gpu.operand import Group, Operand
from . import scalar
from .indices import Indices

CHUNK = 16
"""Bytes that are swizzled as one, and that elements which are loaded one by one are stored by."""

PERIOD = 8
"""Rows after which chunks lie as before."""


def place(ring: Ring, row: str, byte: str) -> str:
    """Where a byte of a row lies in its slot."""
    if ring.swizzle:
        return f"{swizzle(ring)}<{ring.row_bytes}>({row}, {byte})"
    return f"({row}) * {ring.row_bytes} + {byte}"


def swizzle(ring: Ring) -> str:
    """The function of the library that says so, where it is swizzled."""
    return "swizzled_pairs" if ring.words else "swizzled"


@dataclass(frozen=True)
class Walk:
    """How ``threads`` threads share the ``ring``'s tile in pieces of ``width`` elements; each takes ``turns`` of them."""

    ring: Ring
    threads: int
    width: int

    @property
    def across(self) -> int:
        """Pieces of a row."""
        return self.ring.columns // self.width

    @property
    def pieces(self) -> int:
        return self.ring.rows * self.across

    @property
    def turns(self) -> int:
        return -(-self.pieces // self.threads)

    @property
    def straight(self) -> bool:
        """Whether a thread's pieces lie below each other, ``down`` rows apart, and every thread has one in every turn."""
        return self.threads % self.across == 0 and self.pieces % self.threads == 0

    @property
    def down(self) -> int:
        return self.threads // self.across

    @property
    def period(self) -> int:
        """After how many turns chunks lie as in the first, the same number of bytes apart; 0 where no such thing is known."""
        if not self.straight:
            return 0
        if self.turns == 1 or not self.ring.swizzle or self.down % PERIOD == 0:
            return 1
        return min(PERIOD // self.down, self.turns) if PERIOD % self.down == 0 else 0

    def moved(self, down: str) -> str:
        """Where the thread's chunk lies that is ``down`` rows below its first one, as far as the swizzle is concerned. The first row is
        above ``self.down``, which divides PERIOD: the bits of its number stay as they are when those of the rows below come to them."""
        ring = self.ring
        return f"({ring.name}_to ^ {swizzle(ring)}<{ring.row_bytes}>({down}, 0) % {ring.row_bytes})"

    def row(self) -> str:
        """Of turn ``i``."""
        if self.straight:
            return f"{self.ring.name}_row" + (f" + i * {self.down}" if self.turns > 1 else "")
        return f"(threadIdx.x + i * {self.threads}) / {self.across}"

    def column(self) -> str:
        if self.straight:
            return f"{self.ring.name}_column"
        return f"(threadIdx.x + i * {self.threads}) % {self.across} * {self.width}"


class Copy:
    """The text of the copies of ``source`` into ``ring``, which begins at byte ``start`` of the shared memory.

    ``own``: "m" or "n", the operand's own axes; ``tile``: points of these and of k in a tile. ``deep``: what k is called.
    """

    def __init__(
        self,
        source: Operand,
        ring: Ring,
        start: int,
        threads: int,
        own: str,
        tile: tuple[int, int],
        indices: Indices,
        deep: str = "k",
    ) -> None:
        self.source, self.ring, self.start, self.own, self.indices = source, ring, start, own, indices
        self.tile, self.deep = tile, deep
        self.walk = Walk(ring, threads, source.elements if source.bytes else CHUNK // ring.dtype.itemsize)
        self.name = ring.name
        self.element = scalar.MEMORY[source.dtype]
        self.buffer = f"in{source.number}"
        self.down_own = source.along == "depth"  # a turn moves along the operand's own axes, else along k
        self.over_own = source.rows.size % tile[0] != 0
        self.over_deep = source.depth.size % tile[1] != 0
        self.row_step = self.deep_step = None
        if source.row is not None and source.deep is not None and not source.guards:
            self.row_step = source.rows.stride(source.row)
            self.deep_step = source.depth.stride(source.deep)

    @property
    def linear(self) -> bool:
        """Whether a thread's copies are the same number of bytes apart, on both sides, in every tile, but for what the swizzle does."""
        return self.row_step is not None and self.deep_step is not None and self.walk.period > 0

    def functions(self) -> set[str]:
        """Of the library."""
        source_dtype = self.source.dtype
        kind = {f"copy{self.source.bytes}" + ("_rows" if self.linear else "")} if self.source.bytes else set()
        if self.ring.dtype is not source_dtype and source_dtype in scalar.LOAD:
            kind |= {scalar.LOAD[source_dtype]}
        kind |= {"in_registers"} if self.source.bytes and self.linear else set()
        return kind | {"vector", "shared_address", *([swizzle(self.ring)] if self.ring.swizzle else [])}

    # ---- before the loop ----------------------------------------------------------------------------------------

    def before(self) -> list[str]:
        """What stays the same in all tiles, and function ``copy_a(tile, slot)`` or ``copy_b``."""
        source, walk, name = self.source, self.walk, self.name
        how = f"{source.bytes} bytes at a time" if source.bytes else "element by element"
        lines = [
            f"// {name}: {self.own} x {self.deep}, {self.tile[0]} x {self.tile[1]} of {self.buffer}, {how}"
        ]
        if walk.straight:
            width = f" * {walk.width}" if walk.width > 1 else ""
            lines += [
                f"const int {name}_row = threadIdx.x / {walk.across}, {name}_column = threadIdx.x % {walk.across}{width};",
                f"const unsigned int {name}_to = shared_address({self._place(f'{name}_row', f'{name}_column')});",
            ]
        body = self._elements()
        if source.bytes:
            lines += self._linear_start() if self.linear else self._rows()
            body = self._linear() if self.linear else self._pieces()
        return [
            *lines,
            f"auto copy_{name} = [&](int tile, int slot) {{",
            *(f"  {line}" for line in body),
            "};",
        ]

    # ---- where everything is linear -----------------------------------------------------------------------------

    def _linear_start(self) -> list[str]:
        assert self.source.batch is not None and self.row_step is not None and self.deep_step is not None
        own, deep = (f"{self.name}_row", f"{self.name}_column")
        if not self.down_own:
            own, deep = deep, own
        terms = (
            [self.indices.text(self.source.batch)]
            if self.source.batch.terms or self.source.batch.const
            else []
        )
        terms += [self._times(f"({self.own}0 + {own})", self.row_step)] if self.row_step else []
        terms += [self._times(deep, self.deep_step)] if self.deep_step else []
        start = " + ".join([self.buffer, *terms])
        return [f"const {self.element}* const {self.name}_from = in_registers({start});"]

    def _linear(self) -> list[str]:
        assert self.row_step is not None and self.deep_step is not None
        walk, name = self.walk, self.name
        step = self.row_step if self.down_own else self.deep_step
        advance = self._times("tile", self.tile[1] * self.deep_step) if self.deep_step else ""
        constants = [
            walk.turns,
            walk.down * self.ring.row_bytes,
            walk.down * step * self.source.dtype.itemsize,
        ]
        start = " + ".join([f"{name}_from", *([advance] if advance else [])])
        arguments, lines = [], []
        if self.over_own or self.over_deep:
            constants.append(walk.down)
            left = {
                "own": f"{self.source.rows.size} - {self.own}0",
                "deep": f"{self.source.depth.size} - tile * {self.tile[1]}",
            }
            down, across = ("own", "deep") if self.down_own else ("deep", "own")
            over_across = self.over_deep if self.down_own else self.over_own
            over_down = self.over_own if self.down_own else self.over_deep
            count = f"{left[down]} - {name}_row" if over_down else str(self.ring.rows)
            if over_across:
                count = f"{name}_column < {left[across]} ? {count} : 0"
            lines += [f"const int left = {count};  // rows from this thread's first on"]
            arguments.append("left")
        head = f"copy{self.source.bytes}_rows"
        if walk.period == 1:
            return [*lines, _call(head, constants, [f"{name}_to + slot", start, *arguments])]
        lines.append(f"const {self.element}* const from = {start};")
        for turn in range(walk.period):  # and those that lie like it
            to = walk.moved(str(turn * walk.down)) + " + slot"
            lines.append(_call(head, [*constants, turn, walk.period], [to, "from", *arguments]))
        return lines

    # ---- where rows, or the depth, have to be looked up ---------------------------------------------------------

    @property
    def _kept(self) -> int:
        """Numbers along the operand's own axes that a thread copies."""
        return self.walk.turns if self.down_own or not self.walk.straight else 1

    def _rows(self) -> list[str]:
        """Where each of them begins, and what of each guard depends on it."""
        source, name = self.source, self.name
        assert source.row is not None and source.batch is not None
        lines = [f"{self.indices.index} {name}_from[{self._kept}];"]
        lines += [f"int {name}_guard{number}[{self._kept}];" for number in range(len(source.guards))]
        body = self._decoded(source.rows, self._own())
        body += [f"{name}_from[i] = {self.indices.text(source.batch + source.row)};"]
        for number, guard in enumerate(source.guards):
            body += [f"{name}_guard{number}[i] = {self.indices.text(guard.batch + guard.rows)};"]
        return [*lines, *_unrolled(self._kept, body)]

    def _pieces(self) -> list[str]:
        source, name = self.source, self.name
        assert source.deep is not None
        kept = "i" if self._kept == self.walk.turns else "0"
        decoded = [
            *self._decoded(source.depth, self._deep()),
            f"const {self.indices.index} deep = {self.indices.text(source.deep)};",
        ]
        once, each = ([], decoded) if not (self.down_own and self.walk.straight) else (decoded, [])
        tests = self._inside()
        for number, guard in enumerate(source.guards):
            index = f"{name}_guard{number}[{kept}] + {self.indices.text(guard.depth)}"
            tests += [f"(unsigned int)({index}) < {guard.size}u"]
        there = f", {' && '.join(tests)}" if tests else ""
        call = f"copy{source.bytes}({self._to()}, {self.buffer} + ({name}_from[{kept}] + deep){there});"
        return [*once, *_unrolled(self.walk.turns, [*self._last(), *each, call])]

    def _elements(self) -> list[str]:
        """Element by element; those that lie together in shared memory are stored together."""
        source, walk = self.source, self.walk
        kept, dtype = scalar.MEMORY[self.ring.dtype], self.source.dtype
        chunk = f"Vector<{kept}, {walk.width}>"
        own, deep = (
            (self._own(), self._deep() + " + e") if self.down_own else (self._own() + " + e", self._deep())
        )
        inner = [*self._decoded(source.rows, own), *self._decoded(source.depth, deep)]
        tests = self._inside(" + e")
        for condition in source.conditions:
            index = self.indices.text(condition.index - condition.lo)
            tests += [f"(unsigned int)({index}) < {condition.hi - condition.lo}u"]
        value = f"{self.buffer}[{self.indices.element(source.ref, source.read.map)}]"
        if self.ring.dtype is not dtype:  # widened on the way
            value = (
                f"{scalar.LOAD[dtype]}({value})"
                if dtype in scalar.LOAD
                else scalar.cast(dtype, self.ring.dtype, value)
            )
        there = f"{' && '.join(tests)} ? {value} : ({kept})0" if tests else value
        inner += [f"chunk.at[e] = {there};"]
        where = self._place(walk.row(), walk.column())
        body = [*self._last(), f"{chunk} chunk;", *_unrolled(walk.width, inner, "e")]
        return _unrolled(walk.turns, [*body, f"*({chunk}*)(shared + slot + {where}) = chunk;"])

    # ---- parts --------------------------------------------------------------------------------------------------

    def _own(self) -> str:
        """The number along the operand's own axes in turn ``i``, and along k."""
        return f"{self.own}0 + {self.walk.row() if self.down_own else self.walk.column()}"

    def _deep(self) -> str:
        return f"tile * {self.tile[1]} + {self.walk.column() if self.down_own else self.walk.row()}"

    def _inside(self, further: str = "") -> list[str]:
        """``further``: along the row."""
        own, deep = ("", further) if self.down_own else (further, "")
        tests = [f"{self._own()}{own} < {self.source.rows.size}"] if self.over_own else []
        return tests + ([f"{self._deep()}{deep} < {self.source.depth.size}"] if self.over_deep else [])

    def _last(self) -> list[str]:
        """In the last turn some threads have nothing left."""
        walk = self.walk
        if walk.pieces % walk.threads == 0:
            return []
        return [f"if (threadIdx.x + i * {walk.threads} >= {walk.pieces}) break;"]

    def _to(self) -> str:
        walk = self.walk
        if walk.period:
            first = f"{self.name}_to" if walk.period == 1 else walk.moved(f"i * {walk.down}")
            return f"{first} + slot" + (f" + i * {walk.down * self.ring.row_bytes}" if walk.turns > 1 else "")
        return f"shared_address(slot + {self._place(walk.row(), walk.column())})"

    def _place(self, row: str, column: str) -> str:
        start = f"{self.start} + " if self.start else ""
        return start + place(self.ring, row, f"{column} * {self.ring.dtype.itemsize}")

    def _times(self, text: str, factor: int) -> str:
        if factor == 1:
            return text
        return f"{text} * {factor}" if self.indices.index == "int" else f"(long long){text} * {factor}"

    def _decoded(self, group: Group, number: str) -> list[str]:
        """The axes of ``group`` at a number; the first is too large where the group has no such number."""
        lines, rest = [], f"({number})"
        for item in reversed(group.axes):
            last = "" if item is group.axes[0] else f" % {item.size}"
            lines.append(f"const {self.indices.index} {self.indices.names[item.name]} = {rest}{last};")
            rest = f"{rest} / {item.size}"
        return lines


def _call(function: str, constants: Sequence[int], arguments: Sequence[str]) -> str:
    return f"{function}<{', '.join(map(str, constants))}>({', '.join(arguments)});"


def _unrolled(count: int, body: list[str], name: str = "i") -> list[str]:
    head = f"for (int {name} = 0; {name} < {count}; ++{name}) {{"
    return ["#pragma unroll", head, *(f"  {line}" for line in body), "}"]
