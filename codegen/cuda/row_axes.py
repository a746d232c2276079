"""Which Regions have rows whose points need something in common, and along which iters the rows lie."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tinyc.ir.region import Axis, Let, Read, Reduce, Region, operands

from .indices import linear
from .lets import Lets
from .sizes import WARP

SHORT = 8
"""Terms of sums that one thread adds up."""


def terms(value: Reduce) -> int:
    """Of a sum."""
    return math.prod(item.size for item in value.axes)


def outer_axes(region: Region) -> tuple[Axis, ...] | None:
    """The first iters, along which rows lie one after the other; None where there are no rows to share."""
    lets = Lets(region)
    iters = region.iters
    outermost, every = _outermost(lets), {item.name for item in iters}
    before_last = {item.name for item in iters[:-1]}
    reductions = (let.name for let in region.lets if isinstance(let.value, Reduce))
    shared = [name for name in reductions if lets.free[name] <= before_last] if iters else []
    least = SHORT
    if not shared:  # each point has a sum of its own
        shared, least = [name for name in outermost if lets.free[name] == every], WARP
    needed = frozenset[str]().union(*(lets.free[name] for name in shared))
    last = max((number for number, item in enumerate(iters, 1) if item.name in needed), default=0)
    terms = max((math.prod(item.size for item in _axes(lets, name)) for name in shared), default=0)
    if terms < least or not any(_along(lets, name) or _nests(lets, name) for name in shared):
        return None
    return iters[:last]


def _outermost(lets: Lets) -> list[str]:
    """The reductions that stand in no other."""
    found: dict[str, None] = {}
    pending = [item.value for item in lets.region.yields]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if isinstance(lets.lets[name].value, Reduce):
            found[name] = None
        else:
            pending += operands(lets.lets[name].value)
    return list(found)


def _axes(lets: Lets, name: str) -> tuple[Axis, ...]:
    value = lets.lets[name].value
    return value.axes if isinstance(value, Reduce) else ()


def _terms(lets: Lets, name: str) -> Iterator[Let]:
    """The lets in a reduction that differ along its last axis."""
    last = _axes(lets, name)[-1].name
    pending, seen = list(operands(lets.lets[name].value)), set[str]()
    while pending:
        let = lets.lets[pending.pop()]
        if let.name not in seen and last in lets.free[let.name]:
            seen.add(let.name)
            pending += operands(let.value)
            yield let


def _nests(lets: Lets, name: str) -> bool:
    """Whether each term of a reduction is a sum."""
    return bool(_axes(lets, name)) and any(isinstance(let.value, Reduce) for let in _terms(lets, name))


def _along(lets: Lets, name: str) -> bool:
    """Whether every element that is read for a reduction lies beside that of the next term, or is the same."""
    axes = _axes(lets, name)
    if not axes:
        return False
    last, steps = axes[-1].name, set[int | None]()
    for let in _terms(lets, name):
        if isinstance(let.value, Read):
            _, ref = lets.inputs[let.value.tensor]
            terms = linear(let.value.map, ref).terms
            inside = any(not isinstance(atom, str) and last in atom.num.axes() for _, atom in terms)
            steps.add(None if inside else next((coef for coef, atom in terms if atom == last), 0))
    return 1 in steps and steps <= {0, 1}
