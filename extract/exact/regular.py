"""A choice by which a long program is cut into parts: one with layers that read alike."""

from __future__ import annotations

from collections.abc import Mapping

from ..choice import Choice
from ..mates import at_ends, last, mates
from ..pricing import priced
from ..problem import Problem
from ..relaxation import Pass
from .separators import norms, separators

SEPARATED = 1.1
"""What a choice costs at most, as often as another, with which a program is cut in more places instead."""


def regular(problem: Problem, choice: Choice) -> Choice:
    """Like ``choice``, but with layers that read alike: the last of a chain of mates is stored where another one is. Or the
    greedy choice with no rows of a product kept, which it keeps here and there, if that costs less so. With what separates the
    layers stored (``separators.py``), if that costs hardly more."""
    mate = mates(problem)
    guides = [lasts(problem, mate, _filled(choice)) or choice]
    plain = problem.without_rows()
    filled = Pass(plain).filled() if problem.rows else None
    other = None if filled is None else lasts(plain, mate, filled)
    if other is not None:
        again = [priced(problem, kernel.buffer, kernel.way, kernel.items) for kernel in other.kernels]
        found = tuple(kernel for kernel in again if kernel is not None)
        if len(found) == len(again):
            guides.append(Choice(found, sum(kernel.seconds for kernel in found)))
    best = min(guides, key=lambda guide: guide.seconds)
    apart = separated(problem, best, mate)
    return best if apart is None or apart.seconds > SEPARATED * best.seconds else apart


def before_norms(problem: Problem) -> Choice | None:
    """A choice that stores what is normalised between layers, and not its norm, which all that read it compute; None where there is
    no such norm. As for :func:`regular`, with layers that read alike."""
    view, within = problem.view, norms(problem)
    names = {
        name
        for name, buffer in view.buffers.items()
        if not within.isdisjoint(view.origin(way.root) for way in buffer.ways)
    }
    names -= {*view.graph.outputs}
    if not names:
        return None
    bare = problem.leaving_out(lambda key, item: item.head == "Read" and item.payload[0] in names)
    filled = Pass(bare).filled()
    return None if filled is None else lasts(bare, mates(bare), filled)


def separated(problem: Problem, choice: Choice, mate: Mapping[str, str]) -> Choice | None:
    """Like ``choice``, with what separates the layers stored, however much that costs."""
    return Pass(problem, _filled(choice) | _between_layers(problem, mate)).solve()


def _between_layers(problem: Problem, mate: Mapping[str, str]) -> frozenset[str]:
    """Buffers of what separates layers, the last of their mates."""
    view, between = problem.view, frozenset(separators(problem))
    return frozenset(
        name
        for name, buffer in view.buffers.items()
        if buffer.arg is None and not between.isdisjoint(view.origin(way.root) for way in buffer.ways)
        if last(mate, name) == name
    )


def lasts(problem: Problem, mate: Mapping[str, str], filled: frozenset[str]) -> Choice | None:
    """What a pass finds for which the buffers ``filled`` are free, but the last of a chain of mates where another one is."""
    return Pass(problem, at_ends(mate, filled), filled - at_ends(mate, filled)).solve()


def _filled(choice: Choice) -> frozenset[str]:
    return frozenset(kernel.buffer.cls for kernel in choice.kernels)
