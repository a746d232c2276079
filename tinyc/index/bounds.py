"""Whether every Read of a Region stays inside its buffer (document 004 §6.7-5, §6.10; resolution I-27).

A value is computed where it is needed. What is yielded is needed at every point of all axes; a Select needs its
``then`` only where the condition may hold, its ``other`` only where it may fail; every other value needs its operands
wherever it is needed itself. Multiplying by zero guards nothing: both factors are computed. A condition that depends
on data may hold and may fail anywhere; ``Within`` is decided by the axes, and so are MIN (and), MAX (or), comparisons
and Selects of bools.

A Read is in bounds when the image of the points that need it lies in the buffer. Intervals decide what they can; isl
decides the rest, exactly; what is too much for isl and small is tried point by point.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinyc.ir.diagnostics import TinycError, show_shape
from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine
from tinyc.ir.region import (
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Let,
    Read,
    Region,
    Select,
    Transpose,
    Within,
    axis_sizes,
    operands,
)

from .sets import TooComplex, Workspace

MAX_OPERATIONS = 2_000_000
"""isl's budget for one Read: ten times what any Region of our tests takes, some tenths of a second."""

MAX_POINTS = 1 << 16
"""How many points are tried one by one where isl gave up."""


@dataclass(frozen=True, slots=True)
class Unguarded:
    """A Read that leaves its buffer, or that could not be shown to stay in it.

    ``point``: values of axes at which ``let`` is needed and ``index`` (of ``dimension``, whose size is ``size``) is
    ``value``, outside of the buffer. Both are None where nothing is proven either way.
    """

    region: str
    let: str
    tensor: str
    dimension: int
    index: str
    size: int
    point: Mapping[str, int] | None
    value: int | None

    def __str__(self) -> str:
        what = f"{self.let} reads dimension {self.dimension} of {self.tensor} at {self.index}"
        if self.point is None:
            return f"{what}; that it stays in 0 <= index < {self.size} is too hard to prove"
        where = ", ".join(f"{name}={value}" for name, value in self.point.items())
        place = f" at {where}" if where else ""
        return f"{what}, which{place} is {self.value}, outside of 0 <= index < {self.size}"


def unguarded(
    region: Region, prove: bool = False, max_operations: int = MAX_OPERATIONS
) -> tuple[Unguarded, ...]:
    """The Reads of ``region`` that may leave their buffers, at most one finding per Read, in the order of the lets.

    ``prove``: ask isl even where intervals suffice. ``max_operations``: isl's budget for one Read.
    The Region is one in which ``tinyc.ir.check_region.fault`` finds nothing; both of its forms will do.
    """
    sizes = axis_sizes(region)
    shapes = {ref.name: ref.shape for ref in region.inputs}
    found = []
    uses = Uses(region)
    for let in region.lets:
        if not isinstance(let.value, Read):
            continue
        doubtful = [
            (number, index, size)
            for number, (index, size) in enumerate(zip(let.value.map, shapes[let.value.tensor], strict=True))
            if prove or not _inside(index, size, sizes)
        ]
        view = Needs(uses, let.name) if doubtful else None
        if view is not None and (finding := _outside(region, view, doubtful, sizes, max_operations)):
            found.append(finding)
    return tuple(found)


def check_access(region: Region, prove: bool = False) -> None:
    """Raises TinycError UnguardedAccess (E1401) where a Read may leave its buffer; arguments as for ``unguarded``."""
    findings = unguarded(region, prove)
    if not findings:
        return
    first = findings[0]
    shape = next(ref.shape for ref in region.inputs if ref.name == first.tensor)
    more = f"; so do {len(findings) - 1} more Reads" if len(findings) > 1 else ""
    raise TinycError(
        "UnguardedAccess",
        f"{first}{more}",
        f"take the Read as the first branch of a Select on Within({first.index}, 0, {first.size}), with the value that"
        " stands beyond the border as the second",
        at={"layer": "region", "op": "Read", "value": first.let},
        region=region.name,
        tensor=first.tensor,
        shape=show_shape(shape),
        dimension=first.dimension,
        index=first.index,
        point=dict(first.point) if first.point is not None else None,
        value=first.value,
    )


def _inside(index: Affine, size: int, sizes: Mapping[str, int]) -> bool:
    low, high = index.bounds(sizes)
    return low >= 0 and high < size


def _outside(
    region: Region,
    view: Needs,
    doubtful: Collection[tuple[int, Affine, int]],
    sizes: Mapping[str, int],
    max_operations: int,
) -> Unguarded | None:
    """The first of the ``doubtful`` dimensions (number, index, size) in which a Read leaves its buffer."""
    let = view.lets[view.target]
    space = {name: sizes[name] for name in sizes if name in view.axes}
    try:
        found = _leaving(view.points(Workspace(max_operations=max_operations).box(space)), doubtful)
    except TooComplex:
        if math.prod(space.values()) > MAX_POINTS:
            return _finding(region, let, next(iter(doubtful)), None)
        found = _leaving(view.points(Grid.box(space)), doubtful)
    if found is None:
        return None
    return _finding(region, let, *found)


def _leaving(
    needed: PointSet | None, doubtful: Collection[tuple[int, Affine, int]]
) -> tuple[tuple[int, Affine, int], dict[str, int]] | None:
    if needed is None:
        return None
    for which in doubtful:
        _, index, size = which
        for low, high in ((None, 0), (size, None)):
            point = needed.where(index, low, high).sample()
            if point is not None:
                return which, point
    return None


def _finding(
    region: Region, let: Let, which: tuple[int, Affine, int], point: dict[str, int] | None
) -> Unguarded:
    assert isinstance(let.value, Read)
    number, index, size = which
    value = None if point is None else index.evaluate(point)
    return Unguarded(region.name, let.name, let.value.tensor, number, str(index), size, point, value)


class PointSet(Protocol):
    """What is asked of a set of points of named axes: an IntSet of isl, or a Grid."""

    def where(self, index: Affine, low: int | None = None, high: int | None = None) -> Self: ...
    def intersect(self, other: Self) -> Self: ...
    def union(self, other: Self) -> Self: ...
    def subtract(self, other: Self) -> Self: ...
    def sample(self) -> dict[str, int] | None: ...


Points = TypeVar("Points", bound=PointSet)


class Uses:
    """The lets of a Region by name, who uses them, and which are ``always`` needed: at every point, as what a yield is
    computed from without a Select between."""

    def __init__(self, region: Region) -> None:
        self.lets = {let.name: let for let in region.lets}
        self.place = {let.name: number for number, let in enumerate(region.lets)}
        self.users: dict[str, list[str]] = {let.name: [] for let in region.lets}
        self.always = {stored.value for stored in region.yields}
        for let in reversed(region.lets):
            value = let.value
            for name in operands(value):
                self.users[name].append(let.name)
            if let.name in self.always:
                self.always.update((value.cond,) if isinstance(value, Select) else operands(value))

    def ordered(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self.place.__getitem__))


class Needs:
    """Where a let of a Region is needed. ``axes``: those on which that hangs, and those of the let's own index.
    ``conditions``: the bools that decide it and those that they are made of, in order."""

    def __init__(self, uses: Uses, target: str) -> None:
        self.uses, self.target = uses, target
        self.lets = uses.lets
        self.cone = self._cone()
        self.conditions = self._conditions()
        axes = frozenset[str]().union(*map(self.guard_axes, self.conditions))
        read = self.lets[target].value
        if isinstance(read, Read):
            axes = axes.union(*(index.axes() for index in read.map))
        self.axes = axes

    def guard_axes(self, condition: str) -> frozenset[str]:
        """The axes that a condition looks at itself."""
        value = self.lets[condition].value
        return value.index.axes() if isinstance(value, Within) else frozenset()

    def _cone(self) -> frozenset[str]:
        """``target`` and what is computed from it, up to what is always needed."""
        found, stack = {self.target}, [self.target]
        while stack:
            name = stack.pop()
            new = [] if name in self.uses.always else [u for u in self.uses.users[name] if u not in found]
            found.update(new)
            stack += new
        return frozenset(found)

    def _conditions(self) -> tuple[str, ...]:
        stack = [
            value.cond
            for value in (self.lets[name].value for name in self.cone)
            if isinstance(value, Select) and not self.cone.isdisjoint((value.then, value.other))
        ]
        wanted: set[str] = set()
        while stack:
            name = stack.pop()
            if name not in wanted:
                wanted.add(name)
                stack += _logical(self.lets[name], self.lets)
        return self.uses.ordered(wanted)

    def points(self, everywhere: Points) -> Points | None:
        """The points at which the target is needed; None where it never is. ``everywhere``: the box of ``axes``."""
        needed: dict[str, Points] = {name: everywhere for name in self.cone & self.uses.always}
        if self.target in needed:
            return everywhere
        may = self._truth(everywhere)
        for name in reversed(self.uses.ordered(self.cone)):
            here = needed.pop(name, None)
            if here is None:
                continue
            if name == self.target:
                return here
            for operand, there in _passed(self.lets[name], here, may, everywhere):
                if operand in self.cone:
                    needed[operand] = _join(needed.get(operand), there, everywhere)
        return None

    def _truth(self, everywhere: Points) -> dict[str, tuple[Points, Points]]:
        """For each condition, where it may hold and where it may fail."""
        may: dict[str, tuple[Points, Points]] = {}
        nowhere = everywhere.subtract(everywhere) if self.conditions else everywhere
        for name in self.conditions:
            let = self.lets[name]
            parts = [may[part] for part in _logical(let, self.lets)]
            may[name] = _decided(let, parts, everywhere, nowhere)
        return may


def _logical(let: Let, lets: Mapping[str, Let]) -> tuple[str, ...]:
    """The bools that ``let`` is a logical combination of; none where it is something else."""
    parts = operands(let.value)
    match let.value:
        case Binary() | Select() | Cast() | BroadcastInDim() | Transpose():
            return parts if all(lets[part].dtype is DType.BOOL for part in parts) else ()
        case _:
            return ()


def _decided(
    let: Let, parts: list[tuple[Points, Points]], everywhere: Points, nowhere: Points
) -> tuple[Points, Points]:
    """Where ``let`` may hold and may fail, from the same of the bools it is made of."""
    match let.value, parts:
        case Within(index, lo, hi), _:
            holds = everywhere.where(index, lo, hi)
            return holds, everywhere.subtract(holds)
        case Const(bits), _:
            return (everywhere, nowhere) if bits else (nowhere, everywhere)
        case ((Cast() | BroadcastInDim() | Transpose()), [x]):
            return x
        case Binary(op, _, _), [(x, not_x), (y, not_y)]:
            if op == "MIN":
                return x.intersect(y), not_x.union(not_y)
            if op == "MAX":
                return x.union(y), not_x.intersect(not_y)
            if op == "CMPLT":
                return not_x.intersect(y), x.union(not_y)
            same = x.intersect(y).union(not_x.intersect(not_y))
            other = x.intersect(not_y).union(not_x.intersect(y))
            if op in ("CMPEQ", "CMPNE"):
                return (same, other) if op == "CMPEQ" else (other, same)
        case Select(), [(c, not_c), (x, not_x), (y, not_y)]:
            return (
                c.intersect(x).union(not_c.intersect(y)),
                c.intersect(not_x).union(not_c.intersect(not_y)),
            )
    return everywhere, everywhere


def _passed(
    let: Let, here: Points, may: Mapping[str, tuple[Points, Points]], everywhere: Points
) -> Iterator[tuple[str, Points]]:
    """Where ``let`` needs its operands, if it is needed ``here``."""
    match let.value:
        case Select(cond, then, other):
            yield cond, here
            holds, fails = may.get(cond, (everywhere, everywhere))
            yield then, _meet(here, holds, everywhere)
            yield other, _meet(here, fails, everywhere)
        case _:
            for name in operands(let.value):
                yield name, here


def _meet(here: Points, there: Points, everywhere: Points) -> Points:
    if there is everywhere:
        return here
    return there if here is everywhere else here.intersect(there)


def _join(one: Points | None, other: Points, everywhere: Points) -> Points:
    if one is None or one is other:
        return other
    return everywhere if everywhere in (one, other) else one.union(other)


@dataclass(frozen=True, eq=False)
class Grid:
    """A set of points of a small box, as an array of bools: what isl does, point by point."""

    sizes: Mapping[str, int]
    points: NDArray[np.bool_]

    @staticmethod
    def box(sizes: Mapping[str, int]) -> Grid:
        return Grid(dict(sizes), np.ones(tuple(sizes.values()), np.bool_))

    def _made(self, points: NDArray[np.bool_]) -> Grid:
        return Grid(self.sizes, points)

    def where(self, index: Affine, low: int | None = None, high: int | None = None) -> Grid:
        value, kept = self._values(index), self.points
        if low is not None:
            kept = kept & (value >= low)
        return self._made(kept if high is None else kept & (value < high))

    def _values(self, index: Affine) -> NDArray[np.int64]:
        total: NDArray[np.int64] = np.full((1,) * len(self.sizes), index.const, np.int64)
        for coef, atom in index.terms:
            if isinstance(atom, str):
                shape = [size if name == atom else 1 for name, size in self.sizes.items()]
                total = total + coef * np.arange(self.sizes[atom]).reshape(shape)
            else:
                total = total + coef * (self._values(atom.num) // atom.den)
        return total

    def intersect(self, other: Grid) -> Grid:
        return self._made(self.points & other.points)

    def union(self, other: Grid) -> Grid:
        return self._made(self.points | other.points)

    def subtract(self, other: Grid) -> Grid:
        return self._made(self.points & ~other.points)

    def sample(self) -> dict[str, int] | None:
        found = np.argwhere(self.points)
        return dict(zip(self.sizes, map(int, found[0]), strict=True)) if len(found) else None
