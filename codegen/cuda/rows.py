"""The schedule "rows": a team of threads for each row, which compute together what all points of the row need.

A row is all points that share the first iters, those on which some sum depends that the points do not change: the mean of a
LayerNorm, the largest score of a softmax; or one point, of a sum. The threads of a team walk along the row, each with vectors
of its own, add up what they have by shuffles, and through shared memory where they are several warps. What a later walk needs
again (:mod:`.kept`) each thread keeps in registers, as every walk over as many points gives it the same places; what other
threads need, such as the scores of attention where each thread has a column of the result, lies in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from tinyc.ir.region import Axis, Let, MemRef, Reduce, Region
from tinyc.ir.rows import rounded_alike

from . import scalar
from .kept import Keep, Keeping, Key, fitting
from .nest import Frame, Vector, Walk, text
from .row_axes import SHORT, outer_axes, terms
from .sizes import WARP, Asked
from .team import teams_of, together
from .vector import ACCESS

UNROLLED = 8
"""Steps of a walk that are unrolled even if nothing is kept."""


class Rows(Keeping):
    """The body of a kernel in rows over ``outer``."""

    algo = "rows"

    def __init__(
        self,
        region: Region,
        outer: tuple[Axis, ...],
        ask: Asked,
        keep: Keep | None = None,
        banned: frozenset[Key] = frozenset(),
    ) -> None:
        super().__init__(region, keep, banned)
        self.outer, self.inner = outer, region.iters[len(outer) :]
        self.frames = [Frame(frozenset(item.name for item in outer))]
        self.ask = ask
        self.widths: dict[tuple[Axis, ...], int] = {}
        self.orders: dict[str, int] = {}
        self.rows = math.prod(item.size for item in outer)
        self._teams()

    def shares(self, let: Let) -> bool:
        """Whether the threads of a row add it up together."""
        value = let.value
        if not isinstance(value, Reduce) or not self.free[let.name] <= self.frames[0].axes:
            return False
        return terms(value) >= SHORT

    def _teams(self) -> None:
        """Threads of a row, rows of a block, and threads that have different points of a row."""
        reductions = [let for let in self.region.lets if isinstance(let.value, Reduce) and self.shares(let)]
        walks = [let.value.axes for let in reductions if isinstance(let.value, Reduce)]
        walks += [self.inner] if self.inner else []
        sizes = [math.prod(item.size for item in axes) for axes in walks]
        chunks = max(size // self.width(axes) for size, axes in zip(sizes, walks, strict=True))
        columns = self._columns()
        chosen = teams_of(self.ask, self.rows, max(sizes), chunks, columns, bool(self.inner))
        self.team, self.teams, self.lanes = chosen.team, chosen.teams, chosen.lanes
        self.threads, self.blocks = self.team * self.teams, -(-self.rows // self.teams)

    def _columns(self) -> int:
        """The vectors of points of a row that have sums of their own, which threads may share; 0 where there are none."""
        row = {item.name for item in self.inner}
        for let in self.region.lets:
            own = self.free[let.name]
            sums = isinstance(let.value, Reduce) and terms(let.value) >= SHORT
            if sums and own & row and own <= self.frames[0].axes | row:
                return math.prod(item.size for item in self.inner) // self.width(self.inner)
        return 0

    def width(self, axes: tuple[Axis, ...]) -> int:
        """The elements of a vector of a walk over ``axes``: one access of the widest of the buffers that lie along it."""
        if axes in self.widths:
            return self.widths[axes]
        last, reductions = axes[-1], [let.value for let in self.region.lets if isinstance(let.value, Reduce)]
        roots = [value.body for value in reductions if value.axes == axes]
        refs: list[MemRef] = []
        if axes == self.inner:
            roots += [item.value for item in self.region.yields]
            refs += self.region.outputs
        refs += self.along(last.name, roots)
        across = any(last.name in self.free[value.body] and value.axes != axes for value in reductions)
        width = ACCESS // max((ref.dtype.itemsize for ref in refs), default=ACCESS)
        # a vector of sums has each of its accesses across, unless they are results: then neighbouring threads are better
        if across and axes != self.inner:
            width = 1
        over = not self.outer and len(axes) == 1 and not self.inner
        while width > 1 and (last.size < width if over else last.size % width):
            width //= 2
        self.widths[axes] = min(width, self.ask.width or width)
        return self.widths[axes]

    # ---- the whole ------------------------------------------------------------------------------------------------

    def body(self) -> list[str]:
        """What thread ``lane`` of row ``t`` does."""
        lines = [f"const int lane = threadIdx.x % {self.team};"]
        first = f"({self.index})blockIdx.x * {self.teams}"
        own = f"{first} + team" if self.teams > 1 else f"({self.index})blockIdx.x"
        if self.teams > 1:
            lines.append(f"const int team = threadIdx.x / {self.team};")
        over = self.rows % self.teams
        if over:
            # threads without a row go along with the last one: they are named in shuffles and barriers
            lines += [f"const {self.index} own = {own};"]
            own = f"min(own, ({self.index}){self.rows - 1})"
        lines += [f"const {self.index} t = {own};", *self.decoded("t", self.outer)]
        inside = f"own < {self.rows}" if over else ""
        if self.inner:
            size = math.prod(item.size for item in self.inner)
            for item in self.region.yields:
                self.before(item.value)
            with self.walk(self.inner):
                place = self.top.walk.place if self.top.walk else ""
                if self.lanes < self.team:
                    inside = " && ".join(filter(None, (inside, f"lane < {self.lanes} && place < {size}")))
                self.store(f"t * {size} + {place}" if self.outer else place, inside)
            return [*lines, *text(self.top.lines)]
        self.demand([item.value for item in self.region.yields])
        self.store("t", " && ".join(filter(None, (inside, "lane == 0"))))
        return [*lines, *text(self.top.lines)]

    @contextmanager
    def walk(self, axes: tuple[Axis, ...]) -> Iterator[None]:
        """A loop over all points of ``axes``, in their order, of which the threads of a team take turns."""
        size, width = math.prod(item.size for item in axes), self.width(axes)
        lanes = self.lanes if axes == self.inner else self.team
        stride = lanes * width
        steps = -(-size // stride)
        walk = Walk(axes, width, lanes, steps, "s" if steps > 1 else "0", "e")
        unrolled = self.unrolls(walk) or steps <= UNROLLED or lanes < self.team
        last = axes[-1]
        over = last.size if last.size % width else 0
        vector = Vector(last.name, width, self.names[last.name], over) if width > 1 else None
        self.frames.append(Frame(frozenset(item.name for item in axes), vector, walk))
        self.open.append(walk)
        yield
        self.open.pop()
        inner = self.frames.pop()
        body = [*self.decoded("e", axes), *text(inner.lines)]
        lane = "lane" if lanes == self.team else f"lane % {lanes}"
        first = f"{lane} * {width}" if width > 1 else lane
        if unrolled:
            place = f"s * {stride} + {first}" if steps > 1 else first
            if lanes < self.team:
                # all threads add up together: those without points go along with the last ones
                own = [f"const {self.index} place = {place};"]
                again = ["__syncthreads();"] if steps > 1 else []
                body = [
                    *again,
                    *own,
                    f"const {self.index} e = min(place, ({self.index}){size - width});",
                    *body,
                ]
            else:
                if steps * stride > size:
                    body = [f"if (e < {size}) {{", *(f"  {line}" for line in body), "}"]
                body = [f"const {self.index} e = {place};", *body]
        head = "{"
        if steps > 1:
            head = f"for (int s = 0; s < {steps}; ++s) {{"
        if not unrolled:
            head = f"for ({self.index} e = {first}; e < {size}; e += {stride}) {{"
        elif steps > 1 and lanes == self.team:
            self.top.then("#pragma unroll")
        self.top.then(head, *(f"  {line}" for line in body), "}")
        if self.shows(walk):
            self.top.then("__syncthreads();" if self.team > WARP else "__syncwarp();")

    # ---- reductions -----------------------------------------------------------------------------------------------

    def reduce(self, frame: Frame, name: str, let: Let, value: Reduce) -> None:
        shared = frame is self.frames[0] and self.shares(let)
        turns = frame.walk is not None and frame.walk.lanes < self.team and terms(value) >= SHORT
        self.orders[let.name] = (
            self.team if shared else self.team // frame.walk.lanes if turns and frame.walk else 1
        )
        if not shared and not turns:
            super().reduce(frame, name, let, value)
            return
        self.before(value.body)
        self.begin(frame, name, let, value)
        lanes = frame.walk.lanes if frame.walk else 1
        with self.walk(value.axes) if shared else self.turns(value.axes, lanes, self.team // lanes):
            self.accumulate(name, let, value)
        kind = scalar.REGISTER[let.dtype]

        def combined(x: str, y: str) -> str:
            return self.uses(scalar.binary(value.op, let.dtype, x, y))

        vector = self.vector(self.free[let.name])
        width = vector.width if vector else 1
        frame.then(*together(name, kind, combined, self.team, self.teams, lanes, width))
        self.end(frame, name, let, value)


def rows(region: Region, ask: Asked) -> Rows | None:
    """The kernel in rows; None where threads of a row would have nothing to share, or would not read what lies together, or
    would add up what is one sum in two orders.

    A draft shows what walks need again. What does not fit is computed, or read, again: what is cheapest first.
    """
    outer = outer_axes(region)
    if outer is None:
        return None
    banned = frozenset[Key]()
    while True:
        draft = Rows(region, outer, ask, banned=banned)
        draft.body()
        keep = fitting(draft, draft.threads)
        if keep.keys() == draft.asked_for.keys():
            return Rows(region, outer, ask, keep) if rounded_alike(region, draft.orders) else None
        banned |= draft.asked_for.keys() - keep.keys()
