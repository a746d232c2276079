"""The index map of a RESHAPE (document 004 §4.4; resolutions I-25, I-26): from axes of the result to the operand's.

Both shapes are cut where their leading products agree, as ``[B, H*D] -> [B, H, D]`` after ``B``. Within a part the
position L = sum o_j * stride'_j is divided up again: i_k = L//stride_k - size_k*(L//(stride_k*size_k)). Only the
first size of a part may be symbolic, since a stride is a product of those behind it: else there is no affine map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinyc.ir import dims
from tinyc.ir.index import Affine, affine, lit
from tinyc.ir.tiny import Dim, Shape

from .ranges import Sizes, divide

Axes = list[tuple[int, Dim]]


def reshape_map(operand: Shape, result: Shape, sizes: Sizes) -> tuple[Affine | str, ...] | None:
    """One index per axis of ``operand`` over the axes ``i0…`` of ``result``: a text where only a symbolic stride
    stands against an Affine (``D*i1+i2``), None where the map would have to divide by a symbol."""
    index: list[Affine | str] = [lit(0)] * len(operand)
    for before, after in _parts(operand, result):
        found = _within(before, after, sizes)
        if found is None:
            return None
        for (axis, _), entry in zip(before, found, strict=True):
            index[axis] = entry
    return tuple(index)


def _parts(operand: Shape, result: Shape) -> Iterator[tuple[Axes, Axes]]:
    """Runs of axes with equal products, as short as they can be; axes of size 1 belong to none."""
    before = [(axis, dim) for axis, dim in enumerate(operand) if dim != 1]
    after = [(axis, dim) for axis, dim in enumerate(result) if dim != 1]
    ends = {product: position for position, product in enumerate(_products(before), 1)}
    left = right = 0
    for position, product in enumerate(_products(after), 1):
        end = ends.get(product, 0)
        if end > left:
            yield before[left:end], after[right:position]
            left, right = end, position


def _products(axes: Axes) -> Iterator[Dim]:
    total: Dim = 1
    for _, dim in axes:
        total = dims.mul(total, dim)
        yield total


def _within(before: Axes, after: Axes, sizes: Sizes) -> list[Affine | str] | None:
    strides = _strides([dim for _, dim in after])
    if len(before) == 1:
        return [_position(after, strides)]
    position = _position(after, strides)
    steps = _strides([dim for _, dim in before])
    if isinstance(position, str) or not all(isinstance(step, int) for step in steps):
        return None
    found: list[Affine | str] = []
    for step, (_, size) in zip(steps, before, strict=True):
        index = divide(position, int(step), sizes)
        if found:
            index = index - divide(index, int(size), sizes) * int(size)
        found.append(index)
    return found


def _strides(shape: Sequence[Dim]) -> list[Dim]:
    """Row-major: how far one step along each axis is."""
    strides: list[Dim] = [1]
    for dim in reversed(shape[1:]):
        strides.append(dims.mul(strides[-1], dim))
    return strides[::-1]


def _position(axes: Axes, strides: Sequence[Dim]) -> Affine | str:
    if all(isinstance(stride, int) for stride in strides):
        return affine(0, [(int(step), f"i{axis}") for (axis, _), step in zip(axes, strides, strict=True)])
    total: Dim = 0
    for (axis, _), stride in zip(axes, strides, strict=True):
        total = dims.add(total, dims.mul(stride, f"i{axis}"))
    return str(total)
