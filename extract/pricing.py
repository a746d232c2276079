"""What a kernel costs, once it is known what each of its values is computed as. Every way of choosing asks here, so that
their costs are one."""

from __future__ import annotations

from collections.abc import Mapping

from .choice import COPYING, How, Kernel, Key, acyclic, as_copy, evaluations, tiles
from .cost.model import Work
from .problem import Problem
from .view import Buffer, Item, Way


def priced(problem: Problem, buffer: Buffer, way: Way, items: Mapping[Key, Item]) -> Kernel | None:
    """The kernel that fills ``buffer`` by ``items``; None where a value of it needs itself.

    Each buffer is read once, each value computed once per reduction whose axes it depends on, and a contraction in
    tiles where :func:`~tinyc.extract.choice.tiles` says so. Each kernel is priced once, however many choices have it."""
    key = buffer.cls, way, frozenset(items.items())
    if key not in problem.kernels:
        problem.kernels[key] = _priced(problem, buffer, way, items)
    return problem.kernels[key]


def _priced(problem: Problem, buffer: Buffer, way: Way, items: Mapping[Key, Item]) -> Kernel | None:
    root: Key = (way.root, False)
    if not acyclic(root, items):
        return None
    view = problem.view
    read = sorted({str(item.payload[0]) for item in items.values() if item.head == "Read"})
    moved = Work(
        bytes_written=problem.bytes(buffer),
        bytes_read=sum(problem.bytes(view.buffers[name]) for name in read),
    )
    keys = list(evaluations(view, root, items))
    how = tiles(view, items, problem.row)
    # of few points, a product in loops may take less than in tiles
    found: list[Kernel] = []
    loops: How = "walked" if any(problem.streamed(key, items[key]) for key in keys) else "loops"
    how = loops if how == "loops" else how
    for each in dict.fromkeys((how, loops) if problem.tiling else (how,)):
        work = moved
        for key in keys:
            work += problem.work(key, items[key], each, way.shape)
        if all(item.head in COPYING for item in items.values()):
            work = as_copy(work)
        work = problem.spread(work, way.shape, items, problem.element(buffer))
        found.append(Kernel(buffer, way, items, work, problem.model.kernel(work)))
    return min(found, key=lambda kernel: kernel.seconds)
