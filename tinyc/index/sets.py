"""Integer sets and maps with named dimensions: the one place that speaks to islpy.

isl counts dimensions by position; here they have names, and two operands must have the same ones. A dimension or a
parameter may bear any name (isl's own words too): inside they are ``x0, x1, …`` and ``p0, p1, …``, and texts for
people carry the real names again.

A :class:`Workspace` owns an isl context, so that one analysis neither shares state with another nor runs for ever:
beyond ``max_operations`` every call raises :class:`TooComplex`.

    ws = Workspace()
    tile = ws.box({"i": 4, "j": 8})
    near = tile.where("i + j", 0, 5)                      # 0 <= i + j < 5
    reads = ws.access(("i", "j"), "A", ("2*i", "j//3"))
    reads.image(near).bounds("a0")                        # (0, 6)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import islpy as isl

from tinyc.ir.index import Affine, FloorDiv
from tinyc.ir.tiny import Dim

Names = tuple[str, ...]
Index = Affine | Dim
"""An index: an Affine, an integer, or a text over names (``+ - *``, ``//`` by a positive integer)."""

MAX_OPERATIONS = 20_000_000
"""isl's count of elementary steps; about a second."""


class TooComplex(Exception):
    """isl took more than the workspace's ``max_operations``."""


class NonAffine(ValueError):
    """An expression that isl cannot hold: a product of two names, or a division by a name."""


@contextmanager
def _limited() -> Iterator[None]:
    try:
        yield
    except isl.Error as error:
        # our own texts are well-formed (Workspace.spell sees to that): where isl cannot read one, it ran out of steps
        if "maximal number of operations" in str(error) or "syntax error" in str(error):
            raise TooComplex(str(error)) from None
        raise


class Workspace:
    """Makes sets and maps. ``params``: names of symbolic sizes, known to be at least 1."""

    def __init__(self, params: Sequence[str] = (), max_operations: int = MAX_OPERATIONS) -> None:
        self.params: Names = tuple(params)
        self._context = isl.Context()
        self._context.set_max_operations(max_operations)

    def box(self, sizes: Mapping[str, Dim]) -> IntSet:
        """``0 <= name < size`` for every name."""
        names = tuple(sizes)
        parts = [f"0 <= x{number} < {self.spell(size, ())}" for number, size in enumerate(sizes.values())]
        return self._set(names, parts)

    def universe(self, names: Sequence[str]) -> IntSet:
        return self._set(tuple(names), [])

    def empty(self, names: Sequence[str]) -> IntSet:
        return self._set(tuple(names), ["1 = 0"])

    def access(self, names: Sequence[str], tensor: str, index: Sequence[Index]) -> IntMap:
        """``{ [names] -> tensor[index] }``; the dimensions of the range are ``a0, a1, …``."""
        domain = tuple(names)
        target = ", ".join(self.spell(part, domain) for part in index)
        left = ", ".join(f"x{number}" for number in range(len(domain)))
        with _limited():
            found = isl.Map(f"{self._head()}{{ [{left}] -> [{target}] }}", context=self._context)
            return IntMap(self, domain, tuple(f"a{number}" for number in range(len(index))), tensor, found)

    def spell(self, index: Index, names: Names) -> str:
        """The isl text of an index over ``names`` and the parameters. Raises NonAffine."""
        from tinyc.ir.dims import DimError, to_affine

        if isinstance(index, str):
            try:
                index = to_affine(index)
            except DimError as error:
                raise NonAffine(str(error)) from None
        if isinstance(index, int):
            return str(index)
        return self._affine(index, names)

    def _affine(self, index: Affine, names: Names) -> str:
        parts = [str(index.const)]
        for coef, atom in index.terms:
            if isinstance(atom, FloorDiv):
                text = f"floor(({self._affine(atom.num, names)})/{atom.den})"
            elif atom in names:
                text = f"x{names.index(atom)}"
            elif atom in self.params:
                text = f"p{self.params.index(atom)}"
            else:
                raise NonAffine(f"{atom} is neither a dimension nor a parameter")
            parts.append(f"{coef}*{text}")
        return " + ".join(parts)

    def _head(self) -> str:
        return f"[{', '.join(f'p{number}' for number in range(len(self.params)))}] -> "

    def _set(self, names: Names, constraints: Sequence[str]) -> IntSet:
        dims = ", ".join(f"x{number}" for number in range(len(names)))
        known = [f"p{number} >= 1" for number in range(len(self.params))]
        given = " and ".join([*known, *constraints]) or "1 = 1"
        with _limited():
            return IntSet(
                self, names, isl.Set(f"{self._head()}{{ [{dims}] : {given} }}", context=self._context)
            )

    def named(self, text: str, names: Names) -> str:
        """An isl text with ``x0…`` and ``p0…`` under their real names again."""
        real = {f"p{number}": name for number, name in enumerate(self.params)}
        real |= {f"x{number}": name for number, name in enumerate(names)}
        return re.sub(r"(?<![A-Za-z_])[xp][0-9]+", lambda found: real[found.group()], text)


@dataclass(frozen=True, eq=False)
class IntSet:
    """A set of integer points with named dimensions. Compare with :meth:`equals`."""

    workspace: Workspace
    names: Names
    isl: Any

    def _same(self, other: IntSet) -> None:
        if self.names != other.names or self.workspace is not other.workspace:
            raise ValueError(f"sets over {self.names} and {other.names}")

    def _made(self, made: Any) -> IntSet:
        return IntSet(self.workspace, self.names, made)

    def where(self, index: Index, low: Index | None = None, high: Index | None = None) -> IntSet:
        """The points with ``low <= index < high`` (None: no bound)."""
        spell = self.workspace.spell
        text, parts = spell(index, self.names), []
        if low is not None:
            parts.append(f"{spell(low, self.names)} <= {text}")
        if high is not None:
            parts.append(f"{text} < {spell(high, self.names)}")
        return self.intersect(self.workspace._set(self.names, parts))

    def intersect(self, other: IntSet) -> IntSet:
        self._same(other)
        with _limited():
            return self._made(self.isl.intersect(other.isl))

    def union(self, other: IntSet) -> IntSet:
        self._same(other)
        with _limited():
            return self._made(self.isl.union(other.isl))

    def subtract(self, other: IntSet) -> IntSet:
        self._same(other)
        with _limited():
            return self._made(self.isl.subtract(other.isl))

    def simplify(self, context: IntSet | None = None) -> IntSet:
        """coalesce, gist against ``context``, remove_redundancies: the same points (within the context)."""
        with _limited():
            found = self.isl.coalesce()
            if context is not None:
                self._same(context)
                found = found.gist(context.isl)
            return self._made(found.remove_redundancies())

    def project(self, names: Sequence[str]) -> IntSet:
        """The shadow on ``names``, in that order."""
        other = ", ".join(f"x{self.names.index(name)}" for name in names)
        mine = ", ".join(f"x{number}" for number in range(len(self.names)))
        ws = self.workspace
        with _limited():
            onto = isl.Map(f"{ws._head()}{{ [{mine}] -> [{other}] }}", context=ws._context)
            return IntSet(ws, tuple(names), self.isl.apply(onto))

    def is_empty(self) -> bool:
        with _limited():
            return bool(self.isl.is_empty())

    def contains(self, other: IntSet) -> bool:
        """Whether every point of ``other`` is in this set."""
        self._same(other)
        with _limited():
            return bool(other.isl.is_subset(self.isl))

    def equals(self, other: IntSet) -> bool:
        self._same(other)
        with _limited():
            return bool(self.isl.is_equal(other.isl))

    def sample(self) -> dict[str, int] | None:
        """Some point, by name; None where there is none."""
        with _limited():
            point = self.isl.sample_point()
            if point.is_void():
                return None
            value = point.get_coordinate_val
            return {
                name: int(value(isl.dim_type.set, number).to_python())
                for number, name in enumerate(self.names)
            }

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Least and greatest value of a dimension; None for an empty or unbounded set, or one of symbolic size."""
        number = self.names.index(name)
        with _limited():
            if self.workspace.params and self.isl.involves_dims(
                isl.dim_type.param, 0, len(self.workspace.params)
            ):
                return None
            low, high = self.isl.dim_min_val(number), self.isl.dim_max_val(number)
            return (int(low.to_python()), int(high.to_python())) if low.is_int() and high.is_int() else None

    def count(self) -> int | None:
        """How many points there are; None for an unbounded set or one of symbolic size."""
        if any(self.bounds(name) is None for name in self.names) and not self.is_empty():
            return None
        with _limited():
            return int(self.isl.count_val().to_python())

    def pieces(self) -> int:
        """Of how many convex parts isl makes the set up."""
        with _limited():
            return int(self.isl.n_basic_set())

    def __str__(self) -> str:
        """isl's notation, with the real names."""
        labelled = self.isl
        for number in range(len(self.names)):
            labelled = labelled.set_dim_name(isl.dim_type.set, number, f"x{number}")
        return self.workspace.named(str(labelled), self.names)


@dataclass(frozen=True, eq=False)
class IntMap:
    """A relation between points of ``names`` and elements ``tensor[target]``."""

    workspace: Workspace
    names: Names
    target: Names
    tensor: str
    isl: Any

    def on(self, domain: IntSet) -> IntMap:
        """Only for the points of ``domain``."""
        if domain.names != self.names:
            raise ValueError(f"a map of {self.names} on a set over {domain.names}")
        with _limited():
            made = self.isl.intersect_domain(domain.isl)
        return IntMap(self.workspace, self.names, self.target, self.tensor, made)

    def image(self, domain: IntSet) -> IntSet:
        """The elements that the points of ``domain`` touch."""
        if domain.names != self.names:
            raise ValueError(f"a map of {self.names} on a set over {domain.names}")
        with _limited():
            return IntSet(self.workspace, self.target, domain.isl.apply(self.isl))

    def preimage(self, elements: IntSet) -> IntSet:
        """The points that touch one of ``elements``."""
        if elements.names != self.target:
            raise ValueError(f"a map to {self.target} from a set over {elements.names}")
        with _limited():
            return IntSet(self.workspace, self.names, elements.isl.apply(self.isl.reverse()))

    def meets(self, other: IntMap) -> IntMap:
        """Pairs of points (mine, the other's) that touch one element: ``other⁻¹ after self``."""
        if len(self.target) != len(other.target):
            raise ValueError(f"maps to {self.target} and {other.target}")
        with _limited():
            made = self.isl.apply_range(other.isl.reverse())
        return IntMap(self.workspace, self.names, other.names, "", made)

    def simplify(self) -> IntMap:
        with _limited():
            made = self.isl.coalesce().remove_redundancies()
        return IntMap(self.workspace, self.names, self.target, self.tensor, made)

    def is_empty(self) -> bool:
        with _limited():
            return bool(self.isl.is_empty())

    def is_injective(self) -> bool:
        with _limited():
            return bool(self.isl.is_injective())

    def function(self) -> str:
        """As a piecewise multi-affine function, in isl's notation with the real names: ``{ [m, k] -> A[m, k] }``."""
        with _limited():
            found = isl.PwMultiAff.from_map(self.isl).coalesce()
        text = self.workspace.named(str(found), self.names)
        return text.replace("-> [", f"-> {self.tensor}[")

    def __str__(self) -> str:
        return self.function()
