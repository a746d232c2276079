"""Random inputs on which steps are tried. What a large one holds is drawn where it is asked for, and never stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyc.ir.dtypes import DType
from tinyc.ir.numeric import Array
from tinyc.ir.tiny import TensorType

STORED = 1 << 22
"""An input of at most so many elements is an array."""

TABLE = 1 << 16
"""Different values of a larger one."""


@dataclass(frozen=True, eq=False)
class Input:
    """A tensor of random values. ``values``: all of them, or, of a large one, a table that its offsets are hashed into."""

    shape: tuple[int, ...]
    values: Array
    salt: int

    @property
    def stored(self) -> bool:
        return self.values.shape == self.shape

    def at(self, index: Sequence[Array]) -> Array:
        """The elements at an index, whose entries have one shape and lie inside."""
        if self.stored:
            return np.asarray(self.values[tuple(index)])
        offset: Any = np.uint64(0)
        for size, part in zip(self.shape, index, strict=True):
            offset = offset * np.uint64(size) + np.asarray(part).astype(np.uint64)
        return np.asarray(self.values[_hashed(offset + np.uint64(self.salt)) % np.uint64(TABLE)])

    def astype(self, dtype: Any) -> Input:
        return Input(self.shape, self.values.astype(dtype), self.salt)


def _hashed(number: Any) -> Any:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): neighbours get unrelated values."""
    with np.errstate(over="ignore"):
        number = (number + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return number ^ (number >> np.uint64(31))


def random_inputs(types: Sequence[TensorType], seed: int, way: str) -> list[Input]:
    """For the inputs of a program. ``way``: "normal", "integers" (-3 to 3), "positive", or "special" (infinities, NaN,
    zeros of both signs, and some others)."""
    generator = np.random.default_rng(seed)
    return [
        _random(generator, tuple(map(int, kind.shape)), kind.dtype, way, number << 40)
        for number, kind in enumerate(types)
    ]


def _random(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: DType, way: str, salt: int
) -> Input:
    drawn = shape if math.prod(shape) <= STORED else (TABLE,)
    if dtype is DType.BOOL:
        return Input(shape, generator.random(drawn) < 0.5, salt)
    if dtype is DType.I32:
        return Input(shape, generator.integers(-9, 10, drawn).astype(np.int32), salt)
    special = np.asarray([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5])
    values: Mapping[str, Callable[[], Any]] = {
        "normal": lambda: generator.standard_normal(drawn),
        "integers": lambda: generator.integers(-3, 4, drawn),
        "positive": lambda: generator.random(drawn) + 0.5,
        "special": lambda: special[generator.integers(0, special.size, drawn)],
    }
    return Input(shape, np.asarray(values[way]()).astype(np.float32).astype(dtype.numpy), salt)
