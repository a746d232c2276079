"""Constants that are infinite or NaN, as those of a mask: what they make of a value is no accident of rounding or of range, and the
other side of an equation makes the same of it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from .bits import Bits, constant
from .bounds import Bounds
from .domains import Array
from .term import Term, walk
from .world import World, number_of


def has_nonfinite(world: World, *terms: Term) -> bool:
    """Whether a constant of some terms is no finite number."""
    numbers = (number_of(world, each) for term in terms for each in walk(term))
    return any(each is not None and not np.isfinite(each) for each in numbers)


def alike(world: World, bits: Bits, a: Term, b: Term) -> Callable[[Array, Array], Array]:
    """Whether two values are finite, NaN, or the same infinity alike. Any two are, unless constants alone keep one from being finite;
    and where an infinity makes NaN of itself, as less another one, the condition of a bound did not hold."""
    whole = [np.isfinite(_value(world, _Replaced(bits, infinite=True), a, b, each)) for each in (a, b)]
    defined = [~np.isnan(_value(world, _Replaced(bits, infinite=False), a, b, each)) for each in (a, b)]
    counts = functools.reduce(np.logical_and, [*whole, *defined])

    def same(x: Array, y: Array) -> Array:
        p, q = (np.where(np.isfinite(each.real), 0.0, each.real) for each in (x, y))
        return (p == q) | (np.isnan(p) & np.isnan(q)) | ~counts

    return same


def _value(world: World, domain: Bounds, a: Term, b: Term, of: Term) -> Array:
    return np.asarray(world.evaluator(domain, a, b).value(of)[0].real)


class _Replaced(Bounds):
    """The same numbers, with ones for constants that are NaN, and for those that are ``infinite``."""

    def __init__(self, of: Bits, infinite: bool) -> None:
        super().__init__(of)
        self.infinite = infinite

    def const(self, dtype: str, bits: int) -> Array:
        found = constant(dtype, bits).astype(np.float64)
        if np.isnan(found).any() or (self.infinite and np.isinf(found).any()):
            return np.ones(1, np.complex128)
        return super().const(dtype, bits)
