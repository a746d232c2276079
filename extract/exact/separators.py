"""Values that all ways through a program lead through, whatever kernels are chosen: the stream of a residual network between its
layers. Buffers of them are places at which equal layers are cut alike.

A value is one if it dominates the input that lies deepest in the program: every path from an output to that input has it.
(K. D. Cooper, T. J. Harvey and K. Kennedy, "A Simple, Fast Dominance Algorithm", 2001.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from ..choice import REDUCING
from ..cost.model import points
from ..problem import Problem
from .values import ROOT, Graph, graph_of, reached


def separators(problem: Problem) -> list[str]:
    """What is computed there, by origin (:meth:`View.origin`), first things first: of those that dominate one input, of the input
    that has most. Only values are named that lead to the next by way of a reduction and beside it: to store what is on the only
    way pays no more than to store its end."""
    graph = graph_of(problem)
    order = _order(graph)
    above = _dominators(graph, order)
    longest: list[str] = []
    for leaf in (name for name in order if not graph[name]):
        chain = list(_chain(above, leaf))
        if len(chain) > len(longest):
            longest = chain
    reducing = frozenset(
        problem.view.origin(key[0])
        for key, options in problem.options.items()
        if any(option.item.head in REDUCING for option in options)
    )
    inputs = frozenset(
        name for name, children in graph.items() if any(not graph[child] for child in children)
    )
    return [
        name
        for name, after in itertools.pairwise(longest)
        if name not in inputs
        and reducing & _between(graph, after, name)
        and after not in reducing
        and name in reached(graph, after, reducing)
    ]


def norms(problem: Problem) -> frozenset[str]:
    """What lies from separators down to others that they are norms of, by origin, the latter not among it: no value on the way has more
    points than what is normalised, as there are of a product. Nothing, unless most separators are so, since layers end with norms."""
    graph, view, most = graph_of(problem), problem.view, dict[str, float]()
    for key in problem.options:
        name = view.origin(key[0])
        most[name] = max(points(view.free[key[0]]), most.get(name, 0.0))
    pairs = [
        (before, _between(graph, after, before)) for before, after in itertools.pairwise(separators(problem))
    ]
    within = [names for before, names in pairs if all(most.get(name, 0.0) <= most[before] for name in names)]
    return frozenset[str]().union(*within) if 2 * len(within) > len(pairs) else frozenset()


def _order(graph: Graph) -> list[str]:
    """All that the outputs lead to, each before what it leads to where there is no circle: reverse postorder."""
    order: list[str] = []
    seen = {ROOT}
    stack = [(ROOT, iter(graph[ROOT]))]
    while stack:
        name, children = stack[-1]
        child = next((child for child in children if child not in seen), None)
        if child is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(child)
            stack.append((child, iter(graph[child])))
    return order[::-1]


def _dominators(graph: Graph, order: Sequence[str]) -> Mapping[str, str]:
    """For each value, the nearest other one that all paths to it lead through."""
    number = {name: place for place, name in enumerate(order)}
    users: dict[str, list[str]] = {}
    for name in order:
        for child in graph[name]:
            users.setdefault(child, []).append(name)
    above = {ROOT: ROOT}
    changed = True
    while changed:
        changed = False
        for name in order[1:]:
            known = [user for user in users[name] if user in above]
            nearest = known[0]
            for other in known[1:]:
                nearest = _common(above, number, nearest, other)
            if above.get(name) != nearest:
                above[name], changed = nearest, True
    return above


def _common(above: Mapping[str, str], number: Mapping[str, int], one: str, other: str) -> str:
    """The nearest that dominates both."""
    while one != other:
        while number[one] > number[other]:
            one = above[one]
        while number[other] > number[one]:
            other = above[other]
    return one


def _chain(above: Mapping[str, str], name: str) -> Iterator[str]:
    """Those that dominate a value, the nearest first."""
    while (name := above[name]) != ROOT:
        yield name


def _between(graph: Graph, start: str, end: str) -> set[str]:
    """What lies on a way from ``start`` down to ``end``, the start among it, the end not."""
    users: dict[str, list[str]] = {}
    for name in reached(graph, start, {end}) - {end}:
        for child in graph[name]:
            users.setdefault(child, []).append(name)
    found, stack = set[str](), [end]
    while stack:
        fresh = set(users.get(stack.pop(), ())) - found
        found |= fresh
        stack += fresh
    return found
