"""From a plan candidate to the whole Plan of a Region, and the candidates in order of their estimates (document 004 §8, §11).

A candidate says what the cost model weighs: tile, ring, warp, vector, asynchrony. The rest of a Plan follows from the Region:
what is bound, cached, cut off, swizzled, applied to the accumulator, handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tinyc.ir.check_plan import check_plan, swizzles
from tinyc.ir.cpu_tiles import product
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.folds import fold_of
from tinyc.ir.plan import Contraction, Plan
from tinyc.ir.region import Binary, Reduce, Region, Select, Stream, Unary, row_axis
from tinyc.ir.resources import Limits, element_bytes, staged, stored_along
from tinyc.ir.rows import kept_rows
from tinyc.ir.schedule import ALGO_CHOICES, BARRIER_MODELS, Async, Cache, LayoutHints, LocalEdge, Vectorize
from tinyc.ir.schedule_names import Scope
from tinyc.ir.streams import walk_of
from tinyc.ir.units import WARP

from ..cost.estimate import estimate
from ..cost.model import CostModel, Work
from .candidate import Candidate, block_of, windows

MOST = 20
"""Plans of a kernel that are weighed in the end (feature 004-128)."""


@dataclass(frozen=True)
class RankedPlan:
    """A Plan with what the cost model says of it: ``estimate`` in seconds and the ``terms`` that add up to it; ``hidden``:
    seconds of the side of the roofline that takes less, 0 of a model that does not say."""

    candidate: Candidate
    plan: Plan
    estimate: float
    terms: Mapping[str, float]
    hidden: float = 0.0


def rank_plans(
    region: Region,
    roles: Contraction | None,
    candidates: Iterable[Candidate],
    model: CostModel,
    limits: Limits,
    preferred: Plan | None = None,
) -> tuple[RankedPlan, ...]:
    """The Plans of ``candidates`` for ``region``, the cheapest first, at most :data:`MOST`.

    Plans that cost the same come in a fixed order: ``preferred`` if it is one of them, then larger tiles of the result
    first, then by what the roofline hides (a deeper ring hides it better; docs/benchmarks.md has what that is worth), then fewer
    stages. Candidates that become the same Plan count once. One that
    the machine or the Region refuses is left out: none of the built-in rules makes one (:func:`refused`).
    """
    found: dict[Plan, RankedPlan] = {}
    for candidate in candidates:
        plan = plan_of(candidate, region, roles, limits)
        if plan not in found and fault(plan, region, limits) is None:
            made = estimate(region, plan, model)
            found[plan] = RankedPlan(candidate, plan, made.time_s, made.terms, _hidden(model, made.work))
    return tuple(sorted(found.values(), key=lambda each: _order(each, preferred))[:MOST])


def refused(
    region: Region, roles: Contraction | None, candidates: Iterable[Candidate], limits: Limits
) -> tuple[tuple[Candidate, TinycError], ...]:
    """The candidates whose Plans do not fit, with the reason."""
    pairs = ((each, fault(plan_of(each, region, roles, limits), region, limits)) for each in candidates)
    return tuple((candidate, error) for candidate, error in pairs if error is not None)


def _hidden(model: CostModel, work: Work) -> float:
    hidden = getattr(model, "hidden", None)
    return sum(hidden(work).values()) if callable(hidden) else 0.0


def _order(ranked: RankedPlan, preferred: Plan | None) -> tuple[object, ...]:
    candidate = ranked.candidate
    rows, columns, depth = candidate.tile
    deep = -depth if candidate.arch == "cpu" else depth  # a GPU's deeper tile only takes more memory
    return (
        float(f"{ranked.estimate:.9e}"),
        ranked.plan != preferred,
        -rows * columns,
        -rows,
        float(f"{ranked.hidden:.9e}"),
        candidate.stages or 0,
        deep,
        not candidate.async_enable,
        repr(candidate),
    )


def fault(plan: Plan, region: Region, limits: Limits) -> TinycError | None:
    """What is wrong with ``plan`` for ``region``, None where nothing is."""
    try:
        check_plan(plan, region, limits)
    except TinycError as error:
        return error
    return None


# ---- the Plan of a candidate ----------------------------------------------------------------------------------------


def plan_of(candidate: Candidate, region: Region, roles: Contraction | None, limits: Limits) -> Plan:
    """The whole Plan that ``candidate`` is for ``region``. ``roles``: of its contraction, where that is to be tiled.

    Accesses are as wide as the candidate says, or less wide where a buffer of the Region is not aligned to that.
    """
    if candidate.algo in ALGO_CHOICES["attention"]:
        return _walk_on_gpu(candidate, region, limits)
    if candidate.algo == "loops" or roles is None:
        loops = _loops_on_cpu if limits.arch == "cpu" else _loops_on_gpu
        return loops(candidate, region, limits)
    tiled = _contraction_on_cpu if limits.arch == "cpu" else _contraction_on_gpu
    return tiled(candidate, region, roles, limits)


def untiled(region: Region, roles: Contraction) -> tuple[Plan, Scope]:
    """What the Plan of a contraction says whatever its tile is: roles, epilogue, edges, kind."""
    plan = Plan("contraction", roles)
    scope = Scope(plan, region)
    epilogue = _epilogue(scope, roles)
    choice = ((kind_of(scope, roles), "implicit_gemm"), *attention(region))
    plan = replace(plan, epilogue=epilogue, algo_choice=choice, local_edges=_edges(scope, roles, epilogue))
    return plan, scope


def kind_of(scope: Scope, roles: Contraction) -> str:
    return "conv" if windows(scope, roles) else "matmul"


def attention(region: Region) -> tuple[tuple[str, str], ...]:
    """Where rows are softened by exponentials: a Stream, or maximum, exponential and sum."""
    ops = {getattr(let.value, "op", "") for let in region.lets}
    sums = {let.value.op for let in region.lets if isinstance(let.value, Reduce)}
    streams = any(isinstance(let.value, Stream) for let in region.lets)
    softmax = "EXP2" in ops and sums >= {"MAX", "SUM"}
    return (("attention", "streaming_softmax_2pass"),) if streams or softmax else ()


def _epilogue(scope: Scope, roles: Contraction) -> tuple[str, ...]:
    """What is computed from the accumulator, in the Region's order; conversions belong to the store."""
    after = scope.after(roles.reduce)
    lets = [let for let in scope.region.lets if let.name in after]
    return tuple(
        dict.fromkeys(
            scope.title(let.name, after) for let in lets if isinstance(let.value, Unary | Binary | Select)
        )
    )


def _edges(scope: Scope, roles: Contraction, epilogue: tuple[str, ...]) -> tuple[LocalEdge, ...]:
    """The accumulator stays in registers until the last operation of the epilogue."""
    every = frozenset(scope.lets)
    source = scope.title(roles.reduce, every)
    return (LocalEdge(source, epilogue[-1], "reg"),) if epilogue else ()


# ---- the CPU --------------------------------------------------------------------------------------------------------


def _contraction_on_cpu(candidate: Candidate, region: Region, roles: Contraction, limits: Limits) -> Plan:
    """The candidate's tile is rows x columns x depth as they are packed; the Plan's is in the order of its roles. None is
    given where the contraction is not of a form that is packed: it runs as loops."""
    plan, scope = untiled(region, roles)
    item = product(region, roles, scope.free)
    if isinstance(item, str):
        return replace(plan, arch="cpu")
    rows, columns, depth = candidate.tile
    tile = (columns, rows, depth) if item.turned else (rows, columns, depth)
    part = "m.i.i" if item.turned else "n.i.i"
    return replace(plan, arch="cpu", tile=tile, vectorize=Vectorize(part, candidate.width or limits.lanes))


def _loops_on_cpu(candidate: Candidate, region: Region, limits: Limits) -> Plan:
    """A block as long as the row is none."""
    plan = Plan(arch="cpu", algo_choice=attention(region))
    last = region.iters[-1] if region.iters else None
    if last is None or candidate.tile[1] >= last.size:
        return plan
    return replace(plan, tile=(1, candidate.tile[1], 1))


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def _contraction_on_gpu(candidate: Candidate, region: Region, roles: Contraction, limits: Limits) -> Plan:
    plan, scope = untiled(region, roles)
    stages = candidate.stages or 2
    operands = tuple(dict.fromkeys((*staged(scope, 0), *staged(scope, 1))))
    target = scope.title(roles.reduce, frozenset(scope.lets))
    rings = (LocalEdge(name, target, "smem_ring", stages) for name in windows(scope, roles))
    rows = bool(kept_rows(region, roles))  # they need the memory that an epilogue of its own would take
    plan = replace(
        plan,
        tile=candidate.tile,
        stages=stages,
        warp_tile=candidate.warp_tile,
        cache=tuple(Cache(ref.name, "k.i") for ref in operands),
        arch=limits.arch,
        algo_choice=((plan.algo_choice[0][0], candidate.algo), *plan.algo_choice[1:]),
        local_edges=(*plan.local_edges, *rings),
        async_=Async(candidate.async_enable, stages, candidate.async_enable and not rows),
        barrier_model=BARRIER_MODELS[limits.arch],
    )
    row = stored_along(region, region.outputs[0]) not in roles.m
    tile = dict(zip("mnk", candidate.tile, strict=True))
    plan = replace(
        plan,
        predicate_tail=tuple(f"{name}.i.i" for name, size in tile.items() if scope.extent(name) % size),
        layout_hints=LayoutHints(
            swizzles(plan, region, 0), swizzles(plan, region, 1), c_stride="row" if row else "col"
        ),
        bind=_bind(scope, tile, limits, roles),
    )
    return _vectorized(plan, region, "n.i.i" if row else "m.i.i", candidate.width, limits)


def _bind(
    scope: Scope, tile: Mapping[str, int], limits: Limits, roles: Contraction
) -> tuple[tuple[str, str], ...]:
    """Blocks along y and x as the document has them; the other way round where there are too many along y, and all
    along x where that does not help. A block computes all tiles of a row that is reduced."""
    whole = tile["n"] < scope.extent("n") and bool(kept_rows(scope.region, roles))
    blocks = {name: -(-scope.extent(name) // tile[name]) for name in "mn"}
    blocks["n"] = 1 if whole else blocks["n"]
    many = min(blocks.values()) > limits.grid[1] or (roles.batch and scope.extent("b") > limits.grid[2])
    ways = ("x", "x", "x") if many else ("z", "y", "x") if blocks["m"] <= limits.grid[1] else ("z", "x", "y")
    parts = ("b" if roles.batch else "", "m.o", "" if whole else "n.o")
    places = zip(parts, ways, strict=True)
    return (*((part, f"block.{way}") for part, way in places if part), *_WARPS)


_WARPS = (("m.i.o", "warp.y"), ("n.i.o", "warp.x"))


def _walk_on_gpu(candidate: Candidate, region: Region, limits: Limits) -> Plan:
    """A block takes rows of one head, each warp whole rows; keys and values come in tiles, and what weights the values stays in
    registers."""
    walk = walk_of(region)
    if walk is None or walk.product is None:
        return Plan("stream", tile=candidate.tile, warp_tile=candidate.warp_tile, arch=limits.arch)
    rows, columns, _ = candidate.tile
    scope = Scope(Plan(), region)
    (stream, wide) = max(walk.streams, key=lambda each: len(each[1]))
    keys, values = (
        [read.tensor for read in scope.reads(name)]
        for name in (walk.product.rhs, stream.value.weight)  # type: ignore[union-attr]
    )
    bind = [(item.name, "block.x") for item in walk.outer]
    row = [item for item in walk.rows if item.size > 1]
    if len(row) == 1:
        bind += [(f"{row[0].name}.o", "block.x"), (f"{row[0].name}.i.o", "warp.x")]
    column = [item for item in walk.axes if item.size > 1]
    tail = [
        f"{own[0].name}.i"
        for own, size in ((row, rows), (column, columns))
        if len(own) == 1 and own[0].size % size
    ]
    weights = scope.title(walk.score, frozenset(scope.lets)), scope.title(stream.name, frozenset(scope.lets))
    plan = Plan(
        "stream",
        tile=candidate.tile,
        warp_tile=candidate.warp_tile,
        bind=tuple(bind),
        cache=tuple(
            Cache(name, f"{column[0].name}.i", pingpong=False)
            for name in (dict.fromkeys((*keys, *values)) if len(column) == 1 else ())
        ),
        predicate_tail=tuple(tail),
        arch=limits.arch,
        algo_choice=(("attention", candidate.algo),),
        local_edges=(LocalEdge(*weights, "reg"),),
        async_=Async(True, 2, False),
        barrier_model=BARRIER_MODELS[limits.arch],
    )
    last = [item.name for item in wide if item.size > 1][-1]
    size = max(ref.dtype.itemsize for ref in region.outputs)
    for less in _halves(min(candidate.width, limits.access_bytes // size)):
        made = replace(plan, vectorize=Vectorize(last, less))
        if fault(made, region, limits) is None:
            return made
    return replace(plan, vectorize=Vectorize(last, 1))


def _loops_on_gpu(candidate: Candidate, region: Region, limits: Limits) -> Plan:
    """The iters flattened over blocks, the innermost one cut into pieces for a block's threads."""
    if candidate.tile[2] > 1:
        return _shared_on_gpu(candidate, region, limits)
    plan = Plan(arch=limits.arch, algo_choice=attention(region))
    last, points = row_axis(region), candidate.tile[1]
    if last is None or last.size == 1:
        return plan
    bind = (
        *((item.name, "block.x") for item in region.iters if item.size > 1 and item is not last),
        (f"{last.name}.o", "block.x"),
        (f"{last.name}.i.o", "warp.x"),
        (f"{last.name}.i.i", "lane"),
    )
    tail = () if last.size % points == 0 else (f"{last.name}.i",)
    plan = replace(plan, tile=(1, points, 1), bind=bind, predicate_tail=tail)
    threads = -(-points // max(1, candidate.width))
    for width in _halves(candidate.width):
        # narrower accesses keep the block's threads and give each less
        less = replace(plan, tile=(1, min(points, threads * width), 1))
        tail = () if last.size % (less.tile or (1, 1, 1))[1] == 0 else (f"{last.name}.i",)
        less = replace(less, vectorize=Vectorize(f"{last.name}.i.i", width), predicate_tail=tail)
        if fault(less, region, limits) is None:
            return less
    return replace(plan, tile=None, bind=(), predicate_tail=())


def _shared_on_gpu(candidate: Candidate, region: Region, limits: Limits) -> Plan:
    """Loops whose threads share sums: neighbours share one where its elements are neighbours, those of a warp or of several
    warps; otherwise neighbours are points of the row."""
    fold, share = fold_of(region), candidate.tile[2]
    plan = Plan(arch=limits.arch, algo_choice=attention(region))
    if fold is None:
        return replace(plan, tile=candidate.tile)
    last = row_axis(region)
    size = region.outputs[0].dtype.itemsize
    points, width = block_of(candidate, last.size if last else 1, size, fold.along, limits)
    threads = points if fold.along else points // width
    bind = [(item.name, "block.x") for item in region.iters if item is not last]
    if last is not None:
        bind += [(f"{last.name}.o", "block.x")]
    row, summed = _shared_places(fold.along, share)
    bind += [(f"{last.name}.{part}", place) for part, place in row if last is not None]
    bind += [(f"{fold.axis}.{part}", place) for part, place in summed]
    for less in _halves(width):
        points = threads * (1 if fold.along else less)
        found = replace(
            plan,
            tile=(1, points, share),
            bind=tuple(bind),
            vectorize=Vectorize(f"{fold.axis if fold.along or last is None else last.name}.i", less),
            predicate_tail=(f"{last.name}.i",) if last is not None and last.size % points else (),
        )
        if fault(found, region, limits) is None:
            return found
    return found


Places = tuple[tuple[str, str], ...]


def _shared_places(along: bool, share: int) -> tuple[Places, Places]:
    """Where the points of a row are computed, and those of a sum that so many threads share. ``along``: neighbours share it."""
    if not along:
        return (("i", "lane"),), (("i", "warp.y"),)
    if share < WARP:
        return (("i.o", "warp.x"), ("i.i", "lane")), (("i", "lane"),)
    if share == WARP:
        return (("i", "warp.x"),), (("i", "lane"),)
    return (("i", "warp.x"),), (("i.o", "warp.y"), ("i.i", "lane"))


def _vectorized(plan: Plan, region: Region, part: str, width: int, limits: Limits) -> Plan:
    """With vectors of ``width`` elements, or the widest that the sizes and the alignment of all buffers allow."""
    most = limits.access_bytes // element_bytes(plan, Scope(plan, region))
    for less in _halves(min(width, most)):
        wide = replace(plan, vectorize=Vectorize(part, less))
        if fault(wide, region, limits) is None:
            return wide
    return replace(plan, vectorize=Vectorize(part, 1))


def _halves(width: int) -> Iterable[int]:
    while width >= 1:
        yield width
        width //= 2
