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
from typing import NamedTuple

from ..choice import Key, as_copy, tileable, tiles, turning
from ..cost.model import Work
from ..cost.schedule import Schedule
from ..pricing import priced
from ..view import Buffer, Item, Way, is_rounded
from .cases import LOOPS, SCAN, STREAMS, Case, Held
from .covers import Cover, least
from .floors import Floor
from .inside import INSIDE
from .scope import Contexts, Open, Scope

PLAIN: Contexts = frozenset([()])
"""Of a value that depends on no reduction's axes."""


class Label(NamedTuple):
    """``work``: by field of the scope. ``reads``: bit set of buffers. ``shunned``: those that it could have read and has
    not: if it reads one of them for another value, it is no better than a kernel that reads it for both. ``upper``: about
    what its parts cost one by one, in seconds. ``step``: what is computed as what in the last step; ``before``: all before."""

    work: tuple[float, ...]
    reads: int
    shunned: int
    upper: float
    before: Label | None
    step: tuple[tuple[Key, Item], ...]

    def items(self) -> dict[Key, Item]:
        """What each value is computed as."""
        found: dict[Key, Item] = {}
        label: Label | None = self
        while label is not None:
            found |= label.step
            label = label.before
        return found


class State(NamedTuple):
    """``open``: what is still to be computed, by rank, the highest first. ``fixed``: of values that need each other in
    a circle, what they are computed as: (position, option, contexts). ``held``: see :meth:`Case.held`."""

    open: Open
    fixed: tuple[tuple[int, int, Contexts], ...]
    held: Held


class Move(NamedTuple):
    """A step of a search, or several. ``after``: the state then. The others are what it adds to a label, see there."""

    after: State
    work: tuple[float, ...]
    reads: int
    shunned: int
    upper: float
    step: tuple[tuple[Key, Item], ...]


def _one_after_the_other(one: Move, two: Move) -> Move | None:
    """Two steps as one; None where one reads what the other has shunned."""
    if one.reads & two.shunned or one.shunned & two.reads:
        return None
    work = tuple(map(float.__add__, one.work, two.work))
    reads, shunned = one.reads | two.reads, one.shunned | two.shunned
    return Move(two.after, work, reads, shunned, one.upper + two.upper, two.step + one.step)


COMPARED = 400
"""Comparisons with labels of a state that count as a label: where it has hundreds, they take longer than all else."""


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
    limit: Callable[[int], float] | None = None,
    left: float = float("inf"),
) -> Columns:
    """The kernels that fill ``buffer`` from what is in ``scope`` and cost no more than ``most`` seconds. ``labels``: of one
    search at most, a count and not a time; ``left``: of all of them together. ``limit``: what it costs at most to fill the buffer where a set of others is
    filled already; a kernel that reads those and costs more is of no use, and no part of the rest."""
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
    return all(map(float.__le__, one.costs, other.costs))


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
        limit: Callable[[int], float] | None = None,
        shape: tuple[int, ...] | None = None,
        size: int = 0,
        axes: frozenset[str] | None = None,
    ) -> None:
        """``beside``: work of the kernel that is not in its labels. ``root``: a value that has to be computed here.
        ``filled``: the buffer that is filled, if it is a kernel's; else what a kernel costs more is looked at. ``shape``,
        ``size``: that it has then, and the bytes of an element. ``axes``: that the values of a kernel without
        ``root`` depend on, where that is known."""
        self.scope, self.case, self.root, self.most, self.filled = scope, case, root, most, filled
        self.size, self.own = size, scope.bits[filled] if filled else 0
        self.free: frozenset[Key] = frozenset()
        self.beside, self.limit = beside, limit
        self.limits: dict[int, float] = {}
        self.before = 0.0 if filled else scope.problem.model.kernel(beside)
        self.shape = shape
        runs = scope.cases.runs(root, case, shape, size) if shape is not None and root is not None else []
        axes = axes if root is None else scope.problem.view.free[root[0]]
        self.constants = scope.constants(case)
        self.floors = Floor(scope, case, runs, beside if filled else None, axes)
        self.ahead: dict[Open, list[tuple[Cover, float]]] = {}
        self.least = float("inf")
        self.full = False
        self.count = 0
        self.compared = 0
        self.zero = (0.0,) * len(scope.fields)
        self.rank: Mapping[int, int] = {}
        self.forced: dict[State, Move | None] = {}
        self.known: dict[State, list[Label]] = {}
        self.pending: dict[State, list[Label]] = {}
        self.queue: list[tuple[int, int, State]] = []
        self.pushed = 0

    @property
    def found(self) -> list[tuple[Label, Held]]:
        """Whole kernels, each with what it holds."""
        return [
            (label, state.held)
            for state, labels in self.known.items()
            if not state.open and (not self.filled or self.case.whole(state.held))
            for label in labels
        ]

    def run(self, root: Key, most: int) -> None:
        if not self.filled:
            # its own work is counted where it is used, as that of INSIDE, and so is what Beneath knows
            self.free = self.scope.grouped(root)
        self.rank = self.scope.ranks(root)
        start = State(((self.scope.position[root], frozenset([()])),), (), frozenset())
        self._push(
            start,
            Label(self.zero, 0, 0, self.scope.problem.model.kernel(self.beside) - self.before, None, ()),
        )
        while self.queue:
            _, _, state = heapq.heappop(self.queue)
            current = set(map(id, self.known[state]))
            labels = [label for label in self.pending.pop(state) if id(label) in current]
            self.count += len(labels) + self.compared // COMPARED
            self.compared %= COMPARED
            if self.count > most:
                self.full = True
                states = [(state, label) for state, more in self.pending.items() for label in more]
                states += [(state, label) for label in labels]
                floors = (
                    self.floor(label, state.held, cover)
                    for state, label in states
                    for cover, _ in self._ahead(state)
                )
                self.least = min(self.least, *floors)
                return
            self._expand(state, labels)

    def _expand(self, state: State, labels: Sequence[Label]) -> None:
        for number in self._numbers(state):
            first = self._move(state, number)
            following = first and self._forced(first.after)
            move = first and following and _one_after_the_other(first, following)
            if move is None:
                continue
            after, work, reads, shunned, more, step = move
            for label in labels:
                if label.reads & shunned or label.shunned & reads:
                    continue
                total = tuple(map(float.__add__, label.work, work))
                upper = label.upper + more + (self.scope.moving(reads) if reads & ~label.reads else 0.0)
                self._push(
                    after, Label(total, label.reads | reads, label.shunned | shunned, upper, label, step)
                )

    def _numbers(self, state: State) -> list[int]:
        """The options by which the value that comes next may be computed."""
        scope, position = self.scope, state.open[0][0]
        key = scope.order[position]
        for place, number, _ in state.fixed:
            if place == position:
                return [number]
        free = key == self.root
        stored = key[0] in scope.problem.stored
        return [
            number
            for number, option in enumerate(scope.options[key])
            if (
                scope.bits[str(option.item.payload[0])] != self.own
                if option.item.head == "Read"
                else free or not stored
            )
            and (free or (self.case, position, number) not in scope.dropped)
        ]

    def _forced(self, state: State) -> Move | None:
        """All steps from a state on for which there is no choice, as one; None where they lead nowhere."""
        steps: list[tuple[State, Move]] = []
        while state not in self.forced:
            numbers = self._numbers(state) if state.open else []
            step = self._move(state, numbers[0]) if len(numbers) == 1 else None
            if step is not None:
                steps.append((state, step))
                state = step.after
            else:
                here = not state.open or len(numbers) > 1
                self.forced[state] = Move(state, self.zero, 0, 0, 0.0, ()) if here else None
        found = self.forced[state]
        for before, step in reversed(steps):
            found = found and _one_after_the_other(step, found)
            self.forced[before] = found
        return found

    def _move(self, state: State, number: int) -> Move | None:
        """The step by which the value that comes next is computed by an option; None where there is no such kernel."""
        scope = self.scope
        (position, contexts), rest = state.open[0], state.open[1:]
        key = scope.order[position]
        item = scope.options[key][number].item
        held: Held | None = state.held
        if all(place != position for place, _, _ in state.fixed):
            origin, tiles = scope.problem.view.origin(key[0]), item.head == "Contract"
            tiles = tiles and tileable(scope.problem.view, key[0], item)
            held = self.case.held(state.held, item, origin, contexts != PLAIN, tiles, scope.problem.row)
        if held is None:
            return None
        work, marks = scope.work(position, number, self.case, self.shape)
        if self.filled and self.case == LOOPS and ("streams", None) in marks:
            return None
        children = scope.steps(position, number, contexts)
        constant = [self.constants[child] for child, _ in children if child in self.constants]
        marks = marks.union(*(more for _, more in constant))
        after = self._after(state, rest, position, number, contexts, held | marks)
        if after is None or not self._able(after):
            return None
        times, reads, upper = len(contexts), scope.reads(key, item), 0.0
        if key in self.free:
            work = self.zero
        else:
            upper = times * scope.seconds(position, number, self.case)
        if item is INSIDE:
            reads |= scope.given.again(key, times)
        shunned = scope.at_hand[self.case][position][number] if key != self.root else 0
        total = tuple([times * amount for amount in work])
        return Move(after, total, reads, shunned, upper, ((key, item), *(each for each, _ in constant)))

    def _after(
        self, state: State, rest: Open, position: int, number: int, contexts: Contexts, held: Held
    ) -> State | None:
        """The state once a value is computed by an option; None where it would need itself."""
        scope = self.scope
        open_ = dict(rest)
        fixed = {each[0]: each for each in state.fixed}
        if scope.circle[position] >= 0:
            known = fixed[position][2] if position in fixed else frozenset()
            fixed[position] = (position, number, known | contexts)
        for child, inner in scope.steps(position, number, contexts):
            if child in self.constants:
                continue
            if child in fixed:
                inner -= fixed[child][2]
                if not inner:
                    continue
            open_[child] = open_.get(child, frozenset()) | inner
        if fixed and self._circular(fixed, position):
            return None
        rank = self.rank
        ordered = tuple(sorted(open_.items(), key=lambda each: -rank[each[0]]))
        if fixed:
            last = rank[ordered[0][0]] if ordered else -1
            fixed = {place: each for place, each in fixed.items() if rank[scope.circle[place]] <= last}
        return State(ordered, tuple(fixed[place] for place in sorted(fixed)), held)

    def _able(self, state: State) -> bool:
        """Whether a kernel that goes on from a state may be of the case: else it is one of another, where it costs as much."""
        positions = (position for position, _ in state.open)
        return not self.filled or self.scope.contents.able(self.case, state.held, positions)

    def _circular(self, fixed: Mapping[int, tuple[int, int, Contexts]], start: int) -> bool:
        seen: set[int] = set()
        stack = [start]
        while stack:
            place = stack.pop()
            for child in self.scope.options[self.scope.order[place]][fixed[place][1]].children:
                other = self.scope.position[child]
                if other == start:
                    return True
                if other in fixed and other not in seen:
                    seen.add(other)
                    stack.append(other)
        return False

    def _push(self, state: State, label: Label) -> None:
        known = self.known.get(state)
        if known is None:
            known = self.known[state] = []
        work, reads, shunned = label.work, label.reads, label.shunned
        self.compared += len(known)
        for other in known:
            if other.reads & ~reads == 0 == other.shunned & ~shunned and all(
                map(float.__le__, other.work, work)
            ):
                return
        if not self._worthwhile(state, label):
            return
        known[:] = [
            other
            for other in known
            if reads & ~other.reads
            or shunned & ~other.shunned
            or not all(map(float.__le__, work, other.work))
        ]
        known.append(label)
        if not state.open:
            return
        if state not in self.pending:
            self.pending[state] = []
            self.pushed += 1
            heapq.heappush(self.queue, (-self.rank[state.open[0][0]], self.pushed, state))
        self.pending[state].append(label)

    def floor(self, label: Label, held: Held, ahead: Cover | None = None, enough: float = 0.0) -> float:
        """What a kernel that goes on from a label costs at least; see :meth:`Floor.of`."""
        work, reads = label.work, label.reads
        if ahead is None:
            return self.floors.of(work, reads, held, enough=enough)
        work = tuple(map(float.__add__, work, ahead.work))
        return self.floors.of(work, reads | ahead.reads, held, whole=False, enough=enough)

    def costs(self, way: Way, label: Label, held: Held) -> tuple[float, ...]:
        """What a whole kernel costs, for each of the scope's levels."""
        levels = self.scope.levels
        if label.reads & self.scope.inside:  # how a kernel runs that goes on in another part is not known
            return self.floors.by_levels(label.work, label.reads, held)
        return (self.seconds(way, label, held),) * len(levels)

    def seconds(self, way: Way, label: Label, held: Held) -> float:
        """What a kernel costs that lies in this part alone."""
        problem = self.scope.problem
        items = label.items()
        if self.case in (SCAN, STREAMS) and self.scope.merges and self.filled in self.scope.standing:
            return self._standing(way, label, held, items)
        if self.case in (SCAN, STREAMS):
            kernel = priced(problem, problem.view.buffers[self.filled], way, items)
            return float("inf") if kernel is None else kernel.seconds
        schedules = (what for _, what in held if isinstance(what, Schedule))
        read = Work(bytes_read=self.scope.bytes(label.reads), schedule=next(schedules, None))
        work = self.beside + self.scope.whole(label.work) + read
        if all(item.head in turning(problem.model.hardware) for item in items.values()):
            work = as_copy(work)
        return problem.model.kernel(problem.running.spread(work, way.shape, items, self.size))

    def _standing(self, way: Way, label: Label, held: Held, items: Mapping[Key, Item]) -> float:
        """The same of one that may hold a Stream and fills what stands for others: it writes what is smallest of these, and reads what is
        taken as one once."""
        problem, running = self.scope.problem, self.scope.problem.running
        if any(map(is_rounded, items.values())):  # it may run in several ways
            return self.floor(label, held)
        work = self.beside + self.scope.whole(label.work, read=self.scope.bytes(label.reads))
        if self.case == SCAN and any(item.head == "Scan" for item in items.values()):
            if tiles(problem.view, items, problem.row) != "scanned":
                return float("inf")  # it is one of those in loops
            work = running.walked(work, items)
        return problem.model.kernel(running.spread(work, way.shape, items, self.size))

    def _worthwhile(self, state: State, label: Label) -> bool:
        """Whether a kernel that goes on from a label may be of use, in one of the ways in which it may go on."""
        dearer = float("inf")
        for cover, upper in self._ahead(state):
            filled = (label.reads | cover.reads) & self.scope.filled
            limit = self.limits.get(filled)
            if limit is None:
                limit = float("inf") if self.limit is None else self.limit(filled) * (1 + 1e-9)
                self.limits[filled] = limit
            enough = min(limit, self.most)
            if not self.floors.runs and label.upper + upper <= enough:  # then it cannot be above them
                return True
            work, reads = tuple(map(float.__add__, label.work, cover.work)), label.reads | cover.reads
            if self.floors.soon(work, reads, state.held, enough):
                return True
            floor = self.floors.of(work, reads, state.held, whole=False, enough=enough)
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
            covers = scope.covers.together(
                tuple(position for position, _ in state.open), self.case, self.shape
            )
            if not self.filled:  # what it reads is looked at later
                covers = [Cover(0, least(covers))]
            known = self.ahead[state.open] = [
                (
                    cover,
                    0.0
                    if self.floors.runs
                    else model.seconds(scope.whole(cover.work, read=scope.bytes(cover.reads))),
                )
                for cover in covers
                if not cover.reads & self.own
            ]
        return known
