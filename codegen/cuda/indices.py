"""Index expressions in CUDA C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyc.ir.index import Affine, FloorDiv, lit
from tinyc.ir.region import MemRef, Read, Region, Within, axis_sizes

from ..prepare import linear

NARROW = 2**31 - 2**15
"""Beyond it, an index is no ``int``; nor the place of a thread, of which a last block has more than there are points."""


def index_type(region: Region) -> str:
    """The type in which every index of ``region``, and every part of one, is exact."""
    sizes = axis_sizes(region)
    refs = {ref.name: ref for ref in region.inputs}
    most = max((ref.elements for ref in (*region.inputs, *region.outputs)), default=0)
    for let in region.lets:
        if isinstance(let.value, Read):
            position = linear(let.value.map, refs[let.value.tensor])
            most = max(most, *(_largest(each, sizes) for each in (*let.value.map, position)))
        elif isinstance(let.value, Within):
            most = max(most, _largest(let.value.index, sizes), abs(let.value.lo) + 1, abs(let.value.hi) + 1)
    return "int" if most < NARROW else "long long"


def _largest(expression: Affine, sizes: Mapping[str, int]) -> int:
    """No part of the sum is larger, whatever their signs."""
    total = abs(expression.const)
    for coef, atom in expression.terms:
        if isinstance(atom, FloorDiv):
            total += abs(coef) * max(_largest(atom.num, sizes), atom.den)
        else:
            total += abs(coef) * sizes[atom]
    return total


class Indices:
    """Writes index expressions. ``names``: of the axes' variables. ``used``: gets the functions of the library that are called."""

    def __init__(
        self, sizes: Mapping[str, int], names: Mapping[str, str], index: str, used: set[str]
    ) -> None:
        self.sizes, self.names, self.index, self.used = sizes, names, index, used

    def text(self, expression: Affine) -> str:
        """``expression``, to be put in brackets where it is part of another."""
        parts: list[str] = []
        for coef, atom in expression.terms:
            value = self.names[atom] if isinstance(atom, str) else self._divided(atom)
            body = value if abs(coef) == 1 else f"{abs(coef)} * {value}"
            parts.append(f"{'- ' if coef < 0 else '+ '}{body}")
        if expression.const or not parts:
            parts.append(f"{'- ' if expression.const < 0 else '+ '}{abs(expression.const)}")
        first, *rest = parts
        first = first.removeprefix("+ ").replace("- ", "-", 1)
        return " ".join([first, *rest])

    def _divided(self, atom: FloorDiv) -> str:
        low, _ = atom.num.bounds(self.sizes)
        if low >= 0:
            return f"(({self.text(atom.num)}) / {atom.den})"
        self.used.add("floor_div")
        return f"floor_div<{self.index}>({self.text(atom.num)}, {atom.den})"

    def element(self, ref: MemRef, index_map: Sequence[Affine]) -> str:
        """The position of an element, never outside the buffer: a dimension that is not proven inside is clamped."""
        proven: list[Affine] = []
        clamped: list[str] = []
        stride = ref.elements
        for expression, size in zip(index_map, ref.shape, strict=True):
            stride //= size
            low, high = expression.bounds(self.sizes)
            if low >= 0 and high < size:
                proven.append(expression * stride)
                continue
            self.used.add("inside")
            inside = f"inside<{self.index}>({self.text(expression)}, {size})"
            clamped.append(inside if stride == 1 else f"{stride} * {inside}")
        total = sum(proven, lit(0))
        parts = [] if clamped and total == lit(0) else [self.text(total)]
        return " + ".join([*parts, *clamped])
