"""The names of a Plan in its Region: axis parts, values, operations, buffers (document 004 §8, §6.12).

The document calls operations by what they do ("relu", "bias", "sum_k"), a Region's dump by their lets; a Plan may use
either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cached_property
from math import prod

from .region import (
    Axis,
    Binary,
    Cast,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Unary,
    free_axes,
    operands,
    row_axis,
)
from .roles import contraction_of
from .schedule import Contraction, Plan
from .streams import walk_of

PART = re.compile(r"[A-Za-z_]\w*(\.[oi]){0,2}")
"""``m``, ``m.o``, ``m.i``, ``m.i.o``, ``m.i.i``; a tile is split no further than once."""


class Scope:
    """The names that ``plan`` may use for ``region``. A contraction that the Plan means but does not spell out is the
    Region's only one."""

    def __init__(self, plan: Plan, region: Region) -> None:
        self.plan, self.region = plan, region
        self.contraction: Contraction | None = plan.contraction
        if self.contraction is None and plan.algo == "contraction":
            self.contraction = contraction_of(region)

    @cached_property
    def lets(self) -> dict[str, Let]:
        return {let.name: let for let in self.region.lets}

    @cached_property
    def free(self) -> dict[str, frozenset[str]]:
        return free_axes(self.region)

    @cached_property
    def buffers(self) -> dict[str, MemRef]:
        return {ref.name: ref for ref in (*self.region.inputs, *self.region.outputs)}

    @cached_property
    def sizes(self) -> dict[str, Axis]:
        """Every axis of the Region by its name."""
        found = {item.name: item for item in self.region.iters}
        for let in self.region.lets:
            if isinstance(let.value, Reduce | Stream):
                found |= {item.name: item for item in let.value.axes}
        return found

    @cached_property
    def groups(self) -> dict[str, tuple[Axis, ...]]:
        """What an axis name stands for: roles of the contraction first, then the Region's axes."""
        found: dict[str, tuple[Axis, ...]] = {name: (item,) for name, item in self.sizes.items()}
        if self.contraction is not None:
            for role, names in self.contraction.groups().items():
                axes = tuple(self.sizes[name] for name in names if name in self.sizes)
                if axes:
                    found[role] = axes
        return found

    # ---- axes -------------------------------------------------------------------------------------------

    def axes(self, part: str) -> tuple[Axis, ...]:
        """The axes that a part such as ``m.i.o`` is of. Raises KeyError."""
        return self.groups[part.split(".")[0]]

    def role(self, part: str) -> str | None:
        """b, m, n or k: the role that a part belongs to; also by the name of the only axis in the role."""
        name = part.split(".")[0]
        if self.contraction is None:
            return None
        groups = self.contraction.groups()
        if groups.get(name):
            return name
        return next((role for role, names in groups.items() if names == (name,)), None)

    def tile(self, part: str) -> int | None:
        """Points of one tile along the axes of ``part``; None where they are not cut."""
        if self.plan.tile is None:
            return None
        if self.plan.algo == "loops":
            last = row_axis(self.region)
            return self.plan.tile[1] if last is not None and part.split(".")[0] == last.name else None
        if self.plan.algo == "stream":
            return self._walked(part.split(".")[0])
        role = self.role(part)
        return dict(zip("mnk", self.plan.tile, strict=True)).get(role or "")

    def _walked(self, name: str) -> int | None:
        """Points of the tile along a stream's rows or scores, where one axis has them."""
        walk = walk_of(self.region)
        if walk is None or self.plan.tile is None:
            return None
        groups = zip((walk.rows, walk.axes), self.plan.tile, strict=False)
        found = (size for axes, size in groups if [axis.name for axis in axes if axis.size > 1] == [name])
        return next(found, None)

    def innermost(self, part: str) -> tuple[str, ...]:
        """The last axis of ``part`` that has more than one point, if any."""
        return tuple(item.name for item in self.axes(part) if item.size > 1)[-1:]

    def extent(self, part: str) -> int:
        return prod(item.size for item in self.axes(part))

    def tiles(self, part: str) -> int:
        """How many values the part has where it counts tiles (``m.o``) or whole points (``m``)."""
        size = self.tile(part)
        return self.extent(part) if "." not in part or size is None else -(-self.extent(part) // size)

    # ---- values -----------------------------------------------------------------------------------------

    def reads(self, name: str) -> Iterator[Read]:
        """The Reads that a let is computed from."""
        seen, pending = {name}, [name]
        while pending:
            value = self.lets[pending.pop()].value
            if isinstance(value, Read):
                yield value
            pending += [each for each in operands(value) if each not in seen]
            seen.update(operands(value))

    @cached_property
    def users(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.lets}
        for let in self.region.lets:
            for name in dict.fromkeys(operands(let.value)):
                found[name].append(let.name)
        return found

    def after(self, name: str) -> frozenset[str]:
        """The lets that are computed from a let, not it itself."""
        found: set[str] = set()
        pending = [name]
        while pending:
            fresh = [each for each in self.users[pending.pop()] if each not in found]
            found.update(fresh)
            pending += fresh
        return frozenset(found)

    def called(self, name: str, among: frozenset[str] | None = None) -> tuple[str, ...]:
        """The lets that ``name`` may mean, of ``among`` where given: a let of that name; operations of that name; or
        what a buffer of that name is combined with."""
        if name in self.lets:
            return (name,)
        lets = [let for let in self.region.lets if among is None or let.name in among]
        found = [let.name for let in lets if name in self._titles(let)]
        if not found and name in self.buffers:
            found = [let.name for let in lets if name in self._combined(let)]
        return tuple(found)

    def title(self, name: str, among: frozenset[str]) -> str:
        """What a Plan calls a let: as the document does where that means nothing else, else by the let's name."""
        let = self.lets[name]
        for title in (*sorted(self._combined(let)), *self._titles(let)[:1]):
            if self.called(title, among) == (name,):
                return title
        return name

    def _titles(self, let: Let) -> tuple[str, ...]:
        match let.value:
            case Unary(op, _) | Binary(op, _, _):
                return (op.lower(),)
            case Cast():
                return ("cast",)
            case Select():
                return ("select", "where")
            case Reduce(op, axes, _):
                spelled = f"{op.lower()}_{'_'.join(item.name for item in axes)}"
                tensorized = self.contraction is not None and let.name == self.contraction.reduce
                return (*([f"{op.lower()}_k"] if tensorized else []), spelled, op.lower())
            case Stream():
                return ("stream",)
        return ()

    def _combined(self, let: Let) -> frozenset[str]:
        """The buffers that a Binary combines with something else, through casts and views."""
        if not isinstance(let.value, Binary):
            return frozenset()
        found = set()
        for name in operands(let.value):
            value = self.lets[name].value
            while not isinstance(value, Read) and len(operands(value)) == 1 and not isinstance(value, Reduce):
                value = self.lets[operands(value)[0]].value
            if isinstance(value, Read):
                found.add(value.tensor)
        return frozenset(found)


def nearest(name: str, known: list[str]) -> str:
    """What may have been meant; "" where nothing is like it."""
    same = [each for each in known if each.lower() == name.lower()]
    return (*same, *get_close_matches(name, known, 1), "")[0]
