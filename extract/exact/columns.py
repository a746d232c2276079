"""The kernels that may fill a buffer: for each set of buffers that one reads, the cheapest.

A kernel is found value by value, users before operands. A state is what is still to be computed: the values, each with
the reductions that evaluate it. A label is a way to come there: its work so far, and the buffers read. Of two labels of
one state, the one that does no more of any work and reads nothing more is as good however the kernel goes on, if a kernel
that does more never costs less; that is all that is asked of a cost model.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, le
from typing import NamedTuple

from ..choice import Key, as_copy, tiles, turning
from ..cost.model import Work
from ..cost.schedule import Schedule
from ..pricing import priced, walks
from ..view import Buffer, Item, Way, is_rounded
from .cases import LOOPS, SCAN, STREAMS, Case, Held, Loops
from .covers import Cover, least
from .floors import NONE, Amounts, Floor
from .labels import COMPARED, Label, Labels, State
from .moves import Moves
from .scope import Open, Scope


class Column(NamedTuple):
    """A kernel that fills ``name`` by ``way``. ``reads``: bit set of the buffers that must be filled for it.
    ``costs``: what it costs, as :func:`~tinyc.extract.pricing.priced` says of ``label.items()``, for each of the scope's levels.
    Of one that goes on in an earlier part it is what it costs at least beside what is charged there (:func:`within`)."""

    name: str
    way: Way
    label: Label
    reads: int
    costs: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """What it costs where all that is given is filled."""
        return self.costs[0]


@dataclass(frozen=True)
class Columns:
    """``found``: none of them reads all that another does and costs as much. ``rest``: a kernel that is neither among
    them nor dominated by one costs at least that; None where there is none. ``labels``: that were looked at, and what was compared
    (:data:`COMPARED`)."""

    found: tuple[Column, ...]
    rest: float | None
    labels: int


def columns(
    scope: Scope,
    buffer: Buffer,
    most: float,
    labels: int,
    limit: Callable[[int, int], float] | None = None,
    left: float = float("inf"),
) -> Columns:
    """The kernels that fill ``buffer`` from what is in ``scope`` and cost no more than ``most`` seconds. ``labels``: of one
    search at most, a count and not a time; ``left``: of all of them together. ``limit``: what it costs at most to fill the buffer where
    a set of others is filled already, at levels at which there may be kernels with some marks (``given.py``); a kernel that reads those
    and costs more is of no use, and no part of the rest."""
    rest = float("inf")
    candidates: list[tuple[float, Search, Buffer, Way, Label, Held]] = []
    count = 0
    written = Work(bytes_written=scope.sizes[scope.bits[buffer.cls]])
    for each, way in scope.ways(buffer.cls):
        root: Key = (way.root, False)
        for case in scope.cases.of(root) if root in scope.position else ():
            # what stands for others may be filled as any of them is
            size = 0 if buffer.cls in scope.standing else scope.problem.works.element(buffer)
            search = Search(scope, case, most, written, root, buffer.cls, limit, way.shape, size)
            search.run(root, int(min(labels, max(left - count, 0))))
            count += search.count
            rest = min(rest, search.least)
            candidates += (
                (search.floor(label, held), search, each, way, label, held) for label, held in search.found
            )
    found: list[Column] = []
    for floor, search, each, way, label, held in sorted(candidates, key=lambda each: each[0]):
        reads = label.reads & scope.filled
        if not any(other.reads & ~reads == 0 and max(other.costs) <= floor for other in found):
            costs = search.costs(way, label, held)
            if min(costs) < float("inf"):
                found.append(Column(each.cls, way, label, reads, costs))
    return Columns(tuple(undominated(found)), rest if rest < float("inf") else None, count)


def undominated(found: Iterable[Column]) -> list[Column]:
    """The columns of one buffer that no other is as good as, the cheapest first."""
    kept: list[Column] = []
    for column in sorted(found, key=lambda column: (column.costs, column.reads.bit_count(), column.reads)):
        if not any(other.reads & ~column.reads == 0 and _no_more(other, column) for other in kept):
            kept.append(column)
    return kept


def _no_more(one: Column, other: Column) -> bool:
    return all(map(le, one.costs, other.costs))


class Search:
    """All kernels of one case from one root. ``found``: labels of whole kernels. ``least``: what any other costs at
    least. ``full``: whether it ended because there were too many labels."""

    def __init__(
        self,
        scope: Scope,
        case: Case,
        most: float,
        beside: Work,
        root: Key | None = None,
        filled: str = "",
        limit: Callable[[int, int], float] | None = None,
        shape: tuple[int, ...] | None = None,
        size: int = 0,
        axes: frozenset[str] | None = None,
        less: Mapping[int, Amounts] = NONE,
    ) -> None:
        """``beside``: work of the kernel that is not in its labels. ``root``: a value that has to be computed here.
        ``filled``: the buffer that is filled, if it is a kernel's; else what a kernel costs more is looked at. ``shape``,
        ``size``: that it has then, and the bytes of an element. ``axes``: that the values of a kernel without
        ``root`` depend on, where that is known. ``less``: work that does not count, see :meth:`Floor.of`."""
        self.less = less
        self.scope, self.case, self.root, self.most, self.filled = scope, case, root, most, filled
        self.size, self.own = size, scope.bits[filled] if filled else 0
        self.beside, self.limit = beside, limit
        self.limits: dict[tuple[int, int], float] = {}
        self.before = 0.0 if filled else scope.problem.model.kernel(beside)
        self.shape = shape
        runs = scope.cases.runs(root, case, shape, size) if shape is not None and root is not None else []
        axes = axes if root is None else scope.problem.view.free[root[0]]
        self.floors = Floor(scope, case, runs, beside if filled else None, axes, shape if filled else None)
        self.narrower: dict[Loops, Floor] = {}
        self.ahead: dict[Open, list[tuple[Cover, float]]] = {}
        self.covers = scope.covers
        self.least = float("inf")
        self.full = False
        self.count = 0
        self.labels = Labels(scope.width)
        self.pending: dict[State, list[Label]] = {}
        self.queue: list[tuple[int, int, State]] = []
        self.pushed = 0

    @property
    def found(self) -> list[tuple[Label, Held]]:
        """Whole kernels, each with what it holds."""
        return [
            (label, state.held)
            for state in self.labels.states()
            if not state.open and (not self.filled or self.case.whole(state.held))
            for label in self.labels.of(state)
        ]

    def run(self, root: Key, most: int) -> None:
        # where no buffer is filled, its own work is counted where it is used, as that of INSIDE, and so is what Beneath knows
        free = frozenset[Key]() if self.filled else self.scope.grouped(root)
        self.covers = self.scope.covers_without(free)
        moves = self.scope.moves.get((self.case, root, self.own, self.shape)) if self.filled else None
        if moves is None:
            moves = Moves(self.scope, self.case, root, self.root, self.own, self.shape, free)
        if self.filled:
            self.scope.moves[self.case, root, self.own, self.shape] = moves
        seconds = self.scope.problem.model.kernel(self.beside) - self.before
        self._push(moves, moves.start, Label(moves.zero, 0, 0, seconds, None, ()))
        while self.queue:
            _, _, state = heapq.heappop(self.queue)
            current = set(map(id, self.labels.of(state)))
            labels = [label for label in self.pending.pop(state) if id(label) in current]
            self.count += len(labels) + self.labels.compared // COMPARED
            self.labels.compared %= COMPARED
            if self.count > most:
                self.full = True
                states = [(state, label) for state, more in self.pending.items() for label in more]
                states += [(state, label) for label in labels]
                floors = (
                    self.floor(label, state.held, cover, state.open)
                    for state, label in states
                    for cover, _ in self._ahead(state)
                )
                self.least = min(self.least, *floors)
                return
            self._expand(moves, state, labels)

    def _expand(self, moves: Moves, state: State, labels: Sequence[Label]) -> None:
        for after, work, reads, shunned, more, step in moves.of(state):
            for label in labels:
                if label.reads & shunned or label.shunned & reads:
                    continue
                total = tuple(map(add, label.work, work))
                upper = label.upper + more + (self.scope.moving(reads) if reads & ~label.reads else 0.0)
                self._push(
                    moves,
                    after,
                    Label(total, label.reads | reads, label.shunned | shunned, upper, label, step),
                )

    def _push(self, moves: Moves, state: State, label: Label) -> None:
        if self.labels.worse(state, label) or not self._worthwhile(state, label):
            return
        self.labels.add(state, label)
        if not state.open:
            return
        if state not in self.pending:
            self.pending[state] = []
            self.pushed += 1
            heapq.heappush(self.queue, (-moves.rank[state.open[0][0]], self.pushed, state))
        self.pending[state].append(label)

    def floor(
        self, label: Label, held: Held, ahead: Cover | None = None, open_: Open = (), enough: float = 0.0
    ) -> float:
        """What a kernel that goes on from a label costs at least; see :meth:`Floor.of`. ``open_``: what is still to be computed."""
        work, reads, whole = label.work, label.reads, ahead is None
        if ahead is not None:
            work, reads = tuple(map(add, work, ahead.work)), reads | ahead.reads
        return self.floors.of(
            work, reads, held, whole, enough=enough, less=self.less, deeper=self._deeper(open_)
        )

    def _deeper(self, open_: Open) -> bool:
        """Whether a kernel may compute something of what is given that goes on from a label with this ``open_``, where that matters."""
        return bool(self.less) and any(place in self.scope.deeper for place, _ in open_)

    def costs(self, way: Way, label: Label, held: Held) -> tuple[float, ...]:
        """What a whole kernel costs, for each of the scope's levels."""
        if label.reads & self.scope.inside:
            return tuple(self._floors(label).by_levels(label.work, label.reads, held)[0])
        return (self.seconds(way, label, held),) * len(self.scope.levels)

    def _floors(self, label: Label) -> Floor:
        """Bounds of a kernel that goes on in an earlier part: how it runs is not known, but its own sums and reads leave fewer ways than
        there are from its root."""
        if self.case not in (LOOPS, STREAMS) or self.shape is None or not self.floors.runs:
            return self.floors
        known = self.scope.cases.loops_of(self.shape, label.items())
        if known not in self.narrower:
            runs = self.scope.cases.looped(known, self.size)
            written, axes = self.floors.written, self.floors.axes
            self.narrower[known] = Floor(self.scope, self.case, runs, written, axes, self.shape)
        return self.narrower[known]

    def seconds(self, way: Way, label: Label, held: Held) -> float:
        """What a kernel costs that lies in this part alone."""
        problem = self.scope.problem
        items = label.items()
        walked = self.case == STREAMS and self.case.walked(held)
        if walked and tiles(problem.view, items, problem.row) == "scanned" and walks(problem, items):
            return float("inf")  # it is one of those of SCAN
        if self.case in (SCAN, STREAMS) and self.scope.merges and self.filled in self.scope.standing:
            return self._standing(way, label, held, items)
        if self.case in (SCAN, STREAMS):
            kernel = priced(problem, problem.view.buffers[self.filled], way, items)
            return float("inf") if kernel is None else kernel.seconds
        schedules = (what for _, what in held if isinstance(what, Schedule))
        read = Work(bytes_read=self.scope.bytes(label.reads), schedule=next(schedules, None))
        work = self.beside + self.scope.amounts.work(label.work) + read
        if all(item.head in turning(problem.model.hardware) for item in items.values()):
            work = as_copy(work)
        return problem.model.kernel(problem.running.spread(work, way.shape, items, self.size))

    def _standing(self, way: Way, label: Label, held: Held, items: Mapping[Key, Item]) -> float:
        """The same of one that may hold a Stream and fills what stands for others: it writes what is smallest of these, and reads what is
        taken as one once."""
        problem, running = self.scope.problem, self.scope.problem.running
        if any(map(is_rounded, items.values())):  # it may run in several ways
            return self.floor(label, held)
        work = self.beside + self.scope.amounts.work(label.work, read=self.scope.bytes(label.reads))
        if self.case == SCAN and any(item.head == "Scan" for item in items.values()):
            if tiles(problem.view, items, problem.row) != "scanned":
                return float("inf")  # it is one of those in loops
            work = running.walked(work, items)
        return problem.model.kernel(running.spread(work, way.shape, items, self.size))

    def _worthwhile(self, state: State, label: Label) -> bool:
        """Whether a kernel that goes on from a label may be of use, in one of the ways in which it may go on."""
        ways: list[tuple[tuple[float, ...], int, float, float]] = []
        marks = self.scope.given.every
        for cover, upper in self._ahead(state):
            reads = label.reads | cover.reads
            what = reads & self.scope.filled, reads & marks
            limit = self.limits.get(what)
            if limit is None:
                limit = float("inf") if self.limit is None else self.limit(*what) * (1 + 1e-9)
                self.limits[what] = limit
            enough = min(limit, self.most)
            # then it cannot be above them; what is computed for a later part takes as long as in the program's kernels
            if self.filled and not self.floors.runs and label.upper + upper <= enough:
                return True
            work = tuple(map(add, label.work, cover.work))
            if self.floors.soon(work, reads, state.held, enough):
                return True
            ways.append((work, reads, limit, enough))
        dearer, deeper = float("inf"), self._deeper(state.open)
        for work, reads, limit, enough in ways:
            floor = self.floors.of(
                work, reads, state.held, False, enough=enough, less=self.less, deeper=deeper
            )
            if floor <= enough:
                return True
            if floor <= limit:
                dearer = min(dearer, floor)
        self.least = min(self.least, dearer)
        return False

    def _ahead(self, state: State) -> list[tuple[Cover, float]]:
        """The ways to go on from a state, each with about what it costs at most, in seconds."""
        known = self.ahead.get(state.open)
        if known is None:
            scope, model = self.scope, self.scope.problem.model
            positions = tuple(position for position, _ in state.open)
            if self.root is not None and positions == (scope.position[self.root],):
                covers = self.covers.filling(positions[0], self.case, self.shape)
            else:
                covers = self.covers.together(positions, self.case, self.shape)
            if not self.filled:  # what it reads is looked at later
                covers = [Cover(0, least(covers))]
            known = self.ahead[state.open] = [
                (
                    cover,
                    0.0
                    if self.floors.runs
                    else model.seconds(scope.amounts.work(cover.work, read=scope.bytes(cover.reads))),
                )
                for cover in covers
                if not cover.reads & self.own
            ]
        return known
