"""Values that a kernel needs along a row and keeps there: one function at several names of an axis (document 004 §6.8.3).

In a Region a value is at a point, so the scores of a row are one let under the maximum, another under the sum, a third in
the result. A GPU computes such a row once, tiled, and keeps it on chip; ``tinyc.index.boundaries`` sees that it fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tinyc.ir.index import Affine, axis
from tinyc.ir.region import Let, Read, Reduce, Stream, Within, operands


def one_function(lets: Mapping[str, Let], names: Iterable[str]) -> bool:
    """Whether the lets ``names`` compute the same of their axes, whatever the axes are called."""
    return len({_form(lets, name) for name in names}) <= 1


def _form(lets: Mapping[str, Let], root: str) -> tuple[object, ...]:
    """What ``root`` computes: its operands in the order of a walk, axes numbered as they are met."""
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
                parts = (op, *parts, *(axes.get(item.name, item.size) for item in bound))
            case Stream(bound, _, _, _):
                parts = (*parts, *(axes.get(item.name, item.size) for item in bound))
            case _:
                parts = (getattr(value, "op", getattr(value, "bits", None)), *parts)
        found.append((type(value).__name__, lets[name].dtype, parts))
    return tuple(found)
