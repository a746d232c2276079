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

MOST = 400
"""Values at most that a kernel computes of what it is given: where that goes back layer by layer, kernels of thousands take longer to
be looked at than to be told from those that are worth it."""


class Picked(NamedTuple):
    """A kernel of a bound's solution, which fills ``name`` by ``way``. Of ``items``, some may be INSIDE. ``alike``: the buffers that are
    taken as ``name`` is. ``seconds``: what the bound has for it."""

    name: str
    way: Way
    items: Mapping[Key, Item]
    alike: tuple[str, ...] = ()
    seconds: float = 0.0


Rounded = Mapping[str, Kernel]
"""The kernels that a picked one may be, by the buffers that they fill: whatever reads one of them."""


def rounded(problem: Problem, picked: Sequence[Picked]) -> list[Rounded]:
    """The kernels of each; none where it cannot be."""
    same = holding_the_same(problem)
    filled = {other for each in picked for name in (each.name, *each.alike) for other in same[name]}
    cheapest = _cheapest(problem, filled)
    ways = cheapest, _tiled(problem, cheapest)
    found: list[Rounded] = []
    for each in picked:
        every = [items for way in ways if (items := _completed(each.items, way)) is not None]
        found.append(
            {name: kernel for name in same[each.name] if (kernel := _filling(problem, each, name, every))}
        )
    return found


def together(problem: Problem, found: Sequence[Rounded]) -> dict[str, Kernel] | None:
    """All of them; None where one cannot be."""
    if not all(found):
        return None
    return stored(problem, {name: kernel for each in found for name, kernel in each.items()})


def _filling(
    problem: Problem, picked: Picked, name: str, every: Sequence[Mapping[Key, Item]]
) -> Kernel | None:
    """The cheapest of the kernels with these items that fill a buffer."""
    buffer = problem.view.buffers[name]
    way = next((way for way in buffer.ways if way.root == picked.way.root), None)
    kernels = (priced(problem, buffer, way, items) for items in every) if way is not None else ()
    return min((kernel for kernel in kernels if kernel), key=lambda kernel: kernel.seconds, default=None)


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


def _tiled(problem: Problem, cheapest: Mapping[Key, Option]) -> Mapping[Key, Option]:
    """The same with sums of products as contractions, which take less where a kernel can tile them."""
    found = dict(cheapest)
    for key, option in cheapest.items():
        if option.item.head == "Reduce":
            products = (
                each
                for each in problem.options[key]
                if each.item.head == "Contract" and all(child in cheapest for child in each.children)
            )
            found[key] = next(products, option)
    return found


def _completed(items: Mapping[Key, Item], cheapest: Mapping[Key, Option]) -> dict[Key, Item] | None:
    """With what is INSIDE computed; None where it cannot be, or takes more than :data:`MOST` values."""
    found = {key: item for key, item in items.items() if item is not INSIDE}
    most = len(found) + MOST
    stack = [key for key, item in items.items() if item is INSIDE]
    while stack:
        key = stack.pop()
        if key in found:
            continue
        if key not in cheapest or len(found) == most:
            return None
        found[key] = cheapest[key].item
        stack += cheapest[key].children
    return found
