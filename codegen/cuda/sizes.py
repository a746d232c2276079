"""What a Plan asks of a kernel of loops, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tinyc.ir.folds import fold_of
from tinyc.ir.region import Region
from tinyc.ir.schedule import Plan

WARP = 32
MOST_THREADS = 1024
"""Of a block."""


@dataclass(frozen=True)
class Asked:
    """``threads``: of a block, whole warps. ``share``: that share each sum. ``width``: elements of a vector. None: left open.
    ``along``: whether neighbouring threads share a sum, and not neighbouring points of the result (see ``tinyc.ir.folds``)."""

    threads: int | None = None
    share: int | None = None
    width: int | None = None
    along: bool = True


def asked(plan: Plan | None, region: Region) -> Asked:
    """What ``plan`` asks of ``region``. Of a contraction it says how to tile it, which loops do not.

    A block has the Plan's threads, and each as many elements as it says; they take the points of all iters one after the
    other, where the Plan counts blocks along the innermost axis alone: a block is as large as the Plan has it, and none is
    nearly empty where that axis is short.
    """
    if plan is None or plan.algo != "loops":
        return Asked()
    width = power(plan.vectorize.width) if plan.vectorize else None
    if plan.tile is None:
        return Asked(width=width)
    _, points, share = plan.tile
    iters = {item.name for item in region.iters}
    lanes = {part.split(".")[0] for part, place in plan.bind if place == "lane"}
    fold = fold_of(region) if share > 1 else None
    along = bool(lanes - iters) if lanes else fold is None or fold.along
    if plan.vectorize is not None and (share == 1 or plan.vectorize.axis.split(".")[0] in iters):
        points = -(-points // plan.vectorize.width)
    threads = min(-(-share * points // WARP) * WARP, MOST_THREADS)
    return Asked(threads, power(min(share, MOST_THREADS)) if share > 1 else None, width, along)


def power(count: int) -> int:
    """The largest power of two that is not more."""
    return 1 << (count.bit_length() - 1)
