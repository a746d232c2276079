"""What a kernel costs at least of which only a part is known: some of its values, or those of one part of a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..choice import as_copy
from ..cost.model import Work, running
from ..cost.schedule import Schedule
from .cases import LOOPS, PRODUCTS, STREAMS, Case, Held
from .inside import Levels, computing
from .scope import Scope

Amounts = tuple[float, ...]


class Floor:
    """Bounds of the kernels of a case. ``runs``: in what ways they may run, where that is known.
    ``written``: what a kernel writes; None of kernels of later parts: of those what they take longer is looked at."""

    def __init__(
        self,
        scope: Scope,
        case: Case,
        runs: Sequence[Schedule],
        written: Work | None,
    ) -> None:
        self.scope, self.case, self.runs, self.written = scope, case, runs, written
        self.running = running(scope.problem.model)
        self.before = scope.problem.model.kernel(Work()) if written is None else 0.0

    def of(
        self,
        amounts: Amounts,
        reads: int,
        held: Held,
        whole: bool = True,
        levels: Levels | None = None,
        enough: float = 0.0,
    ) -> float:
        """What a kernel costs at least, in seconds, that does work of these amounts with these reads: on a machine that is evenly
        full where it is not known how it runs. Or else some way in which it costs no more than ``enough``. ``whole``: whether
        that is all of it. ``levels``: of what is given, else any.

        One that goes on in an earlier part may hide what it moves here behind what it computes there. Where something is
        charged there, it is left out here."""
        scope = self.scope
        if self.written is None and not scope.roofline:
            return 0.0
        moved: Work | None = None
        charged = reads & scope.inside and scope.roofline and (levels is None or scope.part.charged(levels))
        if self.written is not None and not charged:
            moved = self.written + Work(bytes_read=scope.bytes(reads))
        least = float("inf")
        for once, schedule in scope.given.once(reads, self.case.how, levels):
            if not whole or self._tiles(reads, held, schedule):
                total = tuple(map(float.__add__, amounts, once))
                least = min(least, self._least(total, moved, held, reads, schedule, whole, enough))
            if least <= enough:
                break
        return least

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
        moved: Work | None,
        held: Held,
        reads: int,
        schedule: Schedule | None,
        whole: bool,
        enough: float,
    ) -> float:
        """The same, beside what is ``moved``, if that counts, in one of the ways in which it may run. ``schedule``: as it tiles a
        product beneath what is given."""
        given, inside = self.scope.given, bool(reads & self.scope.inside)
        known = [what for _, what in held if isinstance(what, Schedule)]
        tiles = self.case.name in PRODUCTS
        if self.case == LOOPS and self.runs:
            return self._fewest(amounts, moved, self.runs, enough)
        if self.case == STREAMS:  # of several, it runs as one of them does
            beneath = given.walks(reads) if inside else frozenset()
            runs = (*known, *beneath) if known or (whole and beneath) else self.runs
            return self._fewest(amounts, moved, runs, enough)
        if tiles and self.written is None:
            amounts = given.unproduct(amounts)  # its product is counted where the kernel is
        if len(known) == 1 or schedule is not None:
            return self._fewest(amounts, moved, (known[0] if known else schedule,), enough)
        if tiles and self.written is not None and inside:  # by a product somewhere beneath what is given
            least = min(
                self._fewest(tuple(map(float.__add__, amounts, more)), None, (run,), enough)
                for more, run in given.products
            )
            return least if moved is None else max(least, self._fewest(amounts, moved, (None,), enough))
        hosts = given.hosts(self.case) if moved is None else self.runs or (None,)
        return self._fewest(amounts, moved, hosts, enough)

    def _fewest(
        self, amounts: Amounts, moved: Work | None, runs: Iterable[Schedule | None], enough: float
    ) -> float:
        """The same, where it runs in one of these ways."""
        least = float("inf")
        amounts = self.scope.given.unread(amounts) if moved is None else amounts
        work = self.scope.whole(amounts) if moved is None else self.scope.whole(amounts) + moved
        works = (work, as_copy(work)) if work.strided_bytes else (work,)
        for run in runs:
            run = computing(run) if run is not None and moved is None else run
            least = min(least, *(self.running(each, run) - self.before for each in works))
            if least <= enough:
                break
        return least
