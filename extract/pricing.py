"""What a kernel costs, once it is known what each of its values is computed as. Every way of choosing asks here, so that
their costs are one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .choice import (
    How,
    Kernel,
    Key,
    acyclic,
    as_copy,
    children_of,
    evaluations,
    tiles,
    turning,
)
from .cost.model import Work, added
from .problem import Problem
from .view import Buffer, Item, View, Way, is_rounded


def priced(problem: Problem, buffer: Buffer, way: Way, items: Mapping[Key, Item]) -> Kernel | None:
    """The kernel that fills ``buffer`` by ``items``; None where a value of it needs itself.

    Each buffer is read once, each value computed once per reduction whose axes it depends on, and a contraction in
    tiles where :func:`~tinyc.extract.choice.tiles` says so. Each kernel is priced once, however many choices have it."""
    key = buffer.cls, way, frozenset(items.items())
    if key not in problem.kernels:
        problem.kernels[key] = _priced(problem, buffer, way, items)
    return problem.kernels[key]


def _priced(problem: Problem, buffer: Buffer, way: Way, items: Mapping[Key, Item]) -> Kernel | None:
    if not acyclic((way.root, False), items):
        return None
    plain = without_rounding(problem.view, (way.root, False), items)
    every = (items,) if plain is None else (plain, items)
    found = [kernel for each in every for kernel in _kernels(problem, buffer, way, each)]
    return min(found, key=lambda kernel: kernel.seconds)


def _kernels(problem: Problem, buffer: Buffer, way: Way, items: Mapping[Key, Item]) -> list[Kernel]:
    """The ways to run it."""
    root: Key = (way.root, False)
    view = problem.view
    read = sorted({str(item.payload[0]) for item in items.values() if item.head == "Read"})
    moved = Work(
        bytes_written=problem.works.bytes(buffer),
        bytes_read=sum(problem.works.bytes(view.buffers[name]) for name in read),
    )
    keys = list(evaluations(view, root, items))
    how = tiles(view, items, problem.row)
    found: list[Kernel] = []
    running = problem.running
    loops: How = "walked" if any(running.streams(key, items[key]) for key in keys) else "loops"
    if how == "loops" or (how == "scanned" and not walks(problem, items)):
        how = loops
    # of few points, a product in loops may take less than in tiles; but what can be walked is walked
    ways = (how, loops) if problem.tiling and how != "scanned" else (how,)
    for each in dict.fromkeys(ways):
        work = added([moved, *(problem.works.work(key, items[key], each, way.shape) for key in keys)])
        if all(item.head in turning(problem.model.hardware) for item in items.values()):
            work = as_copy(work)
        if each == "scanned":
            work = running.walked(work, items)
        work = running.spread(work, way.shape, items, problem.works.element(buffer))
        found.append(Kernel(buffer, way, items, work, problem.model.kernel(work)))
    return found


def walks(problem: Problem, items: Mapping[Key, Item]) -> bool:
    """Whether matrix units walk the scores of a kernel that tiles their product under a Scan
    (:func:`~tinyc.extract.choice.tiles`); where they do, they are not computed in loops."""
    if any(map(is_rounded, items.values())):  # they walk no scores that take tf32
        return False
    if problem.tiling is None:
        return True
    # matrix units take what they multiply as it is loaded: what is computed on the way is multiplied in loops
    return any(problem.running.streamed(key, item) for key, item in items.items()) and _loaded(items)


def _loaded(items: Mapping[Key, Item]) -> bool:
    """Whether what Streams weight is read, and nothing but cast; and so, or behind guards, what a sum of products multiplies."""
    weights = [(item.children[1], False) for item in items.values() if item.head == "Stream"]
    bodies = [items.get((item.children[0], False)) for item in items.values() if item.head == "Reduce"]
    factors = [(cls, False) for body in bodies if body and body.op == "MUL" for cls in body.children]
    return all(_is_read(items, each, ("Cast",)) for each in weights) and all(
        _is_read(items, each, ("Cast", "Select")) for each in factors
    )


def _is_read(items: Mapping[Key, Item], key: Key, past: tuple[str, ...]) -> bool:
    """Whether a value is read, or constant, behind items of the heads ``past``."""
    item = items.get(key)
    while item is not None and item.head in past:
        item = items.get((item.children[1 if item.head == "Select" else 0], False))
    return item is None or item.head in ("Read", "Const")


def without_rounding(view: View, root: Key, items: Mapping[Key, Item]) -> Mapping[Key, Item] | None:
    """The same with its products of operands as they are, where some are rounded to tf32: which of both takes less shows only
    when it is known how the kernel runs. None where none is rounded, or a product is not found in its class."""
    if not any(map(is_rounded, items.values())):
        return None
    plain = dict(items)
    for key, item in items.items():
        factors = [items[child, True] for child in item.children] if item.head == "Contract" else []
        if not factors or not all(map(is_rounded, factors)):
            continue
        children = tuple(child for factor in factors for child in factor.children)
        other = next((each for each in view.items[key[0]] if each == replace(item, children=children)), None)
        if other is None:
            return None
        plain[key] = other
    found: dict[Key, Item] = {}
    pending = [root]
    while pending:
        key = pending.pop()
        if key not in found:
            found[key] = plain[key]
            pending += children_of(key, plain[key])
    return found
