"""What a search for kernels goes through: states, the labels of each, and the moves from one to the next."""

from __future__ import annotations

from operator import add, le
from typing import NamedTuple

from ..choice import Key
from ..view import Item
from .cases import Held
from .scope import Contexts, Open

COMPARED = 400
"""Comparisons with labels of a state that count as a label: where it has hundreds, they take longer than all else."""


class State(NamedTuple):
    """``open``: what is still to be computed, by rank, the highest first. ``fixed``: of values that need each other in
    a circle, what they are computed as: (position, option, contexts). ``held``: see :meth:`Case.held`."""

    open: Open
    fixed: tuple[tuple[int, int, Contexts], ...]
    held: Held


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


class Move(NamedTuple):
    """A step of a search, or several. ``after``: the state then. The others are what it adds to a label, see there."""

    after: State
    work: tuple[float, ...]
    reads: int
    shunned: int
    upper: float
    step: tuple[tuple[Key, Item], ...]

    def then(self, other: Move) -> Move | None:
        """Two steps as one; None where one reads what the other has shunned."""
        if not other.step:
            return self
        if self.reads & other.shunned or self.shunned & other.reads:
            return None
        work = tuple(map(add, self.work, other.work))
        reads, shunned = self.reads | other.reads, self.shunned | other.shunned
        return Move(other.after, work, reads, shunned, self.upper + other.upper, other.step + self.step)


class Labels:
    """The labels of a search, by state: of each those that no other is as good as. ``compared``: how many were held against others."""

    def __init__(self, width: int) -> None:
        """``width``: bits of what is read."""
        self._width = width
        # of each what it reads and shuns as one set: there may be hundreds of one state, and each new one is held against all
        self._known: dict[State, list[tuple[int, tuple[float, ...], Label]]] = {}
        self.compared = 0

    def of(self, state: State) -> list[Label]:
        return [label for _, _, label in self._known[state]]

    def states(self) -> list[State]:
        """Those to which a label came."""
        return list(self._known)

    def worse(self, state: State, label: Label) -> bool:
        """Whether another of the state is as good."""
        known = self._known.get(state)
        if not known:
            return False
        self.compared += len(known)
        avoided, work = ~(label.reads | label.shunned << self._width), label.work
        for other, amounts, _ in known:
            if not other & avoided and all(map(le, amounts, work)):
                break
        else:
            return False
        return True

    def add(self, state: State, label: Label) -> None:
        """In place of those that are no better."""
        needs, work = label.reads | label.shunned << self._width, label.work
        known = self._known.get(state, ())
        kept = [each for each in known if needs & ~each[0] or not all(map(le, work, each[1]))]
        kept.append((needs, work, label))
        self._known[state] = kept
