"""What schedules are made of: predicates about loads, tiles and problems, and what the hardware has (rules/meanings.egg).

While an instance is made, what it assumes of opaque operands is noted (:meth:`Context.note`); what a rule then claims is held
against the notes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinyc.egraph.encode import machine_limits
from tinyc.ir.dtypes import DType
from tinyc.ir.resources import LIMITS
from tinyc.ir.streams import STEP, Extents
from tinyc.ir.units import WARP, unit_name

from .machines import limits_of
from .term import Term, Value, walk

if TYPE_CHECKING:
    from .world import World

Block = tuple[int, int, int]
Row = tuple[Value, ...]


def contraction(world: World, a: Term, b: Term, summed: Value, batch: Value, m: Value, n: Value) -> bool:
    """A contraction of the instance: problems are those of one."""
    world.context.note("contraction", (a, b, summed, batch, m, n))
    return True


def loads(world: World, x: Term, size: int, index: tuple[Term, ...]) -> bool:
    """Some element of ``size`` bytes that the value is computed from is read at ``index``."""
    opaque = [each for each in walk(x) if each.head == "?Expr"]
    if opaque:
        world.context.note("loads", (x, size, index))
        told = {row for each in walk(x) for row in world.context.noted("loads", each)}
        return size in (1, 2, 4) and (not world.context.complete or (size, index) in told)
    reads = [each for each in walk(x) if each.head == "Read"]
    return any(each.args[1] == index and DType(world.facts.dtype(each)).itemsize == size for each in reads)


def staged(world: World, x: Term, summed: Value, batch: Value, size: int, window: int) -> bool:
    """Its tiles have elements of ``size`` bytes, or it has none; it is read in windows or not."""
    world.context.note("staged", (x, size, window))
    if not (size in (0, 1, 2, 4) and window in (0, 1) and (size > 0 or window == 0)):
        return False
    told = world.context.noted("loads", x)
    told += [(DType(world.facts.dtype(e)).itemsize, e.args[1]) for e in walk(x) if e.head == "Read"]
    tiles = [_tile(world, bytes_, at, summed, batch) for bytes_, at in told]
    if not tiles and not any(each.head == "?Expr" for each in walk(x)):
        tiles = [(0, 0)]  # it is read nowhere
    return not world.context.complete or (size, window) in tiles


def _tile(world: World, size: int, index: tuple[Term, ...], summed: Value, batch: Value) -> tuple[int, int]:
    """Bytes of an element, and 1 for windows."""
    if not world.facts.axes_of(index) & summed:
        return 0, 0
    return size, slides(world, index, summed, batch, len(index)) or 0


def ordered(world: World, batch: Value, m: Value, n: Value, points: int, along: str) -> bool:
    """The last of all axes is one of ``along``, of the kernel's own, and ``points`` of that role end there contiguously."""
    roles_ = {"b": batch, "m": m, "n": n}
    world.context.note("ordered", (batch, m, n, points, along))
    if along not in roles_ or not m or not n:
        return False
    last = {name: max((each.args[0] for each in axes), default=-1) for name, axes in roles_.items()}
    if max(last.values()) >= 16 or any(last[name] >= last[along] for name in last if name != along):
        return False
    # where the last axis is of the batch, the columns are those of n
    runs = run_of(n, last["n"]) if along == "b" else run_of(roles_[along], last[along])
    return runs is not None and points > 0 and runs % points == 0


def share(world: World, axes: Value, points: int) -> bool:
    """A whole part of the points of some axes."""
    return points > 0 and points_of(axes) % points == 0


def core(world: World, axes: Value, least: int, points: int) -> bool:
    """Points that are packed together: those at the last axis without a gap, or all where these are fewer than least."""
    asked = world.context.noted("core-least", axes)
    return points == core_of(world, axes, least) and (not world.context.complete or (least,) in asked)


def core_of(world: World, axes: Value, least: int) -> int | None:
    run = run_of(axes, max((each.args[0] for each in axes), default=-1))
    points = run if run is None or run >= least else points_of(axes)
    world.context.note("core", (axes, least, points))
    return points


def cut(world: World, size: int, extent: int, unit: int) -> int | None:
    """``size`` halved while the half covers ``extent`` and is a multiple of ``unit``."""
    if size <= 0 or unit <= 0:
        return None
    while size % (2 * unit) == 0 and size // 2 >= extent:
        size //= 2
    return size


def fit(world: World, part: int, whole: int) -> int | None:
    """``part``, made smaller where the whole is no multiple of it: the whole, or the largest power of two that divides both."""
    if part <= 0 or whole <= 0:
        return None
    least = min(part, whole)
    return least if whole % least == 0 else min(part & -part, whole & -whole)


def ordered_of(batch: Value, m: Value, n: Value) -> tuple[int, str] | None:
    """The points and the role of :func:`ordered`."""
    last = {
        name: max((each.args[0] for each in axes), default=-1)
        for name, axes in (("b", batch), ("m", m), ("n", n))
    }
    along = max(last, key=lambda name: last[name])
    points = run_of(m if along == "m" else n, last["m" if along == "m" else "n"])
    return None if points is None else (points, along)


def line(world: World, n: int, size: int, points: int, width: int) -> bool:
    """Loops over a row that a machine can run: a GPU's block takes whole accesses, one for each thread of whole warps; a CPU any
    points of the row."""
    limits = limits_of(world.context)
    if world.context.machine == "cpu":
        return width == 0 and points <= n
    whole = width > 0 and width & (width - 1) == 0 and n % width == 0 and points % (WARP * width) == 0
    return whole and width * size <= limits["access"] and points // width <= limits["threads"]


def widest_line(world: World, n: int, size: int, points: int, width: int) -> bool:
    """A GPU's block takes the widest accesses, and no more than cover the row; a CPU takes the row, or a part of the table."""
    if world.context.machine == "cpu":
        return points in (n, *(part for (part,) in rows_of(world, "row-block") if 0 < part < n))
    if size <= 0 or width != min(n & -n, limits_of(world.context)["access"] // size):
        return False
    blocks = rows_of(world, "block-threads")
    units = [lanes * width for (lanes,) in rows_of(world, "warp-threads")]
    return any(
        points == cut(world, threads * width, max(n, unit), unit) for (threads,) in blocks for unit in units
    )


def shared(world: World, c: int, size: int, points: int, threads: int, width: int) -> bool:
    """Sums of ``c`` points that a machine can share: whole warps, a power of two of threads for each, whole accesses."""
    limits = limits_of(world.context)
    powers = all(each > 0 and each & (each - 1) == 0 for each in (threads, width))
    block = points * threads
    whole = world.context.machine != "cpu" and powers and block % 32 == 0 and c % width == 0
    return whole and block <= limits["threads"] and width * size <= limits["access"] and threads * width <= c


def shared_threads(world: World, n: int, c: int, size: int, points: int, threads: int, width: int) -> bool:
    """Those of the table, with the widest accesses of which each has two, and a block that does not hang over the row."""
    if size <= 0:
        return False
    widest = min(c & -c, limits_of(world.context)["access"] // size)
    powers = (1 << number for number in range(widest.bit_length()))
    fitting = [each for each in powers if each <= widest and 2 * threads * each <= c]
    known = (threads,) in rows_of(world, "sum-threads") and (points * threads,) in rows_of(
        world, "block-threads"
    )
    return known and width == max(fitting, default=0) and points // 2 < n


def walk_fits(world: World, problem: Term, bm: int, bn: int, bk: int, own: int, width: int) -> bool:
    """Tiles of whole instructions that a machine has the threads, the memory and the registers for, as of a product: four fifths of
    the memory, and registers for two blocks; and accesses that fit."""
    rows, columns, depth, wide, size = problem.args
    limits = limits_of(world.context)
    if min(bm, bn, bk, own, width) < 1 or bm % own or own % STEP or bn % STEP or width & (width - 1):
        return False
    found = Extents(1, rows, columns, depth, wide, size)
    fits = bk == found.deep and wide % width == 0 and width * size <= limits["access"]
    whole = -(-wide // STEP) * STEP
    staged_ = (bm * bk + bn * (bk + whole)) * size
    threads = WARP * (bm // own)
    return (
        fits
        and threads <= limits["threads"]
        and 5 * staged_ <= 4 * limits["smem"]
        and found.registers(own, bn) <= limits["registers"]
        and 2 * found.registers(own, bn) * threads <= limits["registers-per-sm"]
    )


def walk_suits(world: World, problem: Term, bm: int, bn: int, own: int, width: int) -> bool:
    """Tiles of the table that do not hang over by half; the widest accesses."""
    rows, columns, _, wide, size = problem.args
    limits = limits_of(world.context)
    if size <= 0 or width != min(wide & -wide, limits["access"] // size) or min(bm, bn, own) < 1:
        return False
    return (
        (bm, bn, own) in rows_of(world, "walk-shape")
        and bm <= 2 * max(rows, 32)
        and bn <= 2 * max(columns, 32)
    )


def runs_of(axes: frozenset[Term], last: int) -> list[int]:
    """Points of 1, 2, … of the axes that end at number ``last`` without a gap."""
    extents = {each.args[0]: each.args[1] for each in axes}
    found: list[int] = []
    while last in extents:
        found.append(extents[last] * (found[-1] if found else 1))
        last -= 1
    return found


def run_of(axes: frozenset[Term], last: int) -> int | None:
    """Points of all of them."""
    return max(runs_of(axes, last), default=None)


def slides(world: World, index: tuple[Term, ...], summed: Value, still: Value, count: int) -> int | None:
    """1 if one of the first ``count`` indices moves along an axis that is summed, and along one that is not, nor still."""
    if not 0 <= count <= len(index):
        return None
    axes = [world.facts.axes_of(each) for each in index[:count]]
    return int(any(each & summed and each - summed - still for each in axes))


def rows_of(world: World, table: str, owner: str = "") -> list[tuple[Value, ...]]:
    """The rows of a table of the hardware for the machine, or for one of its units, without the name."""
    return [row[1:] for row in world.rows(table) if row[0] == (owner or world.context.machine)]


def unit_of(world: World, problem: Term) -> str:
    """The machine's unit that multiplies the operands of a Product."""
    kind, left, right = problem.args[0], *problem.args[5:7]
    return unit_name(world.context.machine, left, right, rounded=kind.endswith("-tf32"))


def points_of(axes: Value) -> int:
    """The product of the extents of some axes."""
    return math.prod(each.args[1] for each in axes)


# ---- the blocks of a CPU ----------------------------------------------------------------------------------------------


def packs(world: World, outer: int, m: int, n: int, k: int, some: Sequence[Row] = ()) -> list[Block]:
    """Blocks of a packed product: equal parts of it within each shape, of some or all, in whole registers, and while fewer than
    eight of them are large, their longer side halved."""
    shapes = tuple(some or rows_of(world, "tile-shape"))
    key, cache = ("packs", outer, m, n, k, shapes), world.schema.cache
    if world.context.machine != "cpu" or min(outer, m, n, k) <= 0:
        return []
    if key not in cache:
        cache[key] = _packs(shapes, outer, m, n, k)
    found: list[Block] = cache[key]
    return found


def _packs(shapes: Sequence[Row], outer: int, m: int, n: int, k: int) -> list[Block]:
    limits = machine_limits(LIMITS["cpu"])
    rows, columns = limits["rows"], 2 * limits["lanes"]

    def share(whole: int, size: int, unit: int) -> int:
        """Of equal parts of at most ``size``, in whole units."""
        part = math.ceil(whole / math.ceil(whole / size))
        return math.ceil(part / unit) * unit

    todo: list[Block] = [
        (share(m, int(bm), rows), share(n, int(bn), columns), share(k, int(bk), 1))
        for bm, bn, bk in shapes
        if min(int(bm), int(bn), int(bk)) > 0
    ]
    found: list[Block] = []
    while todo:
        mc, nc, kc = todo.pop()
        if (mc, nc, kc) in found:
            continue
        found.append((mc, nc, kc))
        if not starved(outer, m, n, k, mc, nc):
            continue
        if nc <= mc and mc > 4 * rows:
            todo.append((share(m, (mc + 1) // 2, rows), nc, kc))
        if (nc > mc or mc <= 4 * rows) and nc > 2 * columns:
            todo.append((mc, share(n, (nc + 1) // 2, columns), kc))
    return found


def starved(outer: int, m: int, n: int, k: int, mc: int, nc: int) -> bool:
    """Fewer than eight blocks, each of more than 2^21 products."""
    return outer * -(-m // mc) * -(-n // nc) < 8 and mc * nc * k > 2**21


def pack(world: World, outer: int, m: int, n: int, k: int, mc: int, nc: int, kc: int) -> bool:
    """Blocks of :func:`packs`."""
    return (mc, nc, kc) in packs(world, outer, m, n, k)


def hungry(world: World, outer: int, m: int, n: int, k: int, mc: int, nc: int) -> bool:
    """Blocks that are starved."""
    return min(mc, nc) > 0 and starved(outer, m, n, k, mc, nc)


def final(world: World, outer: int, m: int, n: int, k: int, mc: int, nc: int) -> bool:
    """Blocks that are not starved, or that are not cut further."""
    limits = limits_of(world.context)
    small = (nc > mc or mc <= 4 * limits["rows"]) and nc <= 4 * limits["lanes"]
    return not hungry(world, outer, m, n, k, mc, nc) or small
