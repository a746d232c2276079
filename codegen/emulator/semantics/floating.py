"""Float arithmetic in every format, rounded once (PTX ISA, "Floating Point", "Half Precision Floating Point Instructions").

f16, bf16 and f32 are computed in float64, where their products are exact and sums are pairs; f64 by error-free transformations.
``.ftz`` makes subnormal operands and results zeros of their sign; a result is subnormal if it is so after rounding. A NaN result
is the format's own: 0x7fffffff for f32, 0x7fff for f16 and bf16, whose bits the ISA leaves open, and 0x7ff8000000000000 for f64,
of which the ISA says that payloads are kept, but not whose. An instruction without a rounding modifier rounds to nearest even,
and is not fused with another, as the ISA would allow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import exact
from .rounding import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    ROUNDINGS,
    Format,
    Pair,
    canonical,
    decoded,
    encoded,
    flushed,
    odd,
    rounded,
    two_product,
    two_sum,
)
from .types import BITS, SIGNED, Array, Compute, Operation, packed, parse, quiet

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
KINDS = ("f32", "f64", *HALVES)
OPERANDS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}


def floating(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """The operation of a float instruction with an exact result, None where it is no such instruction."""
    if opcode in OPERANDS:
        return _arithmetic(opcode, modifiers)
    if opcode in ("min", "max"):
        return _extreme(opcode, modifiers)
    if opcode in ("neg", "abs"):
        return _sign(opcode, modifiers)
    if opcode == "copysign" and modifiers in (("f32",), ("f64",)):
        sign = BITS[int(modifiers[0][1:])].type(1 << (int(modifiers[0][1:]) - 1))
        return Operation(modifiers, modifiers * 2, lambda a, b: ((a & sign) | (b & ~sign),))
    if opcode == "testp":
        return _tested(modifiers)
    return None


def lifted(kind: str, operands: int, compute: Compute, results: int = 1) -> Operation:
    """The operation on ``kind`` of a function on the bits of its elements."""
    return Operation(
        (kind,) * results, (kind,) * operands, quiet(packed(compute) if kind.endswith("x2") else compute)
    )


def _arithmetic(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    found = parse(modifiers, mode=ROUNDINGS, ftz=("ftz",), last=("sat", "relu"), type=KINDS)
    if found is None or not found["type"]:
        return None
    kind, mode, last = found["type"], found["mode"] or "rn", found["last"]
    form = FORMATS[kind.removesuffix("x2")]
    if form.bits == 16 and (opcode in ("div", "rcp", "sqrt", "mad") or mode != "rn"):
        return None
    if (
        (found["ftz"] and form not in (F16, F32))
        or (last and form is F64)
        or (last == "sat" and form is BF16)
    ):
        return None
    if last == "relu" and (opcode != "fma" or form.bits != 16):
        return None
    if not found["mode"] and opcode in ("fma", "div", "rcp", "sqrt"):
        return None
    compute = _function(opcode, form, mode)
    if found["ftz"]:
        compute = _flushing(compute, form)
    if last:
        compute = _clamped(compute, form, last)
    return lifted(kind, OPERANDS[opcode], lambda *operands: (compute(*operands),))


def _flushing(compute: Callable[..., Array], form: Format) -> Callable[..., Array]:
    return lambda *operands: flushed(compute(*(flushed(operand, form) for operand in operands)), form)


def _clamped(compute: Callable[..., Array], form: Format, last: str) -> Callable[..., Array]:
    return lambda *operands: (saturated if last == "sat" else above_zero)(compute(*operands), form)


def saturated(bits: Array, form: Format) -> Array:
    """Numbers within 0 and 1; +0 for NaN and -0."""
    values = decoded(bits, form)
    return encoded(np.where(values > 0, np.minimum(values, 1.0), 0.0), form)


def above_zero(bits: Array, form: Format) -> Array:
    """+0 for what is below zero or -0; a NaN is kept as the format's own."""
    values = decoded(bits, form)
    return encoded(np.where(values <= 0, 0.0, values), form)


def _function(opcode: str, form: Format, mode: str) -> Callable[..., Array]:
    """The function of the bits of one format's numbers, without modifiers."""
    if form is F32 and mode == "rn" and opcode in NATIVE:
        native = NATIVE[opcode]
        return lambda *operands: _native(native(*(operand.view(np.float32) for operand in operands)))
    if form is F32 and mode == "rn" and opcode in ("fma", "mad"):
        return _fused32
    pairs = PAIRS64[opcode] if form is F64 else PAIRS[opcode]
    return lambda *operands: rounded(
        pairs(mode, *(decoded(operand, form) for operand in operands)), form, mode
    )


NATIVE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": lambda a: np.float32(1) / a,
}


def _native(values: Array) -> Array:
    return canonical(values.view(np.uint32), np.isnan(values), F32)


def _fused32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float32 to nearest even.

    The sum in float64 of the exact product is rounded twice, which is right unless the first rounding ended on a tie of the
    second, or below the normal numbers, where ties are elsewhere. Only such elements are computed as pairs.
    """
    product = decoded(a, F32) * decoded(b, F32)
    other = decoded(c, F32)
    value = np.asarray(product + other)
    result = _native(value.astype(np.float32))
    hard = (value.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    low = np.abs(value) < 2.0**-126
    if low.any():
        hard |= low & (value != 0)
    if hard.any():
        result = np.asarray(result)
        pair = two_sum(np.asarray(product)[hard], np.asarray(other)[hard])
        result[hard] = rounded(pair, F32, "rn")
    return result


def _zero_signed(value: Array, a: Array, b: Array, mode: str) -> Array:
    """The sum ``value`` of a and b with the sign that an exact zero has: plus, but minus in mode "rm", where a and b differ."""
    if mode != "rm":
        return value
    return np.where((value == 0) & (np.signbit(a) | np.signbit(b)), -0.0, value)


def _added(mode: str, a: Array, b: Array) -> tuple[Array, Array]:
    value, rest = two_sum(a, b)
    return _zero_signed(value, a, b, mode), rest


def _narrow(value: Array) -> Pair:
    """A result in float64 as a pair: exact, or so far from what a narrower format or its ties have that this does not matter.

    Quotients and roots of numbers of 24 bits are so: they differ from any number of 25 bits by more than float64 errs.
    """
    return np.asarray(value), None


PAIRS: dict[str, Callable[..., Pair]] = {
    "add": _added,
    "sub": lambda mode, a, b: _added(mode, a, -b),
    "mul": lambda mode, a, b: _narrow(a * b),
    "fma": lambda mode, a, b, c: _added(mode, a * b, c),
    "mad": lambda mode, a, b, c: _added(mode, a * b, c),
    "div": lambda mode, a, b: _narrow(a / b),
    "rcp": lambda mode, a: _narrow(1.0 / a),
    "sqrt": lambda mode, a: _narrow(np.sqrt(a)),
}


def _within(*operands: Array, low: float = 2.0**-450, high: float = 2.0**450) -> Array:
    """Where all numbers are of a size that no intermediate result overflows or underflows."""
    good = np.ones(operands[0].shape, bool)
    for operand in operands:
        size = np.abs(operand)
        good &= (size >= low) & (size <= high)
    return good


def _with_exact(
    pair: tuple[Array, Array], good: Array, function: Callable[..., float], mode: str, *operands: Array
) -> Pair:
    """The pair, with the elements that are not ``good`` computed by whole numbers, already rounded."""
    if good.all():
        return pair
    value, rest = (np.array(part) for part in pair)
    bad = ~good
    value[bad] = exact.elementwise(
        function, mode, *(np.broadcast_to(operand, bad.shape)[bad] for operand in operands)
    )
    rest[bad] = 0.0
    return value, rest


def _added64(mode: str, a: Array, b: Array) -> Pair:
    pair = _added(mode, a, b)
    if mode == "rn":
        return pair
    size = np.maximum(np.abs(a), np.abs(b))
    good = (size < 2.0**1020) | ~np.isfinite(a) | ~np.isfinite(b)
    return _with_exact(pair, good, exact.fused, mode, a, np.ones_like(a), b)


def _multiplied64(mode: str, a: Array, b: Array) -> Pair:
    if mode == "rn":
        return _narrow(a * b)
    finite = np.isfinite(a) & np.isfinite(b)
    good = _within(a, b) | ~finite
    value, rest = two_product(a, b)
    return _with_exact((value, np.where(finite, rest, 0.0)), good, exact.product, mode, a, b)


def _fused64(mode: str, a: Array, b: Array, c: Array) -> Pair:
    """a * b + c by three error-free sums, the last of them rounded to odd (Boldo, Melquiond, "Emulation of FMA", 2008)."""
    upper, lower = two_product(a, b)
    low, lowest = two_sum(c, lower)
    high, middle = two_sum(upper, low)
    small = two_sum(middle, lowest)
    value, rest = two_sum(high, odd(*small))
    simple = (a == 0) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b)  # the product is exact
    value = np.where(simple, a * b + c, value)
    rest = np.where(simple, 0.0, rest)
    good = simple | (_within(a, b) & (_within(c) | (c == 0)))
    return _with_exact((_zero_signed(value, a * b, c, mode), rest), good, exact.fused, mode, a, b, c)


def _divided64(mode: str, a: Array, b: Array) -> Pair:
    value = a / b
    if mode == "rn":
        return _narrow(value)
    upper, lower = two_product(value, b)
    remainder = (a - upper) - lower
    rest = np.where(np.signbit(b), -remainder, remainder)
    finite = np.isfinite(a) & np.isfinite(b) & (b != 0)
    good = _within(a, b, low=2.0**-400, high=2.0**400) | ~finite
    return _with_exact((value, np.where(finite, rest, 0.0)), good, exact.quotient, mode, a, b)


def _root64(mode: str, a: Array) -> Pair:
    value = np.sqrt(a)
    if mode == "rn":
        return _narrow(value)
    upper, lower = two_product(value, value)
    normal = np.isfinite(a) & (a > 0)
    good = _within(a) | ~normal
    return _with_exact((value, np.where(normal, (a - upper) - lower, 0.0)), good, exact.root, mode, a)


PAIRS64: dict[str, Callable[..., Pair]] = {
    "add": _added64,
    "sub": lambda mode, a, b: _added64(mode, a, -b),
    "mul": _multiplied64,
    "fma": _fused64,
    "mad": _fused64,
    "div": _divided64,
    "rcp": lambda mode, a: _divided64(mode, np.ones_like(a), a),
    "sqrt": _root64,
}


def _extreme(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """min and max: of a number and a NaN the number, unless ``.NaN`` is given; -0 is below +0."""
    found = parse(modifiers, ftz=("ftz",), nan=("NaN",), sign=("xorsign",), abs=("abs",), type=KINDS)
    if found is None or not found["type"] or bool(found["sign"]) != bool(found["abs"]):
        return None
    kind = found["type"]
    form = FORMATS[kind.removesuffix("x2")]
    if form is F64 and (found["ftz"] or found["nan"] or found["sign"]):
        return None
    if form is BF16 and found["ftz"]:
        return None
    top = BITS[form.bits].type(1 << (form.bits - 1))
    signed = SIGNED[form.bits]
    size = signed.type(int(top) - 1)
    pick = np.minimum if opcode == "min" else np.maximum
    nan_wins, by_size, flushes = bool(found["nan"]), bool(found["sign"]), bool(found["ftz"])

    def ordered(bits: Array) -> Array:
        """Integers in the order of the floats, -0 before +0; applied again, the bits."""
        number = bits.view(signed)
        return number ^ ((number >> signed.type(form.bits - 1)) & size)

    def compute(a: Array, b: Array) -> tuple[Array, ...]:
        if flushes:
            a, b = flushed(a, form), flushed(b, form)
        x, y = (a & ~top, b & ~top) if by_size else (a, b)
        value = ordered(pick(ordered(x), ordered(y))).view(a.dtype)
        a_nan, b_nan = is_nan(a, form), is_nan(b, form)
        nan = a_nan | b_nan
        if nan.any():
            value = np.where(a_nan, y, np.where(b_nan, x, value))
            value = canonical(value, nan if nan_wins else (a_nan & b_nan), form)
        if by_size:
            value = np.where(is_nan(value, form), value, value | ((a ^ b) & top))
        return (value,)

    return lifted(kind, 2, compute)


def is_nan(bits: Array, form: Format) -> Array:
    """Where bits are a NaN of the format."""
    kind = BITS[form.bits].type
    magnitude = kind((1 << (form.bits - 1)) - 1)
    return (bits & magnitude) > kind(int(magnitude) >> (form.precision - 1) << (form.precision - 1))


def _sign(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """neg and abs change the sign bit alone, that of a NaN too."""
    found = parse(modifiers, ftz=("ftz",), type=KINDS)
    if found is None or not found["type"]:
        return None
    kind, flushes = found["type"], bool(found["ftz"])
    form = FORMATS[kind.removesuffix("x2")]
    if flushes and form not in (F16, F32):
        return None
    top = BITS[form.bits].type(1 << (form.bits - 1))

    def compute(a: Array) -> tuple[Array, ...]:
        bits = flushed(a, form) if flushes else a
        return (bits ^ top if opcode == "neg" else bits & ~top,)

    return lifted(kind, 1, compute)


def _tested(modifiers: tuple[str, ...]) -> Operation | None:
    """testp: zeros count as normal."""
    found = parse(
        modifiers,
        test=("finite", "infinite", "number", "notanumber", "normal", "subnormal"),
        type=("f32", "f64"),
    )
    if found is None or not all(found.values()):
        return None
    form, test = FORMATS[found["type"]], found["test"]
    small = 2.0**form.emin

    def compute(a: Array) -> tuple[Array, ...]:
        size = np.abs(decoded(a, form))
        subnormal = (size > 0) & (size < small)
        return (
            {
                "finite": np.isfinite(size),
                "infinite": np.isinf(size),
                "number": ~np.isnan(size),
                "notanumber": np.isnan(size),
                "normal": np.isfinite(size) & ~subnormal,
                "subnormal": subnormal,
            }[test],
        )

    return Operation(("pred",), (found["type"],), quiet(compute))
