"""The two forms of a Region (document 004 §6.4): values at points, and the form in which every view is written out.

In the POINT form a let is a value at one point of the axes it depends on, so operands over different axes meet by
name. The EXPLICIT form, which dumps show, orders the axes of every let and inserts BroadcastInDim and Transpose so
that operands meet over the same axes in the same order. ``point(explicit(region)) == region``.

The order of a let's axes: a Read has them as they first occur in its map; a Unary and a Cast as their operand; what has
several operands in the order of the Region, iters first, then reduce axes as they are bound. Two kinds of operand need
no view. What indices alone decide, a Const or a guard, is there at every point. And inside a Reduce's body a Read,
behind casts and guards, is read directly at the indices needed (C-CON1, document 004 §6.3.1). So are the score and the
weight of a Stream, which is such a body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .dtypes import DType
from .index import Affine
from .region import (
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Let,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Transpose,
    Value,
    Within,
    Yield,
    operands,
)

Axes = tuple[str, ...]


def explicit(region: Region) -> Region:
    """``region``, in either form, with every BroadcastInDim and Transpose written out. Its lets keep their names; a view
    of ``v`` is ``v.t`` (Transpose) or ``v.b`` (BroadcastInDim)."""
    return _Explicit(point(region)).build()


def point(region: Region) -> Region:
    """``region``, in either form, without BroadcastInDim and Transpose: their operands stand where they stood."""
    seen: dict[str, str] = {}
    lets: list[Let] = []
    for let in region.lets:
        if isinstance(let.value, BroadcastInDim | Transpose):
            seen[let.name] = seen.get(let.value.x, let.value.x)
        else:
            lets.append(replace(let, value=with_operands(let.value, _through(seen, let.value))))
    if not seen:
        return region
    yields = tuple(Yield(seen.get(item.value, item.value), item.to) for item in region.yields)
    return replace(region, lets=tuple(lets), yields=yields)


def with_operands(value: Value, names: Sequence[str]) -> Value:
    """``value`` computed from the lets ``names`` in place of its own operands, in the order of ``operands``."""
    if tuple(names) == operands(value):
        return value
    match value:
        case Binary(op, _, _):
            return Binary(op, *names)
        case Select():
            return Select(*names)
        case Stream():
            score, weight, scale = names
            return replace(value, score=score, weight=weight, scale=scale)
        case Reduce(op, axes, _):
            return Reduce(op, axes, *names)
        case Read() | Const() | Within():
            return value
    return replace(value, x=names[0])


@dataclass(frozen=True)
class AxisFacts:
    """For each let: ``axes`` in order, whether it is ``loadable`` (a Read behind casts and guards), whether indices alone
    decide it (``positional``). ``rank``: the place of every axis in the order of the Region."""

    rank: Mapping[str, int]
    iters: frozenset[str]
    axes: dict[str, Axes] = field(default_factory=dict)
    loadable: set[str] = field(default_factory=set)
    positional: set[str] = field(default_factory=set)

    def add(self, let: Let) -> None:
        value, names = let.value, operands(let.value)
        if is_positional(let.dtype, value, self.positional):
            self.positional.add(let.name)
        if is_loadable(value, self.positional, self.loadable):
            self.loadable.add(let.name)
        axes = self.met(value)
        match value:
            case Read(_, index_map):
                axes = occurring(*index_map)
            case Within(index, _, _):
                axes = occurring(index)
            case Reduce(_, bound, _) | Stream(bound, _, _, _):
                gone = {axis.name for axis in bound}
                axes = tuple(name for name in axes if name not in gone)
            case BroadcastInDim(_, wide, _):
                axes = wide
            case Transpose(x, permutation):
                axes = tuple(self.axes[x][place] for place in permutation)
            case _ if len(names) == 1:
                axes = self.axes[names[0]]
        self.axes[let.name] = axes

    def met(self, value: Value) -> Axes:
        """The axes over which the operands of ``value`` meet: their own where they agree, else in the Region's order."""
        names = operands(value)
        every = {axis for name in names for axis in self.axes[name]}
        if isinstance(value, Reduce | Stream):
            every |= {axis.name for axis in value.axes}
        if isinstance(value, Stream):
            return self.sorted(every)
        viewed = [name for name in names if len(names) == 1 or not self.direct(name, every)]
        whole = {self.axes[name] for name in viewed if len(self.axes[name]) == len(every)}
        return whole.pop() if len(whole) == 1 else self.sorted(every)

    def sorted(self, axes: Iterable[str]) -> Axes:
        return tuple(sorted(axes, key=self.rank.__getitem__))

    def direct(self, name: str, met: Iterable[str]) -> bool:
        """Whether an operand of a value over ``met`` is taken at the point, without a view."""
        return name in self.positional or (name in self.loadable and not self.iters.issuperset(met))


def axis_facts(region: Region) -> AxisFacts:
    """The facts of all lets of a Region in either form whose lets are in dependence order."""
    facts = empty_facts(region)
    for let in region.lets:
        facts.add(let)
    return facts


def empty_facts(region: Region) -> AxisFacts:
    bound = (axis for let in region.lets if isinstance(let.value, Reduce | Stream) for axis in let.value.axes)
    names = dict.fromkeys(axis.name for axis in (*region.iters, *bound))
    rank = {name: number for number, name in enumerate(names)}
    return AxisFacts(rank, frozenset(axis.name for axis in region.iters))


def is_positional(dtype: DType, value: Value, positional: set[str]) -> bool:
    """Whether indices alone decide ``value``: a constant, a guard, guards joined by and or or."""
    match value:
        case Const() | Within():
            return True
        case Binary("MIN" | "MAX", x, y):
            return dtype is DType.BOOL and x in positional and y in positional
    return False


def is_loadable(value: Value, positional: set[str], loadable: set[str]) -> bool:
    """What a tile can be loaded from (004-065, I-30): a Read, behind casts, and guards that give a constant outside."""
    match value:
        case Read():
            return True
        case Cast(x):
            return x in loadable
        case Select(cond, then, other):
            return cond in positional and then in loadable and other in positional
    return False


def occurring(*indices: Affine) -> Axes:
    """The axes of index expressions, in the order in which they first occur."""

    def walk(index: Affine) -> Iterator[str]:
        for _, atom in index.terms:
            if isinstance(atom, str):
                yield atom
            else:
                yield from walk(atom.num)

    return tuple(dict.fromkeys(name for index in indices for name in walk(index)))


def misaligned(region: Region) -> str | None:
    """Where operands do not meet over the same axes in the same order, in one sentence; None for an explicit Region.
    The views themselves are right (``check_region``)."""
    facts = empty_facts(region)
    for let in region.lets:
        value = let.value
        if isinstance(value, Binary | Select | Reduce):
            met = facts.met(value)
            for name in operands(value):
                if facts.axes[name] != met and not facts.direct(name, met):
                    return f"{let.name}: {name} is over {_list(facts.axes[name])}, not over {_list(met)}"
        facts.add(let)
    iters = tuple(axis.name for axis in region.iters)
    for item in region.yields:
        if facts.axes[item.value] != iters:
            return f"{item.to}: {item.value} is over {_list(facts.axes[item.value])}, not over {_list(iters)}"
    return None


def ccon1_fault(region: Region) -> str | None:
    """Where a value that could be read directly is broadcast inside a Reduce's body (C-CON1), in one sentence."""
    facts = axis_facts(region)
    for let in region.lets:
        value = let.value
        if isinstance(value, BroadcastInDim) and value.x in facts.loadable:
            inner = [name for name in value.axes if name not in facts.iters]
            if inner:
                return f"{let.name} broadcasts {value.x}, a Read, over the reduce axis {inner[0]}"
    return None


def _list(axes: Axes) -> str:
    return f"({', '.join(axes)})"


def _through(seen: Mapping[str, str], value: Value) -> list[str]:
    return [seen.get(name, name) for name in operands(value)]


class _Explicit:
    """Copies the lets of a Region in point form and puts the views that an operand needs before its first use."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.facts = empty_facts(region)
        self.dtypes = {let.name: let.dtype for let in region.lets}
        self.taken = set(self.dtypes)
        self.lets: list[Let] = []
        self.made: dict[tuple[str, Axes], str] = {}

    def build(self) -> Region:
        for let in self.region.lets:
            value = let.value
            if isinstance(value, Binary | Select | Reduce):
                value = with_operands(value, self.aligned(value))
            self.append(Let(let.name, let.dtype, value))
        iters = tuple(axis.name for axis in self.region.iters)
        yields = tuple(Yield(self.view(item.value, iters), item.to) for item in self.region.yields)
        if len(self.lets) == len(self.region.lets):
            return self.region
        return replace(self.region, lets=tuple(self.lets), yields=yields)

    def aligned(self, value: Value) -> list[str]:
        names, facts = operands(value), self.facts
        met = facts.met(value)
        if len(names) > 1:  # a Reduce keeps the order of its body
            met = facts.sorted(met)
        return [name if facts.direct(name, met) else self.view(name, met) for name in names]

    def view(self, name: str, axes: Axes) -> str:
        """The let ``name`` seen over ``axes``."""
        own = self.facts.axes[name]
        order = tuple(axis for axis in axes if axis in own)
        if order != own:
            name = self.insert(name, order, Transpose(name, tuple(own.index(axis) for axis in order)), "t")
        if order != axes:
            places = tuple(axes.index(axis) for axis in order)
            name = self.insert(name, axes, BroadcastInDim(name, axes, places), "b")
        return name

    def insert(self, x: str, axes: Axes, value: Value, suffix: str) -> str:
        if (x, axes) not in self.made:
            name, number = f"{x}.{suffix}", 1
            while name in self.taken:
                number += 1
                name = f"{x}.{suffix}{number}"
            self.taken.add(name)
            self.dtypes[name] = self.dtypes[x]
            self.append(Let(name, self.dtypes[x], value))
            self.made[x, axes] = name
        return self.made[x, axes]

    def append(self, let: Let) -> None:
        self.lets.append(let)
        self.facts.add(let)
