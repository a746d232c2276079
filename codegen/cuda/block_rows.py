"""Rows of a product that a block has kept in shared memory: reduced there, each by a team of threads of one warp.

The same schedule as :mod:`.rows`, but that a row lies in shared memory, that a block's teams take its rows in turns, and that nothing else
is kept there. What is read of a row is read again by each walk over it; what is computed from it is kept in registers.
"""

from __future__ import annotations

import math

from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.region import Axis, Let, MemRef, Read

from ..gpu.contraction import TiledProduct
from ..gpu.ir import ReduceRows, StGlobalVec
from ..gpu.kept import KeptParts
from .kept import Keep, Key, fitting
from .lets import Lets
from .nest import Frame, Vector, text
from .rows import Rows
from .sizes import Asked

KEPT = "kept"
"""The first row, in the source. :data:`ROW`: the row of a team."""

ROW = "kept_row"


class BlockRows(Rows):
    """What follows the last tile of a block. ``ask``: its threads, those of a team, and the width of an access."""

    def __init__(
        self, product: TiledProduct, parts: KeptParts, ask: Asked, keep: Keep | None, banned: frozenset[Key]
    ) -> None:
        super().__init__(parts.rows, parts.outer, ask, keep, banned)
        self.product, self.parts = product, parts
        self.inputs[parts.buffer.name] = (ROW, parts.buffer)

    def _teams(self) -> None:
        assert self.ask.threads is not None and self.ask.share is not None
        self.threads, self.team, self.blocks = self.ask.threads, self.ask.share, 1
        self.teams, self.lanes = self.threads // self.team, self.team

    def width(self, axes: tuple[Axis, ...]) -> int:
        if axes[-1].size == self.inner[-1].size and self.ask.width is not None:
            return self.ask.width
        return super().width(axes)

    # ---- the rows -----------------------------------------------------------------------------------------------

    def _kept(self, let: Let) -> bool:
        return isinstance(let.value, Read) and let.value.tensor == self.parts.buffer.name

    def element(self, ref: MemRef, index_map: tuple[Affine, ...]) -> str:
        if ref is not self.parts.buffer:
            return super().element(ref, index_map)
        numbers = {item.name: lit(0) for item in (*self.product.batch.axes, *self.product.m.axes)}
        return super().element(ref, tuple(index.substitute(numbers) for index in index_map))

    def room(self, frame: Frame, name: str, let: Let, vector: Vector) -> str:
        return (
            Lets.room(self, frame, name, let, vector)
            if self._kept(let)
            else super().room(frame, name, let, vector)
        )

    def computed(self, frame: Frame, let: Let) -> None:
        if not self._kept(let):
            super().computed(frame, let)

    # ---- the whole ----------------------------------------------------------------------------------------------

    def body(self) -> list[str]:
        kernel, kept = self.product.kernel, self.product.kernel.kept
        assert kept is not None
        bm, m = kernel.tile[0], kernel.extents[1]
        apart = tuple(item for item in self.outer if item in self.product.n.axes)
        parts = math.prod(item.size for item in apart)  # of a row of the product
        count = str(bm * parts)
        if m % bm:
            count = f"min({bm}, {m} - m0)" + (f" * {parts}" if parts > 1 else "")
        over = bool(m % bm or bm * parts % self.teams)
        row = "row" if parts == 1 else f"row / {parts}"
        lines = [
            f"const int lane = threadIdx.x % {self.team}, team = threadIdx.x / {self.team}, rows = {count};",
            f"for (int first = 0; first < rows; first += {self.teams}) {{",
        ]
        # threads without a row go along with the last one: they are named in shuffles
        own = (
            "const int own = first + team, row = min(own, rows - 1);"
            if over
            else "const int row = first + team;"
        )
        inner = [
            own,
            *self.decoded(f"(m0 + {row})", self.product.m.axes),
            *self.decoded(f"(row % {parts})", apart),
            f"const auto* const {ROW} = {KEPT} + {row} * {kept.pitch // kept.dtype.itemsize};",
        ]
        for item in self.region.yields:
            self.before(item.value)
        with self.walk(self.inner):
            place = self.top.walk.place if self.top.walk else ""
            self.store(f"at + {place}", "own < rows" if over else "")
        inner += [f"const {self.index} at = {self.indices.text(self._position())};", *text(self.top.lines)]
        return ["{", *(f"  {line}" for line in lines), *(f"    {line}" for line in inner), "  }", "}"]

    def _position(self) -> Affine:
        """Of the row's first element in every output."""
        place, stride = lit(0), math.prod(item.size for item in self.inner)
        for item in reversed(self.outer):
            place, stride = place + axis(item.name) * stride, stride * item.size
        return place


def block_rows(product: TiledProduct, statement: ReduceRows, store: StGlobalVec) -> BlockRows:
    """The rows of ``product``'s block, as the statements have them. A draft shows what walks need again; what does not fit into
    registers is computed again."""
    assert product.parts is not None
    ask = Asked(product.kernel.threads, statement.team, store.width)
    banned = frozenset[Key]()
    while True:
        draft = BlockRows(product, product.parts, ask, None, banned)
        draft.body()
        keep = fitting(draft, draft.threads, 0)
        if keep.keys() == draft.asked_for.keys():
            return BlockRows(product, product.parts, ask, keep, banned)
        banned |= draft.asked_for.keys() - keep.keys()
