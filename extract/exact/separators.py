"""Values that all ways through a program lead through, whatever kernels are chosen: the stream of a residual network between its
layers. Buffers of them are places at which equal layers are cut alike.

A value is one if it dominates the input that lies deepest in the program: every path from an output to that input has it.
(K. D. Cooper, T. J. Harvey and K. Kennedy, "A Simple, Fast Dominance Algorithm", 2001.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..problem import Problem

ROOT = ""
"""Stands for whoever uses the outputs."""

Graph = Mapping[str, Sequence[str]]


def separators(problem: Problem) -> list[str]:
    """What is computed there, by origin (:meth:`View.origin`), first things first: of those that dominate one input, of the input
    that has most. Only values that are used at least twice are named: to store what is between two of a chain pays no more
    than to store its end."""
    graph = _graph(problem)
    order = _order(graph)
    above = _dominators(graph, order)
    longest: list[str] = []
    for leaf in (name for name in order if not graph[name]):
        chain = list(_chain(above, leaf))
        if len(chain) > len(longest):
            longest = chain
    users: dict[str, int] = {}
    for children in graph.values():
        for child in children:
            users[child] = users.get(child, 0) + 1
    return [name for name in longest if users[name] > 1]


def _graph(problem: Problem) -> Graph:
    """What each value is computed from, in any way, wherever it is needed."""
    view = problem.view
    held = {
        name: tuple(dict.fromkeys(view.origin(way.root) for way in buffer.ways))
        for name, buffer in view.buffers.items()
    }
    found: dict[str, dict[str, None]] = {ROOT: {}}
    for output in view.graph.outputs:
        found[ROOT] |= dict.fromkeys(held[output])
    for key, options in problem.options.items():
        name = view.origin(key[0])
        children = found.setdefault(name, {})
        for option in options:
            if option.item.head == "Read":
                buffer = str(option.item.payload[0])
                children |= dict.fromkeys(held[buffer] or (buffer,))
            children |= dict.fromkeys(view.origin(child[0]) for child in option.children)
        children.pop(name, None)
    leaves = {child for children in found.values() for child in children} - found.keys()
    return {name: tuple(children) for name, children in found.items()} | dict.fromkeys(sorted(leaves), ())


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
