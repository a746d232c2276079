"""What follows a tile's sums (document 004 §9.1): the rest of the Region, applied where the sums are, and 16-byte stores.

Each warp regroups its sums through a slab of shared memory of its own, 16 rows at a time, so that a lane gets neighbours of a row; it
computes the lets that follow the Reduce for them, and stores them together. What other lets read along the row is loaded together too.
"""

from __future__ import annotations

from tinyc.ir.index import axis, lit
from tinyc.ir.region import Region

from .lets import Lets
from .nest import Vector, text


def padded(columns: int) -> int:
    """Floats from one row of a slab to the next: rows of a fragment begin in banks of their own."""
    return columns + 8


class Epilogue(Lets):
    """The lets after ``source``, a Reduce or a Stream, at ``width`` neighbours of a row; the variables of the iters are those of the
    first. ``others``: lets that are known besides, as text. ``kept``: the rows in shared memory that it stores to, instead of the buffers
    of the outputs."""

    def __init__(
        self,
        region: Region,
        source: str,
        width: int,
        others: dict[str, str] | None = None,
        kept: str = "",
    ) -> None:
        super().__init__(region)
        self.width = width
        if kept:
            self.store16 = "keep16"
            self.outputs = {ref.name: (kept, ref) for ref in region.outputs}
        (frame,) = self.frames
        frame.values |= {**(others or {}), source: "sums.at[u]" if width > 1 else "sums.at[0]"}
        if width > 1:
            last = region.iters[-1].name
            frame.vector = Vector(last, width, self.names[last])

    def body(self) -> list[str]:
        """From ``sums.at[0 … width - 1]`` to the outputs, at the element ``at``."""
        self.store("at")
        return text(self.top.lines)

    def row(self, kind: str, start: str) -> str:
        """``width`` neighbouring sums of type ``kind`` in shared memory, from the address ``start`` on."""
        if self.width % 4:
            return f"*(const Vector<{kind}, {self.width}>*)({start})"
        self.used |= {"read_row", f"read4_{kind}"}
        return f"read_row<{self.width}>({start})"

    def position(self) -> str:
        """Of the first neighbour in every output."""
        place, stride = lit(0), 1
        for item in reversed(self.region.iters):
            place, stride = place + axis(item.name) * stride, stride * item.size
        return self.indices.text(place)
