"""What every traced tensor has: its document, its value, and the checks on what it meets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tinyc.ir.diagnostics import TinycError, show_shape
from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Imm, Shape

from .builder import Builder, Operand, Value
from .sizes import integer, listed, wrap

Axes = int | Sequence[int] | None


class Traced:
    """A value of known shape and dtype in the document that ``builder`` writes."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def shape(self) -> Shape:
        """Integers and symbolic sizes; the latter know ``+ - * //``."""
        return tuple(wrap(dim) for dim in self.value.shape)

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return len(self.value.shape)

    def _new(self, value: Value) -> Self:
        return type(self)(self.builder, value)

    def _operand(self, other: Any, op: str) -> Operand:
        return self._tensor(other, op).value if isinstance(other, Traced) else number_of(other, op)

    def _tensor(self, other: Any, op: str) -> Self:
        if not isinstance(other, type(self)):
            raise _not_a_tensor(other, op)
        if other.builder is not self.builder:
            raise TinycError(
                "InvalidArgument",
                f"{op} mixes tensors of two traces",
                "use only the tensors that this trace passes to the function",
                {"layer": "frontend", "op": op},
            )
        return other

    def _axis(self, axis: int) -> int:
        place = integer(axis)
        if place is None or not -self.ndim <= place < self.ndim:
            raise TinycError(
                "InvalidArgument",
                f"axis {axis!r} of a tensor of shape {show_shape(self.value.shape)}",
                f"name an axis from {-self.ndim} to {self.ndim - 1}" if self.ndim else "a scalar has no axes",
                {"layer": "frontend"},
            )
        return place % self.ndim

    def _axes(self, axis: Axes) -> tuple[int, ...]:
        """The axes named, counted from the front, in the order given; all of them for None."""
        if axis is None:
            return tuple(range(self.ndim))
        axes = tuple(map(self._axis, listed(axis)))
        if len(set(axes)) != len(axes):
            raise TinycError(
                "InvalidArgument", f"{axis} names an axis twice", "name each axis once", {"layer": "frontend"}
            )
        return axes


def number_of(other: Any, op: str) -> Imm:
    scalar = isinstance(other, np.generic) or (isinstance(other, np.ndarray) and other.ndim == 0)
    value = other.item() if scalar else other
    if isinstance(value, bool | int | float):
        return value
    raise _not_a_tensor(other, op)


def _not_a_tensor(other: object, op: str) -> TinycError:
    array = isinstance(other, np.ndarray | list | tuple)
    return TinycError(
        "InvalidArgument",
        f"{op} meets {'an array' if array else 'a value'} of type {type(other).__name__}, which no document can hold",
        "make it an input of the traced function; only Python numbers are captured",
        {"layer": "frontend", "op": op},
    )
