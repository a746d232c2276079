"""Products whose rows are reduced in the same kernel, as Regions by hand."""

from __future__ import annotations

from collections.abc import Callable

from region_builder import F32, I32, Build

from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis
from tinyc.ir.region import Region
from tinyc.ir.schedule import Contraction

LOG2E = 1.4426950408889634


class RowProduct(Build):
    """S[z, i, h, c] = the sum over p of A[z, i, p] B[z, p, h, c], in the type of the operands, at the columns that are asked for.

    ``parts``: of a row, that are reduced by themselves (the axis h); ``batch``: its size. ``with_bias``: S is that sum plus a bias of the column
    and a residual; ``causal``: then -1000 where c > i. ``wide``: S keeps the type of the sum. ``bt``: B is transposed in memory.
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: DType,
        *,
        parts: int = 1,
        batch: int = 0,
        with_bias: bool = False,
        causal: bool = False,
        wide: bool = False,
        bt: bool = False,
    ) -> None:
        outer = {"z": batch} if batch else {}
        heads = {"h": parts} if parts > 1 else {}
        super().__init__(**outer, i=m, **heads, j=n // parts)
        self.sum_dtype = I32 if dtype is I32 else F32
        self.dtype = self.sum_dtype if wide else dtype
        self.k, self.n, self.batch, self.bt = k, n, tuple(outer), bt
        self.parts, self.with_bias, self.causal = tuple(heads), with_bias, causal
        row, column = [*outer.values()], [*heads.values(), n // parts]
        self.input("A", dtype, *row, m, k)
        self.input("B", dtype, *row, *([*column, k] if bt else [k, *column]))
        if with_bias:
            self.input("bias", self.dtype, *column)
            self.input("residual", self.dtype, *row, m, *column)
        self.columns = n // parts
        self.value = self.at("j", "p")
        assert self.roles is not None

    roles: Contraction | None = None

    def at(self, column: str, p: str) -> str:
        """S at a column of the row."""
        inner = (*self.parts, column)
        x = self.read("A", *self.batch, "i", p)
        y = self.read("B", *self.batch, *((*inner, p) if self.bt else (p, *inner)))
        if self.types[x] is not self.sum_dtype:
            x, y = self.cast(x, self.sum_dtype), self.cast(y, self.sum_dtype)
        total = self.reduce("SUM", self.binary("MUL", x, y), **{p: self.k})
        if self.roles is None:
            self.roles = Contraction(total, x, y, self.batch, ("i",), inner, (p,))
        value = total if self.dtype is self.types[total] else self.cast(total, self.dtype)
        if self.with_bias:
            value = self.binary("ADD", value, self.read("bias", *inner))
            value = self.binary("ADD", value, self.read("residual", *self.batch, "i", *inner))
        if self.causal:
            later = self.within(axis(column) - axis("i"), 1, self.columns)
            value = self.select(later, self.const(-1000.0, self.dtype), value)
        return value

    def reduced(self, op: str, column: str, of: Callable[[str], str] | None = None) -> str:
        """Of the row, over ``of`` of each of its elements; not rounded to less than fp32."""
        value = self.at(column, f"p_{column}")
        value = of(value) if of else value
        return self.reduce(op, value, **{column: self.columns})

    def wider(self, value: str) -> str:
        return value if self.types[value] is self.sum_dtype else self.cast(value, self.sum_dtype)

    def narrow(self, value: str) -> str:
        return value if self.types[value] is self.dtype else self.cast(value, self.dtype)


def less_the_largest(*args: object, several: bool = False, **options: object) -> tuple[Region, Contraction]:
    """S - max S; ``several``: S besides, and max S + S."""
    b = RowProduct(*args, **options)  # type: ignore[arg-type]
    largest = b.reduced("MAX", "r")
    found = b.binary("SUB", b.value, largest)
    outputs = (found, b.value, b.binary("ADD", b.value, largest)) if several else (found,)
    assert b.roles is not None
    return b.done(*outputs), b.roles


def less_the_sum(*args: object, **options: object) -> tuple[Region, Contraction]:
    """S + the sum of relu(S), in the type of the sums: of small integers it is exact."""
    b = RowProduct(*args, **options)  # type: ignore[arg-type]
    total = b.reduced("SUM", "r", lambda value: b.wider(b.unary("RELU", value)))
    assert b.roles is not None
    return b.done(b.binary("ADD", b.wider(b.value), total)), b.roles


def softmax(*args: object, **options: object) -> tuple[Region, Contraction]:
    """exp(S - max S) / sum, in fp32 between."""
    b = RowProduct(*args, **options)  # type: ignore[arg-type]
    largest = b.reduced("MAX", "r", b.wider)

    def power(value: str) -> str:
        return b.unary("EXP2", b.binary("MUL", b.binary("SUB", b.wider(value), largest), b.const(LOG2E)))

    total = b.reduced("SUM", "s", power)
    assert b.roles is not None
    return b.done(b.narrow(b.binary("FDIV", power(b.value), total))), b.roles


def layer_norm(*args: object, **options: object) -> tuple[Region, Contraction]:
    b = RowProduct(*args, **options)  # type: ignore[arg-type]
    share = b.const(1 / b.columns)
    mean = b.binary("MUL", b.reduced("SUM", "r", b.wider), share)

    def squared(value: str) -> str:
        less = b.binary("SUB", b.wider(value), mean)
        return b.binary("MUL", less, less)

    variance = b.binary("MUL", b.reduced("SUM", "s", squared), share)
    scale = b.unary("RSQRT", b.binary("ADD", variance, b.const(1e-5)))
    assert b.roles is not None
    return b.done(b.narrow(b.binary("MUL", b.binary("SUB", b.wider(b.value), mean), scale))), b.roles
