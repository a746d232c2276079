"""Plan candidates as the rules find them (rules/hardware.egg, problem.egg, plan.egg), and the problem of a Region.

A *problem* is what a kernel's schedule depends on, so that equal layers share one set of candidates. The rules derive it from
the e-graph, :func:`problem_of` from a Region that was extracted: both must spell it alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from tinyc.egraph.graph import Argument, Graph
from tinyc.ir.cpu_tiles import product
from tinyc.ir.folds import fold_of
from tinyc.ir.plan import Contraction, Plan
from tinyc.ir.region import Axis, Region, row_axis
from tinyc.ir.resources import Limits, rounded, staged
from tinyc.ir.schedule import ALGO_CHOICES, known_choice
from tinyc.ir.schedule_names import Scope
from tinyc.ir.streams import extents_of, walk_on

Problem = tuple[Argument, ...]
"""A constructor of sort ``Problem`` and its arguments, as rules/schema.egg explains them:
``("Product", kind, batch, m, n, k, bytes of lhs, bytes of rhs, contiguous points, "m" | "n" | "b")``,
``("Packed", outer, rows, columns, k)``, ``("Row", points, bytes)``, ``("Fold", points, summed points, bytes)`` or
``("Walk", rows, columns, depth, width, bytes)``."""


UNTILED = ("packed", "loops")
"""Algorithms beside the implementations of document 004 §8.1."""


@dataclass(frozen=True)
class Candidate:
    """A way to schedule a problem on ``arch``; a Plan less what follows from the Region (004 §8.1, §11).

    ``tile``: (BM, BN, BK); on the CPU (rows, columns, depth) of the packed blocks; of loops (1, points of a block, threads
    that share a sum); of a stream (rows, scores of a row, what these are summed over).
    ``stages``, ``warp_tile``: None where nothing is staged. ``width``: elements of one access at most; 0: as the
    compiler chooses. ``algo``: "implicit_gemm", "packed", "loops" or
    "streaming_softmax_2pass". ``async_enable``: the epilogue runs beside the
    loads of the next tile.
    """

    arch: str
    tile: tuple[int, int, int]
    stages: int | None
    warp_tile: tuple[int, int] | None
    width: int
    algo: str
    async_enable: bool


def candidates_of(graph: Graph | None, arch: str) -> Mapping[Problem, tuple[Candidate, ...]]:
    """All that the rules found, by problem, in a fixed order. Rows that no candidate can be (a rule of a user's may
    build anything) are left out."""
    if graph is None:
        return {}
    found = {problem: decoded(rows, arch) for problem, rows in graph.candidates.items()}
    return {problem: each for problem, each in found.items() if each}


def decoded(rows: Iterable[tuple[Argument, ...]], arch: str) -> tuple[Candidate, ...]:
    """Candidates of the rows of relation ``plan-candidate``, without the problem."""
    found = []
    for row in rows:
        sizes, (algo, how) = [int(each) for each in row[:7]], row[7:]
        bm, bn, bk, stages, wm, wn, width = sizes
        known = algo in UNTILED or any(known_choice(kind, str(algo)) for kind in ALGO_CHOICES)
        if min(bm, bn, bk) < 1 or min(sizes) < 0 or how not in ("on", "off") or not known:
            continue
        warp = (wm, wn) if wm and wn else None
        found.append(Candidate(arch, (bm, bn, bk), stages or None, warp, width, str(algo), how == "on"))
    return tuple(dict.fromkeys(found))


# ---- the problem of a Region ----------------------------------------------------------------------------------------


def problem_of(region: Region, roles: Contraction | None, limits: Limits) -> Problem | None:
    """The problem that ``region`` is; ``roles``: of its contraction, where it is to be tiled. None: it is none that the
    rules schedule, such as a kernel of one point."""
    if roles is not None and roles.m and roles.n and roles.k:
        scope = Scope(Plan("contraction", roles), region)
        return _packed(scope, roles, limits) if limits.arch == "cpu" else _product(scope, roles)
    if limits.arch != "cpu" and (walk := walk_on(region, limits.arch)) is not None:
        found = extents_of(region, walk)
        return ("Walk", found.rows, found.columns, found.depth, found.width, found.size)
    last = row_axis(region)
    return ("Row", last.size, region.outputs[0].dtype.itemsize) if last and last.size > 1 else None


def fold_problem(region: Region, limits: Limits) -> Problem | None:
    """The problem that ``region`` is as loops whose threads share sums. None: a GPU has none to share."""
    looped = limits.arch != "cpu" and walk_on(region, limits.arch) is None
    fold = fold_of(region) if looped else None
    if fold is None:
        return None
    last = row_axis(region)
    return ("Fold", last.size if last else 1, fold.points, region.outputs[0].dtype.itemsize)


def block_of(candidate: Candidate, last: int, size: int, along: bool, limits: Limits) -> tuple[int, int]:
    """The points of a block whose threads share sums, and the elements of an access. ``last``: points of the last axis,
    ``size``: bytes of an element. ``along``: what is summed lies along the sum; otherwise along the row, of which a thread
    then takes as many points."""
    points, width = candidate.tile[1], max(1, candidate.width)
    if along:
        return points, width
    width = max(1, min(last & -last, limits.access_bytes // size))
    while width > 1 and points * width // 2 >= last:
        width //= 2
    return points * width, width


def windows(scope: Scope, roles: Contraction) -> tuple[str, ...]:
    """The buffers that are read in windows: a summed axis moves along with one of the result."""
    summed, moving = set(roles.k), {*roles.m, *roles.n}
    return tuple(
        dict.fromkeys(
            read.tensor
            for operand in (roles.lhs, roles.rhs)
            for read in scope.reads(operand)
            if any(index.axes() & summed and index.axes() & moving for index in read.map)
        )
    )


def kind_name(slides: bool, tf32: bool) -> str:
    """The kind of a Product. ``slides``: an operand is read in windows; ``tf32``: both are rounded to that."""
    return ("conv" if slides else "matmul") + ("-tf32" if tf32 else "")


def product_kind(scope: Scope, roles: Contraction) -> str:
    """The kind of the Product that a contraction is."""
    return kind_name(bool(windows(scope, roles)), rounded(scope))


def _product(scope: Scope, roles: Contraction) -> Problem | None:
    """Of a GPU. None where neither operand is read along the summed axes: there is no tile to stage."""
    left, right = (max((ref.dtype.itemsize for ref in staged(scope, side)), default=0) for side in (0, 1))
    if not max(left, right):
        return None
    groups = roles.groups()
    sizes = [prod(scope.sizes[name].size for name in groups[role]) for role in "bmnk"]
    own = {name: role for role in "bmn" for name in groups[role]}
    wide = [item for item in scope.region.iters if item.size > 1]
    along = next((own[item.name] for item in reversed(wide) if item.name in own), None)
    if along is None:
        return None
    run = _run(wide, frozenset(groups["n" if along == "b" else along]))
    return ("Product", product_kind(scope, roles), *sizes, left, right, run, along)


def _run(iters: list[Axis], names: frozenset[str]) -> int:
    """Points of the axes ``names`` that end at the last of them without a gap."""
    places = [number for number, item in enumerate(iters) if item.name in names]
    run, place = 1, places[-1] if places else -1
    while place in places:
        run, place = run * iters[place].size, place - 1
    return run


def _packed(scope: Scope, roles: Contraction, limits: Limits) -> Problem | None:
    """Of the CPU. None where it is not of a form that is packed, or too small to be."""
    item = product(scope.region, roles, scope.free)
    if isinstance(item, str) or not item.worthwhile(limits.lanes):
        return None
    return ("Packed", prod(axis.size for axis in item.outer), *item.sizes)
