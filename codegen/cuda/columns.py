"""The schedule "columns": several threads for the sums of each vector of points, where neighbouring points lie together in
what is summed, and there are too few points to keep a GPU busy, or many points have the same sums (a softmax down columns).

Neighbouring threads have neighbouring vectors of points; those with the same points take turns along the terms, and put
together what they have by shuffles and through shared memory. Then they take turns along the points that need the sums.
"""

from __future__ import annotations

import math

from tinyc.ir.region import Let, Reduce, Region
from tinyc.ir.rows import rounded_alike

from . import scalar
from .loops import FEW, Loops
from .nest import Frame, text
from .row_axes import SHORT, terms
from .sizes import MOST_THREADS, WARP, Asked, power
from .team import together

BUSY = 1 << 15
"""Threads from which on a GPU of 108 multiprocessors is busy enough."""

MOST_SHARE = 32
"""Threads that share a sum unless a Plan says otherwise."""

TERMS = 4
"""A thread adds up at least."""

NEAR = 2
"""Vectors that lie together in what a block reads, at least: a sector."""


class Columns(Loops):
    """The body of a kernel; ``share`` threads for each of ``lanes`` vectors of points of a block. ``column``: iters along which
    sums differ; all points of the others have the same sums, and are computed by the threads that share them."""

    algo = "columns"

    def __init__(self, region: Region, ask: Asked, share: int, column: frozenset[str]) -> None:
        super().__init__(region, ask)
        self.across = tuple(item for item in region.iters if item.name in column)
        self.down = tuple(item for item in region.iters if item.name not in column)
        self.chunks = -(-math.prod(item.size for item in self.across) // self.width)
        lanes = (ask.threads or max(WARP, 256 // share * share)) // share
        self.lanes = max(1, min(power(lanes), 1 << (self.chunks - 1).bit_length()))
        while self.down and ask.share is None and self.lanes > NEAR and self.chunks // self.lanes < FEW:
            self.lanes, share = self.lanes // 2, share * 2
        self.share = max(share, WARP // self.lanes)
        self.threads = self.share * self.lanes
        self.orders: dict[str, int] = {}
        self.blocks = -(-self.chunks // self.lanes)

    def body(self) -> list[str]:
        """What a thread does."""
        lines = ["const int lane = threadIdx.x;"]
        own = f"({self.index})blockIdx.x * {self.lanes}" if self.blocks > 1 else ""
        own = " + ".join(filter(None, (own, f"lane % {self.lanes}" if self.lanes > 1 else ""))) or "0"
        alone = [] if self.down else [f"lane < {self.lanes}"]
        if self.chunks % self.lanes:
            # threads without points go along with the last ones: they are named in shuffles and barriers
            lines.append(f"const {self.index} own = {own};")
            own = f"min(own, ({self.index}){self.chunks - 1})"
            alone.append(f"own < {self.chunks}")
        lines.append(f"const {self.index} t = {own};")
        place = self.points_of("t", self.across)
        if not self.down:
            self.store(place, " && ".join(alone))
            return [*lines, *text(self.top.lines)]
        for stored in self.region.yields:
            self.before(stored.value)
        position, steps = "", self.points
        for item in self.region.iters:
            steps //= item.size
            name = self.names[item.name]
            position += (" + " if position else "") + (name if steps == 1 else f"{steps} * {name}")
        with self.turns(self.down, self.lanes, self.share):
            self.store(position, " && ".join(alone))
        return [*lines, *text(self.top.lines)]

    def reduce(self, frame: Frame, name: str, let: Let, value: Reduce) -> None:
        alone = frame is not self.frames[0] or terms(value) < SHORT
        self.orders[let.name] = 1 if alone else self.share
        if alone:
            super().reduce(frame, name, let, value)
            return
        self.before(value.body)
        self.begin(frame, name, let, value)
        with self.turns(value.axes, self.lanes, self.share):
            self.accumulate(name, let, value)

        def combined(x: str, y: str) -> str:
            return self.uses(scalar.binary(value.op, let.dtype, x, y))

        vector = self.vector(self.free[let.name])
        width = vector.width if vector else 1
        kind = scalar.REGISTER[let.dtype]
        frame.then(*together(name, kind, combined, self.threads, 1, self.lanes, width))
        self.end(frame, name, let, value)


def columns(region: Region, ask: Asked) -> Columns | None:
    """The kernel in columns, where the Plan has threads share sums, where many points have the same sums, or where there are so
    few points that threads should share theirs; None where there is no reason to, or what is one sum would be added up in two
    orders."""
    plain = Loops(region, ask)
    iters = {item.name for item in region.iters}
    last = region.iters[-1].name if region.iters else None
    longest, column = 0, frozenset[str]()
    for let in region.lets:
        own = plain.free[let.name]
        if isinstance(let.value, Reduce) and own <= iters and (last is None or last in own):
            longest = max(longest, terms(let.value))
            column |= own if terms(let.value) >= SHORT else frozenset()
    if longest < SHORT:
        return None
    chunks = math.prod(item.size for item in region.iters if item.name in column) // plain.width
    share = ask.share or 1
    if ask.share is None and (ask.threads is None or column < iters):
        most = min(MOST_SHARE, ask.threads or MOST_SHARE)
        while share < most and chunks * share < BUSY and share * 2 * TERMS <= longest:
            share *= 2
    if share == 1 and column >= iters:
        return None
    draft, found = (Columns(region, ask, min(share, MOST_THREADS), column) for _ in range(2))
    draft.body()
    return found if rounded_alike(region, draft.orders) else None
