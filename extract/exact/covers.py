"""What all kernels that compute a value have in common, in a few cases: by it, a kernel that is not finished is known to be of no
use before it is."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from operator import add, le
from typing import TYPE_CHECKING, NamedTuple

from ..choice import Key

if TYPE_CHECKING:
    from .cases import Case
    from .scope import Scope

Shape = tuple[int, ...] | None

COVERS = 4
"""Of a value at most."""


class Cover(NamedTuple):
    """What some of the ways to have a value have in common: every one of them reads at least the buffers of the bit set
    ``reads``, and is at least ``work``, by field of the scope."""

    reads: int
    work: tuple[float, ...]


class Covers:
    """The covers of a scope's values: of each, every way to have it is in one. ``free``: values of which the work is not counted."""

    def __init__(self, scope: Scope, free: Collection[Key] = ()) -> None:
        self.scope, self.free = scope, free
        self._known: dict[tuple[Case, Shape], dict[int, list[Cover]]] = {}
        self._together: dict[Case, dict[tuple[Shape, tuple[int, ...]], list[Cover]]] = {}
        self._users_of: dict[int, set[int]] = {}

    def of(self, position: int, case: Case, shape: Shape) -> list[Cover]:
        """The ways to have a value within a kernel. ``shape``: what that fills, if it is known."""
        known = self._known.setdefault((case, shape), {})
        if position not in known:
            shaped = self.scope.amounts.shaped(case)
            for place in self._missing(position, known):  # operands come first
                alike = shape is not None and not shaped[place]
                known[place] = self.of(place, case, None) if alike else self._found(place, case, shape)
        return known[position]

    def _missing(self, position: int, known: Collection[int]) -> list[int]:
        """What a value is made of, itself among it, that is not known."""
        scope, found, stack = self.scope, {position}, [position]
        while stack:
            key = scope.order[stack.pop()]
            fresh = {scope.position[child] for child in scope.edges[key]} - found
            fresh = {place for place in fresh if place not in known}
            found |= fresh
            stack += fresh
        return sorted(found)

    def together(self, positions: tuple[int, ...], case: Case, shape: Shape) -> list[Cover]:
        """The ways to have all of these values within a kernel, each computed once."""
        together = self._together.setdefault(case, {})
        known = together.get((shape, positions))
        if known is None:
            known = together[shape, positions] = self._put_together(positions, case, shape)
        return known

    def _put_together(self, positions: tuple[int, ...], case: Case, shape: Shape) -> list[Cover]:
        found = [Cover(0, (0.0,) * len(self.scope.amounts.fields))]
        shaped, together = self.scope.amounts.shaped(case), self._together[case]
        of_tail: Shape = None
        for start in range(len(positions) - 1, -1, -1):
            tail = positions[start:]  # states have the values in common that are computed last
            of_tail = shape if shaped[tail[0]] else of_tail
            known = together.get((of_tail, tail))
            if known is None:
                known = together[of_tail, tail] = fewer(
                    [
                        Cover(a.reads | b.reads, tuple(map(max, a.work, b.work)))
                        for a in self.of(positions[start], case, shape)
                        for b in found
                    ]
                )
            found = known
        return found

    def clear(self) -> None:
        """Forgets all."""
        self._known.clear()
        self._together.clear()

    def forget(self, case: Case, positions: Collection[int]) -> None:
        """Of values that may be computed in fewer ways now, and of all that is made of them."""
        above = set[int]().union(*map(self._above, positions))
        for each, known in self._known.items():
            if each[0] == case:
                for place in above.intersection(known):
                    del known[place]
        together = self._together.get(case, {})
        for what in [what for what in together if not above.isdisjoint(what[1])]:
            del together[what]

    def _above(self, position: int) -> set[int]:
        """What is made of a value, itself among it."""
        if position not in self._users_of:
            found, stack = {position}, [position]
            while stack:
                fresh = self._users[stack.pop()] - found
                found |= fresh
                stack += fresh
            self._users_of[position] = found
        return self._users_of[position]

    @cached_property
    def _users(self) -> list[set[int]]:
        scope = self.scope
        found: list[set[int]] = [set() for _ in scope.order]
        for position, key in enumerate(scope.order):
            for child in scope.edges[key]:
                found[scope.position[child]].add(position)
        return found

    def filling(self, position: int, case: Case, shape: Shape) -> list[Cover]:
        """The ways to have a value in the kernel that fills a buffer with it: it is computed there even where all others read it."""
        if self.scope.order[position][0] not in self.scope.problem.stored:
            return self.together((position,), case, shape)
        return self._found(position, case, shape, filling=True)

    def _found(self, position: int, case: Case, shape: Shape, filling: bool = False) -> list[Cover]:
        scope = self.scope
        zero = (0.0,) * len(scope.amounts.fields)
        key, result = scope.order[position], list[Cover]()
        if scope.circle[position] >= 0:  # a part of it may be computed already
            return [Cover(scope.must((key,)), zero)]
        for number, option in enumerate(scope.options[key]):
            stored = key[0] in scope.problem.stored and option.item.head != "Read"
            if not filling and (stored or (case, position, number) in scope.dropped):
                continue
            own = zero if key in self.free else scope.amounts.of_option(position, number, case, shape)[0]
            read = scope.reads(key, option.item)
            children = dict.fromkeys(scope.position[child] for child in option.children)
            result += [
                Cover(read | each.reads, tuple(map(add, own, each.work)))
                for each in self.together(tuple(children), case, shape)
            ]
        return fewer(result) or [Cover(0, zero)]


def least(covers: Iterable[Cover]) -> tuple[float, ...]:
    """No more, of any work, than each of the covers."""
    return tuple(map(min, zip(*(each.work for each in covers), strict=True)))


def fewer(covers: Sequence[Cover]) -> list[Cover]:
    """A few covers that say no more than these do: without those that others imply, and the most alike made one."""
    if len(covers) < 2:
        return list(covers)
    kept: list[Cover] = []
    for _, each in sorted([(each[0].bit_count(), each) for each in covers]):
        reads, work = each
        for other in kept:
            if other[0] & ~reads == 0 and all(map(le, other[1], work)):
                break
        else:
            kept.append(each)
    if len(kept) > COVERS:
        kept.sort()
    while len(kept) > COVERS:  # of neighbours, the buffers with the largest bits are the same
        apart = [(one.reads ^ two.reads).bit_count() for one, two in itertools.pairwise(kept)]
        at = apart.index(min(apart))
        one, two = kept[at : at + 2]
        kept[at : at + 2] = [Cover(one.reads & two.reads, tuple(map(min, one.work, two.work)))]
    return kept
