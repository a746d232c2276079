"""Integer operations held against functions of Python's integers, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyc.codegen.emulator.semantics import operation

COUNT = 2000
KINDS = ("u16", "s16", "u32", "s32", "u64", "s64")


def width(kind: str) -> int:
    return int(kind[1:])


def number(bits: int, kind: str) -> int:
    """The integer that bits are in a type."""
    size = width(kind)
    return bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits


def samples(kind: str, seed: int, count: int = COUNT) -> np.ndarray:
    """Any bits, small numbers of both signs, and the ends of the ranges."""
    rng = np.random.default_rng(seed)
    size = width(kind)
    top = 1 << (size - 1)
    edges = [
        0,
        1,
        2,
        3,
        7,
        8,
        31,
        32,
        33,
        63,
        64,
        top - 1,
        top,
        top + 1,
        2 * top - 2,
        2 * top - 1,
        0x80,
        0x7F,
        0xFF,
    ]
    parts = [
        rng.integers(0, 1 << 64, count // 2, np.uint64) >> np.uint64(64 - size),
        (rng.integers(-100, 100, count // 4).astype(np.uint64) << np.uint64(64 - size))
        >> np.uint64(64 - size),
        rng.choice(
            np.array([edge & (2 * top - 1) for edge in edges], np.uint64), count - count // 2 - count // 4
        ),
    ]
    return rng.permutation(np.concatenate(parts)).astype(f"uint{size}")


def check(
    name: str, modifiers: tuple[str, ...], expected: Callable[..., int | tuple[int, ...]], count: int = COUNT
) -> None:
    """All results of an operation on samples, bit for bit; ``expected`` gets the bits of the operands."""
    found = operation(name, modifiers)
    assert found is not None, (name, modifiers)
    operands = []
    for seed, kind in enumerate(found.operands):
        if kind == "pred":
            operands.append(np.random.default_rng(seed).integers(0, 2, count).astype(bool))
        else:
            operands.append(samples("u32" if kind.endswith("x2") else kind, seed + 10, count))
    before = [operand.copy() for operand in operands]
    results = found.compute(*operands)
    assert len(results) == len(found.results)
    assert all(np.array_equal(*pair) for pair in zip(before, operands, strict=True))
    for result, kind in zip(results, found.results, strict=True):
        assert result.dtype == (
            bool if kind == "pred" else f"uint{32 if kind.endswith('x2') else width(kind)}"
        ), kind
    for index, column in enumerate(zip(*(operand.tolist() for operand in operands), strict=True)):
        wanted = expected(*column)
        given = tuple(result[index].item() for result in results)
        assert given == (wanted if isinstance(wanted, tuple) else (wanted,)), [hex(each) for each in column]


def wrapped(value: int, kind: str) -> int:
    return value & ((1 << width(kind)) - 1)


def clamped(value: int, kind: str) -> int:
    top = 1 << (width(kind) - 1)
    low, high = (-top, top - 1) if kind[0] == "s" else (0, 2 * top - 1)
    return wrapped(min(max(value, low), high), kind)
