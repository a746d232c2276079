"""What multiplies in a GPU's tiled contraction: matrix units, or lanes that multiply and add for themselves (document 004 §8,
§9). rules/hardware.egg has the same as facts, and a test holds both together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

WARP = 32
#: registers of a thread beside accumulators and operands: addresses, counters, predicates
ADDRESSING = 16


@dataclass(frozen=True)
class Unit:
    """``rows``, ``columns``, ``depth``: points of m, n and k of the smallest instruction (mma.sync m16n8k16, wgmma
    m64n8k16; m16n8k8, m64n8k8 of tf32), or of one step of 4 x 8 lanes over 32 bytes of a row. ``widest``: columns that one instruction has at most.
    ``warps``: that issue it together, a warpgroup for wgmma. ``per_row``, ``per_column``: registers of a thread that hold
    the operands of one row and one column of instructions; wgmma takes them from shared memory."""

    name: str
    rows: int
    columns: int
    depth: int
    widest: int
    warps: int
    per_row: int
    per_column: int

    @property
    def matrix(self) -> bool:
        """Whether it is the matrix units."""
        return not self.name.endswith("-simt")

    @property
    def arch(self) -> str:
        """The machine."""
        return self.name.split("-")[0]

    @property
    def issuer(self) -> str:
        """Whose tile a Plan's ``warp_tile`` is."""
        return "warpgroup" if self.warps > 1 else "warp"

    def part(self, rows: int, columns: int) -> tuple[int, int]:
        """Of a tile that several warps compute together, what each has."""
        if self.warps == 1:
            return rows, columns
        return (rows // 2, columns // 2) if columns >= 2 * self.columns else (rows // 4, columns)

    def registers(self, rows: int, columns: int) -> int:
        """Of a thread, whose warp (or warpgroup) has a tile of ``rows`` x ``columns``: accumulators, operands, addresses."""
        operands = self.per_row * -(-rows // self.rows) + self.per_column * -(-columns // self.columns)
        return rows * columns // (WARP * self.warps) + operands + ADDRESSING


UNITS: Mapping[str, Unit] = MappingProxyType(
    {
        unit.name: unit
        for unit in (
            Unit("sm80", 16, 8, 16, 256, 1, 4, 2),
            Unit("sm90", 64, 8, 16, 256, 4, 0, 0),
            Unit("sm80-tf32", 16, 8, 8, 256, 1, 4, 2),
            Unit("sm90-tf32", 64, 8, 8, 256, 4, 0, 0),
            Unit("sm80-simt", 4, 8, 8, 256, 1, 1, 1),
            Unit("sm90-simt", 4, 8, 8, 256, 1, 1, 1),
        )
    }
)


def unit_name(arch: str, left: int, right: int, rounded: bool = False) -> str:
    """The unit for operands of so many bytes an element: matrix units take two. 0: one that has no tiles. ``rounded``: both are
    rounded to tf32, which matrix units take too."""
    if rounded:
        return f"{arch}-tf32"
    return arch if {left, right} <= {0, 2} else f"{arch}-simt"
