"""Where a long program is cut into parts, and what the buffers at a cut are worth.

Any cut at which the parts share no buffer, and any worth, gives a bound; these are to give one that is close.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..choice import Choice, Key
from ..cost.model import Work
from ..problem import Option, Problem

MAX_WIDTH = 1
"""Buffers that cross a cut at most."""

FEW = 64
"""Options of a part that is put together with another at most."""

NEAR = 3
"""The ratio of two prices that are made one at most."""

LONG = 1 / 4
"""What of a program's kernels a buffer is kept for at least that is carried past cuts: what an encoder makes, which all layers of a
decoder read."""

FIRST = 1 / 4
"""The share of a program's options that what is put together before its equal layers is of at most: a large part is looked at less
closely."""


@dataclass(frozen=True)
class Cut:
    """``names``: buffers that are all that later kernels read of earlier ones. ``prices``: about what it takes to fill each, and
    what its readers take longer without it: later parts may have it for that where it is not filled. ``carried``: other buffers
    that they read, as they read inputs: to fill them counts in one part at most."""

    names: tuple[str, ...]
    prices: tuple[float, ...]
    carried: frozenset[str] = frozenset()


START = Cut((), ())
"""Where a program begins."""


def cuts(problem: Problem, choice: Choice, carrying: bool = False) -> list[Cut]:
    """The cuts of a program, first things first, where ``choice`` has few buffers between its kernels. ``carrying``: beside those that
    are kept for long."""
    outputs = frozenset(problem.view.graph.outputs)
    seconds = {kernel.buffer.cls: kernel.seconds for kernel in choice.kernels}
    order = list(seconds)
    users = _users(problem, choice)
    least = LONG * len(order) if carrying else len(order)
    long = {
        name
        for number, name in enumerate(order)
        if any(user > number + least for user, _ in users.get(name, ()))
    }
    found: list[Cut] = []
    # with all since the cut before the last: what is made there may be lacking as well
    filling: dict[str, float] = {}
    first = last = 0
    for number, name in enumerate(order[:-1]):
        if name in outputs:
            break
        for each in order[last : number + 1]:
            filling[each] = sum(seconds[other] for other in order[first : order.index(each) + 1])
        prices = {
            each: filling[each] + sum(dear for user, dear in users.get(each, ()) if user > number)
            for each in order[: number + 1]
            if any(user > number for user, _ in users.get(each, ()))
        }
        carried = frozenset(prices.keys() & long - {name})
        prices = {each: price for each, price in prices.items() if each not in carried}
        dearest = max(prices, key=lambda each: (prices[each], each), default="")
        dear = name == dearest and prices[name] > 3 * seconds[name]
        if len(prices) <= MAX_WIDTH and (dear or tuple(prices) == (name,)):
            found.append(Cut(tuple(prices), tuple(prices.values()), carried))
            first, last = last, number + 1
    return _alike(problem, found)


def _alike(problem: Problem, found: Sequence[Cut]) -> list[Cut]:
    """The cuts, with one price, the dearest, for those through buffers of the same shapes that are priced about the same: so equal
    layers are equal parts, although ``choice`` ends their kernels a little differently at the program's ends."""
    buffers = problem.view.buffers
    groups: list[list[Cut]] = []
    for cut in found:
        shapes = [(buffers[name].shape, buffers[name].dtype) for name in cut.names]
        for group in groups:
            near = all(
                a <= NEAR * b and b <= NEAR * a for a, b in zip(cut.prices, group[0].prices, strict=False)
            )
            if near and shapes == [(buffers[name].shape, buffers[name].dtype) for name in group[0].names]:
                group.append(cut)
                break
        else:
            groups.append([cut])
    dearest = {
        cut.names: tuple(map(max, zip(*(each.prices for each in group), strict=True)))
        for group in groups
        for cut in group
    }
    return [replace(cut, prices=dearest[cut.names]) for cut in found]


def joined(at: Sequence[Cut], sizes: Sequence[int], most: int, first: int = 0) -> list[Cut]:
    """The cuts without those beside parts of few options: what is lost at a cut is hardly worth it. Such a part is put together with
    a neighbour, wherever there are two like them, so that equal layers stay equal; or once, if both are like no others.
    ``sizes``: options of each part; ``most``: of what is put together. ``first``: the same of the parts before those that are like
    others: what these make may be computed from inputs alone, in many ways, so that much is lost between them."""
    groups = [([number], size) for number, size in enumerate(sizes)]  # parts that are one, and their options
    while True:
        count = Counter(size for _, size in groups)
        single = {size for numbers, size in groups if len(numbers) == 1 and count[size] == 1}
        pairs = Counter((one, two) for (_, one), (_, two) in itertools.pairwise(groups))
        able = [
            (-times, one + two, one, two)
            for (one, two), times in pairs.items()
            if min(one, two) <= FEW and one + two <= most and one != two
            if times > 1 or {one, two} <= single
        ]
        if not able:
            break
        _, size, *pair = min(able)
        together: list[tuple[list[int], int]] = []
        for numbers, each in groups:
            if together and [together[-1][1], each] == pair:
                together[-1] = ([*together[-1][0], *numbers], size)
            else:
                together.append((numbers, each))
        groups = together
    leading = _leading([size for _, size in groups], min(first, FIRST * sum(sizes)))
    return [at[parts[0] - 1] for parts, _ in groups[leading:]]


def _leading(sizes: Sequence[int], most: float) -> int:
    """How many of the first parts are taken as one: those that are like none but perhaps the last, which makes the outputs."""
    count = Counter(sizes[:-1])
    single = itertools.takewhile(lambda size: count[size] == 1, sizes[:-1])
    fit = itertools.takewhile(lambda size: size <= most, itertools.accumulate(single))
    return max(1, len(list(fit)))


def _users(problem: Problem, choice: Choice) -> dict[str, list[tuple[int, float]]]:
    """For each buffer, the kernels that read it, by number, and what each takes longer without it at least."""
    least = _least(problem)
    filled = {kernel.buffer.cls for kernel in choice.kernels}
    found: dict[str, list[tuple[int, float]]] = {}
    for number, kernel in enumerate(choice.kernels):
        without: dict[str, float] = {}
        slow = [
            option.untiled
            for key, item in kernel.items.items()
            if item.head == "Contract"
            for option in problem.options[key]
            if option.item == item
        ]
        for key, item in kernel.items.items():
            if item.head == "Read" and item.payload[0] in filled:
                name = str(item.payload[0])
                others = problem.options.get((key[0], False), ())
                dear = min(
                    (_closure(least, each) for each in others if each.item.head != "Read"), default=0.0
                )
                if key[1]:  # a contraction loads it, and is not tiled where it cannot
                    dear += sum(slow)
                without[name] = max(without.get(name, 0.0), dear)
        for name, seconds in without.items():
            found.setdefault(name, []).append((number, seconds))
    return found


def _least(problem: Problem) -> dict[Key, float]:
    """About what it takes at least to have a value within a kernel, where every buffer is filled."""
    found: dict[Key, float] = {}
    moved = {
        name: problem.model.seconds(Work(bytes_read=problem.works.bytes(buffer)))
        for name, buffer in problem.view.buffers.items()
    }
    for key in problem.order:  # operands come first; those of a circle that do not count as nothing
        found[key] = min(
            (
                moved[str(option.item.payload[0])] if option.item.head == "Read" else _closure(found, option)
                for option in problem.options[key]
            ),
            default=0.0,
        )
    return found


def _closure(least: Mapping[Key, float], option: Option) -> float:
    return option.own + max((least.get(child, 0.0) for child in option.children), default=0.0)
