"""The schedule "contraction": a sum of products as a blocked, packed, register-tiled matrix product.

One turn of the parallel loop computes a tile of MC x NC results in scratch memory. For each KC of the summed axes it
packs the operands, whatever expressions they are, into panels (lhs: MR rows, rhs: NR columns), and a micro-kernel
adds MR x NR products held in vector registers. The rest of the Region then reads the tile as the value of the
Reduce. Panels hang over the edge of the matrix with whatever they held before: those sums are never read.
"""

from __future__ import annotations

from contextlib import ExitStack

from tinyc.ir.cpu_tiles import blocks, default_tile, product
from tinyc.ir.plan import Contraction, Plan

from .emit import Emitter
from .frames import Block, Frame, Group, Staged, tile_count
from .microkernel import micro_kernel, pack


def emit_contraction(emitter: Emitter, roles: Contraction, plan: Plan) -> int | None:
    """Emits the whole kernel; returns the iterations of its parallel loop. None: it is better left to loops.

    The Plan's tile is (MC, NC, KC) in the order of its m, n and k, with MC rounded up to whole panels of MR rows and NC
    to NR columns, and no larger than the matrix; ``vectorize.width`` is the width of the vectors of which NR holds
    two. Without a tile the blocks are chosen here, and a product that is too small to be packed is None, as is one
    that is not of this form.
    """
    item = product(emitter.region, roles, emitter.free)
    lanes = plan.vectorize.width if plan.vectorize else emitter.host.lanes
    if isinstance(item, str) or (plan.tile is None and not item.worthwhile(emitter.host.lanes)):
        return None
    outer, m, n, k = Group(item.outer), Group(item.rows), Group(item.columns), Group(item.k)
    mr, nr = emitter.host.rows, 2 * lanes
    mc, nc, kc = blocks(item, plan.tile or default_tile(item, mr, nr), mr, nr)
    dtype = emitter.lets[roles.reduce].dtype
    tile = emitter.reserve(4 * mc * nc)
    left = emitter.reserve(4 * mc * kc)
    right = emitter.reserve(4 * nc * kc)
    parts = ((m, mc), (n, nc))
    with emitter.tiles(outer, parts) as frame:
        rows, columns = frame.blocks[::-1]
        sums = _at(emitter, frame, tile)
        frame.lines.append(f"  call void @llvm.memset.p0.i64(ptr {sums}, i8 0, i64 {4 * mc * nc}, i1 false)")
        with emitter.loop("0", str(-(-k.size // kc)), -(-k.size // kc), hint="kb", over=k.names) as step:
            depth = _depth(emitter, step, k, kc)
            pack(emitter, item.lhs, rows, depth, left, mr)
            pack(emitter, item.rhs, columns, depth, right, nr)
            _multiply(emitter, rows, columns, depth, (left, right, tile), (mr, nr, nc))
        frame.staged[roles.reduce] = Staged(
            tile, (Block(m, rows.base, rows.count, mc), Block(n, columns.base, columns.count, nc))
        )
        with ExitStack() as loops:
            for part in (rows, columns):
                loop = emitter.loop("0", part.count, part.extent, hint="i", group=part.group, base=part.base)
                loops.enter_context(loop)
            emitter.yield_all()
    emitter.functions.append(micro_kernel(emitter.host, "micro_kernel", dtype, lanes, None, nc))
    return tile_count(outer, parts)


def _depth(emitter: Emitter, step: Frame, k: Group, kc: int) -> Block:
    """The part of k that one turn of the loop sums."""
    if k.size <= kc:
        return Block(k, "0", str(k.size), kc)
    base = emitter.put(step, f"mul nuw nsw i64 {step.index}, {kc}", "k")
    left = emitter.put(step, f"sub nuw nsw i64 {k.size}, {base}", "left")
    count = emitter.put(step, f"call i64 @llvm.smin.i64(i64 {left}, i64 {kc})", "count")
    return Block(k, base, count, kc)


def _at(emitter: Emitter, frame: Frame, offset: int) -> str:
    return emitter.once(frame, f"getelementptr inbounds i8, ptr %scratch, i64 {offset}", "s")


def _multiply(
    emitter: Emitter,
    rows: Block,
    columns: Block,
    depth: Block,
    offsets: tuple[int, int, int],
    sizes: tuple[int, int, int],
) -> None:
    """Every pair of panels: one call of the micro-kernel."""
    mr, nr, nc = sizes
    ends = []
    for part, width in ((rows, mr), (columns, nr)):
        padded = emitter.put(emitter.top, f"add nuw nsw i64 {part.count}, {width - 1}", "up")
        ends.append(emitter.put(emitter.top, f"udiv i64 {padded}, {width}", "panels"))
    left, right, tile = (_at(emitter, emitter.frames[0], offset) for offset in offsets)
    with (
        emitter.loop("0", ends[1], columns.extent // nr, hint="jr", over=columns.group.names) as outer,
        emitter.loop("0", ends[0], rows.extent // mr, hint="ir", over=rows.group.names) as inner,
    ):
        b = _step(emitter, inner, right, outer.index, 4 * nr * depth.extent)
        a = _step(emitter, inner, left, inner.index, 4 * mr * depth.extent)
        row = _step(emitter, inner, tile, inner.index, 4 * mr * nc)
        c = _step(emitter, inner, row, outer.index, 4 * nr)
        inner.lines.append(f"  call void @micro_kernel(ptr {a}, ptr {b}, i64 {depth.count}, ptr {c})")


def _step(emitter: Emitter, frame: Frame, pointer: str, index: str, stride: int) -> str:
    offset = emitter.put(frame, f"mul nuw nsw i64 {index}, {stride}", "o")
    return emitter.put(frame, f"getelementptr inbounds i8, ptr {pointer}, i64 {offset}", "p")
