"""Arithmetic on the bytes or halves of a register (PTX ISA, "Video Instructions": vadd2, vadd4 and their like).

Only the form without masks and selectors, which is what NVRTC writes. The third operand is added to the sum of all results with
``.add``, and otherwise not used, since the results replace all parts of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .types import Array, Operation, parse

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vabsdiff": lambda a, b: np.abs(a - b),
}


def video(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """The operation of a video instruction on 2 or 4 parts, None where it is no such instruction."""
    name, count = opcode[:-1], {"2": 2, "4": 4}.get(opcode[-1:], 0)
    if name not in FUNCTIONS or not count:
        return None
    kinds = ("u32", "s32")
    found = parse(modifiers, to=kinds, a=kinds, b=kinds, sat=("sat",), add=("add",))
    if found is None or not (found["to"] and found["a"] and found["b"]) or (found["sat"] and found["add"]):
        return None
    function, bits = FUNCTIONS[name], 32 // count
    signed = {group: found[group] == "s32" for group in ("to", "a", "b")}
    low = -(1 << (bits - 1)) if signed["to"] else 0
    high = low + (1 << bits) - 1

    def part(x: Array, place: int, sign: bool) -> Array:
        value = (x.astype(np.int64) >> (bits * place)) & ((1 << bits) - 1)
        return value - ((value >> (bits - 1)) << bits) if sign else value

    def compute(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        total = c.astype(np.int64) if found["add"] else np.zeros(a.shape, np.int64)
        for place in range(count):
            value = function(part(a, place, signed["a"]), part(b, place, signed["b"]))
            if found["sat"]:
                value = np.clip(value, low, high)
            total = total + (value if found["add"] else (value & ((1 << bits) - 1)) << (bits * place))
        return (total.astype(np.uint64).astype(np.uint32),)

    return Operation((found["to"],), (found["a"], found["b"], found["to"]), compute)
