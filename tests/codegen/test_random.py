"""Random Regions: what the compiled kernel computes equals playback, bit for bit where arithmetic is exact."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from region_builder import BOOL, F16, F32, I32, Affine, Build, axis, compare, lit

from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region

SIZES = st.sampled_from([1, 2, 3, 5, 8, 17, 33])


@st.composite
def regions(draw: st.DrawFn) -> Region:
    """Reads at affine places (guarded where they may lie outside), elementwise values, nested reductions."""
    b = Build(**{f"i{n}": draw(SIZES) for n in range(draw(st.integers(0, 3)))})
    sizes = {item.name: item.size for item in b.iters}
    dtypes = [F32, F16, I32]
    count = 0

    def place(axes: list[str], size: int) -> tuple[Affine, bool]:
        index = lit(draw(st.integers(-2, 2)))
        for name in draw(st.lists(st.sampled_from(axes), max_size=2, unique=True)) if axes else []:
            index = index + axis(name) * draw(st.sampled_from([1, 1, 1, -1, 2]))
        if draw(st.integers(0, 4)) == 0:
            index = index // draw(st.integers(1, 3))
        low, high = index.bounds(sizes)
        return index, low >= 0 and high < size

    def read(axes: list[str], dtype: DType) -> str:
        name = f"X{len(b.inputs)}"
        shape = tuple(draw(SIZES) for _ in range(draw(st.integers(1, 3))))
        b.input(name, dtype, *shape)
        places = [place(axes, size) for size in shape]
        value = b.read(name, *(index for index, _ in places))
        for (index, proven), size in zip(places, shape, strict=True):
            if not proven:
                value = b.select(b.within(index, 0, size), value, b.const(draw(st.integers(-2, 2)), dtype))
        return value

    def value(axes: list[str], depth: int) -> str:
        nonlocal count
        kind = draw(st.integers(0, 6)) if depth else 0
        if kind == 0:
            return read(axes, draw(st.sampled_from(dtypes)))
        if kind == 1:
            return b.unary(draw(st.sampled_from(["NEG", "RELU"])), value(axes, depth - 1))
        if kind == 2:
            return b.cast(value(axes, depth - 1), draw(st.sampled_from(dtypes)))
        if kind in (3, 4):
            x, y = value(axes, depth - 1), value(axes, depth - 1)
            if b.types[x] is not b.types[y]:
                y = b.cast(y, b.types[x])
            op = draw(st.sampled_from(["ADD", "SUB", "MAX", "MIN", "CMPLT", "CMPEQ", "CMPNE"]))
            found = b.binary(op, x, y)
            return found if b.types[found] is not BOOL else b.select(found, x, b.const(1, b.types[x]))
        bound = {f"r{count + n}": draw(SIZES) for n in range(draw(st.integers(1, 2)))}
        count += len(bound)
        sizes.update(bound)
        if draw(st.booleans()):
            body = value([*axes, *bound], depth - 1)
        else:
            body = value([*draw(st.permutations(axes))[:1], *bound], depth - 1)
        return b.reduce(draw(st.sampled_from(["SUM", "MAX", "MIN"])), body, **bound)

    axes = [item.name for item in b.iters]
    return b.done(*(value(axes, 4) for _ in range(draw(st.integers(1, 2)))))


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(regions(), st.integers(0, 2**31))
def test_random_regions(region: Region, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {ref.name: rng.integers(-2, 3, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}
    # sums of small integers are exact until fp16 overflows its 11 bits, which both sides then round alike
    compare(region, arrays)
