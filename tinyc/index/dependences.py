"""Dependences between statements over named buffers (document 004 §7.1): true, anti, output.

A statement runs once for every point of its domain, in lexicographic order; statements run one after the other. Two
accesses of one element, of which at least one writes, depend on each other. Dependences are between accesses of
memory: that a value in between was overwritten does not end one.

    ws = Workspace(("M",))
    domain = ws.box({"i": "M", "r": 8})
    acc = ws.access(("i", "r"), "acc", ("i",))
    dependences([Statement("sum", domain, (acc,), (acc,))])     # true, anti and output, each along r
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.region import (
    Axis,
    BroadcastInDim,
    MemRef,
    Read,
    Reduce,
    Region,
    Stream,
    Transpose,
    free_axes,
    operands,
)

from .sets import IntMap, IntSet, Workspace
from .spelling import spellings

Kind = Literal["true", "anti", "output"]

Cell = str | tuple[str, int]
"""A piece of memory that buffers share, and at which byte of it a buffer begins (0 where it is not said)."""


@dataclass(frozen=True, eq=False)
class Statement:
    """``reads`` and ``writes``: relations from points of ``domain`` to elements of their ``tensor``. All statements of an
    analysis are made in one Workspace, and a buffer has the same number of dimensions in all of them."""

    name: str
    domain: IntSet
    reads: tuple[IntMap, ...] = ()
    writes: tuple[IntMap, ...] = ()


@dataclass(frozen=True, eq=False)
class Dependence:
    """Points of ``target`` that touch what points of ``source`` touched before. ``true``: written, then read; ``anti``:
    read, then written; ``output``: written twice. ``relation``: from points of ``source`` to points of ``target``."""

    source: str
    target: str
    kind: Kind
    tensor: str
    relation: IntMap

    @property
    def carried(self) -> tuple[str, ...]:
        """Of a dependence of a statement on itself: the axes in which the two points differ somewhere."""
        if self.source != self.target:
            return ()
        return tuple(name for name in self.relation.names if self.relation.varies(name))

    def __str__(self) -> str:
        """isl's notation: ``{ sum[i, r] -> sum[i' = i, r'] : r' > r }``."""
        spelled = spellings((self.source, self.target))
        return self.relation.relation(spelled[self.source], spelled[self.target])


def dependences(statements: Sequence[Statement]) -> tuple[Dependence, ...]:
    """All that are not empty, ordered by source, target, kind (true, anti, output) and buffer.

    Raises ValueError for a buffer that has different numbers of dimensions, TooComplex."""
    touched: dict[str, dict[int, tuple[IntMap | None, IntMap | None]]] = {}
    for number, statement in enumerate(statements):
        reads, writes = _merged(statement, statement.reads), _merged(statement, statement.writes)
        for tensor in dict.fromkeys((*reads, *writes)):
            touched.setdefault(tensor, {})[number] = reads.get(tensor), writes.get(tensor)
    found: list[tuple[tuple[int, int, int, str], Dependence]] = []
    for tensor, users in touched.items():
        for first, second in combinations_with_replacement(users, 2):
            (read, write), (reads_later, writes_later) = users[first], users[second]
            pairs = (
                (write, reads_later, "true"),
                (read, writes_later, "anti"),
                (write, writes_later, "output"),
            )
            for order, (before, after, kind) in enumerate(pairs):
                if before is None or after is None:
                    continue
                relation = before.meets(after)
                relation = relation.forward() if first == second else relation
                if not relation.is_empty():
                    known = relation.workspace.universe(relation.names)  # symbols are at least 1 everywhere
                    names = statements[first].name, statements[second].name
                    dependence = Dependence(*names, kind, tensor, relation.simplify(known))  # type: ignore[arg-type]
                    found.append(((first, second, order, tensor), dependence))
    return tuple(dependence for _, dependence in sorted(found, key=lambda pair: pair[0]))


def _merged(statement: Statement, accesses: Sequence[IntMap]) -> dict[str, IntMap]:
    """Per buffer, what the statement touches in its domain."""
    merged: dict[str, IntMap] = {}
    for access in accesses:
        here = access.on(statement.domain)
        merged[access.tensor] = merged[access.tensor].union(here) if access.tensor in merged else here
    return merged


def region_statements(
    workspace: Workspace, region: Region, cells: Mapping[str, Cell] | None = None
) -> tuple[Statement, ...]:
    """A Region in its point form as statements: one per reduction, which updates an accumulator of its own, and one that
    stores the outputs.

    An accumulator is the buffer ``region.let``, over the axes on which its value depends. ``cells``: for buffers that
    lie in shared memory, where; these are compared byte by byte, so that buffers of different shapes and dtypes meet.
    Every other buffer is the elements of the MemRef of its name. A Read counts where it is inside its buffer.

    Raises ValueError for a BroadcastInDim or a Transpose (the explicit form).
    """
    lets = {let.name: let for let in region.lets}
    sizes = {item.name: item.size for item in _axes(region)}
    free = free_axes(region)
    memory = _Memory(workspace, cells or {}, {ref.name: ref for ref in (*region.inputs, *region.outputs)})

    def ordered(names: frozenset[str]) -> tuple[str, ...]:
        return tuple(name for name in sizes if name in names)

    def accumulator(let: str, names: tuple[str, ...]) -> IntMap:
        index = tuple(axis(name) for name in ordered(free[let]))
        return workspace.access(names, f"{region.name}.{let}", index)

    def reached(roots: Sequence[str], names: tuple[str, ...], domain: IntSet) -> Iterator[IntMap]:
        seen: set[str] = set()
        stack = list(reversed(roots))
        while stack:
            let = stack.pop()
            if let in seen:
                continue
            seen.add(let)
            value = lets[let].value
            if isinstance(value, BroadcastInDim | Transpose):
                raise ValueError(f"{region.name}.{let}: a Region in its explicit form")
            if isinstance(value, Read):
                yield memory.touch(names, domain, value.tensor, value.map)
            elif isinstance(value, Reduce | Stream):
                yield accumulator(let, names)
            else:
                stack += reversed(operands(value))

    def statement(
        name: str, axes: tuple[str, ...], roots: Sequence[str], writes: Sequence[IntMap]
    ) -> Statement:
        domain = workspace.box({each: sizes[each] for each in axes})
        return Statement(name, domain, tuple(reached(roots, axes, domain)), tuple(writes))

    found: list[Statement] = []
    for let in region.lets:
        if isinstance(let.value, Reduce | Stream):
            axes = (*ordered(free[let.name]), *(item.name for item in let.value.axes))
            update = accumulator(let.name, axes)
            made = statement(f"{region.name}.{let.name}", axes, operands(let.value), (update,))
            found.append(Statement(made.name, made.domain, (*made.reads, update), made.writes))
    iters = tuple(item.name for item in region.iters)
    domain = workspace.box({name: sizes[name] for name in iters})
    point = tuple(axis(name) for name in iters)
    stores = [memory.touch(iters, domain, each.to, point) for each in region.yields]
    found.append(statement(region.name, iters, [each.value for each in region.yields], stores))
    return tuple(found)


def _axes(region: Region) -> Iterator[Axis]:
    yield from region.iters
    for let in region.lets:
        if isinstance(let.value, Reduce | Stream):
            yield from let.value.axes


@dataclass(frozen=True)
class _Memory:
    """Where the elements of buffers are."""

    workspace: Workspace
    cells: Mapping[str, Cell]
    refs: Mapping[str, MemRef]

    def touch(self, names: tuple[str, ...], domain: IntSet, buffer: str, index: Sequence[Affine]) -> IntMap:
        """The access of an element, where it is inside of the buffer."""
        ref = self.refs[buffer]
        elements = self.workspace.access(names, buffer, index)
        box = self.workspace.box({f"a{number}": size for number, size in enumerate(ref.shape)})
        inside = domain.intersect(elements.preimage(box))
        if buffer not in self.cells:
            return elements.on(inside)
        place = self.cells[buffer]
        cell, base = (place, 0) if isinstance(place, str) else place
        offset = lit(0)
        for size, part in zip(ref.shape, index, strict=True):
            offset = offset * size + part
        width = ref.dtype.itemsize
        first = self.workspace.access(names, cell, (offset * width + base,))
        return first.on(inside).widened(width)
