"""The movement methods of a tensor: reshape, transpose, slice, pad, windows. No element is computed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, Self

from tinyc.ir import dims
from tinyc.ir.diagnostics import TinycError, show, show_shape
from tinyc.ir.tiny import Dim, Imm

from .base import Traced, number_of
from .sizes import Size, integer, listed, size, spread


class Movement(Traced):
    """Every method gives a new tensor of the same dtype."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """Row-major regrouping; one size may be -1. Raises AxisSizeMismatch, InvalidShape."""
        return self._new(self.builder.reshape(self.value, _flat(shape)))

    def permute(self, *perm: Any) -> Self:
        """Output axis i is input axis ``perm[i]``. Raises InvalidPermutation."""
        return self._new(self.builder.permute(self.value, _flat(perm)))

    def transpose(self, *perm: Any) -> Self:
        """As numpy: without arguments all axes reversed, else :meth:`permute`."""
        return self.permute(*(perm or range(self.ndim)[::-1]))

    @property
    def T(self) -> Self:
        return self.transpose()

    def swapaxes(self, one: int, two: int) -> Self:
        order = list(range(self.ndim))
        first, second = self._axis(one), self._axis(two)
        order[first], order[second] = second, first
        return self.permute(order)

    def broadcast_to(self, *shape: Any) -> Self:
        """Right-aligned broadcast. Raises BroadcastMismatch."""
        return self._new(self.builder.expand(self.value, _flat(shape)))

    def expand_dims(self, axis: int | Sequence[int]) -> Self:
        """New axes of size 1 at these positions of the result."""
        places = listed(axis)
        rank = self.ndim + len(places)
        new = {place % rank for place in map(integer, places) if place is not None and -rank <= place < rank}
        if len(new) != len(places):
            raise _invalid(
                "expand_dims", f"axis {axis} of a result of rank {rank}", "name new places once each"
            )
        rest = iter(self.value.shape)
        return self.reshape([1 if place in new else next(rest) for place in range(rank)])

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Self:
        """Drops axes of size 1: all of them, or those named. Raises AxisSizeMismatch where the size is not 1."""
        shape = self.value.shape
        gone = [k for k, dim in enumerate(shape) if dim == 1] if axis is None else list(self._axes(axis))
        wrong = [k for k in gone if shape[k] != 1]
        if wrong:
            raise TinycError(
                "AxisSizeMismatch",
                f"axis {wrong[0]} of {show_shape(shape)} is not of size 1",
                "squeeze only axes of size 1",
                {"layer": "frontend", "op": "squeeze"},
            )
        return self.reshape([dim for k, dim in enumerate(shape) if k not in gone])

    def flip(self, axis: int | Sequence[int] | None = None) -> Self:
        """Reverses the axes named (all without an argument)."""
        return self._new(self.builder.flip(self.value, self._axes(axis)))

    def pad(self, pads: int | Sequence[Any], value: Imm = 0) -> Self:
        """``pads`` as in numpy: a number for all sides, (before, after) for all axes, or one pair per axis."""
        sides = spread(pads, self.ndim)
        if len(sides) == 2 and all(len(listed(side)) == 1 for side in sides):
            pairs = [sides] * self.ndim
        else:
            pairs = [pair * 2 if len(pair) == 1 else pair for pair in map(listed, sides)]
        if any(len(pair) != 2 for pair in pairs):
            raise _invalid(
                "pad", f"pads {show(pads)}", "give a number, (before, after), or one pair per axis"
            )
        known = [(size(low, least=None), size(high, least=None)) for low, high in pairs]
        return self._new(self.builder.pad(self.value, known, number_of(value, "PAD")))

    def sliding_window(
        self,
        kernel: int | Sequence[int],
        axis: int | Sequence[int] | None = None,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Self:
        """Windows over ``axis`` (one axis or several; all without an argument), as a VIEW that copies nothing.

        As in ``numpy.lib.stride_tricks.sliding_window_view`` the axis then counts windows and one axis per
        window is appended: size D becomes ``(D - dilation*(kernel-1) - 1) // stride + 1``, and ``kernel`` comes
        last. Raises InvalidArgument where a kernel is larger than its axis.
        """
        axes = self._axes(axis)
        kernels, strides, dilations = (per_axis(n, len(axes)) for n in (kernel, stride, dilation))
        shape, index = list(self.value.shape), [f"i{k}" for k in range(self.ndim)]
        for place, (k, taps, step, gap) in enumerate(zip(axes, kernels, strides, dilations, strict=True)):
            shape[k] = windows(shape[k], taps, step, gap)
            index[k] = f"{step}*i{k}+{gap}*i{self.ndim + place}"
        return self._new(self.builder.view(self.value, [*shape, *kernels], index))

    def __getitem__(self, key: Any) -> Self:
        """Basic indexing: integers, slices (any step), ``None`` and ``...``. Raises InvalidArgument for others."""
        keys = _complete(key if isinstance(key, tuple) else (key,), self.ndim)
        lo: list[Dim] = []
        hi: list[Dim] = []
        steps: list[int] = []
        flipped: list[int] = []
        kept: list[bool] = []
        for part in (part for part in keys if part is not None):
            axis = len(lo)
            first, last, step, backwards = _range(part, self.value.shape[axis], axis)
            lo.append(first)
            hi.append(last)
            steps.append(step)
            kept.append(isinstance(part, slice))
            flipped += [axis] if backwards else []
        cut = self.builder.shrink(self.builder.flip(self.value, flipped), lo, hi, steps)
        sizes, keeps = iter(cut.shape), iter(kept)
        shape = [1 if part is None else next(sizes) if next(keeps) else _skip(sizes) for part in keys]
        return self._new(self.builder.reshape(cut, [dim for dim in shape if dim != 0]))


def windows(dim: Dim, kernel: int, stride: int, dilation: int) -> Dim:
    """How many windows fit: ``(dim - dilation*(kernel-1) - 1) // stride + 1``."""
    if min(kernel, stride, dilation) < 1:
        raise _invalid(
            "sliding_window", f"kernel {kernel}, stride {stride}, dilation {dilation}", "use sizes >= 1"
        )
    count = dims.add(dims.floordiv(dims.sub(dim, dilation * (kernel - 1) + 1), stride), 1)
    if isinstance(count, int) and count < 1:
        raise _invalid(
            "sliding_window",
            f"a window of {dilation * (kernel - 1) + 1} elements does not fit an axis of {dim}",
            "pad the axis or take a smaller kernel or dilation",
        )
    return count


def per_axis(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One integer for each of ``count`` axes: a single one repeats."""
    given = spread(value, count)
    known = [n for n in map(integer, given) if n is not None]
    if len(given) != count or len(known) != count:
        raise _invalid("sliding_window", f"{value!r} for {count} axes", f"give one integer, or {count}")
    return tuple(known)


def _flat(args: Sequence[Any]) -> tuple[Any, ...]:
    """``f(2, 3)`` and ``f((2, 3))`` mean the same."""
    return listed(args[0]) if len(args) == 1 else tuple(args)


def _skip(sizes: Iterable[Dim]) -> int:
    """Passes over the size of an axis that an integer index removes; 0 marks the place."""
    next(iter(sizes))
    return 0


def _complete(keys: Sequence[Any], rank: int) -> list[int | slice | None]:
    """The key with ``...`` and what is missing at the end written out as full slices."""
    for key in keys:
        plain = key is None or isinstance(key, slice | EllipsisType | Size)
        if not plain and integer(key) is None:
            raise _invalid(
                "indexing",
                f"an index of type {type(key).__name__} (gather is not in the vocabulary)",
                "index with integers, slices, None and ...; select with where()",
            )
    used = sum(not isinstance(key, EllipsisType) and key is not None for key in keys)
    dots = [place for place, key in enumerate(keys) if isinstance(key, EllipsisType)]
    if used > rank or len(dots) > 1:
        raise _invalid(
            "indexing", f"{used} indices and {len(dots)} ... for rank {rank}", "index each axis once"
        )
    at = dots[0] if dots else len(keys)
    return [*keys[:at], *[slice(None)] * (rank - used), *keys[at + 1 :]]


def _range(part: Any, dim: Dim, axis: int) -> tuple[Dim, Dim, int, bool]:
    """(lo, hi, step, reversed) of one index; lo and hi count from the other end where it is reversed."""
    if not isinstance(part, slice):
        first = _position(part, dim)
        if isinstance(dim, int) and isinstance(first, int) and not 0 <= first < dim:
            raise _invalid("indexing", f"index {part} on axis {axis} of size {dim}", "stay within the axis")
        return first, dims.add(first, 1), 1, False
    step = 1 if part.step is None else integer(part.step)
    if not step:
        raise _invalid("indexing", f"a slice with step {part.step!r}", "use an integer other than 0")
    known = [bound is None or integer(bound) is not None for bound in (part.start, part.stop)]
    if isinstance(dim, int) and all(known):
        picked = range(dim)[part]
        if not picked:
            raise TinycError(
                "InvalidShape",
                f"the slice {part.start}:{part.stop}:{step} of axis {axis} of size {dim} is empty",
                "keep at least one element on every axis",
                {"layer": "frontend", "op": "indexing"},
            )
        first = picked[0] if step > 0 else dim - 1 - picked[0]
        return first, first + (len(picked) - 1) * abs(step) + 1, abs(step), step < 0
    if step > 0:
        low = 0 if part.start is None else _position(part.start, dim)
        high = dim if part.stop is None else _position(part.stop, dim)
        return low, high, step, False
    last = dims.sub(dim, 1)
    low = 0 if part.start is None else dims.sub(last, _position(part.start, dim))
    high = dim if part.stop is None else dims.sub(last, _position(part.stop, dim))
    return low, high, -step, True


def _position(index: Any, dim: Dim) -> Dim:
    """The index from the front; a negative integer counts from the end."""
    place = size(index, least=None)
    return dims.add(dim, place) if isinstance(place, int) and place < 0 else place


def _invalid(op: str, why: str, suggestion: str) -> TinycError:
    return TinycError("InvalidArgument", why, suggestion, {"layer": "frontend", "op": op})
