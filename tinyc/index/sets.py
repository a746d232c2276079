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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import islpy as isl

from tinyc.ir.index import Affine, FloorDiv, affine
from tinyc.ir.tiny import Dim

from .spelling import without_modulo

Names = tuple[str, ...]
Index = Affine | Dim
"""An index: an Affine, an integer, or a text over names (``+ - *``, ``//`` by a positive integer)."""

MAX_OPERATIONS = 20_000_000
"""isl's count of elementary steps; about a second."""

MAX_DIVISIONS = 12
"""In one index. isl's effort grows exponentially with them: 0.2 s for 10, 16 s for 18."""


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


def _labelled(found: Any, kind: Any, letter: str) -> Any:
    for number in range(found.dim(kind)):
        found = found.set_dim_name(kind, number, f"{letter}{number}")
    return found


class Workspace:
    """Makes sets and maps. ``params``: names of symbolic sizes, known to be at least 1. ``spelled``: other names that
    texts carry in place of some (isl's own words, say)."""

    def __init__(
        self,
        params: Sequence[str] = (),
        max_operations: int = MAX_OPERATIONS,
        spelled: Mapping[str, str] | None = None,
    ) -> None:
        self.params: Names = tuple(params)
        self.spelled = dict(spelled or {})
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

    def points(self, names: Sequence[str], constraints: Iterable[tuple[Index, Index, bool]]) -> IntSet:
        """The points where left <= right or, with True, left < right, for each of ``constraints``."""
        own = tuple(names)
        parts = (
            f"{self.spell(a, own)} {'<' if less else '<='} {self.spell(b, own)}" for a, b, less in constraints
        )
        return self._set(own, list(parts))

    def access(self, names: Sequence[str], tensor: str, index: Sequence[Index]) -> IntMap:
        """``{ [names] -> tensor[index] }``; the dimensions of the range are ``a0, a1, …``."""
        domain = tuple(names)
        target = ", ".join(self.spell(part, domain) for part in index)
        left = ", ".join(f"x{number}" for number in range(len(domain)))
        with _limited():
            found = isl.Map(f"{self._head()}{{ [{left}] -> [{target}] }}", context=self._context)
            return IntMap(self, domain, tuple(f"a{number}" for number in range(len(index))), tensor, found)

    def spell(self, index: Index, names: Names) -> str:
        """The isl text of an index over ``names`` and the parameters. Raises NonAffine; TooComplex where reading the
        text would take isl minutes, which its count of operations does not see."""
        from tinyc.ir.dims import DimError, to_affine

        if isinstance(index, str):
            try:
                index = to_affine(index)
            except DimError as error:
                raise NonAffine(str(error)) from None
        if isinstance(index, int):
            return str(index)
        text = self._affine(index, names)
        if text.count("floor") > MAX_DIVISIONS:
            raise TooComplex(f"{index} has more than {MAX_DIVISIONS} divisions")
        return text

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

    def _positive(self) -> Any:
        """What is known of the parameters."""
        return self._set((), []).isl.params()

    def _set(self, names: Names, constraints: Sequence[str]) -> IntSet:
        if len(set(names)) != len(names):
            raise ValueError(f"{names} names a dimension twice")
        dims = ", ".join(f"x{number}" for number in range(len(names)))
        known = [f"p{number} >= 1" for number in range(len(self.params))]
        given = " and ".join([*known, *constraints]) or "1 = 1"
        with _limited():
            return IntSet(
                self, names, isl.Set(f"{self._head()}{{ [{dims}] : {given} }}", context=self._context)
            )

    def named(self, text: str, names: Names, others: Names = (), tuples: Names = ()) -> str:
        """An isl text with ``p0…``, ``x0…``, ``y0…`` and ``s0…`` under their real names again: the parameters,
        ``names``, ``others`` and ``tuples``."""
        groups = (("p", self.params), ("x", names), ("y", others), ("s", tuples))
        real = {
            f"{letter}{number}": self.spelled.get(name, name)
            for letter, group in groups
            for number, name in enumerate(group)
        }
        spelled = re.sub(r"(?<![A-Za-z_])[xyps][0-9]+", lambda found: real[found.group()], text)
        return without_modulo(spelled)


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

    def cylinder(self, names: Sequence[str]) -> IntSet:
        """The points over ``names`` whose shadow on mine is here; the inverse of :meth:`project`."""
        other = ", ".join(f"x{names.index(name)}" for name in self.names)
        mine = ", ".join(f"x{number}" for number in range(len(names)))
        ws = self.workspace
        with _limited():
            onto = isl.Map(f"{ws._head()}{{ [{mine}] -> [{other}] }}", context=ws._context)
            return IntSet(ws, tuple(names), self.isl.apply(onto.reverse()))

    def at(self, values: Mapping[str, int]) -> IntSet:
        """The points with these coordinates, over the other names."""
        found, left = self.isl, tuple(name for name in self.names if name not in values)
        with _limited():
            for number, name in reversed(list(enumerate(self.names))):
                if name in values:
                    fixed = found.fix_val(isl.dim_type.set, number, isl.Val(values[name], found.get_ctx()))
                    found = fixed.project_out(isl.dim_type.set, number, 1)
            return IntSet(self.workspace, left, found)

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
            found = self._numbers()
            if found is None:
                return None
            low, high = found.dim_min_val(number), found.dim_max_val(number)
            return (int(low.to_python()), int(high.to_python())) if low.is_int() and high.is_int() else None

    def _numbers(self) -> Any:
        """The set without parameters; None where it depends on one."""
        count = len(self.workspace.params)
        found = self.isl.gist_params(self.workspace._positive())
        if found.involves_dims(isl.dim_type.param, 0, count):
            return None
        return found.project_out(isl.dim_type.param, 0, count)

    def count(self) -> int | None:
        """How many points there are; None for an unbounded set or one of symbolic size."""
        if any(self.bounds(name) is None for name in self.names) and not self.is_empty():
            return None
        with _limited():
            found = self._numbers()
            return None if found is None else int(found.count_val().to_python())

    def constraints(self) -> tuple[tuple[tuple[Affine, bool], ...], ...]:
        """Per convex part, its constraints over the real names: the Affine is 0 (True) or at least 0 (False).

        Those on parameters alone that hold anyway (they are at least 1) are left out. Raises NonAffine where a part
        cannot be written without new variables.
        """
        with _limited():
            found = []
            known = self.isl.gist_params(self.workspace._positive())
            for part in known.remove_redundancies().get_basic_sets():
                if part.dim(isl.dim_type.div):
                    raise NonAffine(f"{self} needs variables of its own")
                found.append(tuple(self._constraint(each) for each in part.get_constraints()))
        return tuple(found)

    def _constraint(self, constraint: Any) -> tuple[Affine, bool]:
        terms = []
        for kind, names in ((isl.dim_type.set, self.names), (isl.dim_type.param, self.workspace.params)):
            for number, name in enumerate(names):
                value = constraint.get_coefficient_val(kind, number)
                terms.append((int(value.to_python()), name))
        constant = int(constraint.get_constant_val().to_python())
        return affine(constant, terms), bool(constraint.is_equality())

    def pieces(self) -> int:
        """Of how many convex parts isl makes the set up."""
        with _limited():
            return int(self.isl.n_basic_set())

    def __str__(self) -> str:
        """isl's notation, with the real names."""
        return self.workspace.named(str(_labelled(self.isl, isl.dim_type.set, "x")), self.names)


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

    def simplify(self, context: IntSet | None = None) -> IntMap:
        """coalesce, gist against ``context`` (points of the domain), remove_redundancies."""
        with _limited():
            made = self.isl.coalesce()
            if context is not None:
                made = made.gist_domain(context.isl)
            return self._made(made.remove_redundancies())

    def _made(self, made: Any) -> IntMap:
        return IntMap(self.workspace, self.names, self.target, self.tensor, made)

    def union(self, other: IntMap) -> IntMap:
        if (self.names, self.target, self.tensor) != (other.names, other.target, other.tensor):
            raise ValueError(f"maps of {self.names} to {self.tensor} and of {other.names} to {other.tensor}")
        with _limited():
            return self._made(self.isl.union(other.isl))

    def forward(self) -> IntMap:
        """Of a relation between points of one set: the pairs whose first comes before its second, lexicographically."""
        with _limited():
            return self._made(self.isl.intersect(isl.Map.lex_lt(self.isl.get_space().domain())))

    def varies(self, name: str) -> bool:
        """Of a relation between points of one set: whether some pair differs in that dimension."""
        number = self.names.index(name)
        with _limited():
            same = self.isl.equate(isl.dim_type.in_, number, isl.dim_type.out, number)
            return not self.isl.is_subset(same)

    def widened(self, count: int) -> IntMap:
        """Of a relation to ``tensor[a]``: the ``count`` neighbours ``tensor[a .. a + count - 1]`` (bytes of an element)."""
        text = f"{self.workspace._head()}{{ [a] -> [b] : a <= b < a + {count} }}"
        with _limited():
            return self._made(self.isl.apply_range(isl.Map(text, context=self.workspace._context)))

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
        plain = re.sub(r"(?<=[\[ ])\(([^()]*)\)(?=[,\]])", r"\1", text)
        return plain.replace("-> [", f"-> {self.tensor}[")

    def relation(self, source: str = "", target: str = "") -> str:
        """As a relation in isl's notation: ``{ source[i] -> target[i'] : i' > i }``, the second point's names primed."""
        found = _labelled(_labelled(self.isl, isl.dim_type.in_, "x"), isl.dim_type.out, "y")
        found = found.set_tuple_name(isl.dim_type.in_, "s0").set_tuple_name(isl.dim_type.out, "s1")
        primed = tuple(f"{name}'" for name in self.target)
        return self.workspace.named(str(found), self.names, primed, (source, target))

    def __str__(self) -> str:
        return self.function()


def well_formed(text: str, relation: bool = False) -> bool:
    """Whether isl reads ``text`` as a set, or else as a function or another ``relation``."""
    context = isl.Context()
    context.set_max_operations(MAX_OPERATIONS)
    try:
        (isl.Map if relation else isl.Set)(text, context=context)
    except isl.Error:
        return False
    return True
