"""What keeps the base program linear in the size of the program: the limits of ``rules/bounds.egg``, for its own use.

Without them a stencil of four taps, twelve steps deep, is 4^12 expressions, and a long ladder of reshapes and
transposes is one index with 2^n divisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyc.ir.index import Affine, FloorDiv
from tinyc.ir.tiny import MOVEMENT, Program

MAX_TAPS = 32
"""An element that more elements go into is read from a buffer where its index is not a plain one."""

MAX_OPERATIONS = 32
"""A reshaped value whose index has more operations is read from a buffer."""


@dataclass(frozen=True)
class Limits:
    """``taps``: elements of inputs and reductions that go into one element of a node, counted up to a little above the
    limit. ``solid``: nodes that are no mere broadcast; only they may be buffers."""

    taps: dict[str, int]
    solid: frozenset[str]

    def exceeded(self, program_uop: str, id: str, index: tuple[Affine, ...]) -> bool:
        """Whether the node is better kept in a buffer than computed at ``index``."""
        count = sum(operations(part) for part in index)
        if program_uop in ("RESHAPE", "VIEW"):
            return count > MAX_OPERATIONS
        return program_uop not in MOVEMENT and count > 0 and self.taps[id] > MAX_TAPS and id in self.solid


def limits(program: Program) -> Limits:
    taps: dict[str, int] = {}
    solid: set[str] = set()
    for node in program.nodes:
        operands = node.operands()
        if node.uop in ("INPUT", "REDUCE"):
            taps[node.id] = 1
        else:
            taps[node.id] = min(MAX_TAPS + 1, sum(taps[operand] for operand in operands))
        if node.uop in ("INPUT", "REDUCE") or (
            node.uop not in ("EXPAND", "VIEW") and any(operand in solid for operand in operands)
        ):
            solid.add(node.id)
    return Limits(taps, frozenset(solid))


def operations(index: Affine) -> int:
    """Arithmetic in an index: 0 for an axis as it is and for 0."""
    count = max(len(index.terms) + (index.const != 0) - bool(index.terms), 0)
    for coef, atom in index.terms:
        count += coef != 1
        if isinstance(atom, FloorDiv):
            count += 1 + operations(atom.num)
    return count
