"""Whether a machine has what a Plan takes (document 004 §8, §11, §12): tails, layouts, vectors, threads, memory."""

from __future__ import annotations

from typing import Any

from .cpu_tiles import blocks, product
from .diagnostics import TinycError
from .region import Region, row_axis
from .resources import (
    Limits,
    Resources,
    along,
    element_bytes,
    resources,
    rounded,
    run_along,
    smem_bytes,
    staged,
    stored_along,
    unit_of,
)
from .schedule import Plan
from .schedule_names import Scope

#: bytes of a row of a tile that can be swizzled; beyond, whole multiples of the last
SWIZZLED_ROWS = (32, 64, 128)


class Claim:
    """A Plan that says it fits a Region and a machine. ``path``: how errors call the place."""

    def __init__(self, plan: Plan, region: Region, limits: Limits, path: str) -> None:
        self.plan, self.region, self.limits, self.path = plan, region, limits, path
        self.scope = Scope(plan, region)

    def refuse(
        self, key: str, why: str, suggestion: str, kind: str = "PlanMismatch", **details: Any
    ) -> TinycError:
        """The error about ``key`` of the Plan."""
        where = f"{self.path}.{key}"
        at = {"layer": "plan", "op": self.region.name, "value": where}
        return TinycError(kind, f"{where}: {why}", suggestion, at, **details)


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def check_gpu(claim: Claim) -> Resources:
    """Raises TinycError where the GPU has less than the Plan takes."""
    plan, limits = claim.plan, claim.limits
    _tails(claim)
    _layouts(claim)
    found = resources(plan, claim.region, limits)
    _vector(claim, found)
    _instructions(claim)
    if found.threads > limits.threads:
        raise claim.refuse(
            "warp_tile" if plan.warp_tile else "tile",
            f"{found.warps} warps are {found.threads} threads of a block, {limits.target} has {limits.threads}",
            "give a larger warp_tile or a smaller tile",
            "TooManyThreads",
            threads=found.threads,
            limit=limits.threads,
        )
    _registers(claim, found)
    if found.smem_bytes > limits.smem_bytes:
        rings = smem_bytes(plan, claim.scope)
        rows = rings < found.smem_bytes
        raise claim.refuse(
            "tile",
            f"{plan.stages or 2} stages of {'x'.join(map(str, plan.tile or ()))}{' and the rows that are kept' if rows else ''} take "
            f"{found.smem_bytes} bytes of shared memory, a block on {limits.target} has {limits.smem_bytes}",
            "give a tile of fewer rows, or store the product"
            if rows
            else _less_memory(plan, rings, limits.smem_bytes),
            "SharedMemoryExceeded",
            bytes=found.smem_bytes,
            limit=limits.smem_bytes,
        )
    for way, count, limit in zip("xyz", found.grid, limits.grid, strict=True):
        if count > limit:
            raise claim.refuse(
                "bind",
                f"{count} blocks along {way}, {limits.target} has {limit}",
                "give a larger tile, or bind to x",
            )
    return found


def _tails(claim: Claim) -> None:
    """Where tiles hang over, the Plan must say that they are cut off."""
    plan, scope = claim.plan, claim.scope
    if plan.tile is None:
        return
    names = [name for name in "mnk" if scope.contraction and scope.contraction.groups()[name]]
    if plan.algo == "loops":
        row = row_axis(claim.region)
        names = [row.name] if row else []
    cut = {scope.role(part) or part.split(".")[0] for part in plan.predicate_tail}
    for name in names:
        size, extent = scope.tile(name), scope.extent(name)
        if size is not None and extent % size and name not in cut:
            raise claim.refuse(
                "predicate_tail",
                f"tiles of {size} hang over the {extent} points of {name}, which is not cut off",
                f'add "{name}.i{"" if plan.algo == "loops" else ".i"}", or give a tile that divides {extent}',
            )


def _layouts(claim: Claim) -> None:
    """Layout hints against the buffers, and against the transposition that the roles mean (004 §6.12)."""
    plan, scope = claim.plan, claim.scope
    hints, roles = plan.layout_hints, scope.contraction
    if hints is None or roles is None or plan.tile is None:
        return
    for side, (letter, wanted) in enumerate((("A", hints.a_swizzle), ("B", hints.b_swizzle))):
        wrong = _no_swizzle(plan, scope, side) if wanted else None
        if wrong is not None:
            raise claim.refuse(
                f"layout_hints.{letter}_swizzle", wrong, f"leave {letter}_swizzle out, or change that"
            )
    for ref in claim.region.outputs if claim.region.iters else ():
        along = stored_along(claim.region, ref)
        order = "row" if along in roles.n else "col" if along in roles.m else hints.c_stride
        if order != hints.c_stride:
            raise claim.refuse(
                "layout_hints.C_stride",
                f"{ref.name} is contiguous along {along}, an axis of {'n' if order == 'row' else 'm'}",
                f'give "{order}", or transpose the output',
            )


def swizzles(plan: Plan, region: Region, side: int) -> bool:
    """Whether the tile of the left (0) or right (1) operand can lie swizzled in shared memory."""
    scope = Scope(plan, region)
    return plan.tile is not None and bool(staged(scope, side)) and _no_swizzle(plan, scope, side) is None


def _no_swizzle(plan: Plan, scope: Scope, side: int) -> str | None:
    """Why an operand's tile cannot be swizzled. Its rows lie as its buffer does: along k, or, where the operand is
    transposed, along m or n. ldmatrix.trans and wgmma turn such rows on the way, elements of two bytes only; tf32 is read word by
    word."""
    assert plan.tile is not None and scope.contraction is not None
    roles = scope.contraction
    operand, own = ((roles.lhs, roles.m), (roles.rhs, roles.n))[side]
    for read in scope.reads(operand):
        ref = scope.buffers[read.tensor]
        if ref not in staged(scope, side):
            continue
        if ref.layout.kind == "swizzled":
            return f"{ref.name} lies swizzled in memory already"
        axis = run_along(read.map, ref)
        transposed = axis in own
        row = plan.tile[side if transposed else 2] * ref.dtype.itemsize
        if transposed and rounded(scope):
            if row % SWIZZLED_ROWS[-1]:
                return f"a row of {ref.name}'s tile has {row} bytes; of tf32 that is turned only multiples of 128 can be swizzled"
            continue
        if transposed and ref.dtype.itemsize != 2:
            return f"{ref.name} is {ref.dtype} and lies along {axis}; only elements of two bytes are turned when loaded"
        if row not in SWIZZLED_ROWS and row % SWIZZLED_ROWS[-1]:
            return f"a row of {ref.name}'s tile has {row} bytes; 32, 64 and multiples of 128 can be swizzled"
    return None


def _vector(claim: Claim, found: Resources) -> None:
    """No access wider than there is (resolution I-38), every access aligned."""
    vectorize, most = claim.plan.vectorize, claim.limits.access_bytes
    if vectorize is None:
        return
    size = element_bytes(claim.plan, claim.scope)
    if found.vector_bytes > most:
        raise claim.refuse(
            "vectorize.width",
            f"{vectorize.width} elements of {size} bytes are {found.vector_bytes} bytes: {-(-found.vector_bytes // most)} "
            f"accesses of at most {most}",
            f"give {most // size}" + ("; 16 is for elements of one byte" if vectorize.width == 16 else ""),
            "VectorTooWide",
            bytes=found.vector_bytes,
            limit=most,
        )
    for ref, pitch in along(claim.scope, vectorize.axis):
        vector = fits = min(vectorize.width * ref.dtype.itemsize, most)
        while ref.alignment % fits or pitch % fits:
            fits //= 2
        if fits < vector:
            short = (
                f"its rows are {pitch} bytes apart"
                if pitch % vector
                else f"it is aligned to {ref.alignment} bytes"
            )
            raise claim.refuse(
                "vectorize.width",
                f"{ref.name} cannot be accessed {vector} bytes at a time: {short}",
                f"give {max(1, fits // ref.dtype.itemsize)}",
            )


def _instructions(claim: Claim) -> None:
    """A warp's tile is a whole number of instructions, matrix ones or of all lanes (a STOP condition of 004 §11). Streams are checked
    for that where their Region is."""
    plan, arch = claim.plan, claim.limits.arch
    if plan.tile is None or plan.warp_tile is None or plan.algo == "stream":
        return
    unit = unit_of(arch, claim.scope)
    wide = unit.warps > 1 and plan.warp_tile[1] > unit.widest  # wgmma; others are limited by their registers
    if plan.warp_tile[0] % unit.rows or plan.warp_tile[1] % unit.columns or wide:
        rows, columns = plan.warp_tile
        raise claim.refuse(
            "warp_tile",
            f"{rows}x{columns} of a {unit.issuer} is no whole number of instructions of {unit.name}",
            f"give multiples of {unit.rows} rows and {unit.columns} columns"
            + (f", at most {unit.widest}" if wide else ""),
        )
    if plan.tile[2] % unit.depth:
        raise claim.refuse(
            "tile[2]",
            f"{plan.tile[2]} is no whole number of steps of {unit.depth}",
            f"give a multiple of {unit.depth}",
        )


def _registers(claim: Claim, found: Resources) -> None:
    limits, warp_tile = claim.limits, claim.plan.warp_tile
    share = min(limits.registers, limits.registers_per_sm // max(1, found.threads))
    if found.registers_per_thread <= share or warp_tile is None:
        return
    rows, columns = warp_tile
    least = unit_of(limits.arch, claim.scope).rows
    halved = (rows // 2, columns) if rows // 2 >= least else (rows, columns // 2)
    advice = f"give a smaller warp_tile, such as {halved[0]}x{halved[1]}"
    raise claim.refuse(
        "warp_tile",
        f"about {found.registers_per_thread} registers for each of {found.threads} threads, {limits.target} has {share}",
        advice if share == limits.registers else "give a smaller tile: so many threads share the registers",
        "RegistersExceeded",
        registers=found.registers_per_thread,
        limit=share,
    )


def _less_memory(plan: Plan, taken: int, limit: int) -> str:
    stages = plan.stages or 2
    if stages > 2 and taken // stages * 2 <= limit:
        return f"2 stages take {taken // stages * 2}"
    assert plan.tile is not None
    bm, bn, bk = plan.tile
    while taken > limit and bk > 16:
        bk, taken = bk // 2, taken // 2
    return f"a tile of [{bm}, {bn}, {bk}] takes {taken}" if taken <= limit else "give a smaller tile"


# ---- the CPU --------------------------------------------------------------------------------------------------------


def check_cpu(claim: Claim) -> Resources:
    """Raises TinycError where no CPU has such vectors, a thread has no such memory, or the code has no such tiles."""
    plan, limits, scope = claim.plan, claim.limits, claim.scope
    found = resources(plan, claim.region, limits)
    if plan.vectorize is not None and found.vector_bytes > limits.access_bytes:
        raise claim.refuse(
            "vectorize.width",
            f"{plan.vectorize.width} values of 4 bytes are {found.vector_bytes} bytes, no CPU has vectors of more than "
            f"{limits.access_bytes}",
            f"give at most {limits.access_bytes // 4}",
            "VectorTooWide",
            bytes=found.vector_bytes,
            limit=limits.access_bytes,
        )
    if plan.algo != "contraction" or scope.contraction is None:
        return found
    item = product(claim.region, scope.contraction, scope.free)
    if isinstance(item, str):
        if plan.tile is not None:
            raise claim.refuse("tile", item, "leave the tile out: the kernel runs as loops")
        return found
    names = [axis.name for axis in item.columns]
    if plan.vectorize is not None and not {axis.name for axis in scope.axes(plan.vectorize.axis)} & {*names}:
        raise claim.refuse(
            "vectorize.axis",
            f"vectors lie along {', '.join(names)}, on which results are contiguous",
            f"give {names[-1]}",
        )
    if plan.tile is not None and found.scratch_bytes > limits.scratch_bytes:
        nr = 2 * (plan.vectorize.width if plan.vectorize else limits.lanes)
        mc, nc, kc = blocks(item, plan.tile, limits.rows, nr)
        raise claim.refuse(
            "tile",
            f"blocks of {mc} x {nc} x {kc} take {found.scratch_bytes} bytes of each thread, the limit is "
            f"{limits.scratch_bytes}",
            "give a smaller tile",
            "SharedMemoryExceeded",
            bytes=found.scratch_bytes,
            limit=limits.scratch_bytes,
        )
    return found
