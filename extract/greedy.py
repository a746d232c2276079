"""Greedy DAG extraction: which values are computed where, and which are kept in buffers.

For each expression class the cheapest item is found by relaxation. A cost is a set, so what is shared is paid once:
the classes evaluated within the kernel, the buffers that it reads, and the buffers that must be filled for it. The
first pass knows of no buffer; those that its solution fills are free in the next pass (they are paid already), until
the estimate of the whole program gets no better. Then single buffers are tried without, while there is time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .cost import CostModel, Work, loop_points, points, weight
from .view import LEVEL, Buffer, Item, View, Way, axis_id

Key = tuple[str, bool]
"""An expression class, and whether it must be loadable: a Read behind widening casts and zero-filled guards."""

EFFORT = 200_000
"""Options that trials may look at, all passes together: about a second. A count and not a time, so that the same
program always gives the same kernels."""

SWEEPS = 6
"""Relaxations per pass at most; an order that follows the operands needs two."""


@dataclass(frozen=True)
class Kernel:
    """One filled buffer. ``items``: what each class is computed as within it; the root's is ``items[root]``."""

    buffer: Buffer
    way: Way
    items: Mapping[Key, Item]
    work: Work
    seconds: float

    @property
    def root(self) -> Key:
        return (self.way.root, False)


@dataclass(frozen=True)
class Choice:
    """Kernels in an order in which they can run; ``seconds``: their estimates added up."""

    kernels: tuple[Kernel, ...]
    seconds: float


def extract(
    view: View,
    model: CostModel,
    input_bytes: Mapping[int, int],
    stored: frozenset[str] = frozenset(),
    trials: bool = False,
) -> Choice | None:
    """The cheapest program found; None where an output cannot be computed from the e-graph.

    ``input_bytes``: size of each program input. ``stored``: expression classes that are only ever read from their
    buffers. ``trials``: try the program without single buffers, within :data:`EFFORT`.
    """
    if any(output not in view.buffers for output in view.graph.outputs):
        return None
    problem = _Problem(view.storing(stored) if stored else view, model, dict(input_bytes))
    best: Choice | None = None
    paid: frozenset[str] = frozenset()
    for _ in range(4):
        choice = _Pass(problem, paid, frozenset()).solve()
        if choice is None:
            break
        better = best is None or choice.seconds < best.seconds
        best = choice if better else best
        filled = frozenset(kernel.buffer.cls for kernel in choice.kernels)
        if filled == paid:
            break
        paid = filled
    return best if best is None or not trials else _try_without(problem, best)


def _try_without(problem: _Problem, best: Choice) -> Choice:
    left = EFFORT // max(sum(map(len, problem.options.values())), 1)
    banned: frozenset[str] = frozenset()
    for buffer in [kernel.buffer.cls for kernel in best.kernels]:
        filled = frozenset(kernel.buffer.cls for kernel in best.kernels)
        if buffer in problem.view.graph.outputs or buffer not in filled:
            continue
        left -= 1
        if left < 0:
            break
        choice = _Pass(problem, filled - {buffer}, banned | {buffer}).solve()
        if choice is not None and choice.seconds < best.seconds * (1 - 1e-9):
            best, banned = choice, banned | {buffer}
    return best


@dataclass(slots=True)
class _Best:
    total: float
    local: int  # bit set of keys evaluated in this kernel
    reads: int  # bit set of buffers that this kernel reads
    needs: int  # bit set of buffers to be filled, transitively
    mixed: bool  # holds a contraction beside another reduction: then none of them can be tiled
    option: _Option


@dataclass(frozen=True, slots=True)
class _Option:
    """An item of a key, with what does not change from pass to pass: own cost, and what it costs more untiled."""

    item: Item
    children: tuple[Key, ...]
    own: float
    untiled: float


class _Problem:
    """What all passes share: the keys that an output can reach, operands first, and their options."""

    def __init__(self, view: View, model: CostModel, sizes: Mapping[int, int]) -> None:
        self.view, self.model, self.sizes = view, model, sizes
        self.order = _order(view)
        self.bit = {key: number for number, key in enumerate(self.order)}
        self.options = {key: [self._option(key, item) for item in _items(view, key)] for key in self.order}
        self.names = list(view.buffers)
        self.number = {name: number for number, name in enumerate(self.names)}
        self.read_cost = [
            model.seconds(Work(bytes_read=self.bytes(view.buffers[name]))) for name in self.names
        ]
        self.filled_by: dict[str, list[tuple[Buffer, Way]]] = {}
        for buffer in view.buffers.values():
            for way in buffer.ways:
                self.filled_by.setdefault(way.root, []).append((buffer, way))

    def _option(self, key: Key, item: Item) -> _Option:
        own = self.model.seconds(item_work(self.view, key[0], item))
        untiled = 0.0
        if item.head == "Contract":
            loops = self.model.seconds(item_work(self.view, key[0], item, tiled=False))
            untiled = max(loops - own, 0.0)
        return _Option(item, children_of(key, item), own, untiled)

    def bytes(self, buffer: Buffer) -> int:
        if buffer.arg is not None:
            return self.sizes.get(buffer.arg, 0)
        size = buffer.dtype.itemsize if buffer.dtype else 0
        for extent in buffer.shape:
            size *= extent
        return size


class _Pass:
    """One relaxation, with the buffers in ``paid`` free to fill and those in ``banned`` never read."""

    def __init__(self, problem: _Problem, paid: frozenset[str], banned: frozenset[str]) -> None:
        self.problem, self.paid, self.banned = problem, paid, banned
        self.view, self.model = problem.view, problem.model
        self.order, self.bit, self.number = problem.order, problem.bit, problem.number
        self.read_cost = problem.read_cost
        self.local_cost = [0.0] * len(self.order)
        self.untiled_cost = [0.0] * len(self.order)  # what a contraction costs more where it cannot be tiled
        self.reductions = 0  # bit sets of the keys that are computed by a reduction, and by a contraction
        self.contractions = 0
        self.fill_cost = [0.0] * len(problem.names)
        self.best: dict[Key, _Best] = {}
        self.fill: dict[str, _Best] = {}
        self.way: dict[str, Way] = {}

    def solve(self) -> Choice | None:
        for _ in range(SWEEPS):
            changed = False
            for key in self.order:
                changed |= self._relax(key)
            if not changed:
                break
        return self._choice()

    # ---- relaxation ----

    def _relax(self, key: Key) -> bool:
        options = self.problem.options[key]
        if not key[1]:
            for buffer, way in self.problem.filled_by.get(key[0], ()):
                self._relax_fill(key, buffer, way, options)
        best: _Best | None = None
        for option in options:
            if option.item.head != "Read" and key[0] in self.view.stored:
                continue
            found = self._candidate(key, option)
            if found is not None and (best is None or found.total < best.total):
                best = found
        if best is None:
            return False
        known = self.best.get(key)
        self.best[key] = best
        number = self.bit[key]
        bit = 1 << number
        head = best.option.item.head
        self.local_cost[number], self.untiled_cost[number] = best.option.own, best.option.untiled
        self.reductions = self.reductions | bit if head in ("Reduce", "Contract") else self.reductions & ~bit
        self.contractions = self.contractions | bit if head == "Contract" else self.contractions & ~bit
        return (
            known is None
            or known.option is not best.option
            or abs(known.total - best.total) > 1e-9 * best.total
        )

    def _relax_fill(self, key: Key, buffer: Buffer, way: Way, options: list[_Option]) -> None:
        number = self.number[buffer.cls]
        best: _Best | None = None
        for option in options:
            if option.item.head == "Read" and option.item.payload[0] == buffer.cls:
                continue
            found = self._candidate(key, option)
            if found is None or found.needs >> number & 1:
                continue
            if best is None or found.total < best.total:
                best = found
        known = self.fill.get(buffer.cls)
        if best is None or (known is not None and self.way[buffer.cls] != way and known.total <= best.total):
            return
        self.fill[buffer.cls], self.way[buffer.cls] = best, way
        if buffer.cls not in self.paid:
            kernel = best.total - self._sum(self.fill_cost, best.needs)
            written = self.model.seconds(Work(bytes_written=self.problem.bytes(buffer)))
            self.fill_cost[number] = kernel + written + self.model.hardware.launch

    def _candidate(self, key: Key, option: _Option) -> _Best | None:
        own_bit = 1 << self.bit[key]
        item = option.item
        parts = []
        for child in option.children:
            part = self.best.get(child)
            if part is None or part.local & own_bit:
                return None
            parts.append(part)
        if item.head == "Read":
            return self._read(own_bit, option)
        total = option.own
        local = reads = needs = 0
        counted = 0.0
        if len(parts) > 1:
            parts.sort(key=lambda part: -part.total)
        for part in parts:
            if local or reads:
                total += self._sum(self.local_cost, part.local & ~local)
                total += self._sum(self.read_cost, part.reads & ~reads)
                total += self._sum(self.fill_cost, part.needs & ~needs)
            else:
                total += part.total
                counted = self._sum(self.untiled_cost, part.local & self.contractions) if part.mixed else 0.0
            local |= part.local
            reads |= part.reads
            needs |= part.needs
        here = item.head in ("Reduce", "Contract")
        mixed = False
        if here or local & self.contractions:
            count = (local & self.reductions).bit_count() + here
            mixed = count > 1 and (item.head == "Contract" or bool(local & self.contractions))
            if mixed:
                total += option.untiled - counted + self._sum(self.untiled_cost, local & self.contractions)
        return _Best(total, local | own_bit, reads, needs, mixed, option)

    def _read(self, own_bit: int, option: _Option) -> _Best | None:
        buffer = self.view.buffers[str(option.item.payload[0])]
        number = self.number[buffer.cls]
        reads, needs = 1 << number, 0
        total = option.own + self.read_cost[number]
        if buffer.arg is None:
            fill = self.fill.get(buffer.cls)
            if fill is None or buffer.cls in self.banned:
                return None
            needs = fill.needs | reads
            total += self._sum(self.fill_cost, needs)
        return _Best(total, own_bit, reads, needs, False, option)

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
        items: dict[Key, Item] = {}
        stack = [root]
        while stack:
            key = stack.pop()
            if key in items:
                continue
            items[key] = (self.fill[buffer.cls] if key == root else self.best[key]).option.item
            stack += children_of(key, items[key])
        work = Work(bytes_written=self.problem.bytes(buffer))
        read = set()
        tiled = sum(item.head in ("Reduce", "Contract") for item in items.values()) == 1
        for key, item in items.items():
            work += item_work(self.view, key[0], item, tiled)
            if item.head == "Read":
                read.add(str(item.payload[0]))
        work += Work(bytes_read=sum(self.problem.bytes(self.view.buffers[name]) for name in read))
        return Kernel(buffer, way, items, work, self.model.kernel(work))


def item_work(view: View, cls: str, item: Item, tiled: bool = True) -> Work:
    """The work of evaluating one item wherever its class is needed in a kernel, its operands not counted.

    A contraction is tiled where it is the kernel's only reduction and runs over the kernel's output axes.
    """
    if item.head == "Contract":
        axes, _, m, n, _ = item.payload
        free = view.free[cls]
        count = points((*free, *axes))  # type: ignore[misc]
        tiled = tiled and bool(m) and bool(n) and all(axis_id(axis) < LEVEL for axis in free)
        return Work(flops=2 * count) if tiled else Work(ops=2 * loop_points(free) * points(axes))  # type: ignore[arg-type]
    if item.head == "Reduce":
        return Work(ops=loop_points(view.free[cls]) * points(item.payload))  # type: ignore[arg-type]
    return Work(ops=weight(item.op) * points(view.free[cls]))


def _order(view: View) -> list[Key]:
    """Every key that an output can reach, operands first where there is no cycle."""
    order: list[Key] = []
    seen: set[Key] = set()
    stack: list[tuple[Key, Iterator[Key]]] = []
    for output in view.graph.outputs:
        for way in view.buffers[output].ways:
            start = (way.root, False)
            if start in seen:
                continue
            seen.add(start)
            stack.append((start, _reachable(view, start)))
            while stack:
                key, children = stack[-1]
                child = next((child for child in children if child not in seen), None)
                if child is None:
                    order.append(key)
                    stack.pop()
                else:
                    seen.add(child)
                    stack.append((child, _reachable(view, child)))
    return order


def _reachable(view: View, key: Key) -> Iterator[Key]:
    for item in _items(view, key):
        yield from children_of(key, item)
        if item.head == "Read":
            for way in view.buffers[str(item.payload[0])].ways:
                yield (way.root, False)


def _items(view: View, key: Key) -> Iterator[Item]:
    for item in view.items.get(key[0], ()):
        if (
            not key[1]
            or item.head == "Read"
            or (item.head == "Cast" and item.op == "fp32")
            or (item.head == "Select" and _is_guard(view, item))
        ):
            yield item


def _is_guard(view: View, item: Item) -> bool:
    cond, _, other = item.children
    return any(choice.head == "Within" for choice in view.items.get(cond, ())) and any(
        choice.head == "Const" and choice.payload[1] == 0 for choice in view.items.get(other, ())
    )


def children_of(key: Key, item: Item) -> tuple[Key, ...]:
    """The operands, each with whether it must be loadable: a contraction's are, through casts and guards."""
    if item.head == "Contract":
        return tuple((child, True) for child in item.children)
    if key[1] and item.head == "Select":
        cond, then, other = item.children
        return ((cond, False), (then, True), (other, False))
    return tuple((child, key[1]) for child in item.children)
