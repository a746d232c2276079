"""What kernels are made of: the values of a program, or of a part of it, numbered, with the ways to compute each. What these do says
``amounts.py``; ``columns.py`` looks for kernels in a Scope.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import add, le
from typing import TYPE_CHECKING

from ..choice import LOOPED, Key, bound_axes, outside
from ..cost.model import Work, amounts_of, estimates_by_formulas
from ..problem import Option, Problem
from ..view import Buffer, Item, Way
from .amounts import Amounts
from .cases import LOOPS, SCAN, STREAMS, Case, Cases, Held
from .chains import chains, firsts
from .contents import Contents
from .covers import Covers
from .dag import components
from .given import Given
from .hosts import Hosts
from .inside import INSIDE, origins
from .merged import Merging, merged
from .part import Part
from .ranks import ranks

if TYPE_CHECKING:
    from .moves import Moves

Context = tuple[tuple[str, object], ...]
"""For each axis of a value that a reduction binds, which one: (its position, its own context)."""

Contexts = frozenset[Context]
Open = tuple[tuple[int, Contexts], ...]


class Scope:
    """What kernels are made of: the values of a program, or of a part of it. ``loosely``: the buffers of a chain are taken
    as one (``chains.py``), which gives a bound; ``merging``: or more of them (``merged.py``)."""

    def __init__(
        self,
        problem: Problem,
        part: Part,
        loosely: bool = False,
        hosts: Hosts | None = None,
        merging: Merging | None = None,
    ) -> None:
        self.problem, self.part = problem, part
        self.hosts = hosts or Hosts(problem)
        buffers = problem.view.buffers
        reads = (
            option.item.payload[0]
            for found in part.options.values()
            for option in found
            if option.item.head == "Read"
        )
        names = dict.fromkeys(str(name) for name in (*part.given, *part.buffers, *reads))
        self.bits = {name: 1 << number for number, name in enumerate(names)}
        self.same = self._twins()  # a buffer that is filled as another is, or with another, -> that
        self.chained: dict[str, str] = {}
        self.members: Mapping[str, Sequence[str]] = {}
        self.merges = loosely and merging is not None
        single = [name for name in part.buffers if name not in self.same and name not in part.made]
        if loosely and merging is not None:
            partial = [names for each in part.groups.values() for names in each.partial]
            self.chained, self.members = merged(problem, part.options, single, partial, merging)
        elif loosely:
            self.chained |= firsts(problem, chains(problem, part.options, single))
        if loosely:
            self.same |= self.chained
            self.same = {name: self.same.get(other, other) for name, other in self.same.items()}
        self.bits |= {name: self.bits[other] for name, other in self.same.items()}
        self.standing = frozenset(self.chained.values())  # for buffers of other types
        self.buffers = tuple(name for name in part.buffers if name not in self.same)
        self.inside = 1 << len(names)  # for what is computed of what is given
        self.given = Given(self, self.inside << 1)
        self.cases = Cases(self)
        self.sizes: dict[int, int] = dict.fromkeys(
            (
                self.inside,
                self.given.tileable,
                *self.given.marks.values(),
                *self.given.only,
                *itertools.chain(*self.given.times.values()),
            ),
            0,
        )
        for name, bit in self.bits.items():
            size = part.inside_bytes if name == INSIDE.payload[0] else problem.works.bytes(buffers[name])
            self.sizes[bit] = min(size, self.sizes.get(bit, size))
        self.width = max(self.sizes, default=0).bit_length()
        self.filled = sum(
            {bit for name, bit in self.bits.items() if name in buffers and buffers[name].arg is None}
        )
        options = part.options
        self.options = {
            key: [option for option in found if all(child in options for child in option.children)]
            for key, found in options.items()
        }
        self.edges = {
            key: frozenset(child for option in found for child in option.children)
            for key, found in self.options.items()
        }
        self.order: list[Key] = []
        self.circle: list[int] = []  # of each position: where its circle begins, or -1 where it is in none
        for circle in components(self.edges):
            first = -1 if len(circle) == 1 and circle[0] not in self.edges[circle[0]] else len(self.order)
            self.order += sorted(circle)
            self.circle += [first] * len(circle)
        self.position = {key: number for number, key in enumerate(self.order)}
        self.roofline = estimates_by_formulas(problem.model)
        self.unwalked = frozenset(self._unwalked())
        self.dropped = set(self.unwalked)
        self.moves: dict[object, Moves] = {}  # of searches from one root, by what they are of
        self.amounts = Amounts(self)
        self.covers = Covers(self)
        self._covers: dict[frozenset[Key], Covers] = {frozenset(): self.covers}
        self.levels = part.levels
        self._operands = [{self.position[child] for child in self.edges[key]} for key in self.order]
        self._ranks: dict[Key, Mapping[int, int]] = {}
        self._constants: dict[Case, Mapping[int, tuple[tuple[Key, Item], Held]]] = {}
        self._bytes: dict[int, int] = {}
        self._moving: dict[int, float] = {}
        self._longer: dict[tuple[Case, int], Sequence[float]] = {}
        self._steps: dict[tuple[int, int, Contexts], tuple[tuple[int, Contexts], ...]] = {}

    def _unwalked(self) -> set[tuple[Case, int, int]]:
        """The ways to compute what a Stream weights, in a kernel that walks its scores: matrix units take it as it is loaded. And the sums
        that are Contracts as well: these multiply what is loaded."""
        if self.problem.tiling is None:
            return set()
        return {
            (SCAN, position, number)
            for position, key in enumerate(self.order)
            for number, option in enumerate(self.options[key])
            if self._weighs(key, option) or (option.item.head == "Reduce" and self._contracts(key))
        }

    def computes(self, position: int, number: int) -> bool:
        """Whether a way computes what matrix units would load: what a Stream weights, or what a product multiplies."""
        key = self.order[position]
        option = self.options[key][number]
        multiplied = key in self._multiplied and option.item.head not in ("Read", "Const", "Cast", "Select")
        return self.problem.tiling is not None and (multiplied or self._weighs(key, option))

    def _weighs(self, key: Key, option: Option) -> bool:
        # a product may load the same and compute it
        return (
            key[0] in self.problem.weighted
            and not key[1]
            and option.item.head not in ("Read", "Const", "Cast")
        )

    def _contracts(self, key: Key) -> bool:
        return any(option.item.head == "Contract" for option in self.options[key])

    @cached_property
    def _multiplied(self) -> frozenset[Key]:
        """What sums multiply that are Contracts as well, behind casts and guards."""
        sums = (option for key in self.order if self._contracts(key) for option in self.options[key])
        bodies = (option.children[0] for option in sums if option.item.head == "Reduce")
        products = (option for body in bodies for option in self.options[body] if option.item.op == "MUL")
        found = {child for product in products for child in product.children}
        stack = list(found)
        while stack:
            for option in self.options[stack.pop()]:
                past = {"Cast": option.children[:1], "Select": option.children[1:2]}.get(option.item.head, ())
                stack += [child for child in past if child not in found]
                found |= {*past}
        return frozenset(found)

    def _twins(self) -> dict[str, str]:
        """Buffers that hold the same in the same order, under two shapes: one of them is enough for all that read either."""
        problem, first = self.problem, dict[object, str]()
        found: dict[str, str] = {}
        for name in self.part.buffers:
            buffer = problem.view.buffers[name]
            what = frozenset(way.root for way in buffer.ways), problem.works.bytes(buffer), buffer.dtype
            other = first.setdefault(what, name)
            if other != name and name not in self.part.made:
                found[name] = other
        return found

    def ways(self, name: str) -> list[tuple[Buffer, Way]]:
        """How a buffer may be filled, or one that is taken as it; of those with one root the first."""
        buffers = [self.problem.view.buffers[each] for each in self.members.get(name, (name,))]
        found: dict[str, tuple[Buffer, Way]] = {}
        for buffer in buffers:
            for way in reversed(buffer.ways):
                found[way.root] = buffer, way
        return list(found.values())

    def grouped(self, root: Key) -> frozenset[Key]:
        """A value of what is made, and all that is counted where it is used."""
        view = self.problem.view
        for each in self.part.groups.values():
            if view.origin(root[0]) in origins(self.problem, (each.name,)):
                return frozenset({root, *(key for key in self.order if view.origin(key[0]) in each.counted)})
        return frozenset({root})

    def covers_without(self, free: frozenset[Key]) -> Covers:
        """Where the work of these values is not counted."""
        if free not in self._covers:
            self._covers[free] = Covers(self, free)
        return self._covers[free]

    def bytes(self, reads: int) -> int:
        """Of a set of buffers."""
        if reads not in self._bytes:
            self._bytes[reads] = sum(self.sizes[bit] for bit in bits(reads))
        return self._bytes[reads]

    @cached_property
    def everything(self) -> Work:
        """The work of reading all that there is."""
        return Work(bytes_read=sum(self.sizes.values()))

    def drop(self, worth: Mapping[str, float]) -> None:
        """Leaves out the ways to compute a value within a kernel that cost more than to fill a buffer of it and read that.
        ``worth``: what it costs at most to fill a buffer, with all that it needs.

        What a way costs at least is what a kernel that reads all that there is takes longer with it: more is hidden
        behind its memory than behind that of any other. That is so of a Roofline; of other models nothing is known."""
        if not self.roofline:
            return
        fewer: dict[Case, set[int]] = {}
        for position in sorted({place for name in worth for place in self._readers.get(name, ())}):
            key = self.order[position]
            limit = float("inf")
            for option in self.options[key]:
                name = str(option.item.payload[0]) if option.item.head == "Read" else ""
                name = self.same.get(name, name)
                if name in worth:
                    read = self.problem.works.work(key, option.item) + Work(
                        bytes_read=self.sizes[self.bits[name]],
                        reread_bytes=self.problem.works.fetched(
                            key, option.item
                        ),  # as often as the way would be computed
                    )
                    limit = min(limit, worth[name] + self.problem.model.seconds(read))
            if limit < float("inf"):
                for case in self._ways:
                    for number, seconds in enumerate(self._least(case, position)):
                        if seconds >= limit and (case, position, number) not in self.dropped:
                            self.dropped.add((case, position, number))
                            fewer.setdefault(case, set()).add(position)
        for case, positions in fewer.items():
            for covers in self._covers.values():
                covers.forget(case, positions)
        if fewer:
            self.moves.clear()

    @cached_property
    def deeper(self) -> frozenset[int]:
        """The values of which some way computes something of what is given, by position."""
        found: set[int] = set()
        grown = -1
        while grown < len(found):  # of a circle, some come before what they need
            grown = len(found)
            for position, key in enumerate(self.order):
                if position not in found and any(
                    option.item is INSIDE or any(self.position[child] in found for child in option.children)
                    for option in self.options[key]
                ):
                    found.add(position)
        return frozenset(found)

    def searched(self) -> None:
        """Forgets what is only of use to those who look for kernels: it is most of what there is of a scope, which is a circle of
        references and stays until these are looked for."""
        for covers in self._covers.values():
            covers.clear()
        self.moves.clear()
        self.amounts.forget()
        self._steps.clear()
        self._longer.clear()

    def ranks(self, root: Key) -> Mapping[int, int]:
        """Of each value that there may be in a kernel from ``root``, by position, in which order it is decided (``ranks.py``)."""
        if root not in self._ranks:
            beneath = [self.position[key] for key in self.cases.beneath(root)]
            self._ranks[root] = ranks(beneath, self._operands, self.circle)
        return self._ranks[root]

    def readable(self, key: Key) -> Iterator[str]:
        """The buffers that a value may be read from."""
        for option in self.options[key]:
            if option.item.head == "Read" and option.item is not INSIDE:
                yield str(option.item.payload[0])

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        """By buffer, the values that may be read from it as they are, by position."""
        found: dict[str, list[int]] = {}
        for position, key in enumerate(self.order):
            for name in () if key[1] else self.readable(key):
                found.setdefault(self.same.get(name, name), []).append(position)
        return found

    @cached_property
    def _ways(self) -> dict[Case, list[list[tuple[float, ...]]]]:
        """For each way to compute a value, the work that it is at least, with all that it is computed from."""
        zero = (0.0,) * len(self.amounts.fields)
        result: dict[Case, list[list[tuple[float, ...]]]] = {}
        for case in (LOOPS, STREAMS, *self.cases.tiled):
            least: dict[Key, tuple[float, ...]] = {}
            found: list[list[tuple[float, ...]]] = []
            for position, key in enumerate(self.order):
                ways: list[tuple[float, ...]] = []
                for number, option in enumerate(self.options[key]):
                    own, _ = self.amounts.of_option(position, number, case)
                    below = [least.get(child, zero) for child in option.children]
                    more = map(max, *below) if len(below) > 1 else below[0] if below else zero
                    ways.append(tuple(map(add, own, more)))
                least[key] = tuple(map(min, *ways)) if len(ways) > 1 else ways[0] if ways else zero
                found.append(ways)
            result[case] = found
        return result

    def _least(self, case: Case, position: int) -> Sequence[float]:
        """For each way to compute a value, what a kernel takes longer with it at least; 0 of reading it."""
        known = self._longer.get((case, position))
        if known is None:
            timer, most = self.problem.running.timer(None), amounts_of(self.everything)
            before = timer(most)
            known = self._longer[case, position] = [
                0.0 if _reads(option) else timer(self.amounts.values(way, most)) - before
                for option, way in zip(
                    self.options[self.order[position]], self._ways[case][position], strict=True
                )
            ]
        return known

    @cached_property
    def at_hand(self) -> dict[Case, list[list[int]]]:
        """For each way to compute a value, the buffers from which it can be read with no more work: where a kernel reads
        one of them anyway, it has no use for the way."""
        return {
            case: [
                [
                    0 if _reads(option) else self._instead(position, way, case)
                    for option, way in zip(self.options[key], found[position], strict=True)
                ]
                for position, key in enumerate(self.order)
            ]
            for case, found in self._ways.items()
        }

    def _instead(self, position: int, way: tuple[float, ...], case: Case) -> int:
        mask, key = 0, self.order[position]
        looped = case.how in LOOPED and self.problem.tiling is not None
        if looped and not outside(self.problem.view.free[key[0]]):
            return 0  # how often loops fetch it again is not in these works
        for number, option in enumerate(self.options[key]):
            if _reads(option) and all(map(le, self.amounts.of_option(position, number, case)[0], way)):
                mask |= self.bits[str(option.item.payload[0])]
        return mask

    def moving(self, bit: int) -> float:
        """What it costs by itself to read a buffer."""
        if bit not in self._moving:
            self._moving[bit] = self.problem.model.seconds(Work(bytes_read=self.bytes(bit)))
        return self._moving[bit]

    def reads(self, key: Key, item: Item) -> int:
        """The bit of the buffer that an item reads."""
        if item.head != "Read":
            return 0
        bit = self.bits[str(item.payload[0])]
        if item is not INSIDE:
            return bit
        return self.inside | self.given.mark(key) | (bit if key in self.part.inside_reads else 0)

    def constants(self, case: Case) -> Mapping[int, tuple[tuple[Key, Item], Held]]:
        """By position, the values that are constants and no work, each as what it is computed, and what it makes a kernel hold: what
        needs one has it at once."""
        if case not in self._constants:
            found: dict[int, tuple[tuple[Key, Item], Held]] = {}
            for position, key in enumerate(self.order):
                options = self.options[key]
                if (
                    len(options) == 1
                    and options[0].item.head == "Const"
                    and key[0] not in self.problem.stored
                ):
                    work, marks = self.amounts.of_option(position, 0, case)
                    if not any(work):
                        found[position] = (key, options[0].item), marks
            self._constants[case] = found
        return self._constants[case]

    def steps(self, position: int, number: int, contexts: Contexts) -> tuple[tuple[int, Contexts], ...]:
        """The operands of an option, with the contexts in which they are evaluated."""
        found = self._steps.get((position, number, contexts))
        if found is None:
            option = self.options[self.order[position]][number]
            bound, free = bound_axes(option.item), self.problem.view.free
            needed: dict[int, set[Context]] = {}
            for context in contexts:
                inner: dict[str, object] = dict(context) | dict.fromkeys(bound, (position, context))
                for child in option.children:
                    own = tuple((axis, inner[axis]) for axis in sorted(free[child[0]]) if axis in inner)
                    needed.setdefault(self.position[child], set()).add(own)
            found = tuple((child, frozenset(own)) for child, own in needed.items())
            self._steps[position, number, contexts] = found
        return found

    @cached_property
    def contents(self) -> Contents:
        return Contents(self)

    @cached_property
    def _must(self) -> dict[Key, int]:
        """The filled buffers that every kernel reads which computes a value: of what its options must read, what they
        have in common."""
        found = dict.fromkeys(self.options, self.filled)
        shrunk = True
        while shrunk:
            shrunk = False
            for key in self.order:
                common = self.filled
                for option in self.options[key]:
                    own = self.reads(key, option.item) & self.filled
                    for child in option.children:
                        own |= found[child]
                    common &= own
                if common != found[key]:
                    found[key], shrunk = common, True
        return found

    def must(self, keys: Iterable[Key]) -> int:
        """The filled buffers that every kernel reads which computes one of these values."""
        found = self.filled
        for key in keys:
            found &= self._must.get(key, self.filled)
        return found


def _reads(option: Option) -> bool:
    return option.item.head == "Read" and option.item is not INSIDE


def bits(mask: int) -> Iterator[int]:
    """Of a bit set, one by one."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low
