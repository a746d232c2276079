"""Whether the sizes that GPU IR says twice agree: of tiles, grid, rings and rows that are kept."""

from __future__ import annotations

import math
from typing import NoReturn

from tinyc.ir.diagnostics import TinycError

from .ir import GpuKernel
from .operand import ACCESS


def refuse(at: str, why: str) -> NoReturn:
    """Raises TinycError GpuIrInvalid."""
    raise TinycError(
        "GpuIrInvalid",
        f"{at}: {why}",
        "every token is produced once and waited for, and a slot is written only when nobody reads it",
        at={"layer": "gpu_ir", "value": at},
    )


def check_sizes(kernel: GpuKernel) -> None:
    """Raises TinycError GpuIrInvalid where they do not agree."""
    a, b = kernel.rings
    bm, bn, bk = kernel.tile
    rows, columns = kernel.warp_tile
    _, _, n, k = kernel.extents
    if bm % rows or bn % columns or bk % kernel.depth:
        refuse("tile", f"{kernel.tile} is no multiple of {kernel.warp_tile} and depth {kernel.depth}")
    if kernel.tiles != -(-k // bk):
        refuse("tiles", f"{k} points of k in tiles of {bk} are not {kernel.tiles}")
    counts = kernel.counts
    if sorted(part for part, _ in kernel.places) != sorted(counts):
        refuse("places", f"the parts of a grid are {', '.join(counts)}, each once")
    for way, size in zip("xyz", kernel.grid, strict=True):
        blocks = math.prod(counts[part] for part, where in kernel.places if where == way)
        if blocks != size:
            refuse("grid", f"{blocks} blocks are counted along {way}, the grid has {size}")
    if a.name == b.name or a.stages != b.stages:
        refuse("rings", "two rings have two names, and the same number of stages")
    for ring, own in ((a, bm), (b, bn)):
        wanted = (bk, own) if ring.turned else (own, bk)
        if (ring.rows, ring.columns) != wanted:
            refuse(
                "rings", f"{ring.name} is {ring.rows} x {ring.columns}, its tile {wanted[0]} x {wanted[1]}"
            )
        if ring.swizzle and not ring.turns_within:
            refuse("rings", f"rows of {ring.row_bytes} bytes cannot be swizzled")
    kept = kernel.kept
    if kept is not None:
        if (kept.rows, kept.columns) != (bm, n):
            refuse("kept", f"{kept.rows} rows of {kept.columns} are kept, a block has {bm} of {n}")
        if kept.pitch % ACCESS[0] or kept.pitch < kept.columns * kept.dtype.itemsize:
            refuse(
                "kept", f"{kept.pitch} bytes from row to row hold no {kept.columns} elements of {kept.dtype}"
            )
