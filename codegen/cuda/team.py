"""Teams: how many threads work on a row, and how they put together what each has of a sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .sizes import MOST_THREADS, WARP, Asked

THREADS = 256
"""Of a block, where rows are short."""

OWN = 16
"""Elements of a row that a thread has at most, where that takes no more than :data:`FEW_WARPS`."""

FEW_WARPS = 512
"""Threads of a team, of which two fit on a multiprocessor with 64 registers each; more only where a thread would have twice
as many elements."""

LEAST = 8
"""Threads of a team."""

FEW = 216
"""Blocks, two for each multiprocessor. Where there are fewer they are smaller, so that more multiprocessors take part."""


@dataclass(frozen=True)
class Teams:
    """``team``: threads of a row, whole warps or a part of one; ``teams``: rows of a block, all in whole warps. ``lanes``: threads
    of a team that have different points of the row; the others share the sums of these points."""

    team: int
    teams: int
    lanes: int


def teams_of(ask: Asked, rows: int, elements: int, chunks: int, columns: int, points: bool) -> Teams:
    """The teams for ``rows`` rows of ``elements`` at most, which are ``chunks`` vectors. ``columns``: vectors of points that have
    sums of their own, 0 where there are none; ``points``: whether a row has several.

    A Plan says how many threads share a sum, and how many a block has: all of them are on one row, as far as it has vectors for
    them. Otherwise a thread has :data:`OWN` elements at most.
    """
    if ask.share is not None and ask.along and not points:
        team = ask.share
    else:
        most = FEW_WARPS if elements <= 2 * OWN * FEW_WARPS else MOST_THREADS
        enough = ask.threads or min(most, max(WARP, -(-elements // OWN)))
        busy = max(chunks, columns * (ask.share or 1))
        team = min(1 << (min(enough, busy) - 1).bit_length(), enough)
    team = max(LEAST, team) if team <= WARP else team // WARP * WARP
    teams = max(1, min(max(ask.threads or THREADS, team) // team, rows))
    while ask.threads is None and teams > 1 and rows // teams < FEW:
        teams //= 2
    teams = max(teams, WARP // team)
    while team * teams % WARP:
        teams += 1
    lanes = 1 << (columns - 1).bit_length() if columns else team
    return Teams(team, teams, lanes if lanes < team and team % lanes == 0 else team)


def together(
    name: str,
    kind: str,
    combined: Callable[[str, str], str],
    team: int,
    teams: int,
    lanes: int = 1,
    width: int = 1,
) -> list[str]:
    """Lines after which ``name``, of C++ type ``kind``, is ``combined(x, y)`` of what the threads of a team had, in all of them.

    A block has ``teams`` of ``team`` threads, which are ``lane`` of ``team``; those with the same ``lane % lanes`` belong together.
    ``width``: elements of the vector ``name``; 1: it is one value. Within a warp threads shuffle. Groups of threads, a warp or
    ``lanes`` of them, meet in shared memory, where neighbours have neighbouring banks, and add up in a fixed order.
    """
    own = name if width == 1 else f"{name}[u]"
    reach = min(team, WARP)
    shared = team // lanes
    lines = [f"// {name}: what {shared} threads had"] if shared > 1 else []
    if lanes < reach:
        step = combined(own, f"__shfl_xor_sync(~0u, {own}, step)")
        loop = f"for (int step = {reach // 2}; step >= {lanes}; step >>= 1) {own} = {step};"
        lines += _each([loop], width)
    group = max(lanes, reach)
    groups = team // group
    if groups == 1:
        return lines
    parts = f"{name}_parts"
    first = f"team * {groups * lanes * width}" if teams > 1 else ""
    place = f"lane % {lanes}" if lanes > 1 else ""
    element = f"u * {groups * lanes}" if width > 1 else ""

    def at(number: str) -> str:
        step = f"{number} * {lanes}" if lanes > 1 and number != "0" else number
        step = "" if step == "0" and first + element + place else step
        return f"{parts}[{' + '.join(filter(None, (first, element, step, place)))}]"

    write = f"{at(f'lane / {group}')} = {own};"
    if lanes < group:
        write = f"if (lane % {group} {'== 0' if lanes == 1 else f'< {lanes}'}) {write}"
    add = f"for (int k = 1; k < {groups}; ++k) {own} = {combined(own, at('k'))};"
    return [
        *lines,
        f"__shared__ {kind} {parts}[{teams * width * groups * lanes}];",
        *_each([write], width),
        "__syncthreads();",
        *_each([f"{own} = {at('0')};", add], width),
    ]


def _each(lines: list[str], width: int) -> list[str]:
    if width == 1:
        return lines
    return ["#pragma unroll", f"for (int u = 0; u < {width}; ++u) {{", *(f"  {line}" for line in lines), "}"]
