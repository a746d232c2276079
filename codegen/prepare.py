"""A Region before code generation: without axes of size 1, and as comments for the head of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyc.ir.dtypes import from_bits
from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.region import (
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Stream,
    Unary,
    Within,
    operands,
)


def simplify(region: Region) -> Region:
    """The same Region without axes of size 1."""
    one = {item.name: lit(0) for item in region.iters if item.size == 1}
    for let in region.lets:
        if isinstance(let.value, Reduce | Stream):
            one |= {item.name: lit(0) for item in let.value.axes if item.size == 1}
    lets = []
    for let in region.lets:
        value = let.value
        match value:
            case Read(tensor, index_map):
                value = Read(tensor, tuple(index.substitute(one) for index in index_map))
            case Within(index, lo, hi):
                value = Within(index.substitute(one), lo, hi)
            case Reduce(op, axes, body):
                value = Reduce(op, tuple(item for item in axes if item.name not in one), body)
            case Stream(axes):
                value = replace(value, axes=tuple(item for item in axes if item.name not in one))
        lets.append(replace(let, value=value))
    iters = tuple(item for item in region.iters if item.name not in one)
    return replace(region, iters=iters, lets=tuple(lets))


def linear(index_map: Sequence[Affine], ref: MemRef) -> Affine:
    """The position of an element in the buffer, row by row."""
    total, stride = lit(0), ref.elements
    for expression, size in zip(index_map, ref.shape, strict=True):
        stride //= size
        total = total + expression * stride
    return total


def describe(region: Region, mark: str) -> list[str]:
    """The Region as comments, which begin with ``mark``, with generated names: what the user called things stays out of the
    source."""
    names: dict[str, str] = {}
    for number, item in enumerate(region.iters):
        names[item.name] = f"i{number}"
    number = 0
    for let in region.lets:
        if isinstance(let.value, Reduce | Stream):
            for item in let.value.axes:
                if item.name not in names:  # Streams may share axes
                    names[item.name] = f"r{number}"
                    number += 1
    values = {let.name: f"%v{number}" for number, let in enumerate(region.lets)}
    tensors = {ref.name: f"%in{number}" for number, ref in enumerate(region.inputs)}
    rename = {old: axis(new) for old, new in names.items()}
    lines = ["iters " + " ".join(f"{names[item.name]}<{item.size}" for item in region.iters)]
    for number, ref in enumerate(region.inputs):
        lines.append(f"in{number}: {ref.dtype}{list(ref.shape)}")
    for let in region.lets:
        lines.append(f"{values[let.name]}: {let.dtype} = {_describe(let, values, tensors, names, rename)}")
    for number, ref in enumerate(region.outputs):
        stored = next(item.value for item in region.yields if item.to == ref.name)
        lines.append(f"out{number}: {ref.dtype}{list(ref.shape)} = {values[stored]}")
    return [f"{mark} {line}" for line in lines]


def _describe(
    let: Let,
    values: dict[str, str],
    tensors: dict[str, str],
    names: dict[str, str],
    rename: dict[str, Affine],
) -> str:
    match let.value:
        case Read(tensor, index_map):
            return f"{tensors[tensor]}[{', '.join(str(index.substitute(rename)) for index in index_map)}]"
        case Const(bits):
            return str(from_bits(bits, let.dtype))
        case Within(index, lo, hi):
            return f"{lo} <= {index.substitute(rename)} < {hi}"
        case Reduce(op, axes, body):
            over = " ".join(f"{names[item.name]}<{item.size}" for item in axes)
            return f"{op} over {over}: {values[body]}"
        case Stream(axes, score, weight, scale, dtype):
            over = " ".join(f"{names[item.name]}<{item.size}" for item in axes)
            powers = f"exp2({values[score]} * {values[scale]})"
            powers = powers if dtype is None else f"{dtype}({powers} / sum)"
            return f"STREAM over {over}: {powers} * {values[weight]}"
        case Unary(op, _) | Binary(op, _, _):
            head = op
        case Cast():
            head = "CAST"
        case _:
            head = "WHERE"
    return " ".join([head, *(values[name] for name in operands(let.value))])
