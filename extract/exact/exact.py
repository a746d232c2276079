"""Which kernels a program is made of, exactly: the cheapest choice there is, or how far from it the best one found may be.

The cost is that of ``choice.py``: of each kernel by itself, as :func:`~tinyc.extract.pricing.priced` says. So what is
chosen is, for each buffer that is filled, one of the kernels that may fill it (``columns.py``): a class with its nodes, each
with buffer edges to what it reads, and the program is a DAG extraction of those (``dag.py``, ``ilp.py``). Long programs are
bounded part by part (``parts.py``), for each way in which what lies between two parts may be had (``inside.py``).

What the bound takes for granted: a kernel that does more of any work costs no less, and hides no more arithmetic behind
its memory than one that reads everything at full bandwidth does. What is stored (reductions that would be computed twice,
or that the target refuses) is part of the problem.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..choice import Choice, Kernel
from ..mates import mates
from ..problem import Problem
from ..relaxation import Pass
from ..uncollected import uncollected
from .along import along
from .answers import Answer, answered
from .chains import stored
from .cuts import Cut, cuts, joined
from .hosts import Hosts
from .ilp import TOLERANCE
from .inside import Levels
from .meter import Meter
from .parts import parts, sizes
from .paths import path
from .proof import Effort, Proof, unproven
from .regular import Ahead, guided, launched, looped, separated
from .relaxed import relaxed
from .solved import Solved, made_levels
from .tables import Known

SMALL = 300
"""Options of a program that is not cut into parts."""

APART = 1_000
"""Options of a program whose chains are taken apart, where they leave a gap."""

CLOSE = 0.05
"""A gap of a program in parts with which the search is content."""

LARGE = 1_000
"""Options of a part from which on a search that only tries its start leaves it, and none looks at it with more levels."""

TOGETHER = 300
"""Options of a part that is put together of others, at most."""

WIDER = 450
"""The same where so much is lost at the cuts between them that what is found may not be close."""

NEAR = 0.5
"""By how many launches the solution of a part may be dearer than the cheapest whose buffers are looked at in a search for kernels."""

SHARE = 0.03
"""The same as a share of what the part costs, if that is less: of small layers, much costs about as much."""

RUN = 2
"""Cuts one after the other at most at which not all is filled, along paths that are looked at where those with single ones are not enough."""


@dataclass(frozen=True)
class _Known:
    """What searches find out that others ask for again: of equal parts, of those of searches for kernels, and of equal tables."""

    parts: dict[tuple[object, ...], Solved | None] = field(default_factory=dict)
    plain: dict[tuple[object, ...], Solved | None] = field(default_factory=dict)
    tables: Known = field(default_factory=Known)


@uncollected()
def exact(
    problem: Problem, start: Choice, effort: Effort, hasty: bool = False, ahead: Ahead | None = None
) -> tuple[Choice, Proof]:
    """The cheapest choice for ``problem`` that is found, never dearer than ``start``, and what is known of it. A small
    program is looked at whole, a large one in parts: where two of them do not agree on what is between them, they are looked
    at as one.

    Which one it is depends on time only where ``Proof.limit`` is "seconds"."""
    return _searched(problem, start, Meter(effort), hasty, _Known(), ahead=ahead)


def _searched(
    problem: Problem,
    start: Choice,
    meter: Meter,
    hasty: bool,
    shared: _Known,
    plain: Sequence[Cut] | None = None,
    further: bool = True,
    ahead: Ahead | None = None,
) -> tuple[Choice, Proof]:
    """The same with what is left on a meter, and what is known already. ``plain``: where it is cut, if no more buffers are taken as
    one than are of a chain (``merged.py``). ``further``: whether more levels of what is made are looked at."""
    began = time.perf_counter()
    best, bound, limit = start, 0.0, ""
    known = shared.parts if plain is None else shared.plain
    large = problem.size > SMALL
    enough = CLOSE if large else TOLERANCE
    guide = guided(problem, start, meter.lanes, ahead) if large and plain is None else start
    further = further and large
    if guide.seconds < best.seconds:
        best = guide
    hosts = Hosts(problem)
    loosely, finely = large, False
    at = _cuts(problem, guide, plain) if large else []
    while True:
        told = further and looped(guide)
        division, at = parts(problem, at, loosely, further, told, shared.tables, LARGE, finely)
        too_large = any(len(part.options) > LARGE for part in division)
        if hasty and too_large:
            return start, unproven(problem, start)
        if too_large and further and not launched(problem, guide):
            further = False
            continue
        answers = answered(hosts, division, known, meter, loosely, further, loosely and plain is None)
        least, states = path(answers)
        bound = max(bound, least)
        found = [each.solved for each in answers if each.solved is not None]
        limit = meter.limit or next((answer.limit for answer in found if answer.limit), "")
        paths = (states, path(answers, 1)[1]) if large else ()
        if any(each.merged for each in found) and bound < best.seconds * (1 - enough):
            fewer = without(problem, _unused(problem, answers, paths, best))
            best, _ = _searched(fewer, best, meter, hasty, shared, at, False)
            if launched(problem, best) and bound < best.seconds * (1 - enough):  # most are found without
                best, _ = _searched(fewer, best, meter, hasty, shared, at)
        own = {kernel.buffer.cls: kernel for kernel in best.kernels}
        more = _supplied(problem, best, {name for part in division for name in part.common})
        # what is merged rarely gives kernels
        content = any(each.merged for each in found) and bound >= best.seconds * (1 - enough)
        runs = () if content or not large else (float("inf"), 1, RUN)
        best = _best(problem, answers, best, more | own, loosely, runs, bound / (1 - enough))
        if meter.limit or bound >= best.seconds * (1 - enough) or plain is not None:
            break
        if not finely and _coarse(answers, states):
            finely = True
            continue
        kept = _kept(at, answers, _lost(answers, states), best.seconds - bound, CLOSE * best.seconds)
        if len(kept) < len(at):
            at = kept
        elif loosely and problem.size <= APART:
            loosely = False
        else:
            break
    if bound < best.seconds * (1 - enough) and plain is None:
        bound = max(bound, relaxed(problem))
    optimal = bound >= best.seconds * (1 - TOLERANCE)
    proof = Proof(
        best.seconds,
        best.seconds if optimal else bound,
        optimal,
        start.seconds,
        time.perf_counter() - began,
        len(answers),
        len({id(answer.solved) for answer in answers}),
        sum(each.weighed for each in known.values() if each),
        sum(answer.variables for each in known.values() if each for answer in each.bounds.answers),
        sum(answer.cuts for each in known.values() if each for answer in each.bounds.answers),
        "" if optimal else limit or "parts",
    )
    return best, proof


def _cuts(problem: Problem, guide: Choice, plain: Sequence[Cut] | None) -> list[Cut]:
    """Where a program is cut by a guide; or between all its layers, where that leaves large parts, though its kernels compute again what
    lies there; or beside what is kept for long. Small parts are put together. ``plain``: see :func:`_searched`."""
    at = cuts(problem, guide) if plain is None else plain
    counts = sizes(problem, at)
    # most parts are of more than one layer, or one is of many
    if plain is None and (statistics.median(counts) > TOGETHER or max(counts) > LARGE):
        most = max(counts) if max(counts) > LARGE else TOGETHER + 1
        apart = separated(problem, guide, mates(problem)) or guide
        for carries in (False, True):
            others = cuts(problem, apart, carries)
            sized = sizes(problem, others)
            if max(sized) < most:
                at, counts, most = others, sized, max(sized)
            if most <= LARGE:
                break
    return joined(at, counts, TOGETHER, LARGE if plain is None else 0)


def _best(
    problem: Problem,
    answers: Sequence[Answer],
    best: Choice,
    other: Mapping[str, Kernel],
    loosely: bool,
    runs: Iterable[float],
    near: float,
) -> Choice:
    """``best``, or what is cheaper of the kernels with which parts agree, and of those along paths with ``runs`` of cuts at which not
    all is filled; until it costs no more than ``near`` seconds. ``other``: kernels of what these do not fill."""

    def dearest() -> float:
        return best.seconds * (1 - TOLERANCE)

    paths = itertools.chain.from_iterable(along(problem, answers, most, dearest) for most in runs)
    for held in itertools.chain([_agreed(problem, answers, loosely)], paths):
        choice = assembled(problem, {**other, **held})
        if choice is not None and choice.seconds < dearest():
            best = choice
        if best.seconds <= near:
            break
    return best


def _agreed(problem: Problem, answers: Sequence[Answer], loosely: bool) -> dict[str, Kernel]:
    """The kernels of the parts where all is filled at every cut."""
    kernels: dict[str, Kernel] = {}
    for each in answers:
        if each.solved is not None:
            kernels |= each.solved.kernels(problem, each.keys, each.buffers) or {}
    return (stored(problem, kernels) if loosely else kernels) or {}


def _unused(
    problem: Problem, answers: Sequence[Answer], paths: Iterable[Sequence[Levels]], choice: Choice
) -> frozenset[str]:
    """The buffers that no solution fills which is about as cheap as one along ``paths``, nor is taken with one that is; nor the kernels
    with which a part agrees with others: what is taken as one may be filled for less than in truth, and these are whole kernels. Nor
    that ``choice`` fills, in parts that are not solved, or not by kernels that are known, or are like no other, nor one of these where
    all is filled at its ends: there are few such parts, and little else to go by."""
    kept = set(problem.view.graph.outputs)
    filled = frozenset(kernel.buffer.cls for kernel in choice.kernels)
    count = Counter(id(each.solved) for each in answers)
    for each in answers:
        if each.solved is not None:
            kept.update(each.buffers[number] for number in each.solved.chosen if number in each.buffers)
        if each.solved is None or count[id(each.solved)] == 1:
            kept |= filled.intersection(each.part.buffers)
        if each.solved is not None and count[id(each.solved)] == 1:
            ends = each.part.levels[0], made_levels(each.part)[0]
            kept.update(each.solved.filled(each.buffers, ends, 0.0, filled))
    for states in paths:
        for each, before, after in zip(answers, [(), *states], states, strict=False):
            kept.update((*each.part.made, *each.part.common))
            if each.solved is not None:
                least = each.solved.bounds.least((before, after))
                most = min(NEAR * problem.model.hardware.launch, SHARE * least)
                kept.update(each.solved.filled(each.buffers, (before, after), most, filled))
                # of kernels that were not looked for, no more is known
                if each.solved.bounds.taken((before, after)) is None:
                    kept |= filled.intersection(each.part.buffers)
    return frozenset(
        name for name, buffer in problem.view.buffers.items() if buffer.arg is None and name not in kept
    )


def without(problem: Problem, names: frozenset[str]) -> Problem:
    """The same with these buffers never read."""
    return problem.leaving_out(lambda key, item: item.head == "Read" and item.payload[0] in names)


def _coarse(answers: Sequence[Answer], states: Sequence[Levels]) -> bool:
    """Whether something is not filled along a path, and had from what not all classes are told apart of: if none is, the path costs as
    much where they are."""
    return any(
        name in each.part.groups and each.part.groups[name].coarsely(level)
        for each, levels in zip(answers, states, strict=True)
        for name, level in zip(each.part.made, levels, strict=True)
    )


def _lost(answers: Sequence[Answer], states: Sequence[Levels]) -> list[float]:
    """Of each cut, what is lost there at most, in seconds: what a part's own kernels cost more than its bound is the loss of
    the cuts around it at which not all is filled, or of what it computes itself of what it is given."""
    lost = [0.0] * len(answers)
    ends: list[Levels] = [(), *states]
    for number, (answer, before, after) in enumerate(zip(answers, ends[:-1], states, strict=True)):
        slack, solved = float("inf"), answer.solved
        if solved is not None:
            least = solved.bounds.least((before, after))
            slack = solved.cost - (least if least < float("inf") else 0.0)
            slack = slack if slack > TOLERANCE * solved.cost else 0.0
        if any(before) or not any(after):
            lost[number] += slack / (2 if any(after) else 1)
        if any(after):
            lost[number + 1] += slack / (2 if any(before) else 1)
    return lost[1:]


def _kept(
    at: Sequence[Cut], answers: Sequence[Answer], losses: Sequence[float], gap: float, enough: float
) -> list[Cut]:
    """The cuts without those that are loose, as far as the parts are not too large then: those at which most is lost first,
    and such as are equal together, so that equal layers stay equal. What is lost by the others is little of the ``gap``. All of
    them where without these more than ``enough`` would be left of it."""
    sizes = [len(each.part.options) for each in answers]
    kept = set(range(len(at)))
    kinds: dict[tuple[float, ...], list[int]] = {}
    lost: dict[tuple[float, ...], float] = {}
    for number, (cut, loss) in enumerate(zip(at, losses, strict=True)):
        if loss > 0:
            # cuts of one layer may be priced alike
            kind = (*cut.prices, *sizes[number : number + 2])
            kinds.setdefault(kind, []).append(number)
            lost[kind] = loss + lost.get(kind, 0.0)
    won = 0.0
    for kind in sorted(kinds, key=lambda kind: (-lost[kind], kind)):
        fewer = kept - set(kinds[kind])
        ends = [-1, *sorted(fewer), len(at)]
        small = all(sum(sizes[a + 1 : b + 1]) <= WIDER for a, b in itertools.pairwise(ends) if b - a > 1)
        if small and lost[kind] >= gap / 10:
            kept, won = fewer, won + lost[kind]
    return [at[number] for number in sorted(kept)] if gap - won <= enough else list(at)


def _supplied(problem: Problem, choice: Choice, names: Collection[str]) -> dict[str, Kernel]:
    """Kernels with which to fill buffers that ``choice`` does not, and what they need."""
    filled = frozenset(kernel.buffer.cls for kernel in choice.kernels)
    missing = sorted(set(names) - filled)
    found = Pass(problem, filled.union(missing)).solve(missing) if missing else None
    return {} if found is None else {kernel.buffer.cls: kernel for kernel in found.kernels}


def assembled(problem: Problem, kernels: Mapping[str, Kernel]) -> Choice | None:
    """The kernels that the outputs need, in an order in which they can run; None where one is missing."""
    order: list[Kernel] = []
    state: dict[str, int] = {}
    stack = [(output, False) for output in reversed(problem.view.graph.outputs)]
    while stack:
        name, ready = stack.pop()
        if ready:
            state[name] = 2
            order.append(kernels[name])
            continue
        if state.get(name) == 2:
            continue
        if state.get(name) == 1 or name not in kernels:
            return None
        state[name] = 1
        stack.append((name, True))
        reads = (str(item.payload[0]) for item in kernels[name].items.values() if item.head == "Read")
        for read in dict.fromkeys(reads):
            if problem.view.buffers[read].arg is None and state.get(read) != 2:
                stack.append((read, False))
    return Choice(tuple(order), sum(kernel.seconds for kernel in order))
