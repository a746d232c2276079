"""The domains in which both sides of a rule are evaluated. Each gives the operators another meaning.

- :class:`Tokens`: operators are unknown functions, values are 64-bit names of terms. Equal names are the same
  computation, so equal bit for bit for all values. With ``sums``, additions form an abelian group: equal names are then
  the same terms summed in another order.
- :class:`~tinyc.rulecheck.bits.Bits`: the arithmetic of the reference evaluator (:mod:`tinyc.ir.numeric`), on chosen values of each dtype.
- :class:`~tinyc.rulecheck.reals.Reals`: exact rational arithmetic, powers and roots where they are rational.
- :class:`~tinyc.rulecheck.bounds.Bounds`: float64, each value with a bound on the error that fp32 arithmetic makes of it.

All arrays have a first axis of samples.
"""

from __future__ import annotations

import functools
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyc.ir.tiny import COMPARE

Array = np.ndarray[Any, Any]
HALVES = ("fp16", "bf16")
REDUCES = {"SUM": "ADD", "PROD": "MUL", "MAX": "MAX", "MIN": "MIN"}


def number(*parts: object) -> int:
    """A 64-bit number that depends on ``parts`` alone."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


class Domain(ABC):
    """What the operators mean. ``dtype`` is always that of the operands."""

    @abstractmethod
    def leaf(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """The value of an opaque term: an array of samples by ``shape``."""

    @abstractmethod
    def const(self, dtype: str, bits: int) -> Array:
        """One number."""

    @abstractmethod
    def unary(self, op: str, dtype: str, x: Array) -> Array: ...

    @abstractmethod
    def binary(self, op: str, dtype: str, x: Array, y: Array) -> Array: ...

    @abstractmethod
    def cast(self, source: str, to: str, x: Array) -> Array: ...

    def truth(self, x: Array) -> Array:
        """A mask of an index condition as a value."""
        return x

    def select(self, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    def fold(self, op: str, dtype: str, x: Array) -> Array:
        """A reduction over the last axis, in order; there are two points at least."""
        combine, result = REDUCES[op], x[..., 0]
        for each in range(1, x.shape[-1]):
            result = self.binary(combine, dtype, result, x[..., each])
        return result

    def stream(self, score: Array, weight: Array, scale: int) -> Array:
        """sum over the last axis of exp2((s - max s) * c) * w."""
        top = self.fold("MAX", "fp32", score)[..., None] if score.shape[-1] > 1 else score
        power = self.binary("MUL", "fp32", self.binary("SUB", "fp32", score, top), self.const("fp32", scale))
        terms = self.binary("MUL", "fp32", self.unary("EXP2", "fp32", power), weight)
        return self._total(terms)

    def rounded_stream(self, dtype: str, score: Array, weight: Array, scale: int) -> Array:
        """sum over the last axis of fp32(dtype(e / sum e)) * w with e = exp2((s - max s) * c)."""
        top = self.fold("MAX", "fp32", score)[..., None] if score.shape[-1] > 1 else score
        power = self.binary("MUL", "fp32", self.binary("SUB", "fp32", score, top), self.const("fp32", scale))
        e = self.unary("EXP2", "fp32", power)
        rounded = self.cast("fp32", dtype, self.binary("FDIV", "fp32", e, self._total(e)[..., None]))
        return self._total(self.binary("MUL", "fp32", self.cast(dtype, "fp32", rounded), weight))

    def _total(self, terms: Array) -> Array:
        return self.fold("SUM", "fp32", terms) if terms.shape[-1] > 1 else terms[..., 0]


# ---- tokens ---------------------------------------------------------------------------------------------------------

_A, _B, _C = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15)


def _mixed(x: Array) -> Array:
    x = (x ^ (x >> np.uint64(30))) * _A
    x = (x ^ (x >> np.uint64(27))) * _B
    return x ^ (x >> np.uint64(31))


class Tokens(Domain):
    def __init__(self, seed: str, samples: int = 3, sums: bool = False) -> None:
        self.seed, self.samples, self.sums = seed, samples, sums

    def _named(self, name: str, *operands: Array) -> Array:
        result: Array = np.full((1,), _word(name), np.uint64)
        with np.errstate(over="ignore"):
            for each in operands:
                result = _mixed(result * _C + each.astype(np.uint64))
        return result

    def leaf(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        found = _random_words(self.seed + name, (self.samples, *shape))
        return (found & np.uint64(1)).astype(bool) if dtype == "bool" else found

    def const(self, dtype: str, bits: int) -> Array:
        if dtype == "bool":
            return np.array([bool(bits)])
        if self.sums and bits in (0, _ZEROS.get(dtype, 0)):
            return np.zeros((1,), np.uint64)
        return np.array([_word(f"{dtype} {bits}")], np.uint64)

    def unary(self, op: str, dtype: str, x: Array) -> Array:
        if self.sums and op == "NEG":
            return np.uint64(0) - x
        return self._named(f"{op} {dtype}", x)

    def binary(self, op: str, dtype: str, x: Array, y: Array) -> Array:
        if dtype == "bool":
            return BOOLEAN[op](x, y)
        if self.sums and op in ("ADD", "SUB"):
            return x + y if op == "ADD" else x - y
        result = self._named(f"{op} {dtype}", x, y)
        return (result & np.uint64(1)).astype(bool) if op in COMPARE else result

    def cast(self, source: str, to: str, x: Array) -> Array:
        if source == to:
            return x
        result = self._named(f"CAST {source} {to}", x)
        return (result & np.uint64(1)).astype(bool) if to == "bool" else result

    def fold(self, op: str, dtype: str, x: Array) -> Array:
        """Sums and products of halves are of fp32 until the end, where they are rounded: no chain of operations on halves, unless
        it is of one."""
        if self.sums or dtype not in HALVES or op in ("MAX", "MIN") or x.shape[-1] == 2:
            return super().fold(op, dtype, x)
        return self._named(f"ROUND {dtype}", super().fold(op, f"wide {dtype}", x))

    def stream(self, score: Array, weight: Array, scale: int) -> Array:
        score, weight = np.broadcast_arrays(score, weight)
        parts = [part for k in range(score.shape[-1]) for part in (score[..., k], weight[..., k])]
        return self._named(f"STREAM {scale} {score.shape[-1]}", *parts)


_ZEROS = {"fp32": 1 << 31, "fp16": 1 << 15, "bf16": 1 << 15}
BOOLEAN: dict[str, Callable[[Array, Array], Array]] = {
    "MAX": np.logical_or,
    "MIN": np.logical_and,
    "CMPLT": lambda x, y: ~x & y,
    "CMPNE": np.not_equal,
    "CMPEQ": np.equal,
}


@functools.cache
def _word(name: str) -> np.uint64:
    return np.uint64(number(name))


def _random_words(seed: str, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    with np.errstate(over="ignore"):
        start = np.arange(1, count + 1, dtype=np.uint64) * _C + np.uint64(number(seed))
        return _mixed(start).reshape(shape)
