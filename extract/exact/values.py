"""What the values of a program are computed from, whatever kernels compute them: a graph of origins (:meth:`View.origin`)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..problem import Problem

ROOT = ""
"""Stands for whoever uses the outputs."""

Graph = Mapping[str, Sequence[str]]


def graph_of(problem: Problem) -> Graph:
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


def reached(graph: Graph, start: str, ends: Container[str]) -> set[str]:
    """All that ``start`` leads to, and not by way of ``ends``."""
    found, stack = {start}, [start]
    while stack:
        name = stack.pop()
        fresh = set(graph[name]) - found if name not in ends else set[str]()
        found |= fresh
        stack += fresh
    return found
