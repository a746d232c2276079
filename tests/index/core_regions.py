"""Small Regions for the tests of Poly Core, and what they need and read, point by point."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.region import (
    Axis,
    Binary,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Unary,
    Value,
    Within,
    Yield,
    operands,
)

F32, BOOL = DType.FP32, DType.BOOL
Pick = Callable[[int], int]


@dataclass
class Made:
    """A Region under construction; every method that makes a let returns its name."""

    iters: dict[str, int]
    inputs: dict[str, MemRef] = field(default_factory=dict)
    lets: list[Let] = field(default_factory=list)

    def let(self, value: Value, dtype: DType = F32) -> str:
        self.lets.append(Let(f"t{len(self.lets)}", dtype, value))
        return self.lets[-1].name

    def read(self, tensor: str, shape: tuple[int, ...], *index: Affine | str | int) -> str:
        ref = self.inputs.setdefault(tensor, MemRef(tensor, F32, shape))
        return self.let(Read(tensor, at(*index)), ref.dtype)

    def mask(self, tensor: str, shape: tuple[int, ...], *index: Affine | str | int) -> str:
        self.inputs.setdefault(tensor, MemRef(tensor, BOOL, shape))
        return self.let(Read(tensor, at(*index)), BOOL)

    def within(self, index: Affine | str, lo: int, hi: int) -> str:
        return self.let(Within(at(index)[0], lo, hi), BOOL)

    def both(self, x: str, y: str) -> str:
        return self.let(Binary("MIN", x, y), BOOL)

    def either(self, x: str, y: str) -> str:
        return self.let(Binary("MAX", x, y), BOOL)

    def const(self, dtype: DType = F32, bits: int = 0) -> str:
        return self.let(Const(bits), dtype)

    def select(self, cond: str, then: str, other: str | None = None) -> str:
        return self.let(Select(cond, then, other or self.const()))

    def mul(self, x: str, y: str) -> str:
        return self.let(Binary("MUL", x, y))

    def unary(self, op: str, x: str) -> str:
        return self.let(Unary(op, x))

    def reduce(self, body: str, op: str = "SUM", **axes: int) -> str:
        return self.let(Reduce(op, tuple(Axis(name, size) for name, size in axes.items()), body))

    def done(self, *values: str, name: str = "region") -> Region:
        shape = tuple(self.iters.values())
        values = values or (self.lets[-1].name,)
        names = [name if len(values) == 1 else f"{name}{number}" for number in range(len(values))]
        iters = tuple(Axis(each, size) for each, size in self.iters.items())
        return Region(
            f"k_{name}",
            iters,
            tuple(self.inputs.values()),
            tuple(MemRef(each, F32, shape) for each in names),
            tuple(self.lets),
            tuple(Yield(value, each) for value, each in zip(values, names, strict=True)),
        )


def region(**iters: int) -> Made:
    return Made(iters)


def at(*index: Affine | str | int) -> tuple[Affine, ...]:
    return tuple(axis(i) if isinstance(i, str) else lit(i) if isinstance(i, int) else i for i in index)


def conv(
    size: int = 8,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    dilation: int = 1,
    high: int | None = None,
    low: int = 0,
    channels: int = 2,
) -> Region:
    """Document 004 §6.8.2 for a square image: ``y[ho, wo]``, guarded by ``low <= index < high`` (None: the size)."""
    out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    b = region(ho=out, wo=out)
    rows = axis("ho") * stride + axis("kh") * dilation - pad
    columns = axis("wo") * stride + axis("kw") * dilation - pad
    limit = size if high is None else high
    x = b.read("X", (channels, size, size), "ci", rows, columns)
    for index in (rows, columns):
        x = b.select(b.within(index, low, limit), x)
    product = b.mul(b.read("W", (channels, kernel, kernel), "ci", "kh", "kw"), x)
    return b.done(b.reduce(product, ci=channels, kh=kernel, kw=kernel), name="Y")


def points(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    for values in itertools.product(*map(range, sizes.values())):
        yield dict(zip(sizes, values, strict=True))


def sizes_of(given: Region) -> dict[str, int]:
    sizes = {axis.name: axis.size for axis in given.iters}
    for let in given.lets:
        if isinstance(let.value, Reduce | Stream):
            sizes |= {axis.name: axis.size for axis in let.value.axes}
    return sizes


def needed_at(given: Region, point: Mapping[str, int]) -> set[str]:
    """The lets that are needed at a point of all axes: what a data-dependent condition may choose counts."""
    may: dict[str, frozenset[bool]] = {}
    for let in given.lets:
        if let.dtype is BOOL:
            may[let.name] = _outcomes(let, may, point)
    needed = {stored.value for stored in given.yields}
    for let in reversed(given.lets):
        if let.name not in needed:
            continue
        if isinstance(let.value, Select):
            needed.add(let.value.cond)
            needed |= {let.value.then} if True in may[let.value.cond] else set()
            needed |= {let.value.other} if False in may[let.value.cond] else set()
        else:
            needed.update(operands(let.value))
    return needed


def _outcomes(let: Let, may: Mapping[str, frozenset[bool]], point: Mapping[str, int]) -> frozenset[bool]:
    match let.value:
        case Within(index, lo, hi):
            return frozenset({lo <= index.evaluate(point) < hi})
        case Const(bits):
            return frozenset({bool(bits)})
        case Binary(op, x, y) if x in may and y in may:
            decide: Callable[[bool, bool], bool] = {
                "MIN": lambda a, b: a and b,
                "MAX": lambda a, b: a or b,
                "CMPEQ": lambda a, b: a == b,
                "CMPNE": lambda a, b: a != b,
                "CMPLT": lambda a, b: a < b,
            }[op]
            return frozenset(decide(a, b) for a in may[x] for b in may[y])
        case Select(cond, then, other):
            found = (may[then] if holds else may[other] for holds in may[cond])
            return frozenset[bool]().union(*found)
        case _:
            return frozenset({True, False})


def leaving(given: Region) -> dict[str, set[int]]:
    """Per Read, the dimensions in which it leaves its buffer somewhere: every point of all axes is tried."""
    shapes = {ref.name: ref.shape for ref in given.inputs}
    reads = [let for let in given.lets if isinstance(let.value, Read)]
    found: dict[str, set[int]] = {}
    for point in points(sizes_of(given)):
        needed = needed_at(given, point)
        for let in reads:
            assert isinstance(let.value, Read)
            for number, (index, size) in enumerate(zip(let.value.map, shapes[let.value.tensor], strict=True)):
                if let.name in needed and not 0 <= index.evaluate(point) < size:
                    found.setdefault(let.name, set()).add(number)
    return found


def random_region(pick: Pick, tensor: str = "P", shape: tuple[int, ...] | None = None) -> Region:
    """One or two Reads at random maps, behind random guards and Selects, some under a reduction."""
    sizes = {"i": 1 + pick(5), "j": 1 + pick(4)}
    bound = {"r": 1 + pick(3)} if pick(3) else {}
    everything = {**sizes, **bound}
    b = Made(sizes)

    def index() -> Affine:
        found = lit(pick(5) - 2)
        for name in everything:
            found = found + axis(name) * (0, 0, 1, 1, 1, 2, -1)[pick(7)]
        return found // (2 + pick(2)) if pick(4) == 0 else found

    def condition(depth: int) -> str:
        way = pick(9 if depth else 5)
        if way < 4:
            low = pick(4) - 1
            return b.within(index(), low, low + pick(5))
        if way == 4:
            return b.const(BOOL, pick(2)) if pick(2) else b.mask("mask", (64,), "i")
        x, y = condition(depth - 1), condition(depth - 1)
        if way == 8:
            return b.let(Select(condition(depth - 1), x, y), BOOL)
        return b.let(Binary(("MIN", "MIN", "MAX", ("CMPEQ", "CMPNE", "CMPLT")[pick(3)])[way - 5], x, y), BOOL)

    values = []
    for _ in range(1 + pick(2)):
        target = shape if shape is not None else tuple(1 + pick(5) for _ in range(1 + pick(2)))
        name = tensor if shape is not None else f"{tensor}{len(values)}"
        value = b.read(name, target, *(index() for _ in target))
        for _ in range(pick(4)):
            other = values[-1] if values and pick(3) == 0 else None
            pair = (value, other or b.const())
            value = b.select(condition(1), *(pair if pick(4) else pair[::-1]))
            if pick(4) == 0:
                value = b.mul(value, b.const())
        values.append(value)
    result = values[0] if len(values) == 1 else b.mul(*values)
    return b.done(b.reduce(result, **bound) if bound else result)
