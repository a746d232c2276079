"""Numbers about the constants of two terms: where a comparison or a maximum with one changes its mind."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from tinyc.ir.dtypes import DType

from .domains import Array
from .term import Term, walk
from .world import World, number_of

MOST = 12
"""Numbers of which there are neighbours."""


def told(world: World, *terms: Term) -> tuple[float, ...]:
    """The finite numbers that are constants of some terms, then what two of them make: where x * 3 is 10, x is a quotient."""
    found = dict.fromkeys(
        float(value)
        for term in terms
        for each in walk(term)
        if (value := number_of(world, each)) is not None and math.isfinite(value)
    )
    pairs = ((a, b) for a in found for b in found if a != b)
    made = dict.fromkeys(value for a, b in pairs for value in _made(a, b))
    return tuple({**found, **made})[:MOST]


def _made(a: float, b: float) -> Iterator[float]:
    yield from (a + b, a - b, a * b)
    if b:
        yield a / b


@functools.lru_cache(maxsize=1024)
def neighbours(dtype: str, numbers: Sequence[float]) -> Array:
    """Of each of some numbers, and of its negative: it, and the next of its dtype below and above."""
    both = np.array([sign * each for each in numbers for sign in (1, -1)], np.float64)
    if dtype == "i32":
        whole = np.clip(np.trunc(both), -(2.0**31), 2.0**31 - 1).astype(np.int64)
        return np.clip([whole - 1, whole, whole + 1], -(2**31), 2**31 - 1).ravel().astype(np.int32)
    kind = DType(dtype).numpy
    with np.errstate(all="ignore"):
        here = both.astype(np.float32).astype(kind)
        ends = (np.nextafter(here, kind.type(end)) for end in (-math.inf, math.inf))
        return np.concatenate([here, *ends])


def exact(numbers: Sequence[float]) -> tuple[Fraction, ...]:
    """The same over the rationals: it, and one more or less, or as much again where that would be lost in its digits."""
    signed = [Fraction(sign) * Fraction(each) for each in numbers for sign in (1, -1)]
    return tuple(
        each + more
        for each in signed
        for more in (0, *((1, -1) if abs(each) < 1 << 20 else (each, -each / 2)))
    )
