"""Buffers that are as good as one: a value that is used for one other alone, and that other. h W, and x + h W.

Which of the two is stored changes little, but a choice that stores h W reads it and x wherever it needs the sum, and that of
each layer before. A program is cut where the sum is stored (``cuts.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..choice import Choice
from ..problem import Problem
from ..relaxation import Pass
from ..view import Way

ELEMENTWISE = frozenset({"Unary", "Binary", "Select", "Cast"})


def mates(problem: Problem) -> dict[str, str]:
    """For each buffer whose value is used for one other alone, of as many points, a buffer of that one."""
    view = problem.view
    users: dict[str, set[str]] = {}
    for key, options in problem.options.items():
        for option in options:
            for child in option.children:
                if view.origin(child[0]) != view.origin(key[0]):
                    users.setdefault(view.origin(child[0]), set()).add(view.origin(key[0]))
    filled: dict[str, list[str]] = {}
    for name, buffer in view.buffers.items():
        for origin in {view.origin(way.root) for way in buffer.ways} if buffer.arg is None else ():
            filled.setdefault(origin, []).append(name)
    outputs = frozenset(view.graph.outputs)
    found: dict[str, str] = {}
    for origin, names in filled.items():
        (user, *others) = users.get(origin, {origin})
        for name in names if not others and user != origin else ():
            shapes = {squeezed(way) for way in view.buffers[name].ways}
            for other in filled.get(user, ()):
                same = {squeezed(way) for way in view.buffers[other].ways} == shapes
                if same and name not in outputs and _behind(problem, name, other):
                    found.setdefault(name, other)
    return found


def last(mate: Mapping[str, str], name: str) -> str:
    """The end of a chain of mates."""
    seen = {name}
    while name in mate and mate[name] not in seen:
        name = mate[name]
        seen.add(name)
    return name


def _behind(problem: Problem, name: str, other: str) -> bool:
    """Whether every way to compute what ``other`` holds is elementwise, from what ``name`` holds among others."""
    roots = {(way.root, False) for way in problem.view.buffers[name].ways}
    options = (
        option
        for way in problem.view.buffers[other].ways
        for option in problem.options.get((way.root, False), ())
        if option.item.head != "Read"
    )
    return all(
        option.item.head in ELEMENTWISE and not roots.isdisjoint(option.children) for option in options
    )


def regular(problem: Problem, choice: Choice) -> Choice:
    """``choice`` with the last of a chain of mates stored where another one is: its layers read alike."""
    mate = mates(problem)
    filled = frozenset(kernel.buffer.cls for kernel in choice.kernels)
    old = frozenset(name for name in filled if name in mate)
    new = frozenset(last(mate, name) for name in old)
    if not old:
        return choice
    return Pass(problem, filled - old | new, old - new).solve() or choice


def squeezed(way: Way) -> tuple[int, ...]:
    """The shape without extents of 1: kernels over two that are the same are scheduled alike."""
    return tuple(size for size in way.shape if size != 1)
