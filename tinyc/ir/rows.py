"""Values that a kernel needs along a row and keeps there: one function at several names of an axis (document 004 §6.8.3).

In a Region a value is at a point, so the scores of a row are one let under the maximum, another under the sum, a third in
the result. A GPU computes such a row once, tiled, and keeps it on chip; ``tinyc.index.boundaries`` sees that it fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .index import Affine, axis
from .plan import Contraction
from .region import Let, Read, Reduce, Region, Stream, Within, axis_sizes, operands


def one_row(region: Region, names: Iterable[str]) -> bool:
    """Whether the lets ``names`` are one function along one row: equal but for the names of their axes, where at most one
    of the names that an axis goes by is an iter. (S[i0, r1] is of the row of S[i0, i1]; S[i1, i0] is another's.)"""
    lets, sizes = {let.name: let for let in region.lets}, axis_sizes(region)
    forms = [_form(lets, name) for name in names]
    if len({form for form, _ in forms}) > 1:
        return False
    iters = {item.name for item in region.iters}
    return all(
        len({sizes[name] for name in named}) == 1 and len(iters & set(named)) <= 1
        for named in zip(*(axes for _, axes in forms), strict=True)
    )


def kept_rows(region: Region, contraction: Contraction) -> tuple[str, ...]:
    """The lets that are the sum of a contraction at other points of its row."""
    return tuple(
        let.name
        for let in region.lets
        if isinstance(let.value, Reduce)
        and let.name != contraction.reduce
        and one_row(region, (let.name, contraction.reduce))
    )


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
            case Stream(bound, _, _, _):
                parts = (*parts, *(axes.setdefault(item.name, f"x{len(axes)}") for item in bound))
            case _:
                parts = (getattr(value, "op", getattr(value, "bits", None)), *parts)
        found.append((type(value).__name__, lets[name].dtype, parts))
    return tuple(found), tuple(axes)
