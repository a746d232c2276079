"""What a kernel costs at least of which only a part is known: some of its values, or those of one part of a program."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import add, le, sub
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..cost.model import AMOUNTS, Timer, Work, amounts_of
from ..cost.schedule import Schedule
from .amounts import EPILOGUE, OPS
from .cases import LOOPS, PRODUCTS, SCAN, STREAMS, Case, Held
from .given import Way
from .hosts import computing
from .inside import Levels
from .scope import Scope
from .sources import NEAR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Each = Sequence[NDArray[np.float64]]

Amounts = tuple[float, ...]

NONE: Mapping[int, Amounts] = MappingProxyType({})

STRIDED, TRANSPOSED = map(AMOUNTS.index, ("strided_bytes", "transposed_bytes"))


class Floor:
    """Bounds of the kernels of a case. ``runs``: in what ways they may run, where that is known.
    ``written``: what a kernel writes; None of kernels of later parts: of those what they take longer is looked at.
    ``axes``: that a kernel's values depend on, where that is known; ``shape``: that it fills."""

    def __init__(
        self,
        scope: Scope,
        case: Case,
        runs: Sequence[Schedule],
        written: Work | None,
        axes: frozenset[str] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.scope, self.case, self.runs, self.written, self.axes = scope, case, runs, written, axes
        self.shape = shape
        self.problem = scope.problem
        self.beside = amounts_of(written or Work())
        self.timers = tuple(dict.fromkeys(self.problem.running.timer(run) for run in runs))
        # how a kernel of this part may run that was found to cost no more than was asked for; the last of what each holds
        self.hit: Timer | None = None
        self.hits: dict[Held, Timer] = {}
        self._timed: dict[tuple[bool, tuple[Schedule | None, ...]], Sequence[Timer]] = {}
        self.before = scope.problem.model.kernel(Work()) if written is None else 0.0
        self._known: dict[int, Sequence[Way]] = {}

    def of(
        self,
        amounts: Amounts,
        reads: int,
        held: Held,
        whole: bool = True,
        levels: Levels | None = None,
        enough: float = 0.0,
        less: Mapping[int, Amounts] = NONE,
        deeper: bool = False,
    ) -> float:
        """What a kernel costs at least, in seconds, that does work of these amounts with these reads: on a machine that is evenly
        full where it is not known how it runs. Where there is a way in which it costs no more than ``enough``, that is said of
        some such way; else the answer may be any bound that is above ``enough``. ``whole``: whether that is all of it. ``levels``: of
        what is given, else any. ``less``: amounts that do not count, by how far from hand what is given is, of kernels that compute
        some of it; ``deeper``: whether more of that may be computed.

        One that goes on in an earlier part may hide what it moves here behind what it computes there. Where something is
        charged there, it is left out here."""
        scope = self.scope
        if self.written is None and not scope.roofline:
            return 0.0
        moved = self._moved(reads, levels is None or scope.part.charged(levels))
        least = float("inf")
        if less and (deeper or reads & scope.inside):
            ways = self._beside(reads, less)
        else:
            ways = scope.given.once(reads, self.case.how, levels, self.shape)
        for way in ways:
            if self._one_product(held, way[1]) and (not whole or self._tiles(reads, held, way[1])):
                least = min(least, self._once(amounts, moved, held, reads, way, whole, enough))
            if least <= enough:
                if self.written is not None and not reads & scope.inside and self.hit is not None:
                    self.hits[held] = self.hit
                break
        return least

    def _moved(self, reads: int, charged: bool) -> float | None:
        """The bytes that are read, if that counts. ``charged``: whether some of what is computed of what is given is charged where that
        is made."""
        scope = self.scope
        if self.written is None or (reads & scope.inside and scope.roofline and charged):
            return None
        return scope.bytes(reads)

    def _once(
        self,
        amounts: Amounts,
        moved: float | None,
        held: Held,
        reads: int,
        way: Way,
        whole: bool,
        enough: float,
        less: Amounts | None = None,
    ) -> float:
        """The same in one of the ways to compute what is given."""
        once, schedule = way
        total = tuple(map(add, amounts, once))
        if less is not None:
            total = tuple(map(sub, total, less))
        if min(total, default=0.0) < 0:
            total = tuple([max(0.0, each) for each in total])
        return self._least(total, moved, held, reads, schedule, whole, enough)

    def _beside(self, reads: int, less: Mapping[int, Amounts]) -> Sequence[Way]:
        """What kernels do once for values of what is given, at any level, without what does not count. ``less``: see :meth:`of`."""
        scope = self.scope
        kinds = reads & scope.given.every
        found = self._known.get(kinds)
        if found is None:
            zero = (0.0,) * len(scope.amounts.fields)
            if reads & scope.inside:
                ways = scope.given.by_levels(kinds, self.case.how, self.shape).ways
            else:  # of what may be computed yet, nothing is known
                ways = [(False, lacking, (zero, None)) for lacking in (NEAR, *less)]
            beside = dict.fromkeys(
                (tuple(map(sub, once, less.get(lacking, zero))), schedule)
                for _, lacking, (once, schedule) in ways
            )
            found = self._known[kinds] = [
                way
                for way in beside
                if not any(
                    other != way and other[1] == way[1] and all(map(le, other[0], way[0])) for other in beside
                )
            ]
        return found

    def soon(self, amounts: Amounts, reads: int, held: Held, enough: float) -> bool:
        """Whether :meth:`of` would find a way that costs no more than ``enough``; as far as that is seen at a glance."""
        timer = self.hits.get(held)
        if timer is None or reads & self.scope.inside:
            return False
        return timer(self.scope.amounts.values(amounts, self.beside, self.scope.bytes(reads))) <= enough

    def by_levels(
        self, amounts: Amounts, reads: int, held: Held, less: Mapping[int, Amounts] = NONE
    ) -> tuple[Sequence[float], Sequence[float]]:
        """The same of all of a kernel, at each of the scope's levels; and without amounts that do not count. ``less``: these, by how far
        from hand what is given is."""
        scope = self.scope
        if self.written is None and not scope.roofline:
            return ((0.0,) * len(scope.levels),) * 2
        ways, sets, likes = scope.given.by_levels(reads, self.case.how, self.shape)
        moved = {charged: self._moved(reads, charged) for charged in (False, True)}
        known: dict[tuple[bool, Way, Amounts | None], float] = {}

        def cost(charged: bool, way: Way, out: Amounts | None) -> float:
            what = charged, way, out
            if what not in known:
                known[what] = float("inf")
                if self._one_product(held, way[1]) and self._tiles(reads, held, way[1]):
                    known[what] = self._once(amounts, moved[charged], held, reads, way, True, 0.0, out)
            return known[what]

        def least(each: Mapping[int, Amounts]) -> Sequence[float]:
            costs = [cost(charged, way, each.get(lacking)) for charged, lacking, way in ways]
            found = [min([costs[number] for number in numbers], default=float("inf")) for numbers in sets]
            return [found[like] for like in likes]

        costs = least(NONE)
        return costs, least(less) if less else costs

    def of_many(
        self, amounts: Sequence[Amounts], reads: int, held: Held, less: Mapping[int, Amounts] = NONE
    ) -> tuple[Each, Each]:
        """The same of many kernels of later parts, which hold the same, and of which ``reads`` says the same of what is given: at each
        level, an array."""
        import numpy as np

        if not self.scope.roofline:
            return ((np.zeros(len(amounts)),) * len(self.scope.levels),) * 2
        ways, sets, likes = self.scope.given.by_levels(reads, self.case.how, self.shape)
        table = np.array(amounts).transpose()[:, None, :]
        # of all ways that tile alike, which are told apart by what does not count as well
        never = np.full(len(amounts), float("inf"))
        known: dict[tuple[Way, Amounts | None], NDArray[np.float64]] = {}
        apart: dict[Schedule | None, list[tuple[Way, Amounts | None]]] = {}
        for what in dict.fromkeys(
            (way, each.get(lacking)) for each in (NONE, less) for _, lacking, way in ways
        ):
            known[what] = never
            if self._one_product(held, what[0][1]):
                apart.setdefault(what[0][1], []).append(what)
        zero = (0.0,) * len(table)
        for schedule, alike in apart.items():
            total = table + np.array([way for (way, _), _ in alike]).transpose()[:, :, None]
            out = np.array([out or zero for _, out in alike]).transpose()[:, :, None]
            total = np.maximum(0.0, total - out)
            known |= zip(alike, self._least_of_many(total, held, reads, schedule), strict=True)

        def least(each: Mapping[int, Amounts]) -> Each:
            costs = [known[way, each.get(lacking)] for _, lacking, way in ways]
            found = [
                functools.reduce(np.minimum, [costs[number] for number in numbers], never) for numbers in sets
            ]
            return [found[like] for like in likes]

        costs = least(NONE)
        return costs, least(less) if less else costs

    def _least_of_many(
        self, amounts: NDArray[np.float64], held: Held, reads: int, schedule: Schedule | None
    ) -> NDArray[np.float64]:
        """As :meth:`_least`, of kernels of later parts."""
        import numpy as np

        scope, given = self.scope, self.scope.given
        apart = given.unread(tuple(amounts))
        values = scope.amounts.values(given.unproduct(apart) if self.case.name in PRODUCTS else apart)
        works = [values, _as_copy(values)] if np.any(values[STRIDED]) else [values]
        timers = self._ways_to_run(None, held, reads, schedule, True)
        each = [self.problem.running.many(timer)(work) for timer in timers for work in works]
        return np.broadcast_to(functools.reduce(np.minimum, each) - self.before, amounts.shape[1:])

    def _one_product(self, held: Held, schedule: Schedule | None) -> bool:
        """Whether a kernel tiles no product beneath what is given beside one of its own: of two that it computes at its output axes, it
        tiles neither (:func:`~tinyc.extract.choice.tiles`)."""
        tiled = schedule is not None and self.case.name in PRODUCTS and not self.scope.part.twice
        return not tiled or all(kind not in ("base", "reduction") for kind, _ in held)

    def _tiles(self, reads: int, held: Held, schedule: Schedule | None) -> bool:
        """Whether a whole kernel is of its case: it tiles a product, be it beneath what is given."""
        if self.case.name not in PRODUCTS or self.written is None or not reads & self.scope.inside:
            return True
        if schedule is not None or reads & self.scope.given.tileable:
            return True
        return any(isinstance(what, Schedule) or kind in ("base", "reduction") for kind, what in held)

    def _least(
        self,
        amounts: Amounts,
        moved: float | None,
        held: Held,
        reads: int,
        schedule: Schedule | None,
        whole: bool,
        enough: float,
    ) -> float:
        """The same, beside what is ``moved``, the bytes that are read, if that counts, in one of the ways in which it may run.
        ``schedule``: as it tiles a product beneath what is given."""
        inside, tiles = bool(reads & self.scope.inside), self.case.name in PRODUCTS
        known = sum(isinstance(what, Schedule) for _, what in held) == 1 or schedule is not None
        if tiles and self.written is None:
            amounts = self.scope.given.unproduct(amounts)  # its product is counted where the kernel is
        elif tiles and inside and not known:  # by a product somewhere beneath what is given
            tiling = (
                self._fewest(tuple(map(add, amounts, more)), None, timers, enough)
                for more, timers in self._tiling
            )
            least = min(tiling, default=float("inf"))
            if moved is None:
                return least
            return max(least, self._fewest(amounts, moved, self._timers(moved, (None,)), enough))
        timers = self._ways_to_run(moved, held, reads, schedule, whole)
        return self._fewest(amounts, moved, timers, enough)

    def _ways_to_run(
        self, moved: float | None, held: Held, reads: int, schedule: Schedule | None, whole: bool
    ) -> Sequence[Timer]:
        """See :meth:`_least`."""
        known = [what for _, what in held if isinstance(what, Schedule)]
        if self.case in (LOOPS, STREAMS) and self.runs:
            return self._timers(moved)
        if self.case == SCAN:  # of several, it runs as one of them does
            beneath = self.scope.given.walks(reads) if reads & self.scope.inside else frozenset()
            runs = (*known, *beneath) if known or (whole and beneath) else None
            return self._timers(moved, runs) or self._timers(moved, (None,))
        if len(known) == 1 or schedule is not None:
            return self._timers(moved, (known[0] if known else schedule,))
        return self._hosts if moved is None else self._timers(moved) or self._timers(moved, (None,))

    @cached_property
    def _hosts(self) -> Sequence[Timer]:
        return self.scope.hosts.of(self.case, self.axes or ())

    @cached_property
    def _tiling(self) -> Sequence[tuple[Amounts, Sequence[Timer]]]:
        """The arithmetic of products, and how kernels run that tile them."""
        if not self.scope.roofline or self.problem.tiling is None:
            return [((0.0,) * len(self.scope.amounts.fields), self._timers(None, (None,)))]
        found = self.scope.given.products(self.case.how, self.axes)
        return [(more, self._timers(None, (run,))) for more, run in found]

    def full(self, values: Sequence[float]) -> float:
        """What a kernel takes at least however it runs: on a machine that is evenly full, with its epilogue hidden."""
        without = list(values)
        without[OPS] -= without[EPILOGUE]
        return self.problem.running.timer(None)(without)

    def _timers(self, moved: float | None, runs: Sequence[Schedule | None] | None = None) -> Sequence[Timer]:
        """What kernels take that run in these ways, or in any: all of it, or what they compute."""
        if runs is None:
            return self.timers if moved is not None else self.computing
        bare = moved is None
        what = bare, tuple(runs)
        if what not in self._timed:
            self._timed[what] = [
                self.problem.running.timer(computing(run) if run is not None and bare else run)
                for run in runs
            ]
        return self._timed[what]

    @cached_property
    def computing(self) -> Sequence[Timer]:
        return tuple(dict.fromkeys(self._timers(None, self.runs)))

    def _fewest(self, amounts: Amounts, moved: float | None, timers: Sequence[Timer], enough: float) -> float:
        """The same, where it takes what one of these says."""
        least, scope = float("inf"), self.scope
        if moved is None:
            works = [scope.amounts.values(scope.given.unread(amounts))]
        else:
            works = [scope.amounts.values(amounts, self.beside, moved)]
        if works[0][STRIDED]:
            works.append(_as_copy(works[0]))
        if enough and len(timers) > 1 and scope.roofline:
            full = min(map(self.full, works)) - self.before
            if full > enough:
                return full
        for seconds in timers:
            for values in works:
                least = min(least, seconds(values) - self.before)
            if least <= enough:
                self.hit = seconds
                break
        return least


def _as_copy(values: Sequence[Any]) -> list[Any]:
    """See :func:`~tinyc.extract.choice.as_copy`."""
    copy = list(values)
    copy[STRIDED], copy[TRANSPOSED] = 0.0, values[TRANSPOSED] + values[STRIDED]
    return copy
