"""The e-graph's chosen classes: which class every value of a kernel comes from, and how many ways that class had."""

from __future__ import annotations

from collections.abc import Sequence

from tinyc.extract.chosen import ChosenClass

from .drawing import LIMIT, Drawing, Edge, Group, Node, render


def draw_classes(chosen: Sequence[ChosenClass], form: str = "dot", limit: int = LIMIT) -> str:
    """One frame per kernel, one node per class in it, as "dot" or "mermaid" text, cut at ``limit`` nodes.

    Buffers link the kernels. Raises TinycError InvalidArgument.
    """
    kernels = dict.fromkeys(each.kernel for each in chosen)
    groups = [
        Group(kernel, tuple(_node(each) for each in chosen if each.kernel == kernel)) for kernel in kernels
    ]
    buffers = dict.fromkeys(each.reads for each in chosen if each.reads)
    data = Group("", tuple(Node(f"buffer {name}", (name,), "data") for name in buffers))
    edges = []
    for each in chosen:
        many = len(each.operands) > 1
        edges += [
            Edge(_key(each.kernel, operand), _key(each.kernel, each.cls), str(number) if many else "")
            for number, operand in enumerate(each.operands)
        ]
        if each.reads:
            edges.append(Edge(f"buffer {each.reads}", _key(each.kernel, each.cls)))
    edges += [
        Edge(_key(each.kernel, each.cls), f"buffer {name}")
        for each in chosen
        if (name := each.stores) in buffers
    ]
    return render(Drawing((data, *groups), tuple(edges)), form, limit)


def _node(each: ChosenClass) -> Node:
    ways = {0: "the only way", 1: "1 other way"}.get(each.alternatives, f"{each.alternatives} other ways")
    where = f"class {each.cls}" + (f" = node {each.node}" if each.node else "")
    return Node(_key(each.kernel, each.cls), (each.op, where, ways), "result" if each.stores else "box")


def _key(kernel: str, cls: str) -> str:
    return f"class {cls} in {kernel}"
