"""The schedule "tiles": what is read along one axis of the result and stored along another goes through shared memory.

A block computes a square of points. It reads such a buffer with neighbouring threads along the axis on which it lies, and
takes the elements from shared memory with neighbouring threads along the axis of the result; rows of a tile are one word
longer than they need be, an odd number of banks, so that neither way has two threads at different words of one bank.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tinyc.ir.dtypes import DType
from tinyc.ir.index import FloorDiv
from tinyc.ir.region import Let, Read, Reduce, Region

from . import scalar
from .indices import linear
from .loops import Loops
from .nest import Frame, text
from .sizes import WARP, Asked

SIDE = WARP
"""Points of a tile along each of its axes."""

LEAST = 16
"""Points of an axis that is worth a tile: with fewer, most of a tile lies outside."""

THREADS = 256
"""Of a block."""

SHARED = 40 << 10
"""Bytes of shared memory that tiles may take."""


class Tiles(Loops):
    """The body of a kernel whose block computes a tile of the last axis and ``across``, of which it stages the Reads
    ``staged``. It has the threads of its Plan; of a vector's elements each thread has some of a column of the tile."""

    algo = "tiles"

    def __init__(self, region: Region, ask: Asked, across: str, staged: tuple[str, ...]) -> None:
        super().__init__(region, ask)
        sizes = {item.name: item.size for item in region.iters}
        self.across, self.last = across, region.iters[-1].name
        self.staged = {name: f"tile{number}" for number, name in enumerate(staged)}
        self.threads = min(ask.threads or THREADS, SIDE * SIDE)
        while SIDE * SIDE % self.threads:
            self.threads -= WARP
        self.rest = tuple(item for item in region.iters if item.name not in (across, self.last))
        self.counts = -(-sizes[self.last] // SIDE), -(-sizes[across] // SIDE)
        self.blocks = math.prod(self.counts) * math.prod(item.size for item in self.rest)
        self.frames = [Frame(frozenset(item.name for item in self.rest))]

    def body(self) -> list[str]:
        """What a thread does."""
        wide, high = self.counts
        block = f"({self.index})blockIdx.x"
        lines = [
            f"const int x = threadIdx.x % {SIDE};",
            f"const int y = threadIdx.x / {SIDE};",
            f"const {self.index} last = {block} % {wide} * {SIDE};",
            f"const {self.index} across = {block} / {wide} % {high} * {SIDE};",
            *self.decoded(f"{block} / {wide * high}", self.rest),
        ]
        for name, array in self.staged.items():
            kind = scalar.MEMORY[self.lets[name].dtype]
            lines.append(f"__shared__ {kind} {array}[{SIDE * pitch(self.lets[name].dtype)}];")
        lines += self._loop("y + k", "x", self._stage)
        lines.append("__syncthreads();")
        lines += self._loop("x", "y + k", self._results)
        return lines

    def _loop(self, last: str, across: str, fill: Callable[[], None]) -> list[str]:
        """A loop over the rows of a tile, each with all ``x`` at one time."""
        names, sizes = self.names, self.indices.sizes
        self.frames.append(Frame(frozenset({self.last, self.across})))
        fill()
        inner = self.frames.pop()
        inside = [f"{names[axis]} < {sizes[axis]}" for axis in (self.across, self.last) if sizes[axis] % SIDE]
        body = text(inner.lines)
        if inside:
            body = [f"if ({' && '.join(inside)}) {{", *(f"  {line}" for line in body), "}"]
        body = [
            f"const {self.index} {names[self.last]} = last + {last};",
            f"const {self.index} {names[self.across]} = across + {across};",
            *body,
        ]
        outer = text(self.top.lines)
        self.top.lines.clear()
        head = f"for (int k = 0; k < {SIDE}; k += {self.threads // SIDE}) {{"
        return [*outer, "#pragma unroll", head, *(f"  {line}" for line in body), "}"]

    def _stage(self) -> None:
        for name, array in self.staged.items():
            value = self.lets[name].value
            assert isinstance(value, Read)
            buffer, ref = self.inputs[value.tensor]
            found = f"{buffer}[{self.indices.element(ref, value.map)}]"
            self.top.then(f"{array}[(y + k) * {pitch(ref.dtype)} + x] = {found};")

    def _results(self) -> None:
        for name, array in self.staged.items():
            dtype = self.lets[name].dtype
            found = f"{array}[x * {pitch(dtype)} + y + k]"
            if dtype in scalar.LOAD:
                found = self.call(scalar.LOAD[dtype], found)
            self.top.values[name] = f"({found} != 0)" if dtype.value == "bool" else found
        steps, position = 1, []
        for item in reversed(self.region.iters):
            position.append(self.names[item.name] if steps == 1 else f"{steps} * {self.names[item.name]}")
            steps *= item.size
        self.store(" + ".join(reversed(position)))


def pitch(dtype: DType) -> int:
    """Elements from a row of a tile in shared memory to the next: an odd number of words."""
    return (SIDE * dtype.itemsize // 4 + 1) * 4 // dtype.itemsize


def tiles(region: Region, ask: Asked) -> Tiles | None:
    """The kernel in tiles, where some Read of an elementwise Region lies along another axis than its result."""
    if any(isinstance(let.value, Reduce) for let in region.lets) or len(region.iters) < 2:
        return None
    sizes = {item.name: item.size for item in region.iters}
    plain = Loops(region, ask)
    last = region.iters[-1].name
    found: dict[str, list[str]] = {}
    for let in region.lets:
        if (across := _lies_across(plain, let, last)) is not None and min(
            sizes[across], sizes[last]
        ) >= LEAST:
            found.setdefault(across, []).append(let.name)
    if not found:
        return None
    across, names = max(found.items(), key=lambda item: len(item[1]))
    types = [plain.lets[name].dtype for name in names]
    bytes = sum(SIDE * pitch(dtype) * dtype.itemsize for dtype in types)
    return Tiles(region, ask, across, tuple(names)) if bytes <= SHARED else None


def _lies_across(plain: Loops, let: Let, last: str) -> str | None:
    """The axis of the result, not its last, along which the elements of a Read lie beside each other, while those of
    neighbours along the last lie apart."""
    if not isinstance(let.value, Read):
        return None
    _, ref = plain.inputs[let.value.tensor]
    for expression, size in zip(let.value.map, ref.shape, strict=True):
        low, high = expression.bounds(plain.indices.sizes)
        if low < 0 or high >= size:
            return None
    terms = linear(let.value.map, ref).terms
    if any(isinstance(atom, FloorDiv) for _, atom in terms):
        return None
    steps = {atom: coef for coef, atom in terms if isinstance(atom, str)}
    if abs(steps.get(last, 0)) * ref.dtype.itemsize < 8:
        return None
    return next((axis for axis, coef in steps.items() if coef == 1 and axis != last), None)
