"""What it costs at most to fill a buffer: what a kernel that needs more is held against."""

from __future__ import annotations

from collections.abc import Callable

from .columns import Columns
from .scope import Scope, bits

WAYS = 64
"""Ways to fill a buffer that others are held against."""


class Worth:
    """What it costs at most to fill a buffer, with all that it needs and that is not filled already."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names = {
            scope.bits[name]: name for name in (*scope.buffers, *scope.part.given, *scope.part.common)
        }
        self.price = dict(zip(scope.part.given, scope.part.prices, strict=True))
        self.price |= dict.fromkeys(scope.part.common, 0.0)
        # what each costs and needs, the cheapest first
        self.ways: dict[str, list[tuple[float, list[tuple[int, str]]]]] = {}
        self.reach: dict[str, int] = {}
        # with what is shared counted once: of each buffer that is filled, its cost
        self.closures = {name: {name: price} for name, price in self.price.items()}
        self.known: dict[str, dict[int, float]] = {}

    def add(self, name: str, columns_: Columns) -> None:
        """Buffers are added after those that they read."""
        self.ways[name] = [
            (column.seconds, [(bit, self.names[bit]) for bit in bits(column.reads)])
            for column in columns_.found[:WAYS]
        ]
        reach = 0
        for _, needs in self.ways[name]:
            for bit, other in needs:
                reach |= bit | self.reach.get(other, 0)
        self.reach[name] = reach
        for seconds, needs in self.ways[name]:
            names = [other for _, other in needs]
            if all(other in self.closures for other in names):
                closure = {name: seconds}
                for other in names:
                    closure = {**self.closures[other], **closure}
                known = self.closures.get(name)
                if known is None or sum(closure.values()) < sum(known.values()):
                    self.closures[name] = closure
        self.known.pop(name, None)

    def all(self) -> dict[str, float]:
        """Of each buffer, where nothing is filled yet."""
        return {name: self.cost(name, 0) for name in (*self.ways, *self.price)}

    def of(self, name: str) -> Callable[[int], float]:
        return lambda given: self.cost(name, given)

    def cost(self, name: str, given: int) -> float:
        if name in self.price:
            return self.price[name]
        if name not in self.ways:
            return float("inf")
        known = self.known.setdefault(name, {})
        given &= self.reach[name]
        if given not in known:
            least = sum(self.closures[name].values()) if name in self.closures else float("inf")
            for seconds, needs in self.ways[name]:
                if seconds >= least:
                    break
                filling = 0.0
                for bit, other in needs:
                    if not bit & given:
                        filling += self.cost(other, given)
                        if seconds + filling >= least:
                            break
                least = min(least, seconds + filling)
            known[given] = least
        return known[given]
