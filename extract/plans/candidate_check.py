"""What a plan candidate claims, worked out again without the rules: rules/plan.egg is held against this.

A problem is turned into a small Region that is one, the candidate into its Plan, and the two are given to
:func:`tinyc.ir.check_plan.check_plan`, which knows the machine. What the STOP conditions of document 004 §11 ask beyond
that is computed here.
"""

from __future__ import annotations

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, axis
from tinyc.ir.plan import Contraction
from tinyc.ir.region import (
    Axis,
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Unary,
    Within,
    Yield,
)
from tinyc.ir.resources import Limits, resources, unit_of
from tinyc.ir.schedule import ALGO_CHOICES
from tinyc.ir.schedule_names import Scope
from tinyc.ir.streams import ONE, STEP, Extents
from tinyc.ir.tiny import ROUNDED
from tinyc.ir.units import WARP

from .candidate import Candidate, Problem, fold_problem, kind_name, problem_of
from .rank import fault, plan_of

SHARE = 0.8
"""Of a block's shared memory, beyond which a plan stops (004 §11)."""

KINDS = tuple(kind_name(slides, tf32) for slides in (False, True) for tf32 in (False, True))

DTYPES = {1: DType.BOOL, 2: DType.FP16, 4: DType.FP32}


def candidate_fault(problem: Problem, candidate: Candidate, limits: Limits) -> str | None:
    """Why ``candidate`` is no legal way to schedule ``problem`` on ``limits``; None where it is.

    It is legal where its Plan for a Region that is this problem passes
    :func:`~tinyc.ir.check_plan.check_plan` with the candidate's own width, and no STOP condition holds: shared memory above
    80 %, registers for one block only, a narrower access than the problem allows, a tile larger than the padded problem,
    a ring deeper than the sum.
    """
    if candidate.arch != limits.arch:
        return f"it is for {candidate.arch}, the machine is {limits.arch}"
    made = region_of(problem, limits)
    if isinstance(made, str):
        return made
    region, roles = made
    walks = candidate.algo in ALGO_CHOICES["attention"]
    if (problem[0] == "Walk") is not walks or (roles is None) is not (walks or candidate.algo == "loops"):
        return f"{candidate.algo} is no way to compute {problem[0]}"
    plan = plan_of(candidate, region, roles, limits)
    error = fault(plan, region, limits)
    if error is not None:
        return error.why
    if limits.arch == "cpu":
        return _blocks(problem, candidate, limits) if roles else None
    if (problem[0] == "Fold") is not (candidate.tile[2] > 1 and roles is None and not walks):
        return f"{candidate.tile[2]} threads for a sum of {problem[0]}"
    if plan.vectorize is None or plan.vectorize.width != candidate.width:
        return f"an access of {candidate.width} elements does not fit"
    if walks:
        return _walked(problem, candidate, limits)
    if roles is None:
        return _loops(problem, candidate, limits)
    return _stops(problem, candidate, limits, region, roles)


def _stops(
    problem: Problem, candidate: Candidate, limits: Limits, region: Region, roles: Contraction
) -> str | None:
    plan = plan_of(candidate, region, roles, limits)
    scope = Scope(plan, region)
    taken = resources(plan, region, limits)
    if taken.smem_bytes > SHARE * limits.smem_bytes:
        return f"{taken.smem_bytes} bytes of shared memory are more than 80 % of {limits.smem_bytes}"
    if limits.registers_per_sm // (taken.registers_per_thread * taken.threads) < 2:
        return f"{taken.threads} threads of {taken.registers_per_thread} registers leave room for one block"
    unit_ = unit_of(limits.arch, scope)
    units = unit_.rows, unit_.columns, unit_.depth
    for name, size, unit in zip("mnk", candidate.tile, units, strict=True):
        if size % unit:
            return f"{size} of {name} is no whole number of instructions of {unit}"
        if size > unit and size % (2 * unit) == 0 and size // 2 >= scope.extent(name):
            return f"half of {size} covers the {scope.extent(name)} points of {name}"
    steps = -(-scope.extent("k") // candidate.tile[2])
    if (candidate.stages or 0) > max(3, steps + 1):
        return f"a ring of {candidate.stages} tiles for a sum of {steps}"
    run, along = int(problem[8]), problem[9]
    widest = limits.access_bytes // max(int(problem[6]), int(problem[7]))
    side = candidate.tile[0 if along == "m" else 1]
    wider = 2 * candidate.width
    if wider <= widest and run % wider == 0 and side % wider == 0:
        return f"accesses of {wider} elements would fit"
    return None


def _loops(problem: Problem, candidate: Candidate, limits: Limits) -> str | None:
    points, size = int(problem[1]), int(problem[2])
    wider = 2 * candidate.width
    if problem[0] == "Fold":
        summed, size = size, int(problem[3])
        _, block, threads = candidate.tile
        if 2 * threads * candidate.width > summed:
            return f"{threads} threads have less than two accesses each to {summed} points"
        if wider * size <= limits.access_bytes and summed % wider == 0 and 2 * threads * wider <= summed:
            return f"accesses of {wider} elements would fit"
        if block * threads % WARP:
            return f"{block * threads} threads are no whole warps"
        return f"half of {block} covers the {points} points of a row" if block // 2 >= points else None
    if wider * size <= limits.access_bytes and points % wider == 0:
        return f"accesses of {wider} elements would fit"
    half = candidate.tile[1] // 2
    if half >= points and half % (32 * candidate.width) == 0:
        return f"half of {candidate.tile[1]} covers the {points} points of a row"
    return None


def _walked(problem: Problem, candidate: Candidate, limits: Limits) -> str | None:
    rows, columns, depth, width, size = (int(each) for each in problem[1:])
    bm, bn, bk = candidate.tile
    assert candidate.warp_tile is not None
    wide = -(-width // STEP) * STEP
    if (bm * bk + bn * (bk + wide)) * size > SHARE * limits.smem_bytes:
        return f"tiles of {bm} and {bn} rows are more than 80 % of {limits.smem_bytes} bytes of shared memory"
    found = Extents(1, rows, columns, depth, width, size)
    threads = WARP * (bm // candidate.warp_tile[0])
    registers = found.registers(candidate.warp_tile[0], bn)
    if limits.registers_per_sm // (registers * threads) < 2:
        return f"{threads} threads of {registers} registers leave room for one block"
    for name, tile, extent in (("rows", bm, rows), ("scores", bn, columns)):
        if tile > 2 * max(extent, 2 * STEP):
            return f"half of {tile} covers the {extent} {name}"
    wider = 2 * candidate.width
    if wider * size <= limits.access_bytes and width % wider == 0:
        return f"accesses of {wider} elements would fit"
    return None


def _blocks(problem: Problem, candidate: Candidate, limits: Limits) -> str | None:
    """Blocks are whole registers, and no larger than the padded matrix."""
    units = limits.rows, 2 * limits.lanes, 1
    for size, unit, extent in zip(candidate.tile, units, map(int, problem[2:]), strict=True):
        if size % unit or size >= extent + unit:
            return f"{size} is no whole number of {unit}, or hangs over {extent}"
    return None


# ---- a Region that is a problem -------------------------------------------------------------------------------------


def region_of(problem: Problem, limits: Limits) -> tuple[Region, Contraction | None] | str:
    """A Region that is ``problem`` and the roles of its contraction, or why there is none."""
    match problem:
        case ("Row", int(points), int(size)) if points > 1 and size in DTYPES and points > 0:
            return _row(points, DTYPES[size]), None
        case ("Fold", int(points), int(summed), int(size)) if points > 0 and summed > 1 and size in DTYPES:
            region = _folded(points, summed, DTYPES[size])
            same = fold_problem(region, limits) == problem
            return (region, None) if same else f"{problem} is no problem on {limits.arch}"
        case ("Walk", int(rows), int(columns), int(depth), int(width), 2) if (
            min(rows, columns, depth, width) > 1
        ):
            region = _attention(rows, columns, depth, width)
            same = problem_of(region, None, limits) == problem
            return (region, None) if same else f"{problem} is no problem on {limits.arch}"
        case ("Packed", int(outer), int(rows), int(columns), int(k)) if min(outer, rows, columns, k) > 0:
            made = _contraction("matmul", (outer, rows, columns, k), (4, 4), columns, "n")
        case ("Product", str(kind), *rest) if kind in KINDS and len(rest) == 8 and rest[7] in ("m", "n", "b"):
            b, m, n, k, p, q, run = (int(each) for each in rest[:7])
            wrong = _wrong(kind, (b, m, n, k), (p, q), run, str(rest[7]))
            if wrong is not None:
                return wrong
            made = _contraction(kind, (b, m, n, k), (p, q), run, str(rest[7]))
        case _:
            return f"{problem} is no problem"
    region, roles = made
    again = problem_of(region, roles, limits)
    return made if again == problem else f"{problem} is no problem of a Region"


def _wrong(
    kind: str, sizes: tuple[int, int, int, int], bytes: tuple[int, int], run: int, along: str
) -> str | None:
    own = sizes[1] if along == "m" else sizes[2]
    if min(sizes) < 1 or min(sizes[1:]) < 2 or run < 2 or own % run:
        return f"{run} contiguous points of {own}"
    if not {*bytes} <= {0, *DTYPES} or not max(bytes) or (kind.startswith("conv") and not bytes[0]):
        return f"operands of {bytes[0]} and {bytes[1]} bytes"
    return "no batch axis is the last one" if along == "b" and sizes[0] < 2 else None


def _row(points: int, dtype: DType) -> Region:
    here = (axis("i"), axis("j"))
    ref = MemRef("X", dtype, (3, points), 128)
    lets: tuple[Let, ...] = (Let("x", dtype, Read("X", here)),)
    if dtype.is_float:
        lets = (*lets, Let("y", dtype, Unary("RELU", "x")))
    out = MemRef("Y", dtype, (3, points), 128)
    return Region(
        "row", (Axis("i", 3), Axis("j", points)), (ref,), (out,), lets, (Yield(lets[-1].name, "Y"),)
    )


def _folded(points: int, summed: int, dtype: DType) -> Region:
    """Sums of contiguous elements, one for each point of three rows; a single one has no axes."""
    iters = (Axis("i", 3), Axis("j", points)) if points > 1 else ()
    shape = tuple(item.size for item in iters)
    ref = MemRef("X", dtype, (*shape, summed), 128)
    lets = (
        Let("x", dtype, Read("X", (*(axis(item.name) for item in iters), axis("k")))),
        Let("y", dtype, Reduce("MAX", (Axis("k", summed),), "x")),
    )
    return Region("fold", iters, (ref,), (MemRef("Y", dtype, shape, 128),), lets, (Yield("y", "Y"),))


def _attention(rows: int, columns: int, depth: int, width: int) -> Region:
    """fp16 queries, keys and values; scores are their products, and weight the values by a softmax in fp32."""
    refs = tuple(
        MemRef(name, DType.FP16, shape, 128)
        for name, shape in (("Q", (rows, depth)), ("K", (columns, depth)), ("V", (columns, width)))
    )
    i, j, k, e = (axis(name) for name in "ijke")
    lets: list[Let] = []
    for name, index in (("Q", (i, e)), ("K", (k, e)), ("V", (k, j))):
        lets.append(Let(name.lower(), DType.FP16, Read(name, index)))
        lets.append(Let(f"{name.lower()}32", DType.FP32, Cast(name.lower())))
    over = (Axis("k", columns),)
    lets += [
        Let("product", DType.FP32, Binary("MUL", "q32", "k32")),
        Let("score", DType.FP32, Reduce("SUM", (Axis("e", depth),), "product")),
        Let("one", DType.FP32, Const(ONE)),
        Let("total", DType.FP32, Stream(over, "score", "one", "one")),
        Let("mixed", DType.FP32, Stream(over, "score", "v32", "one")),
        Let("quotient", DType.FP32, Binary("FDIV", "mixed", "total")),
        Let("out", DType.FP16, Cast("quotient")),
    ]
    iters = (Axis("i", rows), Axis("j", width))
    out = MemRef("O", DType.FP16, (rows, width), 128)
    return Region("walk", iters, refs, (out,), tuple(lets), (Yield("out", "O"),))


def _contraction(
    kind: str, sizes: tuple[int, int, int, int], bytes: tuple[int, int], run: int, along: str
) -> tuple[Region, Contraction]:
    """A sum of products whose result is contiguous in ``run`` points along ``along``: of those axes the others are apart
    from them. A conv reads its left operand in windows."""
    b, m, n, k = sizes
    inner, outer = ("m", "n") if along == "m" else ("n", "m")
    apart = {"m": m, "n": n}[inner] // run
    parts = {inner: ([(f"{inner}0", apart)] if apart > 1 else []) + [(f"{inner}1", run)]}
    parts[outer] = [(f"{outer}1", {"m": m, "n": n}[outer])]
    batch = [("b", b)] if b > 1 else []
    first, last = parts[inner][:-1], parts[inner][-1:]
    order = [*first, *parts[outer], *last]
    iters = tuple(Axis(*each) for each in ([*order, *batch] if along == "b" else [*batch, *order]))
    lets: list[Let] = []
    refs: list[MemRef] = []
    for name, own, size, window in (
        ("A", "m", bytes[0], kind.startswith("conv")),
        ("B", "n", bytes[1], False),
    ):
        refs.append(_operand(lets, name, [*batch, *parts[own]], k, size, window))
    left, right = "A32", "B32"
    if kind.endswith("-tf32"):
        lets += [Let(f"{name}tf", DType.FP32, Unary(ROUNDED, f"{name}32")) for name in "AB"]
        left, right = "Atf", "Btf"
    lets += [
        Let("product", DType.FP32, Binary("MUL", left, right)),
        Let("sum", DType.FP32, Reduce("SUM", (Axis("k", k),), "product")),
        Let("out", DType.FP16, Cast("sum")),
    ]
    out = MemRef("C", DType.FP16, tuple(item.size for item in iters), 128)
    region = Region("problem", iters, tuple(refs), (out,), tuple(lets), (Yield("out", "C"),))
    names = {side: tuple(name for name, _ in each) for side, each in parts.items()}
    return region, Contraction(
        "sum", left, right, tuple(name for name, _ in batch), names["m"], names["n"], ("k",)
    )


def _operand(
    lets: list[Let], name: str, own: list[tuple[str, int]], k: int, size: int, window: bool
) -> MemRef:
    """A buffer over its own axes and k, widened to fp32; without k (``size`` 0) behind a guard that asks for it."""
    index: list[Affine] = [axis(each) for each, _ in own]
    shape = [points for _, points in own]
    dtype = DTYPES.get(size, DType.FP32)
    if window:
        index[-1], shape[-1] = index[-1] + axis("k"), shape[-1] + k - 1
    elif size:
        index, shape = [*index, axis("k")], [*shape, k]
    read = f"{name}32" if dtype is DType.FP32 and size else name
    lets.append(Let(read, dtype, Read(f"{name}_", tuple(index))))
    if not size:
        lets += [
            Let(f"{name}in", DType.BOOL, Within(axis("k"), 0, max(1, k - 1))),
            Let(f"{name}0", DType.FP32, Const(0)),
            Let(f"{name}32", DType.FP32, Select(f"{name}in", read, f"{name}0")),
        ]
    elif dtype is not DType.FP32:
        lets.append(Let(f"{name}32", DType.FP32, Cast(read)))
    return MemRef(f"{name}_", dtype, tuple(shape), 128)
