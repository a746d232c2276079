"""Values that a kernel needs along a row and keeps there: one function at several names of an axis (document 004 §6.8.3).

In a Region a value is at a point, so the scores of a row are one let under the maximum, another under the sum, a third in
the result. A GPU computes such a row once, tiled, and keeps it on chip; ``tinyc.index.boundaries`` sees that it fits.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .dtypes import DType
from .index import Affine, axis
from .plan import Contraction
from .region import Let, Read, Reduce, Region, Stream, Within, axis_sizes, free_axes, operands

ACCESS = 16
"""Bytes of the widest access, to which a row that is kept is aligned."""

BANKS = 128
"""Bytes of shared memory that are accessed in one turn."""


COMMON = 8
"""Terms of a sum that threads share."""

KEPT = 40 << 10
"""Bytes of shared memory for what a block of loops keeps of its rows: 48 KB less what sums take."""

LOOKED_AT = 256
"""Regions of which it is kept what their rows are: each is asked for all Plans that it may have."""

ROUNDING = frozenset({"SUM", "PROD"})
"""Reductions whose result depends on the order of their terms."""


@dataclass(frozen=True)
class KeptValue:
    """What is kept of each point of a row: the let ``value``, of type ``dtype``, at the points of the result. ``copies``: the lets that
    are the same at other points of the row, ``value`` among them, each with its names of the axes that ``value`` has."""

    value: str
    dtype: DType
    copies: tuple[tuple[str, Mapping[str, str]], ...]


def one_row(region: Region, names: Iterable[str]) -> bool:
    """Whether the lets ``names`` are one function along one row: equal but for the names of their axes, where at most one
    of the names that an axis goes by is an iter. (S[i0, r1] is of the row of S[i0, i1]; S[i1, i0] is another's.)"""
    lets = {let.name: let for let in region.lets}
    forms = [_form(lets, name) for name in names]
    same = len({form for form, _ in forms}) <= 1
    return same and _along_one(region, axis_sizes(region), [axes for _, axes in forms])


def _along_one(region: Region, sizes: Mapping[str, int], forms: Iterable[Sequence[str]]) -> bool:
    """Whether lets that are the same but for their axes, in the order of each, are along one row. ``sizes``: of the axes."""
    iters = {item.name for item in region.iters}
    return all(
        len({sizes[name] for name in named}) == 1 and len(iters & set(named)) <= 1
        for named in zip(*forms, strict=True)
    )


def rounds(let: Let) -> bool:
    """Whether the let is a reduction whose result depends on the order of its terms."""
    value = let.value
    return isinstance(value, Stream) or (
        isinstance(value, Reduce) and value.op in ROUNDING and let.dtype.is_float
    )


def rounded_alike(region: Region, orders: Mapping[str, Hashable]) -> bool:
    """Whether sums of floats that are one function, but for the names of their axes, are added up in one order. ``orders``: of each let
    that is one, something that says in which.

    Where they are not, p == max(p) may hold nowhere: what one sum rounds up the other rounds down."""
    lets = {let.name: let for let in region.lets}
    sums = [name for name in orders if rounds(lets[name])]
    if len({orders[name] for name in sums}) < 2:
        return True
    known: dict[object, Hashable] = {}
    return all(known.setdefault(_form(lets, name)[0], orders[name]) == orders[name] for name in sums)


def common_sums(region: Region) -> bool:
    """Whether the points of a row need sums that they have in common, of elements that lie along it: the largest score of a softmax,
    the mean of a LayerNorm. Threads of one block compute them once (codegen/cuda/rows.py)."""
    free = free_axes(region)
    sized = [item.name for item in region.iters if item.size > 1]
    along = {
        name
        for let in region.lets
        if isinstance(let.value, Read) and let.value.map
        for name in let.value.map[-1].axes()
    }
    return any(
        isinstance(let.value, Reduce)
        and free[let.name].intersection(sized) <= set(sized[:-1])
        and math.prod(item.size for item in let.value.axes) >= COMMON
        and let.value.axes[-1].name in along
        for let in region.lets
    )


@functools.lru_cache(maxsize=LOOKED_AT)
def kept_reads(region: Region) -> frozenset[str]:
    """The Reads of what the threads of a block have read before along the same row, and kept on chip (codegen/cuda/kept.py): a
    softmax reads a row once, although its largest value, its sum and its result are all made of it."""
    if not common_sums(region):
        return frozenset()
    groups: dict[object, list[dict[str, Sequence[str]]]] = {}  # of each form, rows: the axes of each Read
    lets, sizes = {let.name: let for let in region.lets}, axis_sizes(region)
    for let in region.lets:
        if isinstance(let.value, Read):
            form, axes = _form(lets, let.name)
            alike = groups.setdefault(form, [])
            row = next((each for each in alike if _along_one(region, sizes, (*each.values(), axes))), None)
            if row is None:
                alike.append(row := {})
            row[let.name] = axes
    again, taken = set[str](), 0
    for row in itertools.chain.from_iterable(groups.values()):
        first, *others = row
        points = math.prod(
            sizes[names[0]] for names in zip(*row.values(), strict=True) if len(set(names)) > 1
        )
        taken += points * lets[first].dtype.itemsize if others else 0
        again.update(others)
    return frozenset(again) if taken <= KEPT else frozenset()


@functools.lru_cache(maxsize=LOOKED_AT)
def kept_rows(region: Region, contraction: Contraction) -> tuple[str, ...]:
    """The lets that are the sum of a contraction at other points of its row."""
    return tuple(
        let.name
        for let in region.lets
        if isinstance(let.value, Reduce)
        and let.name != contraction.reduce
        and one_row(region, (let.name, contraction.reduce))
    )


@functools.lru_cache(maxsize=LOOKED_AT)
def kept_value(region: Region, contraction: Contraction) -> KeptValue | None:
    """What a kernel keeps of the rows of ``contraction``, None where it needs none of them: of the values that are computed from the sum
    alike wherever it is needed, such as the sum in the type of the result, or with its bias and its mask, the smallest, and of
    these the last."""
    names = (contraction.reduce, *kept_rows(region, contraction))
    if len(names) == 1:
        return None
    lets = {let.name: let for let in region.lets}
    yielded = {item.value for item in region.yields}
    users: dict[str, dict[str, None]] = {}
    for let in region.lets:
        for name in operands(let.value):
            users.setdefault(name, {})[let.name] = None
    best = names
    while yielded.isdisjoint(names) and all(len(users.get(name, ())) == 1 for name in names):
        names = tuple(user for name in names for user in users[name])
        alike = len(set(names)) == len(best) and one_row(region, names)
        if not alike or isinstance(lets[names[0]].value, Reduce | Stream):
            break
        if lets[names[0]].dtype.itemsize <= lets[best[0]].dtype.itemsize:
            best = names
    forms = [_form(lets, name)[1] for name in best]
    copies = ((name, dict(zip(forms[0], axes, strict=True))) for name, axes in zip(best, forms, strict=True))
    return KeptValue(best[0], lets[best[0]].dtype, tuple(copies))


def row_pitch(columns: int, size: int, part: int) -> int:
    """Bytes from one row that is kept to the next, of ``columns`` elements of ``size`` bytes. Where the ``part`` of a row that a warp stores
    together fills no more than half of the banks, two rows begin half of them apart, and are accessed in one turn."""
    half = BANKS // 2
    if part * size > half:
        return -(-columns * size // ACCESS) * ACCESS
    return half + max(0, -(-(columns * size - half) // BANKS)) * BANKS


def slab_bytes(columns: int) -> int:
    """Shared memory in which a warp regroups its sums, 16 rows at a time: the rows of a fragment begin in banks of their own."""
    return 4 * 16 * (columns + 8)


def _form(lets: Mapping[str, Let], root: str) -> tuple[tuple[object, ...], tuple[str, ...]]:
    """What ``root`` computes, with its operands in the order of a walk and the axes numbered as they are met; and the
    axes in that order."""
    axes: dict[str, str] = {}
    numbers: dict[str, int] = {}
    found: list[object] = []

    def renamed(index: Affine) -> Affine:
        for name in sorted(index.axes(), key=lambda name: (len(name), name)):
            axes.setdefault(name, f"x{len(axes)}")
        return index.substitute({name: axis(axes[name]) for name in index.axes()})

    stack = [(root, False)]
    while stack:
        name, ready = stack.pop()
        if name in numbers:
            continue
        value = lets[name].value
        if not ready:
            stack.append((name, True))
            stack += [(operand, False) for operand in reversed(operands(value))]
            continue
        numbers[name] = len(numbers)
        parts: tuple[object, ...] = tuple(numbers[operand] for operand in operands(value))
        match value:
            case Read(tensor, index_map):
                parts = (tensor, *(str(renamed(index)) for index in index_map))
            case Within(index, low, high):
                parts = (str(renamed(index)), low, high)
            case Reduce(op, bound, _):
                parts = (op, *parts, *(axes.setdefault(item.name, f"x{len(axes)}") for item in bound))
            case Stream(bound):
                parts = (
                    value.rounded,
                    *parts,
                    *(axes.setdefault(item.name, f"x{len(axes)}") for item in bound),
                )
            case _:
                parts = (getattr(value, "op", getattr(value, "bits", None)), *parts)
        found.append((type(value).__name__, lets[name].dtype, parts))
    return tuple(found), tuple(axes)
