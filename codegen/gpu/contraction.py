"""The one skeleton of tiled contractions (document 004 §9.1), filled in by a Plan: Region + Plan in, GPU IR out.

``cp.async`` ring -> fragments -> matrix instructions -> epilogue -> stores. Copies run ahead of the products by the Plan's
prefetch_depth, and the fragments of the next step are loaded while this one is multiplied. Where rows of the product are reduced a
block computes all tiles of its rows, whose epilogues put them into shared memory, and reduces them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations

from tinyc.ir.dtypes import DType
from tinyc.ir.region import Axis, Let, Reduce, Region, Stream
from tinyc.ir.resources import stored_along
from tinyc.ir.rows import kept_value, row_pitch
from tinyc.ir.schedule import Async, Contraction, LayoutHints, Plan
from tinyc.ir.schedule_names import Scope
from tinyc.ir.units import UNITS, Unit

from ..prepare import linear, simplify
from .ir import (
    Barrier,
    CommitGroup,
    CpAsync,
    Epilogue,
    GpuKernel,
    KeepRows,
    Kept,
    LoadFragments,
    Loop,
    Mma,
    ReduceRows,
    Ring,
    Statement,
    StGlobalVec,
    Tile,
    Token,
    Wait,
    Walk,
)
from .kept import KeptParts, kept_parts
from .operand import ACCESS, Group, Operand, Source, operand, source_of

BLOCK = (16, 8)
"""Points of m and of n that a warp multiplies at a time with matrix units."""

LANES = ((16, 16), 4)
"""The same without them, and points of k: 4 x 8 lanes, each with 16 bytes of either operand (:mod:`tinyc.codegen.cuda.simt`)."""

MOST_ORDERS = 4
"""Summed axes of which every order is tried."""


@dataclass(frozen=True)
class TiledProduct:
    """What a contraction's kernel is made from.

    ``region``: without axes of size 1. ``n`` is the group along which the result is contiguous: where that is the Plan's m, the
    two operands have changed places. ``dtype``: of the sums. ``width``: elements of a row that the epilogue takes at a time.
    ``parts``: of a Region that reduces rows of the product, which are kept.
    """

    region: Region
    kernel: GpuKernel
    batch: Group
    m: Group
    n: Group
    k: Group
    lhs: Operand
    rhs: Operand
    dtype: DType
    width: int
    parts: KeptParts | None = None

    @property
    def tile(self) -> Region:
        """What the epilogue of a tile computes."""
        return self.region if self.parts is None else self.parts.product


def contraction_kernel(region: Region, plan: Plan) -> TiledProduct | None:
    """The kernel of a contraction as ``plan`` has it; None where the skeleton does not fit the Region: a second reduction that is not
    over rows of the product, or an operand that is more than a Read behind guards and casts."""
    scope = Scope(plan, region)
    roles = scope.contraction
    if roles is None:
        return None
    value = kept_value(region, roles)
    if stored_along(region, region.outputs[0]) in roles.m:
        if value is not None:
            return None  # rows of the product lie across those of the result
        roles, plan = _turned(roles, plan)
    small = simplify(region)
    lets = {let.name: let for let in small.lets}
    if not isinstance(getattr(lets.get(roles.reduce), "value", None), Reduce):
        return None
    groups = _groups(small, lets, roles)
    parts = None
    if value is not None:
        parts = kept_parts(small, value, groups["b"].names | groups["m"].names, groups["n"])
        if parts is None:
            return None
    tiled = small if parts is None else parts.product
    if sum(isinstance(let.value, Reduce | Stream) for let in tiled.lets) != 1:
        return None
    found = [source_of(lets, small.inputs, name) for name in (roles.lhs, roles.rhs)]
    left, right = found
    if left is None or right is None:
        return None
    dtype = lets[roles.reduce].dtype
    unit = _unit(left, right, dtype)
    if unit is None:
        return None
    lhs, rhs = _operands(left, right, groups)
    tile, warp_tile = _tiles(plan, unit)
    extents = (groups["b"].size, groups["m"].size, groups["n"].size, lhs.depth.size)
    hints = plan.layout_hints or LayoutHints()
    stages = plan.stages or 2
    block, depth = (BLOCK, unit.depth) if unit.matrix else LANES
    if warp_tile[0] % block[0] or warp_tile[1] % block[1] or tile[2] % depth:
        return None
    types = (lhs.dtype, rhs.dtype) if unit.matrix else (dtype, dtype)
    # what is widened on the way passes through registers, element by element
    lhs = lhs if lhs.dtype is types[0] else replace(lhs, bytes=0)
    rhs = rhs if rhs.dtype is types[1] else replace(rhs, bytes=0)
    rings = (
        _ring("a", types[0], lhs, (tile[0], warp_tile[0]), tile[2], stages, hints.a_swizzle, unit),
        _ring("b", types[1], rhs, (tile[1], warp_tile[1]), tile[2], stages, hints.b_swizzle, unit),
    )
    if not unit.matrix and rings[1].turned and warp_tile[1] % 32 and warp_tile[1] != block[1]:
        return None  # a lane has 2 neighbouring columns, or a multiple of 4
    kept = None
    if value is not None:
        pitch = row_pitch(extents[2], value.dtype.itemsize, warp_tile[1])
        kept = Kept("rows", value.dtype, tile[0], extents[2], pitch)
    grid, places = _grid(plan, extents, tile, kept is not None)
    width = _width(plan, small, groups["n"])
    count = -(-extents[3] // tile[2])
    async_ = plan.async_ or Async(True, stages, False)
    walk = _walk(count, tile[2] // depth, unit.matrix, (lhs, rhs), stages, async_)
    if parts is None:
        stmts = _stored(walk, count, async_, plan.epilogue, small, width)
    else:
        stmts = _reduced(walk, count, async_, _ops(scope, parts), parts, -(-extents[2] // tile[1]), width)
    kernel = GpuKernel(
        "sm80", unit.name, depth, roles, extents, tile, warp_tile, count, grid, places, rings, stmts, kept
    )
    return TiledProduct(
        small, kernel, groups["b"], groups["m"], groups["n"], lhs.depth, lhs, rhs, dtype, width, parts
    )


# ---- what is multiplied ---------------------------------------------------------------------------------------------


def _turned(roles: Contraction, plan: Plan) -> tuple[Contraction, Plan]:
    """With m and n, and so the operands, in each other's place."""
    other = {"m": "n", "n": "m"}

    def renamed(part: str) -> str:
        head, *rest = part.split(".")
        return ".".join([other.get(head, head), *rest])

    hints, vector = plan.layout_hints, plan.vectorize
    turned = replace(
        plan,
        tile=plan.tile and (plan.tile[1], plan.tile[0], plan.tile[2]),
        warp_tile=plan.warp_tile and (plan.warp_tile[1], plan.warp_tile[0]),
        bind=tuple((renamed(part), place) for part, place in plan.bind),
        vectorize=vector and replace(vector, axis=renamed(vector.axis)),
        layout_hints=hints and replace(hints, a_swizzle=hints.b_swizzle, b_swizzle=hints.a_swizzle),
    )
    return replace(roles, lhs=roles.rhs, rhs=roles.lhs, m=roles.n, n=roles.m), turned


def _unit(left: Source, right: Source, dtype: DType) -> Unit | None:
    """What multiplies: sm80's matrix units for all machines so far, and its lanes for what they do not take. None: an operand
    is rounded to tf32, and matrix units do not take the other."""
    if left.rounded or right.rounded:
        tf32 = left.rounded and right.rounded and left.ref.dtype is right.ref.dtype is dtype is DType.FP32
        return UNITS["sm80-tf32"] if tf32 else None
    same = left.ref.dtype is right.ref.dtype and left.ref.dtype in (DType.FP16, DType.BF16)
    return UNITS["sm80" if same and dtype is DType.FP32 else "sm80-simt"]


def _groups(region: Region, lets: Mapping[str, Let], roles: Contraction) -> dict[str, Group]:
    """The axes of each role that are left; iters of neither operand are walked as a batch."""
    iters = {item.name: item for item in region.iters}
    groups = {
        role: Group(tuple(iters[name] for name in roles.groups()[role] if name in iters)) for role in "mn"
    }
    rest = tuple(item for item in region.iters if item.name not in groups["m"].names | groups["n"].names)
    value = lets[roles.reduce].value
    assert isinstance(value, Reduce)
    return {**groups, "b": Group(rest), "k": Group(value.axes)}


def _operands(left: Source, right: Source, groups: Mapping[str, Group]) -> tuple[Operand, Operand]:
    """Both, with the summed axes in the order in which the most bytes are copied at a time; as they stand where that is no worse."""

    def made(axes: tuple[Axis, ...]) -> tuple[Operand, Operand]:
        depth = Group(axes)
        return (
            operand(left, groups["b"], groups["m"], depth, linear(left.read.map, left.ref)),
            operand(right, groups["b"], groups["n"], depth, linear(right.read.map, right.ref)),
        )

    axes = groups["k"].axes
    orders = permutations(axes) if len(axes) <= MOST_ORDERS else [axes, axes[::-1]]
    return max(map(made, orders), key=lambda pair: sum(each.bytes for each in pair))


# ---- how ------------------------------------------------------------------------------------------------------------


def _tiles(plan: Plan, unit: Unit) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Of a block and of a warp. A Plan's warp tile for units that four warps issue together is cut in four."""
    tile = plan.tile or (128, 64, 64)
    rows, columns = plan.warp_tile or (tile[0] // 2, tile[1] // 2)
    if plan.arch is not None and unit.matrix:
        rows, columns = UNITS[plan.arch].part(rows, columns)
    if unit.matrix and rows % unit.rows:
        # of a narrow tile that is turned; an instruction has 16 rows
        tile, rows = (tile[0] // rows * unit.rows, *tile[1:]), unit.rows
    return tile, (rows, columns)


def _ring(
    name: str,
    dtype: DType,
    source: Operand,
    own: tuple[int, int],
    depth: int,
    stages: int,
    swizzle: bool,
    unit: Unit,
) -> Ring:
    """``own``: points of the operand's own axes in a tile, and in a warp's part of it."""
    turned = source.along == "rows"
    rows, columns = (depth, own[0]) if turned else (own[0], depth)
    fits = not turned or (unit.matrix and _apart(own[1], own[0] // own[1], dtype.itemsize))
    ring = Ring(name, dtype, rows, columns, stages, turned, swizzle)
    return replace(ring, swizzle=swizzle and fits and ring.turns_within)


def _apart(part: int, warps: int, size: int) -> bool:
    """Whether the chunks at which a warp's blocks of a turned ring begin differ from those of its first in bits that are 0 there, so
    that swizzled they differ in these bits too: what the addresses of fragments take for granted."""
    starts = {part * warp * size & 96 for warp in range(warps)}
    blocks = range(0, part * size, 32)
    return not any(start & block & 96 for start in starts for block in blocks)


def _grid(
    plan: Plan, extents: tuple[int, int, int, int], tile: tuple[int, int, int], whole: bool
) -> tuple[tuple[int, int, int], tuple[tuple[str, str], ...]]:
    """Blocks along x, y and z, and what is counted along which, the last fastest. ``whole``: a block computes all tiles of n."""
    columns = 1 if whole else -(-extents[2] // tile[1])
    counts = {"b": extents[0], "m.o": -(-extents[1] // tile[0]), "n.o": columns}
    bound = dict(plan.bind)
    places = tuple(
        (part, bound.get(part, default).removeprefix("block."))
        for part, default in (("b", "block.z"), ("m.o", "block.y"), ("n.o", "block.x"))
    )
    grid = {"x": 1, "y": 1, "z": 1}
    for part, way in places:
        grid[way] *= counts[part]
    return (grid["x"], grid["y"], grid["z"]), places


def _width(plan: Plan, region: Region, n: Group) -> int:
    """Elements of a row that are computed and stored together: what the Plan says, or less where rows are no multiple of that."""
    if plan.vectorize is None or not n.axes or n.axes[-1] != region.iters[-1]:
        return 1
    width = plan.vectorize.width if plan.vectorize.axis.split(".")[0] in ("n", *n.names) else 1
    while n.axes[-1].size % width:
        width //= 2
    return width


def _ops(scope: Scope, parts: KeptParts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operations of the Plan's epilogue that come before rows are kept, and those after."""
    assert scope.contraction is not None
    after = scope.after(scope.contraction.reduce)
    first = {scope.title(let.name, after) for let in parts.product.lets if let.name in after}
    ops = scope.plan.epilogue
    return tuple(each for each in ops if each in first), tuple(each for each in ops if each not in first)


def _walk(
    tiles: int, steps: int, matrix: bool, operands: tuple[Operand, Operand], stages: int, async_: Async
) -> tuple[Statement, ...]:
    """All products of one tile of the result."""
    ahead = min(async_.prefetch_depth, stages) - 1 if async_.enable else 0
    double = matrix and ahead > 0 and steps % 2 == 0
    k = "k"

    def copies(tile: Tile) -> tuple[Statement, ...]:
        pairs = zip("ab", operands, strict=True)
        return (
            *(CpAsync(name, tile, f"in{each.number}", each.bytes, Token(name, tile)) for name, each in pairs),
            CommitGroup(),
        )

    def arrived(tile: Tile, pending: int) -> tuple[Statement, ...]:
        return Wait((Token("a", tile), Token("b", tile)), pending), Barrier()

    def fragments(tile: Tile, step: int, buffer: int) -> Statement:
        return LoadFragments(("a", "b"), tile, step, buffer)

    def product(step: int, buffer: int) -> Statement:
        done = Token("mma", Tile(0, k)) if step == steps - 1 else None
        return Mma(Tile(0, k), step, buffer, done)

    now, then, later = Tile(0, k), Tile(1, k), Tile(ahead, k)
    before = [statement for number in range(ahead) for statement in copies(Tile(number))]
    body: list[Statement] = []
    if double:
        before += [*arrived(Tile(0), ahead - 1), fragments(Tile(0), 0, 0)]
        for step in range(steps):
            last = step == steps - 1
            body += arrived(then, ahead - 1) if last else ()
            body += [fragments(then, 0, 0) if last else fragments(now, step + 1, (step + 1) % 2)]
            body += copies(later) if step == 0 else ()
            body += [product(step, step % 2)]
    else:
        body += [*arrived(now, ahead - 1), *copies(later)] if ahead else [*copies(now), *arrived(now, 0)]
        for step in range(steps):
            body += [fragments(now, step, 0), product(step, 0)]
    return (*before, Loop(k, tiles, tuple(body)))


def _epilogue(tiles: int, async_: Async, ops: tuple[str, ...]) -> tuple[Statement, ...]:
    """Of one tile of the result, which gives ``epilogue[0]``."""
    taken, given = Token("mma", Tile(tiles - 1)), Token("epilogue", Tile(0))
    overlap = async_.epilogue_overlap
    return (*(() if overlap else (Barrier(),)), Epilogue(ops, overlap, taken, given))


def _stored(
    walk: tuple[Statement, ...],
    tiles: int,
    async_: Async,
    ops: tuple[str, ...],
    region: Region,
    width: int,
) -> tuple[Statement, ...]:
    """A block has one tile of the result."""
    return (*walk, *_epilogue(tiles, async_, ops), _store(region, width, Token("epilogue", Tile(0))))


def _reduced(
    walk: tuple[Statement, ...],
    tiles: int,
    async_: Async,
    ops: tuple[tuple[str, ...], tuple[str, ...]],
    parts: KeptParts,
    columns: int,
    width: int,
) -> tuple[Statement, ...]:
    """A block has ``columns`` tiles of the result, all of its rows."""
    n, kept, reduced = "n", "kept", Token("reduced", Tile(0))
    body = (
        *((Barrier(),) if columns > 1 else ()),  # the memory of the tile before is not read any more
        *walk,
        *_epilogue(tiles, async_, ops[0]),
        KeepRows("rows", width, Token("epilogue", Tile(0)), Token(kept, Tile(0, n))),
    )
    widest = max(ref.dtype.itemsize for ref in parts.rows.outputs)
    return (
        Walk(n, columns, body),
        Barrier(),
        ReduceRows("rows", parts.team, ops[1], Token(kept, Tile(columns - 1)), reduced),
        _store(parts.rows, min(width, ACCESS[0] // widest), reduced),
    )


def _store(region: Region, width: int, token: Token) -> Statement:
    return StGlobalVec(tuple(f"out{number}" for number in range(len(region.outputs))), width, token)
