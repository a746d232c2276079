"""Constants that a rule makes, as the product of two that it found: they are rounded, so what is equal over the reals is the number that
the constant was rounded from. Where roundings are admitted at all, it stands for any that rounds to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tinyc.ir.dtypes import DType, from_bits

from .bounds import ROUNDING
from .context import IllFormed
from .domains import Array
from .reals import UNDEFINED, UNKNOWN, Reals
from .term import Term, walk
from .world import World

LEAST, INFINITY = 0x00800000, 0x7F800000
"""Bits of normal fp32 numbers are from the one to below the other."""


def made(world: World, a: Term, b: Term) -> frozenset[Term]:
    """The fp32 constants, normal numbers, of ``b`` that ``a`` has not. None where one of them decides something: a comparison with it, or
    a truncation, may be far from what it was."""
    new = {each for each in walk(b) if each.head == "Const" and each.args[0] == "fp32"} - set(walk(a))
    new = {each for each in new if LEAST <= each.args[1] & 0x7FFFFFFF < INFINITY}
    if any(_decides(world, each) and new & set(walk(each)) for each in walk(b) if new):
        return frozenset()
    return frozenset(new)


def _decides(world: World, term: Term) -> bool:
    try:
        return world.facts.dtype(term) not in ROUNDING
    except IllFormed:
        return False


def rounded_to(
    world: World, domain: Reals, a: Term, b: Term, constants: frozenset[Term]
) -> Callable[[Array, Array], Array]:
    """Whether the old side is what the new one would be, were its ``constants`` the numbers that they were rounded from."""
    bits = frozenset(each.args[1] for each in constants)
    near, far = (
        world.evaluator(_Leaning(domain, bits, outwards), a, b).value(b)[0] for outwards in (False, True)
    )
    return lambda x, _: _BETWEEN(x, near, far)


class _Leaning(Reals):
    """The same numbers as ``base`` has, with some constants half a unit in the last place further from zero, or nearer to it."""

    def __init__(self, base: Reals, bits: frozenset[int], outwards: bool) -> None:
        super().__init__(base.seed, base.style, base.samples)
        self.leaves, self.numbers, self.bits, self.step = (
            base.leaves,
            base.numbers,
            bits,
            1 if outwards else -1,
        )

    def const(self, dtype: str, bits: int) -> Array:
        found = super().const(dtype, bits)
        if dtype == "fp32" and bits in self.bits:
            found[0] = (_exact(bits) + _exact(bits + self.step)) / 2
        return found


def _exact(bits: int) -> Fraction:
    """What bits stand for; those of an infinity for the number that would come after the largest."""
    value = from_bits(bits, DType.FP32)
    return Fraction(value) if math.isfinite(value) else 2 * _exact(bits - 1) - _exact(bits - 2)


def _between(x: Any, one: Any, other: Any) -> bool:
    if x is UNDEFINED or any(each is UNKNOWN for each in (x, one, other)):
        return True
    return not (one is UNDEFINED or other is UNDEFINED) and bool(min(one, other) <= x <= max(one, other))


_BETWEEN = np.frompyfunc(_between, 3, 1)
