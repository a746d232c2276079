"""A choice of kernels from a bound's own solution.

Where a part of the bound computes values of what it is given, they are computed as cheaply as may be from the buffers that the
solution fills. What that costs then, the bound knows only in part; so the choice is one more to be tried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..choice import Kernel, Key
from ..pricing import priced
from ..problem import Option, Problem
from ..view import Item, Way
from .chains import stored
from .inside import INSIDE, holding_the_same


class Picked(NamedTuple):
    """A kernel of a bound's solution, which fills ``name`` by ``way``. Of ``items``, some may be INSIDE."""

    name: str
    way: Way
    items: Mapping[Key, Item]


def rounded(problem: Problem, picked: Sequence[Picked]) -> dict[str, Kernel] | None:
    """The kernels, by the buffers that they fill; None where one of them cannot be."""
    same = holding_the_same(problem)
    filled = {other for each in picked for other in same[each.name]}
    cheapest = _cheapest(problem, filled)
    found: dict[str, Kernel] = {}
    for each in picked:
        items = _completed(each.items, cheapest)
        if items is None:
            return None
        for name in same[each.name]:  # whatever reads one of them
            buffer = problem.view.buffers[name]
            ways = (way for way in buffer.ways if way.root == each.way.root)
            kernel = next((priced(problem, buffer, way, items) for way in ways), None)
            if kernel is not None:
                found[name] = kernel
        if each.name not in found:
            return None
    return stored(problem, found)


def _cheapest(problem: Problem, filled: Collection[str]) -> Mapping[Key, Option]:
    """About the cheapest way to compute or read each value where these buffers are filled, and no others."""
    buffers, number = problem.view.buffers, problem.number
    costs: dict[Key, float] = {}
    found: dict[Key, Option] = {}
    for key in problem.order:  # operands first; ways that go around in a circle are of no use
        for option in problem.options[key]:
            if option.item.head == "Read":
                name = str(option.item.payload[0])
                if name not in filled and buffers[name].arg is None:
                    continue
                cost = option.own + problem.read_cost[number[name]]
            elif key[0] not in problem.stored and all(child in costs for child in option.children):
                cost = option.own + option.untiled + sum(costs[child] for child in option.children)
            else:
                continue
            if key not in costs or cost < costs[key]:
                costs[key], found[key] = cost, option
    return found


def _completed(items: Mapping[Key, Item], cheapest: Mapping[Key, Option]) -> dict[Key, Item] | None:
    """With what is INSIDE computed; None where it cannot be."""
    found = {key: item for key, item in items.items() if item is not INSIDE}
    stack = [key for key, item in items.items() if item is INSIDE]
    while stack:
        key = stack.pop()
        if key in found:
            continue
        if key not in cheapest:
            return None
        found[key] = cheapest[key].item
        stack += cheapest[key].children
    return found
