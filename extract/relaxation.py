"""One relaxation over the e-graph: the cheapest way to compute every expression class and to fill every buffer.

A cost is a set, so what is shared is paid once: the classes evaluated within the kernel, the buffers that it reads,
and the buffers that must be filled for it. What depends on the axes of a reduction belongs to that reduction alone:
two sums over the same values evaluate them twice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .choice import Choice, Kernel, Key, bound_axes, tileable
from .cost.model import Work
from .pricing import priced
from .problem import Option, Problem
from .view import Buffer, Item, Way

SWEEPS = 6
"""Relaxations per pass at most; an order that follows the operands needs two."""

BEST, PLAIN, STREAMED = range(3)
"""The ways of a value that are kept: the cheapest, the cheapest without a reduction in this kernel, and the cheapest by
a Stream, whose scan another Stream of the kernel may share."""

TIE = 1e-6
"""Costs that differ by less, relatively, are equal: the first way found is kept."""


@dataclass(slots=True)
class _Best:
    total: float
    own: float  # of the option, and of all that only its reduction evaluates
    local: int  # bit set of keys evaluated in this kernel, for all to share
    inside: int  # bit set of all keys evaluated in this kernel
    reads: int  # bit set of buffers that this kernel reads
    needs: int  # bit set of buffers to be filled, transitively
    mixed: bool  # holds a contraction beside another reduction: then none of them can be tiled
    option: Option
    ways: tuple[int, ...] = ()  # per operand, which way is taken: BEST, PLAIN or STREAMED
    loose: bool = False  # holds a reduction that is not under a scan


class Pass:
    """One relaxation. The buffers in ``paid`` are free to fill, those in ``banned`` are never read, and the cost of
    filling is divided by the number in ``shares`` of those that pay it."""

    def __init__(
        self,
        problem: Problem,
        paid: frozenset[str] = frozenset(),
        banned: frozenset[str] = frozenset(),
        shares: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.problem, self.paid, self.banned, self.shares = problem, paid, banned, shares
        self.view, self.model = problem.view, problem.model
        self.order, self.bit, self.number = problem.order, problem.bit, problem.number
        # a value is read from its own buffer, which others may share, where that costs hardly more than computing it
        self.near = self.model.hardware.launch / 20
        self.read_cost = problem.read_cost
        # the ways other than the best have numbers of their own
        self.local_cost = [0.0] * (3 * len(self.order))
        self.untiled_cost = [0.0] * len(self.order)  # what a contraction costs more where it cannot be tiled
        self.reductions = 0  # bit sets of the keys that are computed by a reduction, and by a contraction
        self.contractions = 0
        self.scans = 0
        self.bases = 0  # of those that are computed by a contraction over output axes
        self.alone = 0  # of those that are computed by a contraction whose tiles are known
        self.fill_cost = [0.0] * len(problem.names)
        self.charged = 0  # bit set of the buffers that cost something to fill
        self.whole_cost = [0.0] * len(problem.names)  # to fill a buffer and all that it needs
        self.best: dict[Key, _Best] = {}
        self.plain: dict[Key, _Best] = {}  # the cheapest way that holds no reduction in this kernel
        self.streamed: dict[Key, _Best] = {}
        self.fill: dict[str, _Best] = {}
        self.way: dict[str, Way] = {}
        self.stale = bytearray(b"\1" * len(self.order))  # per key, whether what it depends on has changed

    def solve(self) -> Choice | None:
        for _ in range(SWEEPS):
            for number, key in enumerate(self.order):
                if self.stale[number]:
                    self.stale[number] = 0
                    if self._relax(key):
                        self._touch(self.problem.users[number])
            if not any(self.stale):
                break
        return self._choice()

    def _touch(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.stale[number] = 1

    # ---- relaxation ----

    def _relax(self, key: Key) -> bool:
        """Finds the cheapest way for ``key`` and for the buffers that it fills; whether the way has changed."""
        number = self.bit[key]
        computed: list[_Best] = []
        plain: list[_Best] = []
        for option in self.problem.options[key]:
            if option.item.head != "Read":
                self._compute(key, option, computed, plain)
        if not key[1]:
            for buffer, way in self.problem.filled_by.get(key[0], ()):
                self._relax_fill(key, buffer, way, computed)
        best: _Best | None = None
        for found in () if key[0] in self.problem.stored else computed:
            if best is None or found.total < best.total * (1 - TIE):
                best = found
        for found in self._reads(key, number):
            if best is None or found.total < best.total + self.near:
                best = found
        if best is None:
            return False
        known, known_plain = self.best.get(key), self.plain.get(key)
        self.best[key] = best
        bit = 1 << number
        head = best.option.item.head
        self.local_cost[number], self.untiled_cost[number] = best.own, best.option.untiled
        self.reductions = self.reductions | bit if head in ("Reduce", "Contract") else self.reductions & ~bit
        self.contractions = self.contractions | bit if head == "Contract" else self.contractions & ~bit
        self.scans |= bit if head == "Scan" else 0
        base = head == "Contract" and tileable(self.view, key[0], best.option.item)
        self.bases = self.bases | bit if base else self.bases & ~bit
        tiled = self.problem.schedules.get((best.option.item, False)) is not None
        self.alone = self.alone | bit if tiled else self.alone & ~bit
        self._relax_plain(key, best, plain)
        return _differs(known, best) or _differs(known_plain, self.plain.get(key))

    def _relax_plain(self, key: Key, best: _Best, plain: list[_Best]) -> None:
        if not best.inside & (self.reductions | self.scans):
            self.plain[key] = best
            return
        other = self.bit[key] + len(self.order)
        if key[0] in self.problem.stored:
            plain = []
        read = min(self._reads(key, other), key=lambda way: way.total, default=None)
        found = min(plain, key=lambda way: way.total, default=read)
        # a value's own buffer is the one that other uses of it would read, so it is preferred while they are close
        if (
            read is not None
            and found is not None
            and read.total < found.total + self.model.hardware.launch / 2
        ):
            found = read
        if found is not None:
            self.plain[key] = found
            self.local_cost[other] = found.own

    def _reads(self, key: Key, number: int) -> Iterator[_Best]:
        for option in self.problem.options[key]:
            if option.item.head == "Read" and (found := self._read(1 << number, option)) is not None:
                yield found

    def _relax_fill(self, key: Key, buffer: Buffer, way: Way, computed: list[_Best]) -> None:
        number = self.number[buffer.cls]
        copies = (
            found for found in self._reads(key, self.bit[key]) if found.option.item.payload[0] != buffer.cls
        )
        best: _Best | None = None
        least = math.inf  # with what it takes more where the buffer has few points
        for found in (*computed, *copies):
            if not found.needs >> number & 1:
                cost = found.total + self._idle(found, way) + self._loose(found) - found.option.copied
                if cost < least:
                    best, least = found, cost
        known = self.fill.get(buffer.cls)
        if best is None:
            return
        other = self.way.get(buffer.cls, way)
        if (
            known is not None
            and other != way
            and known.total + self._idle(known, other) - known.option.copied <= least
        ):
            return
        self.fill[buffer.cls], self.way[buffer.cls] = best, way
        needed = self._sum(self.fill_cost, best.needs & self.charged)
        if buffer.cls not in self.paid:
            written = self.model.seconds(Work(bytes_written=self.problem.bytes(buffer)))
            whole = least - needed + written + self.model.hardware.launch
            self.fill_cost[number] = whole / self.shares.get(buffer.cls, 1)
            self.charged |= 1 << number
        self.whole_cost[number] = needed + self.fill_cost[number]
        if _differs(known, best):
            self._touch(self.problem.readers.get(buffer.cls, ()))

    def _idle(self, found: _Best, way: Way) -> float:
        """What loops over few points take more than on a machine that is evenly full; products in tiles and Streams have
        it in their own costs."""
        busy = self.problem.idle(way.shape) - 1
        if busy <= 0 or found.inside & (self.alone | self.scans):
            return 0.0
        moved = self._sum(self.read_cost, found.reads) + self._sum(self.fill_cost, found.needs & self.charged)
        return max(0.0, found.total - moved - found.option.copied) * busy

    def _loose(self, found: _Best) -> float:
        """What a kernel's contractions take more because none of them is at its output axes: there is no row to keep."""
        products = found.inside & self.contractions
        if not products or found.mixed or found.inside & self.scans or products & self.bases:
            return 0.0
        return self._sum(self.untiled_cost, products)

    def _compute(self, key: Key, option: Option, computed: list[_Best], plain: list[_Best]) -> None:
        """Adds the cheapest way to compute ``key`` by an option that is no Read, and the one without reductions."""
        number, count = self.bit[key], len(self.order)
        own = 1 << number | 1 << number + count | 1 << number + 2 * count
        parts = [self.best.get(child) for child in option.children]
        ready = [part for part in parts if part is not None and not part.inside & own]
        if len(ready) < len(parts):
            return  # an operand is not known yet, or needs this value
        found = self._combine(1 << number, option, ready)
        if self.problem.scans:
            found = self._stream(key, option, ready, found, own)
        others = [self.plain.get(child) for child in option.children]
        reduced = self.reductions | self.scans
        reducing = [bool(part.inside & reduced) for part in ready]
        if found.mixed:
            # a contraction can be tiled where the other reductions come from buffers
            able = [
                slow and other is not None and not other.inside & own
                for slow, other in zip(reducing, others, strict=True)
            ]
            for taken in itertools.product(*((BEST, PLAIN) if each else (BEST,) for each in able)):
                if any(taken):
                    chosen = [o if take else p for take, o, p in zip(taken, others, ready, strict=True)]
                    way = self._combine(1 << number, option, chosen, taken)  # type: ignore[arg-type]
                    found = way if way.total < found.total else found
        computed.append(found)
        if option.item.head in ("Reduce", "Contract", "Scan", "Stream"):
            return
        if not found.inside & reduced:
            plain.append(found)
        elif all(other is not None and not other.inside & own for other in others):
            ways = tuple(PLAIN if slow else BEST for slow in reducing)
            chosen = [o if way else p for way, o, p in zip(ways, others, ready, strict=True)]
            plain.append(self._combine(1 << number + count, option, chosen, ways))  # type: ignore[arg-type]

    def _stream(self, key: Key, option: Option, ready: list[_Best], found: _Best, own: int) -> _Best:
        """The cheaper of ``found`` and the way by the operands' Streams, which is kept as the streamed one."""
        if option.item.head in ("Reduce", "Contract", "Scan"):
            return found
        others = [self.streamed.get(child) for child in option.children]
        ways = tuple(STREAMED if o is not None and not o.inside & own else BEST for o in others)
        if option.item.head == "Stream":
            ways = (BEST,) * len(others)
        elif not any(ways):
            return found
        chosen = [o if o is not None and way else p for way, o, p in zip(ways, others, ready, strict=True)]
        number = self.bit[key] + 2 * len(self.order)
        streamed, known = self._combine(1 << number, option, chosen, ways), self.streamed.get(key)
        if known is None or known.option is option or streamed.total < known.total:
            self.streamed[key], self.local_cost[number] = streamed, streamed.own
            if _differs(known, streamed):
                self._touch(self.problem.users[self.bit[key]])
        if option.item.head == "Stream":
            return found
        way = self._combine(1 << self.bit[key], option, chosen, ways)
        return way if way.total < found.total else found

    def _combine(
        self, own_bit: int, option: Option, parts: Sequence[_Best], ways: tuple[int, ...] = ()
    ) -> _Best:
        item = option.item
        total = option.own
        local = inside = reads = needs = 0
        counted = 0.0
        for part in sorted(parts, key=lambda part: -part.total) if len(parts) > 1 else parts:
            if local or reads:
                total += self._sum(self.local_cost, part.local & ~local)
                total += self._sum(self.read_cost, part.reads & ~reads)
                total += self._sum(self.fill_cost, part.needs & ~needs & self.charged)
            else:
                total += part.total
                counted = self._sum(self.untiled_cost, part.inside & self.contractions) if part.mixed else 0.0
            local |= part.local
            inside |= part.inside
            reads |= part.reads
            needs |= part.needs
        here, scan = item.head in ("Reduce", "Contract"), item.head == "Scan"
        loose = (here or any(part.loose for part in parts)) and not scan
        mixed = False
        if here or inside & self.contractions:
            count = (inside & self.reductions).bit_count() + here
            scans = (inside & self.scans).bit_count() + scan
            mixed = (count > 1 or scans > 1 or (scans == 1 and loose)) and (
                item.head == "Contract" or bool(inside & self.contractions)
            )
            if mixed and self.problem.rows and not scans:
                products = inside & self.contractions | (own_bit if item.head == "Contract" else 0)
                # one product, however many reductions of its rows
                mixed = len(set(self._origins(products))) > 1 or (
                    here and self._across(own_bit, item, inside & self.contractions)
                )
            if mixed:
                total += option.untiled - counted + self._sum(self.untiled_cost, inside & self.contractions)
        own = option.own
        if here or scan or item.head == "Stream":
            private = 0
            for axis in bound_axes(item):
                private |= self.problem.depends.get(axis, 0)
            own += self._sum(self.local_cost, local & private)
            local &= ~private
        return _Best(total, own, local | own_bit, inside | own_bit, reads, needs, mixed, option, ways, loose)

    def _across(self, own_bit: int, item: Item, products: int) -> bool:
        """Whether a reduction along the rows of a product needs them at axes that are not the product's, or the machine does not
        keep such rows."""
        free = self.view.free[self.order[(own_bit.bit_length() - 1) % len(self.order)][0]]
        bound = frozenset(bound_axes(item))
        return any(
            not bound.isdisjoint(self.view.free[cls])
            and (not free <= self.view.free[cls] or self.view.origin(cls) not in self.problem.covered)
            for cls in self._classes(products)
        )

    def _origins(self, mask: int) -> Iterator[str]:
        """What the keys in a bit set compute, wherever they are needed."""
        return map(self.view.origin, self._classes(mask))

    def _classes(self, mask: int) -> Iterator[str]:
        size = len(self.order)
        while mask:
            low = mask & -mask
            yield self.order[(low.bit_length() - 1) % size][0]
            mask ^= low

    def _read(self, own_bit: int, option: Option) -> _Best | None:
        buffer = self.view.buffers[str(option.item.payload[0])]
        number = self.number[buffer.cls]
        reads, needs = 1 << number, 0
        total = option.own + self.read_cost[number]
        if buffer.arg is None:
            fill = self.fill.get(buffer.cls)
            if fill is None or buffer.cls in self.banned:
                return None
            needs = fill.needs | reads
            total += self.whole_cost[number]
        return _Best(total, option.own, own_bit, own_bit, reads, needs, False, option)

    @staticmethod
    def _sum(costs: list[float], mask: int) -> float:
        total = 0.0
        while mask:
            low = mask & -mask
            total += costs[low.bit_length() - 1]
            mask ^= low
        return total

    # ---- the solution ----

    def _choice(self) -> Choice | None:
        """Kernels for the outputs and all they read, in order; None where something is missing or a cycle is left."""
        kernels: list[Kernel] = []
        state: dict[str, int] = {}
        stack = [(output, False) for output in reversed(self.view.graph.outputs)]
        built: dict[str, Kernel] = {}
        while stack:
            name, ready = stack.pop()
            if self.view.buffers[name].arg is not None:
                return None  # an output is always filled by a kernel
            if ready:
                state[name] = 2
                kernels.append(built[name])
                continue
            if state.get(name) == 2:
                continue
            if state.get(name) == 1:
                return None
            kernel = self._kernel(self.view.buffers[name])
            if kernel is None:
                return None
            state[name], built[name] = 1, kernel
            stack.append((name, True))
            for item in kernel.items.values():
                if item.head == "Read":
                    read = str(item.payload[0])
                    if self.view.buffers[read].arg is None and state.get(read) != 2:
                        stack.append((read, False))
        return Choice(tuple(kernels), sum(kernel.seconds for kernel in kernels))

    def _kernel(self, buffer: Buffer) -> Kernel | None:
        if buffer.cls not in self.fill:
            return None
        way = self.way[buffer.cls]
        root: Key = (way.root, False)
        items = self._items(root, self.fill[buffer.cls])
        return priced(self.problem, buffer, way, items)

    def _items(self, root: Key, filled: _Best) -> dict[Key, Item]:
        """What each key is computed as in a kernel. Where one use of a key takes another way than the best, all do."""
        taken: dict[Key, int] = {}
        while True:
            items: dict[Key, Item] = {}
            known = len(taken)
            stack = [(root, BEST)]
            while stack:
                key, wanted = stack.pop()
                if wanted == PLAIN and self.plain[key] is not self.best[key]:
                    taken.setdefault(key, PLAIN)
                if wanted == STREAMED and self.streamed[key] is not self.best[key]:
                    taken.setdefault(key, STREAMED)
                if key in items:
                    continue
                way = filled if key == root else self._way(key, taken.get(key, BEST))
                items[key] = way.option.item
                children = way.option.children
                stack += zip(children, way.ways or (BEST,) * len(children), strict=True)
            if len(taken) == known:
                return items

    def _way(self, key: Key, wanted: int) -> _Best:
        return (self.best, self.plain, self.streamed)[wanted][key]


def _differs(known: _Best | None, found: _Best | None) -> bool:
    if known is None or found is None:
        return known is not found
    return known.option is not found.option or abs(known.total - found.total) > 1e-9 * found.total
