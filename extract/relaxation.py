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
from .pricing import priced
from .problem import REDUCING, Option, Problem
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
    able: bool = False  # may hold a reduction: some of the keys can be had by one


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
        # by number of the key
        self.best: list[_Best | None] = [None] * len(self.order)
        self.plain: list[_Best | None] = [None] * len(
            self.order
        )  # the cheapest without a reduction in this kernel
        self.streamed: dict[int, _Best] = {}
        self.fill: list[_Best | None] = [None] * len(problem.names)
        self.way: dict[str, Way] = {}
        self.stale = bytearray(b"\1" * len(self.order))  # per key, whether what it depends on has changed

    def solve(self, names: Sequence[str] = ()) -> Choice | None:
        """The cheapest program that is found; None where an output cannot be computed. ``names``: other buffers that it fills."""
        self._settle()
        found = self._program(names)
        if found is None:
            return None
        kernels: list[Kernel] = []
        for name, items in found.items():
            kernel = priced(self.problem, self.view.buffers[name], self.way[name], items)
            if kernel is None:
                return None
            kernels.append(kernel)
        return Choice(tuple(kernels), sum(kernel.seconds for kernel in kernels))

    def filled(self) -> frozenset[str] | None:
        """The buffers that :meth:`solve` fills; its kernels, which may be large, are not priced."""
        self._settle()
        found = self._program()
        return None if found is None else frozenset(found)

    def _settle(self) -> None:
        stale, users = self.stale, self.problem.users
        for _ in range(SWEEPS):
            for number in range(len(self.order)):
                if stale[number]:
                    stale[number] = 0
                    if self._relax(number):
                        self._touch(users[number])
            if not any(stale):
                break

    def _touch(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.stale[number] = 1

    # ---- relaxation ----

    def _relax(self, number: int) -> bool:
        """Finds the cheapest way for a key and for the buffers that it fills; whether the way has changed."""
        key = self.order[number]
        computed: list[_Best] = []
        plain: list[_Best] = []
        for option, children in self.problem.computed[number]:
            self._compute(number, option, children, computed, plain)
        if not key[1]:
            for buffer, way in self.problem.filled_by.get(key[0], ()):
                self._relax_fill(number, buffer, way, computed)
        stored = key[0] in self.problem.stored
        best: _Best | None = None
        for found in () if stored else computed:
            if best is None or found.total < best.total * (1 - TIE):
                best = found
        for found in self._reads(number, number):
            if best is None or found.total < best.total + self.near:
                best = found
        if best is None:
            return False
        known, known_plain = self.best[number], self.plain[number]
        self.best[number] = best
        self.local_cost[number], self.untiled_cost[number] = best.own, best.option.untiled
        if self.problem.reducing[number]:
            self._sort(number, best.option.item)
        if self._reduces(best):
            self._relax_plain(number, [] if stored else plain)
        else:
            self.plain[number] = best
        return _differs(known, best) or _differs(known_plain, self.plain[number])

    def _sort(self, number: int, item: Item) -> None:
        """Puts a key where it belongs that is computed by ``item``."""
        contracts = item.head == "Contract"
        _put(self.reductions, number, contracts or item.head == "Reduce")
        _put(self.contractions, number, contracts)
        if item.head == "Scan":
            self.scans.add(number)
        _put(self.bases, number, contracts and tileable(self.view, self.order[number][0], item))
        _put(self.alone, number, contracts and self.problem.works.schedules.get((item, False)) is not None)

    def _relax_plain(self, number: int, plain: list[_Best]) -> None:
        other = number + len(self.order)
        read = min(self._reads(number, other), key=lambda way: way.total, default=None)
        found = min(plain, key=lambda way: way.total, default=read)
        # a value's own buffer is the one that other uses of it would read, so it is preferred while they are close
        if (
            read is not None
            and found is not None
            and read.total < found.total + self.model.hardware.launch / 2
        ):
            found = read
        if found is not None:
            self.plain[number] = found
            self.local_cost[other] = found.own

    def _reads(self, number: int, own: int, but: int = -1) -> Iterator[_Best]:
        """The ways to read a key from a buffer, each under the number ``own``; none from the buffer ``but``."""
        for option, place in self.problem.read[number]:
            if place != but and (found := self._read(own, option, place)) is not None:
                yield found

    def _relax_fill(self, number: int, buffer: Buffer, way: Way, computed: list[_Best]) -> None:
        place, busy = self.number[buffer.cls], self.problem.running.idle(way.shape) - 1
        best: _Best | None = None
        least = math.inf  # with what it takes more where the buffer has few points
        for found in (*computed, *self._reads(number, number, place)):
            if not found.needs >> place & 1:
                cost = found.total + self._idle(found, busy) + self._loose(found) - found.option.copied
                if cost < least:
                    best, least = found, cost
        known = self.fill[place]
        if best is None:
            return
        other = self.way.get(buffer.cls, way)
        if known is not None and other is not way and other != way:
            idle = self._idle(known, self.problem.running.idle(other.shape) - 1)
            if known.total + idle - known.option.copied <= least:
                return
        self.fill[place], self.way[buffer.cls] = best, way
        if buffer.cls not in self.paid:
            whole = least - best.needed + self.problem.write_cost[place] + self.model.hardware.launch
            self.fill_cost[place] = whole / self.shares.get(buffer.cls, 1)
            self.charged |= 1 << place
        self.whole_cost[place] = best.needed + self.fill_cost[place]
        if _differs(known, best):
            self._touch(self.problem.readers.get(buffer.cls, ()))

    def _idle(self, found: _Best, busy: float) -> float:
        """What loops over few points take more than on a machine that is evenly full; products in tiles and Streams have
        it in their own costs."""
        if busy <= 0 or (
            found.able and not (found.inside.isdisjoint(self.alone) and found.inside.isdisjoint(self.scans))
        ):
            return 0.0
        return max(0.0, found.total - found.moved - found.needed - found.option.copied) * busy

    def _loose(self, found: _Best) -> float:
        """What a kernel's contractions take more because none of them is at its output axes: there is no row to keep."""
        products = found.inside & self.contractions if found.able else NONE
        if not products or found.mixed or found.inside & self.scans or products & self.bases:
            return 0.0
        return _total(self.untiled_cost, products)

    def _reduces(self, found: _Best) -> bool:
        """Whether it holds a reduction, or a scan."""
        return found.able and not (
            found.inside.isdisjoint(self.reductions) and found.inside.isdisjoint(self.scans)
        )

    def _compute(
        self,
        number: int,
        option: Option,
        children: Sequence[int],
        computed: list[_Best],
        plain: list[_Best],
    ) -> None:
        """Adds the cheapest way to compute a key by an option that is no Read, and the one without reductions."""
        count = len(self.order)
        own = number, number + count, number + 2 * count
        ready: list[_Best] = []
        for child in children:
            part = self.best[child]
            if part is None or not part.inside.isdisjoint(own):
                return  # an operand is not known yet, or needs this value
            ready.append(part)
        head = option.item.head
        found = self._combine(number, option, ready)
        if head == "Stream":
            self._keep_streamed(number, option, ready, (BEST,) * len(ready))
        elif self.streamed and head not in REDUCING:
            found = self._stream(number, option, children, ready, found, own)
        if found.mixed:
            # a contraction can be tiled where the other reductions come from buffers
            others = [self.plain[child] for child in children]
            able = [
                other is not None and self._reduces(part) and other.inside.isdisjoint(own)
                for part, other in zip(ready, others, strict=True)
            ]
            for taken in itertools.product(*((BEST, PLAIN) if each else (BEST,) for each in able)):
                if any(taken):
                    chosen = [o if take else p for take, o, p in zip(taken, others, ready, strict=True)]
                    way = self._combine(number, option, chosen, taken)  # type: ignore[arg-type]
                    found = way if way.total < found.total else found
        computed.append(found)
        if head in REDUCING:
            return
        if not self._reduces(found):
            plain.append(found)
            return
        others = [self.plain[child] for child in children]
        if all(other is not None and other.inside.isdisjoint(own) for other in others):
            ways = tuple(PLAIN if self._reduces(part) else BEST for part in ready)
            chosen = [o if way else p for way, o, p in zip(ways, others, ready, strict=True)]
            plain.append(self._combine(number + count, option, chosen, ways))  # type: ignore[arg-type]

    def _stream(
        self,
        number: int,
        option: Option,
        children: Sequence[int],
        ready: Sequence[_Best],
        found: _Best,
        own: tuple[int, ...],
    ) -> _Best:
        """The cheaper of ``found`` and the way by the operands' Streams, which is kept as the streamed one."""
        others = [self.streamed.get(child) for child in children]
        ways = tuple(STREAMED if o is not None and o.inside.isdisjoint(own) else BEST for o in others)
        if not any(ways):
            return found
        chosen = [o if o is not None and way else p for way, o, p in zip(ways, others, ready, strict=True)]
        self._keep_streamed(number, option, chosen, ways)
        way = self._combine(number, option, chosen, ways)
        return way if way.total < found.total else found

    def _keep_streamed(
        self, number: int, option: Option, parts: Sequence[_Best], ways: tuple[int, ...]
    ) -> None:
        other = number + 2 * len(self.order)
        streamed, known = self._combine(other, option, parts, ways), self.streamed.get(number)
        if known is None or known.option is option or streamed.total < known.total:
            self.streamed[number], self.local_cost[other] = streamed, streamed.own
            if _differs(known, streamed):
                self._touch(self.problem.users[number])

    def _combine(
        self, number: int, option: Option, parts: Sequence[_Best], ways: tuple[int, ...] = ()
    ) -> _Best:
        item = option.item
        if len(parts) == 1 and not parts[0].mixed and item.head not in REDUCING:
            return self._step(number, option, parts[0], ways)
        total = counted = moved = needed = 0.0
        local = inside = NONE
        reads = needs = 0
        able = self.problem.reducing[number % len(self.order)]
        loose = False
        shared = True  # what is local is all that is inside: one set stands for both
        for part in sorted(parts, key=_dearest) if len(parts) > 1 else parts:
            if inside:
                total += _total(self.local_cost, part.local - local)
                moved += _sum(self.read_cost, part.reads & ~reads)
                needed += _sum(self.fill_cost, part.needs & ~needs & self.charged)
            else:
                total = part.total - part.moved - part.needed
                moved, needed = part.moved, part.needed
                counted = _total(self.untiled_cost, part.inside & self.contractions) if part.mixed else 0.0
            shared = shared and part.local is part.inside
            inside |= part.inside
            local = inside if shared else local | part.local
            reads |= part.reads
            needs |= part.needs
            able, loose = able or part.able, loose or part.loose
        total += option.own
        here, scan = item.head in ("Reduce", "Contract"), item.head == "Scan"
        loose = (here or loose) and not scan
        mixed = False
        products = inside & self.contractions if able else NONE
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
            local, shared = local - private, False
        alone = frozenset((number,))
        inside |= alone
        local = inside if shared else local | alone
        return _Best(
            total + moved + needed,
            moved,
            needed,
            own,
            local,
            inside,
            reads,
            needs,
            mixed,
            option,
            ways,
            loose,
            able,
        )

    def _step(self, number: int, option: Option, part: _Best, ways: tuple[int, ...]) -> _Best:
        """The same of one operand, which is not reduced: a kernel that could be tiled still can be."""
        alone = frozenset((number,))
        inside = part.inside | alone
        return _Best(
            part.total - part.moved - part.needed + option.own + part.moved + part.needed,
            part.moved,
            part.needed,
            option.own,
            inside if part.local is part.inside else part.local | alone,
            inside,
            part.reads,
            part.needs,
            False,
            option,
            ways,
            part.loose,
            part.able or self.problem.reducing[number % len(self.order)],
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

    def _read(self, number: int, option: Option, place: int) -> _Best | None:
        reads, needs = 1 << place, 0
        needed = 0.0
        if self.problem.filled[place]:
            fill = self.fill[place]
            if fill is None or self.problem.names[place] in self.banned:
                return None
            needs = fill.needs | reads
            needed = self.whole_cost[place]
        alone, moved = frozenset((number,)), self.read_cost[place]
        total = option.own + moved + needed
        able = self.problem.reducing[number % len(self.order)]
        return _Best(
            total, moved, needed, option.own, alone, alone, reads, needs, False, option, (), False, able
        )

    # ---- the solution ----

    def _program(self, names: Sequence[str] = ()) -> dict[str, dict[Key, Item]] | None:
        """For each buffer that the outputs need, and ``names``, what is computed as what to fill it, in an order in which it can be;
        None where something is missing or a cycle is left."""
        found: dict[str, dict[Key, Item]] = {}
        state: dict[str, int] = {}
        stack = [(output, False) for output in reversed((*self.view.graph.outputs, *names))]
        built: dict[str, dict[Key, Item]] = {}
        while stack:
            name, ready = stack.pop()
            if self.view.buffers[name].arg is not None:
                return None  # an output is always filled by a kernel
            if ready:
                state[name] = 2
                found[name] = built[name]
                continue
            if state.get(name) == 2:
                continue
            filled = self.fill[self.number[name]]
            if state.get(name) == 1 or filled is None:
                return None
            state[name], built[name] = 1, self._items((self.way[name].root, False), filled)
            stack.append((name, True))
            for item in built[name].values():
                if item.head == "Read":
                    read = str(item.payload[0])
                    if self.view.buffers[read].arg is None and state.get(read) != 2:
                        stack.append((read, False))
        return found

    def _items(self, root: Key, filled: _Best) -> dict[Key, Item]:
        """What each key is computed as in a kernel. Where one use of a key takes another way than the best, all do."""
        taken: dict[Key, int] = {}
        while True:
            items: dict[Key, Item] = {}
            known = len(taken)
            stack = [(root, BEST)]
            while stack:
                key, wanted = stack.pop()
                if wanted != BEST and self._way(key, wanted) is not self._way(key, BEST):
                    taken.setdefault(key, wanted)
                if key in items:
                    continue
                way = filled if key == root else self._way(key, taken.get(key, BEST))
                items[key] = way.option.item
                children = way.option.children
                stack += zip(children, way.ways or (BEST,) * len(children), strict=True)
            if len(taken) == known:
                return items

    def _way(self, key: Key, wanted: int) -> _Best:
        number = self.bit[key]
        found = self.streamed[number] if wanted == STREAMED else (self.best, self.plain)[wanted][number]
        assert found is not None
        return found


def _dearest(part: _Best) -> float:
    return -part.total


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
