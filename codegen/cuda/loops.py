"""The schedule "loops": a thread for each vector of points of the iters, which computes all that they need.

Neighbouring threads have neighbouring vectors along the last iter, so that what they store, and most of what they load, lies
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tinyc.ir.region import Axis, MemRef, Reduce, Region

from .lets import Lets
from .nest import Vector, text
from .sizes import WARP, Asked
from .vector import ACCESS

THREADS = 256
"""Of a block."""

FEW = 216
"""Blocks, two for each multiprocessor. Where there are fewer they are smaller, so that more multiprocessors take part."""


def widest(refs: Iterable[MemRef], size: int, flat: bool) -> int:
    """The elements of a vector that is one access of each of ``refs``. ``size``: of the axis; ``flat``: there is no other, so
    that the last vector may hang over."""
    width = ACCESS // max((ref.dtype.itemsize for ref in refs), default=ACCESS)
    while width > 1 and (size < width if flat else size % width):
        width //= 2
    return width


class Loops(Lets):
    """The body of a kernel, a vector of points for each thread."""

    algo = "loops"

    def __init__(self, region: Region, ask: Asked) -> None:
        super().__init__(region)
        self.ask = ask
        self.width = self._width() if region.iters else 1
        chunks = -(-self.points // self.width)
        self.threads = min(ask.threads or THREADS, -(-chunks // WARP) * WARP)
        while ask.threads is None and self.threads > 2 * WARP and chunks // self.threads < FEW:
            self.threads = self.threads // 2 // WARP * WARP
        self.blocks = -(-chunks // self.threads)

    @property
    def points(self) -> int:
        return math.prod(item.size for item in self.region.iters)

    def _width(self) -> int:
        """As wide as the Plan says, or as the largest elements that are accessed along the last axis allow."""
        last, flat = self.region.iters[-1], len(self.region.iters) == 1
        refs = self.along(last.name, [item.value for item in self.region.yields])
        reductions = (let.value for let in self.region.lets if isinstance(let.value, Reduce))
        if not refs and any(self.stride(value) > 1 for value in reductions):
            return 1  # what each point needs lies together, and what a vector of points needs does not
        width = widest((*refs, *self.region.outputs), last.size, flat)
        return min(width, self.ask.width or width)

    def body(self) -> list[str]:
        """What a thread does."""
        lines = [f"const {self.index} t = ({self.index})blockIdx.x * {self.threads} + threadIdx.x;"]
        chunks = -(-self.points // self.width)
        if chunks % self.threads:
            lines.append(f"if (t >= {chunks}) return;")
        place = self.points_of("t", self.region.iters)
        self.store(place)
        return [*lines, *text(self.top.lines)]

    def points_of(self, number: str, iters: tuple[Axis, ...]) -> str:
        """Opens the vector ``number`` of ``iters`` in the outermost frame; the position of its first point."""
        frame = self.frames[0]
        frame.axes = frozenset(item.name for item in iters)
        if self.width == 1:
            frame.then(*self.decoded(number, iters))
            return number
        last = iters[-1]
        frame.then(f"const {self.index} e = {number} * {self.width};", *self.decoded("e", iters))
        over = last.size if last.size % self.width else 0
        frame.vector = Vector(last.name, self.width, self.names[last.name], over)
        return "e"
