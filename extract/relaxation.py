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

NONE = frozenset[int]()
"""No keys."""

TIE = 1e-6
"""Costs that differ by less, relatively, are equal: the first way found is kept."""


@dataclass(slots=True)
class _Best:
    total: float
    moved: float  # of that, for reading
    needed: float  # of that, for filling what is read
    own: float  # of the option, and of all that only its reduction evaluates
    local: frozenset[int]  # keys evaluated in this kernel, for all to share
    inside: frozenset[int]  # all keys evaluated in this kernel
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
        # keys that are computed by a reduction; by a contraction; by a scan; by a contraction over output axes; and by one
        # whose tiles are known
        self.reductions, self.contractions, self.scans = set[int](), set[int](), set[int]()
        self.bases, self.alone = set[int](), set[int]()
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
        head = best.option.item.head
        self.local_cost[number], self.untiled_cost[number] = best.own, best.option.untiled
        contracts = head == "Contract"
        _put(self.reductions, number, contracts or head == "Reduce")
        _put(self.contractions, number, contracts)
        if head == "Scan":
            self.scans.add(number)
        _put(self.bases, number, contracts and tileable(self.view, key[0], best.option.item))
        _put(self.alone, number, self.problem.schedules.get((best.option.item, False)) is not None)
        self._relax_plain(key, best, plain)
        return _differs(known, best) or _differs(known_plain, self.plain.get(key))

    def _relax_plain(self, key: Key, best: _Best, plain: list[_Best]) -> None:
        if not self._reduces(best):
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
            if option.item.head == "Read" and (found := self._read(number, option)) is not None:
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
        if buffer.cls not in self.paid:
            written = self.model.seconds(Work(bytes_written=self.problem.bytes(buffer)))
            whole = least - best.needed + written + self.model.hardware.launch
            self.fill_cost[number] = whole / self.shares.get(buffer.cls, 1)
            self.charged |= 1 << number
        self.whole_cost[number] = best.needed + self.fill_cost[number]
        if _differs(known, best):
            self._touch(self.problem.readers.get(buffer.cls, ()))

    def _idle(self, found: _Best, way: Way) -> float:
        """What loops over few points take more than on a machine that is evenly full; products in tiles and Streams have
        it in their own costs."""
        busy = self.problem.idle(way.shape) - 1
        if busy <= 0 or not (found.inside.isdisjoint(self.alone) and found.inside.isdisjoint(self.scans)):
            return 0.0
        return max(0.0, found.total - found.moved - found.needed - found.option.copied) * busy

    def _loose(self, found: _Best) -> float:
        """What a kernel's contractions take more because none of them is at its output axes: there is no row to keep."""
        products = found.inside & self.contractions
        if not products or found.mixed or found.inside & self.scans or products & self.bases:
            return 0.0
        return _total(self.untiled_cost, products)

    def _reduces(self, found: _Best) -> bool:
        """Whether it holds a reduction, or a scan."""
        return not (found.inside.isdisjoint(self.reductions) and found.inside.isdisjoint(self.scans))

    def _compute(self, key: Key, option: Option, computed: list[_Best], plain: list[_Best]) -> None:
        """Adds the cheapest way to compute ``key`` by an option that is no Read, and the one without reductions."""
        number, count = self.bit[key], len(self.order)
        own = number, number + count, number + 2 * count
        parts = [self.best.get(child) for child in option.children]
        ready = [part for part in parts if part is not None and part.inside.isdisjoint(own)]
        if len(ready) < len(parts):
            return  # an operand is not known yet, or needs this value
        found = self._combine(number, option, ready)
        if self.problem.scans:
            found = self._stream(key, option, ready, found, own)
        others = [self.plain.get(child) for child in option.children]
        reducing = [self._reduces(part) for part in ready]
        if found.mixed:
            # a contraction can be tiled where the other reductions come from buffers
            able = [
                slow and other is not None and other.inside.isdisjoint(own)
                for slow, other in zip(reducing, others, strict=True)
            ]
            for taken in itertools.product(*((BEST, PLAIN) if each else (BEST,) for each in able)):
                if any(taken):
                    chosen = [o if take else p for take, o, p in zip(taken, others, ready, strict=True)]
                    way = self._combine(number, option, chosen, taken)  # type: ignore[arg-type]
                    found = way if way.total < found.total else found
        computed.append(found)
        if option.item.head in ("Reduce", "Contract", "Scan", "Stream"):
            return
        if not self._reduces(found):
            plain.append(found)
        elif all(other is not None and other.inside.isdisjoint(own) for other in others):
            ways = tuple(PLAIN if slow else BEST for slow in reducing)
            chosen = [o if way else p for way, o, p in zip(ways, others, ready, strict=True)]
            plain.append(self._combine(number + count, option, chosen, ways))  # type: ignore[arg-type]

    def _stream(
        self, key: Key, option: Option, ready: list[_Best], found: _Best, own: tuple[int, ...]
    ) -> _Best:
        """The cheaper of ``found`` and the way by the operands' Streams, which is kept as the streamed one."""
        if option.item.head in ("Reduce", "Contract", "Scan"):
            return found
        others = [self.streamed.get(child) for child in option.children]
        ways = tuple(STREAMED if o is not None and o.inside.isdisjoint(own) else BEST for o in others)
        if option.item.head == "Stream":
            ways = (BEST,) * len(others)
        elif not any(ways):
            return found
        chosen = [o if o is not None and way else p for way, o, p in zip(ways, others, ready, strict=True)]
        number = self.bit[key] + 2 * len(self.order)
        streamed, known = self._combine(number, option, chosen, ways), self.streamed.get(key)
        if known is None or known.option is option or streamed.total < known.total:
            self.streamed[key], self.local_cost[number] = streamed, streamed.own
            if _differs(known, streamed):
                self._touch(self.problem.users[self.bit[key]])
        if option.item.head == "Stream":
            return found
        way = self._combine(self.bit[key], option, chosen, ways)
        return way if way.total < found.total else found

    def _combine(
        self, number: int, option: Option, parts: Sequence[_Best], ways: tuple[int, ...] = ()
    ) -> _Best:
        item = option.item
        total = counted = moved = needed = 0.0
        local = inside = frozenset[int]()
        reads = needs = 0
        for part in sorted(parts, key=lambda part: -part.total) if len(parts) > 1 else parts:
            if inside:
                total += _total(self.local_cost, part.local - local)
                moved += _sum(self.read_cost, part.reads & ~reads)
                needed += _sum(self.fill_cost, part.needs & ~needs & self.charged)
            else:
                total = part.total - part.moved - part.needed
                moved, needed = part.moved, part.needed
                counted = _total(self.untiled_cost, part.inside & self.contractions) if part.mixed else 0.0
            local |= part.local
            inside |= part.inside
            reads |= part.reads
            needs |= part.needs
        total += option.own
        here, scan = item.head in ("Reduce", "Contract"), item.head == "Scan"
        loose = (here or any(part.loose for part in parts)) and not scan
        mixed = False
        products = inside & self.contractions
        if here or products:
            count = len(inside & self.reductions) + here
            scans = len(inside & self.scans) + scan
            mixed = (count > 1 or scans > 1 or (scans == 1 and loose)) and (
                item.head == "Contract" or bool(products)
            )
            if mixed and self.problem.rows and not scans:
                # one product, however many reductions of its rows
                every = products | {number} if item.head == "Contract" else products
                mixed = len(set(self._origins(every))) > 1 or (here and self._across(number, item, products))
            if mixed:
                total += option.untiled - counted + _total(self.untiled_cost, products)
        own = option.own
        if here or scan or item.head == "Stream":
            private = NONE.union(*(local & self.problem.depends.get(axis, NONE) for axis in bound_axes(item)))
            own += _total(self.local_cost, private)
            local -= private
        alone = frozenset((number,))
        return _Best(
            total + moved + needed,
            moved,
            needed,
            own,
            local | alone,
            inside | alone,
            reads,
            needs,
            mixed,
            option,
            ways,
            loose,
        )

    def _across(self, number: int, item: Item, products: Iterable[int]) -> bool:
        """Whether a reduction along the rows of a product needs them at axes that are not the product's, or the machine does not
        keep such rows."""
        free = self.view.free[self._class(number)]
        bound = frozenset(bound_axes(item))
        return any(
            not bound.isdisjoint(self.view.free[cls])
            and (not free <= self.view.free[cls] or self.view.origin(cls) not in self.problem.covered)
            for cls in map(self._class, products)
        )

    def _origins(self, numbers: Iterable[int]) -> Iterator[str]:
        """What these keys compute, wherever they are needed."""
        return map(self.view.origin, map(self._class, numbers))

    def _class(self, number: int) -> str:
        return self.order[number % len(self.order)][0]

    def _read(self, number: int, option: Option) -> _Best | None:
        buffer = self.view.buffers[str(option.item.payload[0])]
        place = self.number[buffer.cls]
        reads, needs = 1 << place, 0
        needed = 0.0
        if buffer.arg is None:
            fill = self.fill.get(buffer.cls)
            if fill is None or buffer.cls in self.banned:
                return None
            needs = fill.needs | reads
            needed = self.whole_cost[place]
        alone, moved = frozenset((number,)), self.read_cost[place]
        total = option.own + moved + needed
        return _Best(total, moved, needed, option.own, alone, alone, reads, needs, False, option)

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


def _put(numbers: set[int], number: int, there: bool) -> None:
    if there:
        numbers.add(number)
    else:
        numbers.discard(number)


def _total(costs: Sequence[float], numbers: Iterable[int]) -> float:
    return sum(map(costs.__getitem__, numbers))


def _sum(costs: Sequence[float], mask: int) -> float:
    """Of a bit set."""
    total = 0.0
    while mask:
        low = mask & -mask
        total += costs[low.bit_length() - 1]
        mask ^= low
    return total
