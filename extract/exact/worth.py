"""What it costs at most to fill a buffer: what a kernel that needs more is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .columns import Columns
from .scope import Scope, bits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Costs = NDArray[np.float64]
    """Seconds, at each of a scope's levels."""

WAYS = 64
"""Ways to fill a buffer that others are held against."""


class Worth:
    """What it costs at most to fill a buffer, with all that it needs and that is not filled already, at each of a scope's levels: what
    computes values of what is given takes longer at some than at others, and cannot be at all."""

    def __init__(self, scope: Scope) -> None:
        import numpy as np

        self.scope = scope
        self.names = {
            scope.bits[name]: name for name in (*scope.buffers, *scope.part.given, *scope.part.common)
        }
        self.barred = [scope.given.barred(at) for at in scope.levels]
        none = np.zeros(len(scope.levels))
        self.price: dict[str, Costs] = {
            name: np.array([price if at[number] else 0.0 for at in scope.levels])
            for number, (name, price) in enumerate(zip(scope.part.given, scope.part.prices, strict=True))
        }
        self.price |= dict.fromkeys(scope.part.common, none)
        self._never = none + float("inf")
        # what each costs, at least and at each level, and needs, the cheapest first
        self.ways: dict[str, list[tuple[float, Costs, list[tuple[int, str]]]]] = {}
        self.reach: dict[str, int] = {}
        # with what is shared counted once: of each buffer that is filled, its cost
        self.closures: dict[str, Mapping[str, Costs]] = {
            name: {name: price} for name, price in self.price.items()
        }
        self.known: dict[str, dict[int, Costs]] = {}

    def add(self, name: str, columns_: Columns) -> None:
        """Buffers are added after those that they read."""
        import numpy as np

        self.ways[name] = [
            (
                min(column.costs),
                np.array(column.costs),
                [(bit, self.names[bit]) for bit in bits(column.reads)],
            )
            for column in columns_.found[:WAYS]
        ]
        self.ways[name].sort(key=lambda way: way[0])
        reach = 0
        for _, _, needs in self.ways[name]:
            for bit, other in needs:
                reach |= bit | self.reach.get(other, 0)
        self.reach[name] = reach
        least = float("inf")
        for _, costs, needs in self.ways[name]:
            names = [other for _, other in needs]
            if all(other in self.closures for other in names):
                closure = {name: costs}
                for other in names:
                    closure = {**self.closures[other], **closure}
                most = float(sum(closure.values(), np.zeros(len(self.barred))).max())
                if name not in self.closures or most < least:
                    self.closures[name], least = closure, most
        self.known.pop(name, None)

    def all(self) -> dict[str, float]:
        """Of each buffer, where nothing is filled yet, at whatever level."""
        return {name: self.most(name) for name in (*self.ways, *self.price)}

    def least(self) -> dict[str, float]:
        """The same at the level at which it costs least."""
        return {name: float(self.cost(name, 0).min()) for name in (*self.ways, *self.price)}

    def most(self, name: str) -> float:
        """Where nothing is filled yet, at whatever level."""
        return float(self.cost(name, 0).max())

    def of(self, name: str) -> Callable[[int, int], float]:
        """What it costs at most where the first of two bit sets is filled, at whatever level at which there may be kernels that have the
        marks of the second (``given.py``)."""
        import numpy as np

        able: dict[int, list[bool]] = {}

        def limit(filled: int, marks: int) -> float:
            if marks not in able:
                able[marks] = [not each & marks for each in self.barred]
            return float(np.where(able[marks], self.cost(name, filled), -np.inf).max())

        return limit

    def cost(self, name: str, given: int) -> Costs:
        import numpy as np

        if name in self.price:
            return self.price[name]
        if name not in self.ways:
            return self._never
        known = self.known.setdefault(name, {})
        given &= self.reach[name]
        if given not in known:
            least = self._never
            if name in self.closures:
                least = sum(self.closures[name].values(), np.zeros(len(least)))
            for cheapest, costs, needs in self.ways[name]:
                most = least.max()
                if cheapest >= most:
                    break
                filling = costs
                for bit, other in needs:
                    if not bit & given:
                        filling = filling + self.cost(other, given)
                        if filling.min() >= most:
                            break
                least = np.minimum(least, filling)
            known[given] = least
        return known[given]
