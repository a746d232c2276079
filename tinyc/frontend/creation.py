"""Tensors out of nothing. The vocabulary has no constant node, so all of them start from a VALID."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from tinyc.ir import dims
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Dim, Imm

from .builder import Builder, dtype_named
from .reduction import ones_of
from .sizes import listed, size
from .tensor import Tensor

#: the document that functions without a tensor argument write to; set for the time of one trace, per thread
_CURRENT: ContextVar[Builder | None] = ContextVar("tinyc_trace", default=None)


@contextmanager
def writing_to(builder: Builder) -> Iterator[None]:
    """Inside, functions without a tensor argument write to ``builder``."""
    token = _CURRENT.set(builder)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_builder(op: str) -> Builder:
    builder = _CURRENT.get()
    if builder is None:
        raise TinycError(
            "InvalidArgument",
            f"{op} is called outside of a traced function",
            "call it inside the function given to tinyc.trace",
            {"layer": "frontend", "op": op},
        )
    return builder


def full(shape: Dim | Sequence[Dim], value: Imm, dtype: str | DType = "fp32") -> Tensor:
    """``value`` everywhere."""
    kind, builder = dtype_named(dtype, {"op": "full"}), current_builder("full")
    sizes = tuple(map(size, listed(shape)))
    ones = Tensor(builder, ones_of(builder, sizes, kind))
    if kind is DType.BOOL:
        return ones if value else ~ones
    return ones if value == 1 else ones * value


def zeros(shape: Dim | Sequence[Dim], dtype: str | DType = "fp32") -> Tensor:
    return full(shape, 0, dtype)


def ones(shape: Dim | Sequence[Dim], dtype: str | DType = "fp32") -> Tensor:
    return full(shape, 1, dtype)


def arange(count: Dim, dtype: str | DType = "i32") -> Tensor:
    """0, 1, …, count-1, put together from its binary digits. Where ``count`` is a symbol its digits are not known:
    then index i is the number of indices below i, a sum of count^2 terms when nothing rewrites it."""
    kind, builder, extent = dtype_named(dtype, {"op": "arange"}), current_builder("arange"), size(count)
    exact = (kind if kind.is_float else DType.I32).value
    if not isinstance(extent, int):
        return triangle(builder, extent, extent, lowest=extent).sum(1, dtype=exact).cast(kind)
    total: Tensor | None = None
    for bit in range(max((extent - 1).bit_length(), 1)):
        # digit b of i0, as an index into (false, true)
        digit = builder.view(
            builder.valid([2], [1], [2]), [extent], [f"i0//{2**bit}-2*(i0//{2 ** (bit + 1)})"]
        )
        part = Tensor(builder, digit).cast(DType.I32) * 2**bit
        total = part if total is None else total + part
    assert total is not None
    return total.cast(kind)


def triangle(builder: Builder, rows: Dim, columns: Dim, lowest: Dim) -> Tensor:
    """bool [rows, columns]: true where ``i - j + columns - 1 >= lowest``.

    ``lowest = columns - 1`` gives j <= i (upper left alignment), ``rows - 1`` aligns the lower right corner,
    ``columns`` gives j < i. A VIEW of one line that is true from ``lowest`` on.
    """
    length = dims.sub(dims.add(rows, columns), 1)
    line = builder.valid([length], [lowest], [length])
    return Tensor(builder, builder.view(line, [rows, columns], [f"i0-i1+{dims.sub(columns, 1)}"]))
