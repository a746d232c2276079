"""What the ways to compute the values of a scope do, as amounts of those fields of Work that any of them has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

from ..choice import How, Key, turning
from ..cost.model import AMOUNTS, Work, amounts_of, work_of
from ..view import Item, is_rounded
from .cases import SCAN, STREAMS, Case, Held
from .inside import INSIDE
from .once import HOWS, of_fields

if TYPE_CHECKING:
    from .scope import Scope

NOTHING = (0.0,) * len(AMOUNTS)
READ, OPS, EPILOGUE = map(AMOUNTS.index, ("bytes_read", "ops", "epilogue_ops"))


class Amounts:
    """Of the options of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.problem = scope, scope.problem
        self._shaped: dict[Case, Sequence[bool]] = {}
        self._seconds: dict[tuple[int, int, Case], float] = {}
        self._options: dict[
            tuple[int, int, Case, tuple[int, ...] | None], tuple[tuple[float, ...], Held]
        ] = {}

    def forget(self) -> None:
        """What is only of use to those who look for kernels."""
        for known in (self._options, self._seconds, self._shaped):
            known.clear()

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields of Work that any value has."""
        works = [work for found in self._works.values() for works in found for work in works.values()]
        works += (*self.problem.tiled("tiled"), *self.problem.tiled("rows"))
        works += [
            once.work
            for each in self.scope.part.known.values()
            for ways in each.once.values()
            for once in ways
        ]
        amounts = zip(*map(amounts_of, works), strict=True)
        found = {name for name, each in zip(AMOUNTS, amounts, strict=False) if any(each)}
        if self.problem.tiling is not None:
            found |= {"row_ops", "block_ops", "point_ops", "reread_bytes", "row_bytes", "block_bytes"}
        return tuple(name for name in AMOUNTS if name in found)

    @cached_property
    def _works(self) -> dict[Key, list[dict[How, Work]]]:
        """The work of every option, in each kind of kernel."""
        return {
            key: [{how: self._work(key, option.item, how) for how in HOWS} for option in options]
            for key, options in self.scope.options.items()
        }

    def _work(self, key: Key, item: Item, how: How, shape: tuple[int, ...] | None = None) -> Work:
        part = self.scope.part
        if item is INSIDE:
            fetched, work = part.fetched.get(key, 0.0), part.inside[key][how]
            repeated = self.problem.works.repeated
            return of_fields(
                min,
                [repeated(work, key, item, how, shape, fetched, summed) for summed in part.sums[key]],
            )
        return self.problem.works.work(key, item, how, shape)

    def of(self, work: Work) -> tuple[float, ...]:
        """What :meth:`work` makes Work of."""
        found = {name: float(getattr(work, name)) for name in self.fields}
        if "ops" in found:
            found["ops"] -= work.epilogue_ops
        return tuple(found.values())

    def work(self, amounts: Sequence[float], read: float = 0.0) -> Work:
        """Amounts of the scope's fields as Work, see :meth:`values`."""
        return work_of(self.values(amounts, read=read))

    def values(
        self, amounts: Sequence[Any], beside: Sequence[float] = NOTHING, read: float = 0.0
    ) -> list[Any]:
        """Amounts of all fields from those of the scope's, with those of all fields ``beside`` them and what is ``read``. Of the
        amounts, "ops" are without those of the epilogue: a kernel with more of either costs more."""
        values = list(map(add, beside, self._placed((*amounts, 0.0))))
        if self._epilogue >= 0:
            values[OPS] += amounts[self._epilogue]
        values[READ] += read
        return values

    @cached_property
    def _placed(self) -> Callable[[Sequence[float]], Sequence[float]]:
        """The amounts of all fields, of those of the scope's and a last one, which is nothing."""
        fields = self.fields
        return itemgetter(*[fields.index(name) if name in fields else len(fields) for name in AMOUNTS])

    @cached_property
    def _epilogue(self) -> int:
        """The place of the epilogue's operations in the scope's amounts, or -1."""
        return self.fields.index(AMOUNTS[EPILOGUE]) if AMOUNTS[EPILOGUE] in self.fields else -1

    def of_option(
        self, position: int, number: int, case: Case, shape: tuple[int, ...] | None = None
    ) -> tuple[tuple[float, ...], Held]:
        """The amounts of an option, and what of it decides how the whole kernel runs. ``shape``: what that fills; else it does
        that much at least."""
        known = self._options.get((position, number, case, shape))
        if known is None:
            key = self.scope.order[position]
            item = self.scope.options[key][number].item
            if shape is not None and not self.problem.works.shaped(item, case.how):
                known = self._options[position, number, case, shape] = self.of_option(position, number, case)
                return known
            work = (
                self._works[key][number][case.how]
                if shape is None
                else self._work(key, item, case.how, shape)
            )
            marks: set[tuple[str, object]] = set()
            if work.schedule is not None:
                marks.add(("runs", self.problem.running.same(work.schedule)))
            if self.problem.running.streams(key, item):
                marks.add(("streams", None))
            if case == STREAMS:
                marks |= self._unlike_walks(position, number)
            if case == SCAN:
                marks |= {("walks", walk) for walk in self.problem.running.streamed(key, item)}
            if item.head not in turning(self.problem.model.hardware) and "strided_bytes" in self.fields:
                marks.add(("computes", None))  # else it may be a copy, which is priced in its own way
            known = self.of(work), frozenset(marks)
            self._options[position, number, case, shape] = known
        return known

    def _unlike_walks(self, position: int, number: int) -> Held:
        """What of an option decides whether a kernel with a Stream is walked on matrix units, or runs in loops."""
        key = self.scope.order[position]
        item = self.scope.options[key][number].item
        told = {
            "walked": bool(self.problem.running.streamed(key, item)),
            "computed": self.scope.computes(position, number),
            "rounded": is_rounded(item),
        }
        return frozenset((kind, None) for kind, is_so in told.items() if is_so)

    def shaped(self, case: Case) -> Sequence[bool]:
        """Of each value, whether the work of having it in a kernel of a case may differ with the shape that the kernel fills."""
        if case not in self._shaped:
            scope, found = self.scope, list[bool]()
            for position, key in enumerate(scope.order):
                children = {scope.position[child] for child in scope.edges[key]}
                own = any(self.problem.works.shaped(option.item, case.how) for option in scope.options[key])
                found.append(own or any(child >= position or found[child] for child in children))
            self._shaped[case] = found
        return self._shaped[case]

    def seconds(self, position: int, number: int, case: Case) -> float:
        """What an option costs by itself."""
        known = self._seconds.get((position, number, case))
        if known is None:
            amounts, _ = self.of_option(position, number, case)
            known = self._seconds[position, number, case] = self.problem.model.seconds(self.work(amounts))
        return known
