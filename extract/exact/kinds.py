"""The kinds of kernels that there may be from a value, and how they may run."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tinyc.ir.folds import Fold

from ..choice import Key
from ..cost.schedule import Schedule
from .cases import LOOPS, STREAMS, Case
from .inside import INSIDE

if TYPE_CHECKING:
    from .scope import Scope


class Kinds:
    """Of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.problem = scope, scope.problem
        self._below: dict[Key, list[Key]] = {}

    def streams(self, root: Key) -> bool:
        """Whether a kernel from ``root`` may hold a Stream."""
        return self.problem.tiling is not None and "Stream" in self._heads(root)

    def runs(self, root: Key, case: Case, shape: tuple[int, ...], size: int) -> list[Schedule]:
        """In what ways a kernel from ``root`` may run that fills ``shape``; empty where that is not known. ``size``: bytes of
        an element."""
        tiling, known = self.problem.tiling, self.scope.part.known.values()
        if tiling is None or case == LOOPS:
            return [] if tiling is None else list(tiling.loops(shape, size, self._folds(root, shape)))
        found: dict[Schedule | None, None] = {}
        for key in self._beneath(root):
            for option in self.scope.options[key]:
                if case == STREAMS:
                    found[self.problem.streamed(key, option.item)] = None
                elif option.item.head == "Contract":
                    found[self.problem.work(key, option.item, case.how).schedule] = None
                elif option.item is INSIDE:
                    works = (*self.problem.products, *self.problem.scanned)
                    found |= dict.fromkeys(work.schedule for work in works)
        if case == STREAMS:
            found |= dict.fromkeys(walk for each in known for walk in each.walks)
        return [each for each in found if each is not None]

    def _folds(self, root: Key, shape: tuple[int, ...]) -> tuple[Fold, ...]:
        """The sums that threads may share in a kernel from ``root``."""
        beneath = self._beneath(root)
        anywhere = any(option.item is INSIDE for key in beneath for option in self.scope.options[key])
        return self.problem.folds(shape, None if anywhere else beneath)

    def _beneath(self, root: Key) -> list[Key]:
        """The values that there may be in a kernel from ``root``."""
        if root not in self._below:
            found, stack = {root}, [root]
            while stack:
                fresh = self.scope.edges[stack.pop()] - found
                found |= fresh
                stack += fresh
            self._below[root] = sorted(found, key=self.scope.position.__getitem__)
        return self._below[root]

    def _heads(self, root: Key) -> frozenset[str]:
        """What there may be in a kernel from ``root``."""
        items = (option.item for key in self._beneath(root) for option in self.scope.options[key])
        return frozenset(item.op if item is INSIDE else item.head for item in items)

    @cached_property
    def _everywhere(self) -> frozenset[str]:
        """What there may be in a kernel of the program."""
        return frozenset(option.item.head for found in self.problem.options.values() for option in found)

    def cases(self, root: Key, anywhere: bool = False) -> list[Case]:
        """The kinds of kernels that there may be from ``root``. ``anywhere``: that hold it, and what is in other parts."""
        heads = self._heads(root)
        if anywhere or INSIDE.op in heads:  # beneath what is given, there may be anything
            heads |= self._everywhere
        tiled = [case for case in self.tiled if case.name != "scan" or "Scan" in heads]
        looped = [LOOPS]
        if not anywhere and (self.streams(root) or (INSIDE.op in heads and self.scope.given.walked)):
            looped.append(STREAMS)
        return [*tiled, *looped] if "Contract" in heads else looped

    @cached_property
    def tiled(self) -> list[Case]:
        """The kinds of kernels that tile a contraction."""
        return [
            *(
                [Case("beside", "tiled"), Case("rows", "rows")]
                if self.problem.rows
                else [Case("alone", "tiled")]
            ),
            Case("scan", "scanned"),
        ]
