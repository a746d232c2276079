"""GPU IR (document 004 §9): the statements of one kernel, tile by tile, in the order in which a block executes them.

A block computes one tile of a contraction's result. Tiles of the operands along k are numbered; tile t lies in slot t mod ``stages`` of
its ring in shared memory. What is asynchronous gives a **token**: that a tile has arrived (TokLoad), that it has been multiplied
(TokCompute), that the epilogue is done (TokEpilogue). :func:`~codegen.gpu.check.check_gpu_ir` holds every use against its token.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyc.ir.dtypes import DType
from tinyc.ir.schedule import Contraction


@dataclass(frozen=True)
class Tile:
    """The number of a tile along k: ``offset``, or in a loop its variable plus ``offset``."""

    offset: int
    var: str | None = None

    def at(self, values: dict[str, int]) -> int:
        return self.offset + (values[self.var] if self.var else 0)

    @property
    def expression(self) -> str:
        """In a source: ``k + 1``."""
        return f"{self.var} + {self.offset}" if self.var and self.offset else str(self)

    def __str__(self) -> str:
        if self.var is None:
            return str(self.offset)
        return f"{self.var}{self.offset:+d}" if self.offset else self.var


@dataclass(frozen=True)
class Token:
    """``name[tile]``: produced once, by one statement."""

    name: str
    tile: Tile

    def __str__(self) -> str:
        return f"{self.name}[{self.tile}]"


@dataclass(frozen=True)
class Ring:
    """``stages`` tiles of an operand in shared memory, each ``rows`` x ``columns`` elements, row by row; a row lies along the
    summed axes or, where ``turned``, along the operand's own. ``swizzle``: the 16-byte chunks of a row change places by the number of
    the row, so that no two lanes that read together meet in a bank; in pairs, where ``words`` are read one by one."""

    name: str
    dtype: DType
    rows: int
    columns: int
    stages: int
    turned: bool
    swizzle: bool

    @property
    def row_bytes(self) -> int:
        return self.columns * self.dtype.itemsize

    @property
    def slot_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def words(self) -> bool:
        """Whether matrix units have to be given its elements one by one: only those of two bytes are turned when they are loaded."""
        return self.turned and self.dtype.itemsize == 4

    @property
    def turns_within(self) -> bool:
        """Whether chunks that change places stay in their row: 1, 2, 4 or a multiple of 8 chunks; pairs: a multiple of 4."""
        if self.words:
            return self.row_bytes % 128 == 0
        return self.row_bytes in (16, 32, 64) or self.row_bytes % 128 == 0


@dataclass(frozen=True)
class Kept:
    """Rows of the result in shared memory, for reductions over them: ``rows`` of ``columns`` elements each, ``pitch`` bytes apart. They
    are no part of the rings, nor of the epilogue's memory."""

    name: str
    dtype: DType
    rows: int
    columns: int
    pitch: int

    @property
    def bytes(self) -> int:
        return self.rows * self.pitch


@dataclass(frozen=True)
class CpAsync:
    """All threads of the block copy tile ``tile`` from ``src`` into its slot, ``bytes`` at a time, zeros where it hangs over or a
    guard fails. ``bytes`` 0: element by element, through registers: it is there when the statement is done. Nothing where there is no such
    tile."""

    ring: str
    tile: Tile
    src: str
    bytes: int
    out_token: Token


@dataclass(frozen=True)
class CommitGroup:
    """What was copied since the last one is a group."""


@dataclass(frozen=True)
class Wait:
    """Until all but the ``pending`` newest groups of this thread have arrived, ``tokens`` among them."""

    tokens: tuple[Token, ...]
    pending: int


@dataclass(frozen=True)
class Barrier:
    """All threads of the block come here: each sees what the others have written, and none reads any more what it read before."""


@dataclass(frozen=True)
class LoadFragments:
    """The operands of step ``step`` of a tile, from shared memory into the registers ``buffer``. Nothing where there is no such
    tile."""

    rings: tuple[str, str]
    tile: Tile
    step: int
    buffer: int


@dataclass(frozen=True)
class Mma:
    """``acc += a * b`` of what ``buffer`` holds, step ``step`` of tile ``tile``. ``out_token``: of the last step of a tile."""

    tile: Tile
    step: int
    buffer: int
    out_token: Token | None = None


@dataclass(frozen=True)
class Loop:
    """``body`` for each ``0 <= var < count``."""

    var: str
    count: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Walk:
    """``body`` for each tile ``0 <= var < count`` of n, of which a block computes all. Each turn has sums of its own, and counts tiles
    along k, and their tokens, anew."""

    var: str
    count: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Epilogue:
    """``ops`` are applied to the sums, which are regrouped in shared memory into runs of a row. ``overlap``: that memory is not the
    ring's, so that copies of another tile may be under way meanwhile; else it is, and all are done."""

    ops: tuple[str, ...]
    overlap: bool
    in_token: Token
    out_token: Token


@dataclass(frozen=True)
class KeepRows:
    """What the epilogue of a tile gives goes to its columns of ``dst``, rows that are kept, ``width`` elements at a time."""

    dst: str
    width: int
    in_token: Token
    out_token: Token


@dataclass(frozen=True)
class ReduceRows:
    """``team`` neighbouring threads take each row of ``src``, reduce it and apply ``ops``. ``in_token``: that the last tile of n is
    there."""

    src: str
    team: int
    ops: tuple[str, ...]
    in_token: Token
    out_token: Token


@dataclass(frozen=True)
class StGlobalVec:
    """The results go to ``dst``, ``width`` elements of a row at a time, those that hang over excepted."""

    dst: tuple[str, ...]
    width: int
    in_token: Token


Statement = (
    CpAsync
    | CommitGroup
    | Wait
    | Barrier
    | LoadFragments
    | Mma
    | Loop
    | Walk
    | Epilogue
    | KeepRows
    | ReduceRows
    | StGlobalVec
)


@dataclass(frozen=True)
class GpuKernel:
    """The statements of a kernel, and what they are about.

    Attributes:
        arch: "sm80".
        unit: what multiplies, a name of :data:`tinyc.ir.units.UNITS`. ``depth``: points of k that it takes at a time.
        roles: of the Region's contraction; m are the rows of the tile, along n the result is contiguous.
        extents: points of batch, m, n and k.
        tile: (BM, BN, BK). ``warp_tile``: (rows, columns) of one warp.
        tiles: along k.
        grid: blocks along x, y and z; ``places``: by which the numbers of a block's batch, tile of m and of n are counted.
        rings: of the two operands.
        kept: the rows that are reduced, where some are: then a block computes all tiles of n.
    """

    arch: str
    unit: str
    depth: int
    roles: Contraction
    extents: tuple[int, int, int, int]
    tile: tuple[int, int, int]
    warp_tile: tuple[int, int]
    tiles: int
    grid: tuple[int, int, int]
    places: tuple[tuple[str, str], ...]
    rings: tuple[Ring, Ring]
    stmts: tuple[Statement, ...]
    kept: Kept | None = None

    @property
    def warps(self) -> tuple[int, int]:
        """Of a block, along m and n."""
        return self.tile[0] // self.warp_tile[0], self.tile[1] // self.warp_tile[1]

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    @property
    def steps(self) -> int:
        """Of one tile."""
        return self.tile[2] // self.depth

    @property
    def counts(self) -> dict[str, int]:
        """Blocks along the batch, m and n."""
        batch, m, n, _ = self.extents
        columns = 1 if self.kept is not None else -(-n // self.tile[1])
        return {"b": batch, "m.o": -(-m // self.tile[0]), "n.o": columns}

    def start(self, ring: Ring) -> int:
        """The byte of the shared memory at which ``ring`` begins."""
        first, _ = self.rings
        return 0 if ring is first else first.stages * first.slot_bytes
