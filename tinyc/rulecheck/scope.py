"""The axes of one instance, and indices over them, from small to large."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Mapping, Sequence

from .term import Term, axis, lit, plain
from .world import World


def factors(rng: random.Random, number: int) -> tuple[int, ...]:
    """Three extents above 1, if there are, whose product it is: as many points as a guard speaks of."""
    found = []
    for _ in range(2):
        some = [each for each in range(2, min(number, 200)) if number % each == 0]
        found.append(rng.choice(some) if some else 1)
        number //= found[-1]
    return tuple(each for each in (*found, number) if each > 1) or (2,)


class Scope:
    """``level``: how large things are, 0 to 2; ``sizes``: extents of the axes; ``borders``: numbers that guards hold indices
    against; ``many``: whether there may be many axes, since points are only counted."""

    rng: random.Random
    world: World
    level: int
    borders: Sequence[int]
    pool: list[Term]

    def __init__(
        self,
        rng: random.Random,
        world: World,
        level: int,
        sizes: Sequence[int] = (2, 3),
        borders: Sequence[int] = (),
        many: bool = False,
    ) -> None:
        self.rng, self.world, self.level, self.borders, self.many = rng, world, level, borders, many
        self.pool = self._pool(sizes)

    def _pool(self, sizes: Sequence[int]) -> list[Term]:
        # the first three differ where they can: the product of the sizes may be what a guard speaks of
        extent = self.rng.sample(sizes, min(3, len(sizes))) if len(set(sizes)) > 2 else []
        extent += [self.rng.choice(sizes) for _ in range(5 - len(extent))]
        found = [axis(0, extent[0]), axis(16, extent[2]), axis(1, extent[1])]
        if self.level:
            found += [axis(17, extent[3])]
        if self.level == 2:
            found += [axis(32, extent[4])] if self.rng.random() < 0.5 else [axis(2, extent[4])]
            if self.rng.random() < 0.3:
                found.append(axis(16, 2 if extent[2] != 2 else 3))
            if self.rng.random() < 0.2:  # the last of a level
                found.append(axis(self.rng.choice((15, 31)), extent[3]))
        if self.many and self.rng.random() < 0.4:  # a role with several axes, and gaps between them
            taken = {each.args[0] for each in found}
            more = self.rng.sample(sorted({2, 3, 4, 6} - taken), 2)
            found += [axis(number, self.rng.choice(sizes)) for number in more]
        return found

    @functools.cached_property
    def roles(self) -> Mapping[Term, str]:
        """Each axis of the pool a role in a contraction."""
        order = sorted(self.pool, key=lambda each: each.args)
        found = {each: self.rng.choice(("left", "right", "left", "right", "batch", "")) for each in order}
        if self.many and self.rng.random() < 0.5:  # each factor one of its own
            found.update(zip(order, self.rng.sample(("left", "right"), 2), strict=False))
        return found

    def axes(self) -> list[Term]:
        """Those that there are by now: the pool grows with the shapes that come up."""
        return self.pool

    def axis_of(self, extent: int, level: int = 0) -> Term:
        """An axis of this extent: one of the pool, or a new one."""
        options = [each for each in self.pool if each.args[1] == extent]
        if options and self.rng.random() < 0.8:
            return self.rng.choice(options)
        used = {each.args[0] for each in self.pool}
        number = next(each for each in itertools.count(level) if each not in used)
        found = axis(number, extent)
        if len(self.pool) < 6:
            self.pool.append(found)
        elif options:
            return self.rng.choice(options)
        return found

    def total(self, terms: list[tuple[int, Term]], const: int) -> Term:
        """A sum in normal form."""
        coefs: dict[Term, int] = {}
        for coef, atom in terms:
            coefs[atom] = coefs.get(atom, 0) + coef
        facts = self.world.facts
        result = lit(const)
        for atom in sorted((each for each, coef in coefs.items() if coef), key=facts.key, reverse=True):
            result = self.world.build("Plus", (coefs[atom], atom, result))
        return result

    def some_axis(self) -> Term:
        return self.rng.choice(self.pool)

    def atom(self) -> Term:
        if self.level == 0 or self.rng.random() < 0.65:
            return self.some_axis()
        inner = self.total(
            [(self.rng.choice((1, 2, 3, -1)), self.some_axis()), (1, self.some_axis())],
            self.rng.choice((0, 1)),
        )
        return self.world.build("FloorDiv", (inner, self.rng.choice((2, 3, 4))))

    def index(self) -> Term:
        """Any index in normal form."""
        rng = self.rng
        kind = rng.random()
        const = rng.choice((0, 0, 1, -1, 2, 5, -7)) if self.level else rng.choice((0, 1))
        if self.borders and rng.random() < 0.2:
            const = rng.choice((1, -1)) * rng.choice(self.borders)
        if kind < 0.15:
            return lit(const)
        if kind < 0.45:
            return plain(self.some_axis())
        count = 1 if kind < 0.75 else rng.choice((2, 2, 3, 5 if self.level else 2))
        coefs = (1, 2, 3, -1, -2, -3, 4, 6) if self.level else (1, 2, -1)
        return self.total([(rng.choice(coefs), self.atom()) for _ in range(count)], const)

    def within(self, size: int) -> Term:
        """An index with values from 0 to ``size`` - 1."""
        rng = self.rng
        kind = rng.random()
        if size == 1 or kind < 0.08:
            return lit(rng.randrange(size))
        if self.level == 2 and kind > 0.93:
            return self.long(self.axis_of(size), size)
        if kind < 0.6 or self.level == 0:
            return plain(self.axis_of(size))
        if kind < 0.7:
            return self.total([(-1, self.axis_of(size))], size - 1)
        atom = self.atom() if kind < 0.9 else self.world.build("FloorDiv", (plain(self.axis_of(size * 2)), 2))
        low, high = self.world.facts.low(atom), self.world.facts.high(atom)
        if low >= 0 and high < size:
            coef = rng.choice([c for c in (1, 2, 3) if c * high < size])
            return self.total([(coef, atom)], rng.randint(0, size - 1 - coef * high))
        return plain(self.axis_of(size))

    def long(self, atom: Term, size: int) -> Term:
        """The value of an axis of extent ``size``, as it is or turned, spelled with about 32 operations: 30 to 44."""
        index = plain(atom)
        for _ in range(self.rng.choice((10, 11, 14))):
            inner = self.world.build("IAdd", (self.world.build("IScale", (2, index)), lit(1)))
            coefs, const = self.world.facts.linear(inner)
            half = self.world.build("FloorDiv", (self.total([(c, a) for a, c in coefs.items()], const), 2))
            index = self.total([(1, half)], 0)
        return index if self.rng.random() < 0.5 else self.total([(-1, half)], size - 1)

    def binder(self) -> tuple[Term, ...]:
        rng = self.rng
        inner = sorted({each for each in self.pool if each.args[0] >= 16}, key=lambda each: each.args)
        kind = rng.random()
        if kind < 0.1:
            return rng.choice([(), (lit(0),)])
        chosen = [rng.choice(inner)] if kind < 0.55 else rng.sample(inner, rng.randint(1, min(3, len(inner))))
        if rng.random() < 0.05:
            chosen = [self.pool[0], *chosen]
        chosen.sort(key=lambda each: each.args[0] // 16)
        found = [plain(each) for each in chosen]
        if rng.random() < 0.15:
            found.insert(rng.randint(0, len(found)), lit(0))
        return tuple(found)
