"""The schedule "loops": nested loops over the iters, each let in the outermost loop that it depends on.

The first loops are flattened into the parallel one. The last iter is innermost, so that stores and most loads
are contiguous. Where a Reduce walks its operand better along that iter than along its own axes (a column sum), the
iter is cut into blocks, and the Reduce is computed for a whole block at a time.
"""

from __future__ import annotations

from contextlib import ExitStack

from tinyc.ir.region import Axis, Reduce, Stream

from .emit import Emitter
from .frames import Group, tile_count

#: points of a block of the innermost iter: elementwise work per turn of the parallel loop; columns at a time
ELEMENTS = 4096
COLUMNS = 256


def emit_loops(emitter: Emitter, block: int | None = None) -> int:
    """Emits the whole kernel; returns the iterations of its parallel loop.

    ``block``: points of a block of the innermost loop, as a Plan has them (default: as the kernel asks for).
    """
    iters = emitter.region.iters
    if not iters:
        return _emit(emitter, [], [], None, 0)
    reduces = _outermost_reduces(emitter)
    last = iters[-1]
    columns = frozenset(name for name in reduces if _column(emitter, name, last))
    every = {item.name for item in iters}
    common = every.intersection(*(emitter.free[name] for name in reduces))
    blocked = any(
        last.name in emitter.free[name] and (name in columns or not every <= emitter.free[name])
        for name in reduces
    )
    outer = [item for item in iters[:-1] if item.name in common]
    rest = [item for item in iters[:-1] if item.name not in common]
    if blocked:
        emitter.vector, emitter.columns = Group((last,)), columns
        return _emit(emitter, outer, rest, emitter.vector, block or COLUMNS)
    if reduces and last.name in common and not block:
        return _emit(emitter, [*outer, last], rest, None, 0)
    if not outer and rest:
        outer.append(rest.pop(0))
    inner = [last]
    before = outer if not reduces else rest
    while (
        before
        and emitter.merges(before[-1], inner[0])
        and iters.index(inner[0]) - 1 == iters.index(before[-1])
    ):
        inner.insert(0, before.pop())
    group = Group(tuple(inner))
    return _emit(
        emitter, outer, rest, group, block or (ELEMENTS if not reduces and group.size > ELEMENTS else 0)
    )


def _emit(emitter: Emitter, outer: list[Axis], rest: list[Axis], inner: Group | None, block: int) -> int:
    """Parallel loop over ``outer`` (and the blocks of ``inner``), loops over ``rest``, loop over ``inner``."""
    whole = Group(tuple(outer))
    blocks = ((inner, min(block, inner.size)),) if inner is not None and block else ()
    with ExitStack() as loops:
        loops.enter_context(emitter.tiles(whole, blocks))
        groups = [*emitter.merged(tuple(rest)), *((inner,) if inner is not None else ())]
        for group in groups:
            part = emitter.full(group)
            frame = emitter.loop("0", part.count, part.extent, hint="i", group=group, base=part.base)
            loops.enter_context(frame)
        emitter.yield_all()
    return tile_count(whole, blocks)


def _outermost_reduces(emitter: Emitter) -> list[str]:
    """Reduces that depend on some iters and on nothing else."""
    iters = {item.name for item in emitter.region.iters}
    return [
        let.name
        for let in emitter.region.lets
        if isinstance(let.value, Reduce | Stream)
        and emitter.free[let.name]
        and emitter.free[let.name] <= iters
    ]


def _column(emitter: Emitter, name: str, last: Axis) -> bool:
    """Whether a Reduce is better computed for many points of the last iter at once."""
    value = emitter.lets[name].value
    if not isinstance(value, Reduce) or last.name not in emitter.free[name] or not value.axes:
        return False
    own = emitter.walk(value)[-1]
    along, across = emitter.gathers(value.body, last.name), emitter.gathers(value.body, own.name)
    return along < across or (along == across and own.size < emitter.host.lanes <= last.size)
