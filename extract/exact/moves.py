"""The steps of a search for kernels: from a state, each way to compute the value that comes next, with all steps after it of which
there is no choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..choice import Key, tileable
from ..view import Item
from .cases import LOOPS, PRODUCTS, Case, Held
from .inside import INSIDE
from .labels import Move, State
from .scope import Context, Contexts, Open, Scope

PLAIN: Contexts = frozenset([()])
"""Of a value that depends on no reduction's axes."""

NOTHING: Held = frozenset()


class _Way(NamedTuple):
    """An option of a value in kernels of a case. ``heeded``: whether what a kernel holds may be another with it. ``base``: whether it
    is a contraction that can be tiled by itself. ``reads``, ``shunned``, ``seconds``: see :class:`Label`, ``upper`` of it."""

    key: Key
    item: Item
    heeded: bool
    base: bool
    reads: int
    shunned: int
    seconds: float


class _Operands(NamedTuple):
    """Of an option: those that are to be computed, with the contexts in which they are; of the others, which are constants, what each
    is computed as, and what a kernel holds then."""

    open: tuple[tuple[int, Contexts], ...]
    constant: tuple[tuple[Key, Item], ...]
    marks: Held


class Moves:
    """Of the searches of one case from one root. They depend on no label, so that searches with other limits make the same."""

    def __init__(
        self,
        scope: Scope,
        case: Case,
        start: Key,
        root: Key | None,
        own: int,
        shape: tuple[int, ...] | None,
        free: frozenset[Key],
    ) -> None:
        """``start``: where they begin. ``root``: a value that has to be computed here. ``own``: the bit of the buffer that is filled, if
        it is a kernel's. ``shape``: that it has then. ``free``: values of which the work is not counted."""
        self.scope, self.case, self.root = scope, case, root
        self.own, self.shape, self.free = own, shape, free
        self.rank = scope.ranks(start)
        self.constants = scope.constants(case)
        self.zero = (0.0,) * len(scope.amounts.fields)
        self.start = State(((scope.position[start], PLAIN),), (), frozenset())
        self._falling: Mapping[int, int] = {place: -rank for place, rank in self.rank.items()}
        self._from: dict[State, list[Move]] = {}
        self._forced: dict[State, Move | None] = {}
        self._numbers: dict[int, list[int]] = {}
        self._ways: dict[tuple[int, int], _Way] = {}
        self._operands: dict[tuple[int, int, Contexts], _Operands] = {}

    def of(self, state: State) -> list[Move]:
        """Those from a state, each to one from which there is a choice, or none is left."""
        found = self._from.get(state)
        if found is None:
            found = self._from[state] = []
            for number in self._able(state):
                first = self._move(state, number)
                following = first and self._following(first.after)
                move = first and following and first.then(following)
                if move is not None:
                    found.append(move)
        return found

    def _able(self, state: State) -> list[int]:
        """The options by which the value that comes next may be computed."""
        position = state.open[0][0]
        for place, number, _ in state.fixed:
            if place == position:
                return [number]
        known = self._numbers.get(position)
        if known is None:
            scope, key = self.scope, self.scope.order[position]
            free, stored = key == self.root, key[0] in scope.problem.stored
            known = self._numbers[position] = [
                number
                for number, option in enumerate(scope.options[key])
                if (
                    scope.bits[str(option.item.payload[0])] != self.own
                    if option.item.head == "Read"
                    else free or not stored
                )
                and (free or (self.case, position, number) not in scope.dropped)
            ]
        return known

    def _following(self, state: State) -> Move | None:
        """All steps from a state on for which there is no choice, as one; None where they lead nowhere."""
        steps: list[tuple[State, Move]] = []
        while state not in self._forced:
            numbers = self._able(state) if state.open else []
            step = self._move(state, numbers[0]) if len(numbers) == 1 else None
            if step is not None:
                steps.append((state, step))
                state = step.after
            else:
                here = not state.open or len(numbers) > 1
                self._forced[state] = Move(state, self.zero, 0, 0, 0.0, ()) if here else None
        found = self._forced[state]
        for before, step in reversed(steps):
            found = found and step.then(found)
            self._forced[before] = found
        return found

    def _move(self, state: State, number: int) -> Move | None:
        """The step by which the value that comes next is computed by an option; None where there is no such kernel."""
        scope = self.scope
        (position, contexts), rest = state.open[0], state.open[1:]
        way = self._way(position, number)
        key, item = way.key, way.item
        held: Held | None = state.held
        if way.heeded and all(place != position for place, _, _ in state.fixed):
            origin = scope.problem.view.origin(key[0])
            held = self.case.held(state.held, item, origin, contexts != PLAIN, way.base, scope.problem.row)
        if held is None:
            return None
        work, marks = scope.amounts.of_option(position, number, self.case, self.shape)
        if self.own and self.case == LOOPS and ("streams", None) in marks:
            return None
        operands = self._operands_of(position, number, contexts)
        if marks or operands.marks:
            held = held.union(marks, operands.marks)
        after = self._after(state, rest, position, number, contexts, held, operands.open)
        if after is None or not self._finished(after):
            return None
        times, reads, upper = len(contexts), way.reads, 0.0
        if key in self.free:
            work = self.zero
        else:
            upper = times * way.seconds
            work = work if times == 1 else tuple([times * amount for amount in work])
        if item is INSIDE:
            reads |= scope.given.again(key, times)
        return Move(after, work, reads, way.shunned, upper, ((key, item), *operands.constant))

    def _way(self, position: int, number: int) -> _Way:
        known = self._ways.get((position, number))
        if known is None:
            scope, case, key = self.scope, self.case, self.scope.order[position]
            item = scope.options[key][number].item
            base = item.head == "Contract" and tileable(scope.problem.view, key[0], item)
            shunned = scope.at_hand[case][position][number] if key != self.root else 0
            seconds = scope.amounts.seconds(position, number, case)
            known = _Way(key, item, case.heeds(item), base, scope.reads(key, item), shunned, seconds)
            self._ways[position, number] = known
        return known

    def _operands_of(self, position: int, number: int, contexts: Contexts) -> _Operands:
        known = self._operands.get((position, number, contexts))
        if known is None:
            steps = self.scope.steps(position, number, contexts)
            constant = [self.constants[child] for child, _ in steps if child in self.constants]
            marks = NOTHING.union(*(marks for _, marks in constant))
            open_ = tuple(each for each in steps if each[0] not in self.constants)
            known = _Operands(open_, tuple(each for each, _ in constant), marks)
            self._operands[position, number, contexts] = known
        return known

    def _after(
        self,
        state: State,
        rest: Open,
        position: int,
        number: int,
        contexts: Contexts,
        held: Held,
        operands: Open,
    ) -> State | None:
        """The state once a value is computed by an option; None where it would need itself."""
        scope = self.scope
        circular = scope.circle[position] >= 0
        if not circular and not state.fixed and not operands:
            return State(rest, (), held)
        open_ = dict(rest)
        fixed = {each[0]: each for each in state.fixed}
        if circular:
            known = fixed[position][2] if position in fixed else frozenset[Context]()
            fixed[position] = (position, number, known | contexts)
        for child, inner in operands:
            if child in fixed:
                inner -= fixed[child][2]
                if not inner:
                    continue
            open_[child] = open_[child] | inner if child in open_ else inner
        if fixed and self._circular(fixed, position):
            return None
        ordered = tuple([(place, open_[place]) for place in sorted(open_, key=self._falling.__getitem__)])
        if fixed:
            last = self.rank[ordered[0][0]] if ordered else -1
            fixed = {place: each for place, each in fixed.items() if self.rank[scope.circle[place]] <= last}
        return State(ordered, tuple(fixed[place] for place in sorted(fixed)), held)

    def _finished(self, state: State) -> bool:
        """Whether a kernel that goes on from a state may be of the case: else it is one of another, where it costs as much."""
        if not self.own or self.case.name not in PRODUCTS:
            return True
        positions = (position for position, _ in state.open)
        return self.scope.contents.able(self.case, state.held, positions)

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
