"""Sizes as the front ends handle them: checked on the way in, with arithmetic on the way out."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NoReturn

from tinyc.ir import dims
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.tiny import Dim, Shape


class Size(str):
    """A symbolic size such as ``"M"`` or ``"(M-1)//2+1"``: a text that knows ``+ - * //``.

    What :attr:`Tensor.shape` holds for a symbol, so that ``x.shape[1] // 2`` means the size and not the text.
    """

    __slots__ = ()

    def __add__(self, other: object) -> Dim:  # type: ignore[override]
        return wrap(dims.add(str(self), size(other, least=None)))

    def __radd__(self, other: object) -> Dim:
        return self + other

    def __sub__(self, other: object) -> Dim:
        return wrap(dims.sub(str(self), size(other, least=None)))

    def __rsub__(self, other: object) -> Dim:
        return wrap(dims.sub(size(other, least=None), str(self)))

    def __mul__(self, other: object) -> Dim:  # type: ignore[override]
        return wrap(dims.mul(str(self), size(other, least=None)))

    def __rmul__(self, other: object) -> Dim:  # type: ignore[override]
        return self * other

    def __neg__(self) -> Dim:
        return wrap(dims.mul(str(self), -1))

    def __floordiv__(self, other: object) -> Dim:
        divisor = size(other, least=None)
        if isinstance(divisor, int) and divisor >= 1:
            return wrap(dims.floordiv(str(self), divisor))
        raise _invalid(f"{self} // {other}: a size is divided only by a positive integer")

    # -- what needs a value, and what a text would do

    def _unknown(self, *_: object) -> NoReturn:
        raise TinycError(
            "InvalidShape",
            f"the size {self} has no value while the function is traced; it knows only + - * //",
            "trace with an integer size where Python computes with it or compares it",
            {"layer": "frontend"},
        )

    __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __mod__ = __rmod__ = __pow__ = __rpow__ = __truediv__ = __rtruediv__ = __rfloordiv__ = _unknown
    __int__ = __float__ = _unknown


def wrap(dim: Dim) -> Dim:
    return dim if isinstance(dim, int) else Size(dim)


def size(value: object, least: int | None = 1) -> Dim:
    """The canonical Dim of an integer or of a text. ``least``: the smallest integer allowed (None: any)."""
    if isinstance(value, str):
        try:
            value = dims.parse(value)
        except dims.DimError as error:
            raise _invalid(str(error)) from None
        if isinstance(value, str):
            return value
    number = integer(value)
    if number is None:
        raise _invalid(f"{value!r} is not a size")
    if least is not None and number < least:
        raise _invalid(f"a size of {number} (at least {least})")
    return number


def integer(value: object) -> int | None:
    """The integer that ``value`` is, one of numpy's too; None for all else, bool among it."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def listed(value: Any) -> tuple[Any, ...]:
    """``2`` and ``(2, 3)`` alike as a tuple; a text is one size."""
    one = isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", None) == 0
    return (value,) if one else tuple(value)


def spread(value: Any, count: int) -> tuple[Any, ...]:
    """One value for each of ``count`` axes: a single one repeats, several are taken as they are."""
    given = listed(value)
    return given * count if len(given) == 1 and given[0] is value else given


def divide(have: Shape, known: Iterable[Dim]) -> Dim | None:
    """The size q with ``product(have) == q * product(known)``; None where there is none or it is not evident."""
    rest = list(known)
    left = list(have)
    for dim in tuple(rest):
        if dim in left:
            left.remove(dim)
            rest.remove(dim)
    quotient = dims.product(left)
    for dim in rest:
        # q * s == total is linear in the symbol s, so q is total at s = 1
        part = dims.floordiv(quotient, dim) if isinstance(dim, int) else dims.substitute(quotient, {dim: 1})
        if dims.mul(part, dim) != quotient:
            return None
        quotient = part
    return quotient


def _invalid(why: str) -> TinycError:
    return TinycError(
        "InvalidShape",
        why,
        'give an integer >= 1, a symbol such as "M", or an expression over symbols such as "2*M+1"',
        {"layer": "frontend"},
    )
