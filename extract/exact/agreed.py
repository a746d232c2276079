"""The kernels with which a part agrees with those before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..choice import Kernel, Key
from ..pricing import priced
from ..problem import Problem
from ..view import Item, Way
from .chains import reads
from .columns import Column, Columns
from .dag import Dag, Node, taken
from .ilp import Limits, solve
from .inside import INSIDE
from .part import Part
from .scope import Scope

WITHIN = -1
"""Stands for INSIDE among the numbers of options."""


class Numbered(NamedTuple):
    """A kernel by numbers, so that it is one of all parts that are equal: its buffer, the way to fill it, and (value, option) of its
    items, or :data:`WITHIN`."""

    buffer: int
    way: int
    items: tuple[tuple[int, int], ...]


def agreed(
    scope: Scope,
    found: Mapping[str, Columns],
    needs: Mapping[str, Sequence[tuple[str, ...]]],
    keys: Sequence[Key],
    buffers: Sequence[str],
    seconds: float,
) -> tuple[dict[int, Numbered], float]:
    """The kernels with which a part agrees with those before and after: what is given is there and read, and what is made is
    filled; and what they cost. None, and infinity, where there are none such. ``needs``: the buffers that each column's kernel
    needs filled. ``seconds``: wall time at most."""
    problem, part = scope.problem, scope.part
    classes: dict[str, Sequence[Node]] = {name: [Node(0.0)] for name in (*part.given, *part.common)}
    classes |= {f"made {name}": [Node(0.0, (), (scope.same.get(name, name),))] for name in part.made}
    ways: dict[str, list[Kernel]] = {}
    for name, columns_ in found.items():
        ways[name], nodes = [], list[Node]()
        for column, needed_ in zip(columns_.found, needs[name], strict=True):
            kernel = _kernel(scope, name, column)
            if kernel is not None:
                ways[name].append(kernel)
                nodes.append(Node(kernel.seconds, (), needed_))
        classes[name] = nodes
    together = Dag(classes, tuple(f"made {name}" for name in part.made))
    answer = solve(together, Limits(seconds))
    if answer is None:
        return {}, float("inf")
    place = {key: number for number, key in enumerate(keys)}
    number_of = {name: number for number, name in enumerate(buffers)}
    needed = taken(together, answer.solution)
    filling = (ways[name][answer.solution[name]] for name in needed if name in ways)
    kernels = {kernel.buffer.cls: kernel for kernel in filling}
    read = {each for kernel in kernels.values() for each in reads(kernel)}
    chosen: dict[int, Numbered] = {}
    for number, name in enumerate(buffers):
        filled = scope.same.get(name, name) if name in read and name not in scope.chained else name
        kernel = kernels.get(filled)
        # a buffer that is filled as another is has kernels of its own
        if kernel is not None and (kernel.buffer.cls == name or name not in kernels):
            chosen[number] = numbered(problem, number_of, name, kernel.way, kernel.items, place)
    return chosen, answer.cost


def numbered(
    problem: Problem,
    buffers: Mapping[str, int],
    name: str,
    way: Way,
    items: Mapping[Key, Item],
    place: Mapping[Key, int],
) -> Numbered:
    """A kernel that fills ``name``, by numbers. ``place``: those of the values."""
    roots = [each.root for each in problem.view.buffers[name].ways]
    picked = tuple((place[key], _option(problem, key, item)) for key, item in items.items())
    return Numbered(buffers[name], roots.index(way.root), picked)


def _kernel(scope: Scope, name: str, column: Column) -> Kernel | None:
    """A kernel as it is where all that is given is there: it is read. What is made is stored in the buffer that it is made in,
    and not in one that is as good. None where that cannot be."""
    problem, part = scope.problem, scope.part
    items = column.label.items()
    for key, item in list(items.items()):
        if item is INSIDE:
            read = _read(problem, part, key)
            if read is None:
                return None
            items[key] = read
    return priced(problem, problem.view.buffers[column.name], column.way, items)


def _read(problem: Problem, part: Part, key: Key) -> Item | None:
    """How a value is read of what is given; None where it is not, in the order in which it is needed."""
    options = (option.item for option in problem.options[key] if option.item.head == "Read")
    return next((item for item in options if str(item.payload[0]) in (*part.given, *part.common)), None)


def _option(problem: Problem, key: Key, item: Item) -> int:
    """Which option of a value it is."""
    if item is INSIDE:
        return WITHIN
    return next(number for number, option in enumerate(problem.options[key]) if option.item == item)
