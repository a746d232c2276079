"""Buffers that a search can do without where launches are what takes the time: softmax of scores, the sums of a LayerNorm. There
each kernel that needs such a value computes it again, and to look at all ways to store some of them is most of a search."""

from __future__ import annotations

from ..problem import Problem
from .separators import separators
from .values import graph_of, reached


def derived(problem: Problem) -> frozenset[str]:
    """The buffers of what is computed from one product, or from one value that separates layers, and from inputs; less those that
    a tiled product loads, and the outputs."""
    view, graph = problem.view, graph_of(problem)
    options = [(key, option.item) for key, found in problem.options.items() for option in found]
    products = {view.origin(key[0]) for key, item in options if item.head in ("Contract", "Stream")}
    anchors = products.union(separators(problem))
    loaded = {str(item.payload[0]) for key, item in options if key[1] and item.head == "Read"}
    read = {str(item.payload[0]) for _, item in options if item.head == "Read"}
    kept = loaded.union(view.graph.outputs)
    found: dict[str, bool] = {}  # by value
    for name, buffer in view.buffers.items():
        if buffer.arg is None and name not in kept:
            for origin in {view.origin(way.root) for way in buffer.ways} - found.keys():
                sources = reached(graph, origin, anchors) & anchors
                found[origin] = origin not in anchors and len(sources) <= 1
    return frozenset(
        name
        for name, buffer in view.buffers.items()
        if buffer.arg is None and name in read - kept
        if all(found[view.origin(way.root)] for way in buffer.ways)
    )


def without(problem: Problem, names: frozenset[str]) -> Problem:
    """The same with these buffers never read."""
    return problem.leaving_out(lambda key, item: item.head == "Read" and item.payload[0] in names)
