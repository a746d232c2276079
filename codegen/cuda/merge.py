"""Axes that buffers cannot tell apart become one: the 33 x 65 points of an elementwise kernel are 2,145 points of a line.

Then vectors run over the ends of rows, an index is divided by fewer sizes, and a sum over two axes is one loop.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tinyc.ir.index import Affine, FloorDiv, lit
from tinyc.ir.region import Axis, MemRef, Read, Reduce, Region, Stream, Within, axis_sizes

from .indices import linear


def merged(region: Region) -> Region:
    """The same Region with neighbouring axes merged wherever each Read steps over them as over one.

    Buffers of which every Read is proven inside are read as a line, by position; others keep their shape.
    """
    region = _lines(region)
    while (pair := _mergeable(region)) is not None:
        region = _joined(region, *pair)
    return region


def _lines(region: Region) -> Region:
    sizes = axis_sizes(region)
    refs = {ref.name: ref for ref in region.inputs}
    open_ = set[str]()
    for let in region.lets:
        if isinstance(let.value, Read):
            for expression, size in zip(let.value.map, refs[let.value.tensor].shape, strict=True):
                low, high = expression.bounds(sizes)
                if low < 0 or high >= size:
                    open_.add(let.value.tensor)
    lets = tuple(
        replace(let, value=Read(let.value.tensor, (linear(let.value.map, refs[let.value.tensor]),)))
        if isinstance(let.value, Read) and let.value.tensor not in open_
        else let
        for let in region.lets
    )
    inputs = tuple(ref if ref.name in open_ else _line(ref) for ref in region.inputs)
    return replace(region, lets=lets, inputs=inputs)


def _line(ref: MemRef) -> MemRef:
    return replace(ref, shape=(ref.elements,))


def _groups(region: Region) -> list[tuple[Axis, ...]]:
    return [
        region.iters,
        *(let.value.axes for let in region.lets if isinstance(let.value, Reduce | Stream)),
    ]


def _mergeable(region: Region) -> tuple[str, Axis] | None:
    """An axis and the one after it, of which each step of the first is all steps of the second."""
    groups = _groups(region)
    refs = {ref.name: ref for ref in region.inputs}
    accesses: list[Affine] = []
    told_apart = set[str]()
    for let in region.lets:
        if isinstance(let.value, Within):
            told_apart |= let.value.index.axes()
        elif isinstance(let.value, Read):
            if len(refs[let.value.tensor].shape) == 1 and len(let.value.map) == 1:
                accesses.append(let.value.map[0])
            else:
                told_apart = told_apart.union(*(index.axes() for index in let.value.map))
    steps = []
    for access in accesses:
        told_apart = told_apart.union(
            *(atom.num.axes() for _, atom in access.terms if isinstance(atom, FloorDiv))
        )
        steps.append({atom: coef for coef, atom in access.terms if isinstance(atom, str)})
    for group in groups:
        for first, second in pairwise(group):
            pair = (first.name, second.name)
            if told_apart.isdisjoint(pair) and all(
                step.get(pair[0], 0) == second.size * step.get(pair[1], 0) for step in steps
            ):
                others = ([item.name for item in each] for each in groups)
                if all(_together(names, pair) for names in others):
                    return first.name, Axis(second.name, first.size * second.size)
    return None


def _together(names: list[str], pair: tuple[str, str]) -> bool:
    if pair[0] not in names and pair[1] not in names:
        return True
    return pair in pairwise(names)


def _joined(region: Region, gone: str, both: Axis) -> Region:
    def axes(group: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(both if item.name == both.name else item for item in group if item.name != gone)

    lets = []
    for let in region.lets:
        value = let.value
        match value:
            case Read(tensor, index_map):
                value = Read(tensor, tuple(index.substitute({gone: lit(0)}) for index in index_map))
            case Reduce(op, group, body):
                value = Reduce(op, axes(group), body)
            case Stream(group):
                value = replace(value, axes=axes(group))
        lets.append(replace(let, value=value))
    iters = axes(region.iters)
    shape = tuple(item.size for item in iters)
    outputs = tuple(replace(ref, shape=shape) for ref in region.outputs)
    return replace(region, iters=iters, lets=tuple(lets), outputs=outputs)
