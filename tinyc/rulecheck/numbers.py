"""Numbers for the variables of a rule: extents, places, coefficients, bit patterns, sizes of tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tinyc.ir.dtypes import DType, to_bits

from .context import BITS, INFINITY, PRIME, Reject
from .parse import Lit
from .steps import Step
from .term import lit
from .wanted import extent_wanted, place_wanted

if TYPE_CHECKING:
    from .instantiate import Attempt

_TILES = (1, 2, 4, 8, 16, 32, 64, 64, 128, 128, 256, 512, 1024, 0, 3, 6, 12, 24, 40, 48, 80, 96, 272)
Uses = Sequence[tuple[Step, int]]


def integer(attempt: Attempt, name: str, uses: Uses) -> int:
    for step, position in uses:
        found = _INTEGERS.get((step.head, position))
        if found is not None and step.kind in ("term", "fact"):
            kind = attempt.rng.random() if found is _dtype_bits and _taken_apart(uses) else 1.0
            if kind < 0.25:
                return attempt.rng.randint(96, 158) << 23 | attempt.rng.getrandbits(23)
            return found(attempt, step) ^ (attempt.rng.choice(_digits(uses)) if kind < 0.4 else 0)
    for step, position in uses:
        if step.kind == "primitive" and step.head == "%" and attempt.bound(step.args[1 - position]):
            other = abs(attempt.get(step.args[1 - position])) or 1
            if position == 0:
                return other * attempt.rng.choice((0, 1, 2, -1, 3, 8, 5, 16, 33, 40)) + attempt.rng.choice(
                    (0, 0, 0, 1)
                )
            return attempt.rng.choice([each for each in range(1, min(other, 4096) + 1) if other % each == 0])
    if "Problem" in attempt.case.sorts.values():  # tiles and registers
        return attempt.rng.choice(_TILES)
    return attempt.rng.choice((0, 1, 2, 3, -1, 4, 16, 5, -3, 7))


def _taken_apart(uses: Uses) -> bool:
    """Whether a rule computes with digits of a constant: then it should have many, and be neither too large nor too small to multiply."""
    return any(step.kind == "primitive" and step.head == "&" for step, _ in uses)


def _digits(uses: Uses) -> Sequence[int]:
    """Digits of a number at which the masks begin and end that a rule lays over it, and the next beyond: where a mask has one too many or
    too few."""
    args = [arg for step, _ in uses if step.head == "&" for arg in step.args if isinstance(arg, Lit)]
    masks = [arg.value for arg in args if isinstance(arg.value, int) and arg.value > 0]
    ends = [(each & -each, 1 << each.bit_length() - 1) for each in masks]
    return [0, *(digit for low, high in ends for digit in (low, low >> 1, high, high << 1))]


def bits_for(attempt: Attempt, dtype: str) -> int:
    rng = attempt.rng
    if dtype == "bool":
        return rng.randint(0, 1)
    if rng.random() < 0.08:
        return rng.getrandbits(BITS[dtype])
    if dtype == "i32":
        return rng.choice((0, 1, 2, 3, 7, (1 << 32) - 1, (1 << 31) - 1, 1 << 31))
    if rng.random() < 0.2:
        return to_bits(rng.choice((0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -math.nan)), DType(dtype))
    if rng.random() < 0.4:
        return to_bits(rng.choice((-1, 1)) * 2.0 ** rng.randint(-14, 14), DType(dtype))
    if dtype == "fp32" and rng.random() < 0.3:
        return rng.choice((254, 253, 1, 2, 252, 3, rng.randint(1, 254))) << 23 | rng.choice((0, 0, 1 << 31))
    numbers = (
        0.0,
        -0.0,
        1.0,
        2.0,
        0.5,
        -1.0,
        3.0,
        0.1,
        -2.5,
        1e-40,
        6e4,
        1e30,
        math.inf,
        -math.inf,
        math.nan,
        2.0**126,
    )
    return to_bits(rng.choice(numbers), DType(dtype))


def _dtype_bits(attempt: Attempt, step: Step) -> int:
    if not attempt.bound(step.args[0]):
        return 0
    dtype = str(attempt.get(step.args[0]))
    borders = [each for each in attempt.case.borders if dtype == "fp32" or each < 1 << 16]
    if (
        borders and dtype != "bool" and attempt.rng.random() < 0.25
    ):  # what a guard speaks of, and its neighbours
        return max(0, attempt.rng.choice(borders) + attempt.rng.choice((0, 0, 1, -1)))
    return bits_for(attempt, dtype)


def _place(attempt: Attempt, step: Step, of: int = 0) -> int:
    """An axis of the operand; for an expansion one of extent 1."""
    shape = attempt.world.facts._of(attempt.get(step.args[of]))
    options = [k for k, size in enumerate(shape) if step.head != "Expand" or size == 1]
    if not options:
        raise Reject
    if attempt.rng.random() < 0.8:
        options = place_wanted(attempt, step, shape, options)
    return attempt.rng.choice(options)


def _size(attempt: Attempt, step: Step) -> int:
    """The extent of the axis that a step names."""
    shape, at = attempt.world.facts._of(attempt.get(step.args[0])), attempt.get(step.args[1])
    if not 0 <= at < len(shape):
        raise Reject
    return shape[at]


def _fitting(
    choose: Callable[[Attempt, Step], int], wanted: Callable[[Attempt, Step, int], int]
) -> Callable[[Attempt, Step], int]:
    """A number with which a step makes the shape that is wanted of it, given the extent of its axis there; else any."""

    def fitted(attempt: Attempt, step: Step) -> int:
        extent = extent_wanted(attempt, step) if attempt.rng.random() < 0.8 else None
        return choose(attempt, step) if extent is None else max(0, wanted(attempt, step, extent))

    return fitted


def _expanded(attempt: Attempt, step: Step) -> int:
    """The new extent of an axis; now and then one that a guard asks for."""
    far = attempt.rng.choice(attempt.case.extents or (2,)) if attempt.number % 3 == 2 else 2
    return attempt.rng.choice((1, 2, 3, 256 if attempt.level == 2 else far))


def _extent(attempt: Attempt, step: Step) -> int:
    """Of an axis: small; now and then one that a guard asks for."""
    far = attempt.case.extents if attempt.number % 3 == 2 else ()
    return attempt.rng.choice(far or (2, 3, 2, 3, 4))


def _upto(at: int) -> Callable[[Attempt, Step], int]:
    def choose(attempt: Attempt, step: Step) -> int:
        return attempt.rng.randint(0, len(attempt.get(step.args[at]))) if attempt.bound(step.args[at]) else 0

    return choose


def _choice(*options: int) -> Callable[[Attempt, Step], int]:
    return lambda attempt, step: attempt.rng.choice(options)


def _about(*options: int) -> Callable[[Attempt, Step], int]:
    """One of some numbers, or the next: where it is divided, a part is left over."""

    def choose(attempt: Attempt, step: Step) -> int:
        other = attempt.get(step.args[1]) if attempt.bound(step.args[1]) else 0
        if other and attempt.rng.random() < 0.25:
            return int(other)  # as many rows as columns
        return max(1, attempt.rng.choice(options) + attempt.rng.choice((0, 0, 1, -1)))

    return choose


def _side(attempt: Attempt, step: Step) -> int:
    """Of a product: any, or as many points as a tile has or more."""
    return attempt.rng.choice(_SIDES[3:] if attempt.number % 2 else _SIDES)


def _batch(attempt: Attempt, step: Step) -> int:
    """Of products: few or many for a machine."""
    return attempt.rng.choice((1, 1, 2, 3, 5) if attempt.number % 4 < 2 else _SIDES)


def _any_length(attempt: Attempt, step: Step) -> int:
    """As :func:`_about`, or any: what is left over when it is cut in equal parts hangs on all its digits."""
    rng, kind = attempt.rng, attempt.rng.random()
    if attempt.bound(step.args[1]) and rng.random() < 0.25:
        return int(attempt.get(step.args[1]))  # as many rows as columns
    if kind < 0.4:
        return _LENGTHS(attempt, step)
    if kind < 0.7:
        return round(2 ** rng.uniform(0, 12))
    parts = rng.randint(1, 8)  # of whole registers, or about
    return max(1, parts * rng.choice((6, 16)) * rng.randint(1, 8) + rng.randint(-parts, parts))


def _depth(attempt: Attempt, step: Step) -> int:
    """Products of an element; many where a rule is about blocks that are large."""
    depths = (4096, 20000, 100000, 1000000)
    return attempt.rng.choice(depths if attempt.case.starved else (1, 7, 64, 512, *depths))


def _border(attempt: Attempt, step: Step) -> int:
    """Near the ends of an index's range."""
    facts = attempt.world.facts
    index = attempt.get(step.args[0]) if attempt.bound(step.args[0]) else lit(0)
    end = attempt.rng.choice((facts.low(index), facts.high(index), facts.high(index) + 1, 0))
    return end + attempt.rng.choice((0, 0, 0, 1, -1, 2))


def _long(attempt: Attempt) -> int:
    """Now and then a number about the prime of the facts; 0 otherwise."""
    rng = attempt.rng
    return (
        rng.choice((-1, 1)) * (PRIME + rng.choice((-1, 0, 1, 2)))
        if attempt.level and rng.random() < 0.06
        else 0
    )


_SIDES = (1, 3, 17, 64, 100, 128, 512, 1000, 4096)
_LENGTHS = _about(1, 4, 16, 24, 32, 64, 96, 100, 144, 192, 240, 256, 512, 1000, 1024, 4096)
_SCALES = (*(to_bits(each, DType.FP32) for each in (1.0, 2.0, 0.5, 3.0)), 1, INFINITY - 1)

_INTEGERS: Mapping[tuple[str, int], Callable[[Attempt, Step], int]] = {
    ("Lit", 0): lambda attempt, step: _long(attempt) or attempt.rng.choice((0, 1, 2, -1, 3, 5, -7, 8, 100)),
    ("Plus", 0): lambda attempt, step: _long(attempt) or attempt.rng.choice((1, 2, 3, -1, 4, -2, 6, 8, -3)),
    ("Ax", 0): lambda attempt, step: attempt.rng.choice((0, 1, 16, 17, 2, 32, 33)),
    ("Ax", 1): _extent,
    ("FloorDiv", 1): _choice(2, 3, 4, 6),
    ("IScale", 0): _choice(0, 1, 2, -1, 3, -3),
    ("IDiv", 1): _choice(1, 2, 3, 4, 6, 8),
    ("DivAcc", 2): _choice(2, 3, 4, 6, 8),
    ("DivEnd", 1): _choice(2, 3, 4, 6, 8),
    ("Ravel", 2): _upto(1),
    ("Input", 0): _choice(0, 1), ("Arg", 0): _choice(0, 1),
    ("Imm", 1): _dtype_bits, ("Const", 1): _dtype_bits,
    ("TReduce", 1): lambda attempt, step: attempt.rng.randint(
        1, max(1, len(attempt.world.facts._of(attempt.get(step.args[2]))))
    ),
    ("Expand", 1): _place, ("Pad", 1): _place, ("Shrink", 1): _place, ("Flip", 1): _place,
    ("Expand", 2): _fitting(_expanded, lambda attempt, step, extent: extent),
    ("Pad", 2): _fitting(_choice(0, 1, 2), lambda attempt, step, extent: attempt.rng.randint(0, max(0, extent - _size(attempt, step)))),
    ("Pad", 3): _fitting(_choice(0, 1, 2), lambda attempt, step, extent: extent - _size(attempt, step) - attempt.get(step.args[2])),
    ("Shrink", 2): _fitting(
        lambda attempt, step: min(_size(attempt, step) - 1, attempt.rng.choice((0, 0, 1, attempt.rng.randrange(_size(attempt, step))))),
        lambda attempt, step, extent: attempt.rng.randint(0, max(0, _size(attempt, step) - extent)),
    ),
    ("Shrink", 3): _fitting(
        lambda attempt, step: attempt.rng.choice(
            (
                _size(attempt, step),
                max(attempt.get(step.args[2]) + 1, _size(attempt, step) - 1),
                attempt.rng.randint(attempt.get(step.args[2]) + 1, _size(attempt, step)),
            )
        ),
        lambda attempt, step, extent: min(_size(attempt, step), attempt.get(step.args[2]) + extent * attempt.rng.choice((1, 1, 2))),
    ),
    ("Shrink", 4): _fitting(
        _choice(1, 2, 1, 2, 3),
        lambda attempt, step, extent: -(-(attempt.get(step.args[3]) - attempt.get(step.args[2])) // max(1, extent)),
    ),
    ("Valid", 1): lambda attempt, step: attempt.rng.randrange(max(1, len(attempt.get(step.args[0])))),
    ("Valid", 2): _choice(0, 1, -1, 2), ("Valid", 3): _choice(1, 2, 0, 3),
    ("Within", 1): _border, ("Within", 2): _border,
    ("Stream", 3): lambda attempt, step: attempt.rng.choice(_SCALES),
    ("RoundedStream", 4): lambda attempt, step: attempt.rng.choice(_SCALES),
    ("Out", 0): _choice(0, 1),
    ("Product", 1): _batch, ("Product", 7): _choice(*_SIDES),
    **{("Product", k): _side for k in (2, 3)},
    ("Product", 4): _choice(1, 17, 64, 100, 128, 200, 256, 300, 512, 1000, 4096),
    ("Product", 5): _choice(0, 1, 1, 2, 2, 4), ("Product", 6): _choice(0, 1, 1, 2, 2, 4),
    ("Packed", 0): _choice(1, 1, 1, 2, 3, 7, 64),
    ("Packed", 3): _depth,
    **{("Packed", k): _any_length for k in (1, 2)},
    **{("Walk", k): _choice(1, 16, 33, 64, 128, 200, 1024) for k in (0, 1)}, ("Walk", 2): _about(8, 16, 64, 96, 128, 256, 512),
    ("Walk", 3): _about(1, 8, 12, 16, 64, 96, 100, 128, 256), ("Walk", 4): _choice(2, 2, 4, 1),
    ("Row", 0): _choice(1, 2, 3, 8, 64, 100, 1024, 4096), ("Row", 1): _choice(1, 2, 4),
    ("Fold", 0): _choice(1, 2, 3, 8, 64, 100, 1024), ("Fold", 1): _choice(2, 31, 64, 256, 1000, 1024, 65536), ("Fold", 2): _choice(1, 2, 4),
    ("top-axis-upto", 1): _upto(0), ("ixs-axes", 1): _upto(0), ("ops-upto", 1): _upto(0),
    ("axes-upto", 0): _choice(0, 16, 32), ("axes-next", 0): _choice(0, 16, 32),
    ("axes-upto", 2): _upto(1), ("axes-next", 2): _upto(1),
}  # fmt: skip
