"""A choice by which a long program is cut into parts: one with layers that read alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from ..choice import Choice
from ..mates import at_ends, last, mates
from ..pricing import priced
from ..problem import Problem
from ..relaxation import Pass
from .lanes import begun
from .separators import norms, separators

SEPARATED = 1.1
"""What a choice costs at most, as often as another, with which a program is cut in more places instead."""

LAUNCHED = 3 / 5
"""The share of a program's time that its launches take from which on its kernels compute again what they could read."""


Ahead = Callable[[], Choice | None]
"""Says what :func:`rowless` finds."""


@contextlib.contextmanager
def rowless_ahead(problem: Problem, lanes: int) -> Iterator[Ahead]:
    """:func:`rowless` in another process, where there may be ``lanes`` in all, while this one finds what a search begins with."""
    with begun([lambda: rowless(problem)], lanes) as rest:
        yield lambda: rest()[0]


def guided(problem: Problem, start: Choice, lanes: int = 1, ahead: Ahead | None = None) -> Choice:
    """By which of these a program is cut: :func:`regular`, or :func:`before_norms` of small layers where that is cheaper.
    ``lanes``: processes at most. ``ahead``: asked once at most, see :func:`rowless_ahead`."""

    def small(choice: Choice) -> bool:
        return launched(problem, choice) and looped(choice)

    most_likely = small(start)
    with begun([lambda: before_norms(problem)], lanes if most_likely else 1) as rest:
        guide = regular(problem, start, 1 if most_likely else lanes, ahead)
        other = rest()[0] if small(guide) else None
    return min(guide, other or guide, key=lambda each: each.seconds)


def launched(problem: Problem, choice: Choice) -> bool:
    """Whether its launches are what takes the time."""
    return len(choice.kernels) * problem.model.hardware.launch > LAUNCHED * choice.seconds


def looped(choice: Choice) -> bool:
    """Whether most of its kernels tile no product: they compute again a norm that they read, where a launch costs more."""
    tiled = sum(
        bool(work.flops or work.vector_flops or work.tf32_flops)
        for work in (kernel.work for kernel in choice.kernels)
    )
    return 2 * tiled < len(choice.kernels)


def regular(problem: Problem, choice: Choice, lanes: int = 1, ahead: Ahead | None = None) -> Choice:
    """Like ``choice``, but with layers that read alike: the last of a chain of mates is stored where another one is. Or the
    greedy choice with no rows of a product kept, which it keeps here and there, if that costs less so. With what separates the
    layers stored (``separators.py``), if that costs hardly more."""
    mate = mates(problem)
    with begun([ahead or (lambda: rowless(problem))], 1 if ahead else lanes) as rest:
        own = lasts(problem, mate, _filled(choice))
        other = rest()[0]
    guides = [own or choice, *([other] if other else ())]
    best = min(guides, key=lambda guide: guide.seconds)
    apart = separated(problem, best, mate)
    return best if apart is None or apart.seconds > SEPARATED * best.seconds else apart


def rowless(problem: Problem) -> Choice | None:
    """Like the greedy choice with no rows of a product kept, at what it costs where they may be; None where there are none, or a
    kernel cannot be so."""
    if not problem.rows:
        return None
    plain = problem.without_rows()
    filled = Pass(plain).filled()
    found = None if filled is None else lasts(plain, mates(problem), filled)
    if found is None:
        return None
    again = [priced(problem, kernel.buffer, kernel.way, kernel.items) for kernel in found.kernels]
    kernels = tuple([kernel for kernel in again if kernel is not None])
    if len(kernels) < len(again):
        return None
    return Choice(kernels, sum(kernel.seconds for kernel in kernels))


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
