"""Numbers of the machines that the analysis goes by, and hints for code generation (document 004 §7.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tinyc.ir.plan import Plan
from tinyc.ir.region import Binary, Cast, Read, Reduce, Region, Select, axis_sizes
from tinyc.ir.resources import LIMITS
from tinyc.ir.schedule import BARRIER_MODELS
from tinyc.ir.streams import walk_of

CAPACITY: Mapping[str, int] = MappingProxyType({name: limits.on_chip for name, limits in LIMITS.items()})
"""Bytes on chip that one kernel may keep values in: a CPU core's second-level cache, an SM's shared memory."""

TILE: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {"cpu": (64, 64, 64), "sm80": (128, 64, 64), "sm90": (128, 128, 64)}
)
"""Sides of a tile along m, n and k where a Plan says nothing, by architecture."""

BANKS, BANK_BYTES = 32, 4
ROWS, ROW_BYTES = 8, 16
"""What ldmatrix fetches at once: one 8x8 matrix of 16-bit elements, a row of 16 bytes from each of 8 rows."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """How loads of the next tile are waited for: ``model`` of a Plan's ``barrier_model``, and the operations, in order."""

    model: str
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BankConflict:
    """A column of ``tensor``'s tile, whose rows are ``pitch`` bytes apart, is fetched ``ways`` times as slowly as a row
    if the tile lies unswizzled in shared memory. ``swizzle``: better not so."""

    tensor: str
    pitch: int
    ways: int

    @property
    def swizzle(self) -> bool:
        return self.ways > 1


def barrier(target: str) -> Barrier | None:
    """sm80: groups of asynchronous copies. sm90: a barrier object in shared memory. None: nothing is waited for."""
    operations = {
        "cp_async_group": ("commit_group", "wait_group"),
        "mbarrier": ("mbarrier.arrive.expect_tx", "mbarrier.try_wait.parity"),
    }
    model = BARRIER_MODELS.get(LIMITS[target].arch)
    return Barrier(model, operations[model]) if model is not None else None


def conflict_ways(pitch: int) -> int:
    """The greatest number of words that one bank must deliver for 8 rows of 16 bytes, ``pitch`` bytes apart."""
    words: dict[int, set[int]] = {}
    for row in range(ROWS):
        for byte in range(row * pitch, row * pitch + ROW_BYTES, BANK_BYTES):
            word = byte // BANK_BYTES
            words.setdefault(word % BANKS, set()).add(word)
    return max(len(found) for found in words.values())


def bank_conflicts(region: Region, sides: Mapping[str, int]) -> tuple[BankConflict, ...]:
    """One per buffer that a sum of products reads, in the order of the inputs. ``sides``: of a tile, for every axis.

    A tile lies in shared memory as its buffer lies in memory: the last dimension is contiguous and makes a row. It has
    its whole length there, however small the buffer is.
    """
    refs = {ref.name: ref for ref in region.inputs}
    pitches: dict[str, int] = {}
    for read in operand_reads(region):
        ref = refs[read.tensor]
        if ref.shape:
            first, last = read.map[-1].bounds(sides)
            pitches[ref.name] = max((last - first + 1) * ref.dtype.itemsize, pitches.get(ref.name, 0))
    return tuple(
        BankConflict(ref.name, pitches[ref.name], conflict_ways(pitches[ref.name]))
        for ref in region.inputs
        if ref.name in pitches
    )


def operand_reads(region: Region) -> tuple[Read, ...]:
    """The Reads that are multiplied and summed, seen through casts and guards."""
    lets = {let.name: let for let in region.lets}
    found: list[Read] = []
    for let in region.lets:
        if not isinstance(let.value, Reduce) or let.value.op != "SUM":
            continue
        body = lets[let.value.body].value
        for name in (body.x, body.y) if isinstance(body, Binary) and body.op == "MUL" else ():
            value = lets[name].value
            while isinstance(value, Cast | Select):
                value = lets[value.x if isinstance(value, Cast) else value.then].value
            if isinstance(value, Read):
                found.append(value)
    return tuple(found)


def default_tile(region: Region, target: str) -> dict[str, int]:
    """A tile of :data:`TILE`: n is the last iter of more than one point, m the one before, k the last reduce axis of the
    Region's first reduction; every other iter is cut into points."""
    m, n, k = TILE[LIMITS[target].arch]
    iters = [axis for axis in region.iters if axis.size > 1]
    tile = {axis.name: 1 for axis in iters}
    for axis, side in zip(reversed(iters), (n, m), strict=False):
        tile[axis.name] = side
    reduce = next((let.value for let in region.lets if isinstance(let.value, Reduce)), None)
    if reduce is not None:
        wide = max(reduce.axes, key=lambda axis: axis.size)
        tile[wide.name] = k
    return tile


def plan_tile(region: Region, plan: Plan) -> dict[str, int] | None:
    """How much of each axis one tile of ``plan`` covers; None where the Plan names no tile.

    The axes of a role are one flattened extent, the last of them innermost: a side of 128 over axes of 16 and 16 takes
    8 of the outer one and all of the inner one. What is left over falls to the outermost, which may be shorter: a tail.
    """
    if plan.tile is None:
        return None
    sizes = axis_sizes(region)
    roles = plan.contraction
    last = tuple(axis.name for axis in region.iters if axis.size > 1)[-1:]
    groups: tuple[tuple[str, ...], ...] = ((), last, ()) if roles is None else (roles.m, roles.n, roles.k)
    tile = {axis.name: 1 for axis in region.iters}
    walk = walk_of(region) if plan.algo == "stream" else None
    if walk is not None and walk.product is not None:  # rows of one head, with all values that they weight
        groups = tuple(
            tuple(axis.name for axis in axes) for axes in (walk.rows, walk.axes, walk.product.axes)
        )
        tile |= {axis.name: axis.size for _, wide in walk.streams for axis in wide}
    for names, side in zip(groups, plan.tile, strict=True):
        for name in reversed(names):
            tile[name] = side if name == names[0] else min(sizes[name], side)
            side = max(1, side // tile[name])
    return tile


def row_bytes(sizes: Mapping[str, int], names: frozenset[str], itemsize: int) -> int:
    """Bytes of one value for every point of the axes ``names``."""
    return math.prod(sizes[name] for name in names) * itemsize
