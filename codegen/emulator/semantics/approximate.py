"""Approximate functions (PTX ISA: div.approx, div.full, rcp.approx, sqrt.approx, rsqrt.approx, sin, cos, lg2, ex2, tanh).

Hardware errs in the last bits, as the ISA's table for each instruction allows, and differently on each architecture. Here each is
the exact function, computed in float64 and rounded once to nearest even, so that a result is wrong in no more than what the
double rounding of float64 can do; a kernel whose results depend on more than that depends on one machine. ``.ftz`` flushes as
everywhere; sin, cos, lg2, ex2, rcp, rsqrt and sqrt give what the ISA lists for zeros, infinities and NaN. The range of div.approx
is not restricted as the ISA allows (a divisor above 2**126 gives no zero). rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 see and
give only the upper 32 bits of a number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .floating import HALVES, lifted
from .rounding import BF16, F16, F64, FORMATS, Format, canonical, decoded, flushed, rounded
from .types import Array, Operation, parse

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "div": np.divide,
    "rcp": lambda a: 1.0 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def approximate(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """The operation of an approximate instruction, None where it is no such instruction."""
    if opcode not in FUNCTIONS:
        return None
    found = parse(modifiers, how=("approx", "full"), ftz=("ftz",), type=("f32", "f64", *HALVES))
    if found is None or not found["how"] or not found["type"] or (found["how"] == "full" and opcode != "div"):
        return None
    kind, flushes = found["type"], bool(found["ftz"])
    form = FORMATS[kind.removesuffix("x2")]
    function = FUNCTIONS[opcode]
    if form is F64:
        if opcode not in ("rcp", "rsqrt") or (opcode == "rcp" and not flushes):
            return None
        return lifted(kind, 1, lambda a: (_upper(a, function) if flushes else _rounded(function, F64, a),))
    if form in (F16, BF16):
        bf16_ex2 = form is BF16 and opcode == "ex2"
        if opcode not in ("ex2", "tanh") or flushes != bf16_ex2:
            return None
    elif flushes and opcode == "tanh":
        return None

    def compute(*operands: Array) -> tuple[Array, ...]:
        if not flushes:
            return (_rounded(function, form, *operands),)
        return (flushed(_rounded(function, form, *(flushed(operand, form) for operand in operands)), form),)

    return lifted(kind, 2 if opcode == "div" else 1, compute)


def _rounded(function: Callable[..., Array], form: Format, *operands: Array) -> Array:
    values = np.asarray(function(*(decoded(operand, form) for operand in operands)))
    return rounded((values, None), form, "rn")


def _upper(a: Array, function: Callable[..., Array]) -> Array:
    """The function of f64 numbers of which only the upper 32 bits count, to as many bits; subnormal ones are zeros."""
    upper = np.uint64(0xFFFFFFFF00000000)
    values = np.asarray(function(flushed(a & upper, F64).view(np.float64)))
    return flushed(canonical(values.view(np.uint64) & upper, np.isnan(values), F64), F64)
