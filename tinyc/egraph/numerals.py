"""Numbers in the place of bits: rule files may write ``(Const "i32" -1)`` for ``(Const "i32" 4294967295)``, and
``(Const "fp32" 0.5)`` for ``(Const "fp32" 1056964608)``.

The engine never sees such a number: constants are bits there (rules/schema.egg), and -1 would be a second spelling of what
every program spells 4294967295, which no rule would match.
"""

from __future__ import annotations

import math
import re

from tinyc.ir.dtypes import DType, from_bits, to_bits

_CONSTANT = re.compile(r';[^\n]*|(\(\s*(?:Const|Imm)\s+"(\w+)"\s+)([^\s()";]+)(?=\s*\))|"(?:[^"\\]|\\.)*"')
"""A constant with a literal in it; comments and strings are passed over."""

_BITS = re.compile(r'(\((?:Const|Imm) "(\w+)" )(\d+)(?=\))')
_NEGATIVE = re.compile(r"-\d+")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")


def with_bits(text: str) -> str:
    """The text of a rule file with bits in the place of numbers. What is no number of its dtype stays: the checker says why."""
    return _CONSTANT.sub(_replaced, text)


def with_numbers(text: str) -> str:
    """What is to be read by people, with numbers in the place of their bits; infinities and NaN stay, which no number spells."""
    return _BITS.sub(lambda found: f"{found[1]}{spelled(found[2], int(found[3]))}", text)


def spelled(dtype: str, bits: int) -> str:
    """The number that these bits are, where it is read as these bits again; otherwise the bits."""
    kind = next((each for each in DType if each.value == dtype), DType.BOOL)
    if kind is DType.BOOL or not 0 <= bits < 1 << 8 * kind.itemsize:
        return str(bits)
    number = from_bits(bits, kind)
    text = str(kind.numpy.type(number) if kind.is_float else number)
    text += ".0" if kind.is_float and text.lstrip("-").isdigit() else ""
    return text if bits_of(dtype, text) == bits else str(bits)


def _replaced(found: re.Match[str]) -> str:
    before, dtype, literal = found.groups()
    bits = None if before is None else bits_of(dtype, literal)
    return found[0] if bits is None else f"{before}{bits}"


def bits_of(dtype: str, literal: str) -> int | None:
    """The bits of a number that is spelled as one: with a sign in i32, with a decimal point in floats; None for anything else,
    and for what is too large."""
    kind = next((each for each in DType if each.value == dtype), DType.BOOL)
    if kind is DType.I32:
        return (
            to_bits(int(literal), kind) if _NEGATIVE.fullmatch(literal) and int(literal) >= -(2**31) else None
        )
    if not kind.is_float or not _DECIMAL.fullmatch(literal):
        return None
    bits = to_bits(float(literal), kind)
    return bits if math.isfinite(from_bits(bits, kind)) else None
