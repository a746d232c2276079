"""Arithmetic of float64 in which each value carries a bound on the error that its dtype's arithmetic makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinyc.ir.tiny import ROUNDED

from .bits import Bits, constant
from .domains import BOOLEAN, Array, Domain
from .term import Term, walk
from .world import World, number_of

ROUNDING_TF32 = 2.0**-11
ROUNDING = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}

ON_PURPOSE = 0.25
"""Of the error that a cast makes: other casts may make twice as much (a bound counts eight times), and no cast to fewer digits."""


_SMOOTH: dict[str, Callable[[Array], Array]] = {
    "EXP2": np.exp2,
    "LOG2": np.log2,
    "SQRT": np.sqrt,
    "SIN": np.sin,
    "RSQRT": lambda x: 1 / np.sqrt(x),
    "RECIP": lambda x: 1 / x,
}


class Bounds(Domain):
    """complex128: the real part is the value, the imaginary part a first-order bound on the error of computing it in
    its dtype, infinite where something over- or underflows. Leaves are those of ``of``, known
    to one rounding: what a rule may make of the last digit of its inputs is no fault of the rule. But for ``known``, a leaf that
    may be a constant: all its digits are known."""

    def __init__(self, of: Bits, known: str = "") -> None:
        self.of, self.known = of, known

    def leaf(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        found = self.of.leaf(name, dtype, shape)
        if dtype == "bool":
            return found
        wide = found.astype(np.float64)
        rounded = dtype in ROUNDING and name != self.known
        return _with_error(wide, np.abs(wide) * ROUNDING["fp32"] if rounded else np.zeros_like(wide))

    def const(self, dtype: str, bits: int) -> Array:
        found = constant(dtype, bits)
        if dtype == "bool":
            return found
        wide = found.astype(np.float64)
        return _with_error(wide, np.where(extreme(wide), np.inf, 0.0))

    def unary(self, op: str, dtype: str, x: Array) -> Array:
        v, e = x.real, x.imag
        if op == "NEG":
            return _with_error(_wrapped(-v) if dtype == "i32" else -v, e)
        if op == "RELU":
            return _with_error(np.maximum(v, 0), e)
        if op == ROUNDED:
            return _rounded(v, e + ROUNDING_TF32 * np.abs(v), dtype)
        value: Array = _SMOOTH[op](v)
        slope = {
            "EXP2": lambda: value * math.log(2),
            "LOG2": lambda: 1 / (v * math.log(2)),
            "SQRT": lambda: 0.5 / value,
            "SIN": lambda: np.ones_like(v),
            "RSQRT": lambda: value / (2 * v),
            "RECIP": lambda: value * value,
        }[op]()
        return _rounded(value, np.where(e == 0, 0, np.abs(slope) * e), dtype)

    def binary(self, op: str, dtype: str, x: Array, y: Array) -> Array:
        if dtype == "bool":
            return BOOLEAN[op](x, y)
        a, b, e, f = x.real, y.real, x.imag, y.imag
        match op:
            case "ADD":
                return _rounded(a + b, e + f, dtype)
            case "SUB":
                return _rounded(a - b, e + f, dtype)
            case "MUL" if dtype == "i32":
                return _with_error(_product(a, b), np.abs(a) * f + np.abs(b) * e)
            case "MUL":
                return _rounded(a * b, np.abs(a) * f + np.abs(b) * e, dtype)
            case "FDIV":
                return _rounded(a / b, (e + np.abs(a / b) * f) / np.abs(b), dtype)
            case "POW":
                value = np.power(a, b)
                return _rounded(
                    value, np.abs(value) * (np.abs(b / a) * e + np.abs(np.log(np.abs(a))) * f), dtype
                )
            case "MAX" | "MIN":
                return _with_error(np.maximum(a, b) if op == "MAX" else np.minimum(a, b), np.maximum(e, f))
            case "CMPLT":
                return a < b
            case "CMPEQ":
                return a == b
            case _:
                return a != b

    def cast(self, source: str, to: str, x: Array) -> Array:
        if source == to:
            return x
        if to == "bool":
            return x.real != 0
        if source == "bool":
            return x.astype(np.complex128)
        if to == "i32":
            return _with_error(np.trunc(x.real), x.imag)
        return _rounded(x.real, x.imag, to, ON_PURPOSE)


def _with_error(value: Array, error: Array) -> Array:
    value, error = np.broadcast_arrays(value, error)
    result = np.empty(value.shape, np.complex128)
    result.real, result.imag = value, error
    return result


def _wrapped(value: Array) -> Array:
    """Integers as i32 has them, which wraps around: no overflow that would excuse anything."""
    return np.where(np.isfinite(value), (value + 2.0**31) % 2.0**32 - 2.0**31, value)


def _product(a: Array, b: Array) -> Array:
    """Of two i32, which float64 does not hold."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return a * b
    found: Array = (a.astype(np.int64) * b.astype(np.int64)).astype(np.int32).astype(np.float64)
    return found


def _rounded(value: Array, error: Array, dtype: str, share: float = 1.0) -> Array:
    if dtype == "i32":
        return _with_error(_wrapped(value), error)
    size = np.abs(value)
    least, most = (2.0**-14, 65504.0) if dtype == "fp16" else (2.0**-126, 2.0**127)
    lost = (size > most) | ((size < least) & (value != 0)) | np.isnan(value)
    return _with_error(value, np.where(lost, np.inf, error + share * (ROUNDING[dtype] * size + TINY[dtype])))


def extreme(value: Array) -> Array:
    """A number with which ordinary ones may over- or underflow."""
    size = np.abs(value)
    return ~((value == 0) | ((size > 2.0**-20) & (size < 2.0**20)))


def extreme_constant(world: World, a: Term, b: Term, infinite: bool = True) -> bool:
    """Whether a constant of either side is so large or small that ordinary numbers may over- or underflow with it."""
    numbers = (number_of(world, each) for each in (*walk(a), *walk(b)) if each.head in ("Const", "Imm"))
    known = [np.asarray(float(each)) for each in numbers if each is not None]
    return any(bool(extreme(each)) for each in known if infinite or np.isfinite(each))
