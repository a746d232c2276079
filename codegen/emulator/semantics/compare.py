"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions" and "Half Precision Comparison Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .floating import lifted
from .rounding import FORMATS, decoded, flushed
from .types import WIDTH, Array, Operation, numbers, parse, quiet

ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
#: below, same and higher: comparison of unsigned integers; with u and num, nan: comparison that a NaN makes true
TESTS = (*ORDERED, "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
COMBINED: dict[str, Callable[..., Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
INTEGERS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
FLOATS = ("f32", "f64", "f16", "bf16")
PACKED = ("f16x2", "bf16x2")

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def comparison(opcode: str, modifiers: tuple[str, ...], results: int = 1) -> Operation | None:
    """The operation of setp, set, selp or slct, None where it is no such instruction.

    ``results`` is the number of predicates that a setp writes. The second one is the comparison's complement, combined with the
    third operand alike; for f16x2 and bf16x2 there are always two, of the lower and of the upper element.
    """
    if opcode == "selp":
        return _selected(modifiers)
    if opcode == "slct":
        return _by_sign(modifiers)
    if opcode == "set":
        return _set(modifiers)
    return _predicated(modifiers, results) if opcode == "setp" else None


def test(name: str, kind: str, ftz: bool = False) -> Callable[..., Array] | None:
    """The comparison ``name`` as a function of the bits of two numbers of type ``kind``, None where there is no such comparison."""
    if kind in INTEGERS:
        if name not in FUNCTIONS or (name in ("lo", "ls", "hi", "hs") and kind[0] != "u"):
            return None
        if kind[0] == "b" and name not in ("eq", "ne"):
            return None
        function = FUNCTIONS[name]
        return lambda a, b: function(numbers(a, kind), numbers(b, kind))
    if name in ("lo", "ls", "hi", "hs"):
        return None
    form = FORMATS[kind]

    def values(bits: Array) -> Array:
        bits = flushed(bits, form) if ftz else bits
        return bits.view(np.float32) if kind == "f32" else decoded(bits, form)

    def compare(a: Array, b: Array) -> Array:
        x, y = values(a), values(b)
        if name in ORDERED:  # false for a NaN, "ne" too, which numpy says is true
            return FUNCTIONS[name](x, y) if name != "ne" else (x < y) | (x > y)
        unordered = np.isnan(x) | np.isnan(y)
        if name in ("nan", "num"):
            return unordered if name == "nan" else ~unordered
        return FUNCTIONS[name[:2]](x, y) | unordered

    return compare


def _read(modifiers: tuple[str, ...], results: tuple[str, ...]) -> dict[str, str] | None:
    found = parse(
        modifiers,
        test=TESTS,
        combine=tuple(COMBINED),
        ftz=("ftz",),
        result=results,
        type=(*INTEGERS, *FLOATS, *PACKED),
    )
    if found is None or not found["test"] or not found["type"] or (results and not found["result"]):
        return None
    if found["ftz"] and found["type"] not in ("f32", "f16", "f16x2"):
        return None
    return found


def _predicated(modifiers: tuple[str, ...], results: int) -> Operation | None:
    found = _read(modifiers, ())
    if found is None:
        return None
    kind = found["type"]
    compare = test(found["test"], kind.removesuffix("x2"), bool(found["ftz"]))
    if compare is None:
        return None
    combine = COMBINED.get(found["combine"])
    halves, pair = kind in PACKED, results == 2 or kind in PACKED

    def compute(a: Array, b: Array, *third: Array) -> tuple[Array, ...]:
        if halves:
            first = compare(_half(a, 0), _half(b, 0))
            second = compare(_half(a, 1), _half(b, 1))
        else:
            first = compare(a, b)
            second = ~first if pair else first
        values = (first, second) if pair else (first,)
        return values if combine is None else tuple(combine(value, third[0]) for value in values)

    operands = (kind, kind) + (("pred",) if combine else ())
    return Operation(("pred",) * (2 if pair else 1), operands, quiet(compute))


def _half(bits: Array, index: int) -> Array:
    return (bits >> np.uint32(16 * index)).astype(np.uint16)


def _set(modifiers: tuple[str, ...]) -> Operation | None:
    """set: all ones or zero for an integer result, 1.0 or 0.0 for a float one."""
    found = _read(modifiers, ("u16", "s16", "u32", "s32", "f32", "f16", "bf16", "f16x2", "bf16x2"))
    if found is None:
        return None
    kind, result = found["type"], found["result"]
    packs = kind in PACKED
    if result in PACKED and result != kind:
        return None
    element = kind.removesuffix("x2")
    compare = test(found["test"], element, bool(found["ftz"]))
    if compare is None:
        return None
    combine = COMBINED.get(found["combine"])
    if packs and (combine or result not in (kind, "u32", "s32")):
        return None
    true = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(result.removesuffix("x2"))
    width = 16 if packs else WIDTH[result]
    one = np.dtype(f"uint{width}").type((1 << width) - 1 if true is None else true)

    def compute(a: Array, b: Array, *third: Array) -> tuple[Array, ...]:
        value = compare(a, b)
        if combine is not None:
            value = combine(value, third[0])
        return (np.where(value, one, one.dtype.type(0)),)

    if packs:
        packed = lifted(kind, 2, compute)
        return Operation((result,), packed.operands, packed.compute)
    return Operation((result,), (kind, kind) + (("pred",) if combine else ()), quiet(compute))


def _selected(modifiers: tuple[str, ...]) -> Operation | None:
    if len(modifiers) != 1 or modifiers[0] not in (*INTEGERS, *FLOATS, *PACKED):
        return None
    kind = modifiers[0]

    def compute(a: Array, b: Array, condition: Array) -> tuple[Array, ...]:
        return (np.where(condition, a, b),)

    return Operation((kind,), (kind, kind, "pred"), compute)


def _by_sign(modifiers: tuple[str, ...]) -> Operation | None:
    """slct: the first of two values where the third number is at least 0 (-0 is), the second where it is below or a NaN."""
    found = parse(modifiers, ftz=("ftz",), type=(*INTEGERS, "f32", "f64"), by=("s32", "f32"))
    if found is None or not found["type"] or not found["by"] or (found["ftz"] and found["by"] != "f32"):
        return None
    kind, by, flushes = found["type"], found["by"], bool(found["ftz"])

    def compute(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        if by == "s32":
            return (np.where(c.view(np.int32) >= 0, a, b),)
        number = (flushed(c, FORMATS["f32"]) if flushes else c).view(np.float32)
        return (np.where(number >= 0, a, b),)

    return Operation((kind,), (kind, kind, by), quiet(compute))
